"""The report of a model and the demo: correct numbers, and pages without other files."""

import base64
import json
import re
import sys
from dataclasses import replace
from functools import cache
from html import unescape
from io import BytesIO
from itertools import chain

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from matplotlib import image
from matplotlib.colors import TwoSlopeNorm
from pages import drawings, read, read_complete

import bochner as bo
from bochner import Blocks, datasets
from bochner._core.text import round_numbers
from bochner.cli.running import run
from bochner.errors import DataFileError, DataWarning, MissingDependency
from bochner.kernels import Gaussian
from bochner.report.demo import METHODS, RELIEF, colours, earth_page, run_demo
from bochner.report.model import report_model
from bochner.report.render import number, picture

N, N_SAMPLE = 90, 64
LETTER = 0.52  # mean width of a letter relative to its size in sans-serif fonts
COMMON = {"kernel": Gaussian(1.0), "n_features": 16, "random_state": 0}
LEARNERS = {
    "ridge": (bo.KernelRidge, {}, "number"),
    "svc": (bo.SVC, {}, "labels"),
    "fourier": (bo.KernelRidge, {"method": "fourier"}, "number"),
    "several": (bo.KernelRidge, {"alpha_per_target": True}, "numbers"),
    "exact": (bo.KernelRidge, {"method": "exact", "alpha": 0.5}, "number"),
    "ridge classifier": (bo.KernelRidgeClassifier, {}, "labels"),
    "process": (bo.GaussianProcessRegressor, {}, "number"),
    "logistic": (bo.LogisticRegression, {}, "label"),
    "svr": (bo.SVR, {}, "number"),
    "quantiles": (bo.KernelRegressor, {"loss": "quantile"}, "number"),
    "one class": (bo.OneClassSVM, {"nu": 0.1}, None),
    "clusters": (bo.KernelKMeans, {"n_clusters": 3}, None),
    "components": (bo.KernelPCA, {"n_components": 2}, None),
    "sgd": (bo.KernelSGDClassifier, {"max_iter": 30, "tol": None}, "label"),
}

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(N)
TARGETS = {
    None: None,
    "number": Y,
    "numbers": np.c_[Y, 3 * Y],
    "label": np.where(Y > 0, "above", "below"),
    "labels": np.where(Y > 1, "high", np.where(Y < -1, "low", "mid")),
}


@cache
def fitted(name):
    kind, options, target = LEARNERS[name]
    return kind(**COMMON | options).fit(X, TARGETS[target])


@cache
def report_of(name):
    """Return the report of a learner on the rows of its fit."""
    return report_model(fitted(name), X, TARGETS[LEARNERS[name][2]], n_sample=N_SAMPLE)


@cache
def page_of(name):
    return report_of(name).to_html()


def brief(*arguments, n_sample=N_SAMPLE):
    """Return a report with a small sample."""
    return report_model(*arguments, n_sample=n_sample)


@pytest.fixture
def no_pictures(monkeypatch):
    """Replace pictures by their titles, as the test is about text."""
    monkeypatch.setattr("bochner.report.model_page.picture", lambda title, draw: title)


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", LEARNERS)
def test_the_page_is_complete_and_has_the_sections_of_its_learner(name):
    page, report, target = page_of(name), report_of(name), LEARNERS[name][2]
    reader = read_complete(page)
    assert "style" not in dict(reader.attrs)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "nan" not in re.findall(r"[a-z]+", " ".join(chain(*reader.cells)))
    for title, drawing in drawings(page):
        assert title
        assert 'viewBox="0 0 345.6 230.4"' in drawing
        assert not re.search(r"\bnan\b|\binf\b", drawing)
        assert crowded(drawing) == []
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections[:2] == ["fit", "kernel"]
    assert sections[-1] == "again"
    assert ("penalty" in sections) == (report.path is not None)
    assert ("spectrum" in sections) == (report.spectrum is not None)
    assert ("predictions" in sections) == (target is not None)
    assert ("columns" in sections) == (report.importance is not None) == (target is not None)
    assert LEARNERS[name][0].__name__ in page


