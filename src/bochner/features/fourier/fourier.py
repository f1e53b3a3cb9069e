"""Fourier features of stationary kernels and of histogram kernels.

By Bochner's theorem k(x − y) = k(0) E cos(ω·(x − y)) with ω from the kernel's spectral measure, and
m frequencies ω_j give

    pairs:   φ(x) = √(k(0)/m) [cos ω_j·x, sin ω_j·x]_j,             D = 2m,
    phases:  φ(x) = √(2 k(0)/m) [cos(ω_j·x + b_j)]_j, b ~ U[0, 2π],   D = m,

and, with weights w_j, pairs √(k(0) w_j) [cos ω_j·x, sin ω_j·x]_j. Columns 0..m−1 of pairs are
the cosines, columns m..2m−1 the sines.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Annotated, Any, Literal

import numpy as np

from bochner._core import arrays, native
from bochner._core.blas import eigh
from bochner._core.checks import Positive, word
from bochner._core.shapes import Array, Float, Tabular
from bochner.errors import InvalidInput
from bochner.features.fourier import placements
from bochner.features.fourier.placements import IID, Grid, Placement, Transforms
from bochner.features.map import FeatureMap, Method, Request, kind_of, reach_of, with_far_rows
from bochner.kernels.histogram import Additive, SkewedChi2, require_above
from bochner.kernels.kernel import Kernel
from bochner.kernels.spectral import Measure
from bochner.kernels.stationary import refuse_sparse


@dataclass(frozen=True)
class Fourier(Method):
    """Random Fourier features: Rahimi and Recht (2007).

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        How frequencies are drawn: ``IID()``, ``Orthogonal()``, ``QMC()``, ``Structured()`` (fast
        transforms, for d in the hundreds), ``Fastfood()``, or ``Grid()`` (weighted nodes).
    form : {"pair", "phase"}, default "pair"
        "pair": cosine and sine of D/2 frequencies; |φ(x)|² = k(x, x) exactly. With independent
        frequencies, δ = x − y and k(0) = 1, φ(x)·φ(y) has variance (1 + k(2δ) − 2k(δ)²)/D.
        "phase": cosines of D frequencies with random phases; its variance (1 + ½k(2δ) − k(δ)²)/D is
        usually larger. ``phi.complex(X)`` of pairs returns D/2 complex exponentials.

    Notes
    -----
    Supports stationary kernels, their sums and products. Unbiased, except with ``Grid()`` and for
    at most 2e-3 k(0) with ``Structured()``; errors fall like 1/√D. Use it to read data only once,
    for speed with D in the thousands, or if the spectrum of K does not decay. Otherwise
    :class:`Nystrom` is more accurate at equal D. φ(X): O(n d D), and D/2 sine-cosine pairs per row.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.Fourier(), n_features=64, n_inputs=3)
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi(X).shape, phi.complex(X).shape
    ((50, 64), (50, 32))
    """

    placement: Annotated[
        Placement | Grid,
        kind_of("IID(), Orthogonal(), Structured(), Fastfood(), QMC() or Grid()", Placement, Grid),
    ] = field(default_factory=placements.Orthogonal)
    form: Annotated[Literal["pair", "phase"], word("pair", "phase")] = "pair"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.placement, Grid) and self.form != "pair":
            raise InvalidInput(
                f'Fourier(Grid()) requires form="pair", because of its weights; got {self.form!r}.'
            )

    @cached_property
    def floats_each(self) -> int | None:  # type: ignore[override]
        implicit = placements.Structured | placements.Fastfood  # not stored as a matrix
        return 3 if isinstance(self.placement, implicit) else None

    @cached_property
    def granularity(self) -> int:  # type: ignore[override]
        return 1 if self.form == "phase" or isinstance(self.placement, Grid) else 2


@dataclass(frozen=True, eq=False)
class FourierMap(FeatureMap):
    """Cosines and sines of frequencies, or cosines with phases."""

    kernel: Kernel
    frequencies: Float[Array, "d m"] | Transforms  # W as a matrix, or as fast transforms
    amplitude: float  # k(0)
    #: Phases b in radians; empty for pairs.
    phases: Float[Array, " b"] = field(default_factory=partial(np.zeros, 0))
    #: Weights w ≥ 0 of pairs; empty if all are 1/m.
    weights: Float[Array, " w"] = field(default_factory=partial(np.zeros, 0))
    random: bool = True  # False for nodes of a quadrature rule

    @cached_property
    def n_features(self) -> int:
        return self.frequencies.shape[1] * (1 if len(self.phases) else 2)

    @property
    def unbiased(self) -> bool:
        return self.random

    @property
    def multiplications(self) -> float:
        W = self.frequencies
        return W.multiplications if isinstance(W, Transforms) else float(W.size)

    @cached_property
    def reach(self) -> float:
        W = self.frequencies
        return W.reach if isinstance(W, Transforms) else reach_of(W)

    @cached_property
    def matrix(self) -> Float[Array, "d m"]:
        """Frequencies W in radians per unit of X, shape (d, m)."""
        W = self.frequencies
        return W.matrix if isinstance(W, Transforms) else W

    @cached_property
    def _cycles(self) -> tuple[tuple[Array | native.Chains, Array], ...]:
        """(W/2π, b/2π) in float32, and in float64: range reduction of cycles is exact."""
        pairs: list[Any] = []
        for angles in (self.frequencies, self.phases):
            if isinstance(angles, Transforms):
                pairs.append(angles.chains)
                continue
            cycles = np.ascontiguousarray(angles / (2 * np.pi))
            with np.errstate(over="ignore"):  # lengthscales may be too small for float32
                pairs.append((cycles.astype(np.float32), cycles))
        return tuple(zip(*pairs, strict=True))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if not (arrays.is_sparse(X) and isinstance(self.frequencies, Transforms)):
            return with_far_rows(self, X, self._waves)
        Z = np.empty((X.shape[0], self.n_features), X.dtype)
        block = max(1, (1 << 22) // X.shape[1])  # rows per dense block
        for rows in arrays.slices(len(Z), block):
            Z[rows] = self.features(X[rows].toarray())
        return Z

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the features, with angles in the dtype of X."""
        double, has_phases = arrays.precision(X) == np.float64, len(self.phases) > 0
        m = self.frequencies.shape[1]
        scale = (self.amplitude / m * (2 if has_phases else 1)) ** 0.5
        cycles, phases = self._cycles[double]
        if isinstance(X, np.ndarray) or isinstance(cycles, native.Chains):
            Z = native.waves(X, cycles, scale, phases if has_phases else None)
        else:
            angles = X @ arrays.adapt(self.matrix, like=X)
            angles = angles + arrays.adapt(self.phases, like=angles) if has_phases else angles
            xp = arrays.array_namespace(angles)
            waves = [xp.cos(angles)] if has_phases else [xp.cos(angles), xp.sin(angles)]
            Z = scale * xp.concat(waves, axis=1)
        if not len(self.weights):
            return Z
        roots = arrays.adapt(np.sqrt(m * np.concatenate([self.weights, self.weights])), like=Z)
        return np.multiply(Z, roots, out=Z) if isinstance(Z, np.ndarray) else Z * roots

    def complex(self, X: Tabular) -> Float[Array, "n m"]:
        """Return complex features √(k(0)/m) exp(iω_j·x), shape (n, D/2), with φ(X) φ(Y)ᴴ ≈ K."""
        Z, m = self(X), self.frequencies.shape[1]
        if len(self.phases):
            raise InvalidInput(
                "FourierMap.complex: features must be pairs; got cosines with phases. Draw them by "
                'Fourier(form="pair").'
            )
        xp = arrays.array_namespace(Z)
        dtype = xp.complex64 if Z.dtype == xp.float32 else xp.complex128
        return xp.astype(Z[:, :m], dtype) + 1j * xp.astype(Z[:, m:], dtype)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        if len(self.phases):
            slopes = C * replace(self, phases=self.phases + np.pi / 2).features(X)
        else:
            Z, m = self.features(X), self.frequencies.shape[1]
            slopes = Z[:, :m] * C[..., m:] - Z[:, m:] * C[..., :m]
        return slopes @ arrays.adapt(self.matrix.T, like=X)


