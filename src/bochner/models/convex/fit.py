"""Fits by convex losses: what is asked, what is found, and rows in units in which squares exist."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from bochner._core.arrays import from_numpy, to_numpy
from bochner._core.checks import integer, positive, require_switch, warn_user
from bochner._core.shapes import Array, Float
from bochner._core.text import rounded
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import required_targets
from bochner.models._base import KernelEstimator, learned
from bochner.models._calibration import Calibration
from bochner.models._rows import Features
from bochner.models._shown import Fact, ShownFit, numbers
from bochner.models.convex.pairs import ClassPairs
from bochner.models.convex.units import ScaledRows
from bochner.models.error_law import ErrorLaw, LeftOutRows
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.solvers.convex.losses import Absolute, Loss
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.convex.problem import TargetsOf, best_constant, forward
from bochner.sums.executor import LOCAL, Executor

#: Numbers below the least of these have no unit: its inverse would be infinite.
UNITS = (-1000, 1000)

#: Least spread of targets, as a share of the largest, that a unit follows.
NARROW = 2.0**-26

#: Weights above this are no numbers of copies.
MOST_COPIES = 2.0**40


class Solved(Protocol):
    """A fit whose solution says how it was found."""

    @property
    def solution(self) -> Optimum: ...


Fit = TypeVar("Fit", bound=Solved)


@dataclass(frozen=True)
class ConvexSpec:
    """What a user asks of a fit by a convex loss, checked."""

    features: FeatureSpec
    loss: Loss
    alpha: float | str  # the penalty, or how it is chosen
    fit_intercept: bool
    tol: float
    max_iter: int
    norm: Callable[[float], float] | None = None  # R of ‖β‖, in the place of its square
    pairs: ClassPairs | None = None  # where each class is told from each other

    @property
    def who(self) -> str:
        """The class of the learner, as messages name it."""
        return self.features.who


@dataclass(frozen=True, eq=False)
class ConvexFit(ShownFit):
    """A fit by a convex loss: what was chosen, and where the objective is least."""

    inputs: Inputs
    chosen: Chosen
    loss: Loss  # with its numbers, in the units of y
    solution: Optimum
    n_iter: int  # steps of the last descent
    path: HeldOutPath | None = None  # penalties that were compared
    target_shape: tuple[int, ...] = ()  # of one row of y: () or (t,)
    calibration: Calibration | None = None  # of a classifier's probabilities
    errors: ErrorLaw | None = None  # of new rows, where they were calibrated
    left_out: LeftOutRows | None = None  # some rows of a regression, with f without each
    # Of few rows: coefficients u with β = Σ uᵢ φ(xᵢ), and these rows
    dual: Float[Array, "n t"] | None = None
    X: Any = None
    pairs: ClassPairs | None = None  # whose values the columns are, where there are any

    def _found(self) -> Iterator[Fact]:
        """Give the loss, the penalty and the outcome."""
        yield from found_by_loss(self.loss, self.solution, self.path)

    def predictions(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b t"]]]:
        """Give the rows of one block after the other, and φ(X) β + b."""
        linear = self.chosen.linear(self.solution.coef)
        for block in blocks.with_rows(self.chosen.block_rows):
            yield block.X, linear(block.X) + self.solution.intercept

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Give the rows of one block after the other, and the gradients of φ(x) β at them."""
        found = self.chosen.gradients(self.solution.coef, blocks)
        return found if self.pairs is None else self._of_classes(self.pairs, found)

    def _of_classes(self, pairs: ClassPairs, found: Iterator[tuple[Array, Array]]) -> Iterator[Any]:
        for X, G in found:
            f = forward(to_numpy(self.chosen.features(X)), self.solution.theta)
            yield X, pairs.gradients(f, G)

    def decisions(self, blocks: Blocks) -> Float[Array, "n t"]:
        """Return decision values of all rows, in the precision of the features."""
        theta, chosen = self.solution.theta, self.chosen
        rows = blocks.with_rows(chosen.block_rows)
        found = (forward(to_numpy(chosen.features(b.X)), theta) for b in rows)
        return np.concatenate([f if self.pairs is None else self.pairs.values(f) for f in found])


def found_by_loss(loss: Loss, solution: Optimum, path: HeldOutPath | None) -> Iterator[Fact]:
    """Give the loss, the penalty and how it was chosen, and how the descent ended."""
    yield "loss", rounded(repr(loss))
    how = "as given" if path is None else path.reason
    yield "penalty", f"alpha = {numbers(solution.alpha)}, {how}"
    yield "outcome", str(solution.outcome)


def warned(fit: Fit) -> Fit:
    """Return the fit; warn of an outcome that asks for attention: its text is the remedy."""
    if not fit.solution.outcome.good:
        warn_user(str(fit.solution.outcome))
    return fit


