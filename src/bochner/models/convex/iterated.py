"""What learners share that sweep their features again and again: features, rows, predictions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import from_numpy, to_numpy
from bochner._core.checks import integer, positive, warn_user
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.models import _engine
from bochner.models._feature_blocks import Features, weights_of
from bochner.models._inputs import required_targets
from bochner.solvers.convex.losses import Absolute
from bochner.solvers.convex.optimum import Convergence
from bochner.solvers.convex.problem import best_constant

#: Numbers below the least of these have no unit: its inverse would be infinite.
UNITS = (-1000, 1000)

#: Least spread of targets, as a share of the largest, that a unit follows.
NARROW = 2.0**-26

#: Weights above this are no numbers of copies.
MOST_COPIES = 2.0**40


def check_steps(model: Any) -> None:
    """Check the parameters of precision and of the descent."""
    who = type(model).__name__
    _engine.check_precision(model)
    positive(model.tol, who, "tol")
    integer(model.max_iter, who, "max_iter", 1)


def unit_of(largest: float) -> float:
    """Return the power of two next below a number: dividing by it is exact. One for zero."""
    return 2.0 ** np.clip(math.frexp(largest)[1] - 1, *UNITS) if largest > 0 else 1.0


def in_units(blocks: Blocks) -> tuple[Blocks, float]:
    """Return the blocks with weights divided by a power of two, and that unit.

    Weights below one by what brings the largest between a half and one: their squares are then
    numbers. Others count copies of rows, of which errors leave one out, and stay.
    """
    if next(iter(blocks)).w is None:
        return blocks, 1.0
    largest = max(float(to_numpy(block.w).max()) for block in blocks)
    if 1 <= largest <= MOST_COPIES:
        return blocks, 1.0
    unit, weigh = 2 * unit_of(largest), blocks.weigh
    return blocks.reweighted(lambda y: 1 / unit if weigh is None else weigh(y) / unit), unit


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows whose weights and targets are in units, powers of two, in which squares are numbers.

    A loss of degree p (``Loss.degree``) is s⁻ᵖ times what it was, and with β in units of s too the
    penalty is alpha s²⁻ᵖ.

    Attributes
    ----------
    blocks : Blocks
    weight : float
        Unit of the weights.
    units : (t,) float64
        s, of each target.
    spread : (t,) float64
        Mean of |y − median| of each target, in its unit.
    degree : int
    """

    blocks: Blocks
    weight: float
    units: Float[Array, " t"]
    spread: Float[Array, " t"]
    degree: int

    @property
    def value(self) -> Float[Array, " t"]:
        """What one is worth of an objective in these units."""
        with np.errstate(over="ignore"):
            return np.minimum(self.weight * self.units**self.degree, np.finfo(np.float64).max)

    def penalty(self, alpha: float) -> Any:
        """Return a penalty in these units: a number, or one for each target."""
        return one_or_each(alpha / self.weight * self.units ** (2 - self.degree))

    def original(self, alpha: Any) -> Any:
        """Return what a penalty in these units is in units of one."""
        return one_or_each(alpha * self.weight / self.units ** (2 - self.degree))

    def repeated(self, times: int) -> "Scaled":
        """Return the same for a target that is so many columns."""
        return replace(
            self, units=np.repeat(self.units, times), spread=np.repeat(self.spread, times)
        )


def one_or_each(numbers: Any) -> Any:
    """Return one number where all are equal, else all."""
    numbers = np.atleast_1d(numbers)
    return float(numbers[0]) if np.all(numbers == numbers[0]) else numbers


def scaled(model: Any, blocks: Blocks, degree: int) -> Scaled:
    """Return the rows in units; targets stay what they are for losses without a degree."""
    blocks, weight = in_units(blocks)
    y, w = _targets(model, blocks)
    largest = np.array([unit_of(m) for m in np.abs(y).max(axis=0)])
    y = y / largest
    median = best_constant(Absolute(), y, np.broadcast_to(w, y.shape))
    spread = (w * np.abs(y - median)).sum(axis=0) / w.sum()
    finer = np.array([unit_of(max(s, NARROW)) for s in spread])
    if not degree:
        return Scaled(blocks, weight, np.ones(len(spread)), largest * spread, 0)
    units, recode = largest * finer, blocks.recode
    one = units[0] if len(units) == 1 else units

    def divided(y: Array) -> Array:
        return to_numpy(y if recode is None else recode(y)).astype(np.float64) / one

    return Scaled(blocks.recoded(divided), weight, units, spread / finer, degree)


def _targets(model: Any, blocks: Blocks) -> tuple[Float[Array, "n t"], Float[Array, "n 1"]]:
    """Return targets and weights of the rows that have some weight, by one pass."""
    ys, ws = [], []
    for block in blocks:
        y = to_numpy(required_targets(type(model).__name__, block.y)).astype(np.float64)
        w = np.ones(len(y)) if block.w is None else to_numpy(block.w).astype(np.float64)
        ys.append(y.reshape(len(y), -1)[w > 0])
        ws.append(w[w > 0])
    return np.concatenate(ys), np.concatenate(ws)[:, None]


def prepare(model: Any, blocks: Blocks, alpha: float | None = None) -> Features:
    """Draw the map of a learner of numbers, and return the features of its rows.

    ``alpha`` is the penalty where it is given, as of ridge regression: lengthscale and width are
    then chosen for it.
    """
    check_steps(model)
    _engine.choose(model, blocks, share=_engine.share_of(model, blocks, alpha))
    model.feature_dtype_ = _engine.feature_dtype(model.precision, blocks.n_rows, model.map_)
    return Features(model.map_, blocks, model.feature_dtype_)


def spread_of(blocks: Blocks) -> float:
    """Return the mean of |y − median| in the first rows: what an absolute error weighs."""
    y = next(iter(blocks)).y
    y = np.zeros(1) if y is None else to_numpy(y).astype(np.float64)
    return float(np.abs(y - np.median(y, axis=0)).mean()) or 1.0


def rows_of(features: Features) -> tuple[Array, Float[Array, "n 1"]]:
    """Return y as it comes (None without targets) and the weights, by the first pass."""
    ys: list[Array] = []
    ws: list[Array] = []
    for block in features:
        ys.append(block.y)
        ws.append(weights_of(block))
    y = None if ys[0] is None else np.concatenate(ys).astype(np.float64)
    return y, np.concatenate(ws)[:, None]


def targets_of(model: Any, features: Features) -> tuple[Float[Array, "n t"], Float[Array, "n 1"]]:
    """Return targets and weights by the first pass; ``target_shape_`` is that of a row of y."""
    y, w = rows_of(features)
    y = required_targets(type(model).__name__, y)
    model.target_shape_ = tuple(y.shape[1:])
    return y.reshape(len(y), -1), w


def fitted_blocks(model: Any, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b t"]]]:
    """Give the rows X and Zβ + b of one block after the other."""
    check_is_fitted(model)
    for block in blocks.with_rows(_engine.block_rows(model.map_.n_features)):
        Z = to_numpy(_engine.as_features(model.map_, block.X, model.feature_dtype_))
        yield block.X, Z @ model.solution_.coef + model.solution_.intercept


def shaped(fitted: Float[Array, "b t"], shape: tuple[int, ...], like: Array) -> Array:
    """Return predictions in the shape of y and the array library of X."""
    return from_numpy(np.ascontiguousarray(fitted.reshape(len(fitted), *shape)), like=like)


def warn(outcome: Convergence) -> None:
    """Warn where something needs to be done."""
    if not outcome.good:
        warn_user(str(outcome))
