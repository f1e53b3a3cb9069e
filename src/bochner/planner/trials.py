"""Predictions of the error, time and memory of fits, from timed fits to samples of the rows."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import adapt, to_numpy
from bochner._core.blas import eigh, product
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows, cached_rows, prefers_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerWarning, InvalidInput, UnsupportedKernel
from bochner.features.auto import paired_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import FeatureMap, Method, Request
from bochner.features.mercer.sphere import ModeMethod
from bochner.features.nystrom import Nystrom, PrecisionMap
from bochner.features.rules import contenders, draw_map
from bochner.kernels.kernel import Kernel
from bochner.models.representations.exact import compiled_terms
from bochner.models.representations.modes import BLOCK_ROWS, summand_of
from bochner.models.representations.representation import DIRECT_ROWS, ExactKernel, LocalKernel
from bochner.models.ridge.estimators import KernelRidge
from bochner.selection.choices import feature_precision
from bochner.selection.modes import modes_for
from bochner.solvers.factorisations import FLOAT32_PENALTY
from bochner.solvers.gram import MAX_LOW
from bochner.solvers.ridge.eigen import extrapolate_errors
from bochner.solvers.ridge.kernel_path import DENSE_ROWS, PENALTY_ROWS, SETTLED_ROWS
from bochner.solvers.ridge.solution import Path, best_index
from bochner.sums.moments import Precision
from bochner.sums.passes import LOCAL

WIDTHS = (256, 512, 1024, 2048, 4096)  # default widths
WIDEST = 256  # largest width of a trial
USUAL = Nystrom(), Fourier(Orthogonal())  # default methods
MIN_PART = 0.1  # smallest share of a trial's time that is attributed to its rows
#: Steps of the path per doubling of the rows, by which the best penalty may be below the
#: extrapolated penalty: with 3.1 to 3.2 the precision of 10 fits of 1,024 Fourier features to 4,500
#: to 7,000 rows (kin8nm, power_plant, bike_clean, california_housing, protein, elevation) is right.
LOWER = 3.1
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
    like: Array  # rows of the data, for the array library, precision and device of trials
    n_rows: int
    read_seconds: float  # time of a pass over all rows without features
    seed: int
    results: dict[Any, Any] = field(default_factory=dict)

    def cache(self, key: Any, act: Callable[[], Any]) -> Any:
        """Return ``act()``, called only once for each key."""
        if key not in self.results:
            self.results[key] = act()
        return self.results[key]

    @property
    def max_width(self) -> int:
        """Largest width of a trial: the power of two nearest to half of its rows, at most 256."""
        return int(min(WIDEST, max(16, 2 ** round(math.log2(len(self.sample) / 2)))))

    def draw_map(self, method: Method, width: int) -> tuple[FeatureMap, float]:
        """Return a map, and the seconds of its draw."""
        X = self.sample.X
        ask = Request(X.shape[1], width_of(method, width), self.seed, X=X)

        def draw() -> tuple[FeatureMap, float]:
            maps: list[FeatureMap] = []
            seconds = self.seconds(lambda: maps.append(draw_map(method, self.kernel, ask)))
            return maps[0], seconds

        return self.cache((method, width), draw)

    def kernel_error(self, method: Method, width: int, phi: FeatureMap | None = None) -> float:
        act = lambda: paired_error(phi or self.draw_map(method, width)[0], self.sample.X)
        return float(self.cache(("kernel", method, width), act))

    def rows(self, n: int) -> tuple[Any, ...]:
        """Return X, y and weights of n rows of the sample, or of all its rows if it has fewer."""
        sample = self.sample.lowest(n)
        X, y, w = adapt(sample.X, like=self.like), sample.y, sample.w
        y = y[:, 0] if y.shape[1] == 1 else y
        return X, adapt(y, like=self.like), None if np.all(w == 1) else adapt(w, like=self.like)

    def trial(self, n: int, method: Method, width: int = WIDEST, **parameters: Any) -> FitTrial:
        """Return a timed fit to n rows, made only once for the same arguments."""
        model = KernelRidge(
            self.kernel, method=method, n_features=width, random_state=self.seed, **parameters
        )

        def fit_trial() -> FitTrial:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BochnerWarning)
                return FitTrial(model, n, self.seconds(lambda: model.fit(*self.rows(n)), 1))

        return self.cache((n, method, width, *parameters.items()), fit_trial)

    def seconds(self, act: Callable[[], Any], repeats: int = 3) -> float:
        """Return the shortest time of repeated calls, in core seconds: other processes add none."""
        times: list[float] = []
        while not times or (len(times) < repeats and sum(times) < 0.02):
            wall, core = time.perf_counter(), time.process_time()
            act()
            wall, core = time.perf_counter() - wall, time.process_time() - core
            times.append(min(wall, core) if isinstance(self.like, np.ndarray) else wall)
        return max(min(times), 1e-9)

    def row_seconds(self, summand: Any, rows: int) -> float:
        """Return the seconds per row of a sum over blocks of ``rows`` rows."""
        m = len(self.sample)
        parts = [Blocks.from_arrays(*self.rows(n)).with_rows(rows) for n in (m // 4, m)]
        first, total = (self.seconds(partial(LOCAL.sum, summand, part)) for part in parts)
        return max((total - first) / (m - m // 4), MIN_PART * total / m)

    def decomposition_seconds(self, D: int, rows: int | None = None) -> float:
        """Return the seconds of eigh of a D × D matrix, or of the SVD of a ``rows`` × D matrix."""

        def eigh_seconds(n: int) -> float:
            Z = stream(self.seed, "planned eigenvalues").standard_normal((n, n))
            gram = product(Z, Z.T)
            return self.seconds(lambda: eigh(gram, driver="evd"), repeats=2)

        sizes = (192, 384) if self.max_width == WIDEST else (self.max_width, 2 * self.max_width)
        a, b = self.cache("eigen", lambda: powers({n: eigh_seconds(n) for n in sizes}))
        if rows is None:
            return float(a * D**2 + b * D**3)
        # Two eigendecompositions and 7 n D² multiplications: within 15 % for 128 to 512 features
        small, large = sorted((rows, D))
        products = 7 * self.multiplication_seconds("float64") * large * small**2
        return float(2 * (a * small**2 + b * small**3) + products)

    def multiplication_seconds(self, precision: Precision) -> float:
        """Return the seconds per scalar multiplication in a matrix product."""
        Z = np.ones((256, 256), precision)
        act = lambda: self.seconds(lambda: product(Z, Z)) / 256**3
        return float(self.cache(("multiplication", precision), act))


def expected_error(path: Path, m: int, n: int) -> float:
    """Return the root mean squared leave-one-out error of m rows, extrapolated to n rows."""
    errors = _extrapolate(path, m, n)
    return float(errors[best_index(errors, "loo")]) ** 0.5


def _extrapolate(path: Path, m: int, n: int) -> Float[Array, " a"]:
    """Return mean squared leave-one-out errors by penalty, extrapolated from m to n rows."""
    dimension = path.effective_dimension
    # Σ w²/(w + λ)² = d_λ + ∂d_λ/∂ log λ, d_λ = Σ w/(w + λ)
    single = len(path.alphas) == 1
    squares = dimension + (0.0 if single else np.gradient(dimension, np.log(path.alphas)))
    trace = np.maximum(m - 1 - dimension, 1e-9 * m)
    trace2 = np.maximum(m - 1 - 2 * dimension + np.clip(squares, 0, dimension), 1e-9 * m)
    return extrapolate_errors(path.loo, trace, trace2, m - 1, n / m)


def powers(seconds: dict[int, float]) -> tuple[float, float]:
    """Return nonnegative a and b for which an² + bn³ is the time at two sizes n, if possible."""
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
    features = None if methods is None else [m for m in methods if m not in modes]
    fits: list[FitForecast] = []
    for method in _methods(task, USUAL if direct else features) if features or not methods else ():
        counts: dict[int, FitForecast] = {}
        for width in sorted(set(widths)):
            fit = predict_moments(task, method, width, min(max(widths), task.max_width))
            counts.setdefault(fit.n_features, fit)
        fits += counts.values()
    fits += [direct_fit(task)] if direct else []
    return fits + [mode_fit(task, method) for method in modes]


def _methods(task: Task, methods: Sequence[Method] | None) -> list[Method]:
    """Return the methods that support the kernel; by default the methods of smallest error."""
    errors, error_ = dict[Method, float](), None
    for method in contenders(task.sample.X.shape[1]) if methods is None else methods:
        try:
            errors[method] = task.kernel_error(method, task.max_width // 2)
        except UnsupportedKernel as error:
            error_ = error
    if not errors:
        raise error_ or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return list(errors)
    order = sorted(errors, key=errors.__getitem__)
    best = [m for m in order if errors[m] <= 2 * errors[order[0]]][:2]
    return [*best, *(m for m in USUAL if m in errors and m not in best)]


def _precision(task: Task, trial: FitTrial, width: int) -> Precision:
    """Return the precision of a fit to all rows, from a trial in float64."""
    phi = trial.model.map_
    n = math.ceil(task.n_rows * (width / phi.n_features) ** 2)
    if feature_precision("auto", n, phi) == "float64":
        return "float64"
    alphas = trial.path.alphas  # up to ten times the largest eigenvalue
    reliable = alphas >= 0.099 * FLOAT32_PENALTY * alphas[-1]
    errors = _extrapolate(trial.path, trial.n_rows, task.n_rows)
    path = replace(trial.path, loo=np.where(reliable, errors, np.inf))
    excess = path.best("loo") - path.lowest("loo")
    if excess == 0:
        return "float32" if path.level("loo") else "float64"
    return "float64" if excess <= LOWER * math.log2(task.n_rows / trial.n_rows) else "float32"


def predict_moments(task: Task, method: Method, width: int, widest: int) -> FitForecast:
    """Return the fit by moments of features; ``widest`` is the largest width of a trial.

    Wider features have the error e² = a + b/D.
    """
    m, trial_width, has_trial = len(task.sample), min(width, widest), width <= widest
    trial = task.trial(m, method, trial_width, precision="float64")
    precision, n_features = _precision(task, trial, width), trial.model.map_.n_features
    D = n_features if has_trial or n_features < trial_width else width_of(method, width)
    error, kernel_error = expected_error(trial.path, m, task.n_rows), math.nan
    if not has_trial:
        limit = min(exact_error(task), error) ** 2
        error = float((limit + (error**2 - limit) * trial_width / width) ** 0.5)
    if n_features == D or isinstance(method, Fourier):  # the error falls as 1/√D
        of_trial = task.kernel_error(method, trial_width, trial.model.map_)
        kernel_error = of_trial * (n_features / D) ** 0.5
    steps = _steps(task, trial, D, precision)
    # Memory of the eigendecomposition, or of the leave-one-out errors of a block
    bytes_ = 24.0 if precision == "float32" else 36.0  # per row and feature
    errors = 24 * D**2 + bytes_ * min(task.n_rows, block_rows(D)) * D
    size = OVERHEAD + max(40.0 * D**2, errors)
    takes = sum(steps.values()), size, steps, "sample" if has_trial else "widths"
    return FitForecast(method, D, f"moments {precision}", error, kernel_error, *takes)


def _steps(task: Task, trial: FitTrial, D: int, precision: Precision) -> dict[str, float]:
    """Return the seconds of each step with D features, by numbers of timed operations."""
    method: Any = trial.model.method
    n, m, phi, unit = task.n_rows, trial.n_rows, trial.model.map_, task.multiplication_seconds
    width, half, landmarks = phi.n_features, task.max_width // 2, isinstance(method, Nystrom)
    features = PrecisionMap(phi.kernel, phi, trial.model.feature_dtype_).features
    act = lambda: task.seconds(lambda: to_numpy(features(task.rows(m)[0])))
    seconds = task.cache(("features", id(phi)), act) / m
    whiten = landmarks * unit("float64")  # D² multiplications of a row
    seconds = max(seconds - whiten * width**2, MIN_PART * seconds) * D / width + whiten * D**2
    # Multiplications of a row; 250 D are for penalties and elementwise operations
    gram, errors = 0.5 * unit("float64") * D**2, unit("float64") * (D**2 + 250 * D)
    ratio = unit(precision) / unit("float64")
    n_rows = min(n, cached_rows(task.sample.X.shape[1]))
    by_rows = n_rows == n and prefers_rows(n, D)  # without sums
    draw = task.draw_map(method, half)[1]
    slope = max(task.draw_map(method, 2 * half)[1] - draw, 0.0) if landmarks else draw
    draw += slope * ((n_rows / m if landmarks else 1) * D / half - 1)
    return {
        "read": (1 + (not isinstance(method, Fourier))) * task.read_seconds,
        "other": task.trial(32, method, 16).seconds,
        "map": draw,
        "sums": 0.0 if by_rows else ratio * n * (seconds + gram),
        "eigenvalues": task.decomposition_seconds(D, n if by_rows else None),
        "errors": ratio * n_rows * (seconds + errors),
    }


def exact_trials(task: Task) -> list[FitTrial]:
    """Return exact fits to m/4 and to m rows of the sample; m is at most SETTLED_ROWS."""
    m = min(len(task.sample), SETTLED_ROWS)
    return [task.trial(size, ExactKernel(), size) for size in (m // 4, m)]


def exact_error(task: Task) -> float:
    """Return the error of the exact kernel, extrapolated to all rows."""
    quarter, full = exact_trials(task)
    # With four times the rows the error falls at most by the measured ratio: the path of penalties
    # is unreliable for rough kernels, whose degrees of freedom are almost as many as the rows.
    ratio = min(full.path.loo.min() / quarter.path.loo.min(), 1.0) ** 0.5
    floor = full.path.loo.min() ** 0.5 * ratio ** math.log(task.n_rows / full.n_rows, 4)
    return max(expected_error(full.path, full.n_rows, task.n_rows), float(floor))


def direct_fit(task: Task) -> FitForecast:
    """Return the planned fit by a Cholesky factor of all rows; penalties are chosen on a sample."""
    n, trials = task.n_rows, exact_trials(task)
    tiny, path = task.trial(32, ExactKernel(), 8).seconds, trials[1].path
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
    loo, path = large.model.fit_.left_out(), large.path
    error = float(np.average((loo.errors**2).mean(axis=1), weights=loo.w)) ** 0.5
    rows = path.loo_rows
    error *= expected_error(path, rows, rows * n / (2 * m)) / expected_error(path, rows, rows)
    return FitForecast(method, n, "local", error, 0.0, sum(steps.values()), size, steps)


def mode_fit(task: Task, method: Method) -> FitForecast:
    """Return the planned fit by Fourier modes; its error is by generalised cross-validation."""
    n, m = task.n_rows, len(task.sample)
    trial = task.trial(m, method)
    sums = trial.model.fit_.representation
    steps = {"read": 2 * task.read_seconds, "tried rows": trial.seconds}
    if n > m:
        summand = summand_of(sums.chosen, sums.sums.origin)
        steps["further rows"] = (n - m) * task.row_seconds(summand, BLOCK_ROWS)
    error, D = expected_error(replace(trial.path, loo=trial.path.gcv), m, n), sums.map.n_features
    # For each penalty a preconditioner and 17 vectors; for each row angles, weights and values
    values = len(trial.path.alphas) * ((D if D < 2048 else 2 * MAX_LOW) ** 2 + 17 * D)
    size = OVERHEAD + 8.0 * values + 100.0 * min(n, BLOCK_ROWS)
    return FitForecast(method, D, "modes", error, sums.map.error, sum(steps.values()), size, steps)
