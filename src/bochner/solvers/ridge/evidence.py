"""Marginal likelihood of a Gaussian process on features: noise and amplitude from moments alone.

y = b + Zβ + ε with β ~ N(0, a²I), ε_i ~ N(0, σ²/w_i) and λ = σ²/a². With G = V diag(w) Vᵀ and
c = VᵀB about the means, ν = n − 1 degrees of freedom (b has a flat prior: its contrasts are
integrated, as in restricted maximum likelihood) or ν = n without an intercept,

    q(λ)   = (P − Σ c²/(w + λ))/λ,     ℓ(λ) = Σ log(w + λ) + (ν − D) log λ,
    log p  = −½ q/a² − ½ ℓ − (ν/2) log 2πa²,

and with the best amplitude â² = q/ν, in closed form, log p = −(ν/2)(1 + log 2πâ²) − ½ ℓ. The only
unknown is λ for each target, the root of

    ∂log p/∂log λ = ½ (q − Σ c²/(w + λ)²)/a² − ½ (λ Σ 1/(w + λ) + ν − D)        a² held or best,
                    −½ λ Σ c²/(w + λ)²/σ² − ½ (λ Σ 1/(w + λ) − D)               σ² held.

Rasmussen and Williams (2006, eq. 2.30; with an intercept eq. 2.45 and ½ log n) in the eigenbasis
of ZᵀZ.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import brentq

from bochner._core.checks import nonnegative, positive
from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence
from bochner.errors import InvalidInput
from bochner.solvers.ridge.eigen import Eigen, floor, penalties
from bochner.solvers.ridge.problem import amplitude_of, evidence, freedom, log_likelihood


class EvidenceOutcome(Sentence):
    """How the choice of noise and amplitude went; ``str(outcome)`` is the sentence."""

    SOLVED = "Solved: the evidence has its maximum inside the range of noise that was searched."
    EDGE_LOW = (
        "The evidence rises up to the smallest noise that the precision resolves, as when the "
        "target has no noise. Set noise=... by hand, or use more features or a smaller lengthscale."
    )
    EDGE_HIGH = (
        "The evidence rises up to the largest noise that was tried: the features explain next to "
        "nothing of the target. Try another kernel or lengthscale, scale the columns, or check "
        "the target."
    )
    SINGULAR = (
        "ZᵀZ + (noise/amplitude) I is singular to working precision. Raise noise, or let it be "
        'chosen with noise="evidence".'
    )
    FLOAT32_LIMITED = (
        "noise/amplitude is below what float32 products of the features resolve, and they could "
        'not be formed again. Use precision="float64".'
    )
    CONSTANT_TARGET = (
        "A target is constant, which leaves nothing to measure noise and amplitude by: the model "
        "predicts that constant, with the noise and amplitude that were given or else with none."
    )

    @property
    def good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (EvidenceOutcome.SOLVED, EvidenceOutcome.CONSTANT_TARGET)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noise and amplitude of each target, and the log marginal likelihood there.

    Attributes
    ----------
    noise : (t,) float64
        σ², the variance of y about the features' function, in units of y².
    amplitude : (t,) float64
        a², what the kernel is multiplied by, in units of y².
    alpha : (t,) float64
        λ = σ²/a², the ridge penalty.
    log_likelihood : (t,) float64
        log p(y); of the contrasts of y if there is an intercept.
    outcome : EvidenceOutcome
        The worst among the targets; its text is the remedy.
    """

    noise: Float[Array, " t"]
    amplitude: Float[Array, " t"]
    alpha: Float[Array, " t"]
    log_likelihood: Float[Array, " t"]
    outcome: EvidenceOutcome

    def __repr__(self) -> str:
        """Return one line."""
        noise, amplitude = (np.array2string(a, precision=4) for a in (self.noise, self.amplitude))
        return f"Evidence(noise={noise}, amplitude={amplitude}, outcome={self.outcome.name})"


def as_variance(value: object, name: str) -> float | None:
    """Return a given noise ≥ 0 or amplitude > 0, or None for "auto" and "evidence"."""
    if isinstance(value, str):
        if value in ("auto", "evidence"):
            return None
        raise InvalidInput(
            f'GaussianProcessRegressor: {name} must be "auto", "evidence" or a number, the '
            f"variance in units of y²; got {value!r}."
        )
    check = nonnegative if name == "noise" else positive
    return check(value, "GaussianProcessRegressor", name)


