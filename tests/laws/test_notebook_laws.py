"""Notebooks: tables of results, diagrams of estimators, displays, and a progress bar."""

import base64
import re
import sys
import types
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.pages import read

import bochner as bo
from bochner import kernels

OUTSIDE = re.compile(r"(?:src|href)=\"(?!data:)|url\(|@import|<script|<link")
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (120, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(120)
SEED = {"random_state": 0}
OPTIONS = {"kernel": "gaussian", "n_features": 16, **SEED}
KERNEL = kernels.Gaussian(1.0)


@cache
def ridge():
    return bo.KernelRidge("gaussian", n_features=32, random_state=0).fit(X, Y)


def parse(value):
    """Return the parsed HTML of a value; it must not load anything or fix colours."""
    page = value._repr_html_()
    assert not OUTSIDE.search(page)
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b", page)  # colours are inherited
    return read(page, exclusions=("caption",))


# ---- results

#: Functions that make results, and a text in their HTML or a function that returns it.
RESULTS = {
    "certificate": (lambda: ridge().certificate_, lambda c: f"{c.epsilon:.3g}"),
    "sampled certificate": (
        lambda: bo.certify(ridge().map_, X, alpha=1.0, n_rows=1000, **SEED),
        "95 % interval",
    ),
    "choice": (lambda: ridge().choice_, lambda choice: choice.reason),
    "comparison": (lambda: bo.compare(KERNEL, X, n_features=16, **SEED), "measured"),
    "bounds": (lambda: bo.compare_bounds(KERNEL, X, alpha=1.0, n_draws=2, **SEED), "measured"),
    "plan": (lambda: bo.plan(X, Y, KERNEL, methods=["nystrom"], widths=[8, 16], **SEED), "memory"),
    "width": (lambda: bo.required_features(KERNEL, "nystrom", X, alpha=1.0, **SEED), "ε"),
    "tuning": (lambda: bo.tune(ridge(), X, Y), "Kernel: "),
    "descent": (lambda: bo.double_descent(X, Y, X[40:], Y[40:], alpha=0.1, **SEED), "test error"),
    "check": (lambda: bo.check_kernel(KERNEL, X, **SEED), ""),
    "errors": (lambda: ridge().calibration_, "calibrate()"),
    "importance": (lambda: bo.column_importance(ridge(), X), "share"),
    "contributions": (lambda: bo.contributions(ridge(), X[:2], X, n_orders=4), "of the background"),
    "fit": (lambda: ridge().fit_, "leave-one-out RMSE"),
}


@cache
def result(name):
    return RESULTS[name][0]()


@pytest.mark.parametrize("name", RESULTS)
def test_the_html_of_a_result_contains_its_main_value(name):
    value, words = result(name), RESULTS[name][1]
    assert (words if isinstance(words, str) else words(value)) in "".join(parse(value).text)
    assert "array(" not in repr(value)
    assert len(repr(value)) < 3000


def test_the_table_of_a_plan_lists_its_fits_and_marks_the_choice():
    plan = result("plan")
    cells = parse(plan).cells
    assert [row[1] for row in cells[1:]] == [f"{fit.n_features:,}" for fit in plan.fits]
    best = re.findall(r'<tr class="best">.*?</tr>', plan._repr_html_())
    assert len(best) == 1
    assert f"<td>{plan.choice.n_features:,}</td>" in best[0]
    # text is escaped
    page = replace(ridge().choice_, reason="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page


# ---- fits and estimators

#: Estimator, target, and a text in the summary of its fit.
FITS = {
    "exact": (bo.KernelRidge("gaussian", **SEED), Y, "effective dimension"),
    "classifier": (bo.KernelRidgeClassifier(**OPTIONS), Y > 0, "False, True"),
    "process": (bo.GaussianProcessRegressor(**OPTIONS), Y, "noise variance"),
    "exact process": (bo.GaussianProcessRegressor("gaussian", **SEED), Y, "log marginal likelih"),
    "logistic": (bo.LogisticRegression(**OPTIONS), Y > 0, "Logistic()"),
    "svc": (bo.SVC("gaussian", **SEED), Y > 0, "Hinge"),
    "huber": (bo.KernelRegressor(loss="huber", **OPTIONS), Y, "Huber"),
    "one class": (bo.OneClassSVM(**OPTIONS), None, "penalty"),
    "components": (bo.KernelPCA(2, **OPTIONS), None, "explained variance"),
    "correlations": (bo.KernelCCA(1, **OPTIONS), Y[:, None], "correlations"),
    "clusters": (bo.KernelKMeans(2, **OPTIONS), None, "inertia"),
    "steps": (bo.KernelSGDRegressor("gaussian", **SEED), Y, "rows stepped on"),
    "features": (bo.KernelFeatures(**OPTIONS), None, "method"),
}


@pytest.mark.parametrize("name", FITS)
def test_the_diagram_of_an_estimator_contains_the_summary_of_its_fit(name):
    model, y, words = FITS[name]
    model.fit(X, y)
    summary = {row[0]: row[1] for row in parse(model.fit_).cells}
    assert words in " ".join((*summary, *summary.values()))
    assert "Gaussian" in summary["kernel"]
    assert model.fit_._repr_html_() in model._repr_html_()
    text = repr(model.fit_)
    assert all(words in text for words in summary.values())
    assert len(text) < 3000
    if name == "exact":
        assert f"RMSE {np.mean(model.fit_.left_out().errors ** 2) ** 0.5:.4g}, " in text


def test_maps_and_sums_print_their_sizes():
    kernel = repr(ridge().kernel_)
    assert repr(ridge().map_).endswith(f"(kernel={kernel}, n_inputs=2, n_features=32)")
    assert repr(ridge().moments_) == "Moments(rows=120, D=32, targets=1, precision='float64')"
    assert repr(ridge().sample_) == "RowSample(rows=120, columns=2, targets=1)"


def test_diagrams_of_pipelines_and_unfitted_estimators_are_scikit_learns():
    page = bo.KernelRidge(alpha=2.0)._repr_html_()
    assert "sk-top-container" in page
    assert 'class="bochner"' not in page
    assert "alpha" in page
    model = make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", **SEED)).fit(X, Y)
    assert {"StandardScaler", "KernelRidge"} <= {*re.findall(r"\w+", model._repr_html_())}


def test_diagrams_compute_no_certificate_or_calibration(monkeypatch):
    def refuse(_model):
        raise AssertionError

    model = ridge()
    for name in ("certificate_", "calibration_"):
        monkeypatch.setattr(bo.KernelRidge, name, property(refuse))
    assert "leave-one-out RMSE" in model._repr_html_()


def test_the_display_option_of_scikit_learn_is_respected():
    assert set(ridge()._repr_mimebundle_()) == {"text/plain", "text/html"}
    with config_context(display="text"):
        assert set(ridge()._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(ridge(), "_repr_html_")


# ---- displays


def test_a_display_without_axes_is_drawn_as_an_image():
    display = bo.PathDisplay.from_estimator(ridge())
    page = read(display._repr_html_())
    picture = dict(page.attrs)["src"].removeprefix("data:image/svg+xml;base64,")
    assert base64.b64decode(picture).lstrip().startswith(b"<?xml")
    assert "against penalty alpha" in dict(page.attrs)["alt"]
    assert display.ax_.has_data()
    display = bo.PathDisplay.from_estimator(ridge()).plot(Figure().subplots())
    assert "img" not in read(display._repr_html_()).tags  # the notebook shows the figure itself


# ---- an inline report


@pytest.mark.slow
def test_a_report_is_one_frame_without_external_resources():
    report = bo.report_model(ridge(), X, Y, n_sample=64)
    page = read(report._repr_html_())
    assert page.tags == ["iframe"]
    assert dict(page.attrs)["srcdoc"] == report.to_html()


# ---- the progress bar


class Notebook(types.ModuleType):
    """A stand-in for IPython in a kernel of Jupyter, with the functions of a progress bar."""

    def __init__(self):
        super().__init__("IPython")
        self.drawn = []
        self.display = types.ModuleType("IPython.display")
        self.display.display = self._display

    def get_ipython(self):
        return type("ZMQInteractiveShell", (), {})()

    def _display(self, value, display_id, update):
        assert display_id.startswith("bochner-")
        assert update == bool(self.drawn)
        self.drawn.append(value._repr_html_())


def test_a_bar_counts_passes_in_a_notebook_and_is_silent_elsewhere(monkeypatch, capfd):
    model = bo.KernelRidge("gaussian", n_features=8, random_state=0)
    model.fit_blocks(bo.Blocks.from_arrays(X, Y).with_progress())
    assert capfd.readouterr() == ("", "")
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
    blocks = bo.Blocks.from_arrays(X, Y, block_rows=50).with_progress()
    for _ in range(2):
        assert sum(len(block.y) for block in blocks) == 120
    last = read(notebook.drawn[-1])
    assert last.tags == ["div", "progress"]
    assert dict(last.attrs)["value"] == dict(last.attrs)["max"] == "120"
    assert "pass 2: 120 of 120 rows" in "".join(last.text)
