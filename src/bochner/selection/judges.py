"""Candidates for a kernel, judged by rows that none has seen: few rows first, the best with more.

What errs least on few rows need not do so on many, so the last word has a fit to so many rows as
time allows. There sums are tried too. All err on the same rows: what tells one from the other is
the mean of differences of what they lose (:mod:`bochner.selection.held_out`), and its standard
error.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.threads import side_by_side
from bochner.data.sample import RowSample
from bochner.kernels.banded import BAND, kernel_matrix
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Radial
from bochner.selection.held_out import nested_errors, relative_losses
from bochner.selection.record import MEASURES, KernelComparison, Tuning, TuningStep
from bochner.selection.rows import significant
from bochner.selection.spec import Effort
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import COMPARED, Penalties

#: The likelier kernel (of classes the simpler one) is taken unless the error of another is lower by
#: this share of itself, and by this number of standard errors of the difference. Held-out rows lie
#: between those of a fit: they cannot tell a long lengthscale with a huge amplitude, which is a
#: polynomial beyond the data, from the right kernel; the evidence can.
WORTH, CHANCE = 0.003, 1.0

#: The same of classes: with half of one a lucky candidate costs little, and one that is better is
#: seldom lost.
CHANCE_OF_CLASSES = 0.5

#: Slope ∂log(error)/∂log α at which a penalty is near enough to the best for a kernel to be
#: judged by it: the error is a thousandth above its least.
NEARLY = 0.015

#: Kernels go on to more rows, and are added up, if their error is within this factor of the least.
NEAR = 1.3

#: Relative log losses that are no more than this apart are near: a row or two may make them up.
CERTAIN = 0.02

#: With more rows smaller penalties of a classifier are tried, by this factor: what few rows took
#: for noise may tell classes apart, and most so in sums over columns.
SMALLER = 4.0

#: Rough functions go on to more rows where their error on few is within this factor of the least:
#: short lengthscales of a few columns are told by many rows, and by rough functions first.
AS_ROUGH = 1.04

#: Penalties of kernels are far from one another beyond this factor.
APART = 4.0

#: The best are fitted again where there are so many times as many rows.
MANY_MORE = 1.5

#: A metric is turned again if the first turn brought it within this factor of the error that it
#: came from.
CLOSE = 1.1


@dataclass(frozen=True, eq=False)
class TunedKernel:
    """A kernel that was tuned, in the units of the data, and where its penalty is looked for."""

    name: str
    kernel: Kernel
    alpha: float
    numbers: int  # how many were tuned, the penalty aside
    parts: tuple["TunedKernel", ...] = ()  # of a sum
    shares: tuple[float, ...] = ()  # of these


#: Gives candidates as they are tuned.
Make = Callable[[], Iterable[TunedKernel]]


class Generator(Protocol):
    """Gives candidates, and goes on from those that are good."""

    def starts(self) -> list[Make]:
        """Return what tunes candidates on few rows, each by itself; the last tunes columns."""

    def others(self, found: TunedKernel) -> list[Make]:
        """Return what tunes others from the lengthscales of columns, each by itself."""

    def turned(self, found: TunedKernel) -> Iterable[TunedKernel]:
        """Give kernels in metrics learned from the gradients of fits."""

    def takes_more_rows(self, found: TunedKernel) -> bool:
        """Whether there are more rows to go on with."""

    def with_more_rows(self, found: TunedKernel) -> TunedKernel:
        """Go on with more rows."""

    def rougher(self, found: TunedKernel) -> list[Make]:
        """Return what gives kernels of rougher functions whose scales are those of another."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate and its loss on the rows held out."""

    candidate: TunedKernel  # with its best penalty
    squared: Float[Array, " m"]  # weighted loss of each row: squared error, or log loss of classes
    error: float  # weighted mean of these; 1 is the loss of the best constant
    evidence: float  # minus twice the log evidence, summed over targets
    rows: int = 0  # rows that it was fitted to
    seconds: float = 0.0  # time to tune and judge it

    def surely_below(self, other: "Judged", chance: float = CHANCE) -> bool:
        """Whether the error is lower by a share worth having, and by more than chance."""
        gain, required = self.gain(other, chance)
        return gain > required

    def gain(self, other: "Judged", chance: float = CHANCE) -> tuple[float, float]:
        """Return the reduction of the error of another kernel, and the reduction required."""
        if not (np.isfinite(self.error) and np.isfinite(other.error)):
            return (np.inf if self.error < other.error else 0.0), 0.0
        unit = self.error / max(float(self.squared.sum()), 1e-300)
        difference = unit * (other.squared - self.squared)
        chance *= float(difference.std()) * len(difference) ** 0.5
        return other.error - self.error, max(WORTH * other.error, chance)


