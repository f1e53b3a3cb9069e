"""Classification by convex losses on features.

The penalty is chosen on a sample of m rows, with more rows of rare classes: the learner's own loss
is minimised without each fold for penalties on a grid of half decades, downhill, each fit starting
from its neighbour's end. A row represents r rows of its class, so that the noise of the sample is
the noise of all rows times

    r̄ = Σ r² w g² / Σ r w g²,      g the slopes of the loss at the best constant,

and as the best penalty grows with the variance of the noise, all rows take alpha = alpha_m/r̄: C
stays the same where all classes are thinned alike.
"""

from collections.abc import Callable
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
from bochner.models._rows import FeatureBlock, Features, Kept, fold_numbers
from bochner.models.convex.class_sample import (
    ClassesLeftOut,
    ClassSample,
    Learned,
    class_sample,
    enough_folds,
    serving,
)
from bochner.models.convex.fit import ConvexFit, ConvexSpec, features_of, warned
from bochner.selection.candidates import FEWEST
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen, FeatureSpec, moments_of
from bochner.selection.spec import NAMED
from bochner.selection.walk import choose_lengthscale
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import (
    CONSTANT,
    FARTHEST,
    FIRST,
    NEAREST,
    TOL,
    HeldOutPath,
)
from bochner.solvers.convex.problem import TargetsOf, forward, images, walk
from bochner.sums.executor import LOCAL, Executor

#: Products n·D² up to which a fit in float64 takes no noticeable time. Decisions need no more than
#: float32.
SMALL = 1e8

#: Rows that probabilities are calibrated on, at most: four numbers are fitted.
CALIBRATION_ROWS = 50_000

#: Another lengthscale must lower the loss by this share over the square root of the number of rows
#: left out; a smaller gain may be chance.
CHANCE = 0.3

#: Features that lengthscales are compared on, and octaves between lengthscales at most.
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
    """Choose kernel and penalty where they are open, and minimise the loss on features.

    Targets of the blocks are codes of classes; ``spec.alpha`` is a number or "auto".
    """
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    seed = spec.features.seed
    rows = cache(lambda: class_sample(blocks, seed, learned.n_classes, where))
    chosen, near = _chosen(spec, blocks, learned, rows, where)
    path, start, alpha = None, None, spec.alpha
    if not isinstance(alpha, float):
        alpha = 1.0
        if rows().folds:  # else rows are too few to leave some of a class out
            path, start = chosen_penalty(chosen.map, rows(), learned, near)
            alpha = path.alpha
    features = features_of(chosen, blocks, where)
    features.keep()
    streamed = not (features.cached or spec.loss.nonsmooth)
    moments = moments_of(chosen, blocks, "float32", where) if streamed else None
    solution = _minimum(spec, learned, features, alpha, start, moments)
    calibration = None
    if probability:
        calibration = _calibrated(spec, learned, features, blocks, seed, solution, where)
    steps = max(1, len(solution.history))
    return warned(
        ConvexFit(inputs, chosen, spec.loss, solution, steps, path, calibration, pairs=spec.pairs)
    )


def _minimum(
    spec: ConvexSpec,
    learned: Learned,
    rows: Any,
    alpha: float,
    start: Optimum | None,
    moments: Any = None,
    held: Array | None = None,
) -> Optimum:
    return minimise(
        rows,
        learned.loss,
        alpha,
        fit_intercept=learned.fit_intercept,
        start=start,
        moments=moments,
        targets=learned.targets,
        held=held,
        tol=spec.tol,
        max_iter=spec.max_iter,
    )


def _chosen(
    spec: ConvexSpec,
    blocks: Blocks,
    learned: Learned,
    rows: Callable[[], "ClassSample"],
    where: Executor,
) -> tuple[Chosen, int]:
    """Choose kernel and map where they are open; also return the likely step of the penalty."""
    ask, near = spec.features, FIRST
    if ask.kernel == "auto" and ask.effort is not None and len(rows().w) < FEWEST:
        ask = replace(ask, kernel="gaussian")
    alpha = spec.alpha if isinstance(spec.alpha, float) else None

    def search(kernel: Any, sample: RowSample) -> Any:
        nonlocal near
        found, near = chosen_kernel(kernel, sample, rows(), learned, ask)
        return found

    # Near the minimum a squared hinge has twice the slope of squares: ridge takes alpha/2.
    given = alpha / 2 if alpha else None
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


