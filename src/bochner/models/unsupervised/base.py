"""Base of learners without targets: maps are chosen from the rows only."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import SMALL
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.mercer.harmonic import MercerHarmonic
from bochner.features.mercer.hermite import HermiteMercer
from bochner.features.method import Method
from bochner.features.nystrom.landmarks import KMeans
from bochner.features.nystrom.nystrom import Nystrom
from bochner.features.rules import contenders
from bochner.models._base import KernelEstimator
from bochner.models._kinds import WithoutTarget
from bochner.selection.choose import choose_from
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.sums.executor import Executor
from bochner.sums.moments import Precision
from bochner.sums.rows import sampled

#: From this many columns on, drawing these for comparison takes longer than a fit, or as long:
#: orthogonal directions for those that structured ones replace.
WIDE, SLOW = 128, (MercerHarmonic(), HermiteMercer(), Fourier(), Nystrom())

#: Candidate methods: centres hold the leading directions of K better than pivots do,
#: and two passes from random rows as well as ten from k-means++.
CENTRES = Nystrom(KMeans(iterations=2, seeds="random"))


# --- Choosing and summing ------------------------------------------------------------------------


def alone(blocks: Blocks) -> Blocks:
    """Return the blocks without their targets, should they have any."""
    return blocks.recoded(lambda _: None)


def choose_alone(
    spec: FeatureSpec, blocks: Blocks, where: Executor
) -> tuple[Chosen, RowSample | None]:
    """Choose what is open from rows without targets; also return their sample, if one was needed.

    A kernel by name has the median distance as its lengthscale.
    """
    rows = sampled(blocks, spec.seed, where=where) if spec.needs_rows else None
    chosen = choose_quickly(spec, blocks.n_columns, rows)
    return replace(chosen, precision=precision_of(spec, blocks.n_rows, chosen)), rows


def choose_quickly(spec: FeatureSpec, n_columns: int, rows: RowSample | None) -> Chosen:
    """Choose what is open from a sample of rows, from what is drawn in little time."""
    return choose_from(replace(spec, method=_quick(spec, rows)), n_columns, rows)


def _quick(spec: FeatureSpec, rows: RowSample | None) -> Method:
    """Return "auto" of what is drawn in little time, where columns and rows are many.

    With four times as many rows as features, or fewer, all different rows may find a place.
    """
    few = rows is None or is_sparse(rows.X) or len(rows) <= 4 * spec.width_to_search
    if rows is None or few or spec.method != Auto() or rows.X.shape[1] < WIDE:
        return spec.method
    return Auto((*(one for one in contenders(rows.X.shape[1]) if one not in SLOW), CENTRES))


def precision_of(spec: FeatureSpec, n: int | None, chosen: Chosen) -> Precision:
    """Return the precision of features: float64 where the fit is small or it is asked for.

    No penalty is divided by here: directions and means are as good as their sums, and what float32
    loses of those is below a millionth.
    """
    small = n is not None and n * chosen.n_features**2 <= SMALL
    if spec.precision == "auto":
        return "float64" if small else "float32"
    return "float32" if spec.precision == "float32" else "float64"


@dataclass(frozen=True, eq=False)
class DiagonalOf:
    """The summand of Σ w k(x, x), and of the number of rows of positive weight."""

    diag: Callable[[Array], Float[Array, " b"]]  # of a kernel

    def zero(self) -> tuple[float, int]:
        """Return the sums of no rows."""
        return 0.0, 0

    def add(self, total: tuple[float, int], block: Any) -> tuple[float, int]:
        """Add the rows of a block."""
        values = to_numpy(self.diag(block.X)).astype(np.float64, copy=False)
        if block.w is None:
            return total[0] + float(values.sum()), total[1] + len(values)
        w = to_numpy(block.w).astype(np.float64)
        return total[0] + float(w @ values), total[1] + int(np.sum(w > 0))

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        """Return the sums of the rows of both."""
        return a[0] + b[0], a[1] + b[1]


# --- Estimators ----------------------------------------------------------------------------------


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """An estimator that turns rows into columns."""

    n_features: Any
    method: Any

    def fit_transform(self, X: Tabular, y: Array | None = None, **fit_params: Any) -> Any:
        """Fit, and transform the same rows; a call that fails leaves the estimator as it was."""
        return self._whole(TransformerMixin.fit_transform, X, y, **fit_params)

    def _width_spec(self) -> FeatureSpec:
        """Check what is asked of features, whose width is a number."""
        integer(self.n_features, "bochner", "n_features", 1)
        return self._feature_spec(self.method)


class TargetlessLearner(WithoutTarget, KernelTransformer):
    """A transformer without targets."""
