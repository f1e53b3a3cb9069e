"""``plan``: predict the error, time and memory of fits, and choose method, width and solver."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.checks import bytes_in_words, free_bytes, integer, one_of, positive
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Tabular
from bochner._core.sizes import MAX_CELLS, WIDE
from bochner._core.text import HtmlResult, columns, html_table, paragraph
from bochner._core.threads import get_num_threads, single_thread
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather
from bochner.errors import InvalidInput
from bochner.features.map import Method
from bochner.features.rules import as_method
from bochner.kernels.kernel import Kernel
from bochner.models._tables import pop_targets
from bochner.models.representations.exact import choose_exact_kernel, local_kernel
from bochner.models.representations.features import RidgeSpec
from bochner.models.representations.representation import DIRECT_ROWS, without_copies
from bochner.models.ridge.estimators import KernelRidge
from bochner.models.route import WIDE_ROWS, default_leaves, most_at_once
from bochner.planner.trials import FURTHER_ROWS, WIDTHS, FitForecast, Task, list_fits, local_fit
from bochner.selection.choose import fit_curves, search_kernel
from bochner.selection.descriptions import describe
from bochner.selection.spec import EFFORTS, WIDTH, as_kernel
from bochner.sums.passes import draw_rows

HEAD = ("", "method", "features", "solver", "kernel error", "error", "time", "memory", "")


@dataclass(frozen=True)
class Budget:
    """Limits of a fit: seconds, and bytes of memory without the rows and the program.

    Attributes
    ----------
    seconds : float or None
        None: each doubling of the time must lower the error by 5 %.
    bytes : float or None
        None: half of the free memory.
    """

    seconds: float | None = None
    bytes: float | None = None

    @property
    def room(self) -> float:
        """Memory that a fit may use, in bytes."""
        return free_bytes() // 2 if self.bytes is None else self.bytes

    def allows(self, fit: FitForecast) -> bool:
        """Whether the fit takes no more than the budget."""
        return (self.seconds is None or fit.seconds <= self.seconds) and fit.bytes <= self.room

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f"{self.seconds:g} s and "
        return f"{seconds}{bytes_in_words(self.room)}"


def as_budget(budget: object) -> Budget:
    """Return the budget for a number of seconds, or a mapping with seconds, bytes or both."""
    if budget is None:
        return Budget()
    if not isinstance(budget, Mapping):
        return Budget(positive(budget, "plan", "budget"))
    if not set(budget) <= {"seconds", "bytes"}:
        raise InvalidInput(
            f'plan: budget must have "seconds", "bytes" or both; got {", ".join(map(str, budget))}.'
        )
    limits = {key: limit for key, limit in budget.items() if limit is not None}
    return Budget(**{key: positive(n, "plan", f"budget {key}") for key, n in limits.items()})


def choose_fit(fits: Sequence[FitForecast], budget: Budget) -> tuple[FitForecast, str]:
    """Return the chosen fit, and the reason in a sentence."""
    candidates = [fit for fit in fits if budget.allows(fit)]
    if not candidates:
        fastest = min(fits, key=lambda fit: fit.seconds)
        smallest = min(fits, key=lambda fit: fit.bytes)
        raise InvalidInput(
            f"plan: no fit is predicted to take at most {budget}; the fastest takes "
            f"{time_in_words(fastest.seconds)} ({fastest.name}), the smallest "
            f"{bytes_in_words(smallest.bytes)} ({smallest.name}). Allow more time or memory, or "
            "pass smaller widths."
        )
    limit = min((fit.error for fit in candidates if fit.default), default=math.inf)
    finalists = [fit for fit in candidates if fit.error <= 1.01 * limit]
    if budget.seconds is None:
        score = lambda fit: fit.error / 0.95 ** math.log2(max(fit.seconds, 1.0))
        choice = min(finalists, key=lambda fit: (score(fit), fit.seconds))
        reason = (
            "no other fit within the memory limit lowers the error by 5 % per doubling of the time"
        )
    else:
        lowest = min(fit.error for fit in finalists)
        ties = [fit for fit in finalists if fit.error <= 1.01 * lowest]
        choice = min(ties, key=lambda fit: (fit.seconds, fit.error))
        reason = f"its error is within 1 % of the smallest error of all fits within {budget}"
    best = min(fits, key=lambda fit: fit.error)
    if best.error < choice.error and best is not choice:
        reason += (
            f"; {best.name}, would lower the error by {100 * (1 - best.error / choice.error):.2g} "
            f"% and take {time_in_words(best.seconds)} and {bytes_in_words(best.bytes)} instead of "
            f"{time_in_words(choice.seconds)} and {bytes_in_words(choice.bytes)}"
        )
    words = f"{choice.name}: {reason}."
    return choice, words[0].upper() + words[1:]


def time_in_words(seconds: float) -> str:
    """Return a time as text in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 7200 else f"{seconds / 3600:,.2g} h"


