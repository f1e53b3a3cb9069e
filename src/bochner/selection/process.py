"""Lengthscales by descents on the kernel matrix of some rows: of leave-one-out errors, or evidence.

The gradient of a criterion in the kernel matrix (:mod:`bochner.solvers.ridge.dual`,
:mod:`bochner.solvers.ridge.evidence`) is taken on to log ℓ. With k = κ(s),
s = Σ_j (x_j − y_j)²/ℓ_j², R = ∂E/∂K ∘ κ'(s) and X in units of ℓ,

    ∂E/∂log ℓ_j = −2 Σ R (x_j − y_j)² = −4 (Σ_i x_ij² Σ_l R_il − x_jᵀ R x_j),

O(m² d) for all of them. Starts are tried on few rows, and the best goes on with more.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse, to_numpy
from bochner._core.blas import upper_products
from bochner._core.globe import unit_vectors
from bochner._core.shapes import Array, Bool, Float
from bochner.data.sample import RowSample
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import on_unit_sphere, with_lengthscale
from bochner.kernels.stationary import Radial
from bochner.selection.descent import (
    Descended,
    Evaluated,
    Hyperparameters,
    TimeBudget,
    descend,
    family_of,
    go_on,
)
from bochner.selection.record import Tuning
from bochner.selection.recorder import Recorder
from bochner.selection.rows import TuningRows, deviations, median_distance, rounded, screen
from bochner.solvers.ridge.criteria import Criterion, LogEvidence
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_evidence import KernelScore

#: Rows that a descent ends on, at most, rows that it goes on with before, and rows that its starts
#: are tried on: an evaluation takes thirty milliseconds, two, and half of one.
ROWS, FEW, FEWER = 1024, 256, 128

#: Fewer rows than this say nothing of lengthscales.
FEWEST = 8

#: Evaluations of the descents: with one factor for all columns, with one lengthscale a column, and
#: from each start of those before the best goes on.
ONE, MANY, TRY = 12, 40, 6

#: Evaluations with more rows, from where few rows have led.
LAST_ONE, LAST_MANY = 4, 14

#: Factors of the start's lengthscales that descents start from: a function that is fast along one
#: column drives the common factor to where it is noise.
FACTORS = (1.0, 0.25, 0.0625)

#: Penalties that a descent may start from, as shares of k(x, x), and those it stays between.
STARTS, LEAST, MOST = (1.0, 1e-1, 1e-2, 1e-3), 1e-8, 1e4

#: That of them which one lengthscale a column is also tried from: with one for all, a function of
#: few columns looks like noise, and a start where all is noise says nothing of columns.
QUIET = slice(2, 3)

#: What is known of log ℓ before any target: a normal law about that of the median distance, of so
#: many octaves e, worth one row; and ℓ as shares of the median distance, beyond which it does not
#: go. A column at the longest has no say; at the shortest no two rows know of one another.
SPREAD, SHORTEST, LONGEST = 3.0, 1 / 128, 32.0

#: Random frequencies that columns are screened by, for a start.
SCREENED = 2048

#: Sparse rows of no more cells than this are made dense, and have one lengthscale a column.
MOST_CELLS = 1 << 20

#: Squared distances below this share of their terms are those of equal rows.
EQUAL = 1e-14

#: Rows whose pairs with all others are made together.
BAND = 64

#: Step of log ℓ in differences of kernel values.
STEP = 1e-4

#: What is minimised.
EVIDENCE = LogEvidence()

#: Takes the gradient of a score in the kernel matrix on to log ℓ.
Through = Callable[[KernelScore], Float[Array, " p"]]


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
    O(m³ + m² d) for each of at most 48 evaluations with m ≤ 128 rows (256 where there are no more),
    52 with m ≤ 256 and 18 with m ≤ 1024: a second, whatever n (a Matérn kernel without a closed
    form takes ten times as long).
    """
    family_of(start)
    search = MatrixSearch.of(sample, EVIDENCE, centred, noise=noise, amplitude=amplitude)
    if search is None:
        return Tuning(start, criterion=EVIDENCE.name)
    first, best = search.one(start)
    search.recorder.compare(1, best.of.kernel(best.at), best.value)
    if search.has_columns(start):
        many = search.each(start, first, best, search.rows.screened())
        d = search.rows.X.shape[1]
        gain, least = best.value - many.value, (d - 1) / search.rows.count
        search.recorder.compare(d, many.of.kernel(many.at), many.value, gain, least)
        best = many if gain > least else best
    return search.found(best)


