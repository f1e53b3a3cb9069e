"""Random Gegenbauer features: Han, Zandieh and Avron (2022).

A rotation-invariant kernel is Σ_l Σ_i h_{l,i}(|x|) h_{l,i}(|y|) P_l(cos θ). With directions w
uniform on the sphere and p_l = √α_l P_l the orthonormal Gegenbauer polynomials,

    φ_x(w)_i = Σ_l h_{l,i}(|x|) p_l(⟨x, w⟩/|x|),   E φ_x(w)·φ_y(w) = k(x, y),

and m directions give z(x) = m^{−1/2} [φ_x(w_1), ..., φ_x(w_m)], D = m·s of order s: definition 8.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import array_namespace, moved, taken, to_numpy
from bochner._core.checks import MaybeCounted, integer, optional, word
from bochner._core.native import polynomials
from bochner._core.shapes import Array, Float
from bochner.errors import FeatureWarning, InvalidInput, UnsupportedKernel
from bochner.features.composed import is_stationary
from bochner.features.fourier.placements import IID, unit_directions
from bochner.features.map import FeatureMap, Method, Request
from bochner.features.mercer import radial as mercer
from bochner.kernels.kernel import Kernel
from bochner.kernels.radial import RadialKernels
from bochner.kernels.zonal import GeneralizedZonal, gegenbauers, log_alpha, recurrence


@dataclass(frozen=True)
class Gegenbauer(Method):
    """Random Gegenbauer features, with independent directions.

    Parameters
    ----------
    radial : {"optimal", "monomial"}, default "optimal"
        Radial functions h_{l,i}. "optimal": as in :class:`MercerHarmonic`, for every
        rotation-invariant kernel. "monomial", as published: t^{l+2i} (with e^{−t²/2} for the
        Gaussian), lemmas 4 and 15, for kernels of ⟨x, y⟩ and the Gaussian. Both are one function
        for kernels of the angle (lemma 16) and for rows on one sphere, and the given functions h_l
        for ``GeneralizedZonal`` and its multiples.
    order : int, optional
        s, functions for each degree. Default: that of the least predicted bias and noise s/D.
    degree : int, optional
        q, the largest l, and of monomials the largest total degree l + 2i. Default: the first
        beyond which less than 1e-12 of k(x, x) is left out at all but the 1 % longest rows; with
        optimal functions 48 at most.

    Notes
    -----
    Unbiased for the kernel cut at degree q and order s, for any rows: this error falls like 1/√D.
    More directions do not recover what is cut off: a ``FeatureWarning`` tells if a default leaves
    out more than one per cent of k(x, x) in the mean. Of one column there are two directions, ±1,
    in turn. Choose it to compare with published numbers; :class:`MercerHarmonic` has exact
    harmonics in place of random directions, and far smaller errors where α_l is moderate. Cost of
    φ(X): O(n m (d + (3 + 2 s) q)), without elementary functions.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.Gegenbauer(order=1, degree=6)
    >>> bo.draw(bo.kernels.DotExponential(), method, n_features=64, X=X)
    GegenbauerMap(kernel=DotExponential(scale=1.0), n_inputs=3, n_features=64)
    """

    radial: Annotated[str, word("optimal", "monomial")] = "optimal"
    order: MaybeCounted = None
    degree: Annotated[int | None, optional(integer)] = None


@dataclass(frozen=True, eq=False)
class GegenbauerMap(FeatureMap):
    """Σ_l h_{l,i}(|x|) p_l(⟨x, w_j⟩/|x|), components i in order, each at every w_j."""

    kernel: Kernel
    polar: mercer.Polar  # From rows to radii and directions
    directions: Float[np.ndarray, "d m"]  # W, unit columns
    #: h, a column for each pair of a degree and a component.
    radial: mercer.IndexedFunctions | mercer.RadialFunctions
    components: np.ndarray  # The component that each of these columns belongs to

    @property
    def n_features(self) -> int:
        return self.order * self.directions.shape[1]

    unbiased = False  # A series that is cut

    def left_out(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        functions = to_numpy(self.radial(self.polar(X)[1]))
        variance = to_numpy(self.kernel.diag(X))
        rest = variance - (functions**2).sum(axis=1)  # P_l(1) = 1
        return np.where(rest > 1e-12 * variance, rest, 0.0)

    @property
    def degree(self) -> int:
        """q, the largest degree."""
        return int(self.radial.degrees.max(initial=0))

    @property
    def order(self) -> int:
        """s, the number of components."""
        return int(self.components.max(initial=0)) + 1

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        xp = array_namespace(U)
        H = self.radial(r) * self.directions.shape[1] ** -0.5
        H = taken(xp.concat([H, xp.zeros_like(H[:, :1])], axis=1), self._places, axis=1)
        H = xp.reshape(H, (U.shape[0], self.order, self.degree + 1))
        return polynomials(U, moved(self.directions, like=U), H, *self._steps)

    @cached_property
    def _places(self) -> np.ndarray:
        """Which radial function each pair (component, degree) has; the last, zero, where none."""
        degrees = self.radial.degrees
        places = np.full((self.order, self.degree + 1), len(degrees))
        places[self.components, degrees] = np.arange(len(degrees))
        return places.ravel()

    @cached_property
    def _steps(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """p_{l+1} = up_l t p_l − down_l p_{l−1}."""
        if self.n_inputs == 1:
            return np.eye(1, self.degree)[0], np.zeros(self.degree)
        b = recurrence(self.degree, self.n_inputs)
        return 1.0 / b[1:], b[:-1] / b[1:]


# --- Gegenbauer features in the rule table: degree, order, radial functions and directions -------
#
# Degree and order are where truncation stops to matter beside the noise of random directions.

#: The part of k(x, x) that the degree may leave out. Noise averages over rows; this part does not:
#: whole eigenspaces of K, which a fit misses as soon as their eigenvalues, at most n times this,
#: are above its penalty. 1e-12 ‖K‖ is about the least that a fit in float64 can have.
NEGLIGIBLE = 1e-12
MOST_ORDERS = 16  # Components that are tried where no order is given
ROWS = 256  # Rows on which orders are compared


#: Radial functions, and the component of each.
Radials = tuple[mercer.IndexedFunctions | mercer.RadialFunctions, np.ndarray]


def _first(order: int, radials: Radials) -> Radials:
    """Return the radial functions of the first components."""
    functions, components = radials
    kept = np.flatnonzero(components < order)
    return functions.chosen(kept), components[kept]


def draw_gegenbauer(method: Gegenbauer, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw random Gegenbauer features; degree, order and radial functions by the rows."""
    plain, scales, radial = mercer.in_balls("Gegenbauer", kernel, ask.n_inputs)
    centred = method.radial == "optimal" and is_stationary(kernel)
    polar = mercer.polar_of(scales, ask.X, centred, rotated=False)
    U, r = (None, None) if ask.X is None else polar(ask.X.astype(np.float64))
    if isinstance(plain, GeneralizedZonal):
        radials = _own_radials(method, plain, ask.n_inputs, r)
    else:
        # One constant function is enough for kernels of the angle, and for rows on one sphere.
        constant = method.order is None and r is not None and mercer.one_radius(r)
        optimal = method.radial == "optimal" or radial.zonal or constant
        choose = _optimal if optimal else _monomial
        radials = choose(method, plain, radial, r, ask.n_features)
        # The order is weighed against noise; in one column there is no noise.
        if method.order is None and ask.n_inputs > 1 and radials[1].any():
            order = _best_order(radials, _required(U), _required(r), ask.n_features)
            radials = _first(order, radials)
    order = int(radials[1].max(initial=0)) + 1
    m = ask.n_features // order
    if m < 1:
        raise InvalidInput(
            f"Gegenbauer: n_features must be at least the {order} of one direction; got "
            f"{ask.n_features}. Ask for more, or for a lower order."
        )
    if ask.n_inputs == 1 and m > 1:  # both directions come equally often
        m -= m % 2
    directions = draw_directions(ask.n_inputs, m, ask.stream("directions"))
    phi = GegenbauerMap(kernel, polar, directions, *radials)
    if ask.X is None or not (method.degree is None or method.order is None):
        return phi
    rows = ask.X[:: -(-ask.X.shape[0] // ROWS)].astype(np.float64)
    rest, variance = phi.left_out(rows), to_numpy(phi.kernel.diag(rows))
    share = float(rest.sum() / variance.sum()) if variance.any() else 0.0
    if share > 0.01:  # which matters for a fit
        warnings.warn(
            f"Gegenbauer: degree {phi.degree} and order {phi.order} at {phi.n_features} "
            f"features leave out {100 * share:.2g} % of k(x, x) in the mean of the rows, which "
            "more directions do not give back. Ask for a larger order= (or degree=) with more "
            "features, or use MercerHarmonic() or Nystrom().",
            FeatureWarning,
            stacklevel=2,
        )
    return phi


def _required(r: Array | None) -> Float[np.ndarray, " n *d"]:
    if r is None:
        raise InvalidInput(
            "draw: Gegenbauer chooses order and degree, and optimal radial functions, from the "
            'radii of rows of data; got none. Pass X=..., or Gegenbauer(radial="monomial", '
            "order=..., degree=...)."
        )
    return r


def _best_order(
    radials: Radials, U: Float[np.ndarray, "n d"], r: Float[np.ndarray, " n"], D: int
) -> int:
    """Return s with the least bias² + noise² of an entry, noise² (s/D) k_s(x, x) k_s(y, y)."""
    rows, (functions, components) = slice(None, None, -(-len(r) // ROWS)), radials
    U, h, degrees = U[rows], functions(r[rows]), functions.degrees
    P = list(gegenbauers(int(degrees.max()), U.shape[1], np.clip(U @ U.T, -1.0, 1.0)))
    cut = np.zeros((components.max() + 1, len(U), len(U)))
    for l, i, g in zip(degrees.tolist(), components.tolist(), h.T, strict=True):
        cut[i] += np.outer(g, g) * P[l]
    cut = np.cumsum(cut, axis=0)
    bias = ((cut - cut[-1]) ** 2).mean(axis=(1, 2))
    squares = np.einsum("ijj->ij", cut).mean(axis=1) ** 2
    return int(np.argmin(bias + (np.arange(len(cut)) + 1.0) / D * squares)) + 1


def _monomial(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array | None, D: int
) -> Radials:
    """Return monomial radial functions, of degrees l + 2i: as many as asked for, or as matter."""
    if (series := radial.power_series) is None:
        raise UnsupportedKernel(
            'Gegenbauer(radial="monomial") requires a kernel of ⟨x, y⟩, the Gaussian, a kernel of '
            "the angle, GeneralizedZonal, or rows on one sphere. Use Gegenbauer() or "
            "MercerHarmonic()."
        )
    total = series.degree if method.degree is None else method.degree
    if total is None:  # the first degree beyond which almost no part of k(x, x) is left
        t = max(float(np.quantile(_required(r), 0.99)), 1e-150)
        n = np.arange(4096)
        logs = series.log_derivative(n) + 2 * n * math.log(t) - gammaln(n + 1.0)
        terms = np.exp(logs - logs.max())
        beyond = np.cumsum(terms[:0:-1])[::-1]  # the part left out when n is the last
        enough = beyond <= NEGLIGIBLE * terms.sum()
        total = int(np.argmax(enough)) if enough.any() else len(n) - 1
    q = _capped(total, radial.n_inputs)
    if method.order is None:
        _required(r)
    most = max(D // 2, 1) if radial.n_inputs == 1 else min(MOST_ORDERS, D)
    s = min(total // 2 + 1, most) if method.order is None else method.order
    degrees, indices = np.repeat(np.arange(q + 1), s), np.tile(np.arange(s), q + 1)
    return mercer.IndexedFunctions(kernel, radial.n_inputs, degrees, indices), indices


def _capped(q: int, d: int) -> int:
    """Return the largest degree up to q that float32 can represent; at most 1 for d = 1."""
    if d == 1:
        return min(q, 1)
    while q > 1 and 0.5 * log_alpha(q, d) > math.log(1e35):
        q -= 1
    return q


def _own_radials(method: Gegenbauer, kernel: GeneralizedZonal, d: int, r: Array | None) -> Radials:
    """Return the functions given, or as many as asked for: in each degree the largest first."""
    sample = np.ones(1) if r is None else r
    sample = sample[:: -(-len(sample) // ROWS)]
    last = len(kernel.radial_functions) - 1
    q = _capped(last if method.degree is None else min(method.degree, last), d)
    squares = [(kernel.radial(l, sample) ** 2).mean(axis=0) for l in range(q + 1)]
    places = [np.argsort(-square, kind="stable") for square in squares]
    components = np.concatenate([np.arange(len(place)) for place in places])
    degrees = np.repeat(np.arange(q + 1), [len(place) for place in places])
    functions = mercer.IndexedFunctions(kernel, d, degrees, np.concatenate(places))
    return _first(method.order or len(components), (functions, components))


def _optimal(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array | None, D: int
) -> Radials:
    """Return radial functions from the radial kernels: the given number, or all that matter."""
    r, d = None if radial.zonal else _required(r), radial.n_inputs
    last = _capped(48 if method.degree is None else method.degree, d)
    q, total, degrees, energies, weights = mercer.spectrum(kernel, radial, r, 1 << 62, last)
    if method.degree is None:  # beyond which almost no energy is left
        enough = total - np.cumsum(np.bincount(degrees, energies)) <= NEGLIGIBLE * total
        last = int(np.argmax(enough)) if enough.any() else last
    order = np.lexsort((-energies, degrees))
    order = order[degrees[order] <= last]
    degrees = degrees[order]
    components = np.arange(len(degrees)) - np.searchsorted(degrees, degrees)
    # Signs + + − − along the degrees: with equal signs a feature peaks at its own direction.
    weights = weights[order] * (1 - degrees // 2 % 2 * 2)[:, None]
    functions = mercer.RadialFunctions(kernel, d, degrees, q, weights)
    if r is not None:
        functions = functions.interpolated(r, 1e-6 * total / D**0.5)  # share of the noise
    return _first(method.order or MOST_ORDERS, (functions, components))


def draw_directions(d: int, m: int, rng: np.random.Generator) -> Float[np.ndarray, "d m"]:
    """Return m unit columns, each uniform on the sphere; of one column 1 and −1 in turn."""
    if d == 1:
        return rng.choice((-1.0, 1.0)) * (-1.0) ** np.arange(m)[None, :]
    return unit_directions(IID(), d, m, rng)
