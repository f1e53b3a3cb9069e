"""A metric learned from the targets: recursive feature machines on kernel matrices.

Radhakrishnan et al. (2024), *Mechanism for feature learning in neural networks and
backpropagation-free machine learning models*, algorithm 1: fit with k(x, y) = κ(|x − y|²_A), let A
be the average outer product of the gradients of the fit, and repeat. With f(x) = Σ c_j κ(s_j),
∇f = 2 Σ_j c_j κ'(s_j) A (x − x_j). Scale and penalty are tuned by leave-one-out errors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.kernels.algebra import Mahalanobis
from bochner.kernels.kernel import Kernel
from bochner.selection.lengthscales import MatrixSearch, ProcessRows, squared_distances
from bochner.selection.rows import four_digits, rounded
from bochner.solvers.ridge.dual import KernelRows

#: With more columns than this the metric is diagonal, as the rows do not determine d² entries.
MANY_COLUMNS = 256


@dataclass(frozen=True, eq=False)
class TunedKernel:
    """A tuned kernel in the units of the data, and the start of the search for its penalty."""

    name: str
    kernel: Kernel
    alpha: float
    n_tuned: int  # Number of tuned hyperparameters, without the penalty


def metric_rounds(
    kernel: Any, alpha: float, search: MatrixSearch, rounds: int, brief: bool = False
) -> Iterator[TunedKernel]:
    """Yield the kernel of each round; its scale is tuned on few rows if ``brief``, else on all."""
    rows, d = search.rows, search.rows.X.shape[1]
    diagonal = d > MANY_COLUMNS
    family = kernel.replace(lengthscale=1.0)
    L = np.diag(1 / np.broadcast_to(np.asarray(kernel.lengthscale), d))
    for number in range(rounds):
        L = next_root(family, rows, L, alpha, diagonal)
        transformed = replace(search, rows=replace(rows, X=np.ascontiguousarray(rows.X @ L)))
        end = transformed.rescale(family, alpha, 3 if brief else 6, brief=brief)
        scale = four_digits(float(np.exp(end.x[0])))
        alpha = end.share * float(rows.w.sum())
        if diagonal:
            tuned: Kernel = family.replace(lengthscale=rounded(tuple(scale / np.diag(L))))
        else:
            tuned = Mahalanobis(family, entries(L @ L.T / scale**2))
        n_tuned = d if diagonal else d * (d + 1) // 2
        name = f"{type(family).__name__}, learned metric, round {number + 1}"
        yield TunedKernel(name, tuned, alpha, n_tuned)
        L = L / scale


def next_root(
    family: Any, rows: ProcessRows, L: Float[Array, "d d"], alpha: float, diagonal: bool
) -> Float[Array, "d d"]:
    """Return a root of the mean outer product of a fit's gradients; median distances are kept.

    Entries have seven digits relative to the norm of their row: the same on every processor.
    """
    Z, w = rows.X @ L, rows.w
    s = squared_distances(Z)
    y = rows.y / np.sqrt(np.maximum(w @ (rows.y - w @ rows.y / w.sum()) ** 2, 1e-300))
    K, slope = family.with_slope(s)
    coef = KernelRows(K, y, w, rows.centred).factor(alpha).coef
    slope, M = 2 * slope, np.zeros(L.shape)
    for c in coef.T:
        R = slope * c
        gradient = R.sum(axis=1)[:, None] * Z - R @ Z
        M = M + (np.diag(w @ gradient**2) if diagonal else gradient.T @ (w[:, None] * gradient))
    # In units of the columns' deviations, 1e-4 of the mean eigenvalue is added to each direction.
    to_units = L * rows.spread[:, None]
    M = to_units @ M @ to_units.T
    d = len(M)
    M = M / max(float(np.trace(M)) / d, 1e-300) + 1e-4 * np.eye(d)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T / rows.spread[:, None]
    root *= np.sqrt(_typical_size(s) / max(_typical_size(squared_distances(rows.X @ root)), 1e-300))
    size = np.maximum(np.linalg.norm(root, axis=1, keepdims=True), 1e-300)
    unit = 10.0 ** (np.floor(np.log10(size)) - 6)
    return np.round(root / unit) * unit


def metric_of(kernel: Any, units: Float[Array, " d"]) -> tuple[tuple[float, ...], ...]:
    """Return the metric, scaled to trace d, in units of the columns' deviations."""
    if isinstance(kernel, Mahalanobis):
        A = np.array(kernel.matrix)
    else:
        A = np.diag(np.broadcast_to(np.asarray(kernel.lengthscale), len(units)) ** -2.0)
    A = A * np.outer(units, units)
    return tuple(map(tuple, (A * (len(A) / np.trace(A))).tolist()))


def _typical_size(s: Float[Array, "m m"]) -> float:
    pairs = s[np.tri(len(s), k=-1, dtype=bool)]
    pairs = pairs[pairs > 0]
    return float(np.median(pairs)) if len(pairs) else 1.0


def entries(A: Float[Array, "d d"]) -> tuple[tuple[float, ...], ...]:
    """Return the entries with ten digits; with fewer A may not be positive definite."""
    symmetric = ((A + A.T) / 2).tolist()
    return tuple([tuple(map(float, map("{:.10g}".format, row))) for row in symmetric])
