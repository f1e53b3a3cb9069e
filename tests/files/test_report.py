"""The report of a model and the demo: their numbers hold, their pages show them by themselves."""

import base64
import json
import re
import sys
from dataclasses import replace
from html import unescape
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from matplotlib import image
from matplotlib.colors import TwoSlopeNorm
from pages import drawings, read
from sklearn.metrics import log_loss, roc_auc_score

import bochner as bo
from bochner import Blocks, datasets
from bochner.cli.running import run
from bochner.errors import DataFileError, DataWarning, InvalidInput, InvalidType, MissingDependency
from bochner.kernels import Gaussian
from bochner.report import report_model, run_demo
from bochner.report.demo import METHODS, relief_around
from bochner.report.demo_page import ERROR, RELIEF, colours, earth_page
from bochner.report.render import number, picture, rounded

# ==== The report of a model: its numbers hold, and its page shows them by itself.


N, SHOWN = 90, 64
LETTER = 0.52  # width of a letter as a share of its size, on average in sans-serif fonts


# --- learners ------------------------------------------------------------------------------------

COMMON = {"kernel": Gaussian(1.0), "n_features": 16, "random_state": 0}
LEARNERS = {
    "ridge": (bo.KernelRidge, {}, "number"),
    "fourier": (bo.KernelRidge, {"method": "fourier"}, "number"),
    "several": (bo.KernelRidge, {"alpha_per_target": True}, "numbers"),
    "exact": (bo.KernelRidge, {"method": "exact", "alpha": 0.5}, "number"),
    "ridge classifier": (bo.KernelRidgeClassifier, {}, "labels"),
    "process": (bo.GaussianProcessRegressor, {}, "number"),
    "svc": (bo.SVC, {}, "labels"),
    "logistic": (bo.LogisticRegression, {}, "label"),
    "svr": (bo.SVR, {}, "number"),
    "quantiles": (bo.KernelRegressor, {"loss": "quantile"}, "number"),
    "one class": (bo.OneClassSVM, {"nu": 0.1}, None),
    "clusters": (bo.KernelKMeans, {"n_clusters": 3}, None),
    "components": (bo.KernelPCA, {"n_components": 2}, None),
    "sgd": (bo.KernelSGDClassifier, {"max_iter": 30, "tol": None}, "label"),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N)
    label = np.where(y > 0, "above", "below")
    labels = np.where(y > 1, "high", np.where(y < -1, "low", "mid"))
    return X, {
        None: None,
        "number": y,
        "numbers": np.c_[y, 3 * y],
        "label": label,
        "labels": labels,
    }


@pytest.fixture(scope="module")
def reports(rows):
    """A report of every learner on the rows of its fit, and the learner."""
    X, targets = rows
    found = {}
    for name, (kind, more, target) in LEARNERS.items():
        model = kind(**COMMON | more).fit(X, targets[target])
        found[name] = (
            model,
            report_model(
                model, X, targets[target], n_sample=SHOWN, widths=[8, 16], exact=name == "ridge"
            ),
        )
    return found


