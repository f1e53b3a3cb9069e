"""Importance of columns for all predictions, and their contributions to single predictions.

Importances are standard deviations in units of the prediction. For a linear function of independent
columns the importance of a column is |b| σ, with its coefficient b and standard deviation σ.

* **exchange**: √T_j, where the value in column j of each row x is replaced by that of a row x′,

      T_j = ½ E (f(x) − f(x with x′_j))²,

  Jansen's form of the total effect of Sobol'. If columns are independent, T_j is the variance of f
  that would remain if all other columns were known.

* **gradient**: the root of E[∇_j fᵀ Σ_j ∇_j f], with the gradient ∇_j f in the encoded columns of
  column j and their covariance Σ_j. It uses the given rows only. For independent normal columns
  E[∇_j fᵀ Σ_j ∇_j f] is an upper bound of T_j.

If the fit transforms columns, gradients and Σ_j are those of the transformed columns: for a skewed
column, deviations and slopes are large in different rows, and their product is meaningless.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import slices, to_numpy
from bochner._core.checks import integer, one_of
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import columns, html_table, paragraph
from bochner.data.blocks import Blocks
from bochner.data.encoders import Encoder, Numbers
from bochner.errors import InvalidInput
from bochner.kernels.algebra import Monotone
from bochner.models._base import Differentiable, KernelEstimator
from bochner.models.displays import Display

# --- A fitted learner, its outputs, the rows used, and the columns of the user's table ------------
#
# A column of a table may have several encoded columns: categories, parts of a date, an indicator of
# missing cells. They change together, so that every predicted row encodes a possible row.


@dataclass(frozen=True, eq=False)
class Inspection:
    """A fitted learner, its columns, and encoded rows on which it is evaluated."""

    model: KernelEstimator
    # Encoders, and the indices of their columns of X
    columns: tuple[tuple[Encoder, list[int]], ...]
    X: Float[Array, "m d"]  # Dense encoded rows

    @staticmethod
    def of(
        caller: str, model: KernelEstimator, X: Any, n_rows: int, random_state: Seed
    ) -> "Inspection":
        """Return the inspection of a learner on at most ``n_rows`` random rows."""
        check_is_fitted(model)
        if not (is_regressor(model) or is_classifier(model)):
            raise InvalidInput(
                f"{caller}: the learner must predict a target; {type(model).__name__} has none. "
                "Use a regressor or a classifier."
            )
        m = integer(n_rows, caller, "n_rows", 2)
        rows = model._rows_to_predict(X).sample(m, seed_of(random_state)).X
        names = model._inputs.names or [f"column {j}" for j in range(model.n_features_in_)]
        schema: Any = model.schema_
        encoders = [Numbers(name) for name in names] if schema is None else schema.plain
        ends = np.cumsum([len(encoder.feature_names) for encoder in encoders])
        columns = (
            (encoder, list(range(end - len(encoder.feature_names), end)))
            for encoder, end in zip(encoders, ends, strict=True)
        )
        encoded = tuple(column for column in columns if column[1])  # without dropped columns
        return Inspection(model, encoded, to_numpy(rows))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(encoder.name for encoder, _ in self.columns)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs of :meth:`predict`: targets, or classes."""
        if is_classifier(self.model):
            labels = self.model.classes_
            return tuple(map(str, labels[-1:] if len(labels) == 2 else labels))
        t = self.predict(self.X[:1]).shape[1]
        names = () if self.model.schema_ is None else self.model.schema_.target_names or ()
        if len(names) == t:
            return names
        return ("prediction",) if t == 1 else tuple(f"prediction {j}" for j in range(t))

    @property
    def unit(self) -> str:
        """Name of the predicted quantity."""
        return "decision value" if is_classifier(self.model) else "prediction"

    def predict(self, X: Float[Array, "b d"]) -> Float[Array, "b t"]:
        """Return predictions, or decision values of a classifier, of encoded rows."""
        method = self.model.decision_function if is_classifier(self.model) else self.model.predict
        predictions = to_numpy(method(Blocks.from_arrays(X)))
        return predictions.reshape(len(predictions), -1).astype(np.float64)


