"""Gaussian processes on nearest neighbours in a plan.

A trial is a fit to the sampled rows, and its error that of rows left out. Among all rows neighbours
are nearer by the d-th root of the ratio of the numbers of rows; the error falls as the variance of
the process at rows that are nearer by this factor.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import clone

from bochner._core.arrays import is_sparse
from bochner._core.shapes import Array, Float
from bochner.errors import BochnerWarning
from bochner.features.method import Method
from bochner.models.gaussian_process.neighbourhoods import JUDGED, is_near
from bochner.models.gaussian_process.neighbours import NearestNeighbours, NeighbourProcessFit
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.gaussian_process.rough import judging, suits_neighbours
from bochner.planner.choice import PlannedFit
from bochner.planner.trials import BESIDE, Task, traced

#: Rows that a prediction is timed with.
PREDICTED = 256


def other_methods(methods: Sequence[Method] | None) -> list[Method] | None:
    """Return the methods named that are not neighbours; None where none are named."""
    if methods is None:
        return None
    return [method for method in methods if not isinstance(method, NearestNeighbours)]


def neighbour_fits(task: Task, methods: Sequence[Method] | None) -> tuple[PlannedFit, ...]:
    """Return fits on neighbours: of those named, or of the default, where they may be better."""
    if methods is not None:
        named = (method for method in methods if isinstance(method, NearestNeighbours))
        return tuple(_fit(task, method, asked=True) for method in named)
    X, y = task.sample.X, task.sample.y
    suits = suits_neighbours(task.n_rows, X.shape[1], y.shape[1]) and not is_sparse(X)
    if not (suits and is_near(task.kernel)):
        return ()
    return (_fit(task, NearestNeighbours(), asked=False),)


def _fit(task: Task, method: NearestNeighbours, asked: bool) -> PlannedFit:
    """Return the planned fit; where it was not asked for, with what is against it."""
    n, m = task.n_rows, len(task.sample)
    rows, model = task.rows(m), GaussianProcessRegressor(task.kernel, random_state=task.seed)
    model.set_params(method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BochnerWarning)
        seconds = task.seconds(lambda: model.fit(*rows), repeats=1)
        with traced() as peak:
            clone(model).fit(*rows)
    fit: NeighbourProcessFit = model.fit_
    tree = task.seconds(lambda: cKDTree(fit.around.X))
    more = n * math.log(n) / (m * math.log(m)) - 1
    steps = {"read": task.read_seconds, "sampled rows": seconds, "tree of all": tree * more}
    few = rows[0][:PREDICTED]
    each = task.seconds(lambda: model.predict(few)) / len(few)
    kept = 8 * (n - m) * (3 * fit.around.X.shape[1] + fit.around.y.shape[1] + 3)
    return PlannedFit(
        method,
        min(method.neighbours, n),
        "neighbours",
        _error(fit, n / m),
        math.nan,
        sum(steps.values()),
        peak[0] + BESIDE + kept,
        steps,
        against="" if asked else f"a process alone; {1000 * each:.1g} ms a prediction",
    )


def _error(fit: NeighbourProcessFit, more: float) -> float:
    """Return the error of rows left out that is expected of so many times more rows."""
    around, priority = fit.around, fit.summed.priority
    many = len(priority) > 2 * JUDGED
    own = judging(priority) if many else np.argsort(priority, kind="stable")
    errors, deviation = fit.left_out(own)
    share, d = float(fit.evidence.alpha[0]), around.X.shape[1]
    near = around.near_without(own)

    def variance(scale: float) -> Float[Array, "m t"]:
        nearer = replace(around, X=around.X * scale)
        found = nearer.law(nearer.X[own], near, share).variance
        return found[:, None] * fit.evidence.amplitude

    falls = np.minimum(variance(more ** (-1 / d)) - variance(1.0), 0.0).mean()
    known = float(np.mean(deviation**2))
    return float((np.mean(errors**2) * (1 + falls / known)) ** 0.5)
