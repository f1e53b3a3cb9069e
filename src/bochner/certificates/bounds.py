"""A-priori bounds: the number of features for an error, and the error at a number of features.

All hold for independent draws, like ``Fourier(IID())``. Other placements of the frequencies, such
as orthogonal, usually have smaller errors, which these theorems do not cover.
"""

import math
import operator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from bochner._core.arrays import to_numpy
from bochner._core.checks import integer, one_of, positive, share
from bochner._core.shapes import Array, Float, Rows
from bochner.certificates.pencil import require_rows, values_of
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.placements import IID
from bochner.features.mercer.radial import as_radial, axis_points, same_radius
from bochner.features.networks import ReLU, Sign, polynomial_width
from bochner.features.sketch import Maclaurin, TensorSketch, log_coefficients, powers
from bochner.kernels.dotproduct import Polynomial
from bochner.kernels.kernel import Kernel, Scaled
from bochner.kernels.series import RadialKernels, monomials
from bochner.kernels.series import alpha as harmonics
from bochner.kernels.zonal import Angular, ArcCosine, GeneralizedZonal

LARGEST = 1e15  # largest width
CUTS = 400  # largest total degree at which a series is cut


@dataclass(frozen=True)
class Bound:
    """Upper bound of the error at a number of features, as :func:`fourier_bound` returns it.

    ``width(error, confidence)`` and ``error(n_features, confidence)`` are inverse functions. The
    bound holds with probability ``confidence``, 1 − δ, between 0 and 1.

    See Also
    --------
    bochner.compare_bounds : All bounds of a kernel in one table.

    Notes
    -----
    ``quantity`` names the error. For projection costs ``bounds`` has two: distance and trace.
    A bound of :func:`zonal_bound` or :func:`ball_bound` has ``cuts``, one bound for each degree at
    which the series may be truncated; ``best_cut(n_features, confidence)`` returns the best cut.
    """

    #: Name of the error that is bounded.
    quantity: str
    #: c, v, b and p of P(error > ε) ≤ e^c ε^(−p) exp(−m ε²/(2(v + bε))) for m independent draws.
    log_constant: float = 0.0
    variance: float = 0.0
    scale: float = 0.0
    power: float = 0.0
    #: m = (D − exact)/per_draw: 2 features of one draw for pairs, 1 for phases.
    per_draw: int = 2
    exact: int = 0
    #: C of P(error > ε) ≤ C/(m ε²), for features that depend on one another.
    chebyshev: float = 0.0
    #: N and s of a kernel truncated as in ``Gegenbauer("monomial", s, N)``: s = ⌊N/2⌋ + 1, or 1.
    degree: int = 0
    order: int = 0
    #: ε_t = Σ_j e(x_j)/λ, which truncation adds to the error: K_N ⪯ K ⪯ K_N + ε_t λ I.
    tail: float = 0.0
    #: One bound for each total degree at which the series may be truncated.
    cuts: tuple["Bound", ...] = ()
    #: Bounds whose largest width is the width of this bound.
    bounds: tuple["Bound", ...] = ()

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return the least number of features that keeps the error below ``error`` (positive)."""
        error = positive(error, "width", "error")
        if (width := self.least_width(error, confidence)) is None:
            bias = self.cuts[-1].tail if self.cuts else 0.0
            raise InvalidInput(
                f"width: error must be above {bias:.3g}, the error of the last cut, and large "
                f"enough for a width below {LARGEST:.0e}; got {error!r}. Ask for a larger error."
            )
        return width

    def least_width(self, error: float, confidence: float = 0.95) -> int | None:
        """Return the smallest number of features with an error below ``error``, or None."""
        width = self._smallest(error, chance_of(confidence))[0]
        return None if width == math.inf else int(width)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the error that ``n_features`` features exceed with chance ≤ 1 − confidence."""
        D, width = integer(n_features, "error", "n_features", 1), self.width(LARGEST, confidence)
        if width > D:
            raise InvalidInput(f"error: n_features must be {width} or above; got {D}.")
        low, high = -30.0, math.log(LARGEST)
        for _ in range(60):  # the width falls in steps
            middle = (low + high) / 2
            fits = self._smallest(math.exp(middle), chance_of(confidence))[0] <= D
            low, high = (low, middle) if fits else (middle, high)
        return math.exp(high)

    def best_cut(self, n_features: int, confidence: float = 0.95) -> "Bound":
        """Return the member of ``cuts``, a truncated series, with the least error at this width."""
        if not self.cuts:
            raise InvalidInput("best_cut requires a bound of zonal_bound or of ball_bound.")
        return self._smallest(self.error(n_features, confidence), chance_of(confidence))[1]

    def _smallest(self, error: float, chance: float) -> tuple[float, "Bound"]:
        """Return the least width for an error, ∞ if there is none, and the bound that gives it."""
        if self.cuts:
            cuts = [cut for cut in self.cuts if error - cut.tail > 1e-3 * error]
            widths = (cut._smallest(error, chance) for cut in cuts or self.cuts[-1:])
            return min(widths, key=operator.itemgetter(0))
        if self.bounds:  # the error of costs is at most 11 times the spectral or the trace error
            part = chance / len(self.bounds)
            widths = (bound._smallest(error / 11, part) for bound in self.bounds)
            return max(widths, key=operator.itemgetter(0))
        if self.tail and error - self.tail <= 1e-3 * error:
            return math.inf, self
        error -= self.tail
        logs = self.log_constant - self.power * math.log(error) - math.log(chance)
        draws = logs * 2 * (self.variance + self.scale * error) + self.chebyshev / chance
        draws /= error**2
        if draws > LARGEST:
            return math.inf, self
        return self.exact + self.per_draw * max(1, math.ceil(draws * (1 - 1e-12))), self


