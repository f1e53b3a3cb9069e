"""Trials: learners are fitted to sampled rows; what they take and find is extrapolated to all rows.

A trial is a fit of :class:`bochner.KernelRidge`, by the clock. It has all rows, or so many that it
takes the same course as the fit to all: those of the sample, repeated where features are few. From
there to n rows its seconds grow by those of the sweep over each further row, which is timed at two
sizes. Wider features than are tried: the eigendecomposition grows as D³, all else as aD + bD².
Memory is measured, and grows by matrices of known size.

The error is the leave-one-out error of a fit to the sample, extrapolated to all rows along the path
of penalties (:mod:`bochner.solvers.ridge.leave_one_out`). Beyond the widths that are tried the gain
of each doubling is continued, see :func:`wider`.
"""

import math
import re
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bochner._core.arrays import moved, taken, to_numpy
from bochner._core.shapes import Array
from bochner._core.sizes import SMALL, block_rows
from bochner.certificates.bounds.leverage import LeverageSpectral
from bochner.certificates.bounds.zonal import BallSpectral
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerWarning, InvalidInput, UnsupportedKernel
from bochner.features.auto import predicted_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.leverage import LeverageFourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import SMALL_BIAS, FeatureMap, cut_trace
from bochner.features.method import Method, Request
from bochner.features.nystrom.landmarks import Given
from bochner.features.nystrom.nystrom import Nystrom, NystromMap, Rounded
from bochner.features.random.gegenbauer import Gegenbauer
from bochner.features.rules import contenders, draw_map
from bochner.kernels.kernel import Kernel
from bochner.models.ridge.estimators import KernelRidge
from bochner.models.ridge.methods import ExactKernel
from bochner.models.ridge.wide import needs_passes
from bochner.planner.choice import PlannedFit
from bochner.planner.wide import counted
from bochner.selection.chosen import feature_precision
from bochner.solvers.cg import KEPT
from bochner.solvers.factorisations import TOLERANCE
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.leave_one_out import of_more_rows
from bochner.solvers.ridge.solution import Outcome, Path, best_of
from bochner.sums.executor import LOCAL
from bochner.sums.moments import MomentsOf

WIDTHS = (256, 512, 1024, 2048, 4096)  # Widths that are looked at
WIDEST = 1024  # Wider features are not tried, but extrapolated
#: Width that methods are compared at; those with more than so many times the least error of the
#: kernel are left out.
COMPARED, PROMISING = 512, 2.0
NARROWEST = 16  # Features that errors are extrapolated from, at least
#: Methods that are planned where none are named, beside Nyström and Fourier features.
MOST_METHODS = 2
ALL_ROWS = 4096  # Up to so many rows all of them may be landmarks
#: Width of the preconditioner of the exact kernel, and rows that its iterations are counted on.
EXACT_WIDTH, COUNTED_ROWS = 1024, 4096
#: Iterations that a product with the kernel is timed by, and features that take no time beside it.
ITERATIONS, NO_FEATURES = 8, 8
#: Rows of a trial at most, and bytes that they take where they are more than the sample.
MOST_ROWS, MOST_BYTES = 1 << 16, 256 << 20
SWEPT = 8192  # Rows of the larger of two sweeps, whose difference tells what a row takes
#: Short measurements are repeated so often and so long; what else the machine does only adds.
REPEATS, MOMENT = 3, 0.05
BESIDE = 4 << 20  # Bytes that a fit takes beside its arrays: code that is loaded, small objects
LEAST = 0.25  # Part of a squared error that an extrapolation to wider features leaves at least
SLOWEST = 0.5  # Largest part of the gain of one doubling of the width that the next one has
LIMITED = "float32 would limit the answer"  # Why a fit in float32 is not chosen
UNSOLVED = "would not converge"  # Why the exact kernel is not chosen

Timer = Callable[[], float]


