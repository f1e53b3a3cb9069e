"""Common parts of sketches of powers: the series of a kernel, weights of degrees, shares of D.

Every kernel served is k(x, y) = g(x) g(y) Σ aₙ ⟨Sx, Sy⟩ⁿ with aₙ ≥ 0, S diagonal, and g = 1 or
e^{−|Sx|²/2} (Gaussian kernels). ⟨x, y⟩ⁿ is the inner product of the tensor powers x^{⊗n}, y^{⊗n};
the maps sketch powers of unit rows and multiply by powers of the norm, in float64 logarithms.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from bochner._core.arrays import array_namespace, dense, is_sparse, moved, to_numpy
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput
from bochner.features.map import Method, Request, capped_shares, in_double
from bochner.features.mercer.products import Halves, Products, factored
from bochner.kernels import dotproduct
from bochner.kernels.algebra import folded
from bochner.kernels.kernel import Constant, Kernel, Scaled
from bochner.kernels.stationary import Gaussian
from bochner.kernels.zonal import directions

TERMS = 1 << 14  # Terms after which the energies of a series count as divergent at this radius
NEGLIGIBLE = 1e-18  # Energy, as a share of all, below which float64 cannot see a degree
SHORTEST = 1e-30  # Rows shorter than this count as this long: their logarithm is a number


#: The series log κ⁽ⁿ⁾(0) = log(n! aₙ), whether g(x) = e^{−|Sx|²/2}, not 1, and the diagonal of S.
Powers = tuple[dotproduct.PowerSeries, bool, Float[np.ndarray, " d"]]

#: The kernels that sketches of powers serve.
POWER_SERIES = (
    "a kernel of ⟨x, y⟩ with a power series (Polynomial, DotExponential, DotProduct, Linear, "
    "Constant), sums of such, or a Gaussian"
)


def power_form(kernel: Kernel, d: int) -> Powers | None:
    """Return the kernel's power series; None if it has none."""

    def leaf(part: Kernel, _: tuple[int, ...]) -> dotproduct.PowerSeries | None:
        if isinstance(part, dotproduct.DotProductKernel):
            return part.power_series
        return dotproduct.PowerSeries((part.value,)) if isinstance(part, Constant) else None

    summed, weighted = dotproduct.summed, dotproduct.weighted
    series = folded(kernel, leaf, summed, lambda _a, _b: None, scale=weighted)
    if series is not None:
        return series, False, np.ones(d)
    inner, weight = (kernel.kernel, kernel.scale) if isinstance(kernel, Scaled) else (kernel, 1.0)
    if not isinstance(inner, Gaussian):
        return None
    scales = np.asarray(inner.spectral_measure(d).scales)
    exponential = dotproduct.DotExponential().power_series
    return weighted(weight, exponential), True, scales


def powers(kernel: Kernel, d: int) -> Powers:
    """Return the power series of a kernel that has one."""
    form = power_form(kernel, d)
    assert form is not None
    return form


def log_coefficients(series: dotproduct.PowerSeries, n: Any) -> Float[np.ndarray, "..."]:
    """Return log aₙ = log κ⁽ⁿ⁾(0) − log n!."""
    n = np.asarray(n)
    return np.asarray(series.log_derivative(n), dtype=np.float64) - gammaln(n + 1.0)


def unit_rows(
    X: Float[Array, "n d"], scales: Float[Array, " d"], constant: float = 0.0
) -> tuple[Array, Array]:
    """Return directions u, in X's precision, and lengths r, (n,) in float64: r u = (s ∘ x, c)."""
    if is_sparse(X):
        scaled = scipy.sparse.csr_array(X, copy=True)
        scaled.data *= scales.astype(X.dtype)[scaled.indices]
        if constant:
            column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
            scaled = scipy.sparse.hstack([scaled, scipy.sparse.csr_array(column)], format="csr")
    else:
        scaled = X if (scales == 1).all() else X * moved(scales, like=X)[None, :]
        if constant:
            xp = array_namespace(X)
            scaled = xp.concat([scaled, X[:, :1] * 0 + constant], axis=1)
    U, lengths = directions(scaled)
    xp, lengths = in_double(lengths)
    return U, xp.where(lengths < SHORTEST, xp.full_like(lengths, SHORTEST), lengths)


