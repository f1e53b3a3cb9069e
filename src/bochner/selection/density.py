"""A kernel, its scale and its penalty, judged again at the density of all rows.

A kernel is chosen on a sample of a long table. All rows lie denser: rougher kernels and shorter
lengthscales tell more of what they hold. Which, and how much shorter, leave-one-out errors of rows
amid their neighbours say (:mod:`bochner.selection.near`), and the penalty that of rows that lie
together in a few places: there as many near rows are left as in the whole table.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner.kernels.kernel import Constant, Kernel
from bochner.selection.judges import TunedKernel
from bochner.selection.near import NearRows
from bochner.selection.record import KernelComparison, Tuning, TuningStep
from bochner.selection.rows import rounded
from bochner.selection.tree import neighbourhoods
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import solve_kernel
from bochner.solvers.ridge.solution import Solution

#: DensePlaces, and rows of each: one matrix of all of them takes a tenth of a second a penalty.
PLACES, PLACE_ROWS = 8, 128

#: Factor from one scale to the next, and scales that are tried each way, at most.
STEP, MOST = 2**0.5, 4

#: Share of the mean squared error that another scale must save, and another kernel; and standard
#: errors of the mean difference on the same rows: a few places say little of all others.
WORTH, WORTH_KERNEL, CHANCE = 0.005, 0.005, 1.0

#: Other kernels that are judged again, at most, and how much larger their error on few rows may be.
OTHERS, NEAR = 2, 1.5

#: The stage of a search that these evaluations are of, and what they measure.
STAGE, MEASURE = "scale among all rows", "error among near rows"


def stretched(kernel: Kernel, factor: float) -> Kernel | None:
    """Return the kernel with all lengthscales so many times as long; None where it has others."""
    if "lengthscale" in kernel.get_params(deep=False):
        scales: Any = np.asarray(kernel.get_params(deep=False)["lengthscale"]) * factor
        longer = rounded(tuple(scales.tolist()) if np.ndim(scales) else float(scales))
        return kernel.replace(lengthscale=longer)
    if isinstance(kernel, Constant):
        return kernel
    held = {f.name: getattr(kernel, f.name) for f in fields(kernel)}  # type: ignore[arg-type]
    parts = {name: stretched(part, factor) for name, part in held.items() if _is_kernel(part)}
    return None if not parts or None in parts.values() else kernel.replace(**parts)


def _is_kernel(part: object) -> bool:
    return isinstance(part, Kernel)


class AtDensity(NamedTuple):
    """A kernel, how many times as long its lengthscales are, the solution in a few places, errors.

    The error is relative to that of the mean; ``squared`` has it as its mean.
    """

    kernel: Kernel
    factor: float
    solution: Solution
    error: float
    squared: Float[Array, " m"]

    def surely_below(self, other: "AtDensity", worth: float) -> bool:
        """Whether the error is lower by a share that is worth it, and by more than chance."""
        if not (np.isfinite(self.error) and np.isfinite(other.error)):
            return self.error < other.error
        difference = other.squared - self.squared
        chance = CHANCE * float(difference.std()) / len(difference) ** 0.5
        return other.error - self.error > max(worth * other.error, chance)


@dataclass(frozen=True, eq=False)
class DensePlaces:
    """Rows that lie together in a few places, and what is asked of their fit.

    Attributes
    ----------
    X : (m, d)
        As the kernel sees them.
    y : (m, t)
    w : (m,)
    fit : callable
        From the matrix of a kernel to the solution.
    near : NearRows
        What kernels are judged by.
    """

    X: Float[Array, "m d"]
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    fit: Callable[[Float[Array, "m m"]], Solution]
    near: NearRows
    steps: list[TuningStep] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(
        kernel: Kernel,
        rows: tuple[Array, Array, Array],
        seed: int,
        centred: bool,
        alpha: Any,
        per_target: bool,
        share: float,
    ) -> "DensePlaces":
        """Take rows X, y and w of a few places; ``share`` is where a penalty is looked for."""
        X, y, w = rows
        some = neighbourhoods(kernel, X, PLACES, PLACE_ROWS, seed)
        start = share * float(w[some].sum()) if np.isfinite(share) else None

        def fit(K: Float[Array, "m m"]) -> Solution:
            problem = KernelRows(K, y[some], w[some], centred)
            return solve_kernel(problem, alpha, per_target=per_target, start=start)

        near = NearRows.of(kernel, rows, seed, centred)
        return DensePlaces(X[some], y[some], w[some], fit, near)

    def best(self, found: Tuning, others: Iterable[TunedKernel] = ()) -> AtDensity:
        """Return the best of the kernels that a search compared and others, at its best scale."""
        best = self.at(found.kernel, 1.0)
        for kernel in (*rivals(found), *(each.kernel for each in others)):
            judged = self.at(kernel, 1.0)
            best = judged if judged.surely_below(best, WORTH_KERNEL) else best
        return self.scaled(best)

    def scaled(self, best: AtDensity) -> AtDensity:
        """Shorten or lengthen all lengthscales while the leave-one-out error falls."""
        if stretched(best.kernel, 1.0) is None:
            return best
        for step in (1 / STEP, STEP):
            start = best.factor
            for _ in range(MOST):
                found = self.at(best.kernel, best.factor * step)
                if not found.surely_below(best, WORTH):
                    break
                best = found
            if best.factor != start:
                break
        return best

    def at(self, kernel: Kernel, factor: float) -> AtDensity:
        """Return the solution with lengthscales so many times as long."""
        longer = kernel if factor == 1.0 else stretched(kernel, factor)
        assert longer is not None
        found = self.fit(to_numpy(longer(self.X)))
        squared = self.near.squared_errors(longer, found.alpha)
        error, share = float(squared.mean()), float(np.min(found.alpha)) / len(self.w)
        least = min([error, *(step.best for step in self.steps)])
        seconds = time.monotonic() - self.began
        progress("Judging kernels among near rows", f"error {error:.4g}")
        self.steps.append(TuningStep(STAGE, longer, share, error, least, seconds))
        return AtDensity(kernel, factor, found, error, squared)

    def noted(self, found: Tuning, best: AtDensity, others: Iterable[TunedKernel] = ()) -> Tuning:
        """Return the record of a search, with these steps and the kernel that was taken."""
        longer = stretched(best.kernel, best.factor) if best.factor != 1.0 else None
        kernel = best.kernel if longer is None else longer
        compared = tuple(self._judged(found, others))
        compared = tuple(replace(c, taken=c.kernel == best.kernel) for c in compared)
        path = (*found.path, *self.steps)
        return replace(found, kernel=kernel, path=path, compared=compared)

    def _judged(self, found: Tuning, others: Iterable[TunedKernel]) -> Iterator[KernelComparison]:
        """Give what was compared, with its error among near rows where it was judged there."""
        errors = {step.kernel: step.value for step in reversed(self.steps)}
        for c in found.compared:
            error = errors.get(c.kernel)
            again = replace(c, measure=MEASURE, gain=np.nan, deviation=np.nan, rows=0)
            yield c if error is None else replace(again, error=error)
        for each in others:
            error = errors[each.kernel]
            yield KernelComparison(
                each.numbers, each.kernel, error, np.nan, np.nan, False, MEASURE, each.name
            )


def rivals(found: Tuning) -> list[Kernel]:
    """Return the kernels that a search compared with the one it found, the best of them first."""
    least = min((c.error for c in found.compared if c.kernel == found.kernel), default=np.inf)
    near = [c for c in found.compared if c.kernel != found.kernel and c.error < NEAR * least]
    ranked = sorted(near, key=lambda c: c.error)
    return list(dict.fromkeys(c.kernel for c in ranked))[:OTHERS]