@dataclass(frozen=True, eq=False)
class _Target:
    """One target in the eigenbasis, c² and c²/w, and what is held while λ varies."""

    values: Float[Array, " D"]
    squares: Float[Array, " D"]
    ratios: Float[Array, " D"]
    outside: float
    power: float
    freedom: float
    noise: float | None
    amplitude: float | None

    def left(self, alpha: float) -> float:
        """λ q = P − Σ c²/(w + λ), as (P − Σ c²/w) + λ Σ c²/(w (w + λ)): nothing cancels twice."""
        inside = alpha * float((self.ratios / (self.values + alpha)).sum())
        return max(self.outside + inside, float(np.finfo(np.float64).tiny))

    def scale(self, alpha: float) -> float:
        """a²: as held, σ²/λ, or the best one."""
        q = self.left(alpha) / alpha
        return float(amplitude_of(q, alpha, self.freedom, self.noise, self.amplitude))

    def log_p(self, alpha: float) -> float:
        """Log marginal likelihood."""
        w, q = self.values + alpha, self.left(alpha) / alpha
        log_det = float(np.log(w).sum()) + (self.freedom - len(w)) * np.log(alpha)
        return float(log_likelihood(q, log_det, self.freedom, self.scale(alpha)))

    def slope(self, alpha: float) -> float:
        """∂log p/∂log λ."""
        inverse = 1 / (self.values + alpha)
        gained = float((self.squares * inverse**2).sum())
        traced, D = alpha * float(inverse.sum()), len(inverse)
        if self.noise is not None:
            return -0.5 * (alpha * gained / self.noise + traced - D)
        fit = (self.left(alpha) / alpha - gained) / self.scale(alpha)
        return 0.5 * (fit - traced - self.freedom + D)


def log_evidence(
    eigen: Eigen, alpha: float, amplitude: float | None = None
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    """Return log p(y) of each target at λ = ``alpha``, and its derivative in log λ.

    Parameters
    ----------
    eigen : Eigen
        Decomposition of the moments.
    alpha : float
        λ = σ²/a².
    amplitude : float, optional
        a², held; default: the best for each target, which moves with λ.
    """
    targets = [_target(eigen, i, None, amplitude) for i in range(len(eigen.power))]
    pairs = [(target.log_p(alpha), target.slope(alpha)) for target in targets]
    values, slopes = np.array(pairs).T
    return values, slopes


def evidence_of(eigen: Eigen, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
    """Return the log marginal likelihood at the best amplitude along a path of λ, each target's."""
    if not freedom(eigen) > 0:
        return np.zeros((len(alphas), len(eigen.power)))  # no contrasts
    return evidence(eigen, eigen.at(alphas))


def maximise_evidence(
    eigen: Eigen, noise: float | None = None, amplitude: float | None = None
) -> Evidence:
    """Return noise and amplitude of the largest marginal likelihood, each target its own.

    Parameters
    ----------
    eigen : Eigen
        Decomposition of the moments.
    noise, amplitude : float, optional
        σ² and a² if given; otherwise they are chosen.

    Notes
    -----
    λ is sought on :func:`bochner.solvers.ridge.eigen.penalties`' path, then as the root of the
    derivative between the neighbours of its best point. O(D) for each λ: no pass, no D³.
    """
    alphas = penalties(eigen)
    found = [_maximise(eigen, i, noise, amplitude, alphas) for i in range(len(eigen.power))]
    numbers = np.array([row[:4] for row in found]).T
    order = list(EvidenceOutcome)
    varying = [row[4] for row in found if row[4] is not EvidenceOutcome.CONSTANT_TARGET]
    outcome = max(varying, key=order.index) if varying else EvidenceOutcome.CONSTANT_TARGET
    return Evidence(numbers[0], numbers[1], numbers[2], numbers[3], outcome)


def _target(eigen: Eigen, i: int, noise: float | None, amplitude: float | None) -> _Target:
    w, power = eigen.values, float(eigen.power[i])
    squares = eigen.projected[:, i] ** 2
    ratios = np.divide(squares, w, out=np.zeros_like(w), where=w > 0.1 * floor(eigen))
    outside = power - float(ratios.sum())
    if outside < 10 * len(w) * np.finfo(np.float64).eps * power:
        outside = 0.0  # rounding: the features explain all
    freedom = max(eigen.count - eigen.centred, 0)
    return _Target(w, squares, ratios, outside, power, freedom, noise, amplitude)


Found = tuple[float, float, float, float, EvidenceOutcome]


def _maximise(
    eigen: Eigen, i: int, noise: float | None, amplitude: float | None, alphas: Array
) -> Found:
    target = _target(eigen, i, noise, amplitude)
    if noise is not None and amplitude is not None:
        return _given(eigen, target, noise, amplitude)
    if not target.power > 0 or not target.freedom > 0:
        return _constant(eigen, noise, amplitude)
    if noise == 0:
        return _noiseless(eigen, target)
    if noise is not None and floor(eigen) < alphas[0]:
        alphas = np.concatenate([[floor(eigen)], alphas])
    scores = np.array([target.log_p(alpha) for alpha in alphas])
    best = int(np.argmax(scores))
    alpha = _root(target, alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)])
    if alpha is None:
        alpha = float(alphas[best])
    if noise is not None and alpha <= alphas[0]:
        return _unresolved(eigen, target, noise)
    return _report(target, alpha, _outcome(eigen, alpha, alphas))


