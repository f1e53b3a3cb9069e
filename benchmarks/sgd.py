"""Six strategies of gradient descent: counted and measured, and against scikit-learn's pipeline.

Every strategy of fewer than ``MOST`` operations is run. "of the fastest" is its seconds over those
of the fastest; ``auto`` takes an exact one up to 1.5 times, or a quarter of a second, above that.
"""

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

import bochner as bo
from benchmarks import scaled
from benchmarks.harness import MissingDataSet, Options, Row, compared, interleaved, stored
from bochner.kernels import Gaussian, Kernel, Polynomial

__all__ = ["digits", "run"]

#: Operations of a strategy that is run, at most: some seconds.
MOST = 6e10


def run(options: Options) -> list[Row]:
    """Plan and measure on three tables, then fit MNIST."""
    small, large = options.pick((1000, 8000), (200, 400))
    cases: list[tuple[str, Kernel, int]] = [
        ("few rows", Gaussian(1.0), small),
        ("many rows", Gaussian(1.0), large),
        ("few features", Polynomial(2), large),
    ]
    rows = [row for case in cases for row in _six(options, *case)]
    try:
        return rows + _mnist(options)
    except MissingDataSet as missing:
        return [*rows, {"note": f"MNIST is left out: {missing}"}]


def _six(options: Options, name: str, kernel: Kernel, n: int) -> list[Row]:
    data = scaled.split("elevation", options, 512)
    model = bo.KernelSGDRegressor(
        kernel, method="orthogonal", n_features=512, max_iter=5, tol=None, random_state=0
    )
    X, y = data.X[:n], data.y[:n]
    plan = model.plan(X, y)
    names = [row.name for row in plan.rows if not row.refused and row.operations <= MOST]
    fits = {name: clone(model).set_params(strategy=name) for name in names}
    times = interleaved({name: lambda _, m=m: m.fit(X, y) for name, m in fits.items()}, 1)
    ran = {name: timing.median for name, timing in times.items()}
    return [
        {
            "case": f"{name}, n = {n:,}",
            "strategy": row.name + " (auto)" * (row.name == plan.best),
            "operations": row.operations,
            "seconds": ran.get(row.name),
            "counted MB": row.bytes / 1e6,
            "of the fastest": ran[row.name] / min(ran.values()) if row.name in ran else None,
        }
        for row in plan.rows
        if not row.refused
    ]


def _mnist(options: Options) -> list[Row]:
    """Fit random Fourier features and a hinge, the same width, penalty, rows and epochs."""
    X, y, X_test, y_test = digits(options)
    width, epochs = options.pick(1024, 64), options.pick(5, 1)
    common: dict[str, Any] = {"alpha": 1e-5, "max_iter": epochs, "tol": None}
    ours = bo.KernelSGDClassifier(
        Gaussian(6.0), strategy="approximate_cached", method="iid", n_features=width, **common
    )
    sampler = RBFSampler(gamma=1 / 72, n_components=width)
    rival = make_pipeline(sampler, SGDClassifier(**common))

    def fit(model: Any) -> Any:
        def case(repeat: int) -> float:
            seeds = {k: repeat for k in model.get_params() if k.endswith("random_state")}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.set_params(**seeds).fit(X, y)
            return float(model.score(X_test, y_test))

        return case

    times = interleaved({"ours": fit(ours), "rival": fit(rival)}, 1, warm_up=False)
    return [
        {
            "case": f"MNIST, n = {len(y):,}, D = {width}, {epochs} epochs",
            "strategy": "approximate_cached against RBFSampler, SGDClassifier",
            **compared(times["ours"], times["rival"]),
            "accuracy": float(np.mean(times["ours"].values)),
            "rival accuracy": float(np.mean(times["rival"].values)),
        }
    ]


def digits(options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of MNIST to train and to test on, from 0 to 1."""
    arrays = stored("mnist", options.data)
    X, y, test = (arrays["X"] / np.float32(255)).astype(np.float32), arrays["y"], arrays["split"]
    n, m = options.pick((20000, 10000), (500, 500))
    train, held = np.flatnonzero(test == 0)[:n], np.flatnonzero(test == 1)[:m]
    return X[train], y[train], X[held], y[held]
