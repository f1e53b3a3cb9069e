"""The race of candidates for a kernel.

No single way to choose a kernel is best on every table. All candidates are tuned on kernel matrices
of a few hundred rows and compared on held-out rows. The best are compared again with more rows,
together with sums of kernels. docs/search.md has the gain of each rule.
"""

import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from itertools import chain, combinations, groupby
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.arrays import is_sparse
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.threads import run_parallel
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.algebra import Mahalanobis, kernel_matrix
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Columns, Kernel
from bochner.kernels.stationary import Exponential, Gaussian, Laplace, Radial
from bochner.kernels.stationary_families import Matern
from bochner.selection import held_out
from bochner.selection.lengthscales import EVIDENCE, Evaluation, MatrixSearch, best_of, cap_scales
from bochner.selection.metric import MANY_COLUMNS, TunedKernel, entries, metric_of, metric_rounds
from bochner.selection.record import HELD_OUT, LOG_LOSS, KernelComparison, Tuning
from bochner.selection.rows import four_digits, laplace_scales, median_distance, near_rows, rounded
from bochner.selection.spec import EFFORTS, Effort
from bochner.solvers.ridge.dual import CONVERGES, LOO, Criterion, KernelRows
from bochner.solvers.ridge.kernel_path import COMPARED, Penalties
from bochner.solvers.ridge.problem import evidence, freedom

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

MORE_ROWS = "more rows"  # The stage of kernels tuned with more rows, and the end of their names

#: Slope ∂log(error)/∂log α at which the penalty of a candidate is accepted.
LEVEL = 0.1


@dataclass(frozen=True)
class Proposal:
    """A way to propose kernels.

    ``make(race, trials, finalists, family)`` yields them from the trials on the first rows and on
    the rows of the stage. Candidates of one stage are tuned and evaluated in parallel.
    """

    rule: str  # Its name in the ablation (docs/search.md)
    stage: str
    make: Callable[..., Iterator[TunedKernel]]
    needs: tuple[str, ...] = ()  # Conditions that must be among `Race.facts`
    family: Kernel | None = None  # Passed to ``make``


@dataclass(frozen=True, eq=False)
class Trial:
    """A kernel and its loss on the held-out rows."""

    candidate: TunedKernel  # With its best penalty
    losses: Float[Array, " m"]  # Weighted loss of each row: squared error or log loss
    error: float  # Weighted mean of the losses; 1 is the loss of the best constant
    #: Returns minus twice the log evidence of all targets and the log prior of the amplitude.
    evidence: Callable[[], float]
    fitted: Any = None  # Predictions of the held-out rows
    rows: int = 0  # Rows of the fit
    seconds: float = 0.0  # Time to tune and evaluate it
    base: Any = None  # The candidate as it was tuned


Trials = Sequence[Trial]


