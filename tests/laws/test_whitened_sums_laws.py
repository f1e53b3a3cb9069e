"""Sums of kernel values that are whitened in the place of rows: the same moments, the same fits."""

import numpy as np
import pytest

import bochner as bo
from bochner import Blocks, Moments
from bochner.features import Fourier, Nystrom
from bochner.features.nystrom.nystrom import COARSE
from bochner.kernels import Gaussian, Matern, Polynomial
from bochner.landmarks import Given, KMeans, Uniform

KERNELS = [Gaussian(0.5), Gaussian(2.0), Matern(1.5, 1.0), Polynomial(3, 1.0)]
N, D = 17_000, 512


def rows(n, seed=0, repeated=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[: n // 8] = X[0] if repeated else X[: n // 8]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def off(kernel, landmarks, jitter, repeated=False):
    """How far whitened sums are from sums of whitened rows, as a share of ‖G‖."""
    X, y = rows(3000, repeated=repeated)
    phi = bo.draw(kernel, Nystrom(landmarks), n_features=200, X=X, random_state=0)
    phi = phi.with_jitter(jitter)
    L = phi.root(np.dtype(np.float64)).T
    right = Moments.of(phi(X), y[:, None])
    found = Moments.of(phi.values(X), y[:, None]).mapped(L, "float32")
    top = np.linalg.norm(right.gram, 2)
    np.testing.assert_allclose(found.feature_mean, right.feature_mean, atol=1e-6)
    np.testing.assert_allclose(found.power, right.power)
    assert (found.gram == found.gram.T).all()
    assert (found.rows, found.weight) == (right.rows, right.weight)
    return np.linalg.norm(found.gram - right.gram, 2) / top


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("landmarks", [Uniform(), KMeans()], ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_whitened_sums_are_sums_of_whitened_rows_as_far_as_float32_goes(
    kernel, landmarks, repeated
):
    assert off(kernel, landmarks, COARSE, repeated) < 2e-8


def test_planted_fault_a_jitter_as_small_as_that_of_rows():
    assert off(Gaussian(2.0), Uniform(), 1e-12) > 1e-5


# ---- fits


@pytest.fixture(scope="module")
def noisy():
    X, y = rows(N + 2000)
    y = y + 0.5 * np.random.default_rng(1).normal(size=len(y))
    return X[:N], y[:N], X[N:], y[N:]


def fitted(data, method="nystrom", scale=0.7, **options):
    X, y = data[:2]
    options = dict(n_features=D, random_state=0) | options
    return bo.KernelRidge(Gaussian(scale), method=method, **options).fit(X, y)


def error(model, data):
    return np.sqrt(np.mean((model.predict(data[2]) - data[3]) ** 2))


@pytest.mark.parametrize("method", ["nystrom", Nystrom(Uniform())], ids=repr)
def test_a_fit_by_whitened_sums_is_that_of_whitened_rows(noisy, method):
    quick, right = fitted(noisy, method), fitted(noisy, method, precision="float64")
    assert (quick.map_.jitter, right.map_.jitter) == (COARSE, None)
    assert (quick.moments_.precision, right.moments_.precision) == ("float32", "float64")
    assert quick.choice_.map is quick.map_
    assert quick.solution_.outcome.good
    assert abs(error(quick, noisy) / error(right, noisy) - 1) < 5e-3


def test_predictions_are_products_of_features_and_coefficients(noisy):
    for precision in ("auto", "float64", "float32"):
        model = fitted(noisy, precision=precision)
        Z = model.fit_.chosen.features(noisy[2])
        plain = Z @ model.coef_ + model.intercept_
        np.testing.assert_allclose(model.predict(noisy[2]), plain, atol=2e-6)


def test_where_noise_is_low_rows_are_whitened_after_all(noisy):
    X, _, new, _ = noisy
    y, truth = (np.sin(2 * A[:, 0]) + A[:, 1] * A[:, 2] for A in (X, new))
    data = X, y, new, truth
    quick, right = (fitted(data, scale=2.0, precision=p) for p in ("auto", "float64"))
    assert quick.map_.jitter is quick.choice_.map.jitter is None
    assert quick.moments_.precision == "float64"
    np.testing.assert_array_equal(quick.predict(new), right.predict(new))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (dict(precision="float64"), "it was asked for"),
        (dict(alpha=0.0), "there is no penalty"),
        (dict(n_features=400), "the fit is small"),
        (dict(method=Nystrom(Given(np.random.default_rng(0).normal(size=(D, 3))))), "given rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_are_whitened_where(noisy, options, why):
    assert fitted(noisy, **options).map_.jitter is None


@pytest.mark.parametrize("method", [Nystrom(), Fourier()], ids=repr)
def test_a_small_penalty_of_the_chosen_method_is_summed_in_float64_at_once(
    noisy, monkeypatch, method
):
    """The same model as where the sums are made again in float64."""
    X, _, new, _ = noisy
    data = X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    model = fitted(data, bo.Auto((method,)), scale=2.0)
    assert model.choice_.penalty < 1e-6
    assert model.moments_.precision == "float64"
    monkeypatch.setattr("bochner.models.ridge.sums.Pass._asks_float64", lambda *_: False)
    again = fitted(data, bo.Auto((method,)), scale=2.0)
    np.testing.assert_allclose(again.predict(new), model.predict(new), atol=1e-6)


def test_such_a_model_is_saved_goes_on_and_does_not_depend_on_blocks(noisy, tmp_path):
    X, y, new, _ = noisy
    model = fitted(noisy)
    bo.save(model, tmp_path / "model")
    back = bo.load(tmp_path / "model")
    assert back.map_.jitter == COARSE
    np.testing.assert_array_equal(back.predict(new), model.predict(new))
    cut = bo.KernelRidge(Gaussian(0.7), method="nystrom", n_features=D, random_state=0)
    cut.fit_blocks(Blocks.from_arrays(X, y, block_rows=777))
    np.testing.assert_allclose(cut.predict(new), model.predict(new), atol=1e-6)
    back.partial_fit(X[:100], y[:100])
    assert back.moments_.rows == N + 100
