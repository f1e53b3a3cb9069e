"""Commands: every learner, maps, plans, what is inside a model file."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import bochner as bo
from bochner.cli.arguments import LEARNERS
from bochner.cli.running import run
from bochner.data.writers import write_table
from bochner.report.render import number

# ==== Every learner from the command line: fitted, asked for its predictions, and judged.


N = 90
QUICK = ("--columns", "a,c", "--features", "8", "--lengthscale", "1", "--method", "orthogonal")
NUMBERS = ("ridge", "gp", "svr", "regressor", "sgd-regressor")
LABELS = ("ridge-classifier", "svc", "logistic", "sgd-classifier")
NOTHING = ("one-class", "kmeans", "pca")
SETTINGS = {"kmeans": ("n_clusters=3",), "pca": ("n_components=2",), "svc": ("C=2", "loss=hinge")}
SETTINGS |= dict.fromkeys(("sgd-classifier", "sgd-regressor"), ("strategy=approximate_cached",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table that has a column of text and a label."""
    folder, rng = tmp_path_factory.mktemp("learners"), np.random.default_rng(0)
    a = rng.normal(size=N)
    table = pd.DataFrame({"a": a, "c": rng.choice(["red", "green"], N), "y": np.sin(a)})
    table["label"] = np.where(a > 0.3, "high", np.where(a < -0.3, "low", "mid"))
    table.to_parquet(folder / "rows.parquet")
    return folder


def target_of(name):
    return () if name in NOTHING else ("--target", "label" if name in LABELS else "y")