def crowded(drawing):
    """Return the texts of a drawing that leave it or overlap."""
    boxes = []
    for attributes, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", drawing):
        x, y = (float(re.search(rf'\b{axis}="([-\d.]+)"', attributes)[1]) for axis in "xy")
        style = re.search(r'style="(.*?)"', attributes)[1]
        size = float(re.search(r"font(?:-size)?: ([\d.]+)px", style)[1])
        width = LETTER * size * len(unescape(text))
        left = {"middle": width / 2, "end": width}.get(re.search(r"anchor: (\w+)", style)[1], 0)
        box = (-left, width - left, -0.75 * size, 0.2 * size)
        if "rotate(-90" in attributes:
            box = (*box[2:], -box[1], -box[0])
        boxes.append((x + box[0], x + box[1], y + box[2], y + box[3], text))
    for place, text in re.findall(
        r'translate\(([-\d. ]+)\)">\s*<text>(.*?)</text>', drawing, re.DOTALL
    ):
        x, y = map(float, place.split())
        starts = [float(at) for at in re.findall(r'<tspan x="([-\d.]+)', text)]
        boxes.append((x, x + starts[-1] + 7 * LETTER, y - 10, y + 2, text))
    bad = [t for a, b, c, d, t in boxes if a < -0.5 or b > 346 or c < -0.5 or d > 231]
    for i, (a, b, c, d, text) in enumerate(boxes):
        tail = boxes[i + 1 :]
        bad += [f"{text} on {t}" for e, f, g, h, t in tail if a < f and e < b and c < h and g < d]
    return bad


def test_tables_have_the_numbers_of_the_report():
    report, page = report_of("ridge"), read(page_of("ridge"))
    cells = page.cells
    assert ["target", *(number(v) for v in report.quality.errors["target"].values())] in cells
    worst = report.rows.worst[0]
    assert [str(worst.number), number(worst.value, 3)] in [row[:2] for row in cells]
    assert any(row[0] == "ε, spectral" for row in cells)
    assert report.certificate_words in "".join(page.text)


def test_importance_and_dependence_equal_those_of_the_functions():
    model, report = fitted("ridge"), report_of("ridge")
    sample = Blocks.from_arrays(X).sample(N_SAMPLE, 0).X
    importance = bo.column_importance(model, sample)
    np.testing.assert_allclose(report.importance.importance, importance.importance)
    first = int(importance.order[0])
    dependence = report.dependence[0]
    assert dependence.column == importance.columns[first]
    mean = []
    for value in dependence.grid_values:
        rows = sample.copy()
        rows[:, first] = value
        mean.append(model.predict(rows))
    lines = np.array(mean) - np.mean(mean, axis=0)
    np.testing.assert_allclose(dependence.average[0], np.mean(mean, axis=1))
    np.testing.assert_allclose(dependence.error[0], lines.std(axis=1) / N_SAMPLE**0.5)
    assert f"Mean prediction against {importance.columns[first]}" in page_of("ridge")
    assert importance.table()[1][0] in read(page_of("ridge")).cells
    assert len(report.to_dict()["dependence"]) == 2


@pytest.mark.usefixtures("no_pictures")
def test_pages_of_many_columns_suggest_another_importance():
    rows = np.random.default_rng(0).normal(size=(40, 513))
    model = bo.KernelRidge(Gaussian(30.0), n_features=8, random_state=0).fit(rows, rows[:, 0])
    report = brief(model, rows, rows[:, 0])
    assert report.importance is None
    assert report.dependence == ()
    assert 'column_importance(model, X, by="gradient")' in unescape(report.to_html())


def test_text_of_users_is_escaped():
    table = pd.DataFrame(X, columns=["<script>alert(1)</script>", "a & b"])
    labels = np.where(TARGETS["label"] == "above", "<b>up</b>", "down")
    model = bo.KernelRidgeClassifier(**COMMON).fit(table, labels)
    report = report_model(model, table, labels, n_sample=N_SAMPLE, source="<i>x</i>")
    reader = read(report.to_html())
    assert not {"script", "i"} & set(reader.tags)
    assert "<script>alert(1)</script>" in "".join(reader.text)
    assert "<b>up</b>" in "".join(reader.text)


# --- the numbers ---------------------------------------------------------------------------------


def test_leave_one_out_predictions_are_those_of_the_fit():
    model, residuals = fitted("fourier"), report_of("fourier").quality.residuals
    predicted = model.fit_.left_out().predicted[:, 0]
    assert report_of("fourier").quality.left_out == N
    np.testing.assert_allclose(residuals.y_pred, predicted)
    error = report_of("fourier").quality.errors["target"]
    square = np.mean((Y - predicted) ** 2)
    assert error["loo_rmse"] == pytest.approx(np.sqrt(square))
    assert error["loo_r_squared"] == pytest.approx(1 - square / Y.var())


