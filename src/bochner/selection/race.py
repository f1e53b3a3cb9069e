"""The race of candidates for a kernel.

No single way to choose a kernel is best on every table. All candidates are tuned on kernel matrices
of a few hundred rows and compared on held-out rows. The best are compared again with more rows,
together with sums of kernels. docs/search.md has the gain of each rule.
"""

import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import chain, combinations
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.arrays import is_sparse
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.threads import side_by_side
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.algebra import Mahalanobis, kernel_matrix
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Columns, Kernel
from bochner.kernels.stationary import Exponential, Gaussian, Laplace, Radial
from bochner.kernels.stationary_families import Matern
from bochner.selection.held_out import (
    nested_errors,
    reduction,
    relative_losses,
    split_rows,
    targets_that_vary,
)
from bochner.selection.lengthscales import EVIDENCE, Evaluation, MatrixSearch, cap_scales, least
from bochner.selection.metric import MANY_COLUMNS, TunedKernel, entries, metric_of, metric_rounds
from bochner.selection.record import HELD_OUT, LOG_LOSS, KernelComparison, Tuning
from bochner.selection.rows import laplace_scales, median_distance, near_rows, rounded, significant
from bochner.selection.spec import EFFORTS, Effort
from bochner.solvers.ridge.dual import LOO, Criterion, KernelRows
from bochner.solvers.ridge.kernel_path import COMPARED, Penalties

#: Relative reduction of the error that is required of a kernel with less evidence. Held-out rows
#: are between the rows of the fit. There a kernel of long lengthscale and huge amplitude
#: (a polynomial outside the data) can have the error of the right kernel, but less evidence.
WORTH = 0.003

#: Prior standard deviation of the log of the amplitude over the variance of y, if above 1. Of two
#: kernels with similar evidence, the one with the smaller amplitude extrapolates less.
AMPLITUDE = 1.5

#: A linear kernel continues a trend where other kernels return to the mean. With more evidence
#: its error may be three standard errors higher: otherwise, on 4 of 50 tables of 200 rows with a
#: trend in two columns, the chosen kernel had errors above ten noise deviations outside the data.
LINEAR = "linear"

#: Slope ∂log(error)/∂log α at which the penalty of a candidate is accepted.
LEVEL = 0.1

