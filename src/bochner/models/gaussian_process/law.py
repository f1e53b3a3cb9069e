"""The law of f given the rows: what all forms of Gaussian processes have, and the exact form."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from bochner._core.arrays import numpy_rows, to_numpy
from bochner._core.checks import require_squares
from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float, Int
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Piece, join, required_targets
from bochner.errors import InvalidInput, SolutionWarning, UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel, has_free
from bochner.models._rows import KernelSum
from bochner.models.representations.representation import Lacking, chosen_exactly, gather
from bochner.selection.choose import Search, choose_for_matrix
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.lengthscales import choose_lengthscale
from bochner.selection.numbers import by_evidence
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.spec import UNASKED
from bochner.solvers.ridge.dual import KernelFactor, KernelRows
from bochner.solvers.ridge.kernel_path import EVIDENCE_ROWS, choose_penalty
from bochner.solvers.ridge.problem import amplitude_at, evidence
from bochner.solvers.ridge.solution import Evidence
from bochner.sums.passes import LOCAL, Executor, require_order

#: Fewest rows that chose neither lengthscales nor noise whose errors make intervals.
ENOUGH = 1024


@dataclass(frozen=True)
class GaussianProcessSpec:
    """Checked parameters of a Gaussian process."""

    features: FeatureSpec
    # None: chosen by the evidence
    noise: float | None
    amplitude: float | None
    lengthscale: str  # "auto", "loo", "evidence"
    fit_intercept: bool
    # "auto", "evidence". The criterion for noise and amplitude where the kernel itself is fitted.
    criterion: str = "evidence"


def search_of(
    spec: GaussianProcessSpec, fit: Callable[..., Any], most: int, share: float | None = None
) -> Search | None:
    """Return how lengthscales are found; None for the usual search.

    The lengthscale of a family is found by leave-one-out errors and by the evidence. Where both
    ways are open the one with the larger leave-one-out log density is taken, of laws that ``fit``
    finds for ``most`` rows. ``share`` is a given penalty per unit of weight.
    """
    kernel, by = spec.features.kernel, spec.lengthscale
    given: Any = {"centred": spec.fit_intercept, "noise": spec.noise, "amplitude": spec.amplitude}
    if kernel == "linear" or by == "loo":
        return None

    def named(name: str, sample: RowSample) -> Tuning:
        return choose_lengthscale(name, sample, spec.features.seed, share, spec.fit_intercept)

    def likeliest(kernel: Kernel | str, sample: RowSample) -> Tuning:
        if isinstance(kernel, str):
            kernel = named("matern32" if kernel == "auto" else kernel, sample).kernel
        return by_evidence(kernel, sample, spec.features.seed, **given)

    if by == "evidence" or has_free(kernel):
        return likeliest
    if isinstance(kernel, Kernel) or kernel in UNASKED or spec.features.learns_metric:
        return None

    def log_density(sample: RowSample, kernel: Kernel) -> float:
        few, asked = sample.lowest(most), spec.features
        asked = replace(asked, kernel=kernel, width=asked.width_to_search)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SolutionWarning)
            trial = replace(spec, features=asked, lengthscale="loo")
            return fit(trial, Blocks.from_arrays(few.X, few.y, few.w)).loo_log_density

    def likelier(name: str, sample: RowSample) -> Tuning:
        first = named(name, sample)
        second = likeliest(first.kernel, sample)
        if not second.compared or second.kernel == first.kernel:
            return first
        before, after = (log_density(sample, tuning.kernel) for tuning in (first, second))
        numbers = [np.size(tuning.kernel.get_params()["lengthscale"]) for tuning in (first, second)]
        measure, better = "minus the log density per row, left out", after > before
        compared = (
            KernelComparison(numbers[0], first.kernel, -before, np.nan, np.nan, True, measure),
            KernelComparison(
                numbers[1], second.kernel, -after, after - before, 0.0, better, measure
            ),
        )
        tuning = second if better else first
        return replace(tuning, compared=(*tuning.compared, *compared))

    return likelier


#: Values of n functions at rows, (b, t, n).
Values = Callable[[Array], Float[Array, "b t n"]]


@dataclass(frozen=True, eq=False)
class KeptRows:
    """All rows of positive weight, and how many were read."""

    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    priority: Float[Array, " n"]  # Random, of the numbers of the rows: which of them are looked at
    rows: int
    target_shape: tuple[int, ...]

    @staticmethod
    def of(who: str, blocks: Blocks, seed: int, start: int = 0) -> "KeptRows":
        """Read all blocks, after ``start`` rows."""
        shape, rows = required_targets(who, blocks.target_shape), gather(blocks, seed, start)
        require_squares(who, rows.y, rows.w)
        return KeptRows(**vars(rows), rows=count_rows(blocks), target_shape=shape)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def every(self) -> RowSample:
        """All rows, as a sample."""
        return RowSample(self.X, self.y, self.w, self.priority)

    @property
    def sample(self) -> RowSample:
        """Some rows at random."""
        return self.every.lowest(kept_rows(self.X.shape[1]))

    @property
    def order(self) -> Int[Array, " n"]:
        """Numbers of the rows in random order."""
        return np.argsort(self.priority, kind="stable")

    def merge(self, other: "KeptRows") -> "KeptRows":
        """Return the rows of both."""
        X, y, w = join([Piece(self.X, self.y, self.w), Piece(other.X, other.y, other.w)])
        priority = np.concatenate([self.priority, other.priority])
        return KeptRows(X, y, w, priority, self.rows + other.rows, self.target_shape)


class ProcessLaw(Lacking, ABC):
    """The law of f given the rows. Frozen, and saved with the fit."""

    spec: GaussianProcessSpec
    representation: Any  # The rows as they were solved
    evidence: Evidence  # Noise, amplitude and likelihood of each target
    # Mean log density of rows under the law without each, summed over targets
    loo_log_density: float
    noise: Float[Array, " t"]  # σ² of a new row
    block_rows: int  # Rows that are predicted together
    chosen: Chosen  # The kernel, the map, and how they were found
    fit: ClassVar[Any]  # (spec, blocks, where): choose what is open, read all rows, find the law
    solved: ClassVar[Any]  # (spec, rows): the law of rows in the same form, its numbers found again

    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("moments_", "predictive_"),
        "a fit with the kernel itself makes no features, nor does one on a Fourier grid or on "
        "nearest neighbours; what it keeps of the rows is fit_.law.representation.",
    )

    @property
    def of_values(self) -> "ProcessLaw":
        """The law given the values alone, without derivatives and averages."""
        return self

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""
        return self.representation.values(self)

    @abstractmethod
    def moments(self, X: Array) -> Both:
        """Return the mean and variance of f at rows."""

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        raise NotImplementedError

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions of the posterior; return their values at rows, (b, t, n)."""
        raise NotImplementedError

    def slopes(self) -> Callable[[Array], Float[Array, "b d t"]]:
        """Return X ↦ the gradients of the mean."""
        return self.representation.slopes(self)

    @abstractmethod
    def scores(self) -> Both | None:
        """Return errors of rows not used for tuning, left out, and deviations; None if too few."""

    def again(self, rows: RowSample) -> Any:
        """Return the law of a fit of the same kind to other rows."""
        return self.fit(self.spec, self.as_blocks(rows))

    def as_blocks(self, rows: Any) -> Blocks:
        """Return such rows, with targets in the shape of the fit's."""
        y = rows.y.reshape(len(rows), *self.representation.target_shape)
        return Blocks.from_arrays(rows.X, y, rows.w)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "ProcessLaw":
        """Return the law given the rows before and these."""
        return self.solved(spec, self.representation.with_rows_of(blocks))


