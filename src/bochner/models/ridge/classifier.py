"""Kernel ridge classification: ridge regression of ±1, one target for each class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Block, Blocks
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._inputs import class_blocks, class_blocks_of, indicators, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.ridge import normal
from bochner.models.ridge.exact import (
    as_exact,
    fit_exact,
    predict_exact,
    takes_pieces,
)
from bochner.selection.lengthscale import accepts_sparse
from bochner.selection.width import Enough
from bochner.solvers.ridge.solution import Solution
from bochner.sums.moments import Precision


class KernelRidgeClassifier(ClassifierMixin, BaseEstimator):
    """Classification by kernel ridge regression of ±1, in one pass over the rows.

    Each class is a target, +1 on its rows and −1 on others (two classes: one target), fitted as by
    :class:`KernelRidge` with one factorisation; the class of the largest value is predicted. As
    scikit-learn's RidgeClassifier, and as good as a support vector machine mostly, at the price of
    one sweep. Values are not probabilities, and none are offered.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value, or a name whose lengthscale is chosen; see :class:`KernelRidge`.
    method : Method or str, default "auto"
        How features are made, or "exact" for the kernel itself.
    n_features : int, "auto" or Enough, default 1024
        D. Error falls with D; time grows like n D² + D³ and memory like D². "auto": as many as
        bring ε of the certificate to 0.1 at the penalty that is forecast; see
        :func:`bochner.enough`. With "exact" the width of the preconditioner.
    metric : None or "learned", default None
        "learned": columns are scaled and turned first, by the average outer product of the
        gradients of a few fits on a sample of rows (recursive feature machines). Worth trying on
        tables whose columns matter unequally.
    alpha : float, (K,) or {"loo", "gcv", "evidence", "kfold"}, default "loo"
        The penalty, or how to choose it: the squared error of ±1 decides.
    alpha_per_target : bool, default False
        Whether each class has the penalty that is best for its target.
    class_weight : None, "balanced" or dict, default None
        Factors of the rows' weights by class; "balanced": n/(K n_k), all classes weigh alike.
    precision : {"auto", "float32", "float64"}, default "auto"
    fit_intercept : bool, default True
    random_state : int, Generator, RandomState or None, default None
        As in :class:`KernelRidge`.

    Attributes
    ----------
    classes_ : (K,)
        Labels, sorted.
    kernel_, map_, choice_, search_, moments_, sample_, solution_, certificate_, schema_
        As in :class:`KernelRidge`; targets are ±1.
    alpha_ : float or (K,)
    coef_ : (K, D), (1, D) for two classes
    intercept_ : (K,), (1,) for two classes
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(n (c(φ) + D²) + D³), memory O(D²) and one block, whatever n and K. "balanced" in
    ``partial_fit`` weighs the rows of each call by themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidgeClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    >>> y = np.where((X**2).sum(axis=1) < 0.5, "in", "out")
    >>> KernelRidgeClassifier(random_state=0).fit(X, y).predict([[0.0, 0.0], [0.9, 0.9]]).tolist()
    ['in', 'out']
    """

    solution_: Solution

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Enough = 1024,
        metric: str | None = None,
        alpha: float | str = "loo",
        alpha_per_target: bool = False,
        class_weight: Any = None,
        precision: str = "auto",
        fit_intercept: bool = True,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.metric = metric
        self.alpha = alpha
        self.alpha_per_target = alpha_per_target
        self.class_weight = class_weight
        self.precision = precision
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table, as in :meth:`KernelRidge.fit`.
        y : (n,)
            Labels: numbers, text or truth values; two classes at least.
        sample_weight : (n,), optional

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data are not what was required; the message says what to do.
        """
        return self._fit(class_blocks_of(self, X, y, sample_weight))

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks whose target holds labels, numbers or text; one pass finds the classes."""
        return self._fit(class_blocks(self, blocks))

    @available_if(takes_pieces)
    @all_or_nothing
    def partial_fit(
        self,
        X: Float[Array, "n d"],
        y: Array,
        classes: Any = None,
        sample_weight: Array | None = None,
    ) -> Self:
        """Add rows to those seen so far, and solve again; see :meth:`KernelRidge.partial_fit`.

        Parameters
        ----------
        X : (n, d)
        y : (n,)
        classes : (K,), optional
            All labels that will ever come: in the first call, unless its y has them all.
        sample_weight : (n,), optional
        """
        first = not hasattr(self, "moments_")
        blocks = class_blocks_of(self, X, y, sample_weight, reset=first, classes=classes)
        if first:
            return self._fit(blocks, "float32" if self.precision == "float32" else "float64")
        normal.add_rows(self, _Indicators.of(self, blocks))
        return self

    def _fit(self, blocks: Blocks, precision: Precision | None = None) -> Self:
        targets, exact = _Indicators.of(self, blocks), as_exact(self.method)
        if exact is not None:
            fit_exact(self, exact, targets)
        else:
            normal.draw(self, targets)
            normal.fit(self, targets, precision)
        normal.warn(self)
        return self

    @all_or_nothing
    def solve_again(self) -> Self:
        """Solve anew from the moments and the sample of rows as they are now."""
        normal.solve_again(self)
        return self

    # --- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Float[Array, "n d"]) -> Array:
        """Return the fitted ±1 of each class, (n, K); (n,) of the second class of two."""
        check_is_fitted(self)
        values = _engine.joined(list(self._values(predict_blocks_of(self, X))))
        return values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return the label of the largest value, (n,)."""
        check_is_fitted(self)
        return np.concatenate(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the labels of one block of rows after the other."""
        check_is_fitted(self)
        for values in self._values(blocks):
            two = len(self.classes_) == 2
            yield self.classes_[(values[:, 0] > 0).astype(int) if two else values.argmax(axis=1)]

    def _values(self, blocks: Blocks) -> Iterator[Float[Array, "b K"]]:
        pairs = predict_exact if normal.is_exact_fit(self) else normal.predict_linear
        return (fitted for _, fitted in pairs(self, blocks))

    # --- what was learned ------------------------------------------------------------------------

    @property
    def alpha_(self) -> Any:
        """The penalty used, or that of each class."""
        return self.solution_.alpha

    @property
    def coef_(self) -> Float[Array, "K D"]:
        """β of each class, or of the second of two."""
        if normal.is_exact_fit(self):
            raise AttributeError("coef_: an exact fit has no features; see solution_ and X_fit_.")
        return self.solution_.coef.T

    @property
    def intercept_(self) -> Float[Array, " K"]:
        """Intercept of each class, or of the second of two."""
        return self.solution_.intercept

    @property
    def certificate_(self) -> Certificate:
        """How far φ(x)·φ(y) is from k on the rows of the fit; measured once, on their sample."""
        check_is_fitted(self)
        return normal.certificate_of(self)

    def certify(self, X: Float[Array, "n d"]) -> Certificate:
        """Return the certificate on other rows; see :meth:`KernelRidge.certify`."""
        check_is_fitted(self)
        return normal.certified(self, predict_blocks_of(self, X))

    # --- scikit-learn ----------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags


@dataclass(frozen=True, eq=False)
class _Indicators:
    """Blocks whose codes of classes have become ±1, (b, K) or (b, 1), of weights over ``unit``."""

    blocks: Blocks
    n_classes: int
    unit: float

    @staticmethod
    def of(model: KernelRidgeClassifier, blocks: Blocks) -> Any:
        return _Indicators(blocks, len(model.classes_), _unit(model))

    @property
    def n_rows(self) -> int | None:
        return self.blocks.n_rows

    @property
    def n_columns(self) -> int:
        return self.blocks.n_columns

    def with_rows(self, block_rows: int) -> "_Indicators":
        return replace(self, blocks=self.blocks.with_rows(block_rows))

    def __iter__(self) -> Iterator[Block]:
        for block in self.blocks:
            w = None if block.w is None else to_numpy(block.w) / self.unit
            yield block._replace(y=indicators(to_numpy(block.y), self.n_classes), w=w)


def _unit(model: KernelRidgeClassifier) -> float:
    """Return the largest factor of a class, where a penalty is chosen: 1 otherwise.

    A weight above one stands for copies of a row, of which leave-one-out leaves one out; that of
    a class does not. In units of the largest, rows are left out whole, and what is best in
    proportion to the weights stays so.
    """
    given = model.class_weight
    if not isinstance(model.alpha, str) or not isinstance(given, Mapping):
        return 1.0
    return max(float(given.get(label, 1.0)) for label in model.classes_.tolist()) or 1.0