class FitTrial(NamedTuple):
    """A fitted learner, and the seconds and bytes that fitting it to so many rows took."""

    model: KernelRidge
    n_rows: int
    seconds: float
    bytes: float

    @property
    def single(self) -> bool:
        """Whether its features are of float32."""
        return bool(self.model.feature_dtype_ == "float32")

    @property
    def again(self) -> bool:
        """Whether float32 limited the answer, so that products were made in float64."""
        return self.single and self.model.moments_.precision == "float64"


class Expected(NamedTuple):
    """What a fit to all rows is predicted to find."""

    error: float  # root mean squared leave-one-out error; several targets: of the pooled
    alpha: float  # its penalty
    limited: bool  # whether float32 would limit the answer


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be fitted, the rows it is tried on, and the trials that were made."""

    kernel: Kernel
    sample: RowSample
    like: Array  # rows of the data: trials are in their library and precision, on their device
    n_rows: int
    read_seconds: float  # of one pass over all rows that makes no features
    seed: int
    timer: Timer
    known: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, act: Callable[[], Any]) -> Any:
        """Return the value of ``act()``, which is called only once for the same key."""
        if key not in self.known:
            self.known[key] = act()
        return self.known[key]

    @property
    def most_rows(self) -> int:
        """Rows that a trial may have."""
        m, d = self.sample.X.shape
        return max(m, min(MOST_ROWS, MOST_BYTES // (8 * d)))

    def map(self, method: Method, width: int) -> FeatureMap:
        """Return the map that a fit draws."""
        X = self.sample.X
        ask = Request(X.shape[1], width_of(method, width), self.seed, X=X)
        return self.once((method, width), lambda: draw_map(method, self.kernel, ask))

    def rows(self, n: int) -> tuple[Any, ...]:
        """Return X, y and weights of n rows: the sample, some of it, or the sample repeated."""
        sample = self.sample.lowest(n)
        places = np.resize(np.arange(len(sample)), n)
        y, w = sample.y[places], sample.w[places]
        X = taken(moved(sample.X, like=self.like), places, axis=0)
        y = y[:, 0] if y.shape[1] == 1 else y
        return X, moved(y, like=self.like), None if np.all(w == 1) else moved(w, like=self.like)

    def trial(self, n: int, method: Method, width: int, **parameters: Any) -> FitTrial:
        """Fit a learner to n rows, once."""
        key = n, method, width, *parameters.items()
        return self.once(key, lambda: self._trial(n, method, width, parameters))

    def _trial(self, n: int, method: Method, width: int, parameters: dict[str, Any]) -> FitTrial:
        rows = self.rows(n)
        model = KernelRidge(self.kernel, method=method, n_features=width, random_state=self.seed)
        model.set_params(**parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BochnerWarning)
            with traced() as peak:
                seconds = self.seconds(lambda: model.fit(*rows), repeats=1)
            if seconds < MOMENT:
                seconds = min(seconds, self.seconds(lambda: clone(model).fit(*rows)))
        return FitTrial(model, n, seconds, peak[0] + BESIDE)

    def seconds(self, act: Callable[[], Any], repeats: int = REPEATS) -> float:
        """Return the least seconds of a few repeats."""
        taken_: list[float] = []
        while not taken_ or (len(taken_) < repeats and sum(taken_) < MOMENT):
            began = self.timer()
            act()
            taken_.append(self.timer() - began)
        return max(min(taken_), 1e-9)

    def row_seconds(self, trial: FitTrial) -> float:
        """Return the seconds that one more row takes in the sweep of a trial."""
        phi, dtype = trial.model.map_, trial.model.feature_dtype_
        rounded = Rounded(phi.kernel, phi, dtype)
        summand = MomentsOf(rounded.features, trial.model.moments_.precision)

        def swept(n: int) -> float:
            blocks = Blocks.from_arrays(*self.rows(n)).with_rows(block_rows(phi.n_features))
            return self.seconds(lambda: summand.moments(LOCAL.sum(summand, blocks)))

        many = min(SWEPT, self.most_rows)
        few = many // 4
        return max(swept(many) - swept(few), 0.0) / (many - few)


@contextmanager
def traced() -> Iterator[list[float]]:
    """Put the most bytes that are held at a time within, beside those held before, in a list."""
    own, peak = not tracemalloc.is_tracing(), list[float]()
    if own:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield peak
    finally:
        peak.append(float(tracemalloc.get_traced_memory()[1] - before))
        if own:
            tracemalloc.stop()


# --- what a fit finds ----------------------------------------------------------------------------


def expected(path: Path, m: int, n: int) -> Expected:
    """Extrapolate the errors of a fit to m rows to one to n rows; the path tells the traces."""
    dimension = path.effective_dimension
    # Σ w²/(w + λ)² = d_λ + ∂d_λ/∂ log λ, d_λ = Σ w/(w + λ)
    squares = dimension + np.gradient(dimension, np.log(path.alphas))
    left = np.maximum(m - 1 - dimension, 1e-9 * m)
    squared = np.maximum(m - 1 - 2 * dimension + np.clip(squares, 0, dimension), 1e-9 * m)
    errors = of_more_rows(path.loo, left, squared, m - 1, n / m)
    best = best_of(errors, "loo")
    of_all = replace(path, loo=errors)
    limited = best == of_all.lowest("loo") and not of_all.level("loo")
    alpha = float(path.alphas[best_of(path.loo, "loo")])
    return Expected(float(errors[best]) ** 0.5, alpha, limited)


def wider(errors: Sequence[float], doublings: float) -> float:
    """Return the error at so many doublings of the widest features that were fitted.

    ``errors`` are at the widest, at half of it and, if known, at a quarter. Each doubling takes
    from e² the part ρ of what the one before took: ρ as the three errors show it, at most ½, which
    is the law 1/D of random features.
    """
    squares = [error**2 for error in errors]
    steps = [narrow - wide for wide, narrow in pairwise(squares)]
    last = max(steps[0], 0.0)
    known = len(steps) > 1 and steps[1] > 0
    ratio = min(SLOWEST, last / steps[1]) if known else SLOWEST
    gain = last * ratio * (1 - ratio**doublings) / (1 - ratio)
    return float(max(squares[0] - gain, LEAST * squares[0]) ** 0.5)


# --- all fits of a plan --------------------------------------------------------------------------


def usual_widths(n_rows: int) -> tuple[int, ...]:
    """Return the widths to look at: none wider than the rows are many."""
    if n_rows > ALL_ROWS:
        return WIDTHS
    return (*(width for width in WIDTHS if width < n_rows), n_rows)


def planned_fits(
    task: Task, methods: Sequence[Method] | None, widths: Sequence[int]
) -> tuple[PlannedFit, ...]:
    """Return all fits, method by method, by rising width; the exact kernel at the end."""
    lanes = [_Lane(task, method, tuple(sorted(set(widths)))) for method in _methods(task, methods)]
    fits = [fit for lane in lanes for fit in lane.fits()]
    nystrom = next((lane for lane in lanes if isinstance(lane.method, Nystrom)), None)
    if methods is None and nystrom is not None and task.n_rows > ALL_ROWS:
        fits.append(_exact(task, nystrom))
    return tuple(fits)


def _methods(task: Task, methods: Sequence[Method] | None) -> list[Method]:
    """Return the methods named, or the most promising of all that serve the kernel."""
    d, width = task.sample.X.shape[1], min(COMPARED, task.n_rows)
    errors: dict[Method, float] = {}
    refused = None
    for method in contenders(d) if methods is None else methods:
        try:
            errors[method] = predicted_error(method, task.map(method, width), task.sample.X)
        except UnsupportedKernel as error:
            refused = error
    if not errors:
        raise refused or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return list(errors)
    order = sorted(errors, key=errors.__getitem__)
    near = [m for m in order if errors[m] <= PROMISING * errors[order[0]]][:MOST_METHODS]
    # With few columns float64 features of the kernel are exact, Fourier ones cheap: both are shown.
    usual = [m for m in (Nystrom(), Fourier(Orthogonal())) if m in errors and m not in near]
    return [*near, *usual]


@dataclass(frozen=True, eq=False)
class _Lane:
    """One method at all widths."""

    task: Task
    method: Method
    widths: tuple[int, ...]

    def fits(self) -> Iterator[PlannedFit]:
        """Give the fits of each width; maps that have no more features than another, once."""
        seen: set[int] = set()
        for width in self.widths:
            fits = self._at(width)
            if fits[0].n_features not in seen:
                seen.add(fits[0].n_features)
                yield from fits

    def _at(self, width: int) -> list[PlannedFit]:
        if self._in_passes(width):
            return [self._by_passes(width)]
        return self.tried(width) if width <= self.widest else self._wider(width)

    @cached_property
    def widest(self) -> int:
        """The widest that is tried."""
        most = max(WIDEST, self.widths[0])
        known = [D for D in self.widths if most >= D and not self._in_passes(D)]
        return max(known, default=WIDEST)

    def _in_passes(self, width: int) -> bool:
        """Whether the fit of this width forms no Gram matrix."""
        n, d = self.task.n_rows, self.task.sample.X.shape[1]
        return needs_passes(self.method, width, n, d)

    def _by_passes(self, width: int) -> PlannedFit:
        """Return a fit whose passes are counted on the sample."""
        task, phi = self.task, self.task.map(self.method, width)
        found = counted(phi, task.sample, task.n_rows, task.seed, task.timer)
        steps = {
            "read": (1 + found.count) * task.read_seconds,
            "preconditioner and steps": found.beside_seconds,
            "passes": found.count * task.n_rows * found.row_seconds,
        }
        error = self.continued(self.widest, math.log2(width / self.widest))
        kernel = predicted_error(self.method, phi, task.sample.X)
        takes = sum(steps.values()), found.bytes + BESIDE, steps, "widths"
        D, solver = phi.n_features, "products"
        return PlannedFit(self.method, D, solver, error, kernel, *takes, passes=found.count)

    def trial(self, width: int) -> FitTrial:
        """Fit to as many rows as show the course of the fit to all of them.

        Where these are too many, in the precision of that fit.
        """
        task = self.task
        course = max(len(task.sample), 8 * width, int(SMALL / width**2) + 1)
        wanted, most = min(task.n_rows, course), task.most_rows
        if wanted <= most:
            return task.trial(wanted, self.method, width)
        phi = task.map(self.method, width)
        dtype = feature_precision("auto", task.n_rows, phi)
        return task.trial(most, self.method, width, precision=dtype)

    def expected(self, width: int) -> Expected:
        """Fit the sample, and extrapolate to all rows."""
        task, m = self.task, len(self.task.sample)
        trial = task.trial(m, self.method, width)
        return expected(trial.model.solution_.path, m, task.n_rows)

    def continued(self, width: int, doublings: float) -> float:
        """Return the error so many doublings above a width that is tried."""
        narrower = [width >> k for k in range(3) if width >> k >= NARROWEST]
        errors = [self.expected(D).error for D in narrower]
        return wider(errors, doublings) if len(errors) > 1 else errors[0]

    def tried(self, width: int) -> list[PlannedFit]:
        """Return the fit as it goes by itself; where float32 limits it, also that in float64."""
        trial = self.trial(width)
        if not trial.single:
            return [self._planned(width, trial, "moments float64")]
        if not (trial.again or self.expected(width).limited):
            return [self._planned(width, trial, "moments float32")]
        double = self.task.trial(trial.n_rows, self.method, width, precision="float64")
        return [
            self._planned(width, trial, "moments float32", against=LIMITED),
            self._planned(width, double, "moments float64"),
        ]

    def _planned(self, width: int, trial: FitTrial, solver: str, against: str = "") -> PlannedFit:
        task, phi = self.task, trial.model.map_
        passes = 1 + (isinstance(task.kernel, str) or not isinstance(self.method, Fourier))
        steps = {"read": passes * task.read_seconds, "tried rows": trial.seconds}
        if task.n_rows > trial.n_rows:
            row = task.once(id(trial.model), lambda: task.row_seconds(trial))
            steps["further rows"] = (task.n_rows - trial.n_rows) * row
        return PlannedFit(
            self.method,
            phi.n_features,
            solver,
            self.expected(width).error,
            predicted_error(self.method, phi, task.sample.X),
            sum(steps.values()),
            trial.bytes,
            steps,
            against=against,
            left_out=self._left_out(width, phi),
            bound=self._bound(width),
        )

    def _bound(self, width: int) -> BallSpectral | LeverageSpectral | None:
        """Return the bound of Gegenbauer's or of weighted features, at equal penalty a row."""
        task, X = self.task, self.task.sample.X
        if not isinstance(self.method, Gegenbauer | LeverageFourier):
            return None
        bound = (
            BallSpectral.of_trace if isinstance(self.method, Gegenbauer) else LeverageSpectral.of
        )
        alpha = self.expected(width).alpha * task.n_rows / len(X)
        with suppress(InvalidInput):  # of another kernel
            return bound(task.kernel, X, alpha=alpha, n_rows=task.n_rows)
        return None

    def _left_out(self, width: int, phi: FeatureMap) -> float:
        """Return the share of k(x, x) that a cut series leaves out, where the penalty shows it."""
        X = self.task.sample.X
        cut, alpha = cut_trace(phi, X), self.expected(width).alpha
        whole = float(to_numpy(phi.kernel.diag(X)).sum())
        return cut / whole if cut > SMALL_BIAS * alpha else 0.0

    def _wider(self, width: int) -> list[PlannedFit]:
        """Return the fits of the widest that was tried, with numbers of this width."""
        nystrom = isinstance(self.method, Nystrom)
        phi = None if nystrom else self.task.map(self.method, width)
        D = self._landmarks(width) if phi is None else phi.n_features
        error = self.continued(self.widest, math.log2(width / self.widest))
        kernel = math.nan if phi is None else predicted_error(self.method, phi, self.task.sample.X)
        found = {"error": error, "kernel_error": kernel, "error_from": "widths"}
        return [self._scaled(fit, D, **found) for fit in self.tried(self.widest)]

    def _scaled(self, fit: PlannedFit, D: int, **changes: Any) -> PlannedFit:
        """Return a fit with the seconds and bytes of D features."""
        eigen, known = self._eigen_seconds, fit.n_features
        rest = {known: fit.seconds - eigen}
        narrower = [width for width in self.widths if width < self.widest]
        # A row of Nyström features takes D² multiplications, as its part of the moments does.
        linear = narrower and not isinstance(self.method, Nystrom)
        for other in self.tried(narrower[-1]) if linear else ():
            if other.solver == fit.solver:
                rest[other.n_features] = other.seconds - eigen * (other.n_features / known) ** 3
        steps = {"eigenvalues": eigen * (D / known) ** 3, "rest": grown(rest, D)}
        size = fit.bytes + self._held(D) - self._held(known)
        seconds = sum(steps.values())
        return replace(fit, n_features=D, seconds=seconds, bytes=size, steps=steps, **changes)

    def _held(self, D: int) -> float:
        """Return the bytes of the matrices of a fit at its worst moment.

        That is the eigendecomposition with its work space, or the leave-one-out errors of a block.
        """
        rows = min(self.task.n_rows, block_rows(D))
        return 8.0 * max(5 * D**2, 3 * D**2 + 4 * rows * D)

    @cached_property
    def _eigen_seconds(self) -> float:
        """Seconds of the eigendecomposition of the widest features that are tried."""
        moments = self.trial(self.widest).model.moments_
        act = lambda: self.task.seconds(lambda: decompose(moments))
        return float(self.task.once(("eigen", moments.n_features), act))

    def _landmarks(self, width: int) -> int:
        """Return at how many landmarks a draw of this width stops: where nothing is left."""
        drawn = [self.task.map(self.method, max(2, self.widest >> k)) for k in (2, 1, 0)]
        if drawn[-1].n_features < self.widest:
            return drawn[-1].n_features
        left = [float(getattr(phi, "unexplained", None) or 0.0) for phi in drawn]
        return exhausted(left, self.widest, width)