def fitted(folder, name, capsys, *options):
    """Fit by the command line, and return what it told and the model it wrote."""
    out = folder / f"{name}.bochner"
    chosen = [part for text in SETTINGS.get(name, ()) for part in ("--set", text)]
    words = ("fit", f"{folder}/rows.parquet", "--model", name, *target_of(name), "--out", str(out))
    code = run([*words, *QUICK, *chosen, *options, "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    return json.loads(told.out), bo.load(out)


def test_every_learner_is_listed():
    learners = {*NUMBERS, *LABELS, *NOTHING}
    assert set(LEARNERS) == learners
    assert all(hasattr(bo, name) for name in LEARNERS.values())


@pytest.mark.parametrize("name", LEARNERS)
def test_predictions_are_those_of_the_model(folder, name, capsys):
    facts, model = fitted(folder, name, capsys)
    assert type(model).__name__ == LEARNERS[name]
    assert (facts["rows"], facts["columns"], facts["n_features"]) == (N, 3, 8)
    assert facts["certificate"]["epsilon"] > 0
    out = folder / "predicted.parquet"
    words = ["predict", f"{folder}/{name}.bochner", f"{folder}/rows.parquet", "--out", str(out)]
    assert run([*words, "--quiet"]) == 0
    found = pd.read_parquet(out)
    rows = pd.read_parquet(folder / "rows.parquet")[["a", "c"]]
    if name == "pca":
        assert found.to_numpy() == pytest.approx(model.transform(rows), abs=1e-12)
        assert list(found) == ["component_1", "component_2"]
    else:
        assert found.iloc[:, 0].tolist() == pytest.approx(model.predict(rows).tolist())


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("options", [(), ("--no-judge",)])
@pytest.mark.parametrize("name", LEARNERS)
def test_the_model_is_the_one_that_python_fits(folder, tmp_path, name, options):
    """Same data, options and seed give the same bits, in memory and from files, judged or not."""
    target = target_of(name)[1:]
    table = pd.read_parquet(folder / "rows.parquet")[["a", "c", *target]]
    table.to_csv(tmp_path / "rows.csv", index=False)
    given = {"kmeans": {"n_clusters": 3}, "pca": {"n_components": 2}}.get(name, {})
    settings = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    model = getattr(bo, LEARNERS[name])(random_state=0, **given).fit(table, *target)
    out = tmp_path / "m.bochner"
    words = ["fit", f"{tmp_path}/rows.csv", "--model", name, *target_of(name), "--out", str(out)]
    assert run([*words, *settings, *options, "--quiet"]) == 0
    found, rows = bo.load(out), table[["a", "c"]]
    call = "transform" if name == "pca" else "predict"
    call = "decision_function" if hasattr(model, "decision_function") else call
    np.testing.assert_array_equal(getattr(found, call)(rows), getattr(model, call)(rows))
    assert type(found.fit_) is type(model.fit_)
    assert getattr(found.fit_, "errors", None) is None


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_with_a_target_tells_an_honest_error(folder, name, capsys):
    facts, _ = fitted(folder, name, capsys)
    if name == "ridge":
        assert facts["held_out"] is None
        assert facts["rmse"] > 0
    elif name in ("kmeans", "pca"):
        assert facts["held_out"] is None
    else:
        found = facts["held_out"]
        assert found["n_train"] + found["n_test"] == found["n_rows"] == N
        keys = {"accuracy", "majority", "auc"} if name in LABELS else {"rmse", "r_squared"}
        (errors,) = found["errors"].values()
        assert keys <= set(errors) or name == "one-class"
        assert ("log_loss" in errors) == (name in {*LABELS} - {"sgd-classifier"})


def test_a_fit_that_is_not_judged_is_made_once(folder, capsys):
    facts, _ = fitted(folder, "gp", capsys, "--no-judge")
    assert facts["held_out"] is None
    assert "judge" not in facts["seconds"]


@pytest.mark.parametrize("name", LABELS)
def test_labels_come_back_as_words_and_are_counted(folder, name, capsys):
    facts, model = fitted(folder, name, capsys)
    assert facts["classes"] == ["high", "low", "mid"]
    code = run(["check", f"{folder}/{name}.bochner", f"{folder}/rows.parquet", "--json"])
    found = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(folder / "rows.parquet")
    right = np.mean(model.predict(table[["a", "c"]]) == table.label)
    assert code == 0
    told = found["errors"]["label"]
    assert told["accuracy"] == pytest.approx(right)
    assert right > 0.5
    f = model.decision_function(table[["a", "c"]])
    areas = [roc_auc_score(table.label == c, f[:, k]) for k, c in enumerate(model.classes_)]
    assert told["auc"] == pytest.approx(np.mean(areas))
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(table[["a", "c"]])
        assert told["log_loss"] == pytest.approx(log_loss(table.label, p))
    assert run(["check", f"{folder}/{name}.bochner", f"{folder}/rows.parquet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"AUC {number(told['auc'])}" in said
    assert ("log loss" in said) == hasattr(model, "predict_proba")


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("name", ["svc", "svr", "kmeans", "pca", "gp"])
def test_raw_tables_have_the_certificate_that_check_gives(folder, tmp_path, name, capsys):
    """Columns with gaps and many categories become numbers by the fit alone."""
    table = pd.read_parquet(folder / "rows.parquet")
    table.loc[::7, "a"], table["c"] = np.nan, [f"place {i % 40}" for i in range(N)]
    table.to_csv(tmp_path / "rows.csv", index=False)
    words = ["--model", name, *target_of(name), "--out", f"{tmp_path}/m", "--no-judge", "--json"]
    assert run(["fit", f"{tmp_path}/rows.csv", *words, *QUICK[:4], "--method", "uniform"]) == 0
    told = json.loads(capsys.readouterr().out)["certificate"]
    assert told["epsilon"] > 0
    assert run(["check", f"{tmp_path}/m", f"{tmp_path}/rows.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"] == told


def test_check_counts_each_row_once_whatever_classes_weighed_in_the_fit(folder, capsys):
    _, model = fitted(folder, "svc", capsys, "--set", 'class_weight={"mid": 50}')
    code = run(["check", f"{folder}/svc.bochner", f"{folder}/rows.parquet", "--json"])
    found = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(folder / "rows.parquet")
    right = model.predict(table[["a", "c"]]) == table.label
    assert code == 0
    assert found["errors"]["label"]["accuracy"] == pytest.approx(np.mean(right))
    weights = np.where(table.label == "mid", 50, 1)
    assert np.average(right, weights=weights) > np.mean(right) + 0.01


def test_probabilities_are_columns_of_their_own(folder, capsys):
    _, model = fitted(folder, "logistic", capsys)
    words = ["predict", f"{folder}/logistic.bochner", f"{folder}/rows.parquet"]
    run([*words, "--out", f"{folder}/p.csv", "--quiet"])
    found = pd.read_csv(folder / "p.csv")
    rows = pd.read_parquet(folder / "rows.parquet")[["a", "c"]]
    names = ["probability_high", "probability_low", "probability_mid"]
    assert list(found) == ["prediction", *names]
    assert found[names].to_numpy() == pytest.approx(model.predict_proba(rows))


def test_a_process_gives_bounds_of_new_observations_and_says_which_deviation_it_gives(
    folder, capsys
):
    facts, model = fitted(folder, "gp", capsys)
    assert facts["intervals"] == model.calibration_.guarantee
    rows = pd.read_parquet(folder / "rows.parquet")[["a", "c"]]
    words = ["predict", f"{folder}/gp.bochner", f"{folder}/rows.parquet", "--out"]
    assert run([*words, f"{folder}/p.csv"]) == 0
    assert "of new observations. Cross-validation" in " ".join(capsys.readouterr().out.split())
    found = pd.read_csv(folder / "p.csv")
    deviations = ["deviation_of_observation", "deviation_of_mean"]
    assert list(found) == ["prediction", "low_90", "high_90", *deviations]
    both = (model.predict(rows, return_std=True, include_noise=own)[1] for own in (True, False))
    expected = [*model.predict_interval(rows, 0.9), *both]
    assert found.to_numpy().T == pytest.approx(np.array(expected))
    assert run([*words, f"{folder}/p.csv", "--coverage", "0.975", "--json"]) == 0
    found = pd.read_csv(folder / "p.csv")
    assert list(found)[1:3] == ["low_97.5", "high_97.5"]
    assert found["high_97.5"].tolist() == pytest.approx(model.predict_interval(rows, 0.975)[2])
    assert json.loads(capsys.readouterr().out)["intervals"] == model.calibration_.guarantee


def test_a_coverage_that_rows_cannot_calibrate_is_that_of_the_normal_law_and_said_to_be(
    folder, capsys
):
    _, model = fitted(folder, "gp", capsys)
    words = ["predict", f"{folder}/gp.bochner", f"{folder}/rows.parquet"]
    code = run([*words, "--out", f"{folder}/p.csv", "--coverage", "0.995", "--json"])
    assert code == 0
    told = json.loads(capsys.readouterr().out)["intervals"]
    assert told.startswith("Gaussian, true if the model is")
    rows = pd.read_parquet(folder / "rows.parquet")[["a", "c"]]
    expected = model.predict_interval(rows, 0.995, calibrated=False)[1]
    assert pd.read_csv(folder / "p.csv")["low_99.5"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["ridge", "svr"])
def test_a_regressor_gives_bounds_where_they_are_asked_for(folder, capsys, name):
    """Those of svr are made of the errors that its fit was judged by."""
    _, model = fitted(folder, name, capsys)
    rows = pd.read_parquet(folder / "rows.parquet")[["a", "c"]]
    words = ["predict", f"{folder}/{name}.bochner", f"{folder}/rows.parquet"]
    words += ["--out", f"{folder}/p.csv", "--json"]
    assert run(words) == 0
    assert list(pd.read_csv(folder / "p.csv")) == ["prediction"]
    assert "intervals" not in json.loads(capsys.readouterr().out)
    assert run([*words, "--interval", "0.8"]) == 0
    assert json.loads(capsys.readouterr().out)["intervals"] == model.calibration_.guarantee
    found = pd.read_csv(folder / "p.csv")
    assert list(found) == ["prediction", "low_80", "high_80"]
    assert found.to_numpy().T == pytest.approx(np.array(model.predict_interval(rows, 0.8)))
    assert run([*words, "--interval", "0.9999"]) == 1
    assert "cannot calibrate a coverage of 0.9999" in capsys.readouterr().err


def test_an_interval_of_a_classifier_is_refused(folder, capsys):
    fitted(folder, "svc", capsys)
    words = ["predict", f"{folder}/svc.bochner", f"{folder}/rows.parquet"]
    assert run([*words, "--out", f"{folder}/p.csv", "--interval", "0.9"]) == 2
    assert "SVC predicts no quantity that could lie between bounds" in capsys.readouterr().err


def test_settings_reach_the_learner(folder, capsys):
    _, model = fitted(folder, "svc", capsys)
    assert (model.C, model.loss) == (2, "hinge")
    _, model = fitted(folder, "regressor", capsys, "--set", "loss=quantile", "--alpha", "0.1")
    assert (model.loss, model.alpha) == ("quantile", 0.1)
    words = ["predict", f"{folder}/regressor.bochner", f"{folder}/rows.parquet"]
    run([*words, "--out", f"{folder}/p.csv", "--quiet"])
    assert list(pd.read_csv(folder / "p.csv")) == [
        "prediction_0.1",
        "prediction_0.5",
        "prediction_0.9",
    ]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--model", "svc"), 2, "svc learns from a target. Name its column with --target."),
        (("--model", "svc", "--target", "label", "--alpha", "1"), 2, "svc has no alpha."),
        (("--model", "svc", "--target", "label", "--set", "D=1"), 2, "a parameter of svc: C, "),
        (("--model", "ridge", "--target", "label"), 1, "or take a classifier"),
        (("--model", "forest", "--target", "y"), 2, "'forest' is not one of"),
    ],
)
def test_what_a_learner_cannot_do_is_said(folder, capsys, options, code, sentence):
    words = ["fit", f"{folder}/rows.parquet", "--out", f"{folder}/x", *QUICK, *options]
    assert run(words) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (folder / "x").exists()


# ==== bochner fit --coords and bochner map: from a table of stations to a field and its picture.


xarray = pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def stations(tmp_path_factory):
    """A folder with a table of stations, and a process fitted to it."""
    stations = tmp_path_factory.mktemp("map")
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(5, 15, 300), rng.uniform(47, 55, 300)
    t = 15 - (lat - 47) + np.sin(lon) + 0.1 * rng.standard_normal(300)
    write_table(stations / "stations.csv", {"t": t, "lon": lon, "name": np.arange(300), "lat": lat})
    fit = ["fit", f"{stations}/stations.csv", "--target", "t", "--coords", "lon,lat"]
    assert run([*fit, "--out", f"{stations}/m.bochner", "--quiet"]) == 0
    return stations


@pytest.mark.slow
def test_coordinates_stand_for_a_process(stations, tmp_path, monkeypatch):
    model = bo.load(stations / "m.bochner")
    assert isinstance(model, bo.GaussianProcessRegressor)
    assert (model.method, model.kernel) == (None, "matern32")
    assert list(model.feature_names_in_) == ["lon", "lat"]
    monkeypatch.chdir(tmp_path)
    fit = ["fit", f"{stations}/stations.csv", "--target", "t", "--coords", "lon,lat", "--quiet"]
    assert run([*fit, "--model", "ridge", "--kernel", "gaussian", "--method", "grid"]) == 0
    model = bo.load("m.bochner")
    assert isinstance(model, bo.KernelRidge)
    assert (model.method, model.kernel) == ("grid", "gaussian")


def test_the_field_holds_mean_and_deviation_at_the_places(stations, tmp_path, capsys):
    out = tmp_path / "field.nc"
    assert run(["map", f"{stations}/m.bochner", "--out", str(out), "--places", "9", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    model = bo.load(stations / "m.bochner")
    with xarray.open_dataset(out, engine="scipy") as field:
        lon, lat = field["lon"].values, field["lat"].values
        mean, std = model.predict_grid(lon=lon, lat=lat, return_std=True)
        np.testing.assert_allclose(field["t"], mean)
        np.testing.assert_allclose(field["t_deviation"], std)
        assert field["t"].dims == ("lon", "lat")
    assert facts["places"] == 81
    assert facts["mean"] == [float(mean.min()), float(mean.max())]
    assert (tmp_path / "field.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_goes_where_it_is_told(stations, tmp_path, capsys):
    out, picture = tmp_path / "field.nc", tmp_path / "here.svg"
    named = ["--out", str(out), "--picture", str(picture), "--places", "5"]
    assert run(["map", f"{stations}/m.bochner", *named]) == 0
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
def test_coordinates_that_say_nothing_are_refused(stations, tmp_path, capsys, options, sentence):
    fit = ["fit", f"{stations}/stations.csv", "--target", "t", "--out", str(tmp_path / "m")]
    assert run([*fit, *options]) == 2
    assert sentence in capsys.readouterr().err


def test_models_that_have_no_map_are_refused(stations, tmp_path, capsys):
    rng = np.random.default_rng(0)
    X, out = rng.standard_normal((40, 3)), str(tmp_path / "f.nc")
    bo.save(bo.KernelRidge(n_features=8, random_state=0).fit(X, X[:, 0]), tmp_path / "ridge")
    assert run(["map", str(tmp_path / "ridge"), "--out", out]) == 2
    assert "must hold a process of one or two coordinates" in capsys.readouterr().err
    process = bo.GaussianProcessRegressor(n_features=8, random_state=0).fit(X, X[:, 0])
    bo.save(process, tmp_path / "three")
    assert run(["map", str(tmp_path / "three"), "--out", out]) == 1
    assert "one target over one or two coordinates; got 3 columns" in capsys.readouterr().err


def test_without_xarray_it_is_said(stations, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert run(["map", f"{stations}/m.bochner", "--out", str(tmp_path / "f.nc")]) == 1
    assert "bochner map writes NetCDF with xarray, not installed here" in capsys.readouterr().err


# ==== bochner plan: what it prints, in words and in JSON, and what it refuses.


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("plan"), np.random.default_rng(0)
    a = rng.normal(size=200)
    rows = pd.DataFrame({"a": a, "c": rng.choice(["red", "green"], 200), "y": np.sin(2 * a)})
    rows.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def told(capsys, table, *options):
    code = run(
        [
            "plan",
            str(table),
            "--kernel",
            "gaussian",
            "--lengthscale",
            "1",
            "--widths",
            "8,16",
            *options,
        ]
    )
    return code, capsys.readouterr()


def test_plan_prints_a_table_and_the_reason(table, capsys):
    code, out = told(capsys, table, "--target", "y")
    assert code == 0, out.err
    lines = out.out.splitlines()
    assert lines[0].startswith("Gaussian(lengthscale=1.0), 200 rows of 3 columns; any time and")
    assert [line for line in lines if line.startswith(">")]
    assert [line for line in lines if line.startswith(">")][-1].startswith("> The exact kernel, by")


def test_plan_gives_all_numbers_as_json(table, capsys):
    code, out = told(
        capsys, table, "--target", "y", "--seconds", "100", "--memory", "1e9", "--json"
    )
    facts = json.loads(out.out)
    assert code == 0
    assert (facts["rows"], facts["columns"]) == (200, 3)
    assert facts["choice"] in facts["fits"]
    assert facts["choice"]["seconds"] < 100


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ((), 2, "Missing option '--target'"),
        (("--target", "z"), 1, "z"),
        (("--target", "c"), 1, "target 'c' must hold numbers; got text ('green', 'red')"),
        (("--target", "y", "--seconds", "-3"), 2, "-3"),
        (("--target", "y", "--seconds", "1e-9"), 1, "no fit is predicted to take at most"),
        (("--target", "y", "--memory", "10"), 1, "no fit is predicted to take at most"),
        (("--target", "y", "--widths", "8,x"), 2, "whole numbers separated by commas"),
        (("--target", "y", "--kernel", "best"), 2, "best"),
    ],
)
def test_plan_says_what_is_wrong(table, capsys, options, code, sentence):
    found, out = told(capsys, table, *options)
    assert found == code
    assert sentence in out.err
    assert "Traceback" not in out.err


# ==== What is inside a model file, errors as JSON, and completion in shells.


@pytest.fixture(scope="module")
def table_cli_show():
    rng = np.random.default_rng(0)
    a = rng.normal(size=120)
    return pd.DataFrame(
        {
            "a": a,
            "same": a,
            "when": pd.date_range("2020-01-01", periods=120, freq="D"),
            "city": rng.choice(["x", "y"], 120),
            "y": a**2 + 0.1 * rng.normal(size=120),
        }
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory, table_cli_show):
    """A model file of columns of all kinds, one left out."""
    path = tmp_path_factory.mktemp("show") / "m.bochner"
    table_cli_show.to_csv(path.with_suffix(".csv"), index=False)
    line = ["fit", str(path.with_suffix(".csv")), "--target", "y", "--out", str(path), "--quiet"]
    assert run([*line, "--set", "effort=low", "--set", "alpha=0.01"]) == 0
    return path


def test_show_says_what_the_fit_was(model, capsys):
    assert run(["show", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = bo.load(model)
    assert facts["model"] == "KernelRidge"
    assert (facts["rows"], facts["alpha"]) == (120, found.alpha_)
    assert facts["kernel"] == repr(found.kernel_)
    assert facts["targets"] == ["y"]
    assert facts["parameters"] == {"alpha": "0.01", "effort": "'low'", "random_state": "0"}
    assert facts["bytes"] == model.stat().st_size


def test_show_prints_the_candidates_that_were_compared(tmp_path, table_cli_show, capsys):
    rows = table_cli_show[["a", "city"]]
    found = bo.KernelRidge(random_state=0).fit(rows, table_cli_show["y"])
    bo.save(found, tmp_path / "m.bochner")
    assert run(["show", str(tmp_path / "m.bochner")]) == 0
    assert str(found.search_) in capsys.readouterr().out
    assert run(["show", str(tmp_path / "m.bochner"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["search"]
    assert [c["rank"] for c in shown] == list(range(1, len(found.search_.compared) + 1))
    assert sum(c["chosen"] for c in shown) == 1


def test_show_says_what_columns_become(model, capsys):
    assert run(["show", str(model)]) == 0
    told = capsys.readouterr().out
    assert "column       a: number\n" in told
    assert "column       same: left out (the same as another column)\n" in told
    assert "column       city: becomes city=x, city=y\n" in told
    assert "when: becomes when (days)" in told


def test_show_of_many_columns_ends(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 45)), columns=[f"c{i}" for i in range(45)])
    blocks = bo.Blocks.from_table(X.assign(y=X["c0"]), target="y")
    bo.save(bo.KernelRidge("linear", random_state=0).fit_blocks(blocks), tmp_path / "m")
    assert run(["show", str(tmp_path / "m")]) == 0
    told = capsys.readouterr().out
    assert "column       c39: number\ncolumn       and 5 more\n" in told


def test_show_of_no_learner_says_what_it_is(tmp_path, capsys):
    bo.save(
        bo.draw(bo.kernels.Gaussian(), bo.Fourier(), n_features=8, n_inputs=2), tmp_path / "map"
    )
    assert run(["show", str(tmp_path / "map"), "--json"]) == 0
    assert "Fourier" in json.loads(capsys.readouterr().out)["model"]


@pytest.mark.parametrize(
    ("line", "code", "kind", "sentence"),
    [
        (("show", "nowhere"), 1, "ModelFileError", "there is no such file"),
        (("show",), 2, "UsageError", "Missing argument 'MODEL'"),
        (("fit", "nowhere.csv", "--target", "y", "--out", "m"), 1, "", "nowhere.csv"),
    ],
)
def test_errors_are_json_where_it_is_asked_for(line, code, kind, sentence, tmp_path, capsys):
    assert run([*line, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == code
    assert kind in told["kind"]
    assert sentence in told["error"]


def test_a_command_is_completed(monkeypatch, capsys):
    monkeypatch.setenv("_BOCHNER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "bochner sh")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match="0"):
        run([])
    assert "plain,show" in capsys.readouterr().out
