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
from bochner.selection.lengthscales import EVIDENCE, Evaluation, MatrixSearch, cap_scales, lowest
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
    losses: Float[Array, " m"]  # Weighted loss of each row: squared error or log loss
    error: float  # Weighted mean of the losses; 1 is the loss of the best constant
    evidence_function: Callable[[], float]
    fitted: Any = None  # Predictions of the held-out rows
    rows: int = 0  # Rows of the fit
    seconds: float = 0.0  # Time to tune and evaluate it
    base: Any = None  # The candidate as it was tuned

    @cached_property
    def evidence(self) -> float:
        """Minus twice the log evidence of all targets and the log prior of the amplitude."""
        return self.evidence_function()


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
        starts = [self._single_scale, self._per_column] if self._columns else [self._single_scale]
        first, trials = self.first_rung, self._run_all(starts, self.first_rung)
        trials += self._run_all(self._families(trials[-1].base), first) if trials else []
        radial = [trial for trial in trials if isinstance(trial.candidate.kernel, Radial)]
        if radial:
            best = _rank(radial)[0].candidate
            limit = 1.05 * _rank(trials)[0].error if self._is_brief else np.inf
            trials += self._run_all([partial(self._metrics, best)], first, limit)
        if radial and self._columns and not self.of_classes:
            trials += self._run_all([partial(self._linear, trials[-1].candidate)], first)
        rung = Rung(self.train.lowest(2 * self.effort.rows))
        finalists = self._evaluate_best(trials, rung)
        finalists += self._add_rows(finalists, trials, rung)
        return self.choose([*finalists, *self._sums(finalists, rung)], trials, rung.rows.w)

    # --- stages ----------------------------------------------------------------------------------

    @property
    def first_rung(self) -> Rung:
        return Rung(self.train.lowest(self.effort.rows), chooses=True)

    def _run_all(self, makes: Sequence[Make], rung: Rung, limit: float = np.inf) -> list[Trial]:
        """Tune and evaluate candidates in parallel; generators end at an error above ``limit``."""

        def run(number: int, make: Make) -> list[Trial]:
            began, results = time.perf_counter(), []
            for base in filter(lambda base: self.serves(base.kernel), make()):
                trial = self._evaluate(base, rung)
                results.append(replace(trial, seconds=time.perf_counter() - began, base=base))
                began = time.perf_counter()
                text = f"{base.name}, held-out error {results[-1].error:.4g}"
                stage = f"Choosing the kernel with {len(rung.rows):,} rows: candidate"
                progress(stage, text, number + 1, len(makes))
                if results[-1].error > limit:
                    break
            return results

        return [*chain(*side_by_side([partial(run, *make) for make in enumerate(makes)]))]

    def _evaluate_best(self, trials: list[Trial], rung: Rung) -> list[Trial]:
        """Evaluate the best candidates and the simplest one with more rows."""
        ranked = _rank(trials)
        close = [trial for trial in ranked if self._is_close(trial, ranked[0])]
        is_worse = lambda trial: operator.gt(*self._reduction(ranked[0], trial))
        order = lambda trial: np.inf if is_worse(trial) else self._preference(trial)
        finalists = sorted(close, key=order)[: self.effort.finalists]
        simple = next(trial for trial in ranked if trial.candidate.n_tuned <= 1)
        finalists += [] if any(trial is simple for trial in finalists) else [simple]
        if not self.of_classes and all(trial.rows == len(rung.rows) for trial in finalists):
            return finalists  # classes try smaller penalties
        return self.evaluate([trial.candidate for trial in finalists], rung)

    def _is_close(self, trial: Trial, best: Trial) -> bool:
        """Whether an error is near the smallest; one or two rows change a log loss by 0.02."""
        return not trial.error > 1.3 * best.error + 0.02 * self.of_classes

    def _add_rows(self, finalists: list[Trial], trials: list[Trial], rung: Rung) -> list[Trial]:
        """Tune the best kernel of per-column lengthscales, and rough kernels, with more rows."""
        able = [trial for trial in trials if self._needs_more_rows(trial.candidate)]
        late = [trial for trial in finalists if self._needs_more_rows(trial.candidate)]
        stage, tuned = (finalists, late) if late else (trials, able)
        if not tuned or not self._is_close(best := _rank(tuned)[0], _rank(stage)[0]):
            return []
        starts = [trial.candidate for trial in (best, *self._rough(best, able))]
        first, *rough = self._run_all([partial(self._more_rows, c) for c in starts], rung)
        return [first, *self._run_all(self._rougher(first.base), rung), *rough]

    def _rough(self, best: Trial, able: list[Trial]) -> list[Trial]:
        """Return the best exponential kernel if its error is near the least: it needs many rows."""
        rough = [trial for trial in able if isinstance(trial.candidate.kernel, Exponential)]
        if not rough or isinstance(best.candidate.kernel, Exponential):
            return []
        first = _rank(rough)[0]
        return [first] if first.error < 1.04 * _rank(able)[0].error else []

    def evaluate(self, candidates: list[TunedKernel], rung: Rung) -> list[Trial]:
        return self._run_all([partial(iter, [candidate]) for candidate in candidates], rung)

    def _sums(self, finalists: list[Trial], rung: Rung) -> list[Trial]:
        """Return the sum of two or three kernels whose mean prediction has the least error."""
        best, *rest = _rank(finalists)[: self.effort.finalists]
        rest = [trial for trial in rest if trial.fitted is not None and self._is_close(trial, best)]
        sums = [[best, *others] for k in (1, 2) for others in combinations(rest, k)]

        def error_of_mean(parts: list[Trial]) -> float:
            fitted = np.mean([trial.fitted for trial in parts], axis=0)
            return float(relative_losses(self.train, self.test, fitted, self.of_classes).sum())

        total = self._sum(min(sums, key=error_of_mean), rung) if sums else None
        return [] if total is None else [total]

    def _sum(self, parts: list[Trial], rung: Rung) -> Trial | None:
        """Evaluate the weighted mean of kernels, with one penalty; None if it is not supported."""
        began, candidates = time.perf_counter(), [trial.candidate for trial in parts]
        alphas = np.array([candidate.alpha for candidate in candidates])
        shares = [1 / len(parts)] * len(parts)
        if self.of_classes and max(alphas) > 4 * min(alphas):
            shares = [significant(share) for share in (1 / alphas / (1 / alphas).sum()).tolist()]
        kernels = [candidate.kernel for candidate in candidates]
        kernel: Kernel = reduce(operator.add, map(operator.mul, shares, kernels))
        if not self.serves(kernel):
            return None
        alpha = len(parts) * float(np.exp(np.mean(np.log(alphas * shares))))
        name, n_tuned = " + ".join(c.name for c in candidates), sum(c.n_tuned for c in candidates)
        trial = self._evaluate(TunedKernel(name, kernel, alpha, n_tuned), rung, is_sum=True)
        return replace(trial, seconds=time.perf_counter() - began)

    # --- candidates ------------------------------------------------------------------------------

    def _families(self, start: TunedKernel) -> list[Make]:
        if not self._columns:
            return []
        several = self.train.X.shape[1] > 1
        makes: list[Make] = [partial(self._additive, start)] * (several and self.of_classes)
        families = (*self.effort.families, *([Laplace()] if several else []))
        makes += [partial(self._rescale, family, start, self._criterion) for family in families]
        return [*makes, partial(self._tune_ard, start)] if self._criterion is EVIDENCE else makes

    def _rougher(self, start: TunedKernel) -> list[Make]:
        families = [f for f in (Exponential(), Laplace()) if type(f) is not type(start.kernel)]
        return [partial(self._rescale, family, start, LOO) for family in families]

    def _metrics(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield kernels in metrics learned from the gradients of fits."""
        kernel, X = start.kernel, self.train.X
        if isinstance(kernel, Radial) and 1 < X.shape[1] <= MANY_COLUMNS and not is_sparse(X):
            search, rounds = self.search(LOO), self.effort.rounds
            yield from metric_rounds(kernel, start.alpha, search, rounds, self._is_brief)

    def _linear(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield the linear kernel in the metric of a kernel."""
        rows, kernel = self._first_search.rows, start.kernel
        d = rows.X.shape[1]
        if d > MANY_COLUMNS:
            return
        if isinstance(kernel, Mahalanobis):
            A = np.array(kernel.matrix)
        else:
            A = np.diag(np.broadcast_to(kernel.get_params()["lengthscale"], d) ** -2.0)
        A = A / max(rows.spread @ (np.diag(A) * rows.spread), 1e-300)
        yield TunedKernel(LINEAR, Mahalanobis(Linear(), entries(A)), 1.0, d)

    def _needs_more_rows(self, start: TunedKernel) -> bool:
        """Whether lengthscales per column were tuned on fewer rows than there are."""
        kernel: Any = start.kernel
        columns = isinstance(kernel, Radial) and isinstance(kernel.lengthscale, tuple)
        return columns and start.n_tuned > 1 and len(self.train) > self.effort.rows

    def _more_rows(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield the candidate tuned on more rows, from lengthscales where the criterion varies."""
        rows, limit = self.train, 2 * self.effort.rows
        # Half are neighbourhoods: a random sample does not show columns that only matter locally.
        if len(rows) > limit:  # the choice depends on X only: the evidence remains valid
            near = np.unique(near_rows(start.kernel, rows.X, limit // 64, size=64, seed=self.seed))
            order = rows.order
            rest = order[~np.isin(order, near)][: limit - len(near)]
            rows = rows.take(np.sort(np.append(near, rest)))
        search = self.search(self._criterion, rows)
        steps = 5 if len(self.train) <= 2048 else 8
        end = search.rescale(cap_scales(start.kernel, search.rows), start.alpha, steps, ard=True)
        yield self.candidate(f"{start.name}, more rows", end, start.n_tuned)

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
            return replace(self._first_search, criterion=by)
        search = MatrixSearch.of(rows, by, self.centred, share=self.share, limit=len(rows))
        assert search is not None  # targets vary
        return search

    @cached_property
    def _first_search(self) -> MatrixSearch:
        return self.search(LOO, self.first_rung.rows)

    def _single_scale(self) -> Iterator[TunedKernel]:
        """Yield a kernel with one tuned lengthscale for all columns, original or scaled."""
        search, starts = self.search(LOO), list[Evaluation]()
        rows = search.rows
        scales: list[Any] = [median_distance(rows.X, rows.w, (1.0,), self.seed, max_pairs=4096)]
        if np.ptp(rows.spread) > 0.05 * rows.spread.max():
            scales.append(tuple((rows.median * rows.spread).tolist()))
        for scale in map(rounded, scales):
            kernel = next(filter(self.serves, (Gaussian(scale), Matern(1.5, scale))), None)
            if kernel is not None:
                starts.append(lowest(search.first_points(kernel, (1.0, 0.25))))
        if starts:
            end = search.finish(lowest(starts), 4, 0)
            columns = ", scaled columns" * (np.ndim(end.kernel.lengthscale) > 0)
            yield self.candidate(f"isotropic{columns} (leave-one-out)", end, 1)

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
        last = search.rescale(cap_scales(end.kernel, rows), end.alpha, 16, ard=True)
        end = last if last.value < end.value or len(end.fun.rows.w) < len(rows.w) else end
        by = "evidence" if self._criterion is EVIDENCE else "leave-one-out"
        yield self.candidate(f"ARD ({by})", end, rows.X.shape[1])

    def _rescale(self, family: Any, start: TunedKernel, by: Criterion) -> Iterator[TunedKernel]:
        """Yield another family with the lengthscales of a kernel times one tuned factor."""
        search, kernel = self.search(by), start.kernel
        scales: Any = kernel.get_params()["lengthscale"]
        n_tuned, d = start.n_tuned, search.rows.X.shape[1]
        if isinstance(family, Laplace):
            scales, n_tuned = laplace_scales(scales, search.rows.X, search.rows.w, self.seed), d
        first = family.replace(lengthscale=scales)
        evaluations = 4 - 2 * self._is_brief if d > 1 else 16
        end = search.rescale(first, start.alpha, evaluations, brief=self._is_brief)
        yield self.candidate(f"{type(family).__name__}, lengthscales of {start.name}", end, n_tuned)

    def _tune_ard(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield lengthscales of least leave-one-out error, starting at the largest evidence."""
        search = self.search(LOO)
        end = search.rescale(start.kernel, start.alpha, 7 if self.of_classes else 3, ard=True)
        yield self.candidate("ARD (leave-one-out)", end, search.rows.X.shape[1])

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

    def candidate(self, name: str, end: Any, n_tuned: int) -> TunedKernel:
        kernel = end.rounded
        if np.shape(kernel.lengthscale) == (1,):
            kernel = kernel.replace(lengthscale=kernel.lengthscale[0])
        weight = max(float(rows.w.sum()) for rows in (end.fun.rows, self.first_rung.rows))
        return TunedKernel(name, kernel, end.share * weight, n_tuned)

    # --- one candidate ---------------------------------------------------------------------------

    def _evaluate(self, candidate: TunedKernel, rung: Rung, is_sum: bool = False) -> Trial:
        rows, kernel = rung.rows, candidate.kernel
        K, K_test = kernel_matrix(kernel, rows.X), kernel.evaluate(self.test.X, rows.X)
        problem = KernelRows(K, rows.y, rows.w, self.centred)
        if self.share is not None:
            candidate = replace(candidate, alpha=self.share * float(rows.w.sum()))
        elif rung.chooses:
            return self._tune_penalty(problem, K_test, candidate)
        trial = self._evaluate_at(problem, K_test, candidate)
        is_open = self.of_classes and self.share is None and not is_sum
        return self._lower_penalty(problem, K_test, trial) if is_open else trial

    def _tune_penalty(self, problem: KernelRows, K_test: Array, candidate: TunedKernel) -> Trial:
        """Evaluate at the penalty of least leave-one-out error; evidence is at its best penalty."""
        penalties, start = Penalties(problem, level=LEVEL), candidate.alpha
        alpha = penalties.best("loo", start)
        candidate, fit = replace(candidate, alpha=alpha), penalties.at(alpha)
        if fit is None:
            return self._trial(candidate, problem)

        def evidence() -> float:
            likeliest = penalties.at(penalties.best("evidence", start)) or fit
            excess = np.log(max(penalties.amplitude(likeliest, None), 1.0))
            value = _total_evidence(problem, likeliest.criteria["evidence"][0])
            return value + float(excess / AMPLITUDE) ** 2

        return self._trial(candidate, problem, K_test @ fit.coef + fit.intercept, evidence)

    def _lower_penalty(self, problem: KernelRows, K_test: Array, trial: Trial) -> Trial:
        """Evaluate smaller penalties while the error falls."""
        while True:
            smaller = replace(trial.candidate, alpha=trial.candidate.alpha / 4)
            other = self._evaluate_at(problem, K_test, smaller)
            if not other.error < (1 - WORTH) * trial.error:
                return trial
            trial = other

    def _evaluate_at(self, problem: KernelRows, K_test: Array, candidate: TunedKernel) -> Trial:
        try:
            fit = problem.solve(candidate.alpha, 0, COMPARED)
        except LinAlgError:
            return self._trial(candidate, problem)
        fitted = K_test @ fit.coef + fit.intercept
        evidence = _total_evidence(problem, fit.evidence)
        return self._trial(candidate, problem, fitted, lambda: evidence)

    def _trial(
        self, candidate: TunedKernel, rows: KernelRows, fitted: Any = None, evidence: Any = None
    ) -> Trial:
        """Evaluate predictions of the held-out rows; the error is infinite if there are none."""
        if fitted is None:
            return Trial(candidate, np.full(len(self.test), np.inf), np.inf, lambda: np.inf)
        losses = relative_losses(self.train, self.test, fitted, self.of_classes)
        error = float(losses.sum() / self.test.w.sum())
        return Trial(candidate, losses, error, evidence, fitted, len(rows.w))

    # --- the choice ------------------------------------------------------------------------------

    def _reduction(self, trial: Trial, other: Trial) -> tuple[float, float]:
        """Return the reduction of the error from ``other`` to ``trial``, and the required one."""
        # With one column, and for a linear kernel, the evidence of few rows is reliable
        reliable = self.train.X.shape[1] == 1 or other.candidate.name == LINEAR
        chance = 0.5 if self.of_classes else 3.0 if reliable else 1.0
        return reduction(trial, other, WORTH, chance)

    def _preference(self, trial: Trial) -> float:
        """Return half of AIC (Akaike 1974), for classes its first term; least is preferred."""
        n_tuned = trial.candidate.n_tuned
        return n_tuned if self.of_classes else n_tuned + 0.5 * trial.evidence

    def choose(self, finalists: list[Trial], trials: list[Trial], w: Array) -> Tuning:
        """Choose the preferred candidate, or one whose error is lower by more than is required."""
        order = sorted(finalists, key=self._preference)
        rest = [trial for trial in trials if trial not in order]
        best, gains = order[0], [(np.nan, np.nan)] * len([*order, *rest])
        for k, trial in enumerate(order[1:], start=1):
            gains[k] = self._reduction(trial, best)
            best = trial if gains[k][0] > gains[k][1] else best
        records, measure = dict[str, KernelComparison](), LOG_LOSS if self.of_classes else HELD_OUT
        for trial, gain in zip([*order, *rest], gains, strict=True):
            c = trial.candidate
            values = trial.error, *gain, trial is best, measure, c.name, trial.rows, 0.0
            last = records.setdefault(c.name, KernelComparison(c.n_tuned, c.kernel, *values))
            records[c.name] = replace(last, seconds=last.seconds + trial.seconds)
        losses = nested_errors([trial.losses for trial in order])
        return Tuning(
            best.candidate.kernel,
            best.candidate.alpha / float(w.sum()),
            float(losses.sum() / self.test.w.sum()),
            "loo",
            compared=tuple(records.values()),
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
    learned = metric_rounds(start.kernel, start.alpha, search, rounds=4)
    tuning = race.choose(race.evaluate([start, *learned], race.first_rung), [], search.rows.w)
    return replace(tuning, matrix=metric_of(tuning.kernel, search.rows.spread))


def _total_evidence(rows: KernelRows, evidence: Float[Array, " t"]) -> float:
    return rows.count * float(evidence[rows.power > 0].sum())


def _rank(trials: list[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: trial.error)
