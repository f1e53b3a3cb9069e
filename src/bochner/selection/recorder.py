"""Records the steps of a search, and logs its stages."""

import numpy as np

from bochner._core.progress import progress
from bochner.kernels.kernel import Kernel
from bochner.selection.descent import Note, TimeBudget
from bochner.selection.record import KernelComparison, Tuning, TuningStep
from bochner.solvers.ridge.criteria import Criterion


class Recorder:
    """Records the steps of a search and the kernels that are compared; logs its stages if asked."""

    def __init__(self, criterion: Criterion, budget: TimeBudget, logs: bool = False) -> None:
        self.criterion, self.budget, self.logs = criterion, budget, logs
        self._steps: list[TuningStep] = []
        self._best: dict[str, float] = {}
        self._compared: list[KernelComparison] = []
        self._compared_at = 0.0

    def noting(self, stage: str) -> Note:
        """Return a function that records each evaluation of a descent."""
        return lambda found: self.step(
            stage,
            found.of.kernel(found.at),
            float(np.exp(found.at.share)),
            self.criterion.shown(found.value),
        )

    def step(self, stage: str, kernel: Kernel, share: float, value: float) -> None:
        """Record an evaluation; the first of a stage is logged."""
        if self.logs and stage not in self._best:
            progress(f"Tuning the kernel: {stage}")
        self._best[stage] = best = min(self._best.get(stage, np.inf), float(value))
        found = TuningStep(stage, kernel, share, float(value), best, self.budget.passed)
        self._steps.append(found)

    def compare(
        self,
        tuned: int,
        kernel: Kernel,
        value: float,
        gain: float = np.nan,
        least: float = np.nan,
        measure: str | None = None,
    ) -> None:
        """Record a comparison with a simpler kernel; the first has no gain, and is taken."""
        taken = bool(np.isnan(gain) or gain > least)
        measure = self.criterion.label if measure is None else measure
        seconds = self.budget.passed - self._compared_at
        self._compared_at += seconds
        found = KernelComparison(tuned, kernel, value, gain, least, taken, measure, seconds=seconds)
        if self.logs:
            progress("Tuning the kernel", str(found))
        self._compared.append(found)

    def found(self, kernel: Kernel, share: float, error: float = float("nan")) -> Tuning:
        """Return the record."""
        steps, compared = tuple(self._steps), tuple(self._compared)
        return Tuning(kernel, share, error, self.criterion.name, steps, compared=compared)
