"""plan: predict the error, time and memory of fits, and choose the method, width and solver."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bochner._core.checks import integer, one_of
from bochner._core.html import HtmlPart, HtmlTable, ShownResult, Words
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Tabular
from bochner._core.sizes import MOST_CELLS
from bochner._core.text import columns
from bochner._core.threads import get_num_threads, one_thread
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import listed
from bochner.errors import InvalidInput
from bochner.features.method import Method
from bochner.features.rules import as_method
from bochner.features.waves import WaveMethod
from bochner.kernels.kernel import Kernel
from bochner.kernels.words import in_words
from bochner.models._tables import encoded, encoded_beside, given_rows, is_table, read_beside
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge.estimators import KernelRidge
from bochner.models.ridge.exact import chosen_by_matrix
from bochner.models.ridge.fit import WIDE_ROWS
from bochner.models.ridge.gathered import gather
from bochner.models.ridge.methods import DIRECT_ROWS, ExactKernel, LocalKernel
from bochner.models.ridge.routes import default_leaves, most_at_once
from bochner.models.ridge.sums import RidgeSpec
from bochner.planner.choice import (
    SOLVERS,
    WORDS,
    Budget,
    PlannedFit,
    as_budget,
    best_of,
    facts_of,
    fits_table,
    matching,
)
from bochner.planner.direct import direct_fit
from bochner.planner.leaves import local_fit
from bochner.planner.neighbours import neighbour_fits, other_methods
from bochner.planner.trials import Task, Timer, tried_rows, usual_widths
from bochner.planner.waves import all_fits
from bochner.selection.candidates import choose_kernel
from bochner.selection.curves import choose_curves
from bochner.selection.search import error_near_median
from bochner.selection.spec import WIDTH, as_effort, as_kernel
from bochner.sums.rows import sampled

FEWEST = 16  # Rows that a plan requires


@dataclass(frozen=True, eq=False)
class Plan(ShownResult):
    """Planned fits, the chosen one, and the reason; prints as a table.

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
        Threads that fits were timed with.
    asked : Kernel or str
        The kernel that was passed.
    effort : str
        The effort that was passed.
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
    asked: Kernel | str
    effort: str = "medium"

    def estimator(self) -> KernelRidge | GaussianProcessRegressor:
        """Return the estimator of the choice, ready to fit.

        Its kernel is that of the plan; a local fit chooses the kernel again, among all near rows.
        Nearest neighbours are those of a :class:`GaussianProcessRegressor`.
        """
        fit = self.choice
        if fit.solver == "local":
            local = KernelRidge(self.asked, method=fit.method, random_state=self.seed)
            return local.set_params(effort=self.effort)
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
        budget: float | Mapping[str, float] | Budget | None = None,
    ) -> Self:
        """Return the plan with the best fit of this method, width and solver within a budget.

        Parameters
        ----------
        method : Method or str, optional
        n_features : int, optional
            A width of the plan.
        solver : str, optional
            Solver of a :class:`PlannedFit`.
        budget : float, mapping or Budget, optional
            As in :func:`plan`; default: no limit, and the least error.

        Raises
        ------
        InvalidInput
            If the plan has no such fit, or none is within the budget.
        """
        if solver is not None:
            one_of(solver, "plan", "solver", SOLVERS)
        if n_features is not None:
            n_features = integer(n_features, "plan", "n_features", least=1)
        wanted = None if method is None else as_method(method)
        fits = matching(self.fits, wanted, n_features, solver)
        if budget is not None:
            allowed = as_budget(budget)
            choice, reason = best_of(fits, allowed)
            return replace(self, budget=allowed, choice=choice, reason=reason)
        choice = min(fits, key=lambda fit: (bool(fit.against), fit.error))
        name = f"{choice.name[0].upper()}{choice.name[1:]}"
        return replace(self, choice=choice, reason=f"{name}: as asked.")

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
            f"{in_words(self.kernel)}, {self.n_rows:,} rows of {self.n_columns:,} columns; "
            f"{self.budget}; {self.threads} thread{'s' * (self.threads > 1)}"
        )

    @property
    def _notes(self) -> list[str]:
        note = (
            f"error: root mean squared leave-one-out error of fits to {self.n_sample:,} rows, "
            "extrapolated to all rows (~: and to wider features). Seconds marked ~ are right to a "
            "factor of about two. Memory: of the fit, without the rows. default: the fit of "
            "KernelRidge() with this kernel."
        )
        return [note]


