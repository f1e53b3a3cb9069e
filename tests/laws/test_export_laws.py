"""ONNX graphs of learners and maps agree with Python, for tables too, or export raises."""

import pickle
import sys
import warnings
from dataclasses import dataclass

import gallery
import numpy as np
import pandas as pd
import pytest
from maps import CASES, PRODUCT
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner import draw
from bochner.errors import BochnerError, InvalidInput, InvalidType, MissingDependency
from bochner.features.mercer.radial import RadialFunctions
from bochner.kernels import Gaussian, Matern
from bochner.models.representations.features import FeatureSums, Triangle

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

#: Tolerances: float32 numbers have an error of 2⁻²⁴, and sums have another order.
SINGLE = 1e-5
DOUBLE = 1e-9
X, NEW = gallery.rows(60), gallery.rows(7, seed=3)[:6]
#: Rows near enough for every map, exact in float32.
NEAR = NEW * np.minimum(1.0, 2.0 / np.linalg.norm(NEW, axis=1, keepdims=True))
NEAR = NEAR.astype(np.float32).astype(np.float64)


def run(model, rows, path=None, precision="float32"):
    """Return the outputs of onnxruntime by name."""
    graph = bo.export.to_onnx(model, path, precision=precision)
    source = graph.SerializeToString() if path is None else str(path)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    values = session.run(None, {"X": rows.astype(precision)})
    return dict(zip([o.name for o in session.get_outputs()], values, strict=True))


def agree(out, expected, tolerance):
    expected = np.asarray(expected)
    assert out.shape == expected.shape
    return np.abs(out - expected).max(initial=0) <= tolerance * max(np.abs(expected).max(), 1e-30)


# ---- maps


def reason(phi):
    """Return why a map has no graph, or None if it has one."""
    name, kernel = type(phi).__name__, repr(phi.kernel)
    if any(word in kernel for word in ("Chi2", "Intersection", "JensenShannon")):
        return "a decision by values of the rows"  # rows must not be negative
    bessel = "smoothness=0.8" in kernel or "smoothness=3.7" in kernel or "Generalized" in kernel
    radial = getattr(phi, "radial", None)
    exact = isinstance(radial, RadialFunctions) and not radial.limit
    exact |= name == "GegenbauerMap" and "GeneralizedZonal" in kernel
    if name == "SketchMap" or exact or (name == "NystromMap" and bessel):
        return "a step that only NumPy computes"
    return None


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("cases", [CASES, PRODUCT], ids=["each class", "product"])
def test_the_graph_of_a_map_gives_its_features_or_raises(cases):
    counts = {True: 0, False: 0}
    for case in cases:
        if case.family == "transforms":  # they need a hundred columns
            continue
        try:
            phi = draw(case.kernel, case.method, n_features=24, X=X, random_state=0)
        except BochnerError:  # some cannot be drawn at this width
            continue
        err = reason(phi)
        counts[err is None] += 1
        if err is None:
            assert agree(run(phi, NEAR)["features"], phi(NEAR), SINGLE), phi.kernel
            continue
        with pytest.raises(bo.errors.UnsupportedKernel, match=f"a graph needs .* needs {err}, in"):
            bo.export.to_onnx(phi)
    assert counts[True] > len(cases) / 2
    assert counts[False] > len(cases) / 40


def test_structured_frequencies_have_a_graph():
    wide = np.random.default_rng(0).normal(size=(20, 150))
    phi = draw(Gaussian(10.0), "structured", n_features=512, n_inputs=150, random_state=0)
    assert type(phi.frequencies).__name__ == "Transforms"
    assert agree(run(phi, wide)["features"], phi(wide), SINGLE)


