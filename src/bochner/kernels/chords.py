"""Radial kernels of |x − y|, by integrals over the angle."""

from dataclasses import dataclass
from typing import final

import numpy as np

from bochner._core.shapes import Float
from bochner.errors import UnsupportedKernel
from bochner.kernels import stationary
from bochner.kernels.degrees import Radial
from bochner.kernels.gegenbauer import angles, log_alpha, n_nodes, orthonormals

PAIRS = 4096
"""Pairs of radii at a time, where each needs an integral over angles."""


@final
@dataclass(frozen=True)
class DistanceRadial(Radial):
    """R_l(r, s) = α_l E k(√((r − s)² + 4 r s sin²(θ/2))) P_l(cos θ), by quadrature in θ.

    θ = πu², 400 + 2l nodes or more: they gather at θ = 0, where k need not be smooth. The error
    is about √α_l eps, absolute.
    """

    kernel: stationary.Radial
    d: int

    @property
    def n_inputs(self) -> int:
        return self.d

    def matrix(
        self, degree: int, r: Float[np.ndarray, " a"], s: Float[np.ndarray, " b"]
    ) -> Float[np.ndarray, "a b"]:
        return self._integrals(degree, r, s, slice(degree, degree + 1))[0]

    def matrices(
        self, degree: int, r: Float[np.ndarray, " a"], s: Float[np.ndarray, " b"]
    ) -> Float[np.ndarray, "q a b"]:
        return self._integrals(degree, r, s, slice(None))

    def _integrals(self, degree: int, r: np.ndarray, s: np.ndarray, which: slice) -> np.ndarray:
        """Return the chosen degrees, (chosen, a, b), a bounded number of pairs at a time."""
        r, s = (np.asarray(v, dtype=np.float64) for v in (r, s))
        theta, w = angles(self.d, n_nodes(self.d, degree), towards_zero=True)
        p = np.stack(orthonormals(degree, self.d, np.cos(theta))[which]) * w
        chord = 4.0 * np.sin(0.5 * theta) ** 2
        i, j = _pairs(r, s)
        values = np.empty((len(p), len(i)))
        scale = one_lengthscale(self.kernel) ** 2
        for start in range(0, len(i), PAIRS):
            some = slice(start, start + PAIRS)
            a, b = r[i[some], None], s[j[some], None]
            k = self.kernel.profile(((a - b) ** 2 + a * b * chord) / scale)
            values[:, some] = p @ k.T
        R = np.empty((len(p), len(r), len(s)))
        R[:, i, j] = values
        if len(i) < R[0].size:
            R[:, j, i] = values
        return _signal(R, self.d, np.arange(degree + 1)[which], r, s)


def _pairs(r: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of all pairs of radii; of equal lists, each unordered pair once."""
    if len(r) == len(s) and bool((r == s).all()):
        return np.triu_indices(len(r))
    i, j = np.indices((len(r), len(s)))
    return i.reshape(-1), j.reshape(-1)


def _signal(R: np.ndarray, d: int, degrees: np.ndarray, r: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return √α_l times the means R; zero where they are rounding, and R_l(0, ·) for l ≥ 1.

    A mean of k p_l, |k| ≤ 1, is right to about eps; what is nowhere above ten of them is noise,
    which √α_l would blow up to any size.
    """
    heard = np.abs(R).max(axis=(1, 2), initial=0.0) > 10.0 * np.finfo(float).eps
    R *= np.where(heard, np.exp([0.5 * log_alpha(l, d) for l in degrees.tolist()]), 0.0)[
        :, None, None
    ]
    there = (r > 0)[:, None] & (s > 0)[None, :]
    R *= there | (degrees == 0)[:, None, None]
    return R


def one_lengthscale(kernel: stationary.Stationary) -> float:
    """Return the kernel's lengthscale, or refuse it where columns differ."""
    scale = kernel.lengthscale
    if isinstance(scale, tuple):
        if len(set(scale)) > 1:
            raise UnsupportedKernel(
                "Radial kernels require one lengthscale for all columns; got "
                f"{kernel!r}. Divide the columns of X by their lengthscales first: isotropic()."
            )
        return scale[0]
    return scale
