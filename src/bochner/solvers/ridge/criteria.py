"""Criteria of a ridge regression on a kernel matrix, with gradients, which descents minimise."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bochner.solvers.ridge.dual import KernelRows, kernel_leave_one_out
from bochner.solvers.ridge.kernel_evidence import KernelScore, kernel_evidence
from bochner.solvers.ridge.solution import LABELS


class Criterion(ABC):
    """A criterion that a search minimises."""

    name: ClassVar[str]
    label: ClassVar[str]

    @abstractmethod
    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,
        amplitude: float | None = None,
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        """Return the criterion of a ridge regression on the kernel matrix; see :mod:`.dual`.

        Only the matrix on and below its diagonal is read; with ``overwrite`` it may be changed.
        """

    @abstractmethod
    def shown(self, value: float) -> float:
        """Return the value for tables: an error, or minus the log evidence."""


@dataclass(frozen=True)
class LeaveOneOutError(Criterion):
    """The mean squared leave-one-out error, relative to the targets' variances."""

    name: ClassVar[str] = "loo"
    label: ClassVar[str] = LABELS["loo"]

    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,
        amplitude: float | None = None,
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        return kernel_leave_one_out(rows, alpha, overwrite)

    def shown(self, value: float) -> float:
        return float(np.exp(value))


@dataclass(frozen=True)
class LogEvidence(Criterion):
    """Minus the log marginal likelihood per row."""

    name: ClassVar[str] = "evidence"
    label: ClassVar[str] = LABELS["evidence"]

    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,
        amplitude: float | None = None,
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        score = kernel_evidence(
            rows.K,
            rows.y,
            rows.w,
            alpha,
            centred=rows.centred,
            noise=noise,
            amplitude=amplitude,
            overwrite=overwrite,
        )
        n, below = rows.count, score.below
        below /= n
        return KernelScore(score.value / n, below, score.by_log_alpha / n)

    def shown(self, value: float) -> float:
        return value


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion for criterion in (LeaveOneOutError(), LogEvidence())
}
