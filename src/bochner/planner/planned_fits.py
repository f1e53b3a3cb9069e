"""Every method, width and solver that may serve, drawn on sampled rows and priced."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bochner._core.shapes import Array
from bochner._core.sizes import SMALL
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import FeatureMap, Fourier, Method, Nystrom, Orthogonal
from bochner.features.auto import contenders, predicted_error, width_of
from bochner.features.method import Request
from bochner.features.nystrom.landmarks import Given
from bochner.features.nystrom.nystrom import NystromMap
from bochner.features.rules import draw_map
from bochner.kernels import Kernel
from bochner.planner.feature_costs import (
    Probe,
    nystrom_draw,
    nystrom_row,
    row_seconds,
)
from bochner.planner.foretold import (
    Foretold,
    Rows,
    foretell,
    products_needed,
    wider,
)
from bochner.planner.machine import Machine
from bochner.planner.plan import PlannedFit
from bochner.planner.predicted import (
    Cost,
    Features,
    Task,
    exact_cost,
    moments_cost,
    resweeps,
    whitened_again_cost,
    whitened_sums_cost,
    whitens_sums,
)
from bochner.solvers.factorisations import TOLERANCE

#: Widths that are looked at.
WIDTHS = (256, 512, 1024, 2048, 4096)

#: Features of larger widths are not fitted to the sample, but extrapolated.
FITTED = 1024

#: Width that methods are compared at; those with more than so many times the least error of the
#: kernel are left out.
COMPARED, PROMISING = 512, 2.0

#: Features that errors are extrapolated from, at least.
NARROWEST = 16

#: Methods that are planned where none are named, beside Nyström and Fourier features.
MOST_METHODS = 2

#: Up to so many rows all of them may be landmarks.
ALL_ROWS = 4096

#: Width of the preconditioner of the exact kernel.
EXACT_WIDTH = 1024

#: What speaks against a precision.
LIMITED = "float32 would limit the answer"
SLOWER = "float32 is as good"


@dataclass(frozen=True, eq=False)
class Bench:
    """What maps are drawn from and tried on.

    Attributes
    ----------
    kernel : Kernel
    task : Task
    rows : Rows
        Sampled rows in random order.
    X : (m, d)
        The same in the order of the table, as a fit draws its map from.
    probe : Probe
    seed : int
    """

    kernel: Kernel
    task: Task
    rows: Rows
    X: Array
    probe: Probe
    seed: int

    @property
    def machine(self) -> Machine:
        """The rates."""
        return self.probe.machine


def usual_widths(n_rows: int) -> tuple[int, ...]:
    """Return the widths to look at: none wider than the rows are many."""
    if n_rows > ALL_ROWS:
        return WIDTHS
    return (*(width for width in WIDTHS if width < n_rows), n_rows)


def planned_fits(
    bench: Bench, methods: Sequence[Method] | None, widths: Sequence[int]
) -> tuple[PlannedFit, ...]:
    """Return all fits, method by method, by rising width; the exact kernel at the end."""
    lanes = [
        _Lane(bench, method, tuple(sorted(set(widths)))) for method in _methods(bench, methods)
    ]
    fits = [fit for lane in lanes for fit in lane.fits()]
    if methods is None and (exact := _exact(bench, lanes)) is not None:
        fits.append(exact)
    return tuple(fits)


def _methods(bench: Bench, methods: Sequence[Method] | None) -> list[Method]:
    """Return the methods named, or the most promising of all that serve the kernel."""
    d, width = bench.task.n_columns, min(COMPARED, bench.task.n_rows)
    options = contenders(d) if methods is None else methods
    errors: dict[Method, float] = {}
    refused = None
    for method in options:
        try:
            errors[method] = predicted_error(method, _drawn(bench, method, width), bench.rows.X)
        except UnsupportedKernel as error:
            refused = error
    if not errors:
        raise refused or InvalidInput("plan: methods must name at least one; got none.")
    if methods is not None:
        return list(errors)
    order = sorted(errors, key=errors.__getitem__)
    near = [m for m in order if errors[m] <= PROMISING * errors[order[0]]][:MOST_METHODS]
    # Few columns make float64 features of the kernel exact, and Fourier ones cheap: both are shown.
    usual = [m for m in (Nystrom(), Fourier(Orthogonal())) if m in errors and m not in near]
    return [*near, *usual]


def _drawn(bench: Bench, method: Method, width: int) -> FeatureMap:
    ask = Request(bench.task.n_columns, width_of(method, width), bench.seed, X=bench.X)
    return draw_map(method, bench.kernel, ask)


@dataclass(frozen=True, eq=False)
class _Lane:
    """One method at all widths."""

    bench: Bench
    method: Method
    widths: tuple[int, ...]

    def fits(self) -> Iterator[PlannedFit]:
        """Give the fits of each width."""
        seen: set[int] = set()
        for width in self.widths:
            cost = self._features(width, "float64")
            if cost.n_features not in seen:
                seen.add(cost.n_features)
                yield from self._both(width, cost)

    def _both(self, width: int, double: Features) -> Iterator[PlannedFit]:
        """Give the fit in float64, and the one in float32 where fits would begin in it."""
        task, machine = self.bench.task, self.bench.machine
        found, D = self._foretold(width), double.n_features
        exact = moments_cost(task, double, "float64", machine)
        if not self._single(D):
            if whitens_sums(task, double):
                cost = whitened_again_cost if found.limited else whitened_sums_cost
                exact = cost(task, double, machine)
            yield self._fit(width, D, "moments float64", exact)
            return
        single = self._features(width, "float32")
        if found.limited:
            twice = resweeps(task, single, machine)
            yield self._fit(width, D, "moments float32", twice, against=LIMITED)
            yield self._fit(width, D, "moments float64", exact)
        else:
            quick = moments_cost(task, single, "float32", machine)
            yield self._fit(width, D, "moments float32", quick)
            yield self._fit(width, D, "moments float64", exact, against=SLOWER)

    def _single(self, D: int) -> bool:
        nystrom = isinstance(self.method, Nystrom)
        return not nystrom and self.bench.task.n_rows * D**2 > SMALL

    def _fit(self, width: int, D: int, solver: str, cost: Cost, against: str = "") -> PlannedFit:
        return PlannedFit(
            self.method,
            D,
            solver,
            self._foretold(width).error,
            self._kernel_errors.get(width, math.nan),
            cost.total,
            cost.peak,
            cost.seconds,
            "sample" if width <= self._widest else "widths",
            against,
        )

    # --- what features cost ----------------------------------------------------------------------

    def _features(self, width: int, precision: str) -> Features:
        bench = self.bench
        if isinstance(self.method, Nystrom) and width > self._widest:
            return self._unseen_landmarks(width, precision)
        phi, seconds = self._map(width)
        cost = Features(
            phi.n_features,
            row_seconds(phi, bench.probe, precision, bench.task.itemsize),
            seconds,
            from_rows=not isinstance(self.method, Fourier),
        )
        if not isinstance(phi, NystromMap):
            return cost
        size = nystrom_draw(bench.task, width, bench.probe)[1]
        whitening = self._whitening(phi.n_features)
        return replace(cost, draw_bytes=size, held=8.0 * width**2, whitening=whitening)

    def _unseen_landmarks(self, width: int, precision: str) -> Features:
        """Scale what the widest map that was drawn took by what counts say of both."""
        bench, width = self.bench, self._landmarks(width)
        seconds, size = nystrom_draw(bench.task, width, bench.probe)
        drawn = nystrom_draw(bench.task, self._widest, bench.probe)[0]
        row = nystrom_row(width, bench.probe, "float64" if precision == "float64" else "float32")
        measured = self._map(self._widest)[1]
        held, whitening = 8.0 * width**2, self._whitening(width)
        return Features(width, row, seconds * measured / drawn, size, held, True, whitening)

    def _whitening(self, D: int) -> float:
        """Return seconds of a row's product with a triangle; 0 where rows are always whitened."""
        given = isinstance(self.method, Nystrom) and isinstance(self.method.landmarks, Given)
        return 0.0 if given else D**2 * self.bench.machine.triangle

    def _landmarks(self, width: int) -> int:
        """Return at how many landmarks a draw of this width stops: where nothing is left.

        What is left of the trace falls with a power of the width.
        """
        phi = self._map(self._widest)[0]
        left = [self._left(D) for D in (self._widest // 2, self._widest)]
        least = TOLERANCE[np.dtype(np.float32)]
        if phi.n_features < self._widest or left[1] <= least:
            return phi.n_features
        if not 0 < left[1] < left[0]:
            return width
        doublings = np.log(least / left[1]) / np.log(left[1] / left[0])
        return int(min(width, self._widest * 2.0 ** min(doublings, 20)))

    def _left(self, width: int) -> float:
        return float(getattr(self._map(max(2, width))[0], "unexplained", None) or 0.0)

    def _map(self, width: int) -> tuple[FeatureMap, float]:
        """Return the map, and the seconds that drawing it took."""
        if width not in self._maps:
            began = self.bench.probe.timer()
            phi = _drawn(self.bench, self.method, width)
            self._maps[width] = phi, self.bench.probe.timer() - began
        return self._maps[width]

    @cached_property
    def _maps(self) -> dict[int, tuple[FeatureMap, float]]:
        return {}

    # --- what a fit finds ------------------------------------------------------------------------

    @cached_property
    def _widest(self) -> int:
        """The widest that is fitted to the sample."""
        most = max(FITTED, self.widths[0])
        return max(width for width in self.widths if width <= most)

    @cached_property
    def _kernel_errors(self) -> dict[int, float]:
        return {
            width: predicted_error(self.method, self._map(width)[0], self.bench.rows.X)
            for width in self.widths
            if width <= self._widest or not isinstance(self.method, Nystrom)
        }

    @cached_property
    def _found(self) -> dict[int, Foretold]:
        return {}

    def _foretold(self, width: int) -> Foretold:
        """Fit the sample, or extrapolate from the two widest that were fitted."""
        if width not in self._found:
            self._found[width] = self._wider(width) if width > self._widest else self._tried(width)
        return self._found[width]

    def _tried(self, width: int) -> Foretold:
        return foretell(self._map(width)[0], self.bench.rows, self.bench.task.n_rows)

    def _wider(self, width: int) -> Foretold:
        doublings = math.log2(width / self._widest)
        return replace(self._foretold(self._widest), error=self.carried_on(self._widest, doublings))

    def carried_on(self, width: int, doublings: float) -> float:
        """Return the error so many doublings above a width that is fitted."""
        narrower = [width >> k for k in range(3) if width >> k >= NARROWEST]
        errors = [self._foretold(D).error for D in narrower]
        return wider(errors, doublings) if len(errors) > 1 else errors[0]


def _exact(bench: Bench, lanes: Sequence[_Lane]) -> PlannedFit | None:
    """Return the exact kernel by conjugate gradients; None where features hold all rows."""
    lane = next((lane for lane in lanes if isinstance(lane.method, Nystrom)), None)
    if lane is None or bench.task.n_rows <= ALL_ROWS:
        return None
    width, n = min(EXACT_WIDTH, lane._widest), bench.task.n_rows
    found = lane._foretold(width)
    phi, rows = _strangers(lane, width)
    rough, exact = products_needed(bench.kernel, phi, rows, found.alpha, n)
    pair = {p: bench.probe.pair(p, bench.task.n_targets) for p in ("float32", "float64")}
    costs = lane._features(width, "float64")
    cost = exact_cost(bench.task, costs, bench.machine, pair, rough, exact)
    error = lane.carried_on(width, math.inf)
    return PlannedFit(
        lane.method, width, "exact", error, 0.0, cost.total, cost.peak, cost.seconds, "widths"
    )


def _strangers(lane: _Lane, width: int) -> tuple[FeatureMap, Rows]:
    """Return a map, and rows of which it knows as many as it will of all.

    Pivots leave little of the rows that they were chosen among, so here they are chosen among half.
    """
    bench = lane.bench
    m, n = len(bench.rows.w), bench.task.n_rows
    if n <= m:
        return lane._map(width)[0], bench.rows
    half, known = m // 2, int(m / n * (m // 2))
    others = replace(bench, X=bench.rows.X[half:])
    mixed = Rows(*(part[known : half + known] for part in bench.rows))
    return _drawn(others, lane.method, width), mixed