@one_thread()
def plan(
    X: Tabular | Blocks,
    y: Array | str | None = None,
    kernel: Kernel | str = "auto",
    *,
    budget: float | Mapping[str, float] | Budget | None = None,
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
        Numbers; of a table in memory the name of its column too.
    kernel : Kernel or str, default "auto"
        A name is chosen once, as :class:`bochner.KernelRidge` does, and the plan keeps the kernel.
    budget : float, mapping or Budget, optional
        Seconds, or ``{"seconds": 60, "bytes": 4e9}``. Without seconds, more time must be worth it;
        without bytes, half of the free memory is allowed.
    methods : sequence of Method or str, optional
        Default: Nyström, Fourier features, and the exact kernel, up to 8192 rows by a Cholesky
        factor of its matrix; of more rows also the two with the least error of the kernel; of up
        to three columns or the globe the Fourier modes that "auto" would take; with
        ``kernel="auto"`` and more than 8192 rows the local fit that is then the default. More than
        8192 rows of up to four columns have nearest neighbours too, of a Gaussian process, which
        are chosen if they are named.
    widths : sequence of int, optional
        Default: 256 to 4096; up to 4096 rows, also the number of rows.
    n_rows : int, optional
        Number of rows of the fit, if X has only some of them.
    effort : {"low", "medium", "high"}, default "medium"
        Effort of the choice of the kernel, as :class:`bochner.KernelRidge` takes it.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Plan
        ``str(plan)`` is a table, ``plan.estimator()`` is ready to fit, and
        ``plan.with_choice(...)`` returns a plan with another choice.

    Raises
    ------
    InvalidInput
        If there are fewer than 16 rows or fewer than asked for, no fit is within the budget, or no
        method serves the kernel.

    Notes
    -----
    Learners are fitted to a fifth of the rows, at least 256 and at most 8192, with at most half as
    many features, and to half of these rows. Each fit is timed; memory is measured by another fit
    under tracemalloc. Time and memory are extrapolated: by the difference for each further row, and
    to D features as aD² + bD³ for the eigendecomposition and a + bD² for the rest. Of a local fit
    one and two leaves are timed. Errors are extrapolated to all rows along the path of penalties;
    they may be too large where more rows show much more of the function. To wider features they
    fall towards that of the kernel itself as 1/D. With ``kernel="auto"`` the choice of the kernel
    takes the most time: it is that of a default fit, and is not repeated by ``estimator()``.

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
    options = budget, methods, widths, n_rows, random_state, effort
    return plan_by(time.perf_counter, X, y, kernel, *options)


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
    effort: str = "medium",
) -> Plan:
    """Plan by a clock: seconds of the wall, or of the processor."""
    began, allowed, seed = timer(), as_budget(budget), seed_of(random_state)
    chosen = as_kernel(kernel)
    as_effort(effort, "plan")
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
    like = next(iter(blocks)).X
    task = Task(chosen, sample, like, n, seconds * n / found, seed, timer, effort)
    spec = KernelRidge(chosen, effort=effort, random_state=seed)._spec(None)
    most = most_at_once(spec)
    local = chosen == "auto" and options is None and n > most and n * d <= MOST_CELLS
    fits: list[PlannedFit] = []
    if local:
        task, own = local_fit(task, default_leaves(spec))
        fits.append(own)
    elif isinstance(chosen, str):
        task = replace(task, kernel=_chosen(task, chosen, blocks, spec))
    task = replace(task, sample=sample.lowest(tried_rows(n)), known={})
    exact = direct_fit(task) if n <= DIRECT_ROWS else None
    near, others = neighbour_fits(task, options), other_methods(options)
    if others is None or others or not near:
        fits = [*all_fits(task, others, widths or usual_widths(n), exact), *fits]
    fits = [*fits, *near] if options is not None else with_default([*fits, *near], n, most)
    choice, reason = best_of(fits, allowed)
    made = task.kernel, n, d, tuple(fits), choice, reason, allowed, seed, len(task.sample)
    return Plan(*made, timer() - began, get_num_threads(), as_kernel(kernel), effort)


def _chosen(task: Task, name: str, blocks: Blocks, spec: RidgeSpec) -> Kernel:
    """Return the kernel of a name, as a fit without leaves chooses it."""
    sample = task.sample
    if task.n_rows <= DIRECT_ROWS:
        found, _, curves, _ = chosen_by_matrix(spec, gather(blocks))
    else:
        bends = spec.features.bends
        curves = choose_curves(sample, task.seed, error_near_median) if bends else None
        bent = sample if curves is None else replace(sample, X=curves.inputs(sample.X))
        method = spec.features.method
        found = choose_kernel(name, bent, WIDTH, task.seed, None, method, task.effort)
    return found.kernel if curves is None else curves.of(found.kernel)


def with_default(
    fits: Sequence[PlannedFit], n_rows: int, most: int = DIRECT_ROWS
) -> list[PlannedFit]:
    """Mark the fit that :class:`bochner.KernelRidge` makes if only the kernel is given.

    That is the exact kernel of at most ``most`` rows, or else Fourier modes, the local fit, or the
    best features of the default width.
    """
    width = WIDTH * (1 + (n_rows >= WIDE_ROWS))
    kinds = [
        [f for f in fits if isinstance(f.method, kind)]
        for kind in (ExactKernel, WaveMethod, LocalKernel)
    ]
    if n_rows > most and kinds[-1]:
        kinds[0] = []
    features = [fit for fit in fits if fit.n_features == width and fit.solver.startswith("moments")]
    kinds.append([fit for fit in features if not fit.against])
    found = next(filter(None, kinds), [])
    default = min(found, key=lambda fit: fit.error, default=None)
    return [replace(fit, default=True) if fit is default else fit for fit in fits]


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
