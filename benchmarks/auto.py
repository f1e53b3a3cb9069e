"""Fit and predict with method="auto", against Nystroem and RidgeCV, and against Falkon.

Same width (Falkon: M = D), rows and lengthscale. Falkon chooses no penalty: it is given the one
that was best when the lengthscale was chosen, for nothing.
"""

from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.harness import Options, Row
from benchmarks.regression import Maker, compare
from benchmarks.scaled import Split

__all__ = ["run"]


def run(options: Options) -> list[Row]:
    """Compare on every table, with those rivals that are installed."""
    rows = compare(options, "auto", _rivals)
    if find_spec("falkon") is None:
        rows.append({"note": "Falkon: not installed."})
    return rows


def _rivals(data: Split) -> dict[str, tuple[Maker, float]]:
    rivals: dict[str, tuple[Maker, float]] = {"Nystroem + RidgeCV": (_pipeline, 8.0)}
    if find_spec("falkon") is not None:
        penalty = max(data.penalty / len(data.y), 1e-8)
        rivals["Falkon"] = (lambda width, seed: _Falkon(width, penalty, seed), 1.5)
    return rivals


def _pipeline(width: int, seed: int) -> Pipeline:
    landmarks = Nystroem(kernel="rbf", gamma=0.5, n_components=width, random_state=seed)
    return make_pipeline(landmarks, RidgeCV(np.logspace(-6, 2, 9)))


class _Falkon:
    """Falkon on the processor, with arrays in and out."""

    def __init__(self, width: int, penalty: float, seed: int) -> None:
        from falkon import Falkon, FalkonOptions  # noqa: PLC0415
        from falkon.kernels import GaussianKernel  # noqa: PLC0415

        self._model = Falkon(
            kernel=GaussianKernel(1.0),
            penalty=penalty,
            M=width,
            seed=seed,
            options=FalkonOptions(use_cpu=True, keops_active="no"),
        )

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        import torch  # noqa: PLC0415

        self._model.fit(torch.from_numpy(X), torch.from_numpy(y)[:, None])
        return self

    def predict(self, X: np.ndarray) -> Any:
        import torch  # noqa: PLC0415

        return self._model.predict(torch.from_numpy(X)).numpy()
