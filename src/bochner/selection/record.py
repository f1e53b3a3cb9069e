"""The record of a search: the kernel found, each evaluation on the way, and what was compared."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bochner._core.html import HtmlPart, HtmlTable, ShownResult, Sparkline, Words
from bochner._core.shapes import Array, Float
from bochner._core.text import axes_for, columns
from bochner.kernels.kernel import Kernel
from bochner.kernels.monotone import Monotone
from bochner.kernels.stationary import Gaussian
from bochner.selection.rows import Scale
from bochner.solvers.ridge.solution import LABELS

#: The measure of most comparisons.
HELD_OUT = "error on rows held out"


def _is_relative(measure: str) -> bool:
    """Whether 1 is the value of the best constant; logarithms of evidences have no such."""
    return measure.startswith("error ")


def _said(measure: str, error: float) -> str:
    """Say what was measured; a relative error with what it is relative to."""
    return f"{measure} {error:.3g}" + " of that of a constant" * _is_relative(measure)


@dataclass(frozen=True)
class TuningStep:
    """One evaluation on the way.

    Attributes
    ----------
    stage : str
        "median distance" and "half-octaves" of a named kernel; "one lengthscale", "one a column",
        "more rows", "trial" and "scale" of a tuned one; "one factor" and "one a column" of a
        process. Values compare within a stage.
    kernel : Kernel
    share : float
        Per-row penalty, alpha/W.
    value : float
        Relative error (leave-one-out, times what the prior of the lengthscales makes of it, or of
        rows held out; 1 is the error of the mean), or minus the log evidence and log prior per row.
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
class KernelComparison(ShownResult):
    """What was compared with what is simpler, by the same measure.

    Attributes
    ----------
    tuned : int
        Lengthscales that were tuned: none, one for all columns, or one a column.
    kernel : Kernel
        The best of those.
    error : float
        Its value of ``measure``.
    gain : float
        By how much that is below the value of what was taken before; NaN for the first.
    deviation : float
        What the gain must exceed: its standard deviation, or a penalty for more numbers.
    taken : bool
        Whether it does.
    measure : str
        Error on rows that neither was tuned on, the penalty chosen by other rows: squared errors,
        or log losses of classes, over those of the best constant; or minus the log evidence, or the
        log density, per row.
    name : str
        What was tuned, and how; empty where the number of lengthscales says it.
    """

    tuned: int
    kernel: Kernel
    error: float
    gain: float
    deviation: float
    taken: bool
    measure: str = HELD_OUT
    name: str = ""

    @property
    def what(self) -> str:
        """What was tuned, in words."""
        names = {0: "no lengthscale tuned", 1: "one lengthscale tuned"}
        return self.name or names.get(self.tuned, f"{self.tuned} lengthscales tuned")

    def __str__(self) -> str:
        """Return a sentence."""
        measured = f"{self.what}: {_said(self.measure, self.error)}"
        if self.name:
            return f"{measured}{', taken' * self.taken}"
        if np.isnan(self.gain):
            return measured
        kept = "taken" if self.taken else "not taken"
        return f"{measured}, {self.gain:.2g} below where {self.deviation:.2g} is asked: {kept}"


