"""Writing down the steps of a search while it goes on."""

import numpy as np

from bochner.kernels.kernel import Kernel
from bochner.selection.descent import Note, TimeBudget
from bochner.selection.record import KernelComparison, Tuning, TuningStep
from bochner.solvers.ridge.criteria import Criterion


class Recorder:
    """Writes down the steps of a search, and what is compared."""

    def __init__(self, criterion: Criterion, budget: TimeBudget) -> None:
        self.criterion, self.budget = criterion, budget
        self._steps: list[TuningStep] = []
        self._best: dict[str, float] = {}
        self._compared: list[KernelComparison] = []

    def noting(self, stage: str) -> Note:
        """Return what is called with each evaluation of a descent."""
        return lambda found: self.step(
            stage,
            found.of.kernel(found.at),
            float(np.exp(found.at.share)),
            self.criterion.shown(found.value),
        )

    def step(self, stage: str, kernel: Kernel, share: float, value: float) -> None:
        """Write down an evaluation."""
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
        """Write down a comparison with what is simpler; the first has no gain, and is taken."""
        taken = bool(np.isnan(gain) or gain > least)
        measure = self.criterion.label if measure is None else measure
        found = KernelComparison(tuned, kernel, value, gain, least, taken, measure)
        self._compared.append(found)

    def found(self, kernel: Kernel, share: float, error: float = float("nan")) -> Tuning:
        """Return the record."""
        steps, compared = tuple(self._steps), tuple(self._compared)
        return Tuning(kernel, share, error, self.criterion.name, steps, compared=compared)
