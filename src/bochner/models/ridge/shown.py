"""What notebooks and the command line tell of a ridge regression: its penalty and its error."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bochner._core.shapes import Array
from bochner.models._shown import Fact, ShownFit, numbers
from bochner.solvers.ridge.solution import Solution


class ShownRidge(ShownFit):
    """A ridge regression that notebooks show."""

    solution: Solution

    def _found(self) -> Iterator[Fact]:
        """Give the rows, the penalty, the error and the outcome."""
        fit: Any = self
        solution = self.solution
        yield "rows", f"{fit.rows:,}"
        yield "alpha", f"{numbers(solution.alpha)}, {solution.chosen_by}"
        error, r_squared = error_of(self)
        if error is not None and self.inputs.classes is None:
            share = "" if r_squared is None else f", R² {r_squared:.4g}"
            yield "error", f"{JUDGES[judge_of(solution)]} RMSE {error:.4g}{share}"
        freedom = on_path(solution, solution.path.effective_dimension)
        yield "effective dimension", "" if freedom is None else f"{freedom:.4g}"
        yield "outcome", str(solution.outcome)


#: Names of the criteria that errors are told by.
JUDGES = {"loo": "leave-one-out", "gcv": "cross-validation (GCV)"}


def judge_of(solution: Solution) -> str:
    """Return the criterion that the error of a solution is told by."""
    return "loo" if solution.criterion == "loo" else "gcv"


def error_of(fit: ShownRidge) -> tuple[float | None, float | None]:
    """Return the root of the leave-one-out (or GCV) mean squared error, and R²."""
    solution = fit.solution
    squared = on_path(solution, getattr(solution.path, judge_of(solution)))
    if squared is None:
        return None, None
    found: Any = fit
    variance = found.target_variance
    return squared**0.5, 1 - squared / variance if variance > 0 else None


def on_path(solution: Solution, values: Array) -> float | None:
    """Return the value at the penalty used, if it is on the path and finite."""
    where = np.flatnonzero(np.isclose(solution.path.alphas, solution.alpha, rtol=1e-9, atol=0))
    value = float(values[where[0]]) if len(where) else float("nan")
    return value if np.isfinite(value) and value >= 0 else None
