"""Rows of a regression in units in which squares are numbers, and penalties in these units."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.solvers.convex.penalty_path import HeldOutPath


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows whose weights and targets are in units, powers of two, in which squares are numbers.

    A loss of degree p (``Loss.degree``) is s⁻ᵖ times what it was, and with β in units of s too the
    penalty is alpha s²⁻ᵖ.
    """

    blocks: Blocks
    weight: float  # unit of the weights
    units: Float[Array, " t"]  # s, of each target
    spread: Float[Array, " t"]  # mean of |y − median| of each target, in its unit
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

    def original_path(self, path: HeldOutPath) -> HeldOutPath:
        """Return a path in units of one, of the first target."""
        return replace(path, alphas=np.atleast_1d(self.original(1.0))[0] * path.alphas)

    def repeated(self, times: int) -> "ScaledRows":
        """Return the same for a target that is so many columns."""
        units, spread = (np.repeat(a, times) for a in (self.units, self.spread))
        return replace(self, units=units, spread=spread)


def one_or_each(numbers: Any) -> Any:
    """Return one number where all are equal, else all."""
    numbers = np.atleast_1d(numbers)
    return float(numbers[0]) if np.all(numbers == numbers[0]) else numbers