def chance_of(confidence: float) -> float:
    """Return δ = 1 − confidence, checked."""
    return 1 - share(confidence, "bounds", "confidence")


def fourier_bound(
    kernel: Kernel,
    X: Rows,
    theorem: str,
    form: str = "pair",
    *,
    alpha: float | None = None,
    rank: int | None = None,
) -> Bound:
    """Return a bound of the error of Fourier features, by one theorem.

    Parameters
    ----------
    kernel : Kernel
        A function of x − y.
    X : (n, d)
    theorem : str
        * ``"hoeffding"``: the largest entry of Z Zᵀ − K, by a union over the pairs of rows: N =
          n(n − 1)/2 for pairs, whose diagonal is exact, and n(n + 1)/2 for phases; O(n d).
        * ``"bernstein"``: the same, sharper where the variance of entries is small; O(n² d). With
          k(x, x) = 1 the variance of a draw is (1 + k(2δ) − 2k(δ)²)/2 for pairs and
          1 + k(2δ)/2 − k(δ)² for phases.
        * ``"rahimi_recht"``: the largest entry for all points of the region that the rows span. It
          requires σ² = E|ω|² finite: not Laplace, Exponential or Matérn up to smoothness 1. 2σ
          replaces the published σ: at the largest error, a point that depends on the draw, the mean
          square of the error's gradient is at most 4σ² (pair) and 12σ² (phase).
        * ``"operator_norm"``: ‖Z Zᵀ − K‖/‖K‖, with ‖R‖ ≤ L Tr K and E R² ⪯ L Tr K · K; O(n³).
        * ``"spectral"``: the spectral distance at ``alpha``; O(n³). The leverage is at most
          n k(x, x)/λ for pairs and twice that for phases.
        * ``"projection_cost"``: the cost Tr(K − PKP) of all projections P of this ``rank``,
          relative; O(n³). It holds where the spectral distance at λ = (1/k) Σ_{i>k} λ_i(K) and the
          trace beyond rank k, relative, are both at most ε/11; the trace by Bernstein's
          inequality, v = n k(x, x)/Σ_{i>k} λ_i. A clustering of the features within a factor γ of
          the best is then within γ(1 + ε)/(1 − ε) for the kernel.
    form : {"pair", "phase"}, default "pair"
        Form of the features, as in :class:`bochner.Fourier`.
    alpha : float, optional
        λ, at most ‖K‖; for ``"spectral"``.
    rank : int, optional
        k, the number of clusters or components; for ``"projection_cost"``.

    See Also
    --------
    features_bound, zonal_bound : Bounds of other features.
    bochner.certify : Measure the error instead.

    Notes
    -----
    Sources: Hoeffding (1963), theorem 2; Sutherland and Schneider (2015), section 3.1 and
    propositions 1 and 2; Rahimi and Recht (2007), claim 1; Tropp (2015), theorem 7.7.1; Avron et
    al. (2017), lemma 6; Han et al. (2022), theorem 10 and lemma 14; Cohen et al. (2015).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import fourier_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> kernel = bo.kernels.Gaussian()
    >>> bound = fourier_bound(kernel, X, "hoeffding")
    >>> bound.width(0.1), bound.error(4880) <= 0.1, bound.quantity
    (4880, True, 'largest entry')
    >>> round(fourier_bound(kernel, X, "bernstein").width(0.1), -2)
    2800
    >>> round(fourier_bound(kernel, X, "spectral", alpha=1.0).width(0.5), -2)
    17500
    """
    caller = "fourier_bound"
    theorems = "hoeffding bernstein rahimi_recht operator_norm spectral projection_cost"
    one_of(theorem, caller, "theorem", tuple(theorems.split()))
    rows = dense_rows(X, caller)
    if kernel.spectral(rows.shape[1]) is None:
        raise UnsupportedKernel(
            f"{caller} requires a kernel of x − y, which Fourier features are for; got {kernel!r}. "
            "certify measures the error of any map."
        )
    per_draw = 2 if one_of(form, caller, "form", ("pair", "phase")) == "pair" else 1
    size, n = float(to_numpy(kernel.diag(rows[:1]))[0]), len(rows)
    if theorem == "rahimi_recht":
        return _rahimi_recht(kernel, rows, size, per_draw)
    if theorem in ("hoeffding", "bernstein"):
        # N pairs of rows; with random phases also pairs of a row with itself
        pairs = n * (n - 1) // 2 if per_draw == 2 else n * (n + 1) // 2
        variance, scale = (1.0 if per_draw == 2 else 4.0) * size**2, 0.0
        if theorem == "bernstein":
            k, k2 = (to_numpy(kernel(factor * rows)) / size for factor in (1, 2))
            v = (1 + k2 - 2 * k**2) / 2 if per_draw == 2 else 1 + k2 / 2 - k**2
            variance = max(float(v.max()), 1e-300) * size**2
            scale = (4 - per_draw) * size / 3
        logs = math.log(2 * pairs)
        return Bound("largest entry", logs, variance, scale, per_draw=per_draw)
    values, multiple = values_of(kernel, rows, caller), 3.0 - per_draw
    if theorem == "operator_norm":
        return _norm_tail(values, multiple, per_draw)
    trace = multiple * size * n
    if theorem == "spectral":
        alpha = positive(alpha, caller, "alpha")
        return leverage_bound(trace / alpha, dimension_of(caller, values, alpha), per_draw)
    rank = integer(rank, caller, "rank", 1)
    tail = float(values[:-rank].sum())
    if rank >= n or tail <= 1e-12 * values.sum():
        raise InvalidInput(
            f"{caller}: rank must be below the rank of the kernel matrix; "
            f"got rank {rank} for {n} rows. Ask for a lower rank."
        )
    d, ratio = dimension_of(caller, values, tail / rank), trace / tail
    distance = leverage_bound(trace * rank / tail, d, per_draw)
    quantity = "trace beyond the rank, relative"
    tail_bound = Bound(quantity, math.log(2), ratio, ratio / 3, per_draw=per_draw)
    return Bound("cost of projections, relative", bounds=(distance, tail_bound))