def lengthscale_on_sphere(
    start: Kernel,
    sample: RowSample,
    centred: bool,
    noise: float | None = None,
    amplitude: float | None = None,
) -> Tuning:
    """Return the kernel of the globe whose lengthscale has the largest evidence.

    That of the kernel within, of points of the unit sphere: one for all their columns, for a sphere
    has no axes.
    """
    within = on_unit_sphere(start)
    rows = replace(sample, X=unit_vectors(to_numpy(sample.X).astype(np.float64)))
    search = MatrixSearch.of(rows, EVIDENCE, centred, noise=noise, amplitude=amplitude)
    if search is None:
        return Tuning(start, criterion=EVIDENCE.name)
    _, best = search.one(within)
    found = search.found(best)
    return replace(found, kernel=with_lengthscale(start, found.kernel))


@dataclass(frozen=True, eq=False)
class MatrixSearch:
    """Descents of one criterion on the kernel matrices of few rows, and then of more."""

    rows: "ProcessRows"
    criterion: Criterion
    recorder: Recorder

    @staticmethod
    def of(
        sample: RowSample,
        criterion: Criterion,
        centred: bool,
        *,
        noise: float | None = None,
        amplitude: float | None = None,
        alpha: float | None = None,
        most: int = ROWS,
    ) -> "MatrixSearch | None":
        """Return the search; None where rows are too few, or no target varies.

        A penalty that is given is noise over an amplitude of one.
        """
        noise, amplitude = (noise, amplitude) if alpha is None else (alpha, 1.0)
        sample = sample.lowest(most)
        y = sample.y[:, np.ptp(sample.y, axis=0) > 0]
        if len(sample) < FEWEST or not y.shape[1]:
            return None
        rows = ProcessRows(_doubles(sample.X), y, sample.w, centred, noise, amplitude)
        return MatrixSearch(rows, criterion, Recorder(criterion, TimeBudget.of(None)))

    def one(
        self, start: Kernel, factors: Sequence[float] = FACTORS, evaluations: int = ONE
    ) -> tuple[list[Evaluated[Any]], Evaluated[Any]]:
        """Descend with one factor for all columns; return what was tried first, and the end."""
        few, notes = self._fewer, self._stages("one factor")
        of, first = OnProcess(start, few, 1, self.criterion), []
        for factor in factors:
            starts = [Hyperparameters(np.log([factor]), share) for share in few.shares]
            tried = [descend(of, at, 1, self.recorder.budget, notes[0]) for at in starts]
            first.append(min(tried, key=lambda found: found.value))
        best = min(first, key=lambda found: found.value)
        best = self._on_few(best, evaluations, notes[1])
        return first, self._more(best, self.rows, LAST_ONE if evaluations else 0, notes[2])

    def go_on(self, end: Evaluated[Any], evaluations: int) -> Evaluated[Any]:
        """Descend with one factor from where a descent on few rows has ended, then with more."""
        _, some, all_ = self._stages("one factor")
        best = self._on_few(end, evaluations, some)
        return self._more(best, self.rows, LAST_ONE, all_)

    def each(
        self,
        start: Any,
        first: Iterable[Evaluated[Any]],
        best: Evaluated[Any],
        more: Iterable[Array] = (),
    ) -> Evaluated[Any]:
        """Descend with one lengthscale a column, from ends of :meth:`one` and from ``more`` ℓ."""
        few, notes = self._fewer, self._stages("one a column")
        d = few.X.shape[1]
        of = OnProcess(start, few, d, self.criterion)
        first = list(first)
        starts = [found.at for found in (*first, best)]
        starts += [replace(starts[0], share=share) for share in few.shares[QUIET]]
        starts = [replace(at, lengths=np.repeat(at.lengths, d)) for at in starts]
        starts += [
            Hyperparameters(np.log(scales / start.lengthscale), share)
            for scales in more
            for share in few.shares[QUIET]
        ]
        tried = [descend(of, at, TRY, self.recorder.budget, notes[0]) for at in starts]
        end = min(tried, key=lambda found: found.value)
        end = self._on_few(end, MANY, notes[1])
        return self._more(end, self.rows, LAST_MANY, notes[2])

    def go(self, start: Any, share: float, evaluations: int) -> Evaluated[Any]:
        """Descend with one lengthscale a column from those of a kernel, on all rows at once."""
        d = self.rows.X.shape[1]
        at = Hyperparameters(np.zeros(d), share)
        of = OnProcess(start, self.rows, d, self.criterion)
        return descend(
            of, at, evaluations, self.recorder.budget, self.recorder.noting("one a column")
        )

    def scaled(self, start: Any, alpha: float, evaluations: int) -> Evaluated[Any]:
        """Descend with one factor from the lengthscales of a kernel, on all rows at once."""
        at = Hyperparameters(np.zeros(1), self.share_of(alpha))
        of = OnProcess(start, self.rows, 1, self.criterion)
        return descend(of, at, evaluations, self.recorder.budget, self.recorder.noting("scale"))

    def share_of(self, alpha: float) -> float:
        """Return the log of a penalty a row."""
        return float(np.log(alpha / self.rows.w.sum()))

    def alpha_of(self, share: float, rows: "ProcessRows | None" = None) -> float:
        """Return the penalty of the log of one a row, of these rows or of all."""
        return float(np.exp(share) * (self.rows if rows is None else rows).w.sum())

    def has_columns(self, start: Kernel) -> bool:
        """Whether there is one lengthscale a column to be found."""
        X = self.rows.X
        return X.shape[1] > 1 and not is_sparse(X) and isinstance(start, Radial)

    def found(self, end: Evaluated[Any]) -> Tuning:
        """Return the record, with the kernel at the end."""
        kernel: Any = end.of.kernel(end.at)
        kernel = kernel.replace(lengthscale=rounded(kernel.lengthscale))
        return self.recorder.found(kernel, float(np.exp(end.at.share)))

    def _stages(self, stage: str) -> list[Any]:
        """Return what notes evaluations on fewer rows, few, and all: values of unlike rows."""
        unlike = ", fewer rows", ", few rows", ""
        more = len(self.rows.w) > FEW
        return [self.recorder.noting(f"{stage}{rows if more else ''}") for rows in unlike]

    @property
    def _fewer(self) -> "ProcessRows":
        """Rows that starts are tried on: a half of few, if there are more than these."""
        return self.rows.first(FEWER if len(self.rows.w) > FEW else FEW)

    def _on_few(self, end: Evaluated[Any], evaluations: int, note: Any) -> Evaluated[Any]:
        """Go on with few rows, which may be those that starts were tried on."""
        rows = self.rows.first(FEW)
        if evaluations and len(rows.w) == len(end.of.rows.w):
            return go_on([end], evaluations, self.recorder.budget, note)
        return self._more(end, rows, evaluations, note)

    def _more(
        self, end: Evaluated[Any], rows: "ProcessRows", evaluations: int, note: Any
    ) -> Evaluated[Any]:
        """Go on with these rows, where they are more."""
        if len(rows.w) <= len(end.of.rows.w) or not evaluations:
            return end
        share = end.at.share + np.log(end.of.rows.w.sum() / rows.w.sum())
        of, at = replace(end.of, rows=rows), replace(end.at, share=float(share))
        return descend(of, at, evaluations, self.recorder.budget, note)


