"""A kernel chosen among candidates: each tuned on some rows, all judged by rows that none has seen.

No one way to choose a kernel is best on every table: the evidence finds columns that leave-one-out
errors miss, a turned metric wins where columns act together, and on some tables nothing beats one
lengthscale. So all are tried, on the kernel matrices of a few hundred rows, where a fit takes
milliseconds. Those with the least errors are fitted to more rows, the best of them goes on with
these, and the best of all with more again (:mod:`bochner.selection.judges`).
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse
from bochner._core.shapes import Array
from bochner.data.sample import RowSample
from bochner.features.method import Method
from bochner.kernels.algebra import Columns, Mahalanobis
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Gaussian, Laplace, Radial
from bochner.kernels.stationary_families import Matern
from bochner.selection.held_out import MOST_CELLS, split_rows, targets_that_vary
from bochner.selection.judges import Make, Trials, TunedKernel
from bochner.selection.lengthscales import EVIDENCE, MatrixSearch, ProcessRows
from bochner.selection.metric import LOO, MANY_COLUMNS, turned_metrics
from bochner.selection.record import Tuning
from bochner.selection.rows import median_distance, near_rows, rounded, significant
from bochner.selection.spec import NAMED, Effort, accepts_sparse, as_effort
from bochner.selection.walk import (
    COORDINATEWISE,
    choose_lengthscale,
    median_scales,
    require_served,
    serves_kernel,
)
from bochner.solvers.ridge.criteria import Criterion
from bochner.solvers.ridge.solution import SAME

#: Fewer rows than this tell no kernel from another.
FEWEST = 64

#: Columns that each may have a lengthscale of its own, at most.
MOST_COLUMNS = 1024

#: Rows of the search with kernel matrices, factors of the median distance that it starts from, and
#: its evaluations from the best.
MATRIX_ROWS, MATRIX_FACTORS, MATRIX_STEPS = 512, (1.0, 0.25), 8

#: Evaluations of a candidate that starts from another: with one factor for all lengthscales, with
#: one lengthscale per column, from there once more, and with more rows.
SCALED, COLUMNS, AGAIN, MORE = 4, 5, 10, 14

#: Rows of a neighbourhood that a descent goes on with.
NEIGHBOURS = 64

#: Lengthscales that a descent goes on from with more rows, at most, in deviations of the columns:
#: few rows see nothing of a column that more rows need, and beyond these its slope is zero.
LONGEST = 4.0

#: Columns that are curves of a sum over columns, at most, and shares in it that are none.
MOST_CURVES, LEAST_SHARE = 16, 1e-3


def choose_kernel(
    name: str,
    sample: RowSample,
    n_features: int,
    seed: int,
    share: float | None,
    method: Method | None,
    effort: str,
    *,
    exact: bool = False,
    centred: bool = True,
    of_classes: bool = False,
    judged_again: bool = False,
    among: Callable[[Kernel], bool] = lambda _: True,
) -> Tuning:
    """Return the kernel of a name; for "auto" the best of candidates.

    Parameters
    ----------
    name : str
    sample : RowSample
    n_features : int
        D of the fit.
    seed : int
    share : float or None
        A given penalty per row, alpha/W.
    method : Method or None
        Method of the fit: kernels that it does not serve are not candidates.
    effort : {"low", "medium", "high"}
        With "low", and for few rows, "auto" is "gaussian".
    exact : bool
        Whether the fit is of the exact kernel, with lengthscales for a kernel matrix.
    centred : bool
        Whether an intercept is fitted.
    of_classes : bool
        Whether targets are the ±1 of classes.
    judged_again : bool
        Whether the best are compared again among all rows, so that fewer rows suffice here.
    among : callable
        Whether a kernel is a candidate.
    """
    asked = as_effort(effort, "The choice of a kernel")
    if asked is not None and judged_again:
        asked = replace(asked, last=asked.judged)
    if name == "auto" and asked is not None:
        method = None if exact else method
        require_served(method, sample.X, seed)
        serves = partial(_served, among, is_sparse(sample.X), method, sample.X, seed)
        if is_sparse(sample.X) and sample.X.shape[0] * sample.X.shape[1] <= MOST_CELLS:
            sample = replace(sample, X=dense(sample.X))
        options: Any = {"centred": centred, "share": share, "of_classes": of_classes}
        found = choose_among(sample, seed, asked, serves=serves, **options)
        if found is not None:
            return found
    name = "gaussian" if name == "auto" else name
    if exact:
        return choose_lengthscale_exactly(name, sample, seed, share, centred)
    return choose_lengthscale(name, sample, n_features, seed, share)


def _served(
    among: Callable[[Kernel], bool],
    sparse: bool,
    method: Method | None,
    X: Array,
    seed: int,
    kernel: Kernel,
) -> bool:
    """Whether a kernel is a candidate, for rows that may be sparse and the method of the fit."""
    if not among(kernel) or (sparse and not accepts_sparse(kernel)):
        return False
    return serves_kernel(method, X, seed, kernel)


def choose_lengthscale_exactly(
    name: str, sample: RowSample, seed: int, share: float | None = None, centred: bool = True
) -> Tuning:
    """Return the kernel of this family whose matrix leaves each row out best; see above.

    A descent in one factor of the lengthscales, on up to 512 rows, from the median distance. For
    fits with the kernel itself, where no features are at hand.
    """
    if name == "linear":
        return Tuning(Linear())
    family, criterion = NAMED[name], LOO
    starts = [family(scale) for scale in median_scales(sample, name in COORDINATEWISE, seed)]
    if sample.y.shape[1] == 0:
        return Tuning(starts[0])
    alpha = None if share is None else share * float(sample.lowest(MATRIX_ROWS).w.sum())
    search = MatrixSearch.of(sample, criterion, centred, most=MATRIX_ROWS, alpha=alpha)
    if search is None:
        return Tuning(starts[0])
    ends = [search.one(start, MATRIX_FACTORS, evaluations=0)[1] for start in starts]
    end = ends[int(len(ends) > 1 and ends[1].value < ends[0].value - SAME)]
    return search.tuning(search.go_on(end, MATRIX_STEPS))


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
    """Return the kernel that errs least on rows held out, and what it was compared with.

    Of kernels that err alike the one of the largest evidence.

    Parameters
    ----------
    sample : RowSample
        Several targets, as indicators of classes, count alike.
    seed : int
    effort : Effort
    centred : bool
        Whether an intercept is fitted.
    share : float, optional
        A given per-row penalty, alpha/W.
    serves : callable
        Whether the method of the fit serves a kernel.
    of_classes : bool
        Whether targets are the ±1 of classes: the log loss is then what kernels are judged by.

    Returns
    -------
    Tuning or None
        None where there are too few rows, no target varies, or all rows to tune on are equal.

    Notes
    -----
    "medium": about 60 evaluations of O(m³), m ≤ 128 (256 where there are no more), 40 with m ≤ 256,
    70 with m ≤ 512 and 14 or 28 with m ≤ 1024, and seven fits each of 1024 and of 2048 rows: two to
    three seconds of one core, whatever n.
    """
    varies = np.ptp(sample.y, axis=0) > 0 if len(sample) else np.zeros(0, bool)
    if len(sample) < FEWEST or not np.any(varies):
        return None
    sample = replace(sample, y=sample.y[:, varies])
    train, test = split_rows(sample, seed)
    varies = targets_that_vary(train.lowest(min(effort.tuned, effort.tried)))
    if not np.any(varies):
        return None
    if not of_classes:
        train, test = (replace(rows, y=rows.y[:, varies]) for rows in (train, test))
    generator = Candidates(train, seed, effort, centred, share, serves)
    return Trials(train, test, effort, centred, share, serves, of_classes).best(generator)


# --- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidates:
    """Kernels that are tuned one after the other, each from what those before have found."""

    rows: RowSample
    seed: int
    effort: Effort
    centred: bool
    share: float | None
    serves: Callable[[Kernel], bool]

    def starts(self) -> list[Make]:
        """Return one lengthscale for all columns, in each of their units, and one a column."""
        search = self._search(LOO)
        spread = search.rows.spread
        units: list[Any] = [1.0] if np.ptp(spread) <= 0.05 * spread.max() else [1.0, spread]
        makes: list[Make] = [partial(self._one, unit) for unit in units]
        return [*makes, self._each] if self._columns else makes

    def others(self, found: TunedKernel) -> list[Make]:
        """Return what goes on from the lengthscales of columns."""
        if not self._columns:
            return []
        makes: list[Make] = [partial(self._additive, found)] if self._several else []
        makes += [partial(self._family, f, found) for f in self.effort.families if self.serves(f)]
        makes += [partial(self._by_errors, found)] if self._by is EVIDENCE else []
        more = self._several and self.serves(Laplace())
        return [*makes, partial(self._laplace, found)] if more else makes

    @property
    def _several(self) -> bool:
        return self.rows.X.shape[1] > 1

    @property
    def _by(self) -> Criterion:
        return EVIDENCE if self.share is None else LOO

    @property
    def _columns(self) -> bool:
        X = self.rows.X
        return X.shape[1] <= MOST_COLUMNS and not is_sparse(X)

    def _search(self, by: Criterion, most: int | None = None) -> MatrixSearch:
        return self._search_of(self.rows.lowest(most or self.effort.tuned), by)

    def _search_of(self, rows: RowSample, by: Criterion) -> MatrixSearch:
        alpha = None if self.share is None else self.share * float(rows.w.sum())
        search = MatrixSearch.of(rows, by, self.centred, alpha=alpha, most=len(rows))
        if search is None:
            raise AssertionError("a sample whose targets vary has a search")
        return search

    def _one(self, unit: Any) -> Iterator[TunedKernel]:
        """Give one lengthscale for all columns, in units of the data or of their deviations."""
        search = self._search(LOO)
        median = median_distance(search.rows.X, search.rows.w, (unit,), self.seed)
        scale: Any = rounded(tuple((median * unit).tolist()) if np.ndim(unit) else median)
        kernel = next(filter(self.serves, (Gaussian(scale), Matern(1.5, scale))), None)
        if kernel is None:
            return
        what = "one lengthscale" if not np.ndim(unit) else "one lengthscale of scaled columns"
        alpha = 0.03 if self.share is None else self.share * float(search.rows.w.sum())
        yield TunedKernel(f"{what}, the median distance", kernel, alpha, 0)
        _, end = search.one(kernel, factors=(1.0, 0.25), evaluations=6)
        yield self._ended(f"{what}, by leave-one-out", search, end, 1)

    def _each(self) -> Iterator[TunedKernel]:
        """Give one lengthscale a column."""
        family = next(filter(self.serves, (Matern(1.5), Gaussian())), None)
        if family is None:
            return
        search = self._search(self._by)
        rows = search.rows
        median = median_distance(rows.X, rows.w, (rows.spread,), self.seed)
        start = family.replace(lengthscale=tuple((median * rows.spread).tolist()))
        first, best = search.one(start, evaluations=6)
        end = search.each(start, first, best, rows.screened())
        share = end.at.share + float(np.log(end.of.rows.w.sum() / rows.w.sum()))
        again = search.go(_shortened(end.of.kernel(end.at), rows), share, AGAIN)
        end = again if again.value < end.value or len(end.of.rows.w) < len(rows.w) else end
        yield self._ended(f"one a column, {_named(self._by)}", search, end, rows.X.shape[1])

    def _family(self, family: Any, found: TunedKernel) -> Iterator[TunedKernel]:
        """Go on from the lengthscales of another family: first in their scale, then each."""
        search = self._search(self._by)
        start = family.replace(lengthscale=found.kernel.get_params()["lengthscale"])
        scaled = search.scaled(start, found.alpha, SCALED)
        end = search.go(scaled.of.kernel(scaled.at), scaled.at.share, COLUMNS)
        name = f"{type(family).__name__}, one a column, {_named(self._by)}"
        yield self._ended(name, search, end, search.rows.X.shape[1])

    def _by_errors(self, found: TunedKernel) -> Iterator[TunedKernel]:
        search = self._search(LOO)
        end = search.go(found.kernel, search.share_of(found.alpha), COLUMNS + 2)
        yield self._ended("one a column, by leave-one-out", search, end, search.rows.X.shape[1])

    def rougher(self, found: TunedKernel) -> list[Make]:
        """Return what gives kernels of rougher functions whose scales are those of another."""
        makes: list[Make] = []
        if self.serves(Exponential()) and not isinstance(found.kernel, Exponential):
            makes.append(partial(self._exponential, found))
        return (
            [*makes, partial(self._laplace, found, found.name)] if self.serves(Laplace()) else makes
        )

    def _exponential(self, found: TunedKernel) -> Iterator[TunedKernel]:
        search = self._search(LOO)
        start = Exponential().replace(lengthscale=found.kernel.get_params()["lengthscale"])
        end = search.scaled(start, found.alpha, SCALED)
        yield self._ended(f"Exponential, scales as {found.name}", search, end, found.numbers)

    def _laplace(self, found: TunedKernel, of_which: str = "one a column") -> Iterator[TunedKernel]:
        """Take the distance as a sum over columns: longer by about √d."""
        search = self._search(LOO)
        scales = np.asarray(found.kernel.get_params()["lengthscale"])
        rows = search.rows
        one, two = (
            median_distance(rows.X, rows.w, (scales,), self.seed, order) for order in (1, 2)
        )
        start = Laplace(tuple((scales * one / two).tolist()))
        end = search.scaled(start, found.alpha, SCALED)
        yield self._ended(f"Laplace, scales as {of_which}", search, end, rows.X.shape[1])

    def _additive(self, found: TunedKernel) -> Iterator[TunedKernel]:
        """Give a sum over columns, with the lengthscales found: what each does by itself.

        A rate of a column is one over its lengthscale, and its share in proportion to how far its
        rows are apart in these. Columns of two values have a line each, all of them together.
        """
        X, scales = self.rows.X, np.asarray(found.kernel.get_params()["lengthscale"])
        spread = np.sqrt(self.rows.w @ (X - self.rows.w @ X / self.rows.w.sum()) ** 2)
        shares = spread / scales / np.sqrt(self.rows.w.sum())
        two = np.array([len(np.unique(x)) == 2 for x in X.T])
        shares[shares < LEAST_SHARE * shares.sum()] = 0.0
        curves = np.flatnonzero((shares > 0) & ~two)
        curves = np.sort(curves[np.argsort(-shares[curves], kind="stable")[:MOST_CURVES]])
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
        if self.serves(kernel):
            yield TunedKernel("sum over columns", kernel, found.alpha, X.shape[1])

    def takes_more_rows(self, found: TunedKernel) -> bool:
        """Whether lengthscales of columns were found, by fewer rows than there are."""
        kernel: Any = found.kernel
        columns = isinstance(kernel, Radial) and isinstance(kernel.lengthscale, tuple)
        return columns and found.numbers > 1 and len(self.rows) > self.effort.tuned

    def with_more_rows(self, found: TunedKernel) -> TunedKernel:
        """Go on with more rows, each column having a say again that few rows saw nothing of.

        They are near to one another, as all rows are: among rows at random columns that matter
        within a neighbourhood look as slow as others.
        """
        rows = _amid_others(self.rows, found.kernel, self.effort.more, self.seed)
        search = self._search_of(rows, EVIDENCE if self.share is None else LOO)
        end = search.go(_shortened(found.kernel, search.rows), search.share_of(found.alpha), MORE)
        return self._ended(f"{found.name}, more rows", search, end, found.numbers)

    def turned(self, found: TunedKernel) -> Iterator[TunedKernel]:
        """Yield kernels in metrics learned from the gradients of fits."""
        kernel: Any = found.kernel
        d = self.rows.X.shape[1]
        if not isinstance(kernel, Radial) or not 1 < d <= MANY_COLUMNS or is_sparse(self.rows.X):
            return
        search = self._search(LOO, self.effort.tried)
        for turned, _ in turned_metrics(kernel, found.alpha, search, self.effort.rounds):
            if not self.serves(turned.kernel):
                return
            yield turned

    def _ended(self, name: str, search: MatrixSearch, end: Any, numbers: int) -> TunedKernel:
        kernel: Any = end.of.kernel(end.at)
        scale: Any = rounded(kernel.lengthscale)
        scale = scale[0] if np.size(scale) == 1 and np.ndim(scale) else scale
        kernel = kernel.replace(lengthscale=scale)
        return TunedKernel(name, kernel, search.alpha_of(end.at.share, end.of.rows), numbers)


def _amid_others(rows: RowSample, kernel: Kernel, most: int, seed: int) -> RowSample:
    """Return neighbourhoods of rows at random, and others at random for as many as are asked for.

    Rows that are chosen by their inputs alone have an evidence like all others.
    """
    if len(rows) <= most:
        return rows
    near = np.unique(near_rows(kernel, rows.X, most // NEIGHBOURS, NEIGHBOURS, seed))
    order = np.argsort(rows.priority, kind="stable")
    others = order[~np.isin(order, near)][: most - len(near)]
    return rows.take(np.sort(np.append(near, others)))


def _shortened(kernel: Any, rows: ProcessRows) -> Any:
    """Return a kernel in which each column has a say: the longest lengthscales have no slope."""
    scales = np.minimum(kernel.lengthscale, LONGEST * rows.spread)
    return kernel.replace(lengthscale=tuple(scales.tolist()))


def _named(by: Criterion) -> str:
    return "by evidence" if by is EVIDENCE else "by leave-one-out"
