"""Random features of infinitely wide ReLU networks, layer by layer.

With u = x/|x|, Σ_0 = K_0 = ⟨u, v⟩ and the angle kernels κ_1(Σ) = ½Σ + A(Σ), A = ½ E|a||b|, and
κ_0(Σ) = ½ + ½ E sgn a sgn b of `arccosine`, a layer is

    Σ_h = ½ Σ_{h−1} + A(Σ_{h−1}),    K_h = ½ K_{h−1} + T_h + Σ_h,    T_h = ½ E[sgn a sgn b] K_{h−1}.

Hence the kernels of depth L are sums of what each layer adds,

    Σ_L = 2^−L ⟨u, v⟩ + Σ_j 2^−(L−j) A_j,
    K_L = (L + 1) 2^−L ⟨u, v⟩ + Σ_j 2^−(L−j) [(L − j + 1) A_j + T_j]:

exact features of ⟨u, v⟩, and random ones of A_j and T_j, each drawn on top of the features of the
layer below.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    dense,
    is_numpy,
    moved,
    taken,
)
from bochner._core.blas import product
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features.combine import in_rounds
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.rules import Request, leaf_map
from bochner.kernels import Kernel
from bochner.kernels.angle import NNGP, NeuralTangent, directions


@dataclass(frozen=True)
class NeuralTangentFeatures(Method):
    """Recursive random features of ``NeuralTangent(depth)`` and ``NNGP(depth)``.

    Parameters
    ----------
    split : bool, optional
        False: as published, Zandieh et al. (2021), with random features: each layer has features
        √(2/m)(Wφ)₊ of Σ_h, steps of its derivative, and TensorSRHT of the product of those with
        the features of K_{h−1}.
        True: the linear parts are carried along exactly, directions are orthogonal, and each sign
        multiplies one coordinate of a randomised Hadamard transform of the features of K_{h−1}.
        Default: True where the d exact columns are at most half of the features.

    Notes
    -----
    Unbiased for one layer; deeper, the bias is of the order of the variance, 1/D. Split, the
    error is a third of that of the published form at equal width for one or two layers, half for
    four. Rows of zeros are sent to zeros. Cost of φ(X): O(n D²) for each layer, memory O(L D²).
    Choose it for d above about ten; in lower d ``MercerHarmonic`` is far more accurate.
    """

    split: bool | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.split not in (None, True, False):
            raise InvalidType(
                f"NeuralTangentFeatures: split must be True, False or None; got {self.split!r}."
            )


@dataclass(frozen=True, eq=False)
class NeuralMap(FeatureMap):
    """Exact linear features, and what each layer adds to them.

    Attributes
    ----------
    ramps : tuple of (p, m_j) float64
        Unit directions of the features |a| of A_j, on top of the p features of Σ_{j−1}.
    steps : tuple of (p, s_j) float64
        Unit directions of the signs in T_j; none for ``NNGP``.
    signs : tuple of (P,) float64
        ±1, of the Hadamard transform of the features of K_{j−1}, padded to a power of two.
    picks : tuple of (s_j,) int
        Which coordinate of it each sign multiplies.

    Notes
    -----
    The first d columns are u|x| times a factor; then A_1, T_1, A_2, T_2, and so on.
    """

    kernel: NeuralTangent | NNGP
    inputs: int
    ramps: tuple[Float[Array, "p m"], ...]
    steps: tuple[Float[Array, "p s"], ...]
    signs: tuple[Float[Array, " P"], ...]
    picks: tuple[Array, ...]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """d, and the directions of all layers."""
        return self.inputs + sum(W.shape[1] for W in (*self.ramps, *self.steps))

    @property
    def below_kernel(self) -> bool:
        """Errors have both signs."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the features of all layers, (n, D)."""
        u, length = directions(dense(X))
        linear, tangent = [u], [u]  # blocks of Σ_h and of K_h without their factors
        for h, W in enumerate(self.ramps):
            below = _joined(linear, _halves(h))
            added = abs(_times(below, W)) * (W.shape[0] / (2 * W.shape[1])) ** 0.5
            if self.steps:
                V = self.steps[h]
                mixed = _mixed(_joined(tangent, _weights(h)), self.signs[h], self.picks[h])
                xp = array_namespace(mixed)
                tangent += [added, xp.sign(_times(below, V)) * mixed * (2 * V.shape[1]) ** -0.5]
            linear.append(added)
        depth = len(self.ramps)
        last = (tangent, _weights(depth)) if self.steps else (linear, _halves(depth))
        return _joined(*last) * length[:, None]