def test_far_rows_give_zeros_by_hermite_maps_and_nan_by_harmonic_maps():
    phi, harmonics = (
        draw(Gaussian(), name, n_features=24, X=X, random_state=0) for name in ("hermite", "mercer")
    )
    rare = np.array([[1e3, 0.0, 0.0], [-60.0, 5.0, 0.0]])
    assert np.abs(run(phi, rare)["features"]).max() < 1e-6
    assert np.abs(phi(rare)).max() < 1e-6
    actual = run(harmonics, np.vstack([NEAR, [[9.0, 0.0, 0.0]]]))["features"]
    assert np.isfinite(actual[:-1]).all()
    assert np.isnan(actual[-1]).all()


# ---- learners: test_learner_laws.py has a law of all of them

Y = np.sin(X[:, 0]) + X[:, 1]
OPTIONS = dict(n_features=24, random_state=0)


@pytest.mark.parametrize("loss", ["modified_huber", "hinge"])
@pytest.mark.parametrize("y", [Y > 0, np.digitize(Y, [-0.7, 0.7]).astype(str)], ids=["2", "3"])
def test_the_graph_of_a_classifier_gives_labels_decisions_and_probabilities(loss, y):
    model = bo.KernelSGDClassifier(Gaussian(1.5), strategy="gram_cached", loss=loss, random_state=0)
    rows = X.astype("f4") * 1.0
    out, expected = run(model.fit(X, y), rows), model.outputs(rows)
    assert out.keys() == expected.keys()
    assert out.pop("label").tolist() == expected["label"].tolist() == model.predict(rows).tolist()
    assert all(agree(out[name], expected[name], SINGLE) for name in out), model


# ---- the graph itself


def fitted(**options):
    return bo.KernelRidge(Gaussian(1.5), **options, **OPTIONS).fit(X, Y)


def test_the_graph_has_a_free_batch_size_and_states_versions(tmp_path):
    model, path = fitted(), tmp_path / "model.onnx"
    for n in (0, 1, 60):
        assert run(model, X[:n], path)["prediction"].shape == (n,)
    graph = onnx.load(path)
    assert [(item.domain, item.version) for item in graph.opset_import] == [("", 18)]
    assert graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert "operators of version 18" in graph.graph.doc_string
    assert bo.export.to_onnx(model) == graph


def test_invalid_models_and_precisions_raise():
    with pytest.raises(InvalidType, match="to_onnx: model must be a fitted estimator or a feature"):
        bo.export.to_onnx(Gaussian())
    with pytest.raises(InvalidInput, match="precision must be one of 'float32', 'float64'; got 'h"):
        bo.export.to_onnx(fitted(), precision="half")
    with pytest.raises(NotFittedError, match="KernelRidge instance is not fitted"):
        bo.export.to_onnx(bo.KernelRidge())


def test_numeric_tables_and_many_columns_are_one_input():
    numbers = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    model = bo.KernelRidge(**OPTIONS).fit(numbers, Y)
    assert agree(run(model, X[:, :2])["prediction"], model.predict(numbers), SINGLE)
    wide = np.random.default_rng(0).normal(size=(40, 30)).astype("f4") * 1.0
    model = bo.KernelRidge(Gaussian(6.0), method="exact", alpha=0.1).fit(wide, wide[:, 0])
    assert agree(run(model, wide)["prediction"], model.predict(wide), SINGLE)


def test_a_missing_onnx_raises_with_the_extra(monkeypatch):
    for name in ("onnx", "onnx.numpy_helper"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=r"pip install .bochner\[onnx\]"):
        bo.export.to_onnx(fitted())


# ---- tables: graphs take text, dates and missing values as they are

TABLE_OPTIONS = dict(kernel=Gaussian(3.0), n_features=32, random_state=0)


