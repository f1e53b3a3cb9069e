"""From kernel and method to feature map: a table of identities.

A sum concatenates, a scale multiplies by its root, a product of stationary kernels adds
independent frequencies, any other product is a tensor product, columns and linear maps of the
input go in front. One rule for each way to build a kernel; a method that cannot serve a kernel is
refused here, with the names of those that can.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.random import stream
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier import Fourier, FourierMap, FourierPhaseMap
from bochner.features.map import (
    Concatenate,
    ConstantMap,
    FeatureMap,
    LinearMap,
    OnInputs,
    ScaledMap,
    TensorProduct,
)
from bochner.features.method import Method
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.placements import Placement
from bochner.kernels import (
    Columns,
    Constant,
    Kernel,
    Linear,
    Mahalanobis,
    Product,
    Scaled,
    Stationary,
    Sum,
)

__all__ = ["Request", "draw_map", "is_stationary"]


@dataclass(frozen=True, eq=False)
class Request:
    """What a map is asked to be: inputs d, width D, the seed's path, and rows if there are any."""

    n_inputs: int
    n_features: int
    seed: int
    path: tuple[str, ...] = ()
    X: Array | None = None

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the generator of this part of the kernel."""
        return stream(self.seed, "draw", *self.path, purpose)

    def part(self, name: str, n_features: int) -> "Request":
        """Return the request for a part of the kernel: its own width and stream."""
        return replace(self, n_features=n_features, path=(*self.path, name))


@singledispatch
def draw_map(method: Method, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the map of ``kernel`` by ``method``."""
    raise InvalidInput(
        f"draw: method must be Fourier(...), Nystrom(...) or Auto(...); got {method!r}."
    )


@draw_map.register
def _(method: Nystrom, kernel: Kernel, ask: Request) -> FeatureMap:
    if ask.X is None:
        raise InvalidInput(
            "draw: Nystrom takes its landmarks from rows of data; got none. Pass X=..."
        )
    rows = method.landmarks.choose(kernel, ask.X, ask.n_features, ask.stream("landmarks"))
    landmarks = ask.X[rows]
    landmarks = landmarks.toarray() if is_sparse(landmarks) else landmarks
    return NystromMap(kernel, np.ascontiguousarray(landmarks, dtype=np.float64))


@draw_map.register
def _(method: Fourier, kernel: Kernel, ask: Request) -> FeatureMap:
    return fourier(kernel, method, ask)


# --- Fourier: one rule for each way to build a kernel -------------------------------------------


@singledispatch
def fourier(kernel: Kernel, method: Fourier, ask: Request) -> FeatureMap:
    """Draw random Fourier features of ``kernel``."""
    raise UnsupportedKernel(
        f"Fourier requires a kernel of x − y, or sums and products of such with Linear() and "
        f"Constant(); got {kernel!r}. Nystrom(...) serves every kernel."
    )


@fourier.register
def _(kernel: Stationary, method: Fourier, ask: Request) -> FeatureMap:
    amplitude = float(kernel.diag(np.zeros((1, ask.n_inputs)))[0])
    m = ask.n_features // 2 if method.form == "pair" else ask.n_features
    if m < 1 or (method.form == "pair" and ask.n_features % 2):
        raise InvalidInput(
            'Fourier(form="pair") requires an even number of features, a cosine and a sine of '
            f'each frequency; got {ask.n_features}. Ask for one more, or use form="phase".'
        )
    W = frequencies(kernel, method.placement, m, ask.n_inputs, ask.stream("frequencies"))
    if method.form == "pair":
        return FourierMap(kernel, W, amplitude)
    phases = ask.stream("phases").uniform(0, 2 * np.pi, m)
    return FourierPhaseMap(kernel, W, phases, amplitude)


@fourier.register
def _(kernel: Constant, method: Fourier, ask: Request) -> FeatureMap:
    return ConstantMap(kernel, kernel.value, ask.n_inputs)


@fourier.register
def _(kernel: Linear, method: Fourier, ask: Request) -> FeatureMap:
    return LinearMap(kernel, ask.n_inputs)


@fourier.register
def _(kernel: Scaled, method: Fourier, ask: Request) -> FeatureMap:
    return ScaledMap(kernel, kernel.scale, fourier(kernel.kernel, method, ask))


@fourier.register
def _(kernel: Sum, method: Fourier, ask: Request) -> FeatureMap:
    left, right = _shares(kernel, ask)
    return Concatenate(
        kernel,
        (
            fourier(kernel.left, method, ask.part("left", left)),
            fourier(kernel.right, method, ask.part("right", right)),
        ),
    )


@fourier.register
def _(kernel: Product, method: Fourier, ask: Request) -> FeatureMap:
    if is_stationary(kernel):  # the spectral measure of a product is a convolution
        return _as_stationary(kernel, method, ask)
    left, right = _factors(kernel, ask)
    return TensorProduct(
        kernel,
        fourier(kernel.left, method, ask.part("left", left)),
        fourier(kernel.right, method, ask.part("right", right)),
    )


@fourier.register
def _(kernel: Columns, method: Fourier, ask: Request) -> FeatureMap:
    inner = fourier(kernel.kernel, method, replace(ask, n_inputs=len(kernel.columns)))
    return OnInputs(kernel, inner, ask.n_inputs)