@dataclass(frozen=True, eq=False)
class Plan(HtmlResult):
    """Planned fits, the chosen fit and the reason; prints as a table.

    Attributes
    ----------
    kernel : Kernel
        The kernel that was passed, or, for a name, the kernel that was chosen.
    n_rows, n_columns : int
        Number of rows and encoded columns of the planned fit.
    fits : tuple of FitForecast
        All planned fits, sorted by method, then width.
    choice, reason : FitForecast, str
        The chosen fit, one of ``fits``, and the reason in a sentence.
    budget : Budget
        Limits of time and memory.
    seed, n_sample : int
        Seed of the sample and the trials, and number of rows of the trials.
    seconds : float
        Duration of the planning.
    threads : int
        Number of threads of the timed fits.

    See Also
    --------
    plan : Plan a fit.
    KernelRidge : The learner that ``Plan.estimator()`` returns.
    """

    kernel: Kernel
    n_rows: int
    n_columns: int
    fits: tuple[FitForecast, ...]
    choice: FitForecast
    reason: str
    budget: Budget
    seed: int
    n_sample: int
    seconds: float
    threads: int

    def estimator(self, fit: FitForecast | None = None) -> KernelRidge:
        """Return the estimator of a planned fit, with the kernel of the plan; it is not fitted yet.

        Parameters
        ----------
        fit : FitForecast, optional
            One of ``fits``. Default: ``choice``.
        """
        fit = fit or self.choice
        return KernelRidge(
            self.kernel,
            method=fit.method,
            n_features=fit.n_features if fit.solver.startswith("moments") else WIDTH,
            precision="float64" if fit.solver == "moments float64" else "auto",
            random_state=self.seed,
        )

    def facts(self) -> dict[str, Any]:
        """Return all results as a dict, for programs."""
        facts = lambda fit: vars(fit) | {"method": repr(fit.method), "steps": dict(fit.steps)}
        return {
            "kernel": repr(self.kernel),
            "rows": self.n_rows,
            "columns": self.n_columns,
            "sample": self.n_sample,
            "choice": facts(self.choice),
            "reason": self.reason,
            "fits": [facts(fit) for fit in self.fits],
            "planning_seconds": self.seconds,
        }

    def __str__(self) -> str:
        table = columns([HEAD, *map(self._cells, self.fits)], words=(0, 1, 3, 8))
        return "\n".join([*self._facts, "", table, "", f"choice: {self.reason}"])

    def _html_parts(self) -> Iterator[str]:
        rows = [self._cells(fit)[1:] for fit in self.fits]
        highlight = next((i for i, fit in enumerate(self.fits) if fit is self.choice), -1)
        yield from map(paragraph, self._facts)
        yield html_table(HEAD[1:], rows, highlight=highlight)
        yield paragraph(f"choice: {self.reason}")

    def _cells(self, fit: FitForecast) -> tuple[str, ...]:
        kernel = "" if math.isnan(fit.kernel_error) else f"{fit.kernel_error:.2g}"
        is_allowed = self.budget.allows(fit)
        return (
            ">" * (fit is self.choice),
            str(fit.method),
            f"{fit.n_features:,}",
            fit.solver,
            kernel,
            f"{'~' * (fit.error_from == 'widths')}{fit.error:.4g}",
            f"{'~' * (fit.solver == 'exact')}{time_in_words(fit.seconds)}",
            bytes_in_words(fit.bytes),
            "default" * fit.default if is_allowed else "over the budget",
        )

    @property
    def _facts(self) -> list[str]:
        return [
            f"kernel: {describe(self.kernel)}",
            f"rows: {self.n_rows:,} of {self.n_columns:,} columns",
            f"budget: at most {self.budget}",
            f"threads: {self.threads}",
            f"error: root mean squared leave-one-out error, from fits to {self.n_sample:,} rows",
            "memory: arrays of the fit, without the rows",
            "default: the fit of KernelRidge() with this kernel",
            "~: error extrapolated from narrower features, or time within a factor of two",
        ]


