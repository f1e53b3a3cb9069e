"""Graphs of models of tables: text, dates and gaps come in as they are, and predictions are the same."""

import warnings

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Matern

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pd = pytest.importorskip("pandas")

#: float32 numbers differ from float64 ones by 2⁻²⁴; what is left is for sums in another order.
SINGLE = 1e-5
OPTIONS = dict(n_features=32, random_state=0)


def table(n, seed):
    """A table as it comes: numbers, towns, many shops, hours, grades, a constant; some missing."""
    rng = np.random.default_rng(seed)
    hours = pd.to_timedelta(rng.integers(0, 3 * 365 * 24, n), unit="h")
    made = pd.DataFrame(
        {
            "size": rng.normal(size=n).astype("f4").astype("f8"),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n),
            "shop": rng.choice([f"s{i}" for i in range(60)], n),
            "when": pd.Timestamp("2019-01-01") + hours,
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], n), ["low", "mid", "high"], ordered=True
            ),
            "firm": ["one"] * n,
            "gap": rng.normal(size=n).astype("f4").astype("f8"),
        }
    )
    for name in ("town", "when", "gap"):
        made.loc[rng.uniform(size=n) < 0.1, name] = None
    return made


T, NEW = table(300, 0), table(40, 1)
NEW.loc[0, "town"], NEW.loc[1, "shop"] = "Paris", "of another town"
Y = (T["size"] + np.sin(T["when"].dt.hour.fillna(3) / 4) + (T["town"] == "Ulm")).to_numpy()
KIND = np.where(Y > 1, "a", np.where(Y > 0, "b", "c"))


def cells(column):
    """A column as the page says that a graph takes it."""
    if column.dtype.kind == "M":
        seconds = (column - pd.Timestamp(0)).dt.total_seconds()
        return seconds.to_numpy(np.float64)
    if column.dtype.kind == "f":
        return column.to_numpy(np.float32)
    return np.where(column.isna(), "", column.astype(object)).astype(object)


def run(model, rows):
    """What onnxruntime gives for the rows of a table, and the names of the inputs."""
    graph = bo.export.to_onnx(model)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    names = [one.name for one in session.get_inputs()]
    values = session.run(None, {name: cells(rows[name])[:, None] for name in names})
    return dict(zip([o.name for o in session.get_outputs()], values, strict=True)), names


def near(got, wanted):
    return np.abs(got - np.asarray(wanted)).max() <= SINGLE * np.abs(wanted).max()


def fitted(rows=T, y=Y, model=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns that are left out, and rows that are few
        return (model or bo.KernelRidge(Gaussian(3.0), **OPTIONS)).fit(rows, y)


LEARNERS = {
    "exact ridge": (bo.KernelRidge(Matern(1.5, 3.0), method="exact"), Y, "prediction"),
    "ridge": (bo.KernelRidge(Gaussian(3.0), **OPTIONS), Y, "prediction"),
    "process": (bo.GaussianProcessRegressor(Gaussian(3.0), **OPTIONS), Y, "prediction"),
    "quantiles": (bo.KernelRegressor(Gaussian(3.0), loss="quantile", **OPTIONS), Y, "prediction"),
    "machine": (bo.SVC(Gaussian(3.0), **OPTIONS), Y > 0.5, "decision"),
    "logistic": (bo.LogisticRegression(Gaussian(3.0), **OPTIONS), KIND, "probability"),
}
METHODS = {
    "prediction": "predict",
    "decision": "decision_function",
    "probability": "predict_proba",
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")  # of categories that are new
def test_the_graph_takes_the_columns_of_the_table_as_they_are(name):
    model, y, output = LEARNERS[name]
    model = fitted(T, y, model)
    wanted = getattr(model, METHODS[output])(NEW)
    got, names = run(model, NEW)
    assert names == ["size", "town", "shop", "when", "grade", "gap"]  # the constant one is no input
    assert near(got[output], wanted)
    if output == "probability":
        assert got["label"].tolist() == model.predict(NEW).tolist()


def test_each_column_says_what_it_takes_and_operators_for_text_are_stated():
    graph = bo.export.to_onnx(fitted())
    text = {one.name: one.doc_string for one in graph.graph.input}
    assert text["size"] == "numbers, NaN where missing"
    assert text["town"] == "texts, '' where missing"
    assert text["when"] == "seconds from 1970 on, NaN where missing"
    kinds = {one.name: one.type.tensor_type.elem_type for one in graph.graph.input}
    wanted = (onnx.TensorProto.FLOAT, onnx.TensorProto.STRING, onnx.TensorProto.DOUBLE)
    assert (kinds["size"], kinds["town"], kinds["when"]) == wanted
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 18), ("ai.onnx.ml", 3)]
    for n in (0, 1):
        assert run(fitted(), NEW[:n])[0]["prediction"].shape == (n,)


def test_an_empty_text_that_is_a_category_is_that_category():
    rows = pd.DataFrame({"size": T["size"], "town": T["town"].fillna("")})
    model = fitted(rows)
    new = pd.DataFrame({"size": NEW["size"], "town": NEW["town"].fillna("").replace("Paris", "")})
    assert near(run(model, new)[0]["prediction"], model.predict(new))


@pytest.mark.parametrize("form", ["array", "table"])
def test_numbers_with_gaps_are_one_matrix(form):
    numbers = pd.DataFrame({"size": T["size"], "gap": T["gap"], "same": 1.0})
    new = pd.DataFrame({"size": NEW["size"], "gap": NEW["gap"], "same": 1.0})
    if form == "array":
        numbers, new = numbers.to_numpy(), new.to_numpy()
    else:
        numbers, new = numbers[["size", "gap"]], new[["size", "gap"]]
    model = fitted(numbers)
    session = onnxruntime.InferenceSession(bo.export.to_onnx(model).SerializeToString())
    (got,) = session.run(None, {"X": np.asarray(new, np.float32)})
    assert near(got, model.predict(new))


def test_a_column_named_as_an_output_is_refused():
    message = "to_onnx: columns must have other names .* got 'prediction'. Rename the column"
    with pytest.raises(InvalidInput, match=message):
        bo.export.to_onnx(fitted(T.rename(columns={"town": "prediction"})))


@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")
def test_a_fault_in_a_category_is_seen():
    model = fitted()
    other = NEW.assign(town=NEW["town"].replace({"Ulm": "Bonn"}))
    assert not near(run(model, other)[0]["prediction"], model.predict(NEW))
