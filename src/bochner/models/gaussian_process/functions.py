"""Functions drawn from the posterior of a Gaussian process, to be called at any rows.

Pathwise (Wilson et al. 2020). With the kernel itself by Matheron's rule (their eq. 8), f⁰ and ε
drawn from the prior:

    f(x) = a f⁰(x) + k(x, X) c + b,

where c and b solve the fit to y − a (f⁰(X) + ε); the uncertainty of b, which has a flat prior, is
included in these targets. Through features with inducing values drawn from their posterior: with
landmarks S, L Lᵀ = k(S, S) and φ(x) = L⁻¹k(S, x),

    f(x) = φ(x)·β + b + a (f⁰(x) − φ(x)·L⁻¹f⁰(S)),      β, b from their posterior.

The difference is what the landmarks leave out of f⁰, independent of β. For a map without
landmarks, some rows are used as landmarks, and the difference is scaled to the variance that the
map leaves out.
f⁰ is a weighted sum of Fourier features, drawn for each function: its covariance is exactly k.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import from_numpy, joined, numpy_rows, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import Nystrom, NystromMap
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.models.gaussian_process.posterior import EXPLAINED, LeftOut, Predictive
from bochner.models.representations.features import FeatureSums
from bochner.solvers.ridge.dual import KernelFactor
from bochner.solvers.ridge.evidence import Evidence

WIDTH = 1024  # Features of each prior function
LOOK_ROWS = 256  # Rows on which it is checked whether a map leaves part of the kernel out

#: Values of n functions at rows, (b, t, n).
Values = Callable[[Array], Float[Array, "b t n"]]


@dataclass(frozen=True, eq=False)
class Functions:
    """n functions: ``functions(X)`` gives their values at rows, (m, n) or (m, t, n)."""

    rows: Callable[[Any], Blocks]  # Checked blocks of the rows that a user passes
    values: Values
    block_rows: int
    target_shape: tuple[int, ...]
    count: int

    def __len__(self) -> int:
        return self.count

    def __call__(self, X: Array) -> Array:
        """Return the values at rows X; the same rows give the same values in any call."""
        parts, shape = [], (*self.target_shape, self.count)
        for block in self.rows(X).with_rows(self.block_rows):
            values = self.values(block.X)
            parts.append(from_numpy(values.reshape(len(values), *shape), like=block.X))
        return joined(parts)


# --- Through features: O(m D (d + n t)), and O(m F d) for each function, F = 1024 ----------------


def through_features(summed: FeatureSums, law: Predictive, n: int, seed: int) -> Values:
    """Draw n functions of the posterior of a fit.

    They are drawn from the features only if the map is exact or the kernel has no Fourier features.
    """
    chosen = summed.chosen
    coef, offset = law.posterior.draw(n, stream(seed, "functions"))
    landmarks = _landmarks(summed, law.left_out)
    maps = [] if landmarks is None else [_fourier(landmarks, seed, str(i)) for i in range(n)]

    def plain(X: Array) -> Float[Array, "b t n"]:
        return np.tensordot(chosen.double(X), coef, 1) + offset

    if landmarks is None or None in maps:
        return plain
    priors = [_prior(f0, landmarks, len(offset), seed, i) for i, f0 in enumerate(maps) if f0]
    above = LeftOut(landmarks.kernel, landmarks)

    def values(X: Array) -> Float[Array, "b t n"]:
        Z, f = chosen.double(X), plain(X)
        inside = above.inside(X, Z)
        rest = [to_numpy(f0(X)) @ weights - inside @ at for f0, weights, at in priors]
        root, roots = law.factors(X, Z)
        scale = np.sqrt(law.posterior.evidence.amplitude) * root * _ratio(law.left_out, above, X, Z)
        mean = law.posterior.mean(Z)[:, :, None]
        f = f + scale[:, :, None] * np.stack(rest, axis=2)
        return mean + roots[:, :, None] * (f - mean)

    return values


def _ratio(left_out: LeftOut, above: LeftOut, X: Array, Z: Array) -> Float[Array, "b 1"]:
    """Return √(e(x)/e of the landmarks): one where these are the map's own."""
    theirs = above.variance(X, Z)
    share = np.zeros_like(theirs)
    least = EXPLAINED * left_out.prior(X)
    np.divide(left_out.variance(X, Z), theirs, out=share, where=theirs > least)
    return np.sqrt(share)[:, None]


