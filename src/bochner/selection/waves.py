"""Lengthscales of the largest evidence of all rows, on waves whose sums are kept.

Lengthscales change the weights of waves and nothing else, so that sums made once serve every
evaluation: a solution with each target and each probe as right side (:mod:`bochner.solvers.waves`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bochner._core.shapes import Array, Float
from bochner.kernels.equispaced import equispaced_weights
from bochner.kernels.kernel import Kernel
from bochner.models.convex.classification import MOST
from bochner.selection.rows import rounded
from bochner.solvers.toeplitz import half_of
from bochner.solvers.waves import LEAST, WaveProblem, WaveState

#: Lengthscales stay within this factor of where they start, for which the waves suffice.
RANGE = 1.6

#: Evaluations of a descent.
EVALUATIONS = 25

#: Change of the log evidence that ends a descent: far below one, the unit of what it means.
ENOUGH = 0.05

#: Step of log ℓ in differences of weights.
STEP = 1e-4


@dataclass(frozen=True)
class WaveLengthscales:
    """What a descent found.

    Attributes
    ----------
    kernel : Kernel
    alpha : float
    log_evidence : float
        Summed over targets.
    inside : bool
        Whether every lengthscale lies inside the range that the waves are for.
    """

    kernel: Kernel
    alpha: float
    log_evidence: float
    inside: bool


def scaled(kernel: Any, factors: Float[Array, " q"]) -> Any:
    """Return the kernel with its lengthscales, one or one a column, times factors."""
    lengths = np.asarray(kernel.lengthscale) * factors
    if isinstance(kernel.lengthscale, tuple):
        return kernel.replace(lengthscale=tuple(lengths.tolist()))
    return kernel.replace(lengthscale=float(lengths[0]))


def lengthscales_on_waves(
    kernel: Any,
    problem_of: Callable[[Array], WaveProblem],
    spacing: Float[Array, " d"],
    extent: tuple[int, ...],
    noise: float | None,
    amplitude: float | None,
    alpha: float | None = None,
) -> WaveLengthscales:
    """Descend minus the log evidence in log lengthscales and log penalty, by L-BFGS.

    Parameters
    ----------
    kernel : Kernel
        With a lengthscale, where the descent starts.
    problem_of : callable
        The problem of the rows, from weights of the waves.
    spacing : (d,)
    extent : tuple of d int
        Of the waves that were summed.
    noise, amplitude : float, optional
        Where they are given.
    alpha : float, optional
        A penalty to start from.

    Notes
    -----
    At most 25 evaluations, each of as many FFT products as its solution takes steps.
    """
    q = np.size(kernel.lengthscale)
    first = problem_of(equispaced_weights(kernel, spacing, extent))
    begin = np.log(first.scale * 1e-3 if alpha is None else alpha)
    limits = np.log(first.scale * LEAST), np.log(first.scale * MOST)

    def judged(x: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        state = _state(kernel, problem_of, spacing, extent, x)
        value = float(state.log_evidence(noise, amplitude).sum())
        by_length = [
            float(state.slope_in(rate, noise, amplitude).sum())
            for rate in _rates(kernel, spacing, extent, x[:-1])
        ]
        slope = np.append(by_length, state.slope(noise, amplitude).sum())
        return -value, -slope

    bounds = [*((-np.log(RANGE), np.log(RANGE)),) * q, limits]
    if noise is not None and amplitude is not None:
        begin = np.log(noise / amplitude)
        bounds[-1] = begin, begin
    found = minimize(
        judged,
        np.append(np.zeros(q), np.clip(begin, *limits)),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxfun": EVALUATIONS, "ftol": ENOUGH / max(first.count, 1.0), "gtol": ENOUGH},
    )
    factors = np.exp(found.x[:-1])
    best = scaled(kernel, factors)
    best = best.replace(lengthscale=rounded(best.lengthscale))
    inside = bool(np.all(np.abs(found.x[:-1]) < 0.98 * np.log(RANGE)))
    return WaveLengthscales(best, float(np.exp(found.x[-1])), -float(found.fun), inside)


def _state(
    kernel: Any,
    problem_of: Callable[[Array], WaveProblem],
    spacing: Float[Array, " d"],
    extent: tuple[int, ...],
    x: Float[Array, " p"],
) -> WaveState:
    weights = equispaced_weights(scaled(kernel, np.exp(x[:-1])), spacing, extent)
    return problem_of(weights).at(float(np.exp(x[-1])))


def _rates(
    kernel: Any, spacing: Float[Array, " d"], extent: tuple[int, ...], logs: Float[Array, " q"]
) -> list[Array]:
    """Return ∂log v/∂log ℓ of each lengthscale, halves of spectra; zero where v vanishes."""
    found = []
    for k in range(len(logs)):
        up, down = (
            equispaced_weights(
                scaled(kernel, np.exp(logs + h * (np.arange(len(logs)) == k))), spacing, extent
            )
            for h in (STEP, -STEP)
        )
        known = (up > 0) & (down > 0)
        ratio = np.divide(up, down, out=np.ones_like(up), where=known)
        found.append(half_of((np.log(ratio) / (2 * STEP))[None])[0].real)
    return found
