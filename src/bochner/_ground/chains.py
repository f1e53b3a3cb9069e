"""Frequencies that are never formed: products of Hadamard matrices and diagonals.

The twins run on arrays of any library, and are what other libraries than NumPy use.
"""

from typing import Any, NamedTuple

import numpy as np

from bochner._ground.arrays import array_namespace, device, from_numpy, is_numpy, taken
from bochner._ground.native import (
    _loops,
    _room,
    _row_blocks,
    get_num_threads,
    hadamard,
    power_of_two,
)
from bochner._ground.shapes import Array, Float

__all__ = ["Chains", "chain_waves", "chain_waves_twin", "signed_walsh", "turns", "walsh"]


class Chains(NamedTuple):
    """Blocks of p frequencies, in turns, as transforms of rows that zeros fill up to p numbers.

    Block b maps x to

        Δ_s H ⋯ Δ₂ H Δ₁ Π H Δ₀ x,     H the unnormalised p × p Hadamard matrix.

    Attributes
    ----------
    diagonals : (blocks, s + 1, p)
        Δ₀, ..., Δ_s of each block; of the precision of the rows.
    orders : (blocks, p) int32, or (0, p)
        Number i of Π v is number orders[b, i] of v; without any, Π is the identity.
    m : int
        Frequencies in all; the last block may be cut.
    """

    diagonals: np.ndarray
    orders: np.ndarray
    m: int


def chain_waves(
    X: Float[Array, "n d"],
    chains: Chains,
    scale: float,
    b: Float[Array, " m"] | None = None,
    out: Float[Array, "n D"] | None = None,
) -> Float[Array, "n D"]:
    """Compute ``[scale cos(2 pi T), scale sin(2 pi T)]`` of the turns T of all chains.

    With phases `b`, in turns, ``scale cos(2 pi (T + b))`` alone. Costs m s log₂ p additions a row
    and as many cosines and sines as there are numbers in the result.
    """
    out = _room(out, X, 2 * chains.m if b is None else chains.m)
    bias = np.empty(0, X.dtype) if b is None else b
    if (loops := _loops()) is not None:
        loops.chains(
            X, chains.diagonals, chains.orders, bias, chains.m, scale, out, get_num_threads()
        )
        return out
    for rows in _row_blocks(X, 4 * chains.diagonals.shape[0] * chains.diagonals.shape[2]):
        out[rows] = chain_waves_twin(X[rows], chains, scale, b)
    return out


def chain_waves_twin(X: Array, chains: Chains, scale: float, b: Array | None = None) -> Array:
    """Do what `chain_waves` does, for arrays of any library."""
    T = turns(X, chains)
    xp = array_namespace(T)
    if b is not None:
        return scale * xp.cos(_radians(T + from_numpy(b, like=T)))
    angles = _radians(T)
    return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)


def _radians(T: Array) -> Array:
    return (T - array_namespace(T).round(T)) * (2 * np.pi)


def turns(X: Float[Array, "n d"], chains: Chains) -> Float[Array, "n m"]:
    """Return the turns of each row and frequency, for arrays of any library."""
    xp = array_namespace(X)
    n, blocks, p = X.shape[0], chains.diagonals.shape[0], chains.diagonals.shape[2]
    first, *others = (
        from_numpy(diagonal, like=X) for diagonal in np.moveaxis(chains.diagonals, 1, 0)
    )
    Z = xp.reshape(_filled(X, p, xp)[:, None, :] * first[None, :, :], (n, blocks * p))
    for step, diagonal in enumerate(others):
        Z = xp.reshape(walsh(xp.reshape(Z, (n * blocks, p))), (n, blocks * p))
        if step == 0 and len(chains.orders):
            places = chains.orders.astype(np.int64) + p * np.arange(blocks)[:, None]
            Z = taken(Z, places.reshape(-1), axis=1)
        Z = Z * xp.reshape(diagonal, (1, blocks * p))
    return Z[:, : chains.m]


def _filled(X: Float[Array, "n d"], p: int, xp: Any) -> Float[Array, "n p"]:
    n, d = X.shape
    if p == d:
        return X
    return xp.concat([X, xp.zeros((n, p - d), dtype=X.dtype, device=device(X))], axis=1)


def walsh(Z: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """Return the unnormalised Walsh-Hadamard transform of each row, in any library."""
    xp = array_namespace(Z)
    n, p = Z.shape
    for h in (1 << k for k in range(p.bit_length() - 1)):
        pairs = xp.reshape(Z, (n, p // (2 * h), 2, h))
        low, high = pairs[:, :, 0, :], pairs[:, :, 1, :]
        Z = xp.reshape(xp.stack([low + high, low - high], axis=2), (n, p))
    return Z


def signed_walsh(X: Float[Array, "n d"], signs: Float[Array, " p"]) -> Float[Array, "n p"]:
    """Return H (s ∘ x) of each row x that zeros fill up to a power of two, in any library.

    Signs beyond the d columns meet zeros, and need not be there. X may be complex.
    """
    d = X.shape[1]
    p = power_of_two(d)
    if is_numpy(X) and X.dtype.kind == "f":
        filled = np.zeros((X.shape[0], p), X.dtype)
        np.multiply(X, signs[:d].astype(X.dtype), out=filled[:, :d])
        return hadamard(filled, out=filled)
    xp = array_namespace(X)
    signs = xp.astype(from_numpy(signs[:d], like=X), X.dtype)
    return walsh(_filled(X * signs[None, :], p, xp))
