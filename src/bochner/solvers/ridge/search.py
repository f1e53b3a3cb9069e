"""Minimisation of a criterion over the penalty: by its slope, in steps, or by a parabola."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.problem import TINY, evidence, freedom
from bochner.solvers.ridge.solution import EvidenceOutcome


def minimise(
    function: Callable[[float], tuple[float, float]],
    start: float,
    low: float,
    high: float,
    level: float = 3e-3,
) -> float:
    """Return the best point of a descent from ``start`` within [low, high].

    ``function`` returns value and slope. Steps grow until the slope is positive at one point. Then
    cubics between both ends are minimised until |slope| ≤ ``level``; at most 14 evaluations. A flat
    point alone does not end the descent: fits that interpolate may be flat before they improve.
    """
    x = float(np.clip(start, low, high))
    end = function(x)
    best, points = (end[0], x), [x]
    # The step to the minimum for a curvature of 0.1
    step = float(np.clip(abs(end[1]) / 0.1, np.log(2.0), np.log(10.0)))
    ends: dict[bool, tuple[float, tuple[float, float]]] = {end[1] > 0: (x, end)}
    while len(points) < 14 and (abs(end[1]) > level or True not in ends):
        if len(ends) == 2:
            x = _minimum(*ends[False], *ends[True])
        else:
            x, step = float(np.clip(x - np.sign(end[1]) * step, low, high)), np.log(100.0)
        if x in points:
            break
        end = function(x)
        points.append(x)
        ends[end[1] > 0] = x, end
        best = min(best, (end[0], x))
        if len(ends) == 2 and abs(ends[True][0] - ends[False][0]) < 0.05:
            break
    return best[1]


def _minimum(a: float, left: tuple[float, float], b: float, right: tuple[float, float]) -> float:
    """Return the minimiser of the cubic with these end values and slopes, kept off the ends."""
    width, share_ = b - a, 0.5
    if np.all(np.isfinite([*left, *right])):
        d = left[1] + right[1] - 3 * (left[0] - right[0]) / (a - b)
        root = np.sqrt(max(d * d - left[1] * right[1], 0.0))
        share = (right[1] + root - d) / (right[1] - left[1] + 2 * root + TINY)
        share_ = 1 - share if np.isfinite(share) else 0.5
    return a + float(np.clip(share_, 0.1, 0.9)) * width


def downhill(
    value: Callable[[int], float],
    start: int,
    bounds: tuple[float, float],
    sizes: Sequence[int] = (1,),
    decrease: float = 0.0,
) -> int:
    """Return the integer of smallest value, downhill from ``start``, by steps of these sizes.

    Negative steps are tried first. A step must lower the value by more than ``decrease`` times it.
    """
    best, (low, high) = start, bounds
    for size in sizes:
        for step in (-size, size):
            last = best
            while low <= best + step <= high and value(best + step) < (1 - decrease) * value(best):
                best += step
            if best != last:
                break
    return best


def settle(
    value: Callable[[float], float],
    alpha: float,
    bounds: tuple[float, float],
    step: float,
    max_steps: int,
    decrease: float = 0.0,
    refines: bool = True,
    sizes: Sequence[int] = (1,),
) -> float:
    """Return the penalty of smallest value, downhill from ``alpha``, within bounds of log α.

    :func:`downhill` takes at most ``max_steps`` steps of log α, and ``refines`` adds a parabola.
    """
    at = lambda steps: alpha * float(np.exp(step * steps))
    value_at = cache(lambda steps: value(at(steps)))
    low, high = (np.clip((end - np.log(alpha)) / step, -max_steps, max_steps) for end in bounds)
    best = downhill(value_at, 0, (low, high), sizes, decrease)
    if refines and low <= best - 1 and best + 1 <= high:
        places = best - 1, best, best + 1
        alphas, values = (np.array([f(place) for place in places]) for f in (at, value_at))
        if np.all(np.isfinite(values)):
            return parabola_minimum(alphas, values)
    return at(best)


def parabola_minimum(alphas: Float[Array, " p"], values: Float[Array, " p"]) -> float:
    """Return the minimum of the parabola in log α through the smallest value and its neighbours."""
    at = int(np.argmin(values))
    if not 0 < at < len(alphas) - 1:
        return float(alphas[at])
    x, y = np.log(alphas[at - 1 : at + 2]), values[at - 1 : at + 2]
    curvature, slope, _ = np.polyfit(x - x[1], y / y[1] - 1, 2)
    if not curvature > 0:
        return float(alphas[at])
    step = np.clip(-slope / (2 * curvature), x[0] - x[1], x[2] - x[1])
    return float(np.exp(x[1] + step))


def likeliest_alpha(
    problem: Any,
    at: Callable[[float], Any],
    law: tuple[float | None, float | None],
    bounds: tuple[float, float],
    start: float,
    level: float,
    find: Callable[[], float] | None = None,
) -> tuple[float, EvidenceOutcome]:
    """Return λ = σ²/a² of one target, by largest evidence or by ``find``, and the outcome.

    ``law`` is (σ², a²), each None if it is not given.
    """
    (noise, amplitude), (low, high) = law, bounds
    if noise is not None and amplitude is not None:
        return max(noise / amplitude, low), EvidenceOutcome.SOLVED
    if not (problem.power[0] > 0 and freedom(problem) > 0):
        return high, EvidenceOutcome.CONSTANT_TARGET
    if noise == 0:
        return low, EvidenceOutcome.SOLVED

    def profile(log_alpha: float) -> tuple[float, float]:
        try:
            state = at(float(np.exp(log_alpha)))
        except LinAlgError:
            return np.inf, -np.inf
        value, slope = evidence(problem, state, *law), state.slope(*law)
        return -float(value[0]) / problem.count, -float(slope[0]) / problem.count

    logs = np.log([start, low, high])
    alpha = find() if find else float(np.exp(minimise(profile, logs[0], logs[1], logs[2], level)))
    if alpha <= 1.001 * low:
        return alpha, EvidenceOutcome.EDGE_LOW
    return alpha, EvidenceOutcome.EDGE_HIGH if alpha >= 0.999 * high else EvidenceOutcome.SOLVED