def _calibrated(
    spec: ConvexSpec,
    learned: Learned,
    features: Features,
    blocks: Blocks,
    seed: int,
    start: Optimum,
    where: Executor,
) -> Calibration | None:
    """Return the calibration on decision values of rows held out; None where none can be.

    Each fold must leave rows of every class: without them the intercept is any number.
    """
    y, w = map(np.concatenate, zip(*features.sum(TargetsOf()), strict=True))
    numbers = fold_numbers(blocks, w, seed, where)
    folds = serving(numbers, y.astype(np.int64), w > 0, learned.n_classes)
    values: list[tuple[Array, Array, Array]] = []
    for held in enough_folds(folds):
        theta = _minimum(spec, learned, features, start.alpha, start, held=held).theta
        values.append((learned.values(images(features, theta)[held]), y[held], w[held]))
    if not values:
        return None
    f, codes, w = map(np.concatenate, zip(*values, strict=True))
    step = -(-len(f) // CALIBRATION_ROWS)
    return calibrate(f[::step], codes[::step], w[::step])


# --- penalty and lengthscale ---------------------------------------------------------------------


class FeaturesLeftOut(ClassesLeftOut):
    """Loss of the rows left out, on the features of one map."""

    def __init__(self, phi: FeatureMap, rows: ClassSample, learned: Learned) -> None:
        single = len(rows.w) * phi.n_features**2 > SMALL
        self._Z = Z = to_numpy(phi(rows.X)).astype(np.float32 if single else np.float64)
        squares = (Z.astype(np.float64) ** 2).sum(axis=1)
        super().__init__(rows, learned, float(rows.w @ squares) or 1.0)

    def values(self, step: int, fold: int, held: Array) -> Float[Array, "m t"]:
        rows, learned, ends = self.rows, self.learned, self.ends[fold]
        near = min(ends, key=lambda other: abs(other - step), default=None)
        ends[step] = found = minimise(
            Kept(FeatureBlock(self._Z, rows.codes, rows.w, 0)),
            learned.loss,
            self.alpha(step),
            fit_intercept=learned.fit_intercept,
            start=None if near is None else ends[near],
            targets=learned.targets,
            held=held,
            tol=TOL,
        )
        progress("Choosing the penalty", f"{self.alpha(step):.3g}, one fold")
        return forward(np.ascontiguousarray(self._Z[held]), found.theta)


def chosen_penalty(
    phi: FeatureMap, rows: ClassSample, learned: Learned, near: int = FIRST
) -> tuple[HeldOutPath, Optimum]:
    """Return penalties for all rows with the losses of rows left out, and a minimum at the best."""
    lost = FeaturesLeftOut(phi, rows, learned)
    best = walk(lost, near, NEAREST, FARTHEST)
    return lost.path(lost(CONSTANT), rows.inflation), lost.end(best)


def chosen_kernel(
    name: str, sample: RowSample, rows: ClassSample, learned: Learned, ask: FeatureSpec
) -> tuple[Any, int]:
    """Return the search for the kernel of this name, and the step of its best penalty.

    It starts at the lengthscale that is best for ridge regression, and moves by octaves while the
    loss of rows left out falls by more than chance.
    """
    width, seed = ask.width_to_search, ask.seed
    found = choose_lengthscale(name, sample, width, seed)
    width = min(width, TRIED_FEATURES)
    small = len(rows.w) * width * learned.columns <= MOST_CELLS
    if name in ("linear", "auto") or not small or not rows.folds:
        return found, FIRST
    best: dict[int, tuple[float, int]] = {}

    def error(octaves: int, near: int) -> float:
        if octaves not in best:
            kernel = _scaled(name, found.kernel, 2.0**octaves)
            left_out = FeaturesLeftOut(_quick(kernel, rows.X.shape[1], width, seed), rows, learned)
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