def exhausted(left: Sequence[float], widest: int, width: int) -> int:
    """Return at how many landmarks, at most ``width``, float32 sees nothing left of the trace.

    ``left`` are the shares that are left by a quarter, half and all of the widest draw: a parabola,
    of their logarithms in that of the width, goes on, or a line where it would bend upwards.
    """
    if not left[0] > left[1] > left[2] > 0:
        return width
    before, last = np.diff(np.log(left))
    doublings = np.linspace(0, math.log2(width / widest), 1000)
    curve = min(last - before, 0.0) / 2
    logs = np.log(left[2]) + (last + curve) * doublings + curve * doublings**2
    stopped = doublings[logs <= np.log(TOLERANCE[np.dtype(np.float32)])]
    return int(widest * 2.0 ** stopped[0]) if len(stopped) else width


def grown(seconds: dict[int, float], D: int) -> float:
    """Return seconds at D of what takes aD + bD², a and b not negative, and these at some widths.

    Of one width it is bD².
    """
    wide = max(seconds)
    b = seconds[wide] / wide**2
    if len(seconds) > 1:
        narrow = min(seconds)
        slope = (seconds[wide] / wide - seconds[narrow] / narrow) / (wide - narrow)
        b = min(max(slope, 0.0), b)
    return (seconds[wide] / wide - b * wide) * D + b * D**2


