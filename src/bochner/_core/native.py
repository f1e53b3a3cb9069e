"""Compiled loops over NumPy arrays, each with a twin: the same formula in array operations.

Twins are used for arrays of other libraries, and if the package was built without a compiler; the
twins of kernel values are the formulas of the kernels. Arrays are C-contiguous and of one dtype,
float32 or float64; ``out`` may be any array with contiguous rows. Frequencies and phases are in
cycles, ω/(2π): range reduction subtracts whole cycles and is exact.

A compiled value depends only on its row and column, bit for bit: not on the other rows of the call,
nor on the number of threads.
"""

import os
import warnings
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import array_namespace, device, from_numpy, take
from bochner._core.shapes import Array, Float
from bochner._core.threads import get_num_threads
from bochner.errors import InvalidInput, PurePythonWarning


def _find_compiled() -> ModuleType | None:
    """Return the compiled module, or None; BOCHNER_INSTRUCTIONS sets its instruction set."""
    if os.environ.get("BOCHNER_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        from bochner import _native  # noqa: PLC0415
    except ImportError:
        return None
    if name := os.environ.get("BOCHNER_INSTRUCTIONS", "").strip():
        if name not in _native.levels():
            raise InvalidInput(
                "The environment variable BOCHNER_INSTRUCTIONS must name one of the instruction "
                f"sets of this processor and build, {', '.join(_native.levels())}; got {name!r}. "
                "Set it to one of these, or unset it for the widest."
            )
        _native.set_level(name)
    return _native


_compiled = _find_compiled()
HAVE_NATIVE = _compiled is not None

_warnings: set[str] = set()  # raised in this process


def loops() -> ModuleType | None:
    """Return the compiled module; if there is none, return None and warn once per process."""
    if _compiled is None and not _warnings:
        _warnings.add("pure Python")
        warnings.warn(
            "bochner runs without its compiled loops: results are the same, several times slower. "
            "Install bochner again on a machine with a C++ compiler to get them.",
            PurePythonWarning,
            stacklevel=4,
        )
    return _compiled


class Chains(NamedTuple):
    """Maps x ↦ Δ_s H ⋯ Δ₂ H Δ₁ Π H Δ₀ x to p phases (in cycles) per block; H is Hadamard."""

    diagonals: np.ndarray  # Δ₀, ..., Δ_s of each block, (blocks, s + 1, p)
    # (blocks, p) int32: (Π v)_i = v[orders[b, i]]; shape (0, p) if Π is the identity
    orders: np.ndarray
    m: int  # frequencies in all; the last block may have fewer than p


def waves(
    X: Float[Array, "n d"],
    frequencies: Float[Array, "d m"] | Chains,
    scale: float,
    b: Float[Array, " m"] | None = None,
) -> Float[Array, "n D"]:
    """Return the columns ``scale cos(2 pi T)``, then ``scale sin(2 pi T)``, T = X @ frequencies.

    With phase shifts ``b``, in cycles, only ``scale cos(2 pi (T + b))`` is returned.
    """
    if isinstance(X, np.ndarray) and (compiled := loops()) is not None:
        X = np.ascontiguousarray(X)
        m = frequencies.m if isinstance(frequencies, Chains) else frequencies.shape[1]
        out = np.empty((X.shape[0], 2 * m if b is None else m), X.dtype)
        bias, threads = np.empty(0, X.dtype) if b is None else b, get_num_threads()
        if isinstance(frequencies, Chains):
            compiled.chains(X, *frequencies[:2], bias, m, scale, out, threads)
        else:
            compiled.waves(X, frequencies, bias, scale, out, threads)
        return out
    with np.errstate(invalid="ignore"):  # infinite rows become NaN; BLAS may or may not warn
        T = chain_phases(X, frequencies) if isinstance(frequencies, Chains) else X @ frequencies
        xp = array_namespace(T)
        T = T if b is None else T + from_numpy(b, like=T)
        angles = (T - xp.round(T)) * (2 * np.pi)
    parts = [xp.cos(angles), xp.sin(angles)] if b is None else [xp.cos(angles)]
    return float(scale) * xp.concat(parts, axis=1)


def radial(
    X: Float[Array, "n d"], Y: Float[Array, "m d"], profile: str, parameter: float = 1.0
) -> Float[Array, "n m"]:
    """Return the (n, m) values f(|x − y|) of the rows x of X and y of Y, with f(0) = 1.

    ``profile`` names f, and ``parameter`` is its parameter: src/_native/levels.hpp has formulas.
    """
    out, compiled = np.empty((X.shape[0], Y.shape[0]), X.dtype), loops()
    assert compiled is not None, "without compiled loops kernels use their formulas"
    compiled.radial(X, Y, profile, parameter, out, get_num_threads())
    return out


def hadamard(X: Float[Array, "n p"], out: Float[Array, "n p"] | None = None) -> Float[Array, "n p"]:
    """Return ``X @ H``, H Sylvester's matrix of ±1, in any library; NumPy's ``out`` may be X."""
    if X.shape[1] & (X.shape[1] - 1) or not X.shape[1]:
        raise InvalidInput(
            f"hadamard requires a power of two of columns, got {X.shape[1]}; pad rows with zeros."
        )
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return walsh(X)
    out = np.empty(X.shape, X.dtype) if out is None else out
    if (compiled := loops()) is not None:
        compiled.hadamard(np.ascontiguousarray(X), out, get_num_threads())
    else:
        out[...] = walsh(X)
    return out


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n: the width of a padded transform."""
    return 1 << max(0, n - 1).bit_length()


# ---- three-term recurrences over rows; without compiled loops, over columns in any library


class Programme(NamedTuple):
    """A straight-line programme over rows: each value is computed from two earlier ones.

    Value 0 is 1. Each other value v is factors[v, 0] w[inputs[v, 0]] value[parents[v, 0]] plus the
    same with index 1, where w has the d coordinates of the row and the d partial sums of squares.
    """

    parents: np.ndarray  # (nodes, 2) int32; a parent comes before its child
    inputs: np.ndarray  # (nodes, 2) int32
    factors: np.ndarray  # (nodes, 2) float64


def polynomials(
    X: Float[Array, "n d"],
    W: Float[Array, "d m"],
    radial: Float[Array, "n f r"],
    upper: Float[Array, " q"],
    lower: Float[Array, " q"],
) -> Float[Array, "n f*m"]:
    """Return Σ_l radial[i, f, l] p_l(⟨x_i, w_j⟩) for each row i, function f and column j of W.

    p_0 = 1, p_{l+1}(t) = upper_l t p_l − lower_l p_{l−1}; inner products are clipped to [−1, 1].
    """
    if isinstance(X, np.ndarray) and (compiled := loops()) is not None:
        out = np.empty((len(X), radial.shape[1] * W.shape[1]), X.dtype)
        arrays = (np.ascontiguousarray(array, X.dtype) for array in (W, radial, upper, lower))
        compiled.polynomials(X, *arrays, out, get_num_threads())
        return out
    xp = array_namespace(X)
    t = xp.clip(X @ W, -1.0, 1.0)
    p, previous = xp.ones_like(t), xp.zeros_like(t)
    sums = [radial[:, f, :1] * p for f in range(radial.shape[1])]
    for l in range(upper.shape[0]):
        p, previous = float(upper[l]) * t * p - float(lower[l]) * previous, p
        sums = [s + radial[:, f, l + 1 : l + 2] * p for f, s in enumerate(sums)]
    return xp.concat(sums, axis=1)


def harmonics(
    U: Float[Array, "n d"],
    programme: Programme,
    radial: Float[Array, "n b"],
    first: np.ndarray,
    count: np.ndarray,
    out: Float[Array, "n D"] | None = None,
) -> Float[Array, "n D"]:
    """Return blocks of columns: values of the programme for each row of U, times one factor.

    Block b is radial[:, b] times values first[b], ..., first[b] + count[b] − 1. Only compiled loops
    write to ``out``; otherwise a new array is returned.
    """
    if isinstance(U, np.ndarray) and (compiled := loops()) is not None:
        out = np.empty((len(U), int(count.sum())), U.dtype) if out is None else out
        factors = programme.factors.astype(U.dtype, copy=False)
        plan = (programme.parents, programme.inputs, factors)
        compiled.harmonics(U, *plan, radial, first, count, out, get_num_threads())
        return out
    xp = array_namespace(U)
    w = [U[:, j] for j in range(U.shape[1])]
    squares = [w[0] * w[0]]
    for x in w[1:]:
        squares.append(squares[-1] + x * x)
    w += squares
    values = [xp.ones_like(w[0])]
    steps = zip(*(part.tolist() for part in programme), strict=True)
    next(steps)
    for (p, q), (u, v), (a, b) in steps:
        value = a * w[u] * values[p]
        values.append(value + b * w[v] * values[q] if b else value)
    columns = [
        radial[:, b] * values[node]
        for b, (start, size) in enumerate(zip(first.tolist(), count.tolist(), strict=True))
        for node in range(start, start + size)
    ]
    return xp.stack(columns, axis=1) if columns else U[:, :0]


# ---- products of Hadamard matrices and diagonals, in any library


def chain_phases(X: Float[Array, "n d"], chains: Chains) -> Float[Array, "n m"]:
    """Return the phases x·ω/(2π) of rows and m frequencies, for arrays of any library."""
    xp = array_namespace(X)
    n, blocks, p = X.shape[0], chains.diagonals.shape[0], chains.diagonals.shape[2]
    first, *diagonals = (from_numpy(D, like=X) for D in np.moveaxis(chains.diagonals, 1, 0))
    Z = xp.reshape(_pad(X, p, xp)[:, None, :] * first[None, :, :], (n, blocks * p))
    for step, diagonal in enumerate(diagonals):
        Z = xp.reshape(Z, (n * blocks, p))
        Z = xp.reshape(hadamard(Z), (n, blocks * p))
        if step == 0 and len(chains.orders):
            places = chains.orders.astype(np.int64) + p * np.arange(blocks)[:, None]
            Z = take(Z, places.reshape(-1), axis=1)
        Z = Z * xp.reshape(diagonal, (1, blocks * p))
    return Z[:, : chains.m]


def _pad(X: Float[Array, "n d"], p: int, xp: Any) -> Float[Array, "n p"]:
    n, d = X.shape
    if p == d:
        return X
    return xp.concat([X, xp.zeros((n, p - d), dtype=X.dtype, device=device(X))], axis=1)


def walsh(Z: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """Return :func:`hadamard` of Z in any library, with sums in the order of the compiled loop."""
    xp = array_namespace(Z)
    n, p = Z.shape
    for h in (1 << k for k in range(p.bit_length() - 1)):
        pairs = xp.reshape(Z, (n, p // (2 * h), 2, h))
        low, high = pairs[:, :, 0, :], pairs[:, :, 1, :]
        Z = xp.reshape(xp.stack([low + high, low - high], axis=2), (n, p))
    return Z


def signed_walsh(X: Float[Array, "n d"], signs: Array) -> Float[Array, "n p"]:
    """Return :func:`hadamard` of ``X * signs``, padded with zeros to a power of two columns."""
    d, xp = X.shape[1], array_namespace(X)
    signs = xp.astype(from_numpy(signs[:d], like=X), X.dtype)
    Z = _pad(X * signs[None, :], power_of_two(d), xp)
    return hadamard(Z)


def radial_product(
    X: Float[Array, "n d"], V: Float[Array, "n t"], profile: str, parameter: float = 1.0
) -> Float[Array, "n t"]:
    """Return K V in float64 for the kernel matrix K = ``radial(X, X, ...)``.

    K is never stored. Values and their sums over blocks of 256 × 256 have the precision of X.
    """
    right, out = np.ascontiguousarray(V.T), np.empty((V.shape[1], len(X)))
    compiled = loops()
    assert compiled is not None, "without compiled loops kernels use their formulas"
    compiled.radial_product(X, profile, parameter, right, out, get_num_threads())
    return out.T
