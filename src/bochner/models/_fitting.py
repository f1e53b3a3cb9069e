"""What all fits share: what a user asks of features, and what is chosen and drawn for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import array_namespace, to_numpy
from bochner._core.checks import integer, one_of
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner._core.sizes import SMALL, block_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.features.auto import Auto, Choice
from bochner.features.draw import as_method
from bochner.features.fourier.fourier import Fourier, require_real
from bochner.features.judging import Targets
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.features.nystrom.nystrom import LandmarkValues, NystromMap, Rounded
from bochner.features.rules import choose as choose_method
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.selection.metric import LearnedMetric, learn_metric
from bochner.selection.record import Tuning
from bochner.selection.search import as_kernel, choose_lengthscale
from bochner.selection.width import Tolerance, as_tolerance, penalty_for, required_features
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Moments, MomentsOf, Precision, require_room_for
from bochner.sums.rows import SampleOf

#: Finds a kernel from what is asked for and a sample of rows.
Search = Callable[[Any, RowSample], Tuning]

#: Width that a lengthscale is chosen at where the width itself is open.
SEARCHED = 512

#: Penalty per row, as a share of k(x, x), that features are judged at where there is no target.
WITHOUT_TARGET = 1e-3


@dataclass(frozen=True)
class FeatureSpec:
    """What a user asks of features, checked.

    Attributes
    ----------
    who : str
        The class of the learner, as messages name it.
    kernel : Kernel or str
    method : Method
    width : int or Tolerance
    learns_metric : bool
    precision : {"auto", "float32", "float64"}
    seed : int
    """

    who: str
    kernel: Kernel | str
    method: Method
    width: int | Tolerance
    learns_metric: bool
    precision: str
    seed: int

    @staticmethod
    def of(
        who: str,
        kernel: object,
        method: Any,
        n_features: object,
        precision: str,
        random_state: Seed,
        metric: object = None,
    ) -> "FeatureSpec":
        """Check what the user passed."""
        one_of(precision, who, "precision", ("auto", "float32", "float64"))
        if metric is not None and metric != "learned":
            raise InvalidInput(f'{who}: metric must be None or "learned"; got {metric!r}.')
        known, how = as_kernel(kernel), as_method(method)
        width = as_tolerance(n_features) or integer(n_features, "bochner", "n_features", 1)
        return FeatureSpec(
            who, known, how, width, metric == "learned", precision, seed_of(random_state)
        )

    @property
    def width_to_search(self) -> int:
        """Width that kernels are compared at."""
        return SEARCHED if isinstance(self.width, Tolerance) else self.width

    @property
    def is_open(self) -> bool:
        """Whether something is left that a penalty helps to choose."""
        named = isinstance(self.kernel, str)
        return named or isinstance(self.width, Tolerance) or isinstance(self.method, Auto)

    @property
    def needs_rows(self) -> bool:
        """Whether something must be chosen from rows before features can be made."""
        return self.is_open or self.learns_metric or not isinstance(self.method, Fourier)

    def share(self, blocks: Blocks, alpha: float | None) -> float | None:
        """Return a given penalty per row of weight one; None if nothing is chosen by it."""
        return alpha / total_weight(blocks) if self.is_open and alpha is not None else None


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a fit chose before its sums: the kernel, the map, and how both were found.

    Attributes
    ----------
    seed : int
    search : Tuning
        The kernel, with numbers, and what it was compared with.
    choice : Choice
        The map, its method, and what that was compared with.
    metric : LearnedMetric or None
    precision : {"float32", "float64"}
        That features are rounded to.
    """

    seed: int
    search: Tuning
    choice: Choice
    metric: LearnedMetric | None = None
    precision: Precision = "float64"

    @property
    def kernel(self) -> Kernel:
        """k, with numbers."""
        return self.search.kernel

    @property
    def map(self) -> FeatureMap:
        """φ."""
        return self.choice.map

    @property
    def n_features(self) -> int:
        """D."""
        return self.map.n_features

    @property
    def block_rows(self) -> int:
        """Rows of a block whose features take about 16 MB."""
        return block_rows(self.n_features)

    @property
    def rounded(self) -> Rounded:
        """φ, rounded to its precision."""
        return Rounded(self.map.kernel, self.map, self.precision)

    def features(self, X: Array) -> Array:
        """Return φ(X), (n, D), in the array library of X."""
        return self.rounded(X)

    def double(self, X: Array) -> Float[Array, "n D"]:
        """Return φ(X), rounded and then in NumPy's float64."""
        return to_numpy(self.features(X)).astype(np.float64, copy=False)

    def in_precision(self, asked: str, n: int | None) -> "Chosen":
        """Return the same with features in the precision that suits n rows."""
        return replace(self, precision=feature_precision(asked, n, self.map))

    def with_map(self, phi: FeatureMap) -> "Chosen":
        """Return the same with a variant of the map."""
        return replace(self, choice=replace(self.choice, map=phi))

    def linear(self, coef: Float[Array, "D t"]) -> Callable[[Array], Array]:
        """Return X ↦ φ(X) β in NumPy, by the features that cost the least."""
        phi: FeatureMap = self.rounded
        if isinstance(self.map, NystromMap) and self.precision == "float64":
            values = LandmarkValues(self.kernel, self.map)
            phi = Rounded(self.kernel, values, self.precision)
            coef = self.map.root(np.dtype(self.precision)) @ coef
        return lambda X: to_numpy(phi(X)) @ coef


