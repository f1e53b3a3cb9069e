"""Candidates for a kernel, compared on held-out rows: all with few rows, the best with more.

The least error of fits to few rows is not always the least with many, so the last comparison uses
as many rows as time allows; there sums of kernels are tried too. All candidates predict the same
rows: two are compared by the mean of the differences of their losses
(:mod:`bochner.selection.held_out`) and its standard error.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.threads import side_by_side
from bochner.data.sample import RowSample
from bochner.kernels.algebra import BAND, kernel_matrix
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Radial
from bochner.selection.held_out import nested_errors, reduction, relative_losses
from bochner.selection.record import MEASURES, KernelComparison, Tuning
from bochner.selection.rows import significant
from bochner.selection.spec import Effort
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import COMPARED, Penalties

#: Share of the error, and number of standard errors of the difference, by which another kernel must
#: lower the error of a kernel with more evidence. Held-out rows lie between the rows of the fit:
#: they cannot tell a long lengthscale with a huge amplitude, a polynomial beyond the data, from the
#: right kernel; the evidence can.
WORTH, CHANCE = 0.003, 1.0
#: The number of standard errors for classes, where the simpler kernel is preferred, and for one
#: column, where the evidence of few rows determines the only lengthscale.
CHANCE_OF_CLASSES, CHANCE_OF_ONE = 0.5, 2.0
#: Slope ∂log(error)/∂log α at which a penalty is accepted: the error is 0.1 % above its least.
NEARLY = 0.015


@dataclass(frozen=True, eq=False)
class TunedKernel:
    """A tuned kernel in the units of the data, and where the search for its penalty starts."""

    name: str
    kernel: Kernel
    alpha: float
    numbers: int  # Tuned numbers without the penalty


#: Yields candidates as they are tuned.
Make = Callable[[], Iterable[TunedKernel]]


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate and its loss on the held-out rows."""

    candidate: TunedKernel  # With its best penalty
    squared: Float[Array, " m"]  # Weighted loss of each row: squared error or log loss
    error: float  # Weighted mean of the losses; 1 is the loss of the best constant
    evidence: float  # Minus twice the log evidence, summed over targets
    rows: int = 0  # Rows of the fit
    seconds: float = 0.0  # Time to tune and judge it
    made: TunedKernel | None = None  # The candidate as it was tuned