@pytest.fixture(scope="module")
def pages(reports):
    return {name: report.to_html() for name, (_, report) in reports.items()}


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("name", LEARNERS)
def test_page_is_whole_balanced_and_fetches_nothing(pages, name):
    page, reader = pages[name], read(pages[name])
    tags, names = reader.tags, dict(reader.attrs)
    assert tags.count("html") == tags.count("body") == tags.count("h1") == tags.count("main") == 1
    assert not {"script", "link", "iframe", "object", "embed", "base", "a"} & set(tags)
    assert not {"srcset", "xlink:href", "data", "style"} & set(names)
    sources = [value for key, value in reader.attrs if key == "src"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not any(key.startswith("on") for key in names)
    ids = [value for key, value in reader.attrs if key == "id"]
    inside = [value for key, value in reader.attrs if key == "href"]
    assert {*inside, *re.findall(r"url\(([^)]*)", page)} <= {f"#{name}" for name in ids}
    assert not re.search(r"@import|http", page)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert len(set(ids)) == len(ids)
    assert "nan" not in re.findall(
        r"[a-z]+", " ".join(cell for row in reader.cells for cell in row)
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_pictures_have_titles_and_all_text_is_inside_and_apart(pages, name):
    for title, drawing in drawings(pages[name]):
        assert title
        assert 'viewBox="0 0 345.6 230.4"' in drawing
        assert not re.search(r"\bnan\b|\binf\b", drawing)
        assert crowded(drawing) == []


def crowded(drawing):
    """Texts of a drawing that leave it, or touch another."""
    boxes = []
    for attributes, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", drawing):
        x, y = (float(re.search(rf'\b{axis}="([-\d.]+)"', attributes)[1]) for axis in "xy")
        style = re.search(r'style="(.*?)"', attributes)[1]
        size = float(re.search(r"font(?:-size)?: ([\d.]+)px", style)[1])
        width = LETTER * size * len(unescape(text))
        before = {"middle": width / 2, "end": width}.get(re.search(r"anchor: (\w+)", style)[1], 0)
        box = (-before, width - before, -0.75 * size, 0.2 * size)
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
        others = boxes[i + 1 :]
        bad += [f"{text} on {t}" for e, f, g, h, t in others if a < f and e < b and c < h and g < d]
    return bad


def test_planted_crowd_is_seen():
    text = '<text style="font-size: 10px; text-anchor: start" x="{}" y="20">{}</text>'
    assert crowded(text.replace("{}", "330", 1).replace("{}", "long")) == ["long"]
    one = text.replace("{}", "9", 1).replace("{}", "one")
    assert len(crowded(one + one.replace("9", "12").replace("one", "two"))) == 1


@pytest.mark.parametrize("name", LEARNERS)
def test_page_has_the_parts_that_apply(reports, pages, name):
    model, report = reports[name]
    sections = re.findall(r'<section id="(\w+)"', pages[name])
    assert sections[:3] == ["fit", "kernel", "widths"]
    assert sections[-2:] == ["cost", "again"]
    assert ("penalty" in sections) == (report.path is not None)
    assert ("spectrum" in sections) == (report.spectrum is not None)
    assert ("predictions" in sections) == (LEARNERS[name][2] is not None)
    assert (
        ("columns" in sections)
        == (report.importance is not None)
        == (LEARNERS[name][2] is not None)
    )
    assert type(model).__name__ in pages[name]


def test_tables_show_the_numbers_of_the_report(reports, pages):
    _, report = reports["ridge"]
    cells = read(pages["ridge"]).cells
    found = report.quality.errors["target"]
    assert ["target", *(number(v) for v in found.values())] in cells
    for D, error, kernel in zip(
        report.widths.widths, report.widths.errors, report.widths.kernel_errors, strict=True
    ):
        assert any(
            row[:3] == [str(D), number(error, 3), number(kernel, 3)]
            for row in cells
            if len(row) > 2
        )
    worst = report.seen.lists[0].rows[0]
    assert any(row[:2] == [str(worst.number), number(worst.value, 3)] for row in cells)
    assert any(row[0] == "ε, spectral" for row in cells)
    assert report.certificate_words in "".join(read(pages["ridge"]).text)


def test_columns_are_measured_as_by_the_functions_and_shown(rows, reports, pages):
    model, report = reports["ridge"]
    sample = Blocks.from_arrays(rows[0]).sample(SHOWN, 0).X
    found = bo.column_importance(model, sample)
    np.testing.assert_allclose(report.importance.importance, found.importance)
    first = found.columns[found.order[0]]
    shown = bo.partial_dependence(
        model, sample, int(found.order[0]), grid_resolution=25, n_rows=256
    )
    assert report.dependence[0].columns == (first,)
    np.testing.assert_allclose(report.dependence[0].average, shown.average)
    assert f"Mean prediction against {first}" in pages["ridge"]
    assert found.table()[1][0] in read(pages["ridge"]).cells
    assert len(report.to_dict()["dependence"]) == 2


def test_many_columns_are_ranked_another_way_and_said_to_be():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 513))
    model = bo.KernelRidge(Gaussian(30.0), n_features=8, random_state=0).fit(X, X[:, 0])
    report = report_model(model, X, X[:, 0], widths=[8], exact=False)
    assert report.importance is None
    assert report.dependence == ()
    assert 'column_importance(model, X, by="gradient")' in unescape(report.to_html())


def test_text_from_outside_is_escaped(rows):
    X, targets = rows
    table = pd.DataFrame(X, columns=["<script>alert(1)</script>", "a & b"])
    labels = np.where(targets["label"] == "above", "<b>up</b>", "down")
    model = bo.KernelRidgeClassifier(**COMMON).fit(table, labels)
    page = report_model(model, table, labels, n_sample=SHOWN, source="<i>x</i>").to_html()
    reader = read(page)
    assert not {"script", "b", "i"} - {"b"} & set(reader.tags)
    assert "<script>alert(1)</script>" in "".join(reader.text)
    assert "<b>up</b>" in "".join(reader.text)


