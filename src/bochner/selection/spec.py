"""Kernel names, numbers of features, and search efforts."""

from collections.abc import Callable
from dataclasses import dataclass

from bochner._core.names import WORDS, suggest_object
from bochner.errors import InvalidInput
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import (
    Cauchy,
    CoordinateWise,
    Exponential,
    Gaussian,
    Laplace,
    RationalQuadratic,
)
from bochner.kernels.stationary_families import Matern
from bochner.selection.rows import Scale

Family = Callable[[Scale], Kernel]

#: Kernels by name. "auto" is Gaussian if there is no choice among families.
NAMED: dict[str, Family] = {
    "auto": Gaussian,
    "gaussian": Gaussian,
    "laplace": Laplace,
    "exponential": Exponential,
    "matern12": lambda scale: Matern(0.5, scale),
    "matern32": lambda scale: Matern(1.5, scale),
    "matern52": lambda scale: Matern(2.5, scale),
    "cauchy": Cauchy,
    "rational_quadratic": lambda scale: RationalQuadratic(1.0, scale),
    "linear": lambda _: Linear(),
}


def as_kernel(kernel: object) -> Kernel | str:
    """Return the kernel, or its known name; raise InvalidInput for anything else."""
    if isinstance(kernel, Kernel):
        return kernel
    name = WORDS.get(kernel, kernel) if isinstance(kernel, str) else ""
    if name in NAMED:
        return name
    raise InvalidInput(
        "kernel must be a value such as Gaussian(lengthscale=0.5), or one of "
        f"{', '.join(map(repr, NAMED))}, whose lengthscale is chosen by the fit; "
        f"got {kernel!r}{suggest_object(name, NAMED) or '.'}"
    )


def accepts_sparse(kernel: Kernel | str) -> bool:
    """Whether a kernel accepts sparse rows; coordinate-wise kernels, as Laplace, do not."""
    value = NAMED[kernel](1.0) if isinstance(kernel, str) and kernel in NAMED else kernel
    parts = value.get_params().values() if isinstance(value, Kernel) else ()
    return not any(isinstance(part, CoordinateWise) for part in (value, *parts))


UNTUNED = ("auto", "linear")  # Names whose lengthscale is not tuned by the evidence
WIDTH = 1024  # Default number of features
SEARCHED = 512  # Number of features for tuning if the number itself is to be chosen

#: Penalty per row, as a share of k(x, x), at which features are compared without a target.
DEFAULT_PENALTY = 1e-3


@dataclass(frozen=True)
class Effort:
    """Numbers of rows, candidates and rounds in the choice of a kernel."""

    rows: int  # Rows for tuning and comparing candidates; the best take twice as many
    finalists: int  # Number of the best candidates that are compared again
    rounds: int  # Rounds of learning a metric


#: Efforts by name; with "low" one lengthscale of one family is tuned.
EFFORTS = {
    "medium": Effort(rows=512, finalists=3, rounds=2),
    "high": Effort(rows=1024, finalists=5, rounds=4),
}