COLUMNS = 12  # Default number of columns in tables and pictures


@dataclass(frozen=True, eq=False)
class ImportanceDisplay(Display):
    """Importance of each column for the predictions.

    Attributes
    ----------
    columns : (c,) of str
        Names of the columns in the table.
    importance : (c, t)
        Standard deviation of each of t predictions if only this column changes, in units of the
        prediction (for a classifier, of the decision value).
    error : (c, t)
        Standard error of each importance.
    spread : (t,)
        Standard deviation of the predictions on the same rows.
    outputs : (t,) of str
        Targets, or classes.
    by : {"exchange", "gradient"}
    unit : {"prediction", "decision value"}
    n_rows : int
        Number of rows used.

    See Also
    --------
    column_importance : Compute the importance of columns.
    ContributionDisplay : Contributions of columns to the predictions of some rows.
    """

    columns: tuple[str, ...]
    importance: Float[Array, "c t"]
    error: Float[Array, "c t"]
    spread: Float[Array, " t"]
    outputs: tuple[str, ...]
    by: str
    unit: str
    n_rows: int

    @property
    def share(self) -> Float[Array, " c"]:
        """Importance divided by ``spread``, shape (c,); root mean square over several outputs.

        Shares do not add up to 1. Their squares do if predictions are a sum of functions of
        single, independent columns.
        """
        spread = np.where(self.spread > 0, self.spread, 1.0)
        return np.sqrt(np.mean((self.importance / spread) ** 2, axis=1))

    @property
    def order(self) -> Array:
        """Indices of the columns, the most important first."""
        return np.argsort(-self.share, kind="stable")

    def table(self, top: int = COLUMNS) -> tuple[list[str], list[list[str]], str]:
        """Return the header, the lines of the ``top`` columns, and a note on the other columns."""
        is_joint = len(self.outputs) > 1
        header = ["share", *self.outputs] if is_joint else ["importance", "error", "share"]
        shares = [
            f"{100 * share:.3g} %" if share >= 0.001 or share == 0 else "< 0.1 %"
            for share in self.share
        ]
        lines = []
        for j in self.order[:top]:
            values = [f"{v:.3g}" for v in self.importance[j]]
            cells = [shares[j], *values]
            if not is_joint:
                cells = [*values, f"± {self.error[j, 0]:.1g}", shares[j]]
            lines.append([self.columns[j], *cells])
        indices = self.order[top:]
        tail = f"{len(indices)} others, {shares[indices[0]]} at most" if len(indices) else ""
        return ["column", *header], lines, tail

    def __str__(self) -> str:
        """Return a ranked table."""
        head, lines, tail = self.table()
        return columns([head, *lines]) + (f"\n{tail}" if tail else "")

    def _html_parts(self) -> Iterator[str]:
        """Yield the picture if it was drawn, and the ranked table."""
        if self._has_axes:
            yield from super()._html_parts()
        head, lines, tail = self.table()
        yield html_table(head, lines, f"Measured on {self.n_rows:,} rows")
        if tail:
            yield paragraph(tail)

    def plot(self, ax: Any = None, *, top: int = COLUMNS) -> Self:
        """Draw a bar for each of the ``top`` columns; return the display.

        Bars are importances with whiskers of two standard errors; for several outputs, shares.
        """
        ax, order = self._axes(ax), self.order[:top][::-1]
        single = len(self.outputs) == 1
        values = self.importance[order, 0] if single else self.share[order]
        _bars(ax, self.columns, order, values, 2 * self.error[order, 0] if single else None)
        label = f"deviation of the {self.unit}" if single else "share of the predictions' deviation"
        ax.set(xlabel=label, xlim=(0, None))
        return self


def _bars(ax: Any, columns: Sequence[str], order: Array, values: Array, whiskers: Any) -> None:
    """Draw a bar for each of these columns."""
    names = [columns[j].replace("$", r"\$") for j in order]  # "$" would start a formula
    ax.barh(range(len(names)), values, xerr=whiskers, capsize=2, ecolor="gray")
    ax.set_yticks(range(len(names)), [n if len(n) <= 24 else n[:23] + "…" for n in names])


