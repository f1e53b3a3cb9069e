"""Nearest neighbours in plans: when they are listed, what they find with more rows, who fits them."""

import math

import numpy as np
import pytest

import bochner as bo
from bochner.kernels import Linear, Matern

KERNEL = Matern(1.5, 0.3)


def rough(n, d=2, seed=0):
    """A draw of the process by waves of its spectral density, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    W = rng.standard_normal((d, 2000)) / np.sqrt(rng.chisquare(3, 2000) / 3) / 0.3
    f = np.cos(X @ W + rng.uniform(0, 2 * math.pi, 2000)).sum(axis=1) * (2 / 2000) ** 0.5
    return X, f + 0.01 * rng.standard_normal(n)


def planned(n, d=2, **given):
    asked = {"kernel": KERNEL, "widths": [32], "random_state": 0} | given
    return bo.plan(*rough(n, d), **asked)


def of_neighbours(plan):
    return [fit for fit in plan.fits if fit.solver == "neighbours"]


@pytest.fixture
def many_rows_are_few(monkeypatch):
    monkeypatch.setattr("bochner.models.gaussian_process.rough.FEWEST_ROWS", 251)


@pytest.mark.parametrize(
    ("n", "d", "kernel", "listed"),
    [(300, 2, KERNEL, 1), (250, 2, KERNEL, 0), (300, 5, KERNEL, 0), (300, 2, Linear() + 1.0, 0)],
)
def test_neighbours_are_listed_of_many_rows_and_few_columns(
    n, d, kernel, listed, many_rows_are_few
):
    found = planned(n, d, kernel=kernel)
    assert len(of_neighbours(found)) == listed
    assert found.choice.solver != "neighbours"
    assert ("a process alone" in str(found)) == bool(listed)


def test_another_choice_is_a_gaussian_process(many_rows_are_few):
    found = planned(300).with_choice(bo.NearestNeighbours())
    assert found.reason == (
        "A Gaussian process on the 40 nearest neighbours of each row: as asked."
    )
    model = found.estimator()
    assert isinstance(model, bo.GaussianProcessRegressor)
    assert model.method == bo.NearestNeighbours()
    assert model.kernel == KERNEL
    assert found.with_choice(solver="neighbours").choice == found.choice


def test_neighbours_that_are_named_are_chosen_and_others_planned_beside_them():
    alone = planned(300, methods=[bo.NearestNeighbours(20)])
    assert [fit.n_features for fit in alone.fits] == [20]
    assert alone.choice.solver == "neighbours"
    assert alone.choice.seconds == pytest.approx(sum(alone.choice.steps.values()))
    both = planned(300, methods=["nystrom", bo.NearestNeighbours(20)])
    assert [fit.solver for fit in both.fits] == ["moments float64", "neighbours"]


@pytest.mark.statistical
def test_errors_of_more_rows_are_those_of_nearer_neighbours():
    """Of 500 rows left out each mean square is known within 6 %: both errors within a fifth."""
    method, (X, y) = [bo.NearestNeighbours(20)], rough(4000)
    given = {"methods": method, "random_state": 0}
    told = bo.plan(X[:1000], y[:1000], KERNEL, n_rows=4000, **given).choice
    few, many = (bo.plan(X[:n], y[:n], KERNEL, **given).choice for n in (1000, 4000))
    assert few.error > 1.3 * many.error
    assert told.error == pytest.approx(many.error, rel=0.2)
