"""Calls that users write, with their types: checked by mypy and pyright, never run.

``npx pyright`` reads its strict settings from pyproject.toml; ``make lint`` runs mypy on this file.
"""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import bochner as bo
from bochner.kernels import Gaussian, Kernel, Matern

Interval = tuple[Any, Any, Any]
Process = bo.GaussianProcessRegressor


def fits(X: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    model = bo.KernelRidge("gaussian", n_features=128, random_state=0)
    assert_type(model.fit(X, y), bo.KernelRidge)
    assert_type(model.fit(X, y, sample_weight=np.ones(len(y))).predict_interval(X), Interval)
    assert_type(bo.GaussianProcessRegressor(Matern(1.5) + Gaussian(2.0)).fit(X, y), Process)
    mean, deviation = bo.GaussianProcessRegressor().fit(X, y).predict(X, return_std=True)
    assert_type(bo.SVC(C=1.0, kernel=Gaussian(1.0)).fit(X, y > 0), bo.SVC)
    assert_type(bo.KernelPCA(2).fit(X), bo.KernelPCA)
    return float(mean[0]), float(deviation[0])


def passes(path: str) -> list[tuple[int, ...]]:
    blocks = bo.Blocks.from_files(path, target="y")
    where = bo.engines.Local(checkpoint="run.ckpt", interval=30)
    assert_type(bo.KernelRidge().fit_blocks(blocks, where=where), bo.KernelRidge)
    return [values.shape for values in bo.KernelRidge().predict_blocks(blocks)]


def proof(X: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
    kernel: Kernel = 2.0 * Gaussian(1.0) * Matern(0.5) + 1.0
    phi = bo.draw(kernel, "nystrom", n_features=64, X=X, random_state=0)
    assert_type(phi, bo.FeatureMap)
    certificate = bo.certify(phi, X, alpha=1.0)
    assert_type(certificate, bo.Certificate)
    assert_type(certificate.epsilon, float)
    assert_type(bo.tune(bo.KernelRidge(Gaussian(1.0)), X, y), bo.Tuning)
