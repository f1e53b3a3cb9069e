"""Fourier features drawn by ridge leverage, and weighted so that they stay unbiased.

With z(ω) the waves e^(−iω·x_j) of n rows, p the density of a kernel's frequencies and λ a penalty,

    τ(ω) = z(ω)*(K + λI)⁻¹ z(ω),   E τ = d_λ = Tr K(K + λI)⁻¹,

says how much a draw of ω can matter to a ridge regression. Of draws from p some matter n k(0)/λ
times too much. Draws from a density q in proportion to p τ, each weighted by p/q, all matter the
same, and about d_λ log d_λ of them serve [Avron et al. (2017), lemma 6 and theorem 7]. Features are
those of :class:`Fourier` in pairs, each frequency times √(p/q):

    φ(x) = √(k(0)/m) [√(p/q)(ω_j) cos ω_j·x, √(p/q)(ω_j) sin ω_j·x]_j.
"""

import math
from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import in_float64, to_numpy
from bochner._core.blas import eigh
from bochner._core.checks import Positive
from bochner._core.shapes import Array, Float
from bochner.features.fourier.fourier import frequencies
from bochner.features.fourier.maps import FourierMap
from bochner.features.fourier.placements import IID
from bochner.features.method import Method, Request
from bochner.kernels.kernel import Kernel
from bochner.kernels.spectral import GaussianMixture
from bochner.kernels.stationary import Stationary


@dataclass(frozen=True)
class LeverageFourier(Method):
    """Random Fourier features by ridge leverage, weighted: Avron et al. (2017).

    Parameters
    ----------
    penalty : float, default 1e-4
        1/n_λ = λ/(n k(x, x)): the penalty of a fit per row, as a share of the kernel's diagonal.

    See Also
    --------
    Fourier : Frequencies that know no rows.

    Notes
    -----
    Of eight times as many frequencies as are asked for, those that matter most to up to 1,000 of
    the rows are drawn, for every kernel of x − y. Unbiased for any data; the map holds no rows. At
    small penalties and in few columns the spectral distance is far below that of :class:`Fourier`,
    while single entries are off by more. :class:`Nystrom` and Mercer features are more accurate
    where rows may be kept or kernels are smooth. Cost of φ(X): as :class:`Fourier`; of drawing
    O(s³ + s² D) with s = 1,000 rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Matern
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.LeverageFourier(penalty=1e-3)
    >>> phi = bo.draw(Matern(smoothness=1.5), method, n_features=64, X=X, random_state=0)
    >>> phi(X).shape
    (50, 64)
    """

    penalty: Positive = 1e-4

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return n_features * (1 + POOL * n_columns // 2)

    granularity = 2


# --- Leverage of candidates on some rows ---------------------------------------------------------

ROWS = 1000  # On which leverage is computed
POOL = 8  # Candidates for each frequency
WIDER = 2.0  # How many times longer the frequencies of half of the candidates are
#: Share of draws that does not ask for leverage: no candidate is weighted by more than its inverse.
FAIR = 0.1


def candidates(kernel: Kernel, d: int, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return frequencies to choose from as rows, and p over the density that they have.

    Half of those of isotropic kernels are longer: p has few that matter at small penalties.
    """
    W = frequencies(kernel, IID(), count, d, rng).T
    measure = kernel.spectral_measure(d) if isinstance(kernel, Stationary) else None
    if not isinstance(measure, GaussianMixture) or not measure.mixing.closed:
        return W, np.ones(count)
    W = W * np.where(np.arange(count) % 2, WIDER, 1.0)[:, None]
    wide = measure.log_density(W / WIDER) - d * math.log(WIDER)
    return W, 2 / (1 + np.exp(wide - measure.log_density(W)))


def leverages(
    kernel: Kernel, rows: Float[np.ndarray, "n d"], W: Float[np.ndarray, "m d"], penalty: float
) -> Float[np.ndarray, " m"]:
    """Return τ(ω) of each frequency on these rows, at ``penalty`` times the trace of K."""
    K = to_numpy(kernel(rows))
    values, V = eigh((K + K.T) / 2, check_finite=False)
    sizes = np.maximum(values, 0.0) + penalty * np.trace(K)

    def of_some(W: Float[np.ndarray, "b d"]) -> Float[np.ndarray, " b"]:
        angles = rows @ W.T
        waves = V.T @ np.cos(angles), V.T @ np.sin(angles)
        return sum(np.einsum("ij,i->j", wave**2, 1 / sizes) for wave in waves)

    return np.concatenate([of_some(W[i : i + 4096]) for i in range(0, len(W), 4096)])


def draw_by_leverage(method: LeverageFourier, kernel: Kernel, ask: Request) -> FourierMap:
    """Draw weighted Fourier features of a kernel of x − y: candidates, by their leverage.

    Given the candidates the mean of what is drawn is that of all, whose mean is the kernel.
    """
    m, d, rng = ask.n_features // 2, ask.n_inputs, ask.stream("frequencies")
    X = ask.rows("LeverageFourier", "rows to measure leverage on")
    index = ask.stream("rows").permutation(X.shape[0])[:ROWS]
    W, ratios = candidates(kernel, d, POOL * m, rng)
    shares = ratios * leverages(kernel, in_float64(X[np.sort(index)]), W, method.penalty)
    chances = (1 - FAIR) * shares / shares.sum() + FAIR * ratios / ratios.sum()
    chosen = rng.choice(len(W), m, p=chances)
    weights = (ratios / (len(W) * chances))[chosen] / m
    amplitude = float(to_numpy(kernel.diag(np.zeros((1, d))))[0])
    return FourierMap(kernel, np.ascontiguousarray(W[chosen].T), amplitude, weights=weights)
