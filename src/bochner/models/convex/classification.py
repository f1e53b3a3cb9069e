"""Classification by convex losses: choose, minimise; and the penalty by rows that were left out.

On a sample of m rows, those of rare classes kept before others, the learner's own loss is minimised
for penalties on a grid of half decades, walked downhill, each fit starting from its neighbour's
end. A row stands for r rows of its class, so that the noise of the sample is that of all rows times

    r̄ = Σ r² w g² / Σ r w g²,      g the slopes of the loss at the best constant,

and as the best penalty grows with the variance of the noise, all rows take alpha = alpha_m/r̄: C
stays what it was where all classes are thinned alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.models._calibration import Calibration, calibrate
from bochner.models._rows import (
    FeatureBlock,
    Features,
    Kept,
    Without,
    fold_numbers,
    weights_of,
)
from bochner.models.convex.class_sample import (
    CONSTANT,
    FARTHEST,
    FIRST,
    NEAREST,
    ClassSample,
    Learned,
    class_sample,
    enough_folds,
    serving,
)
from bochner.models.convex.fit import ConvexFit, ConvexSpec, features_of, in_units, warned
from bochner.selection.candidates import FEWEST
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen, FeatureSpec, moments_of
from bochner.selection.search import choose_lengthscale
from bochner.selection.spec import NAMED
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import FACTOR, TOL, HeldOutPath
from bochner.solvers.convex.problem import TargetsOf, forward, images, places, walk
from bochner.sums.executor import LOCAL, Executor

#: Below this many products n·D² a fit in float64 takes no time that anyone would notice. Decisions
#: need no more than float32: where it would blur coefficients, features hardly move decisions.
SMALL = 1e8

#: Rows that probabilities are calibrated on, at most: four numbers are fitted.
CALIBRATION_ROWS = 50_000

#: A lengthscale is left for another if that lowers the loss by this much, over the square root of
#: the number of rows left out: less may be chance.
CHANCE = 0.3

#: Features that lengthscales are compared on, and half-octaves that they go at most.
TRIED_FEATURES, OCTAVES = 512, 6

#: Cells m·D·t of a fit, at most, for lengthscales to be compared.
MOST_CELLS = 1 << 24


def fit_classifier(
    spec: ConvexSpec,
    blocks: Blocks,
    inputs: Inputs,
    probability: bool = False,
    where: Executor = LOCAL,
) -> ConvexFit:
    """Choose what is open, and pass over the features until the loss is least.

    Targets of the blocks are codes of classes; ``spec.alpha`` is a number or "auto".
    """
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    blocks, unit = in_units(blocks, where)
    seed = spec.features.seed
    # Once, where it is asked for first.
    rows = cache(lambda: class_sample(blocks, seed, learned.n_classes, where))
    chosen, near = _chosen(spec, blocks, unit, learned, rows, where)
    path, start, alpha = None, None, spec.alpha
    if not isinstance(alpha, float):
        alpha = unit
        tried = chosen_penalty(chosen.map, rows(), learned, near)
        if tried is not None:
            path, start = tried
            alpha = unit * path.alpha
    features = features_of(chosen, blocks, where)
    features.keep()
    streamed = not (features.cached or spec.loss.nonsmooth)
    found = _minimum(
        spec,
        learned,
        features,
        alpha / unit,
        start,
        moments_of(chosen, blocks, "float32", where) if streamed else None,
    )
    steps = max(1, len(found.history))
    solution = found.scaled(unit)
    fit = ConvexFit(inputs, chosen, spec.loss, solution, steps, path, pairs=spec.pairs)
    warned(fit)
    if not probability:
        return fit
    calibration = _calibrated(spec, learned, features, blocks, seed, found, unit, where)
    return replace(fit, calibration=calibration)


def _minimum(
    spec: ConvexSpec,
    learned: Learned,
    rows: Any,
    alpha: float,
    start: Optimum | None,
    moments: Any = None,
) -> Optimum:
    return minimise(
        rows,
        learned.loss,
        alpha,
        fit_intercept=learned.fit_intercept,
        start=start,
        moments=moments,
        targets=learned.targets,
        tol=spec.tol,
        max_iter=spec.max_iter,
    )


def _chosen(
    spec: ConvexSpec,
    blocks: Blocks,
    unit: float,
    learned: Learned,
    rows: Callable[[], "ClassSample"],
    where: Executor,
) -> tuple[Chosen, int]:
    """Choose what is open; also return the step of the penalty to look near."""
    ask, near = spec.features, FIRST
    if ask.kernel == "auto" and ask.effort is not None and len(rows().w) < FEWEST:
        ask = replace(ask, kernel="gaussian")
    alpha = spec.alpha if isinstance(spec.alpha, float) else None

    def search(kernel: Any, sample: RowSample) -> Any:
        nonlocal near
        found, near = chosen_kernel(kernel, sample, rows(), learned, ask)
        return found

    # Near the answer half of a squared hinge's slope is that of squares: alpha/2 is ridge's.
    given = alpha / unit / 2 if alpha else None
    named = isinstance(ask.kernel, str) and (ask.kernel != "auto" or ask.effort is None)
    by_loss = alpha is None and named and not ask.learns_metric
    chosen, _ = choose(
        ask,
        blocks,
        n_classes=learned.n_classes,
        alpha=given,
        search=search if by_loss else None,
        where=where,
    )
    small = count_rows(blocks) * chosen.n_features**2 <= SMALL
    double = small if ask.precision == "auto" else ask.precision == "float64"
    return replace(chosen, precision="float64" if double else "float32"), near


# --- probabilities -------------------------------------------------------------------------------


class Rest:
    """All rows of the features, those of one fold (``held``) with weight zero."""

    def __init__(self, features: Features, held: Array) -> None:
        self._features = features
        self.held = held
        self.n_features = features.n_features

    @property
    def cached(self) -> bool:
        """Whether the features are kept in memory."""
        return self._features.cached

    def __iter__(self) -> Iterator[FeatureBlock]:
        for block in self._features:
            yield block._replace(w=np.where(self.held[places(block)], 0.0, weights_of(block)))

    def sum(self, summand: Any) -> Any:
        """Return the sum over the rows."""
        return self._features.sum(Without(summand, self.held))


def _calibrated(
    spec: ConvexSpec,
    learned: Learned,
    features: Features,
    blocks: Blocks,
    seed: int,
    start: Optimum,
    unit: float,
    where: Executor,
) -> Calibration | None:
    """Return the calibration on decision values of rows held out; None where none can be."""
    y, w = map(np.concatenate, zip(*features.sum(TargetsOf()), strict=True))
    numbers = fold_numbers(blocks, w, seed, where)
    found: list[tuple[Array, Array, Array]] = []
    for rest in _folds_of(features, y, w, numbers, learned.n_classes):
        theta, held = _minimum(spec, learned, rest, start.alpha, start).theta, rest.held
        found.append((learned.values(images(features, theta)[held]), y[held], w[held]))
    if not found:
        return None
    f, codes, w = map(np.concatenate, zip(*found, strict=True))
    step = -(-len(f) // CALIBRATION_ROWS)
    return calibrate(f[::step], codes[::step], unit * w[::step])


def _folds_of(
    features: Features, y: Array, w: Float[Array, " n"], numbers: Array, n_classes: int
) -> list[Rest]:
    """Return the rows without each of the folds that has some and leaves some of every class.

    Without rows of a class its intercept is any number.
    """
    folds = enough_folds(serving(numbers, y.astype(np.int64), w > 0, n_classes))
    return [Rest(features, fold) for fold in folds]


# --- losses of rows left out ---------------------------------------------------------------------


class _LeftOut:
    """Loss of the rows left out, on one map's features, for penalties by their step; remembered."""

    def __init__(self, phi: FeatureMap, rows: ClassSample, learned: Learned) -> None:
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
        progress("Choosing the penalty", f"{self.alpha(step):.3g}, one fold")
        return float((rows.w[held, None] * lost).sum())


