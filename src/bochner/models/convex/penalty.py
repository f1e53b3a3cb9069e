"""The penalty of a classifier, and its lengthscale, by the loss of rows that were left out.

On a sample of m rows, those of rare classes kept before others, the learner's own loss is minimised
for penalties on a grid of half decades, walked downhill, each fit starting from its neighbour's
end. A row stands for r rows of its class, so that the noise of the sample is that of all rows times

    r̄ = Σ r² w g² / Σ r w g²,      g the slopes of the loss at the best constant,

and as the best penalty grows with the variance of the noise, all rows take alpha = alpha_m/r̄: C
stays what it was where all classes are thinned alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import UnsupportedKernel
from bochner.features import IID, FeatureMap, Fourier, Orthogonal
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._alike import N_FOLDS, row_marks
from bochner.models._feature_blocks import FeatureBlock, Kept
from bochner.models._inputs import indicators
from bochner.selection.search import NAMED, choose_lengthscale
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.convex.problem import forward

#: Rows of the sample, beside those kept of rare classes: a class has this number's share of all
#: classes, halved, where there are as many.
MOST = 4096

#: So many folds are left out as hold this many rows beside those of the largest class.
ENOUGH = 200

#: Factor between penalties, and the first as a share of Σ w |z|²: in steps, as all are counted.
FACTOR, FIRST = 10**-0.5, 6

#: Steps that a walk goes to.
NEAREST, FARTHEST = -2, 24

#: Here the penalty leaves the constant.
CONSTANT = -8

#: A smaller loss than this share of the best is taken for one.
LOWER = 0.9999

#: A lengthscale is left for another if that lowers the loss by this much, over the square root of
#: the number of rows left out: less may be chance.
CHANCE = 0.3

#: Features that lengthscales are compared on, and half-octaves that they go at most.
TRIED_FEATURES, OCTAVES = 512, 6

#: Cells m·D·t of a fit, at most, for lengthscales to be compared.
MOST_CELLS = 1 << 24

#: Tolerance of fits to compare.
TOL = 3e-3

#: Up to this many products m·D² features are float64.
SMALL = 1e8


class Learned(NamedTuple):
    """What a classifier minimises."""

    loss: Loss
    n_classes: int
    fit_intercept: bool

    @property
    def columns(self) -> int:
        """Columns of the problem."""
        return 1 if self.n_classes == 2 and not self.loss.joint else self.n_classes

    def targets(self, codes: Array) -> Float[Array, "m t"]:
        """Return what the loss compares with."""
        if self.loss.joint:
            return (codes[:, None] == np.arange(self.n_classes)).astype(np.float64)
        return indicators(codes, self.n_classes)


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sampled:
    """Rows to choose by.

    Attributes
    ----------
    X : (m, d)
    codes : (m,)
    w : (m,)
        Their weights, times the rows of their class that each stands for.
    inflation : float
        r̄.
    folds : tuple of (m,) bool
        Rows that each fold leaves out; none where rows are too few.
    distinct : int
        Different rows that are left out.
    """

    X: Array
    codes: Float[Array, " m"]
    w: Float[Array, " m"]
    inflation: float
    folds: tuple[Array, ...]
    distinct: int


def sampled(blocks: Blocks, seed: int, n_classes: int) -> Sampled:
    """Return the rows to choose by, all of them where they are few; two passes at most."""
    rows = _engine.presample(blocks, seed).lowest(MOST)
    stands = np.ones(len(rows))
    if _engine.count_rows(blocks) > MOST:
        rows, stands = _with_rare(rows, blocks, seed, n_classes)
    codes, w = rows.y[:, 0], stands * rows.w
    shares = np.bincount(codes.astype(np.int64), w, minlength=n_classes) / w.sum()
    squares = (1 - shares[codes.astype(np.int64)]) ** 2
    inflation = float((stands * w * squares).sum() / max((w * squares).sum(), 1e-300)) or 1.0
    folds, distinct = _folds(rows.X, codes, seed, n_classes)
    return Sampled(rows.X, codes, w, inflation, folds, distinct)


def _with_rare(
    rows: RowSample, blocks: Blocks, seed: int, n_classes: int
) -> tuple[RowSample, Float[Array, " m"]]:
    """Return the rows with more of rare classes, and how many each stands for; one pass."""
    most = MOST // (2 * n_classes)
    many = np.bincount(rows.y[:, 0].astype(np.int64), minlength=n_classes)
    kept: dict[int, RowSample | None] = dict.fromkeys(np.flatnonzero(many < most).tolist())
    weights = np.zeros(n_classes)
    for block in blocks:
        codes = to_numpy(block.y).astype(np.int64)
        w = np.ones(len(codes)) if block.w is None else to_numpy(block.w).astype(np.float64)
        weights += np.bincount(codes, w, minlength=n_classes)
        for k, held in kept.items():
            if np.any(codes == k):
                part = RowSample.of(block._replace(w=np.where(codes == k, w, 0.0)), seed)
                kept[k] = (part if held is None else held.merge(part)).lowest(most)
    common = rows.take(np.flatnonzero(~np.isin(rows.y[:, 0], list(kept))))
    for held in kept.values():
        common = common if held is None else common.merge(held)
    codes = common.y[:, 0].astype(np.int64)
    have = np.bincount(codes, common.w, minlength=n_classes)
    return common, (weights / np.where(have > 0, have, 1.0))[codes]


def _folds(
    X: Array, codes: Float[Array, " m"], seed: int, n_classes: int
) -> tuple[tuple[Array, ...], int]:
    """Return the folds that have some rows and leave some of every class, and how many they are."""
    marks, codes = row_marks(X, seed), codes.astype(np.int64)
    different = np.unique(marks)
    numbers = np.searchsorted(different, marks) % N_FOLDS
    folds = [numbers == k for k in range(N_FOLDS)]
    left = [np.bincount(codes[~fold], minlength=n_classes).min() for fold in folds]
    serve = [fold for fold, many in zip(folds, left, strict=True) if fold.any() and many > 0]
    first = np.unique(marks, return_index=True)[1]
    beside = len(different) - int(np.bincount(codes[first], minlength=n_classes).max())
    serve = serve if beside > 1 else []
    serve = serve[: max(1, -(-N_FOLDS * ENOUGH // max(beside, 1)))]
    return tuple(serve), len(np.unique(marks[np.logical_or.reduce(serve)])) if serve else 0


# --- losses of rows left out ---------------------------------------------------------------------


class _LeftOut:
    """Loss of the rows left out, on one map's features, for penalties by their step; remembered."""

    def __init__(self, phi: FeatureMap, rows: Sampled, learned: Learned) -> None:
        single = len(rows.w) * phi.n_features**2 > SMALL
        Z = to_numpy(phi(rows.X)).astype(np.float32 if single else np.float64)
        squares = (Z.astype(np.float64) ** 2).sum(axis=1)
        self._Z, self._rows, self._learned = Z, rows, learned
        self.largest = float(rows.w @ squares) or 1.0
        self._ends: list[dict[int, Optimum]] = [{} for _ in rows.folds]
        self.tried: dict[int, float] = {}

    def __call__(self, step: int) -> float:
        if step not in self.tried:
            lost = [self._lost(held, step, ends) for held, ends in self._folds()]
            self.tried[step] = float(np.sum(lost))
        return self.tried[step]

    def alpha(self, step: int) -> float:
        """Return the penalty of a step."""
        return self.largest * FACTOR**step

    def end(self, step: int) -> Optimum:
        """Return the minimum without the first fold."""
        return self._ends[0][step]

    def _folds(self) -> Any:
        return zip(self._rows.folds, self._ends, strict=True)

    def _lost(self, held: Array, step: int, ends: dict[int, Optimum]) -> float:
        rows, learned = self._rows, self._learned
        near = min(ends, key=lambda other: abs(other - step), default=None)
        found = ends[step] = minimise(
            Kept(FeatureBlock(self._Z, rows.codes, np.where(held, 0.0, rows.w), 0)),
            learned.loss,
            self.alpha(step),
            fit_intercept=learned.fit_intercept,
            start=None if near is None else ends[near],
            targets=learned.targets,
            tol=TOL,
        )
        f = forward(np.ascontiguousarray(self._Z[held]), found.theta)
        lost = learned.loss.value(learned.targets(rows.codes[held]), f)
        return float((rows.w[held, None] * lost).sum())


