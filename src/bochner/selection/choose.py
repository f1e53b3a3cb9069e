"""First step of every fit: choose open parameters on a sample of rows, and draw the map."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from bochner._core.arrays import dense, is_sparse
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.errors import FeatureWarning, UnsupportedKernel, attempt
from bochner.features.auto import Auto, Choice, Targets, loo_path
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import Method, Request
from bochner.features.rules import choose as choose_method
from bochner.features.rules import draw_map
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Gaussian, Stationary
from bochner.kernels.stationary_families import Matern
from bochner.selection.choices import Choices, FeatureSpec
from bochner.selection.held_out import FEWEST, MAX_CELLS
from bochner.selection.hyperparameters import tune_loo
from bochner.selection.lengthscales import choose_lengthscale, median_kernels, tune_lengthscales
from bochner.selection.modes import modes_for
from bochner.selection.neighbourhoods import scale_lengthscales
from bochner.selection.race import Race, learn_metric
from bochner.selection.record import Curves, Tuning
from bochner.selection.rows import median_scales, times
from bochner.selection.spec import DEFAULT_PENALTY, EFFORTS, accepts_sparse
from bochner.selection.width import penalty_for, required_features
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import START_LEVEL, Penalties
from bochner.solvers.ridge.solution import NO_ERROR, best_index, pool
from bochner.sums.moments import require_squares
from bochner.sums.passes import LOCAL, Executor, as_sample, draw_rows, total_weight

#: Finds a kernel from a kernel or name and a sample of rows.
Search = Callable[[Any, RowSample], Tuning]


def choose(
    spec: FeatureSpec,
    blocks: Blocks,
    *,
    n_classes: int = 0,
    alpha: float | None = None,
    search: Search | None = None,
    by_targets: bool = True,
    where: Executor = LOCAL,
    prepare: Callable[[RowSample], tuple[RowSample, float]] = lambda rows: (rows, 1.0),
) -> tuple[Choices, RowSample | None]:
    """Choose open parameters and draw the map; also return the sample of rows, if one was needed.

    ``search`` replaces the usual search for a kernel. ``by_targets``: "auto" uses the targets.
    ``prepare`` returns the rows of the sample on which parameters are chosen, and their unit.
    """
    if not spec.needs_rows and search is None:
        return draw_given(spec, blocks.n_columns), None
    rows, _ = prepare(draw_rows(blocks, spec.seed, n_classes, where))
    share = alpha / total_weight(blocks, where) if spec.is_open and alpha is not None else None
    return choose_from(spec, rows, count_rows(blocks), share, search, by_targets), rows


def draw_given(spec: FeatureSpec, n_columns: int) -> Choices:
    """Return the given kernel with its map, drawn by a given method that needs no rows."""
    kernel, width = cast(Any, (spec.kernel, spec.width))
    phi = draw_map(spec.method, kernel, Request(n_columns, width, spec.seed))
    choice = Choice(phi, spec.method, (), f"{spec.method!r}: as asked.")
    return Choices(spec.seed, Tuning(kernel), choice)


def choose_from(
    spec: FeatureSpec,
    rows: RowSample,
    n_rows: int | None = None,
    share: float | None = None,
    search: Search | None = None,
    by_targets: bool = True,
) -> Choices:
    """Return the choice of :func:`choose` from a sample of ``n_rows``; ``share`` is alpha/Σw."""
    require_squares(spec.caller, rows.y, rows.w)
    curves, rows = fit_curves(rows, spec.seed, spec.transforms_columns and search is None)
    spec = replace(spec, modes=spec.modes and curves is None)  # modes need the original columns
    tuning = search_kernel(spec, rows, share, search)
    choice = choose_map(spec, tuning.kernel, rows.X.shape[1], rows, n_rows, share, by_targets)
    chosen = Choices(spec.seed, tuning, choice)
    return chosen if curves is None else chosen.with_curves(curves)


def search_kernel(
    spec: FeatureSpec,
    rows: RowSample,
    share: float | None = None,
    search: Search | None = None,
    **options: Any,
) -> Tuning:
    """Return the Tuning of a fit's kernel; ``share`` is alpha/Σw, ``options`` of exact kernels."""
    kernel = spec.kernel
    if spec.learns_metric:
        return choose_metric(spec, rows, share)
    if search is not None:
        return search(kernel, rows)
    if isinstance(kernel, Kernel):
        return tune_loo(kernel, rows, spec.seed, share, options.get("centred", True))
    method, effort = (None, "low") if options else (spec.method, "medium")
    args = rows, spec.seed, share, method, spec.effort or effort
    return choose_kernel(kernel, *args, of_classes=spec.of_classes, **options)