def typed_table(n, seed):
    """Return a table with numbers, towns, many shops, hours, grades, a constant, missing cells."""
    rng = np.random.default_rng(seed)
    hours = pd.to_timedelta(rng.integers(0, 3 * 365 * 24, n), unit="h")
    grades, number = ["low", "mid", "high"], lambda: rng.normal(size=n).astype("f4").astype("f8")
    frame = pd.DataFrame({"size": number(), "town": rng.choice(["Ulm", "Bonn", "Kiel"], n)})
    frame["shop"] = rng.choice([f"s{i}" for i in range(60)], n)
    frame["when"] = pd.Timestamp("2019-01-01") + hours
    frame["grade"] = pd.Categorical(rng.choice(grades, n), grades, ordered=True)
    frame["firm"], frame["gap"] = "one", number()
    for name in ("town", "when", "gap"):
        frame.loc[rng.uniform(size=n) < 0.1, name] = None
    return frame


TYPED, NEW_TYPED = typed_table(300, 0), typed_table(40, 1)
NEW_TYPED.loc[0, "town"], NEW_TYPED.loc[1, "shop"] = "Paris", "of another town"
HOURS = TYPED["when"].dt.hour.fillna(3)
TYPED_Y = (TYPED["size"] + np.sin(HOURS / 4) + (TYPED["town"] == "Ulm")).to_numpy()
TYPED_KIND = np.where(TYPED_Y > 1, "a", np.where(TYPED_Y > 0, "b", "c"))


def cells(column):
    """Return a column as a graph takes it."""
    if column.dtype.kind == "M":
        return (column - pd.Timestamp(0)).dt.total_seconds().to_numpy(np.float64)
    if column.dtype.kind == "f":
        return column.to_numpy(np.float32)
    return np.where(column.isna(), "", column.astype(object)).astype(object)


def run_table(model, rows):
    """Return the outputs of onnxruntime for a table, and the names of the inputs."""
    session = onnxruntime.InferenceSession(bo.export.to_onnx(model).SerializeToString())
    names = [item.name for item in session.get_inputs()]
    values = session.run(None, {name: cells(rows[name])[:, None] for name in names})
    return dict(zip([o.name for o in session.get_outputs()], values, strict=True)), names


def fit_table(rows=TYPED, y=TYPED_Y, model=None):
    with warnings.catch_warnings(action="ignore"):  # about dropped columns and few rows
        return (model or bo.KernelRidge(**TABLE_OPTIONS)).fit(rows, y)


QUANTILES, SHARES = (
    bo.KernelRegressor(loss=loss, **TABLE_OPTIONS) for loss in ("quantile", "multinomial")
)
TABLE_LEARNERS = {
    "exact ridge": (bo.KernelRidge(Matern(1.5, 3.0), method="exact"), TYPED_Y, "prediction"),
    "ridge": (bo.KernelRidge(**TABLE_OPTIONS), TYPED_Y, "prediction"),
    "process": (bo.GaussianProcessRegressor(**TABLE_OPTIONS), TYPED_Y, "prediction"),
    "quantiles": (QUANTILES, TYPED_Y, "prediction"),
    "shares": (SHARES, np.eye(2)[1 * (TYPED_Y > 0.5)], "prediction"),
    "machine": (bo.SVC(**TABLE_OPTIONS), TYPED_Y > 0.5, "decision"),
    "logistic": (bo.LogisticRegression(**TABLE_OPTIONS), TYPED_KIND, "probability"),
}


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("name", TABLE_LEARNERS)
@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")  # about new categories
def test_the_graph_of_a_table_takes_its_raw_columns(name):
    model, y, output = TABLE_LEARNERS[name]
    model = fit_table(TYPED, y, model)
    expected = model.outputs(NEW_TYPED)[output]
    actual, names = run_table(model, NEW_TYPED)
    assert names == ["size", "town", "shop", "when", "grade", "gap"]  # not the constant column
    assert agree(actual[output], expected, SINGLE)
    if output == "probability":
        assert actual["label"].tolist() == model.predict(NEW_TYPED).tolist()