@dataclass(frozen=True, eq=False)
class Trials:
    """Rows to fit and rows to err on."""

    train: RowSample
    test: RowSample
    effort: Effort
    centred: bool
    share: float | None
    serves: Callable[[Kernel], bool]
    of_classes: bool = False
    steps: list[TuningStep] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def best(self, generator: Generator) -> Tuning:
        """Return the best candidate or sum, and what it was compared with.

        What does not wait for one another is done side by side.
        """
        starts, few = self._tried(generator.starts())
        if starts:
            few += self._tried(generator.others(starts[-1]))[1]
        radial = [j for j in few if isinstance(j.candidate.kernel, Radial)]
        if radial:
            few += self._turned(generator, min(radial, key=lambda judged: judged.error))
        rows, held = self.train.lowest(self.effort.judged), Matrices()
        judged = self._judged(self._finalists(few), rows, held)
        judged += self._with_more_rows(generator, judged, few, rows, held)
        last = self.train.lowest(self.effort.last)
        final, out = judged, few
        if len(last) >= MANY_MORE * len(rows):
            rows, held, out = last, Matrices(), judged + few
            final = self._judged(self._finalists(judged), rows, held)
        return self._compared([*final, *self._sums(final, rows, held)], out, rows)

    def _tried(self, makes: Sequence[Make]) -> tuple[list[TunedKernel], list[Judged]]:
        """Return candidates as they were tuned, and by the errors of fits to few rows."""
        made, judged = self._all_of(makes, self.tried, self._few)
        return made, self._noted(judged, self._few)

    def _all_of(
        self, makes: Sequence[Make], judge: Callable[[TunedKernel], Judged], n: int
    ) -> tuple[list[TunedKernel], list[Judged]]:
        """Tune candidates side by side and judge each with n rows; return both."""

        def each(number: int, make: Make) -> list[tuple[TunedKernel, Judged]]:
            began, both = time.perf_counter(), []
            for candidate in make():
                judged = judge(candidate)
                both.append((candidate, replace(judged, seconds=time.perf_counter() - began)))
                said = f"{candidate.name}, held-out error {judged.error:.4g}"
                stage = f"Choosing the kernel with {n:,} rows: candidate"
                progress(stage, said, number + 1, len(makes))
                began = time.perf_counter()
            return both

        both = list(chain(*side_by_side([partial(each, *make) for make in enumerate(makes)])))
        return [made for made, _ in both], [judged for _, judged in both]

    def _turned(self, generator: Generator, start: Judged) -> Iterator[Judged]:
        """Give kernels in metrics learned from gradients, for as long as they may be of use."""
        began = time.perf_counter()
        for candidate in generator.turned(start.candidate):
            judged = self.tried(candidate)
            (found,) = self._noted(
                [replace(judged, seconds=time.perf_counter() - began)], self._few
            )
            began = time.perf_counter()
            yield found
            if found.error > CLOSE * start.error:
                return

    def _finalists(self, judged: list[Judged]) -> list[TunedKernel]:
        """Return the best that are near the least error, and the simplest.

        First those whose errors do not differ from the least, in the order of preference.
        """
        ranked = _ranked(judged)
        near = [j for j in ranked if self._near(j, ranked[0])]
        tied = {id(j): self._preferred(j) for j in near if not self._below(ranked[0], j)}
        near = sorted(near, key=lambda j: tied.get(id(j), np.inf))
        last = near[: self.effort.finalists]
        simple = min((j for j in ranked if j.candidate.numbers <= 1), key=lambda j: j.error)
        last += [] if any(j is simple for j in last) else [simple]
        return [each.candidate for each in last]

    def _near(self, judged: Judged, best: Judged) -> bool:
        """Whether an error is near the least; log losses are so too where classes are certain."""
        return not judged.error > NEAR * best.error + CERTAIN * self.of_classes

    def _with_more_rows(
        self,
        generator: Generator,
        judged: list[Judged],
        few: list[Judged],
        rows: RowSample,
        held: "Matrices",
    ) -> list[Judged]:
        """Go on with the best of those that can, if it is not far from the best of all.

        Scales that another kernel has taken over count, so what they were found with goes on too.
        So does the best of rough functions that err about as little: more rows tell them apart.
        """
        best = self._goes_on(generator, judged, few)
        if best is None:
            return []
        judge = partial(self._erring, rows=rows, held=held)
        makes = [
            partial(_more_of, generator, each.candidate)
            for each in (best, *self._rough(generator, best, few))
        ]
        made, (first, *rough) = self._all_of(makes, judge, len(rows))
        rougher = self._all_of(generator.rougher(made[0]), judge, len(rows))[1]
        return self._noted([first, *rougher, *rough], len(rows))

    def _goes_on(self, generator: Generator, *stages: list[Judged]) -> Judged | None:
        for stage in stages:
            able = [each for each in stage if generator.takes_more_rows(each.candidate)]
            if able:
                best = _ranked(able)[0]
                return best if self._near(best, _ranked(stage)[0]) else None
        return None

    def _rough(self, generator: Generator, best: Judged, few: list[Judged]) -> list[Judged]:
        """Return the kernel of rough functions whose error on few rows is near the least."""
        able = [each for each in few if generator.takes_more_rows(each.candidate)]
        rough = [each for each in able if isinstance(each.candidate.kernel, Exponential)]
        if not rough or isinstance(best.candidate.kernel, Exponential):
            return []
        least = _ranked(rough)[0]
        return [least] if least.error < AS_ROUGH * _ranked(able)[0].error else []

    def tried(self, candidate: TunedKernel) -> Judged:
        """Return the errors of a fit to few rows, the penalty chosen by leave-one-out."""
        rows = self.train.lowest(self.effort.tried)
        return self._erring(candidate, rows, Matrices(), chooses=True)

    @property
    def _few(self) -> int:
        return min(len(self.train), self.effort.tried)

    def _erring(
        self,
        candidate: TunedKernel,
        rows: RowSample,
        held: "Matrices",
        chooses: bool = False,
        settles: bool = True,
    ) -> Judged:
        K, across = held.of(candidate, rows.X, self.test.X)
        problem = KernelRows(K, rows.y, rows.w, self.centred)
        few = not self.of_classes and len(rows) <= self.effort.tried
        if self.share is None and (chooses or few):
            judged = self._at_best(problem, across, candidate)
        else:
            if self.share is not None:
                candidate = replace(candidate, alpha=self.share * float(rows.w.sum()))
            judged = self._at_penalty(problem, across, candidate)
            if settles and self.of_classes and self.share is None:
                judged = self._at_smaller(problem, across, judged)
        return judged

    def _at_best(self, problem: KernelRows, across: Array, candidate: TunedKernel) -> Judged:
        """Judge the fit at the penalty of leave-one-out errors, with its largest evidence."""
        penalties = Penalties(problem)
        candidate = replace(candidate, alpha=penalties.best("loo", candidate.alpha, level=NEARLY))
        found = penalties.at(candidate.alpha)
        if found is None:
            return self._failed(candidate)
        fitted = across @ found.coef + found.intercept
        evidence = found.criteria["evidence"][0]
        if not self.of_classes:
            likeliest = penalties.at(penalties.best("evidence", candidate.alpha, level=NEARLY))
            evidence = evidence if likeliest is None else likeliest.criteria["evidence"][0]
        return self._judgement(candidate, fitted, problem, evidence)

    def _at_smaller(self, problem: KernelRows, across: Array, judged: Judged) -> Judged:
        """Judge smaller penalties, for as long as the error falls."""
        while True:
            smaller = replace(judged.candidate, alpha=judged.candidate.alpha / SMALLER)
            found = self._at_penalty(problem, across, smaller)
            if not found.error < (1 - WORTH) * judged.error:
                return judged
            judged = found

    def _at_penalty(self, problem: KernelRows, across: Array, candidate: TunedKernel) -> Judged:
        try:
            coef, intercept, _, evidence = problem.solved(candidate.alpha, 0, COMPARED)
        except LinAlgError:
            return self._failed(candidate)
        return self._judgement(candidate, across @ coef + intercept, problem, evidence)

    def _failed(self, candidate: TunedKernel) -> Judged:
        return Judged(candidate, np.full(len(self.test), np.inf), np.inf, np.inf)

    def _judgement(
        self,
        candidate: TunedKernel,
        fitted: Float[Array, "m t"],
        rows: KernelRows,
        evidence: Float[Array, " t"],
    ) -> Judged:
        lost = relative_losses(self.train, self.test, fitted, self.of_classes)
        likelihood = rows.count * float(evidence[rows.power > 0].sum())
        return Judged(candidate, lost, float(lost.sum() / self.test.w.sum()), likelihood)

    def _below(self, one: Judged, other: Judged) -> bool:
        return one.surely_below(other, self._chance)

    @property
    def _chance(self) -> float:
        """Standard deviations of the difference that a lower error must exceed."""
        return CHANCE_OF_CLASSES if self.of_classes else CHANCE

    def _preferred(self, judged: Judged) -> float:
        """Return what is least of the one that is taken where errors tell no difference.

        Minus the log evidence and one for each number that was tuned (Akaike 1974); of classes,
        whose ±1 are no draws of a process, that number alone.
        """
        numbers = judged.candidate.numbers
        return numbers if self.of_classes else numbers + 0.5 * judged.evidence

    def _noted(self, judged: list[Judged], n: int) -> list[Judged]:
        """Record candidates that were judged with n rows, and return them."""
        stage = f"{n} rows"
        best = min((step.best for step in self.steps if step.stage == stage), default=np.inf)
        for each in judged:
            if np.isfinite(each.error):
                best, share = min(best, each.error), each.candidate.alpha / n
                kernel, passed = each.candidate.kernel, time.perf_counter() - self.started
                self.steps.append(TuningStep(stage, kernel, share, each.error, best, passed))
        return [replace(each, rows=n) for each in judged]

    def _judged(
        self, candidates: list[TunedKernel], rows: RowSample, held: "Matrices"
    ) -> list[Judged]:
        """Fit the best to more rows."""
        judge = partial(self._erring, rows=rows, held=held)
        makes = [partial(_itself, candidate) for candidate in candidates]
        return self._noted(self._all_of(makes, judge, len(rows))[1], len(rows))

    def _sums(self, judged: list[Judged], rows: RowSample, held: "Matrices") -> list[Judged]:
        """Return sums of the first with each of the others that are near, and of three."""
        first, *others = _ranked(judged)[: self.effort.finalists]
        others = [each for each in others if self._near(each, first)]
        both = [partial(self._sum, [first, other], rows, held) for other in others]
        made = zip(side_by_side(both), others, strict=True)
        pairs = [(pair, other) for pair, other in made if pair is not None]
        found = [pair for pair, _ in pairs]
        if len(pairs) > 1 and (best := min(pairs, key=lambda pair: pair[0].error)):
            third = next(each for each in others if each is not best[1])
            three = self._sum([first, best[1], third], rows, held)
            found += [] if three is None else [three]
        return self._noted(found, len(rows))

    def _sum(self, parts: list[Judged], rows: RowSample, held: "Matrices") -> Judged | None:
        """Return the mean of kernels: a machine of each, with one penalty; None if not served."""
        shares = self._shares([each.candidate.alpha for each in parts])
        both = _sum([each.candidate for each in parts], shares)
        if not self.serves(both.kernel):
            return None
        began = time.perf_counter()
        judged = self._erring(both, rows, held, settles=False)
        return replace(judged, seconds=time.perf_counter() - began)

    def _shares(self, alphas: list[float]) -> list[float]:
        """Return the share of each kernel in a mean: equal, unless penalties are known to differ.

        K = Σ K_i/α_i has the penalty α_i for the machine of each kernel K_i. Penalties that few
        rows have chosen say too little for that.
        """
        if not self.of_classes or max(alphas) <= APART * min(alphas):
            return [1 / len(alphas)] * len(alphas)
        each = 1 / np.array(alphas)
        return [significant(share) for share in (each / each.sum()).tolist()]

    def _compared(self, judged: list[Judged], before: list[Judged], rows: RowSample) -> Tuning:
        """Take the likeliest of those with about the least error; of classes the simplest."""
        order = sorted(judged, key=self._preferred)
        best, gains = order[0], [(np.nan, np.nan)]
        for each in order[1:]:
            gains.append(each.gain(best, self._chance))
            best = each if self._below(each, best) else best
        seconds, known = dict[str, float](), dict[str, KernelComparison]()
        gains += [(np.nan, np.nan)] * len(before)
        for each, (gain, required) in zip((*order, *before), gains, strict=True):
            own = each.candidate
            seconds[own.name] = seconds.get(own.name, 0.0) + each.seconds
            compared = KernelComparison(
                own.numbers,
                own.kernel,
                each.error,
                gain,
                required,
                each is best,
                MEASURES[self.of_classes],
                own.name,
                each.rows,
            )
            known.setdefault(own.name, compared)
        squared = nested_errors([j.squared for j in order])
        return Tuning(
            best.candidate.kernel,
            best.candidate.alpha / float(rows.w.sum()),
            float(squared.sum() / self.test.w.sum()),
            "loo",
            tuple(self.steps),
            compared=tuple(replace(c, seconds=seconds[c.name]) for c in known.values()),
        )