def _exact(task: Task, lane: _Lane) -> PlannedFit:
    """Return the exact kernel by conjugate gradients; a product takes n² values of the kernel."""
    n, width = task.n_rows, min(EXACT_WIDTH, lane.widest)
    trial = _counted(task, lane, width)
    history = trial.model.solution_.history
    found = re.match(r"iteration (\d+)", history[-1]) if history else None
    iterations = max(int(found[1]), 1) if found else 1
    # Each line of the history is of a product in float64, which takes twice as long.
    products = iterations + 2 * len(history)
    features, (d, t) = lane.tried(width)[-1], (task.sample.X.shape[1], task.sample.y.shape[1])
    each = _product_seconds(task, lane) * (n / len(task.sample)) ** 2
    steps = {"features": features.seconds, "iterations": products * each}
    converged = trial.model.solution_.outcome is not Outcome.NOT_CONVERGED
    row = 8.0 * (width + 2 * d + 8 * t + 2 * min(KEPT, iterations * t))
    error, against = lane.continued(width, math.inf), "" if converged else UNSOLVED
    takes = sum(steps.values()), features.bytes + n * row, steps
    return PlannedFit(lane.method, width, "exact", error, 0.0, *takes, "widths", against)


def _counted(task: Task, lane: _Lane, width: int) -> FitTrial:
    """Fit the exact kernel to some rows, to count iterations.

    The penalty is in proportion to the rows: what features leave of the kernel then has the same
    size beside it. Landmarks leave little of the rows that they were chosen among, so these are as
    large a part of the rows as of all.
    """
    sample, m = task.sample, len(task.sample)
    share = lane.expected(width).alpha / task.n_rows
    if task.n_rows <= m:
        few = min(COUNTED_ROWS, m)
        return task.trial(few, ExactKernel(lane.method), width, alpha=few * share)
    order, half = np.argsort(sample.priority, kind="stable"), m // 2
    known = int(m / task.n_rows * half)
    chosen = replace(task, sample=sample.take(np.sort(order[half:])), known={})
    phi = chosen.map(lane.method, width)
    assert isinstance(phi, NystromMap)
    mixed = replace(task, sample=sample.take(np.sort(order[known : half + known])), known={})
    return mixed.trial(half, ExactKernel(Nystrom(Given(phi.landmarks))), width, alpha=half * share)


def _product_seconds(task: Task, lane: _Lane) -> float:
    """Return the seconds of a product with the kernel of the sample, by iterations without end."""
    rows, method = len(task.sample), ExactKernel(lane.method, tol=1e-300)
    alpha = lane.expected(NO_FEATURES).alpha
    one, more = (
        task.trial(rows, replace(method, max_iter=count), NO_FEATURES, alpha=alpha).seconds
        for count in (1, 1 + ITERATIONS)
    )
    return max(more - one, 0.0) / ITERATIONS
