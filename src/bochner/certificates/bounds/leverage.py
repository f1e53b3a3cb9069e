"""The bound of Fourier features by ridge leverage: by the mass of the density they are drawn by."""

from dataclasses import dataclass
from typing import Self

from bochner._core.checks import check_fields, counted, integer, positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.matrix import Spectral
from bochner.certificates.bounds.pairwise import TailBound, rows_and_amplitude
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.leverage import (
    LeverageFourier,
    gaussian_scales,
    half_widths,
    modified_density,
)
from bochner.kernels.kernel import Kernel, Scaled


@dataclass(frozen=True)
class LeverageSpectral(TailBound):
    """The (ε, λ)-spectral distance of ``LeverageFourier(penalty, "modified")``, for rows of a box.

    P ≤ 16 s exp(−m ε²/(2 s (1 + 2ε/3))), s = ∫ of a bound of p τ ≥ d_λ, where λ ≤ ‖K‖.

    Parameters
    ----------
    mass : float
        s: no draw has more leverage, and d_λ is no more.
    penalty : float
        λ/(n k(x, x)), which the features are drawn for.
    n_rows : int
        n.

    Notes
    -----
    Draws of iid Fourier features have leverage up to n k(0)/λ = 1/penalty, which grows with n at
    equal λ; s grows like d_λ, with log(1/penalty)^(d/2). Sources: Avron et al. (2017), lemma 6 and
    theorem 7, and their modified density with the constants of this proof (``leverage.py`` of the
    features has it).
    """

    quantity = "spectral distance"

    mass: float
    penalty: float
    n_rows: int

    def __post_init__(self) -> None:
        check_fields(self, mass=positive, penalty=positive, n_rows=counted)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float, n_rows: int | None = None
    ) -> Self:
        """Return the bound for any n rows of the box of these; O(n d).

        ``n_rows`` is how many there are where X has only some of them; alpha is their penalty, at
        most ‖K‖. Of the Gaussian and its multiples.
        """
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        alpha = positive(alpha, cls.__name__, "alpha")
        n = len(rows) if n_rows is None else integer(n_rows, cls.__name__, "n_rows", len(rows))
        scales = gaussian_scales(_unscaled(kernel), rows.shape[1])
        if scales is None:
            raise UnsupportedKernel(
                f"LeverageSpectral requires a Gaussian kernel; got {kernel!r}. Spectral.of has the "
                "uniform bound, compare_bounds the leverage of draws."
            )
        penalty = alpha / (n * a)
        return cls(modified_density(half_widths(rows) * scales, 1 / penalty).mass, penalty, n)

    @property
    def method(self) -> LeverageFourier:
        """The method whose features it is of."""
        return LeverageFourier(self.penalty, "modified")

    @property
    def draw_features(self) -> int:
        return 2

    def log_failures(self, error: float) -> float:
        return self._uniform.log_failures(error)

    def rate(self, error: float) -> float:
        return self._uniform.rate(error)

    @property
    def _uniform(self) -> Spectral:
        return Spectral(self.mass, self.mass)


def _unscaled(kernel: Kernel) -> Kernel:
    return _unscaled(kernel.kernel) if isinstance(kernel, Scaled) else kernel