def _landmarks(summed: FeatureSums, left_out: LeftOut) -> NystromMap | None:
    """Return the map's landmarks, or others where it has none and leaves something out."""
    chosen = summed.chosen
    if left_out.landmarks is not None:
        return left_out.landmarks
    if isinstance(chosen.map, NystromMap):
        return chosen.map
    X = summed.sample.lowest(LOOK_ROWS).X
    if np.all(left_out.variance(X, chosen.double(X)) <= EXPLAINED * left_out.prior(X)):
        return None
    ask = Request(X.shape[1], chosen.n_features, chosen.seed, ("functions",), summed.sample.X)
    phi = draw_map(Nystrom(), chosen.kernel, ask)
    return phi if isinstance(phi, NystromMap) else None


def _prior(
    f0: FeatureMap, landmarks: NystromMap, t: int, seed: int, i: int
) -> tuple[FeatureMap, Array, Array]:
    """Return features, weights (F, t) of f⁰, and L⁻¹f⁰(S), (m, t)."""
    weights = stream(seed, "prior functions", i).standard_normal((f0.n_features, t))
    at = np.ascontiguousarray((f0(landmarks.landmarks) @ weights).T)
    return f0, weights, landmarks.whiten(at).T


def _fourier(landmarks: NystromMap, seed: int, name: str) -> FeatureMap | None:
    """Return Fourier features of the kernel, or None if it has none."""
    ask = Request(landmarks.n_inputs, WIDTH, seed, ("prior", name))
    try:
        return draw_map(Fourier(IID()), landmarks.kernel, ask)
    except UnsupportedKernel:
        return None


# --- With the kernel itself: O(m N (d + n t)), and O(m F d) for each function ---------------------


def with_kernel(
    kernel: Kernel, kept: Any, evidence: Evidence, posteriors: list[KernelFactor], n: int, seed: int
) -> Values:
    """Draw n functions of the posterior of a fit to rows that are ``kept``, X, y and w.

    ``posteriors`` has one entry per target. Without Fourier features of the kernel f⁰ is of
    Nyström features.
    """
    priors, coefs, offsets, amplitude = [], [], [], evidence.amplitude
    for i in range(n):
        ask = Request(kept.X.shape[1], WIDTH, seed, ("prior", str(i)), kept.X)
        try:
            f0 = draw_map(Fourier(IID()), kernel, ask)
        except UnsupportedKernel:
            f0 = draw_map(Nystrom(), kernel, ask)
        rng = stream(seed, "prior functions", i)
        weights = rng.standard_normal((f0.n_features, kept.y.shape[1])) * np.sqrt(
            evidence.amplitude
        )
        rough = rng.standard_normal(kept.y.shape) / np.sqrt(kept.w)[:, None]
        noise = rough * np.sqrt(amplitude * evidence.alpha)
        left = kept.y - to_numpy(f0(kept.X)) @ weights - noise
        ends = [one.coefficients(left[:, j : j + 1]) for j, one in enumerate(posteriors)]
        priors.append((f0, weights))
        coefs.append(np.hstack([coef for coef, _ in ends]))
        offsets.append(np.concatenate([offset for _, offset in ends]))
    coef, offset = np.stack(coefs, axis=2), np.stack(offsets, axis=1)

    def values(X: Array) -> Float[Array, "b t n"]:
        rows = numpy_rows(X)
        k = np.asarray(to_numpy(kernel(rows, kept.X)), np.float64)
        prior = np.stack([to_numpy(f0(rows)) @ weights for f0, weights in priors], axis=2)
        return prior + np.tensordot(k, coef, 1) + offset

    return values