@dataclass(frozen=True, eq=False)
class Terms:
    """Powers uⁿ of the directions of rows, each times w rⁿ g; the first are exact features."""

    scales: Float[Array, " d"]  # s, of the columns
    gaussian: bool  # whether g = e^{−r²/2}, rather than 1
    degrees: Int[Array, " k"]  # n
    logs: Float[Array, " k"]  # log w
    exact: int  # number of exact powers: of degree 0, one feature, and of degree 1, all columns
    constant: float = 0.0  # one coordinate more; none if zero

    @property
    def exact_width(self) -> int:
        """Number of exact features."""
        return sum(len(self.scales) if n else 1 for n in self.degrees[: self.exact])

    def split(self, X: Float[Array, "n d"]) -> tuple[Array, Array, list[Array]]:
        """Return directions, (n, d), weights of powers, (n, k), and features of the exact ones."""
        U, lengths = unit_rows(X, self.scales, self.constant)
        xp = array_namespace(lengths)
        degrees = moved(self.degrees.astype(np.float64), like=lengths)
        exponents = degrees[None, :] * xp.log(lengths)[:, None]
        exponents = exponents + moved(self.logs, like=lengths)[None, :]
        if self.gaussian:  # one exponent in float64
            exponents = exponents - 0.5 * (lengths * lengths)[:, None]
        with np.errstate(over="ignore", under="ignore"):
            weights = xp.astype(xp.exp(exponents), U.dtype)
        columns = ((n, weights[:, i : i + 1]) for i, n in enumerate(self.degrees[: self.exact]))
        return U, weights, [w * dense(U) if n else w for n, w in columns]


def split_off(
    kernel: Kernel, method: Method, parts: Powers, ask: Request
) -> tuple[np.ndarray, Float[np.ndarray, " N"], int]:
    """Return degrees taken exactly, the energies of the others, and the features left for them."""
    energy = energies(parts[0], _lengths(parts, ask))
    d, D = ask.n_inputs, ask.n_features
    left = D - bool(energy[0])
    # The linear term is exact if the error of the others then falls: with features shared by
    # weight their variance is about (Σ wₙ)²/D over the remaining n.
    linear, above = float(energy[1:2].sum()), float(energy[2:].sum())
    pays = linear > 0 and left >= d + (above > 0)
    if pays and above > 0:
        pays = left > d and above**2 / (left - d) < (linear + above) ** 2 / left
    exact = np.flatnonzero([energy[0] > 0, pays])
    left -= d * pays
    energy[exact] = 0.0
    if left < 1 and energy.any():
        who = type(method).__name__
        raise InvalidInput(f"{who} requires two features or more for {kernel!r}; got {D}.")
    return exact, energy, left


def _lengths(parts: Powers, ask: Request) -> Float[np.ndarray, " k"]:
    """Return the lengths of rows that degrees are weighed at."""
    series, _, scales = parts
    if ask.X is not None and ask.X.shape[0]:
        n = ask.X.shape[0]
        rows = ask.X[np.unique(np.linspace(0, n - 1, min(n, 512)).astype(np.int64))]
        return to_numpy(unit_rows(rows, scales)[1])
    if series.degree is not None:
        present = np.isfinite(log_coefficients(series, np.arange(series.degree + 1)))
        if present.sum() <= 1:
            return np.ones(1)  # one degree only: nothing to weigh
    raise InvalidInput(
        "draw: sketches of a power series share their features among degrees by what these "
        "contribute to k(x, x) of the rows; got no rows. Pass X=..."
    )


