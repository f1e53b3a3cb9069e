"""fit = blocks → features → moments → solve, as functions that estimators share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import array_namespace, to_numpy
from bochner._core.checks import integer, one_of
from bochner._core.random import seed_of
from bochner._core.shapes import Array, Float
from bochner._core.sizes import SMALL, block_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.errors import InvalidInput
from bochner.features import Auto, FeatureMap, Fourier, Method
from bochner.features.auto import Choice
from bochner.features.draw import as_method
from bochner.features.fourier.fourier import require_real
from bochner.features.judging import Targets
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import LandmarkValues, NystromMap, Rounded
from bochner.features.rules import choose as choose_method
from bochner.features.rules import draw_map
from bochner.kernels import Kernel
from bochner.models._feature_blocks import Features
from bochner.models._inputs import indicators, predict_blocks_of
from bochner.selection.metric import learn_metric
from bochner.selection.record import Tuning
from bochner.selection.search import LengthscaleSearch, as_kernel, choose_lengthscale
from bochner.selection.width import Tolerance, as_tolerance, penalty_for, required_features
from bochner.sums.moments import (
    Accumulator,
    Moments,
    Precision,
    require_room_for,
)

#: Finds a kernel from what is asked for and a sample of rows.
Search = Callable[[Any, RowSample], LengthscaleSearch | Tuning]

#: Width that a lengthscale is chosen at where the width itself is open.
SEARCHED = 512

#: Penalty a row, as a share of k(x, x), that features are judged at where there is no target.
UNTOLD = 1e-3


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a fit draws before its sweep: the kernel, the map, and how both were chosen."""

    search: LengthscaleSearch | Tuning
    choice: Choice

    @property
    def kernel(self) -> Kernel:
        """The kernel, with numbers."""
        return self.search.kernel

    @property
    def map(self) -> FeatureMap:
        """The map drawn from it."""
        return self.choice.map


def choose(
    model: Any,
    blocks: Blocks,
    *,
    n_classes: int = 0,
    share: float | None = None,
    search: Search | None = None,
) -> RowSample | None:
    """Check a learner's kernel and method, choose what is open, draw the map.

    Sets ``seed_``, ``kernel_``, ``map_``, ``search_`` and ``choice_`` on the model, and returns
    the sample of rows that was chosen by, if one was needed. With ``n_classes`` y holds codes of
    classes, and a lengthscale is chosen for their indicators; ``share`` is a given penalty a row;
    ``search`` finds the kernel in its own way.
    """
    kernel, method = as_kernel(model.kernel), as_method(model.method)
    width = as_tolerance(model.n_features) or model.n_features
    model.seed_ = seed_of(model.random_state)
    wanted = needs_rows(kernel, method) or isinstance(width, Tolerance) or learns_metric(model)
    wanted = wanted or search is not None
    rows = presample(blocks, model.seed_, n_classes) if wanted else None
    n_rows = None if rows is None else count_rows(blocks)
    kernel = in_metric(model, kernel, method, rows, width, share)
    found = None if search is None else search(kernel, _some(rows))
    kernel = kernel if found is None else found.kernel
    recipe = prepare(
        kernel, method, width, blocks.n_columns, rows, model.seed_, share=share, n_rows=n_rows
    )
    model.kernel_, model.map_ = recipe.kernel, recipe.map
    model.search_, model.choice_ = found or recipe.search, recipe.choice
    return rows


def learns_metric(model: Any) -> bool:
    """Check a learner's ``metric``: None, or "learned" from the gradients of a few fits."""
    metric = getattr(model, "metric", None)
    if metric is None or metric == "learned":
        return metric is not None
    raise InvalidInput(f'{type(model).__name__}: metric must be None or "learned"; got {metric!r}.')


def in_metric(
    model: Any,
    kernel: Kernel | str,
    method: Method,
    rows: RowSample | None,
    width: int | Tolerance,
    share: float | None,
) -> Kernel | str:
    """Return the kernel in the metric that is learned from rows, or as it is if none is asked for.

    Sets ``metric_``. A kernel by name starts from the lengthscale chosen for it.
    """
    if not learns_metric(model):
        return kernel
    sample, width = _some(rows), SEARCHED if isinstance(width, Tolerance) else _width(width)
    if isinstance(kernel, str) and kernel != "auto":
        kernel = choose_lengthscale(kernel, sample, width, model.seed_, share, method).kernel
    model.metric_ = learn_metric(kernel, sample, width, model.seed_, method=method)
    return model.metric_.kernel


