"""Feature maps as a scikit-learn transformer."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._inputs import fit_blocks_of, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.selection.search import accepts_sparse
from bochner.selection.width import Tolerance


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn rows into features φ(x) with φ(x)·φ(y) ≈ k(x, y), for any linear method after it.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means this family, at the median distance of a sample of
        rows (with ``y``: at the lengthscale of least leave-one-out error).
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`.
    n_features : int, "auto" or Tolerance, default 1024
        D; "auto": as many as a ridge penalty of k(x, x)/1000 a row needs.
    random_state : int, Generator, RandomState or None, default None

    Attributes
    ----------
    kernel_ : Kernel
    map_ : FeatureMap
    choice_ : Choice
    n_features_in_ : int
    feature_names_in_ : (d,) of str

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from bochner import KernelFeatures
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> ring = (X**2).sum(axis=1) > 1.5
    >>> model = make_pipeline(KernelFeatures(random_state=0), LogisticRegression())
    >>> bool(model.fit(X, ring).score(X, ring) > 0.9)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Tabular, y: Array | None = None) -> Self:
        """Choose what is open and draw the map. ``y`` is used for a named kernel's lengthscale."""
        numeric = y is not None and np.issubdtype(np.asarray(y).dtype, np.number)
        blocks = fit_blocks_of(self, X, y if numeric else None, None, reset=True)
        _engine.choose(self, blocks)
        self._n_features_out = self.map_.n_features
        return self

    def transform(self, X: Tabular) -> Float[Array, "n D"]:
        """Return φ(X), (n, D); float32 for float32 rows, else float64."""
        check_is_fitted(self)
        return _engine.joined([self.map_(block.X) for block in predict_blocks_of(self, X)])

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
