"""The evidence of a kernel matrix: against that of features, and its gradient against differences."""

import numpy as np
import pytest
from scipy.linalg import LinAlgError
from tolerance import assert_close

from bochner import Moments
from bochner.kernels import Gaussian
from bochner.solvers.ridge.criteria import CRITERIA
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.evidence import log_evidence
from bochner.solvers.ridge.kernel_evidence import kernel_evidence

GIVEN = [{}, {"noise": 0.2}, {"amplitude": 0.7}, {"noise": 0.2, "amplitude": 0.7}]
WEIGHTS = {"none": np.ones(25), "copies": np.arange(25) % 3 + 1.0, "shares": 0.1 + np.ones(25) / 3}


def rows(t=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (25, 2))
    y = np.sin(2 * X[:, :1]) + 0.3 * rng.standard_normal((25, t)) + 2
    return X, y


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("amplitude", [None, 0.7])
def test_it_is_the_evidence_of_features_that_are_exact(amplitude, centred, weights):
    X, y = rows(t=2)
    w, K = WEIGHTS[weights], Gaussian(0.8)(X)
    moments = Moments.of(np.linalg.cholesky(K + 1e-12 * np.eye(25)), y, w)
    eigen = decompose(moments if centred else moments.about_zero(), centred)
    for alpha in (0.01, 1.0):
        ours = kernel_evidence(K, y, w, alpha, centred=centred, amplitude=amplitude)
        value, slope = log_evidence(eigen, alpha, amplitude)
        assert_close(ours.value, -value.sum(), factor=1e6)
        assert_close(ours.by_log_alpha, -slope.sum(), factor=1e7)


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("centred", [True, False])
def test_its_gradient_is_that_of_differences(centred, given):
    (X, y), w = rows(t=2), WEIGHTS["copies"]
    K, turn = Gaussian(0.8)(X), Gaussian(0.3)(X)
    score = kernel_evidence(K, y, w, 0.1, centred=centred, **given)
    step = 1e-5

    def difference(at):
        up, down = (kernel_evidence(*at(h), centred=centred, **given).value for h in (step, -step))
        return (up - down) / (2 * step)

    by_kernel = difference(lambda h: (K + h * turn, y, w, 0.1))
    assert abs((score.by_kernel * turn).sum() / by_kernel - 1) < 1e-6
    if len(given) < 2:
        by_alpha = difference(lambda h: (K, y, w, 0.1 * np.exp(h)))
        assert abs(score.by_log_alpha / by_alpha - 1) < 1e-5
    assert_close(score.by_kernel, score.by_kernel.T, factor=1e3)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_criteria_read_a_kernel_matrix_on_and_below_its_diagonal_alone(criterion, weights):
    X, y = rows(t=2)
    K = Gaussian(0.8)(X)
    below = np.where(np.tri(25), K, np.nan)
    whole = criterion.of_kernel(KernelRows(K, y, WEIGHTS[weights]), 0.1)
    half = criterion.of_kernel(KernelRows(below, y, WEIGHTS[weights]), 0.1, overwrite=True)
    assert half.value == whole.value
    assert half.by_log_alpha == whole.by_log_alpha
    assert (half.by_kernel == whole.by_kernel).all()
    assert (K == Gaussian(0.8)(X)).all()  # only what may be overwritten is


def test_a_matrix_that_is_no_kernel_has_none():
    X, y = rows()
    with pytest.raises(LinAlgError):
        kernel_evidence(-Gaussian(0.8)(X), y, np.ones(25), 1e-3)
