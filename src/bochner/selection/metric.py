"""A metric learned from the targets: recursive feature machines on random features.

Radhakrishnan et al. (2024), *Mechanism for feature learning in neural networks and
backpropagation-free machine learning models*, algorithm 1: fit with k(x, y) = κ(|x − y|_M), then
let M be the average outer product of the fit's gradients, and again. On Fourier features
f(x) = Σ_j a_j cos ω_j·x + b_j sin ω_j·x the gradient is ∇f(x) = W c(x), c_j = b_j cos − a_j sin, so

    M = (1/n) Σ_i ∇f(x_i) ∇f(x_i)ᵀ = W (CᵀC/n) Wᵀ.

Directions along which the target does not vary are forgotten; those along which it varies fast get
short lengthscales. Lengthscale and penalty of each round are tuned
(:mod:`bochner.selection.descent`), and rows held out tell whether a round is surely better
than the start.
"""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.blas import eigh
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.maps import by_angles
from bochner.kernels.algebra import Mahalanobis
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Radial
from bochner.selection.descent import (
    Evaluated,
    Hyperparameters,
    OnFeatures,
    Prior,
    Rescaled,
    TimeBudget,
    descend,
    family_of,
    in_numbers,
    on_grid,
)
from bochner.selection.record import LearnedMetric, MetricRound
from bochner.selection.rows import TuningRows, rows_of, significant
from bochner.selection.trials import (
    HeldOutTrials,
    KernelCandidate,
    Trial,
    crossed,
    first_least,
    split_rows,
    targets_that_vary,
    trial_width,
)
from bochner.solvers.ridge.criteria import coefficients

#: Rows that a round is fitted to, its features, and steps of its lengthscale and penalty.
ROWS, WIDTH, STEPS = 3072, 512, 8

#: From this many columns on the metric is diagonal: d² numbers are more than rows can tell.
MANY_COLUMNS = 256

#: Share of the mean eigenvalue that every direction keeps: none is lost for good.
KEPT = 1e-4

#: Multiples that entries of the metric are rounded to: above rounding, far below what is kept.
GRID = 1e-7


def learn_metric(
    kernel: Kernel,
    sample: RowSample,
    n_features: int,
    seed: int,
    *,
    rounds: int = 4,
    diagonal: bool | None = None,
) -> LearnedMetric:
    """Learn a metric from a sample of rows, in a few rounds of fit and average outer product.

    Parameters
    ----------
    kernel : Kernel
        A kernel of the Euclidean distance (with a diagonal metric any with lengthscales); the
        metric starts from its lengthscales.
    sample : RowSample
    n_features : int
        D of the fit.
    seed : int
    rounds : int, default 4
    diagonal : bool, optional
        Whether columns are scaled and not turned; the default for more than 256 columns.

    Returns
    -------
    LearnedMetric
        Of the round with the least error on rows held out.

    Raises
    ------
    UnsupportedKernel
        If the kernel is not one of the Euclidean distance.

    Notes
    -----
    A round: O(n D² + n D d + d³) a step with n ≤ 3072 and D ≤ 512.
    """
    integer(rounds, "learn_metric", "rounds", least=1)
    require_dense(sample)
    diagonal = is_diagonal(sample) if diagonal is None else diagonal
    start = kernel if diagonal else _euclidean(kernel)
    family = family_of(start)
    train, test = split_rows(rows_of(sample), seed)
    if not np.any(targets_that_vary(train)):
        return LearnedMetric(_rows(np.eye(sample.X.shape[1])), start, float("nan"), ())
    machine = _Machine(family, train.first(ROWS), test, n_features, seed, diagonal)
    return machine.run(_start(start, train.units), rounds)


def require_dense(sample: RowSample) -> None:
    """Refuse sparse rows."""
    if is_sparse(sample.X):
        raise InvalidInput(
            'metric="learned" requires dense rows, whose columns can be turned; got sparse ones. '
            "Pass X.toarray(), or tune lengthscales instead."
        )


def is_diagonal(sample: RowSample) -> bool:
    """Whether columns are scaled and not turned."""
    return sample.X.shape[1] > MANY_COLUMNS


def average_outer_product(
    X: Float[Array, "n d"],
    W: Float[Array, "d m"],
    Z: Float[Array, "n D"],
    coef: Float[Array, "D t"],
    w: Float[Array, " n"],
) -> Float[Array, "d d"]:
    """Return Σ_i w_i ∇f(x_i) ∇f(x_i)ᵀ/W, summed over targets, of f = Zβ with Z = [cos, sin] of XW.

    Cost O(t n d (m + d)).
    """
    total = np.zeros((X.shape[1],) * 2)
    for beta in coef.T.astype(Z.dtype):
        slopes = (by_angles(Z, beta) @ W.T.astype(Z.dtype)).astype(np.float64)
        total += slopes.T @ (w[:, None] * slopes)
    return total / w.sum()


