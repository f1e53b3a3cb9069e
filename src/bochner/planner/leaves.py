"""The local fit in a plan: the default of many rows with kernel="auto".

The default is fitted to the rows of two leaves, with leaves as large as those of all rows. Two fits
with the kernel that it chose, to one leaf and to two, give the seconds of a further leaf.
"""

import math
from dataclasses import replace

import numpy as np

from bochner.models.ridge.methods import LocalKernel
from bochner.planner.choice import PlannedFit
from bochner.planner.trials import LEAST_PART, NO_FEATURES, Task, expected


def local_fit(task: Task, usual: LocalKernel) -> tuple[Task, PlannedFit]:
    """Return the task with the kernel that a local fit chooses, and the planned fit."""
    n = task.n_rows
    each = math.ceil(n / 2 ** math.ceil(math.log2(n / usual.most_in_leaf(n))))
    few = min(each, len(task.sample) // 2)
    method = LocalKernel(few, min(usual.landmarks_of(n), few))
    whole = task.trial(2 * few, method, NO_FEATURES)
    task = replace(task, kernel=whole.model.kernel_, known={})
    one, two = (task.trial(rows, method, NO_FEATURES) for rows in (few, 2 * few))
    leaf = max(two.seconds - one.seconds, LEAST_PART * two.seconds) * (each / few) ** 3
    steps = {
        "read": task.read_seconds,
        "kernel": max(whole.seconds - two.seconds, 0.0),
        "first leaf": one.seconds,
        "other leaves": (n / each - 1) * leaf,
    }
    numbers = 2 * task.sample.X.shape[1] + 4 * task.sample.y.shape[1] + method.landmarks_of(n)
    size = task.bytes(one) * (each / few) ** 2 + 8.0 * (n - few) * numbers
    left_out, path = two.model.fit_.left_out(), two.model.solution_.path
    error = float(np.average((left_out.errors**2).mean(axis=1), weights=left_out.w)) ** 0.5
    rows = path.loo_rows
    falls = expected(path, rows, rows * n / (2 * few)).error / expected(path, rows, rows).error
    takes = sum(steps.values()), size, steps
    return task, PlannedFit(usual, n, "local", error * falls, 0.0, *takes)
