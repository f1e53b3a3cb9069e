"""Shapley values: contributions of the columns to one prediction, which add up to it.

The game's players are columns: v(S) is the mean prediction of rows that have the columns of S from
the row x and all others from background rows b,

    φ_j = E_π E_b [f(x_{π<j} ∪ {j}, b elsewhere) − f(x_{π<j}, b elsewhere)],

π a random order of the columns [Štrumbelj and Kononenko (2014), algorithm 1]. Orders come in
pairs, each with its reverse. For each order and background row the differences telescope, so that
contributions add up to f(x) − f̄ exactly, however few there are; f̄ is the mean prediction of the
background rows used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import integer
from bochner._core.html import html_table
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import columns
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator
from bochner.models.displays import Display
from bochner.models.inspection.importance import SHOWN, Inspected

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
