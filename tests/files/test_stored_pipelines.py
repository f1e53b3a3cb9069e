"""Pipelines of scikit-learn about our estimators come back from model files, bit by bit."""

import json

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import bochner as bo
from bochner.cli import main
from bochner.errors import InvalidType
from bochner.export import TRUSTED
from bochner.persist import TRANSFORMERS, NamedArrays, decode, encode

X = np.random.default_rng(0).gamma(2.0, size=(80, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
OPTIONS = dict(n_features=16, random_state=0)

STEPS = [
    MaxAbsScaler(),
    MinMaxScaler(feature_range=(-1, 1), clip=True),
    Normalizer("l1"),
    QuantileTransformer(n_quantiles=20, output_distribution="normal", random_state=0),
    RobustScaler(quantile_range=(10.0, 90.0)),
    StandardScaler(with_mean=False),
    StandardScaler(),
]


def again(model, tmp_path):
    path = tmp_path / "model.bochner"
    bo.save(model, path)
    return bo.load(path)


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_predictions_of_the_pipeline_have_the_same_bits(step, tmp_path):
    model = make_pipeline(step, bo.KernelRidge("gaussian", **OPTIONS)).fit(X, Y)
    found = again(model, tmp_path)
    assert type(found) is Pipeline
    assert [name for name, _ in found.steps] == [name for name, _ in model.steps]
    assert found[0].get_params() == step.get_params()
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    np.testing.assert_array_equal(found[0].transform(X[:5] * 2), step.transform(X[:5] * 2))


def test_every_transformer_that_files_hold_is_tried():
    assert {type(step).__name__ for step in STEPS} == set(TRANSFORMERS)


def test_names_of_columns_nested_pipelines_and_classes_come_back(tmp_path):
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame(X, columns=["a", "b", "c"])
    inner = Pipeline([("scale", StandardScaler()), ("none", "passthrough")])
    model = Pipeline([("inner", inner), ("svc", bo.SVC("gaussian", **OPTIONS))]).fit(rows, Y > 1)
    found = again(model, tmp_path)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    assert found.predict(rows).tolist() == model.predict(rows).tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(rows.rename(columns={"a": "d"}))


def test_a_pipeline_that_is_not_fitted_comes_back_unfitted(tmp_path):
    found = again(make_pipeline(RobustScaler(), bo.KernelRidge(**OPTIONS)), tmp_path)
    np.testing.assert_allclose(
        found.fit(X, Y).predict(X),
        make_pipeline(RobustScaler(), bo.KernelRidge(**OPTIONS)).fit(X, Y).predict(X),
    )


def test_the_same_pipeline_gives_the_same_bytes(tmp_path):
    files = [tmp_path / name for name in ("a", "b")]
    model = make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", **OPTIONS)).fit(X, Y)
    for file in files:
        bo.save(model, file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_step_that_is_not_known_is_refused(tmp_path):
    model = make_pipeline(OneHotEncoder(), bo.KernelRidge(**OPTIONS))
    message = (
        "save: steps of a pipeline must be estimators of bochner or one of MaxAbsScaler, .*; got "
        "OneHotEncoder as step 'onehotencoder'. Estimators of bochner take text"
    )
    with pytest.raises(InvalidType, match=message):
        bo.save(model, tmp_path / "model.bochner")
    with pytest.raises(InvalidType, match=r"save: model must be .* got sklearn.*StandardScaler"):
        bo.save(StandardScaler().fit(X), tmp_path / "model.bochner")
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_the_same_name_is_not_taken_for_the_transformer(tmp_path):
    own = type("StandardScaler", (StandardScaler,), {})
    with pytest.raises(InvalidType, match="got StandardScaler as step 'standardscaler'"):
        bo.save(make_pipeline(own(), bo.KernelRidge(**OPTIONS)), tmp_path / "model.bochner")


FAULTS = {
    "a mean too many": ("mean_", np.zeros(4)),
    "means in a matrix": ("mean_", np.zeros((3, 1))),
    "means of text": ("mean_", np.array(["a", "b", "c"], object)),
    "no columns": ("n_features_in_", 0),
    "a method": ("transform", 1.0),
    "other columns than the next step": ("all", 2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_state_that_cannot_be_is_refused(fault):
    model = make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", **OPTIONS)).fit(X, Y)
    name, value = FAULTS[fault]
    if name == "all":
        model.steps[0] = ("standardscaler", StandardScaler().fit(X[:, :value]))
        item = coded(model)
    else:
        item = coded(model, {name: value})
    with pytest.raises((TypeError, ValueError)):
        decode(*item)
    decode(*coded(model if name != "all" else model[1]))


def coded(model, changes=None):
    """A model as JSON and arrays, with the state of its first transformer changed."""
    arrays = NamedArrays()
    item = json.loads(json.dumps(encode(model, arrays)))
    if changes:
        content = item["pipeline"][0][1]["transformer"]
        state = decode(content[2], arrays.by_name) | changes
        content[2] = encode(state, arrays)
    return item, arrays.by_name


def test_a_step_of_another_name_is_not_built():
    item, arrays = coded(
        make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", **OPTIONS)).fit(X, Y)
    )
    item["pipeline"][0][1]["transformer"][0] = "FunctionTransformer"
    with pytest.raises(KeyError, match="FunctionTransformer"):
        decode(item, arrays)


def test_the_command_line_takes_learners_and_no_pipelines(tmp_path, capsys):
    pytest.importorskip("click")
    path = tmp_path / "model.bochner"
    bo.save(make_pipeline(StandardScaler(), bo.KernelRidge("gaussian", **OPTIONS)).fit(X, Y), path)
    with pytest.raises(SystemExit):
        main(["check", str(path), str(path)])
    assert "must hold a fitted learner, as bochner fit writes; it holds a Pipeline" in (
        capsys.readouterr().err.replace("\n", " ")
    )


def test_types_for_skops_are_still_those_of_bochner():
    assert all(name.startswith("bochner.") for name in TRUSTED)
