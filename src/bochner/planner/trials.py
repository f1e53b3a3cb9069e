"""Trials: fits to sampled rows, whose time, memory and error are extrapolated to all rows.

A trial is a fit of :class:`bochner.KernelRidge` to a fifth of the rows, in the precision of the fit
to all. Its seconds are those of a fit to next to nothing, of the eigendecomposition, and of its
rows; further rows take their part of the sweep, which is timed at two sizes. To D features the
eigendecomposition grows as aD² + bD³, from two timed sizes, and the rest as a + bD² with b from the
measured speed of products. Memory is measured in a fit of its own, and grows by matrices of known
size.

The error is the leave-one-out error of a fit to the sample, extrapolated to all rows along the path
of penalties (:mod:`bochner.solvers.ridge.leave_one_out`). Beyond the widths that are tried it falls
towards that of the kernel itself as 1/D, where this is fitted too (:mod:`.direct`), or else the
gain of each doubling is continued, see :func:`wider`.
"""

import math
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bochner._core.arrays import moved
from bochner._core.blas import eigh, product
from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner._core.sizes import FEW, block_rows, kept_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerWarning, InvalidInput, UnsupportedKernel
from bochner.features.auto import predicted_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.features.nystrom.landmarks import Given
from bochner.features.nystrom.nystrom import Nystrom, NystromMap, Rounded
from bochner.features.rules import contenders, draw_map
from bochner.models.ridge.estimators import KernelRidge
from bochner.models.ridge.methods import ExactKernel
from bochner.models.ridge.wide import needs_passes
from bochner.planner.choice import PlannedFit
from bochner.planner.wide import counted
from bochner.selection.chosen import feature_precision
from bochner.solvers.ridge.krylov import KEPT, MOST_BYTES
from bochner.solvers.ridge.leave_one_out import of_more_rows
from bochner.solvers.ridge.solution import Outcome, Path, best_of
from bochner.sums.executor import LOCAL
from bochner.sums.moments import MomentsOf, Precision

WIDTHS = (256, 512, 1024, 2048, 4096)  # Widths that are looked at
WIDEST = 1024  # Wider features are not tried, but extrapolated
#: Width that methods are compared at; those with more than so many times the least error of the
#: kernel are left out.
COMPARED, PROMISING = 512, 2.0
NARROWEST = 16  # Features that errors are extrapolated from, at least
#: Methods that are planned where none are named, and how many of the nearest beside them, where
#: there is no fit with the kernel itself that is as near as can be.
USUAL = Nystrom(), Fourier(Orthogonal())
MOST_METHODS = 2
ALL_ROWS = 4096  # Up to so many rows all of them may be landmarks
#: Of so many rows one is tried, but no fewer than the next of all; and rows for each feature.
ONE_IN, FEWEST_TRIED, ROWS_A_FEATURE = 5, 256, 2
#: Rows and features of a fit that does next to nothing, and size of a timed eigendecomposition.
NEXT_TO_NOTHING, EIGEN_SIZE = (32, 8), 512
#: Products of a row that take D² multiplications, as fits take them: in the Gram matrix and the
#: leave-one-out errors; of Nyström features also whitening, and landmarks. All else, a path of
#: penalties most of all, hardly depends on D.
SQUARED = {False: 1.0, True: 3.0}
LEAST_PART = 0.1  # Part of a trial that its rows take at least, whatever the clock says
#: Width of the preconditioner of the exact kernel.
EXACT_WIDTH = 1024
#: Iterations that a product with the kernel is timed by, and features that take no time beside it.
ITERATIONS, NO_FEATURES = 8, 8
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
    """A fitted learner, its number of rows, and the seconds of the fit."""

    model: KernelRidge
    n_rows: int
    seconds: float

    @property
    def limited(self) -> bool:
        """Whether float32 limited the answer."""
        return self.model.solution_.outcome is Outcome.FLOAT32_LIMITED


