"""What learners without targets share: maps chosen from rows alone, and the kernel's trace."""

from dataclasses import replace
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.random import seed_of
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.data.sources import Block
from bochner.features import Auto, Fourier, HermiteMercer, MercerHarmonic, Method, Nystrom
from bochner.features.auto import contenders
from bochner.features.draw import as_method
from bochner.features.nystrom.landmarks import KMeans
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.selection.search import as_kernel
from bochner.sums.moments import Precision

#: From this many columns on, drawing these for comparison takes longer than a fit, or as long:
#: orthogonal directions for those that structured ones replace.
WIDE, SLOW = 128, (MercerHarmonic(), HermiteMercer(), Fourier(), Nystrom())

#: What is compared in their place: centres hold the leading directions of K better than pivots do,
#: and two passes from random rows as well as ten from k-means++.
CENTRES = Nystrom(KMeans(iterations=2, seeds="random"))


def choose(model: Any, blocks: Blocks) -> RowSample | None:
    """Check a learner's kernel and method, choose what is open from rows alone, draw the map.

    As :func:`bochner.models._engine.choose`, but targets play no part, should the
    blocks have any: the lengthscale of a kernel by name is the median distance.
    """
    kernel, method = as_kernel(model.kernel), as_method(model.method)
    model.seed_, width = seed_of(model.random_state), model.n_features
    rows = None
    if _engine.needs_rows(kernel, method):
        rows = alone(_engine.presample(blocks, model.seed_))
    method = quick(method, rows, width)
    recipe = _engine.prepare(kernel, method, width, blocks.n_columns, rows, model.seed_)
    model.kernel_, model.map_ = recipe.kernel, recipe.map
    model.search_, model.choice_ = recipe.search, recipe.choice
    return rows


def quick(method: Method, rows: RowSample | None, n_features: int) -> Method:
    """Return "auto" of what is drawn in little time, where columns and rows are many.

    With four times as many rows as features, or fewer, all different rows may find a place.
    """
    few = 4 * integer(n_features, "bochner", "n_features", 1)
    if method != Auto() or rows is None or is_sparse(rows.X) or len(rows) <= few:
        return method
    if (d := rows.X.shape[1]) < WIDE:
        return method
    return Auto((*(option for option in contenders(d) if option not in SLOW), CENTRES))


def alone(rows: RowSample) -> RowSample:
    """Return the rows without their targets."""
    return replace(rows, y=np.zeros((len(rows), 0)))


def precision_of(model: Any, n: int | None, width: int) -> Precision:
    """Return the precision of features: float64 where the fit is small or it is asked for.

    No penalty is divided by here: directions and means are as good as their sums, and what float32
    loses of those is below a millionth.
    """
    small = n is not None and n * width**2 <= _engine.SMALL
    if model.precision == "auto":
        return "float64" if small else "float32"
    return "float32" if model.precision == "float32" else "float64"


class Diagonal:
    """Adds up Σ w k(x, x) of blocks on their way, and hands them on to a keeper of rows.

    Attributes
    ----------
    trace : float
    rows : int
        Rows of positive weight.
    """

    def __init__(self, kernel: Kernel, keeper: Keeper | None = None) -> None:
        self._kernel = kernel
        self._keeper = keeper
        self.trace = 0.0
        self.rows = 0

    @property
    def sample(self) -> RowSample | None:
        """The keeper's sample of rows, without targets; None without a keeper."""
        return None if self._keeper is None else alone(self._keeper.sample)

    def see(self, block: Block) -> None:
        """Add the rows of a block."""
        values = to_numpy(self._kernel.diag(block.X)).astype(np.float64, copy=False)
        w = None if block.w is None else to_numpy(block.w).astype(np.float64)
        self.trace += float(values.sum() if w is None else w @ values)
        self.rows += len(values) if w is None else int(np.sum(w > 0))
        if self._keeper is not None:
            self._keeper.see(block)
