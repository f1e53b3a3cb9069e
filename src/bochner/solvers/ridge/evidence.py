"""Marginal likelihood of a Gaussian process on features: noise and amplitude from moments alone.

y = b + Zβ + ε with β ~ N(0, a²I), ε_i ~ N(0, σ²/w_i) and λ = σ²/a². With G = V diag(w) Vᵀ and
c = VᵀB about the means, ν = n − 1 degrees of freedom (b has a flat prior: its contrasts are
integrated, as in restricted maximum likelihood) or ν = n without an intercept,

    q(λ) = (P − Σ c²/(w + λ))/λ,     log |ZZᵀ + λI| = Σ log(w + λ) + (ν − D) log λ

in the evidence of :mod:`~.problem`. The only unknown is λ for each target, where its slope is zero.
Rasmussen and Williams (2006, eq. 2.30; with an intercept eq. 2.45 and ½ log n) in the eigenbasis
of ZᵀZ.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from bochner._core.checks import nonnegative, positive
from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence
from bochner.errors import InvalidInput
from bochner.solvers.ridge.eigen import Eigen, floor, penalties
from bochner.solvers.ridge.problem import amplitude_at, evidence, evidence_slope, freedom


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

    @staticmethod
    def worst(outcomes: "Iterable[EvidenceOutcome]") -> "EvidenceOutcome":
        """Return the worst outcome of the targets that vary."""
        constant = EvidenceOutcome.CONSTANT_TARGET
        varying = (each for each in outcomes if each is not constant)
        return max(varying, key=list(EvidenceOutcome).index, default=constant)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noise and amplitude of each target, and the log marginal likelihood there."""

    noise: Float[Array, " t"]  # σ², the variance of y about the features' function, in units of y²
    amplitude: Float[Array, " t"]  # a², the factor of the kernel, in units of y²
    alpha: Float[Array, " t"]  # λ = σ²/a², the ridge penalty
    log_likelihood: Float[Array, " t"]  # log p(y); of the contrasts of y if there is an intercept
    outcome: EvidenceOutcome  # the worst among the targets; its text is the remedy

    def __repr__(self) -> str:
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


def maximise_evidence(
    eigen: Eigen, noise: float | None = None, amplitude: float | None = None
) -> Evidence:
    """Return the noise and amplitude of largest marginal likelihood, for each target.

    λ is sought on :func:`bochner.solvers.ridge.eigen.penalties`' path, then as the root of the
    derivative between the neighbours of its best point. O(D) for each λ: no pass, no D³.
    """
    each = (eigen.target(i) for i in range(len(eigen.power)))
    numbers, outcomes = zip(*(_maximise(one, noise, amplitude) for one in each), strict=True)
    noises, amplitudes, alpha, log_p = np.array(numbers).T
    return Evidence(noises, amplitudes, alpha, log_p, EvidenceOutcome.worst(outcomes))


Maximum = tuple[tuple[float, float, float, float], EvidenceOutcome]


def _maximise(eigen: Eigen, noise: float | None, amplitude: float | None) -> Maximum:
    """Return σ², a², λ, log p and the outcome of one target."""
    float32, low, outcome = eigen.precision == "float32", floor(eigen), EvidenceOutcome.SOLVED
    limited = EvidenceOutcome.FLOAT32_LIMITED if float32 else EvidenceOutcome.SINGULAR
    if noise is not None and amplitude is not None:
        alpha = max(noise / amplitude, low if float32 else 0.1 * low)
        if noise / amplitude < low and eigen.values[0] < low:
            outcome = limited
        return (noise, amplitude, alpha, _log_p(eigen, alpha, None, amplitude)), outcome
    if not (eigen.power[0] > 0 and freedom(eigen) > 0):
        top, constant = max(float(eigen.values[-1]), 1.0), EvidenceOutcome.CONSTANT_TARGET
        return (noise or 0.0, amplitude or 0.0, top, float("nan")), constant
    if noise == 0:
        return _noiseless(eigen, 0.0, outcome)
    alphas = penalties(eigen)
    if noise is not None and low < alphas[0]:
        alphas = np.concatenate([[low], alphas])
    best = int(np.argmax(evidence(eigen, eigen.at(alphas), noise, amplitude)[:, 0]))
    ends = np.log(alphas[[max(best - 1, 0), min(best + 1, len(alphas) - 1)]])

    def slope(log_alpha: float) -> float:
        at = eigen.at(np.exp([log_alpha]))
        return float(evidence_slope(eigen, at, noise, amplitude)[0, 0])

    alpha = float(alphas[best])
    if slope(ends[0]) > 0 > slope(ends[1]):
        alpha = float(np.exp(brentq(slope, *ends, xtol=1e-13, rtol=1e-13)))
    if alpha <= alphas[0] and noise is not None:
        # σ²/λ at the smallest λ that is resolved would be an amplitude in proportion to the noise.
        directions = min(eigen.rows - eigen.centred, len(eigen.vectors))
        all_resolved = np.count_nonzero(eigen.values > low) >= directions
        return _noiseless(eigen, noise, limited if float32 or not all_resolved else outcome)
    if alpha <= alphas[0]:
        outcome = limited if float32 else EvidenceOutcome.EDGE_LOW
    elif alpha >= alphas[-1]:
        outcome = EvidenceOutcome.EDGE_HIGH
    a2 = float(amplitude_at(eigen, eigen.at([alpha]), noise, amplitude)[0, 0])
    return (alpha * a2, a2, alpha, _log_p(eigen, alpha, noise, amplitude)), outcome


def _log_p(eigen: Eigen, alpha: float, noise: float | None, amplitude: float | None) -> float:
    return float(evidence(eigen, eigen.at([alpha]), noise, amplitude)[0, 0])


def _noiseless(eigen: Eigen, noise: float, outcome: EvidenceOutcome) -> Maximum:
    """Return the best amplitude at the smallest λ that is resolved."""
    alpha = floor(eigen)
    a2 = float(amplitude_at(eigen, eigen.at([alpha]))[0, 0])
    return (noise, a2, alpha, _log_p(eigen, alpha, None, None)), outcome