def column_importance(
    model: KernelEstimator,
    X: Any,
    *,
    by: str = "exchange",
    n_rows: int = 1024,
    random_state: Seed = 0,
) -> ImportanceDisplay:
    """Return the importance of each column of a table for the predictions of a fitted learner.

    Parameters
    ----------
    model : fitted regressor or classifier
    X : (n, d), table or Blocks
        Rows on which importance is measured.
    by : {"exchange", "gradient"}, default "exchange"
        - "exchange": the change of predictions if the column has the value of another row.
        - "gradient": the gradients at the given rows, for learners and features with gradients.
          Faster for many columns.
    n_rows : int, default 1024
        Largest number of rows, drawn at random. Weights are ignored.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the choice of rows and of their exchange.

    Returns
    -------
    ImportanceDisplay
        Importance of each column of the table, together with its categories, parts of dates and
        indicator of missing cells.

    Raises
    ------
    InvalidInput
        If the learner predicts no target, or there are fewer than two rows.
    UnsupportedKernel
        With "gradient", if the features have no gradient in closed form.

    Notes
    -----
    Time: "exchange" takes one prediction of ``n_rows`` rows per column, "gradient" two in total.
    "exchange" changes correlated columns separately, so some rows may be unrealistic, such as a
    heavy car with little power.

    Sources: Jansen's estimator of total effects in Saltelli et al. (2010), *Variance based
    sensitivity analysis of model output*, table 2 (f); Sobol' and Kucherenko (2009), *Derivative
    based global sensitivity measures and their link with global sensitivity indices*;
    Radhakrishnan et al. (2024), *Mechanism for feature learning*, equation 1.

    Examples
    --------
    >>> import numpy as np, bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 2])
    >>> display = bo.column_importance(model, X)
    >>> display.order.tolist(), display.importance.shape
    ([0, 2, 1], (3, 1))
    """
    caller = "column_importance"
    one_of(by, caller, "by", ("exchange", "gradient"))
    inspection = Inspection.of(caller, model, X, n_rows, random_state)
    if (n := len(inspection.X)) < 2:
        raise InvalidInput(f"{caller}: at least 2 rows are required to compare; got {n}.")
    seed = seed_of(random_state)
    parts = _gradients(inspection) if by == "gradient" else _permutations(inspection, seed)
    mean, deviation = (np.array(part) for part in zip(*parts, strict=True))
    importance = np.sqrt(np.maximum(mean, 0.0))
    error = np.divide(deviation, 2 * importance, out=0 * importance, where=importance > 0)
    spread = inspection.predict(inspection.X).std(axis=0)
    options = spread, inspection.outputs, by, inspection.unit, n
    return ImportanceDisplay(inspection.names, importance, error, *options)


