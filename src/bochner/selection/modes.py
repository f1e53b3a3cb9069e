"""Fourier modes: when "auto" uses them instead of features, and lengthscales from their sums.

A fit by Fourier modes is the fit of the exact kernel within a tolerance. Up to two thousand modes
are solved for directly. More modes require conjugate gradients; the time of a step does not depend
on the number of rows. Lengthscales only change weights of modes: the sums are computed only once.
"""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import takewhile
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from bochner._core.arrays import is_sparse
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, attempt
from bochner.features.auto import Choice
from bochner.features.compose import box_of_rows
from bochner.features.fourier.grid import MAX_COLUMNS, FourierGrid, equispaced_map, grid_of
from bochner.features.map import Method
from bochner.features.mercer.sphere import ModeMap, SphericalHarmonics, spherical_map
from bochner.kernels.kernel import Constant, Kernel
from bochner.kernels.sphere import degree_variances, is_on_sphere
from bochner.selection.lengthscales import STEP
from bochner.selection.rows import rounded, times
from bochner.solvers.modes import ModeProblem, ModeState, maximise_mode_evidence
from bochner.solvers.ridge.problem import evidence, freedom

FEWEST_ROWS = 8193  # With fewer rows the exact kernel, or its features, take seconds
#: Errors of the kernel relative to k(x, x); the first that few enough modes reach is used.
TOLERANCES = (1e-3, 1e-2, 3e-2)


def modes_for(kernel: Kernel, X: Float[Array, "m d"], n_rows: int) -> Choice | None:
    """Return the Fourier grid of a kernel for ``n_rows`` rows like X; None to use features."""
    d, limit = X.shape[1], max_modes(n_rows)
    if n_rows < FEWEST_ROWS or d > MAX_COLUMNS or is_sparse(X) or find_spec("finufft") is None:
        return None
    on_sphere = is_on_sphere(kernel) and not isinstance(kernel, Constant)
    grid = attempt(_harmonics, kernel, limit) if on_sphere else attempt(_grid, kernel, X, limit)
    if grid is None or isinstance(grid, InvalidInput):
        return None
    phi, method, count = grid
    where = "the globe" if on_sphere else f"{d} column{'s' * (d > 1)}"
    reason = (
        f"{method}: {n_rows:,} rows of {where} are summed as {count}. The error of the kernel is "
        f"at most {phi.error:.1g} of k(x, x) for all pairs of rows. Features are used if more than "
        f"{limit:,} would be required."
    )
    return Choice(phi, method, (), reason)


