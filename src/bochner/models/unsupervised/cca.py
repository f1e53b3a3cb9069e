"""Kernel canonical correlation analysis at any number of rows."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags

from bochner._core.arrays import add, array_namespace, as_matrix, from_numpy, to_numpy
from bochner._core.checks import integer, nonnegative, warn_user
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import block_rows
from bochner._core.text import as_text
from bochner.data.blocks import Blocks, count_rows
from bochner.data.schema import Inputs
from bochner.data.sources import Block, require_targets, weights_of
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models._base import FitSummary, getter
from bochner.models._parameters import FeatureParameters, estimator
from bochner.models._rows import row_marks
from bochner.models._tables import accept_partitions
from bochner.models.unsupervised.transformers import KernelTransformer, choose_quickly
from bochner.selection.choices import Choices
from bochner.selection.spec import as_kernel
from bochner.solvers.correlation import Directions, Sides, correlations
from bochner.sums.moments import Moments, MomentSum
from bochner.sums.passes import LOCAL, Executor, draw_rows

#: Moments of the features of X and Y, as columns of one matrix, of each half of the rows.
Halves = tuple[Moments | None, Moments | None]


@dataclass(frozen=True, eq=False)
class Correlations(FitSummary):
    """Directions in two feature spaces, and the sums from which they were computed."""

    inputs: Inputs
    chosen: Choices
    chosen_y: Choices
    halves: Halves
    rows: int  # number of rows read
    alpha: float
    path: tuple[tuple[float, float], ...]  # penalties and their held-out correlations
    directions: Directions
    correlations: Float[Array, " q"]
    x_mean: Float[Array, " D"]  # means of the features
    y_mean: Float[Array, " D"]

    def _results(self) -> dict[str, Any]:
        words = f"{as_text(self.correlations)}, on the training rows"
        return {"rows": self.rows, "correlations": words, "alpha": self.alpha}

    def values(self) -> Callable[[Array], Float[Array, "b q"]]:
        """Return the function X ↦ (φ(x) − mean)·a, with the canonical directions a."""
        return self.chosen.linear(self.directions.a, -(self.x_mean @ self.directions.a))

    def require_partners(self, columns: int) -> None:
        """Raise an error unless Y has as many columns as in the fit."""
        if columns != (d := self.chosen_y.map.n_inputs):
            raise InvalidInput(f"KernelCCA: Y must have the {d} columns of the fit; got {columns}.")


@dataclass(frozen=True, eq=False)
class CorrelationSum:
    """Summand of the moments of [φ(X), ψ(Y)], for each half of the rows."""

    x: Choices
    y: Choices

    @property
    def _moments(self) -> MomentSum:
        return MomentSum(lambda Z: Z, self.x.precision)

    def add(self, total: list[Any] | None, block: Block) -> list[Any]:
        """Add each row of a block to its half."""
        Y = columns_of(block.y)
        Zx, Zy = self.x.precision_map.features(block.X), to_numpy(self.y.precision_map.features(Y))
        Z = array_namespace(Zx).concat([Zx, from_numpy(Zy, like=Zx)], axis=1)
        # The half of a row depends on its values x and y, so that copies are in one half
        marks = row_marks(block.X, self.x.seed) + row_marks(Y, self.x.seed)
        first, w = marks >> np.uint64(63) == 0, weights_of(block)
        halves = [Block(Z, None, w * half, block.start) for half in (first, ~first)]
        return [
            self._moments.add(t, half)
            for t, half in zip(total or (None, None), halves, strict=True)
        ]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [self._moments.merge(x, y) for x, y in zip(a, b, strict=True)]

    def sum_halves(self, blocks: Blocks, where: Executor = LOCAL) -> Halves:
        """Return the moments of each half of all rows."""
        size = block_rows(self.x.map.n_features + self.y.map.n_features)
        first, second = [
            self._moments.moments(half) if half.rows else None
            for half in where.sum(self, blocks.with_rows(size))
        ]
        return first, second


def solve(
    count: int,
    alpha: float | None,
    inputs: Inputs,
    sides: tuple[Choices, Choices],
    halves: Halves,
    rows: int,
) -> Correlations:
    """Return the fit from sums of the rows; ``alpha=None``: choose it on held-out rows."""
    moments, width = add(*halves), sides[0].map.n_features
    if moments is None:
        raise InvalidInput(
            "KernelCCA: at least one row with a positive weight is required; got none."
        )
    pair = Sides.of(moments, width)
    path: tuple[tuple[float, float], ...] = ()
    if alpha is None:
        alpha, path = _penalty(count, pair, halves, width)
    directions = pair.directions(count, alpha)
    if len(directions.values) < count:
        warn_user(
            f"KernelCCA: n_components={count}, but {moments.rows} rows have "
            f"{len(directions.values)} pairs of directions above rounding; these are kept. Use "
            "fewer components, or more features."
        )
    values = correlations(moments, directions)
    means = np.split(moments.feature_mean, [width])
    return Correlations(inputs, *sides, halves, rows, alpha, path, directions, values, *means)


def _penalty(
    count: int, sides: Sides, halves: Halves, width: int
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the penalty of largest held-out correlation, and the path of all penalties."""
    alphas, (a, b) = sides.penalties(), halves
    if a is None or b is None:
        return float(alphas[len(alphas) // 2]), ()
    scores = np.zeros(len(alphas))  # correlations of each half along directions of the other half
    for train, test in ((a, b), (b, a)):
        half, share = Sides.of(train, width), train.weight / sides.weight
        for i, alpha in enumerate(alphas):
            pairs = half.directions(count, share * alpha)
            values = correlations(test, pairs)
            scores[i] += values.sum() / (2 * max(1, len(values)))
    best = int(np.flatnonzero(scores >= scores.max() - 1e-6)[-1])  # the largest, in a tie
    return float(alphas[best]), tuple(zip(alphas.tolist(), scores.tolist(), strict=True))


def columns_of(Y: Any) -> Any:
    """Return Y as a matrix; a vector becomes a column."""
    Y = np.asarray(Y) if isinstance(Y, list | tuple) else Y
    return Y.reshape((-1, 1)) if Y.ndim == 1 else Y


def _partners(blocks: Blocks) -> int:
    """Return the number of columns of Y."""
    return math.prod(require_targets("KernelCCA", blocks.target_shape))


@estimator
class KernelCCA(FeatureParameters, KernelTransformer):
    """Kernel canonical correlation analysis: the most correlated directions of two tables.

    Maximises a·C_xy b subject to a·(C_xx + alpha I)a = b·(C_yy + alpha I)b = 1. The matrices C are
    weighted sums of products of the centred features φ(xᵢ) and ψ(yᵢ), from one pass over the rows.

    Parameters
    ----------
    n_components : int, default 2
        Number of pairs of directions.
    kernel : Kernel or str, default "gaussian"
        Kernel of X. A name: this family; its lengthscale is the median distance between rows.
    kernel_y : Kernel, str or None, default None
        Kernel of Y. None: as for X; for a name the lengthscale is the median distance in Y.
    n_features : int, default 512
        Number of features for X, and for Y.
    alpha : float or "cv", default "cv"
        Penalty; without it, many features correlate perfectly for any data. "cv": the penalty for
        which the directions of one half of the rows correlate most on the other half.

    See Also
    --------
    KernelPCA : Directions in which rows of one table vary most.
    KernelFeatures : Features for any linear method.

    Notes
    -----
    Time O(n (c(φ) + D²) + D³), memory O(D²). Sources: Bach and Jordan (2002); with random features,
    Lopez-Paz et al. (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelCCA
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1, 1, 500)
    >>> X = np.column_stack([t, rng.standard_normal(500)])
    >>> Y = np.column_stack([t**2, rng.standard_normal(500)])
    >>> model = KernelCCA(1, n_features=128, random_state=0).fit(X, Y)
    >>> bool(model.correlations_[0] > 0.9)
    True
    """

    n_components: int = 2
    kernel: Kernel | str = "gaussian"
    kernel_y: Kernel | str | None = None
    _: KW_ONLY
    alpha: float | str = "cv"

    def _options(self) -> tuple[int, float | None]:
        """Return the checked number of components, and the penalty, None if it is "cv"."""
        count = integer(self.n_components, "KernelCCA", "n_components", 1)
        return count, None if self.alpha == "cv" else nonnegative(self.alpha, "KernelCCA", "alpha")

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> Correlations:
        # The map of X is drawn from X only, the map of Y from Y only.
        options, features, partners = self._options(), self._width_spec(), _partners(blocks)
        kernel_y = features.kernel if self.kernel_y is None else as_kernel(self.kernel_y)
        features_y = replace(features, kernel=kernel_y)
        rows = x = y = None
        if features.needs_rows or features_y.needs_rows:
            rows = draw_rows(blocks, features.seed, where=where)
            x = replace(rows, y=rows.y[:, :0])
            y = replace(x, X=rows.y)
        chosen = choose_quickly(features, blocks.n_columns, x)
        chosen = chosen.in_precision(features.precision, blocks.n_rows)
        chosen_y = choose_quickly(features_y, partners, y)
        sides = chosen, replace(chosen_y, precision=chosen.precision)
        halves = CorrelationSum(*sides).sum_halves(blocks, where)
        return solve(*options, inputs, sides, halves, count_rows(blocks))

    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Add rows to the fit, and solve again; the first call draws the maps."""
        return self._add_rows(X, y, sample_weight)

    def _update(self, blocks: Blocks, inputs: Inputs) -> Correlations:
        fit = self.fit_
        fit.require_partners(_partners(blocks))
        sides, rows = (fit.chosen, fit.chosen_y), fit.rows + count_rows(blocks)
        first, second = map(add, fit.halves, CorrelationSum(*sides).sum_halves(blocks))
        return solve(*self._options(), fit.inputs, sides, (first, second), rows)

    def solve_again(self) -> Self:
        """Solve again from the stored moments."""
        fit = self._fitted
        sides = fit.chosen, fit.chosen_y
        self.fit_ = solve(*self._options(), fit.inputs, sides, fit.halves, fit.rows)
        return self

    @accept_partitions
    def transform(self, X: Tabular, y: Array | None = None) -> Any:
        """Return scores (φ(x) − mean)·a, (n, q) float64; with ``y`` a pair with (ψ(y) − mean)·b."""
        fit, scores = self._fitted, super().transform(X)
        if y is None:
            return scores
        Y = as_matrix(columns_of(y), "KernelCCA", "Y")
        fit.require_partners(Y.shape[1])
        y_scores = fit.chosen_y.linear(fit.directions.b, -(fit.y_mean @ fit.directions.b))
        return scores, from_numpy(y_scores(Y), like=Y)

    def score(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> float:
        """Return the mean correlation, over components, of the scores of X and Y on these rows."""
        x_scores, y_scores = (to_numpy(s) for s in self.transform(X, y))
        if len(x_scores) != len(y_scores):
            raise InvalidInput(
                "KernelCCA.score: X and Y must have the same number of rows; got "
                f"{len(x_scores)} and {len(y_scores)}."
            )
        w = None if sample_weight is None else to_numpy(sample_weight).astype(np.float64)
        if (q := x_scores.shape[1]) == 0:
            return 0.0
        moments = Moments.of(np.hstack([x_scores, y_scores]), np.zeros((len(x_scores), 0)), w)
        return float(correlations(moments, Directions(np.eye(q), np.eye(q), np.ones(q))).mean())

    kernel_y_ = getter("chosen_y.kernel", "The kernel of Y, with all hyperparameters.")
    map_y_ = getter("chosen_y.map", "Feature map ψ of Y.")
    correlations_ = getter(
        "correlations",
        "Correlations of the scores of X and Y on the training rows, (q,), one per component.",
    )
    singular_values_ = getter(
        "directions.values",
        "Maxima a·C_xy b, decreasing, (q,); the penalty makes them smaller than correlations.",
    )
    x_weights_ = getter("directions.a", "Directions a, (D, q), with training scores of variance 1.")
    y_weights_ = getter("directions.b", "Directions b, (D, q), scaled in the same way.")
    x_mean_ = getter("x_mean", "Mean of the features of X, (D,).")
    y_mean_ = getter("y_mean", "Mean of the features of Y, (D,).")
    alpha_ = getter("alpha", "The penalty of the fit.")
    path_ = getter("path", "Pairs of a penalty and its mean held-out correlation.")
    rows_seen_ = getter("rows", "Number of rows read.")
    _n_features_out = getter("correlations.size", "Number of columns of ``transform``.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