def feature_precision(asked: str, n: int | None, phi: FeatureMap) -> Precision:
    """Return the precision of features and of their products in a first sweep.

    A Nyström map of float32 features is that of K plus a jitter, which limits most fits; its
    float64 sweep costs 1.6 times as much, and a second sweep more.
    """
    if asked != "auto":
        return "float32" if asked == "float32" else "float64"
    small = n is not None and n * phi.n_features**2 <= SMALL
    return "float64" if small or isinstance(phi, NystromMap) else "float32"


# --- Choosing ------------------------------------------------------------------------------------


def choose(
    spec: FeatureSpec,
    blocks: Blocks,
    *,
    n_classes: int = 0,
    share: float | None = None,
    search: Search | None = None,
    by_targets: bool = True,
    where: Executor = LOCAL,
) -> tuple[Chosen, RowSample | None]:
    """Choose what is open and draw the map; also return the sample of rows, if one was needed.

    Parameters
    ----------
    spec : FeatureSpec
    blocks : Blocks
    n_classes : int
        Above 0, y holds codes of classes, and what is chosen is chosen for their indicators.
    share : float, optional
        A given penalty per row of weight one.
    search : callable, optional
        Finds the kernel in its own way.
    by_targets : bool
        False: "auto" looks for the map that is nearest to the kernel.
    where : Executor
    """
    rows, n_rows = None, None
    if spec.needs_rows or search is not None:
        rows = sampled(blocks, spec.seed, n_classes, where)
        n_rows = count_rows(blocks)
    return choose_from(spec, blocks.n_columns, rows, n_rows, share, search, by_targets), rows


def choose_from(
    spec: FeatureSpec,
    n_columns: int,
    rows: RowSample | None,
    n_rows: int | None = None,
    share: float | None = None,
    search: Search | None = None,
    by_targets: bool = True,
) -> Chosen:
    """Choose what is open, and draw the map, from a sample of ``n_rows`` rows; see above."""
    metric = None if not spec.learns_metric else _metric(spec, some(rows), share)
    kernel = spec.kernel if metric is None else metric.kernel
    found = _searched(spec, kernel, rows, share) if search is None else search(kernel, some(rows))
    choice = choice_of(spec, found.kernel, n_columns, rows, n_rows, share, by_targets)
    return Chosen(spec.seed, found, choice, metric)


def _metric(spec: FeatureSpec, rows: RowSample, share: float | None) -> LearnedMetric:
    """Learn a metric from rows; a kernel by name starts from the lengthscale chosen for it."""
    kernel, width = spec.kernel, spec.width_to_search
    if isinstance(kernel, str) and kernel != "auto":
        kernel = choose_lengthscale(kernel, rows, width, spec.seed, share, spec.method).kernel
    return learn_metric(kernel, rows, width, spec.seed, method=spec.method)


def _searched(
    spec: FeatureSpec, kernel: Kernel | str, rows: RowSample | None, share: float | None
) -> Tuning:
    if isinstance(kernel, Kernel):
        return Tuning(kernel)
    width = spec.width_to_search
    return choose_lengthscale(kernel, some(rows), width, spec.seed, share, spec.method)


def choice_of(
    spec: FeatureSpec,
    kernel: Kernel,
    n_inputs: int,
    rows: RowSample | None,
    n_rows: int | None,
    share: float | None,
    by_targets: bool,
) -> Choice:
    """Draw the map, of the method and width that are chosen where they are open."""
    if isinstance(spec.width, Tolerance):
        return _wide_enough(spec, spec.width, kernel, some(rows), n_rows, share)
    ask = Request(n_inputs, spec.width, spec.seed, X=None if rows is None else rows.X)
    if isinstance(spec.method, Auto):
        targets = _targets(rows, share, n_rows) if by_targets else None
        return choose_method(spec.method, kernel, ask, targets)
    phi = draw_map(spec.method, kernel, ask)
    require_real(phi, "A fit")
    return Choice(phi, spec.method, (), f"{spec.method!r}: as asked.")


