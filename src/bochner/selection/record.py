"""The record of a search: the chosen kernel and the candidates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.text import HtmlResult, columns, html_table, paragraph
from bochner.kernels.algebra import Monotone
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Gaussian
from bochner.selection.words import families_of, in_words, lengthscales_of, terms_of

#: Measures of comparisons: relative errors; 1 is the error of the best constant.
HELD_OUT, LOG_LOSS = "error on rows held out", "log loss on rows held out"
_LABELS = {HELD_OUT: "held-out R²", LOG_LOSS: "relative log loss"}


@dataclass(frozen=True)
class KernelComparison:
    """A candidate, its error, and the comparison with the best of the kernels preferred to it.

    Of kernels that tie, the one with more evidence is preferred; of classes, the simpler one. NaN
    and 0: not recorded, or without a comparison.
    """

    tuned: int  # Numbers that were tuned: 0, 1 lengthscale for all columns, one per column, or more
    kernel: Kernel  # The best of this kind
    error: float = float("nan")  # Value of ``measure``
    #: Reduction of the error of the preferred kernel, or of the log of leave-one-out errors.
    gain: float = float("nan")
    #: Reduction that is required. On held-out rows: the larger of 0.3 % of the error and one
    #: standard deviation of the difference, half of one for classes. Else a penalty of numbers.
    deviation: float = float("nan")
    taken: bool = False  # Whether the gain is larger
    #: Squared error or log loss on held-out rows, relative to the loss of the best constant; or the
    #: leave-one-out error, minus the log evidence, or the log density, per row.
    measure: str = HELD_OUT
    name: str = ""  # How it was tuned; empty where the number of tuned numbers says so
    rows: int = 0  # Rows that it was fitted to
    seconds: float = field(default=float("nan"), compare=False)  # Time to tune and judge it

    @property
    def label(self) -> str:
        return _LABELS.get(self.measure, self.measure.replace("error ", "R² ", 1))

    @property
    def score(self) -> str:
        """R², or the value of another measure, with two digits of the error at least."""
        digits = 1 - int(np.floor(np.log10(self.error))) if 0 < self.error < 1 else 3
        score = 1 - self.error if self.measure.startswith("error ") else self.error
        return f"{score:.{min(max(digits, 3), 9)}f}"


@dataclass(frozen=True)
class Tuning(HtmlResult):
    """The kernel of a fit, and how it was found.

    Attributes
    ----------
    kernel : Kernel
    share : float
        Per-row penalty at which it was best: alpha of n rows is about n times this. NaN where the
        kernel was given.
    error : float
        Relative squared error on held-out rows, or relative log loss for classes; 1 is the loss of
        the best constant, and NaN means that no rows were held out. The choice by some of these
        rows is judged on the others. It is of fits to at most 2,048 rows, and was .65 to 2 times
        the error of the fit to all rows; leave-one-out errors in ``solution_.path``, .9 to 1.2
        times. Log losses have Platt's targets and are never 0; for few errors they are too large.
    criterion : {"loo", "evidence"}
    estimator : estimator or None
        Of :func:`bochner.tune`: with this kernel, not fitted.
    compared : tuple of KernelComparison
        Candidates that were compared; empty where the kernel was given.
    names : sequence of str
        Names of the columns, for tables; empty where not known.
    matrix : tuple of tuple of float, or None
        Of a learned metric: A, (d, d), of trace d in units of the columns' deviations. Distances
        are r² = (x − y)ᵀA(x − y)/ℓ².

    See Also
    --------
    tune : Find the kernel of a learner.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> tuning = bo.tune(bo.KernelRidge(random_state=0), X, y)
    >>> tuning.error < 0.1
    True
    >>> float(tuning.estimator.fit(X, y).score(X, y)) > 0.9
    True
    """

    kernel: Kernel
    share: float = float("nan")
    error: float = float("nan")
    criterion: str = "loo"
    estimator: Any = field(default=None, repr=False, compare=False)
    compared: tuple[KernelComparison, ...] = ()
    names: Sequence[str] = field(default=(), compare=False)
    matrix: tuple[tuple[float, ...], ...] | None = None

    @property
    def chosen(self) -> KernelComparison | None:
        """The comparison of the chosen kernel; None without any."""
        return next((c for c in reversed(self.compared) if c.taken), None)

    @property
    def ranked(self) -> list[KernelComparison]:
        """Candidates that were compared by the measure of the choice, the best first."""
        if self.chosen is None:
            return []
        alike = [c for c in self.compared if c.measure == self.chosen.measure]
        return sorted(alike, key=lambda c: (c.error, not c.taken))

    @property
    def summary(self) -> str:
        """The chosen kernel, its score and the score of the simplest candidate, in a sentence."""
        taken = self.chosen
        if taken is None:
            return ""
        terms = len(terms_of(taken.kernel))
        what = f"Sum of {terms} kernels" if terms > 1 else families_of(taken.kernel)
        others = [c for c in self.ranked if c is not taken and c.rows == taken.rows]
        base = min(others, key=lambda c: (c.tuned > 1, c.error), default=None)
        plain = "" if base is None else f" ({families_of(base.kernel)} baseline {base.score})"
        return f"{what}, {taken.label} {taken.score}{plain}."

    @property
    def reason(self) -> str:
        """The choice among candidates, in a sentence; empty without any."""
        return f" Kernel: {self.summary}" if len(self.compared) > 1 else ""

    @property
    def _why_not_first(self) -> str:
        """Why the candidate with the best score was not chosen; empty where it was."""
        taken, first = self.chosen, next(iter(self.ranked), None)
        if taken is None or first is None or first is taken:
            return ""
        if first.rows != taken.rows:
            return (
                f"Rank 1 was fitted to {first.rows:,} rows only; kernels fitted to {taken.rows:,} "
                "rows were chosen from."
            )
        if not np.isfinite(first.gain):
            return "Rank 1 is not better than the chosen kernel by more than chance."
        return (
            f"Rank 1 is not chosen: it lowers the error of a kernel that is preferred in a tie by "
            f"{first.gain:.2g}, and {first.deviation:.2g} is required."
        )

    def lines(self) -> list[tuple[str, ...]]:
        """Return a head and the ranked candidates as lines of cells, the chosen one marked."""
        ranked = self.ranked
        label = ranked[0].label
        head = ("", "rank", "kernel", "terms", "lengthscales", label, "rows", "seconds")
        cells = [
            (
                ">" * (c is self.chosen),
                str(i),
                families_of(c.kernel),
                str(len(terms_of(c.kernel))),
                lengthscales_of(c.kernel, self.names or None),
                c.score,
                f"{c.rows:,}" if c.rows else "",
                f"{c.seconds:.2f}" if np.isfinite(c.seconds) else "",
            )
            for i, c in enumerate(ranked, start=1)
        ]
        return [head, *cells]

    def facts(self) -> list[dict[str, Any]]:
        """Return the ranked candidates, for programs."""
        names = ("error", "measure", "rows", "seconds")
        return [
            {"rank": i, "kernel": repr(c.kernel), "tuned": c.name or f"{c.tuned} numbers"}
            | {name: getattr(c, name) for name in names}
            | {"chosen": c is self.chosen}
            for i, c in enumerate(self.ranked, start=1)
        ]

    def __str__(self) -> str:
        words = in_words(self.kernel, self.names or None)
        end = words if np.isnan(self.share) else f"{words}, alpha = {self.share:.2g} n"
        if not self.compared:
            return f"{words}: nothing else was tried"
        table = columns(self.lines(), words=(0, 2, 4))
        return "\n".join(filter(None, [self.summary, table, self._why_not_first, end]))

    def _html_parts(self) -> Iterator[str]:
        yield paragraph(f"Kernel: {in_words(self.kernel, self.names or None)}")
        if self.compared:
            head, *rows = (line[1:] for line in self.lines())
            marked = next((i for i, c in enumerate(self.ranked) if c is self.chosen), -1)
            yield html_table(head, rows, self.summary, marked, words=(1, 3))
            yield paragraph(self._why_not_first)


@dataclass(frozen=True)
class Curves:
    """Monotone transformations of columns, as in :class:`bochner.kernels.Monotone`."""

    name: str  # "logarithms", "quantiles" or "clipped"
    columns: tuple[int, ...]
    points: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float, ...], ...]
    gain: float = 0.0  # Relative reduction of the leave-one-out mean squared error

    def of(self, kernel: Kernel) -> Monotone:
        return Monotone(kernel, self.columns, self.points, self.values)

    def inputs(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self.of(Gaussian()).inputs(X)
