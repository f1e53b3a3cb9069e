"""plan: the method, the number of features and the solver to fit with, and what the fit takes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from bochner._core.checks import integer
from bochner._core.html import HtmlPart, HtmlTable, ShownResult, Words
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Tabular
from bochner._core.text import columns
from bochner._core.threads import get_num_threads, one_thread
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import listed
from bochner.errors import InvalidInput
from bochner.features.method import Method
from bochner.features.rules import as_method
from bochner.kernels.kernel import Kernel
from bochner.models._tables import encoded, encoded_beside, given_rows, is_table, read_beside
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge.estimators import KernelRidge
from bochner.models.ridge.methods import DIRECT_ROWS, ExactKernel
from bochner.planner.choice import (
    WORDS,
    Budget,
    PlannedFit,
    as_budget,
    best_of,
    facts_of,
    fits_table,
    picked,
    theorem_notes,
    truncation_notes,
)
from bochner.planner.direct import direct_fit
from bochner.planner.neighbours import neighbour_fits, other_methods
from bochner.planner.trials import FEWEST_TRIED, Task, Timer, tried_rows, usual_widths
from bochner.planner.waves import all_fits
from bochner.selection.candidates import choose_lengthscale_exactly
from bochner.selection.search import choose_lengthscale
from bochner.selection.spec import as_kernel
from bochner.sums.rows import sampled

FEWEST = 16  # Fewer rows than this say nothing
SEARCHED = 512  # Width that a lengthscale is chosen at


@dataclass(frozen=True, eq=False)
class Plan(ShownResult):
    """Fits side by side, the one to take, and why; prints as a table.

    Attributes
    ----------
    kernel : Kernel
        With the lengthscale that was chosen, where it was open.
    n_rows, n_columns : int
    fits : tuple of PlannedFit
        By method, then width.
    choice : PlannedFit
    reason : str
        Why, in a sentence.
    budget : Budget
    seed : int
    n_sample : int
        Rows that learners are tried on.
    seconds : float
        What planning itself took.
    threads : int
        That fits were timed with.
    """

    kernel: Kernel
    n_rows: int
    n_columns: int
    fits: tuple[PlannedFit, ...]
    choice: PlannedFit
    reason: str
    budget: Budget
    seed: int
    n_sample: int
    seconds: float
    threads: int

    def estimator(self) -> KernelRidge | GaussianProcessRegressor:
        """Return the estimator that the choice says, ready to fit.

        Its kernel has its numbers, its map is drawn from the same rows as the plan's, and its
        penalty is chosen by leave-one-out error. Nearest neighbours are those of a
        :class:`GaussianProcessRegressor`.
        """
        fit = self.choice
        if fit.solver == "neighbours":
            return GaussianProcessRegressor(self.kernel, method=fit.method, random_state=self.seed)
        features = fit.solver == "exact" and not isinstance(fit.method, ExactKernel)
        return KernelRidge(
            self.kernel,
            method=ExactKernel(fit.method) if features else fit.method,
            n_features=fit.n_features,
            precision="float64" if fit.solver == "moments float64" else "auto",
            random_state=self.seed,
        )

    def with_choice(
        self,
        method: Method | str | None = None,
        n_features: int | None = None,
        solver: str | None = None,
    ) -> Self:
        """Return the plan with another choice; what is not given is what serves best with it.

        Parameters
        ----------
        method : Method or str, optional
        n_features : int, optional
            Any width; between those of the plan its numbers are interpolated.
        solver : str, optional
            Of a :class:`PlannedFit`.

        Raises
        ------
        InvalidInput
            If the plan has no such method or solver.
        """
        wanted = None if method is None else as_method(method)
        chosen = picked(self.fits, wanted, n_features, solver)
        known = self.fits if chosen in self.fits else (*self.fits, chosen)
        name = f"{chosen.name[0].upper()}{chosen.name[1:]}"
        return replace(self, fits=known, choice=chosen, reason=f"{name}: as asked.")

    def replace(self, **changes: Any) -> Self:
        """Return the plan with other numbers; with another budget the choice is made again.

        Raises
        ------
        InvalidInput
            If it has no such number, or nothing is within the budget.
        """
        known = {field.name for field in fields(self)}
        for name in changes.keys() - known:
            raise InvalidInput(f"plan: there is no {name!r}; there are {', '.join(sorted(known))}.")
        changed = replace(self, **changes)
        if "budget" not in changes and "fits" not in changes:
            return changed
        budget = as_budget(changed.budget)
        choice, reason = best_of(changed.fits, budget)
        return replace(changed, budget=budget, choice=choice, reason=reason)

    def facts(self) -> dict[str, Any]:
        """Return all numbers, for programs."""
        return {
            "kernel": repr(self.kernel),
            "rows": self.n_rows,
            "columns": self.n_columns,
            "sample": self.n_sample,
            "choice": facts_of(self.choice),
            "reason": self.reason,
            "fits": [facts_of(fit) for fit in self.fits],
            "planning_seconds": self.seconds,
        }

    def __str__(self) -> str:
        """Return the table, and what it means."""
        table = columns(fits_table(self.fits, self.choice, self.budget), words=WORDS)
        return "\n".join([self._title, table, f"> {self.reason}", *self._notes])

    def _shown(self) -> Iterator[HtmlPart]:
        """Give the fits, the chosen one marked, the reason, and what the numbers are."""
        head, *rows = (line[1:] for line in fits_table(self.fits, self.choice, self.budget))
        marked = next((i for i, fit in enumerate(self.fits) if fit is self.choice), -1)
        errors = tuple(fit.error for fit in self.fits)
        yield HtmlTable(head, rows, self._title, marked, errors)
        yield from map(Words, [self.reason, *self._notes])

    @property
    def _title(self) -> str:
        return (
            f"{self.kernel!r}, {self.n_rows:,} rows of {self.n_columns:,} columns; "
            f"{self.budget}; {self.threads} thread{'s' * (self.threads > 1)}"
        )

    @property
    def _notes(self) -> list[str]:
        note = (
            f"error: leave-one-out, root mean square, of fits to {self.n_sample:,} rows, "
            "extrapolated to all of them (~: and to wider features). Seconds of products and of "
            "the exact kernel (~) are right to a factor of about two. Memory: of the fit, beside "
            "the rows."
        )
        return [*truncation_notes(self.fits), *theorem_notes(self.fits), note]


@one_thread()
def plan(
    X: Tabular | Blocks,
    y: Array | str | None = None,
    kernel: Kernel | str = "gaussian",
    *,
    budget: float | Mapping[str, float] | Budget | None = None,
    methods: Sequence[Method | str] | None = None,
    widths: Sequence[int] | None = None,
    n_rows: int | None = None,
    random_state: Seed = None,
) -> Plan:
    """Say which method, width and solver to fit with, and what that will find and take here.

    Parameters
    ----------
    X : (n, d) or Blocks
        Rows, or blocks of rows with a target. Columns of a table become numbers as in a fit.
    y : (n,) or (n, t), or str
        Numbers; of a table in memory the name of its column too.
    kernel : Kernel or str, default "gaussian"
        Of a name the lengthscale is chosen, once, and is in the plan: up to 8192 rows with the
        matrix of 256 to 512 of them.
    budget : float, mapping or Budget, optional
        Seconds, or ``{"seconds": 60, "bytes": 4e9}``. Without seconds any time is allowed that is
        worth it; without bytes, half of what is free.
    methods : sequence of Method or str, optional
        Default: Nyström, Fourier features, and the exact kernel, up to 8192 rows by a Cholesky
        factor of its matrix; of more rows also the two with the least error of the kernel; of up
        to three columns or the globe the waves that "auto" would take. More
        than 8,192 rows of up to four columns have nearest neighbours beside them, which a Gaussian
        process takes where they err less: they are chosen where they are named.
    widths : sequence of int, optional
        Default: 256 to 4096; up to 4096 rows, also all of them.
    n_rows : int, optional
        Rows that there will be, where X has only some.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Plan
        ``str(plan)`` is a table, ``plan.estimator()`` is ready to fit, ``plan.with_choice(...)``
        and ``plan.replace(...)`` change what was chosen.

    Raises
    ------
    InvalidInput
        If there are fewer than 16 rows or fewer than asked for, the budget is too small for
        anything, or no method serves the kernel.

    Notes
    -----
    Learners are fitted to a fifth of the rows, at least 256 and at most 8192 of a sample, with up
    to half as many features, 1024 at most, and to half of these rows. What they take by the clock
    is extrapolated: by the difference for each further row, beyond 8192 rows by the sweep over it;
    to D features as aD² + bD³ for the eigendecomposition, which is timed once, and a + bD² for all
    else, with the measured speed of products. Reading is timed on the rows. Errors are extrapolated
    to all rows along the path of penalties, which may say too much where more rows tell much more
    of the function; to wider features they fall towards that of the kernel itself as 1/D. Planning
    takes O(m D² + D³ + m³) for m rows, m up to 1024 in the last: about a fifth of the seconds of a
    default fit to 2500 rows, a quarter of 6000 and two fifths of 500. More than 10,000 features
    that are not landmarks are solved for by products: the passes are counted by solving for the
    sample, which takes about as long as one to five passes over 500,000 rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((400, 2))
    >>> found = bo.plan(X, np.sin(X[:, 0]), widths=[32, 64], random_state=0)
    >>> model = found.estimator().fit(X, np.sin(X[:, 0]))
    >>> model.n_features == found.choice.n_features
    True
    """
    return plan_by(time.perf_counter, X, y, kernel, budget, methods, widths, n_rows, random_state)


def plan_by(
    timer: Timer,
    X: Any,
    y: Any,
    kernel: Kernel | str,
    budget: Any,
    methods: Sequence[Method | str] | None,
    widths: Sequence[int] | None,
    n_rows: int | None,
    random_state: Seed,
) -> Plan:
    """Plan by a clock: seconds of the wall, or of the processor."""
    began, allowed, seed = timer(), as_budget(budget), seed_of(random_state)
    chosen = as_kernel(kernel)
    options = None if methods is None else [as_method(method) for method in methods]
    if widths is not None:
        widths = [integer(D, "plan", "widths", least=1) for D in np.atleast_1d(widths)]
        if not widths:
            raise InvalidInput("plan: widths must be at least one number of features; got none.")
    blocks = _blocks(X, y)
    reading = timer()
    sample = sampled(blocks, seed)
    seconds, found = timer() - reading, count_rows(blocks)
    n, d = _n_rows(n_rows, found, sample), blocks.n_columns
    sample = sample.lowest(tried_rows(n))
    m = len(sample)
    if isinstance(chosen, str):
        chosen = _chosen(chosen, sample, n, seed)
    like = next(iter(blocks)).X
    task = Task(chosen, sample, like, n, seconds * n / found, seed, timer)
    exact = direct_fit(task) if n <= DIRECT_ROWS else None
    near, others = neighbour_fits(task, options), other_methods(options)
    fits = near
    if others is None or others or not near:
        fits = (*all_fits(task, others, widths or usual_widths(n), exact), *near)
    choice, reason = best_of(fits, allowed)
    threads = get_num_threads()
    return Plan(chosen, n, d, fits, choice, reason, allowed, seed, m, timer() - began, threads)


def _chosen(name: str, sample: RowSample, n: int, seed: int) -> Kernel:
    """Return the kernel of a name: of few rows the one that a fit with the kernel itself takes."""
    if n <= DIRECT_ROWS and name != "auto":
        few = sample.lowest(max(FEWEST_TRIED, len(sample) // 2))
        return choose_lengthscale_exactly(name, few, seed).kernel
    return choose_lengthscale(name, sample, SEARCHED, seed).kernel


def _blocks(X: Any, y: Any) -> Blocks:
    """Return the rows as blocks, of one target at least."""
    if isinstance(X, Blocks):
        if y is not None:
            raise InvalidInput("plan: blocks have their own target; leave y out.")
        if X.schema is not None and X.schema.classes:
            raise InvalidInput(
                f"plan: target {X.schema.target!r} must hold numbers; got text "
                f"({listed(X.schema.classes)}). Code it as numbers first."
            )
        return encoded("plan", X)
    if y is None:
        raise InvalidInput(
            "plan: requires y, which errors are predicted from; got None. Pass the target."
        )
    X, y, _ = given_rows("plan", X, y)
    if not is_table(X):
        return Blocks.from_arrays(X, y)
    return read_beside(encoded_beside("plan", Blocks.from_table(X), y, None), y)


def _n_rows(n_rows: int | None, found: int, sample: RowSample) -> int:
    """Return the rows of the fit, and check that there are some to go by."""
    n = found if n_rows is None else integer(n_rows, "plan", "n_rows", least=1)
    if found < FEWEST or len(sample) < FEWEST:
        raise InvalidInput(f"plan: X must have at least {FEWEST} rows; got {found}.")
    if n < found:
        raise InvalidInput(
            f"plan: n_rows must be at least the {found} rows passed; got {n}. Leave it out where X "
            "has all rows."
        )
    if not sample.y.shape[1] or not np.any(np.ptp(sample.y, axis=0)):
        raise InvalidInput(
            "plan: the target must vary, for errors to be predicted from it; got a constant, or "
            "none. Name the target."
        )
    return n
