"""``kernel="auto"`` against a grid search over scikit-learn's own pipeline of the same width.

``GridSearchCV`` with five folds over five lengthscales (gamma 1/(2dℓ²), ℓ from a quarter to four)
and five penalties of ``StandardScaler``, ``RBFSampler`` or ``Nystroem``, and ``Ridge``. Seconds are
those of the whole: choosing, fitting and predicting.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from benchmarks.development import NAMES, Development, development, scored
from benchmarks.harness import Options, Row, compared, each, interleaved, judged

__all__ = ["compare", "run"]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LENGTHSCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
ASKED = 5.0


def run(options: Options) -> list[Row]:
    """Return a row for each development set and rival, or what is missing."""
    width, most = options.pick((1024, 20_000), (64, 300))
    return each(options.pick(NAMES, NAMES[:1]), lambda name: compare(name, options, width, most))


def compare(name: str, options: Options, width: int, most: int) -> list[Row]:
    """Return a row for each rival on one set."""
    data = development(name, options, most)
    rivals = {kind.__name__: _grid(kind, data, width) for kind in (RBFSampler, Nystroem)}
    cases = {"ours": _ours(width)} | rivals
    times = interleaved({key: scored(data, make) for key, make in cases.items()}, 1, warm_up=False)
    ours = times["ours"]
    return [
        {
            "set": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(ours, times[rival]),
            **judged(times[rival].median / ours.median, ASKED),
            "test RMSE": ours.values[0],
            "rival's": times[rival].values[0],
            "better": "yes" if ours.values[0] < times[rival].values[0] else "NO",
        }
        for rival in rivals
    ]


def _ours(width: int) -> Callable[[int], Any]:
    return lambda seed: bo.KernelRidge("auto", n_features=width, random_state=seed)


def _grid(kind: type, data: Development, width: int) -> Callable[[int], Any]:
    n, d = data.X.shape
    width = min(width, int(0.8 * n)) if kind is Nystroem else width
    step = kind.__name__.lower()
    grid = {
        f"{step}__gamma": [1 / (2 * d * np.square(length)) for length in LENGTHSCALES],
        "ridge__alpha": PENALTIES,
    }

    def make(seed: int) -> GridSearchCV:
        features = kind(n_components=width, random_state=seed)
        return GridSearchCV(make_pipeline(StandardScaler(), features, Ridge()), grid)

    return make
