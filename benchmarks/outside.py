"""Predictions outside the data: error, distance from the mean, and coverage of 95 % bands.

New rows lie outside the box of the rows of the fit, within half of its width. Rivals are
``kernel="gaussian"`` and scikit-learn's process with an RBF and a white kernel.
``python -m benchmarks.outside [--columns 1 2 5] [--functions NAMES] [--seeds 10]`` runs a part.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor as SklearnProcess
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import bochner as bo
from benchmarks.harness import Options, Row, say, table

__all__ = ["FUNCTIONS", "learners", "rows_outside", "run"]

Array = np.ndarray

#: Standard deviation of the noise, half of the width of the box, new rows, and seeds.
NOISE, HALF, NEW, SEEDS = 0.1, 3.0, 400, 10

#: Rows of a fit by the number of columns.
ROWS = {1: 100, 2: 150, 5: 300}

#: Functions of u, a weighted sum of the columns.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "sine": lambda u: np.sin(1.5 * u),
    "trend": lambda u: u,
    "steps": lambda u: np.floor(u) % 3,
    "bumps": lambda u: np.exp(-2 * (u + 1.5) ** 2) + np.exp(-2 * (u - 1.5) ** 2),
    "noise": np.zeros_like,
    "periodic": lambda u: np.sin(3 * u) + 0.5 * np.cos(6 * u),
}


def rows_outside(name: str, d: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return X and y of the fit, rows outside, and the function there."""
    rng = np.random.default_rng([seed, d, list(FUNCTIONS).index(name)])
    X = rng.uniform(-HALF, HALF, (ROWS[d], d))
    Z = rng.uniform(-2 * HALF, 2 * HALF, (100 * NEW, d))
    Z = Z[np.abs(Z).max(axis=1) > HALF][:NEW]
    weights = 1 / np.arange(1, d + 1)
    weights /= np.linalg.norm(weights)
    noise = (1.0 if name == "noise" else NOISE) * rng.standard_normal(len(X))
    f = FUNCTIONS[name]
    return X, f(X @ weights) + noise, Z, f(Z @ weights)


def learners(seed: int) -> dict[str, Any]:
    """Return the learners by name."""
    process, kernel = bo.GaussianProcessRegressor, ConstantKernel() * RBF() + WhiteKernel()
    return {
        "process": process(random_state=seed),
        "ridge": bo.KernelRidge(random_state=seed),
        "gaussian": process("gaussian", random_state=seed),
        "sklearn": SklearnProcess(kernel, normalize_y=True),
    }


def rows_of(name: str, d: int, seeds: int) -> list[Row]:
    """Return a row for each learner: root mean square over the seeds, the largest, the mean."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(seeds):
        X, y, Z, f = rows_outside(name, d, seed)
        for learner, model in learners(seed).items():
            covered = float("nan")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mean = model.fit(X, y).predict(Z)
                if isinstance(model, bo.GaussianProcessRegressor):
                    deviation = model.predict(Z, return_std=True)[1]
                    covered = float(np.mean(np.abs(mean - f) < 1.96 * deviation))
            far = float(np.abs(mean - y.mean()).max() / y.std())
            found.setdefault(learner, []).append((float(np.mean((mean - f) ** 2)), far, covered))
    errors = {learner: float(np.mean(each, axis=0)[0] ** 0.5) for learner, each in found.items()}
    best = min(errors["gaussian"], errors["sklearn"])
    return [
        {"function": name, "columns": d, "learner": learner, "error": errors[learner]}
        | {"of the best rival": errors[learner] / best, "far": float(np.max(each, axis=0)[1])}
        | {"95 % covers": float(np.mean(each, axis=0)[2])}
        for learner, each in found.items()
    ]


def run(options: Options) -> list[Row]:
    """Return the rows of all functions."""
    seeds = options.pick(SEEDS, 1)
    columns, names = options.pick((tuple(ROWS), tuple(FUNCTIONS)), ((1,), ("sine", "noise")))
    return [row for d in columns for name in names for row in rows_of(name, d, seeds)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outside")
    parser.add_argument("--columns", nargs="*", type=int, choices=ROWS, default=tuple(ROWS))
    parser.add_argument("--functions", nargs="*", choices=FUNCTIONS, default=tuple(FUNCTIONS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args(arguments)
    for d in asked.columns:
        for name in asked.functions:
            say(table(rows_of(name, d, asked.seeds)))


if __name__ == "__main__":
    main()
