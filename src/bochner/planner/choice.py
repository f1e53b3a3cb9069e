"""Planned fits: the predicted error, time and memory of each, and the choice among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bochner._core.checks import free_bytes, integer, positive
from bochner._core.html import ShownResult
from bochner.errors import InvalidInput, InvalidType
from bochner.features.method import Method
from bochner.models.ridge.methods import ExactKernel

#: Solvers: moments of features, products with more than 10,000 of them, the kernel matrix, leaves,
#: Fourier modes of a grid, and nearest neighbours.
SOLVERS = (
    "moments float32",
    "moments float64",
    "products",
    "exact",
    "local",
    "waves",
    "neighbours",
)
ITERATIVE = ("products", "exact")  # Iterations are counted on fewer rows
WORTH = 0.05  # Reduction of the error that each doubling of the time must bring
AS_GOOD = 0.01  # Errors within this share of one another are a tie
SOON = 1.0  # Seconds below which time does not count


@dataclass(frozen=True)
class Budget(ShownResult):
    """What a fit may take.

    Parameters
    ----------
    seconds : float, optional
        No limit where not given; more time must then be worth it.
    bytes : int, optional
        Beside the rows and what the process has already; default half of what is free.
    """

    seconds: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.seconds is not None:
            object.__setattr__(self, "seconds", positive(self.seconds, "plan", "budget seconds"))
        if self.bytes is not None:
            most = int(positive(self.bytes, "plan", "budget bytes"))
            object.__setattr__(self, "bytes", integer(most, "plan", "budget bytes", least=1))

    @property
    def room(self) -> int:
        """Bytes that may be taken."""
        return free_bytes() // 2 if self.bytes is None else self.bytes

    def __str__(self) -> str:
        seconds = "any time" if self.seconds is None else f"{self.seconds:g} s"
        return f"{seconds} and {shown_size(self.room)}"


def as_budget(budget: object) -> Budget:
    """Return a budget: of seconds where it is a number, of both where it is a mapping."""
    if budget is None or isinstance(budget, Budget):
        return budget or Budget()
    if isinstance(budget, Mapping):
        if set(budget) <= {"seconds", "bytes"}:
            return Budget(**budget)
        raise InvalidInput(
            f'plan: budget must have "seconds", "bytes" or both; got {", ".join(map(str, budget))}.'
        )
    if isinstance(budget, str | bytes | Sequence):
        raise InvalidType(
            'plan: budget must be seconds, or a mapping such as {"seconds": 60, "bytes": 4e9}; got '
            f"{budget!r}."
        )
    return Budget(seconds=positive(budget, "plan", "budget"))


@dataclass(frozen=True, eq=False)
class PlannedFit:
    """One row of a plan.

    Attributes
    ----------
    method : Method
        Method of the features; of solver "exact" that of the preconditioner, or
        :class:`bochner.ExactKernel` where the kernel matrix of all rows is factored.
    n_features : int
        D; the number of rows of an exact or local fit; the number of neighbours.
    solver : str
        One of :data:`SOLVERS`. "products": more than 10,000 features, without their Gram matrix.
        "local": the kernel within leaves of rows. "waves": Fourier modes of a grid.
    error : float
        Predicted root mean squared leave-one-out error of a fit to all rows.
    kernel_error : float
        Predicted ‖ZZᵀ − K‖_F / ‖K‖_F; NaN where the map was not drawn.
    seconds, bytes : float
        Predicted time and memory.
    steps : dict of str to float
        Seconds of each step.
    error_from : {"sample", "widths"}
        Whether the error is extrapolated from sampled rows only, or also from smaller widths.
    against : str
        Reason why this fit is never chosen; "" if there is none.
    passes : int
        Passes over all rows of solver "products"; else 1.
    default : bool
        Whether ``KernelRidge(kernel)`` makes this fit by itself.
    """

    method: Method
    n_features: int
    solver: str
    error: float
    kernel_error: float
    seconds: float
    bytes: float
    steps: Mapping[str, float]
    error_from: str = "sample"
    against: str = ""
    passes: int = 1
    default: bool = False

    @property
    def name(self) -> str:
        """Description for sentences."""
        features = f"{self.n_features:,} features of {self.method}"
        exact = f"the exact kernel, preconditioned by {features}"
        if isinstance(self.method, ExactKernel):
            exact = "the exact kernel, by a Cholesky factor of its matrix"
        passes = f"{features}, by products with their Gram matrix in {self.passes} passes"
        process = "a Gaussian process on the"
        return {
            "exact": exact,
            "local": "the exact kernel within leaves of rows (a local fit)",
            "waves": f"{self.n_features:,} waves of {self.method}",
            "neighbours": f"{process} {self.n_features:,} nearest neighbours of each row",
            "products": passes,
        }.get(self.solver, f"{features}, summed up in {self.solver.removeprefix('moments ')}")

    def within(self, budget: Budget) -> bool:
        """Whether it takes no more than the budget."""
        in_time = budget.seconds is None or self.seconds <= budget.seconds
        return in_time and self.bytes <= budget.room


# --- choice --------------------------------------------------------------------------------------


def best_of(fits: Sequence[PlannedFit], budget: Budget) -> tuple[PlannedFit, str]:
    """Return the fit to take, and the reason in a sentence.

    Fits with an error of more than 1.01 times that of the default are not considered, if the
    default is within the budget. With a budget of seconds the least error is taken, and the fastest
    of ties. Without one, each doubling of the time beyond a second must reduce the error by 5 %.
    """
    able = [fit for fit in fits if not fit.against]
    within = [fit for fit in able if fit.within(budget)]
    if not within:
        raise InvalidInput(_nothing_fits(able, budget))
    most = min((fit.error for fit in within if fit.default), default=math.inf)
    good = [fit for fit in within if fit.error <= (1 + AS_GOOD) * most]
    if budget.seconds is None:
        chosen = min(good, key=lambda fit: (_score(fit), fit.seconds))
    else:
        least = min(fit.error for fit in good)
        ties = [fit for fit in good if fit.error <= (1 + AS_GOOD) * least]
        chosen = min(ties, key=lambda fit: (fit.seconds, fit.error))
    return chosen, _reason(chosen, able, budget)


def _score(fit: PlannedFit) -> float:
    """Return the log error plus the log reduction that is required for the time."""
    doublings = math.log2(max(fit.seconds, SOON))
    return math.log(max(fit.error, 1e-300)) - doublings * math.log(1 - WORTH)


def _nothing_fits(able: Sequence[PlannedFit], budget: Budget) -> str:
    cheapest = min(able, key=lambda fit: fit.seconds)
    smallest = min(able, key=lambda fit: fit.bytes)
    return (
        f"plan: no fit is predicted to take at most {budget}; the fastest takes "
        f"{shown_time(cheapest.seconds)} ({cheapest.name}), the smallest "
        f"{shown_size(smallest.bytes)} ({smallest.name}). Allow more, or pass smaller widths."
    )


def _reason(chosen: PlannedFit, able: Sequence[PlannedFit], budget: Budget) -> str:
    why = (
        f"its error is within {100 * AS_GOOD:g} % of the least of all fits within {budget}"
        if budget.seconds is not None
        else "no other fit that memory allows lowers the error by "
        f"{100 * WORTH:g} % for each doubling of the time"
    )
    words = f"{chosen.name}: {why}"
    best = min(able, key=lambda fit: fit.error)
    if best.error < chosen.error and best is not chosen:
        lower = 100 * (1 - best.error / chosen.error)
        words += (
            f"; {best.name}, would lower it by {lower:.2g} % and take {shown_time(best.seconds)} "
            f"and {shown_size(best.bytes)} instead of {shown_time(chosen.seconds)} and "
            f"{shown_size(chosen.bytes)}"
        )
    return f"{words[0].upper()}{words[1:]}."


def matching(
    fits: Sequence[PlannedFit], method: Method | None, n_features: int | None, solver: str | None
) -> list[PlannedFit]:
    """Return the fits of a plan that have this method, width and solver; None matches all."""
    found = [
        fit
        for fit in fits
        if method in (None, fit.method)
        and n_features in (None, fit.n_features)
        and solver in (None, fit.solver)
    ]
    if not found:
        wanted = ", ".join(str(part) for part in (method, n_features, solver) if part is not None)
        known = sorted({f"{f.method} with {f.n_features:,} by {f.solver}" for f in fits})
        raise InvalidInput(
            f"plan: {wanted} is not in the plan, which has {'; '.join(known)}. Plan again with "
            "methods=[...] or widths=[...]."
        )
    return found


# --- words ---------------------------------------------------------------------------------------

_HEAD = ("", "method", "D", "solver", "kernel error", "error", "seconds", "memory", "")
WORDS = (0, 1, 3, len(_HEAD) - 1)  # Cells that are words


def fits_table(
    fits: Sequence[PlannedFit], chosen: PlannedFit, budget: Budget
) -> list[tuple[str, ...]]:
    """Return a head and a line of cells for each fit; the chosen one is marked."""
    return [_HEAD, *(_cells(fit, fit is chosen, budget) for fit in fits)]


def _cells(fit: PlannedFit, chosen: bool, budget: Budget) -> tuple[str, ...]:
    extrapolated = "~" if fit.error_from == "widths" else ""
    kernel = "" if math.isnan(fit.kernel_error) else f"{fit.kernel_error:.2g}"
    return (
        ">" if chosen else "",
        str(fit.method),
        f"{fit.n_features:,}",
        f"products, {fit.passes} passes" if fit.solver == "products" else fit.solver,
        kernel,
        f"{extrapolated}{fit.error:.4g}",
        f"{'~' * (fit.solver in ITERATIVE)}{shown_time(fit.seconds)}",
        shown_size(fit.bytes),
        fit.against or ("default" * fit.default if fit.within(budget) else "over the budget"),
    )


def shown_time(seconds: float) -> str:
    """Write seconds, or minutes or hours where they are many."""
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 7200 else f"{seconds / 3600:,.2g} h"


def shown_size(size: float) -> str:
    """Write bytes as MB or GB."""
    return f"{size / 1e6:,.3g} MB" if size < 1e9 else f"{size / 1e9:,.3g} GB"


def facts_of(fit: PlannedFit) -> dict[str, Any]:
    """Return the numbers of a fit, for programs."""
    facts = {f.name: getattr(fit, f.name) for f in fields(fit)}
    return facts | {"method": repr(fit.method), "steps": dict(fit.steps)}
