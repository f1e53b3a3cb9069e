"""Intervals on real tables: what they hold, and how wide they are, beside those of boosted trees.

``python -m benchmarks.intervals --data DIR [--table NAME ...] [--rows N] [--splits 3]`` runs a
part; ``python -m benchmarks intervals`` all of it.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from benchmarks.harness import Options, Row, say, table
from benchmarks.tables import QUANTITIES, ROWS, split
from bochner.models.error_law import interval_score

__all__ = ["run"]

Array = np.ndarray
Bounds = dict[float, tuple[Array, Array]]

#: What intervals are asked to hold.
COVERAGES = (0.9, 0.95)

#: Share of the rows that quantiles of trees are conformalised on.
KEPT = 0.25


def ours(X: Array, y: Array, T: Array, seed: int) -> Bounds:
    """Return the intervals of a default fit."""
    model = bo.KernelRidge(random_state=seed).fit(X, y)
    return {coverage: model.predict_interval(T, coverage)[1:] for coverage in COVERAGES}


def levels() -> list[float]:
    """Return the quantiles between which intervals lie, rising."""
    return sorted(round(0.5 + side * c / 2, 6) for c in COVERAGES for side in (-1, 1))


def catboost(X: Array, y: Array, T: Array, seed: int) -> Bounds:
    """Return the quantiles of one model of several."""
    return _between(_catboost(X, y, seed)(T))


def _catboost(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    loss = "MultiQuantile:alpha=" + ",".join(map(str, levels()))
    quiet = {"verbose": 0, "random_seed": seed, "allow_writing_files": False}
    model = import_module("catboost").CatBoostRegressor(loss_function=loss, **quiet).fit(X, y)
    return lambda rows: np.sort(model.predict(rows), axis=1)


def _lightgbm(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    make, quiet = import_module("lightgbm").LGBMRegressor, {"verbose": -1, "random_state": seed}
    models = [make(objective="quantile", alpha=a, **quiet).fit(X, y) for a in levels()]
    return lambda rows: np.sort(np.stack([m.predict(rows) for m in models], axis=1), axis=1)


def _between(quantiles: Array) -> Bounds:
    at = levels()
    ends = {
        c: (at.index(round(0.5 - c / 2, 6)), at.index(round(0.5 + c / 2, 6))) for c in COVERAGES
    }
    return {c: (quantiles[:, low], quantiles[:, high]) for c, (low, high) in ends.items()}


def conformalised(fit: Any) -> Callable[..., Bounds]:
    """Return what widens quantiles by errors on rows kept back (Romano et al. 2019, eq. 6 to 8)."""

    def bounds(X: Array, y: Array, T: Array, seed: int) -> Bounds:
        order = np.random.default_rng(seed).permutation(len(y))
        kept, train = np.split(order, [int(KEPT * len(y))])
        quantiles = fit(X[train], y[train], seed)
        found, seen = _between(quantiles(T)), _between(quantiles(X[kept]))
        for c, (low, high) in seen.items():
            scores = np.sort(np.maximum(low - y[kept], y[kept] - high))
            more = scores[min(int(np.ceil((len(kept) + 1) * c)), len(kept)) - 1]
            found[c] = found[c][0] - more, found[c][1] + more
        return found

    return bounds


def learners() -> Iterator[tuple[str, Callable[..., Bounds]]]:
    """Give what is installed."""
    yield "KernelRidge", ours
    if find_spec("catboost"):
        yield "CatBoost, quantiles", catboost
        yield "CatBoost, conformalised", conformalised(_catboost)
    if find_spec("lightgbm"):
        yield "LightGBM, conformalised", conformalised(_lightgbm)


def rows_of(name: str, options: Options, rows: int, splits: int) -> list[Row]:
    """Return what each learner's intervals hold on a table, and how wide they are: means.

    ± is the standard error of what they hold, over splits.
    """
    found: dict[tuple[str, float], list[tuple[float, ...]]] = {}
    for seed in range(splits):
        data = split(name, options.data, rows, seed)
        X, T = data.X.to_numpy(np.float64), data.X_test.to_numpy(np.float64)
        y, u = data.y, data.y_test
        for learner, make in learners():
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                bounds = make(X, y, T, seed)
            seconds = time.process_time() - began
            for c, (low, high) in bounds.items():
                held, score = np.mean((low <= u) & (u <= high)), interval_score(u, low, high, c)
                measured = float(held), float(np.mean(high - low)), score, seconds
                found.setdefault((learner, c), []).append(measured)
    names = ("holds", "width", "score", "seconds")
    return [
        {"table": name, "asked": c, "learner": learner}
        | dict(zip(names, np.mean(each, axis=0).tolist(), strict=True))
        | {"±": _deviation([held for held, *_ in each])}
        for (learner, c), each in sorted(found.items(), key=lambda pair: pair[0][1])
    ]


def _deviation(values: Sequence[float]) -> float:
    """Return the standard error of the mean; of one value it is not known."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def run(options: Options) -> list[Row]:
    """Return the rows of all tables."""
    found: list[Row] = []
    for name in options.pick(QUANTITIES, ("uci_concrete",)):
        found += rows_of(name, options, options.pick(ROWS, 300), options.pick(3, 1))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals")
    parser.add_argument("--data", type=Path, required=True, help="folder of the .npz data sets")
    parser.add_argument("--table", nargs="*", default=QUANTITIES)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--splits", type=int, default=3)
    asked = parser.parse_args(arguments)
    for name in asked.table:
        say(table(rows_of(name, Options(asked.data), asked.rows, asked.splits)))


if __name__ == "__main__":
    main()
