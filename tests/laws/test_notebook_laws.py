"""What notebooks show: tables of results, diagrams of estimators, pictures, and a bar."""

import base64
import re
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.pages import read

import bochner as bo
from bochner import kernels

OUTSIDE = re.compile(r"(?:src|href)=\"(?!data:)|url\(|@import|<script|<link")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(120)


@pytest.fixture(scope="module")
def ridge(rows):
    return bo.KernelRidge("gaussian", n_features=32, random_state=0).fit(*rows)


def shown(value):
    """The HTML of a value, which is whole and fetches nothing, as tags, text and cells."""
    page = value._repr_html_()
    assert not OUTSIDE.search(page)
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b", page)  # colours are those of the text around
    return read(page, without=("caption",))


# ---- results


def results(rows, ridge):
    """Values that notebooks show, and words that must be among what they show."""
    X, y = rows
    kernel = kernels.Gaussian(1.0)
    certificate = ridge.certificate_
    tuned = bo.tune(ridge, X, y)
    return {
        "certificate": (certificate, f"{certificate.epsilon:.3g}"),
        "sampled certificate": (
            bo.certify(ridge.map_, X, alpha=1.0, n_rows=1000, random_state=0),
            "95 % interval",
        ),
        "choice": (ridge.choice_, ridge.choice_.reason),
        "comparison": (bo.compare(kernel, X, n_features=16, random_state=0), "measured"),
        "bounds": (
            bo.compare_bounds(
                kernel, X, alpha=1.0, n_features=32, n_draws=2, n_sample=64, random_state=0
            ),
            "promised",
        ),
        "plan": (
            bo.plan(X, y, kernel, methods=["nystrom"], widths=[8, 16], random_state=0),
            "seconds",
        ),
        "width": (bo.required_features(kernel, "nystrom", X, alpha=1.0, random_state=0), "ε"),
        "tuning": (tuned, "Kernel: "),
        "descent": (
            bo.double_descent(X[:40], y[:40], X[40:], y[40:], alpha=0.1, random_state=0),
            "test error",
        ),
        "check": (bo.check_kernel(kernel, X, random_state=0), ""),
        "errors": (ridge.calibration_, "calibrate()"),
        "importance": (bo.column_importance(ridge, X), "share"),
        "contributions": (bo.contributions(ridge, X[:2], X, n_orders=4), "mean of the background"),
        "fit": (ridge.fit_, "leave-one-out RMSE"),
    }


NAMES = [
    "certificate",
    "sampled certificate",
    "choice",
    "comparison",
    "bounds",
    "plan",
    "width",
    "tuning",
    "descent",
    "check",
    "errors",
    "importance",
    "contributions",
    "fit",
]


@pytest.fixture(scope="module")
def values(rows, ridge):
    found = results(rows, ridge)
    assert list(found) == NAMES
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_shown_as_html_that_says_what_it_prints(name, values):
    value, words = values[name]
    page = shown(value)
    assert words in "".join(page.text)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_in_a_terminal_is_its_text_and_no_list_of_arrays(name, values):
    value, _ = values[name]
    assert "array(" not in repr(value)
    assert len(repr(value)) < 3000


def test_the_table_of_a_plan_has_the_numbers_of_its_fits_and_marks_the_choice(values):
    plan = values["plan"][0]
    cells = shown(plan).cells
    assert [row[1] for row in cells[1:]] == [f"{fit.n_features:,}" for fit in plan.fits]
    marked = re.findall(r'<tr class="best">.*?</tr>', plan._repr_html_())
    assert len(marked) == 1
    assert f"<td>{plan.choice.n_features:,}</td>" in marked[0]


def test_text_is_escaped():
    choice = replace(
        bo.KernelRidge(n_features=8, random_state=0).fit(*_few()).choice_, reason="<b>&"
    )
    page = choice._repr_html_()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page


def _few():
    X = np.linspace(-1, 1, 40)[:, None]
    return X, X[:, 0] ** 2


# ---- fits and estimators