@dataclass(frozen=True, eq=False)
class Matrices:
    """Kernel matrices of the same rows, by kernels: each is made once."""

    found: dict[Kernel, tuple[Array, Array]] = field(default_factory=dict)

    def of(self, candidate: TunedKernel, X: Array, test: Array) -> tuple[Array, Array]:
        """Return kernel values of the rows of a fit, and of the rows held out with these."""
        if candidate.parts:
            both = [self.of(part, X, test) for part in candidate.parts]
            pairs = (list(each) for each in zip(*both, strict=True))
            K, across = (_averaged(each, candidate.shares) for each in pairs)
            return K, across
        kernel = candidate.kernel
        if kernel not in self.found:
            self.found[kernel] = kernel_matrix(kernel, X), kernel(test, X)
        return self.found[kernel]


def _itself(candidate: TunedKernel) -> list[TunedKernel]:
    return [candidate]


def _more_of(generator: Generator, candidate: TunedKernel) -> list[TunedKernel]:
    return [generator.with_more_rows(candidate)]


def _ranked(judged: list[Judged]) -> list[Judged]:
    return sorted(judged, key=lambda each: each.error)


def _averaged(matrices: list[Array], shares: tuple[float, ...]) -> Array:
    """Return the mean of matrices, a band of rows after the other: what is made stays in cache."""
    mean = np.empty_like(matrices[0])
    for start in range(0, len(mean), BAND):
        here = slice(start, start + BAND)
        np.multiply(shares[0], matrices[0][here], out=mean[here])
        for share, each in zip(shares[1:], matrices[1:], strict=True):
            mean[here] += share * each[here]
    return mean


def _sum(parts: list[TunedKernel], shares: list[float]) -> TunedKernel:
    """Return the mean of kernels: a machine of each, with one penalty."""
    kernels = [share * each.kernel for share, each in zip(shares, parts, strict=True)]
    kernel: Kernel = kernels[0]
    for other in kernels[1:]:
        kernel = kernel + other
    alphas = np.array([each.alpha for each in parts]) * shares
    alpha = len(parts) * float(np.exp(np.mean(np.log(alphas))))
    name = " + ".join(each.name for each in parts)
    numbers = sum(each.numbers for each in parts)
    return TunedKernel(name, kernel, alpha, numbers, tuple(parts), tuple(shares))
