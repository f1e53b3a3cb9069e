"""The order in which a kernel is sought: one lengthscale, one a column, families, scale."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bochner._core import native
from bochner._core.arrays import is_sparse
from bochner._core.checks import one_of, positive
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import Auto, Method
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels import (
    Exponential,
    Gaussian,
    Kernel,
    Laplace,
    Matern,
    Radial,
    RationalQuadratic,
)
from bochner.selection.columns import column_means, column_spread, significant
from bochner.selection.descent import (
    SIXTEENTH,
    Clock,
    Dials,
    Objective,
    Point,
    Prior,
    descend,
    on_grid,
)
from bochner.selection.rescaled import (
    Rescaled,
    Rows,
    family_of,
    shape_name,
)
from bochner.selection.trials import (
    Candidate,
    Court,
    Trial,
    crossed,
    first_least,
    trial_width,
)
from bochner.selection.tuning import Diary, Tuning

#: Fewer rows than this say nothing of lengthscales.
FEWEST = 8

#: Rows and features of the descents, and evaluations: with one lengthscale, with one a column.
ROWS, WIDTH, ONE, MANY = 2048, 256, 8, 28

#: Rows and features of the last descent, with other frequencies, and its evaluations.
MORE_ROWS, MORE_WIDTH, LAST = 3072, 512, 8

#: Evaluations that each start of the second descent has before the best goes on.
TRY = 6

#: Rows that trials fit, at most.
TRIAL_ROWS = 4096

#: Share of the rows that no descent sees, and most of them.
HELD_OUT, MOST_HELD_OUT = 0.25, 2048

#: Penalties a row that a descent may start from.
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
        A given penalty a row, alpha/W, that is then not tuned.
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
    one_of(criterion, "tune", "criterion", ("loo", "evidence"))
    clock = Clock.of(None if budget is None else positive(budget, "tune", "budget"))
    family = family_of(Matern(1.5) if isinstance(kernel, str) else kernel)
    given = None if isinstance(kernel, str) else np.atleast_1d(kernel.get_params()["lengthscale"])
    if len(sample) < FEWEST or not np.any(np.ptp(sample.y, axis=0)):
        return Tuning(_untuned(kernel, sample, seed), share or SHARES[0], criterion=criterion)
    diary, serves = Diary(clock, criterion), partial(_serves, method, euclidean, sample.X, seed)
    every = isinstance(kernel, str)
    best, rows = Search(family, given, every, n_features, seed, diary, serves, share).run(sample)
    found = best.candidate.kernel(rows.units)
    steps, compared = tuple(diary.steps), tuple(diary.compared)
    return Tuning(found, best.candidate.share, best.error, criterion, steps, compared=compared)


def _untuned(kernel: Kernel | str, sample: RowSample, seed: int) -> Kernel:
    """Return the kernel itself, or the Gaussian at the median distance."""
    if isinstance(kernel, Kernel):
        return kernel
    rows = rows_of(sample)
    return Gaussian(float(np.exp(rows.log_median(seed, -np.log(rows.units)))))


@dataclass(frozen=True, eq=False)
class Search:
    """A search of one family, or of all.

    Attributes
    ----------
    family : Kernel
        At lengthscale 1; a Matérn kernel where families are compared.
    given : (1,) or (d,) or None
        Lengthscales to start from.
    every : bool
        Whether families are compared.
    n_features : int
        D of the fit.
    seed : int
    diary : Diary
        Hears of each step; has the criterion and the clock.
    serves : callable
        Whether the method of the fit serves a kernel.
    share : float or None
        A penalty a row that is given and stays.
    """

    family: Kernel
    given: Float[Array, " p"] | None
    every: bool
    n_features: int
    seed: int
    diary: Diary
    serves: Callable[[Kernel], bool]
    share: float | None

    @property
    def clock(self) -> Clock:
        """The time there is."""
        return self.diary.clock

    def run(self, sample: RowSample) -> tuple[Trial, Rows]:
        """Return the best trial, and the rows whose units it is in."""
        rows = rows_of(sample)
        train, test = split_rows(rows, self.seed)
        explored = train.first(ROWS)
        one = self._one(explored)
        candidates = [*self._untuned(explored), self._simple(one)]
        if 1 < rows.X.shape[1] <= MOST_COLUMNS:
            candidates += self._many(one, explored, train.first(MORE_ROWS))
        width = trial_width(self.n_features, len(train), WIDTH)
        held = train.first(TRIAL_ROWS), test
        court = Court(*held, width, self.seed, self.share is not None)
        return self._judged(court, candidates, rows.units), rows

    def _objective(
        self, rows: Rows, offsets: Array, width: int = WIDTH, seed: int = 0
    ) -> Objective:
        width, d = min(width, self.n_features), rows.X.shape[1]
        rescaled = Rescaled.draw(self.family, d, width, self.seed + seed)
        prior = Prior(rows.log_median(self.seed, offsets), rows.count, d)
        pinned = self.share is not None
        return Objective(rescaled, rows, offsets, self.diary.criterion, pinned, prior)

    # --- one lengthscale -------------------------------------------------------------------------

    def _one(self, rows: Rows) -> tuple[Objective, Point]:
        """Descend with one lengthscale, of the columns in their units or in those of the data."""
        note, starts = self.diary.descent("one lengthscale"), []
        for offsets, length in self._lengths(rows):
            objective = self._objective(rows, offsets)
            for share in SHARES if self.share is None else (self.share,):
                dials = Dials(np.array([length]), float(np.log(share)), self._shape)
                point = descend(objective, dials, 1, self.clock, note(objective))
                starts.append((objective, point))
        objective, start = min(starts, key=lambda pair: pair[1].value)
        clock = self.clock.part(0.15)
        point = descend(objective, start.dials, self._evaluations(ONE), clock, note(objective))
        return objective, rounded(point if point.value < start.value else start)

    def _lengths(self, rows: Rows) -> Iterator[tuple[Array, float]]:
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
        return usual if self.clock.seconds == float("inf") else 1000 * usual

    def _simple(self, one: tuple[Objective, Point]) -> Candidate:
        objective, point = one
        return _candidate(self._families(point.dials)[0], objective, point, 1)

    def _untuned(self, rows: Rows) -> Iterator[Candidate]:
        """Give what is there before any search: the start, or the median distance."""
        family = next(filter(self.serves, (self.family, *SMOOTHEST_FIRST)), self.family)
        share = SHARES[0] if self.share is None else self.share
        if self.given is not None:
            logs = np.log(np.broadcast_to(self.given, rows.units.shape) / rows.units)
            yield Candidate(family, logs, share, 0)
            return
        for offsets, length in self._lengths(rows):
            yield Candidate(family, offsets + length, share, 0)

    def _families(self, dials: Dials) -> list[Kernel]:
        """Return the two families nearest in smoothness."""
        if not self.every:
            return [self.family]
        served = [(nu, family) for nu, family in SMOOTHNESS if self.serves(family)]
        served.sort(key=lambda pair: abs(np.log(pair[0]) - dials.shape))
        return [family for _, family in served[:2]]

    # --- one lengthscale a column ----------------------------------------------------------------

    def _many(self, one: tuple[Objective, Point], rows: Rows, more: Rows) -> list[Candidate]:
        """Descend with one lengthscale a column, from several starts, then from the best."""
        objective, point = one
        aligned = self._objective(rows, np.zeros_like(rows.units))
        note = self.diary.descent("one a column")(aligned)
        clock = self.clock.part(0.3)
        starts = self._starts(objective, point, rows)
        tried = [descend(aligned, dials, TRY, clock, note) for dials in starts]
        start = min(tried, key=lambda point: point.value)
        count, clock = self._evaluations(MANY - TRY), self.clock.part(0.5)
        end = descend(aligned, start.dials, count, clock, note)
        best = self._last(rounded(end if end.value < start.value else start), more)
        d = rows.X.shape[1]
        found = [_candidate(f, aligned, best, d) for f in self._families(best.dials)]
        return [*found, *(self._others(found[0], rows) if self.every else ())]

    def _last(self, start: Point, rows: Rows) -> Point:
        """Descend with more rows and other frequencies: what fitted the first few only is lost."""
        width = min(MORE_WIDTH, max(WIDTH, len(rows) // 2))
        objective = self._objective(rows, np.zeros_like(rows.units), width, seed=1)
        note = self.diary.descent("more rows")(objective)
        clock = self.clock.part(0.75)
        return rounded(descend(objective, start.dials, self._evaluations(LAST), clock, note))

    def _starts(self, objective: Objective, point: Point, rows: Rows) -> Iterator[Dials]:
        yield replace(point.dials, lengths=objective.logs(point.dials).copy())
        relevance = screen(rows, self.seed)
        if relevance:
            yield self._from(on_grid(np.log(relevance.lengthscales), SIXTEENTH))
        if self.given is not None and len(self.given) > 1:
            yield self._from(np.log(self.given / rows.units))

    def _from(self, logs: Array) -> Dials:
        """Return dials at other lengthscales, with smoothness and penalty where a search starts."""
        share = SHARES[0] if self.share is None else self.share
        return Dials(logs, float(np.log(share)), self._shape)

    def _others(self, found: Candidate, rows: Rows) -> Iterator[Candidate]:
        """Give families outside the Matérn kernels at the same lengthscales."""
        if self.serves(RationalQuadratic()):
            yield replace(found, family=RationalQuadratic(1.0))
        if not self.serves(Laplace()):
            return
        both = (rows.log_median(self.seed, found.logs, order) for order in (1, 2))
        yield replace(found, family=Laplace(), logs=found.logs + next(both) - next(both))

    # --- which ----------------------------------------------------------------------------------

    def _judged(self, court: Court, candidates: list[Candidate], units: Array) -> Trial:
        """Return the trial that is best, a simpler one unless the rest is surely better, scaled.

        Many lengthscales fit few rows too well: their errors on rows held out decide, first
        whether one lengthscale is better than none that was tuned, then one a column than these.
        """
        trials = court.hear_all(candidates, self.diary.trial("trial", units), self.clock.part(0.8))
        counts = sorted({trial.candidate.tuned for trial in trials})
        bests = [_least([t for t in trials if t.candidate.tuned == count]) for count in counts]
        chosen = bests[0]
        self.diary.compare(chosen, None, True, units)
        for best in bests[1:]:
            taken = best.surely_below(chosen)
            self.diary.compare(best, chosen, taken, units)
            chosen = best if taken else chosen
        return self._scaled(court, chosen, units, trials)

    def _scaled(self, court: Court, best: Trial, units: Array, heard: list[Trial]) -> Trial:
        """Lengthen or shorten all lengthscales by √2 while the error surely falls.

        The error that is told of the best is that of choosing as much without the row it is of.
        """
        note = self.diary.trial("scale", units)
        note(best)
        for factor in (2**0.5, 0.5**0.5):
            for _ in range(SCALES):
                if self.clock.over:
                    break
                trial = court.hear(best.candidate.scaled(factor))
                heard.append(trial)
                note(trial)
                if not trial.surely_below(best):
                    break
                best = trial
        told = crossed([trial.squared for trial in heard])
        return replace(best, error=float(told.sum() / court.test.w.sum()))


def _least(trials: list[Trial]) -> Trial:
    """Return the first of the trials whose errors are about the least."""
    return trials[first_least([trial.error for trial in trials])]


def rounded(point: Point) -> Point:
    """Return the point at lengthscales on their grid, where every processor puts them."""
    lengths = on_grid(point.dials.lengths, SIXTEENTH)
    return replace(point, dials=replace(point.dials, lengths=lengths))


def rows_of(sample: RowSample) -> Rows:
    """Return the rows in float64, in units of their columns' deviations."""
    return Rows.of(sample.X, sample.y, sample.w, _units(sample.X, sample.w))


