"""Partial dependence: what a model predicts on average, as one column or two take given values.

    f̄(z) = (1/m) Σ_i f(x_i with column j set to z)                    [Friedman (2001), equation 53]

over rows x_i that are looked at. Two columns interact where f̄(z, u) is no sum of functions of one;
the share that is left of it is the statistic of Friedman and Popescu (2008), equation 44,

    H² = Σ (f̄(z, u) − f̄_j(z) − f̄_k(u))² / Σ f̄(z, u)²,    all f̄ about their means,

here over all pairs of values of a grid, and f̄_j and f̄_k are means of f̄ over the grid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import integer
from bochner._core.html import html_table
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import columns
from bochner.data.encoders import Levels, Numbers
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator
from bochner.models.displays import Display
from bochner.models.inspection.importance import SHOWN, Inspected, InspectedColumn


def values_of(
    column: InspectedColumn, X: Float[Array, "m d"], n_grid: int
) -> tuple[Any, Float[Array, "g p"]]:
    """Return the values of a column to look at, as users know them and as columns of X.

    All levels, all of few numbers, else quantiles.
    """
    encoder, parts = column.encoder, X[:, list(column.places)]
    if isinstance(encoder, Levels) and (encoder.is_ordered or not encoder.table):
        missing = ("missing",) * (encoder.indicator and not encoder.is_ordered)
        cells = [*map(float, range(len(encoder.levels))), *[np.nan] * len(missing)]
        return (*encoder.levels, *missing), encoder.encode(np.array(cells))
    if isinstance(encoder, Numbers) and len(column.places) <= 2:
        known = parts[parts[:, 1] == 0, 0] if encoder.indicator else parts[:, 0]
        grid = _grid(known if len(known) else parts[:, 0], n_grid)
        return grid, encoder.encode(grid)
    # several columns that vary together, as the parts of a date: rows in the order of the first
    if len(column.places) == 1:
        grid = _grid(parts[:, 0], n_grid)
        return grid, grid[:, None]
    order = np.argsort(parts[:, 0], kind="stable")
    at = order[np.unique(np.linspace(0, len(order) - 1, n_grid).astype(int))]
    return parts[at, 0].astype(np.float64), parts[at]


def _grid(x: Float[Array, " m"], n_grid: int) -> Float[Array, " g"]:
    different = np.unique(x.astype(np.float64))
    if len(different) <= n_grid:
        return different
    low, high = np.quantile(different if len(different) < 20 else x, (0.05, 0.95))
    if low == high:
        low, high = different[0], different[-1]
    return np.linspace(low, high, n_grid)


@dataclass(frozen=True, eq=False)
class PartialDependenceDisplay(Display):
    """Mean predictions as one column or two take given values.

    Attributes
    ----------
    columns : (1,) or (2,) of str
    grid_values : tuple of (g,)
        Of each column: numbers in its own units, or a tuple of levels. Of a date the first of the
        columns that it became: days.
    average : (t, g) or (t, g, h)
        f̄ of each prediction.
    error : same shape
        Its standard error over the rows, about the mean of all of them.
    individual : (t, m, g), or None for two columns
        f of each row, whose mean is ``average``.
    outputs : (t,) of str
        Targets, or classes.
    unit : str
    interaction : (t,) or None
        Of two columns, Friedman and Popescu's H = √H²: 0 for a sum of functions of one
        column, 1 for no main effects.

    See Also
    --------
    partial_dependence : Computes what is shown.
    ImportanceDisplay : Importance of columns.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 1])
    >>> display = bo.PartialDependenceDisplay.from_estimator(model, X, 0)
    >>> bool((np.diff(display.average[0]) > 0).all())
    True
    """

    columns: tuple[str, ...]
    grid_values: tuple[Any, ...]
    average: Array
    error: Array
    individual: Array | None
    outputs: tuple[str, ...]
    unit: str
    interaction: Float[Array, " t"] | None = None

    @staticmethod
    def from_estimator(
        model: KernelEstimator, X: Any, columns: Any, **options: Any
    ) -> "PartialDependenceDisplay":
        """Return :func:`partial_dependence` of a fitted learner."""
        return partial_dependence(model, X, columns, **options)

    def plot(self, ax: Any = None, *, output: int = 0, rows: int = 0) -> Self:
        """Draw a line, bars of levels, or a map of two columns; return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        output : int, default 0
            Which prediction.
        rows : int, default 0
            Rows whose own lines are drawn beside the average.
        """
        ax = self._axes(ax)
        name = self.unit if len(self.outputs) == 1 else f"{self.unit} of {self.outputs[output]}"
        label = name.replace("$", r"\$")
        if len(self.columns) == 2:
            self._map(ax, output, label)
            return self
        grid, f = self.grid_values[0], self.average[output]
        ax.set(xlabel=self.columns[0].replace("$", r"\$"), ylabel=f"mean {label}")
        if isinstance(grid, tuple):
            ax.errorbar(range(len(grid)), f, 2 * self.error[output], fmt="o", capsize=3)
            room = max(map(len, grid)) * len(grid) < 40
            ax.set_xticks(range(len(grid)), grid, rotation=0 if room else 90)
            return self
        if rows and self.individual is not None:
            ax.plot(grid, self.individual[output][:rows].T, color="gray", alpha=0.3, linewidth=0.6)
        ax.plot(grid, f)
        spread = 2 * self.error[output]
        ax.fill_between(grid, f - spread, f + spread, alpha=0.2)
        return self

    def _map(self, ax: Any, output: int, label: str) -> None:
        places = [np.arange(len(g)) if isinstance(g, tuple) else g for g in self.grid_values]
        mesh = ax.pcolormesh(*places, self.average[output].T, shading="nearest")
        ax.figure.colorbar(mesh, ax=ax, label=f"mean {label}")
        for axis, grid in zip((ax.xaxis, ax.yaxis), self.grid_values, strict=True):
            if isinstance(grid, tuple):
                axis.set_ticks(range(len(grid)), grid)
        ax.set(xlabel=self.columns[0], ylabel=self.columns[1])


def partial_dependence(
    model: KernelEstimator,
    X: Any,
    columns: Any,
    *,
    grid_resolution: int = 50,
    n_rows: int = 512,
    random_state: Seed = 0,
) -> PartialDependenceDisplay:
    """Return what a fitted learner predicts on average as one column or two take given values.

    Parameters
    ----------
    model : fitted regressor or classifier
    X : (n, d), table or Blocks
        Rows as ``predict`` takes them, over which the other columns are averaged.
    columns : str, int, or two of them
        Names, or numbers from 0, of the user's columns.
    grid_resolution : int, default 50
        Values of a column of numbers: equally spaced from its 5 % to its 95 % quantile, or all
        values if there are no more. Categories have all their levels. Of two columns each has
        √grid_resolution · 2 at most.
    n_rows : int, default 512
        Rows that are averaged over, drawn at random. Each counts once.
    random_state : int, Generator, RandomState or None, default 0

    Returns
    -------
    PartialDependenceDisplay
        Predictions in units of the target; decision values of a classifier.

    Raises
    ------
    NotFittedError
        The model is not fitted.
    InvalidInput
        The learner predicts no target; a column is unknown; there are more than two.

    Notes
    -----
    Time: a prediction of ``n_rows`` rows for each value, or pair of values. Like
    :func:`column_importance` by exchange it looks at rows that may not exist where columns vary
    together.

    Sources: Friedman (2001), *Greedy function approximation: a gradient boosting machine*,
    section 8.2; Friedman and Popescu (2008), *Predictive learning via rule ensembles*, equation 44,
    for interactions, over the pairs of values of the grid and not over rows.

    Examples
    --------
    >>> import numpy as np, bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 1])
    >>> result = bo.partial_dependence(model, X, 0)
    >>> slope = np.polyfit(result.grid_values[0], result.average[0], 1)[0]
    >>> round(float(slope), 1)
    3.0
    """
    who = "partial_dependence"
    most = integer(grid_resolution, who, "grid_resolution", 2)
    seen = Inspected.of(who, model, X, n_rows, random_state)
    asked = list(columns) if isinstance(columns, list | tuple) else [columns]
    places = [seen.index(who, one) for one in asked]
    if len(places) not in (1, 2) or len(set(places)) < len(places):
        raise InvalidInput(
            f"{who}: columns must be one column or two different ones; got {asked!r}."
        )
    chosen = [seen.columns[j] for j in places]
    most = most if len(chosen) == 1 else max(2, int(2 * most**0.5))
    labels, values = zip(*(values_of(column, seen.X, most) for column in chosen), strict=True)
    f = _on_grid(seen, chosen, values)  # (g, m, t), or (g, h, m, t)
    average = np.moveaxis(f.mean(axis=-2), -1, 0)
    centred = f - f.mean(axis=tuple(range(f.ndim - 2)), keepdims=True)
    error = np.moveaxis(centred.std(axis=-2), -1, 0) / f.shape[-2] ** 0.5
    one = len(chosen) == 1
    return PartialDependenceDisplay(
        tuple(column.name for column in chosen),
        labels,
        average,
        error,
        np.moveaxis(f, (2, 1, 0), (0, 1, 2)) if one else None,
        seen.outputs,
        seen.unit,
        None if one else _interaction(average),
    )


def _on_grid(
    seen: Inspected, chosen: list[InspectedColumn], values: Sequence[Array]
) -> Float[Array, "*g m t"]:
    """Return predictions of all rows with the columns set to each value, or pair of values."""
    averages = []
    for at in product(*(range(len(v)) for v in values)):
        X = seen.X.copy()
        for column, one, i in zip(chosen, values, at, strict=True):
            X[:, list(column.places)] = one[i]
        averages.append(seen.predict(X))
    return np.array(averages).reshape(*(len(v) for v in values), *averages[0].shape)


def _interaction(average: Float[Array, "t g h"]) -> Float[Array, " t"]:
    """Return √H² over the pairs of values: the share that is no sum of functions of one column."""
    about = average - average.mean(axis=(1, 2), keepdims=True)
    rest = about - about.mean(axis=1, keepdims=True) - about.mean(axis=2, keepdims=True)
    total = (about**2).sum(axis=(1, 2))
    share = np.divide((rest**2).sum(axis=(1, 2)), total, out=np.zeros_like(total), where=total > 0)
    return np.sqrt(share)


# --- Shapley values: contributions of the columns to one prediction, which add up to it -----------
#
# Shapley values of the game whose players are columns: v(S) is the mean prediction of rows that
# have the columns of S from the row x and all others from background rows b,
#
#     φ_j = E_π E_b [f(x_{π<j} ∪ {j}, b elsewhere) − f(x_{π<j}, b elsewhere)],
#
# π a random order of the columns [Štrumbelj and Kononenko (2014), algorithm 1]. Orders come in
# pairs, each with its reverse. For each order and background row the differences telescope, so that
# contributions add up to f(x) − f̄ exactly, however few there are; f̄ is the mean prediction of the
# background rows used.

TOGETHER = 1 << 14  # Rows that are predicted together


@dataclass(frozen=True, eq=False)
class ContributionDisplay(Display):
    """Contributions of columns to the predictions of some rows.

    Attributes
    ----------
    columns : (c,) of str
        As the user named them.
    contributions : (n, c, t)
        In units of the prediction; ``base + contributions.sum(axis=1)`` is ``predictions``.
    error : (n, c, t)
        Standard error of each.
    base : (t,)
        Mean prediction of the background rows.
    predictions : (n, t)
        Predictions, or decision values of a classifier.
    outputs : (t,) of str
        Targets, or classes.
    unit : str

    See Also
    --------
    contributions : Computes what is shown.
    ImportanceDisplay : Importance of columns over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 2])
    >>> display = bo.ContributionDisplay.from_estimator(model, X[:2], X)
    >>> display.contributions.shape, display.predictions.shape
    ((2, 3, 1), (2, 1))
    """

    columns: tuple[str, ...]
    contributions: Float[Array, "n c t"]
    error: Float[Array, "n c t"]
    base: Float[Array, " t"]
    predictions: Float[Array, "n t"]
    outputs: tuple[str, ...]
    unit: str

    @staticmethod
    def from_estimator(
        model: KernelEstimator, X: Any, background: Any, **options: Any
    ) -> "ContributionDisplay":
        """Return :func:`contributions` of a fitted learner."""
        return contributions(model, X, background, **options)

    def table(self, row: int = 0, output: int = 0, most: int = SHOWN) -> str:
        """Return what drives a row: base, the largest contributions, all others, the prediction."""
        return columns(self._lines(row, output, most))

    def _lines(self, row: int, output: int, most: int) -> list[list[str]]:
        values, error = self.contributions[row, :, output], self.error[row, :, output]
        order = np.argsort(-np.abs(values), kind="stable")
        rest = values[order[most:]]
        return [
            ["mean of the background", f"{self.base[output]:.4g}", ""],
            *([self.columns[j], f"{values[j]:+.3g}", f"± {error[j]:.1g}"] for j in order[:most]),
            *([[f"{len(rest)} others", f"{rest.sum():+.3g}", ""]] if len(rest) else []),
            [self.unit, f"{self.predictions[row, output]:.4g}", ""],
        ]

    def __str__(self) -> str:
        """Return the table of the first row."""
        return self.table()

    def _html_parts(self) -> Iterator[str]:
        """Yield the table of the first row, and the picture if it was drawn."""
        if self._is_drawn:
            yield from super()._html_parts()
        lines = self._lines(0, 0, SHOWN)
        yield html_table(
            ("column", "contribution", "error"), lines, "Of the first row", len(lines) - 1
        )

    def plot(self, ax: Any = None, *, row: int = 0, output: int = 0, most: int = SHOWN) -> Self:
        """Draw a bar for each of the largest contributions to a row; return the display."""
        ax = self._axes(ax)
        values = self.contributions[row, :, output]
        order = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
        names = [self.columns[j].replace("$", r"\$") for j in order]  # a name is no formula
        whiskers = 2 * self.error[row, order, output]
        ax.barh(range(len(order)), values[order], xerr=whiskers, capsize=2, ecolor="gray")
        ax.set_yticks(range(len(order)), names)
        ax.axvline(0, color="gray")
        ax.set_xlabel(
            f"{self.unit} {self.predictions[row, output]:.4g} against "
            f"{self.base[output]:.4g} on average"
        )
        return self


def contributions(
    model: KernelEstimator, X: Any, background: Any, *, n_orders: int = 64, random_state: Seed = 0
) -> ContributionDisplay:
    """Say what drives the predictions of some rows: the contribution of each column.

    Parameters
    ----------
    model : fitted regressor or classifier
    X : (n, d) or table
        Rows to explain, a few.
    background : (m, d), table or Blocks
        Rows for comparison, such as the training rows.
    n_orders : int, default 64
        Number of random orders of the columns, even; each uses another background row. Errors
        fall like 1/√n_orders.
    random_state : int, Generator, RandomState or None, default 0

    Returns
    -------
    ContributionDisplay
        Shapley values by the user's columns: categories, parts of dates and indicators of missing
        cells count for the column that they were made of.

    Raises
    ------
    NotFittedError
        The model is not fitted.
    InvalidInput
        The learner predicts no target; ``n_orders`` is odd.

    Notes
    -----
    Time: ``n_orders`` (c + 1) predicted rows for each row, of c columns. Of a sum of functions of
    single columns a contribution is f_j(x_j) less its mean over the background. Redundant
    columns share their contribution, and rows that mix x with the background may not exist.

    Source: Štrumbelj and Kononenko (2014), *Explaining prediction models and individual predictions
    with feature contributions*, algorithm 1; with antithetic orders.

    Examples
    --------
    >>> import numpy as np, bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 2])
    >>> result = bo.contributions(model, X[:1], X)
    >>> whole = result.base + result.contributions.sum(axis=1)
    >>> bool(np.allclose(whole, result.predictions))
    True
    """
    who = "contributions"
    n_orders = integer(n_orders, who, "n_orders", 2)
    if n_orders % 2:
        raise InvalidInput(
            f"{who}: n_orders must be even, an order beside each reverse; got {n_orders}."
        )
    seed = seed_of(random_state)
    seen = Inspected.of(who, model, background, max(2, n_orders // 2), seed)
    X_rows = np.concatenate([to_numpy(block.X) for block in model._rows_to_predict(X)])
    rng = stream(seed, "orders")
    c = len(seen.columns)
    half = np.array([rng.permutation(c) for _ in range(n_orders // 2)])
    orders = np.stack([half, half[:, ::-1]], axis=1).reshape(n_orders, c)  # each, then its reverse
    rows = np.tile(rng.permutation(len(seen.X)), -(-n_orders // len(seen.X)) + 1)
    rows = np.repeat(rows[: n_orders // 2], 2)
    parts = [_of_row(seen, x, seen.X[rows], orders) for x in X_rows]
    values, error = (np.array(part) for part in zip(*parts, strict=True))
    base = seen.predict(seen.X[rows]).mean(axis=0)
    names = tuple(column.name for column in seen.columns)
    predictions = seen.predict(X_rows)
    return ContributionDisplay(names, values, error, base, predictions, seen.outputs, seen.unit)


def _of_row(
    seen: Inspected, x: Float[Array, " d"], B: Float[Array, "k d"], orders: Array
) -> tuple[Float[Array, "c t"], Float[Array, "c t"]]:
    """Return the mean difference that each column makes where its turn comes, and its error."""
    k, c = orders.shape
    rows = np.empty((c + 1, *B.shape), B.dtype)
    rows[0] = B
    for step in range(c):
        rows[step + 1] = rows[step]
        for i, j in enumerate(orders[:, step]):
            places = list(seen.columns[j].places)
            rows[step + 1, i, places] = x[places]
    flat = rows.reshape((c + 1) * k, -1)
    parts = [seen.predict(flat[i : i + TOGETHER]) for i in range(0, len(flat), TOGETHER)]
    steps = np.diff(np.concatenate(parts).reshape(c + 1, k, -1), axis=0)  # (c, k, t)
    gains = np.empty_like(steps)
    for i in range(k):
        gains[orders[i], i] = steps[:, i]
    pairs = gains.reshape(c, k // 2, 2, -1).mean(axis=2)
    return pairs.mean(axis=1), pairs.std(axis=1, ddof=min(1, k // 2 - 1)) / (k // 2) ** 0.5