@pytest.mark.parametrize("name", ["svr", "several"])
def test_errors_of_regression_are_those_of_the_predictions(name):
    error = next(iter(report_of(name).quality.errors.values()))
    square = np.mean((Y - fitted(name).predict(X).reshape(N, -1)[:, 0]) ** 2)
    assert error["rmse"] == pytest.approx(np.sqrt(square))
    assert error["r_squared"] == pytest.approx(1 - square / Y.var())


def test_errors_of_labels_are_those_of_the_predictions():
    model, report, y = fitted("svc"), report_of("svc"), TARGETS["labels"]
    error = next(iter(report.quality.errors.values()))
    assert error["accuracy"] == pytest.approx(np.mean(model.predict(X) == y))
    text = page_of("svc").partition("most frequent label")[2]
    assert f">{number(error['majority'], 4)}<" in re.sub(r"\s", "", text)
    table = pd.crosstab(y, model.predict(X)).reindex(columns=model.classes_, fill_value=0)
    np.testing.assert_array_equal(report.quality.confusion, table)


@pytest.mark.slow
def test_rows_of_the_fit_are_recognised():
    for name in ("ridge", "process", "ridge classifier", "several"):
        assert report_of(name).is_training is True
        assert "rows of the fit" in page_of(name)
        other = brief(fitted(name), X[::2], TARGETS[LEARNERS[name][2]][::2])
        assert other.is_training is False
        assert not other.quality.left_out
    assert brief(fitted("ridge"), X, Y + 1e-3).is_training is False
    assert report_of("svr").is_training is None
    assert "keeps no record of its rows" in page_of("svr")


def test_listed_rows_have_the_largest_errors():
    rows = report_of("ridge").rows.worst
    worst = np.argsort(-np.abs(Y - fitted("ridge").predict(X)))[:8].tolist()
    assert [row.number for row in rows] == worst
    assert np.array_equal([row.x for row in rows], X[worst])
    model, y = fitted("svc"), TARGETS["labels"]
    f, is_label = model.decision_function(X), y[:, None] == model.classes_
    excess = np.where(is_label, -np.inf, f).max(axis=1) - f[is_label]
    assert [row.number for row in report_of("svc").rows.worst] == np.argsort(-excess)[:8].tolist()


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.main_cases(1)
@pytest.mark.parametrize("form", ["frame", "blocks", "file"])
def test_listed_rows_show_the_columns_of_the_raw_table(form, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=80),
            "colour": rng.choice(["red", "green"], 80),
            "day": pd.Timestamp("2024-02-28") + pd.to_timedelta(rng.integers(0, 90, 80), unit="D"),
            "empty": [None] * 80,
        }
    )
    table.loc[::7, "size"] = np.nan
    y = np.where(table["size"] > 0, "up", "down")
    model = bo.KernelRidgeClassifier(Gaussian(2.0), n_features=16, random_state=0)
    with pytest.warns(DataWarning, match="left out: 'empty'"):
        model.fit(table, y)
    complete = table.assign(y=y)
    complete.to_csv(tmp_path / "rows.csv", index=False)
    source = {
        "frame": (table, y),
        "blocks": (Blocks.from_table(complete, target="y", block_rows=30),),
        "file": (Blocks.from_files(tmp_path / "rows.csv", target="y"),),
    }[form]
    report = brief(model, *source)
    assert report.rows.columns == ("size", "colour", "day")
    rows = report.rows.worst
    for row in rows:
        size, colour, day = table.iloc[row.number, :3]
        assert row.x[0] is None if np.isnan(size) else row.x[0] == pytest.approx(size)
        assert row.x[1] == colour
        assert str(row.x[2]).startswith(f"{day:%Y-%m-%d}")
    cells = read(report.to_html()).cells
    head = next(line for line in cells if line[:1] == ["row"])
    assert head[-3:] == ["size", "colour", "day"]
    line = cells[cells.index(head) + 1]
    assert line[-2] == rows[0].x[1]
    assert line[-3] == number(rows[0].x[0], 4)