def fitted(name, rows):
    X, y = rows
    given = {"n_features": 16, "random_state": 0}
    made = {
        "exact": lambda: bo.KernelRidge("gaussian", random_state=0).fit(X, y),
        "classifier": lambda: bo.KernelRidgeClassifier("gaussian", **given).fit(X, y > 0),
        "process": lambda: bo.GaussianProcessRegressor("gaussian", **given).fit(X, y),
        "exact process": lambda: bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, y),
        "logistic": lambda: bo.LogisticRegression("gaussian", **given).fit(X, y > 0),
        "svc": lambda: bo.SVC("gaussian", random_state=0).fit(X, y > 0),
        "quantiles": lambda: bo.KernelRegressor("gaussian", loss="huber", **given).fit(X, y),
        "one class": lambda: bo.OneClassSVM("gaussian", **given).fit(X),
        "components": lambda: bo.KernelPCA(2, "gaussian", **given).fit(X),
        "correlations": lambda: bo.KernelCCA(1, "gaussian", **given).fit(X, y[:, None]),
        "clusters": lambda: bo.KernelKMeans(2, "gaussian", **given).fit(X),
        "steps": lambda: bo.KernelSGDRegressor("gaussian", random_state=0).fit(X, y),
        "features": lambda: bo.KernelFeatures("gaussian", **given).fit(X),
    }
    return made[name]()


SAID = {
    "exact": "effective dimension",
    "classifier": "False, True",
    "process": "noise variance",
    "exact process": "log marginal likelihood",
    "logistic": "Logistic()",
    "svc": "Hinge",
    "quantiles": "Huber",
    "one class": "penalty",
    "components": "explained variance",
    "correlations": "correlations",
    "clusters": "inertia",
    "steps": "rows stepped on",
    "features": "method",
}


@pytest.mark.parametrize("name", SAID)
def test_a_fit_says_what_was_found_and_the_diagram_of_its_estimator_holds_it(name, rows):
    model = fitted(name, rows)
    page = shown(model.fit_)
    said = {row[0]: row[1] for row in page.cells}
    assert SAID[name] in " ".join((*said, *said.values()))
    assert "Gaussian" in said["kernel"]
    assert model.fit_._repr_html_() in model._repr_html_()
    text = repr(model.fit_)
    assert all(words in text for words in said.values())
    assert len(text) < 3000


def test_maps_and_sums_say_their_sizes(ridge):
    kernel = repr(ridge.kernel_)
    assert repr(ridge.map_).endswith(f"(kernel={kernel}, n_inputs=2, n_features=32)")
    assert repr(ridge.moments_) == "Moments(rows=120, D=32, targets=1, precision='float64')"
    assert repr(ridge.sample_) == "RowSample(rows=120, columns=2, targets=1)"


def test_an_estimator_that_is_not_fitted_has_the_diagram_of_scikit_learn_alone():
    page = bo.KernelRidge(alpha=2.0)._repr_html_()
    assert "sk-top-container" in page
    assert 'class="bochner"' not in page
    assert "alpha" in page


def test_the_diagram_of_a_pipeline_holds_its_estimators(rows):
    model = make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", random_state=0)).fit(*rows)
    page = model._repr_html_()
    assert "StandardScaler" in page
    assert "KernelRidge" in page


MEASURED = ("certificate_", "calibration_")


@pytest.fixture
def measures_nothing(monkeypatch):
    def refuse(_model):
        raise AssertionError

    for name in MEASURED:
        monkeypatch.setattr(bo.KernelRidge, name, property(refuse))


@pytest.mark.usefixtures("measures_nothing")
def test_a_diagram_measures_nothing(ridge):
    assert "leave-one-out RMSE" in ridge._repr_html_()


@pytest.mark.usefixtures("measures_nothing")
def test_completion_measures_nothing_and_knows_what_a_fit_has(ridge):
    assert {*MEASURED, "alpha_", "coef_", "predict_interval", "fit_"} < set(dir(ridge))
    before = set(dir(bo.KernelRidge()))
    assert {"fit", "alpha", "kernel"} < before
    assert not {name for name in before if name.endswith("_") and not name.startswith("_")}


def test_completion_hides_methods_that_a_parameter_turned_off():
    assert "predict_proba" in dir(bo.SVC(probability=True))
    assert "predict_proba" not in dir(bo.SVC(probability=False))


def test_completion_of_a_fit_without_errors_to_judge_by():
    assert "calibration_" in dir(bo.KernelSGDRegressor("gaussian", random_state=0).fit(*_few()))


