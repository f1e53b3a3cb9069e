"""Learners by default on real tables: error, seconds, and mean rank over the tables.

``python -m benchmarks.defaults [--table NAME ...] [--rows N] [--splits 3] [--learner NAME ...]``
runs a part; ``python -m benchmarks defaults`` all of it.
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
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, SVR

import bochner as bo
from benchmarks.harness import Options, Row, say, stored, table

__all__ = ["CLASSES", "QUANTITIES", "run"]

Array = np.ndarray
Maker = Callable[[], Any]

#: Tables with a quantity to predict, and with classes.
QUANTITIES = (
    "bike_clean",
    "california_housing",
    "kin8nm",
    "power_plant",
    "protein",
    "uci_pol",
    "uci_pumadyn32nm",
    "uci_tamielectric",
    "flights2001_500k",
    "elevation_etopo60",
    "navy_uwind",
    "climate_ncep",
    "co2_cdiac",
    "uci_concrete",
)
CLASSES = (
    "abalone_jmlr",
    "magic",
    "pendigits",
    "letter",
    "covtype_20k",
    "shuttle",
    "connect4",
    "mushroom",
)

#: Targets that vary over many orders of magnitude: their logarithms are predicted.
HEAVY = ("co2_cdiac",)

#: Rows to fit, and to test on, at most; rows that scikit-learn's process is still fitted to.
ROWS, TEST, FEW = 6000, 4000, 2000


def regressors(n: int, seed: int) -> Iterator[tuple[str, Maker]]:
    """Give the learners of quantities, each by default."""
    yield "KernelRidge", lambda: bo.KernelRidge(random_state=seed)
    yield "KernelRidge, auto", lambda: bo.KernelRidge("auto", random_state=seed)
    yield "KernelRidge, low", lambda: bo.KernelRidge("auto", effort="low", random_state=seed)
    yield "GaussianProcess", lambda: bo.GaussianProcessRegressor(random_state=seed)
    yield "HistGradientBoosting", lambda: HistGradientBoostingRegressor(random_state=seed)
    yield from _trees("LGBMRegressor", "CatBoostRegressor", seed)
    yield "SVR of scikit-learn", SVR
    if n <= FEW:
        kernel = ConstantKernel() * RBF() + WhiteKernel()
        yield "GP of scikit-learn", lambda: GaussianProcessRegressor(kernel, normalize_y=True)


def classifiers(n: int, seed: int) -> Iterator[tuple[str, Maker]]:  # noqa: ARG001
    """Give the learners of classes, each by default."""
    yield "KernelRidgeClassifier", lambda: bo.KernelRidgeClassifier(random_state=seed)
    yield (
        "KernelRidgeClassifier, auto",
        lambda: bo.KernelRidgeClassifier("auto", random_state=seed),
    )
    yield "SVC", lambda: bo.SVC(random_state=seed)
    yield "LogisticRegression", lambda: bo.LogisticRegression(random_state=seed)
    yield "HistGradientBoosting", lambda: HistGradientBoostingClassifier(random_state=seed)
    yield from _trees("LGBMClassifier", "CatBoostClassifier", seed)
    yield "SVC of scikit-learn", SVC
    yield "LogisticRegression of scikit-learn", lambda: LogisticRegression(max_iter=1000)


def _trees(light: str, cat: str, seed: int) -> Iterator[tuple[str, Maker]]:
    """Give what is installed of LightGBM and CatBoost."""
    if find_spec("lightgbm"):
        options = {"verbose": -1, "random_state": seed}
        yield "LightGBM", lambda: getattr(import_module("lightgbm"), light)(**options)
    if find_spec("catboost"):
        quiet = {"verbose": 0, "random_seed": seed, "allow_writing_files": False}
        yield "CatBoost", lambda: getattr(import_module("catboost"), cat)(**quiet)


def split(
    name: str, folder: Path | None, rows: int, seed: int
) -> tuple[Array, Array, Array, Array]:
    """Return rows and targets to fit and to test; columns in deviations of the rows to fit."""
    arrays = stored(name, folder)
    X, y = arrays["X"].astype(np.float64), arrays["y2" if name == "connect4" else "y"].ravel()
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(rows, 4 * len(y) // 5)
    train, test = order[:n], order[n : n + TEST]
    spread = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0))[:, spread > 0] / spread[spread > 0]
    if name in QUANTITIES:
        y = np.log10(y) if name in HEAVY else y.astype(np.float64)
        y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def error(name: str, predicted: Array, y: Array) -> float:
    """Return the root mean squared error in deviations, or the share of wrong classes."""
    predicted = np.asarray(predicted).ravel()
    if name in QUANTITIES:
        return float(np.sqrt(np.mean((predicted - y) ** 2)))
    return float(np.mean(predicted != y))


def rows_of(
    name: str, options: Options, rows: int, splits: int, only: Sequence[str] = ()
) -> list[Row]:
    """Return a row for each learner: its mean error and seconds over the splits of a table."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(splits):
        X, y, T, u = split(name, options.data, rows, seed)
        learners = regressors if name in QUANTITIES else classifiers
        for learner, make in learners(len(y), seed):
            if only and learner not in only:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                predicted = make().fit(X, y).predict(T)
                seconds = time.perf_counter() - start
            found.setdefault(learner, []).append((error(name, predicted, u), seconds))
    means = {learner: np.mean(each, axis=0) for learner, each in found.items()}
    least = min(mean[0] for mean in means.values())
    return [
        {
            "table": name,
            "rows": rows,
            "learner": learner,
            "error": float(mean[0]),
            "above the best": float(mean[0] / max(least, 1e-12) - 1),
            "seconds": float(mean[1]),
        }
        for learner, mean in means.items()
    ]


def ranks(rows: Sequence[Row]) -> list[Row]:
    """Return the mean rank of each learner over the tables that all have been on."""
    tables: dict[str, dict[str, float]] = {}
    for row in rows:
        tables.setdefault(row["table"], {})[row["learner"]] = row["error"]
    shared = set.intersection(*(set(errors) for errors in tables.values()))
    found = []
    for learner in sorted(shared):
        places = [
            1 + sum(errors[other] < errors[learner] for other in shared)
            for errors in tables.values()
        ]
        found.append({"learner": learner, "mean rank": float(np.mean(places))})
    return sorted(found, key=lambda row: row["mean rank"])


def run(options: Options) -> list[Row]:
    """Return the rows of all tables."""
    found: list[Row] = []
    for name in options.pick((*QUANTITIES, *CLASSES), ("uci_concrete",)):
        found += rows_of(name, options, options.pick(ROWS, 300), options.pick(3, 1))
    return found


def main() -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults")
    parser.add_argument("--data", type=Path, required=True, help="folder of the .npz data sets")
    parser.add_argument("--table", nargs="*", default=[*QUANTITIES, *CLASSES])
    parser.add_argument("--learner", nargs="*", default=[], help="default: all")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--splits", type=int, default=3)
    asked, found = parser.parse_args(), []
    for name in asked.table:
        options = Options(asked.data)
        found += rows_of(name, options, asked.rows, asked.splits, asked.learner)
        say(table([row for row in found if row["table"] == name]))
    say(table(ranks(found)))


if __name__ == "__main__":
    main()
