"""Lengthscales of the largest marginal likelihood, of the exact process on some of the rows.

The gradient of the evidence in the kernel matrix (:mod:`bochner.solvers.ridge.evidence`) is taken
on to log ℓ. With k = κ(s), s = Σ_j (x_j − y_j)²/ℓ_j², R = ∂E/∂K ∘ κ'(s) and X in units of ℓ,

    ∂E/∂log ℓ_j = −2 Σ R (x_j − y_j)² = −4 (Σ_i x_ij² Σ_l R_il − x_jᵀ R x_j),

O(m² d) for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.kernels import Kernel
from bochner.kernels.distances import squared
from bochner.kernels.stationary import Radial
from bochner.selection.columns import rounded
from bochner.selection.descent import (
    Clock,
    Dials,
    Objective,
    Point,
    descend,
)
from bochner.selection.rescaled import family_of
from bochner.selection.tuning import Diary, Tuning
from bochner.solvers.ridge.evidence import kernel_evidence

Note = Callable[[Objective], Callable[[Dials, float], None]]

#: Names whose lengthscale the evidence is not asked for: found in another way, or there is none.
UNASKED = ("auto", "linear")

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
    sample, diary = sample.lowest(ROWS), Diary(Clock.of(None), "evidence")
    y = sample.y[:, np.ptp(sample.y, axis=0) > 0]
    if len(sample) < FEWEST or not y.shape[1]:
        return Tuning(start, float("nan"), criterion="evidence")
    rows = _Rows(_doubles(sample.X), y, sample.w, centred, noise, amplitude)
    one, note = _Evidence(start, rows, 1), diary.descent("one factor")
    first = [_best_of(one, [Dials(np.log([c]), s) for s in rows.shares], note) for c in FACTORS]
    best = _descended(one, first, ONE, note)
    d = rows.X.shape[1]
    if d > 1 and not is_sparse(rows.X) and isinstance(start, Radial):
        each, note = _Evidence(start, rows, d), diary.descent("one a column")
        starts = [point.dials for point in (*first, best)]
        starts += [replace(starts[0], share=share) for share in rows.shares[QUIET]]
        wide = [replace(dials, lengths=np.repeat(dials.lengths, d)) for dials in starts]
        many = _descended(each, [_best_of(each, [dials], note, TRY) for dials in wide], MANY, note)
        best = many if many.value < best.value - (d - 1) / rows.count else best
    found = _written(_Evidence(start, rows, len(best.dials.lengths)).kernel(best.dials))
    share = float(np.exp(best.dials.share))
    return Tuning(found, share, criterion="evidence", path=tuple(diary.steps))


def _written(kernel: Any) -> Any:
    """Return the kernel at lengthscales of the digits that are the same on every processor."""
    return kernel.replace(lengthscale=rounded(kernel.lengthscale))


def _doubles(X: Array) -> Array:
    """Return rows in float64, about their mean where they are dense or of few cells."""
    X = X.astype(np.float64)
    X = dense(X) if X.shape[0] * X.shape[1] <= MOST_CELLS else X
    return X if is_sparse(X) else X - X.mean(axis=0)


@dataclass(frozen=True, eq=False)
class _Rows:
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
        """Logarithms of penalties a row to start from: the one that is given, or several."""
        weight = float(self.w.sum())
        if self.noise is not None and self.amplitude is not None:
            return (float(np.log(max(self.noise / self.amplitude, LEAST) / weight)),)
        return tuple(float(np.log(alpha / weight)) for alpha in STARTS)


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Minus the log evidence a row, as a function of factors of the lengthscales and of λ.

    ``width`` is 1, or d: the number of factors.
    """

    start: Any
    rows: _Rows
    width: int

    def __call__(self, dials: Dials) -> tuple[float, Float[Array, " q"]]:
        """Return the value and its gradient in the dials' vector."""
        rows, m = self.rows, self.rows.count
        alpha = float(np.exp(dials.share) * rows.w.sum())
        kernel, held = self.kernel(dials), (rows.noise, rows.amplitude)
        K, slope = self._pairs(kernel, dials)
        score = kernel_evidence(
            K, rows.y, rows.w, alpha, centred=rows.centred, noise=held[0], amplitude=held[1]
        )
        if self.width == 1:
            by_lengths = np.array([float((score.by_kernel * slope).sum())])
        else:
            by_lengths = _by_column(score.by_kernel * slope, rows.X / kernel.lengthscale)
        return score.value / m, np.append(by_lengths, score.by_log_alpha) / m

    def _pairs(self, kernel: Any, dials: Dials) -> tuple[Array, Array]:
        """Return K, and ∂K/∂log c of a common factor c, or κ'(s)."""
        if self.width == 1:
            up, down = (
                self.kernel(replace(dials, lengths=dials.lengths + h))(self.rows.X)
                for h in (STEP, -STEP)
            )
            return kernel(self.rows.X), (up - down) / (2 * STEP)
        X = self.rows.X / kernel.lengthscale
        s = squared(X, X)
        up, down = (kernel.profile(s * np.exp(h)) for h in (STEP, -STEP))
        slope = np.divide(up - down, 2 * STEP * s, out=np.zeros_like(s), where=s > 0)
        return kernel.profile(s), slope

    def kernel(self, dials: Dials) -> Any:
        """Return the kernel at these dials."""
        scales = self.start.lengthscale * np.exp(dials.lengths)
        if self.width == 1 and not isinstance(self.start.lengthscale, tuple):
            return self.start.replace(lengthscale=float(scales[0]))
        return self.start.replace(lengthscale=tuple(scales.tolist()))

    def bounds(self, dials: Dials) -> list[tuple[float, float]]:
        """Return how far each dial may turn."""
        shares, weight = self.rows.shares, self.rows.w.sum()
        limits = (np.log(LEAST / weight), np.log(MOST / weight))
        share = (shares[0],) * 2 if len(shares) == 1 else limits
        return [*((x - FAR, x + FAR) for x in dials.lengths), share]


def _by_column(R: Float[Array, "m m"], X: Float[Array, "m d"]) -> Float[Array, " d"]:
    return -4 * (R.sum(axis=1) @ (X * X) - np.einsum("ij,ij->j", X, R @ X))


def _best_of(evidence: Any, starts: Sequence[Dials], note: Note, evaluations: int = 1) -> Point:
    """Return the best of descents of a few steps."""
    clock = Clock.of(None)
    tried = (descend(evidence, dials, evaluations, clock, note(evidence)) for dials in starts)
    return min(tried, key=lambda point: point.value)


def _descended(evidence: Any, tried: Sequence[Point], evaluations: int, note: Note) -> Point:
    """Go on from the best."""
    start = min(tried, key=lambda point: point.value)
    end = _best_of(evidence, [start.dials], note, evaluations)
    return min(start, end, key=lambda point: point.value)
