"""Planned fits: what each is predicted to find and to take, and which is chosen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bochner._core.checks import free_bytes, integer, positive
from bochner._core.html import ShownResult
from bochner._core.sizes import WIDE
from bochner.certificates.bounds.pairwise import LARGEST
from bochner.certificates.bounds.zonal import BallSpectral, GegenbauerSizes
from bochner.errors import InvalidInput, InvalidType
from bochner.features.method import Method
from bochner.models.ridge.methods import ExactKernel

#: How a fit comes to its coefficients.
SOLVERS = ("moments float32", "moments float64", "products", "exact", "waves", "neighbours")
ITERATIVE = ("products", "exact")  # Whose steps are counted on fewer rows
WORTH = 0.05  # Part of the error that a doubling of the time must take away to be worth it
#: Errors within this part of the least are taken as equal, where there is a budget of seconds.
AS_GOOD = 0.01
SOON = 1.0  # Seconds that nobody minds
DISTANCE = 0.5  # ε that theorems are asked for: of fits, twice the risk of the kernel at most


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
        How features are made; of a solver "exact", those of its preconditioner, or
        :class:`bochner.ExactKernel` where the matrix of all rows is factored.
    n_features : int
        D; of neighbours, how many; of a factor, all rows.
    solver : {"moments float32", "moments float64", "products", "exact", "waves", "neighbours"}
        "products": of more than 10,000 features, whose Gram matrix is never formed. "waves": rows
        are summed as waves, and no feature is made. "neighbours": of a Gaussian process alone.
    error : float
        Root mean squared leave-one-out error that is expected with all rows.
    kernel_error : float
        ‖ZZᵀ − K‖_F / ‖K‖_F that is expected; NaN where the map was not drawn.
    seconds, bytes : float
        Predicted.
    steps : dict of str to float
        Seconds by step.
    error_from : {"sample", "widths"}
        Whether the error is of a fit of this width to sampled rows, extrapolated to all, or also
        extrapolated from smaller widths.
    against : str
        Why it is not chosen whatever it costs; empty where nothing is against it.
    left_out : float
        Share of k(x, x) that a cut series leaves out in the mean of the rows, where that is more
        than a tenth of the penalty: an error that more features of the kind do not lower. Else 0.
    bound : BallSpectral or None
        For all rows, at the penalty that is expected: theorem 11 or 12 of
        ``Gegenbauer("monomial")``, whose ``bound.sizes(0.5)`` has q, s and m. None for other
        methods, and for kernels that these theorems do not cover.
    passes : int
        Passes over all rows that make products; 1 of other solvers.
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
    left_out: float = 0.0
    bound: BallSpectral | None = None
    passes: int = 1

    @property
    def name(self) -> str:
        """A few words for sentences."""
        features = f"{self.n_features:,} features of {self.method}"
        if isinstance(self.method, ExactKernel):
            return "the exact kernel, by a Cholesky factor of its matrix"
        if self.solver == "exact":
            return f"the exact kernel, preconditioned by {features}"
        if self.solver == "waves":
            return f"{self.n_features:,} waves of {self.method}"
        if self.solver == "neighbours":
            return f"a Gaussian process on the {self.n_features:,} nearest neighbours of each row"
        if self.solver == "products":
            return f"{features}, by products with their Gram matrix in {self.passes} passes"
        return f"{features}, summed up in {self.solver.removeprefix('moments ')}"

    def within(self, budget: Budget) -> bool:
        """Whether it takes no more than the budget."""
        in_time = budget.seconds is None or self.seconds <= budget.seconds
        return in_time and self.bytes <= budget.room


# --- choice --------------------------------------------------------------------------------------


def best_of(fits: Sequence[PlannedFit], budget: Budget) -> tuple[PlannedFit, str]:
    """Return the fit to take, and why in a sentence.

    With seconds: of those within the budget the least error, and of those within a hundredth of
    that the fastest. Without: each doubling of the time, from one second, must lower the error by
    five in a hundred.
    """
    able = [fit for fit in fits if not fit.against]
    within = [fit for fit in able if fit.within(budget)]
    if not within:
        raise InvalidInput(_nothing_fits(able, budget))
    if budget.seconds is None:
        chosen = min(within, key=lambda fit: (_score(fit), fit.seconds))
    else:
        least = min(fit.error for fit in within)
        close = [fit for fit in within if fit.error <= (1 + AS_GOOD) * least]
        chosen = min(close, key=lambda fit: (fit.seconds, fit.error))
    return chosen, _reason(chosen, able, budget)


def _score(fit: PlannedFit) -> float:
    """Return the logarithm of the error, and of what the time must be worth."""
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
        f"its error is within {100 * AS_GOOD:g} % of the least of what takes at most {budget}"
        if budget.seconds is not None
        else "no other of what fits into memory lowers the error by "
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


def picked(
    fits: Sequence[PlannedFit], method: Method | None, n_features: int | None, solver: str | None
) -> PlannedFit:
    """Return the fit that is meant; of a width between two, with numbers between theirs."""
    if solver is not None and solver not in SOLVERS:
        raise InvalidInput(
            f"plan: solver must be one of {', '.join(map(repr, SOLVERS))}; got {solver!r}."
        )
    fits = [*fits, *_in_float64(fits)] if solver == "moments float64" else fits
    found = [f for f in fits if method in (None, f.method) and solver in (None, f.solver)]
    if not found:
        wanted = " by ".join(str(part) for part in (method, solver) if part is not None)
        known = sorted({f"{fit.method} by {fit.solver}" for fit in fits})
        raise InvalidInput(f"plan: {wanted} is not in the plan, which has {', '.join(known)}.")
    if n_features is None:
        able = any(not fit.against for fit in found)
        return best_of(found, Budget(bytes=1 << 62))[0] if able else found[0]
    width = integer(n_features, "plan", "n_features", least=1)
    exactly = [fit for fit in found if fit.n_features == width]
    if not exactly and width > WIDE and any(fit.solver.startswith("moments") for fit in found):
        raise InvalidInput(
            f"plan: {width:,} features are not in the plan, and past {WIDE:,} their time does not "
            f"follow from that of fewer. Plan them, by widths=[..., {width}]."
        )
    return min(exactly or [_between(found, width)], key=lambda fit: (bool(fit.against), fit.error))


def _in_float64(fits: Sequence[PlannedFit]) -> list[PlannedFit]:
    """Return the fits that float32 serves as fits in float64, whose numbers are twice as long."""
    able = (fit for fit in fits if fit.solver == "moments float32" and not fit.against)
    double = lambda f: {"seconds": 2 * f.seconds, "bytes": 2 * f.bytes, "steps": {}}
    return [replace(fit, solver="moments float64", **double(fit)) for fit in able]


def _between(fits: Sequence[PlannedFit], width: int) -> PlannedFit:
    """Return the fit of the nearest width, with numbers by powers of the width."""
    near = min(fits, key=lambda fit: (bool(fit.against), abs(math.log(fit.n_features / width))))
    same = [f for f in fits if (f.method, f.solver) == (near.method, near.solver) and f is not near]
    if not same:
        return replace(near, n_features=width, error_from="widths", kernel_error=math.nan)
    other = min(same, key=lambda fit: abs(math.log(fit.n_features / width)))
    share = math.log(width / near.n_features) / math.log(other.n_features / near.n_features)

    def at(name: str) -> float:
        a, b = getattr(near, name), getattr(other, name)
        return a * (b / a) ** share if a > 0 and b > 0 else a

    names = ("error", "kernel_error", "seconds", "bytes")
    numbers: dict[str, Any] = {name: at(name) for name in names}
    return replace(near, n_features=width, steps={}, error_from="widths", **numbers)


# --- words ---------------------------------------------------------------------------------------

_HEAD = ("", "method", "D", "solver", "kernel error", "error", "seconds", "memory", "")
WORDS = (0, 1, 3, len(_HEAD) - 1)  # Cells of a line that are words


def fits_table(
    fits: Sequence[PlannedFit], chosen: PlannedFit, budget: Budget
) -> list[tuple[str, ...]]:
    """Return a head and the fits as lines of cells, the chosen one marked."""
    return [_HEAD, *(_cells(fit, fit is chosen, budget) for fit in fits)]


def truncation_notes(fits: Sequence[PlannedFit]) -> list[str]:
    """Return a sentence for each method whose widest features are of a series that is cut."""
    widest = {fit.method: fit for fit in fits}
    return [
        f"{fit.method}: {fit.n_features:,} features leave out {100 * fit.left_out:.2g} % of the "
        "kernel: truncation, not noise: raise the degree or order; more features do not help."
        for fit in widest.values()
        if fit.left_out
    ]


def theorem_notes(fits: Sequence[PlannedFit]) -> list[str]:
    """Return what theory asks of each method that it has a width for, at its widest."""
    widest = {fit.method: fit for fit in fits}
    return [
        f"{fit.method}, theorem {fit.bound.theorem}: within ε = {DISTANCE:g} of the kernel, with "
        f"95 % chance, for any {fit.bound.n_rows:,} rows of their ball: {_asked(fit.bound)}."
        for fit in widest.values()
        if fit.bound
    ]


def _asked(bound: BallSpectral) -> str:
    found = sizes_of(bound)
    return f"more than {LARGEST:.0e} features" if found is None else str(found)


def sizes_of(bound: BallSpectral) -> GegenbauerSizes | None:
    """Return what a bound asks for; None where it is more than can be counted."""
    try:
        return bound.sizes(DISTANCE)
    except InvalidInput:
        return None


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
        fit.against or ("" if fit.within(budget) else "over the budget"),
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
    facts = {f.name: getattr(fit, f.name) for f in fields(fit) if f.name != "bound"}
    sizes = sizes_of(fit.bound) if fit.bound else None
    named = sizes._asdict() if isinstance(sizes, GegenbauerSizes) else sizes
    theorem = named and {"epsilon": DISTANCE} | named
    return facts | {"method": repr(fit.method), "steps": dict(fit.steps), "theorem": theorem}
