"""Kernel ridge classification: ridge regression of ±1, one target for each class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from bochner._core.arrays import to_numpy
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models._base import Inputs
from bochner.models._fitting import indicators, joined
from bochner.models.ridge.estimator import RidgeEstimator, takes_pieces
from bochner.selection.width import Tolerance


class KernelRidgeClassifier(ClassifierMixin, RidgeEstimator):
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
    n_features : int, "auto" or Tolerance, default 1024
        D. Error falls with D; time grows like n D² + D³ and memory like D². "auto": as many as
        bring ε of the certificate to 0.1 at the penalty that is forecast; see
        :func:`bochner.required_features`. With "exact" the width of the preconditioner.
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

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
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

    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
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
        blocks, inputs = self._class_blocks_of(X, y, sample_weight)
        self.fit_ = self._fit(self._signs(blocks, inputs), inputs)
        return self

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks whose target holds labels, numbers or text; one pass finds the classes."""
        blocks, inputs = self._class_blocks(blocks)
        self.fit_ = self._fit(self._signs(blocks, inputs), inputs)
        return self

    @available_if(takes_pieces)
    def partial_fit(
        self,
        X: Tabular,
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
        first = not self._has_sums
        blocks, inputs = self._class_blocks_of(X, y, sample_weight, first, classes)
        signs = self._signs(blocks, inputs)
        self.fit_ = self._first_piece(signs, inputs) if first else self._more(signs)
        return self

    def _signs(self, blocks: Blocks, inputs: Inputs) -> Any:
        return _Indicators(blocks, len(inputs.classes), self._unit(inputs))

    def _unit(self, inputs: Inputs) -> float:
        """Return the largest factor of a class, where a penalty is chosen: 1 otherwise.

        A weight above one stands for copies of a row, of which leave-one-out leaves one out; that
        of a class does not. In units of the largest, rows are left out whole, and what is best in
        proportion to the weights stays so.
        """
        given = self.class_weight
        if not isinstance(self.alpha, str) or not isinstance(given, Mapping):
            return 1.0
        return max(float(given.get(label, 1.0)) for label in inputs.classes.tolist()) or 1.0

    # --- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Tabular) -> Array:
        """Return the fitted ±1 of each class, (n, K); (n,) of the second class of two."""
        values = joined(list(self._values(self._rows_to_predict(X))))
        return values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Tabular) -> Array:
        """Return the label of the largest value, (n,)."""
        return np.concatenate(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the labels of one block of rows after the other."""
        for values in self._values(blocks):
            two = len(self.classes_) == 2
            yield self.classes_[(values[:, 0] > 0).astype(int) if two else values.argmax(axis=1)]

    def _values(self, blocks: Blocks) -> Iterator[Float[Array, "b K"]]:
        return (fitted for _, fitted in self._fitted.predictions(blocks))

    # --- what was learned ------------------------------------------------------------------------

    @property
    def classes_(self) -> Array:
        """Labels, sorted, (K,)."""
        return self._inputs.classes

    @property
    def coef_(self) -> Float[Array, "K D"]:
        """β of each class, or of the second of two."""
        return self._coef("see solution_ and X_fit_").T

    @property
    def intercept_(self) -> Float[Array, " K"]:
        """Intercept of each class, or of the second of two."""
        return self.solution_.intercept


@dataclass(frozen=True, eq=False)
class _Indicators:
    """Blocks whose codes of classes have become ±1, (b, K) or (b, 1), of weights over ``unit``."""

    blocks: Blocks
    n_classes: int
    unit: float

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