def _rahimi_recht(
    kernel: Kernel, rows: Float[np.ndarray, "n d"], size: float, per_draw: int
) -> Bound:
    d = rows.shape[1]
    frequencies = kernel.spectral(d)
    if frequencies is None or not frequencies.second_moment < math.inf:
        raise UnsupportedKernel(
            "fourier_bound: the theorem of Rahimi and Recht requires a stationary kernel, or sums, "
            "products, powers and multiples of these, with frequencies of finite variance, which "
            "Laplace, Exponential and Matern up to smoothness 1 do not have; got "
            f'{kernel!r}. Use "hoeffding" or "bernstein", over the pairs of your rows.'
        )
    sigma = frequencies.second_moment**0.5
    # upper bound of the diameter of the rows: twice a radius, or the diagonal of their box
    radius = np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()
    diameter = max(float(min(2 * radius, np.linalg.norm(np.ptp(rows, axis=0)))), 1e-300)
    # β_d of pairs (at most 66) or β′_d of phases (at most 98): propositions 1 and 2
    if per_draw == 2:
        sides, power = (d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2)), (6 * d + 2) / (d + 2)
        constant, variance = sides * 2**power, 2 * (d + 2)
    else:
        sides, power = d ** (-d / (d + 1)) + d ** (1 / (d + 1)), (5 * d + 1) / (d + 1)
        constant, variance = sides * 2**power * 3 ** (d / (d + 1)), 16 * (d + 1)
    power = 2 * d / (d + per_draw)
    logs = math.log(constant) + power * math.log(2 * sigma * diameter * size)
    return Bound("largest entry, anywhere", logs, variance * size**2, 0.0, power, per_draw)


