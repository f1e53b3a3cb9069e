"""Fourier features of a family of kernels, whose frequencies are rescaled and not drawn anew.

ω_j = s_j(ν) b_j/ℓ with directions b_j drawn once and s_j² the quantile, at a level drawn once, of
the family's mixing law at smoothness ν. So a criterion is a smooth function of all log ℓ and log ν,
and with P = XW, Z = m^(−½) [cos P, sin P] and the criterion's gradient [C, S] in Z

    ∂/∂P = Z_cos ∘ S − Z_sin ∘ C,   ∂/∂W = Xᵀ ∂/∂P,
    ∂/∂log ℓ_k = −Σ_j W_kj (∂/∂W)_kj,   ∂/∂log ν = Σ_j (∂ log s_j/∂ log ν) Σ_k W_kj (∂/∂W)_kj.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core import native
from bochner._core.arrays import is_sparse
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.kernels import Kernel, Matern, Radial, RationalQuadratic, Stationary
from bochner.kernels.spectral import GaussianMixture, One
from bochner.selection.columns import significant

#: Step in log ν of the quantiles' central difference.
STEP = 1e-4

#: Pairs of rows that a median distance is of: so many, or as many as have these cells together,
#: but no fewer than the last. Cells that are looked at together.
PAIRS, MOST_CELLS, FEWEST_PAIRS, CELLS = 4096, 20_000_000, 500, 1 << 20


def family_of(kernel: Kernel) -> Stationary:
    """Return the kernel at lengthscale 1, or say that it has none to tune."""
    if isinstance(kernel, Stationary) and "lengthscale" in kernel.get_params(deep=False):
        return kernel.replace(lengthscale=1.0)
    raise UnsupportedKernel(
        "Tuning requires a stationary kernel with a lengthscale (Gaussian, Matern, Exponential, "
        f"RationalQuadratic, Laplace, Cauchy), or one of their names; got {kernel!r}. Choose "
        "other kernels by the estimator's error on rows that were held out."
    )


def shape_name(kernel: Kernel) -> str | None:
    """Return the name of the parameter that says how smooth functions are, if it can be tuned."""
    names: dict[type, str] = {Matern: "smoothness", RationalQuadratic: "shape"}
    return names.get(type(kernel))


def in_numbers(scales: Float[Array, " d"], one: bool) -> float | tuple[float, ...]:
    """Return lengthscales as a kernel has them: one number where one serves all columns.

    They are rounded to four digits: the last ones of a float64 differ between processors.
    """
    if one and np.ptp(scales) <= 1e-9 * scales.max():
        return significant(float(scales[0]))
    return tuple(map(significant, scales.tolist()))


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that a criterion is computed on, centred and in units of their columns.

    Attributes
    ----------
    X : (n, d)
    y : (n, t) float64
    w : (n,) float64
    units : (d,) float64
        What columns were divided by.
    """

    X: Array
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    units: Float[Array, " d"]

    @staticmethod
    def of(X: Array, y: Array, w: Array, units: Array, dtype: Any = np.float64) -> "Rows":
        """Return checked rows in their units; dense rows are centred, which no kernel here sees."""
        if is_sparse(X):
            return Rows(X.multiply(1 / units).tocsr().astype(dtype), y, w, units)
        scaled = (X - w @ X / w.sum()) / units
        return Rows(np.ascontiguousarray(scaled, dtype=dtype), y, w, units)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def count(self) -> float:
        """Rows, a row of weight w as w of them."""
        return max(float(self.w.sum()), len(self.w))

    def take(self, rows: Array) -> "Rows":
        """Return these rows."""
        X = self.X[rows]
        return replace(
            self, X=X if is_sparse(X) else np.ascontiguousarray(X), y=self.y[rows], w=self.w[rows]
        )

    def first(self, n: int) -> "Rows":
        """Return the first n rows, or all."""
        return self if len(self) <= n else self.take(np.arange(n))

    def log_median(self, seed: int, logs: Array | float = 0.0, order: int = 2) -> float:
        """Return the log of the median distance, columns divided by their e^logs.

        Of order 2 the distance is Euclidean, of order 1 the sum of columns.
        """
        d = self.X.shape[1]
        count = min(PAIRS, max(FEWEST_PAIRS, MOST_CELLS // d))
        pairs = stream(seed, "pairs").integers(len(self), size=(2, count))
        step, factors = max(1, CELLS // d), np.exp(-np.broadcast_to(logs, d))[None, :]
        blocks = (pairs[:, start : start + step] for start in range(0, count, step))
        sums = [_powers(self.X[i] - self.X[j], factors, order) for i, j in blocks]
        lengths = np.concatenate(sums) ** (1 / order)
        if not np.any(lengths > 0):
            return 0.0
        return round(float(np.log(np.median(lengths[lengths > 0]))), 6)


def _powers(differences: Array, factors: Float[Array, "1 d"], order: int) -> Float[Array, " p"]:
    """Return Σ_j |δ_j f_j|^order of each row."""
    if is_sparse(differences):
        return np.asarray(abs(differences.multiply(factors)).power(order).sum(axis=1)).reshape(-1)
    return (np.abs(differences * factors) ** order).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A family of kernels with its base frequencies.

    Attributes
    ----------
    family : Kernel
        At lengthscale 1.
    base : (d, m)
        Frequencies at lengthscale 1; for kernels of the Euclidean distance those of the Gaussian.
    levels : (m,)
        Levels of the mixing law's quantiles.
    """

    family: Stationary
    base: Float[Array, "d m"]
    levels: Float[Array, " m"]

    @staticmethod
    def draw(kernel: Kernel, d: int, n_features: int, seed: int) -> "Rescaled":
        """Draw the base of a family: D/2 frequencies, levels one in each m-th of (0, 1)."""
        family, m = family_of(kernel), max(1, n_features // 2)
        rng = stream(seed, "tuning")
        levels = (rng.permutation(m) + 0.5) / m
        if isinstance(family, Radial):
            base = Orthogonal().place(GaussianMixture(One(), (1.0,) * d), m, rng)
        else:
            base = IID().place(family.spectral_measure(d), m, rng)
        return Rescaled(family, base, levels)

    def frequencies(self, logs: Float[Array, " d"], log_shape: float | None) -> Array:
        """Return W, (d, m), at these log lengthscales and, if it is not the family's own, log ν."""
        return self.base * (self._radii(log_shape) * np.exp(-logs)[:, None])

    def features(self, X: Array, W: Float[Array, "d m"]) -> Float[Array, "n D"]:
        """Return [cos XW, sin XW]/√m in the precision of X."""
        scale = W.shape[1] ** -0.5
        if is_sparse(X):
            P = X @ W.astype(X.dtype)
            return scale * np.hstack([np.cos(P), np.sin(P)])
        return native.cos_sin(X, np.ascontiguousarray(W / (2 * np.pi), dtype=X.dtype), scale)

    def angles(self, X: Array, logs: Float[Array, " d"]) -> tuple["Rescaled", Array]:
        """Return rows as their angles x·b_j/ℓ, in their precision, and the family's base for these.

        Where one number is tuned for all columns, this is all that it multiplies.
        """
        P = X @ (self.base * np.exp(-logs)[:, None]).astype(X.dtype)
        return replace(self, base=np.eye(P.shape[1])), P

    def through(
        self, X: Array, W: Array, Z: Array, gradient: Array, log_shape: float | None
    ) -> tuple[Float[Array, " d"], float]:
        """Return a criterion's gradient in log ℓ (d,) and log ν, given that in the features."""
        m = W.shape[1]
        by_angle = Z[:, :m] * gradient[:, m:] - Z[:, m:] * gradient[:, :m]
        turned = W * np.asarray(X.T @ by_angle, dtype=np.float64)
        if log_shape is None:
            return -turned.sum(axis=1), 0.0
        rates = np.log(self._radii(log_shape + STEP) / self._radii(log_shape - STEP)) / (2 * STEP)
        return -turned.sum(axis=1), float(turned.sum(axis=0) @ rates)

    def kernel(self, lengthscale: Any, log_shape: float | None) -> Stationary:
        """Return the kernel of the family with these numbers."""
        name = shape_name(self.family)
        shape = {} if name is None or log_shape is None else {name: float(np.exp(log_shape))}
        return self.family.replace(lengthscale=lengthscale, **shape)

    def _radii(self, log_shape: float | None) -> Float[Array, " m"]:
        if not isinstance(self.family, Radial):
            return np.ones(len(self.levels))
        family: Any = self.kernel(1.0, log_shape)
        return np.sqrt(family.mixing.quantile(self.levels))
