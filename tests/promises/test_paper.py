"""The paper's experiments do what they say: numbers by a slower route, and every table runs."""

import sys
from importlib import import_module
from math import factorial
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import bochner as bo
from bochner.kernels import Gaussian

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """A module of the folder of benchmarks by its name."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return lambda name: import_module(f"benchmarks.{name}")


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((301, 3))
    phi = bo.draw(Gaussian(1.0), "orthogonal", n_features=40, X=X, random_state=0)
    return phi, X, np.sin(X[:, 0]) + 5 + 0.1 * rng.standard_normal(301)


@pytest.fixture
def data(tmp_path):
    """A folder with tables of the names and columns that are asked for, small."""
    rng = np.random.default_rng(0)
    places = {"elevation_etopo60": 2, "co2_cdiac": 3, "climate_ncep": 3}
    for name, d in places.items():
        X = np.column_stack(
            [rng.uniform(-90, 90, 200), rng.uniform(0, 360, 200), np.arange(200) % 12]
        )
        np.savez(tmp_path / f"{name}.npz", X=X[:, :d], y=rng.uniform(1, 2, 200))
    np.savez(tmp_path / "protein.npz", X=rng.standard_normal((200, 9)), y=rng.standard_normal(200))
    for name in ("abalone_jmlr", "pendigits", "mushroom", "magic", "shuttle", "connect4"):
        labels = rng.integers(0, 2, 200)
        X = rng.standard_normal((200, 8)) + labels[:, None]
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels, y2=labels, split=np.arange(200) // 150)
    return tmp_path


# ---- numbers by a slower route


def test_two_fold_errors_from_moments_are_those_of_fits_and_predictions(problem, script):
    ridge = script("paper.ridge")
    phi, X, y = problem
    Z, halves = phi(X), (slice(0, 150), slice(150, None))
    largest = [np.linalg.norm(np.cov(Z[h].T, bias=True), 2) * len(Z[h]) for h in halves]
    errors = [
        sum(
            ((Ridge(alpha=alpha).fit(Z[a], y[a]).predict(Z[b]) - y[b]) ** 2).sum()
            for a, b in (halves, halves[::-1])
        )
        for alpha in ridge.PENALTIES[ridge.PENALTIES > 1e-8] * largest[0]
    ]
    assert ridge.two_fold_error(phi, X, y) == pytest.approx(min(errors) / len(y), rel=1e-6)


def test_predictions_are_those_of_the_best_penalty(problem, script):
    phi, X, y = problem
    predicted = script("paper.ridge").fit_and_predict(phi, X[:250], y[:250], X[250:])
    assert np.mean((predicted - y[250:]) ** 2) < 0.1 * y.var()


@pytest.mark.parametrize("most", [301, 200])
def test_exact_objective_is_the_distance_to_the_centre(problem, most, script):
    _, X, _ = problem
    rng, K = np.random.default_rng(1), Gaussian(1.0)(X)
    labels = [rng.integers(0, k, 301) for k in (2, 5)]

    def distance(i, found):
        C = found == found[i]
        return K[i, i] - 2 * K[i, C].mean() + K[np.ix_(C, C)].mean()

    slow = [np.mean([distance(i, found) for i in range(301)]) for found in labels]
    fast = script("paper.table3").exact_objectives(Gaussian(1.0), X, labels, most)
    assert fast == pytest.approx(slow, rel=1e-12 if most == 301 else 0.05)


def test_taylor_series_by_cauchys_formula_is_that_of_the_exponential(script):
    figure1 = script("paper.figure1")
    t = np.linspace(-1, 1, 11)
    terms = [np.exp(-2.0) * 2.0**n / factorial(n) * t**n for n in range(8)]
    found = figure1._taylor(figure1.FUNCTIONS["Gaussian"], t, 7)
    assert found == pytest.approx(np.cumsum(terms, axis=0), abs=1e-14)


@pytest.mark.parametrize("layers", [1, 2])
def test_tangent_kernel_of_complex_angles_is_that_of_real_ones(layers, script):
    function = script("paper.figure1").FUNCTIONS[f"NTK, {layers} hidden layer" + "s" * (layers > 1)]
    theta = np.linspace(0.1, 3.0, 20)
    assert function(theta + 0j).real == pytest.approx(function(theta), rel=1e-12)


# ---- every table runs, and says what is missing


@pytest.mark.parametrize("name", ["figure1", "table2", "table3"])
def test_experiment_runs(name, data, tmp_path, capsys, script):
    picture = tmp_path / "picture.svg"
    assert (
        script("paper.__main__").main([name, "--quick", "--data", str(data), "--svg", str(picture)])
        == 0
    )
    printed = capsys.readouterr().out
    if name == "figure1":
        assert "Chebyshev" in printed
        assert picture.read_text(encoding="utf-8").count("<svg") == 1
    else:
        assert all(method in printed for method in script("paper.methods").METHODS)
        assert "Left out" not in printed


def test_data_that_are_missing_are_named(tmp_path, capsys, script):
    assert script("paper.__main__").main(["table2", "--quick", "--data", str(tmp_path)]) == 0
    assert "protein.npz: it is not in" in capsys.readouterr().out


def test_pictures_are_the_same_bytes_each_time(tmp_path, script):
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (first, second):
        script("gallery").draw_directions(path)
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) < 50_000