def check_precision(model: Any) -> None:
    """Refuse an unknown ``precision``."""
    one_of(model.precision, type(model).__name__, "precision", ("auto", "float32", "float64"))


def feature_dtype(precision: str, n: int | None, phi: FeatureMap) -> Precision:
    """Return the precision of features and of their products in a first sweep.

    A Nyström map of float32 features is that of K plus a jitter, which limits most fits; its
    float64 sweep costs 1.6 times as much, and a second sweep more.
    """
    if precision != "auto":
        return "float32" if precision == "float32" else "float64"
    small = n is not None and n * phi.n_features**2 <= SMALL
    return "float64" if small or isinstance(phi, NystromMap) else "float32"


def needs_rows(kernel: Kernel | str, method: Method) -> bool:
    """Whether something must be chosen from rows before the sweep."""
    return isinstance(kernel, str) or not isinstance(method, Fourier)


def presample(blocks: Blocks, seed: int, n_classes: int = 0) -> RowSample:
    """Return the sample of all rows, by one pass that makes no features.

    With ``n_classes`` y holds codes of classes, and the sample their indicators.
    """
    keeper = Keeper(seed)
    for block in blocks:
        keeper.see(block)
    sample = keeper.sample
    if not (n_classes and sample.y.shape[1]):
        return sample
    return replace(sample, y=indicators(sample.y[:, 0], n_classes))


def prepare(
    kernel: Kernel | str,
    method: Method,
    n_features: int | Tolerance,
    n_inputs: int,
    sample: RowSample | None,
    seed: int,
    *,
    share: float | None = None,
    n_rows: int | None = None,
    by_targets: bool = True,
) -> Recipe:
    """Choose what is open, and draw the map.

    ``share`` is a given penalty a row; ``n_rows`` are all rows, of which ``sample`` is a part.
    Without ``by_targets`` "auto" looks for the map that is nearest to the kernel.
    """
    if isinstance(kernel, str):
        width = SEARCHED if isinstance(n_features, Tolerance) else n_features
        search = choose_lengthscale(kernel, _some(sample), _width(width), seed, share, method)
    else:
        search = LengthscaleSearch(kernel)
    if isinstance(n_features, Tolerance):
        choice = _wide_enough(search.kernel, method, _some(sample), seed, n_features, share, n_rows)
        return Recipe(search, choice)
    rows = None if sample is None else sample.X
    ask = Request(n_inputs, _width(n_features), seed, X=rows)
    if isinstance(method, Auto):
        targets = _targets(sample, share, n_rows) if by_targets else None
        return Recipe(search, choose_method(method, search.kernel, ask, targets))
    phi = draw_map(method, search.kernel, ask)
    require_real(phi, "A fit")
    return Recipe(search, Choice(phi, method, (), f"{method!r}: as asked."))


def _targets(sample: RowSample | None, share: float | None, n_rows: int | None) -> Targets | None:
    """Return what methods are judged by, where there is something to predict."""
    if sample is None or not np.any(np.ptp(sample.y, axis=0)):
        return None
    return Targets(sample.y, sample.w, len(sample) if n_rows is None else n_rows, share)


def _width(n_features: int) -> int:
    return integer(n_features, "bochner", "n_features", 1)


def _wide_enough(
    kernel: Kernel,
    method: Method,
    sample: RowSample,
    seed: int,
    wanted: Tolerance,
    share: float | None,
    n_rows: int | None,
) -> Choice:
    """Find the width at the penalty given, or at the one that the fit is forecast to choose."""
    n = len(sample) if n_rows is None else n_rows
    if share is not None:
        alpha = share * n
    elif sample.y.shape[1]:
        alpha = penalty_for(kernel, sample.X, sample.y, n, seed)
    else:
        alpha = UNTOLD * n * float(kernel.diag(sample.X).mean())
    y = sample.y if sample.y.shape[1] else None
    found = required_features(
        kernel, method, sample.X, alpha=alpha, wanted=wanted, y=y, n_rows=n, random_state=seed
    )
    require_real(found.map, "A fit")
    return Choice(found.map, found.method, (), str(found))


