"""Scores of normal laws: closed forms against their integrals, and processes that are true."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.model_selection import GroupKFold, KFold, cross_validate

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian


def drawn(m=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=m), rng.normal(size=m), rng.uniform(0.3, 2.0, m)


def test_scores_are_their_integrals_and_counts():
    y, mean, deviation = drawn()
    found = bo.normal_scores(y, mean, deviation, coverages=(0.5, 0.9))
    crps, density = [], []
    for value, mu, s in zip(y, mean, deviation, strict=True):
        law = norm(mu, s)
        below = quad(lambda t, law=law: law.cdf(t) ** 2, mu - 12 * s, value)[0]
        above = quad(lambda t, law=law: law.sf(t) ** 2, value, mu + 12 * s)[0]
        crps.append(below + above)
        density.append(np.log(law.pdf(value)))
    assert found.crps == pytest.approx(np.mean(crps), rel=1e-7)
    assert found.log_density == pytest.approx(np.mean(density), rel=1e-12)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.bias == pytest.approx(np.mean(mean - y))
    assert found.z_variance == pytest.approx(np.mean(((y - mean) / deviation) ** 2))
    for share, covered in found.coverage:
        low, high = norm(mean, deviation).interval(share)
        assert covered == np.mean((low <= y) & (y <= high))


def test_narrow_laws_have_the_absolute_error():
    y, mean, _ = drawn()
    found = bo.normal_scores(y, mean, np.full(40, 1e-9))
    assert found.crps == pytest.approx(np.mean(np.abs(y - mean)), rel=1e-6)


def test_targets_are_pooled_and_the_text_has_all():
    y, mean, deviation = (a.reshape(20, 2) for a in drawn())
    found = bo.normal_scores(y, mean, deviation)
    assert found == bo.normal_scores(y.ravel(), mean.ravel(), deviation.ravel())
    assert found.rows == 40
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["rows", "bias", "RMSE", "CRPS"]
    assert lines[-1] == f"95% covers   {found.coverage[-1][1]:.1%}"


def places(n=120):
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (n, 2))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def cross_validated(process, X, y, **options):
    """Means over folds."""
    found = cross_validate(process, X, y, scoring=bo.predictive_scorer, **options)
    return {name.removeprefix("test_"): values.mean() for name, values in found.items()}


def test_cross_validated_scores_are_those_of_fits_without_each_fold():
    X, y = places()
    process = bo.GaussianProcessRegressor(Gaussian(0.4), noise=0.04, amplitude=1.0)
    split = KFold(4)
    found = cross_validated(process, X, y, cv=split)
    mean, variance = np.empty(120), np.empty(120)
    for train, held in split.split(X):
        k, one = Gaussian(0.4), np.ones(len(train))
        inverse = np.linalg.inv(k(X[train]) + 0.04 * np.eye(len(train)))
        b = one @ inverse @ y[train] / (one @ inverse @ one)
        cross = k(X[held], X[train])
        mean[held] = b + cross @ inverse @ (y[train] - b)
        rest = 1 - cross @ inverse @ one
        left = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        variance[held] = left + rest**2 / (one @ inverse @ one) + 0.04
    by_hand = bo.normal_scores(y, mean, np.sqrt(variance))
    assert found["crps"] == pytest.approx(by_hand.crps, rel=1e-6)
    assert found["log_density"] == pytest.approx(by_hand.log_density, rel=1e-6)
    assert found["coverage_0.9"] == pytest.approx(dict(by_hand.coverage)[0.9])


def test_groups_are_left_out_together():
    X, y = places()
    near = np.arange(120) // 2
    twins = X.copy()
    twins[1::2] = X[::2]
    y[1::2] = y[::2]
    process = bo.GaussianProcessRegressor(Gaussian(0.05), noise=1e-3, amplitude=1.0)
    apart = cross_validated(process, twins, y, cv=GroupKFold(6), groups=near)
    together = cross_validated(process, twins, y, cv=KFold(6, shuffle=True, random_state=0))
    assert apart["rmse"] > 2 * together["rmse"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"mean": np.ones(3)}, r"must have one shape.*got \(40,\), \(3,\) and \(40,\)"),
        ({"y": np.full(40, np.nan)}, "y must be finite; got NaN or infinity"),
        ({"deviation": np.zeros(40)}, "deviation must be above 0; got 0.*include_noise=True"),
        ({"coverages": (1.5,)}, "coverages must be above 0 and below 1; got 1.5"),
    ],
    ids=["shapes", "NaN", "no width", "coverage"],
)
def test_what_cannot_be_scored_is_refused(given, sentence):
    asked = dict(zip(("y", "mean", "deviation"), drawn(), strict=True)) | given
    with pytest.raises(InvalidInput, match=sentence):
        bo.normal_scores(**asked)


def test_learners_without_laws_are_refused():
    with pytest.raises(InvalidInput, match=r"must be a GaussianProcessRegressor.*got KernelRidge"):
        bo.predictive_scorer(bo.KernelRidge(), *places())
