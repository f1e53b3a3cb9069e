"""Compiled loops over NumPy arrays, each with its NumPy twin.

Every function here has one meaning and two ways to compute it: the loop of ``bochner._native``
and, below it, a plain NumPy twin that serves where the package was built without a compiler.
Arrays are C-contiguous and of one dtype, float32 or float64; ``out`` may be any array whose rows
are contiguous. Frequencies come in turns, ``T = W / (2 pi)``, so that range reduction is a
subtraction of whole turns and exact.

A compiled value depends on its own row and column alone, bit for bit: not on the other rows of
the call, nor on the number of threads.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, PurePythonWarning

TWIN_BYTES = 16 << 20  # what a block of a twin's temporaries may take


def _find_compiled() -> ModuleType | None:
    if os.environ.get("BOCHNER_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        from bochner import _native  # noqa: PLC0415
    except ImportError:
        return None
    return _native


def _pin(compiled: ModuleType | None) -> None:
    """Use the instruction set that ``BOCHNER_INSTRUCTIONS`` names, if it names one.

    The default is the widest that the processor and the build both have.
    """
    name = os.environ.get("BOCHNER_INSTRUCTIONS", "").strip()
    if not name or compiled is None:
        return
    if name not in compiled.levels():
        raise InvalidInput(
            "The environment variable BOCHNER_INSTRUCTIONS must name one of the instruction sets "
            f"of this processor and build, {', '.join(compiled.levels())}; got {name!r}. Set it "
            "to one of those, or unset it for the widest."
        )
    compiled.set_level(name)


_compiled = _find_compiled()
_pin(_compiled)
HAVE_NATIVE = _compiled is not None

_said: set[str] = set()
_chosen_threads: list[int] = []


def _loops() -> ModuleType | None:
    """Return the compiled module; where there is none say so, once in a process."""
    if _compiled is None and not _said:
        _said.add("pure Python")
        warnings.warn(
            "bochner runs without its compiled loops: results are the same, several times slower. "
            "To have them, install bochner again on a machine with a C++ compiler.",
            PurePythonWarning,
            stacklevel=4,
        )
    return _compiled


# ---- threads


def set_num_threads(n: int | None) -> None:
    """Let compiled loops use at most `n` threads; None goes back to the default."""
    if n is not None and n < 1:
        raise InvalidInput(
            f"set_num_threads requires at least 1 thread, got {n!r}; pass None for the default."
        )
    _chosen_threads[:] = [] if n is None else [int(n)]


def get_num_threads() -> int:
    """Return the most threads that a compiled loop uses.

    The first of: `set_num_threads`, the environment variables ``BOCHNER_NUM_THREADS`` and
    ``OMP_NUM_THREADS``, the processors this process may run on.
    """
    if _chosen_threads:
        return _chosen_threads[0]
    for name in ("BOCHNER_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return int(first)
    return _processors()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- cosines and sines


def cos_sin(
    X: Float[Array, "n d"],
    T: Float[Array, "d m"],
    scale: float,
    out: Float[Array, "n 2m"] | None = None,
) -> Float[Array, "n 2m"]:
    """Compute ``[scale cos(2 pi X T), scale sin(2 pi X T)]``, cosines first.

    Costs n d m multiplications and n m cosines and sines; absolute error of the trigonometry
    at most 1.3e-7 (float32) and 2.5e-16 (float64) times `scale`.
    """
    out = _room(out, X, 2 * T.shape[1])
    if (loops := _loops()) is not None:
        loops.cos_sin(X, T, scale, out, get_num_threads())
    else:
        cos_sin_twin(X, T, scale, out)
    return out


def cos_sin_twin(X: Array, T: Array, scale: float, out: Array) -> None:
    """Do what `cos_sin` does, in NumPy."""
    m = T.shape[1]
    for rows in _row_blocks(X, 3 * m):
        angle = _angle(_turns(X[rows], T))
        np.multiply(np.cos(angle), X.dtype.type(scale), out=out[rows, :m])
        np.multiply(np.sin(angle), X.dtype.type(scale), out=out[rows, m:])


def cos_bias(
    X: Float[Array, "n d"],
    T: Float[Array, "d m"],
    b: Float[Array, " m"],
    scale: float,
    out: Float[Array, "n m"] | None = None,
) -> Float[Array, "n m"]:
    """Compute ``scale cos(2 pi (X T + b))``, the phases `b` in turns.

    Cost and error are those of `cos_sin`.
    """
    out = _room(out, X, T.shape[1])
    if (loops := _loops()) is not None:
        loops.cos_bias(X, T, b, scale, out, get_num_threads())
    else:
        cos_bias_twin(X, T, b, scale, out)
    return out


def cos_bias_twin(X: Array, T: Array, b: Array, scale: float, out: Array) -> None:
    """Do what `cos_bias` does, in NumPy."""
    for rows in _row_blocks(X, 3 * T.shape[1]):
        np.multiply(np.cos(_angle(_turns(X[rows], T) + b)), X.dtype.type(scale), out=out[rows])


def _turns(X: Array, T: Array) -> Array:
    """Return X T; whether infinity in a row raises the flag of an invalid operation is BLAS's."""
    with np.errstate(invalid="ignore"):
        return X @ T


