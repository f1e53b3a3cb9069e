"""Feature maps as a scikit-learn transformer."""

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from sklearn.utils import Tags

from bochner._core.arrays import joined
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.coordinates import values_of
from bochner.data.schema import Inputs
from bochner.features.method import Method
from bochner.kernels.kernel import Kernel
from bochner.models._base import learned
from bochner.models._held import by_partition, held_blocks, is_held
from bochner.models._parameters import by_jobs, estimator
from bochner.models._shown import ShownFit
from bochner.models.unsupervised.base import KernelTransformer
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.spec import Tolerance
from bochner.sums.executor import LOCAL, Executor


@dataclass(frozen=True, eq=False)
class FeaturesFit(ShownFit):
    """A map that was drawn for rows."""

    inputs: Inputs
    spec: FeatureSpec
    chosen: Chosen


def fit_features(
    spec: FeatureSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL
) -> FeaturesFit:
    """Choose what is open, and draw the map."""
    return FeaturesFit(inputs, spec, choose(spec, blocks, where=where)[0])


@estimator
class KernelFeatures(KernelTransformer):
    """Turn rows into features φ(x) with φ(x)·φ(y) ≈ k(x, y), for any linear method after it.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means this family, at the median distance of a sample of
        rows (with ``y``: at the lengthscale of least leave-one-out error).
    %(method)s
    n_features : int, "auto" or Tolerance, default 1024
        D; "auto": as many as a ridge penalty of k(x, x)/1000 a row needs.
    random_state : int, Generator, RandomState or None, default None
    %(n_jobs)s

    Attributes
    ----------
    kernel_ : Kernel
    map_ : FeatureMap
    choice_ : Choice
    %(columns)s

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

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    method: Method | str = "auto"
    n_features: int | str | Tolerance = 1024
    random_state: Seed = None
    n_jobs: int | None = None

    @by_jobs
    def fit(  # type: ignore[override]
        self, X: Tabular, y: Array | None = None
    ) -> Self:
        """Choose what is open and draw the map. ``y`` is used for a named kernel's lengthscale."""
        X, y, _ = values_of(type(self).__name__, X, y)
        if is_held(X):
            return self.fit_blocks(held_blocks(type(self).__name__, X, y))
        numeric = y is not None and np.issubdtype(np.asarray(y).dtype, np.number)
        self.fit_ = self._run(self._fit, *self._blocks_of(X, y if numeric else None))
        return self

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> FeaturesFit:
        return fit_features(self._feature_spec(self.method), blocks, inputs, where)

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return the features of rows."""
        return {"features": super().outputs(X)["scores"]}

    @by_partition
    def transform(self, X: Tabular) -> Float[Array, "n D"]:
        """Return φ(X), (n, D); float32 for float32 rows, else float64."""
        phi = self.map_
        return joined([phi(block.X) for block in self._rows_to_predict(X)])

    _n_features_out = learned("chosen.n_features", "Columns of ``transform``.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