@dataclass(frozen=True, eq=False)
class Rung:
    """Rows of the fits of one comparison, and kernel values that several fits need."""

    rows: RowSample
    chooses: bool = False  # Whether each fit has the penalty of leave-one-out errors
    known: dict[Kernel, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Race:
    """The comparison of candidates: rows to fit, held-out rows, and what was evaluated."""

    train: RowSample
    test: RowSample
    effort: Effort
    centred: bool
    share: float | None
    serves: Callable[[Kernel], bool]
    of_classes: bool = False

    def best(self, generator: Any) -> Tuning:
        """Return the best candidate or sum of a :class:`.candidates.Candidates`, and the record."""
        first, few = self._few, self._all_of(generator.starts(), self._few)
        few += self._all_of(generator.others(few[-1].made), first) if few else []
        radial = [j for j in few if isinstance(j.candidate.kernel, Radial)]
        if radial:
            best = _ranked(radial)[0].candidate
            few += self._all_of([partial(generator.turned, best)], first)
        rung = Rung(self.train.lowest(self.effort.more))
        judged = self._judged(self._finalists(few), rung)
        judged += self._with_more_rows(generator, judged, few, rung)
        last = self.train.lowest(self.effort.last)
        final, out = judged, few
        if len(last) >= 1.5 * len(rung.rows):
            rung, out = Rung(last), judged + few
            final = self._judged(self._finalists(judged), rung)
        return self._compared([*final, *self._sums(final, rung)], out, rung.rows)

    # --- stages ----------------------------------------------------------------------------------

    @property
    def _few(self) -> Rung:
        return Rung(self.train.lowest(self.effort.rows), chooses=True)

    def tried(self, candidate: TunedKernel) -> Judged:
        """Return the errors of a fit to few rows, with the penalty of leave-one-out errors."""
        return self._erring(candidate, self._few)

    def _all_of(self, makes: Sequence[Make], rung: Rung) -> list[Judged]:
        """Tune candidates side by side, and judge each."""

        def each(number: int, make: Make) -> list[Judged]:
            began, found = time.perf_counter(), []
            for made in make():
                judged, now = self._erring(made, rung), time.perf_counter()
                found.append(replace(judged, seconds=now - began, made=made))
                text = f"{made.name}, held-out error {judged.error:.4g}"
                stage = f"Choosing the kernel with {len(rung.rows):,} rows: candidate"
                progress(stage, text, number + 1, len(makes))
                began = time.perf_counter()
            return found

        found = chain(*side_by_side([partial(each, *make) for make in enumerate(makes)]))
        return list(found)

    def _finalists(self, judged: list[Judged]) -> list[TunedKernel]:
        """Return the best candidates near the least error, and the simplest one.

        Candidates that do not differ from the least come first, in the order of preference.
        """
        ranked = _ranked(judged)
        near = [j for j in ranked if self._near(j, ranked[0])]
        tied = {id(j): self._preference(j) for j in near if not self._below(ranked[0], j)}
        near = sorted(near, key=lambda j: tied.get(id(j), np.inf))
        last = near[: self.effort.finalists]
        simple = min((j for j in ranked if j.candidate.numbers <= 1), key=lambda j: j.error)
        last += [] if any(j is simple for j in last) else [simple]
        return [each.candidate for each in last]

    def _near(self, judged: Judged, best: Judged) -> bool:
        """Whether an error is near the least; a row or two make up .02 of a log loss."""
        return not judged.error > 1.3 * best.error + 0.02 * self.of_classes

    def _with_more_rows(
        self, generator: Any, judged: list[Judged], few: list[Judged], rung: Rung
    ) -> list[Judged]:
        """Tune the best with more rows, if it is not far from the best of all.

        The exponential kernel that is about as good with few rows is tuned too; then rougher
        kernels take the scales of the first.
        """
        best = self._best_to_tune(generator, judged, few)
        if best is None:
            return []
        both = (best, *self._rough(generator, best, few))
        makes = [partial(generator.with_more_rows, each.candidate) for each in both]
        first, *rough = self._all_of(makes, rung)
        return [first, *self._all_of(generator.rougher(first.made), rung), *rough]

    def _best_to_tune(self, generator: Any, *stages: list[Judged]) -> Judged | None:
        for stage in stages:
            able = [each for each in stage if generator.takes_more_rows(each.candidate)]
            if able:
                best = _ranked(able)[0]
                return best if self._near(best, _ranked(stage)[0]) else None
        return None

    def _rough(self, generator: Any, best: Judged, few: list[Judged]) -> list[Judged]:
        """Return the exponential kernel whose error with few rows is near the least.

        Short lengthscales need many rows.
        """
        able = [each for each in few if generator.takes_more_rows(each.candidate)]
        rough = [each for each in able if isinstance(each.candidate.kernel, Exponential)]
        if not rough or isinstance(best.candidate.kernel, Exponential):
            return []
        least = _ranked(rough)[0]
        return [least] if least.error < 1.04 * _ranked(able)[0].error else []

    def _judged(self, candidates: list[TunedKernel], rung: Rung) -> list[Judged]:
        """Fit candidates to more rows."""
        return self._all_of([partial(iter, [each]) for each in candidates], rung)

    def _sums(self, judged: list[Judged], rung: Rung) -> list[Judged]:
        """Return sums of the first with each of the others that are near, and of three."""
        first, *others = _ranked(judged)[: self.effort.finalists]
        others = [each for each in others if self._near(each, first)]
        made = side_by_side([partial(self._sum, [first, other], rung) for other in others])
        pairs = [
            (pair, other) for pair, other in zip(made, others, strict=True) if pair is not None
        ]
        sums = [pair for pair, _ in pairs]
        if len(pairs) > 1:
            best = min(pairs, key=lambda pair: pair[0].error)[1]
            third = next(each for each in others if each is not best)
            three = self._sum([first, best, third], rung)
            sums += [] if three is None else [three]
        return sums

    def _sum(self, parts: list[Judged], rung: Rung) -> Judged | None:
        """Return the weighted mean of kernels with one penalty; None if it is not served.

        Weights are equal, unless penalties of classes differ by a factor above 4: K = Σ K_i/α_i has
        the penalty α_i for each kernel K_i.
        """
        began, candidates = time.perf_counter(), [each.candidate for each in parts]
        alphas = np.array([each.alpha for each in candidates])
        shares = [1 / len(parts)] * len(parts)
        if self.of_classes and max(alphas) > 4 * min(alphas):
            shares = [significant(share) for share in (1 / alphas / (1 / alphas).sum()).tolist()]
        terms = (share * each.kernel for share, each in zip(shares, candidates, strict=True))
        kernel: Kernel = reduce(add, terms)
        if not self.serves(kernel):
            return None
        alpha = len(parts) * float(np.exp(np.mean(np.log(alphas * shares))))
        name, numbers = " + ".join(c.name for c in candidates), sum(c.numbers for c in candidates)
        each = zip(*(self._matrices(part.kernel, rung) for part in candidates), strict=True)
        K, across = (_weighted_mean(list(matrices), shares) for matrices in each)
        judged = self._erring(TunedKernel(name, kernel, alpha, numbers), rung, (K, across))
        return replace(judged, seconds=time.perf_counter() - began)

    # --- one candidate ---------------------------------------------------------------------------

    def _erring(
        self, candidate: TunedKernel, rung: Rung, of_sum: tuple[Array, Array] | None = None
    ) -> Judged:
        rows = rung.rows
        K, across = of_sum or self._matrices(candidate.kernel, rung)
        problem = KernelRows(K, rows.y, rows.w, self.centred)
        few = not self.of_classes and len(rows) <= self.effort.rows
        if self.share is None and (rung.chooses or few):
            return self._at_best(problem, across, candidate)
        if self.share is not None:
            candidate = replace(candidate, alpha=self.share * float(rows.w.sum()))
        judged = self._at_penalty(problem, across, candidate)
        if self.of_classes and self.share is None and of_sum is None:
            judged = self._at_smaller(problem, across, judged)
        return judged

    def _matrices(self, kernel: Kernel, rung: Rung) -> tuple[Array, Array]:
        """Return the kernel values of a candidate; those of few rows are not kept."""
        if kernel in rung.known:
            return rung.known[kernel]
        both = kernel_matrix(kernel, rung.rows.X), kernel(self.test.X, rung.rows.X)
        if not rung.chooses:
            rung.known[kernel] = both
        return both

    def _at_best(self, problem: KernelRows, across: Array, candidate: TunedKernel) -> Judged:
        """Judge the fit at the penalty of leave-one-out errors, with its largest evidence."""
        penalties = Penalties(problem)
        candidate = replace(candidate, alpha=penalties.best("loo", candidate.alpha, level=NEARLY))
        fit = penalties.at(candidate.alpha)
        if fit is None:
            return self._failed(candidate)
        fitted, evidence = across @ fit.coef + fit.intercept, fit.criteria["evidence"][0]
        if not self.of_classes:
            likeliest = penalties.at(penalties.best("evidence", candidate.alpha, level=NEARLY))
            evidence = evidence if likeliest is None else likeliest.criteria["evidence"][0]
        return self._judgement(candidate, fitted, problem, evidence)

    def _at_smaller(self, problem: KernelRows, across: Array, judged: Judged) -> Judged:
        """Judge smaller penalties while the error falls."""
        while True:
            smaller = replace(judged.candidate, alpha=judged.candidate.alpha / 4)
            other = self._at_penalty(problem, across, smaller)
            if not other.error < (1 - WORTH) * judged.error:
                return judged
            judged = other

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
        losses = relative_losses(self.train, self.test, fitted, self.of_classes)
        likelihood = rows.count * float(evidence[rows.power > 0].sum())
        error = float(losses.sum() / self.test.w.sum())
        return Judged(candidate, losses, error, likelihood, len(rows.w))

    # --- the choice ------------------------------------------------------------------------------

    def _below(self, one: Judged, other: Judged) -> bool:
        """Whether an error is lower by the required share of itself, and by more than chance."""
        gain, required = reduction(one, other, WORTH, self._chance)
        return gain > required

    @property
    def _chance(self) -> float:
        if self.of_classes:
            return CHANCE_OF_CLASSES
        return CHANCE if self.train.X.shape[1] > 1 else CHANCE_OF_ONE

    def _preference(self, judged: Judged) -> float:
        """Return a number that is least for the candidate that is taken in a tie.

        Minus the log evidence and one for each tuned number (Akaike 1974); for classes, whose ±1
        are no draws of a process, the number of numbers alone.
        """
        numbers = judged.candidate.numbers
        return numbers if self.of_classes else numbers + 0.5 * judged.evidence

    def _compared(self, judged: list[Judged], before: list[Judged], rows: RowSample) -> Tuning:
        """Return the first candidate in the order of preference that no other is surely below."""
        order = sorted(judged, key=self._preference)
        best, gains = order[0], [(np.nan, np.nan)]
        for each in order[1:]:
            gains.append(reduction(each, best, WORTH, self._chance))
            best = each if self._below(each, best) else best
        seconds, known = dict[str, float](), dict[str, KernelComparison]()
        gains += [(np.nan, np.nan)] * len(before)
        for each, (gain, required) in zip((*order, *before), gains, strict=True):
            c, measure = each.candidate, MEASURES[self.of_classes]
            seconds[c.name] = seconds.get(c.name, 0.0) + each.seconds
            numbers = each.error, gain, required, each is best, measure, c.name, each.rows
            known.setdefault(c.name, KernelComparison(c.numbers, c.kernel, *numbers))
        squared = nested_errors([j.squared for j in order])
        return Tuning(
            best.candidate.kernel,
            best.candidate.alpha / float(rows.w.sum()),
            float(squared.sum() / self.test.w.sum()),
            "loo",
            compared=tuple(replace(c, seconds=seconds[c.name]) for c in known.values()),
        )


def _ranked(judged: list[Judged]) -> list[Judged]:
    return sorted(judged, key=lambda each: each.error)


def _weighted_mean(matrices: list[Array], shares: list[float]) -> Array:
    """Return the weighted mean of matrices, computed in bands of rows that stay in cache."""
    mean = np.empty_like(matrices[0])
    for start in range(0, len(mean), BAND):
        here = slice(start, start + BAND)
        np.multiply(shares[0], matrices[0][here], out=mean[here])
        for share, each in zip(shares[1:], matrices[1:], strict=True):
            mean[here] += share * each[here]
    return mean
