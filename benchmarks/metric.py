"""A learned metric against boosted trees and xRFM: error and seconds of the whole.

``HistGradientBoostingRegressor`` always; LightGBM and xRFM where they are installed. All with what
they choose by default, but xRFM, which is given a fifth of the rows to validate on.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import bochner as bo
from benchmarks.development import NAMES, development, scored
from benchmarks.harness import Options, Row, compared, each, interleaved
from bochner.data.blocks import Blocks
from bochner.selection.metric import learn_metric
from bochner.selection.search import tune_kernel
from bochner.sums.rows import sampled

__all__ = ["compare", "run"]


def run(options: Options) -> list[Row]:
    """Return a row for each development set and rival, or what is missing."""
    width, most = options.pick((4096, 20_000), (64, 300))
    rows = each(options.pick(NAMES, NAMES[:1]), lambda name: compare(name, options, width, most))
    missing_rivals = [name for name in ("lightgbm", "xrfm") if find_spec(name) is None]
    return [*rows, *({"note": f"Left out: {name} is not installed."} for name in missing_rivals)]


def compare(name: str, options: Options, width: int, most: int) -> list[Row]:
    """Return a row for each rival on one set."""
    data = development(name, options, most)
    cases = {"ours": lambda seed: Learned(width, seed), "tuned": _tuned(width)} | _rivals()
    times = interleaved({key: scored(data, make) for key, make in cases.items()}, 1, warm_up=False)
    ours = times.pop("ours")
    return [
        {
            "set": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(ours, timing),
            "test RMSE": ours.values[0],
            "rival's": timing.values[0],
            "better": "yes" if ours.values[0] < timing.values[0] else "NO",
        }
        for rival, timing in times.items()
    ]


class Learned:
    """Kernel ridge regression in a learned metric."""

    def __init__(self, width: int, seed: int) -> None:
        self._width, self._seed = width, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> bo.KernelRidge:
        """Learn the metric, then fit once."""
        sample = sampled(Blocks.from_arrays(X, y), self._seed)
        start = tune_kernel("auto", sample, self._width, self._seed, euclidean=True).kernel
        kernel = learn_metric(start, sample, self._width, self._seed).kernel
        return bo.KernelRidge(kernel, n_features=self._width, random_state=self._seed).fit(X, y)


def _tuned(width: int) -> Callable[[int], Any]:
    return lambda seed: bo.KernelRidge("auto", n_features=width, random_state=seed)


def _rivals() -> dict[str, Callable[[int], Any]]:
    rivals: dict[str, Callable[[int], Any]] = {
        "HistGradientBoosting": lambda seed: HistGradientBoostingRegressor(random_state=seed)
    }
    if find_spec("lightgbm") is not None:
        from lightgbm import LGBMRegressor  # noqa: PLC0415

        rivals["LightGBM"] = lambda seed: LGBMRegressor(random_state=seed, verbose=-1)
    if find_spec("xrfm") is not None:
        rivals["xRFM"] = Validated
    return rivals


class Validated:
    """xRFM with a fifth of the rows to validate on."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Validated":
        """Fit with the defaults of xRFM."""
        from xrfm import xRFM  # noqa: PLC0415

        order = np.random.default_rng(self._seed).permutation(len(y))
        held, kept = np.split(order, [len(y) // 5])
        X, y = X.astype(np.float32), y.astype(np.float32)
        self._model = xRFM(
            device="cpu", tuning_metric="mse", random_state=self._seed, verbose=False
        )
        self._model.fit(X[kept], y[kept, None], X[held], y[held, None])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, (n,)."""
        return np.ravel(self._model.predict(X.astype(np.float32)))