def dense_rows(X: Rows, caller: str) -> Float[np.ndarray, "n d"]:
    """Return two or more rows, checked, as a float64 NumPy array."""
    return np.asarray(to_numpy(require_rows(caller, X)), dtype=np.float64)


# --- The whole matrix: matrix Bernstein with the intrinsic dimension -----------------------------
#
# Z Zᵀ = (1/m) Σ R_j with independent psd R_j of mean K. A bound of R bounds the error: its trace
# (operator norm), its ridge leverage τ = Tr (K + λI)^(-½) R (K + λI)^(-½) (spectral distance).


def _norm_tail(
    values: Float[np.ndarray, " n"], size: float, per_draw: int, exact: int = 0
) -> Bound:
    """Return the bound of ‖Z Zᵀ − K‖/‖K‖, from K's ascending eigenvalues; size = sup|z|²/Tr K."""
    intrinsic = max(1.0, float(values.sum() / values[-1]))
    v, quantity = intrinsic * size, "operator norm, relative"
    logs = math.log(8 * intrinsic)
    return Bound(quantity, logs, v, 2 * v / 3, per_draw=per_draw, exact=exact)


def features_bound(
    kernel: Kernel, X: Rows, method: Sign | ReLU | Maclaurin | TensorSketch
) -> Bound:
    """Return the bound of ‖Z Zᵀ − K‖/‖K‖ for features other than Fourier; O(n³).

    Parameters
    ----------
    kernel : Kernel
        ``Angular``, ``ArcCosine`` or a power series of ⟨x, y⟩; ``Polynomial`` for TensorSketch.
    X : (n, d)
    method : Sign, ReLU, Maclaurin or TensorSketch
        ``Sign(IID())``, ``ReLU(order, IID())``, ``Maclaurin("geometric")``, whose directions are
        independent, or ``TensorSketch()``, with ‖Z Zᵀ − K‖_F. ReLU's ``split=None`` means True.

    Notes
    -----
    The bound depends on the largest Σ_j z(x_j)², z the feature of one direction: n for signs;
    c sup_u Σ_j (u·x_j)^(2 order) for ``ArcCosine(order)``, c = ½, d/2, d(d + 2)/2 (four times as
    much without split); for a power series the maximum of 2^(N+1) a_N Σ_j ⟨ω, x_j⟩²ᴺ over N and
    signs ω. For TensorSketch (degree p) P(error > ε) ≤ (2 + 3ᵖ) (Tr K/‖K‖)²/(D ε²), as an entry has
    variance (2 + 3ᵖ) k(x, x) k(y, y)/D or less. Sources: Tropp (2015), theorem 7.7.1; Kar and
    Karnick (2012), with one number for all rows, not sums; Avron, Nguyen and Woodruff (2014).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import features_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> signs = bo.features.Sign(bo.features.IID())
    >>> round(features_bound(bo.kernels.Angular(), X, signs).width(0.1), -2)
    3100
    """
    caller = "features_bound"
    rows, exact = dense_rows(X, caller), 0
    if isinstance(method, TensorSketch) and isinstance(kernel, Polynomial):
        quantity = "Frobenius norm, of the operator norm of K"
        values = values_of(kernel, rows, caller)
        intrinsic = max(1.0, float(values.sum() / values[-1]))
        constant = (2 + 3.0**kernel.degree) * intrinsic**2
        return Bound(quantity, per_draw=1, chebyshev=constant)
    independent = getattr(method, "placement", None) == IID()
    if isinstance(method, Sign) and isinstance(kernel, Angular) and independent:
        largest = float(len(rows))
    elif isinstance(method, ReLU) and kernel == ArcCosine(method.order) and independent:
        d, p, split = rows.shape[1], method.order, method.split is not False
        norm, squares = float(np.linalg.norm(rows, 2)) ** 2, np.square(rows).sum(axis=1)
        sums = (float(len(rows)), norm, float(squares.max()) * norm)[p]
        largest = (1, d, d * (d + 2))[p] * (0.5 if split else 2.0) * sums
        exact = polynomial_width(p, d) if split else 0
    elif method == Maclaurin("geometric") and powers(kernel, rows.shape[1]) is not None:
        largest = _largest_product(kernel, rows)
    else:
        raise UnsupportedKernel(
            f"{caller} requires Angular() with Sign(IID()), ArcCosine(order) with ReLU(order, "
            'IID()), a power series of ⟨x, y⟩ with Maclaurin("geometric"), or Polynomial with '
            f"TensorSketch(); got {kernel!r} with {method!r}. certify measures any map."
        )
    values = values_of(kernel, rows, caller)
    return _norm_tail(values, largest / float(values.sum()), 1, exact)