def _angle(turns: Array) -> Array:
    """Give 2 pi times what is left of `turns` without whole turns; NaN where it is not finite."""
    with np.errstate(invalid="ignore"):
        turns -= np.rint(turns)
    turns *= turns.dtype.type(2 * np.pi)
    return turns


# ---- kernels of distances


def radial(
    X: Float[Array, "n d"],
    Y: Float[Array, "m d"],
    profile: str,
    parameter: float = 1.0,
    out: Float[Array, "n m"] | None = None,
) -> Float[Array, "n m"]:
    """Compute kernel values of the distances between the rows of X and of Y.

    With ``s = |x - y|^2`` and ``r = sqrt(s)``, `profile` is one of

    ====================== =============================================
    ``gaussian``           exp(-s / 2)
    ``exponential``        exp(-r)
    ``matern32``           (1 + sqrt(3) r) exp(-sqrt(3) r)
    ``matern52``           (1 + sqrt(5) r + 5 s / 3) exp(-sqrt(5) r)
    ``rational_quadratic`` (1 + s / (2 a))^-a, a = `parameter`
    ``laplace``            exp(-sum |x_j - y_j|)
    ``cauchy``             prod 1 / (1 + (x_j - y_j)^2)
    ====================== =============================================

    Differences are taken before they are squared, so nothing cancels: equal rows give 1 exactly.
    Values below the smallest normal number may come out as 0. Costs 2 n d m operations.

    Raises
    ------
    InvalidInput
        If there is no such profile.
    """
    if profile not in PROFILES:
        raise InvalidInput(
            f"radial requires one of the profiles {', '.join(PROFILES)}, got {profile!r}."
        )
    out = _room(out, X, Y.shape[0])
    if (loops := _loops()) is not None:
        loops.radial(X, Y, profile, parameter, out, get_num_threads())
    else:
        radial_twin(X, Y, profile, parameter, out)
    return out


def radial_twin(X: Array, Y: Array, profile: str, parameter: float, out: Array) -> None:
    """Do what `radial` does, in NumPy, one column of the data at a time."""
    measure, value = PROFILES[profile]
    parameter = X.dtype.type(parameter)
    for rows in _row_blocks(X, 4 * Y.shape[0]):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            out[rows] = value(measure(X[rows], Y), parameter)


def _squares(X: Array, Y: Array) -> Array:
    total = np.zeros((len(X), len(Y)), X.dtype)
    for x, y in zip(X.T, Y.T, strict=True):
        total += np.square(np.subtract.outer(x, y))
    return total