def fit_curves(sample: RowSample, seed: int, enabled: bool) -> tuple[Curves | None, RowSample]:
    """Return transformations of columns, or None if none is better, and the rows after them."""
    curves = choose_curves(sample, seed) if enabled else None
    return curves, sample if curves is None else replace(sample, X=curves.inputs(sample.X))


def choose_for_matrix(
    spec: FeatureSpec,
    sample: RowSample,
    share: float | None,
    centred: bool,
    search: Search | None = None,
    shortens: bool = False,
) -> tuple[Tuning, Curves | None]:
    """Return the kernel of an exact fit, and transformations of columns or None."""
    curves, sample = fit_curves(sample, spec.seed, spec.transforms_columns)
    require_squares(spec.caller, sample.y, sample.w)
    tuning = search_kernel(spec, sample, share, search, centred=centred)
    shortens = shortens and spec.kernel == "auto" and search is None and np.isfinite(tuning.share)
    return _shorten(tuning, sample, centred) if shortens else tuning, curves


#: Amplitude, in variances of the target, above which it is large; factor of the lengthscales per
#: step; largest number of steps; largest factor of the leave-one-out error. Without this rule the
#: predictions of 15 of 600 functions, up to half the width of the data outside it, were 3 to 3.8
#: target deviations away from the mean of the target; with this rule at most 2.96.
LARGE, SHORTER, MAX_STEPS, TIE = 1.5, 2**-0.25, 8, 1.03

#: Loss of log evidence that rejects a lengthscale at 5 % (χ² with one degree of freedom). Jumps in
#: one column determine amplitude/lengthscale, but hardly either alone. Outside the data errors were
#: 1.19 (square waves) and 1.16 (steps) times those of a Gaussian kernel; with the shortest
#: lengthscales 1.10 and 1.07. Random walks keep theirs: their variance is below half the amplitude.
CHI2, SHARE = 1.92, 0.5


def _shorten(tuning: Tuning, sample: RowSample, centred: bool) -> Tuning:
    """Return the kernel with shorter lengthscales while errors tie and its amplitude is large.

    Outside the data, a function of long lengthscale and large amplitude leaves the range of y.
    In one column lengthscales of rough kernels are shortened until the evidence rejects them.
    """
    rows = sample.lowest(512 if sample.X.shape[1] == 1 else 256)
    kernel, highest, lowest = tuning.kernel, np.inf, np.inf
    alpha, large = tuning.share * float(rows.w.sum()), True
    rough = rows.X.shape[1] == 1 and not isinstance(kernel, Gaussian)
    for step in range(MAX_STEPS + 1):
        shorter = scale_lengthscales(tuning.kernel, SHORTER**step) if step else kernel
        if shorter is None:
            break
        problem = KernelRows(kernel_matrix(shorter, rows.X), rows.y, rows.w, centred)
        if not step and isinstance(kernel, Exponential):
            rough &= problem.spread > SHARE * problem.trace
        penalties = Penalties(problem, level=START_LEVEL)
        near = penalties.best("loo", alpha)
        first = penalties.at(min(near, penalties.best("evidence", near)))
        if not (step or rough) and first and penalties.amplitude(first, None) <= LARGE:
            break  # The amplitude is smaller at larger penalties
        alpha = penalties.likeliest(alpha)
        fit = penalties.at(alpha)
        if fit is None:
            break
        error = float(pool(fit.criteria["loo"][0][None], problem.power)[0])
        evidence = penalties.slope("evidence", None, alpha)[0]  # Minus twice the log, per row
        plausible = rough and evidence <= lowest + 2 * CHI2 / problem.count
        better = error <= highest and (large or plausible)
        if better:
            kernel, highest, lowest = shorter, min(highest, TIE * error), min(lowest, evidence)
            large = penalties.amplitude(fit, None) > LARGE
        if not (large or (rough and better)):
            break
    return replace(tuning, kernel=kernel)


