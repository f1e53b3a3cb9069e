"""Bounds of whole kernel matrices of independent draws: matrix Bernstein, intrinsic dimension.

Z Zᵀ = (1/m) Σ R_j with independent psd R_j of mean K. What bounds R bounds the error: its trace
(operator norm), its ridge leverage τ = Tr (K + λI)^(-½) R (K + λI)^(-½) (spectral distance).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from bochner._core.checks import integer, one_of, positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.kind import (
    FORMS,
    Bound,
    amplitude_of,
    chance_of,
    dense_rows,
    error_of,
    per_draw,
    width_of,
)
from bochner.certificates.leverage import eigen
from bochner.errors import InvalidInput
from bochner.kernels import Kernel

#: The cost of every projection is kept to so many times the spectral and the trace error.
COST = 11


@dataclass(frozen=True)
class OperatorNorm(Bound):
    """The error of the whole matrix, ‖Z Zᵀ − K‖ ≤ ε‖K‖, for a kernel of x − y.

    P ≤ 8 I exp(−m ε²/(2 I L (1 + 2ε/3))), L = 1 (pair) or 2 (phase).

    Parameters
    ----------
    intrinsic_dimension : float
        I = Tr K/‖K‖, 1 or above.
    form : {"pair", "phase"}, default "pair"

    Notes
    -----
    Source: Tropp (2015), theorem 7.7.1, with ‖R‖ ≤ L Tr K and E R² ⪯ L Tr K · K.
    """

    intrinsic_dimension: float
    form: str = "pair"

    def __post_init__(self) -> None:
        one_of(self.form, "OperatorNorm", "form", FORMS)
        found = positive(self.intrinsic_dimension, "OperatorNorm", "intrinsic_dimension")
        if found < 1:
            raise InvalidInput(
                "OperatorNorm: intrinsic_dimension must be 1 or above, as Tr K/‖K‖ is; got "
                f"{found!r}. Take it from intrinsic_dimension(kernel, X)."
            )
        object.__setattr__(self, "intrinsic_dimension", found)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], form: str = "pair") -> Self:
        """Return the bound for the kernel matrix of these rows; O(n³)."""
        rows = dense_rows(X, cls.__name__)
        amplitude_of(kernel, rows, cls.__name__)
        values = eigen(kernel, rows, cls.__name__).values
        return cls(max(1.0, float(values.sum() / values[-1])), form)

    @property
    def quantity(self) -> str:
        """The operator norm, relative."""
        return "operator norm, relative"

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return D = ⌈2 I L ε⁻² (1 + 2ε/3) ln(8I/δ)⌉ draws' features; see :class:`Bound`."""
        return width_of(self._log_failures, self._rate, per_draw(self.form), error, confidence)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return a/3 + √(a²/9 + a), a = 2 I L ln(8I/δ)/m; see :class:`Bound`."""
        return error_of(self._log_failures, self._rate, per_draw(self.form), n_features, confidence)

    def _log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(8 * self.intrinsic_dimension)

    def _rate(self, error: float) -> float:
        size = self.intrinsic_dimension * per_draw("phase" if self.form == "pair" else "pair")
        return error * error / (2 * size * (1 + 2 * error / 3))


@dataclass(frozen=True)
class Spectral(Bound):
    """The (ε, λ)-spectral distance, for draws whose leverage is bounded.

    P ≤ 16 d_λ exp(−m ε²/(2 τ (1 + 2ε/3))) where λ ≤ ‖K‖.

    Parameters
    ----------
    leverage : float
        τ ≥ Tr Z_ωᵀ(K + λI)⁻¹ Z_ω for every draw ω. n k(x, x)/λ for any pair of frequencies; the
        largest that was measured, if it is known that there is none larger; d_λ for draws in
        proportion to their leverage, with weights; :class:`ZonalSpectral` has that of
        Gegenbauer features.
    effective_dimension : float
        d_λ = Tr K(K + λI)⁻¹ (at most τ, which is its mean).
    features_per_draw : int, default 2
        2 for pairs, 1 for phases (with twice the leverage), s for Gegenbauer features.

    Notes
    -----
    Sources: Avron et al. (2017), lemma 6 and theorem 7; Tropp (2015), theorem 7.7.1, with
    intrinsic dimension at most 2 d_λ.
    """

    leverage: float
    effective_dimension: float
    features_per_draw: int = 2

    def __post_init__(self) -> None:
        for name in ("leverage", "effective_dimension"):
            object.__setattr__(self, name, positive(getattr(self, name), "Spectral", name))
        if self.leverage < self.effective_dimension * (1 - 1e-9):
            raise InvalidInput(
                "Spectral: leverage must be no less than effective_dimension, which is its mean; "
                f"got {self.leverage!r} and {self.effective_dimension!r}."
            )
        features = integer(self.features_per_draw, "Spectral", "features_per_draw", 1)
        object.__setattr__(self, "features_per_draw", features)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float, form: str = "pair"
    ) -> Self:
        """Return the uniform bound for Fourier features of these rows, τ = n k(x, x)/alpha; O(n³).

        Twice that for phases.
        """
        rows = dense_rows(X, cls.__name__)
        a = amplitude_of(kernel, rows, cls.__name__)
        alpha = positive(alpha, cls.__name__, "alpha")
        values = eigen(kernel, rows, cls.__name__).values
        below_norm(alpha, float(values[-1]), cls.__name__)
        features = per_draw(one_of(form, cls.__name__, "form", FORMS))
        tau = (3 - features) * a * len(rows) / alpha
        return cls(tau, float(np.sum(values / (values + alpha))), features)

    @property
    def quantity(self) -> str:
        """The spectral distance."""
        return "spectral distance"

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return D = ⌈2 τ ε⁻² (1 + 2ε/3) ln(16 d_λ/δ)⌉ draws' features; see :class:`Bound`."""
        features = self.features_per_draw
        return width_of(self._log_failures, self._rate, features, error, confidence)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return a/3 + √(a²/9 + a), a = 2 τ ln(16 d_λ/δ)/m; see :class:`Bound`."""
        features = self.features_per_draw
        return error_of(self._log_failures, self._rate, features, n_features, confidence)

    def _log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(16 * self.effective_dimension)

    def _rate(self, error: float) -> float:
        return error * error / (2 * self.leverage * (1 + 2 * error / 3))


@dataclass(frozen=True)
class ProjectionCost(Bound):
    """Tr(K − PKP) of every projection P of rank k, to a share: k-means and kernel PCA.

    |cost of Z − cost of K| ≤ ε cost of K. Then a clustering of the features within a factor γ of
    the best is within γ(1 + ε)/(1 − ε) for the kernel.

    Parameters
    ----------
    spectral : Spectral
        Of the same draws at λ = (1/k) Σ_{i>k} λ_i(K).
    tail_ratio : float
        ρ: the largest share in Σ_{i>k} λ_i that one draw can have, Tr R outside the first k
        eigenvectors over Σ_{i>k} λ_i; n k(x, x)/Σ_{i>k} λ_i for pairs.

    Notes
    -----
    Holds where the spectral distance at λ and the trace beyond rank k, relative, are both at most
    ε/11, each with confidence 1 − δ/2; the trace by Bernstein, P ≤ 2 exp(−m ε²/(2ρ(1 + ε/3))).
    Sources: Han et al. (2022), theorem 10 and lemma 14; Cohen et al. (2015).
    """

    spectral: Spectral
    tail_ratio: float

    def __post_init__(self) -> None:
        if not isinstance(self.spectral, Spectral):
            raise InvalidInput(
                f"ProjectionCost: spectral must be a Spectral bound; got {self.spectral!r}."
            )
        tail = positive(self.tail_ratio, "ProjectionCost", "tail_ratio")
        object.__setattr__(self, "tail_ratio", tail)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], *, rank: int, form: str = "pair") -> Self:
        """Return the bound for Fourier features of these rows and projections of this rank."""
        rows = dense_rows(X, cls.__name__)
        a = amplitude_of(kernel, rows, cls.__name__)
        rank = integer(rank, cls.__name__, "rank", 1)
        values = eigen(kernel, rows, cls.__name__).values
        tail = float(values[:-rank].sum())
        if rank >= len(rows) or tail <= 1e-12 * values.sum():
            raise InvalidInput(
                f"ProjectionCost: rank must be below that of the kernel matrix, or there is no "
                f"cost to keep; got rank {rank} for {len(rows)} rows. Ask for a lower rank."
            )
        features, penalty = per_draw(one_of(form, cls.__name__, "form", FORMS)), tail / rank
        below_norm(penalty, float(values[-1]), cls.__name__)
        size = (3 - features) * a * len(rows)
        d = float(np.sum(values / (values + penalty)))
        return cls(Spectral(size / penalty, d, features), size / tail)

    @property
    def quantity(self) -> str:
        """The cost of projections, relative."""
        return "cost of projections, relative"

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return the larger of the two widths; see :class:`Bound`."""
        share, half = positive(error, "width", "error") / COST, 1 - chance_of(confidence) / 2
        features = self.spectral.features_per_draw
        trace = width_of(self._log_failures, self._rate, features, share, half)
        return max(self.spectral.width(share, half), trace)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return eleven times the larger of the two errors; see :class:`Bound`."""
        half, features = 1 - chance_of(confidence) / 2, self.spectral.features_per_draw
        trace = error_of(self._log_failures, self._rate, features, n_features, half)
        return COST * max(self.spectral.error(n_features, half), trace)

    def _log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(2)

    def _rate(self, error: float) -> float:
        return error * error / (2 * self.tail_ratio * (1 + error / 3))


def below_norm(penalty: float, norm: float, who: str) -> None:
    """Refuse a penalty above ‖K‖, where intrinsic and effective dimension part."""
    if penalty > norm:
        raise InvalidInput(
            f"{who}: the penalty must be at most ‖K‖ = {norm:.3g}; got {penalty:.3g}. With a "
            "larger one the fit is nearly zero whatever the features."
        )
