"""PolySketch and TensorSketch against PolynomialCountSketch: seconds, and error of Z Zᵀ.

Kernel ⟨x, y⟩³ of 128 columns, 4,096 features, float32 rows: standard normal ones, whose pairs are
nearly orthogonal, and their absolute values, whose pairs are not. Errors are ‖ZZᵀ − K‖_F/‖K‖_F on
the first rows, the root of the mean square over seeds; PolynomialCountSketch returns float64.
"""

from collections.abc import Callable

import numpy as np
from sklearn.kernel_approximation import PolynomialCountSketch

import bochner as bo
from benchmarks.harness import Options, Row, compared, interleaved, judged
from bochner.features.sketch.polysketch import PolySketch
from bochner.features.sketch.tensorsketch import TensorSketch
from bochner.kernels import Polynomial

__all__ = ["run"]

#: Method, rows, and how many times faster is asked.
CASES = (
    (PolySketch(), "normal", 10.0),
    (PolySketch(), "positive", 10.0),
    (TensorSketch(), "positive", 1.0),
)

DEGREE, COLUMNS, ERROR_ROWS = 3, 128, 400

Array = np.ndarray


def run(options: Options) -> list[Row]:
    """Time and check each case."""
    return [_case(options, *case) for case in CASES]


def _case(options: Options, method: PolySketch | TensorSketch, rows: str, asked: float) -> Row:
    n, D = options.pick(4000, 500), options.pick(4096, 512)
    X = np.random.default_rng(0).standard_normal((n, COLUMNS)).astype(np.float32)
    X = np.abs(X) if rows == "positive" else X
    ours, rival = _drawn(method, D, X, 0), _rival(D, X, 0)
    times = interleaved({"ours": _silent(ours, X), "rival": _silent(rival, X)}, options.pick(7, 3))
    seeds = range(options.pick(25, 2))
    errors = [_error([make(seed) for seed in seeds], X) for make in _makers(method, D, X)]
    return {
        "case": f"{type(method).__name__}, {rows} rows",
        **compared(times["ours"], times["rival"]),
        **judged(times["rival"].median / times["ours"].median, asked),
        "error": errors[0],
        "rival's": errors[1],
        "no worse": "yes" if errors[0] <= errors[1] else "NO",
        "precision": f"{ours(X[:2]).dtype}, rival {rival(X[:2]).dtype}",
    }


def _makers(method: PolySketch | TensorSketch, D: int, X: Array) -> tuple[Callable, Callable]:
    return (lambda seed: _drawn(method, D, X, seed)), (lambda seed: _rival(D, X, seed))


def _drawn(method: PolySketch | TensorSketch, D: int, X: Array, seed: int) -> bo.FeatureMap:
    return bo.draw(Polynomial(DEGREE, 0.0), method, n_features=D, X=X, random_state=seed)


def _rival(D: int, X: Array, seed: int) -> Callable[[Array], Array]:
    sketch = PolynomialCountSketch(degree=DEGREE, n_components=D, random_state=seed)
    return sketch.fit(X).transform


def _silent(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


def _error(maps: list[Callable[[Array], Array]], X: Array) -> float:
    rows = X[:ERROR_ROWS]
    K = Polynomial(DEGREE, 0.0)(rows.astype(np.float64))
    squares = []
    for phi in maps:
        Z = phi(rows).astype(np.float64)
        squares.append((np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) ** 2)
    return float(np.mean(squares) ** 0.5)