@pytest.mark.usefixtures("no_pictures")
def test_reports_are_independent_of_blocks_and_sparse_formats():
    model, zeros = fitted("ridge"), np.where(np.abs(X) > 1, X, 0.0)
    blocks = [brief(model, Blocks.from_arrays(X, Y, block_rows=b)) for b in (90, 7)]
    formats = [brief(model, make(zeros), Y) for make in (np.asarray, scipy.sparse.csr_array)]
    for first, other in (blocks, formats):
        rmse = first.quality.errors["target"]["rmse"]
        assert other.quality.errors["target"]["rmse"] == pytest.approx(rmse)
        assert other.is_training == first.is_training
        lists = ([r.number for r in report.rows.worst] for report in (first, other))
        assert next(lists) == next(lists)
    read(formats[1].to_html())


@pytest.mark.usefixtures("no_pictures")
def test_a_random_sample_of_many_rows_is_examined(monkeypatch):
    monkeypatch.setattr("bochner.report.quality.MAX_ROWS", 1)
    monkeypatch.setattr("bochner.report.quality.FEWEST_ROWS", 40)
    model = fitted("svr")
    report = brief(model, X, Y, n_sample=16)
    sample = Blocks.from_arrays(X, Y).sample(40, 0).index
    assert (report.rows.n_rows, report.rows.n_evaluated) == (N, 40)
    squares = (Y[sample] - model.predict(X[sample])) ** 2
    assert report.quality.errors["target"]["rmse"] == pytest.approx(np.sqrt(squares.mean()))
    assert {row.number for row in report.rows.worst} <= set(sample.tolist())
    assert "On 40 random rows" in report.to_html()


@pytest.mark.usefixtures("no_pictures")
def test_pages_without_targets_or_rows_state_what_is_missing():
    report = brief(fitted("svc"), X[:20])
    assert report.quality.errors == {}
    assert "so there are no errors" in report.to_html()
    report = brief(fitted("ridge"), X[:20])
    assert not report.rows.worst
    read(report.to_html())
    report = report_model(fitted("ridge"), X[:1], Y[:1])
    assert report.certificate is None
    page = report.to_html()
    assert "must have at least 2 rows" in unescape(page)
    read(page)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", ["ridge", "svc", "process", "clusters"])
def test_code_on_the_page_gives_the_same_learner(name):
    code = unescape(re.search(r"<pre><code>(.*?)</code>", page_of(name), re.DOTALL)[1])
    assert code == report_of(name).fit["code"]
    names = {}
    exec(code, names)  # noqa: S102
    repeat = names["model"].fit(X, TARGETS[LEARNERS[name][2]])
    np.testing.assert_array_equal(repeat.predict(X), fitted(name).predict(X))


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_the_page_and_prints_numbers(tmp_path, capsys):
    folder, out = tmp_path, tmp_path / "ridge.html"
    table = pd.DataFrame(X, columns=["a", "b"]).assign(sort=TARGETS["labels"], y=Y)
    table.to_parquet(folder / "rows.parquet")
    fit = f"fit {folder}/rows.parquet --features 16 --lengthscale 1 --quiet --target y"
    assert run(f"{fit} --out {folder}/ridge.bochner".split()) == 0
    line = f"report {folder}/ridge.bochner {folder}/rows.parquet --out {out}"
    assert run(f"{line} --json".split()) == 0
    result, page = json.loads(capsys.readouterr().out), out.read_text(encoding="utf-8")
    assert result["is_training"] is True
    assert result["page"] == str(out.resolve())
    for words in (number(result["errors"]["y"]["loo_rmse"], 3), "KernelRidge of y", "sort=high"):
        assert words in page
    assert f"$ bochner report {folder}/ridge.bochner" in unescape(page)
    assert run(f"{line} --rows 32".split()) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "leave-one-out RMSE" in out
    assert re.search(r"importance +[ab] .* % of the standard deviation of predictions \(not", out)


# --- pictures and text ---------------------------------------------------------------------------


def test_pictures_are_reproducible_and_their_text_is_escaped():
    def draw(ax):
        ax.loglog([1, 10, 100], [0.1, 1, 10], "o-", label="a < b & c")
        ax.legend()

    page = picture("one <line>", draw)
    assert page == picture("one <line>", draw)
    ((title, svg),) = drawings(page)
    assert title == "one &lt;line&gt;"
    assert "a &lt; b &amp; c" in svg


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_missing_package_raises_with_its_extra(monkeypatch, missing):
    report = report_of("ridge")
    monkeypatch.setitem(sys.modules, missing, None)
    remedy = rf'needs the package {missing}, which is not .*: pip install "bochner\[report\]"'
    with pytest.raises(MissingDependency, match=remedy):
        report.to_html()


