"""Fit and predict with random Fourier features, against RBFSampler and RidgeCV.

Same width, rows and lengthscale. Both choose their penalty: RidgeCV among nine, by generalised
cross-validation; ours along its own path, by leave-one-out.
"""

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.harness import Options, Row
from benchmarks.regression import compare

__all__ = ["run"]


def run(options: Options) -> list[Row]:
    """Compare on every table."""
    return compare(options, "orthogonal", lambda _: {"RBFSampler + RidgeCV": (_pipeline, 15.0)})


def _pipeline(width: int, seed: int) -> Pipeline:
    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=seed)
    return make_pipeline(sampler, RidgeCV(np.logspace(-6, 2, 9)))
