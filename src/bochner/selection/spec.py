"""Kernels by name, tolerances for a width, and efforts of a search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bochner._core.checks import integer, one_of, share
from bochner._core.names import WORDS, meant_kernel
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


#: Kernels by name and lengthscale. Without a choice among families "auto" is Gaussian.
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
    """Return a kernel or a known name."""
    if isinstance(kernel, Kernel):
        return kernel
    name = WORDS.get(kernel, kernel) if isinstance(kernel, str) else ""
    if name in NAMED:
        return name
    raise InvalidInput(
        "kernel must be a value such as Gaussian(lengthscale=0.5), or one of "
        f"{', '.join(map(repr, NAMED))}, whose lengthscale is then chosen; "
        f"got {kernel!r}{meant_kernel(name, NAMED) or '.'}"
    )


def accepts_sparse(kernel: Kernel | str) -> bool:
    """Whether a kernel serves sparse rows; kernels of a sum over coordinates do not."""
    value = NAMED[kernel](1.0) if isinstance(kernel, str) and kernel in NAMED else kernel
    parts = value.get_params().values() if isinstance(value, Kernel) else ()
    return not any(isinstance(part, CoordinateWise) for part in (value, *parts))


@dataclass(frozen=True)
class Tolerance:
    """``n_features=Tolerance(...)``: as many features as bring ε down to a tolerance.

    Parameters
    ----------
    epsilon : float, default 0.1
        Largest (ε, alpha)-spectral distance, in (0, 1): the guarantee for the risk of the fit is
        the one of the exact kernel up to a factor 1/(1 − ε).

    See Also
    --------
    required_features : Find the width without a fit.

    Notes
    -----
    ``n_features="auto"`` is ``Tolerance()``.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> model = bo.KernelRidge(Gaussian(2.0), n_features=bo.Tolerance(0.2), random_state=0)
    >>> model.fit(X, X[:, 0]).map_.n_features < 200
    True
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        share(self.epsilon, "Tolerance", "epsilon")


def as_width(n_features: Any) -> int | Tolerance:
    """Return a width, or a tolerance if it is open."""
    if isinstance(n_features, str | Tolerance):
        return as_tolerance(n_features)
    return integer(n_features, "bochner", "n_features", 1)


def as_tolerance(n_features: str | Tolerance, tolerance: float = 0.1) -> Tolerance:
    """Return the tolerance of an open width."""
    if isinstance(n_features, Tolerance):
        return n_features
    if n_features == "auto":
        return Tolerance(tolerance)
    raise InvalidInput(
        f'n_features must be a positive integer, "auto" or Tolerance(...); got {n_features!r}.'
    )


UNASKED = ("auto", "linear")  # Names whose lengthscale is not tuned by the evidence
WIDTH = 1024  # Default width
SEARCHED = 512  # Width at which a lengthscale is chosen if the width itself is open


#: Penalty per row, as a share of k(x, x), at which features are judged without a target.
WITHOUT_TARGET = 1e-3


# --- effort -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """Numbers of rows and rounds in the choice of a kernel."""

    # Rows at the end of descents, and of the fits of all candidates; twice as many for the best
    rows: int
    finalists: int  # Number of the best
    rounds: int  # Rounds of a turned metric
    families: tuple[Kernel, ...] = (Exponential(), Matern(2.5), Gaussian())  # And Matern(1.5)
    last: int = 2048  # Rows of the fits of finalists and their sums, if there are many more

    @property
    def more(self) -> int:
        """Rows of the last descent from the best kernel, and of the fits of the best."""
        return 2 * self.rows


#: Efforts by name; with "low" one lengthscale of one family is tuned.
EFFORTS = {
    "medium": Effort(rows=512, finalists=3, rounds=2),
    "high": Effort(rows=1024, finalists=5, rounds=4, last=4096),
}


def as_effort(effort: object, who: str) -> Effort | None:
    """Return the effort of a name; None for "low"."""
    return EFFORTS.get(one_of(effort, who, "effort", ("low", *EFFORTS)))
