"""The paper's experiments do what they say: numbers by a slower route, and every table runs."""

from importlib import import_module

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import bochner as bo
from bochner.kernels import Gaussian


def script(name):
    """A module of the folder of benchmarks."""
    return import_module(f"benchmarks.{name}")


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


def test_two_fold_errors_from_moments_are_those_of_fits_and_predictions(problem):
    paper = script("paper")
    phi, X, y = problem
    Z, halves = phi(X), (slice(0, 150), slice(150, None))
    largest = np.linalg.norm(np.cov(Z[halves[0]].T, bias=True), 2) * 150

    def error(alpha):
        models = ((Ridge(alpha=alpha).fit(Z[a], y[a]), b) for a, b in (halves, halves[::-1]))
        return sum(((model.predict(Z[b]) - y[b]) ** 2).sum() for model, b in models)

    least = min(map(error, paper.PENALTIES[paper.PENALTIES > 1e-8] * largest))
    assert paper.two_fold_error(phi, X, y) == pytest.approx(least / len(y), rel=1e-6)
    predicted = paper.fit_and_predict(phi, X[:250], y[:250], X[250:])
    assert np.mean((predicted - y[250:]) ** 2) < 0.1 * y.var()


@pytest.mark.parametrize("most", [301, 200])
def test_exact_objective_is_the_distance_to_the_centre(problem, most):
    _, X, _ = problem
    rng, K = np.random.default_rng(1), Gaussian(1.0)(X)
    labels = [rng.integers(0, k, 301) for k in (2, 5)]

    def distance(i, found):
        C = found == found[i]
        return K[i, i] - 2 * K[i, C].mean() + K[np.ix_(C, C)].mean()

    slow = [np.mean([distance(i, found) for i in range(301)]) for found in labels]
    fast = script("paper").exact_objectives(Gaussian(1.0), X, labels, most)
    assert fast == pytest.approx(slow, rel=1e-12 if most == 301 else 0.05)


def test_each_method_has_the_lengthscale_of_its_least_error():
    """Downhill from 1: no neighbour by √2 on either side is better, by fits one by one."""
    paper = script("paper")
    X, y = (a[::200] for a in paper.regression("Elevation", script("bench").Options()))
    for method in (bo.Fourier(bo.IID()), "auto"):
        found = paper.lengthscale(method, 64, X, y)
        maps = (paper.draw(method, found * 2**p, 64, X, y, 0) for p in (-0.5, 0.0, 0.5))
        below, at, above = (paper.two_fold_error(phi, X, y) for phi in maps)
        assert at <= min(below, above)
        assert found != 1.0
    local = paper._methods(64)["leaves"]["LocalKernel"]
    assert local == bo.LocalKernel(32, 32)
    halves = slice(0, 150), slice(150, 300)
    given = {"method": local, "n_features": 64, "random_state": 0}
    first, second = (bo.KernelRidge(Gaussian(0.5), **given).fit(X[h], y[h]) for h in halves)
    errors = np.r_[first.predict(X[150:300]) - y[150:300], second.predict(X[:150]) - y[:150]]
    found = paper.two_fold(local, 0.5, 64, X[:300], y[:300])
    assert found == pytest.approx(np.mean(errors**2), rel=1e-9)


def test_the_first_figure_and_a_column_run_at_a_small_size(data):
    cases = "figure 1*", "table 2, Protein, learner"
    options = script("bench").Options(data=data, quick=True, cases=cases)
    rows = [row | {"bench": "paper"} for row in script("bench").measure("paper", options)]
    assert {row["case"].split(",")[0] for row in rows} == {"figure 1", "table 2"}
    page = script("pages").PAPER.read_text(encoding="utf-8")
    filled = script("pages").filled(page, rows)
    assert heads(part_of(page, "figure 1")) == heads(part_of(filled, "figure 1"))


@pytest.mark.slow
def test_experiments_run_and_fill_their_tables_of_the_page(data, capsys):
    pages, options = script("pages"), script("bench").Options(data=data, quick=True)
    rows = [row | {"bench": "paper"} for row in script("bench").measure("paper", options)]
    assert "Left out" not in capsys.readouterr().out
    paper = script("paper")
    wanted = {*paper.PUBLISHED, *paper.OURS, "LocalKernel", "KernelRidge()"}
    assert wanted <= {row.get("who") for row in rows}
    page = pages.PAPER.read_text(encoding="utf-8")
    wider = [row | {"case": row["case"].replace("D=64", "D=512")} for row in rows if "case" in row]
    written = pages.filled(page, wider)
    names = [
        part.split(" -->")[0] for part in page.split("<!-- ")[1:] if not part.startswith("end")
    ]
    assert len(names) == 5
    for name in names:
        old, new = (part_of(text, name) for text in (page, written))
        assert name == "table 3: 1024" or heads(old[1:]) <= heads(new)
        assert (old == new) == (name in {"figure 1", "table 3: 1024"}), name
    assert pages.filled(page, []) == page


def part_of(page, name):
    """Lines of a part of the page that is written."""
    return page.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip().splitlines()


def heads(lines):
    """The first cells of a table."""
    return {line.split("|")[1].strip() for line in lines if line.startswith("|")}


def test_data_that_are_missing_are_named(data):
    (data / "magic.npz").unlink()
    asked = script("bench").Options(data=data, quick=True, cases=("table 3, Magic*",))
    (note,) = script("paper").paper(asked)
    assert "magic.npz: it is not in" in note["note"]
