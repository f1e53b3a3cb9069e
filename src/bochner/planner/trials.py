"""Predictions of the error, time and memory of fits, from timed fits to samples of the rows."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial, wraps
from typing import Any

import numpy as np

from bochner._core.arrays import adapt, to_numpy
from bochner._core.blas import eigh, product
from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner._core.sizes import block_rows, cached_rows, prefers_rows
from bochner._core.threads import Call
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerWarning, InvalidInput, UnsupportedKernel
from bochner.features.auto import Choice, paired_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import FeatureMap, Method, Request
from bochner.features.mercer.sphere import ModeMethod
from bochner.features.nystrom import Nystrom
from bochner.features.rules import contenders, draw_map
from bochner.kernels.kernel import Kernel
from bochner.models.representations.exact import compiled_terms
from bochner.models.representations.features import FeatureSums, RidgeSpec
from bochner.models.representations.modes import BLOCK_ROWS, summand_of
from bochner.models.representations.representation import DIRECT_ROWS, ExactKernel, LocalKernel
from bochner.models.ridge.estimators import KernelRidge
from bochner.selection.choices import Choices, feature_precision
from bochner.selection.modes import modes_for
from bochner.selection.record import Tuning
from bochner.solvers.factorisations import FLOAT32_PENALTY
from bochner.solvers.gram import MAX_LOW
from bochner.solvers.ridge.eigen import extrapolate_errors
from bochner.solvers.ridge.kernel_path import DENSE_ROWS, PENALTY_ROWS, SETTLED_ROWS
from bochner.solvers.ridge.problem import TINY
from bochner.solvers.ridge.solution import Path, best_index, pool
from bochner.sums.moments import Precision
from bochner.sums.passes import LOCAL

WIDTHS = (256, 512, 1024, 2048, 4096)  # default widths
WIDEST = 256  # largest width of a trial
USUAL = Nystrom(), Fourier(Orthogonal())  # default methods
MIN_PART = 0.1  # smallest share of a trial's time that is attributed to its rows
FURTHER_ROWS = 1024  # rows for held-out errors of trials: rms log error .07 instead of .10 without
OVERHEAD = 4 << 20  # bytes of code and small objects, in addition to the arrays of a fit


@dataclass(frozen=True, eq=False)
class FitForecast:
    """Predicted error, time and memory of one fit: a row of a plan.

    Attributes
    ----------
    method : Method
        Method of the features, bochner.ExactKernel or bochner.LocalKernel.
    n_features : int
        D; for an exact or local fit the number of rows.
    solver : {"moments float32", "moments float64", "exact", "local", "modes"}
    error : float
        Predicted root mean squared leave-one-out error of a fit to all rows.
    kernel_error : float
        Predicted ‖ZZᵀ − K‖_F / ‖K‖_F; its bound for Fourier modes; NaN if the map was not drawn.
    seconds, bytes : float
    steps : mapping of str to float
        Seconds of each step.
    error_from : {"sample", "widths"}
        "widths" if the error is extrapolated from smaller widths as well as from the sample.
    default : bool
        Whether this is the fit of ``KernelRidge(kernel)``.
    """

    method: Method
    n_features: int
    solver: str
    error: float
    kernel_error: float
    seconds: float
    bytes: float
    steps: Mapping[str, float]
    error_from: str = "sample"
    default: bool = False

    @property
    def name(self) -> str:
        """Name of the fit in messages: the method, and the number of features if it has any."""
        solver, D, method = self.solver.removeprefix("moments "), self.n_features, self.method
        return {
            "exact": "the exact kernel, by Cholesky factorisation",
            "local": "the exact kernel within leaves of rows (a local fit)",
            "modes": f"{D:,} Fourier modes of {method}",
        }.get(solver, f"{D:,} features of {method}, moments in {solver}")


@dataclass(frozen=True, eq=False)
class FitTrial:
    """A fit to some rows of a task."""

    task: "Task"
    n_rows: int
    fit: Any  # KernelRidge, or FeatureSums
    path: Path
    seconds: float  # of the fit, or of its features
    predict: Callable[[Array], Array]

    @property
    def error(self) -> float:
        """Root mean squared error, extrapolated to all rows along the path of penalties."""
        path, m, dimension = self.path, self.n_rows, self.path.effective_dimension
        # Σ w²/(w + λ)² = d_λ + ∂d_λ/∂ log λ, d_λ = Σ w/(w + λ)
        slope = np.gradient(dimension, np.log(path.alphas)) if len(path.alphas) > 1 else 0.0
        trace = np.maximum(m - 1 - dimension, 1e-9 * m)
        trace2 = np.maximum(m - 1 - dimension + np.clip(slope, -dimension, 0.0), 1e-9 * m)
        squares = extrapolate_errors(path.loo, trace, trace2, m - 1, self.task.n_rows / m)
        ratio = self.held_out / max(path.loo[path.best("loo")], TINY)
        return float(squares[best_index(squares, "loo")] * ratio) ** 0.5

    @cached_property
    def held_out(self) -> float:
        """Mean squared error of all rows: rows of the trial are left out, all others predicted."""
        task, loo = self.task, float(self.path.loo[self.path.best("loo")])
        rows = task.rows.take(task.rows.order[self.n_rows :])
        if not len(rows):
            return loo
        values = to_numpy(self.predict(adapt(rows.X, like=task.like))).reshape(rows.y.shape)
        squares = np.average((values - rows.y) ** 2, axis=0, weights=rows.w)
        error = pool(squares[None], task.sample.y.var(axis=0))[0]
        return float(np.average([loo, error], weights=[self.n_rows, len(rows)]))


def once(method: Call) -> Call:
    """Let a method of a task compute its result for given arguments only once."""

    @wraps(method)
    def wrapper(task: "Task", *args: Any) -> Any:
        key = method, *args
        if key not in task.results:
            task.results[key] = method(task, *args)
        return task.results[key]

    return wrapper  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Task:
    """The rows and the kernel of a plan, and the trials made so far."""

    kernel: Kernel
    spec: RidgeSpec
    rows: RowSample  # trials are fitted to some of these rows, and tested on all others
    n_sample: int  # largest number of rows of a trial
    like: Array  # rows of the data, for the array library, precision and device of trials
    n_rows: int
    read_seconds: float  # time of a pass over all rows without features
    results: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def sample(self) -> RowSample:
        """Rows of the largest trial."""
        return self.rows.lowest(self.n_sample)

    @once
    def draw_map(self, method: Method, width: int) -> tuple[FeatureMap, float]:
        """Return a map, and the seconds of its draw."""
        X, maps = self.sample.X, list[FeatureMap]()
        ask = Request(X.shape[1], width_of(method, width), self.spec.features.seed, X=X)
        seconds = seconds_of(lambda: maps.append(draw_map(method, self.kernel, ask)), self.like)
        return maps[0], seconds

    @once
    def kernel_error(self, method: Method, width: int) -> float:
        return paired_error(self.draw_map(method, width)[0], self.sample.X)

    def arrays(self, n: int) -> tuple[Any, ...]:
        """Return X, y and weights of n rows of the sample, or of all its rows if it has fewer."""
        sample = self.sample.lowest(n)
        X, y, w = adapt(sample.X, like=self.like), sample.y, sample.w
        y = y[:, 0] if y.shape[1] == 1 else y
        return X, adapt(y, like=self.like), None if np.all(w == 1) else adapt(w, like=self.like)

    @once
    def trial(self, n: int, method: Method) -> FitTrial:
        """Return a timed exact or local fit to n rows, without a feature map."""
        model = KernelRidge(self.kernel, method=method, random_state=self.spec.features.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BochnerWarning)
            seconds = seconds_of(lambda: model.fit(*self.arrays(n)), self.like, 1)
        return FitTrial(self, n, model, model.solution_.path, seconds, model.predict)

    @once
    def feature_trial(self, method: Method, width: int) -> FitTrial:
        """Return a fit to float64 features of the sample, with the seconds of its features."""
        choice, sample = Choice(self.draw_map(method, width)[0], method, (), ""), self.sample
        chosen = Choices(self.spec.features.seed, Tuning(self.kernel), choice)
        sums = FeatureSums("plan", chosen, True, None, sample, len(sample))
        sums, solution = sums.solve(self.spec)
        X, predict = self.arrays(len(sample))[0], chosen.linear(solution.coef, solution.intercept)
        seconds = seconds_of(lambda: to_numpy(chosen.precision_map.features(X)), X)
        return FitTrial(self, len(sample), sums, solution.path, seconds, predict)


def seconds_of(act: Callable[[], Any], like: Array, repeats: int = 3) -> float:
    """Return the shortest time of repeated calls; CPU seconds if ``like`` is a NumPy array."""
    times: list[float] = []
    while not times or (len(times) < repeats and sum(times) < 0.005):
        wall, core = time.perf_counter(), time.process_time()
        act()
        wall, core = time.perf_counter() - wall, time.process_time() - core
        times.append(min(wall, core) if isinstance(like, np.ndarray) else wall)
    return max(min(times), 1e-9)


@cache
def eigh_seconds(D: int) -> float:
    """Return the seconds of a D × D eigendecomposition; each D is timed once per process."""
    Z = stream(0, "planned eigenvalues").standard_normal((D, D))
    return seconds_of(partial(eigh, product(Z, Z.T), driver="evd"), Z, 2)


@cache
def multiplication_seconds(precision: Precision) -> float:
    """Return the seconds per multiplication in a matrix product, measured once in a process."""
    Z = np.ones((256, 256), precision)
    return seconds_of(lambda: product(Z, Z), Z) / 256**3


def powers(seconds: dict[int, float]) -> tuple[float, float]:
    """Return a, b ≥ 0: an² + bn³ is the time at two sizes n, else only at the larger size."""
    (m, t_m), (n, t_n) = sorted(seconds.items())
    b = min(max((t_n / n**2 - t_m / m**2) / (n - m), 0.0), t_n / n**3)
    return t_n / n**2 - b * n, b


def list_fits(
    task: Task, methods: Sequence[Method] | None, widths: Sequence[int]
) -> list[FitForecast]:
    """Return the fits of the methods, by default of the best methods; features first, by width."""
    direct = methods is None and task.n_rows <= DIRECT_ROWS
    grid = modes_for(task.kernel, task.sample.X, task.n_rows) if methods is None else None
    modes = [] if grid is None else [grid.method]
    modes += [m for m in methods or () if isinstance(m, ModeMethod)]
    features = USUAL if direct else methods and [m for m in methods if m not in modes]
    fits: list[FitForecast] = []
    # The power of two nearest to half of the rows of a trial, at most 256
    widest = min(max(widths), WIDEST, max(16, 2 ** round(math.log2(len(task.sample) / 2))))
    for method in () if methods and not features else _methods(task, features, widest):
        counts: dict[int, FitForecast] = {}
        for width in sorted(set(widths)):
            fit = predict_moments(task, method, width, widest)
            counts.setdefault(fit.n_features, fit)
        fits += counts.values()
    fits += [direct_fit(task)] if direct else []
    return fits + [mode_fit(task, method) for method in modes]


def _methods(task: Task, methods: Sequence[Method] | None, width: int) -> list[Method]:
    """Return the methods that support the kernel; by default the best for the kernel matrix."""
    supported, refusal = list[Method](), None
    for method in contenders(task.sample.X.shape[1]) if methods is None else methods:
        try:
            task.draw_map(method, width)
            supported.append(method)
        except UnsupportedKernel as error:
            refusal = error
    if not supported:
        raise refusal or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return supported
    order = sorted(supported, key=lambda method: task.kernel_error(method, width))
    limit = 2 * task.kernel_error(order[0], width)
    best = [m for m in order if task.kernel_error(m, width) <= limit][:2]
    return [*best, *(m for m in USUAL if m in supported and m not in best)]


def _precision(trial: FitTrial, width: int) -> Precision:
    """Return the precision of a fit to all rows, from a trial in float64."""
    phi, n_rows = trial.fit.chosen.map, trial.task.n_rows
    n = math.ceil(n_rows * (width / phi.n_features) ** 2)
    if feature_precision("auto", n, phi) == "float64":
        return "float64"
    # With more rows the best penalty falls relative to ‖G‖, here as the cube of the row ratio. Of
    # 19 fits of 1,024 Fourier features to 4,000 to 6,500 rows, 4 are float64 but could be float32.
    path, ratio = trial.path, n_rows / trial.n_rows
    share = 10 * path.alphas[path.best("loo")] / path.alphas[-1]  # of ‖G‖
    return "float64" if share <= FLOAT32_PENALTY * ratio**3 else "float32"


def predict_moments(task: Task, method: Method, width: int, widest: int) -> FitForecast:
    """Return the forecast of a fit by moments; ``widest`` is the most features of a trial.

    For more features the error e is extrapolated by e² = a + b/D.
    """
    trial_width, has_trial = min(width, widest), width <= widest
    trial = task.feature_trial(method, trial_width)
    precision, n_features = _precision(trial, width), trial.fit.chosen.map.n_features
    D = n_features if has_trial or n_features < trial_width else width_of(method, width)
    error, kernel_error = trial.error, math.nan
    if not has_trial:
        limit = min(exact_error(task), error) ** 2
        error = float((limit + (error**2 - limit) * trial_width / width) ** 0.5)
    if n_features == D or isinstance(method, Fourier):  # the error falls as 1/√D
        kernel_error = task.kernel_error(method, trial_width) * (n_features / D) ** 0.5
    steps = _steps(trial, trial_width, D, precision)
    # Memory of the eigendecomposition, or of the leave-one-out errors of a block
    bytes_ = 24.0 if precision == "float32" else 36.0  # per row and feature
    errors = 24 * D**2 + bytes_ * min(task.n_rows, block_rows(D)) * D
    size = OVERHEAD + max(40.0 * D**2, errors)
    takes = sum(steps.values()), size, steps, "sample" if has_trial else "widths"
    return FitForecast(method, D, f"moments {precision}", error, kernel_error, *takes)


def _steps(trial: FitTrial, width: int, D: int, precision: Precision) -> dict[str, float]:
    """Return the seconds of each step with D features, by numbers of timed operations."""
    task, phi, method = trial.task, trial.fit.chosen.map, trial.fit.chosen.choice.method
    n, m, unit, count = task.n_rows, trial.n_rows, multiplication_seconds, phi.n_features
    whiten = isinstance(method, Nystrom) * unit("float64")  # D² multiplications of a row
    seconds = trial.seconds / m
    seconds = max(seconds - whiten * count**2, MIN_PART * seconds) * D / count + whiten * D**2
    # Multiplications of a row; 250 D are for penalties and elementwise operations
    gram, errors = 0.5 * unit("float64") * D**2, unit("float64") * (D**2 + 250 * D)
    ratio = unit(precision) / unit("float64")
    n_rows = min(n, cached_rows(task.sample.X.shape[1]))
    by_rows = n_rows == n and prefers_rows(n, D)  # without sums, by the SVD of the rows
    # Eigendecompositions of 256 to 2,048 features take 1.0 to 1.2 times these seconds
    eigenvalues = eigh_seconds(384) * ((min(n, D) if by_rows else D) / 384) ** 2.75
    eigenvalues += by_rows * 6 * unit("float64") * n * D * min(n, D)
    part = max(width // 4, 1)  # draws take a + b D; for landmarks a + b n D
    draw, few = task.draw_map(method, width)[1], task.draw_map(method, part)[1]
    more = D * (n_rows / m if isinstance(method, Nystrom) else 1) - part
    draw = few + more * max(draw - few, 0.0) / max(width - part, 1)
    return {
        "read": (1 + (not isinstance(method, Fourier))) * task.read_seconds,
        "other": task.trial(32, ExactKernel()).seconds,
        "map": draw,
        "sums": 0.0 if by_rows else ratio * n * (seconds + gram),
        "eigenvalues": eigenvalues,
        "errors": ratio * n_rows * (seconds + errors),
    }


def exact_trials(task: Task) -> list[FitTrial]:
    """Return exact fits to m/4 and to m rows of the sample; m is at most SETTLED_ROWS."""
    m = min(len(task.sample), SETTLED_ROWS)
    return [task.trial(size, ExactKernel()) for size in (m // 4, m)]


def exact_error(task: Task) -> float:
    """Return the error of the exact kernel, extrapolated to all rows.

    The geometric mean of the path's error and of a power law through the errors of both trials,
    with weights 1 − (d/m)² and (d/m)² for d degrees of freedom of m rows: as d approaches m, the
    path does not determine the error of more rows.
    """
    quarter, full = exact_trials(task)
    power = math.log(task.n_rows / full.n_rows, full.n_rows / quarter.n_rows)
    curve = full.held_out * min(full.held_out / max(quarter.held_out, TINY), 1.0) ** power
    share = (full.path.effective_dimension[full.path.best("loo")] / full.n_rows) ** 2
    return float(full.error ** (1 - share) * curve ** (share / 2))


def direct_fit(task: Task) -> FitForecast:
    """Return the planned fit by a Cholesky factor of all rows; penalties are chosen on a sample."""
    n, trials = task.n_rows, exact_trials(task)
    tiny, path = task.trial(32, ExactKernel()).seconds, trials[1].path
    a, b = powers({t.n_rows: max(t.seconds - tiny, 1e-9) / len(t.path.alphas) for t in trials})
    rows = min(n, PENALTY_ROWS if n <= DENSE_ROWS else SETTLED_ROWS)
    steps = {"read": task.read_seconds, "other": tiny}
    steps["penalties"] = len(path.alphas) * (a * rows**2 + b * rows**3)
    if n > PENALTY_ROWS:  # each factor also needs the inverse of its last rows
        inverse = 2 / 3 * b * PENALTY_ROWS**3
        factor = lambda rows: a * rows**2 + b * rows**3 / 6 + inverse  # n³/3, in float32
        steps["settling"] = 2.5 * factor(min(n, DENSE_ROWS))  # two or three factors
        steps["factor"] = factor(n) if n > DENSE_ROWS else 0.0
    # Kernel matrix, factor and inverse; or a float32 factor, and the matrix of all or some rows
    size = 16.0 * n**2 if n <= PENALTY_ROWS else 12.0 * n**2 + 8.0 * PENALTY_ROWS**2
    if compiled_terms(task.kernel, task.sample.X, n) is not None:
        size = 4.0 * n**2 + 8.0 * (DENSE_ROWS**2 + PENALTY_ROWS**2)
    takes = sum(steps.values()), OVERHEAD + size, steps
    return FitForecast(ExactKernel(), n, "exact", exact_error(task), 0.0, *takes)


def local_fit(task: Task, method: LocalKernel) -> FitForecast:
    """Return the planned local fit; fits to one and two leaves give the seconds of a leaf."""
    n = task.n_rows
    leaf_rows = math.ceil(n / 2 ** math.ceil(math.log2(n / method.most_in_leaf(n))))
    m = min(leaf_rows, len(task.sample) // 2)
    leaves = LocalKernel(m, min(method.landmarks_of(n), m))
    small, large = (task.trial(rows, leaves) for rows in (m, 2 * m))
    leaf = max(large.seconds - small.seconds, MIN_PART * large.seconds) * (leaf_rows / m) ** 3
    steps = {
        "read": task.read_seconds,
        "first leaf": small.seconds,
        "other leaves": (n / leaf_rows - 1) * leaf,
    }
    per_row = 2 * task.sample.X.shape[1] + 4 * task.sample.y.shape[1] + leaves.landmarks_of(n)
    size = OVERHEAD + 12.0 * leaf_rows**2 + 8.0 * n * per_row
    return FitForecast(method, n, "local", large.error, 0.0, sum(steps.values()), size, steps)


def mode_fit(task: Task, method: Method) -> FitForecast:
    """Return the planned fit by Fourier modes; its error is by generalised cross-validation."""
    n, m = task.n_rows, len(task.sample)
    trial = task.trial(m, method)
    sums = trial.fit.fit_.representation
    steps = {"read": 2 * task.read_seconds, "tried rows": trial.seconds}
    if n > m:
        act = partial(LOCAL.sum, summand_of(sums.chosen, sums.sums.origin))
        parts = [Blocks.from_arrays(*task.arrays(k)).with_rows(BLOCK_ROWS) for k in (m // 4, m)]
        first, total = (seconds_of(partial(act, part), task.like) for part in parts)
        steps["further rows"] = (n - m) * max((total - first) / (m - m // 4), MIN_PART * total / m)
    by_gcv, D = replace(trial.path, loo=trial.path.gcv), sums.map.n_features
    error = replace(trial, path=by_gcv).error
    # For each penalty a preconditioner and 17 vectors; for each row angles, weights and values
    values = len(trial.path.alphas) * ((D if D < 2048 else 2 * MAX_LOW) ** 2 + 17 * D)
    size = OVERHEAD + 8.0 * values + 100.0 * min(n, BLOCK_ROWS)
    return FitForecast(method, D, "modes", error, sums.map.error, sum(steps.values()), size, steps)
