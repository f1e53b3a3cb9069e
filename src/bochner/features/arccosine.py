"""Random features of the angle kernels: signs and powers of rectified projections.

With a direction u uniform on the sphere, t = u·x and s = u·y (Cho and Saul 2009, eq. 1, whose
Gaussian ω is u times an independent length, integrated out here):

    Angular       1 − 2θ/π = E sgn t sgn s
    ArcCosine(0)  k = ½ + ½ E sgn t sgn s
    ArcCosine(1)  k = ½⟨x, y⟩ + ½ d E |t||s|
    ArcCosine(2)  k = ½|x|²|y|² + ⟨x, y⟩² + ½ d(d + 2) E t|t| s|s|

The polynomials in front are exact features; only the rest is random.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    dense,
    device,
    is_numpy,
    is_sparse,
    moved,
)
from bochner._core.blas import product
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.placements import Orthogonal, Placement, unit_directions
from bochner.features.rules import Request, leaf_map
from bochner.kernels import Kernel
from bochner.kernels.angle import Angular, ArcCosine


@dataclass(frozen=True)
class Sign(Method):
    """Signs of random projections: φ(x) = √(1/D) [sgn u_j·x]_j, for ``Angular()``.

    Charikar (2002), section 3: a sign is a bit of a hash whose bits agree with chance 1 − θ/π.

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        Where the directions fall: ``IID()``, ``Orthogonal()`` or ``QMC()``.

    Notes
    -----
    Unbiased; variance of an entry (1 − k²)/D with independent directions, less with orthogonal
    ones. |φ(x)|² = 1 exactly, except for a row of zeros, which is sent to zeros. Cost: one product,
    O(n d D), the cheapest map there is; memory D d. Choose it for angles alone, with rows of any
    length; ``MercerHarmonic`` is more accurate where d is small.
    """

    placement: Placement = field(default_factory=Orthogonal)

    def __post_init__(self) -> None:
        """Check the arguments."""
        _require_placement("Sign", self.placement)


@dataclass(frozen=True)
class ReLU(Method):
    """Powers of rectified random projections, for ``ArcCosine(order)``.

    Parameters
    ----------
    order : {1, 0, 2}
        That of the kernel: steps, ReLU, squared ReLU.
    placement : Placement, default Orthogonal()
        Where the directions fall: ``IID()``, ``Orthogonal()`` or ``QMC()``.
    split : bool, optional
        Whether the exact polynomial part is split off: 1 feature for order 0, d for order 1,
        d(d + 1)/2 for order 2. Default: where it takes at most half of the features.

    Notes
    -----
    Split, in order, [√½, √(1/2m) sgn t], [x/√2, √(d/2m) |t|] and [x ⊗ x, √(d(d + 2)/2m) t|t|] with
    m directions; unsplit √(2 c/m) (t₊)^order with c = 1, d, d(d + 2). Unbiased either way. Variance
    of one random feature for a row with itself (x = y, |x| = 1), independent directions:

    ======  ==================  ==========================  =======================
    order   Gaussian, unsplit   unit directions, unsplit    unit directions, split
    ======  ==================  ==========================  =======================
    0       1                   1                           0
    1       5                   6 d/(d + 2) − 1             (3 d/(d + 2) − 1)/4
    2       201                 210 c₄ − 9                  (105 c₄ − 9)/4
    ======  ==================  ==========================  =======================

    with c₄ = d(d + 2)/((d + 4)(d + 6)): from 5 to ½ for order 1 in high d, a tenth. Cost: one
    product, O(n d D). Memory D d. Choose it for ReLU kernels of rows of any length;
    ``MercerHarmonic`` is more accurate where d is small.
    """

    order: int = 1
    placement: Placement = field(default_factory=Orthogonal)
    split: bool | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "order", integer(self.order, "ReLU", "order"))
        if self.order > 2:
            raise InvalidInput(f"ReLU: order must be 0, 1 or 2; got {self.order}.")
        _require_placement("ReLU", self.placement)
        if self.split not in (None, True, False):
            raise InvalidType(f"ReLU: split must be True, False or None; got {self.split!r}.")


@dataclass(frozen=True, eq=False)
class SignMap(FeatureMap):
    """φ(x) = √(1/D) sgn(Uᵀx).

    Attributes
    ----------
    directions : (d, D) float64
        U, unit columns.
    """

    kernel: Kernel
    directions: Float[Array, "d D"]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.directions.shape[0]

    @property
    def n_features(self) -> int:
        """D, the number of directions."""
        return self.directions.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    @cached_property
    def _directions(self) -> dict[str, Array]:
        return _precisions(self.directions)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return signs, (n, D)."""
        T = project(X, self._directions)
        Z = array_namespace(T).sign(T)
        Z *= self.n_features**-0.5
        return Z