Make = Callable[[], Iterable[TunedKernel]]  # Yields candidates as they are tuned


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate and its loss on the held-out rows."""

    candidate: TunedKernel  # With its best penalty
    squared: Float[Array, " m"]  # Weighted loss of each row: squared error or log loss
    error: float  # Weighted mean of the losses; 1 is the loss of the best constant
    of_evidence: Callable[[], float]
    fitted: Any = None  # Predictions of the held-out rows
    rows: int = 0  # Rows of the fit
    seconds: float = 0.0  # Time to tune and judge it
    base: Any = None  # The candidate as it was tuned

    @cached_property
    def evidence(self) -> float:
        """Minus twice the log evidence of all targets and the log prior of the amplitude."""
        return self.of_evidence()


@dataclass(frozen=True, eq=False)
class Rung:
    """Training rows of one comparison."""

    rows: RowSample
    chooses: bool = False  # Whether leave-one-out errors choose each penalty


@dataclass(frozen=True, eq=False)
class Race:
    """The comparison of candidates."""

    train: RowSample
    test: RowSample  # Held out
    seed: int
    effort: Effort
    centred: bool = True  # Whether an intercept is fitted
    share: float | None = None  # A given penalty per row
    serves: Callable[[Kernel], bool] = lambda _: True  # Whether the features support a kernel
    of_classes: bool = False

    @staticmethod
    def of(sample: RowSample, seed: int, effort: Effort, **options: Any) -> "Race | None":
        """Hold out a quarter of the rows; None if the rows for tuning do not vary, in X or y."""
        sample = replace(sample, y=sample.y[:, np.ptp(sample.y, axis=0) > 0])
        train, test = split_rows(sample, seed)
        varies = targets_that_vary(train.lowest(effort.rows))
        if not np.any(varies):
            return None
        if not options.get("of_classes"):
            train, test = (replace(rows, y=rows.y[:, varies]) for rows in (train, test))
        return Race(train, test, seed, effort, **options)

    def best(self) -> Tuning:
        """Return the best candidate or sum, with the record of the comparison."""
        starts = [self._one_scale, self._per_column] if self._columns else [self._one_scale]
        first, few = self.few, self._judge_all(starts, self.few)
        few += self._judge_all(self._families(few[-1].base), first) if few else []
        radial = [j for j in few if isinstance(j.candidate.kernel, Radial)]
        if radial:
            best = _rank(radial)[0].candidate
            most = 1.05 * _rank(few)[0].error if self._is_brief else np.inf
            few += self._judge_all([partial(self._metrics, best)], first, most)
        if radial and self._columns and not self.of_classes:
            few += self._judge_all([partial(self._linear, few[-1].candidate)], first)
        rung = Rung(self.train.lowest(2 * self.effort.rows))
        judged = self._judge_again(few, rung)
        judged += self._with_more_rows(judged, few, rung)
        return self.choose([*judged, *self._sums(judged, rung)], few, rung.rows.w)

    # --- stages ----------------------------------------------------------------------------------

    @property
    def few(self) -> Rung:
        return Rung(self.train.lowest(self.effort.rows), chooses=True)

    def _judge_all(self, makes: Sequence[Make], rung: Rung, most: float = np.inf) -> list[Trial]:
        """Tune and judge candidates in parallel; each generator ends at an error above ``most``."""

        def each(number: int, make: Make) -> list[Trial]:
            began, results = time.perf_counter(), []
            for base in filter(lambda base: self.serves(base.kernel), make()):
                judged = self._assess(base, rung)
                results.append(replace(judged, seconds=time.perf_counter() - began, base=base))
                began = time.perf_counter()
                text = f"{base.name}, held-out error {results[-1].error:.4g}"
                stage = f"Choosing the kernel with {len(rung.rows):,} rows: candidate"
                progress(stage, text, number + 1, len(makes))
                if results[-1].error > most:
                    break
            return results

        return [*chain(*side_by_side([partial(each, *make) for make in enumerate(makes)]))]

    def _judge_again(self, judged: list[Trial], rung: Rung) -> list[Trial]:
        """Judge the best candidates and the simplest one with more rows."""
        ranked = _rank(judged)
        near = [j for j in ranked if self._is_near(j, ranked[0])]
        below = lambda j: operator.gt(*self._reduction(ranked[0], j))
        order = lambda j: np.inf if below(j) else self._preference(j)
        last = sorted(near, key=order)[: self.effort.finalists]
        simple = next(j for j in ranked if j.candidate.numbers <= 1)
        last += [] if any(j is simple for j in last) else [simple]
        if not self.of_classes and all(j.rows == len(rung.rows) for j in last):
            return last  # classes try smaller penalties
        return self.judge([each.candidate for each in last], rung)

    def _is_near(self, judged: Trial, best: Trial) -> bool:
        """Whether an error is near the smallest; one or two rows change a log loss by 0.02."""
        return not judged.error > 1.3 * best.error + 0.02 * self.of_classes

    def _with_more_rows(self, judged: list[Trial], few: list[Trial], rung: Rung) -> list[Trial]:
        """Tune the best kernel of per-column lengthscales, and rough kernels, with more rows."""
        able = [each for each in few if self._takes_more_rows(each.candidate)]
        later = [each for each in judged if self._takes_more_rows(each.candidate)]
        stage, tuned = (judged, later) if later else (few, able)
        if not tuned or not self._is_near(best := _rank(tuned)[0], _rank(stage)[0]):
            return []
        both = [best, *self._rough(best, able)]
        first, *rough = self._judge_all([partial(self._more_rows, j.candidate) for j in both], rung)
        return [first, *self._judge_all(self._rougher(first.base), rung), *rough]

    def _rough(self, best: Trial, able: list[Trial]) -> list[Trial]:
        """Return the best exponential kernel if its error is near the least: it needs many rows."""
        rough = [each for each in able if isinstance(each.candidate.kernel, Exponential)]
        if not rough or isinstance(best.candidate.kernel, Exponential):
            return []
        least = _rank(rough)[0]
        return [least] if least.error < 1.04 * _rank(able)[0].error else []

    def judge(self, candidates: list[TunedKernel], rung: Rung) -> list[Trial]:
        return self._judge_all([partial(iter, [each]) for each in candidates], rung)

    def _sums(self, judged: list[Trial], rung: Rung) -> list[Trial]:
        """Return the sum of two or three kernels whose mean prediction has the least error."""
        first, *others = _rank(judged)[: self.effort.finalists]
        others = [j for j in others if j.fitted is not None and self._is_near(j, first)]
        sums = [[first, *some] for k in (1, 2) for some in combinations(others, k)]

        def error_of_mean(parts: list[Trial]) -> float:
            fitted = np.mean([each.fitted for each in parts], axis=0)
            return float(relative_losses(self.train, self.test, fitted, self.of_classes).sum())

        best = self._sum(min(sums, key=error_of_mean), rung) if sums else None
        return [] if best is None else [best]

    def _sum(self, parts: list[Trial], rung: Rung) -> Trial | None:
        """Judge the weighted mean of kernels, with one penalty; None if it is not supported."""
        began, candidates = time.perf_counter(), [each.candidate for each in parts]
        alphas = np.array([each.alpha for each in candidates])
        shares = [1 / len(parts)] * len(parts)
        if self.of_classes and max(alphas) > 4 * min(alphas):
            shares = [significant(share) for share in (1 / alphas / (1 / alphas).sum()).tolist()]
        kernels = [each.kernel for each in candidates]
        kernel: Kernel = reduce(operator.add, map(operator.mul, shares, kernels))
        if not self.serves(kernel):
            return None
        alpha = len(parts) * float(np.exp(np.mean(np.log(alphas * shares))))
        name, numbers = " + ".join(c.name for c in candidates), sum(c.numbers for c in candidates)
        judged = self._assess(TunedKernel(name, kernel, alpha, numbers), rung, is_sum=True)
        return replace(judged, seconds=time.perf_counter() - began)

    # --- candidates ------------------------------------------------------------------------------

    def _families(self, start: TunedKernel) -> list[Make]:
        if not self._columns:
            return []
        several = self.train.X.shape[1] > 1
        makes: list[Make] = [partial(self._additive, start)] * (several and self.of_classes)
        families = (*self.effort.families, *([Laplace()] if several else []))
        makes += [partial(self._rescale, family, start, self._criterion) for family in families]
        return [*makes, partial(self._by_errors, start)] if self._criterion is EVIDENCE else makes

    def _rougher(self, start: TunedKernel) -> list[Make]:
        others = [f for f in (Exponential(), Laplace()) if type(f) is not type(start.kernel)]
        return [partial(self._rescale, family, start, LOO) for family in others]

    def _metrics(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield kernels in metrics learned from the gradients of fits."""
        kernel, X = start.kernel, self.train.X
        if isinstance(kernel, Radial) and 1 < X.shape[1] <= MANY_COLUMNS and not is_sparse(X):
            search, rounds = self.search(LOO), self.effort.rounds
            yield from metric_rounds(kernel, start.alpha, search, rounds, self._is_brief)

    def _linear(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield the linear kernel in the metric of a kernel."""
        rows, kernel = self._few_search.rows, start.kernel
        d = rows.X.shape[1]
        if d > MANY_COLUMNS:
            return
        if isinstance(kernel, Mahalanobis):
            A = np.array(kernel.matrix)
        else:
            A = np.diag(np.broadcast_to(kernel.get_params()["lengthscale"], d) ** -2.0)
        A = A / max(rows.spread @ (np.diag(A) * rows.spread), 1e-300)
        yield TunedKernel(LINEAR, Mahalanobis(Linear(), entries(A)), 1.0, d)

    def _takes_more_rows(self, start: TunedKernel) -> bool:
        """Whether lengthscales per column were tuned on fewer rows than there are."""
        kernel: Any = start.kernel
        columns = isinstance(kernel, Radial) and isinstance(kernel.lengthscale, tuple)
        return columns and start.numbers > 1 and len(self.train) > self.effort.rows

    def _more_rows(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield the candidate tuned on more rows, from lengthscales where the criterion varies."""
        rows, most = self.train, 2 * self.effort.rows
        # Half are neighbourhoods: a random sample does not show columns that only matter locally.
        if len(rows) > most:  # the choice depends on X only: the evidence remains valid
            near = np.unique(near_rows(start.kernel, rows.X, most // 64, size=64, seed=self.seed))
            order = rows.order
            others = order[~np.isin(order, near)][: most - len(near)]
            rows = rows.take(np.sort(np.append(near, others)))
        search = self.search(self._criterion, rows)
        steps = 5 if len(self.train) <= 2048 else 8
        end = search.rescale(cap_scales(start.kernel, search.rows), start.alpha, steps, each=True)
        yield self.candidate(f"{start.name}, more rows", end, start.numbers)

    @property
    def _is_brief(self) -> bool:
        """Whether factors are tuned by short descents on few rows."""
        return len(self.train) <= 2048 or not (self.of_classes or self.train.X.shape[1] == 1)

    @property
    def _criterion(self) -> Criterion:
        return EVIDENCE if self.share is None else LOO

    @property
    def _columns(self) -> bool:
        X = self.train.X
        return X.shape[1] <= 1024 and not is_sparse(X)

    def search(self, by: Criterion, rows: RowSample | None = None) -> MatrixSearch:
        """Return a search by this criterion on ``rows``, by default on few training rows."""
        if rows is None:
            return replace(self._few_search, criterion=by)
        search = MatrixSearch.of(rows, by, self.centred, share=self.share, most=len(rows))
        assert search is not None  # targets vary
        return search

    @cached_property
    def _few_search(self) -> MatrixSearch:
        return self.search(LOO, self.few.rows)

    def _one_scale(self) -> Iterator[TunedKernel]:
        """Yield a kernel with one tuned lengthscale for all columns, original or scaled."""
        search, starts = self.search(LOO), list[Evaluation]()
        rows = search.rows
        scales: list[Any] = [median_distance(rows.X, rows.w, (1.0,), self.seed, most=4096)]
        if np.ptp(rows.spread) > 0.05 * rows.spread.max():
            scales.append(tuple((rows.median * rows.spread).tolist()))
        for scale in map(rounded, scales):
            kernel = next(filter(self.serves, (Gaussian(scale), Matern(1.5, scale))), None)
            if kernel is not None:
                starts.append(least(search.first_points(kernel, (1.0, 0.25))))
        if starts:
            end = search.finish(least(starts), 4, 0)
            scaled = " of scaled columns" * (np.ndim(end.kernel.lengthscale) > 0)
            yield self.candidate(f"one lengthscale{scaled}, by leave-one-out", end, 1)

    def _per_column(self) -> Iterator[TunedKernel]:
        family = next(filter(self.serves, (Matern(1.5), Gaussian())), None)
        if family is None:
            return
        search = self.search(self._criterion)
        rows = search.rows
        start = family.replace(lengthscale=tuple((rows.median * rows.spread).tolist()))
        # Few columns need fewer evaluations; classes (shuttle, pendigits) need more
        steps = 24 if self.of_classes else min(24, 8 + rows.X.shape[1] // 4)
        end = search.finish(search.tune_columns(start, search.first_points(start)), steps, 0)
        again = search.rescale(cap_scales(end.kernel, rows), end.alpha, 16, each=True)
        end = again if again.value < end.value or len(end.of.rows.w) < len(rows.w) else end
        by = "evidence" if self._criterion is EVIDENCE else "leave-one-out"
        yield self.candidate(f"one per column, by {by}", end, rows.X.shape[1])

    def _rescale(self, family: Any, start: TunedKernel, by: Criterion) -> Iterator[TunedKernel]:
        """Yield another family with the lengthscales of a kernel times one tuned factor."""
        search, kernel = self.search(by), start.kernel
        scales: Any = kernel.get_params()["lengthscale"]
        numbers, d = start.numbers, search.rows.X.shape[1]
        if isinstance(family, Laplace):
            scales, numbers = laplace_scales(scales, search.rows.X, search.rows.w, self.seed), d
        first = family.replace(lengthscale=scales)
        evaluations = 4 - 2 * self._is_brief if d > 1 else 16
        end = search.rescale(first, start.alpha, evaluations, few=self._is_brief)
        yield self.candidate(f"{type(family).__name__}, scales as {start.name}", end, numbers)

    def _by_errors(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield lengthscales of least leave-one-out error, starting at the largest evidence."""
        search = self.search(LOO)
        end = search.rescale(start.kernel, start.alpha, 7 if self.of_classes else 3, each=True)
        yield self.candidate("one per column, by leave-one-out", end, search.rows.X.shape[1])

    def _additive(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield a sum of kernels of single columns, with weights spread/lengthscale."""
        X, w, scales = self.train.X, self.train.w, start.kernel.get_params()["lengthscale"]
        spread = np.sqrt(w @ (X - w @ X / w.sum()) ** 2)
        shares = spread / scales / np.sqrt(w.sum())
        two = np.array([len(np.unique(x)) == 2 for x in X.T])
        shares[shares < 1e-3 * shares.sum()] = 0.0
        curves = np.flatnonzero((shares > 0) & ~two)
        curves = np.sort(curves[np.argsort(-shares[curves], kind="stable")[:16]])
        binary = np.flatnonzero((shares > 0) & two)  # In one linear term
        total = float(shares[curves].sum() + shares[binary].sum())
        terms: list[Kernel] = [
            significant(float(shares[j]) / total)
            * Columns(Laplace(significant(float(scales[j]))), (int(j),))
            for j in curves
        ]
        if len(binary) and len(binary) <= MANY_COLUMNS:
            rates = [significant(1 / (float(scales[j]) * total)) for j in binary]
            linear = Mahalanobis(Linear(), tuple(map(tuple, np.diag(rates).tolist())))
            terms.append(Columns(linear, tuple(binary.tolist())))
        if len(curves) and len(terms) > 1:
            kernel = reduce(operator.add, terms)
            yield TunedKernel("sum over columns", kernel, start.alpha, X.shape[1])

    def candidate(self, name: str, end: Any, numbers: int) -> TunedKernel:
        kernel = end.rounded
        if np.shape(kernel.lengthscale) == (1,):
            kernel = kernel.replace(lengthscale=kernel.lengthscale[0])
        weight = max(float(rows.w.sum()) for rows in (end.of.rows, self.few.rows))
        return TunedKernel(name, kernel, end.share * weight, numbers)

    # --- one candidate ---------------------------------------------------------------------------

    def _assess(self, candidate: TunedKernel, rung: Rung, is_sum: bool = False) -> Trial:
        rows, kernel = rung.rows, candidate.kernel
        K, across = kernel_matrix(kernel, rows.X), kernel.evaluate(self.test.X, rows.X)
        problem = KernelRows(K, rows.y, rows.w, self.centred)
        if self.share is not None:
            candidate = replace(candidate, alpha=self.share * float(rows.w.sum()))
        elif rung.chooses:
            return self._at_best(problem, across, candidate)
        judged = self._at_penalty(problem, across, candidate)
        is_open = self.of_classes and self.share is None and not is_sum
        return self._at_smaller(problem, across, judged) if is_open else judged

    def _at_best(self, problem: KernelRows, across: Array, candidate: TunedKernel) -> Trial:
        """Judge at the penalty of least leave-one-out error; evidence is at its best penalty."""
        penalties, start = Penalties(problem, level=LEVEL), candidate.alpha
        alpha = penalties.best("loo", start)
        candidate, fit = replace(candidate, alpha=alpha), penalties.at(alpha)
        if fit is None:
            return self._judgement(candidate, problem)

        def evidence() -> float:
            likeliest = penalties.at(penalties.best("evidence", start)) or fit
            above = np.log(max(penalties.amplitude(likeliest, None), 1.0))
            value = _of_all_targets(problem, likeliest.criteria["evidence"][0])
            return value + float(above / AMPLITUDE) ** 2

        return self._judgement(candidate, problem, across @ fit.coef + fit.intercept, evidence)

    def _at_smaller(self, problem: KernelRows, across: Array, judged: Trial) -> Trial:
        """Judge smaller penalties while the error falls."""
        while True:
            smaller = replace(judged.candidate, alpha=judged.candidate.alpha / 4)
            other = self._at_penalty(problem, across, smaller)
            if not other.error < (1 - WORTH) * judged.error:
                return judged
            judged = other

    def _at_penalty(self, problem: KernelRows, across: Array, candidate: TunedKernel) -> Trial:
        try:
            fit = problem.solve(candidate.alpha, 0, COMPARED)
        except LinAlgError:
            return self._judgement(candidate, problem)
        fitted = across @ fit.coef + fit.intercept
        evidence = _of_all_targets(problem, fit.evidence)
        return self._judgement(candidate, problem, fitted, lambda: evidence)

    def _judgement(
        self, candidate: TunedKernel, rows: KernelRows, fitted: Any = None, evidence: Any = None
    ) -> Trial:
        """Judge predictions of the held-out rows; the error is infinite if there are none."""
        if fitted is None:
            return Trial(candidate, np.full(len(self.test), np.inf), np.inf, lambda: np.inf)
        losses = relative_losses(self.train, self.test, fitted, self.of_classes)
        error = float(losses.sum() / self.test.w.sum())
        return Trial(candidate, losses, error, evidence, fitted, len(rows.w))

    # --- the choice ------------------------------------------------------------------------------

    def _reduction(self, one: Trial, other: Trial) -> tuple[float, float]:
        """Return the reduction of the error from ``other`` to ``one``, and the required one."""
        # With one column, and for a linear kernel, the evidence of few rows is reliable
        sure = self.train.X.shape[1] == 1 or other.candidate.name == LINEAR
        chance = 0.5 if self.of_classes else 3.0 if sure else 1.0
        return reduction(one, other, WORTH, chance)

    def _preference(self, judged: Trial) -> float:
        """Return half of AIC (Akaike 1974), for classes its first term; least is preferred."""
        numbers = judged.candidate.numbers
        return numbers if self.of_classes else numbers + 0.5 * judged.evidence

    def choose(self, judged: list[Trial], before: list[Trial], w: Array) -> Tuning:
        """Choose the preferred candidate, or one whose error is lower by more than is required."""
        order = sorted(judged, key=self._preference)
        before = [each for each in before if each not in order]
        best, gains = order[0], [(np.nan, np.nan)] * len([*order, *before])
        for k, each in enumerate(order[1:], start=1):
            gains[k] = self._reduction(each, best)
            best = each if gains[k][0] > gains[k][1] else best
        known, measure = dict[str, KernelComparison](), LOG_LOSS if self.of_classes else HELD_OUT
        for each, gain in zip([*order, *before], gains, strict=True):
            of = each.candidate
            values = each.error, *gain, each is best, measure, of.name, each.rows, 0.0
            last = known.setdefault(of.name, KernelComparison(of.numbers, of.kernel, *values))
            known[of.name] = replace(last, seconds=last.seconds + each.seconds)
        squared = nested_errors([j.squared for j in order])
        return Tuning(
            best.candidate.kernel,
            best.candidate.alpha / float(w.sum()),
            float(squared.sum() / self.test.w.sum()),
            "loo",
            compared=tuple(known.values()),
        )


def learn_metric(kernel: Kernel, sample: RowSample, seed: int) -> Tuning:
    """Learn a metric from a sample of rows: the best of the start and four rounds of learning."""
    if is_sparse(sample.X):
        raise InvalidInput(
            'metric="learned" requires dense rows; got sparse ones. Pass X.toarray(), or tune '
            "lengthscales instead."
        )
    if not isinstance(kernel, Radial):
        raise UnsupportedKernel(
            'metric="learned" requires a kernel of the Euclidean distance (Gaussian, Matern, '
            f"Exponential, RationalQuadratic); got {kernel!r}. Use one of these kernels."
        )
    race = Race.of(sample, seed, replace(EFFORTS["medium"], rows=1024))
    if race is None:
        return Tuning(kernel, matrix=entries(np.eye(sample.X.shape[1])))
    search = race.search(LOO)
    start = race.candidate("start", search.tune_factor(kernel), 1)
    turned = metric_rounds(start.kernel, start.alpha, search, rounds=4)
    tuning = race.choose(race.judge([start, *turned], race.few), [], search.rows.w)
    return replace(tuning, matrix=metric_of(tuning.kernel, search.rows.spread))


def _of_all_targets(rows: KernelRows, evidence: Float[Array, " t"]) -> float:
    return rows.count * float(evidence[rows.power > 0].sum())


def _rank(judged: list[Trial]) -> list[Trial]:
    return sorted(judged, key=lambda each: each.error)
