"""Kernel canonical correlation analysis at any number of rows."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import as_matrix, from_numpy, to_numpy
from bochner._core.checks import integer, nonnegative, warn_user
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.features.draw import as_method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._alike import row_marks
from bochner.models._inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.unsupervised import choice
from bochner.selection.search import accepts_sparse, as_kernel
from bochner.solvers.correlation import Directions, Sides, correlations
from bochner.sums.moments import Accumulator, Moments

#: Of mean correlations this near the best, the one of the largest penalty is taken.
AS_GOOD = 1e-6


class KernelCCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Directions in two feature spaces along which rows and their partners correlate most.

    Maximises a·C_xy b subject to a·(C_xx + alpha I)a = b·(C_yy + alpha I)b = 1, where C are the
    centred products Σ wᵢ (·)(·)ᵀ of the features φ(xᵢ) and ψ(yᵢ); all of them in one pass.

    Parameters
    ----------
    n_components : int, default 2
        Pairs of directions.
    kernel : Kernel or str, default "gaussian"
        Of X. A name means: of this family, with the median distance as lengthscale.
    kernel_y : Kernel, str or None, default None
        Of Y; None is the same as that of X (the same name: with a lengthscale of its own).
    method : Method or str, default "auto"
        How features are made, of both sides; see :func:`bochner.draw`.
    n_features : int, default 512
        D of each side.
    alpha : float or "cv", default "cv"
        Penalty. Without one, wide features correlate perfectly whatever the data. "cv" takes the
        penalty whose directions, fitted on one half of the rows, correlate most on the other.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of features and of their products; "auto" is float64 where the fit is small.
    random_state : int, Generator, RandomState or None, default None

    Attributes
    ----------
    correlations_ : (q,) float64
        Correlations of the scores of the fit's rows, in the order of ``singular_values_``.
    singular_values_ : (q,)
        The maxima a·C_xy b, falling; below the correlations by what the penalty takes.
    x_weights_, y_weights_ : (D, q)
        a and b, scaled so that scores of the fit's rows have variance 1.
    alpha_ : float
        The penalty used.
    path_ : tuple of (float, float)
        With "cv": penalties, and the mean correlation on rows left out.
    kernel_, map_, kernel_y_, map_y_
        Kernels with their numbers, and both maps.
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(n (c(φ) + D²) + D³), memory O(D²). Which half a row falls into depends on its numbers
    and the seed: not on blocks or order, and copies of a row stay together. Source: Bach and
    Jordan (2002); with random features, Lopez-Paz et al. (2014).

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

    halves_: tuple[Moments | None, Moments | None]

    def __init__(
        self,
        n_components: int = 2,
        kernel: Kernel | str = "gaussian",
        kernel_y: Kernel | str | None = None,
        *,
        method: Method | str = "auto",
        n_features: int = 512,
        alpha: float | str = "cv",
        precision: str = "auto",
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.kernel_y = kernel_y
        self.method = method
        self.n_features = n_features
        self.alpha = alpha
        self.precision = precision
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows and their partners in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : (n,) or (n, e)
            Y: numbers.
        sample_weight : (n,), optional
            Finite, not negative. A row of weight 2 counts as two rows.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data are not what was required; the message says what to do.
        """
        if y is None:
            raise InvalidInput("KernelCCA: requires y to be passed, but the target y is None.")
        return self._fit(fit_blocks_of(self, X, y, sample_weight, reset=True))

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks whose targets are Y: files larger than memory, tables, streams."""
        note_columns(self, blocks, reset=True)
        return self._fit(blocks)

    @all_or_nothing
    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Add rows to those seen so far, and solve again; the first call draws the maps."""
        first = not hasattr(self, "halves_")
        blocks = fit_blocks_of(self, X, y, sample_weight, reset=first)
        if first:
            return self._fit(blocks)
        self._check_partners(_partners(blocks))
        (a, b), (c, d) = self.halves_, self._sweep(blocks)
        self.halves_ = _added(a, c), _added(b, d)
        return self._finish(blocks)

    def _fit(self, blocks: Blocks) -> Self:
        _engine.check_precision(self)
        integer(self.n_components, "KernelCCA", "n_components", 1)
        if self.alpha != "cv":
            nonnegative(self.alpha, "KernelCCA", "alpha")
        self.n_partners_ = _partners(blocks)
        self._choose(blocks)
        self.feature_dtype_ = _engine.feature_dtype(self.precision, blocks.n_rows, self.map_)
        self.rows_seen_ = 0
        self.halves_ = self._sweep(blocks)
        return self._finish(blocks)

    def _choose(self, blocks: Blocks) -> None:
        """Draw both maps, each from the rows of its side alone."""
        kernel = as_kernel(self.kernel)
        kernel_y = kernel if self.kernel_y is None else as_kernel(self.kernel_y)
        method = as_method(self.method)
        self.seed_ = seed_of(self.random_state)
        rows = None
        if _engine.needs_rows(kernel, method) or _engine.needs_rows(kernel_y, method):
            rows = _engine.presample(blocks, self.seed_)
        x, y = _sides(rows)
        width, seed = self.n_features, self.seed_
        of_x, of_y = (choice.quick(method, side, width) for side in (x, y))
        ours = _engine.prepare(kernel, of_x, width, blocks.n_columns, x, seed)
        theirs = _engine.prepare(kernel_y, of_y, width, self.n_partners_, y, seed)
        self.kernel_, self.map_, self.choice_ = ours.kernel, ours.map, ours.choice
        self.kernel_y_, self.map_y_, self.choice_y_ = theirs.kernel, theirs.map, theirs.choice

    def _sweep(self, blocks: Blocks) -> tuple[Moments | None, Moments | None]:
        """Return the moments of both sides' features side by side, of each half of the rows."""
        sums = Accumulator(self.feature_dtype_), Accumulator(self.feature_dtype_)
        width = self.map_.n_features + self.map_y_.n_features
        for block in blocks.with_rows(_engine.block_rows(width)):
            Z = np.hstack([self._features(block.X), self._features_y(_columns(block.y))])
            w = None if block.w is None else to_numpy(block.w)
            first = _halved(block.X, block.y, self.seed_)
            for half, rows in zip(sums, (first, ~first), strict=True):
                half.add(Z[rows], np.zeros((int(rows.sum()), 0)), None if w is None else w[rows])
        return _moments(sums[0]), _moments(sums[1])

    def _finish(self, blocks: Blocks) -> Self:
        self.rows_seen_ += _engine.count_rows(blocks)
        return self.solve_again()

    @all_or_nothing
    def solve_again(self) -> Self:
        """Solve anew from the moments as they are now."""
        moments = _added(*self.halves_)
        if moments is None:
            raise InvalidInput(
                "KernelCCA: at least one row with a positive weight is required; got none."
            )
        sides = Sides.of(moments, self.map_.n_features)
        self.alpha_, self.path_ = self._penalty(sides)
        found = sides.directions(self.n_components, self.alpha_)
        if len(found.values) < self.n_components:
            _warn_fewer(self.n_components, len(found.values), moments.rows)
        self.singular_values_, self.correlations_ = found.values, correlations(moments, found)
        self.x_weights_, self.y_weights_ = found.a, found.b
        self.x_mean_, self.y_mean_ = np.split(moments.feature_mean, [self.map_.n_features])
        self._n_features_out = len(found.values)
        return self

    def _penalty(self, sides: Sides) -> tuple[float, tuple[tuple[float, float], ...]]:
        """Return the penalty, and what it was compared with."""
        if self.alpha != "cv":
            return float(self.alpha), ()
        alphas, (a, b) = sides.penalties(), self.halves_
        if a is None or b is None:
            return float(alphas[len(alphas) // 2]), ()
        scores = (self._left_out(a, b, sides, alphas) + self._left_out(b, a, sides, alphas)) / 2
        best = int(np.flatnonzero(scores >= scores.max() - AS_GOOD)[-1])
        return float(alphas[best]), tuple(zip(alphas.tolist(), scores.tolist(), strict=True))

    def _left_out(
        self, fit: Moments, test: Moments, whole: Sides, alphas: Float[Array, " p"]
    ) -> Float[Array, " p"]:
        """Return mean correlations on one half of what the other half finds, at each penalty."""
        sides = Sides.of(fit, self.map_.n_features)
        share = fit.weight / whole.weight
        found = (sides.directions(self.n_components, share * alpha) for alpha in alphas)
        return np.array([_mean(correlations(test, pair)) for pair in found])

    # --- scores ----------------------------------------------------------------------------------

    def transform(self, X: Tabular, y: Array | None = None) -> Any:
        """Return the scores (φ(x) − mean)·a, (n, q), float64; with Y also those of Y."""
        check_is_fitted(self)
        parts = []
        for block in predict_blocks_of(self, X).with_rows(_engine.block_rows(self.n_features)):
            scores = (self._features(block.X) - self.x_mean_) @ self.x_weights_
            parts.append(from_numpy(scores, like=block.X))
        scores = _engine.joined(parts)
        return scores if y is None else (scores, self._transform_y(y))

    def _transform_y(self, Y: Array) -> Array:
        Y = as_matrix(_columns(Y), "KernelCCA", "Y")
        self._check_partners(Y.shape[1])
        scores = (self._features_y(Y) - self.y_mean_) @ self.y_weights_
        return from_numpy(scores, like=Y)

    def score(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> float:
        """Return the mean correlation of the pairs of scores of these rows."""
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
        return _mean(correlations(moments, Directions(np.eye(q), np.eye(q), np.ones(q))))

    def _features(self, X: Array) -> Float[Array, "b D"]:
        return to_numpy(_engine.as_features(self.map_, X, self.feature_dtype_))

    def _features_y(self, Y: Array) -> Float[Array, "b D"]:
        return to_numpy(_engine.as_features(self.map_y_, Y, self.feature_dtype_))

    def _check_partners(self, columns: int) -> None:
        if columns != self.n_partners_:
            raise InvalidInput(
                f"KernelCCA: Y must have the {self.n_partners_} columns of the fit; got {columns}."
            )

    # --- scikit-learn ----------------------------------------------------------------------------

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace numbers of X's kernel."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def _sides(rows: RowSample | None) -> tuple[RowSample | None, RowSample | None]:
    """Return the sample's X, and its Y as if it were X."""
    if rows is None:
        return None, None
    x = choice.alone(rows)
    return x, replace(x, X=rows.y)


def _columns(Y: Any) -> Any:
    """Return Y as a matrix: a vector is one column."""
    Y = Y if hasattr(Y, "ndim") else np.asarray(Y)
    return Y.reshape((-1, 1)) if Y.ndim == 1 else Y


def _partners(blocks: Blocks) -> int:
    """Return the number of columns of Y."""
    y = next(iter(blocks)).y
    if y is None:
        raise InvalidInput(
            "KernelCCA: requires y to be passed, but the target y is None; name its columns with "
            "target=[...] where the blocks are made."
        )
    return 1 if y.ndim == 1 else int(y.shape[1])


def _halved(X: Array, y: Array, seed: int) -> Array:
    """Return whether each row is of the first half, by what it and its partner hold."""
    return (row_marks(X, seed) + row_marks(_columns(y), seed)) >> np.uint64(63) == 0


def _moments(sums: Accumulator) -> Moments | None:
    return sums.moments() if sums.rows else None


def _added(a: Moments | None, b: Moments | None) -> Moments | None:
    if a is None or b is None:
        return a or b
    return a + b


def _mean(values: Float[Array, " q"]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _warn_fewer(asked: int, found: int, rows: int) -> None:
    warn_user(
        f"KernelCCA: n_components={asked}, but {rows} rows have {found} pairs of directions "
        "above rounding; these are kept. Ask for fewer, or raise n_features.",
    )
