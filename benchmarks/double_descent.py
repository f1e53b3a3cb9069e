"""Double descent: where the peak is, how high, and what the second descent and a penalty come to.

Ridge regression on D random features, D from a twentieth of the rows to ten times as many; MNIST
with its classes as zeros and ones, and the compressive strength of concrete. Errors are squared,
in the units of the target; "peak / valley" is the largest test error over the smallest of those
before D = 0.9 n.
"""

import numpy as np

import bochner as bo
from benchmarks.harness import MissingDataSet, Options, Row, judged
from benchmarks.sgd import digits
from bochner.datasets import load_concrete

__all__ = ["run"]

#: Widths, in rows.
SHARES = (0.05, 0.2, 0.4, 0.8, 0.95, 1, 1.05, 1.2, 2, 4, 10)


def run(options: Options) -> list[Row]:
    """Run both experiments with both kinds of features."""
    data = {"concrete": _concrete(options)}
    notes: list[Row] = []
    try:
        data["MNIST"] = _mnist(options)
    except MissingDataSet as missing:
        notes.append({"note": f"MNIST is left out: {missing}"})
    return [
        row
        for name, arrays in data.items()
        for features in ("fourier", "relu")
        for row in _rows(name, features, arrays)
    ] + notes


def _rows(name: str, features: str, data: tuple[np.ndarray, ...]) -> list[Row]:
    n = len(data[0])
    widths = sorted({max(1, round(share * n)) for share in SHARES})
    shown = bo.double_descent(
        *data, features=features, widths=widths, alpha=(0.0, 1.0), random_state=0
    )
    rows = []
    for i, alpha in enumerate(shown.alphas):
        errors, before = shown.test_error[i], shown.widths < 0.9 * n
        valley = errors[before].min()
        row = {
            "data": f"{name}, n = {n:,}",
            "features": features,
            "alpha": float(alpha),
            "worst D/n": float(shown.widths[np.argmax(errors)] / n),
            "peak / valley": float(errors.max() / valley),
            "valley": float(valley),
            "at D = 10 n": float(errors[-1]),
            "norm at D = n": float(shown.norm[i][shown.widths == n][0]),
            "norm at D = 10 n": float(shown.norm[i][-1]),
        }
        if shown.test_wrong is not None:
            row["wrong at 10 n"] = float(shown.test_wrong[i][-1])
        asked = judged(row["peak / valley"], 10) if alpha == 0 else {}
        rows.append(row | asked)
    return rows


def _concrete(options: Options) -> tuple[np.ndarray, ...]:
    table = load_concrete()
    X, y = table.X.astype(np.float64), table.y.astype(np.float64)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [options.pick(500, 100)])
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[test], y[test]


def _mnist(options: Options) -> tuple[np.ndarray, ...]:
    X, y, X_test, y_test = digits(options)
    n = options.pick(1000, 100)
    return X[:n], y[:n], X_test[:5000], y_test[:5000]