class Expected(NamedTuple):
    """What a fit to all rows is predicted to find."""

    error: float  # root mean squared leave-one-out error; several targets: of the pooled
    alpha: float  # its penalty
    limited: bool  # whether float32 would limit the answer


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be fitted, the rows it is tried on, and the trials that were made."""

    kernel: Any  # a kernel, or a name that a trial chooses it by
    sample: RowSample
    like: Array  # rows of the data: trials are in their library and precision, on their device
    n_rows: int
    read_seconds: float  # of one pass over all rows that makes no features
    seed: int
    timer: Timer
    effort: str = "medium"  # of the choice of the kernel
    known: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, act: Callable[[], Any]) -> Any:
        """Return the value of ``act()``, which is called only once for the same key."""
        if key not in self.known:
            self.known[key] = act()
        return self.known[key]

    @property
    def widest(self) -> int:
        """Features of a trial, at most: a power of two near half of its rows."""
        half = len(self.sample) / ROWS_A_FEATURE
        return int(min(WIDEST, max(NARROWEST, 2 ** round(math.log2(half)))))

    def map(self, method: Method, width: int) -> FeatureMap:
        """Return the map that a fit draws."""
        X = self.sample.X
        ask = Request(X.shape[1], width_of(method, width), self.seed, X=X)
        return self.once((method, width), lambda: draw_map(method, self.kernel, ask))

    def rows(self, n: int) -> tuple[Any, ...]:
        """Return X, y and weights of n rows of the sample, or all."""
        sample = self.sample.lowest(n)
        X, y, w = moved(sample.X, like=self.like), sample.y, sample.w
        y = y[:, 0] if y.shape[1] == 1 else y
        return X, moved(y, like=self.like), None if np.all(w == 1) else moved(w, like=self.like)

    def trial(self, n: int, method: Method, width: int, **parameters: Any) -> FitTrial:
        """Fit a learner to n rows, once."""
        key = n, method, width, *parameters.items()
        return self.once(key, lambda: self._trial(n, method, width, parameters))

    def _trial(self, n: int, method: Method, width: int, parameters: dict[str, Any]) -> FitTrial:
        rows = self.rows(n)
        model = KernelRidge(self.kernel, method=method, n_features=width, random_state=self.seed)
        model.set_params(effort=self.effort, **parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BochnerWarning)
            seconds = self.seconds(lambda: model.fit(*rows), repeats=1)
        return FitTrial(model, n, seconds)

    def bytes(self, trial: FitTrial) -> float:
        """Return the most bytes that the fit of a trial holds at a time, from fitting it again."""
        return float(self.once(("bytes", id(trial.model)), lambda: self._bytes(trial)))

    def _bytes(self, trial: FitTrial) -> float:
        rows, model = self.rows(trial.n_rows), clone(trial.model)
        with warnings.catch_warnings(), traced() as peak:
            warnings.simplefilter("ignore", BochnerWarning)
            model.fit(*rows)
        return peak[0] + BESIDE

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

        many = min(SWEPT, len(self.sample))
        few = many // 4
        return max(swept(many) - swept(few), 0.0) / (many - few)

    def beside_seconds(self, method: Method) -> float:
        """Return the seconds of a fit that does next to nothing."""
        n, width = NEXT_TO_NOTHING
        return self.trial(n, method, width).seconds

    def eigen_seconds(self, D: int) -> float:
        """Return the seconds of the eigendecomposition of D features."""
        size = max(self.widest, min(2 * self.widest, EIGEN_SIZE))
        a, b = self.once("eigen", lambda: powers({n: self._eigen(n) for n in (size // 2, size)}))
        return float(a * D**2 + b * D**3)

    def multiplying(self, precision: Precision) -> float:
        """Return the seconds of a multiplication in products of matrices."""
        Z = np.ones((EIGEN_SIZE, EIGEN_SIZE), precision)
        act = lambda: self.seconds(lambda: product(Z, Z), repeats=2) / EIGEN_SIZE**3
        return float(self.once(("multiplying", precision), act))

    def _eigen(self, n: int) -> float:
        Z = stream(self.seed, "planned eigenvalues").standard_normal((n, n))
        gram = product(Z, Z.T)
        return self.seconds(lambda: eigh(gram), repeats=1)


@contextmanager
def traced() -> Iterator[list[float]]:
    """Give a list that gets the most bytes that the block holds at a time."""
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
    one = len(path.alphas) == 1
    squares = dimension + (0.0 if one else np.gradient(dimension, np.log(path.alphas)))
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


def tried_rows(n_rows: int) -> int:
    """Return the number of rows of a trial."""
    return max(FEWEST_TRIED, math.ceil(n_rows / ONE_IN))


def usual_widths(n_rows: int) -> tuple[int, ...]:
    """Return the default widths: none larger than the number of rows."""
    if n_rows > ALL_ROWS:
        return WIDTHS
    return (*(width for width in WIDTHS if width < n_rows), n_rows)


def planned_fits(
    task: Task,
    methods: Sequence[Method] | None,
    widths: Sequence[int],
    exact: PlannedFit | None = None,
) -> tuple[PlannedFit, ...]:
    """Return all fits, method by method, by rising width; the exact kernel at the end.

    ``exact`` is the fit with the kernel itself, where that is solved directly.
    """
    wanted = tuple(sorted(set(widths)))
    named = USUAL if methods is None and exact is not None else methods
    lanes = [_Lane(task, method, wanted, exact) for method in _methods(task, named)]
    fits = [fit for lane in lanes for fit in lane.fits()]
    if methods is not None:
        return tuple(fits)
    nystrom = next((lane for lane in lanes if isinstance(lane.method, Nystrom)), None)
    if exact is None and nystrom is not None:
        exact = _exact(task, nystrom)
    return tuple(fits) if exact is None else (*fits, exact)


def _methods(task: Task, methods: Sequence[Method] | None) -> list[Method]:
    """Return the methods named, or the most promising of all that serve the kernel."""
    d, width = task.sample.X.shape[1], min(COMPARED, task.widest)
    errors: dict[Method, float] = {}
    refused = None
    for method in contenders(d) if methods is None else methods:
        try:
            phi = task.map(method, width)
            tell = partial(predicted_error, method, phi, task.sample.X)
            errors[method] = task.once(("kernel", method, width), tell)
        except UnsupportedKernel as error:
            refused = error
    if not errors:
        raise refused or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return list(errors)
    order = sorted(errors, key=errors.__getitem__)
    near = [m for m in order if errors[m] <= PROMISING * errors[order[0]]][:MOST_METHODS]
    # With few columns float64 features of the kernel are exact, Fourier ones cheap: both are shown.
    usual = [m for m in USUAL if m in errors and m not in near]
    return [*near, *usual]


@dataclass(frozen=True, eq=False)
class _Lane:
    """One method at all widths."""

    task: Task
    method: Method
    widths: tuple[int, ...]
    exact: PlannedFit | None  # the fit with the kernel itself, where that is solved directly

    def fits(self) -> Iterator[PlannedFit]:
        """Give the fits of each width; maps that have no more features than another, once."""
        seen: set[int] = set()
        for width in self.widths:
            fits = self._at(width)
            if fits[0].n_features not in seen:
                seen.add(fits[0].n_features)
                yield from fits

    def _at(self, width: int) -> list[PlannedFit]:
        return [self._by_passes(width)] if self._in_passes(width) else self.planned(width)

    @cached_property
    def widest(self) -> int:
        """The widest that is tried."""
        return min(self.task.widest, max(self.widths))

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
        error = self.error(width)
        kernel = predicted_error(self.method, phi, task.sample.X)
        takes = sum(steps.values()), found.bytes + BESIDE, steps, "widths"
        D, solver = phi.n_features, "products"
        return PlannedFit(self.method, D, solver, error, kernel, *takes, passes=found.count)

    def trial(self, width: int, precision: Precision | None = None) -> FitTrial:
        """Fit the sample, in the precision of the fit to all rows."""
        precision = precision or self._precision(width)
        return self.task.trial(len(self.task.sample), self.method, width, precision=precision)

    def _precision(self, width: int) -> Precision:
        """Return the precision in which a fit to all rows begins."""
        tried = self.task.map(self.method, min(width, self.widest))
        n = math.ceil(self.task.n_rows * (width / tried.n_features) ** 2)
        return feature_precision("auto", n, tried)

    def expected(self, width: int, precision: Precision | None = None) -> Expected:
        """Return what is extrapolated from the sample to all rows."""
        path = self.trial(width, precision).model.solution_.path
        return expected(path, len(self.task.sample), self.task.n_rows)

    def error(self, width: float) -> float:
        """Return the error of a width; wider than is tried, as the law of random features says."""
        known = min(width, self.widest)
        error = self.expected(int(known)).error
        if known == width:
            return error
        if self.exact is not None:
            least = min(self.exact.error, error) ** 2
            return float((least + (error**2 - least) * known / width) ** 0.5)
        narrower = [self.widest >> k for k in range(3) if self.widest >> k >= NARROWEST]
        errors = [self.expected(D).error for D in narrower]
        return wider(errors, math.log2(width / known)) if len(errors) > 1 else error

    def planned(self, width: int) -> list[PlannedFit]:
        """Return the fit as it goes by itself; where float32 limits it, also that in float64."""
        tried = min(width, self.widest)
        precision = self._precision(width)
        limits = precision == "float32" and (
            self.trial(tried, precision).limited or self.expected(tried, precision).limited
        )
        if not limits:
            return [self._planned(width, precision)]
        limited = self._planned(width, precision, against=LIMITED)
        return [limited, self._planned(width, "float64")]

    def _planned(self, width: int, precision: Precision, against: str = "") -> PlannedFit:
        task, tried = self.task, min(width, self.widest)
        trial, within = self.trial(tried, precision), width <= self.widest
        drawn = within or not isinstance(self.method, Nystrom)
        phi = task.map(self.method, width) if drawn else None
        known = trial.model.map_.n_features
        D = (width if known == tried else known) if phi is None else phi.n_features
        steps = self._steps(D, precision)
        size = task.bytes(trial) + self._held(D, task.n_rows) - self._held(known, trial.n_rows)
        return PlannedFit(
            self.method,
            D,
            f"moments {precision}",
            self.expected(tried, precision).error if within else self.error(width),
            self._kernel_error(tried, D),
            sum(steps.values()),
            size,
            steps,
            error_from="sample" if within else "widths",
            against=against,
        )

    def _kernel_error(self, tried: int, D: int) -> float:
        """Return the relative error of the kernel; of more random features it falls as 1/√D."""
        task, phi = self.task, self.task.map(self.method, tried)
        X, key = task.sample.X, ("kernel", self.method, tried)
        if phi.n_features != D and not isinstance(self.method, Fourier):
            return math.nan
        error = task.once(key, lambda: predicted_error(self.method, phi, X))
        return float(error * (phi.n_features / D) ** 0.5)

    def _steps(self, D: int, precision: Precision) -> dict[str, float]:
        """Return the seconds of all rows with D features, by step, from two sizes of the widest."""
        task, nystrom = self.task, isinstance(self.method, Nystrom)
        begun = self._precision(self.widest)
        trial = self.trial(self.widest, begun)
        rows = fewer_rows(trial.n_rows, self.widest)
        half = task.trial(rows, self.method, self.widest, precision=begun)
        each = (trial.seconds - half.seconds) / (trial.n_rows - half.n_rows)
        each = max(each, LEAST_PART * trial.seconds / trial.n_rows)
        known, unit = trial.model.map_.n_features, task.multiplying(begun)
        a, b = of_width(each, known, SQUARED[nystrom] * unit)
        row = a + b * D**2 * task.multiplying(precision) / unit
        beside = trial.seconds - trial.n_rows * each - task.eigen_seconds(known)
        kept = min(task.n_rows, kept_rows(task.sample.X.shape[1]))
        steps = {
            "read": (1 + (not isinstance(self.method, Fourier))) * task.read_seconds,
            "beside": max(beside, 0.0),
            "eigenvalues": task.eigen_seconds(D),
            "kept rows": kept * row,
        }
        if task.n_rows > kept:
            further = task.once(id(trial.model), lambda: task.row_seconds(trial))
            steps["further rows"] = (task.n_rows - kept) * further * row / each
        return steps

    def _held(self, D: int, n: int) -> float:
        """Return the bytes of the matrices of a fit to n rows at its worst moment.

        That is the eigendecomposition with its work space, or the leave-one-out errors of a block.
        """
        rows = min(n, block_rows(D))
        return 8.0 * max(5 * D**2, 3 * D**2 + 4 * rows * D)


def fewer_rows(m: int, width: int) -> int:
    """Return the rows of the smaller of two trials: half, or so many that they take one course.

    Few rows are decomposed themselves, which takes longer than their moments.
    """
    few = int(FEW / width**2) + 1
    return max(few, m // 2) if m >= 1.25 * few else m // 2


def of_width(seconds: float, D: int, squared: float) -> tuple[float, float]:
    """Return a and b, not negative, of what takes a + bD², with this b if it is no more."""
    b = min(squared, seconds / D**2)
    return max(seconds - b * D**2, 0.0), b


def powers(seconds: dict[int, float]) -> tuple[float, float]:
    """Return a and b, not negative, of what takes an² + bn³ at two sizes."""
    (few, short), (many, long) = sorted(seconds.items())
    slope = (long / many**2 - short / few**2) / (many - few)
    b = min(max(slope, 0.0), long / many**3)
    return long / many**2 - b * many, b


def _exact(task: Task, lane: _Lane) -> PlannedFit:
    """Return the exact kernel by conjugate gradients; a product takes n² values of the kernel."""
    n, width = task.n_rows, min(EXACT_WIDTH, lane.widest)
    trial = _counted(task, lane, width)
    solution = trial.model.solution_
    iterations = max(solution.iterations, 1)
    # Every second line of the history is of a product in float64, which takes twice as long.
    products = iterations + len(solution.history) // 2
    features, (d, t) = lane.planned(width)[-1], (task.sample.X.shape[1], task.sample.y.shape[1])
    each = _product_seconds(task, lane) * (n / len(task.sample)) ** 2
    steps = {"features": features.seconds, "iterations": products * each}
    converged = solution.outcome is not Outcome.NOT_CONVERGED
    directions = min(max(KEPT, MOST_BYTES // (16 * n)), iterations * t)
    row = 8.0 * (width + 2 * d + 8 * t + 3 * directions)
    error, against = lane.error(math.inf), "" if converged else UNSOLVED
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