def _largest_product(kernel: Kernel, rows: Float[np.ndarray, "n d"]) -> float:
    """Return an upper bound of D Σ_j z(x_j)² for each feature z of ``Maclaurin("geometric")``."""
    series, gaussian, scales = powers(kernel, rows.shape[1])
    scaled = rows * scales
    N = np.arange(1 + (512 if series.degree is None else series.degree))
    # upper bounds of log Σ_j g(x_j)² ⟨ω, x_j⟩²ᴺ for signs ω: term by term, or by the norm
    weights = -np.square(scaled).sum(axis=1) if gaussian else np.zeros(len(scaled))
    lengths = np.log(np.maximum(np.abs(scaled).sum(axis=1), 1e-150))
    rough = logsumexp(2 * N[:, None] * lengths + weights, axis=1)
    norm = max(float(np.linalg.norm(scaled, 2)) ** 2 * scaled.shape[1], 1e-300)
    longest = (2 * (N[:, None] - 1) * lengths + weights).max(axis=1)
    sums = np.where(N == 0, rough, np.minimum(rough, longest + math.log(norm)))
    logs = log_coefficients(series, N) + (N + 1) * math.log(2) + sums
    if series.degree is None and logs[-1] > logs.max() - 30:
        raise UnsupportedKernel(
            "features_bound requires a power series whose terms 2ᴺ a_N |x|₁²ᴺ fall; on these "
            f"rows the terms of {kernel!r} rise. Rescale X, or use certify."
        )
    return float(np.exp(logs.max()))