@dataclass(frozen=True, eq=False)
class _Machine:
    """A recursive feature machine: its family, rows to fit and to err on, its width."""

    family: Kernel
    train: TuningRows
    test: TuningRows
    n_features: int
    seed: int
    diagonal: bool

    def run(self, M: Float[Array, "d d"], rounds: int) -> LearnedMetric:
        """Return the best of the metric that it starts from and of all rounds."""
        train, test = self.train, self.test
        trials: list[Trial] = []
        found: list[tuple[MetricRound, Array]] = []
        for number in range(rounds + 1):
            L = _root(M)
            turned = _turned(train, L)
            fitted = self._fitted(turned, number)
            trial = self._held_out(turned, _turned(test, L), fitted.at)
            gain, deviation = (0.0, 0.0) if not trials else trial.gain(trials[0])
            trials.append(trial)
            kernel, loo = self._kernel(M, trial.candidate), float(np.exp(fitted.value))
            found.append((MetricRound(kernel, trial.error, loo, gain, deviation), M))
            M = self._next(fitted, train, L)
        best = first_least([trial.error for trial in trials])
        best = best if trials[best].surely_below(trials[0]) else 0
        (taken, A), squared = found[best], crossed([trial.squared for trial in trials])
        error = float(squared.sum() / test.w.sum()) if best else taken.error
        return LearnedMetric(_rows(A), taken.kernel, error, tuple(r for r, _ in found))

    def _fitted(self, turned: TuningRows, number: int) -> Evaluated[OnFeatures]:
        """Tune lengthscale and penalty in this metric, with frequencies of the round's own."""
        width, d = min(WIDTH, self.n_features), turned.X.shape[1]
        rescaled = Rescaled.draw(self.family, d, width, self.seed + number)
        median = turned.log_median(self.seed)
        prior = Prior(median, turned.count, d)
        criterion = OnFeatures(rescaled, turned, np.zeros(d), prior=prior)
        start = Hyperparameters(np.array([median]), float(np.log(1e-3)))
        return descend(criterion, start, STEPS, TimeBudget.of(None), lambda _: None).rounded

    def _held_out(self, train: TuningRows, test: TuningRows, at: Hyperparameters) -> Trial:
        width = trial_width(self.n_features, len(train), WIDTH)
        logs = np.full(train.X.shape[1], at.lengths[0])
        candidate = KernelCandidate(self.family, logs, float(np.exp(at.share)), 1)
        return HeldOutTrials(train, test, width, self.seed).trial(candidate)

    def _next(self, fitted: Evaluated[OnFeatures], train: TuningRows, L: Array) -> Array:
        """Return the average outer product of the fit's gradients, of trace d."""
        on, at = fitted.of, fitted.at
        W = on.rescaled.frequencies(on.logs(at), None)
        Z = on.rescaled.features(on.rows.X, W)
        coef = coefficients(Z, train.y, train.w, float(np.exp(at.share) * train.w.sum()))
        M = average_outer_product(train.X, L @ W, Z, coef, train.w)
        return _normalised(np.diag(np.diag(M)) if self.diagonal else M)

    def _kernel(self, M: Array, candidate: KernelCandidate) -> Kernel:
        """Return the kernel in the units of the data."""
        length, units = significant(float(np.exp(candidate.logs[0]))), self.train.units
        if self.diagonal:
            return self.family.replace(
                lengthscale=in_numbers(length * units / np.sqrt(np.diag(M)), one=False)
            )
        A = M / np.outer(units, units)
        return Mahalanobis(self.family.replace(lengthscale=length), _rows(A))


def _euclidean(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Radial):
        return kernel
    raise UnsupportedKernel(
        'metric="learned" requires a kernel of the Euclidean distance (Gaussian, Matern, '
        f"Exponential, RationalQuadratic), whose distance can be turned; got {kernel!r}. Take one "
        "of those, or a diagonal metric."
    )


def _start(kernel: Kernel, units: Float[Array, " d"]) -> Float[Array, "d d"]:
    lengths = np.broadcast_to(np.asarray(kernel.get_params()["lengthscale"]), units.shape)
    return _normalised(np.diag((units / lengths) ** 2))


def _normalised(M: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return M with a trace of d, and a little in every direction, on a grid."""
    d = len(M)
    M = (M + M.T) / 2 * (d / max(float(np.trace(M)), np.finfo(float).tiny))
    return on_grid((M + KEPT * np.eye(d)) / (1 + KEPT), GRID)


def _root(M: Float[Array, "d d"]) -> Float[Array, "d d"]:
    values, vectors = eigh(M)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _turned(rows: TuningRows, L: Float[Array, "d d"]) -> TuningRows:
    return replace(rows, X=np.ascontiguousarray(rows.X @ L.astype(rows.X.dtype)))


def _rows(A: Float[Array, "d d"]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, ((A + A.T) / 2).tolist()))
