"""Gradients, Hessians and images of features that are read a block at a time.

A Hessian Σ c z zᵀ reads only the rows with c > 0; where those are few beside the features, it costs
next to nothing.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from bochner._core.blas import add_gram, cho_factor, mirror
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.hessian import backward, forward

#: Rows of a block, at most, that are added up in float64 where the features are float32.
FEW = 64

#: Least that a diagonal is taken for.
TINY = 1e-300


class Rows(Protocol):
    """Consecutive rows of features, Z (b, D), and the number of the first."""

    @property
    def Z(self) -> Float[Array, "b D"]: ...
    @property
    def start(self) -> int: ...


class Features(Protocol):
    """Rows of features, that can be read again and again."""

    @property
    def n_features(self) -> int: ...
    def __iter__(self) -> Iterator[Rows]: ...


def pull_of(
    features: Features,
    slope: Float[Array, "n t"],
    see: Callable[[Array, slice], object] | None = None,
) -> Float[Array, "p t"]:
    """Return [Z 1]ᵀ slope, by one pass; ``see(Z, rows)`` is shown every block."""
    pull = np.zeros((slope.shape[1], features.n_features + 1))
    for block in features:
        rows = slice(block.start, block.start + len(block.Z))
        pull += backward(block.Z, slope[rows])
        if see is not None:
            see(block.Z, rows)
    return pull.T


class Hessian:
    """Adds up Σ c z zᵀ, each z with a one after its features, from the rows with c > 0."""

    def __init__(self, p: int) -> None:
        self._p = p
        self._sum = np.zeros((p, p), order="F")

    def add(self, Z: Float[Array, "b D"], c: Float[Array, " b"]) -> None:
        """Add the rows of a block."""
        kept = np.flatnonzero(c > 0)
        if not len(kept):
            return
        root = np.sqrt(c[kept])
        wide = Z.dtype if len(kept) > FEW else np.float64
        A = np.empty((len(kept), self._p), wide)
        A[:, :-1] = Z[kept]
        A[:, -1] = 1
        A *= root[:, None]
        if A.dtype == np.float64:
            add_gram(self._sum, A)
            return
        part = np.zeros((self._p, self._p), A.dtype, order="F")
        add_gram(part, A)
        self._sum += part

    def total(self) -> Float[Array, "p p"]:
        """Return the sum."""
        return mirror(self._sum)


def direction(
    H: Float[Array, "p p"],
    pull: Float[Array, " p"],
    alpha: float,
    farthest: float,
    free: bool = True,
) -> Float[Array, " p"]:
    """Return −(H + alpha I)⁻¹ times the gradient, alpha for the features only.

    The intercept moves by about ``farthest`` at most where no row holds it, and not at all unless
    it is free. H is overwritten.
    """
    p = len(H)
    H[np.arange(p - 1), np.arange(p - 1)] += alpha
    H[-1, -1] = max(H[-1, -1], abs(pull[-1]) / farthest, TINY)
    if not free:
        H[-1, :-1] = H[:-1, -1] = 0
    diagonal = np.diag(H).copy()
    for jitter in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        H[np.arange(p), np.arange(p)] = (1 + jitter) * diagonal
        try:
            return -cho_solve(cho_factor(H, lower=True), pull)
        except LinAlgError:
            continue
    return -pull / diagonal


def images(features: Features, steps: Float[Array, "p t"], n: int) -> Float[Array, "n t"]:
    """Return [Z 1] steps, by one pass."""
    image = np.empty((n, steps.shape[1]))
    for block in features:
        image[block.start : block.start + len(block.Z)] = forward(block.Z, steps.T)
    return image
