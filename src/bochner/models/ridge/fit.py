"""Ridge regression on any representation of the rows."""

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import attrgetter
from typing import Any

import numpy as np

from bochner._core.checks import warn_user
from bochner._core.shapes import Array
from bochner._core.text import as_text
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.models._base import FitSummary
from bochner.models._labels import Calibration
from bochner.models.error_law import ErrorLaw, HeldOutRows
from bochner.models.representations.exact import LeafRows, MatrixRows
from bochner.models.representations.features import solve_features
from bochner.models.representations.representation import Representation, RidgeSpec
from bochner.selection.choose import choose
from bochner.solvers.ridge.solution import WARNED, Solution
from bochner.sums.moments import Precision


@dataclass(frozen=True, eq=False)
class RidgeFit(FitSummary):
    """A ridge regression: the representation of its rows, and the solution."""

    inputs: Inputs
    spec: RidgeSpec
    representation: Representation
    solution: Solution
    errors: ErrorLaw | None = None  # Distribution of errors of new rows; None until it is computed

    chosen = property(attrgetter("representation.chosen"))
    target_shape = property(attrgetter("representation.target_shape"))
    rows = property(attrgetter("representation.count"))
    block_rows = property(attrgetter("representation.block_rows"))

    def values(self) -> Any:
        return self.representation.values(self.solution)

    def left_out(self) -> HeldOutRows | None:
        return self.representation.left_out(self.solution)

    @cached_property
    def calibration(self) -> Calibration | None:
        return self.representation.calibration(self.solution)

    @cached_property
    def certificate(self) -> Certificate:
        return self.representation.certificate(self.solution.alpha)

    @property
    def error(self) -> tuple[float | None, float | None]:
        """Leave-one-out (or GCV) root mean squared error, and its R²; None if unknown."""
        path = self.solution.path
        squared = self.on_path(path.loo if self.solution.criterion == "loo" else path.gcv)
        if squared is None:
            return None, None
        variance = self.representation.target_variance
        return squared**0.5, 1 - squared / variance if variance > 0 else None

    def on_path(self, values: Array) -> float | None:
        """Return the entry of ``values`` at the penalty of the fit; None if unknown or infinite."""
        solution = self.solution
        if np.size(solution.alpha) > 1:
            return None
        where = np.flatnonzero(np.isclose(solution.path.alphas, solution.alpha, rtol=1e-9, atol=0))
        value = float(values[where[0]]) if len(where) else float("nan")
        return value if np.isfinite(value) and value >= 0 else None

    def merge_all(self, fits: list["RidgeFit"]) -> "RidgeFit":
        rows = reduce(lambda a, b: a.merge(b), [fit.representation for fit in fits])
        return warn(self.inputs, self.spec, *rows.solve(self.spec))

    def _results(self) -> dict[str, Any]:
        solution, (error, r_squared) = self.solution, self.error
        if self.inputs.classes is not None:
            error = r_squared = None
        share = "" if r_squared is None else f", R² {r_squared:.4g}"
        criterion = "leave-one-out" if solution.criterion == "loo" else "cross-validation (GCV)"
        return {
            "rows": self.rows,
            "alpha": solution.alpha,
            "alpha_words": f"{as_text(solution.alpha)}, {solution.chosen_by}",
            "rmse": error,
            "r_squared": r_squared,
            "error_words": "" if error is None else f"{criterion} RMSE {error:.4g}{share}",
            "effective_dimension": self.on_path(solution.path.effective_dimension),
            "outcome": solution.outcome.name,
            "outcome_words": str(solution.outcome),
        }


def fit_features(
    spec: RidgeSpec, blocks: Blocks, inputs: Inputs, precision: Precision | None = None
) -> RidgeFit:
    """Return a fit on features; ``precision``: dtype of the sums; None: chosen."""
    chosen, _ = choose(spec.features, blocks, alpha=spec.given_alpha)
    return warn(inputs, spec, *solve_features(spec, chosen, blocks, precision=precision))


def add_rows(fit: RidgeFit, spec: RidgeSpec, blocks: Blocks) -> RidgeFit:
    """Return the fit to earlier and these rows; exact and local fits change to features."""
    rows = fit.representation
    if isinstance(rows, MatrixRows | LeafRows):
        y = rows.y.reshape(len(rows.y), *fit.target_shape)
        features = replace(spec.features, kernel=fit.chosen.kernel, learns_metric=False)
        first = Blocks.from_arrays(rows.X, y, rows.w)
        fit = fit_features(replace(spec, features=features), first, fit.inputs, "float64")
    return warn(fit.inputs, spec, *fit.representation.add_rows(blocks).solve(spec))


def warn(inputs: Inputs, spec: RidgeSpec, rows: Representation, solution: Solution) -> RidgeFit:
    """Return the fit; warn if the outcome is a problem, with the remedy."""
    if solution.outcome in WARNED:
        warn_user(str(solution.outcome))
    return RidgeFit(inputs, spec, rows, solution)