def max_modes(n_rows: int) -> int:
    """Return the largest number of modes that replaces features; 2047 have a Cholesky factor."""
    return 2047 if n_rows < 1 << 17 else min(1 << 18, n_rows // 4)


def _grid(kernel: Kernel, X: Float[Array, "m d"], limit: int) -> tuple[ModeMap, Method, str] | None:
    lower, upper = box_of_rows(X)
    grids = ((t, grid_of(kernel, lower, upper, t).n_modes) for t in reversed(TOLERANCES))
    small = list(takewhile(lambda grid: grid[1] <= limit, grids))
    if not small:
        return None
    tolerance, n_modes = small[-1]
    phi = equispaced_map(kernel, lower, upper, tolerance)
    return phi, FourierGrid(tolerance), f"{n_modes:,} Fourier modes"


def _harmonics(kernel: Kernel, limit: int) -> tuple[ModeMap, Method, str] | None:
    degrees = np.arange(int(limit**0.5))
    cumulative = np.cumsum((2 * degrees + 1) * degree_variances(kernel, len(degrees) - 1))
    missing = 1 - cumulative / float(kernel.diag(np.zeros((1, 2)))[0])
    for tolerance in TOLERANCES:
        if missing[-1] <= tolerance:
            degree = max(1, int(np.argmax(missing <= tolerance)))
            phi = spherical_map(kernel, degree)
            return phi, SphericalHarmonics(degree), f"{phi.n_features:,} harmonics"
    return None


RANGE = 1.6  # Largest factor of the lengthscales for which the modes are accurate
TOLERANCE = 0.05  # A step that gains less log evidence than this is the last


def rescale(kernel: Any, factors: Float[Array, " q"]) -> Any:
    """Return the kernel with its lengthscales multiplied by factors."""
    return kernel.replace(lengthscale=times(kernel.lengthscale, factors))


def lengthscales_on_modes(
    kernel: Any,
    problem_of: Callable[[Array], ModeProblem],
    phi: ModeMap,
    noise: float | None,
    amplitude: float | None,
    alpha: float | None,
) -> tuple[Kernel, float, bool]:
    """Maximise the evidence over lengthscales and penalty.

    Return the kernel, the penalty, and whether lengthscales and penalty are inside their ranges.
    """
    q = np.size(kernel.lengthscale)
    if alpha is None:
        optimum_, _ = maximise_mode_evidence(problem_of(phi.variances_of(kernel)), noise, amplitude)
        alpha = float(np.exp(np.log(optimum_.alpha).mean()))
    limits = np.append(np.full(q, np.log(RANGE)), np.log(4))
    limits[-1] *= noise is None or amplitude is None
    start, free, fixed = np.append(np.zeros(q), np.log(alpha)), limits > 0, (noise, amplitude)

    def objective(x: Float[Array, " p"]) -> tuple[float, Array, Array]:
        """Return minus the log evidence, its gradient and Fisher information, at logarithms x."""
        weights = phi.variances_of(rescale(kernel, np.exp(x[:-1])))
        state = problem_of(weights).at(float(np.exp(x[-1])))
        rates = _rates(kernel, phi, x[:-1])
        slope = [float(state.slope_in(rate, *fixed).sum()) for rate in rates]
        slope.append(float(state.slope(*fixed).sum()))
        value = float(evidence(state.problem, state, *fixed).sum())
        return -value, -np.array(slope)[free], _information(state, rates, *fixed)

    first = objective(start)
    # SLSQP starts from a unit Hessian: in these units the curvature is about one
    unit = np.linalg.inv(np.linalg.cholesky(first[2][np.ix_(free, free)])).T

    def place(z: Float[Array, " q"]) -> Float[Array, " p"]:
        x = start.copy()
        x[free] += np.clip(unit @ z, -limits[free], limits[free])  # Rounding may exceed the range
        return x

    def in_units(z: Float[Array, " q"]) -> tuple[float, Array]:
        value, slope, _ = objective(place(z)) if np.any(z) else first
        return value, unit.T @ slope

    box = LinearConstraint(unit, -limits[free], limits[free])
    options = {"ftol": TOLERANCE, "maxiter": 25}
    zero = np.zeros(len(unit))
    optimum = minimize(in_units, zero, (), "SLSQP", True, constraints=box, options=options)
    end = place(optimum.x if optimum.fun < first[0] else zero)
    best = kernel.replace(lengthscale=rounded(times(kernel.lengthscale, np.exp(end[:-1]))))
    converged = bool(np.all(np.abs(end - start) < np.maximum(0.98 * limits, ~free)))
    return best, float(np.exp(end[-1])), converged


def _information(
    state: ModeState, rates: list[Array], noise: float | None, amplitude: float | None
) -> Float[Array, "p p"]:
    """Return the approximate Fisher information of log lengthscales and log penalty.

    Modes are taken as independent, with variances a² v_j + σ²/g_j; the share λ_j = 1 − α (A⁻¹)_jj
    belongs to the function (Whittle 1953).
    """
    share = np.clip(1 - state.alpha * state.inverse_diagonal, 0.0, 1.0)
    is_profiled = noise is None and amplitude is None
    noise_only = noise is not None and amplitude is None  # a² = σ²/α
    signal = np.stack([*rates, np.full_like(share, -float(noise_only)), np.ones_like(share)])
    of_noise = np.append(np.zeros(len(rates)), [float(not noise_only), 1.0])[:, None]
    modes = share * signal + (1 - share) * of_noise
    rows = max(freedom(state.problem) - state.problem.gram.dimension, 0.0)
    information = modes @ modes.T + rows * of_noise @ of_noise.T
    information *= 0.5 * len(state.problem.power)
    block, cross = information[:-1, :-1], information[:-1, -1]
    if is_profiled:  # the amplitude is profiled
        block = block - np.outer(cross, cross) / information[-1, -1]
    return block + 1e-3 * np.eye(len(block))


def _rates(kernel: Any, phi: ModeMap, logs: Float[Array, " q"]) -> list[Array]:
    """Return ∂log v/∂log ℓ of each lengthscale per coefficient; zero where v vanishes."""
    rates = []
    for step in STEP * np.eye(len(logs)):
        scaled = (rescale(kernel, np.exp(x)) for x in (logs + step, logs - step))
        high, low = map(phi.variances_of, scaled)
        positive = (high > 0) & (low > 0)
        ratio = np.divide(high, low, out=np.ones_like(high), where=positive)
        rates.append(phi.as_coefficients(np.log(ratio) / (2 * STEP)))
    return rates
