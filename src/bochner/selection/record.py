"""Record of a search: the chosen kernel and the candidates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.text import HtmlResult, columns, html_table, paragraph
from bochner.kernels.algebra import Monotone
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Gaussian
from bochner.selection.descriptions import describe, families_of, lengthscales_of, terms_of

#: Measures of comparisons, relative to the loss of the best constant.
HELD_OUT, LOG_LOSS = "error on held-out rows", "log loss on held-out rows"
_LABELS = {HELD_OUT: "held-out R²", LOG_LOSS: "relative log loss"}


@dataclass(frozen=True)
class KernelComparison:
    """A candidate, its error, and its comparison with the best of the preferred kernels.

    In a tie the kernel with more evidence is preferred; for classes the simpler kernel. NaN and 0:
    not recorded, or not compared.

    Attributes
    ----------
    n_tuned : int
        Number of tuned hyperparameters, such as 1 lengthscale for all columns.
    kernel : Kernel
        The kernel with tuned hyperparameters.
    error : float
        Value of ``measure``.
    gain : float
        Reduction of the preferred kernel's error, or of the log of its leave-one-out error.
    required : float
        Required reduction. On held-out rows: the larger of 0.3 % of the error and one standard
        error of the difference (0.5 for classes; 3 for one column and against a linear kernel).
        For other measures: a penalty on the number of hyperparameters.
    chosen : bool
        Whether this kernel was chosen.
    measure : str
        Squared error or log loss on held-out rows, relative to the loss of the best constant; or
        the leave-one-out error, minus the log evidence, or the log density, per row.
    name : str
        How the kernel was tuned.
    rows : int
        Number of rows that the kernel was fitted to.
    seconds : float
        Time for tuning and comparing.
    """

    n_tuned: int
    kernel: Kernel
    error: float = float("nan")
    gain: float = float("nan")
    required: float = float("nan")
    chosen: bool = False
    measure: str = HELD_OUT
    name: str = ""
    rows: int = 0
    seconds: float = field(default=float("nan"), compare=False)

    @property
    def label(self) -> str:
        return _LABELS.get(self.measure, self.measure.replace("error ", "R² ", 1))

    @property
    def score(self) -> str:
        """R² or the value of the measure, with decimals for two digits of the error 1 − R²."""
        digits = 1 - int(np.floor(np.log10(self.error))) if 0 < self.error < 1 else 3
        score = 1 - self.error if self.measure.startswith("error ") else self.error
        return f"{score:.{min(max(digits, 3), 9)}f}"


@dataclass(frozen=True)
class Tuning(HtmlResult):
    """The kernel of a fit, and the search for it.

    Attributes
    ----------
    kernel : Kernel
    share : float
        Best penalty per row: alpha for n rows is about n times this. NaN if the user gave the
        kernel.
    error : float
        Squared error on held-out rows, or log loss for classes, relative to the best constant; NaN
        without held-out rows. The choice is made on three quarters of these rows and tested on the
        other quarter, by fits to at most 1,024 rows (2,048 with ``effort="high"``). The error was
        0.65 to 2 times the error of the fit to all rows; leave-one-out errors (``solution_.path``)
        were 0.9 to 1.2 times. Log losses use Platt's targets: never 0, too large for few errors.
    criterion : {"loo", "evidence"}
    estimator : estimator or None
        From :func:`bochner.tune`: the estimator with this kernel, not fitted.
    candidates : tuple of KernelComparison
        Compared candidates; empty if the user gave the kernel.
    names : sequence of str
        Names of the columns; empty for arrays.
    matrix : tuple of tuple of float, or None
        Learned metric A, (d, d), scaled to trace d, in units of the columns' standard deviations:
        r² = (x − y)ᵀA(x − y)/ℓ².

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
    candidates: tuple[KernelComparison, ...] = ()
    names: Sequence[str] = field(default=(), compare=False)
    matrix: tuple[tuple[float, ...], ...] | None = None

    @property
    def chosen(self) -> KernelComparison | None:
        """The chosen candidate; None without a comparison."""
        return next((c for c in reversed(self.candidates) if c.chosen), None)

    @property
    def ranked(self) -> list[KernelComparison]:
        """Candidates with the measure of the chosen one, best first."""
        if self.chosen is None:
            return []
        comparable = [c for c in self.candidates if c.measure == self.chosen.measure]
        return sorted(comparable, key=lambda c: (c.error, not c.chosen))

    @property
    def summary(self) -> str:
        """The chosen kernel, its score and the score of the simplest candidate, in a sentence."""
        chosen = self.chosen
        if chosen is None:
            return ""
        terms = len(terms_of(chosen.kernel))
        kernel = f"Sum of {terms} kernels" if terms > 1 else families_of(chosen.kernel)
        candidates = [c for c in self.ranked if c is not chosen and c.rows == chosen.rows]
        base = min(candidates, key=lambda c: (c.n_tuned > 1, c.error), default=None)
        baseline = "" if base is None else f" ({families_of(base.kernel)} baseline {base.score})"
        return f"{kernel}, {chosen.label} {chosen.score}{baseline}."

    @property
    def reason(self) -> str:
        """The choice in one sentence; "" without several candidates."""
        return f" Kernel: {self.summary}" if len(self.candidates) > 1 else ""

    @property
    def _why_not_first(self) -> str:
        """Why the candidate with the best score was not chosen; "" if it was."""
        chosen, first = self.chosen, next(iter(self.ranked), None)
        if chosen is None or first is None or first is chosen:
            return ""
        if first.rows != chosen.rows:
            return (
                f"Rank 1 was fitted to only {first.rows:,} rows; the choice was among kernels "
                f"fitted to {chosen.rows:,} rows."
            )
        if not np.isfinite(first.gain):
            return "Rank 1 is not better than the chosen kernel by more than chance."
        return (
            f"Rank 1 is not chosen: it lowers the error of a kernel that is preferred in a tie by "
            f"{first.gain:.2g}, and {first.required:.2g} is required."
        )

    def lines(self) -> list[tuple[str, ...]]:
        """Return the header and one line of cells per candidate; ">" marks the chosen one."""
        ranked = self.ranked
        head = ("", "rank", "kernel", "terms", "lengthscales", ranked[0].label, "rows", "seconds")
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
        """Return the ranked candidates as dicts."""
        return [
            {"rank": i, "kernel": repr(c.kernel), "tuning": c.name, "n_tuned": c.n_tuned}
            | {name: getattr(c, name) for name in ("error", "measure", "rows", "seconds")}
            | {"chosen": c is self.chosen}
            for i, c in enumerate(self.ranked, start=1)
        ]

    def __str__(self) -> str:
        words = describe(self.kernel, self.names or None)
        end = words if np.isnan(self.share) else f"{words}, alpha = {self.share:.2g} n"
        if not self.candidates:
            return f"{words}: no other kernel was compared"
        table = columns(self.lines(), words=(0, 2, 4))
        return "\n".join(filter(None, [self.summary, table, self._why_not_first, end]))

    def _html_parts(self) -> Iterator[str]:
        yield paragraph(f"Kernel: {describe(self.kernel, self.names or None)}")
        if self.candidates:
            head, *rows = (line[1:] for line in self.lines())
            highlight = next((i for i, c in enumerate(self.ranked) if c is self.chosen), -1)
            yield html_table(head, rows, self.summary, highlight, words=(1, 3))
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
