"""The plan of an SGD estimator for its user's rows, and what the strategies take when they run."""

import time
import tracemalloc
from copy import copy
from dataclasses import replace
from typing import Any

from sklearn.base import clone

from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner.features import FeatureMap
from bochner.models._inputs import class_blocks_of, fit_blocks_of
from bochner.models.sgd import walk
from bochner.models.sgd.rows import (
    Rows,
    choose,
    exact_or_reason,
    gathered,
    targets,
)
from bochner.models.sgd.strategies import (
    DUAL,
    EXACT,
    StrategyCost,
    StrategyPlan,
)


def plan_for(model: Any, X: Any, y: Any, measure: float) -> StrategyPlan:
    """Return the plan; measured where a strategy is predicted to take at most this many seconds."""
    fresh = clone(model).set_params(strategy="auto")
    classes = y is not None and hasattr(model, "decision_function")
    blocks = (class_blocks_of if classes else fit_blocks_of)(fresh, X, y, None, reset=True)
    rows = gathered(fresh, blocks)
    t = 1 if y is None else targets(fresh, rows.y[:1]).shape[1]
    drawn = choose(fresh, blocks, rows, t)
    plan = fresh.plan_
    if measure <= 0:
        return plan
    measured = [
        row
        if row.refused or row.seconds > measure
        else _measured(_runner(fresh, row.name, plan, drawn), rows, row)
        for row in plan.rows
    ]
    return replace(plan, rows=tuple(measured))


def _measured(runner: Any, rows: Rows, row: StrategyCost) -> StrategyCost:
    """Run one strategy for the time it takes, and once more, one epoch, for its memory."""
    rows = _with_targets(runner, rows)
    started = time.perf_counter()
    walk.fit(copy(runner), rows)
    seconds = time.perf_counter() - started
    runner.max_iter = 1
    tracemalloc.start()
    try:
        walk.fit(runner, rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return replace(row, measured_seconds=seconds, measured_bytes=float(peak))


def _runner(model: Any, strategy: str, plan: StrategyPlan, drawn: FeatureMap | None) -> Any:
    """Return the estimator, chosen as it is, about to run this strategy for all epochs."""
    runner = copy(model)
    runner.max_iter, runner.tol, runner.early_stopping = plan.task.epochs, None, False
    runner.strategy_ = strategy
    if strategy in EXACT:
        runner.map_ = exact_or_reason(model.kernel_, plan.task.n_columns)
    elif strategy not in DUAL:
        runner.map_ = drawn
    return runner


def _with_targets(model: Any, rows: Rows) -> Rows:
    if rows.y is not None:
        return rows
    signs: Array = stream(model.seed_, "plan").choice((-1.0, 1.0), len(rows.w))
    return rows._replace(y=signs)
