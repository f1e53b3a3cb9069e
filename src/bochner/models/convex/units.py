"""Targets of a regression in a unit near their spread, so that their squares are numbers."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import required_targets
from bochner.solvers.convex.losses import Absolute
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.convex.problem import TargetsOf, best_constant
from bochner.sums.executor import LOCAL, Executor

#: Range of exponents of units: beyond it the inverse of a unit would be infinite.
UNITS = (-1000, 1000)

#: Least spread of targets that a unit follows, as a share of the largest target.
NARROW = 2.0**-26


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows whose targets are divided by powers of two near their spreads.

    A loss of degree p (``Loss.degree``) is s⁻ᵖ times the loss of targets in units of one. With β in
    units of s too, the penalty is alpha s²⁻ᵖ.
    """

    blocks: Blocks
    units: Float[Array, " t"]  # s, of each target
    spread: Float[Array, " t"]  # mean of |y − median| of each target, in its unit
    degree: int

    @property
    def value(self) -> Float[Array, " t"]:
        """Factor from an objective in these units to units of one."""
        with np.errstate(over="ignore"):
            return np.minimum(self.units**self.degree, np.finfo(np.float64).max)

    def penalty(self, alpha: float) -> Any:
        """Return a penalty in these units: a number, or one for each target."""
        return one_or_each(alpha * self.units ** (2 - self.degree))

    def original(self, alpha: Any) -> Any:
        """Return a penalty in these units as one in units of one."""
        return one_or_each(alpha / self.units ** (2 - self.degree))

    def original_path(self, path: HeldOutPath | None) -> HeldOutPath | None:
        """Return a path in units of one, of the first target."""
        if path is None:
            return None
        return replace(path, alphas=np.atleast_1d(self.original(1.0))[0] * path.alphas)

    def repeated(self, times: int) -> "ScaledRows":
        """Return the same for each target repeated in ``times`` columns."""
        units, spread = (np.repeat(a, times) for a in (self.units, self.spread))
        return replace(self, units=units, spread=spread)


def one_or_each(numbers: Any) -> Any:
    """Return one number where all are equal, else all."""
    numbers = np.atleast_1d(numbers)
    return float(numbers[0]) if np.all(numbers == numbers[0]) else numbers


def unit_of(largest: float) -> float:
    """Return the power of two next below a number, one for zero: dividing by it is exact."""
    return 2.0 ** np.clip(math.frexp(largest)[1] - 1, *UNITS) if largest > 0 else 1.0


def scaled(who: str, blocks: Blocks, degree: int, where: Executor = LOCAL) -> ScaledRows:
    """Return the rows in units; targets of losses without a degree keep their unit."""
    required_targets(who, next(iter(blocks)).y)
    y, w = map(np.concatenate, zip(*where.sum(TargetsOf(), blocks), strict=True))
    y, w = y.reshape(len(y), -1)[w > 0].astype(np.float64), w[w > 0, None]
    largest = np.array([unit_of(m) for m in np.abs(y).max(axis=0)])
    y = y / largest
    median = best_constant(Absolute(), y, np.broadcast_to(w, y.shape))
    spread = (w * np.abs(y - median)).sum(axis=0) / w.sum()
    finer = np.array([unit_of(max(s, NARROW)) for s in spread])
    if not degree:
        return ScaledRows(blocks, np.ones(len(spread)), largest * spread, 0)
    units, recode = largest * finer, blocks.recode
    one = units[0] if len(units) == 1 else units

    def divided(y: Array) -> Array:
        return to_numpy(y if recode is None else recode(y)).astype(np.float64) / one

    return ScaledRows(blocks.recoded(divided), units, spread / finer, degree)


def spread_of(blocks: Blocks) -> float:
    """Return the mean of |y − median| in the first rows: the weight of an absolute error."""
    y = next(iter(blocks)).y
    y = np.zeros(1) if y is None else to_numpy(y).astype(np.float64)
    return float(np.abs(y - np.median(y, axis=0)).mean()) or 1.0