@dataclass(frozen=True, eq=False)
class NeuralSketch(FeatureMap):
    """The published form: ReLU features, and TensorSRHT of steps with the layer below.

    Attributes
    ----------
    ramps, steps : tuple of (p, m) float64
        Gaussian weights of ReLU and of step features of each layer; no steps for ``NNGP``.
    signs : tuple of ((P,), (Q,)) float64
        ±1, of the two Hadamard transforms.
    picks : tuple of ((s,), (s,)) int
        Coordinates of them that are multiplied.
    """

    kernel: NeuralTangent | NNGP
    ramps: tuple[Float[Array, "p m"], ...]
    steps: tuple[Float[Array, "p m"], ...]
    signs: tuple[tuple[Array, Array], ...]
    picks: tuple[tuple[Array, Array], ...]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.ramps[0].shape[0]

    @property
    def n_features(self) -> int:
        """ReLU features of the last layer, and the sketch."""
        return self.ramps[-1].shape[1] + (len(self.picks[-1][0]) if self.picks else 0)

    @property
    def below_kernel(self) -> bool:
        """Errors have both signs."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the features of the last layer, (n, D)."""
        u, length = directions(dense(X))
        linear, tangent = u, u
        for h, W in enumerate(self.ramps):
            projected = _times(linear, W)
            following = (projected + abs(projected)) * (0.5 / W.shape[1]) ** 0.5
            if self.steps:
                V, (left, right), (i, k) = self.steps[h], self.signs[h], self.picks[h]
                xp = array_namespace(following)
                step = (1 + xp.sign(_times(linear, V))) * (0.5 / V.shape[1]) ** 0.5
                sketch = _mixed(step, left, i) * _mixed(tangent, right, k)
                tangent = xp.concat([following, sketch * len(i) ** -0.5], axis=1)
            linear = following
        return (tangent if self.steps else linear) * length[:, None]


# --- What both do --------------------------------------------------------------------------------


def _halves(h: int) -> list[float]:
    """Return the roots of the factors in Σ_h: of ⟨u, v⟩, A_1, ..., A_h."""
    return [2.0 ** (-h / 2), *(2.0 ** (-(h - j) / 2) for j in range(1, h + 1))]


def _weights(h: int) -> list[float]:
    """Return the roots of the factors in K_h: of ⟨u, v⟩, A_1, T_1, ..., A_h, T_h."""
    layers = (((h - j + 1) ** 0.5 * 2.0 ** (-(h - j) / 2), 2.0 ** (-(h - j) / 2)) for j in _to(h))
    return [((h + 1) * 2.0**-h) ** 0.5, *(factor for pair in layers for factor in pair)]


def _to(h: int) -> range:
    return range(1, h + 1)


def _joined(blocks: list[Array], factors: list[float]) -> Array:
    xp = array_namespace(blocks[0])
    return xp.concat([b * f for b, f in zip(blocks, factors, strict=True)], axis=1)


def _times(A: Float[Array, "n p"], W: Float[Array, "p m"]) -> Float[Array, "n m"]:
    if is_numpy(A):
        return product(A, W.astype(A.dtype, copy=False))
    return A @ moved(W, like=A)


def _mixed(Y: Float[Array, "n p"], signs: Float[Array, " P"], picks: Array) -> Float[Array, "n s"]:
    """Return coordinates of H D y: H the ±1 matrix of Hadamard, D the signs, y padded by zeros."""
    return taken(signed_walsh(Y, signs), picks, axis=1)


# --- Rules ---------------------------------------------------------------------------------------


