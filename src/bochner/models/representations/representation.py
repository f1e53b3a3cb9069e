"""Base class of representations of the training rows, and the spec of a ridge regression."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bochner._core.checks import warn_user
from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks
from bochner.data.sources import required_targets
from bochner.errors import InvalidInput
from bochner.models._calibration import Calibration
from bochner.models.error_law import LeftOutRows
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.solvers.ridge.path import Alpha, least_alpha
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.executor import LOCAL, Executor, require_order

#: Why fits through features have no coefficients of rows.
KERNEL_ONLY = 'only a fit with method="exact" or "local" has them; see coef_.'

#: Outcomes that a user is warned of.
WARNED = (
    Outcome.FLOAT32_LIMITED,
    Outcome.SINGULAR,
    Outcome.NOT_CONVERGED,
    Outcome.PASSES_ENDED,
)


@dataclass(frozen=True)
class RidgeSpec:
    """Checked parameters of a ridge regression."""

    features: FeatureSpec
    alpha: Alpha  # The penalty, one for each target, or how it is chosen
    per_target: bool
    fit_intercept: bool


class Representation(ABC):
    """The training rows in the form in which they are solved. Frozen, and saved with the fit."""

    chosen: Chosen  # The kernel, the map, and how they were found
    target_shape: tuple[int, ...]  # Of one row of y: () or (t,)
    rows: int  # Rows that were read, including rows of weight zero

    #: Attributes and methods of an estimator that this representation cannot serve, and why.
    lacks: ClassVar[Mapping[str, str]] = {}

    @property
    @abstractmethod
    def count(self) -> int:
        """Rows of positive weight."""

    @property
    @abstractmethod
    def target_variance(self) -> float:
        """Weighted mean square of y about its mean, in the mean of targets."""

    @abstractmethod
    def predictions(self, solution: Solution, blocks: Blocks) -> Iterator[tuple[Array, Array]]:
        """Yield the rows of each block and their predictions, (b, t)."""

    @abstractmethod
    def gradients(
        self, solution: Solution, blocks: Blocks
    ) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Yield the rows of each block and the gradients of predictions there."""

    @abstractmethod
    def left_out(self, solution: Solution) -> LeftOutRows | None:
        """Return rows with their leave-one-out predictions; None where there are none."""

    def calibration(self, solution: Solution) -> Calibration | None:
        """Return probabilities of classes by leave-one-out values; None where there are none."""
        rows = self.left_out(solution)
        return None if rows is None else rows.calibration

    def certificate(self, alpha: float, blocks: Blocks | None = None) -> Certificate:
        """Return the certificate on the rows of the fit, or on others."""
        raise NotImplementedError

    def solve(self, spec: RidgeSpec) -> tuple[Self, Solution]:
        """Solve again, with the penalty and intercept of ``spec``."""
        raise NotImplementedError

    def with_rows_of(self, blocks: Blocks, where: Executor = LOCAL) -> Self:
        """Return the rows before and these."""
        raise NotImplementedError

    def merge(self, other: Any) -> Self:
        """Return the rows of both."""
        raise NotImplementedError

    def require(self, name: str, who: str = "") -> Self:
        """Return this; refuse an attribute, or a call of ``who``, that it cannot serve."""
        if name not in self.lacks:
            return self
        if who:
            raise InvalidInput(f"{who}.{name}: {self.lacks[name]}")
        raise AttributeError(f"{name}: {self.lacks[name]}")


def lacks_of_kernel(kind: str) -> dict[str, str]:
    """Return what fits with the kernel itself lack, ``kind`` of them."""
    nothing = f"{kind} has the kernel itself, and nothing to certify"
    return {
        "coef_": f"{kind} has no features; see dual_coef_ or solution_, and X_fit_.",
        "moments_": f"{kind} has no features.",
        "sample_": f"{kind} has no features.",
        "certificate_": f"{nothing}.",
        "certify": f'{nothing}; fit with features, e.g. method="auto", for a certificate.',
        "solve_again": f"{kind} keeps no moments that could be solved again. Call fit.",
        "merge": f"{kind} keeps no moments that add.",
    }


def require_kernel_fit(
    spec: RidgeSpec, method: str, reason: str, blocks: Blocks, where: Executor
) -> tuple[int, ...]:
    """Refuse a penalty of zero and workers; return the shape of a target."""
    who = spec.features.who
    if least_alpha(spec.alpha) == 0:
        raise InvalidInput(
            f'{who}: method="{method}" requires alpha above 0; got {spec.alpha!r}. '
            "Pass a small one, e.g. 1e-6, or take features: they have a solution of least norm."
        )
    why = f'method="{method}" {reason}'
    require_order(who, why, where, "Leave where out, or take features.")
    return required_targets(who, blocks.target_shape)


def variance_of(y: Float[Array, "n t"], w: Float[Array, " n"]) -> float:
    """Return the weighted mean square of targets about their means, in the mean of targets."""
    return float(np.average(((y - np.average(y, axis=0, weights=w)) ** 2).mean(axis=1), weights=w))


def require_alike(who: str, blocks: Blocks, before: tuple[int, ...]) -> None:
    """Refuse other targets than those before."""
    shape = required_targets(who, blocks.target_shape)
    if shape != before:
        raise InvalidInput(
            f"{who}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {before}."
        )


def warned(fit: Any) -> Any:
    """Return the fit; warn of an outcome that asks for attention: its text is the remedy."""
    if fit.solution.outcome in WARNED:
        warn_user(str(fit.solution.outcome))
    return fit