def leverage_bound(leverage: float, effective_dimension: float, per_draw: int = 2) -> Bound:
    """Return the bound of the (ε, λ)-spectral distance for draws with bounded leverage.

    Parameters
    ----------
    leverage : float
        τ ≥ Tr Z_ωᵀ(K + λI)⁻¹ Z_ω for every draw ω. It is n k(x, x)/λ for pairs of frequencies
        (:func:`fourier_bound`), and d_λ for weighted draws in proportion to leverage.
    effective_dimension : float
        d_λ = Tr K(K + λI)⁻¹, the mean leverage, so at most τ; λ ≤ ‖K‖ is required.
    per_draw : int, default 2
        Features per draw: 2 for pairs, 1 for phases (with 2τ), ``order`` for `Gegenbauer`.

    Notes
    -----
    Sources: Avron et al. (2017), lemma 6 and theorem 7; Tropp (2015), theorem 7.7.1, with
    intrinsic dimension at most 2 d_λ.

    Examples
    --------
    >>> from bochner.certificates import leverage_bound
    >>> leverage_bound(1000.0, 20.0).width(0.5)
    186968
    >>> leverage_bound(20.0, 20.0).width(0.5)  # draws in proportion to leverage
    3740
    """
    tau = positive(leverage, "leverage_bound", "leverage")
    d = positive(effective_dimension, "leverage_bound", "effective_dimension")
    if tau < d * (1 - 1e-9):
        raise InvalidInput(
            "leverage_bound: leverage must be at least effective_dimension, which is its mean; "
            f"got {leverage!r} and {effective_dimension!r}."
        )
    logs = math.log(16 * d)
    return Bound("spectral distance", logs, tau, 2 * tau / 3, per_draw=per_draw)


def dimension_of(
    caller: str, values: Float[np.ndarray, " n"], penalty: float, min_norm: float = 1.0
) -> float:
    """Return d_λ from ascending eigenvalues; raise for a penalty above ‖K‖/``min_norm``."""
    norm = float(values[-1])
    if min_norm * penalty > norm:  # the fit is nearly zero for any features
        raise InvalidInput(
            f"{caller}: penalty must be at most ‖K‖ = {norm:.3g}; got {min_norm * penalty:.3g}; "
            "with a larger one the fit is nearly zero for any features."
        )
    return float(np.sum(values / (values + penalty)))


# --- Random Gegenbauer features: the leverage of each direction, and the cut of the series -------
#
# Truncated at total degree N, k(x, x) loses e(x) = Σ_{n>N} κ⁽ⁿ⁾(0)|x|²ⁿ/n! (times e^(−|x|²) for the
# Gaussian, where it is the tail of a Poisson variable). The truncated kernel has few radial
# functions, so that no direction has a large leverage.


