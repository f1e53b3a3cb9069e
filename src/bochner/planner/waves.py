"""Fits by Fourier modes of a grid in a plan.

A trial is a fit to the sampled rows. Its error is that of generalised cross-validation, which for
so many rows is the leave-one-out error, extrapolated to all rows. Its seconds are those of the
solution, which does not depend on the number of rows, and of a non-uniform FFT of each row.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bochner._core.shapes import Float
from bochner.data.blocks import Blocks
from bochner.features.method import Method
from bochner.features.waves import WaveMethod
from bochner.models.grid import BLOCK_ROWS, TRANSFORMED, SummedWaves, as_rows, summand_of
from bochner.planner.choice import PlannedFit
from bochner.planner.trials import SWEPT, Task, expected, planned_fits
from bochner.selection.gridded import waves_for
from bochner.sums.executor import LOCAL

#: Bytes of a row of a block: angles, weights, values and their transform.
ROW_BYTES = 100

#: Rows whose kernel is compared with that of the waves.
COMPARED_ROWS = 500

#: Width of trials, which is not used.
ANY_WIDTH = 1024


def all_fits(
    task: Task,
    methods: Sequence[Method] | None,
    widths: Sequence[int],
    exact: PlannedFit | None = None,
) -> tuple[PlannedFit, ...]:
    """Return fits of features and of waves: of the methods named, or of the most promising."""
    if methods is None:
        found = waves_for(task.kernel, task.sample.X, task.n_rows)
        waves = () if found is None else (found.method,)
        return *planned_fits(task, None, widths, exact), *(wave_fit(task, m) for m in waves)
    others = [m for m in methods if not isinstance(m, WaveMethod)]
    named = [wave_fit(task, m) for m in methods if isinstance(m, WaveMethod)]
    return *(planned_fits(task, others, widths, exact) if others or not named else ()), *named


def wave_fit(task: Task, method: Method) -> PlannedFit:
    """Return the planned fit of waves."""
    n, m = task.n_rows, len(task.sample)
    trial = task.trial(m, method, ANY_WIDTH)
    path = trial.model.solution_.path
    summed: SummedWaves = trial.model.fit_.summed
    steps = {"read": 2 * task.read_seconds, "tried rows": trial.seconds}
    if n > trial.n_rows:
        steps["further rows"] = (n - trial.n_rows) * _row_seconds(task, summed)
    further = ROW_BYTES * max(min(n, BLOCK_ROWS) - trial.n_rows, 0)
    return PlannedFit(
        method,
        summed.map.n_features,
        "waves",
        expected(replace(path, loo=path.gcv), m, n).error,
        _kernel_error(task, summed),
        sum(steps.values()),
        task.bytes(trial) + further,
        steps,
    )


def _row_seconds(task: Task, summed: SummedWaves) -> float:
    """Return the seconds that one more row takes in the sum."""
    summand = summand_of(summed.chosen, summed.sums.origin)

    def swept(n: int) -> float:
        blocks = Blocks.from_arrays(*task.rows(n)).with_rows(BLOCK_ROWS)
        return task.seconds(lambda: LOCAL.sum(summand, blocks))

    many = min(SWEPT, len(task.sample))
    few = many // 4
    return max(swept(many) - swept(few), 0.0) / (many - few)


def _kernel_error(task: Task, summed: SummedWaves) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F on some rows."""
    X = as_rows(task.sample.lowest(COMPARED_ROWS).X)
    K: Float[np.ndarray, "m m"] = task.kernel(X)
    found = summed.map.matrix(X, TRANSFORMED * summed.tolerance)
    return float(np.linalg.norm(found - K) / np.linalg.norm(K))