@single_thread()
def plan(
    X: Tabular | Blocks,
    y: Array | str | None = None,
    kernel: Kernel | str = "auto",
    *,
    budget: float | Mapping[str, float] | None = None,
    methods: Sequence[Method | str] | None = None,
    widths: Sequence[int] | None = None,
    n_rows: int | None = None,
    effort: str = "medium",
    random_state: Seed = None,
) -> Plan:
    """Predict the error, time and memory of fits before running them, and choose one.

    Parameters
    ----------
    X : (n, d) or Blocks
        Rows, or blocks of rows with a target. Columns of a table become numbers as in a fit.
    y : (n,) or (n, t), or str
        Numeric targets, or the name of the target's column in a table in memory. Not for Blocks.
    kernel : Kernel or str, default "auto"
        For a name, a kernel is chosen as by :class:`bochner.KernelRidge`, once for all fits.
    budget : float or mapping, optional
        Seconds, or ``{"seconds": 60, "bytes": 4e9}``. Without seconds, each doubling of the time
        must lower the error by 5 %; without bytes, half of the free memory is allowed.
    methods : sequence of Method or str, optional
        Default: Nyström features, Fourier features and the exact kernel. With more than 8192 rows,
        instead of the exact kernel:

        - up to two feature methods with the smallest errors of the kernel matrix;
        - Fourier modes, if ``method="auto"`` would use them for these columns;
        - with ``kernel="auto"`` and many rows the local fit, the default of ``KernelRidge()``.
    widths : sequence of int, optional
        Up to 10,000 features. Default: 256, 512, ..., 4096; if n ≤ 4096, widths below n, and n.
    n_rows : int, optional
        Number of rows of the planned fit, if X is a sample of them. Default: the rows of X.
    effort : {"low", "medium", "high"}, default "medium"
        Effort of the choice of the kernel, as in :class:`bochner.KernelRidge`.
    random_state : int, Generator, RandomState or None, default None

    Returns
    -------
    Plan
        ``print(plan)`` shows a table; ``plan.estimator()`` returns the chosen estimator.

    Raises
    ------
    InvalidInput
        If there are fewer than 16 rows or more than ``n_rows``, the target does not vary, no fit is
        within the budget, or no method supports the kernel.

    Notes
    -----
    Learners are fitted with up to 256 features to a sixth of the rows, at least 256 (all rows if
    there are fewer) and at most 1024, and predict up to 1024 other rows. Seconds are sums of timed
    operations, and vary by a factor of 1.5 with other work on the machine. Memory is the size of
    the largest arrays. Leave-one-out errors are extrapolated to all rows by the effective dimension
    at each penalty, and to D > 256 features by e² = a + b/D, with a the squared error of the exact
    kernel. With ``kernel="auto"`` the choice of the kernel takes the most time, which
    ``estimator()`` does not repeat. The rest takes at most a fifth of the time of a default fit.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((400, 2))
    >>> plan = bo.plan(X, np.sin(X[:, 0]), widths=[32, 64], random_state=0)
    >>> model = plan.estimator().fit(X, np.sin(X[:, 0]))
    >>> model.n_features == plan.choice.n_features
    True
    """
    clock, limits, seed = time.perf_counter(), as_budget(budget), seed_of(random_state)
    start = as_kernel(kernel)
    one_of(effort, "plan", "effort", ("low", *EFFORTS))
    options = None if methods is None else [as_method(method) for method in methods]
    if widths is not None:
        widths = [integer(D, "plan", "widths", minimum=1) for D in np.atleast_1d(widths)]
        if not 0 < max(widths, default=0) <= WIDE:
            raise InvalidInput(
                f"plan: widths must be at least one number up to {WIDE:,}; got {widths}. More "
                "features are fitted by passes over the rows, whose number is not planned."
            )
    if isinstance(X, Blocks) and y is not None:
        raise InvalidInput("plan: blocks have their own target; leave y out.")
    arguments = (X,) if isinstance(X, Blocks) else pop_targets("plan", X, y)[:2]
    blocks = KernelRidge()._read(*arguments)[0]
    reading = time.perf_counter()
    sample = draw_rows(blocks, seed)
    seconds, rows = time.perf_counter() - reading, count_rows(blocks)
    n, d = _n_rows(n_rows, rows, sample), blocks.n_columns
    spec = KernelRidge(start, effort=effort, random_state=seed)._spec()
    limit, facts = most_at_once(spec), (next(iter(blocks)).X, n, seconds * n / rows)
    local = start == "auto" and options is None and n > limit and n * d <= MAX_CELLS
    if isinstance(start, str):
        start = _chosen_kernel(spec, sample, blocks, n, local)
    m = min(max(256, math.ceil(n / 6)), 1024)
    task = Task(start, spec, without_copies(spec, sample.lowest(m + FURTHER_ROWS))[0], m, *facts)
    default_widths = WIDTHS if n > 4096 else (*(D for D in WIDTHS if n > D), n)
    fits = list_fits(task, options, widths or default_widths)
    fits += [local_fit(task, default_leaves(spec))] if local else []
    fits = fits if options is not None else mark_default(fits, n, limit)
    choice, reason = choose_fit(fits, limits)
    fields = task.kernel, n, d, tuple(fits), choice, reason, limits, seed, len(task.sample)
    return Plan(*fields, time.perf_counter() - clock, get_num_threads())