def draw_stationary(method: Fourier, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw Fourier features of a kernel of x − y, or of log(x + c) − log(y + c)."""
    placement, d, m = method.placement, ask.n_inputs, ask.n_features
    amplitude = kernel.at_zero(d)
    law = kernel.spectral_of_logs(d) if isinstance(kernel, SkewedChi2) else kernel.spectral(d)
    if isinstance(placement, Grid):
        W, weights = placement.nodes(law, max(1, m // 2))  # type: ignore[arg-type]
        return FourierMap(kernel, W, amplitude, weights=weights, random=False)
    phases = np.zeros(0)
    if method.form == "phase":
        phases = ask.stream("phases").uniform(0, 2 * np.pi, m)
    else:
        m //= 2
    W = placement.frequencies(law, m, ask.stream("frequencies"))
    if isinstance(W, Transforms) and W.multiplications >= d * m:
        W = W.matrix
    return FourierMap(kernel, W, amplitude, phases)


# --- Frequencies by ridge leverage, weighted so that features stay unbiased ----------------------
#
# With z(ω) the vector e^(−iω·x_j) of n rows, p the density of a kernel's frequencies, λ a penalty,
#
#     τ(ω) = z(ω)*(K + λI)⁻¹ z(ω),   E τ = d_λ = Tr K(K + λI)⁻¹,
#
# is the ridge leverage of ω. With draws from p it is up to n k(0)/λ times its mean. With draws from
# a density q proportional to p τ, weighted by p/q, all frequencies have equal leverage, and about
# d_λ log d_λ frequencies suffice [Avron et al. (2017), lemma 6 and theorem 7].


@dataclass(frozen=True)
class LeverageFourier(Method):
    """Random Fourier features by ridge leverage, weighted: Avron et al. (2017).

    Parameters
    ----------
    penalty : float, default 1e-4
        1/n_λ = λ/(n k(x, x)), for the penalty λ of a fit to n rows.

    Notes
    -----
    Supports every kernel of x − y. Frequencies are drawn from eight times as many candidates, 90 %
    by leverage on up to 1,000 rows, 10 % by the spectral density. Unbiased for any data; stores no
    rows. For small penalties and few columns the spectral distance is far smaller than with
    :class:`Fourier`, but errors of single entries are larger. :class:`Nystrom` is more accurate if
    the map may store rows, Mercer features if the kernel is smooth. φ(X) costs as much as with
    :class:`Fourier`; drawing costs O(s³ + s² D), s = min(n, 1,000).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> bo.draw(bo.kernels.Matern(1.5), bo.LeverageFourier(penalty=1e-3), n_features=64, X=X)
    FourierMap(kernel=Matern(smoothness=1.5, lengthscale=1.0), n_inputs=3, n_features=64)
    """

    penalty: Positive = 1e-4

    granularity = 2


def draw_by_leverage(method: LeverageFourier, kernel: Kernel, ask: Request) -> FourierMap:
    """Draw weighted Fourier features of a kernel of x − y from candidates, by their leverage."""
    m, d, rng = ask.n_features // 2, ask.n_inputs, ask.stream("frequencies")
    X = ask.rows("LeverageFourier", "rows to measure leverage on")
    index = ask.stream("rows").permutation(X.shape[0])[:1000]
    # Candidates W, as rows, and p over their density. For isotropic kernels, half of them are
    # doubled, because few draws from p have the high frequencies that small penalties need.
    measure = kernel.spectral(d)
    W, ratios = IID().frequencies(measure, 8 * m, rng).T, np.ones(8 * m)
    if isinstance(measure, Measure) and measure.role == "factor" and measure.has_density:
        W = W * np.where(np.arange(len(W)) % 2, 2.0, 1.0)[:, None]
        wide = measure.log_density(W / 2.0) - d * math.log(2.0)
        ratios = 2 / (1 + np.exp(wide - measure.log_density(W)))
    rows = arrays.in_float64(X[np.sort(index)])
    K = arrays.to_numpy(kernel(rows))
    values, V = eigh((K + K.T) / 2, check_finite=False)
    sizes = np.maximum(values, 0.0) + method.penalty * np.trace(K)

    def leverages(W: Float[np.ndarray, "b d"]) -> Float[np.ndarray, " b"]:
        angles = rows @ W.T
        waves = V.T @ np.cos(angles), V.T @ np.sin(angles)
        return sum(np.einsum("ij,i->j", wave**2, 1 / sizes) for wave in waves)

    shares = ratios * np.concatenate([leverages(W[batch]) for batch in arrays.slices(len(W), 4096)])
    uniform = 0.1  # probability of a draw from p; bounds the weights by its inverse
    chances = (1 - uniform) * shares / shares.sum() + uniform * ratios / ratios.sum()
    picks = rng.choice(len(W), m, p=chances)
    weights = (ratios / (len(W) * chances))[picks] / m
    amplitude = kernel.at_zero(d)
    return FourierMap(kernel, np.ascontiguousarray(W[picks].T), amplitude, weights=weights)


# --- Kernels of histograms: spectra sampled at equal steps ---------------------------------------
#
# An additive kernel Σ_j √(x_j y_j) 𝒦(log y_j/x_j) with the spectral density κ of 𝒦 has, for each
# column x, the 2n + 1 features
#
#     √(x L κ(0)),  √(2 x L κ(jL)) cos(jL log x),  √(2 x L κ(jL)) sin(jL log x),  j = 1, …, n,
#
# all zero if x is zero [Vedaldi & Zisserman (2012), eq. 11].


@dataclass(frozen=True)
class HistogramSampling(Method):
    """Features of histogram kernels by their sampled spectra: Vedaldi and Zisserman (2012).

    Notes
    -----
    Supports `AdditiveChi2`, `Intersection` and `JensenShannon`. Each column has 2n + 1 features,
    the largest odd number that ``n_features`` allows. The map is deterministic, and its error is
    bounded for all data: for χ², with 3, 5 and 7 features per column, by 3.2, 1.3 and 0.6 % of the
    larger of x_j and y_j. Use it for nonnegative columns with additive effects; if columns
    interact, :class:`Nystrom` needs fewer features. Cost of φ(X): O(n D).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.AdditiveChi2(), bo.HistogramSampling(), n_features=21, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.05
    True
    """

    floats_each = 1


@dataclass(frozen=True, eq=False)
class HistogramMap(FeatureMap):
    """Sampled spectrum of an additive kernel: 2n + 1 features per column."""

    kernel: Additive
    inputs: int  # d
    terms: int  # n
    step: float  # L

    @property
    def n_features(self) -> int:
        return self.inputs * (2 * self.terms + 1)

    unbiased = False  # A sum approximates an integral; there is no randomness

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        refuse_sparse(self.kernel, X)
        require_above(self.kernel, 0.0, X)
        xp = arrays.array_namespace(X)
        frequencies = arrays.adapt(self.step * np.arange(self.terms + 1), like=X)
        roots = arrays.adapt(np.sqrt(_weights(self.kernel, self.terms, self.step)), like=X)
        logs = xp.log(xp.where(X > 0, X, xp.ones_like(X)))
        angles = logs[:, :, None] * frequencies
        sizes = xp.sqrt(X)[:, :, None] * roots
        parts = [sizes * xp.cos(angles), (sizes * xp.sin(angles))[:, :, 1:]]
        return xp.reshape(xp.concat(parts, axis=2), (X.shape[0], self.n_features))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, n = arrays.array_namespace(X), self.terms + 1
        if not bool(xp.all(X > 0)):
            raise InvalidInput(
                "HistogramSampling: gradients require numbers above 0, as features grow like √x; "
                f"got {float(xp.min(X)):.6g}. Add a small number to X, or drop columns with zeros."
            )
        Z, C = (xp.reshape(A, (*X.shape, 2 * n - 1)) for A in (self.features(X), C))
        slopes = Z[:, :, 1:n] * C[:, :, n:] - Z[:, :, n:] * C[:, :, 1:n]
        rates = arrays.adapt(self.step * np.arange(1, n), like=X)
        return (0.5 * xp.sum(Z * C, axis=2) + xp.sum(rates * slopes, axis=2)) / X


def _weights(kernel: Additive, terms: int, step: float) -> Float[np.ndarray, " n"]:
    """Return the trapezoidal weights hκ(0), 2hκ(h), …, 2hκ(nh), h = ``step``, n = ``terms``."""
    weights = 2 * step * kernel.spectrum(step * np.arange(terms + 1.0))
    weights[0] *= 0.5
    return weights


def sampling_error(kernel: Additive, terms: int, step: float) -> float:
    """Return the largest error of a term, relative to the larger of x and y."""
    # For larger |log y/x| the terms, and their errors, are below 0.2 % of the larger number.
    t = np.linspace(0.0, 12.5, 500)
    waves = np.cos(step * np.outer(t, np.arange(terms + 1.0)))
    signature = kernel.term(np.exp(-0.5 * t), np.exp(0.5 * t))
    error = waves @ _weights(kernel, terms, step) - signature
    return float(np.abs(np.exp(-0.5 * t) * error).max())


@cache
def best_step(kernel: Additive, terms: int) -> float:
    """Return the step that minimises `sampling_error`, to about 0.1 %."""
    low, high = 0.02 / (1 + terms) ** 0.5, 4.0
    for _ in range(3):
        steps = np.geomspace(low, high, 40)
        errors = [sampling_error(kernel, terms, step) for step in steps]
        best = int(np.argmin(errors))
        low, high = steps[max(best - 1, 0)], steps[min(best + 1, 39)]
    return float(steps[best])


def draw_sampled_spectrum(
    method: HistogramSampling, kernel: Additive, ask: Request
) -> HistogramMap:
    """Return the map of a spectrum that is sampled at the best equal steps."""
    ask.require_width(ask.n_inputs, "HistogramSampling", "one per column")
    terms = (ask.n_features // ask.n_inputs - 1) // 2
    return HistogramMap(kernel, ask.n_inputs, terms, best_step(kernel, terms))