def _root(target: _Target, low: float, high: float) -> float | None:
    """Return the λ between these where the slope changes sign, if it does."""
    slope = partial(_slope_at, target)
    a, b = float(np.log(low)), float(np.log(high))
    if not slope(a) > 0 > slope(b):
        return None
    return float(np.exp(brentq(slope, a, b, xtol=1e-13, rtol=1e-13)))


def _slope_at(target: _Target, log_alpha: float) -> float:
    return target.slope(float(np.exp(log_alpha)))


def _report(target: _Target, alpha: float, outcome: EvidenceOutcome) -> Found:
    scale = target.scale(alpha)
    return alpha * scale, scale, alpha, target.log_p(alpha), outcome


def _given(eigen: Eigen, target: _Target, noise: float, amplitude: float) -> Found:
    """Both are given: a penalty below the floor of float64 is that floor."""
    float32, low = eigen.precision == "float32", floor(eigen)
    alpha = max(noise / amplitude, low if float32 else 0.1 * low)
    held = replace(target, noise=None)
    outcome = EvidenceOutcome.SOLVED
    if noise / amplitude < low and eigen.values[0] < low:
        outcome = EvidenceOutcome.FLOAT32_LIMITED if float32 else EvidenceOutcome.SINGULAR
    return noise, amplitude, alpha, held.log_p(alpha), outcome


def _noiseless(eigen: Eigen, target: _Target) -> Found:
    """Without noise the amplitude is the best one at the smallest λ that is resolved."""
    alpha = floor(eigen)
    best = replace(target, noise=None, amplitude=None)
    return 0.0, best.scale(alpha), alpha, best.log_p(alpha), EvidenceOutcome.SOLVED


def _unresolved(eigen: Eigen, target: _Target, noise: float) -> Found:
    """Take the amplitude of no noise where the given noise is too small to be resolved.

    σ²/λ at the smallest λ that is resolved would be an amplitude in proportion to the noise.
    """
    _, amplitude, alpha, log_p, outcome = _noiseless(eigen, target)
    directions = min(eigen.rows - eigen.centred, len(eigen.vectors))
    if eigen.precision == "float32":
        outcome = EvidenceOutcome.FLOAT32_LIMITED
    elif np.count_nonzero(eigen.values > alpha) < directions:
        outcome = EvidenceOutcome.SINGULAR
    return noise, amplitude, alpha, log_p, outcome


def _constant(eigen: Eigen, noise: float | None, amplitude: float | None) -> Found:
    """Return zero for what is not given: the target is constant."""
    top = max(float(eigen.values[-1]), 1.0)
    given = (0.0 if noise is None else noise), (0.0 if amplitude is None else amplitude)
    return *given, top, float("nan"), EvidenceOutcome.CONSTANT_TARGET


def _outcome(eigen: Eigen, alpha: float, alphas: Array) -> EvidenceOutcome:
    if alpha <= alphas[0]:
        float32 = eigen.precision == "float32"
        return EvidenceOutcome.FLOAT32_LIMITED if float32 else EvidenceOutcome.EDGE_LOW
    return EvidenceOutcome.EDGE_HIGH if alpha >= alphas[-1] else EvidenceOutcome.SOLVED
