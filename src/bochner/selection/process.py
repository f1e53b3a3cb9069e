"""Lengthscales of the largest marginal likelihood, of the exact process on some of the rows.

The gradient of the evidence in the kernel matrix (:mod:`bochner.solvers.ridge.evidence`) is taken
on to log ℓ. With k = κ(s), s = Σ_j (x_j − y_j)²/ℓ_j², R = ∂E/∂K ∘ κ'(s) and X in units of ℓ,

    ∂E/∂log ℓ_j = −2 Σ R (x_j − y_j)² = −4 (Σ_i x_ij² Σ_l R_il − x_jᵀ R x_j),

O(m² d) for all of them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.kernels.distances import squared
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Radial
from bochner.selection.descent import (
    Descended,
    Hyperparameters,
    TimeBudget,
    descend,
    family_of,
    go_on,
)
from bochner.selection.record import Recorder, Tuning
from bochner.selection.rows import rounded
from bochner.solvers.ridge.criteria import Criterion, LogEvidence
from bochner.solvers.ridge.evidence import kernel_evidence

#: Rows that the evidence is of, at most: an evaluation takes a tenth to a third of a second.
ROWS = 1024

#: Fewer rows than this say nothing of lengthscales.
FEWEST = 8

#: Evaluations of the descents: with one factor for all columns, with one lengthscale a column, and
#: from each start of those before the best goes on.
ONE, MANY, TRY = 12, 40, 6

#: Factors of the start's lengthscales that descents start from: a function that is fast along one
#: column drives the common factor to where it is noise.
FACTORS = (1.0, 0.25, 0.0625)

#: Penalties that a descent may start from, as shares of k(x, x), and those it stays between.
STARTS, LEAST, MOST = (1.0, 1e-1, 1e-2, 1e-3), 1e-8, 1e4

#: That of them which one lengthscale a column is also tried from: with one for all, a function of
#: few columns looks like noise, and a start where all is noise says nothing of columns.
QUIET = slice(2, 3)

#: log ℓ stays within this of its start.
FAR = 7.0

#: Sparse rows of no more cells than this are made dense, and have one lengthscale a column.
MOST_CELLS = 1 << 20

#: Step of log ℓ in differences of kernel values.
STEP = 1e-4

#: What is minimised.
EVIDENCE = LogEvidence()


def lengthscales_by_evidence(
    start: Kernel,
    sample: RowSample,
    *,
    centred: bool,
    noise: float | None = None,
    amplitude: float | None = None,
) -> Tuning:
    """Return the kernel whose lengthscales have the largest evidence, descended from its own.

    One factor for all columns first, then one lengthscale a column, where rows are dense (or
    sparse of few cells) and the kernel is of the Euclidean distance. These are taken if they raise
    the log evidence by more than one for each number more (Akaike 1974). Noise and amplitude go
    along where they are open; several targets share their ratio here.

    Raises
    ------
    UnsupportedKernel
        If the kernel has no lengthscale.

    Notes
    -----
    O(m³ + m² d) for each of at most 94 evaluations, m ≤ 1024 rows: seconds, whatever n
    (a Matérn kernel without a closed form takes ten times as long).
    """
    family_of(start)
    sample, budget = sample.lowest(ROWS), TimeBudget.of(None)
    y = sample.y[:, np.ptp(sample.y, axis=0) > 0]
    if len(sample) < FEWEST or not y.shape[1]:
        return Tuning(start, criterion=EVIDENCE.name)
    rows = ProcessRows(_doubles(sample.X), y, sample.w, centred, noise, amplitude)
    recorder, one = Recorder(EVIDENCE, budget), OnProcess(start, rows, 1)
    note, first = recorder.noting("one factor"), []
    for factor in FACTORS:
        starts = [Hyperparameters(np.log([factor]), share) for share in rows.shares]
        tried = [descend(one, at, 1, budget, note) for at in starts]
        first.append(min(tried, key=lambda found: found.value))
    best, d = go_on(first, ONE, budget, note), rows.X.shape[1]
    recorder.compare(1, one.kernel(best.at), best.value)
    if d > 1 and not is_sparse(rows.X) and isinstance(start, Radial):
        note, each = recorder.noting("one a column"), OnProcess(start, rows, d)
        starts = [found.at for found in (*first, best)]
        starts += [replace(starts[0], share=share) for share in rows.shares[QUIET]]
        starts = [replace(at, lengths=np.repeat(at.lengths, d)) for at in starts]
        tried = [descend(each, at, TRY, budget, note) for at in starts]
        many, least = go_on(tried, MANY, budget, note), (d - 1) / rows.count
        gain = best.value - many.value
        recorder.compare(d, each.kernel(many.at), many.value, gain, least)
        best = many if gain > least else best
    found: Any = best.of.kernel(best.at)
    found = found.replace(lengthscale=rounded(found.lengthscale))
    return recorder.found(found, float(np.exp(best.at.share)))


def _doubles(X: Array) -> Array:
    """Return rows in float64, about their mean where they are dense or of few cells."""
    X = X.astype(np.float64)
    X = dense(X) if X.shape[0] * X.shape[1] <= MOST_CELLS else X
    return X if is_sparse(X) else X - X.mean(axis=0)


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """What the evidence is of."""

    X: Array
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    centred: bool
    noise: float | None
    amplitude: float | None

    @property
    def count(self) -> float:
        """Rows, a row of weight w as w of them."""
        return max(float(self.w.sum()), len(self.w))

    @property
    def shares(self) -> tuple[float, ...]:
        """Logarithms of per-row penalties to start from: the one that is given, or several."""
        weight = float(self.w.sum())
        if self.noise is not None and self.amplitude is not None:
            return (float(np.log(max(self.noise / self.amplitude, LEAST) / weight)),)
        return tuple(float(np.log(alpha / weight)) for alpha in STARTS)


@dataclass(frozen=True, eq=False)
class OnProcess(Descended):
    """Minus the log evidence per row, as a function of factors of the lengthscales and of λ.

    ``width`` is 1, or d: the number of factors.
    """

    start: Any
    rows: ProcessRows
    width: int
    criterion: Criterion = EVIDENCE

    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        """Return the value and its gradient in the at' vector."""
        rows, m = self.rows, self.rows.count
        alpha = float(np.exp(at.share) * rows.w.sum())
        kernel, held = self.kernel(at), (rows.noise, rows.amplitude)
        K, slope = self._pairs(kernel, at)
        score = kernel_evidence(
            K, rows.y, rows.w, alpha, centred=rows.centred, noise=held[0], amplitude=held[1]
        )
        if self.width == 1:
            by_lengths = np.array([float((score.by_kernel * slope).sum())])
        else:
            by_lengths = _by_column(score.by_kernel * slope, rows.X / kernel.lengthscale)
        return score.value / m, np.append(by_lengths, score.by_log_alpha) / m

    def _pairs(self, kernel: Any, at: Hyperparameters) -> tuple[Array, Array]:
        """Return K, and ∂K/∂log c of a common factor c, or κ'(s)."""
        if self.width == 1:
            up, down = (
                self.kernel(replace(at, lengths=at.lengths + h))(self.rows.X) for h in (STEP, -STEP)
            )
            return kernel(self.rows.X), (up - down) / (2 * STEP)
        X = self.rows.X / kernel.lengthscale
        s = squared(X, X)
        up, down = (kernel.profile(s * np.exp(h)) for h in (STEP, -STEP))
        slope = np.divide(up - down, 2 * STEP * s, out=np.zeros_like(s), where=s > 0)
        return kernel.profile(s), slope

    def kernel(self, at: Hyperparameters) -> Any:
        scales = self.start.lengthscale * np.exp(at.lengths)
        if self.width == 1 and not isinstance(self.start.lengthscale, tuple):
            return self.start.replace(lengthscale=float(scales[0]))
        return self.start.replace(lengthscale=tuple(scales.tolist()))

    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        shares, weight = self.rows.shares, self.rows.w.sum()
        limits = (np.log(LEAST / weight), np.log(MOST / weight))
        share = (shares[0],) * 2 if len(shares) == 1 else limits
        return [*((x - FAR, x + FAR) for x in at.lengths), share]


def _by_column(R: Float[Array, "m m"], X: Float[Array, "m d"]) -> Float[Array, " d"]:
    return -4 * (R.sum(axis=1) @ (X * X) - np.einsum("ij,ij->j", X, R @ X))
