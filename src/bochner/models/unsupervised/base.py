"""Base of learners without targets: maps are chosen from the rows only."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from bochner._core.arrays import is_sparse, joined, to_numpy
from bochner._core.checks import integer
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import SMALL
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.map import Method
from bochner.features.mercer.hermite import HermiteMercer
from bochner.features.mercer.radial import MercerHarmonic
from bochner.features.nystrom import KMeans, Nystrom
from bochner.features.rules import contenders
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator, learned
from bochner.models._html import FitSummary
from bochner.models._parameters import estimator, shared
from bochner.models._tables import by_partition
from bochner.selection.choose import choose, choose_from
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.sums.passes import LOCAL, Executor, SumOf, sampled


def alone(blocks: Blocks) -> Blocks:
    """Return the blocks without targets."""
    return blocks.recoded(lambda _: None)


def choose_alone(
    spec: FeatureSpec, blocks: Blocks, where: Executor
) -> tuple[Chosen, RowSample | None]:
    """Choose what is open from rows without targets; also return their sample, if one was needed.

    "auto" is float64 where the fit is small: no penalty divides here, and float32 loses little.
    """
    rows = sampled(blocks, spec.seed, where=where) if spec.needs_rows else None
    chosen, n = choose_quickly(spec, blocks.n_columns, rows), blocks.n_rows
    single = n is None or n * chosen.n_features**2 > SMALL
    single = single if spec.precision == "auto" else spec.precision == "float32"
    return replace(chosen, precision="float32" if single else "float64"), rows


def choose_quickly(spec: FeatureSpec, n_columns: int, rows: RowSample | None) -> Chosen:
    """Choose what is open from a sample of rows.

    Where columns and rows are many, "auto" compares what is drawn in little time. With four times
    as many rows as features, or fewer, all different rows may find a place.
    """
    if rows is not None and spec.method == Auto():
        d, few = rows.X.shape[1], len(rows) <= 4 * spec.width_to_search
        if d >= 128 and not few and not is_sparse(rows.X):
            # Drawing these takes as long as a fit, or longer: orthogonal directions for those that
            # structured ones replace
            slow = MercerHarmonic(), HermiteMercer(), Fourier(), Nystrom()
            # Centres hold the leading directions of K better than pivots do, and two passes from
            # random rows as well as ten from k-means++
            centres = Nystrom(KMeans(iterations=2, seeds="random"))
            candidates = (method for method in contenders(d) if method not in slow)
            spec = replace(spec, method=Auto((*candidates, centres)))
    return choose_from(spec, n_columns, rows)


def diagonal_of(kernel: Kernel) -> SumOf:
    """Return the summand of Σ w k(x, x), and of the number of rows of positive weight."""
    return SumOf(partial(_diagonal, kernel=kernel))


def _diagonal(block: Any, kernel: Kernel) -> tuple[float, int]:
    values = to_numpy(kernel.diag(block.X)).astype(np.float64, copy=False)
    if block.w is None:
        return float(values.sum()), len(values)
    w = to_numpy(block.w).astype(np.float64)
    return float(w @ values), int(np.sum(w > 0))


@shared
class FeatureParameters:
    """Parameters of learners without targets."""

    method: Method | str = "auto"
    n_features: int = 512
    precision: str = "auto"
    random_state: Seed = None
    n_jobs: int | None = None


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """An estimator that turns rows into columns."""

    n_features: Any
    method: Any

    def fit_transform(self, X: Tabular, y: Array | None = None, **fit_params: Any) -> Any:
        """Fit, and transform the same rows; a call that fails leaves the estimator as it was."""
        return self._atomic(TransformerMixin.fit_transform, X, y, **fit_params)

    def _width_spec(self) -> FeatureSpec:
        """Check what is asked of features, whose width is a number."""
        integer(self.n_features, "bochner", "n_features", 1)
        return self._feature_spec(self.method)


@dataclass(frozen=True, eq=False)
class FeaturesFit(FitSummary):
    """A map that was drawn for rows."""

    inputs: Inputs
    spec: FeatureSpec
    chosen: Chosen


@estimator
class KernelFeatures(KernelTransformer):
    """Turn rows into features φ(x) with φ(x)·φ(y) ≈ k(x, y), for any linear method after it.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means this family, at the median distance of a sample of
        rows (with ``y``: at the lengthscale of least leave-one-out error).
    %(method)s
    n_features : int, float or "auto", default 1024
        D; "auto": as many as a ridge penalty of k(x, x)/1000 a row needs.
    random_state : int, Generator, RandomState or None, default None
    %(n_jobs)s

    Attributes
    ----------
    kernel_ : Kernel
    map_ : FeatureMap
    choice_ : Choice
    %(columns)s

    See Also
    --------
    KernelPCA : The features' principal components.
    draw : A feature map without an estimator.

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
    n_features: int | float | str = 1024
    random_state: Seed = None
    n_jobs: int | None = None

    def fit(  # type: ignore[override]
        self, X: Tabular, y: Array | None = None
    ) -> Self:
        """Choose what is open and draw the map. ``y`` is used for a named kernel's lengthscale."""
        return super().fit(X, y)

    def _fit_rows(self, X: Any, y: Any, sample_weight: None) -> FeaturesFit:
        numeric = y is not None and np.issubdtype(np.asarray(y).dtype, np.number)
        return self._run(self._fit, *self._read(X, y if numeric else None))

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> FeaturesFit:
        spec = self._feature_spec(self.method)
        return FeaturesFit(inputs, spec, choose(spec, blocks, where=where)[0])

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