def test_scikit_learn_is_asked_whether_there_are_diagrams(ridge):
    assert set(ridge._repr_mimebundle_()) == {"text/plain", "text/html"}
    with config_context(display="text"):
        assert set(ridge._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(ridge, "_repr_html_")


# ---- displays


def displays(ridge, rows):
    X, y = rows
    return {
        "path": bo.PathDisplay.from_estimator(ridge),
        "spectrum": bo.SpectrumDisplay.from_estimator(ridge),
        "residuals": bo.ResidualDisplay.from_predictions(y, ridge.predict(X)),
        "calibration": bo.CalibrationDisplay.from_predictions(y, ridge.predict(X)),
        "dependence": bo.PartialDependenceDisplay.from_estimator(ridge, X, 0),
        "importance": bo.ImportanceDisplay.from_estimator(ridge, X),
        "contributions": bo.ContributionDisplay.from_estimator(ridge, X[:1], X, n_orders=2),
    }


def test_a_display_returns_itself_with_its_axes_as_in_scikit_learn(ridge, rows):
    figure = pytest.importorskip("matplotlib.figure")
    for name, display in displays(ridge, rows).items():
        ax = figure.Figure().subplots()
        assert display.plot(ax) is display, name
        assert display.ax_ is ax
        assert display.figure_ is ax.figure
        assert display.plot().ax_ is not ax


def test_a_display_that_was_not_drawn_is_drawn_where_it_is_shown(ridge):
    pytest.importorskip("matplotlib")
    display = bo.PathDisplay.from_estimator(ridge)
    page = read(display._repr_html_())
    picture = dict(page.attrs)["src"].removeprefix("data:image/svg+xml;base64,")
    assert base64.b64decode(picture).lstrip().startswith(b"<?xml")
    assert "against penalty alpha" in dict(page.attrs)["alt"]
    assert display.ax_.has_data()


def test_a_display_on_given_axes_leaves_the_picture_to_their_figure(ridge):
    figure = pytest.importorskip("matplotlib.figure")
    display = bo.PathDisplay.from_estimator(ridge).plot(figure.Figure().subplots())
    assert "img" not in read(display._repr_html_()).tags


def test_calibration_from_predictions_takes_probabilities_of_the_second_label():
    p = np.linspace(0.05, 0.95, 200)
    labels = np.where(np.random.default_rng(0).uniform(size=200) < p, "yes", "no")
    found = bo.CalibrationDisplay.from_predictions(labels, p, n_bins=5)
    assert found.kind == "probability"
    np.testing.assert_allclose(found.observed[-1], np.mean(labels[p >= 0.8] == "yes"))
    assert bo.CalibrationDisplay.from_predictions(p, p).kind == "prediction"
    with pytest.raises(bo.errors.InvalidInput, match="one prediction for each observed value"):
        bo.CalibrationDisplay.from_predictions(p, p[:5])


# ---- a report, inline


@pytest.mark.slow
def test_a_report_is_shown_in_a_frame_that_fetches_nothing(ridge, rows):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    report = bo.report_model(ridge, *rows, n_sample=64, widths=[8], exact=False)
    page = read(report._repr_html_())
    assert page.tags == ["iframe"]
    assert dict(page.attrs)["srcdoc"] == report.to_html()


# ---- the bar


class Notebook(types.ModuleType):
    """IPython as a kernel of Jupyter has it, as far as a bar needs."""

    def __init__(self):
        super().__init__("IPython")
        self.drawn = []
        self.display = types.ModuleType("IPython.display")
        self.display.display = self._display

    def get_ipython(self):
        return type("ZMQInteractiveShell", (), {})()

    def _display(self, value, display_id):
        assert display_id
        self.drawn.append(value._repr_html_())
        update = lambda value: self.drawn.append(value._repr_html_())
        return types.SimpleNamespace(update=update)


def test_a_bar_is_drawn_in_a_notebook_and_counts_every_pass(rows, monkeypatch):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
    blocks = bo.Blocks.from_arrays(*rows, block_rows=50).with_progress()
    for _ in range(2):
        assert sum(len(block.y) for block in blocks) == 120
    last = read(notebook.drawn[-1])
    assert last.tags == ["div", "progress"]
    assert dict(last.attrs)["value"] == dict(last.attrs)["max"] == "120"
    assert "pass 2: 120 of 120 rows" in "".join(last.text)


def test_a_bar_is_silent_where_nobody_watches(rows, capfd):
    model = bo.KernelRidge("gaussian", n_features=8, random_state=0)
    model.fit_blocks(bo.Blocks.from_arrays(*rows).with_progress())
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_on_the_last_line_of_a_terminal(rows, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    list(bo.Blocks.from_arrays(*rows).with_progress())
    written = capsys.readouterr().err
    assert written.startswith("\rpass 1: ")
    assert written.endswith("\n")