def choose_family(spec: FeatureSpec, sample: RowSample) -> Tuning:
    """Find the kernel of a name; for "auto" the best stationary kernel."""
    args = sample, spec.seed, None, None, spec.effort or "medium"
    return choose_kernel(str(spec.kernel), *args, kind=Stationary)


def choose_kernel(
    name: str,
    sample: RowSample,
    seed: int,
    share: float | None,
    method: Method | None,
    effort: str,
    *,
    kind: Any = Kernel,
    **options: Any,
) -> Tuning:
    """Return the kernel of a name; for "auto" the best one of ``kind`` that ``method`` supports."""
    level = EFFORTS.get(effort)
    if name == "auto" and level is not None:
        X, sparse = sample.X, is_sparse(sample.X)
        _require_support(method, X, seed)

        def serves(kernel: Kernel) -> bool:
            accepted = isinstance(kernel, kind) and (not sparse or accepts_sparse(kernel))
            return accepted and _refusal(method, X, seed, kernel) is None

        small = sparse and X.shape[0] * X.shape[1] <= MAX_CELLS
        rows = replace(sample, X=dense(X)) if small else sample
        # Fewer rows do not determine a family; the race lowers errors by 4 % with 32 rows
        large = len(rows) >= (64 if options.get("of_classes") else 32)
        race = Race.of(rows, seed, level, share=share, serves=serves, **options) if large else None
        if race is not None:
            return race.best()
    name, centred = "gaussian" if name == "auto" else name, options.get("centred", True)
    return choose_lengthscale(name, sample, seed, share, centred)


def _refusal(method: Method | None, X: Array, seed: int, kernel: Kernel) -> Exception | None:
    """Return the error if a method does not support a kernel; "auto" and None support all."""
    if method is None or isinstance(method, Auto):
        return None
    ask = Request(X.shape[1], 2 * X.shape[1], seed, X=X[:FEWEST])
    reason = attempt(draw_map, method, kernel, ask)
    return reason if isinstance(reason, UnsupportedKernel) else None  # or too few rows


def _require_support(method: Method | None, X: Array, seed: int) -> None:
    """Raise UnsupportedKernel if the method supports no starting kernel of the search."""
    refusal = _refusal(method, X, seed, Gaussian())
    if refusal and _refusal(method, X, seed, Matern(1.5)):
        raise refusal


def choose_metric(spec: FeatureSpec, rows: RowSample, share: float | None) -> Tuning:
    """Learn a metric from rows; a named kernel starts from the lengthscale chosen for it."""
    kernel, seed = spec.kernel, spec.seed
    if kernel == "auto":
        _require_support(spec.method, rows.X, seed)
        kernel = tune_lengthscales(median_kernels("matern32", rows, seed)[-1], rows).kernel
    elif isinstance(kernel, str):
        kernel = choose_lengthscale(kernel, rows, seed, share).kernel
    return learn_metric(kernel, rows, seed)


def choose_map(
    spec: FeatureSpec,
    kernel: Kernel,
    n_inputs: int,
    rows: RowSample | None,
    n_rows: int | None,
    share: float | None,
    by_targets: bool,
) -> Choice:
    """Draw the map, after the choice of method and width if they are open."""
    n = len(rows or ()) if n_rows is None else n_rows
    if isinstance(spec.width, float):
        return _choose_width(spec, spec.width, kernel, as_sample(rows), n, share)
    ask = Request(n_inputs, spec.width, spec.seed, X=None if rows is None else rows.X)
    if not isinstance(spec.method, Auto):
        phi = draw_map(spec.method, kernel, ask)
        return Choice(phi, spec.method, (), f"{spec.method!r}: as asked.")
    targets = None
    if rows is not None:
        if spec.modes and n_rows is not None and (modes := modes_for(kernel, rows.X, n_rows)):
            return modes
        if by_targets and np.any(np.ptp(rows.y, axis=0)):
            targets = Targets(rows.y, rows.w, n, share)
    return choose_method(spec.method, kernel, ask, targets)