def zonal_bound(kernel: Kernel, X: Rows, *, alpha: float) -> Bound:
    """Return the bound of the spectral distance of random Gegenbauer features; O(n³).

    Parameters
    ----------
    kernel : Kernel
        A function of ⟨x, y⟩ or of the angle, the Gaussian, or ``GeneralizedZonal``; any
        rotation-invariant kernel if the rows are on one sphere.
    X : (n, d)
    alpha : float
        λ, at most ‖K‖/2.

    Notes
    -----
    Sources: Han et al. (2022), lemma 7 and theorem 9.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import zonal_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> bound = zonal_bound(bo.kernels.Gaussian(), X, alpha=1.0)
    >>> round(bound.width(0.5), -3)
    58000
    """
    caller = "zonal_bound"
    rows, alpha = dense_rows(X, caller), positive(alpha, caller, "alpha")
    squares, tails, functions = _energies(kernel, rows)
    d = dimension_of(caller, values_of(kernel, rows, caller), alpha, 2.0)  # also for the cut kernel
    usable, exact = np.flatnonzero(tails < alpha), np.flatnonzero(tails <= 1e-6 * alpha)
    if not len(usable):
        raise InvalidInput(
            f"{caller}: alpha must be above {tails[-1]:.3g}, the part of the trace beyond "
            f"{len(tails) - 1} degrees; got {alpha!r}. Centre or rescale X, or raise alpha."
        )
    cuts = []
    for N in range(usable[0], 1 + (exact[0] if len(exact) else len(tails) - 1)):
        order = squares.shape[1] if functions else min(N // 2 + 1, squares.shape[1])
        tau = direction_leverage(squares[: N + 1, :order], rows.shape[1], alpha)
        directions = leverage_bound(tau, min(d, tau), order)
        bias = float(tails[N]) / alpha
        cuts.append(replace(directions, degree=int(N), order=order, tail=bias))
    return Bound("spectral distance", cuts=tuple(cuts))


def ball_bound(kernel: Kernel, X: Rows, *, alpha: float) -> Bound:
    """Return the bound of the spectral distance for any n rows of the ball of these rows; O(n³).

    Parameters
    ----------
    kernel : Kernel
        Gaussian, or a kernel of ⟨x, y⟩ with finite degree or derivatives κ⁽ⁿ⁾(0) that grow like a
        power (checked up to n = 400), or a multiple of such a kernel.
    X : (n, d)
    alpha : float
        λ, at most ‖K‖/2.

    Notes
    -----
    With κ⁽ⁿ⁾(0) ≤ C βⁿ and r = max |x|, truncation at degree q ≥ e²βr² − 1 has an error of at most
    ε_t = C n e^(−q−1)/λ, times e^(−r²) for the Gaussian. The leverage of a direction is at most
    s (C(q + d − 1, q) + C(q + d − 2, q − 1)), s = ⌊q/2⌋ + 1. The published theorems have
    q² C(q + d − 1, q) instead, and ε_t = ε/10; the bound here uses the best q.
    Sources: Han et al. (2022), theorems 9, 11 (kernels of ⟨x, y⟩) and 12 (Gaussian).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import ball_bound, zonal_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2)) / 4
    >>> kernel = bo.kernels.Gaussian()
    >>> ball_bound(kernel, X, alpha=1.0).width(0.5) > zonal_bound(kernel, X, alpha=1.0).width(0.5)
    True
    """
    caller = "ball_bound"
    rows, alpha = dense_rows(X, caller), positive(alpha, caller, "alpha")
    n, d = rows.shape
    _, scales, radial = as_radial(caller, kernel, d)
    constant, growth, highest = _growth(kernel, radial)
    d_alpha = dimension_of(caller, values_of(kernel, rows, caller), alpha, 2.0)
    square = float(np.square(rows / scales).sum(axis=1).max())
    degree = max(0, math.ceil(math.e**2 * growth * square) - 1)
    cuts: list[Bound] = []
    degrees = range(degree, CUTS) if highest is None else (*range(degree, highest), highest)
    for q in degrees:
        order = q // 2 + 1
        tau = order * (math.comb(q + d - 1, q) + (math.comb(q + d - 2, q - 1) if q else 0))
        if tau > LARGEST or (cuts and cuts[-1].tail < 1e-9):
            break
        bias = 0.0 if q == highest else constant * n / alpha * math.exp(-q - 1)
        directions = leverage_bound(tau, min(d_alpha, tau), order)
        bias *= math.exp(-radial.decay * square)
        cuts.append(replace(directions, degree=q, order=order, tail=bias))
    if not cuts:
        raise InvalidInput(
            f"{caller}: degree {degree} in {d} columns has more than {LARGEST:.0e} functions, "
            f"which a ball of radius {square**0.5:.3g} requires. Rescale X, or use certify."
        )
    return Bound("spectral distance", cuts=tuple(cuts))


def _growth(kernel: Kernel, radial: RadialKernels) -> tuple[float, float, int | None]:
    """Return C and β with κ⁽ⁿ⁾(0) ≤ C βⁿ for all n, and the degree if κ is a polynomial."""
    series = radial.power_series
    if series is not None:
        degree = series.degree
        n = np.arange(1 + (CUTS if degree is None else degree))
        logs = np.asarray(series.log_derivative(n), dtype=np.float64)
        first = float(logs[0]) if np.isfinite(logs[0]) else 0.0
        rates, half = (logs[1:] - first) / n[1:], CUTS // 2
        if degree is not None or rates[half:].max() <= rates[:half].max() + 1e-9:
            return math.exp(first), math.exp(float(rates.max(initial=-700.0))), degree
    raise UnsupportedKernel(
        "ball_bound requires the Gaussian, or a kernel of ⟨x, y⟩ of finite degree or derivatives "
        f"that grow like a power; got {kernel!r}. Use zonal_bound, or measure with certify."
    )


def direction_leverage(squares: Float[np.ndarray, "q s"], d: int, alpha: float) -> float:
    """Return an upper bound of the leverage of each direction: Han et al. (2022), lemma 7."""
    # Σ_{l,i} α_l min{π²(l+1)²/(6λ) squares_{l,i}, 1}, squares Σ_j h_{l,i}(|x_j|)² of the rows. The
    # published lemma has one bound for all functions of a degree; its proof allows one for each.
    sizes = np.array([float(harmonics(l, d)) for l in range(len(squares))])
    steep = (np.pi * np.arange(1, len(squares) + 1)) ** 2 / (6 * alpha)
    return float(sizes @ np.minimum(steep[:, None] * squares, 1.0).sum(axis=1))


def _energies(kernel: Kernel, rows: Float[np.ndarray, "n d"]) -> tuple[Array, Array, bool]:
    """Return Σ_j h_{l,i}(|x_j|)², (q + 1, s), and the trace beyond each degree (q + 1,)."""
    # One function per degree if all rows have one norm or the kernel depends only on the angle; the
    # functions of a GeneralizedZonal (True is returned for these only); else the monomials.
    d = rows.shape[1]
    base, scales, radial = as_radial("zonal_bound", kernel, d)
    radii = np.linalg.norm(rows / scales, axis=1)
    diagonal = lambda q: to_numpy(base.diag(axis_points(q, d)))
    trace = float(diagonal(radii).sum())
    if radial.zonal or same_radius(radii):
        q = np.ones(1) if radial.zonal else np.array([radii.mean()])
        parts = radial.matrices(64, q, q)[:, 0, 0] * (trace / float(diagonal(q)[0]))
        return parts[:, None], np.maximum(trace - np.cumsum(parts), 0.0), False
    factor, inner = (base.scale, base.kernel) if isinstance(base, Scaled) else (1.0, base)
    if isinstance(inner, GeneralizedZonal):
        degrees = len(inner.radial_functions[: 2 if d == 1 else None])
        energies = (np.square(inner.radial(l, radii)).sum(axis=0) for l in range(degrees))
        falling = (np.sort(factor * sums)[::-1] for sums in energies)
        squares = np.array([*zip_longest(*falling, fillvalue=0.0)]).T
        sums = squares.sum(axis=1)
        return squares, np.cumsum(sums[::-1])[::-1] - sums, True
    if (series := radial.power_series) is None:
        raise UnsupportedKernel(
            "zonal_bound requires a kernel of ⟨x, y⟩ or of the angle, Gaussian, GeneralizedZonal, "
            f"or rows on one sphere; got {kernel!r}. certify measures the error of any map."
        )
    # Squares of monomials, and tails Σ_{n>N} Σ_j κ⁽ⁿ⁾(0) r_j²ⁿ e^(−decay r_j²)/n!.
    n = np.arange(CUTS + 1)[:, None]
    logs = series.log_derivative(n) + xlogy(2 * n, radii[None, :]) - gammaln(n + 1.0)
    terms = np.exp(logs - radial.decay * radii[None, :] ** 2).sum(axis=1)
    remainder = max(trace - float(terms.sum()), 0.0)  # of degrees that are not summed
    tails = np.cumsum(terms[::-1])[::-1] - terms + (remainder if remainder > 1e-12 * trace else 0.0)
    last = int(np.argmax(tails <= tails[-1] + 1e-15 * trace))
    squares = np.square(monomials(radial, last, last // 2 + 1, radii)).sum(axis=2)
    return squares, tails[: last + 1], False