class ConvexEstimator(KernelEstimator):
    """An estimator whose fitted value is a :class:`ConvexFit`, or one without features."""

    fit_: Any
    fit_intercept: bool
    tol: float
    max_iter: int
    method: Any

    def _convex_spec(self, loss: Loss, alpha: float | str, centred: object) -> ConvexSpec:
        features = self._feature_spec("auto" if self.method is None else self.method)
        tol = positive(self.tol, features.who, "tol")
        steps = integer(self.max_iter, features.who, "max_iter", 1)
        return ConvexSpec(features, loss, alpha, require_switch(features.who, centred), tol, steps)

    solution_ = learned("solution", "Coefficients, objective, outcome, and what every step did.")
    path_ = learned("path", "Penalties that were compared, and what the rows left out lost.")
    n_iter_ = learned("n_iter", "Steps taken.")

    @property
    def _path(self) -> Any:
        return self.path_


# --- units ---------------------------------------------------------------------------------------


def unit_of(largest: float) -> float:
    """Return the power of two next below a number: dividing by it is exact. One for zero."""
    return 2.0 ** np.clip(math.frexp(largest)[1] - 1, *UNITS) if largest > 0 else 1.0


def in_units(blocks: Blocks, where: Executor = LOCAL) -> tuple[Blocks, float]:
    """Return the blocks with weights divided by a power of two, and that unit.

    Weights below one by what brings the largest between a half and one: their squares are then
    numbers. Others count copies of rows, of which errors leave one out, and stay.
    """
    if next(iter(blocks)).w is None:
        return blocks, 1.0
    largest = max(float(w.max()) for _, w in where.sum(TargetsOf(), blocks))
    if 1 <= largest <= MOST_COPIES:
        return blocks, 1.0
    unit, weigh = 2 * unit_of(largest), blocks.weigh
    return blocks.reweighted(lambda y: 1 / unit if weigh is None else weigh(y) / unit), unit


def scaled(who: str, blocks: Blocks, degree: int, where: Executor = LOCAL) -> ScaledRows:
    """Return the rows in units; targets stay what they are for losses without a degree."""
    blocks, weight = in_units(blocks, where)
    required_targets(who, next(iter(blocks)).y)
    y, w = map(np.concatenate, zip(*where.sum(TargetsOf(), blocks), strict=True))
    y, w = y.reshape(len(y), -1)[w > 0].astype(np.float64), w[w > 0, None]
    largest = np.array([unit_of(m) for m in np.abs(y).max(axis=0)])
    y = y / largest
    median = best_constant(Absolute(), y, np.broadcast_to(w, y.shape))
    spread = (w * np.abs(y - median)).sum(axis=0) / w.sum()
    finer = np.array([unit_of(max(s, NARROW)) for s in spread])
    if not degree:
        return ScaledRows(blocks, weight, np.ones(len(spread)), largest * spread, 0)
    units, recode = largest * finer, blocks.recode
    one = units[0] if len(units) == 1 else units

    def divided(y: Array) -> Array:
        return to_numpy(y if recode is None else recode(y)).astype(np.float64) / one

    return ScaledRows(blocks.recoded(divided), weight, units, spread / finer, degree)


def spread_of(blocks: Blocks) -> float:
    """Return the mean of |y − median| in the first rows: what an absolute error weighs."""
    y = next(iter(blocks)).y
    y = np.zeros(1) if y is None else to_numpy(y).astype(np.float64)
    return float(np.abs(y - np.median(y, axis=0)).mean()) or 1.0


# --- rows ----------------------------------------------------------------------------------------


def features_of(chosen: Chosen, blocks: Blocks, where: Executor = LOCAL) -> Features:
    """Return the features of all rows, kept by the first pass where they fit."""
    return Features(chosen.map, blocks, chosen.precision, where=where)


def targets_of(
    who: str, features: Features
) -> tuple[Float[Array, "n t"], Float[Array, "n 1"], tuple[int, ...]]:
    """Return targets, weights and the shape of a row of y by the first pass.

    Targets of rows without weight are those of some other: they may be anything.
    """
    ys, ws = zip(*features.sum(TargetsOf()), strict=True)
    required_targets(who, ys[0])
    y, w = np.concatenate(ys).astype(np.float64), np.concatenate(ws)[:, None]
    shape, y = tuple(y.shape[1:]), y.reshape(len(y), -1)
    return np.where(w > 0, y, y[w[:, 0] > 0][0]), w, shape


def shaped(fitted: Float[Array, "b t"], shape: tuple[int, ...], like: Array) -> Array:
    """Return predictions in the shape of y and the array library of X."""
    return from_numpy(np.ascontiguousarray(fitted.reshape(len(fitted), *shape)), like=like)
