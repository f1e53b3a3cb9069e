"""Marginal likelihood of a Gaussian process from its kernel matrix, and its gradient in that.

With Ω = diag(w), C = I − 1wᵀ/W (or I without an intercept), S = Ω^½ C K Cᵀ Ω^½, u = Ω^½ C y,
A = S + λI and ν, q = uᵀA⁻¹u as in :mod:`bochner.solvers.ridge.evidence`,

    E = −log p = ½ q/a² + ½ (log det A + (ν − m) log λ) + (ν/2) log 2πa²,
    ∂E/∂K = ½ Cᵀ Ω^½ (A⁻¹ − vvᵀ/a²) Ω^½ C,   v = A⁻¹u,
    ∂E/∂log λ = ½ (λ tr A⁻¹ + ν − m − λ vᵀv/a²),

and with the noise held, a² = σ²/λ, also ½ (q/a² − ν). With the best a² = q/ν the rest is as if a²
were held (Rasmussen and Williams 2006, eq. 5.9).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotri

from bochner._core.blas import cholesky, mirror, one_thread
from bochner._core.shapes import Array, Float


@dataclass(frozen=True, eq=False)
class KernelScore:
    """Minus the log marginal likelihood, summed over targets, and its gradient."""

    value: float
    by_kernel: Float[Array, "m m"]  # ∂value/∂K, symmetric
    by_log_alpha: float  # ∂value/∂log λ


@one_thread()  # a descent asks often, and for few rows: threads would wait for one another
def kernel_evidence(
    K: Float[Array, "m m"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"],
    alpha: float,
    *,
    centred: bool = True,
    noise: float | None = None,
    amplitude: float | None = None,
) -> KernelScore:
    """Return the evidence of rows at λ = ``alpha``, the same for all targets: O(m³).

    Parameters
    ----------
    K : (m, m)
    y : (m, t)
        Targets that vary; each has its own amplitude where that is open.
    w : (m,)
    alpha : float
        λ = σ²/a².
    centred : bool, default True
        Whether there is an intercept, of flat prior.
    noise, amplitude : float, optional
        σ² and a² where they are given; the amplitude decides where both are.

    Raises
    ------
    LinAlgError
        If rounding leaves A not positive.
    """
    m, t = y.shape
    root, lift = np.sqrt(w), w / w.sum() if centred else np.zeros(m)
    freedom = max(float(w.sum()), m) - centred
    u = root[:, None] * (y - lift @ y)
    A = root[:, None] * _centred(K, lift) * root
    A[np.diag_indices(m)] += alpha
    U = cholesky(A, overwrite_a=True, check_finite=False)
    log_det = 2 * float(np.log(np.diag(U)).sum()) + (freedom - m) * np.log(alpha)
    inverse = mirror(dpotri(U, overwrite_c=True)[0])
    v = inverse @ u
    q = np.maximum((u * v).sum(axis=0), np.finfo(np.float64).tiny)
    scale = _amplitudes(q / freedom, alpha, noise, amplitude)
    value = 0.5 * float((q / scale + freedom * np.log(2 * np.pi * scale)).sum() + t * log_det)
    slope = t * (alpha * float(np.trace(inverse)) + freedom - m)
    slope -= alpha * float(((v * v).sum(axis=0) / scale).sum())
    if noise is not None and amplitude is None:
        slope += float((q / scale - freedom).sum())
    inner = root[:, None] * (t * inverse - (v / scale) @ v.T) * root
    return KernelScore(value, 0.5 * _centred(inner, lift, transposed=True), 0.5 * slope)


def _amplitudes(
    best: Float[Array, " t"], alpha: float, noise: float | None, amplitude: float | None
) -> Float[Array, " t"]:
    """Return a² of each target: as given, as the noise says, or the best."""
    if amplitude is not None:
        return np.full_like(best, amplitude)
    return best if noise is None else np.full_like(best, noise / alpha)


def _centred(
    M: Float[Array, "m m"], lift: Float[Array, " m"], transposed: bool = False
) -> Float[Array, "m m"]:
    """Return C M Cᵀ with C = I − 1·lift, or Cᵀ M C."""
    one = np.ones(len(lift))
    a, b = (lift, one) if transposed else (one, lift)
    Mb = M @ b
    return M - np.outer(a, Mb) - np.outer(Mb, a) + (b @ Mb) * np.outer(a, a)