def _units(X: Array, w: Array) -> Float[Array, " d"]:
    """Return weighted standard deviations of columns; of constant ones the largest of all, or 1.

    They are rounded as lengthscales are, so that all processors divide by the same numbers.
    """
    size, deviations = column_spread(X, w)
    constant = deviations <= 1e-12
    deviations = deviations * size
    other = float(deviations[~constant].max()) if np.any(~constant) else 1.0
    return np.array([significant(unit) for unit in np.where(constant, other, deviations)])


def split_rows(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return rows to tune on and rows to err on, at random."""
    order = stream(seed, "held out").permutation(len(rows))
    held = min(MOST_HELD_OUT, max(1, int(HELD_OUT * len(rows))))
    return rows.take(order[held:]), rows.take(order[:held])


def _candidate(family: Kernel, objective: Objective, point: Point, tuned: int) -> Candidate:
    share = float(np.exp(point.dials.share))
    return Candidate(family, objective.logs(point.dials), share, tuned)


def _serves(method: Method | None, euclidean: bool, X: Array, seed: int, kernel: Kernel) -> bool:
    """Whether the method makes features of the kernel: "auto" and none at all serve every one."""
    if euclidean and not isinstance(kernel, Radial):
        return False
    if method is None or isinstance(method, Auto):
        return True
    try:
        draw_map(method, kernel, Request(X.shape[1], 2 * X.shape[1], seed, X=X[:FEWEST]))
    except UnsupportedKernel:
        return False
    except InvalidInput:  # too few features or rows for this trial: not the kernel's fault
        return True
    return True


# --- Which columns matter, before any fit: random frequencies, scored by the targets
#
# A frequency ω explains the share |Σ w y e^{iω·x}|² of the targets' variance (Sinha and Duchi 2016,
# *Learning kernels with random features*, score frequencies by the same sum). Drawn in one, two or
# three columns at a time, those that pass what chance gives tell in which directions the target
# varies and how fast:
#
#     E|∂_k f|² ≈ Σ_ω ω_k² |f̂(ω)|².
#
# A kernel of all columns at one lengthscale sees nothing where few of many columns matter.

#: Frequencies tried, columns that each is in, and their sizes in units of 1/deviation.
TRIED, COLUMNS, SIZES = 6144, (1, 2, 3), (0.5, 1.0, 2.0)

#: A frequency whose cosine varies less than this is constant on the rows.
LEAST_VARIANCE = 1e-3

#: Columns below this share of the largest slope are taken to have it.
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class Relevance:
    """Mean squared slope along each column, and the part of the variance it was seen in.

    Attributes
    ----------
    slopes : (d,)
        E|∂_k f|² of what was explained, in units of the columns; zeros where nothing was.
    explained : float
        The largest share of variance that one frequency explains.
    """

    slopes: Float[Array, " d"]
    explained: float

    @property
    def lengthscales(self) -> Float[Array, " d"]:
        """2/√slope of each column in units of the deviations: where a descent may start."""
        top = float(self.slopes.max())
        return 2 / np.sqrt(np.maximum(self.slopes, LEAST_SLOPE * top))

    def __bool__(self) -> bool:
        """Whether anything was explained beyond chance."""
        return bool(np.any(self.slopes > 0))


def screen(rows: Rows, seed: int, tried: int = TRIED) -> Relevance:
    """Return the relevance of columns; O(n · tried)."""
    W = _sparse_frequencies(rows.X.shape[1], tried, seed)
    scores = _explained(rows, W)
    # For pure noise a score times n/2 is exponential: the largest of all passes this once in 20.
    chance = 2 * np.log(20 * tried) / len(rows)
    beyond = np.maximum(scores - chance, 0.0)
    slopes = W**2 @ beyond / max(float(beyond.sum()), np.finfo(float).tiny)
    return Relevance(slopes, float(scores.max()))


def _sparse_frequencies(d: int, tried: int, seed: int) -> Float[Array, "d m"]:
    rng = stream(seed, "screening")
    W = rng.standard_normal((d, tried)) * np.array(SIZES)[np.arange(tried) // 3 % 3]
    each = np.array(COLUMNS)[np.arange(tried) % 3]
    order = rng.random((d, tried)).argsort(axis=0)
    return np.where(order < each, W, 0.0)


def _explained(rows: Rows, W: Float[Array, "d m"]) -> Float[Array, " m"]:
    """Return the largest share of a target's variance that each cosine and sine explain."""
    w = rows.w / rows.w.sum()
    y = rows.y - w @ rows.y
    y = y / np.sqrt(np.maximum(w @ y**2, np.finfo(float).tiny))
    Z = _cosines(rows.X, W, column_means(rows.X, rows.w))
    mean, right = w @ Z, w[:, None] * y
    variance = w @ Z**2 - mean**2
    products = right.T @ Z
    shares = products**2 / np.maximum(variance, LEAST_VARIANCE)
    shares = np.where(variance > LEAST_VARIANCE, shares, 0.0).max(axis=0)
    m = W.shape[1]
    return shares[:m] + shares[m:]


def _cosines(X: Array, W: Float[Array, "d m"], mean: Float[Array, " d"]) -> Float[Array, "n 2m"]:
    """Return cosines and sines of rows about their mean; sparse rows are not made dense."""
    if is_sparse(X):
        P = X @ W - mean @ W
        return np.hstack([np.cos(P), np.sin(P)])
    T = np.ascontiguousarray(W / (2 * np.pi))
    return native.cos_sin(np.ascontiguousarray(X - mean), T, 1.0)