def _choose_width(
    spec: FeatureSpec, epsilon: float, kernel: Kernel, rows: RowSample, n: int, share: float | None
) -> Choice:
    """Choose the width for error ``epsilon``, at the given penalty or one predicted for n rows."""
    if share is not None:
        alpha = share * n
    elif rows.y.shape[1]:
        alpha = penalty_for(kernel, rows.X, rows.y, n, spec.seed)
    else:
        alpha = DEFAULT_PENALTY * n * float(kernel.diag(rows.X).mean())
    width = required_features(
        kernel, spec.method, rows.X, alpha=alpha, epsilon=epsilon, n_rows=n, random_state=spec.seed
    )
    if not width.success:
        warnings.warn(f"n_features: {width}", FeatureWarning, stacklevel=2)
    return Choice(width.map, width.method, (), str(width))


# --- Transformations of skewed columns and of columns with outliers, where they predict better ---
#
# Candidates are compared by leave-one-out errors on a sample of rows, with the same random features
# at lengthscales from the median distance down.

#: Points of a curve; least number of rows for a distribution; features of a comparison, half of
#: them for fewer than 1024 rows.
POINTS, FEWEST_OF_CURVES, CURVE_FEATURES = 33, 100, 128


def choose_curves(rows: RowSample, seed: int) -> Curves | None:
    """Return the best transformation; None if none lowers the leave-one-out error by 3 %."""
    unsuitable = len(rows) < FEWEST_OF_CURVES or rows.X.shape[1] > 512
    if unsuitable or is_sparse(rows.X) or not rows.y.shape[1] or not np.any(np.ptp(rows.y, axis=0)):
        return None
    columns = _skewed_columns(rows.X)
    if not columns:
        return None
    sample = rows.lowest(1024)
    progress("Choosing transformations of skewed columns", f"{len(columns)} columns")
    error = _error_near_median(sample, seed)
    first = min((error(k, -2), k, -2) for k in (0, 1))
    original, kind, step = min(first, *((error(first[1], s), first[1], s) for s in (-4, 0)))
    candidates = []
    for name in _SHAPES:
        curves = _candidate(name, columns)
        error_of = _error_near_median(replace(sample, X=curves.inputs(sample.X)), seed)
        candidates.append((error_of(kind, step), curves, error_of))
    smallest, best, error_of = min(candidates, key=lambda pair: pair[0])
    smallest = min(smallest, error_of(kind, step - 2))
    if not smallest < 0.97 * original:
        return None
    return replace(best, gain=round(1 - smallest / original, 3))


def _error_near_median(rows: RowSample, seed: int) -> Callable[[int, int], float]:
    """Return the function (kind, step) ↦ leave-one-out error of features with these lengthscales.

    Kind 0 has one lengthscale, kind 1 one per column: the median distance times 2^(step/2).
    """
    starts = median_scales(rows, False, seed, max_pairs=4096)
    X = rows.X.astype(np.float64, copy=False)

    @cache
    def error(kind: int, step: int) -> float:
        kernel = Gaussian(times(starts[min(kind, len(starts) - 1)], 2.0 ** (step / 2)))
        width = CURVE_FEATURES if len(X) >= 1024 else CURVE_FEATURES // 2
        phi = draw_map(Fourier(Orthogonal()), kernel, Request(X.shape[1], width, seed))
        eigen, alphas, errors = loo_path(phi.features(X), rows.y, rows.w)
        # The relative rounding of errors grows as 1/penalty: at penalties per row of 1.4e-12 errors
        # of 15 rows differ by 2 % between processors.
        rounding = width * np.finfo(np.float64).eps * eigen.weight / alphas
        best = best_index(errors * (1 + rounding), "loo")
        return max(float(errors[best]), NO_ERROR * float(eigen.power.max()) / eigen.weight)

    return error


