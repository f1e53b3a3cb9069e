"""Tune lengthscales by leave-one-out error or evidence, by descents on kernel matrices.

The gradient of a criterion in K (:mod:`bochner.solvers.ridge.dual`) gives the gradient in log ℓ.
With k = κ(s), s = Σ_j (x_j − y_j)²/ℓ_j², R = ∂E/∂K ∘ κ'(s) and X in units
of ℓ,

    ∂E/∂log ℓ_j = −2 Σ R (x_j − y_j)² = −4 (Σ_i x_ij² Σ_l R_il − x_jᵀ R x_j),

O(m² d) for all j. Starts are compared on few rows, and the best is refined on more rows.

Descents are by L-BFGS in the logarithms of the hyperparameters and of the penalty. Processors round
differently, and a descent would amplify the difference. Therefore points, values and slopes are
rounded to multiples far above the rounding of float64 and far below any relevant difference: every
processor takes the same steps.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._core.arrays import dense, is_sparse, to_numpy
from bochner._core.globe import unit_vectors
from bochner._core.lapack import upper_product
from bochner._core.shapes import Array, Float
from bochner._core.threads import single_thread
from bochner.data.sample import RowSample
from bochner.errors import UnsupportedKernel
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import chordal_kernel, with_lengthscale
from bochner.kernels.stationary import Radial, Stationary
from bochner.selection.held_out import FEWEST
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.rows import (
    deviations,
    median_distance,
    median_scales,
    rounded,
    screened_lengthscales,
)
from bochner.selection.spec import NAMED
from bochner.solvers.ridge.dual import BAND, EVIDENCE, LOO, Criterion, KernelRows, KernelScore
from bochner.solvers.ridge.solution import SAME

ROWS, FIRST_ROWS = 1024, 256  # Rows of the last descents and of the first
STEP = 1e-4  # Step of log ℓ in differences of kernel values
MIN_GAIN = 3e-4  # Relative tolerance of descents
MIN_ALPHA = 1e-8  # Smallest penalty, as a share of k(x, x)
SHORTEST, LONGEST = 1 / 128, 32.0  # Lengthscales of descents, in median distances

# --- descents ----------------------------------------------------------------------------------


def round_to(x: Any, step: float) -> Any:
    """Return the multiples of ``step`` nearest to x."""
    return np.round(np.asarray(x, np.float64) / step) * step


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """Rows on which a criterion is evaluated."""

    X: Array
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    centred: bool  # Whether an intercept is fitted
    noise: float | None = None
    amplitude: float | None = None
    firsts: dict[int, "ProcessRows"] = field(init=False, default_factory=dict)  # By number
    medians: dict[bytes, float] = field(init=False, default_factory=dict)  # By units

    @staticmethod
    def of(
        sample: RowSample,
        centred: bool,
        noise: float | None = None,
        amplitude: float | None = None,
        share: float | None = None,
    ) -> "ProcessRows | None":
        """Return the rows with the targets that vary; None if none does, or rows are too few.

        With ``share``, the penalty per row, the noise variance is share · Σw and the amplitude one.
        """
        y = sample.y[:, np.ptp(sample.y, axis=0) > 0]
        if len(sample) < FEWEST or not y.shape[1]:
            return None
        if share is not None:
            noise, amplitude = share * float(sample.w.sum()), 1.0
        return ProcessRows(sample.X, y, sample.w, centred, noise, amplitude)

    @cached_property
    def count(self) -> float:
        """Total weight of the rows, at least their number."""
        return max(float(self.w.sum()), len(self.w))

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Log penalties per row of the starts: one if the user gave the penalty, else five."""
        weight = float(self.w.sum())
        if self.noise is not None and self.amplitude is not None:
            return (float(np.log(max(self.noise / self.amplitude, MIN_ALPHA) / weight)),)
        return tuple(np.log(np.array([10.0, 1.0, 1e-1, 1e-2, 1e-3]) / weight).tolist())

    def first(self, m: int) -> "ProcessRows":
        """Return the first m rows, with the targets that vary on them."""
        varies = np.ptp(self.y[:m], axis=0) > 0
        if len(self.w) <= m or not varies.any():
            return self
        if m not in self.firsts:
            self.firsts[m] = replace(self, X=self.X[:m], y=self.y[:m, varies], w=self.w[:m])
        return self.firsts[m]

    @cached_property
    def spread(self) -> Float[Array, " d"]:
        return deviations(self.X, self.w)

    def median(self, units: Float[Array, " d"]) -> float:
        """Return the median distance of rows with these units of the columns."""
        key = units.tobytes()
        if key not in self.medians:
            self.medians[key] = median_distance(self.X, self.w, (units,), 0, max_pairs=4096)
        return self.medians[key]