def _doubles(X: Array) -> Array:
    """Return rows in float64, about their mean where they are dense or of few cells."""
    X = X.astype(np.float64)
    X = dense(X) if X.shape[0] * X.shape[1] <= MOST_CELLS else X
    return X if is_sparse(X) else X - X.mean(axis=0)


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """What a criterion is of."""

    X: Array
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    centred: bool
    noise: float | None = None
    amplitude: float | None = None

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

    def first(self, m: int) -> "ProcessRows":
        """Return the first m rows, of targets that vary in them."""
        if len(self.w) <= m:
            return self
        y = self.y[:m, np.ptp(self.y[:m], axis=0) > 0]
        return self if not y.shape[1] else replace(self, X=self.X[:m], y=y, w=self.w[:m])

    @cached_property
    def spread(self) -> Float[Array, " d"]:
        """Deviations of the columns."""
        return deviations(self.X, self.w)

    def screened(self) -> list[Float[Array, " d"]]:
        """Return lengthscales at which random frequencies in few columns see targets vary."""
        found = screen(TuningRows.of(self.X, self.y, self.w, self.spread), 0, SCREENED)
        return [found.lengthscales * self.spread] if found else []

    def log_median(self, scales: Any) -> float:
        """Return the log of the median distance in these units of the columns."""
        return float(np.log(median_distance(self.X, self.w, (scales,), 0, most=4096)))


