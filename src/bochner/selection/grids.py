"""Fourier modes that "auto" takes instead of features, for many rows of few columns or the globe.

A fit by Fourier modes is the fit of the exact kernel within a tolerance. About two thousand modes
are solved for directly. More modes require conjugate gradients, whose steps take the same time for
any number of rows: for very many rows the modes cost less than features, for fewer rows they may
cost far more.
"""

from contextlib import suppress

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.nufft import is_fast
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.auto import Choice
from bochner.features.fourier.frequencies import MOST_COLUMNS, equispaced_map, grid_of
from bochner.features.fourier.grid import FourierGrid
from bochner.features.mercer.axes import box_of_rows
from bochner.features.mercer.sphere import SphericalHarmonics, spherical_map
from bochner.kernels.kernel import Constant, Kernel
from bochner.kernels.sphere import degree_variances, is_on_sphere

FEWEST_ROWS = 8193  # With fewer rows the exact kernel, or its features, take seconds
#: Errors of the kernel as shares of k(x, x), of which the first with few enough modes is taken.
TOLERANCES = (1e-3, 1e-2, 3e-2)
#: Largest number of modes for a Cholesky factorisation, with fewer than ``FEW_ROWS`` rows.
WHOLE_WAVES = 2047
#: Largest number of modes for a number of rows, with more rows in proportion; overall limit.
FEW_WAVES, FEW_ROWS, MOST_WAVES = 1 << 15, 1 << 17, 1 << 18


def waves_for(kernel: Kernel, X: Float[Array, "m d"], n_rows: int) -> Choice | None:
    """Return the waves of a kernel for ``n_rows`` rows like X; None where features are better.

    None where there are up to 8,192 rows, more than three columns (or two, of kernels of the
    globe), no spectral density, more waves than 2047 (of 131,072 rows and more, a quarter of their
    number, up to 2¹⁸), or no finufft: NumPy takes as long for each wave as for a feature.
    """
    d = X.shape[1]
    if n_rows < FEWEST_ROWS or d > MOST_COLUMNS or is_sparse(X) or not is_fast():
        return None
    with suppress(InvalidInput):
        if is_on_sphere(kernel) and not isinstance(kernel, Constant):
            return _harmonics(kernel, n_rows)
        return _grid(kernel, X, n_rows)
    return None


def most_waves(n_rows: int) -> int:
    """Return how many waves are few enough."""
    if n_rows < FEW_ROWS:
        return WHOLE_WAVES
    return min(MOST_WAVES, FEW_WAVES * n_rows // FEW_ROWS)


def _grid(kernel: Kernel, X: Float[Array, "m d"], n_rows: int) -> Choice | None:
    lower, upper = box_of_rows(X)
    for tolerance in TOLERANCES:
        grid = grid_of(kernel, lower, upper, tolerance)
        if grid.waves <= most_waves(n_rows):
            phi = equispaced_map(kernel, lower, upper, tolerance)
            many = f"{grid.waves:,} waves ({grid})" if X.shape[1] > 1 else f"{grid.waves:,} waves"
            method = FourierGrid(tolerance)
            reason = _reason(method, n_rows, f"{X.shape[1]} columns", many, phi.error)
            return Choice(phi, method, (), reason)
    return None


def _harmonics(kernel: Kernel, n_rows: int) -> Choice | None:
    most = int(most_waves(n_rows) ** 0.5) - 1
    weights = degree_variances(kernel, most)
    kept = np.cumsum((2 * np.arange(most + 1) + 1) * weights)
    left = 1 - kept / float(kernel.diag(np.zeros((1, 2)))[0])
    for tolerance in TOLERANCES:
        if left[-1] <= tolerance:
            degree = max(1, int(np.argmax(left <= tolerance)))
            phi, method = spherical_map(kernel, degree), SphericalHarmonics(degree)
            many = f"{phi.n_features:,} harmonics"
            return Choice(phi, method, (), _reason(method, n_rows, "the globe", many, phi.error))
    return None


def _reason(method: object, n_rows: int, where: str, many: str, error: float) -> str:
    return (
        f"{method}: {n_rows:,} rows of {where.replace('1 columns', '1 column')} are summed as "
        f"{many}, within {error:.1g} of k(x, x) of the kernel for all pairs of rows, and no "
        f"feature is made; up to {most_waves(n_rows):,} take the place of features."
    )