def _some(sample: RowSample | None) -> RowSample:
    if sample is None:
        raise InvalidInput("A kernel by name needs rows to choose its lengthscale from; got none.")
    return sample


def count_rows(blocks: Blocks) -> int:
    """Return the number of rows of blocks that were read to their end."""
    return blocks.n_rows if blocks.n_rows is not None else sum(b.X.shape[0] for b in blocks)


def share_of(model: Any, blocks: Blocks, alpha: float | None) -> float | None:
    """Return a given penalty a row of weight one: what is open is judged at it.

    None where there is none, or nothing is left to judge.
    """
    left = (
        isinstance(model.kernel, str)
        or isinstance(model.n_features, str | Tolerance)
        or model.method == "auto"
        or isinstance(model.method, Auto)
    )
    return alpha / _total_weight(blocks) if left and alpha is not None else None


def _total_weight(blocks: Blocks) -> float:
    """Return the sum of weights: rows, without a further pass, where there are none."""
    if next(iter(blocks)).w is None:
        return count_rows(blocks)
    return float(sum(to_numpy(block.w).sum() for block in blocks)) or 1.0


def as_features(phi: FeatureMap, X: Array, dtype: str) -> Array:
    """Return φ(X) rounded to this precision, as an array of X's library."""
    return Rounded(phi.kernel, phi, dtype)(X)


def features_of(model: Any, X: Any) -> Iterator[Array]:
    """Give the features of rows to predict, a block at a time, as NumPy arrays."""
    blocks = predict_blocks_of(model, X)
    for block in blocks.with_rows(block_rows(model.map_.n_features)):
        yield to_numpy(as_features(model.map_, block.X, model.feature_dtype_))


def joined(parts: list[Array]) -> Array:
    """Put arrays of one library one below the other."""
    return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=0)


def sweep(
    phi: FeatureMap,
    blocks: Blocks,
    dtype: str,
    precision: Precision,
    keeper: Keeper | None = None,
) -> Moments:
    """Return the moments of all blocks in one pass; ``keeper`` sees the rows on their way."""
    summed, finish = _summed(phi, dtype)
    features = Features(summed, blocks, dtype, keeper, most_bytes=0)
    return finish(Accumulator(precision).sweep((b.Z, b.y, b.w) for b in features))


def sweep_unless(
    stop: Callable[[Moments], bool],
    phi: FeatureMap,
    blocks: Blocks,
    dtype: str,
    precision: Precision,
    keeper: Keeper,
) -> Moments | None:
    """Return the same, or None if ``stop`` says so of the moments of the first quarter of rows."""
    summed, finish = _summed(phi, dtype)
    sums, asked = Accumulator(precision), False
    for block in Features(summed, blocks, dtype, keeper, most_bytes=0):
        sums.add(block.Z, block.y, block.w)
        if not asked and blocks.n_rows is not None and 4 * sums.rows >= blocks.n_rows:
            asked = True
            if stop(finish(sums.so_far())):
                return None
    return finish(sums.moments())


def _summed(phi: FeatureMap, dtype: str) -> tuple[FeatureMap, Callable[[Moments], Moments]]:
    """Return what is summed up over rows, and what makes its moments those of the features."""
    require_room_for(phi.n_features)
    if isinstance(phi, NystromMap) and phi.sums_first and dtype == "float64":
        L = phi.root(np.dtype(dtype)).T
        return LandmarkValues(phi.kernel, phi), lambda moments: moments.mapped(L, "float32")
    return phi, lambda moments: moments


def linear_of(
    phi: FeatureMap, coef: Float[Array, "D t"], dtype: str
) -> tuple[FeatureMap, Float[Array, "D t"]]:
    """Return a map and coefficients with the same products, whose features cost the least."""
    if isinstance(phi, NystromMap) and dtype == "float64":
        return LandmarkValues(phi.kernel, phi), phi.root(np.dtype(dtype)) @ coef
    return phi, coef