@dataclass(frozen=True, eq=False)
class OnProcess(Descended):
    """A criterion a row, as a function of factors of the lengthscales and of λ.

    ``width`` is 1, or d: the number of factors.
    """

    start: Any
    rows: ProcessRows
    width: int
    criterion: Criterion = EVIDENCE

    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        """Return the value, less the log prior per row, and its gradient in the at' vector."""
        value, slope = self.at_penalty(at, float(np.exp(at.share) * self.rows.w.sum()))
        known, away = self.known(at)
        return value + known, slope + np.append(away, 0.0)

    def at_penalty(self, at: Hyperparameters, alpha: float) -> tuple[float, Float[Array, " q"]]:
        """Return the value at a penalty, without a prior, and its gradient."""
        rows = self.rows
        K, through = self._pairs(at)
        problem = KernelRows(K, rows.y, rows.w, rows.centred)
        score = self.criterion.of_kernel(problem, alpha, rows.noise, rows.amplitude, overwrite=True)
        return score.value, np.append(through(score), score.by_log_alpha)

    def known(self, at: Hyperparameters) -> tuple[float, Float[Array, " p"]]:
        """Return minus the log prior per row, and its gradient."""
        away = (at.lengths - self.centre) / (SPREAD**2 * self.rows.count)
        return 0.5 * float(away @ (at.lengths - self.centre)), away

    def _pairs(self, at: Hyperparameters) -> tuple[Array, Through]:
        """Return K, and what takes a score on to its gradient in the factors.

        Of kernels of the distance K is there on and below the diagonal: a criterion reads no more.
        """
        kernel = self.kernel(at)
        if not isinstance(kernel, Radial) or is_sparse(self.rows.X):
            up, down = (
                self.kernel(replace(at, lengths=at.lengths + h))(self.rows.X) for h in (STEP, -STEP)
            )
            change = (up - down) / (2 * STEP)
            return kernel(self.rows.X), lambda by: np.array([float(np.vdot(by.by_kernel, change))])
        if self.width == 1:
            factor = float(np.exp(-2 * at.lengths[0]))
            K, slope = _in_bands(
                kernel, lambda band, left: factor * self._squared[band, left], self._room
            )
            return K, lambda by: np.array([-4 * factor * _dot(by.below, slope, self._squared)])
        X = self.rows.X / kernel.lengthscale
        size = np.einsum("ij,ij->i", X, X)
        K, slope = _in_bands(kernel, lambda band, left: _squared(X, size, band, left), self._room)
        return K, lambda by: _by_column(by.below, slope, X)

    @cached_property
    def _room(self) -> Float[Array, "2 m m"]:
        """Where all evaluations put kernel values and slopes: fresh memory takes time."""
        return np.zeros((2, len(self.rows.w), len(self.rows.w)))

    @cached_property
    def _squared(self) -> Float[Array, "m m"]:
        """Squared distances in units of the start's lengthscales."""
        X = self.rows.X / self.start.lengthscale
        return _squared(X, np.einsum("ij,ij->i", X, X), slice(None), slice(None))

    def kernel(self, at: Hyperparameters) -> Any:
        key = at.lengths.tobytes()  # asked for by the evaluation, and by the record of it
        if key not in self._kernels:
            self._kernels[key] = self._kernel(at)
        return self._kernels[key]

    @cached_property
    def _kernels(self) -> dict[bytes, Any]:
        return {}

    def _kernel(self, at: Hyperparameters) -> Any:
        scales = self.start.lengthscale * np.exp(at.lengths)
        if self.width == 1 and not isinstance(self.start.lengthscale, tuple):
            return self.start.replace(lengthscale=float(scales[0]))
        return self.start.replace(lengthscale=tuple(scales.tolist()))

    @cached_property
    def centre(self) -> Float[Array, " p"]:
        """Factors at which the lengthscales are those of the median distance."""
        rows, scales = self.rows, np.asarray(self.start.lengthscale)
        if self.width == 1:
            one = np.broadcast_to(scales, rows.X.shape[1])
            return np.array([rows.log_median(one)])
        return rows.log_median(rows.spread) + np.log(rows.spread) - np.log(scales)

    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        shares, weight = self.rows.shares, self.rows.w.sum()
        limits = (np.log(LEAST / weight), np.log(MOST / weight))
        share = (shares[0],) * 2 if len(shares) == 1 else limits
        low = np.log(SHORTEST) - 0.5 * np.log(self.rows.X.shape[1])
        ends = zip(self.centre + low, self.centre + np.log(LONGEST), at.lengths, strict=True)
        return [*((min(a, x), max(b, x)) for a, b, x in ends), share]