@dataclass(frozen=True)
class Tuning(ShownResult):
    """The kernel of a fit, and how it was found.

    Attributes
    ----------
    kernel : Kernel
    share : float
        Per-row penalty at which it was best: alpha of n rows is about n times this. NaN where the
        kernel was given.
    error : float
        Relative squared error on rows held out, of candidates for a classifier the relative log
        loss: 1 is that of the best constant. What is chosen by these rows is judged on others of
        them. NaN where none were held out. It is the error of fits to at most 2,048 rows, and
        compares candidates: the fit to all rows mostly errs less. Log losses have Platt's targets
        and are never 0; of few rows told apart without an error they are too large.
        ``solution_.path`` has the leave-one-out errors of the fit to all rows.
    criterion : {"loo", "evidence"}
    path : tuple of TuningStep
        Each evaluation, in order; empty where the kernel was given.
    estimator : estimator or None
        Of :func:`bochner.tune`: with this kernel, not fitted.
    compared : tuple of KernelComparison
        Choices between kernels on equal terms, such as the step from no lengthscale tuned to one,
        and from there to one a column.
    """

    kernel: Kernel
    share: float = float("nan")
    error: float = float("nan")
    criterion: str = "loo"
    path: tuple[TuningStep, ...] = ()
    estimator: Any = field(default=None, repr=False, compare=False)
    compared: tuple[KernelComparison, ...] = ()

    @property
    def tried(self) -> tuple[tuple[Scale, float], ...]:
        """Lengthscales that were tried, and their values; see :attr:`path`.

        Kernels without one, such as sums, are left out.
        """
        numbers = [(step.kernel.get_params(deep=False), step.value) for step in self.path]
        values = {each["lengthscale"]: value for each, value in numbers if "lengthscale" in each}
        return tuple(values.items())

    @property
    def reason(self) -> str:
        """What was taken among candidates and against what, in a sentence; empty without any."""
        taken = next((c for c in self.compared if c.taken and c.name), None)
        if taken is None:
            return ""
        alike = [c for c in self.compared if c.measure == taken.measure]
        others = [c for c in alike if c.name and c is not taken]
        if not others:
            return ""
        simplest = min(others, key=lambda c: (c.tuned, c.error))
        return (
            f" The kernel: {taken.name}, of {len(self.compared)} candidates; "
            f"{_said(taken.measure, taken.error)}, with {simplest.name} {simplest.error:.3g}."
        )

    @property
    def stages(self) -> dict[str, list[TuningStep]]:
        """The path by stage."""
        names = dict.fromkeys(step.stage for step in self.path)
        return {name: [step for step in self.path if step.stage == name] for name in names}

    def __str__(self) -> str:
        """Return the stages as a table, what was compared, and the kernel found."""
        from bochner.kernels.words import in_words  # noqa: PLC0415  asked for when printed

        if not self.path:
            return f"{in_words(self.kernel)}: nothing else was tried"
        lines = [("stage", "steps", "first", "best", "seconds")]
        for name, steps in self.stages.items():
            first, last = steps[0].value, steps[-1]
            numbers = (f"{first:.4g}", f"{last.best:.4g}", f"{last.seconds:.2f}")
            lines.append((name, str(len(steps)), *numbers))
        compared = "".join(f"{comparison}\n" for comparison in self.compared)
        return f"{columns(lines)}\n{compared}{in_words(self.kernel)}, alpha = {self.share:.2g} n"

    def _shown(self) -> Iterator[HtmlPart]:
        """Give the candidates with a bar for each error, the errors tried, and the kernel."""
        from bochner.kernels.words import in_words  # noqa: PLC0415  asked for when shown

        yield Words(f"Kernel: {in_words(self.kernel)}")
        if self.compared:
            last = next((c for c in self.compared if c.taken), self.compared[0])
            alike = [c for c in self.compared if c.measure == last.measure]
            rows = [(c.what, f"{c.error:.3g}", "taken" * c.taken) for c in alike]
            taken = next((i for i, c in enumerate(alike) if c.taken and c.name), -1)
            bars = tuple(c.error for c in alike)
            unit = " (a constant has 1)" * _is_relative(last.measure)
            head = ("candidate", last.measure + unit, "")
            yield HtmlTable(head, rows, marked=taken, bars=bars if min(bars) > 0 else ())
        tried = [step.best for step in self.path]
        caption = f"{LABELS[self.criterion]} against evaluations"
        yield Sparkline("Best so far", range(1, len(tried) + 1), tried, caption)

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
        for name, steps in self.stages.items():
            seconds = [step.seconds for step in steps]
            (line,) = ax.plot(seconds, [step.best for step in steps], label=name)
            ax.plot(seconds, [step.value for step in steps], ".", color=line.get_color())
        ax.set_xlabel("seconds")
        ax.set_ylabel(LABELS[self.criterion])
        ax.legend()
        return ax


@dataclass(frozen=True)
class MetricRound:
    """One round: the kernel in its metric, the error of rows held out, and of leave-one-out.

    Attributes
    ----------
    kernel : Kernel
    error : float
        Relative squared error on rows held out: 1 is that of the mean.
    loo : float
        Relative leave-one-out error of the rows of the fit: the metric has seen their targets.
    gain : float
        By how much the error is below that of the metric that it started from.
    deviation : float
        Standard deviation of the gain.
    """

    kernel: Kernel
    error: float
    loo: float
    gain: float = 0.0
    deviation: float = 0.0


@dataclass(frozen=True)
class LearnedMetric(ShownResult):
    """The metric of the best round: the start, unless another is surely better on rows held out.

    Attributes
    ----------
    matrix : tuple of tuple of float
        A, (d, d), of trace d in units of the columns' deviations: r² = (x − y)ᵀA(x − y)/ℓ².
    kernel : Kernel
        ``Mahalanobis(family at ℓ, matrix)``, or with a diagonal metric the family at one
        lengthscale a column.
    error : float
        Relative squared error on rows held out, each judged by a choice made without it.
    history : tuple of MetricRound
        The first is the metric that it started from.
    """

    matrix: tuple[tuple[float, ...], ...]
    kernel: Kernel
    error: float
    history: tuple[MetricRound, ...]

    def __str__(self) -> str:
        """Return the rounds as a table."""
        lines = ["round   held out  leave-one-out       gain  deviation"]
        lines += [
            f"{i:>5} {r.error:>10.4g} {r.loo:>14.4g} {r.gain:>10.2g} {r.deviation:>10.2g}"
            for i, r in enumerate(self.history)
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Curves:
    """How columns are transformed, and what that was judged to gain.

    Attributes
    ----------
    name : {"logarithms", "quantiles", "clipped"}
    columns : tuple of int
    points, values : tuples of tuples of float
        As of :class:`bochner.kernels.Monotone`.
    gain : float
        Share of the leave-one-out mean squared error that is saved.
    """

    name: str
    columns: tuple[int, ...]
    points: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float, ...], ...]
    gain: float = 0.0

    def of(self, kernel: Kernel) -> Monotone:
        """Return the kernel of the transformed columns."""
        return Monotone(kernel, self.columns, self.points, self.values)

    def inputs(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return the transformed rows."""
        return self.of(Gaussian()).inputs(X)