@dataclass(frozen=True, eq=False)
class Race:
    """The comparison of candidate kernels by errors of held-out rows."""

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
        train, test = held_out.split_rows(sample, seed)
        varies = held_out.varying_targets(train.lowest(effort.rows))
        if not np.any(varies):
            return None
        if not options.get("of_classes"):
            train, test = (replace(rows, y=rows.y[:, varies]) for rows in (train, test))
        return Race(train, test, seed, effort, **options)

    def best(self) -> Tuning:
        """Return the best candidate or sum, with the record of the comparison.

        Candidates are evaluated on the first rows, finalists and later candidates on more rows:
        on four times as many for classes, as few rows prefer rough kernels (letter).
        """
        trials, rows = list[Trial](), self.first_rows
        sample = self.train.lowest((4 if self.of_classes else 2) * self.effort.rows)
        evaluate = self._tune_penalty if self.share is None else self._evaluate_at
        finalists = trials
        for stage, candidates in groupby(CANDIDATES, attrgetter("stage")):
            if stage == MORE_ROWS:
                rows, evaluate = sample, self._lower_penalty
                finalists = self._finalists(trials, rows)
            elif stage == "sums":
                evaluate = self._evaluate_at
            makes = []
            for c in candidates:
                if self.facts.issuperset(c.needs):
                    makes.append(c.make(self, trials, finalists, c.family))
            ends = stage == "metrics" and self._is_brief
            limit = 1.05 * _rank(trials)[0].error if ends else np.inf
            finalists += self._run_all(makes, rows, evaluate, limit)
        return self.choose(finalists, trials, sample.w)

    @cached_property
    def facts(self) -> set[str]:
        """Conditions of proposals that hold for these rows."""
        d, is_dense = self.train.X.shape[1], not is_sparse(self.train.X)
        return {
            "classes" if self.of_classes else "numbers",
            "columns" * (is_dense and d <= 1024),
            "few columns" * (is_dense and d <= MANY_COLUMNS),
            "several" * (d > 1),
            "open penalty" * (self.share is None),
        }

    # --- stages ----------------------------------------------------------------------------------

    @cached_property
    def first_rows(self) -> RowSample:
        return self.train.lowest(self.effort.rows)

    def _run_all(
        self, makes: Sequence[Any], rows: RowSample, evaluate: Any, limit: float = np.inf
    ) -> list[Trial]:
        """Tune and evaluate kernels in parallel; an iterator ends at an error above ``limit``."""

        def run(number: int, make: Iterator[TunedKernel]) -> list[Trial]:
            start, trials, test = time.perf_counter(), list[Trial](), self.test.X
            for base in make:
                if not self.serves(base.kernel):
                    continue
                alpha = base.alpha if self.share is None else self.share * float(rows.w.sum())
                K, K_test = kernel_matrix(base.kernel, rows.X), base.kernel.evaluate(test, rows.X)
                problem = KernelRows(K, rows.y, rows.w, self.centred)
                trial = evaluate(problem, K_test, replace(base, alpha=alpha))
                seconds = time.perf_counter() - start
                trials.append(replace(trial, seconds=seconds, base=base))
                start += seconds
                text = f"{base.name}, held-out error {trial.error:.4g}"
                stage = f"Choosing the kernel with {len(rows):,} rows: candidate"
                progress(stage, text, number, len(makes))
                if trial.error > limit:
                    break
            return trials

        return [*chain(*run_parallel([partial(run, *pair) for pair in enumerate(makes, 1)]))]

    def _finalists(self, trials: list[Trial], rows: RowSample) -> list[Trial]:
        """Evaluate the best candidates and the simplest one with more rows."""
        ranked = _rank(trials)
        tied, losers = list[Trial](), list[Trial]()
        for trial in ranked:
            if self._is_close(trial, ranked[0]):
                gain, required = self._reduction(ranked[0], trial)
                (losers if gain > required else tied).append(trial)
        simple = next(t for t in ranked if t.candidate.n_tuned <= 1)
        last = [*sorted(tied, key=self._preference), *losers][: self.effort.finalists]
        metrics = [t for t in tied + losers if isinstance(t.candidate.kernel, Mahalanobis)]
        last += [t for t in (simple, *_rank(metrics)[: self.of_classes]) if t not in last]
        if not self.of_classes and len(self.first_rows) == len(rows):
            return last  # classes try smaller penalties
        return self._run_all([iter([t.candidate]) for t in last], rows, self._lower_penalty)

    def _is_close(self, trial: Trial, best: Trial) -> bool:
        """Whether an error is near the smallest; one or two rows change a log loss by 0.02."""
        return not trial.error > 1.3 * best.error + 0.02 * self.of_classes

    @property
    def _is_brief(self) -> bool:
        """Whether factors are tuned by short descents on few rows."""
        return len(self.train) <= 2048 or not (self.of_classes or self.train.X.shape[1] == 1)

    @property
    def _criterion(self) -> Criterion:
        return EVIDENCE if self.share is None else LOO

    def search(self, criterion: Criterion, rows: RowSample | None = None) -> MatrixSearch:
        """Return a search by this criterion on ``rows``, by default on few training rows."""
        if rows is None:
            return replace(self._first_search, criterion=criterion)
        search = MatrixSearch.of(rows, criterion, self.centred, share=self.share, limit=len(rows))
        assert search is not None  # targets vary
        return search

    @cached_property
    def _first_search(self) -> MatrixSearch:
        return self.search(LOO, self.first_rows)

    # --- candidates ------------------------------------------------------------------------------

    def _single_scale(self, *_: Any) -> Iterator[TunedKernel]:
        """Yield a kernel with one tuned lengthscale for all columns, original or scaled.

        For classes, kernels whose lengthscale is the median distance are yielded too.
        """
        search, starts = self.search(LOO), list[Evaluation]()
        rows = search.rows
        scales: list[Any] = [median_distance(rows.X, rows.w, (1.0,), self.seed, max_pairs=4096)]
        if np.ptp(rows.spread) > 0.05 * rows.spread.max():
            scales.append(tuple((rows.median(rows.spread) * rows.spread).tolist()))
        name = lambda kernel: "isotropic" + ", scaled columns" * (np.ndim(kernel.lengthscale) > 0)
        for scale in map(rounded, scales):
            kernel = next(filter(self.serves, (Gaussian(scale), Matern(1.5, scale))), None)
            if kernel is not None:
                starts.append(best_of(search.first_points(kernel, (1.0, 0.25))))
                if self.of_classes:
                    yield TunedKernel(f"{name(kernel)} (median distance)", kernel, 0.03, 0)
        if starts:
            end = search.finish(best_of(starts), 4, 0)
            yield self.candidate(f"{name(end.kernel)} (leave-one-out)", end, 1)

    def _per_column(self, *_: Any) -> Iterator[TunedKernel]:
        family = next(filter(self.serves, (Matern(1.5), Gaussian())), None)
        if family is None:
            return
        search = self.search(self._criterion)
        rows = search.rows
        start = family.replace(lengthscale=tuple((rows.median(rows.spread) * rows.spread).tolist()))
        # Few columns need fewer evaluations; classes (shuttle, pendigits) need more
        steps = 24 if self.of_classes else min(24, 8 + rows.X.shape[1] // 4)
        end = search.finish(search.tune_columns(start, search.first_points(start)), steps, 0)
        last = search.rescale(cap_scales(end.kernel, rows), end.alpha, 16, ard=True)
        end = last if last.value < end.value or len(end.fun.rows.w) < len(rows.w) else end
        name = "evidence" if self._criterion is EVIDENCE else "leave-one-out"
        yield self.candidate(f"ARD ({name})", end, rows.X.shape[1])

    def _family(self, trials: Trials, _: Trials, family: Any) -> Iterator[TunedKernel]:
        """Yield another family with the lengthscales of the kernel of the first stage."""
        yield self._rescale(family, trials[-1].base, self._criterion)

    def _tune_ard(self, trials: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield lengthscales of least leave-one-out error, starting at the largest evidence."""
        search, start = self.search(LOO), trials[-1].base
        end = search.rescale(start.kernel, start.alpha, 7, ard=True)
        yield self.candidate("ARD (leave-one-out)", end, search.rows.X.shape[1])

    def _additive(self, trials: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield a sum of kernels of single columns, with weights spread/lengthscale."""
        start = trials[-1].base
        X, w, scales = self.train.X, self.train.w, start.kernel.get_params()["lengthscale"]
        spread = np.sqrt(w @ (X - w @ X / w.sum()) ** 2)
        shares = spread / scales / np.sqrt(w.sum())
        is_binary = np.array([len(np.unique(x)) == 2 for x in X.T])
        shares[shares < 1e-3 * shares.sum()] = 0.0
        curves = np.flatnonzero((shares > 0) & ~is_binary)
        curves = np.sort(curves[np.argsort(-shares[curves], kind="stable")[:16]])
        binary = np.flatnonzero((shares > 0) & is_binary)  # In one linear term
        total = float(shares[curves].sum() + shares[binary].sum())
        terms: list[Kernel] = [
            four_digits(float(shares[j]) / total)
            * Columns(Laplace(four_digits(float(scales[j]))), (int(j),))
            for j in curves
        ]
        if len(binary) and len(binary) <= MANY_COLUMNS:
            rates = [four_digits(1 / (float(scales[j]) * total)) for j in binary]
            linear = Mahalanobis(Linear(), tuple(map(tuple, np.diag(rates).tolist())))
            terms.append(Columns(linear, tuple(binary.tolist())))
        if len(curves) and len(terms) > 1:
            kernel = reduce(operator.add, terms)
            yield TunedKernel("sum over columns", kernel, start.alpha, X.shape[1])

    def _metrics(self, trials: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield kernels in metrics learned from the gradients of fits with the best kernel.

        For classes it has one lengthscale; with one per column, errors of letter are 20 % larger.
        """
        radial = [t.candidate for t in _rank(trials) if isinstance(t.candidate.kernel, Radial)]
        start = next(c for c in radial if c.n_tuned <= 1 or not self.of_classes)
        search, rounds = self.search(LOO), self.effort.rounds
        yield from metric_rounds(start.kernel, start.alpha, search, rounds, self._is_brief)

    def _linear(self, trials: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield the linear kernel in the metric of the last kernel."""
        spread, kernel = self._first_search.rows.spread, trials[-1].candidate.kernel
        A = np.array(metric_of(kernel, spread)) / np.outer(spread, spread) / len(spread)
        yield TunedKernel(LINEAR, Mahalanobis(Linear(), entries(A)), 1.0, len(spread))

    def _more_rows(self, trials: Trials, finalists: Trials, family: Any) -> Iterator[TunedKernel]:
        """Yield the best kernel of per-column lengthscales, tuned with more rows.

        With a ``family``, which needs many rows: its best kernel, if the error is near the least.
        """
        stage, ranked = finalists, self._of_columns(finalists)
        if not ranked:
            stage, ranked = trials, self._of_columns(trials)
        if not ranked or not self._is_close(ranked[0], _rank(stage)[0]):
            return
        if family is not None:
            limit = 1.04 * self._of_columns(trials)[0].error
            rough = self._of_columns(trials, type(family))
            differs = ranked[0] not in self._of_columns(stage, type(family))
            ranked = rough if differs and rough and rough[0].error < limit else []
        if ranked:
            start = ranked[0].candidate
            search = self.search(self._criterion, self._rows_near(start.kernel))
            first = cap_scales(start.kernel, search.rows)
            steps = 5 if len(self.train) <= 2048 else 8
            end = search.rescale(first, start.alpha, steps, ard=True)
            yield self.candidate(f"{start.name}, {MORE_ROWS}", end, start.n_tuned)

    def _rougher(self, trials: Trials, finalists: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield the Laplace kernel with the lengthscales tuned with more rows."""
        for trial in finalists:
            if trial.base.name.endswith(MORE_ROWS):
                yield self._rescale(Laplace(), trial.base, LOO)
                return

    def _sums(self, trials: Trials, finalists: Trials, *_: Any) -> Iterator[TunedKernel]:
        """Yield the sum of two or three kernels whose mean prediction has the least error."""
        first, *challengers = _rank(finalists)[: self.effort.finalists]
        challengers = [t for t in challengers if t.fitted is not None and self._is_close(t, first)]
        smallest, best = np.inf, list[Trial]()
        for parts in (*combinations(challengers, 1), *combinations(challengers, 2)):
            fitted = np.mean([t.fitted for t in (first, *parts)], axis=0)
            losses = held_out.relative_losses(self.train, self.test, fitted, self.of_classes)
            if losses.sum() < smallest:
                smallest, best = losses.sum(), [first, *parts]
        if best:
            yield self._mean(best)

    def _mean(self, parts: list[Trial]) -> TunedKernel:
        """Return the mean of kernels, for classes weighted by 1/penalty where penalties differ."""
        alphas, shares = np.array([t.candidate.alpha for t in parts]), [1 / len(parts)] * len(parts)
        if self.of_classes and max(alphas) > 4 * min(alphas):
            shares = [four_digits(share) for share in (1 / alphas / (1 / alphas).sum()).tolist()]
        alpha = len(parts) * float(np.exp(np.mean(np.log(alphas * shares))))
        terms = [share * t.candidate.kernel for share, t in zip(shares, parts, strict=True)]
        name = " + ".join(t.candidate.name for t in parts)
        n_tuned = sum(t.candidate.n_tuned for t in parts)
        return TunedKernel(name, reduce(operator.add, terms), alpha, n_tuned)

    # --- parts of candidates ---------------------------------------------------------------------

    def _rescale(self, family: Any, start: TunedKernel, criterion: Criterion) -> TunedKernel:
        """Return another family with the lengthscales of a kernel times one tuned factor."""
        search, kernel = self.search(criterion), start.kernel
        scales: Any = kernel.get_params()["lengthscale"]
        n_tuned, d = start.n_tuned, search.rows.X.shape[1]
        if isinstance(family, Laplace):
            scales, n_tuned = laplace_scales(scales, search.rows.X, search.rows.w, self.seed), d
        first = family.replace(lengthscale=scales)
        evaluations = 4 if d > 1 else 16
        end = search.rescale(first, start.alpha, evaluations, brief=self._is_brief)
        name = f"{type(family).__name__}, lengthscales of {start.name}"
        return self.candidate(name, end, n_tuned)

    def _of_columns(self, trials: Trials, family: Any = Radial) -> list[Trial]:
        """Return trials, by error, whose lengthscales per column may be tuned on more rows."""
        tunable = list[Trial]()
        for trial in _rank(trials) if len(self.train) > self.effort.rows else ():
            kernel = trial.candidate.kernel
            if isinstance(kernel, family) and isinstance(kernel.lengthscale, tuple):
                tunable += [trial] * (trial.candidate.n_tuned > 1)
        return tunable

    def _rows_near(self, kernel: Kernel) -> RowSample:
        """Return more rows, half of them neighbours of others: some columns only matter locally."""
        rows, limit = self.train, 2 * self.effort.rows
        if len(rows) <= limit:
            return rows
        # The choice depends on X only: the evidence remains valid
        neighbours = np.unique(near_rows(kernel, rows.X, limit // 64, size=64, seed=self.seed))
        sample = rows.order[~np.isin(rows.order, neighbours)][: limit - len(neighbours)]
        return rows.take(np.sort(np.append(neighbours, sample)))

    def candidate(self, name: str, end: Any, n_tuned: int) -> TunedKernel:
        kernel = end.rounded_kernel
        if np.shape(kernel.lengthscale) == (1,):
            kernel = kernel.replace(lengthscale=kernel.lengthscale[0])
        weight = max(end.fun.rows.w.sum(), self.first_rows.w.sum())
        return TunedKernel(name, kernel, end.share * float(weight), n_tuned)

    # --- one candidate ---------------------------------------------------------------------------

    def _tune_penalty(self, problem: KernelRows, K_test: Array, candidate: TunedKernel) -> Trial:
        """Evaluate at the penalty of least leave-one-out error; evidence is at its best penalty."""
        penalties, start = Penalties(problem, level=LEVEL), candidate.alpha
        alpha = penalties.best("loo", start)
        fit: Any = penalties.at(alpha)

        @cache
        def deviance() -> float:
            likeliest = penalties.at(penalties.best("evidence", start)) or fit
            excess = np.log(max(penalties.amplitude(likeliest, None), 1.0))
            return _deviance(problem, likeliest) + float(excess / AMPLITUDE) ** 2

        return self._trial(replace(candidate, alpha=alpha), K_test, fit, deviance)

    def _lower_penalty(self, problem: KernelRows, K_test: Array, candidate: TunedKernel) -> Trial:
        """Return the trial at the penalty; for classes at smaller ones too, if errors are lower."""
        trial = self._evaluate_at(problem, K_test, candidate)
        while self.of_classes and self.share is None:
            smaller = replace(trial.candidate, alpha=trial.candidate.alpha / 4)
            lower = self._evaluate_at(problem, K_test, smaller)
            if not lower.error < (1 - WORTH) * trial.error:
                break
            trial = lower
        return trial

    def _evaluate_at(self, problem: KernelRows, K_test: Array, candidate: TunedKernel) -> Trial:
        try:
            fit = problem.factor(candidate.alpha, COMPARED, CONVERGES)
        except LinAlgError:
            return self._trial(candidate, K_test, None)
        value = _deviance(problem, fit)
        return self._trial(candidate, K_test, fit, partial(float, value))

    def _trial(
        self, candidate: TunedKernel, K_test: Array, fit: Any, deviance: Any = lambda: np.inf
    ) -> Trial:
        """Evaluate predictions of the held-out rows; the error is infinite if there is no fit."""
        if fit is None:
            return Trial(candidate, np.full(len(self.test), np.inf), np.inf, deviance)
        fitted = K_test @ fit.coef + fit.intercept
        losses = held_out.relative_losses(self.train, self.test, fitted, self.of_classes)
        error = float(losses.sum() / self.test.w.sum())
        return Trial(candidate, losses, error, deviance, fitted, K_test.shape[1])

    # --- the choice ------------------------------------------------------------------------------

    def _reduction(self, trial: Trial, other: Trial) -> tuple[float, float]:
        """Return the reduction of the error from ``other`` to ``trial``, and the required one."""
        # With one column, and for a linear kernel, the evidence of few rows is reliable
        reliable = self.train.X.shape[1] == 1 or other.candidate.name == LINEAR
        chance = 0.5 if self.of_classes else 3.0 if reliable else 1.0
        return held_out.reduction(trial, other, WORTH, chance)

    def _preference(self, trial: Trial) -> float:
        """Return AIC/2 = p − log L (Akaike 1974), for classes p; the least is preferred."""
        n_tuned = trial.candidate.n_tuned
        return n_tuned if self.of_classes else n_tuned + 0.5 * trial.evidence()

    def choose(self, finalists: list[Trial], trials: list[Trial], w: Array) -> Tuning:
        """Choose the preferred candidate, or one whose error is lower by more than is required."""
        order = sorted(finalists, key=self._preference)
        gains, best = dict.fromkeys([*order, *trials], (np.nan, np.nan)), order[0]
        for trial in order[1:]:
            gain, required = gains[trial] = self._reduction(trial, best)
            best = trial if gain > required else best
        records, measure = dict[str, KernelComparison](), LOG_LOSS if self.of_classes else HELD_OUT
        for trial, gain_and_required in gains.items():
            c = trial.candidate
            values = trial.error, *gain_and_required, trial is best, measure, c.name, trial.rows
            last = records.setdefault(c.name, KernelComparison(c.n_tuned, c.kernel, *values, 0.0))
            records[c.name] = replace(last, seconds=last.seconds + trial.seconds)
        losses = held_out.nested_errors([trial.losses for trial in order])
        return Tuning(
            best.candidate.kernel,
            best.candidate.alpha / float(w.sum()),
            float(losses.sum() / self.test.w.sum()),
            "loo",
            candidates=tuple(records.values()),
        )


#: The candidates, in the order of their stages.
CANDIDATES = (
    Proposal("one lengthscale", "starts", Race._single_scale),
    Proposal("lengthscales per column", "starts", Race._per_column, ("columns",)),
    Proposal("sum over columns", "families", Race._additive, ("columns", "several", "classes")),
    Proposal("rough kernels", "families", Race._family, ("columns",), Exponential()),
    Proposal("families", "families", Race._family, ("columns",), Matern(2.5)),
    Proposal("families", "families", Race._family, ("columns",), Gaussian()),
    Proposal("rough kernels", "families", Race._family, ("columns", "several"), Laplace()),
    Proposal("descent by leave-one-out", "families", Race._tune_ard, ("columns", "open penalty")),
    Proposal("rotated metric", "metrics", Race._metrics, ("few columns", "several")),
    Proposal("linear kernel", "linear", Race._linear, ("few columns", "numbers")),
    Proposal(MORE_ROWS, MORE_ROWS, Race._more_rows),
    Proposal("rough kernels with more rows", MORE_ROWS, Race._more_rows, (), Exponential()),
    Proposal("rough kernels with more rows", "rougher", Race._rougher),
    Proposal("sums", "sums", Race._sums),
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
    end = search.finish(best_of(search.first_points(kernel)), 12, 4)
    start = race.candidate("start", end, 1)
    learned = metric_rounds(start.kernel, start.alpha, search, rounds=4)
    trials = race._run_all([iter([start]), learned], race.first_rows, race._tune_penalty)
    tuning = race.choose(trials, [], search.rows.w)
    return replace(tuning, matrix=metric_of(tuning.kernel, search.rows.spread))


def _deviance(rows: KernelRows, fit: Any) -> float:
    """Return minus twice the log evidence of all targets, times n/ν."""
    terms = -2 * evidence(rows, fit) / max(freedom(rows), 1.0)
    return rows.count * float(terms[rows.power > 0].sum())


def _rank(trials: Trials) -> list[Trial]:
    return sorted(trials, key=attrgetter("error"))
