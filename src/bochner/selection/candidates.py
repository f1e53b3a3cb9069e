"""The choice of a kernel among candidates.

No single way to choose a kernel is best on every table: the evidence finds columns that
leave-one-out errors miss, a turned metric wins where columns act together, and on some tables
nothing is better than one lengthscale. So all candidates are tuned on kernel matrices of a few
hundred rows, where a fit takes milliseconds, and compared on held-out rows
(:mod:`bochner.selection.race`). What each rule of the search gains is measured by
``python -m benchmarks ablation``: docs/search.md.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse
from bochner._core.shapes import Array
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.auto import Auto
from bochner.features.method import Method, Request
from bochner.features.rules import draw_map
from bochner.kernels.algebra import Columns, Mahalanobis
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Gaussian, Laplace, Radial
from bochner.kernels.stationary_families import Matern
from bochner.selection.held_out import FEWEST as LEAST_ROWS
from bochner.selection.held_out import MOST_CELLS, split_rows, targets_that_vary
from bochner.selection.lengthscales import (
    EVIDENCE,
    MatrixSearch,
    choose_lengthscale,
    shortened,
)
from bochner.selection.metric import LOO, MANY_COLUMNS, turned_metrics
from bochner.selection.race import Make, Race, TunedKernel
from bochner.selection.record import Tuning
from bochner.selection.rows import (
    laplace_scales,
    median_distance,
    near_rows,
    rounded,
    significant,
)
from bochner.selection.spec import Effort, accepts_sparse, as_effort
from bochner.solvers.ridge.criteria import Criterion

FEWEST = 64  # Fewer rows than this do not determine a family
NEIGHBOURS = 64  # Rows of a neighbourhood in a descent with more rows


def choose_kernel(
    name: str,
    sample: RowSample,
    seed: int,
    share: float | None,
    method: Method | None,
    effort: str,
    *,
    centred: bool = True,
    of_classes: bool = False,
    judged_again: bool = False,
    among: Callable[[Kernel], bool] = lambda _: True,
) -> Tuning:
    """Return the kernel of a name; for "auto" the best of candidates.

    ``share`` is a given penalty per row, alpha/W; ``method`` and ``among`` say which kernels are
    candidates. With effort "low", and for few rows, "auto" is "gaussian". ``judged_again``: the
    best are compared again among all rows, so that fewer rows suffice here.
    """
    asked = as_effort(effort, "The choice of a kernel")
    if asked is not None and judged_again:
        asked = replace(asked, last=asked.more)
    if name == "auto" and asked is not None:
        X, sparse = sample.X, is_sparse(sample.X)
        require_served(method, X, seed)

        def serves(kernel: Kernel) -> bool:
            able = among(kernel) and (not sparse or accepts_sparse(kernel))
            return able and serves_kernel(method, X, seed, kernel)

        few = sparse and X.shape[0] * X.shape[1] <= MOST_CELLS
        options: Any = {"centred": centred, "share": share, "of_classes": of_classes}
        rows = replace(sample, X=dense(X)) if few else sample
        tuning = choose_among(rows, seed, asked, serves=serves, **options)
        if tuning is not None:
            return tuning
    name = "gaussian" if name == "auto" else name
    return choose_lengthscale(name, sample, seed, share, centred)


def serves_kernel(method: Method | None, X: Array, seed: int, kernel: Kernel) -> bool:
    """Whether the method makes features of the kernel; "auto" and None serve every kernel."""
    if method is None or isinstance(method, Auto):
        return True
    try:
        _draw_few(method, kernel, X, seed)
    except UnsupportedKernel:
        return False
    except InvalidInput:  # too few features or rows for this trial
        return True
    return True


def require_served(method: Method | None, X: Array, seed: int) -> None:
    """Raise UnsupportedKernel if the method serves no kernel from which a search starts."""
    starts = Gaussian(), Matern(1.5)
    if method and not any(serves_kernel(method, X, seed, kernel) for kernel in starts):
        _draw_few(method, Gaussian(), X, seed)


def _draw_few(method: Method, kernel: Kernel, X: Array, seed: int) -> None:
    draw_map(method, kernel, Request(X.shape[1], 2 * X.shape[1], seed, X=X[:LEAST_ROWS]))


def choose_among(
    sample: RowSample,
    seed: int,
    effort: Effort,
    *,
    centred: bool = True,
    share: float | None = None,
    serves: Callable[[Kernel], bool],
    of_classes: bool = False,
) -> Tuning | None:
    """Return the kernel with the least error on held-out rows, and the candidates.

    Of kernels that tie the one with the largest evidence is taken. None if there are too few rows,
    no target varies, or all rows to tune on are equal. Several targets, such as indicators of
    classes, have equal weights; of classes kernels are judged by log losses.

    "medium": about 50 evaluations of O(m³), m ≤ 128 (256 if there are no more), 40 with m ≤ 256,
    60 with m ≤ 512 and 14 or 28 with m ≤ 1024, and seven fits each of 1024 and of 2048 rows: two to
    three seconds of one core, whatever n.
    """
    varies = np.ptp(sample.y, axis=0) > 0 if len(sample) else np.zeros(0, bool)
    if len(sample) < FEWEST or not np.any(varies):
        return None
    sample = replace(sample, y=sample.y[:, varies])
    train, test = split_rows(sample, seed)
    varies = targets_that_vary(train.lowest(effort.rows))
    if not np.any(varies):
        return None
    if not of_classes:
        train, test = (replace(rows, y=rows.y[:, varies]) for rows in (train, test))
    race = Race(train, test, effort, centred, share, serves, of_classes)
    return race.best(Candidates(race, seed))


# --- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidates:
    """Functions that tune kernels, some of them from the lengthscales of a tuned kernel."""

    race: Race
    seed: int

    @property
    def rows(self) -> RowSample:
        """Rows to tune on."""
        return self.race.train

    def starts(self) -> list[Make]:
        """Return one lengthscale, in units of the data and of deviations, and one per column."""
        spread = self._search(LOO).rows.spread
        units: list[Any] = [1.0] if np.ptp(spread) <= 0.05 * spread.max() else [1.0, spread]
        makes: list[Make] = [partial(self._one, unit) for unit in units]
        return [*makes, self._each] if self._columns else makes

    def others(self, start: TunedKernel) -> list[Make]:
        """Return a sum over columns and other families, from the lengthscales per column."""
        if not self._columns:
            return []
        several = self.rows.X.shape[1] > 1
        makes: list[Make] = [partial(self._additive, start)] if several else []
        families = (*self.race.effort.families, *([Laplace()] if several else []))
        makes += self._families(families, start, self._by)
        return [*makes, partial(self._by_errors, start)] if self._by is EVIDENCE else makes

    def rougher(self, start: TunedKernel) -> list[Make]:
        """Return kernels of rougher functions with the lengthscales of another."""
        same = isinstance(start.kernel, Exponential)
        families: list[Any] = [Laplace()] if same else [Exponential(), Laplace()]
        return self._families(families, start, LOO)

    def _families(self, families: Iterable[Any], start: TunedKernel, by: Criterion) -> list[Make]:
        served = filter(self.race.serves, families)
        return [partial(self._rescaled, family, start, by) for family in served]

    def turned(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield kernels in metrics learned from the gradients of fits."""
        kernel: Any = start.kernel
        d = self.rows.X.shape[1]
        if not isinstance(kernel, Radial) or not 1 < d <= MANY_COLUMNS or is_sparse(self.rows.X):
            return
        search = self._search(LOO)
        for turned in turned_metrics(kernel, start.alpha, search, self.race.effort.rounds):
            if not self.race.serves(turned.kernel):
                return
            yield turned

    def takes_more_rows(self, start: TunedKernel) -> bool:
        """Whether lengthscales per column were tuned on fewer rows than there are."""
        kernel: Any = start.kernel
        columns = isinstance(kernel, Radial) and isinstance(kernel.lengthscale, tuple)
        return columns and start.numbers > 1 and len(self.rows) > self.race.effort.rows

    def with_more_rows(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield it tuned with more rows, from lengthscales at which each column has a slope again.

        Half of the rows are neighbourhoods: in a random sample, columns that matter within a
        neighbourhood look as slow as others.
        """
        rows, most = self.rows, self.race.effort.more
        if len(rows) > most:  # chosen by their inputs alone, they have an evidence like all others
            near = near_rows(start.kernel, rows.X, most // NEIGHBOURS, NEIGHBOURS, self.seed)
            near, order = np.unique(near), np.argsort(rows.priority, kind="stable")
            others = order[~np.isin(order, near)][: most - len(near)]
            rows = rows.take(np.sort(np.append(near, others)))
        search = self._search(self._by, rows)
        end = search.per_column(shortened(start.kernel, search.rows), start.alpha, evaluations=14)
        yield self._ended(f"{start.name}, more rows", end, start.numbers)

    @property
    def _by(self) -> Criterion:
        return EVIDENCE if self.race.share is None else LOO

    @property
    def _columns(self) -> bool:
        X = self.rows.X
        return X.shape[1] <= 1024 and not is_sparse(X)

    def _search(self, by: Criterion, rows: RowSample | None = None) -> MatrixSearch:
        rows = self.rows.lowest(self.race.effort.rows) if rows is None else rows
        options: Any = {"share": self.race.share, "most": len(rows)}
        search = MatrixSearch.of(rows, by, self.race.centred, **options)
        assert search is not None  # targets vary
        return search

    def _one(self, unit: Any) -> Iterator[TunedKernel]:
        """Yield one lengthscale for all columns, at the median distance and tuned."""
        search = self._search(LOO)
        median = median_distance(search.rows.X, search.rows.w, (unit,), self.seed)
        scale: Any = rounded(tuple((median * unit).tolist()) if np.ndim(unit) else median)
        kernel = next(filter(self.race.serves, (Gaussian(scale), Matern(1.5, scale))), None)
        if kernel is None:
            return
        what = "one lengthscale" if not np.ndim(unit) else "one lengthscale of scaled columns"
        alpha = 0.03 if self.race.share is None else self.race.share * float(search.rows.w.sum())
        yield TunedKernel(f"{what}, the median distance", kernel, alpha, 0)
        _, end = search.one(kernel, factors=(1.0, 0.25), evaluations=6)
        yield self._ended(f"{what}, by leave-one-out", end, 1)

    def _each(self) -> Iterator[TunedKernel]:
        """Yield one lengthscale per column."""
        family = next(filter(self.race.serves, (Matern(1.5), Gaussian())), None)
        if family is None:
            return
        search = self._search(self._by)
        rows = search.rows
        median = median_distance(rows.X, rows.w, (rows.spread,), self.seed)
        start = family.replace(lengthscale=tuple((median * rows.spread).tolist()))
        first, best = search.one(start, evaluations=6)
        end = search.each(start, first, best)
        again = search.per_column(shortened(end.kernel, rows), end.alpha, evaluations=10)
        end = again if again.value < end.value or len(end.of.rows.w) < len(rows.w) else end
        by = "evidence" if self._by is EVIDENCE else "leave-one-out"
        yield self._ended(f"one per column, by {by}", end, rows.X.shape[1])

    def _rescaled(self, family: Any, start: TunedKernel, by: Criterion) -> Iterator[TunedKernel]:
        """Yield another family with the lengthscales of a kernel times one tuned factor."""
        search, kernel = self._search(by), start.kernel
        scales: Any = kernel.get_params()["lengthscale"]
        numbers = start.numbers
        if isinstance(family, Laplace):
            scales = laplace_scales(scales, search.rows.X, search.rows.w, self.seed)
            numbers = search.rows.X.shape[1]
        evaluations = 4 if self.rows.X.shape[1] > 1 else 16
        end = search.scaled(family.replace(lengthscale=scales), start.alpha, evaluations)
        name = f"{type(family).__name__}, scales as {start.name}"
        yield self._ended(name, end, numbers)

    def _by_errors(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield lengthscales of least leave-one-out error, from those of largest evidence."""
        search = self._search(LOO)
        end = search.per_column(start.kernel, start.alpha, evaluations=7)
        yield self._ended("one per column, by leave-one-out", end, search.rows.X.shape[1])

    def _additive(self, start: TunedKernel) -> Iterator[TunedKernel]:
        """Yield a sum over columns with these lengthscales, and weights of spread over lengthscale.

        Columns of two values have lines, in one term for all of them.
        """
        X, scales = self.rows.X, np.asarray(start.kernel.get_params()["lengthscale"])
        spread = np.sqrt(self.rows.w @ (X - self.rows.w @ X / self.rows.w.sum()) ** 2)
        shares = spread / scales / np.sqrt(self.rows.w.sum())
        two = np.array([len(np.unique(x)) == 2 for x in X.T])
        shares[shares < 1e-3 * shares.sum()] = 0.0
        curves = np.flatnonzero((shares > 0) & ~two)
        curves = np.sort(curves[np.argsort(-shares[curves], kind="stable")[:16]])
        lines = np.flatnonzero((shares > 0) & two)
        total = float(shares[curves].sum() + shares[lines].sum())
        terms: list[Kernel] = [
            significant(float(shares[j]) / total)
            * Columns(Laplace(significant(float(scales[j]))), (int(j),))
            for j in curves
        ]
        if len(lines) and len(lines) <= MANY_COLUMNS:
            rates = [significant(1 / (float(scales[j]) * total)) for j in lines]
            lined = Mahalanobis(Linear(), tuple(map(tuple, np.diag(rates).tolist())))
            terms.append(Columns(lined, tuple(lines.tolist())))
        if not len(curves) or len(terms) < 2:
            return
        kernel = reduce(operator.add, terms)
        if self.race.serves(kernel):
            yield TunedKernel("sum over columns", kernel, start.alpha, X.shape[1])

    def _ended(self, name: str, end: Any, numbers: int) -> TunedKernel:
        scale: Any = rounded(end.kernel.lengthscale)
        scale = scale[0] if np.size(scale) == 1 and np.ndim(scale) else scale
        kernel = end.kernel.replace(lengthscale=scale)
        return TunedKernel(name, kernel, end.alpha, numbers)