def chosen_penalty(
    phi: FeatureMap, rows: ClassSample, learned: Learned, near: int = FIRST
) -> tuple[HeldOutPath, Optimum] | None:
    """Return penalties for all rows and what rows left out lost, and a minimum at the best.

    None where no rows can be left out.
    """
    if not rows.folds:
        return None
    error = _LeftOut(phi, rows, learned)
    best = walk(error, near, NEAREST, FARTHEST)
    steps = sorted(error.tried)
    errors = np.array([error(step) for step in steps]) / max(error(CONSTANT), 1e-300)
    alphas = np.array([error.alpha(step) for step in steps]) / rows.inflation
    return HeldOutPath(alphas, errors), error.end(best)


# --- lengthscales --------------------------------------------------------------------------------


def chosen_kernel(
    name: str, sample: RowSample, rows: ClassSample, learned: Learned, ask: FeatureSpec
) -> tuple[Any, int]:
    """Return the search for the kernel of this name, and the step of its best penalty.

    From the lengthscale that is best for ridge regression, by octaves while the loss of rows left
    out falls by more than chance.
    """
    width, seed = ask.width_to_search, ask.seed
    found = choose_lengthscale(name, sample, width, seed, None, ask.method)
    width = min(width, TRIED_FEATURES)
    small = len(rows.w) * width * learned.columns <= MOST_CELLS
    if name in ("linear", "auto") or not small or not rows.folds:
        return found, FIRST
    best: dict[int, tuple[float, int]] = {}

    def error(octaves: int, near: int) -> float:
        if octaves not in best:
            kernel = _scaled(name, found.kernel, 2.0**octaves)
            left_out = _LeftOut(_quick(kernel, rows.X.shape[1], width, seed), rows, learned)
            step = walk(left_out, near, NEAREST, FARTHEST)
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