def energies(
    series: dotproduct.PowerSeries, lengths: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " N"]:
    """Return wₙ, the mean over rows of the share aₙ r²ⁿ/Σ aₖ r²ᵏ of degree n in κ(|x|²)."""
    count = 64 if series.degree is None else series.degree + 1
    while True:
        n = np.arange(count)
        logs = log_coefficients(series, n) + 2 * n * np.log(lengths)[:, None]
        top = logs.max(axis=1, keepdims=True)
        if series.degree is not None:
            break
        converged = logs[:, -count // 4 :].max(axis=1) < top[:, 0] + math.log(NEGLIGIBLE)
        if converged.all() or (count >= TERMS and converged.any()):
            logs, top = logs[converged], top[converged]
            break
        if count >= TERMS:
            raise InvalidInput(
                "draw: the power series must converge at |x|² of the rows, "
                f"{float(lengths.min()) ** 2:.3g} or more; after {count} terms it has not. "
                "Rescale X."
            )
        count *= 2
    if top.max() == -math.inf:
        raise InvalidInput("draw: the power series must have a term above zero; all are zero.")
    weights = np.exp(logs - top)
    weights = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights if series.degree is not None else np.where(weights < NEGLIGIBLE, 0.0, weights)


#: A degree, its features, and its expected copies: 1, or less for one that represents the rest.
Share = tuple[int, int, float]


def shares(
    energy: Float[np.ndarray, " N"], capacity: Any, D: int, rng: np.random.Generator
) -> list[Share]:
    """Share D features among degrees in proportion to their energies, zero where served otherwise.

    A degree whose share is a feature or more gets it, up to the ``capacity`` that makes it exact.
    Random degrees represent all others, a draw of T with pₙ ∝ wₙ counting 1/(T pₙ): unbiased.
    """
    present = np.flatnonzero(energy)
    if not len(present) or D < 1:
        return []
    caps = np.array([capacity(int(n)) for n in present], dtype=np.float64)
    wanted = capped_shares(energy[present], caps, D)
    core, rest = wanted >= 1, wanted < 1
    few = max(1, round(float(wanted[rest].sum()))) if rest.any() else 0
    # Shares of one or more are rounded by largest remainder.
    widths = np.floor(wanted[core]).astype(np.int64)
    spare = min(D - few, round(float(wanted[core].sum()))) - int(widths.sum())
    if spare > 0:
        widths[np.argsort(widths - wanted[core], kind="stable")[:spare]] += 1
    for _ in range(-spare):
        widths[np.argmax(widths)] -= 1
    kept = [(int(n), int(w), 1.0) for n, w in zip(present[core], widths, strict=True)]
    if few:
        p = energy[present[rest]] / energy[present[rest]].sum()
        distinct, copies = np.unique(rng.choice(len(p), size=few, p=p), return_counts=True)
        draws = zip(present[rest][distinct], copies, caps[rest][distinct], p[distinct], strict=True)
        kept += [(int(n), int(min(c, cap)), float(few * p_n / c)) for n, c, cap, p_n in draws]
    return sorted(kept)


def random_signs(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Return fair independent signs, int8."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


# --- Polynomial kernels written out: every product of columns is a feature -----------------------
#
# ⟨x, y⟩ⁿ = Σ n!/(e₁! ⋯ e_d!) x^e y^e over the exponents e of sum n, so that a kernel Σ aₙ ⟨x, y⟩ⁿ
# that ends has finitely many exact features, √(aₙ n!/(e₁! ⋯ e_d!)) x^e.

MOST_EXACT = 1 << 20  # Exact features of one row are this many at most: 8 MB


@dataclass(frozen=True, eq=False)
class MonomialMap(Products):
    """φ(x) = (c_k Π_i x_{k_i})_k. Exact."""

    kernel: Kernel
    columns: Array  # Columns that each feature multiplies; d denotes the factor 1
    inputs: int  # d
    amplitudes: Float[Array, " D"] | None = None  # c

    below_kernel = True  # exact, so below

    @cached_property
    def how(self) -> Halves:
        return factored(self.columns)

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        return xp.permute_dims(xp.concat([X, X[:, :1] * 0 + 1], axis=1), (1, 0))


def draw_monomials(method: Method, kernel: Kernel, ask: Request) -> MonomialMap:
    """Draw all monomials of a finite power series."""
    series, _, _ = powers(kernel, ask.n_inputs)
    degrees = [
        n for n in range((series.degree or 0) + 1) if np.isfinite(log_coefficients(series, n))
    ]
    count = sum(math.comb(ask.n_inputs + n - 1, n) for n in degrees)
    if count > ask.n_features:
        raise InvalidInput(
            f"Explicit: n_features must be at least the {count:,} features of {kernel!r}; got "
            f"{ask.n_features:,}. Ask for as many, or take PolySketch()."
        )
    columns, weights = zip(*(_monomials(series, n, ask.n_inputs) for n in degrees), strict=True)
    return MonomialMap(kernel, np.concatenate(columns), ask.n_inputs, np.concatenate(weights))


def _monomials(series: dotproduct.PowerSeries, n: int, d: int) -> tuple[Array, Float[Array, " D"]]:
    """Return the monomials of degree n, padded by the factor 1 to the series' degree."""
    rows = list(combinations_with_replacement(range(d), n))
    chosen = np.array(rows, dtype=np.int32).reshape(len(rows), n)
    columns = np.full((len(chosen), max(1, series.degree or 0)), d, dtype=np.int32)
    columns[:, :n] = chosen
    # log Π e_j!: the i-th copy of a column in a sorted row contributes i.
    copies, log_factorials = np.ones(len(chosen)), np.zeros(len(chosen))
    for i in range(1, n):
        copies = np.where(chosen[:, i] == chosen[:, i - 1], copies + 1, 1.0)
        log_factorials += np.log(copies)
    logs = log_coefficients(series, n) + gammaln(n + 1.0) - log_factorials
    return columns, np.exp(0.5 * logs)
