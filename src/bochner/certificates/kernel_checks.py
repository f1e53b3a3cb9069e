"""Checks of a user's own kernel: ``check_kernel`` looks for what no kernel may do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import as_matrix, taken, to_numpy
from bochner._core.blas import eigh
from bochner._core.html import ShownResult
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels.kernel import Kernel

ROWS = 200  # Rows that are looked at: eigenvalues of their matrix take milliseconds
#: Share of the largest value up to which a difference is rounding, in float64 and in float32.
#: Nyström maps add a jitter of 1e-6 to K in float32, which shows near the landmarks.
ROUNDING = {"float64": 1e-10, "float32": 1e-3}


def some_rows(who: str, X: Any, least: int, rng: np.random.Generator) -> Float[Array, "n d"]:
    """Return at most 200 random rows in float64."""
    X = as_matrix(X, who)
    if X.shape[0] < least:
        rows = "one row" if least == 1 else f"{least} rows"
        raise InvalidInput(f"{who}: X must have at least {rows}; got {X.shape[0]}. Pass more.")
    chosen = np.sort(rng.permutation(X.shape[0])[:ROWS])
    return to_numpy(taken(X, chosen, axis=0)).astype(np.float64)


@dataclass(frozen=True)
class Flaw(ShownResult):
    """One thing that is wrong with a kernel.

    Attributes
    ----------
    name : str
        "raises", "shape", "dtype", "finite", "deterministic", "arguments", "rows", "symmetric",
        "diagonal" or "positive".
    sentence : str
        What was required, what came, and what to do.
    evidence : dict
        The numbers: rows, values, eigenvector.
    """

    name: str
    sentence: str
    evidence: dict[str, Any]

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class KernelCheck(ShownResult):
    """What :func:`check_kernel` found; ``print(check)`` says it in sentences.

    Attributes
    ----------
    kernel : Kernel
    n_rows, n_columns : int
        Of the rows it was looked at with.
    flaws : tuple of Flaw
        Empty if there is nothing wrong.
    """

    kernel: Kernel
    n_rows: int
    n_columns: int
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.flaws

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        looked = f"on {self.n_rows} rows of {self.n_columns} columns"
        if self.ok:
            return (
                f"{self.kernel!r} obeys every law of a kernel {looked}: shape, dtype, finite, "
                "symmetric, positive semi-definite, diagonal."
            )
        lines = "".join(f"\n  {flaw.name}: {flaw}" for flaw in self.flaws)
        return f"{self.kernel!r} is not a kernel {looked}:{lines}"


def check_kernel(
    kernel: Kernel, X: Float[Array, "n d"] | None = None, *, random_state: Seed = 0
) -> KernelCheck:
    """Look for what is wrong with a kernel of your own.

    Parameters
    ----------
    kernel : Kernel
        A ``Custom(function)`` or any other kernel.
    X : (n, d), optional
        Rows of your data, of which at most 200 are looked at; by default normal rows of three
        columns, or positive ones where the kernel refuses those. A law that holds on some rows
        may fail on others: your own are the ones that count.
    random_state : int, Generator, RandomState or None, default 0
        Which rows.

    Returns
    -------
    KernelCheck
        ``.ok``, ``.flaws`` and, as ``str``, sentences.

    Notes
    -----
    O(n²) kernel values and O(n³) for the eigenvalues, n ≤ 200. Looked at: shapes, float32 and
    float64 kept, finite values, the same values when asked again and beside other
    rows, arguments unchanged, k(x, y) = k(y, x), ``diag``, and no negative eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Custom
    >>> check = bo.check_kernel(Custom(lambda X, Y: np.tanh(X @ Y.T - 1)))
    >>> check.ok
    False
    >>> [flaw.name for flaw in check.flaws]
    ['positive']
    """
    if not isinstance(kernel, Kernel):
        raise InvalidType(
            f"check_kernel: kernel must be a Kernel; got {kernel!r}. Wrap a function of your own: "
            "Custom(function)."
        )
    rng = stream(seed_of(random_state), "check_kernel")
    rows = _default_rows(kernel, rng) if X is None else some_rows("check_kernel", X, 1, rng)
    return KernelCheck(kernel, rows.shape[0], rows.shape[1], tuple(_flaws(kernel, rows, rng)))


def _default_rows(kernel: Kernel, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    normal = rng.standard_normal((60, 3))
    try:
        kernel(normal[:1])
    except InvalidInput:
        return np.abs(normal)
    except Exception:  # noqa: BLE001  whatever a user's function raises is reported by the check
        return normal
    return normal


def _flaws(kernel: Kernel, X: Float[Array, "n d"], rng: np.random.Generator) -> Iterator[Flaw]:
    """Yield what is wrong; laws of values are looked at where shapes and values are in order."""
    try:
        first = list(_form(kernel, X))
        yield from first
        if not any(flaw.name in {"shape", "finite"} for flaw in first):
            for law in (_repeats, _unchanged, _consistent):
                yield from law(kernel, X)
            yield from _positive(kernel, X, rng)
    except Exception as error:  # noqa: BLE001  the report is of whatever a user's function raises
        yield Flaw(
            "raises",
            f"a kernel must give values for every table of finite rows; it raised "
            f"{type(error).__name__}: {error}",
            {"error": error},
        )


def _form(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    """Shapes, dtypes, finite values."""
    few = X[: max(1, len(X) // 2)]
    asked: list[tuple[str, Callable[[Array], Any], tuple[int, ...]]] = [
        ("k(X, Y)", lambda A: kernel(A[: len(few)], A), (len(few), len(X))),
        ("k(X)", kernel, (len(X), len(X))),
        ("k.diag(X)", kernel.diag, (len(X),)),
    ]
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        for what, ask, shape in asked:
            yield from _form_of(what, ask(rows), shape, dtype)


def _form_of(what: str, K: Any, shape: tuple[int, ...], dtype: str) -> Iterator[Flaw]:
    found = tuple(getattr(K, "shape", ()))
    if found != shape:
        yield Flaw(
            "shape",
            f"{what} must have one value for each pair of rows, shape {shape}; got {found}.",
            {"what": what, "required": shape, "found": found},
        )
        return
    if str(K.dtype) != dtype:
        yield Flaw(
            "dtype",
            f"{what} must keep the precision of the rows; got {K.dtype} for {dtype}. Cast the "
            "result: K.astype(X.dtype).",
            {"what": what, "required": dtype, "found": str(K.dtype)},
        )
    if not np.isfinite(K).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(K))[0])
        yield Flaw(
            "finite",
            f"{what} must be finite; got {K[place]} at {place} in {dtype}, and "
            f"{int((~np.isfinite(K)).sum())} such values in all.",
            {"what": what, "place": place, "value": float(K[place])},
        )


def _repeats(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    first, second = kernel(X), kernel(X)
    if not np.array_equal(first, second):
        worst = float(np.abs(first - second).max())
        yield Flaw(
            "deterministic",
            f"k(X) must be the same when asked again; values differ by up to {worst:.3g}. Fix the "
            "random numbers before the kernel is made.",
            {"difference": worst},
        )


def _unchanged(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    rows, others = X.copy(), X[::-1].copy()
    kernel(rows, others)
    if not (np.array_equal(rows, X) and np.array_equal(others, X[::-1])):
        yield Flaw(
            "arguments",
            "k(X, Y) must leave X and Y as they are; it wrote into them. Copy before you change.",
            {},
        )


def _consistent(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    """Each value must be of its own two rows: blocks of any size give one matrix, symmetric."""
    half = (len(X) + 1) // 2
    law = "a value must depend on its own two rows only; beside other rows it"
    yield from _same("rows", law, kernel(X[:half], X[half - 1 :]), kernel(X, X)[:half, half - 1 :])
    A, B = kernel(X, X.copy()), kernel(X.copy(), X)
    yield from _same("symmetric", "k(x, y) must be k(y, x); it", A, B.T)
    diagonal, values = kernel.diag(X), np.diag(kernel(X))
    yield from _same("diagonal", "k.diag(X) must be the diagonal of k(X); it", diagonal, values)


def _same(name: str, law: str, A: Array, B: Array) -> Iterator[Flaw]:
    gap = np.abs(A - B)
    allowed = ROUNDING["float64"] * max(float(np.abs(B).max()), np.finfo(float).tiny)
    if gap.size == 0 or gap.max() <= allowed:
        return
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    yield Flaw(
        name,
        f"{law} is {A[place]:.6g} instead of {B[place]:.6g} at {place}, and differs in "
        f"{int((gap > allowed).sum())} of {gap.size} values.",
        {"place": place, "values": (float(A[place]), float(B[place])), "largest": float(gap.max())},
    )


def _positive(kernel: Kernel, X: Float[Array, "n d"], rng: np.random.Generator) -> Iterator[Flaw]:
    """Look at all rows, then at few close together: a bump that is no kernel shows there."""
    near = X[0] + 0.1 * (X[rng.permutation(len(X))[:ROWS]] - X[0])
    for rows in (X, np.concatenate([X[:20], near[:40]])):
        K = kernel(rows)
        values, vectors = eigh(0.5 * (K + K.T), driver="evd", check_finite=False)
        if values[0] < -ROUNDING["float64"] * len(K) * max(values[-1], 0.0) or values[-1] < 0:
            c = vectors[:, 0]
            yield Flaw(
                "positive",
                f"K must be positive semi-definite; the smallest of {len(K)} eigenvalues is "
                f"{values[0]:.3g}, the largest {values[-1]:.3g}: Σ c_i c_j k(x_i, x_j) = "
                f"{values[0]:.3g} for the rows and unit vector c in the evidence. "
                "Take another function: there is no feature map for this one.",
                {"smallest": float(values[0]), "largest": float(values[-1]), "rows": rows, "c": c},
            )
            return
