"""Functions drawn from the exact posterior of few rows: values that are called at any rows.

Pathwise, by Matheron's rule (Wilson et al. 2020, eq. 8): with f⁰ and ε drawn from the prior,

    f(x) = a f⁰(x) + k(x, X) c + b,

where c and b solve the fit to y − a (f⁰(X) + ε). The uncertainty of b, which has a flat prior, is
included in these targets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import from_numpy, is_sparse, joined, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import Nystrom
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.solvers.ridge.dual import KernelFactor
from bochner.solvers.ridge.evidence import Evidence

#: Features of each prior function.
WIDTH = 1024

#: Rows of a block.
BLOCK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class ExactFunctions:
    """n functions: ``functions(X)`` gives their values at rows, (m, n) or (m, t, n).

    Notes
    -----
    Cost O(m N (d + n t)), and O(m F d) for each function, F = 1024.
    """

    rows: Callable[[Any], Blocks]  # Checked blocks of the rows that a user passes
    kernel: Kernel
    X: Any  # Rows of the fit
    target_shape: tuple[int, ...]
    coef: Float[Array, "N t n"]  # Of the kernel and each row, for each function
    offset: Float[Array, "t n"]
    # a f⁰ of each function; of Nyström features if the kernel has no Fourier features
    priors: tuple[tuple[FeatureMap, Array], ...]

    def __len__(self) -> int:
        return self.offset.shape[1]

    def __call__(self, X: Array) -> Array:
        """Return the values at rows X; the same rows give the same values in any call."""
        return joined([self._values(block.X) for block in self.rows(X).with_rows(BLOCK_ROWS)])

    def _values(self, X: Array) -> Array:
        rows = X if is_sparse(X) else np.ascontiguousarray(to_numpy(X), np.float64)
        k = np.asarray(to_numpy(self.kernel(rows, self.X)), np.float64)
        prior = np.stack([to_numpy(f0(rows)) @ weights for f0, weights in self.priors], axis=2)
        values = prior + np.tensordot(k, self.coef, 1) + self.offset
        return from_numpy(values.reshape(k.shape[0], *self.target_shape, len(self)), like=X)


def draw_exact_functions(
    rows: Callable[[Any], Blocks],
    kernel: Kernel,
    kept: Any,
    evidence: Evidence,
    posteriors: list[KernelFactor],
    n: int,
    seed: int,
) -> ExactFunctions:
    """Draw n functions of the posterior of a fit to rows that are ``kept``, X, y and w.

    ``posteriors`` has one entry per target.
    """
    priors, coefs, offsets = [], [], []
    t = kept.y.shape[1]
    for i in range(n):
        f0, rng = _prior(kernel, kept.X, seed, i), stream(seed, "prior functions", i)
        weights = rng.standard_normal((f0.n_features, t)) * np.sqrt(evidence.amplitude)
        rough = rng.standard_normal(kept.y.shape) / np.sqrt(kept.w)[:, None]
        noise = rough * np.sqrt(evidence.amplitude * evidence.alpha)
        left = kept.y - to_numpy(f0(kept.X)) @ weights - noise
        ends = [one.coefficients(left[:, j : j + 1]) for j, one in enumerate(posteriors)]
        priors.append((f0, weights))
        coefs.append(np.hstack([coef for coef, _ in ends]))
        offsets.append(np.concatenate([offset for _, offset in ends]))
    return ExactFunctions(
        rows,
        kernel,
        kept.X,
        kept.target_shape,
        np.stack(coefs, axis=2),
        np.stack(offsets, axis=1),
        tuple(priors),
    )


def _prior(kernel: Kernel, X: Any, seed: int, i: int) -> FeatureMap:
    """Return features of the kernel: Fourier's, or Nyström's where it has none."""
    ask = Request(X.shape[1], WIDTH, seed, ("prior", str(i)), X)
    try:
        return draw_map(Fourier(IID()), kernel, ask)
    except UnsupportedKernel:
        return draw_map(Nystrom(), kernel, ask)