@fourier.register
def _(kernel: Mahalanobis, method: Fourier, ask: Request) -> FeatureMap:
    return OnInputs(kernel, fourier(kernel.kernel, method, ask), ask.n_inputs)


_as_stationary: Callable[..., FeatureMap] = fourier.dispatch(Stationary)


# --- Frequencies: W with E cos ω·δ = k(δ)/k(0) ---------------------------------------------------


@singledispatch
def frequencies(
    kernel: Kernel, placement: Placement, m: int, d: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m frequencies of a stationary kernel, (d, m)."""
    raise UnsupportedKernel(f"Fourier: {kernel!r} has no spectral measure. Use Nystrom(...).")


@frequencies.register
def _(kernel: Stationary, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return placement.place(kernel.spectral_measure(d), m, rng)


@frequencies.register
def _(kernel: Constant, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return np.zeros((d, m))


@frequencies.register
def _(kernel: Scaled, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return frequencies(kernel.kernel, placement, m, d, rng)


@frequencies.register
def _(kernel: Product, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    left = frequencies(kernel.left, placement, m, d, rng)
    # Columns of an orthogonal block depend on one another: a random order makes the pairing fair.
    return left + frequencies(kernel.right, placement, m, d, rng)[:, rng.permutation(m)]


@frequencies.register
def _(kernel: Sum, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    left = frequencies(kernel.left, placement, m, d, rng)
    right = frequencies(kernel.right, placement, m, d, rng)
    sizes = kernel.left.diag(np.zeros((1, d)))[0], kernel.right.diag(np.zeros((1, d)))[0]
    return np.where(rng.random(m) * sum(sizes) < sizes[0], left, right)


@frequencies.register
def _(kernel: Columns, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    W = np.zeros((d, m))
    W[list(kernel.columns)] = frequencies(kernel.kernel, placement, m, len(kernel.columns), rng)
    return W


@frequencies.register
def _(kernel: Mahalanobis, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return kernel.root @ frequencies(kernel.kernel, placement, m, d, rng)


# --- What the rules ask of a kernel -------------------------------------------------------------


@singledispatch
def is_stationary(kernel: Kernel) -> bool:
    """Whether k depends on x − y alone, as far as its structure tells."""
    return isinstance(kernel, Stationary | Constant)


@is_stationary.register
def _(kernel: Sum | Product) -> bool:
    return is_stationary(kernel.left) and is_stationary(kernel.right)


@is_stationary.register
def _(kernel: Scaled | Columns | Mahalanobis) -> bool:
    return is_stationary(kernel.kernel)


@singledispatch
def exact_width(kernel: Kernel, d: int) -> int | None:
    """Return the width of the kernel's finite exact features, None if there are none."""
    return None


@exact_width.register
def _(kernel: Constant, d: int) -> int | None:
    return 1


@exact_width.register
def _(kernel: Linear, d: int) -> int | None:
    return d


@exact_width.register
def _(kernel: Columns, d: int) -> int | None:
    return exact_width(kernel.kernel, len(kernel.columns))


@exact_width.register
def _(kernel: Scaled | Mahalanobis, d: int) -> int | None:
    return exact_width(kernel.kernel, d)


@exact_width.register
def _(kernel: Sum | Product, d: int) -> int | None:
    left, right = exact_width(kernel.left, d), exact_width(kernel.right, d)
    if left is None or right is None:
        return None
    return left + right if isinstance(kernel, Sum) else left * right


def _shares(kernel: Sum, ask: Request) -> tuple[int, int]:
    """Split D: exact parts take what they need, the others by the size of what they approximate.

    Var of Σ aᵢ k̂ᵢ with Dᵢ features each is Σ aᵢ²/Dᵢ, least for Dᵢ ∝ aᵢ.
    """
    D, d = ask.n_features, ask.n_inputs
    left, right = exact_width(kernel.left, d), exact_width(kernel.right, d)
    if left is not None and right is not None:
        return left, right
    if left is not None:
        return left, _even(D - left, kernel)
    if right is not None:
        return _even(D - right, kernel), right
    a, b = _size(kernel.left, ask), _size(kernel.right, ask)
    first = min(max(2, 2 * round(D * a / (a + b) / 2)), D - 2)
    return first, _even(D - first, kernel)


def _size(kernel: Kernel, ask: Request) -> float:
    rows = np.ones((1, ask.n_inputs)) if ask.X is None else ask.X[:256]
    return float(np.mean(to_numpy(kernel.diag(rows))))


def _factors(kernel: Product, ask: Request) -> tuple[int, int]:
    """Split D = D₁ D₂: the exact factor takes what it needs; two random ones share evenly."""
    D, d = ask.n_features, ask.n_inputs
    left, right = exact_width(kernel.left, d), exact_width(kernel.right, d)
    if left is not None:
        return left, _even(D // left, kernel) if right is None else right
    if right is not None:
        return _even(D // right, kernel), right
    root = _even(int(D**0.5), kernel)
    return root, _even(D // root, kernel)


def _even(width: int, kernel: Kernel) -> int:
    if width < 2:
        raise InvalidInput(
            f"Fourier: too few features for {kernel!r}, whose exact parts leave {width} for the "
            "others. Ask for more features."
        )
    return width - width % 2
