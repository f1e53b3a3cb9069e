"""What tuning returns: the kernel found, and the way there, to print and to plot."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bochner._core.shapes import Array
from bochner._core.text import axes_for, columns
from bochner.kernels import Kernel
from bochner.selection.descent import Clock, Dials, Objective
from bochner.selection.trials import Trial


@dataclass(frozen=True)
class Step:
    """One evaluation on the way.

    Attributes
    ----------
    stage : str
        "one lengthscale", "one a column", "more rows", "trial" or "scale": values compare
        within a stage.
    kernel : Kernel
    share : float
        Penalty a row, alpha/W.
    value : float
        Relative error (leave-one-out, times what the prior of the lengthscales makes of it, or of
        rows held out; 1 is the error of the mean), or minus the log evidence and log prior a row.
    best : float
        Least value of the stage so far.
    seconds : float
        Since the start.
    """

    stage: str
    kernel: Kernel
    share: float
    value: float
    best: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """What was held against what was simpler, on rows that neither was tuned on.

    Attributes
    ----------
    tuned : int
        Lengthscales that were tuned: none, one for all columns, or one a column.
    kernel : Kernel
        The best of those.
    error : float
        Its relative squared error on the rows held out, the penalty chosen by other rows.
    gain : float
        By how much that is below the error of what was taken before; NaN for the first.
    deviation : float
        Standard deviation of the gain.
    taken : bool
        Whether the gain is above that.
    """

    tuned: int
    kernel: Kernel
    error: float
    gain: float
    deviation: float
    taken: bool

    def __str__(self) -> str:
        """Return a sentence."""
        names = {0: "no lengthscale tuned", 1: "one lengthscale tuned"}
        what = names.get(self.tuned, f"{self.tuned} lengthscales tuned")
        if np.isnan(self.gain):
            return f"{what}: error {self.error:.3g} on rows held out"
        kept = "taken" if self.taken else "not taken"
        less = f"{self.gain:.2g} below with a deviation of {self.deviation:.2g}"
        return f"{what}: error {self.error:.3g} on rows held out, {less}: {kept}"


@dataclass(frozen=True)
class Tuning:
    """The kernel found, and the way there.

    Attributes
    ----------
    kernel : Kernel
    share : float
        Penalty a row at which it was best: alpha of n rows is about n times this.
    error : float
        Relative squared error on rows held out: 1 is the error of the mean. What is chosen by
        these rows is judged on others of them. NaN where there were too few rows to tell.
    criterion : str
    path : tuple of Step
        Each evaluation, in order.
    estimator : estimator or None
        Of :func:`bochner.tune`: with this kernel, not fitted.
    compared : tuple of Comparison
        The step from no lengthscale tuned to one, and from there to one a column.
    """

    kernel: Kernel
    share: float
    error: float = float("nan")
    criterion: str = "loo"
    path: tuple[Step, ...] = ()
    estimator: Any = field(default=None, repr=False, compare=False)
    compared: tuple[Comparison, ...] = ()

    def __str__(self) -> str:
        """Return the stages as a table, and the kernel found."""
        lines = [("stage", "steps", "first", "best", "seconds")]
        for name in dict.fromkeys(step.stage for step in self.path):
            steps = [step for step in self.path if step.stage == name]
            first, last = steps[0].value, steps[-1]
            numbers = (f"{first:.4g}", f"{last.best:.4g}", f"{last.seconds:.2f}")
            lines.append((name, str(len(steps)), *numbers))
        told = "".join(f"{comparison}\n" for comparison in self.compared)
        return f"{columns(lines)}\n{told}{self.kernel!r}, alpha = {self.share:.2g} n"

    def plot(self, ax: Any = None) -> Any:
        """Draw each evaluation and the best so far over the seconds; return the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        ax = axes_for("Tuning", ax)
        for name in dict.fromkeys(step.stage for step in self.path):
            steps = [step for step in self.path if step.stage == name]
            seconds = [step.seconds for step in steps]
            (line,) = ax.plot(seconds, [step.best for step in steps], label=name)
            ax.plot(seconds, [step.value for step in steps], ".", color=line.get_color())
        ax.set_xlabel("seconds")
        ax.set_ylabel("minus log evidence a row" if self.criterion == "evidence" else "error")
        ax.legend()
        return ax


class Diary:
    """Writes down the steps."""

    def __init__(self, clock: Clock, criterion: str) -> None:
        self.clock, self.criterion = clock, criterion
        self.steps: list[Step] = []
        self.compared: list[Comparison] = []

    def descent(self, stage: str) -> Callable[[Objective], Callable[[Dials, float], None]]:
        """Return, for an objective of this stage, the listener of its descent."""

        def listener(objective: Objective) -> Callable[[Dials, float], None]:
            def note(dials: Dials, value: float) -> None:
                shown = value if self.criterion == "evidence" else float(np.exp(value))
                self._add(stage, objective.kernel(dials), float(np.exp(dials.share)), shown)

            return note

        return listener

    def trial(self, stage: str, units: Array) -> Callable[[Trial], None]:
        """Return the listener of trials."""

        def note(trial: Trial) -> None:
            found = trial.candidate
            self._add(stage, found.kernel(units), found.share, trial.error)

        return note

    def compare(self, trial: Trial, other: Trial | None, taken: bool, units: Array) -> None:
        """Write down a comparison with what is simpler, if there is that."""
        gain, deviation = (np.nan, np.nan) if other is None else trial.gain(other)
        found = trial.candidate
        self.compared.append(
            Comparison(found.tuned, found.kernel(units), trial.error, gain, deviation, taken)
        )

    def _add(self, stage: str, kernel: Kernel, share: float, value: float) -> None:
        before = [step.best for step in self.steps if step.stage == stage]
        best = min(before[-1], float(value)) if before else float(value)
        step = Step(stage, kernel, float(share), float(value), best, self.clock.passed)
        self.steps.append(step)