@leaf_map.register
def _(method: NeuralTangentFeatures, kernel: Kernel, ask: Request) -> FeatureMap:
    if not isinstance(kernel, NeuralTangent | NNGP):
        raise UnsupportedKernel(
            f"NeuralTangentFeatures requires NeuralTangent(depth) or NNGP(depth); got {kernel!r}. "
            "ReLU(order) serves ArcCosine(order), Nystrom(...) every kernel."
        )
    split = 2 * ask.n_inputs <= ask.n_features if method.split is None else method.split
    return _split_map(kernel, ask) if split else _published_map(kernel, ask)


def _split_map(kernel: NeuralTangent | NNGP, ask: Request) -> NeuralMap:
    d, tangent = ask.n_inputs, isinstance(kernel, NeuralTangent)
    widths = _widths(kernel, ask.n_features - d)
    ramps, steps, signs, picks = [], [], [], []
    below, full = d, d
    for h, (m, s) in enumerate(widths):
        rng = ask.part(str(h), 0).stream("layer")
        ramps.append(_orthogonal(below, m, rng))
        if tangent:
            steps.append(_orthogonal(below, s, rng))
            signs.append(rng.choice((-1.0, 1.0), power_of_two(full)))
            picks.append(in_rounds(power_of_two(full), s, rng))
        below, full = below + m, full + m + s
    return NeuralMap(kernel, d, *map(tuple, (ramps, steps, signs, picks)))


def _widths(kernel: NeuralTangent | NNGP, total: int) -> list[tuple[int, int]]:
    """Split the random features over layers: to each the root of its variance, its factor."""
    L, tangent = kernel.depth, isinstance(kernel, NeuralTangent)
    shares = [
        ((L - j + 1 if tangent else 1) * 2.0 ** (j - L), j * 2.0 ** (j - L) if tangent else 0.0)
        for j in _to(L)
    ]
    parts = np.array(shares).ravel()
    edges = np.rint(np.cumsum(parts) / parts.sum() * total).astype(int)
    widths = np.diff(edges, prepend=0).reshape(L, 2)
    if (widths[:, 0] < 1).any() or (tangent and (widths[:, 1] < 1).any()):
        raise InvalidInput(
            f"NeuralTangentFeatures: too few features for {kernel!r}, whose exact part leaves "
            f"{total} for the layers. Ask for more features."
        )
    return [(int(m), int(s)) for m, s in widths]


def _published_map(kernel: NeuralTangent | NNGP, ask: Request) -> NeuralSketch:
    D, tangent = ask.n_features, isinstance(kernel, NeuralTangent)
    m = D // 2 if tangent else D
    if m < 1:
        raise InvalidInput(
            f"NeuralTangentFeatures requires at least two features for {kernel!r}; got {D}. "
            "Ask for more."
        )
    layers = list(_published_layers(kernel, ask, m))
    ramps, steps, signs, picks = map(tuple, zip(*layers, strict=True))
    return NeuralSketch(kernel, ramps, *((steps, signs, picks) if tangent else ((), (), ())))


def _published_layers(
    kernel: NeuralTangent | NNGP, ask: Request, m: int
) -> Iterator[tuple[Array, Array, tuple, tuple]]:
    linear = tangent = ask.n_inputs
    for h in range(kernel.depth):
        rng, s = ask.part(str(h), 0).stream("layer"), ask.n_features - m
        W, V = rng.standard_normal((linear, m)), rng.standard_normal((linear, m))
        sizes = power_of_two(m), power_of_two(tangent)
        signs = tuple(rng.choice((-1.0, 1.0), size) for size in sizes)
        yield W, V, signs, tuple(rng.integers(0, size, s) for size in sizes)
        linear, tangent = m, m + s


def _orthogonal(p: int, m: int, rng: np.random.Generator) -> Float[Array, "p m"]:
    """Return m unit directions, in blocks of orthogonal ones, each uniform on the sphere."""
    blocks, left = [], m
    while left > 0:
        Q, R = np.linalg.qr(rng.standard_normal((p, min(p, left))))
        blocks.append(Q * np.where(np.diag(R) < 0, -1.0, 1.0))
        left -= p
    return np.concatenate([np.empty((p, 0)), *blocks], axis=1)
