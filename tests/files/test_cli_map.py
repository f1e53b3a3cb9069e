"""bochner fit --coords and bochner map: from a table of stations to a field and its picture."""

import json
import sys

import numpy as np
import pytest

import bochner as bo
from bochner.cli.running import run
from bochner.data.writers import write_table

xarray = pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of stations, and a process fitted to it."""
    folder = tmp_path_factory.mktemp("map")
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(5, 15, 300), rng.uniform(47, 55, 300)
    t = 15 - (lat - 47) + np.sin(lon) + 0.1 * rng.standard_normal(300)
    write_table(folder / "stations.csv", {"t": t, "lon": lon, "name": np.arange(300), "lat": lat})
    fit = ["fit", f"{folder}/stations.csv", "--target", "t", "--coords", "lon,lat"]
    assert run([*fit, "--out", f"{folder}/m.bochner", "--quiet"]) == 0
    return folder


@pytest.mark.slow
def test_coordinates_stand_for_a_process(folder, tmp_path, monkeypatch):
    model = bo.load(folder / "m.bochner")
    assert isinstance(model, bo.GaussianProcessRegressor)
    assert (model.method, model.kernel) == (None, "matern32")
    assert list(model.feature_names_in_) == ["lon", "lat"]
    monkeypatch.chdir(tmp_path)
    fit = ["fit", f"{folder}/stations.csv", "--target", "t", "--coords", "lon,lat", "--quiet"]
    assert run([*fit, "--model", "ridge", "--kernel", "gaussian", "--method", "grid"]) == 0
    model = bo.load("m.bochner")
    assert isinstance(model, bo.KernelRidge)
    assert (model.method, model.kernel) == ("grid", "gaussian")


def test_the_field_holds_mean_and_deviation_at_the_places(folder, tmp_path, capsys):
    out = tmp_path / "field.nc"
    assert run(["map", f"{folder}/m.bochner", "--out", str(out), "--places", "9", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    model = bo.load(folder / "m.bochner")
    with xarray.open_dataset(out, engine="scipy") as field:
        lon, lat = field["lon"].values, field["lat"].values
        mean, std = model.predict_grid(lon=lon, lat=lat, return_std=True)
        np.testing.assert_allclose(field["t"], mean)
        np.testing.assert_allclose(field["t_deviation"], std)
        assert field["t"].dims == ("lon", "lat")
    assert facts["places"] == 81
    assert facts["mean"] == [float(mean.min()), float(mean.max())]
    assert (tmp_path / "field.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_goes_where_it_is_told(folder, tmp_path, capsys):
    out, picture = tmp_path / "field.nc", tmp_path / "here.svg"
    named = ["--out", str(out), "--picture", str(picture), "--places", "5"]
    assert run(["map", f"{folder}/m.bochner", *named]) == 0
    assert "<svg" in picture.read_text()
    assert "places" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--coords", "lon,lat", "--columns", "lon"], "--coords and --columns both name"),
        (["--coords", "lon,lat,name,t"], "--coords names one to three columns; got 4"),
    ],
    ids=["columns", "four"],
)
def test_coordinates_that_say_nothing_are_refused(folder, tmp_path, capsys, options, sentence):
    fit = ["fit", f"{folder}/stations.csv", "--target", "t", "--out", str(tmp_path / "m")]
    assert run([*fit, *options]) == 2
    assert sentence in capsys.readouterr().err


def test_models_that_have_no_map_are_refused(folder, tmp_path, capsys):
    rng = np.random.default_rng(0)
    X, out = rng.standard_normal((40, 3)), str(tmp_path / "f.nc")
    bo.save(bo.KernelRidge(n_features=8, random_state=0).fit(X, X[:, 0]), tmp_path / "ridge")
    assert run(["map", str(tmp_path / "ridge"), "--out", out]) == 2
    assert "must hold a process of one or two coordinates" in capsys.readouterr().err
    process = bo.GaussianProcessRegressor(n_features=8, random_state=0).fit(X, X[:, 0])
    bo.save(process, tmp_path / "three")
    assert run(["map", str(tmp_path / "three"), "--out", out]) == 1
    assert "one target over one or two coordinates; got 3 columns" in capsys.readouterr().err


def test_without_xarray_it_is_said(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert run(["map", f"{folder}/m.bochner", "--out", str(tmp_path / "f.nc")]) == 1
    assert "bochner map writes NetCDF with xarray, not installed here" in capsys.readouterr().err
