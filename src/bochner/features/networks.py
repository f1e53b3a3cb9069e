"""Random features of functions of projections: signs, rectified powers, networks, exponentials.

With a direction u uniform on the sphere, t = u·x and s = u·y (Cho and Saul 2009, eq. 1, whose
Gaussian ω is u times an independent length, over which the formulas integrate):

    Angular       1 − 2θ/π = E sgn t sgn s
    ArcCosine(0)  k = ½ + ½ E sgn t sgn s
    ArcCosine(1)  k = ½⟨x, y⟩ + ½ d E |t||s|
    ArcCosine(2)  k = ½|x|²|y|² + ⟨x, y⟩² + ½ d(d + 2) E t|t| s|s|

The polynomials have exact features; only the expectations have random features.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, get_args

import numpy as np

from bochner._core.arrays import adapt, array_namespace, dense, device, is_sparse, take
from bochner._core.checks import MaybeSwitch, word
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.fourier import placements
from bochner.features.fourier.placements import Placements
from bochner.features.map import FeatureMap, Method, Request, balanced_draws, kind_of, times
from bochner.kernels.dotproduct import DotExponential
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Gaussian
from bochner.kernels.zonal import NNGP, Angular, ArcCosine, NeuralTangent, Order, directions

Directions = Annotated[Placements, kind_of("IID(), Orthogonal() or QMC()", *get_args(Placements))]


@dataclass(frozen=True)
class Sign(Method):
    """Signs of random projections: φ(x) = √(1/D) [sgn u_j·x]_j, for ``Angular()``.

    Charikar (2002), section 3: signs are bits of a hash, equal with probability 1 − θ/π.

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        Placement of the directions: ``IID()``, ``Orthogonal()`` or ``QMC()``.

    See Also
    --------
    ReLU : Kernels that also depend on lengths.

    Notes
    -----
    Unbiased; the variance of an entry is (1 − k²)/D with independent directions, less with
    orthogonal ones. |φ(x)|² = 1 exactly, except that a row of zeros has features zero. Cost: one
    product, O(n d D), the cheapest of all maps; memory D d. Use it if only angles matter;
    ``MercerHarmonic`` is more accurate if d is small.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Angular(), bo.Sign(), n_features=64, n_inputs=3)
    ReLUMap(kernel=Angular(), n_inputs=3, n_features=64)
    """

    placement: Directions = field(default_factory=placements.Orthogonal)


@dataclass(frozen=True)
class ReLU(Method):
    """Powers of rectified random projections, for ``ArcCosine(order)``.

    Parameters
    ----------
    order : {0, 1, 2}, default 1
        Order of the kernel: steps, ReLU, squared ReLU.
    placement : Placement, default Orthogonal()
        Placement of the directions: ``IID()``, ``Orthogonal()`` or ``QMC()``.
    split : bool, optional
        Whether the exact polynomial part is split off: 1 feature for order 0, d for order 1,
        d(d + 1)/2 for order 2. Default: if this part is at most half of the features.

    See Also
    --------
    Sign : Signs, for kernels of the angle only.
    NeuralTangentFeatures : Deeper networks.

    Notes
    -----
    With m directions u and t = u·x, split features of order 0, 1, 2 are [√½, √(1/2m) sgn t],
    [x/√2, √(d/2m) |t|], [x ⊗ x, √(d(d + 2)/2m) t|t|]; unsplit ones are √(2 c/m) (t₊)^order with
    c = 1, d, d(d + 2). Both are unbiased; the split reduces the variance about ten times. Cost:
    O(n d D). Use it for rows of any length; ``MercerHarmonic`` is more accurate if d is small.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.ArcCosine(order=1), bo.ReLU(order=1), n_features=64, n_inputs=3)
    ReLUMap(kernel=ArcCosine(order=1), n_inputs=3, n_features=64)
    """

    order: Order = 1
    placement: Directions = field(default_factory=placements.Orthogonal)
    split: MaybeSwitch = None


@dataclass(frozen=True, eq=False)
class ReLUMap(FeatureMap):
    """Signs or powers of projections; if ``split``, after exact polynomial features."""

    kernel: Angular | ArcCosine
    directions: Float[Array, "d m"]  # U, unit columns
    order: int = 0
    split: bool = False

    @property
    def n_features(self) -> int:
        exact = polynomial_width(self.order, self.n_inputs) if self.split else 0
        return exact + self.directions.shape[1]

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        d, m = self.directions.shape
        T = times(X, self.directions)
        xp = array_namespace(T)
        if isinstance(self.kernel, Angular):
            signs = xp.sign(T)
            signs *= m**-0.5
            return signs
        moment = (1, d, d * (d + 2))[self.order]
        if not self.split:  # (t₊)^order; a step is ½ at zero
            positive = 0.5 + 0.5 * xp.sign(T) if self.order == 0 else 0.5 * (T + xp.abs(T))
            return (positive**2 if self.order == 2 else positive) * (2 * moment / m) ** 0.5
        activations = (xp.sign, xp.abs, lambda T: T * xp.abs(T))[self.order](T)
        activations *= (moment / (2 * m)) ** 0.5
        return xp.concat([_polynomial(X, self.order), activations], axis=1)


def polynomial_width(order: int, d: int) -> int:
    """Return the number of exact polynomial features of ``ArcCosine(order)`` in d columns."""
    return (1, d, d * (d + 1) // 2)[order]


def _polynomial(X: Float[Array, "n d"], order: int) -> Float[Array, "n p"]:
    """Return features of ½, ½⟨x, y⟩ or ½|x|²|y|² + ⟨x, y⟩²."""
    X = dense(X)
    xp = array_namespace(X)
    if order == 0:
        return xp.full((X.shape[0], 1), 0.5**0.5, dtype=X.dtype, device=device(X))
    if order == 1:
        return X * 0.5**0.5
    # √2 x_i x_j, i < j, and x_i² + c|x|²: the root of I + ½ 11ᵀ is I + c 11ᵀ.
    d = X.shape[1]
    c = ((1 + d / 2) ** 0.5 - 1) / d
    squares = X * X
    diagonal = squares + c * xp.sum(squares, axis=1, keepdims=True)
    pairs = [2**0.5 * X[:, i : i + 1] * X[:, i + 1 :] for i in range(d - 1)]
    return xp.concat([diagonal, *pairs], axis=1)


def draw_rectified(method: Sign | ReLU, kernel: Angular | ArcCosine, ask: Request) -> ReLUMap:
    """Draw signs or powers of random projections, with exact polynomials if split off."""
    order, exact, split, m = 0, 0, False, ask.n_features
    if isinstance(method, ReLU):
        order, exact = method.order, polynomial_width(method.order, ask.n_inputs)
        split = 2 * exact <= m if method.split is None else method.split
        m -= exact * split
    ask.require_width(exact * split + 1, "ReLU(split=True)", "more than the exact part has")
    U = placements.unit_directions(method.placement, ask.n_inputs, m, ask.stream("directions"))
    return ReLUMap(kernel, U, order, split)


# --- Random features of infinitely wide ReLU networks, layer by layer ----------------------------
#
# With u = x/|x|, Σ_0 = K_0 = ⟨u, v⟩ and the angle kernels κ_1(Σ) = ½Σ + A(Σ), A = ½ E|a||b|, and
# κ_0(Σ) = ½ + ½ E sgn a sgn b (see the top of this file), a layer is
#
#     Σ_h = ½ Σ_{h−1} + A(Σ_{h−1}),   K_h = ½ K_{h−1} + T_h + Σ_h,   T_h = ½ E[sgn a sgn b] K_{h−1}.
#
# Hence the kernels of depth L are sums of what each layer adds,
#
#     Σ_L = 2^−L ⟨u, v⟩ + Σ_j 2^−(L−j) A_j,
#     K_L = (L + 1) 2^−L ⟨u, v⟩ + Σ_j 2^−(L−j) [(L − j + 1) A_j + T_j]:
#
# exact features of ⟨u, v⟩, and random features of A_j and T_j, computed from the layer below.


@dataclass(frozen=True)
class NeuralTangentFeatures(Method):
    """Recursive random features of ``NeuralTangent(depth)`` and ``NNGP(depth)``.

    Notes
    -----
    The construction of Zandieh et al. (2021), with a third to a half of its error: linear parts are
    exact, directions are orthogonal, and each sign multiplies one coordinate of a randomised
    Hadamard transform of the features of K_{h−1}. Unbiased for one layer; with more layers bias and
    variance are O(1/D). D must be larger than the number of columns. Cost of φ(X): O(n D²) per
    layer, memory O(L D²). Use it for d above about ten, and ``MercerHarmonic`` otherwise.

    Examples
    --------
    >>> import bochner as bo
    >>> method = bo.NeuralTangentFeatures()
    >>> bo.draw(bo.kernels.NeuralTangent(depth=2), method, n_features=64, n_inputs=3)
    NeuralMap(kernel=NeuralTangent(depth=2), n_inputs=3, n_features=64)
    """


@dataclass(frozen=True, eq=False)
class NeuralMap(FeatureMap):
    """Scaled row x (d features), then features of A_j and T_j, defined above, for each layer j."""

    kernel: NeuralTangent | NNGP
    inputs: int
    #: Unit directions of the features |a| of A_j, for the p features of Σ_{j−1}.
    ramps: tuple[Float[Array, "p m"], ...]
    steps: tuple[Float[Array, "p s"], ...]  # Unit directions of the signs in T_j; none for ``NNGP``
    #: ±1, of the Hadamard transform of the features of K_{j−1}, padded to a power of two.
    signs: tuple[Float[Array, " P"], ...]
    picks: tuple[Array, ...]  # Coordinate of the transform that each sign multiplies

    @property
    def unbiased(self) -> bool:
        """Whether there is one layer; further layers are nonlinear in random features."""
        return len(self.ramps) == 1

    @property
    def n_features(self) -> int:
        return self.inputs + sum(W.shape[1] for W in (*self.ramps, *self.steps))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        u, length = directions(dense(X))
        xp = array_namespace(u)
        inner, tangent = u, [u]  # features of Σ_h, and blocks of K_h without their factors
        for h, W in enumerate(self.ramps):
            A = abs(times(inner, W)) * (W.shape[0] / (2 * W.shape[1])) ** 0.5
            if self.steps:
                V = self.steps[h]
                transform = signed_walsh(_concatenate_scaled(tangent, _weights(h)), self.signs[h])
                picks = take(transform, self.picks[h], axis=1)
                tangent += [A, xp.sign(times(inner, V)) * picks * (2 * V.shape[1]) ** -0.5]
            if not self.steps or h + 1 < len(self.ramps):  # not used after the last layer
                inner = xp.concat([0.5**0.5 * inner, A], axis=1)
        last = _concatenate_scaled(tangent, _weights(len(self.ramps))) if self.steps else inner
        last *= length[:, None]  # in place: a tenth less time
        return last


def _weights(h: int) -> list[float]:
    """Return the roots of the factors in K_h: of ⟨u, v⟩, A_1, T_1, ..., A_h, T_h."""
    layers = [(((i + 1) * 2.0**-i) ** 0.5, 2.0 ** (-i / 2)) for i in range(h)][::-1]
    return [((h + 1) * 2.0**-h) ** 0.5, *(factor for pair in layers for factor in pair)]


def _concatenate_scaled(blocks: list[Array], factors: list[float]) -> Array:
    xp = array_namespace(blocks[0])
    return xp.concat([b * f for b, f in zip(blocks, factors, strict=True)], axis=1)


def draw_layers(
    method: NeuralTangentFeatures, kernel: NeuralTangent | NNGP, ask: Request
) -> NeuralMap:
    """Draw random features layer by layer."""
    d, L, tangent = ask.n_inputs, kernel.depth, isinstance(kernel, NeuralTangent)
    # Each layer gets features in proportion to the root of its variance, its factor.
    j, total = np.arange(1, L + 1), ask.n_features - d
    parts = 2.0 ** (j - L) * ([L - j + 1, j] if tangent else [np.ones(L), np.zeros(L)])
    edges = np.rint(np.cumsum(parts.T) / parts.sum() * total).astype(int)
    widths = np.diff(edges, prepend=0).reshape(L, 2)
    if (widths[:, : 1 + tangent] < 1).any():
        raise InvalidInput(
            f"NeuralTangentFeatures: too few features for {kernel!r}: after the exact part "
            f"{total} are left for the layers. Use more features."
        )
    ramps, steps, signs, picks = [], [], [], []
    inner, full = d, d
    for h, (m, s) in enumerate(widths.tolist()):
        rng = ask.part(str(h), 0).stream("layer")
        ramps.append(_orthogonal(inner, m, rng))
        if tangent:
            steps.append(_orthogonal(inner, s, rng))
            signs.append(rng.choice((-1.0, 1.0), power_of_two(full)))
            picks.append(balanced_draws(power_of_two(full), s, rng))
        inner, full = inner + m, full + m + s
    return NeuralMap(kernel, d, *map(tuple, (ramps, steps, signs, picks)))


def _orthogonal(p: int, m: int, rng: np.random.Generator) -> Float[Array, "p m"]:
    """Return m unit directions, uniform on the sphere, in blocks of orthogonal directions."""
    blocks, remaining = [], m
    while remaining > 0:
        blocks.append(placements.orthonormal_columns(rng.standard_normal((p, min(p, remaining)))))
        remaining -= p
    return np.concatenate([np.empty((p, 0)), *blocks], axis=1)


# --- Positive features of e^{⟨x, y⟩}: all entries of Z Zᵀ are positive, as in K -------------------
#
# With ω ~ N(0, I), E e^{ω·(x + y)} = e^{|x + y|²/2}, and so
#
#     plain:      z(x) = m^{−1/2} [e^{ω_j·x − |x|²/2}]_j,                                D = m,
#     hyperbolic: z(x) = (2m)^{−1/2} [e^{ω_j·x − |x|²/2}, e^{−ω_j·x − |x|²/2}]_j,          D = 2m,
#
# have E z(x)·z(y) = e^{⟨x, y⟩}; times e^{−|x|²/2} they are features of the Gaussian.


@dataclass(frozen=True)
class Positive(Method):
    """Positive random features (FAVOR+): Choromanski et al. (2021), Lemma 1 and section 3.

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        Placement of the ω_j under N(0, I): ``Orthogonal()``, ``IID()`` or ``QMC()``.
    form : {"hyperbolic", "plain"}, default "hyperbolic"
        "hyperbolic" uses each ω with both signs.

    Notes
    -----
    Supports DotExponential and Gaussian kernels and their multiples. Unbiased; with independent ω
    the variance of an entry for e^{⟨x, y⟩} is e^{2⟨x, y⟩} (e^{|x + y|²} − 1)/D, with both signs
    times 1 − e^{−|x + y|²} (for the Gaussian times e^{−|x|² − |y|²}). Use it if entries must be
    positive (softmax attention), with rows of length about one; otherwise :class:`Fourier` or
    :class:`Nystrom`. Cost of φ(X): O(n d D) and an exponential for each feature.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.DotExponential(), bo.Positive(), n_features=64, n_inputs=3)
    >>> bool((phi(X) > 0).all())
    True
    """

    placement: Directions = field(default_factory=placements.Orthogonal)
    form: Annotated[str, word("hyperbolic", "plain")] = "hyperbolic"

    @property
    def granularity(self) -> int:  # type: ignore[override]
        return 2 if self.form == "hyperbolic" else 1


@dataclass(frozen=True, eq=False)
class PositiveMap(FeatureMap):
    """φ(x) = exp(±Wᵀx − c|s ∘ x|²)/√D: one exponent for each feature, at most |ω|²/2."""

    kernel: Kernel
    frequencies: Float[Array, "d m"]  # W = s ∘ ω: in units of x
    scales: Float[Array, " d"]  # s: root of the kernel's scale, or 1/lengthscale
    half: float  # c: ½ for e^{⟨x, y⟩}, 1 for the Gaussian
    form: str

    @property
    def n_features(self) -> int:
        return self.frequencies.shape[1] * (2 if self.form == "hyperbolic" else 1)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        products = X @ adapt(self.frequencies, like=X)
        xp = array_namespace(products)
        if is_sparse(X):
            sums = X.multiply(X).tocsr().astype(np.float64) @ (self.scales**2)[:, None]
        else:
            wide = xp.astype(X, xp.float64)
            sums = (wide * wide) @ adapt(self.scales**2, like=wide)[:, None]
        # −c|s ∘ x|² − ½ log D, (n, 1), summed in float64
        offset = xp.astype(-self.half * sums - 0.5 * math.log(self.n_features), products.dtype)
        if self.form == "plain":
            return xp.exp(products + offset)
        if not isinstance(products, np.ndarray):
            return xp.exp(xp.concat([offset + products, offset - products], axis=1))
        m = products.shape[1]
        Z = np.empty((products.shape[0], 2 * m), dtype=products.dtype)
        np.add(offset, products, out=Z[:, :m])  # in place: 1.7 times as fast
        np.subtract(offset, products, out=Z[:, m:])
        return np.exp(Z, out=Z)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        M, m = C * self.features(X), self.frequencies.shape[1]
        total = array_namespace(M).sum(M, axis=1)[:, None]
        difference = M if self.form == "plain" else M[:, :m] - M[:, m:]
        shrinking = adapt(2 * self.half * self.scales**2, like=X) * X * total
        return difference @ adapt(self.frequencies.T, like=X) - shrinking


def draw_positive(method: Positive, kernel: DotExponential | Gaussian, ask: Request) -> PositiveMap:
    """Draw D positive features: exponentials of random projections."""
    if isinstance(kernel, DotExponential):
        scales, half = np.full(ask.n_inputs, kernel.scale**0.5), 0.5
    else:
        scales, half = np.asarray(kernel.spectral(ask.n_inputs).scales), 1.0
    is_pair = method.form == "hyperbolic"
    m = ask.n_features // 2 if is_pair else ask.n_features
    normal = Gaussian().spectral(ask.n_inputs)
    W = method.placement.place(normal, m, ask.stream("frequencies"))
    return PositiveMap(kernel, scales[:, None] * W, scales, half, method.form)
