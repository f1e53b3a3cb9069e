"""The search for a kernel: of a name by leave-one-out errors, or tuned by descents of a criterion.

Two algorithms answer the same question at different cost, and leave the same record
(:class:`bochner.selection.record.Tuning`):

* a **walk** in half-octaves from the median distance, one lengthscale or one a column in proportion
  to its deviation: a named kernel, in about a second;
* **descents** of log lengthscales, log smoothness and log penalty (:mod:`.descent`), whose results
  are then compared on rows held out (:mod:`.trials`): ``kernel="auto"``, and :func:`bochner.tune`.

A named kernel is not found by descents, although these cost no more with one lengthscale: on four
tables the errors of what they find were between 26 % below and 6 % above those of the walk.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from bochner._core.checks import one_of, positive
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.maps import FourierMap
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.features.judging import left_out
from bochner.features.method import Method, Request
from bochner.features.rules import draw_map
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import (
    Exponential,
    Gaussian,
    Laplace,
    Radial,
    RationalQuadratic,
)
from bochner.kernels.stationary_families import Matern
from bochner.selection.descent import (
    SIXTEENTH,
    Evaluated,
    Hyperparameters,
    OnFeatures,
    Prior,
    Rescaled,
    TimeBudget,
    descend,
    family_of,
    go_on,
    on_grid,
    shape_name,
)
from bochner.selection.record import HELD_OUT, Tuning
from bochner.selection.recorder import Recorder
from bochner.selection.rows import (
    FEW_PAIRS,
    PAIRS,
    Scale,
    TuningRows,
    deviations,
    median_distance,
    rounded,
    rows_of,
    screen,
)
from bochner.selection.spec import NAMED, Family
from bochner.selection.trials import (
    FEWEST,
    HeldOutTrials,
    KernelCandidate,
    Trial,
    crossed,
    first_least,
    split_rows,
    targets_that_vary,
    trial_width,
)
from bochner.solvers.convex.problem import walk
from bochner.solvers.ridge.criteria import CRITERIA, LeaveOneOutError
from bochner.solvers.ridge.solution import NO_ERROR, SAME, best_of

#: Families of the sum of coordinate distances, not of the Euclidean distance.
COORDINATEWISE = ("laplace", "cauchy")

#: Half-octaves from the median distance that the search goes at most: a factor of 16.
FARTHEST = 8

#: Fewer rows than this tell no family from another.
FEW = 64

#: Relative rounding error of a leave-one-out error, times the penalty per row: at 1.4e-12 errors of
#: 15 rows differ by 2 % between processors.
ROUNDING = 256 * np.finfo(np.float64).eps

#: Rows and features of the search.
SEARCH_ROWS, SEARCH_FEATURES = 4096, 512


# --- The walk of a named kernel ------------------------------------------------------------------


def choose_lengthscale(
    name: str,
    sample: RowSample,
    n_features: int,
    seed: int,
    share: float | None = None,
    method: Method | None = None,
) -> Tuning:
    """Return the kernel of this family with the lengthscale that predicts the sample best.

    ``share`` is a given per-row penalty (alpha/n); without it each lengthscale has its own best
    penalty. Without targets it is the median heuristic: the median distance between rows. "auto"
    is tuned, among the families that ``method`` serves (:func:`tune_kernel`); with fewer than 64
    rows it is "gaussian".
    """
    if name == "auto" and len(sample) >= FEW:
        return tune_kernel(name, sample, n_features, seed, method=method, share=share)
    family = NAMED[name]
    if name == "linear":
        return Tuning(Linear())
    return KernelWalk(family, name in COORDINATEWISE, n_features, seed, share).run(sample)


def _scaled(scale: Scale, factor: float) -> Scale:
    """Return lengthscales times a factor, in the digits that are the same on every processor."""
    return rounded(tuple(s * factor for s in scale) if isinstance(scale, tuple) else scale * factor)


def median_scales(
    sample: RowSample, coordinatewise: bool, seed: int, most: int = PAIRS
) -> list[Scale]:
    """Return the median distance of so many pairs of rows, for one lengthscale and one a column."""
    X, w, order = sample.X, sample.w, 1 if coordinatewise else 2
    unit = float(abs(X).max()) or 1.0  # squares of huge and tiny numbers are no numbers
    scales: list[Scale] = [median_distance(X, w, (unit,), seed, order, most)]
    spread = deviations(X, w, unit)
    if spread.max() > 1.05 * spread.min():  # one a column, in proportion to these
        median = median_distance(X, w, (unit, spread), seed, order, most)
        scales.append(tuple((median * spread).tolist()))
    scales = [_scaled(scale, unit) for scale in scales]
    if np.min(scales[0]) < np.finfo(np.float64).tiny:
        raise InvalidInput(
            "X must hold numbers whose differences float64 holds to all its digits; got columns "
            f"of {unit:.3g} at most. Multiply them by a power of ten."
        )
    return scales


class KernelWalk:
    """A walk of one family in half-octaves.

    The seed of the features stays, so that frequencies are rescaled and the errors are comparable.
    Of rows with more columns than there are frequencies the angles xᵀω are remembered too: at
    another multiple of the same lengthscales they are the same but for a factor.
    """

    def __init__(
        self,
        family: Family,
        coordinatewise: bool,
        n_features: int,
        seed: int,
        share: float | None = None,
    ) -> None:
        width = min(n_features, SEARCH_FEATURES)
        self._family, self._coordinatewise = family, coordinatewise
        self._width, self._seed, self._share = max(2, width - width % 2), seed, share
        self._recorder = Recorder(LeaveOneOutError(), TimeBudget.of(None))
        self._found: dict[Scale, tuple[float, float]] = {}
        self._angles: dict[Scale, Array] = {}

    def error_of(self, sample: RowSample, start: Scale, half_octaves: int) -> float:
        """Return the leave-one-out error of a sample at one lengthscale of the walk."""
        self._sample = sample
        return self._error(start, half_octaves)

    def run(self, sample: RowSample) -> Tuning:
        """Return the kernel with the least error, and the record."""
        self._sample = sample = sample.lowest(SEARCH_ROWS)
        starts = median_scales(sample, self._coordinatewise, self._seed)
        if sample.y.shape[1] == 0 or len(sample) < 4 or not np.any(np.ptp(sample.y, axis=0)):
            return Tuning(self._family(starts[0]))
        values = [self._error(scale, 0) for scale in starts]
        start = starts[int(len(starts) > 1 and (1 + SAME) * values[1] < values[0])]
        best = walk(partial(self._error, start), 0, -FARTHEST, FARTHEST, first=-1)
        scale = _scaled(start, 2.0 ** (best / 2))
        return self._recorder.found(self._family(scale), self._found[scale][1])

    def _error(self, start: Scale, half_octaves: int) -> float:
        scale = _scaled(start, 2.0 ** (half_octaves / 2))
        if scale not in self._found:
            self._found[scale] = self._tried(start, half_octaves, scale)
        return self._found[scale][0]

    def _tried(self, start: Scale, half_octaves: int, scale: Scale) -> tuple[float, float]:
        """Return the error, and its penalty per row."""
        sample = self._sample
        found = left_out(self._features(start, half_octaves), sample.y, sample.w, self._share)
        weight = found.moments.weight
        power, shares = found.moments.power / weight, found.alphas / weight
        best = best_of(found.errors * (1 + ROUNDING / shares), "loo")
        least = max(float(found.errors[best]), NO_ERROR * float(power.max()))
        share = float(shares[best])
        stage = "half-octaves" if half_octaves else "median distance"
        self._recorder.step(stage, self._family(scale), share, least / power[power > 0].mean())
        return least, share

    def _features(self, start: Scale, half_octaves: int) -> Float[Array, "n D"]:
        X, m = self._sample.X.astype(np.float64, copy=False), self._width // 2
        if X.shape[1] <= m:
            return self._map(_scaled(start, 2.0 ** (half_octaves / 2)))(X)
        if start not in self._angles:
            W = self._unit.frequencies / np.reshape(start, (-1, 1))
            self._angles[start] = X @ W
        factors = np.diag(np.full(m, 2.0 ** (-half_octaves / 2)))
        phi = FourierMap(self._unit.kernel, factors, self._unit.amplitude)
        return phi.features(self._angles[start])

    @cached_property
    def _unit(self) -> Any:
        """The map at lengthscale 1, whose frequencies are those of all others times 1/ℓ."""
        return self._map(1.0)

    def _map(self, scale: Scale) -> Any:
        kernel = self._family(scale)
        ask = Request(self._sample.X.shape[1], self._width, self._seed, ("lengthscale",))
        try:
            return draw_map(Fourier(Orthogonal()), kernel, ask)
        except UnsupportedKernel:
            return draw_map(Fourier(IID()), kernel, ask)


#: Features that transformations of columns are judged with.
JUDGED_FEATURES = 256


def error_near_median(rows: RowSample, seed: int) -> Callable[[int, int], float]:
    """Return the leave-one-out error of rows so many steps of √2 from a median distance.

    Its first argument is 0 for one lengthscale, 1 for one a column.
    """
    walk = KernelWalk(NAMED["gaussian"], False, JUDGED_FEATURES, seed)
    starts = median_scales(rows, False, seed, FEW_PAIRS)
    return lambda which, step: walk.error_of(rows, starts[min(which, len(starts) - 1)], step)


# --- Descents ------------------------------------------------------------------------------------

#: Rows and features of the descents, and evaluations: with one lengthscale, with one a column.
ROWS, WIDTH, ONE, MANY = 2048, 256, 8, 28

#: Rows and features of the last descent, with other frequencies, and its evaluations.
MORE_ROWS, MORE_WIDTH, LAST = 3072, 512, 8

#: Evaluations that each start of the second descent has before the best goes on.
TRY = 6

#: Rows that trials fit, at most.
TRIAL_ROWS = 4096

#: Per-row penalties that a descent may start from.
SHARES = (1e-2, 1e-4)

#: Families of a smoothness, between two of which a tuned one lies; from the last on a Matérn
#: kernel is taken to be the Gaussian.
SMOOTHNESS: tuple[tuple[float, Kernel], ...] = (
    (0.5, Exponential()),
    (1.5, Matern(1.5)),
    (2.5, Matern(2.5)),
    (6.0, Gaussian()),
)
SMOOTHEST_FIRST = tuple(family for _, family in reversed(SMOOTHNESS))

#: Lengthscales are sought one a column for so many columns at most: a step costs n D d, and few
#: rows tell little of many columns.
MOST_COLUMNS = 2048

#: Steps of √2 in the last search of the scale, at most, each way.
SCALES = 4


def tune_kernel(
    kernel: Kernel | str,
    sample: RowSample,
    n_features: int,
    seed: int,
    *,
    criterion: str = "loo",
    budget: float | None = None,
    method: Method | None = None,
    share: float | None = None,
    euclidean: bool = False,
) -> Tuning:
    """Choose a kernel's lengthscales (and, for "auto", its family) from a sample of rows.

    Parameters
    ----------
    kernel : Kernel or "auto"
        A stationary kernel: its family is kept, its lengthscale is where the descent starts.
        "auto": of Matérn (of smoothness ½, 3/2, 5/2), Gaussian, rational quadratic and Laplace
        kernels, with one lengthscale (in units of the columns' deviations or of the data) or one
        a column.
    sample : RowSample
        Several targets, as indicators of classes, count alike.
    n_features : int
        D of the fit, which the best lengthscale depends on.
    seed : int
    criterion : {"loo", "evidence"}, default "loo"
        What the descents minimise. Families are compared by the error on rows held out.
    budget : float, optional
        Seconds. The default is a number of steps and not a time, so that the result depends on
        the seed alone; with a budget, descents go on until it is spent, and stop there.
    method : Method, optional
        Of the fit: families that it does not serve are not tried.
    share : float, optional
        A given per-row penalty, alpha/W, that is then not tuned.
    euclidean : bool, default False
        Whether kernels of the Euclidean distance only are tried.

    Returns
    -------
    Tuning

    Notes
    -----
    A step of a descent is O(n D² + n D d) with n ≤ 2048, D ≤ 256, or O(n D²) for one lengthscale
    of more than D/2 columns. One lengthscale a column is sought for at most 2048 columns, and taken
    only if its error on rows held out is below that of one for all by more than a standard
    deviation of the difference.
    """
    one_of(criterion, "tune", "criterion", tuple(CRITERIA))
    start = TimeBudget.of(None if budget is None else positive(budget, "tune", "budget"))
    family = family_of(Matern(1.5) if isinstance(kernel, str) else kernel)
    given = None if isinstance(kernel, str) else np.atleast_1d(kernel.get_params()["lengthscale"])
    train, test = split_rows(rows_of(sample), seed)
    if not np.any(targets_that_vary(train)):
        return Tuning(_untuned(kernel, sample, seed), share or SHARES[0], criterion=criterion)
    recorder = Recorder(CRITERIA[criterion], start, logs=True)
    serves, every = (
        partial(serves_kernel, method, euclidean, sample.X, seed),
        isinstance(kernel, str),
    )
    if every:
        require_served(method, sample.X, seed)
    search = KernelDescents(family, given, every, n_features, seed, recorder, serves, share)
    return search.run(train, test)


def _untuned(kernel: Kernel | str, sample: RowSample, seed: int) -> Kernel:
    """Return the kernel itself, or the Gaussian at the median distance."""
    if isinstance(kernel, Kernel):
        return kernel
    rows = rows_of(sample)
    return Gaussian(float(np.exp(rows.log_median(seed, -np.log(rows.units)))))


@dataclass(frozen=True, eq=False)
class KernelDescents:
    """Descents of one family, or of all, and their comparison."""

    family: Kernel  # at lengthscale 1; a Matérn kernel where families are compared
    given: Float[Array, " p"] | None  # lengthscales to start from
    every: bool  # whether families are compared
    n_features: int  # D of the fit
    seed: int
    recorder: Recorder  # has the criterion and the budget
    serves: Callable[[Kernel], bool]  # whether the method of the fit serves a kernel
    share: float | None  # a per-row penalty that is given and stays

    @property
    def budget(self) -> TimeBudget:
        """The time there is."""
        return self.recorder.budget

    def run(self, train: TuningRows, test: TuningRows) -> Tuning:
        """Return the best kernel, in the units of the data, and the record."""
        explored = train.first(ROWS)
        one = self._one(explored)
        simple = _candidate(self._families(one.at)[0], one, 1)
        candidates = [*self._untuned(explored), simple]
        if 1 < train.X.shape[1] <= MOST_COLUMNS:
            candidates += self._many(one, explored, train.first(MORE_ROWS))
        width = trial_width(self.n_features, len(train), WIDTH)
        held = train.first(TRIAL_ROWS), test
        trials = HeldOutTrials(*held, width, self.seed, self.share is not None)
        best = self._compared(trials, candidates, train.units)
        kernel = best.candidate.kernel(train.units)
        return self.recorder.found(kernel, best.candidate.share, best.error)

    def _criterion(
        self, rows: TuningRows, offsets: Array, width: int = WIDTH, seed: int = 0
    ) -> OnFeatures:
        width, d = min(width, self.n_features), rows.X.shape[1]
        rescaled = Rescaled.draw(self.family, d, width, self.seed + seed)
        prior = Prior(rows.log_median(self.seed, offsets), rows.count, d)
        pinned = self.share is not None
        return OnFeatures(rescaled, rows, offsets, self.recorder.criterion, pinned, prior)

    # --- one lengthscale -------------------------------------------------------------------------

    def _one(self, rows: TuningRows) -> Evaluated[OnFeatures]:
        """Descend with one lengthscale, of the columns in their units or in those of the data."""
        note, tried = self.recorder.noting("one lengthscale"), []
        for offsets, length in self._lengths(rows):
            criterion = self._criterion(rows, offsets)
            for share in SHARES if self.share is None else (self.share,):
                at = Hyperparameters(np.array([length]), float(np.log(share)), self._shape)
                tried.append(descend(criterion, at, 1, self.budget, note))
        return go_on(tried, self._evaluations(ONE), self.budget.part(0.15), note).rounded

    def _lengths(self, rows: TuningRows) -> Iterator[tuple[Array, float]]:
        """Give offsets of log ℓ in the units of the rows, and where its common part starts."""
        alike = np.zeros_like(rows.units)
        yield alike, rows.log_median(self.seed)
        raw = -np.log(rows.units)
        if np.ptp(raw) > 0.05:
            yield raw, rows.log_median(self.seed, raw)
        if self.given is not None and len(self.given) == 1:
            yield raw, float(np.log(self.given[0]))

    @property
    def _shape(self) -> float | None:
        name = shape_name(self.family)
        return float(np.log(self.family.get_params()[name])) if self.every and name else None

    def _evaluations(self, usual: int) -> int:
        return usual if self.budget.seconds == float("inf") else 1000 * usual

    def _untuned(self, rows: TuningRows) -> Iterator[KernelCandidate]:
        """Give what is there before any search: the start, or the median distance."""
        family = next(filter(self.serves, (self.family, *SMOOTHEST_FIRST)), self.family)
        share = SHARES[0] if self.share is None else self.share
        if self.given is not None:
            logs = np.log(np.broadcast_to(self.given, rows.units.shape) / rows.units)
            yield KernelCandidate(family, logs, share, 0)
            return
        for offsets, length in self._lengths(rows):
            yield KernelCandidate(family, offsets + length, share, 0)

    def _families(self, at: Hyperparameters) -> list[Kernel]:
        """Return the two families nearest in smoothness."""
        if not self.every:
            return [self.family]
        served = [(nu, family) for nu, family in SMOOTHNESS if self.serves(family)]
        served.sort(key=lambda pair: abs(np.log(pair[0]) - at.shape))
        return [family for _, family in served[:2]]

    # --- one lengthscale a column ----------------------------------------------------------------

    def _many(
        self, one: Evaluated[OnFeatures], rows: TuningRows, more: TuningRows
    ) -> list[KernelCandidate]:
        """Descend with one lengthscale a column, from several starts, then from the best."""
        criterion = self._criterion(rows, np.zeros_like(rows.units))
        note, budget = self.recorder.noting("one a column"), self.budget.part(0.3)
        tried = [descend(criterion, at, TRY, budget, note) for at in self._starts(one, rows)]
        count, budget = self._evaluations(MANY - TRY), self.budget.part(0.5)
        best = self._last(go_on(tried, count, budget, note).rounded, more)
        d = rows.X.shape[1]
        found = [_candidate(family, best, d) for family in self._families(best.at)]
        return [*found, *(self._others(found[0], rows) if self.every else ())]

    def _last(self, start: Evaluated[OnFeatures], rows: TuningRows) -> Evaluated[OnFeatures]:
        """Descend with more rows and other frequencies: what fitted the first few only is lost."""
        width = min(MORE_WIDTH, max(WIDTH, len(rows) // 2))
        criterion = self._criterion(rows, np.zeros_like(rows.units), width, seed=1)
        note, budget = self.recorder.noting("more rows"), self.budget.part(0.75)
        return descend(criterion, start.at, self._evaluations(LAST), budget, note).rounded

    def _starts(self, one: Evaluated[OnFeatures], rows: TuningRows) -> Iterator[Hyperparameters]:
        yield replace(one.at, lengths=one.of.logs(one.at))
        relevance = screen(rows, self.seed)
        if relevance:
            yield self._from(on_grid(np.log(relevance.lengthscales), SIXTEENTH))
        if self.given is not None and len(self.given) > 1:
            yield self._from(np.log(self.given / rows.units))

    def _from(self, logs: Array) -> Hyperparameters:
        """Return other lengthscales, with smoothness and penalty where a search starts."""
        share = SHARES[0] if self.share is None else self.share
        return Hyperparameters(logs, float(np.log(share)), self._shape)

    def _others(self, found: KernelCandidate, rows: TuningRows) -> Iterator[KernelCandidate]:
        """Give families outside the Matérn kernels at the same lengthscales."""
        if self.serves(RationalQuadratic()):
            yield replace(found, family=RationalQuadratic(1.0))
        if not self.serves(Laplace()):
            return
        both = (rows.log_median(self.seed, found.logs, order) for order in (1, 2))
        yield replace(found, family=Laplace(), logs=found.logs + next(both) - next(both))

    # --- which ----------------------------------------------------------------------------------

    def _compared(
        self, held_out: HeldOutTrials, candidates: list[KernelCandidate], units: Array
    ) -> Trial:
        """Return the trial that is best, a simpler one unless the rest is surely better, scaled.

        Many lengthscales fit few rows too well: their errors on rows held out decide, first
        whether one lengthscale is better than none that was tuned, then one a column than these.
        """
        note, budget = _noting(self.recorder, "trial", units), self.budget.part(0.8)
        trials, chosen = held_out.trials(candidates, note, budget), None
        for count in sorted({trial.candidate.tuned for trial in trials}):
            alike = [trial for trial in trials if trial.candidate.tuned == count]
            best = alike[first_least([trial.error for trial in alike])]
            chosen = best if self._taken(best, chosen, units) else chosen
        return self._scaled(held_out, chosen, units, trials)

    def _taken(self, best: Trial, before: Trial | None, units: Array) -> bool:
        gain, least = (np.nan, np.nan) if before is None else best.gain(before)
        kernel, measure = best.candidate.kernel(units), HELD_OUT
        self.recorder.compare(best.candidate.tuned, kernel, best.error, gain, least, measure)
        return before is None or gain > least

    def _scaled(
        self, held_out: HeldOutTrials, best: Any, units: Array, trials: list[Trial]
    ) -> Trial:
        """Lengthen or shorten all lengthscales by √2 while the error surely falls.

        The error that is reported of the best is that of choosing as much without the row it is of.
        """
        note = _noting(self.recorder, "scale", units)
        note(best)
        for factor in (2**0.5, 0.5**0.5):
            for _ in range(SCALES):
                if self.budget.over:
                    break
                trial = held_out.trial(best.candidate.scaled(factor))
                trials.append(trial)
                note(trial)
                if not trial.surely_below(best):
                    break
                best = trial
        squared = crossed([trial.squared for trial in trials])
        return replace(best, error=float(squared.sum() / held_out.test.w.sum()))


def _noting(recorder: Recorder, stage: str, units: Array) -> Callable[[Trial], None]:
    """Return what writes down each trial."""
    return lambda trial: recorder.step(
        stage, trial.candidate.kernel(units), trial.candidate.share, trial.error
    )


def _candidate(family: Kernel, found: Evaluated[OnFeatures], tuned: int) -> KernelCandidate:
    return KernelCandidate(family, found.of.logs(found.at), float(np.exp(found.at.share)), tuned)


def serves_kernel(
    method: Method | None, euclidean: bool, X: Array, seed: int, kernel: Kernel
) -> bool:
    """Whether the method makes features of the kernel: "auto" and none at all serve every one."""
    if euclidean and not isinstance(kernel, Radial):
        return False
    if method is None or isinstance(method, Auto):
        return True
    try:
        _draw_few(method, kernel, X, seed)
    except UnsupportedKernel:
        return False
    except InvalidInput:  # too few features or rows for this trial: not the kernel's fault
        return True
    return True


def require_served(method: Method | None, X: Array, seed: int) -> None:
    """Raise UnsupportedKernel where the method serves no kernel that a search starts from."""
    starts = Gaussian(), Matern(1.5)
    if method and not any(serves_kernel(method, False, X, seed, kernel) for kernel in starts):
        _draw_few(method, Gaussian(), X, seed)


def _draw_few(method: Method, kernel: Kernel, X: Array, seed: int) -> None:
    draw_map(method, kernel, Request(X.shape[1], 2 * X.shape[1], seed, X=X[:FEWEST]))