@dataclass(frozen=True, eq=False)
class ReLUMap(FeatureMap):
    """Exact polynomial features, where split, beside powers of projections; see :class:`ReLU`.

    Attributes
    ----------
    directions : (d, m) float64
        U, unit columns.
    order : {0, 1, 2}
    split : bool

    Notes
    -----
    The polynomial features come first, then one for each direction.
    """

    kernel: Kernel
    directions: Float[Array, "d m"]
    order: int
    split: bool

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.directions.shape[0]

    @property
    def n_features(self) -> int:
        """m, and the polynomial features."""
        exact = polynomial_width(self.order, self.n_inputs) if self.split else 0
        return exact + self.directions.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    @cached_property
    def _directions(self) -> dict[str, Array]:
        return _precisions(self.directions)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return polynomials and powers of projections, (n, D)."""
        d, m = self.directions.shape
        T = project(X, self._directions)
        xp = array_namespace(T)
        moment = (1, d, d * (d + 2))[self.order]
        if not self.split:
            return _rectified(T, self.order) * (2 * moment / m) ** 0.5
        rest = (xp.sign, xp.abs, _signed_square)[self.order](T)
        rest *= (moment / (2 * m)) ** 0.5
        return xp.concat([_polynomial(X, self.order), rest], axis=1)


def polynomial_width(order: int, d: int) -> int:
    """Return the number of exact polynomial features of ``ArcCosine(order)`` in d columns."""
    return (1, d, d * (d + 1) // 2)[order]


def project(X: Float[Array, "n d"], U: dict[str, Float[Array, "d m"]]) -> Float[Array, "n m"]:
    """Return X U, dense, in the library and precision of X; U by the names of precisions."""
    if is_numpy(X):
        return product(X, U[X.dtype.name])
    if is_sparse(X):
        return X @ U[X.dtype.name]
    return X @ moved(U["float64"], like=X)


def _precisions(U: Float[Array, "d m"]) -> dict[str, Array]:
    return {"float64": U, "float32": U.astype(np.float32)}


def _rectified(T: Float[Array, "n m"], order: int) -> Float[Array, "n m"]:
    """Return (t₊)^order; a step is ½ at zero, so that a row of zeros is at right angles to all."""
    xp = array_namespace(T)
    if order == 0:
        return 0.5 + 0.5 * xp.sign(T)
    positive = 0.5 * (T + xp.abs(T))
    return positive if order == 1 else positive * positive


def _signed_square(T: Float[Array, "n m"]) -> Float[Array, "n m"]:
    return T * array_namespace(T).abs(T)


def _polynomial(X: Float[Array, "n d"], order: int) -> Float[Array, "n p"]:
    """Return features of ½, ½⟨x, y⟩ or ½|x|²|y|² + ⟨x, y⟩²."""
    X = dense(X)
    xp = array_namespace(X)
    if order == 0:
        return xp.full((X.shape[0], 1), 0.5**0.5, dtype=X.dtype, device=device(X))
    return X * 0.5**0.5 if order == 1 else _quadratic(X, xp)


def _quadratic(X: Float[Array, "n d"], xp: Any) -> Float[Array, "n p"]:
    """Return √2 x_i x_j, i < j, and x_i² + c|x|²: the root of I + ½ 11ᵀ is I + c 11ᵀ."""
    d = X.shape[1]
    c = ((1 + d / 2) ** 0.5 - 1) / d
    squares = X * X
    diagonal = squares + c * xp.sum(squares, axis=1, keepdims=True)
    pairs = [2**0.5 * X[:, i : i + 1] * X[:, i + 1 :] for i in range(d - 1)]
    return xp.concat([diagonal, *pairs], axis=1)


def _require_placement(who: str, placement: object) -> None:
    if not isinstance(placement, Placement):
        raise InvalidInput(
            f"{who}: placement must be IID(), Orthogonal() or QMC(); got {placement!r}."
        )


# --- Rules ---------------------------------------------------------------------------------------


@leaf_map.register
def _(method: Sign, kernel: Kernel, ask: Request) -> FeatureMap:
    if not isinstance(kernel, Angular):
        raise UnsupportedKernel(
            f"Sign requires Angular(); got {kernel!r}. ReLU(order) serves ArcCosine(order), "
            "Nystrom(...) every kernel."
        )
    rng = ask.stream("directions")
    return SignMap(kernel, unit_directions(method.placement, ask.n_inputs, ask.n_features, rng))


@leaf_map.register
def _(method: ReLU, kernel: Kernel, ask: Request) -> FeatureMap:
    if not isinstance(kernel, ArcCosine) or kernel.order != method.order:
        raise UnsupportedKernel(
            f"ReLU({method.order}) requires ArcCosine({method.order}); got {kernel!r}. "
            "Sign() serves Angular(), Nystrom(...) every kernel."
        )
    exact = polynomial_width(method.order, ask.n_inputs)
    split = 2 * exact <= ask.n_features if method.split is None else method.split
    m = ask.n_features - exact if split else ask.n_features
    if m < 1:
        raise InvalidInput(
            f"ReLU(split=True) requires more than the {exact} features of the exact part; got "
            f"{ask.n_features}. Ask for more, or use split=False."
        )
    U = unit_directions(method.placement, ask.n_inputs, m, ask.stream("directions"))
    return ReLUMap(kernel, U, method.order, split)