# --- the numbers ---------------------------------------------------------------------------------


def test_left_out_predictions_are_those_of_fits_without_the_row(rows, reports):
    X, targets = rows
    model, report = reports["ridge"]
    y, Z = targets["number"], np.asarray(model.map_(X))
    predicted = []
    for i in range(N):
        rest = np.arange(N) != i
        mean, level = Z[rest].mean(axis=0), y[rest].mean()
        G = (Z[rest] - mean).T @ (Z[rest] - mean) + model.alpha_ * np.eye(Z.shape[1])
        predicted.append(
            level + (Z[i] - mean) @ np.linalg.solve(G, (Z[rest] - mean).T @ (y[rest] - level))
        )
    sample = np.isin(y, report.quality.residuals.observed)
    assert report.quality.left_out
    assert sample.sum() == SHOWN
    np.testing.assert_allclose(report.quality.residuals.predicted, np.array(predicted)[sample])
    whole = report_model(model, X, y, widths=[8], exact=False)
    squares = (y - np.array(predicted)) ** 2
    assert whole.quality.errors["target"]["loo_rmse"] == pytest.approx(np.sqrt(squares.mean()))
    assert whole.quality.errors["target"]["loo_r_squared"] == pytest.approx(
        1 - squares.mean() / y.var()
    )


def test_errors_are_those_of_the_predictions(rows, reports):
    X, targets = rows
    for name, target in (("svr", "number"), ("svc", "labels"), ("several", "numbers")):
        model, report = reports[name]
        found, y = model.predict(X), targets[target]
        first = next(iter(report.quality.errors.values()))
        if target == "labels":
            assert first["accuracy"] == pytest.approx(np.mean(found == y))
            most = np.unique(y, return_counts=True)[1].max() / len(y)
            assert first["majority"] == pytest.approx(most)
            p, f = model.predict_proba(X), model.decision_function(X)
            assert first["log_loss"] == pytest.approx(log_loss(y, p, labels=model.classes_))
            areas = [roc_auc_score(y == c, f[:, k]) for k, c in enumerate(model.classes_)]
            assert first["auc"] == pytest.approx(np.mean(areas))
            shown = report.to_html().partition("most frequent label")[2]
            assert f">{number(most, 4)}<" in re.sub(r"\s", "", shown)
            table = pd.crosstab(y, found).reindex(columns=model.classes_, fill_value=0)
            np.testing.assert_array_equal(report.quality.confusion, table)
        else:
            f, y = (a.reshape(N, -1)[:, 0] for a in (found, y))
            assert first["rmse"] == pytest.approx(np.sqrt(np.mean((y - f) ** 2)))
            assert first["r_squared"] == pytest.approx(1 - np.mean((y - f) ** 2) / y.var())


@pytest.mark.slow
def test_rows_of_the_fit_are_known_from_others(rows, reports):
    X, targets = rows
    y = targets["number"]
    for name in ("ridge", "process", "ridge classifier", "several"):
        model, report = reports[name]
        target = targets[LEARNERS[name][2]]
        assert report.rows_of_fit is True
        assert "rows of the fit" in report.to_html()
        other = report_model(model, X[::2], target[::2], widths=[8], exact=False)
        assert other.rows_of_fit is False
        assert not other.quality.left_out
    moved = report_model(reports["ridge"][0], X, y + 1e-3, widths=[8], exact=False)
    assert moved.rows_of_fit is False
    assert reports["svr"][1].rows_of_fit is None
    assert "keeps no record of its rows" in reports["svr"][1].to_html()


