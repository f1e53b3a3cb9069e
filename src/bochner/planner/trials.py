"""Predicted error, seconds and memory of fits, from timed fits to samples of the rows."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import moved
from bochner._core.blas import eigh, product
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner._core.sizes import FEW, block_rows, kept_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerWarning, InvalidInput, UnsupportedKernel
from bochner.features.auto import paired_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import FeatureMap, Method, Request
from bochner.features.mercer.sphere import WaveMethod
from bochner.features.nystrom import Nystrom, Rounded
from bochner.features.rules import contenders, draw_map
from bochner.kernels.kernel import Kernel
from bochner.models.representations.representation import DIRECT_ROWS, ExactKernel, LocalKernel
from bochner.models.representations.waves import BLOCK_ROWS, summand_of
from bochner.models.ridge.estimators import KernelRidge
from bochner.selection.chosen import feature_precision
from bochner.selection.waves import waves_for
from bochner.solvers.gram import MOST_LOW
from bochner.solvers.ridge.eigen import of_more_rows
from bochner.solvers.ridge.kernel_path import DENSE_ROWS, PENALTY_ROWS
from bochner.solvers.ridge.solution import Outcome, Path, best_of
from bochner.sums.moments import MomentsOf, Precision
from bochner.sums.passes import LOCAL

WIDTHS = (256, 512, 1024, 2048, 4096)  # Default widths
WIDEST = 512  # Largest width of a trial
USUAL = Nystrom(), Fourier(Orthogonal())  # Default methods
LEAST_PART = 0.1  # Least share of a trial's seconds that its rows take, whatever the clock says
OVERHEAD = 4 << 20  # Bytes of code and small objects, beside the arrays of a fit


@dataclass(frozen=True, eq=False)
class FitForecast:
    """One row of a plan."""

    method: Method  # Of the features; or bochner.ExactKernel or bochner.LocalKernel
    n_features: int  # D; the number of rows for an exact or local fit
    #: "moments float32" or "moments float64" for features; "exact"; "local"; "waves".
    solver: str
    error: float  # Predicted root mean squared leave-one-out error of a fit to all rows
    #: Predicted ‖ZZᵀ − K‖_F / ‖K‖_F; its bound for Fourier modes; NaN if the map was not drawn.
    kernel_error: float
    seconds: float
    bytes: float
    steps: Mapping[str, float]  # Seconds of each step
    error_from: str = "sample"  # Or "widths": it is extrapolated also from smaller widths
    default: bool = False  # Whether ``KernelRidge(kernel)`` makes this fit by default

    @property
    def name(self) -> str:
        """Description for sentences."""
        solver, D, method = self.solver.removeprefix("moments "), self.n_features, self.method
        return {
            "exact": "the exact kernel, by a Cholesky factor of its matrix",
            "local": "the exact kernel within leaves of rows (a local fit)",
            "waves": f"{D:,} waves of {method}",
        }.get(solver, f"{D:,} features of {method}, summed up in {solver}")


class FitTrial(NamedTuple):
    """A fitted learner, its number of rows, and the seconds of the fit."""

    model: KernelRidge
    n_rows: int
    seconds: float

    @property
    def path(self) -> Path:
        return self.model.solution_.path


@dataclass(frozen=True, eq=False)
class Task:
    """The rows and the kernel of a plan, and the trials made so far."""

    kernel: Kernel
    sample: RowSample
    like: Array  # Rows of the data, whose library, precision and device trials use
    n_rows: int
    read_seconds: float  # Of one pass over all rows without features
    seed: int
    known: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, act: Callable[[], Any]) -> Any:
        """Return ``act()``, which is called only once for each key."""
        if key not in self.known:
            self.known[key] = act()
        return self.known[key]

    @property
    def widest(self) -> int:
        """Largest width of a trial: a power of two near half of its rows."""
        half = len(self.sample) / 2
        return int(min(WIDEST, max(16, 2 ** round(math.log2(half)))))

    def map(self, method: Method, width: int) -> FeatureMap:
        X = self.sample.X
        ask = Request(X.shape[1], width_of(method, width), self.seed, X=X)
        return self.once((method, width), lambda: draw_map(method, self.kernel, ask))

    def kernel_error(self, method: Method, width: int) -> float:
        act = lambda: paired_error(self.map(method, width), self.sample.X)
        return float(self.once(("kernel", method, width), act))

    def rows(self, n: int) -> tuple[Any, ...]:
        """Return X, y and weights of n rows of the sample, or all of them."""
        sample = self.sample.lowest(n)
        X, y, w = moved(sample.X, like=self.like), sample.y, sample.w
        y = y[:, 0] if y.shape[1] == 1 else y
        return X, moved(y, like=self.like), None if np.all(w == 1) else moved(w, like=self.like)

    def trial(self, n: int, method: Method, width: int = WIDEST, **parameters: Any) -> FitTrial:
        """Return a learner fitted to n rows, once for the same arguments."""
        model = KernelRidge(
            self.kernel, method=method, n_features=width, random_state=self.seed, **parameters
        )

        def fitted() -> FitTrial:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BochnerWarning)
                return FitTrial(model, n, self.seconds(lambda: model.fit(*self.rows(n)), 1))

        return self.once((n, method, width, *parameters.items()), fitted)

    def seconds(self, act: Callable[[], Any], repeats: int = 3) -> float:
        """Return the least time of repeated calls, in seconds: other processes only add time."""
        measured: list[float] = []
        while not measured or (len(measured) < repeats and sum(measured) < 0.05):
            began = time.perf_counter()
            act()
            measured.append(time.perf_counter() - began)
        return max(min(measured), 1e-9)

    def row_seconds(self, summand: Any, rows: int) -> float:
        """Return the seconds of one row in a sum over blocks of this many rows."""

        def swept(n: int) -> float:
            blocks = Blocks.from_arrays(*self.rows(n)).with_rows(rows)
            return self.seconds(lambda: LOCAL.sum(summand, blocks))

        many = min(8192, len(self.sample))
        few, seconds = many // 4, swept(many)
        return max((seconds - swept(few)) / (many - few), LEAST_PART * seconds / many)

    def eigen_seconds(self, D: int) -> float:
        """Return the seconds of the eigendecomposition of D features: aD² + bD³."""

        def timed(n: int) -> float:
            Z = stream(self.seed, "planned eigenvalues").standard_normal((n, n))
            gram = product(Z, Z.T)
            return self.seconds(lambda: eigh(gram), repeats=1)

        size = max(self.widest, min(2 * self.widest, 512))
        a, b = self.once("eigen", lambda: powers({n: timed(n) for n in (size // 2, size)}))
        return float(a * D**2 + b * D**3)

    def multiplication_seconds(self, precision: Precision) -> float:
        """Return the seconds per scalar multiplication in a matrix product."""
        Z = np.ones((256, 256), precision)
        act = lambda: self.seconds(lambda: product(Z, Z)) / 256**3
        return float(self.once(("multiplication", precision), act))


def expected(path: Path, m: int, n: int) -> float:
    """Extrapolate the root mean squared leave-one-out error of m rows to a fit to n rows."""
    errors = _of_more_rows(path, m, n)
    return float(errors[best_of(errors, "loo")]) ** 0.5


def _of_more_rows(path: Path, m: int, n: int) -> Float[Array, " a"]:
    """Return mean squared leave-one-out errors by penalty, extrapolated from m to n rows."""
    dimension = path.effective_dimension
    # Σ w²/(w + λ)² = d_λ + ∂d_λ/∂ log λ, d_λ = Σ w/(w + λ)
    one = len(path.alphas) == 1
    squares = dimension + (0.0 if one else np.gradient(dimension, np.log(path.alphas)))
    trace = np.maximum(m - 1 - dimension, 1e-9 * m)
    squared = np.maximum(m - 1 - 2 * dimension + np.clip(squares, 0, dimension), 1e-9 * m)
    return of_more_rows(path.loo, trace, squared, m - 1, n / m)


def powers(seconds: dict[int, float]) -> tuple[float, float]:
    """Return nonnegative a and b, with an² + bn³ fitted to the seconds at two sizes n."""
    (few, short), (many, long) = sorted(seconds.items())
    slope = (long / many**2 - short / few**2) / (many - few)
    b = min(max(slope, 0.0), long / many**3)
    return long / many**2 - b * many, b


def planned_fits(
    task: Task, methods: Sequence[Method] | None, widths: Sequence[int]
) -> list[FitForecast]:
    """Return the fits of the methods, or of the most promising: features by rising width first."""
    direct = methods is None and task.n_rows <= DIRECT_ROWS
    grid = waves_for(task.kernel, task.sample.X, task.n_rows) if methods is None else None
    waves = [] if grid is None else [grid.method]
    waves += [m for m in methods or () if isinstance(m, WaveMethod)]
    named = None if methods is None else [m for m in methods if m not in waves]
    fits: list[FitForecast] = []
    for method in _methods(task, USUAL if direct else named) if named or not methods else ():
        by_number: dict[int, FitForecast] = {}
        for width in sorted(set(widths)):
            fit = by_moments(task, method, width)
            by_number.setdefault(fit.n_features, fit)
        fits += by_number.values()
    fits += [direct_fit(task)] if direct else []
    return fits + [wave_fit(task, method) for method in waves]


def _methods(task: Task, methods: Sequence[Method] | None) -> list[Method]:
    """Return the given methods that serve the kernel, or by default the most promising ones."""
    errors, refused = dict[Method, float](), None
    for method in contenders(task.sample.X.shape[1]) if methods is None else methods:
        try:
            errors[method] = task.kernel_error(method, task.widest)
        except UnsupportedKernel as error:
            refused = error
    if not errors:
        raise refused or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return list(errors)
    order = sorted(errors, key=errors.__getitem__)
    near = [m for m in order if errors[m] <= 2 * errors[order[0]]][:2]
    return [*near, *(m for m in USUAL if m in errors and m not in near)]


# --- features ------------------------------------------------------------------------------------


def _precision(task: Task, method: Method, width: int) -> Precision:
    """Return the precision of a fit to all rows: float64 where float32 limits the penalty."""
    tried = min(width, task.widest)
    phi = task.map(method, tried)
    n = math.ceil(task.n_rows * (width / phi.n_features) ** 2)
    first = feature_precision("auto", n, phi)
    if first == "float64":
        return first
    trial = task.trial(len(task.sample), method, tried, precision=first)
    if trial.model.solution_.outcome is Outcome.FLOAT32_LIMITED:
        return "float64"
    path = replace(trial.path, loo=_of_more_rows(trial.path, trial.n_rows, task.n_rows))
    least = best_of(path.loo, "loo") == path.lowest("loo") and not path.level("loo")
    return "float64" if least else first


def by_moments(task: Task, method: Method, width: int) -> FitForecast:
    """Return the fit by moments of features; the error of untried widths is e² = a + b/D."""
    m, tried, tries = len(task.sample), min(width, task.widest), width <= task.widest
    few = max(int(FEW / tried**2), tried // 2) + 1  # fewer rows are decomposed, without moments
    rows = max(few, m // 2) if m >= 1.25 * few else m // 2
    first, precision = (_precision(task, method, D) for D in (tried, width))
    trials = [task.trial(size, method, tried, precision=first) for size in (m, rows)]
    trial = trials[0]
    known = trial.model.map_.n_features
    D = known if known < tried else width
    if tries or not isinstance(method, Nystrom):
        D = task.map(method, width).n_features
    error, kernel_error = expected(trial.path, m, task.n_rows), math.nan
    if not tries:
        least = min(exact_error(task), error) ** 2
        error = float((least + (error**2 - least) * tried / width) ** 0.5)
    if known == D or isinstance(method, Fourier):  # the error falls as 1/√D
        kernel_error = task.kernel_error(method, tried) * (known / D) ** 0.5
    steps = _steps(task, trials, D, first, precision)
    # Bytes of the eigendecomposition, or of the leave-one-out errors of a block
    each = 24.0 if precision == "float32" else 36.0  # of a feature of a row
    errors = 24 * D**2 + each * min(task.n_rows, block_rows(D)) * D
    size = OVERHEAD + max(40.0 * D**2, errors)
    takes = sum(steps.values()), size, steps, "sample" if tries else "widths"
    return FitForecast(method, D, f"moments {precision}", error, kernel_error, *takes)


def _steps(
    task: Task, trials: list[FitTrial], D: int, first: Precision, precision: Precision
) -> dict[str, float]:
    """Return the seconds of each step with D features, from two trials in the precision first."""
    trial, half = trials
    method = trial.model.method
    each = (trial.seconds - half.seconds) / (trial.n_rows - half.n_rows)
    each = max(each, LEAST_PART * trial.seconds / trial.n_rows)
    known, unit = trial.model.map_.n_features, task.multiplication_seconds(first)
    # Products with D² multiplications per row: Gram matrix and errors; of landmarks also whitening
    squared = min((1 + 2 * isinstance(method, Nystrom)) * unit, each / known**2)
    row = each - squared * known**2
    row += squared * D**2 * task.multiplication_seconds(precision) / unit
    other = trial.seconds - trial.n_rows * each - task.eigen_seconds(known)
    kept = min(task.n_rows, kept_rows(task.sample.X.shape[1]))
    steps = {
        "read": (1 + (not isinstance(method, Fourier))) * task.read_seconds,
        "other": max(other, 0.0),
        "eigenvalues": task.eigen_seconds(D),
        "kept rows": kept * row,
    }
    if task.n_rows > kept:
        phi, dtype = trial.model.map_, trial.model.feature_dtype_
        features = Rounded(phi.kernel, phi, dtype).features
        summand = MomentsOf(features, trial.model.moments_.precision)
        act = lambda: task.row_seconds(summand, block_rows(known))
        further = task.once(id(trial.model), act)
        steps["further rows"] = (task.n_rows - kept) * further * row / each
    return steps


# --- the exact kernel ----------------------------------------------------------------------------


def exact_trials(task: Task) -> list[FitTrial]:
    """Return fits of the exact kernel to some rows, and to a quarter of them."""
    m = min(len(task.sample), PENALTY_ROWS)
    return [task.trial(size, ExactKernel(), size) for size in (m // 4, m)]


def exact_error(task: Task) -> float:
    """Return the error of the exact kernel, extrapolated to all rows."""
    few, many = exact_trials(task)
    # With each fourfold of the rows it falls at most by the measured ratio: the path of penalties
    # alone is unreliable for rough kernels, whose parameters are almost as many as the rows.
    falls = min(many.path.loo.min() / few.path.loo.min(), 1.0) ** 0.5
    least = many.path.loo.min() ** 0.5 * falls ** math.log(task.n_rows / many.n_rows, 4)
    return max(expected(many.path, many.n_rows, task.n_rows), float(least))


def direct_fit(task: Task) -> FitForecast:
    """Return the fit by a Cholesky factor of all rows; penalties are compared on a sample."""
    n, trials = task.n_rows, exact_trials(task)
    tiny, path = task.trial(32, ExactKernel(), 8).seconds, trials[1].path
    a, b = powers({t.n_rows: max(t.seconds - tiny, 1e-9) / len(t.path.alphas) for t in trials})
    rows = min(n, PENALTY_ROWS)
    steps = {"read": task.read_seconds, "other": tiny}
    steps["penalties"] = len(path.alphas) * (a * rows**2 + b * rows**3)
    if n > PENALTY_ROWS:  # with each factor the inverse of its last rows
        inverse = 2 / 3 * b * PENALTY_ROWS**3
        factor = lambda rows: a * rows**2 + b * rows**3 / 3 + inverse  # a third of penalties
        steps["settling"] = 2.5 * factor(min(n, DENSE_ROWS))  # two factors or three
        steps["factor"] = factor(n) if n > DENSE_ROWS else 0.0
    # Kernel matrix, factor and inverse; or a factor in float32 and the matrix of the first rows.
    size = 16.0 * n**2 if n <= PENALTY_ROWS else 12.0 * n**2 + 8.0 * PENALTY_ROWS**2
    takes = sum(steps.values()), OVERHEAD + size, steps
    return FitForecast(ExactKernel(), n, "exact", exact_error(task), 0.0, *takes)


def local_fit(task: Task, method: LocalKernel) -> FitForecast:
    """Return the local fit: fits to one and to two leaves give the seconds of a leaf."""
    n = task.n_rows
    each = math.ceil(n / 2 ** math.ceil(math.log2(n / method.most_in_leaf(n))))
    few = min(each, len(task.sample) // 2)
    tried = LocalKernel(few, min(method.landmarks_of(n), few))
    one, two = (task.trial(rows, tried) for rows in (few, 2 * few))
    leaf = max(two.seconds - one.seconds, LEAST_PART * two.seconds) * (each / few) ** 3
    steps = {
        "read": task.read_seconds,
        "first leaf": one.seconds,
        "other leaves": (n / each - 1) * leaf,
    }
    numbers = 2 * task.sample.X.shape[1] + 4 * task.sample.y.shape[1] + tried.landmarks_of(n)
    size = OVERHEAD + 12.0 * each**2 + 8.0 * n * numbers
    left_out, path = two.model.fit_.left_out(), two.path
    error = float(np.average((left_out.errors**2).mean(axis=1), weights=left_out.w)) ** 0.5
    rows = path.loo_rows
    error *= expected(path, rows, rows * n / (2 * few)) / expected(path, rows, rows)
    return FitForecast(method, n, "local", error, 0.0, sum(steps.values()), size, steps)


# --- Fourier modes -------------------------------------------------------------------------------


def wave_fit(task: Task, method: Method) -> FitForecast:
    """Return the planned fit by Fourier modes; its error is by generalised cross-validation."""
    n, m = task.n_rows, len(task.sample)
    trial = task.trial(m, method)
    sums = trial.model.fit_.representation
    steps = {"read": 2 * task.read_seconds, "tried rows": trial.seconds}
    if n > m:
        summand = summand_of(sums.chosen, sums.sums.origin)
        steps["further rows"] = (n - m) * task.row_seconds(summand, BLOCK_ROWS)
    error, D = expected(replace(trial.path, loo=trial.path.gcv), m, n), sums.map.n_features
    # For each penalty a preconditioner and 17 vectors; for rows angles, weights and values
    numbers = len(trial.path.alphas) * ((D if D < 2048 else 2 * MOST_LOW) ** 2 + 17 * D)
    size = OVERHEAD + 8.0 * numbers + 100.0 * min(n, BLOCK_ROWS)
    return FitForecast(method, D, "waves", error, sums.map.error, sum(steps.values()), size, steps)