def _targets(rows: RowSample | None, share: float | None, n_rows: int | None) -> Targets | None:
    """Return what methods are judged by, where there is something to predict."""
    if rows is None or not np.any(np.ptp(rows.y, axis=0)):
        return None
    return Targets(rows.y, rows.w, len(rows) if n_rows is None else n_rows, share)


def _wide_enough(
    spec: FeatureSpec,
    wanted: Tolerance,
    kernel: Kernel,
    rows: RowSample,
    n_rows: int | None,
    share: float | None,
) -> Choice:
    """Find the width at the penalty given, or at the one that the fit is predicted to choose."""
    n = len(rows) if n_rows is None else n_rows
    y = rows.y if rows.y.shape[1] else None
    if share is not None:
        alpha = share * n
    elif y is not None:
        alpha = penalty_for(kernel, rows.X, y, n, spec.seed)
    else:
        alpha = WITHOUT_TARGET * n * float(kernel.diag(rows.X).mean())
    found = required_features(
        kernel,
        spec.method,
        rows.X,
        alpha=alpha,
        wanted=wanted,
        y=y,
        n_rows=n,
        random_state=spec.seed,
    )
    require_real(found.map, "A fit")
    return Choice(found.map, found.method, (), str(found))


def some(rows: RowSample | None) -> RowSample:
    """Return the sample, which must be there."""
    if rows is None:
        raise InvalidInput("A kernel by name needs rows to choose its lengthscale from; got none.")
    return rows


# --- Rows ----------------------------------------------------------------------------------------


def sampled(blocks: Blocks, seed: int, n_classes: int = 0, where: Executor = LOCAL) -> RowSample:
    """Return the sample of all rows, by one pass that makes no features.

    With ``n_classes`` y holds codes of classes, and the sample their indicators.
    """
    sample = where.sum(SampleOf(seed), blocks).sample
    if not (n_classes and sample.y.shape[1]):
        return sample
    return replace(sample, y=indicators(sample.y[:, 0], n_classes))


def indicators(codes: Float[Array, " n"], n_classes: int) -> Float[Array, "n K"]:
    """Return −1 and +1 of classes against the rest; one column, of the second, for two classes."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def count_rows(blocks: Blocks) -> int:
    """Return the number of rows of blocks that were read to their end."""
    return blocks.n_rows if blocks.n_rows is not None else sum(b.X.shape[0] for b in blocks)


def total_weight(blocks: Blocks) -> float:
    """Return the sum of weights: rows, without a further pass, where there are none."""
    if next(iter(blocks)).w is None:
        return count_rows(blocks)
    return float(sum(to_numpy(block.w).sum() for block in blocks)) or 1.0


def joined(parts: list[Array]) -> Array:
    """Put arrays of one library one below the other."""
    return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=0)


# --- Moments -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """How moments of features are summed up: of φ(X), or of kernel values that are whitened last.

    Attributes
    ----------
    features : callable
        What is summed up.
    root : (D, D) or None
        L of φ(x) = L c(x), where c(x) is summed up.
    """

    features: Callable[[Array], Array]
    root: Array | None

    @staticmethod
    def of(chosen: Chosen) -> "FeatureMoments":
        """Return how: kernel values with landmarks where the map says so."""
        phi = chosen.map
        require_room_for(phi.n_features)
        if isinstance(phi, NystromMap) and phi.sums_first and chosen.precision == "float64":
            values = Rounded(phi.kernel, LandmarkValues(phi.kernel, phi), chosen.precision)
            return FeatureMoments(values, phi.root(np.dtype(chosen.precision)).T)
        return FeatureMoments(chosen.features, None)

    def finished(self, moments: Moments) -> Moments:
        """Return the moments of the features."""
        return moments if self.root is None else moments.mapped(self.root, "float32")


def moments_of(
    chosen: Chosen, blocks: Blocks, precision: Precision, where: Executor = LOCAL
) -> Moments:
    """Return the moments of the features of all blocks, in one pass."""
    how = FeatureMoments.of(chosen)
    total = where.sum(MomentsOf(how.features, precision), blocks.with_rows(chosen.block_rows))
    return how.finished(MomentsOf.moments(total))