def test_rows_to_look_at_are_the_worst_of_all(rows, reports):
    X, targets = rows
    model, report = reports["ridge"]
    unsure, missed = report.seen.lists
    errors = np.abs(targets["number"] - model.predict(X))
    Z = np.asarray(model.map_(X)) - np.asarray(model.map_(X)).mean(axis=0)
    inverse = np.linalg.inv(Z.T @ Z + model.alpha_ * np.eye(Z.shape[1]))
    leverage = np.einsum("ij,jk,ik->i", Z, inverse, Z) + 1 / N
    for shown, value in ((missed, errors), (unsure, leverage)):
        assert [row.number for row in shown.rows] == np.argsort(-value)[:8].tolist()
    spread = [row.value for row in unsure.rows] / np.sqrt(np.sort(leverage)[::-1][:8])
    np.testing.assert_allclose(spread, spread[0])
    np.testing.assert_array_equal(
        [row.x for row in missed.rows], X[[r.number for r in missed.rows]]
    )


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("form", ["frame", "blocks", "file"])
def test_rows_to_look_at_show_the_columns_of_a_table_as_they_were_given(form, tmp_path):
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
    whole = table.assign(y=y)
    whole.to_csv(tmp_path / "rows.csv", index=False)
    given = {
        "frame": (table, y),
        "blocks": (Blocks.from_table(whole, target="y", block_rows=30),),
        "file": (Blocks.from_files(tmp_path / "rows.csv", target="y"),),
    }[form]
    report = report_model(model, *given, widths=[8], exact=False)
    assert report.seen.columns == ("size", "colour", "day")
    rows = [row for one in report.seen.lists for row in one.rows]
    for row in rows:
        size, colour, day = table.iloc[row.number, :3]
        assert row.x[0] is None if np.isnan(size) else row.x[0] == pytest.approx(size)
        assert row.x[1] == colour
        assert str(row.x[2]).startswith(f"{day:%Y-%m-%d}")
    shown = read(report.to_html()).cells
    head = next(line for line in shown if line[:1] == ["row"])
    assert head[-3:] == ["size", "colour", "day"]
    line = shown[shown.index(head) + 1]
    assert line[-2] == rows[0].x[1]
    assert line[-3] == number(rows[0].x[0], 4)


def test_block_size_changes_nothing(rows, reports):
    X, targets = rows
    y, model = targets["number"], reports["ridge"][0]
    whole, cut = (
        report_model(model, Blocks.from_arrays(A, y, block_rows=b), n_sample=SHOWN, exact=False)
        for A, b in ((X, 90), (X, 7))
    )
    assert whole.quality.errors["target"]["rmse"] == pytest.approx(
        cut.quality.errors["target"]["rmse"]
    )
    assert [r.number for r in whole.seen.lists[0].rows] == [
        r.number for r in cut.seen.lists[0].rows
    ]


def test_of_many_rows_some_at_random_are_examined(rows, reports, monkeypatch):
    monkeypatch.setattr("bochner.report.quality.MOST_ROWS", 1)
    monkeypatch.setattr("bochner.report.quality.FEWEST_ROWS", 40)
    X, targets = rows
    y, model = targets["number"], reports["svr"][0]
    report = report_model(model, X, y, n_sample=16, widths=[8], exact=False)
    some = Blocks.from_arrays(X, y).sample(40, 0).index
    assert (report.seen.n_rows, report.seen.n_examined) == (N, 40)
    squares = (y[some] - model.predict(X[some])) ** 2
    assert report.quality.errors["target"]["rmse"] == pytest.approx(np.sqrt(squares.mean()))
    assert {row.number for one in report.seen.lists for row in one.rows} <= set(some.tolist())
    assert "On 40 random rows" in report.to_html()


def test_sparse_rows_are_reported_as_dense_ones(rows):
    X, targets = rows
    y, X = targets["number"], np.where(np.abs(rows[0]) > 1, rows[0], 0.0)
    model = bo.KernelRidge(**COMMON).fit(scipy.sparse.csr_array(X), y)
    dense = report_model(model, X, y, n_sample=SHOWN, widths=[8], exact=False)
    sparse = report_model(
        model, scipy.sparse.csr_array(X), y, n_sample=SHOWN, widths=[8], exact=False
    )
    assert sparse.quality.errors["target"]["rmse"] == pytest.approx(
        dense.quality.errors["target"]["rmse"]
    )
    assert sparse.rows_of_fit
    read(sparse.to_html())


def test_without_targets_nothing_is_said_of_errors(rows, reports):
    report = report_model(reports["svc"][0], rows[0][:20], n_sample=SHOWN, widths=[8])
    assert report.quality.errors == {}
    assert "nothing is said of errors" in report.to_html()
    report = report_model(reports["ridge"][0], rows[0][:20], n_sample=SHOWN, widths=[8])
    assert [one.title for one in report.seen.lists][-1] == "Rows whose prediction is least certain"
    read(report.to_html())