def log_normal(errors: Float[Array, "*m t"], variance: Float[Array, "*m t"]) -> Array:
    """Return log N(error; 0, variance)."""
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    return -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)


def log_density(
    errors: Float[Array, "m t"], variance: Float[Array, "m t"], w: Float[Array, " m"]
) -> float:
    """Return the mean of log N(error; 0, variance), summed over targets."""
    return float((w @ log_normal(errors, variance) / w.sum()).sum())


# --- The law with the kernel itself: the posterior of few rows, and no features ------------------
#
# The kernel is chosen as in :class:`bochner.KernelRidge`, among candidates and by held-out rows.
# Noise and amplitude maximise the evidence among values with nearly the least leave-one-out error.

MOST_ROWS = 20_000  # Rows of an n × n matrix and its factor, at most: seven gigabytes

MOST_SCORES = 2048  # Rows whose errors make intervals, at most

WIDTH = 1024  # F, features of each prior function


def factored(rows: KernelRows, alphas: Float[Array, " t"]) -> list[KernelFactor]:
    """Factor the kernel matrix at the penalty of each target, once for each penalty."""
    known = {alpha: rows.factored(float(alpha)) for alpha in np.unique(alphas)}
    return [known[alpha] for alpha in alphas]


def kernel_rows(kernel: Kernel, rows: Any, centred: bool, most: int | None = None) -> KernelRows:
    """Return the kernel matrix of rows, or of the first of them."""
    K = np.asarray(to_numpy(kernel(rows.X[:most])), np.float64)
    return KernelRows(K, rows.y[:most], rows.w[:most], centred)