def test_numbers_are_formatted_for_readers():
    for value, text in (
        (12345.6, "12,346"),
        (-0.5, "−0.5000"),
        (3.0, "3"),
        (1.25e-7, "1.25\u00a0×\u00a010⁻⁷"),
        (float("nan"), "–"),
        (None, "–"),
        (999.99, "1000"),
    ):
        assert number(value) == text
    assert round_numbers("Gaussian(lengthscale=2.3080414215)") == "Gaussian(lengthscale=2.308)"


# --- the demo ----------------------------------------------------------------------------------


def coarse_earth():
    """Return the Earth with every fourth row and column of cells."""
    earth = datasets.load_earth()
    cells = np.arange(64800).reshape(180, 360)[::4, ::4].ravel()
    parts = {name: getattr(earth, name)[cells] for name in ("X", "y", "latitude", "longitude")}
    return replace(earth, **parts)


@pytest.fixture
def one_method(monkeypatch):
    """Make demos of coarse cells and a single method."""
    monkeypatch.setattr("bochner.report.demo.load_earth", coarse_earth)
    for name in ("METHODS", "CURVES"):
        monkeypatch.setattr(f"bochner.report.demo.{name}", METHODS[:1])


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return result, printed lines and page of a quick demo on coarse cells."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.report.demo.load_earth", coarse_earth)
        out = tmp_path_factory.mktemp("demo") / "new" / "folder"
        result = run_demo(out, quick=True, seed=3, show=lines.append)
    return result, lines, (out / "earth.html").read_text(encoding="utf-8")


def test_the_demo_is_a_complete_page_without_scripts(demo):
    reader = read_complete(demo[2])
    assert reader.tags.count("table") == 2
    assert "$" not in re.sub(r"\$ bochner demo", "", "".join(reader.text))
    assert len(drawings(demo[2])) == 4  # three maps and the curves


def test_the_first_table_has_the_results(demo):
    result, _, page = demo
    header, *rows = read(page, exclusions=["small"]).cells[:8]
    assert header == ["Method", "Test RMSE, m", "R²", "Seconds", "Kernel error, %", "ε"]
    assert len(rows) == len(result["methods"]) == 7
    for cells, row in zip(rows, result["methods"], strict=True):
        assert cells[0] == row["name"]
        assert float(cells[1].replace(",", "")) == round(row["rmse"])
        assert float(cells[2]) == pytest.approx(row["r_squared"], abs=5.1e-4)
        assert float(cells[3]) == pytest.approx(row["seconds"], abs=0.051)
        if row["epsilon"] is None:
            assert cells[4:] == ["–", "–"]
        else:
            assert float(cells[4]) == pytest.approx(100 * row["frobenius"], abs=0.051)
            assert float(cells[5]) == pytest.approx(row["epsilon"], rel=6e-3)


def test_the_second_table_has_harmonics_and_neighbours(demo):
    result, lines, page = demo
    header, *rows = read(page, exclusions=["small"]).cells[8:]
    assert header == ["Model", "Size", "Test RMSE, m", "Seconds"]
    assert len(rows) == len(result["near"]) == 4
    for cells, row in zip(rows, result["near"], strict=True):
        assert cells[:2] == [row["name"], row["detail"]]
        assert float(cells[2].replace(",", "")) == round(row["rmse"])
        assert any(row["name"] in line and f"{row['rmse']:.0f} m" in line for line in lines)
    assert result["near"][1]["detail"] == "256 harmonics"  # degree 15, of 23 rows of cells
    assert result["near"][2]["rmse"] < result["near"][0]["rmse"] < result["methods"][0]["rmse"]
    assert "'evidence'" not in result["near"][2]["code"]  # quick: hyperparameters are not fitted