def _skewed_columns(
    X: Float[Array, "n d"],
) -> list[tuple[int, Float[Array, " n"], Float[Array, " p"], float]]:
    """Return (index, values, quantiles, deviation) of skewed or heavy-tailed columns.

    Columns with fewer than three values or quantiles are omitted.
    """
    X, candidates = np.asarray(X, np.float64), []
    centred = X - X.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    z = centred / np.where(spread > 0, spread, 1.0)
    skewed = (np.abs((z**3).mean(axis=0)) > 1) | ((z**4).mean(axis=0) - 3 > 6)
    for j in np.flatnonzero(skewed).tolist():
        x = X[:, j]
        if len(np.unique(x[:FEWEST_OF_CURVES])) < 3:
            continue
        points = np.unique(np.quantile(x, np.linspace(0, 1, POINTS)))
        points = np.array([float(f"{p:.6g}") for p in points])  # equal digits on all processors
        points = points[np.append(True, np.diff(points) > 0)]
        if len(points) >= 3:
            candidates.append((j, x, _refine_ends(points), _deviation(x)))
    return candidates


def _candidate(name: str, columns: list[tuple[int, Array, Array, float]]) -> Curves:
    """Return curves of shape ``name``, with knots at the quantiles and the column's deviation."""
    points, values = [], []
    for _, x, quantiles, deviation in columns:
        # Evenly spaced points keep curves smooth where rows are few
        grid = np.linspace(quantiles[0], quantiles[-1], POINTS * (name != "quantiles"))
        knots = np.unique(np.concatenate([quantiles, grid]))
        curve = _SHAPES[name](x, knots)
        spread = _deviation(np.interp(x, knots, curve))
        factor = deviation / spread if spread > 0 else 1.0
        scaled = np.array([float(f"{v:.6g}") for v in curve * factor])
        points.append(tuple(knots.tolist()))
        values.append(tuple(np.maximum.accumulate(scaled).tolist()))
    return Curves(name, tuple(j for j, *_ in columns), tuple(points), tuple(values))


def _refine_ends(points: Float[Array, " p"]) -> Float[Array, " q"]:
    """Return the points and further ones that repeatedly halve long first and last steps."""
    first, last, inner = points[1] - points[0], points[-1] - points[-2], points[-2] - points[1]
    ratio = POINTS * max(first, last) / inner if inner > 0 else 1.0
    halves = 0.5 ** np.arange(1, 1 + np.ceil(np.log2(max(ratio, 1.0))))
    ends = points[1] - first * halves, points[-2] + last * halves
    return np.unique(np.concatenate([points, *ends]))


def _deviation(x: Float[Array, " n"]) -> float:
    """Return the standard deviation of x after clipping it to its 1 % and 99 % quantiles."""
    inner = float(np.std(np.clip(x, *np.quantile(x, [0.01, 0.99]))))
    return inner if inner > 0 else float(np.std(x))


def _logarithms(x: Float[Array, " n"], points: Float[Array, " p"]) -> Float[Array, " p"]:
    """Take logarithms of the distance from the dense end of the column."""
    sign = 1.0 if np.mean((x - x.mean()) ** 3) >= 0 else -1.0
    oriented = sign * x
    low = float(oriented.min())
    unit = max(float(np.quantile(oriented, 0.25)) - low, 0.05 * _deviation(x))
    return sign * np.log1p(np.maximum(sign * points - low, 0.0) / unit)


def _quantiles(x: Float[Array, " n"], points: Float[Array, " p"]) -> Float[Array, " p"]:
    """Replace each number by its normal score, the normal quantile of its rank."""
    x = np.sort(x)
    rank = (np.searchsorted(x, points, "left") + np.searchsorted(x, points, "right")) / 2
    return np.asarray(ndtri(np.clip(rank / len(x), 0.5 / len(x), 1 - 0.5 / len(x))))


def _clip(x: Float[Array, " n"], points: Float[Array, " p"]) -> Float[Array, " p"]:
    """Clip smoothly at three deviations, estimated from the quartiles: u/√(1 + u²/9)."""
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
    unit = (high - low) / 1.349 or _deviation(x)
    u = (points - middle) / unit
    return u / np.sqrt(1 + (u / 3) ** 2)


_SHAPES = {"logarithms": _logarithms, "quantiles": _quantiles, "clipped": _clip}
