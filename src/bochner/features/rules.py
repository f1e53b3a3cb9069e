"""Rules that draw the feature map of a kernel by a method.

Each method has rules for some kernels. Other kernels are split by rules of all methods: features of
a sum are concatenated, features of a multiple are scaled, and features of a product are a tensor
product, or a sketch of one that is too wide. Transformations are applied to the rows first. If a
method does not support a part, the error names the methods that do.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from math import prod
from types import UnionType
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import adapt, as_matrix, is_sparse, slices, to_numpy
from bochner._core.blas import add_gram, mirror
from bochner._core.checks import integer, require_room
from bochner._core.names import WORDS, suggest_object
from bochner._core.native import power_of_two
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel, attempt
from bochner.features import compose, networks, sketch
from bochner.features.auto import Auto, Choice, Targets, best_candidate
from bochner.features.fourier import fourier
from bochner.features.fourier.fourier import Fourier, LeverageFourier
from bochner.features.fourier.grid import MAX_COLUMNS, FourierGrid, draw_grid
from bochner.features.fourier.placements import IID, QMC, Orthogonal, Structured
from bochner.features.map import FeatureMap, Method, Request, balanced_draws
from bochner.features.mercer import products, radial, sphere
from bochner.features.mercer.radial import ROTATION_INVARIANT, Gegenbauer, MercerHarmonic
from bochner.features.nystrom import Nystrom, Uniform, draw_nystrom
from bochner.kernels import equispaced
from bochner.kernels.algebra import Exp, Modulated, Normalised
from bochner.kernels.basis import Basis, Brownian, GreenFunction
from bochner.kernels.dotproduct import DotExponential
from bochner.kernels.histogram import Additive, SkewedChi2
from bochner.kernels.kernel import Kernel, Power, Product, Scaled, Sum, Transformed, require_numbers
from bochner.kernels.sphere import is_on_sphere
from bochner.kernels.stationary import Gaussian, isotropic
from bochner.kernels.windows import Windows
from bochner.kernels.zonal import NNGP, Angular, ArcCosine, GeneralizedZonal, NeuralTangent

Serves = type[Kernel] | UnionType | Callable[[Any, Kernel, int], bool]


class Rule(NamedTuple):
    """A method, the kernels that it supports directly, and the function that draws the map."""

    method: type[Method]
    kernels: Serves  # Types, or a function of method, kernel and number of columns
    draw: Callable[[Any, Any, Request], FeatureMap]
    needs: str = ""  # The kernels in words; {0} is the method
    first: bool = False  # Whether the rule is used even if exact features fit

    def serves(self, method: Method, kernel: Kernel, d: int) -> bool:
        """Return whether this rule draws a kernel of d columns by the method."""
        if self.method not in type(method).__mro__:  # isinstance takes three times as long
            return False
        # A projection of the parts of a kernel is not a projection of the kernel.
        if self.method is Method and isinstance(method, compose.Projected):
            return False
        if isinstance(self.kernels, (type, UnionType)):
            return isinstance(kernel, self.kernels)
        return self.kernels(method, kernel, d)


def _draw_derived(method: Method, kernel: Any, ask: Request) -> FeatureMap:
    """Draw the features of the inner kernel, for transformed rows, and wrap them."""
    d = kernel.inputs(np.ones((1, ask.n_inputs))).shape[1]
    X = None if ask.X is None else kernel.inputs(ask.X)
    inner = draw_map(method, kernel.kernel, replace(ask, n_inputs=d, X=X))
    return compose.DerivedMap(kernel, inner, ask.n_inputs)


def _draw_sum(method: Method, kernel: Kernel, ask: Request, terms: dict[str, Kernel]) -> FeatureMap:
    sizes = compose.shares(tuple(terms.values()), kernel, method, ask)
    parts = zip(terms.items(), sizes, strict=True)
    return compose.Concatenate(
        kernel, tuple(draw_map(method, part, ask.part(name, D)) for (name, part), D in parts)
    )


def _draw_product(method: Method, kernel: Product | Power, ask: Request) -> FeatureMap:
    """Draw all products of the factors' features if D allows, else a sketch of these products.

    If all factors have Z Zᵀ ⪯ K, narrower factors are tried before the sketch: then Z Zᵀ ⪯ K.
    """
    if terms := compose.expansion(kernel, ask):
        return _draw_sum(method, kernel, ask, terms)
    factors = kernel.parts
    if isinstance(kernel, Power):
        factors = {f"factor{i}": kernel.kernel for i in range(kernel.exponent)}
    exact = [factor.exact(ask.n_inputs) for factor in factors.values()]
    count, total = exact.count(None), ask.n_features // prod(width or 1 for width in exact)

    def draw_factors(n_features: int) -> tuple[FeatureMap, ...]:
        """Draw a map of each factor: the exact map if it has one, else one of ``n_features``."""
        sizes = (n_features if width is None else width for width in exact)
        parts = zip(factors.items(), sizes, strict=True)
        maps = (draw_map(method, factor, ask.part(name, D)) for (name, factor), D in parts)
        first = next(maps)
        if isinstance(kernel, Power) and first.below_kernel:
            return (first,) * len(exact)  # deterministic maps can be repeated
        return (first, *maps)

    # With one factor that is not exact, of at least 4 features, the product is up to twice as
    # accurate (measured) as a sketch, whose noise grows with all norms.
    if count == 1 and total >= 4:
        return _tensor(kernel, draw_factors(compose.divisible_width(total, kernel, method, ask)))
    if count == 0 and total >= 1:
        return _tensor(kernel, draw_factors(0))
    maps = draw_factors(compose.divisible_width(ask.n_features, kernel, method, ask))
    if prod(phi.n_features for phi in maps) <= ask.n_features:
        return _tensor(kernel, maps)
    if all(phi.below_kernel for phi in maps):
        root = int(max(total, 1) ** (1 / max(count, 1)) + 1e-9)
        even_width = max(root - root % method.granularity, method.granularity)
        narrow = attempt(draw_factors, even_width)  # fails if exact parts of a factor are wider
        if isinstance(narrow, tuple) and prod(phi.n_features for phi in narrow) <= ask.n_features:
            return _tensor(kernel, narrow)
    return _draw_sketch(kernel, maps, ask)


def _tensor(kernel: Kernel, maps: tuple[FeatureMap, ...]) -> FeatureMap:
    """Return the tensor product of the maps, as nested products of two."""
    if len(maps) == 1:
        return maps[0]
    first = _tensor(reduce(Product, (phi.kernel for phi in maps[:-1])), maps[:-1])
    return compose.TensorProduct(kernel, first, maps[-1])


def _draw_sketch(kernel: Kernel, maps: tuple[FeatureMap, ...], ask: Request) -> FeatureMap:
    """Return a sketch of the product of the maps, by a balanced tree, which adds the least noise.

    The first columns of a wider sketch are a multiple of the narrower sketch.
    """
    if len(maps) == 1:
        return maps[0]
    middle = len(maps) // 2
    parts = {"left": maps[:middle], "right": maps[middle:]}
    left, right = (
        _draw_sketch(reduce(Product, (phi.kernel for phi in v)), v, ask.part(k, ask.n_features))
        for k, v in parts.items()
    )
    sizes, rng = (left.n_features, right.n_features), ask.stream("sketch")
    first, second = (rng.choice(np.array([-1, 1], dtype=np.int8), size) for size in sizes)
    picks = [balanced_draws(power_of_two(n), ask.n_features, rng.spawn(1)[0]) for n in sizes]
    return compose.SketchedProduct(kernel, left, right, first, second, np.stack(picks))


def _draw_compressed(method: compose.Compressed, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the wider map and its principal components on the rows."""
    X = ask.rows("Compressed", "its directions")
    inner = draw_map(method.method, kernel, replace(ask, n_features=method.width * ask.n_features))
    if inner.n_features <= ask.n_features:
        return inner
    D = inner.n_features
    gram, step = np.zeros((D, D), order="F"), max(1, (1 << 22) // D)
    for rows in slices(X.shape[0], step):
        add_gram(gram, np.ascontiguousarray(inner(X[rows]), dtype=np.float64))
    _, axes = compose.principal_axes(mirror(gram))
    V = np.ascontiguousarray(axes[:, : ask.n_features])
    return compose.ProjectedMap(kernel, inner, directions=V)


def _draw_projected(method: compose.Projected, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the projection P, and the map of the projected rows."""
    base, lengths = isotropic(kernel, ask.n_inputs)
    d, size, scales = ask.n_inputs, min(method.n_components, ask.n_inputs), 1 / lengths
    if method.projection == "jl":
        P = ask.stream("projection").standard_normal((d, size)) / size**0.5
    else:
        rows = ask.rows('Projected(projection="pca")', "principal axes")
        P = compose.axes_of_rows(rows, scales, base.spectral(d) is not None, size)
    P = np.ascontiguousarray(scales[:, None] * P)
    X = None if ask.X is None else ask.X @ adapt(P, like=ask.X)
    inner = draw_map(method.method, base, replace(ask, n_inputs=P.shape[1], X=X))
    return compose.ProjectedMap(kernel, inner, P)


def _spectral(method: Any, kernel: Kernel, d: int) -> bool:
    """Whether a Fourier method draws the frequencies of the kernel itself, without splitting it."""
    if isinstance(kernel, Sum | Scaled | Normalised | Transformed):
        return False
    law, placement = kernel.spectral(d), getattr(method, "placement", None)
    return law is not None and (not placement or placement.serves(law)) and not kernel.exact(d)


def _radial_functions(method: Gegenbauer, kernel: Kernel, d: int) -> bool:
    """Return whether the method draws the kernel itself; other sums are split."""
    if isinstance(next(kernel.leaves(Scaled))[0], GeneralizedZonal):
        return isinstance(kernel, GeneralizedZonal)
    is_invariant = _rotation_invariant(method, kernel, d)
    if not is_invariant or method.radial == "optimal":
        return is_invariant
    parts = kernel.zonal(d) if isinstance(kernel, Sum) else None
    return parts is None or parts.zonal or parts.power_series is not None


_rotation_invariant = lambda _, kernel, d: isotropic(kernel, d)[0].zonal(d) is not None
_series = lambda _, kernel, d: sketch.powers(kernel, d) is not None
_exact = lambda _, kernel, d: kernel.exact(d) is not None
_FINITE = (
    "a kernel with finitely many exact features: FourierSeries, Polynomials, Polynomial, "
    "Linear or Constant"
)
_DENSITY = "a stationary kernel with a spectral density, such as Gaussian, Matern or Laplace"

#: All rules. The first rule that applies is used.
RULES: tuple[Rule, ...] = (
    Rule(Nystrom, Kernel, draw_nystrom, "any kernel", True),
    Rule(compose.Compressed, Kernel, _draw_compressed, "any kernel", True),
    Rule(
        compose.Projected,
        lambda _, kernel, d: compose.is_rotatable(kernel, d),
        _draw_projected,
        "a kernel of the Euclidean distance or of the inner product, such as Gaussian, Matern or "
        "Polynomial, with lengthscales for single columns at its top only",
        True,
    ),
    Rule(Fourier, _spectral, fourier.draw_stationary, "{0.placement.needs}"),
    Rule(
        Fourier,
        # stationary in log(x + c): Li, Ionescu and Sminchisescu (2010), eq. 12
        lambda m, k, d: isinstance(k, SkewedChi2) and m.placement.serves(k.spectral_of_logs(d)),
        lambda m, k, a: compose.DerivedMap(k, fourier.draw_stationary(m, k, a), a.n_inputs),
        "{0.placement.needs}",
    ),
    Rule(LeverageFourier, _spectral, fourier.draw_by_leverage, IID.needs),
    Rule(
        FourierGrid,
        lambda _method, kernel, d: d <= MAX_COLUMNS and equispaced.has_weights(kernel, d),
        draw_grid,
        f"{_DENSITY}, or a Periodic kernel, in one to three columns",
    ),
    Rule(
        networks.Positive,
        DotExponential | Gaussian,
        networks.draw_positive,
        "DotExponential or Gaussian",
    ),
    Rule(
        fourier.HistogramSampling,
        Additive,
        fourier.draw_sampled_spectrum,
        "AdditiveChi2(), Intersection() or JensenShannon()",
    ),
    # random directions
    Rule(networks.Sign, Angular, networks.draw_rectified, "Angular()"),
    Rule(
        networks.ReLU,
        lambda method, kernel, _d: kernel == ArcCosine(method.order),
        networks.draw_rectified,
        "ArcCosine({0.order})",
    ),
    Rule(
        networks.NeuralTangentFeatures,
        NeuralTangent | NNGP,
        networks.draw_layers,
        "NeuralTangent(depth) or NNGP(depth)",
    ),
    Rule(Gegenbauer, _radial_functions, radial.draw_gegenbauer, ROTATION_INVARIANT),
    # terms of an expansion of the kernel
    Rule(MercerHarmonic, _rotation_invariant, radial.draw_harmonics, ROTATION_INVARIANT),
    Rule(
        sphere.SphericalHarmonics,
        lambda _method, kernel, _d: is_on_sphere(kernel),
        sphere.draw_spherical,
        "OnSphere(kernel), of rows (latitude, longitude) in degrees",
    ),
    Rule(
        products.HermiteMercer,
        # Multiples and kernels of some columns are split, as their part may be Gaussian.
        lambda _, k, d: (
            d <= compose.MAX_COLUMNS  # for principal axes
            and not isinstance(k, Scaled | Transformed)
            and bool(products.column_kernels(k, d))
        ),
        products.draw_hermite,
        "a Gaussian kernel, or a product of kernels of one column each such as Laplace or Cauchy, "
        f"of at most {compose.MAX_COLUMNS:,} columns",
    ),
    Rule(products.LaplacianEigenfunctions, Brownian | GreenFunction, products.draw_modes, _DENSITY),
    Rule(
        products.LaplacianEigenfunctions,
        lambda _method, kernel, d: all(
            equispaced.has_density(part, d) for part, _ in kernel.leaves((Sum, Scaled))
        ),
        products.draw_sines,
        f"{_DENSITY}, Brownian or GreenFunction",
    ),
    Rule(
        products.Explicit,
        lambda _, k, d: bool((form := sketch.powers(k, d)) and form[0].degree is not None),
        sketch.draw_monomials,
        _FINITE,
    ),
    # powers of ⟨x, y⟩
    Rule(sketch.Maclaurin, _series, sketch.draw_maclaurin, sketch.POWER_SERIES),
    Rule(sketch.TensorSketch, _series, sketch.draw_tensorsketch, sketch.POWER_SERIES),
    Rule(sketch.PolySketch, _series, sketch.draw_polysketch, sketch.POWER_SERIES),
    # rules of all methods: exact features, and kernels with parts
    Rule(Method, Basis, products.draw_basis),
    Rule(Method, Scaled | Modulated | Normalised | Transformed | Windows, _draw_derived),
    Rule(Method, Sum, lambda m, k, a: _draw_sum(m, k, a, k.parts)),
    # exp(k) = Σ kⁿ/n!, truncated below the noise of D features
    Rule(Method, Exp, lambda m, k, a: _draw_sum(m, k, a, compose.series(k, m, a))),
    Rule(Method, Product | Power, _draw_product),
    Rule(Method, _exact, lambda _, kernel, ask: compose.LinearMap(kernel, ask.n_inputs)),
)


def refusal(method: Method, kernel: Kernel, d: int) -> InvalidInput:
    """Return the error for a kernel without a rule, with the methods that support the kernel."""
    name = type(method).__name__
    needs = [rule.needs for rule in RULES if isinstance(method, rule.method) and rule.needs]
    if not needs:
        return InvalidInput(
            f"{name} makes no features: it is a method of ridge regression, Gaussian processes or "
            'losses that are smooth. Pass Nystrom() or "auto".'
        )
    rules = (rule for rule in RULES if rule.needs and not rule.first)
    supported = (rule.method for rule in rules if rule.serves(rule.method(), kernel, d))
    names = [f"{kind.__name__}(...)" for kind in dict.fromkeys(supported)]
    subject = f"{', '.join(names)} and Nystrom(...) support" if names else "Nystrom(...) supports"
    return UnsupportedKernel(
        f"{name} requires {needs[-1].format(method)}, or sums, products and multiples of them; got "
        f"{kernel!r} for d = {d}. {subject} this kernel."
    )


def draw_map(method: Method, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the map of ``kernel`` by ``method``: by its own rule, or from the maps of its parts."""
    if isinstance(method, Auto):
        return choose(method, kernel, ask).map  # type: ignore[return-value]
    d = ask.n_inputs
    for rule in RULES:
        if rule.serves(method, kernel, d):
            break
    else:
        raise refusal(method, kernel, d)
    if rule.first:
        return rule.draw(method, kernel, ask)
    width = kernel.exact(d)
    if width is not None and width <= ask.n_features:
        exact = (rule for rule in RULES if rule.method is Method)
        rule = next(rule for rule in exact if rule.serves(method, kernel, d))
        return rule.draw(method, kernel, ask)
    columns = ask.n_inputs if ask.X is None else min(ask.n_inputs, ask.X.shape[0])
    require_room(
        8 * ask.n_features * (1 + columns if method.floats_each is None else method.floats_each),
        f"draw: n_features={ask.n_features:,} for {ask.n_inputs:,} columns takes",
        "Ask for fewer features.",
    )
    if rule.method is not Method and ask.n_features % method.granularity:
        name = type(method).__name__
        forms = {"Fourier": ', or use form="phase"', "Positive": ', or use form="plain"'}
        raise InvalidInput(
            f"{name} requires an even number of features, two of each random draw; got "
            f"{ask.n_features}. Ask for one more{forms.get(name, '')}."
        )
    return rule.draw(method, kernel, ask)


def choose(method: Auto, kernel: Kernel, ask: Request, targets: Targets | None = None) -> Choice:
    """Choose among the candidates of ``method``, by the errors of ``targets`` if given."""
    return best_candidate(method, kernel, ask, draw_map, targets, contenders(ask.n_inputs))


# --- Methods by name, and those that "auto" compares ---------------------------------------------


def contenders(d: int) -> tuple[Method, ...]:
    """Return the methods that can be the best one for a kernel of d columns."""
    is_narrow = d <= 2048  # Beyond, principal axes are slow, and IID is as good as Orthogonal
    methods = {
        MercerHarmonic(): is_narrow,
        products.HermiteMercer(): is_narrow,
        Fourier(Orthogonal()): True,
        Fourier(Structured()): d >= 128,  # Below, a matrix product is faster than transforms
        Fourier(QMC()): d <= 20,  # Beyond, orthogonal frequencies are more accurate
        Fourier(IID()): d > 20 and is_narrow,
    }
    angles = networks.Sign(), networks.ReLU(0), networks.ReLU(1), networks.ReLU(2)
    extras = networks.NeuralTangentFeatures(), fourier.HistogramSampling(), Nystrom()
    return *(method for method, is_suited in methods.items() if is_suited), *angles, *extras


#: Methods by name, which all `method` parameters accept.
NAMED: dict[str, Method] = {
    "auto": Auto(),
    "fourier": Fourier(Orthogonal()),
    "iid": Fourier(IID()),
    "orthogonal": Fourier(Orthogonal()),
    "qmc": Fourier(QMC()),
    "structured": Fourier(Structured()),
    "mercer": MercerHarmonic(),
    "hermite": products.HermiteMercer(),
    "nystrom": Nystrom(),
    "uniform": Nystrom(Uniform()),
    "grid": FourierGrid(1e-2),
    "leverage": LeverageFourier(),
}


def as_method(method: Method | str) -> Method:
    """Return a method, given as it is or by name."""
    name = WORDS.get(method, method) if isinstance(method, str) else ""
    value = NAMED.get(name, method)
    if not isinstance(value, Method):
        raise InvalidInput(
            "method must be a value such as Fourier(Orthogonal()) or Nystrom(RPCholesky()), or one "
            f"of {', '.join(map(repr, NAMED))}; got {method!r}{suggest_object(name, NAMED) or '.'}"
        )
    return value


def draw(
    kernel: Kernel,
    method: Method | str = "auto",
    *,
    n_features: int = 1024,
    X: Float[Array, "n d"] | None = None,
    n_inputs: int | None = None,
    random_state: Seed = None,
) -> FeatureMap:
    """Draw a feature map φ with φ(x)·φ(y) ≈ k(x, y).

    Parameters
    ----------
    kernel : Kernel
        Any kernel of :mod:`bochner.kernels`, or sums and products of them.
    method : Method or str, default "auto"
        Method of the features: ``Fourier(placement, form)``, ``Nystrom(landmarks)``,
        ``MercerHarmonic()``, ``Auto()``, ..., or one of the names "auto", "fourier", "iid",
        "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom", "uniform", "grid",
        "leverage".
    n_features : int, default 1024
        D. The map has fewer features if these are exact (Linear, Constant, enough landmarks).
        :func:`bochner.required_features` returns the D of a tolerance.
    X : (n, d), optional
        Rows of data. Required by methods that use them, such as Nystrom and "auto".
    n_inputs : int, optional
        d, if X is not given.
    random_state : int, Generator, RandomState or None
        The same seed gives the same map on every machine.

    Returns
    -------
    FeatureMap
        ``phi(X)`` gives Z, (n, D), with Z @ Z.T ≈ kernel(X, X).

    Raises
    ------
    UnsupportedKernel
        If the method does not support the kernel; the message names methods that do.
    InvalidInput
        If an argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import draw
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> phi = draw(Gaussian(lengthscale=2.0), "nystrom", n_features=64, X=X, random_state=0)
    >>> Z = phi(X)
    >>> float(abs(Z @ Z.T - phi.kernel(X, X)).max()) < 0.1
    True
    """
    if not isinstance(kernel, Kernel):
        raise InvalidInput(
            f"draw: kernel must be a Kernel, e.g. Gaussian(lengthscale=0.5); got {kernel!r}."
        )
    require_numbers(kernel)
    if not isinstance(n_features, int | np.integer) or n_features < 1:
        raise InvalidInput(f"draw: n_features must be a positive integer; got {n_features!r}.")
    if X is not None:
        X = as_matrix(X, "draw")
        X = X if is_sparse(X) else to_numpy(X)
        n_inputs = X.shape[1]
    if n_inputs is None:
        raise InvalidInput("draw: pass X (rows of data) or n_inputs (their number of columns).")
    n_inputs = integer(n_inputs, "draw", "n_inputs", 1)
    ask = Request(n_inputs, int(n_features), seed_of(random_state), X=X)
    return draw_map(as_method(method), kernel, ask)


def exact_map(kernel: Kernel, n_inputs: int) -> FeatureMap:
    """Return the map of the exact features of a kernel; refuse a kernel with none or over 2²⁰."""
    ask = Request(n_inputs, sketch.MAX_EXACT, 0)
    phi = attempt(draw_map, products.Explicit(), kernel, ask)
    if isinstance(phi, FeatureMap) and phi.n_features <= ask.n_features and phi.below_kernel:
        return phi
    raise UnsupportedKernel(
        f"{kernel!r} of {n_inputs} columns has no exact finite features, or more than "
        f"{sketch.MAX_EXACT:,}. Linear, Constant, Polynomial, FourierSeries, Polynomials, their "
        "sums, products and powers have exact features."
    )