def test_numbers_are_of_held_out_cells_only(demo):
    result, lines, _ = demo
    *rows, other = result["methods"]
    assert "scikit-learn" in other["name"]
    assert other["epsilon"] is None
    assert all(row["epsilon"] is not None for row in rows)
    held_out, best = result["maps"]["held_out"], result["best"]
    assert held_out.sum() == result["test_rows"] == held_out.size // 10
    assert result["train_rows"] + result["test_rows"] == held_out.size
    errors, truth = (
        (result["maps"]["prediction"] - result["maps"]["truth"])[held_out],
        result["maps"]["truth"][held_out],
    )
    assert best["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    assert best["r_squared"] == pytest.approx(1 - np.mean(errors**2) / truth.var(), rel=1e-6)
    assert best["loo"] <= min(r["loo"] for r in result["methods"] if r["name"] == best["name"])
    assert best["rmse"] in next(c["rmse"] for c in result["curves"] if c["name"] == best["name"])
    assert all(row["r_squared"] > 0.6 for row in result["methods"])
    assert all(c["rmse"][-1] < c["rmse"][0] for c in result["curves"])
    assert lines[-1] == f"Wrote {result['page']}"
    for row in result["methods"]:
        line = next(line for line in lines if line.strip().startswith(row["name"] + "  "))
        assert f"{row['rmse']:.0f} m" in line
        assert (row is other) or line.endswith(f"ε {number(row['epsilon'], 3)}")


def test_code_of_the_demo_gives_the_same_model(demo):
    result, _, page = demo
    code = unescape(re.search(r"<code>(\$ bochner.*?)</code>", page, re.DOTALL)[1])
    shell, python = code.split("\n\n", 1)
    assert shell == "$ bochner demo --seed 3 --quick"
    setup, fit = python.split(").fit(")
    names = {}
    exec(setup.replace("earth = load_earth()", "") + ")", names)  # noqa: S102
    assert "predict" in fit
    model = names["model"]
    assert repr(model.kernel) == result["kernel"]
    assert repr(model.method) == result["best"]["code"]
    assert (model.n_features, model.random_state) == (result["best"]["n_features"], 3)


def test_text_of_the_demo_is_escaped(demo):
    row = demo[0]["methods"][0] | {"name": "<script>alert(1)</script> & \"'"}
    methods = [row, *demo[0]["methods"][1:]]
    result = demo[0] | {"methods": methods, "certificate_words": "a < b <img src=x>"}
    reader = read(earth_page(result), exclusions=["small"])
    assert "script" not in reader.tags
    assert "a < b <img src=x>" in "".join(reader.text)
    assert reader.cells[1][0] == row["name"]


@pytest.mark.usefixtures("one_method")
def test_the_command_line_prints_the_numbers_of_the_demo_with_its_seed(demo, tmp_path, capsys):
    page = str(tmp_path / "relief.html")
    line = ["demo", "--out", page, "--quick", "--seed", "3"]
    assert run([*line, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    best, (first, other) = result["best"], result["methods"]
    assert first["rmse"] == best["rmse"] == pytest.approx(demo[0]["methods"][0]["rmse"], rel=1e-9)
    assert (result["page"], other["loo"]) == (page, None)
    assert run(line) == 0
    out, err = capsys.readouterr()
    assert f"{best['name']}, 256 features: RMSE {number(best['rmse'])} m, R² 0." in out
    assert f"certificate  {result['certificate_words']}\n" in out
    assert err.endswith(f"Wrote {page}\n")
    assert run([*line, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_invalid_folder_raises_before_the_computation(tmp_path, monkeypatch):
    fail = lambda: pytest.fail("computed before the folder was checked")
    monkeypatch.setattr("bochner.report.demo.load_earth", fail)
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(DataFileError, match=r"cannot be written: .*Check the folder and its perm"):
        run_demo(file / "folder", quick=True)
    assert file.read_text() == "in the way"


def test_the_map_has_its_colours_and_north_at_the_top(demo):
    result, _, page = demo
    title, figure = drawings(page)[0]
    assert title == "Relief as measured, m"
    address = re.search(r'<image [^>]*href="data:image/png;base64,([^"]+)"', figure, re.DOTALL)[1]
    pixels = image.imread(BytesIO(base64.b64decode(address)))[..., :3]
    assert pixels.shape[:2] == result["maps"]["truth"].shape
    expected = colours(RELIEF)(TwoSlopeNorm(0, -7500, 6000)(result["maps"]["truth"][::-1]))[..., :3]
    flipped = re.search(r"<image [^>]*(scale\(1 -1\)|matrix\([\d.]+ 0 0 -)", figure, re.DOTALL)
    assert np.abs((pixels[::-1] if flipped else pixels) - expected).max() < 0.01