class Objective:
    """A criterion per row minus a log prior, as a function of the logarithms of parameters.

    A point is a vector of logarithms: of hyperparameters in their units, and of alpha/Σw.
    """

    start: Any  # The kernel at zero, or with free hyperparameters
    rows: ProcessRows
    criterion: Criterion
    kernel: Callable[[Array], Any]  # The kernel at a point, in the units of the data
    #: The criterion at a point and a penalty, without the prior, and its gradient.
    value_and_slope: Callable[[Array, float], tuple[float, Float[Array, " q"]]]
    centres: Any  # Means of normal priors of the logarithms: deviation 3, weight of one row
    units: Any = 1.0  # Steps of the logarithms that match unit steps of the point

    @cached_property
    def level(self) -> float:
        """Σ log u over targets for evidence; u is the deviation rounded to a power of two."""
        # The relative tolerance of a descent does not count it
        if self.criterion is not EVIDENCE:
            return 0.0
        deviation = self.rows.y.std(axis=0)
        return float(np.log(2) * np.round(np.log2(deviation[deviation > 0])).sum())

    def __call__(self, x: Array) -> tuple[float, Float[Array, " q"]]:
        value, slope = self.value_and_slope(x, float(np.exp(x[-1]) * self.rows.w.sum()))
        offset = x[:-1] * self.units - self.centres
        pull = offset / (3.0**2 * self.rows.count)
        value += 0.5 * float(pull @ offset)
        return value, np.append((slope[:-1] + pull) * self.units, slope[-1])

    def ranges(self, x: Array) -> Float[Array, "p 2"]:
        """Return the range of each hyperparameter in a descent from this start."""
        low = self.centres + (np.log(SHORTEST) - 0.5 * np.log(self.rows.X.shape[1]))
        high = self.centres + np.log(LONGEST)
        return np.stack([np.minimum(low, x[:-1]), np.maximum(high, x[:-1])], axis=1)

    def bounds(self, x: Array) -> Float[Array, "q 2"]:
        """Return the range of each coordinate in a descent from this start."""
        shares, weight = self.rows.shares, self.rows.w.sum()
        limits = (np.log(MIN_ALPHA / weight), np.log(1e4 / weight))
        return np.vstack([self.ranges(x), (shares[0],) * 2 if len(shares) == 1 else limits])


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An objective, a point, and the value, kernel and penalty there."""

    fun: Any
    x: Float[Array, " q"]
    value: float

    @property
    def kernel(self) -> Any:
        return self.fun.kernel(self.x)

    @property
    def rounded_kernel(self) -> Any:
        kernel = self.kernel
        return kernel.replace(lengthscale=rounded(kernel.lengthscale))

    @property
    def share(self) -> float:
        return float(np.exp(self.x[-1]))

    @property
    def alpha(self) -> float:
        return self.share * float(self.fun.rows.w.sum())

    def on_rows(self, rows: ProcessRows) -> tuple[Any, Float[Array, " q"]]:
        """Return the objective on other rows, and this point with the same kernel and alpha."""
        share = self.x[-1] + np.log(self.fun.rows.w.sum() / rows.w.sum())
        return replace(self.fun, rows=rows), np.append(self.x[:-1], share)


@single_thread()
def descend(fun: Objective, start: Array, evaluations: int, gain: float = MIN_GAIN) -> Evaluation:
    """Return the best point of ``evaluations`` of L-BFGS; ``gain`` is the relative tolerance."""
    best, count = Evaluation(fun, start, float("inf")), 0
    bounds = fun.bounds(start)
    free = bounds[:, 0] < bounds[:, 1]

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count >= evaluations:
            raise StopIteration
        count += 1
        x = np.where(free, round_to(vector, 1e-6), start)
        try:
            value, gradient = fun(x)
        except LinAlgError:
            return 1e3, np.zeros_like(vector)  # worse than all others
        relative = float(round_to(value - fun.level, 1e-6))
        if relative + fun.level == best.value:  # Smaller steps change nothing after rounding
            raise StopIteration
        best = best_of([best, Evaluation(fun, x, relative + fun.level)])
        return relative, round_to(gradient, 1e-5)

    options = {"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": gain}
    with suppress(StopIteration):
        minimize(
            value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    return best


def best_of(points: Iterable[Evaluation]) -> Evaluation:
    """Return the evaluation with the smallest value."""
    return min(points, key=attrgetter("value"))


def require_lengthscale(kernel: Kernel) -> None:
    """Raise UnsupportedKernel if the kernel has no lengthscale to tune."""
    if not (isinstance(kernel, Stationary) and "lengthscale" in kernel.get_params(deep=False)):
        raise UnsupportedKernel(
            "Tuning requires a stationary kernel with a lengthscale (Gaussian, Matern, "
            f"Exponential, RationalQuadratic, Laplace, Cauchy), or one of their names; got "
            f"{kernel!r}. Compare other kernels by their held-out errors."
        )


def choose_lengthscale(
    name: str, sample: RowSample, seed: int, share: float | None = None, centred: bool = True
) -> Tuning:
    """Return the kernel of this family at the lengthscale of least leave-one-out error."""
    if name == "linear":
        return Tuning(Linear())
    starts = median_kernels(name, sample, seed)
    search = MatrixSearch.of(sample, LOO, centred, limit=512, share=share)
    if search is None:
        return Tuning(starts[0])
    ends = [best_of(search.first_points(start, (1.0, 0.25))) for start in starts]
    end = ends[int(len(ends) > 1 and ends[1].value < ends[0].value - SAME)]
    end = search.finish(end, 8, 4)
    return as_tuning(LOO, end.rounded_kernel, end, 1)


def median_kernels(name: str, sample: RowSample, seed: int) -> list[Kernel]:
    """Return kernels with the median distance, and medians per column if these differ."""
    coordinatewise = name in ("laplace", "cauchy")  # their distance is a sum over columns
    return [NAMED[name](scale) for scale in median_scales(sample, coordinatewise, seed)]


def tune_lengthscales(
    start: Kernel,
    sample: RowSample,
    criterion: Criterion = EVIDENCE,
    centred: bool = True,
    **fixed: Any,
) -> Tuning:
    """Tune the lengthscales of a kernel by a criterion, from the kernel ``start``.

    First one factor for all columns, then one lengthscale per column. The latter are used if they
    raise the log evidence by more than one per further lengthscale (Akaike 1974); n/2 times the
    logarithm of a squared error counts as minus a log evidence.
    """
    require_lengthscale(start)
    search = MatrixSearch.of(sample, criterion, centred, **fixed)
    if search is None:
        return Tuning(start, criterion=criterion.name)
    first = search.first_points(start)
    best = search.finish(best_of(first), 12, 4)
    single, d = as_tuning(criterion, best.rounded_kernel, best, 1), search.rows.X.shape[1]
    if d == 1 or is_sparse(search.rows.X) or not isinstance(start, Radial):
        return single
    end = search.finish(search.tune_columns(start, [*first, best]), 40, 14)
    required = (d - 1) / search.rows.count * (1 if criterion.name == EVIDENCE.name else 2)
    gain = best.value - end.value
    ard = as_tuning(criterion, end.rounded_kernel, end, d, gain, required, gain > required)
    tuning = ard if gain > required else single
    return replace(tuning, candidates=(*single.candidates, *ard.candidates))


def lengthscale_on_sphere(start: Kernel, sample: RowSample, centred: bool, **fixed: Any) -> Tuning:
    """Tune the lengthscale of a kernel on the globe by evidence, with rows as unit vectors."""
    rows = replace(sample, X=unit_vectors(to_numpy(sample.X).astype(np.float64)))
    search = MatrixSearch.of(rows, EVIDENCE, centred, **fixed)
    if search is None:
        return Tuning(start, criterion=EVIDENCE.name)
    end = search.finish(best_of(search.first_points(chordal_kernel(start))), 12, 4)
    return as_tuning(EVIDENCE, with_lengthscale(start, end.rounded_kernel), end, 1)


@dataclass(frozen=True, eq=False)
class MatrixSearch:
    """Descents of one criterion on the kernel matrices of few rows, and then of more."""

    rows: ProcessRows
    criterion: Criterion

    @staticmethod
    def of(
        sample: RowSample, criterion: Criterion, centred: bool, *, limit: int = ROWS, **fixed: Any
    ) -> "MatrixSearch | None":
        """Return the search; None if rows are too few, or no target varies."""
        rows = ProcessRows.of(sample.lowest(limit), centred, **fixed)
        if rows is None:
            return None
        X = rows.X.astype(np.float64)
        if X.shape[0] * X.shape[1] <= 1 << 20:  # for one lengthscale per column
            X = dense(X)
        return MatrixSearch(replace(rows, X=X if is_sparse(X) else X - X.mean(axis=0)), criterion)

    def first_points(
        self, start: Kernel, factors: Sequence[float] = (1.0, 0.25, 0.0625)
    ) -> list[Evaluation]:
        """Return the best of several penalties at each factor of all lengthscales."""
        # A descent in one common factor may end where a function of one column looks like noise
        fun, points = ScaleLoss(start, self._first_rows, self.criterion, 1), list[Evaluation]()
        for log in np.log(factors):
            points.append(best_of([descend(fun, np.array([log, s]), 1) for s in fun.rows.shares]))
        return points

    def tune_columns(self, start: Any, points: Sequence[Evaluation]) -> Evaluation:
        """Return the best of one lengthscale per column, from ``points`` and screened columns."""
        rows, d = self.rows, self.rows.X.shape[1]
        fun = ScaleLoss(start, self._first_rows, self.criterion, d)
        starts = [np.append(np.repeat(point.x[:-1], d), point.x[-1]) for point in points]
        if len(shares := fun.rows.shares) > 1:
            # With one lengthscale, a function of few columns looks like noise: alpha is 0.01 here.
            starts.append(np.append(starts[0][:-1], shares[3]))
            scales = screened_lengthscales(rows.X, rows.y, rows.w, rows.spread)
            if scales is not None:
                starts.append(np.append(np.log(scales / start.lengthscale), shares[3]))
        best = sorted([descend(fun, x, 1) for x in starts], key=attrgetter("value"))
        return best_of([descend(fun, point.x, 6) for point in best[:3]])

    def rescale(
        self, start: Any, alpha: float, evaluations: int, ard: bool = False, brief: bool = False
    ) -> Evaluation:
        """Optimise one factor of all lengthscales, or with ``ard`` one factor per column.

        ``alpha`` is the penalty of all rows, also if few of them are used (``brief``).
        """
        rows = self.rows.first(FIRST_ROWS) if brief else self.rows
        width = rows.X.shape[1] if ard else 1
        fun = ScaleLoss(start, rows, self.criterion, width)
        x = np.append(np.zeros(width), np.log(alpha / self.rows.w.sum()))
        return descend(fun, x, evaluations)

    @property
    def _first_rows(self) -> ProcessRows:
        """Rows on which starts are compared: 128 (256 for many columns), or all if there are few.

        With 107 columns of adult and 128 rows, the evidence prefers a fit that interpolates.
        """
        is_large = len(self.rows.w) > FIRST_ROWS and self.rows.X.shape[1] <= 64
        return self.rows.first(128 if is_large else FIRST_ROWS)

    def finish(self, start: Evaluation, brief: int, full: int) -> Evaluation:
        """Descend from ``start``, by ``brief`` evaluations on few rows, then ``full`` on all."""
        first, best = self.rows.first(FIRST_ROWS), start
        if brief and len(first.w) == len(best.fun.rows.w):
            best = best_of([best, descend(best.fun, best.x, brief)])
        for rows, count in ((first, brief), (self.rows, full)):
            if count and len(rows.w) > len(best.fun.rows.w):
                best = descend(*best.on_rows(rows), count)
        return best


def as_tuning(
    criterion: Criterion,
    kernel: Kernel,
    end: Evaluation,
    n_tuned: int,
    gain: float = np.nan,
    required: float = np.nan,
    chosen: bool = True,
) -> Tuning:
    """Return the Tuning of a kernel whose ``n_tuned`` hyperparameters were tuned."""
    value = float(np.exp(end.value)) if criterion.name == "loo" else end.value
    record = KernelComparison(n_tuned, kernel, value, gain, required, chosen, criterion.label)
    return Tuning(kernel, end.share, criterion=criterion.name, candidates=(record,))


def cap_scales(kernel: Any, rows: ProcessRows) -> Any:
    """Return the kernel with lengthscales of at most four deviations of the columns.

    At longer lengthscales the criterion is flat, and a column may matter only with more rows.
    """
    scales = np.minimum(kernel.lengthscale, 4.0 * rows.spread)
    return kernel.replace(lengthscale=tuple(scales.tolist()))


@dataclass(frozen=True, eq=False)
class ScaleLoss(Objective):
    """A criterion as a function of factors of the lengthscales, 1 or d, and of alpha.

    With ``blocks``: the mean of their criteria per row; each block has a mean and an amplitude.
    """

    start: Any
    rows: ProcessRows
    criterion: Criterion
    width: int
    blocks: tuple["ScaleLoss", ...] = ()

    @cached_property
    def centres(self) -> Float[Array, " p"]:
        """Logarithms of the factors for which lengthscales equal the median distance of rows."""
        rows, scales = self.rows, np.asarray(self.start.lengthscale)
        if self.width == 1:
            units = np.broadcast_to(scales, rows.X.shape[1])
            return np.array([np.log(rows.median(units))])
        return np.log(rows.median(rows.spread)) + np.log(rows.spread) - np.log(scales)

    def kernel(self, x: Array) -> Any:
        scales = self.start.lengthscale * np.exp(x[:-1])
        ard = self.width > 1 or isinstance(self.start.lengthscale, tuple)
        return self.start.replace(lengthscale=tuple(scales.tolist()) if ard else float(scales[0]))

    def value_and_slope(self, x: Array, alpha: float) -> tuple[float, Float[Array, " q"]]:
        if self.blocks:
            values, slopes = zip(*(b.value_and_slope(x, alpha) for b in self.blocks), strict=True)
            counts = [block.rows.count for block in self.blocks]
            return float(np.average(values, weights=counts)), np.average(slopes, 0, counts)
        (K, gradient), rows = self._pairs(x), self.rows
        problem = KernelRows(K, rows.y, rows.w, rows.centred)
        score = self.criterion.of_kernel(problem, alpha, rows.noise, rows.amplitude)
        return score.value, np.append(gradient(score), score.alpha_gradient)

    def _pairs(self, x: Array) -> tuple[Array, Callable[[KernelScore], Any]]:
        """Return K (or its lower triangle), and the gradient as a function of a score."""
        start = self.start  # k as a function of scaled distances is the same at all points
        if not isinstance(start, Radial) or is_sparse(self.rows.X):
            X, step = self.rows.X, np.append(np.full(len(x) - 1, STEP), 0.0)
            high, low = self.kernel(x + step).evaluate(X, X), self.kernel(x - step).evaluate(X, X)
            change = (high - low) / (2 * STEP)
            return self.kernel(x).evaluate(X, X), lambda c: float(np.vdot(c.gradient, change))
        if self.width == 1:
            s, factor = self._distances, float(np.exp(-2 * x[0]))
            K, slope = _in_bands(start, lambda *band: factor * s[band], self._buffer)
            return (K, lambda score: -4 * factor * np.einsum("ij,ij,ij->", score.lower, slope, s))
        X = self.rows.X / (start.lengthscale * np.exp(x[:-1]))
        size = np.einsum("ij,ij->i", X, X)
        K, slope = _in_bands(start, lambda *band: squared_distances(X, size, *band), self._buffer)

        def by_column(score: KernelScore) -> Float[Array, " d"]:
            np.multiply(slope, score.lower, out=slope)
            sums = upper_product(slope.T, np.hstack([X, np.ones((len(X), 1))]))
            return -4 * ((X * X).T @ sums[:, -1] - np.einsum("ij,ij->j", X, sums[:, :-1]))

        return K, by_column

    @cached_property
    def _distances(self) -> Float[Array, "m m"]:
        return squared_distances(self.rows.X / self.start.lengthscale)

    @cached_property
    def _buffer(self) -> Float[Array, "2 m m"]:
        """Buffer for kernel values and slopes, reused by all evaluations."""
        return np.zeros((2, len(self.rows.w), len(self.rows.w)))


# --- kernel values on and below the diagonal, in bands of rows that stay in cache -----------------


def _in_bands(
    kernel: Radial, distances: Callable[[slice, slice], Array], buffer: Float[Array, "2 m m"]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """Return kernel values and their slopes in the squared distance, zero above the diagonal."""
    K, slope = buffer
    upper = np.triu(np.ones((BAND, BAND), bool), 1)
    for start in range(0, len(K), BAND):
        band, columns = slice(start, start + BAND), slice(0, min(start + BAND, len(K)))
        K[band, columns], slope[band, columns] = kernel.with_slope(distances(band, columns))
        corner = slope[band, band]
        np.copyto(corner, 0.0, where=upper[: len(corner), : len(corner)])
    return K, slope


def squared_distances(
    X: Float[Array, "m d"],
    size: Float[Array, " m"] | None = None,
    band: slice = slice(None),
    columns: slice = slice(None),
) -> Float[Array, "b l"]:
    """Return |x − y|² of X[band] and X[columns], zero for equal rows; ``size`` holds |x|²."""
    size = np.einsum("ij,ij->i", X, X) if size is None else size
    norms = size[band, None] + size[columns]
    s = X[band] @ X[columns].T
    s *= -2
    s += norms
    norms *= 1e-14  # largest value for equal rows, by rounding
    np.copyto(s, 0.0, where=s < norms)
    return s