def test_inputs_have_descriptions_and_operators_of_text_are_stated():
    graph = bo.export.to_onnx(fit_table())
    text = {item.name: item.doc_string for item in graph.graph.input}
    assert text["size"] == "numbers, NaN where missing"
    assert text["town"] == "texts, '' where missing"
    assert text["when"] == "seconds since 1970, NaN where missing"
    kinds = {item.name: item.type.tensor_type.elem_type for item in graph.graph.input}
    expected = (onnx.TensorProto.FLOAT, onnx.TensorProto.STRING, onnx.TensorProto.DOUBLE)
    assert (kinds["size"], kinds["town"], kinds["when"]) == expected
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 18), ("ai.onnx.ml", 3)]
    for n in (0, 1):
        assert run_table(fit_table(), NEW_TYPED[:n])[0]["prediction"].shape == (n,)


def test_an_empty_text_may_be_a_category():
    model = fit_table(pd.DataFrame({"size": TYPED["size"], "town": TYPED["town"].fillna("")}))
    new = pd.DataFrame(
        {"size": NEW_TYPED["size"], "town": NEW_TYPED["town"].fillna("").replace("Paris", "")}
    )
    assert agree(run_table(model, new)[0]["prediction"], model.predict(new), SINGLE)


@pytest.mark.parametrize("form", ["array", "table"])
def test_numbers_with_missing_values_are_one_input(form):
    numbers, new = (table[["size", "gap"]] for table in (TYPED, NEW_TYPED))
    if form == "array":
        numbers, new = (table.assign(same=1.0).to_numpy() for table in (numbers, new))
    model = fit_table(numbers)
    assert agree(run(model, np.asarray(new))["prediction"], model.predict(new), SINGLE)


def test_a_column_with_the_name_of_an_output_raises():
    message = "to_onnx: columns must not have names .* got 'prediction'. Rename the column"
    with pytest.raises(InvalidInput, match=message):
        bo.export.to_onnx(fit_table(TYPED.rename(columns={"town": "prediction"})))


# ---- a new representation


@dataclass(frozen=True, eq=False)
class ByTriangle(FeatureSums):
    """Sums of features, solved by QR of the sample instead of the Gram matrix."""

    def decompose(self):
        X, y, w = self.sample.X, self.sample.y, self.sample.w
        triangle = Triangle.of(self.chosen.precision_map.features(X), y, w, self.fit_intercept)
        return triangle.eigen(), self.pieces(), self.means


def test_a_new_representation_needs_one_class_and_one_line_of_the_route(monkeypatch):
    """Ridge regression, processes, classes, intervals, partial fits, files and graphs work."""
    (rows, y), (new, _) = gallery.table(90, noise=0.3), gallery.table(20, seed=1)
    options = {"method": "orthogonal", "n_features": 24, "random_state": 0}
    makers = bo.KernelRidge, bo.KernelRidgeClassifier, bo.GaussianProcessRegressor

    def fits():
        targets = y, y > 5, y
        return [
            m(Gaussian(0.8), **options).fit(rows, z) for m, z in zip(makers, targets, strict=True)
        ]

    usual = fits()
    monkeypatch.setattr("bochner.models.representations.features.FeatureSums", ByTriangle)
    for old, new_fit in zip(usual, fits(), strict=True):
        assert isinstance(getattr(new_fit.fit_, "law", new_fit.fit_).representation, ByTriangle)
        outputs = ["predict", "gradient"]
        outputs.append("predict_proba" if hasattr(new_fit, "predict_proba") else "predict_interval")
        for name in outputs:
            expected, actual = (np.asarray(getattr(m, name)(new), float) for m in (old, new_fit))
            np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
        graph = run(new_fit, new, precision="float64")
        values = next(graph[name] for name in ("prediction", "decision") if name in graph)
        ask = new_fit.predict if "prediction" in graph else new_fit.decision_function
        assert agree(values, ask(new), DOUBLE)
        twin = pickle.loads(pickle.dumps(new_fit)).partial_fit(rows[:9], new_fit.predict(rows[:9]))
        assert twin.rows_seen_ == 99