def test_a_few_rows_are_a_page_that_says_what_it_lacks(rows, reports):
    report = report_model(reports["ridge"][0], rows[0][:1], rows[1]["number"][:1])
    assert report.certificate is None
    assert report.widths is None
    page = report.to_html()
    assert "At least 16 rows are required" in page
    assert "must have at least 2 rows" in unescape(page)
    read(page)


@pytest.mark.parametrize("name", ["ridge", "svc", "process", "clusters"])
def test_code_on_the_page_makes_the_same_learner(rows, reports, pages, name):
    X, targets = rows
    model, report = reports[name]
    code = unescape(re.search(r"<pre><code>(.*?)</code>", pages[name], re.DOTALL)[1])
    assert code == report.fit.code
    names = {}
    exec(code, names)  # noqa: S102
    again = names["model"].fit(X, targets[LEARNERS[name][2]])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_rows_that_do_not_fit_are_refused(rows, reports):
    X, targets = rows
    with pytest.raises(ValueError, match="X has 1 features, but KernelRidge is expecting 2"):
        report_model(reports["ridge"][0], X[:, :1], targets["number"])
    with pytest.raises(InvalidInput, match="every label must be one of the classes"):
        report_model(reports["svc"][0], X, np.full(N, "other"))
    with pytest.raises(
        InvalidInput, match="report_model: n_sample must be an integer, 16 or above"
    ):
        report_model(reports["ridge"][0], X, targets["number"], n_sample=3)


# --- from the command line -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    folder, (X, targets) = tmp_path_factory.mktemp("report"), rows
    table = pd.DataFrame(X, columns=["a", "b"])
    table["sort"], table["y"], table["label"] = (
        targets["labels"],
        targets["number"],
        targets["label"],
    )
    table.to_parquet(folder / "rows.parquet")
    fit = ["fit", f"{folder}/rows.parquet", "--features", "16", "--lengthscale", "1", "--quiet"]
    ridge = ["--target", "y", "--columns", "a,b,sort", "--out", f"{folder}/ridge.bochner"]
    assert run([*fit, *ridge]) == 0
    svc = [
        "--target",
        "label",
        "--columns",
        "a,b",
        "--model",
        "svc",
        "--out",
        f"{folder}/svc.bochner",
    ]
    assert run([*fit, *svc]) == 0
    return folder


@pytest.mark.slow
def test_command_writes_the_page_and_tells_the_numbers(folder, capsys):
    out = folder / "ridge.html"
    words = ["report", f"{folder}/ridge.bochner", f"{folder}/rows.parquet", "--out", str(out)]
    assert run([*words, "--width", "8", "--width", "16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    page = out.read_text(encoding="utf-8")
    assert told["rows_of_fit"] is True
    assert told["widths"]["widths"] == [8, 16]
    assert told["page"] == str(out.resolve())
    assert number(told["errors"]["y"]["loo_rmse"], 3) in page
    assert "KernelRidge of y" in page
    assert "sort=high" in page
    assert f"$ bochner report {folder}/ridge.bochner" in unescape(page)
    assert run([*words, "--rows", "32", "--width", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "leave-one-out RMSE" in said
    assert re.search(r"driven by [ab] .* % of the deviation of predictions \(they do not add", said)


def test_command_reports_labels_as_words(folder, capsys):
    out = folder / "svc.html"
    words = ["report", f"{folder}/svc.bochner", f"{folder}/rows.parquet", "--out", str(out)]
    assert run([*words, "--width", "8", "--json"]) == 0
    model, table = bo.load(folder / "svc.bochner"), pd.read_parquet(folder / "rows.parquet")
    right = np.mean(model.predict(table[["a", "b"]]) == table.label)
    told = json.loads(capsys.readouterr().out)
    assert told["errors"]["label"]["accuracy"] == pytest.approx(right)
    assert {"above", "below"} <= {
        cell for row in read(out.read_text("utf-8")).cells for cell in row
    }


@pytest.mark.parametrize(
    ("model", "out", "code", "sentence"),
    [
        ("ridge.bochner", "page.txt", 2, "its name must end in .html, .htm"),
        ("ridge.bochner", "no/page.html", 2, "Make it first."),
        ("none.bochner", "page.html", 1, "there is no such file"),
        ("rows.parquet", "page.html", 1, "must be a model file"),
    ],
)
def test_command_refuses_in_a_sentence(folder, capsys, model, out, code, sentence):
    words = ["report", f"{folder}/{model}", f"{folder}/rows.parquet", "--out", f"{folder}/{out}"]
    assert run(words) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (folder / out).exists()


# --- pictures and words --------------------------------------------------------------------------


def test_a_picture_is_the_same_again_and_its_text_is_escaped():
    def draw(ax):
        ax.loglog([1, 10, 100], [0.1, 1, 10], "o-", label="a < b & c")
        ax.legend()

    drawn = picture("one <line>", draw)
    assert drawn == picture("one <line>", draw)
    ((title, svg),) = drawings(drawn)
    assert title == "one &lt;line&gt;"
    assert "a &lt; b &amp; c" in svg


def test_points_lie_where_their_values_are():
    drawn = picture("a line", lambda ax: ax.loglog([1, 10, 100], [1, 2, 4]))
    svg = drawings(drawn)[0][1]
    paths = [path.split("L") for path in re.findall(r'<path d="M ([^"zM]+)" clip-path', svg)]
    line = next(path for path in paths if len(path) == 3)
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in point.split()] for point in line)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.03)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.03)
    assert y2 < y0


