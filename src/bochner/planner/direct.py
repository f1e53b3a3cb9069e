"""The exact kernel in a plan, solved by a Cholesky factor of the kernel matrix of all rows.

The penalty is chosen on some of the rows, with a factor and an inverse for each, then among more
rows, and all rows are factored once (:mod:`bochner.solvers.ridge.kernel_path`). Two trials give the
number of penalties and the seconds of each, as an² + bn³; a factor alone has a third of the
multiplications.
"""

from bochner.models.ridge.methods import ExactKernel
from bochner.planner.choice import PlannedFit
from bochner.planner.trials import Task, expected, powers
from bochner.solvers.ridge.kernel_path import DENSE_ROWS, PENALTY_ROWS

#: Factors among which a penalty is settled: of two steps, or of three.
SETTLED = 2.5


def direct_fit(task: Task) -> PlannedFit:
    """Return the planned fit of the kernel itself."""
    n, m = task.n_rows, min(len(task.sample), PENALTY_ROWS)
    trials = {size: task.trial(size, ExactKernel(), size) for size in (m // 4, m)}
    path = trials[m].model.solution_.path
    beside, walked = task.beside_seconds(ExactKernel()), len(path.alphas)
    each = {
        size: max(trial.seconds - beside, 1e-9) / len(trial.model.solution_.path.alphas)
        for size, trial in trials.items()
    }
    a, b = powers(each)
    penalty = lambda rows: a * rows**2 + b * rows**3
    steps = {"read": task.read_seconds, "beside": beside}
    steps["penalties"] = walked * penalty(min(n, PENALTY_ROWS))
    if n > PENALTY_ROWS:  # beside the factor the inverse of its last rows
        inverse = 2 / 3 * b * PENALTY_ROWS**3
        factor = lambda rows: a * rows**2 + b * rows**3 / 3 + inverse
        steps["settling"] = SETTLED * factor(min(n, DENSE_ROWS))
        steps["factor"] = factor(n) if n > DENSE_ROWS else 0.0
    size = task.bytes(trials[m // 4]) + _held(n) - _held(m // 4)
    error = expected(path, m, n).error
    return PlannedFit(ExactKernel(), n, "exact", error, 0.0, sum(steps.values()), size, steps)


def _held(n: int) -> float:
    """Return the bytes of the matrices at the worst moment.

    Of few rows the kernel's, and that of its factor and inverse; of many a factor in float32, and
    the kernel's matrix of the rows that the penalty is chosen by.
    """
    return 16.0 * n**2 if n <= PENALTY_ROWS else 12.0 * n**2 + 8.0 * PENALTY_ROWS**2