# --- pairs of rows, a band of them at a time: what is made of a band stays in cache ---------------
#
# Matrices are symmetric, and made on and below the diagonal alone.


def _bands(m: int) -> Iterator[tuple[slice, slice]]:
    """Give rows, and columns up to the diagonal."""
    for start in range(0, m, BAND):
        stop = min(start + BAND, m)
        yield slice(start, stop), slice(0, stop)


def _in_bands(
    kernel: Radial, squared: Callable[[slice, slice], Array], room: Float[Array, "2 m m"]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """Return kernel values of pairs, and their slopes in the squared distance, zero above."""
    K, slope = room
    for band, left in _bands(len(K)):
        K[band, left], slope[band, left] = kernel.with_slope(squared(band, left))
        corner = slope[band, band]
        np.copyto(corner, 0.0, where=_above()[: len(corner), : len(corner)])
    return K, slope


@cache
def _above() -> Bool[Array, "band band"]:
    """Where a band is above its diagonal."""
    return np.triu(np.ones((BAND, BAND), bool), 1)


def _squared(
    X: Float[Array, "m d"], size: Float[Array, " m"], band: slice, left: slice
) -> Float[Array, "b l"]:
    """Return |x − y|² of pairs, zero for equal rows: a search needs no more digits."""
    both = size[band, None] + size[left]
    s = X[band] @ X[left].T
    s *= -2
    s += both
    both *= EQUAL
    np.copyto(s, 0.0, where=s < both)
    return s


def _dot(A: Float[Array, "m m"], B: Float[Array, "m m"], C: Float[Array, "m m"]) -> float:
    """Return the sum of a product of three on and below the diagonal."""
    return sum(float(np.vdot(A[own] * B[own], C[own])) for own in _bands(len(A)))


def _by_column(
    by: Float[Array, "m m"], slope: Float[Array, "m m"], X: Float[Array, "m d"]
) -> Float[Array, " d"]:
    """Return the gradient in the columns' log lengthscales; ``slope`` is written to."""
    slope *= by
    sums = upper_products(slope.T, np.hstack([X, np.ones((len(X), 1))]))
    return -4 * ((X * X).T @ sums[:, -1] - np.einsum("ij,ij->j", X, sums[:, :-1]))
