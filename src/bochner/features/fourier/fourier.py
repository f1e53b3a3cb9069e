"""Random Fourier features of stationary kernels.

By Bochner's theorem k(x − y) = k(0) E cos(ω·(x − y)) with ω from the kernel's spectral measure.
:mod:`bochner.features.fourier.maps` has the features of m frequencies.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from bochner._core.checks import word
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier import placements
from bochner.features.fourier.maps import FourierMap
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.kernels.algebra import Columns, Exp, Mahalanobis, Normalised
from bochner.kernels.histogram import SkewedChi2
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import Stationary

_PLACEMENTS = "IID(), Orthogonal(), Structured(), Fastfood(), QMC() or Grid()"


@dataclass(frozen=True)
class Fourier(Method):
    """Random Fourier features: Rahimi and Recht (2007).

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        Where the frequencies fall: ``IID()``, ``Orthogonal()``, ``QMC()``, ``Structured()`` (fast
        transforms, for d in the hundreds), ``Fastfood()``, or ``Grid()`` (weighted nodes).
    form : {"pair", "phase"}, default "pair"
        "pair" uses cosine and sine of each of D/2 frequencies: |φ(x)|² = k(x, x) exactly, and
        variance (1 + k(2δ) − 2k(δ)²)/D, mostly lower than (1 + ½k(2δ) − k(δ)²)/D of "phase", which
        uses D frequencies with random phases. ``phi.complex(X)`` of a map of pairs gives D/2
        complex exponentials, φ(X) φ(Y)ᴴ ≈ K.

    See Also
    --------
    Nystrom : More accurate where the spectrum of K decays.
    LeverageFourier : Frequencies chosen by the rows.

    Notes
    -----
    Serves stationary kernels, their sums and products. Unbiased for any data; the error falls like
    1/√D. Choose it when data may be seen only once, for D in the thousands at high speed, or when
    the spectrum does not decay; else :class:`Nystrom` is more accurate at equal width. Cost of
    φ(X): O(n d D) and D/2 sine-cosine pairs per row.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(Gaussian(), bo.Fourier(), n_features=64, n_inputs=3, random_state=0)
    >>> phi(X).shape
    (50, 64)
    >>> phi.complex(X).shape
    (50, 32)
    """

    placement: Annotated[placements.Placement, placements.placed(_PLACEMENTS)] = field(
        default_factory=placements.Orthogonal
    )
    form: Annotated[Literal["pair", "phase"], word("pair", "phase")] = "pair"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.placement, placements.Grid) and self.form != "pair":
            raise InvalidInput(
                f'Fourier(Grid()) requires form="pair", which its weights are for; got '
                f"{self.form!r}."
            )

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return n_features * (1 + (n_columns if self.placement.formed else 2))

    @property
    def granularity(self) -> int:
        return 2 if self.form == "pair" else 1


# --- Drawing -------------------------------------------------------------------------------------


def draw_stationary(method: Fourier, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw Fourier features of a kernel of x − y, or of log(x + c) − log(y + c)."""
    placement, d, m, amplitude = method.placement, ask.n_inputs, ask.n_features, 1.0
    if not isinstance(kernel, Stationary | SkewedChi2):
        amplitude = float(kernel.diag(np.zeros((1, d)))[0])
    if isinstance(placement, placements.Grid):
        if not isinstance(kernel, Stationary):
            raise placement.refusal()
        W, weights = placement.nodes(kernel.spectral_measure(d), max(1, m // 2))
        return FourierMap(kernel, W, amplitude, weights=weights, random=False)
    phases = np.zeros(0)
    if method.form == "phase":
        phases = ask.stream("phases").uniform(0, 2 * np.pi, m)
    else:
        m //= 2
    if isinstance(kernel, Stationary) and isinstance(placement, placements.Chained):
        chains = placement.chains(kernel.spectral_measure(d), m, ask.stream("frequencies"))
        if chains is not None and chains.multiplications < d * m:
            return FourierMap(kernel, chains, amplitude, phases)
    W = frequencies(kernel, placement, m, d, ask.stream("frequencies"))
    return FourierMap(kernel, W, amplitude, phases)


# --- Frequencies: W with E cos ω·δ = k(δ)/k(0) ---------------------------------------------------


def frequencies(
    kernel: Kernel, placement: placements.Placement, m: int, d: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m frequencies of a stationary kernel, (d, m).

    The spectral measure of a product is a convolution, so that frequencies add; columns and linear
    maps of the input act on the frequencies.
    """
    if isinstance(kernel, Stationary | SkewedChi2):
        return placement.place(kernel.spectral_measure(d), m, rng)

    def drawn(part: Kernel, columns: int = d) -> Float[Array, "d m"]:
        return frequencies(part, placement, m, columns, rng)

    # Columns of an orthogonal block depend on one another: a random order makes a pairing fair.
    match kernel:
        case Constant():
            return np.zeros((d, m))
        case Scaled() | Normalised():
            return drawn(kernel.kernel)
        case Power():
            parts = (drawn(kernel.kernel) for _ in range(kernel.exponent))
            return sum(W[:, rng.permutation(m)] for W in parts)
        case Product():
            left = drawn(kernel.left)
            return left + drawn(kernel.right)[:, rng.permutation(m)]
        case Sum():
            left, right = drawn(kernel.left), drawn(kernel.right)
            sizes = kernel.left.diag(np.zeros((1, d)))[0], kernel.right.diag(np.zeros((1, d)))[0]
            return np.where(rng.random(m) * sum(sizes) < sizes[0], left, right)
        case Exp():
            # exp(k) = e^c Σ e^(−c) cⁿ/n! (k/c)ⁿ with c = k(0): the sum of a Poisson number of them.
            counts = rng.poisson(float(kernel.kernel.diag(np.zeros((1, d)))[0]), m)
            total = np.zeros((d, m))
            for n in range(counts.max()):
                total += np.where(counts > n, drawn(kernel.kernel)[:, rng.permutation(m)], 0.0)
            return total
        case Columns():
            W = np.zeros((d, m))
            W[list(kernel.columns)] = drawn(kernel.kernel, len(kernel.columns))
            return W
        case Mahalanobis():
            return kernel.root @ drawn(kernel.kernel)
    raise UnsupportedKernel(f"Fourier: {kernel!r} has no spectral measure. Use Nystrom(...).")