def walked(error: Callable[[int], float], start: int, least: int, most: int) -> int:
    """Return where a function of whole numbers is least: downhill by twos, then by ones."""
    best = start
    for step in (2, 1):
        for direction in (step, -step):
            before = best
            while least <= best + direction <= most and (
                error(best + direction) < LOWER * error(best)
            ):
                best += direction
            if best != before:
                break
    return best


def chosen_penalty(
    phi: FeatureMap, rows: Sampled, learned: Learned, near: int = FIRST
) -> tuple[HeldOutPath, Optimum] | None:
    """Return penalties for all rows and what rows left out lost, and a minimum at the best.

    None where no rows can be left out.
    """
    if not rows.folds:
        return None
    error = _LeftOut(phi, rows, learned)
    best = walked(error, near, NEAREST, FARTHEST)
    steps = sorted(error.tried)
    errors = np.array([error(step) for step in steps]) / max(error(CONSTANT), 1e-300)
    alphas = np.array([error.alpha(step) for step in steps]) / rows.inflation
    return HeldOutPath(alphas, errors), error.end(best)


# --- lengthscales --------------------------------------------------------------------------------


def chosen_kernel(
    name: str,
    sample: RowSample,
    rows: Sampled,
    learned: Learned,
    width: int,
    seed: int,
    method: Any,
) -> tuple[Any, int]:
    """Return the search for the kernel of this name, and the step of its best penalty.

    From the lengthscale that is best for ridge regression, by octaves while the loss of rows left
    out falls by more than chance.
    """
    found = choose_lengthscale(name, sample, width, seed, None, method)
    width = min(width, TRIED_FEATURES)
    small = len(rows.w) * width * learned.columns <= MOST_CELLS
    if name in ("linear", "auto") or not small or not rows.folds:
        return found, FIRST
    best: dict[int, tuple[float, int]] = {}

    def error(octaves: int, near: int) -> float:
        if octaves not in best:
            kernel = _scaled(name, found.kernel, 2.0**octaves)
            left_out = _LeftOut(_quick(kernel, rows.X.shape[1], width, seed), rows, learned)
            step = walked(left_out, near, NEAREST, FARTHEST)
            best[octaves] = left_out(step), step
        return best[octaves][0]

    here, lower = 0, 1 - CHANCE / rows.distinct**0.5
    least = error(0, FIRST)
    for direction in (1, -1):
        while abs(here + direction) <= OCTAVES and (
            error(here + direction, best[here][1]) < lower * least
        ):
            here += direction
            least = error(here, 0)
        if here:
            break
    kernel = found.kernel if not here else _scaled(name, found.kernel, 2.0**here)
    return replace(found, kernel=kernel), best[here][1]


def _scaled(name: str, kernel: Kernel, factor: float) -> Kernel:
    scale: Any = kernel.get_params()["lengthscale"]
    longer = tuple(factor * s for s in scale) if isinstance(scale, tuple) else factor * scale
    return NAMED[name](longer)


def _quick(kernel: Kernel, n_inputs: int, width: int, seed: int) -> FeatureMap:
    """Return the map that lengthscales are compared on, as for ridge regression."""
    ask = Request(n_inputs, max(2, width - width % 2), seed, ("lengthscale",))
    try:
        return draw_map(Fourier(Orthogonal()), kernel, ask)
    except UnsupportedKernel:
        return draw_map(Fourier(IID()), kernel, ask)
