"""What a process' features leave out: rows and landmarks left out, and how much of it counts."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from tolerance import assert_close, bar

import bochner as bo
from bochner.features.nystrom.nystrom import Whitening
from bochner.kernels import Matern
from bochner.models.gaussian_process.adaptation import left_out


def left_out_of(model):
    """Errors and deviations of the rows of a fit without each."""
    return left_out(model.fit_.summed, model.fit_.law, model.sample_)


def table(n=70, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n) + 3


def model(kernel, **changes):
    options = dict(method="nystrom", n_features=30, random_state=0) | changes
    return bo.GaussianProcessRegressor(kernel, **options)


def given_landmarks(X):
    return bo.Nystrom(bo.landmarks.Given(X[:30]))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("method", ["landmarks", "orthogonal"])
def test_leave_one_out_scores_and_densities_are_those_of_refits_without_the_landmark(
    method, centred
):
    """Fourier features do not depend on a row; what they leave out is told by all rows but that."""
    X, y = table()
    kernel, options = Matern(1.5, 0.8), dict(noise=0.02, amplitude=1.5, fit_intercept=centred)
    kept = given_landmarks(X) if method == "landmarks" else method
    ours = model(kernel, method=kept, **options).fit(X, y)
    landmarks, law = ours.predictive_.left_out.landmarks, ours.predictive_
    S = X[:30] if landmarks is None else landmarks.landmarks
    scores, densities = [], []
    for i in range(70):
        rest, others = np.arange(70) != i, S[np.any(S != X[i], axis=1)]
        if landmarks is None:
            kept = bo.Nystrom(bo.landmarks.Given(others))
        refit = model(kernel, method=kept, **options).fit(X[rest], y[rest])
        fewer = replace(refit.predictive_, exponents=law.exponents)
        if landmarks is not None:
            fixed = replace(landmarks, landmarks=others, whitening=Whitening({}))
            fewer = replace(fewer, left_out=replace(fewer.left_out, landmarks=fixed))
        Z = refit.map_(X[[i]])
        spread = np.sqrt(fewer.variance(X[[i]], Z)[0, 0] + 0.02)
        gap = y[i] - fewer.posterior.mean(Z)[0, 0]
        scores.append(gap / spread)
        densities.append(norm.logpdf(gap, 0, spread))
    errors, deviation = left_out_of(ours)
    assert np.abs((errors / deviation)[:, 0] - scores).max() < 1e-6
    assert abs(ours.loo_log_density_ - np.mean(densities)) < 1e-6


def test_a_landmark_that_is_there_twice_stays_when_one_of_both_is_left_out():
    """So rows of weight two, and two rows, have the same noise and exponents."""
    X, y = table()
    w = np.random.default_rng(1).integers(1, 3, 70)
    weighted = model(Matern(0.5), method=given_landmarks(X)).fit(X, y, w)
    repeated = model(Matern(0.5), method=given_landmarks(X))
    repeated.fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert_close(weighted.noise_variance_, repeated.noise_variance_, factor=1e6)
    assert_close(weighted.loo_log_density_, repeated.loo_log_density_, factor=1e6)
    assert_close(weighted.predictive_.exponents, repeated.predictive_.exponents)


@pytest.mark.parametrize("method", ["nystrom", "mercer"])
def test_of_what_is_left_out_near_the_rows_as_much_counts_as_errors_ask_for(method):
    """A smooth function, a rough kernel: the prior would leave out more than the errors are."""
    X, y = table(1000)
    new, target = table(500, seed=5)
    ours = model(Matern(0.5, 2.0), method=method).fit(X, y)
    density = ours.log_predictive_density(new, target).mean()
    assert ours.predictive_.exponents[0] > 1
    ours.fit_ = replace(
        ours.fit_, law=replace(ours.predictive_, exponents=np.ones(1), noise=np.zeros(1))
    )
    assert density > ours.log_predictive_density(new, target).mean() + 0.1


@pytest.mark.parametrize("method", ["nystrom", "orthogonal", "mercer"])
def test_with_an_exponent_covariances_and_functions_have_the_variances(method):
    """1000 functions at 4 rows: z-scores, false alarms 1e-6."""
    ours = model(Matern(0.5), method=method).fit(*table(200))
    ours.fit_ = replace(ours.fit_, law=replace(ours.predictive_, exponents=np.array([2.5])))
    X = np.vstack([table(3, seed=3)[0], np.full((1, 2), 50.0)])
    mean, std = ours.predict(X, return_std=True)
    cov = ours.predict(X, return_cov=True)[1]
    assert_close(np.diag(cov), std**2, factor=1e3)
    assert np.linalg.eigvalsh(cov).min() > -1e-10 * cov.max()
    squares = (ours.sample_functions(1000, random_state=1)(X) - mean[:, None]) ** 2
    z = (squares.mean(axis=1) - std**2) / (squares.std(axis=1) / 1000**0.5)
    assert np.abs(z).max() < bar(4)
