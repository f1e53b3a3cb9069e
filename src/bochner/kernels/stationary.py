"""Kernels of the difference x − y, with one lengthscale or one per column.

Below, r = |(x − y)/ℓ| is the Euclidean distance in units of the lengthscale, s = r², and
δ_j = (x_j − y_j)/ℓ_j. Formulas and spectral measures: Rahimi & Recht (2007), figure 1;
Rasmussen & Williams (2006), chapter 4.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bochner._core import native
from bochner._core.arrays import adapt, array_namespace, device, is_sparse, slices
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import distances, series, spectral
from bochner.kernels.hyperparameters import Place, TunedNumbers, TunedPositive
from bochner.kernels.kernel import Kernel, Scaled, Vjp, require_finite
from bochner.kernels.series import RadialKernels

Lengthscale = float | tuple[float, ...]
Compiled = tuple[str, float]


class Stationary(Kernel):
    """A kernel of x − y with k(x, x) = 1: the Fourier transform of a probability measure.

    Bochner's theorem: k(x, y) = E cos ω·(x − y), ω from the spectral measure. Most subclasses are
    `Radial` or `CoordinateWise`.
    """

    lengthscale: Lengthscale

    @abc.abstractmethod
    def spectral(self, d: int) -> spectral.Measure:
        """Return the distribution of the frequencies ω in R^d."""

    def at_zero(self, d: int) -> float:
        return 1.0

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        self.per_axis(X.shape[1])
        return array_namespace(X).ones((X.shape[0],), dtype=X.dtype, device=device(X))

    def per_axis(self, d: int) -> Any:
        """Return one lengthscale per column; refuse a d that does not fit."""
        return per_column(self.lengthscale, d, type(self).__name__, "lengthscale")


class Compilable(Stationary):
    """A stationary kernel with a lengthscale, which may have a compiled loop."""

    lengthscale: TunedNumbers
    #: Whether k is differentiable at distance zero, as gradients in rows require.
    smooth: ClassVar[Any] = False
    #: Name and parameter of the compiled loop for NumPy arrays; None if there is none.
    compiled: ClassVar[Any] = None

    @property
    def prefers_loop(self) -> bool:
        """Whether central differences by the compiled loop are faster than formulas of slopes."""
        return self.compiled is not None and isinstance(self.lengthscale, float)

    @abc.abstractmethod
    def block(self, X: Rows, Y: Others) -> Pairs:
        """Return k of all pairs of rows in units of the lengthscale."""

    @abc.abstractmethod
    def unit_pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        """Return `pullback` for rows in units of the lengthscale."""

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return self.unit_values(*self.scale_inputs(X, Y))

    def unit_values(self, X: Rows, Y: Others) -> Pairs:
        """Return the kernel values of `block`, by the compiled loop if there is one."""
        loop, is_numpy = self.compiled, isinstance(X, np.ndarray) and isinstance(Y, np.ndarray)
        if loop is None or not is_numpy or native.loops() is None or distances.overflow(X, Y):
            return distances.map_blocks(self.block, X, Y)
        return native.radial(np.ascontiguousarray(X), np.ascontiguousarray(Y), *loop)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        if not self.smooth:
            raise UnsupportedKernel(
                f"Gradients in rows require a kernel that is smooth at x = y; got {self!r}. "
                "Take Gaussian, RationalQuadratic, Cauchy, or Matern of smoothness above 1."
            )
        return _divide(self, self.unit_pullback(*self.scale_inputs(X, Y), C))

    def scale_inputs(self, X: Rows, Y: Others) -> tuple[Array, Array]:
        """Return X and Y minus the mean row of Y, divided by the lengthscale."""
        self.per_axis(X.shape[1])
        U, V = distances.centred(X, Y)
        X = _divide(self, U)
        return X, X if V is U else _divide(self, V)


class Radial(Compilable):
    """A stationary kernel of the Euclidean distance r = |(x − y)/ℓ|."""

    @abc.abstractmethod
    def profile(self, s: Array) -> Array:
        """Return k as a function of s = r², elementwise."""

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        """Return k and ∂k/∂s; at s = 0 any finite slope if the kernel is not smooth.

        This default uses central differences in log s, for NumPy arrays only.
        """
        h = 2e-4
        upper, lower = (self.profile(s * np.exp(step)) for step in (h, -h))
        slope = np.divide(upper - lower, 2 * h * s, out=np.zeros_like(s), where=s > 0)
        return self.profile(s), slope

    def hyperparameter_vjp(self, X: Rows) -> Vjp:
        if self.prefers_loop:
            return super().hyperparameter_vjp(X)
        U, _ = self.scale_inputs(X, X)
        s = distances.squared_distances(U, U)
        K, slope = self.with_slope(s)

        def gradients(C: Array) -> dict[Place, float]:
            R = C * slope
            if not isinstance(self.lengthscale, tuple):
                return {Place("lengthscale"): -2 * float(np.vdot(R, s))}
            squares = (R.sum(axis=1) + R.sum(axis=0)) @ (U * U)
            slopes = -2 * squares + 4 * np.einsum("ij,ij->j", U, R @ U)
            return {Place("lengthscale", j): float(v) for j, v in enumerate(slopes)}

        return lambda: K, gradients

    @property
    @abc.abstractmethod
    def mixing(self) -> spectral.Law:
        """Distribution of f in k = E exp(−f r²/2), the kernel as a mixture of Gaussians."""

    def spectral(self, d: int) -> spectral.Measure:
        return spectral.Measure(self.mixing, 1.0 / np.array(self.per_axis(d)), role="factor")

    def zonal(self, d: int) -> RadialKernels | None:
        scale, *extras = {*np.atleast_1d(self.lengthscale).tolist()}
        return None if extras else series.of_distance(self.profile, scale, d)

    def block(self, X: Rows, Y: Others) -> Pairs:
        return self.profile(distances.squared_distances(X, Y))

    def unit_pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        M = 2.0 * C * self.with_slope(distances.squared_distances(X, Y))[1]
        return array_namespace(M).sum(M, axis=1)[:, None] * X - M @ Y


class CoordinateWise(Compilable):
    """A stationary kernel that is a product over columns of one 1-D kernel."""

    @abc.abstractmethod
    def rate(self, delta: Pairs) -> Pairs:
        """Return ∂ log k/∂δ for differences δ of one column, in units of its lengthscale."""

    def hyperparameter_vjp(self, X: Rows) -> Vjp:
        K, backward = super().hyperparameter_vjp(X)
        return K, backward if self.prefers_loop else lambda C: column_slopes(self, X, C * K())

    def log_slopes(self, gap: Pairs, j: int, d: int) -> dict[str, Array]:
        """Return ∂ log k/∂ log ℓ of column j of d columns, for differences of this column."""
        delta = gap / self.per_axis(d)[j]
        return {"lengthscale": -delta * self.rate(delta)}

    @property
    @abc.abstractmethod
    def law(self) -> spectral.Law:
        """Distribution of each coordinate of ω, in units of 1/ℓ."""

    def spectral(self, d: int) -> spectral.Measure:
        return spectral.Measure(self.law, 1.0 / np.array(self.per_axis(d)))

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        refuse_sparse(self, X, Y)
        return super().evaluate(X, Y)

    def unit_pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return by_columns(C * self.unit_values(X, Y), lambda gap, _: self.rate(gap), X, Y)


@dataclass(frozen=True)
class Gaussian(Radial):
    """k(x, y) = exp(−r²/2), r = |(x − y)/ℓ|; infinitely smooth.

    Spectral measure: ω = z/ℓ, z ~ N(0, I).

    Parameters
    ----------
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X. scikit-learn's ``gamma`` is 1/(2ℓ²).

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.kernels import Gaussian
    >>> X = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> Gaussian(lengthscale=(1.0, 4.0))(X).round(2)
    array([[1.  , 0.54],
           [0.54, 1.  ]])
    """

    lengthscale: TunedNumbers = 1.0

    def profile(self, s: Array) -> Array:
        return array_namespace(s).exp(-0.5 * s)

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        k = self.profile(s)
        return k, -0.5 * k

    def zonal(self, d: int) -> RadialKernels | None:
        rate, *extras = {1.0 / scale**2 for scale in np.atleast_1d(self.lengthscale).tolist()}
        return None if extras else series.of_exponential(d, rate, decay=rate)

    smooth = True
    mixing = spectral.constant_law()
    compiled = "gaussian", 1.0


@dataclass(frozen=True)
class Exponential(Radial):
    """k(x, y) = exp(−r), r = |(x − y)/ℓ| Euclidean; continuous, not smooth (Matérn ½).

    Spectral measure: multivariate Cauchy, ω = (z/ℓ)/|g|, with z ~ N(0, I) and one g ~ N(0, 1).

    Parameters
    ----------
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    See Also
    --------
    Matern : Smoothness from this kernel to the Gaussian.
    Laplace : Kernel of the L1 distance.

    Examples
    --------
    >>> from bochner.kernels import Exponential
    >>> Exponential(2.0)([[0.0]], [[0.0], [1.0], [3.0]]).round(2)
    array([[1.  , 0.61, 0.22]])
    """

    lengthscale: TunedNumbers = 1.0

    def profile(self, s: Array) -> Array:
        xp = array_namespace(s)
        return xp.exp(-xp.sqrt(s))

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        r = np.sqrt(s)
        k = np.exp(-r)
        return k, np.divide(-0.5 * k, r, out=np.zeros_like(r), where=r > 0)

    mixing = spectral.inverse_chi2(1.0)
    compiled = "exponential", 1.0


@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """k(x, y) = (1 + r²/(2a))^(−a), r = |(x − y)/ℓ|; a mixture of Gaussians of many lengthscales.

    Spectral measure: ω = (z/ℓ)√τ, z ~ N(0, I), one τ ~ Gamma(a, rate a).

    Parameters
    ----------
    shape : float, default 1.0
        a > 0. A small a gives heavy tails; a → ∞ is the Gaussian kernel.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import RationalQuadratic
    >>> RationalQuadratic(shape=0.5)([[0.0]], [[0.0], [1.0], [3.0]]).round(2)
    array([[1.  , 0.71, 0.32]])
    """

    shape: TunedPositive = 1.0
    lengthscale: TunedNumbers = 1.0

    def profile(self, s: Array) -> Array:
        xp = array_namespace(s)
        return xp.exp(-self.shape * xp.log1p(s / (2.0 * self.shape)))

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        k = self.profile(s)
        return k, -0.5 * k / (1.0 + s / (2.0 * self.shape))

    smooth = True

    @property
    def mixing(self) -> spectral.Law:
        return spectral.gamma_mixing(self.shape)

    @property
    def compiled(self) -> Compiled | None:
        return "rational_quadratic", self.shape


@dataclass(frozen=True)
class Laplace(CoordinateWise):
    """k(x, y) = exp(−Σ_j |δ_j|), δ = (x − y)/ℓ: the L1 distance.

    Spectral measure: independent Cauchy coordinates, ω_j = c_j/ℓ_j.

    Parameters
    ----------
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import Laplace
    >>> Laplace((1.0, 4.0))([[0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]).round(2)
    array([[0.37, 0.78]])
    """

    lengthscale: TunedNumbers = 1.0

    def block(self, X: Rows, Y: Others) -> Pairs:
        xp = array_namespace(X, Y)
        return xp.exp(-distances.coordinatewise(X, Y, xp.abs))

    def rate(self, delta: Pairs) -> Pairs:
        return -array_namespace(delta).sign(delta)

    law = spectral.CAUCHY
    compiled = "laplace", 1.0


@dataclass(frozen=True)
class Cauchy(CoordinateWise):
    """k(x, y) = Π_j 1/(1 + δ_j²), δ = (x − y)/ℓ.

    Spectral measure: independent Laplace coordinates, density ½ exp(−|c_j|), ω_j = c_j/ℓ_j.

    Parameters
    ----------
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import Cauchy
    >>> Cauchy(2.0)([[0.0]], [[0.0], [1.0], [3.0]]).round(2)
    array([[1.  , 0.8 , 0.31]])
    """

    lengthscale: TunedNumbers = 1.0

    def block(self, X: Rows, Y: Others) -> Pairs:
        xp = array_namespace(X, Y)
        return xp.exp(-distances.coordinatewise(X, Y, lambda delta: xp.log1p(delta * delta)))

    def rate(self, delta: Pairs) -> Pairs:
        return -2.0 * delta / (1.0 + delta * delta)

    smooth = True
    law = spectral.LAPLACE
    compiled = "cauchy", 1.0


def isotropic(kernel: Kernel, d: int) -> tuple[Kernel, Float[np.ndarray, " d"]]:
    """Return the kernel with unit lengthscale, and ℓ (d,); ℓ = 1 if it is not radial."""
    leaf, _ = next(kernel.leaves(Scaled))
    if not isinstance(leaf, Radial):
        return kernel, np.ones(d)
    unscale = lambda part, _: part.replace(lengthscale=1.0) if isinstance(part, Radial) else part
    return kernel.rebuild(unscale), 1.0 / np.asarray(leaf.spectral(d).scales)


def by_columns(M: Pairs, rate: Callable[[Array, int], Array], X: Array, Y: Array) -> Rows:
    """Return Σ_j M_ij rate(x_ik − y_jk, k) of each row i and column k; rate is ∂ log k/∂x."""
    xp, d = array_namespace(M), X.shape[1]
    gap = lambda k: X[:, k][:, None] - Y[:, k][None, :]
    return xp.stack([xp.sum(M * rate(gap(k), k), axis=1) for k in range(d)], axis=1)


def column_slopes(kernel: Any, X: Array, R: Array) -> dict[Place, float]:
    """Return ∂E/∂ log θ = Σ R ∘ ∂ log k/∂ log θ of each hyperparameter θ; R = k ∘ ∂E/∂k."""
    slopes: dict[Place, float] = {}
    for rows in slices(len(X), max(1, (1 << 16) // len(X))):  # arrays fit into the cache
        for j in range(X.shape[1]):
            gap = X[rows, j, None] - X[None, :, j]
            for name, slope in kernel.log_slopes(gap, j, X.shape[1]).items():
                place = Place(name, j if isinstance(getattr(kernel, name), tuple) else None)
                slopes[place] = slopes.get(place, 0.0) + float(np.vdot(R[rows], slope))
    return slopes


def per_column(value: Lengthscale, d: int, caller: str, name: str) -> tuple[float, ...]:
    """Return one number per column; refuse a tuple whose length is not d."""
    if type(d) is not int or d < 1:
        d = integer(d, caller, "the number of columns", minimum=1)
    if not isinstance(value, tuple):
        return (value,) * d
    if len(value) != d:
        raise InvalidInput(
            f"{caller}: {name} must be one number or one per column; got {len(value)} for {d} "
            f"columns. Pass {d} numbers, or one."
        )
    return value


def _divide(kernel: Stationary, X: Array) -> Array:
    """Return X/ℓ; refuse an overflow."""
    scale = np.asarray(kernel.lengthscale)
    with np.errstate(over="ignore", divide="ignore"):
        if is_sparse(X):
            scaled = X.multiply((1.0 / scale)[None]).tocsr().astype(X.dtype)
        else:
            scaled = X / adapt(scale, like=X)
    remedy = "Rescale the columns of X, or choose a lengthscale near the distances between rows."
    cause = f" with lengthscale {kernel.lengthscale!r}. {remedy}"
    return require_finite(scaled, type(kernel).__name__, "X divided by lengthscale", cause)


def refuse_sparse(kernel: Kernel, *matrices: Any) -> None:
    """Refuse sparse rows, for kernels that are sums or products over columns."""
    if any(map(is_sparse, matrices)):
        raise InvalidInput(
            f"{type(kernel).__name__}: X must be dense; got a sparse matrix. Pass X.toarray(), or "
            "use a kernel of the Euclidean distance such as Gaussian or Exponential."
        )