def _permutations(inspection: Inspection, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield T_j and its standard error for each column j, from a random cycle of the rows."""
    # Successive rows share a value, so the standard error includes their covariance
    ring = stream(seed, "exchange").permutation(len(inspection.X))
    X = inspection.X[ring]
    f, successors, m = inspection.predict(X), np.roll(X, -1, axis=0), len(X)
    for _, places in inspection.columns:
        rows = X.copy()
        rows[:, places] = successors[:, places]
        values = (inspection.predict(rows) - f) ** 2 / 2
        mean = values.mean(axis=0)
        e = values - mean
        variance = (e**2).mean(axis=0)
        covariance = (e * np.roll(e, -1, axis=0)).mean(axis=0)
        yield mean, np.sqrt(np.maximum(variance, variance + 2 * covariance) / m)


def _gradients(inspection: Inspection) -> Iterator[tuple[Array, Array]]:
    """Yield E[∇_j fᵀ Σ_j ∇_j f] and its standard error for each column j."""
    model, X = cast("Differentiable", inspection.model), inspection.X.astype(np.float64)
    G = np.concatenate([g for _, g in model._gradients(Blocks.from_arrays(inspection.X))])
    if isinstance(model.kernel_, Monotone):
        slopes = model.kernel_.backward(X, np.ones_like(X))[:, :, None]
        G, X = np.divide(G, slopes, out=0 * G, where=slopes > 0), model.kernel_.inputs(X)
    for _, places in inspection.columns:
        covariance = np.atleast_2d(np.cov(X[:, places], rowvar=False, bias=True))
        values = np.einsum("mjt,jk,mkt->mt", G[:, places], covariance, G[:, places])
        yield values.mean(axis=0), values.std(axis=0) / len(values) ** 0.5


# --- Contributions of the columns to a prediction ------------------------------------------------
#
# Shapley values: the players are the columns, and v(S) is the mean prediction of rows that have the
# columns S of the row x and all other columns of background rows b,
#
#     φ_j = E_π E_b [f(x_{π<j} ∪ {j}, b elsewhere) − f(x_{π<j}, b elsewhere)],
#
# with a random order π of the columns [Štrumbelj and Kononenko (2014), algorithm 1]. Orders are
# drawn in pairs, an order and its reverse. For each order and background row the differences
# telescope: contributions add up to f(x) − f̄ for any number of orders, with the mean prediction f̄
# of the background rows.


@dataclass(frozen=True, eq=False)
class ContributionDisplay(Display):
    """Contributions of columns to the predictions of some rows.

    Attributes
    ----------
    columns : (c,) of str
        Names of the columns in the table.
    contributions : (n, c, t)
        Contribution of each column to each prediction, in units of the prediction;
        ``base + contributions.sum(axis=1)`` equals ``predictions``.
    error : (n, c, t)
        Standard error of each contribution.
    base : (t,)
        Mean prediction of the background rows.
    predictions : (n, t)
        Predictions, or decision values of a classifier.
    outputs : (t,) of str
        Targets, or classes.
    unit : {"prediction", "decision value"}

    See Also
    --------
    contributions : Compute the contributions.
    ImportanceDisplay : Importance of columns over all rows.
    """

    columns: tuple[str, ...]
    contributions: Float[Array, "n c t"]
    error: Float[Array, "n c t"]
    base: Float[Array, " t"]
    predictions: Float[Array, "n t"]
    outputs: tuple[str, ...]
    unit: str

    def table(self, row: int = 0, output: int = 0, top: int = COLUMNS) -> str:
        """Return a table of a row: base, ``top`` contributions, sum of the others, prediction."""
        return columns(self._lines(row, output, top))

    def _lines(self, row: int, output: int, top: int) -> list[list[str]]:
        values, error = self.contributions[row, :, output], self.error[row, :, output]
        order = np.argsort(-np.abs(values), kind="stable")
        tail = values[order[top:]]
        return [
            ["mean of the background", f"{self.base[output]:.4g}", ""],
            *([self.columns[j], f"{values[j]:+.3g}", f"± {error[j]:.1g}"] for j in order[:top]),
            *([[f"{len(tail)} others", f"{tail.sum():+.3g}", ""]] if len(tail) else []),
            [self.unit, f"{self.predictions[row, output]:.4g}", ""],
        ]

    def __str__(self) -> str:
        """Return the table of the first row."""
        return self.table()

    def _html_parts(self) -> Iterator[str]:
        """Yield the table of the first row, and the picture if it was drawn."""
        if self._has_axes:
            yield from super()._html_parts()
        lines = self._lines(0, 0, COLUMNS)
        yield html_table(
            ("column", "contribution", "error"), lines, "Of the first row", len(lines) - 1
        )

    def plot(self, ax: Any = None, *, row: int = 0, output: int = 0, top: int = COLUMNS) -> Self:
        """Draw a bar for each of the ``top`` contributions to a row; return the display."""
        ax = self._axes(ax)
        values = self.contributions[row, :, output]
        order = np.argsort(-np.abs(values), kind="stable")[:top][::-1]
        _bars(ax, self.columns, order, values[order], 2 * self.error[row, order, output])
        ax.axvline(0, color="gray")
        ax.set_xlabel(
            f"{self.unit} {self.predictions[row, output]:.4g} against "
            f"{self.base[output]:.4g} on average"
        )
        return self


def contributions(
    model: KernelEstimator, X: Any, background: Any, *, n_orders: int = 64, random_state: Seed = 0
) -> ContributionDisplay:
    """Return the contribution of each column to the predictions of rows.

    Parameters
    ----------
    model : fitted regressor or classifier
    X : (n, d) or table
        A few rows to explain.
    background : (m, d), table or Blocks
        Rows for comparison, such as the training rows.
    n_orders : int, default 64
        Even number of random orders of the columns; each pair of orders has its own background row.
        Standard errors fall as 1/√n_orders.
    random_state : int, Generator, RandomState or None, default 0

    Returns
    -------
    ContributionDisplay
        Shapley values of the columns of the table, each together with its categories, parts of
        dates and indicator of missing cells.

    Raises
    ------
    InvalidInput
        If the learner predicts no target, or ``n_orders`` is odd.

    Notes
    -----
    Takes ``n_orders`` (c + 1) predictions per row of c columns. If the prediction is a sum of
    functions f_j of single columns, a contribution is f_j(x_j) minus its mean over the background.
    Redundant columns share their contribution. Mixtures of x and background may be unrealistic.

    Source: Štrumbelj and Kononenko (2014), *Explaining prediction models and individual predictions
    with feature contributions*, algorithm 1; with antithetic orders.

    Examples
    --------
    >>> import numpy as np, bochner as bo
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = bo.KernelRidge("linear", random_state=0).fit(X, 3 * X[:, 0] + X[:, 2])
    >>> result = bo.contributions(model, X[:1], X)
    >>> total = result.base + result.contributions.sum(axis=1)
    >>> bool(np.allclose(total, result.predictions))
    True
    """
    caller = "contributions"
    n_orders = integer(n_orders, caller, "n_orders", 2)
    if n_orders % 2:
        raise InvalidInput(
            f"{caller}: n_orders must be even (orders and their reverses); got {n_orders}."
        )
    seed = seed_of(random_state)
    inspection = Inspection.of(caller, model, background, max(2, n_orders // 2), seed)
    X_rows = np.concatenate([to_numpy(block.X) for block in model._rows_to_predict(X)])
    rng = stream(seed, "orders")
    c = len(inspection.columns)
    half = np.array([rng.permutation(c) for _ in range(n_orders // 2)])
    orders = np.stack([half, half[:, ::-1]], axis=1).reshape(n_orders, c)  # order, then reverse
    rows = np.tile(rng.permutation(len(inspection.X)), -(-n_orders // len(inspection.X)) + 1)
    rows = np.repeat(rows[: n_orders // 2], 2)
    parts = [_row_contributions(inspection, x, inspection.X[rows], orders) for x in X_rows]
    values, error = (np.array(part) for part in zip(*parts, strict=True))
    predictions = inspection.predict(X_rows)
    base = inspection.predict(inspection.X[rows]).mean(axis=0)
    return ContributionDisplay(
        inspection.names, values, error, base, predictions, inspection.outputs, inspection.unit
    )


def _row_contributions(
    inspection: Inspection, x: Float[Array, " d"], B: Float[Array, "k d"], orders: Array
) -> tuple[Float[Array, "c t"], Float[Array, "c t"]]:
    """Return the Shapley values of one row, (c, t), and their standard errors."""
    k, c = orders.shape
    rows = np.empty((c + 1, *B.shape), B.dtype)
    rows[0] = B
    for step in range(c):
        rows[step + 1] = rows[step]
        for i, j in enumerate(orders[:, step]):
            places = inspection.columns[j][1]
            rows[step + 1, i, places] = x[places]
    flat = rows.reshape((c + 1) * k, -1)
    parts = [inspection.predict(flat[part]) for part in slices(len(flat), 1 << 14)]
    steps = np.diff(np.concatenate(parts).reshape(c + 1, k, -1), axis=0)  # (c, k, t)
    gains = np.empty_like(steps)
    for i in range(k):
        gains[orders[i], i] = steps[:, i]
    pairs = gains.reshape(c, k // 2, 2, -1).mean(axis=2)
    return pairs.mean(axis=1), pairs.std(axis=1, ddof=min(1, k // 2 - 1)) / (k // 2) ** 0.5