@dataclass(frozen=True, eq=False)
class ExactProcess(ProcessLaw):
    """The law of f with the kernel itself."""

    spec: GaussianProcessSpec
    chosen: Chosen  # Its map is the Nyström map on all rows
    representation: KeptRows  # All rows, in random order
    evidence: Evidence
    coef: Float[Array, "n t"]  # Of the kernel and each row
    intercept: Float[Array, " t"]
    loo_log_density: float

    block_rows = 1024
    noise = property(attrgetter("evidence.noise"))

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "merge": "an exact fit keeps no moments that add.",
    }

    @classmethod
    def fit(
        cls, spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
    ) -> "ExactProcess":
        """Choose the kernel by the matrix of some rows, noise and amplitude; solve with all."""
        why = 'method="exact" compares each row with all others'
        require_order(spec.features.who, why, where, "Leave where out, or take features.")
        who, n = spec.features.who, count_rows(blocks)
        if n > MOST_ROWS:
            raise InvalidInput(
                f'{who}: method="exact" factors the matrix of all rows, {MOST_ROWS:,} at most; got '
                f'{n:,}. Take features, method="auto", or NearestNeighbours().'
            )
        rows = KeptRows.of(who, blocks, spec.features.seed)
        rows = replace(rows, **vars(rows.every.take(rows.order)))  # In random order
        asked, share = spec.features, None  # Penalty per unit of weight, where it is given
        if spec.noise and spec.amplitude is not None:
            share = spec.noise / spec.amplitude / float(rows.w.sum())
        search = search_of(spec, ExactProcess.fit, 1024, share)
        centred, every = spec.fit_intercept, rows.every
        tuning, curves = choose_for_matrix(asked, every, share, centred, search=search)
        chosen = chosen_exactly(asked.seed, tuning, curves, rows.X)
        start = tuning.share * float(rows.w[:EVIDENCE_ROWS].sum())
        return solved_exactly(spec, chosen, rows, start if 0 < start < np.inf else None)

    @staticmethod
    def of(
        spec: GaussianProcessSpec,
        chosen: Chosen,
        rows: KeptRows,
        evidence: Evidence,
        factors: list[KernelFactor],
        density: float = np.nan,
    ) -> "ExactProcess":
        """Return the law by the factor of each target."""
        coef = np.stack([each.coef[:, i] for i, each in enumerate(factors)], axis=1)
        intercept = np.array([each.intercept[i] for i, each in enumerate(factors)])
        law = ExactProcess(spec, chosen, rows, evidence, coef, intercept, density)
        law.__dict__["factors"] = factors
        return law

    @cached_property
    def factors(self) -> list[KernelFactor]:
        """The factor of each target, which no file holds."""
        problem = kernel_rows(self.chosen.kernel, self.representation, self.spec.fit_intercept)
        return factored(problem, self.evidence.alpha)

    def means(self) -> KernelSum:
        return KernelSum(self.chosen.kernel, self.representation.X, self.coef, self.intercept)

    def moments(self, X: Array) -> Both:
        return self.means()(X), self.variance(X)

    def variance(self, X: Array) -> Float[Array, "b t"]:
        """Return the variance of f at rows."""
        prior = np.asarray(to_numpy(self.chosen.kernel.diag(numpy_rows(X))), np.float64)
        return self._each(KernelFactor.variance, self.at(X), prior)

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        prior = np.asarray(to_numpy(self.chosen.kernel(numpy_rows(X))), np.float64)
        return self.between((self.at(X),) * 2, (np.ones(len(prior)),) * 2, prior)

    def at(self, X: Array) -> Float[Array, "b n"]:
        """Return what f(x) is known by, for :meth:`between`: k(x, x_i)."""
        K = self.chosen.kernel(numpy_rows(X), self.representation.X)
        return np.asarray(to_numpy(K), np.float64)

    def between(
        self, k: tuple[Array, Array], constant: tuple[Array, Array], prior: Float[Array, "b c"]
    ) -> Float[Array, "b c t"]:
        """Return Cov Lf, L'f' of linear functionals; see :meth:`KernelFactor.between`."""
        return self._each(KernelFactor.between, k, prior, constant)

    def _each(self, law: Callable[..., Array], *given: Any) -> Array:
        """Return a² law(factor, *given) of each target, once for each penalty."""
        laws = {e.alpha: law(e, *given) for e in {e.alpha: e for e in self.factors}.values()}
        each = [laws[factor.alpha] for factor in self.factors]
        return np.stack(each, axis=-1) * self.evidence.amplitude

    def slopes(self) -> Callable[[Array], Float[Array, "b d t"]]:
        return self.means().slopes

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions by Matheron's rule (Wilson et al. 2020, eq. 8).

        f(x) = a f⁰(x) + k(x, X) c + b, where c and b solve the fit to y − a (f⁰(X) + ε), f⁰ and ε
        from the prior.
        """
        kept, amplitude = self.representation, self.evidence.amplitude
        prior = prior_functions(self.chosen.kernel, kept.X, kept.y.shape[1], n, seed)
        rough = stream(seed, "noise of functions").standard_normal((*kept.y.shape, n))
        noise = np.sqrt(self.evidence.alpha / kept.w[:, None])[:, :, None] * rough
        left = kept.y[:, :, None] - np.sqrt(amplitude)[:, None] * (prior(kept.X) + noise)
        ends = [one.coefficients(left[:, j]) for j, one in enumerate(self.factors)]
        coef, offset = np.stack([c for c, _ in ends], axis=1), np.stack([b for _, b in ends])

        def values(X: Array) -> Float[Array, "b t n"]:
            rows = numpy_rows(X)
            f0 = np.sqrt(amplitude)[:, None] * prior(rows)
            return f0 + np.tensordot(self.at(rows), coef, 1) + offset

        return values

    def scores(self) -> Both | None:
        unseen = len(self.representation) - EVIDENCE_ROWS
        if unseen < ENOUGH:
            return None
        m = min(unseen, MOST_SCORES)
        judged = [each.left_out(m) for each in self.factors]
        errors = np.stack([each[:, i] for i, (each, _) in enumerate(judged)], axis=1)
        slack = np.hstack([slack for _, slack in judged])
        return errors, np.sqrt(self.evidence.amplitude * self.evidence.alpha / slack)

    def solved(self, spec: GaussianProcessSpec, rows: KeptRows) -> "ExactProcess":
        return solved_exactly(spec, self.chosen, rows)


# --- fitting -------------------------------------------------------------------------------------


def solved_exactly(
    spec: GaussianProcessSpec, chosen: Chosen, rows: KeptRows, start: float | None = None
) -> ExactProcess:
    """Return the law of a kernel given rows."""
    problem = kernel_rows(chosen.kernel, rows, spec.fit_intercept)
    alphas, outcome = choose_penalty(
        problem, spec.noise, spec.amplitude, criterion=spec.criterion, start=start
    )
    factors = factored(problem, alphas)
    n, given, numbers = len(rows), (spec.noise or None, spec.amplitude), []
    m = n if n <= EVIDENCE_ROWS else min(max(n - EVIDENCE_ROWS, ENOUGH), MOST_SCORES)
    w = problem.w[-m:]
    for i, factor in enumerate(factors):
        if not problem.power[i] > 0:
            numbers.append((spec.noise or 0.0, spec.amplitude or 0.0, np.nan, np.nan))
            continue
        alpha, (errors, slack) = factor.alpha, factor.left_out(m)
        a2, log_p = (float(f(problem, factor, *given)[i]) for f in (amplitude_at, evidence))
        density = w @ log_normal(errors[:, i], alpha * a2 / slack[:, 0]) / w.sum()
        numbers.append((alpha * a2 if spec.noise is None else spec.noise, a2, log_p, density))
    noise, amplitude, likelihood, densities = np.array(numbers).T
    found = Evidence(noise, amplitude, alphas, likelihood, outcome)
    return ExactProcess.of(spec, chosen, rows, found, factors, float(densities.sum()))


def prior_functions(kernel: Kernel, X: Array, t: int, n: int, seed: int) -> Values:
    """Draw n functions of the prior for t targets: Fourier features, or Nyström's of rows X."""
    functions = []
    for i in range(n):
        ask = Request(X.shape[1], WIDTH, seed, ("prior", str(i)), X)
        try:
            phi = draw_map(Fourier(IID()), kernel, ask)
        except UnsupportedKernel:
            phi = draw_map(Nystrom(), kernel, ask)
        weights = stream(seed, "prior functions", i).standard_normal((phi.n_features, t))
        functions.append((phi, weights))
    return lambda X: np.stack([to_numpy(phi(X)) @ weights for phi, weights in functions], axis=2)
