"""Predictions of many rows, each from a Gaussian process of its nearest neighbours.

Kriging in a moving neighbourhood: the conditional laws that the approximation of Vecchia (1988) is
a product of. With K of the m neighbours of a row, k of these with the row, A = K + N, N diagonal,

    f = b + kᵀA⁻¹(y − b1),    b = 1ᵀA⁻¹y/s,    s = 1ᵀA⁻¹1,
    Var f = k(x, x) − kᵀA⁻¹k + (1 − 1ᵀA⁻¹k)²/s,

the last term for a mean b of flat prior (ordinary kriging); without it b = 0.
"""

from typing import NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float


class LocalLaw(NamedTuple):
    """Mean of f at each row, (b, t), and its variance for an amplitude of one, (b,)."""

    mean: Float[Array, "b t"]
    variance: Float[Array, " b"]


def condition(
    K: Float[Array, "b m m"],
    k: Float[Array, "b m"],
    prior: Float[Array, " b"],
    y: Float[Array, "b m t"],
    noise: Float[Array, "b m"],
    centred: bool,
) -> LocalLaw:
    """Return the law of f at rows, each given the targets of its neighbours.

    K is the kernel of the neighbours of each row with one another, k theirs with the row, and
    ``prior`` k(x, x). ``noise`` are variances of the noise in y, as shares of the amplitude, above
    zero; they are added to the diagonal of K in place. ``centred``: whether there is an unknown
    mean. O(b m³) operations, one LU factorisation for each row.
    """
    m = k.shape[1]
    K[:, np.arange(m), np.arange(m)] += noise
    right = np.concatenate([k[:, :, None], np.ones((*k.shape, 1)), y], axis=2)
    solved = np.linalg.solve(K, right)
    mean = np.einsum("bm,bmt->bt", k, solved[:, :, 2:])
    variance = prior - np.einsum("bm,bm->b", k, solved[:, :, 0])
    if centred:
        total, left = solved[:, :, 1].sum(axis=1), 1 - solved[:, :, 0].sum(axis=1)
        mean += (left / total)[:, None] * solved[:, :, 2:].sum(axis=1)
        variance += left**2 / total
    return LocalLaw(mean, np.maximum(variance, 0.0))