def _chosen_kernel(
    spec: RidgeSpec, sample: RowSample, blocks: Blocks, n_rows: int, local: bool
) -> Kernel:
    """Return the kernel that a fit to n rows, or a ``local`` fit, would choose."""
    if local or n_rows <= DIRECT_ROWS:
        rows = without_copies(spec, gather(blocks, spec.features.seed))[0]
        if local:
            return local_kernel(spec, rows)
        tuning, curves = choose_exact_kernel(spec, rows)
    else:
        curves, sample = fit_curves(sample, spec.features.seed, spec.features.transforms_columns)
        tuning = search_kernel(spec.features, sample)
    return tuning.kernel if curves is None else curves.of(tuning.kernel)


def mark_default(fits: Sequence[FitForecast], n_rows: int, limit: int) -> list[FitForecast]:
    """Return the fits; that which :class:`bochner.KernelRidge` runs by default has ``default``."""
    find = lambda solver: [fit for fit in fits if fit.solver.startswith(solver)]
    width = WIDTH * (1 + (n_rows >= WIDE_ROWS))
    exact = [] if n_rows > limit and find("local") else find("exact")
    wide = [fit for fit in find("moments") if fit.n_features == width]
    group = exact or find("modes") or find("local") or wide
    default = min(group, key=lambda fit: fit.error, default=None)
    return [replace(fit, default=True) if fit is default else fit for fit in fits]


def _n_rows(n_rows: int | None, rows: int, sample: RowSample) -> int:
    """Return the number of rows of the fit: ``n_rows``, or the rows of X; refuse invalid rows."""
    n = rows if n_rows is None else integer(n_rows, "plan", "n_rows", minimum=1)
    if len(sample) < 16:
        raise InvalidInput(f"plan: X must have at least 16 rows; got {rows}.")
    if n < rows:
        raise InvalidInput(
            f"plan: n_rows must be at least the {rows} rows passed; got {n}. Leave it out if X "
            "has all rows."
        )
    if not sample.y.shape[1] or not np.any(np.ptp(sample.y, axis=0)):
        raise InvalidInput(
            "plan: the target must vary, because errors are predicted from it; got a constant or "
            "none. Pass y, or the name of its column."
        )
    return n
