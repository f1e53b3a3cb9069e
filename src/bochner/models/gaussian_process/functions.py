"""Functions drawn from a Gaussian process' posterior: values that are called at any rows.

Pathwise (Wilson et al. 2020, with inducing values drawn from their posterior): with landmarks S,
L Lᵀ = k(S, S), φ(x) = L⁻¹k(S, x), and f⁰ drawn from the prior,

    f(x) = φ(x)·β + b + a (f⁰(x) − φ(x)·L⁻¹f⁰(S)),      β, b from their posterior.

The difference is what the landmarks leave out of f⁰, independent of β. A map without landmarks
borrows some among the rows, and the difference is scaled to the variance that the map leaves out.
f⁰ is a weighted sum of Fourier features, drawn for each function: its covariance is exactly k.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import from_numpy, joined, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import Nystrom, NystromMap
from bochner.features.rules import draw_map
from bochner.models.gaussian_process.posterior import EXPLAINED, LeftOut, Predictive
from bochner.models.representations.features import FeatureSums
from bochner.selection.chosen import Chosen

#: Fourier features of each prior function.
WIDTH = 1024

#: Rows on which it is checked whether a map leaves part of the kernel out.
LOOK_ROWS = 256


@dataclass(frozen=True, eq=False)
class Functions:
    """n functions: ``functions(X)`` gives their values at rows, (m, n) or (m, t, n).

    Notes
    -----
    Cost O(m D (d + n t)), and O(m F d) for each function, F = 1024.
    """

    rows: Callable[[Any], Blocks]  # Checked blocks of the rows that a user passes
    chosen: Chosen
    law: Predictive
    target_shape: tuple[int, ...]
    coef: Float[Array, "D t n"]
    offset: Float[Array, "t n"]
    landmarks: NystromMap | None  # S
    # f⁰ of each function and L⁻¹f⁰(S); empty if the map is exact or the kernel has no Fourier
    # features: functions are then drawn from the features only
    priors: tuple[tuple[FeatureMap, Array, Array], ...]

    def __len__(self) -> int:
        return self.offset.shape[1]

    def __call__(self, X: Array) -> Array:
        """Return the values at rows X; the same rows give the same values in any call."""
        return joined([self._values(block.X) for block in self._blocks(X)])

    def _blocks(self, X: Array) -> Any:
        return self.rows(X).with_rows(block_rows(max(self.chosen.n_features, WIDTH)))

    def _values(self, X: Array) -> Array:
        Z = self.chosen.double(X)
        values = np.tensordot(Z, self.coef, 1) + self.offset
        if self.landmarks is not None:
            values = self._with_rest(self.law, self.landmarks, X, Z, values)
        return from_numpy(values.reshape(len(Z), *self.target_shape, len(self)), like=X)

    def _with_rest(
        self, law: Predictive, landmarks: NystromMap, X: Array, Z: Array, values: Array
    ) -> Array:
        """Add what landmarks leave out of f⁰, with the variance e(x) of the map."""
        inside = LeftOut(landmarks.kernel, landmarks).inside(X, Z)
        own, whole = law.factors(X, Z)
        scale = (
            np.sqrt(law.posterior.evidence.amplitude) * own * _ratio(law.left_out, landmarks, X, Z)
        )
        rest = [to_numpy(f0(X)) @ weights - inside @ at for f0, weights, at in self.priors]
        values = values + scale[:, :, None] * np.stack(rest, axis=2)
        mean = law.posterior.mean(Z)[:, :, None]
        return mean + whole[:, :, None] * (values - mean)


def _ratio(left_out: LeftOut, landmarks: NystromMap, X: Array, Z: Array) -> Float[Array, "b 1"]:
    """Return √(e(x)/e of the landmarks): one where these are the map's own."""
    theirs = LeftOut(left_out.kernel, landmarks).variance(X, Z)
    least = EXPLAINED * left_out.prior(X)
    share = np.zeros_like(theirs)
    np.divide(left_out.variance(X, Z), theirs, out=share, where=theirs > least)
    return np.sqrt(share)[:, None]


def draw_functions(
    rows: Callable[[Any], Blocks], summed: FeatureSums, law: Predictive, n: int, seed: int
) -> Functions:
    """Draw n functions of the posterior of a fit."""
    coef, offset = law.posterior.draw(n, stream(seed, "functions"))
    landmarks, t = _landmarks(summed, law.left_out), offset.shape[0]
    maps = [] if landmarks is None else [_fourier(landmarks, seed, str(i)) for i in range(n)]
    given = (rows, summed.chosen, law, summed.target_shape, coef, offset)
    if landmarks is None or None in maps:
        return Functions(*given, None, ())
    priors = tuple(_prior(f0, landmarks, t, seed, i) for i, f0 in enumerate(maps) if f0)
    return Functions(*given, landmarks, priors)


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
    found = draw_map(Nystrom(), chosen.kernel, ask)
    return found if isinstance(found, NystromMap) else None


def _prior(
    f0: FeatureMap, landmarks: NystromMap, t: int, seed: int, i: int
) -> tuple[FeatureMap, Array, Array]:
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