def test_names_of_targets_are_no_formulas(reports):
    shown = replace(reports["ridge"][1].quality.residuals, name="cost_{$ <in $")
    for kind in ("residual_vs_predicted", "actual_vs_predicted", "histogram"):
        drawn = picture(kind, lambda ax, kind=kind: shown.plot(ax, kind=kind))
        assert "predicted cost_{$ &lt;in $</text>" in drawings(drawn)[0][1]


def test_clouds_are_thinned(rows, reports):
    _, report = reports["ridge"]
    many = bo.ResidualDisplay.from_predictions(*np.random.default_rng(0).normal(size=(2, 20_000)))
    page = replace(report, quality=replace(report.quality, residuals=many)).to_html()
    for _, drawing in drawings(page):
        assert drawing.count("<use") < 1600


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_a_package_the_page_says_how_to_get_it(reports, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    sentence = (
        rf'needs {missing}, not installed here\. Install with: pip install "bochner\[report\]"'
    )
    with pytest.raises(MissingDependency, match=sentence):
        reports["ridge"][1].to_html()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (-0.5, "−0.5000"),
        (3.0, "3"),
        (1.25e-7, "1.25\u00a0×\u00a010⁻⁷"),
        (float("nan"), "–"),
        (None, "–"),
        (999.99, "1000"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


def test_long_numbers_in_code_are_cut():
    assert rounded("Gaussian(lengthscale=2.3080414215)") == "Gaussian(lengthscale=2.308)"


# ==== The demo runs, and its page shows what was found, by itself.


def coarse_earth():
    """Every fourth row and column of cells."""
    earth = datasets.load_earth()
    kept = np.arange(64800).reshape(180, 360)[::4, ::4].ravel()
    parts = {name: getattr(earth, name)[kept] for name in ("X", "y", "latitude", "longitude")}
    return replace(earth, **parts)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One quick demo on coarse cells: the result, the lines shown, the page."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.report.demo.load_earth", coarse_earth)
        out = tmp_path_factory.mktemp("demo") / "new" / "folder"
        result = run_demo(out, quick=True, seed=3, show=lines.append)
    return result, lines, result.path.read_text(encoding="utf-8")


def test_page_is_whole_and_balanced(demo):
    reader = read(demo[2])
    assert reader.tags.count("html") == reader.tags.count("body") == reader.tags.count("h1") == 1
    assert reader.tags.count("table") == 2
    assert "$" not in re.sub(r"\$ bochner demo", "", "".join(reader.text))


def test_page_fetches_and_runs_nothing(demo):
    reader = read(demo[2])
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(reader.tags)
    ids = [value for name, value in reader.attrs if name == "id"]
    assert len(set(ids)) == len(ids)
    kinds = ("src", "href", "srcset", "xlink:href", "data")
    addresses = [value for name, value in reader.attrs if name in kinds]
    pictures = [a for a in addresses if a.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == 4  # three maps and the curves
    inside = {*addresses, *re.findall(r"url\(([^)]*)", demo[2])} - {*pictures}
    assert inside <= {f"#{name}" for name in ids}
    assert "@import" not in demo[2]
    assert "http" not in demo[2]


def test_table_shows_the_results(demo):
    result, _, page = demo
    header, *rows = read(page, without=["small"]).cells[:8]
    assert header == ["Method", "Test RMSE, m", "R²", "Seconds", "Kernel error, %", "ε"]
    assert len(rows) == len(result.methods) == 7
    for cells, row in zip(rows, result.methods, strict=True):
        assert cells[0] == row.name
        assert float(cells[1].replace(",", "")) == round(row.rmse)
        assert float(cells[2]) == pytest.approx(row.r_squared, abs=5.1e-4)
        assert float(cells[3]) == pytest.approx(row.seconds, abs=0.051)
        if row.epsilon is None:
            assert cells[4:] == ["–", "–"]
        else:
            assert float(cells[4]) == pytest.approx(100 * row.frobenius, abs=0.051)
            assert float(cells[5]) == pytest.approx(row.epsilon, rel=6e-3)


def test_second_table_shows_harmonics_and_neighbours(demo):
    result, lines, page = demo
    header, *rows = read(page, without=["small"]).cells[8:]
    assert header == ["What predicts a cell", "Made of", "Test RMSE, m", "Seconds"]
    assert len(rows) == len(result.near) == 4
    for cells, row in zip(rows, result.near, strict=True):
        assert cells[:2] == [row.name, row.detail]
        assert float(cells[2].replace(",", "")) == round(row.rmse)
        assert any(row.name in line and f"{row.rmse:.0f} m" in line for line in lines)
    assert result.near[1].detail == "256 harmonics"  # degree 15, of 23 rows of cells
    assert result.near[2].rmse < result.near[0].rmse < result.methods[0].rmse
    assert "lengthscale='auto'" in result.near[2].code  # quick: numbers are not searched for


def test_relief_around_a_cell_is_that_of_cells_as_far_away():
    """At 60° north steps along the parallel are two cells, and over the pole rows go on."""
    shape = (6, 12)
    latitude, longitude = np.meshgrid(
        -75 + 30.0 * np.arange(6), -165 + 30.0 * np.arange(12), indexing="ij"
    )
    places = np.stack([latitude.ravel(), longitude.ravel()], axis=1)
    y = np.random.default_rng(0).standard_normal(72) * 100
    found, size = relief_around(places, shape, y, 0 * y)
    heights = (found[:, :-2] * size[:, None]).reshape((*shape, 48))
    grid = y.reshape(shape)
    offsets = [(a, b) for a in range(-3, 4) for b in range(-3, 4) if a or b]
    beside, over = offsets.index((0, 1)), offsets.index((3, 0))
    np.testing.assert_allclose(heights[3, 2, beside], grid[3, 3])  # 15° north: one cell
    np.testing.assert_allclose(heights[5, 2, beside], grid[5, 6])  # 75°: four
    np.testing.assert_allclose(heights[4, 2, over], grid[4, 8])  # 45°, 90° further north
    np.testing.assert_allclose(size, np.sqrt((heights**2).mean(axis=2)).ravel() + 20)


def test_only_the_rival_has_no_certificate(demo):
    *own, rival = demo[0].methods
    assert all(row.epsilon is not None for row in own)
    assert "scikit-learn" in rival.name
    assert rival.epsilon is None


def test_numbers_are_of_held_out_cells_only(demo):
    result = demo[0]
    held_out = result.held_out
    assert held_out.sum() == result.n_test == held_out.size // 10
    assert result.n_train + result.n_test == held_out.size
    errors = (result.prediction - result.truth)[held_out]
    truth = result.truth[held_out]
    assert result.best.rmse == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    assert result.best.r_squared == pytest.approx(1 - np.mean(errors**2) / truth.var(), rel=1e-6)


def test_maps_show_the_fit_of_least_leave_one_out_error(demo):
    result = demo[0]
    assert result.best.loo <= min(r.loo for r in result.methods if r.name == result.best.name)
    curve = next(c for c in result.curves if c.name == result.best.name)
    assert result.best.rmse in curve.rmse


def test_learning_beats_the_mean_by_far(demo):
    assert all(row.r_squared > 0.6 for row in demo[0].methods)
    assert all(c.rmse[-1] < c.rmse[0] for c in demo[0].curves)


def test_lines_end_with_the_path_of_the_page(demo):
    result, lines, _ = demo
    assert lines[-1] == f"Wrote {result.path}"
    shown = "\n".join(lines)
    assert all(row.name in shown and f"{row.rmse:.0f} m" in shown for row in result.methods)


def test_code_on_the_page_makes_the_same_model(demo):
    result, _, page = demo
    code = unescape(re.search(r"<code>(\$ bochner.*?)</code>", page, re.DOTALL)[1])
    shell, python = code.split("\n\n", 1)
    assert shell == "$ bochner demo --seed 3 --quick"
    setup, fit = python.split(").fit(")
    names = {}
    exec(setup.replace("earth = load_earth()", "") + ")", names)  # noqa: S102
    assert "predict" in fit
    model = names["model"]
    assert repr(model.kernel) == result.kernel
    assert repr(model.method) == result.best.code
    assert (model.n_features, model.random_state) == (result.best.n_features, 3)


def test_text_from_outside_is_escaped_on_its_page(demo):
    nasty = replace(demo[0].methods[0], name="<script>alert(1)</script> & \"'")
    result = replace(
        demo[0], methods=(nasty, *demo[0].methods[1:]), certificate="a < b <img src=x>"
    )
    reader = read(earth_page(result), without=["small"])
    assert "script" not in reader.tags
    assert "a < b <img src=x>" in "".join(reader.text)
    assert reader.cells[1][0] == nasty.name


def test_the_same_seed_gives_the_same_numbers(demo, tmp_path, monkeypatch):
    monkeypatch.setattr("bochner.report.demo.load_earth", coarse_earth)
    monkeypatch.setattr("bochner.report.demo.METHODS", METHODS[:1])
    monkeypatch.setattr("bochner.report.demo.CURVES", METHODS[:1])
    again = run_demo(tmp_path, quick=True, seed=3)
    assert again.methods[0].rmse == pytest.approx(demo[0].methods[0].rmse, rel=1e-9)
    np.testing.assert_array_equal(again.held_out, demo[0].held_out)


def test_lines_may_go_to_an_object_that_prints(tmp_path, monkeypatch):
    class Console:
        lines = []  # noqa: RUF012

        def print(self, line):
            self.lines.append(line)

    monkeypatch.setattr("bochner.report.demo.load_earth", coarse_earth)
    monkeypatch.setattr("bochner.report.demo.METHODS", METHODS[:1])
    monkeypatch.setattr("bochner.report.demo.CURVES", METHODS[:1])
    result = run_demo(tmp_path / "relief.html", quick=True, show=Console())
    assert result.path.name == "relief.html"
    assert Console.lines[-1].startswith("Wrote ")


def test_a_folder_that_cannot_be_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bochner.report.demo.load_earth", lambda: pytest.fail("computed before it looked")
    )
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(DataFileError, match=r"needs a folder that can be written.*Name another"):
        run_demo(file / "folder", quick=True)
    assert file.read_text() == "in the way"


@pytest.mark.parametrize(("seed", "error"), [(-1, InvalidInput), ("zero", InvalidType)])
def test_a_seed_that_is_no_seed_is_refused(tmp_path, seed, error):
    with pytest.raises(error, match="run_demo: seed must be an integer, 0 or above"):
        run_demo(tmp_path, seed=seed)


# --- pictures ------------------------------------------------------------------------------------


def test_map_has_north_above_and_its_colours(demo):
    result, _, page = demo
    title, figure = drawings(page)[0]
    assert title == "Relief as measured, m"
    address = re.search(r'<image [^>]*href="data:image/png;base64,([^"]+)"', figure, re.DOTALL)[1]
    found = image.imread(BytesIO(base64.b64decode(address)))[..., :3]
    assert found.shape[:2] == result.truth.shape
    expected = colours(RELIEF)(TwoSlopeNorm(0, -7500, 6000)(result.truth[::-1]))[..., :3]
    turned = re.search(
        r"scale\(1 -1\)|matrix\([\d.]+ 0 0 -", re.search("<image [^>]*>", figure, re.DOTALL)[0]
    )
    assert np.abs((found[::-1] if turned else found) - expected).max() < 0.01


@pytest.mark.parametrize("ramp", [RELIEF, ERROR])
def test_lightness_changes_by_equal_steps_on_each_side_of_zero(ramp):
    for side in np.split(lightness(colours(ramp)(np.arange(256))[:, :3]), 2):
        steps = np.diff(side)
        assert np.all(steps > 0) or np.all(steps < 0) or np.abs(steps).min() >= 0
        straight = np.linspace(side[0], side[-1], 128)
        assert np.abs(side - straight).max() < 0.015


def lightness(rgb):
    """Oklab's L of sRGB colours, by Ottosson's matrices in the direction from colour to L."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = linear @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.cbrt(cones) @ np.array([0.2104542553, 0.7936177850, -0.0040720468])