def _magnitudes(X: Array, Y: Array) -> Array:
    total = np.zeros((len(X), len(Y)), X.dtype)
    for x, y in zip(X.T, Y.T, strict=True):
        total += np.abs(np.subtract.outer(x, y))
    return total


def _factors(X: Array, Y: Array) -> Array:
    product = np.ones((len(X), len(Y)), X.dtype)
    for x, y in zip(X.T, Y.T, strict=True):
        product *= 1 + np.square(np.subtract.outer(x, y))
    return product


def _capped(a: Array) -> Array:
    """Cap what exp(-a) makes 0, so that a polynomial in front cannot make 0 times infinity."""
    return np.minimum(a, a.dtype.type(1000))


def _matern32(s: Array, _: Array) -> Array:
    a = _capped(np.sqrt(3) * np.sqrt(s))
    return (1 + a) * np.exp(-a)


def _matern52(s: Array, _: Array) -> Array:
    a = _capped(np.sqrt(5) * np.sqrt(s))
    return (1 + a + a * a / 3) * np.exp(-a)


PROFILES: dict[str, tuple[Callable[[Array, Array], Array], Callable[[Array, Array], Array]]] = {
    "gaussian": (_squares, lambda s, _: np.exp(-s / 2)),
    "exponential": (_squares, lambda s, _: np.exp(-np.sqrt(s))),
    "matern32": (_squares, _matern32),
    "matern52": (_squares, _matern52),
    "rational_quadratic": (_squares, lambda s, a: np.exp(-a * np.log1p(s / (2 * a)))),
    "laplace": (_magnitudes, lambda total, _: np.exp(-total)),
    "cauchy": (_factors, lambda product, _: 1 / product),
}


# ---- the Walsh-Hadamard transform


def hadamard(X: Float[Array, "n p"], out: Float[Array, "n p"] | None = None) -> Float[Array, "n p"]:
    """Compute ``X @ H``, H the p × p matrix of Sylvester, entries ±1, p a power of two.

    Unnormalised: twice gives p X. `out` may be X itself. Costs p log₂ p additions a row; error of
    an element at most log₂ p roundings of the sum of magnitudes of its row. Compiled loop and twin
    give the same bits.

    Raises
    ------
    InvalidInput
        If p is not a power of two.
    """
    if not is_power_of_two(X.shape[1]):
        raise InvalidInput(
            f"hadamard requires a power of two of columns, got {X.shape[1]}; pad rows with zeros."
        )
    out = _room(out, X, X.shape[1])
    if (loops := _loops()) is not None:
        loops.hadamard(X, out, get_num_threads())
    else:
        hadamard_twin(X, out)
    return out


def is_power_of_two(n: int) -> bool:
    """Whether n is 1, 2, 4, ..."""
    return n > 0 and n & (n - 1) == 0


def power_of_two(n: int) -> int:
    """Return the least power of two that is n or more: the columns of a transform of n."""
    return 1 << max(0, n - 1).bit_length()


def hadamard_twin(X: Array, out: Array) -> None:
    """Do what `hadamard` does, in NumPy: stages from the shortest stride to the longest."""
    p = X.shape[1]
    for rows in _row_blocks(X, 2 * p):
        Z = X[rows]
        for h in (1 << k for k in range(p.bit_length() - 1)):
            pairs = Z.reshape(-1, p // (2 * h), 2, h)
            low, high = pairs[:, :, 0], pairs[:, :, 1]
            Z = np.stack([low + high, low - high], axis=2).reshape(Z.shape)
        out[rows] = Z


# ---- what both ways share


def _room(out: Array | None, X: Array, columns: int) -> Array:
    return np.empty((X.shape[0], columns), X.dtype) if out is None else out


def _row_blocks(X: Array, columns: int) -> Iterator[slice]:
    """Slices of rows whose temporaries, `columns` wide, take a bounded amount of memory."""
    block = max(1, TWIN_BYTES // max(1, columns * X.dtype.itemsize))
    for start in range(0, X.shape[0], block):
        yield slice(start, start + block)
