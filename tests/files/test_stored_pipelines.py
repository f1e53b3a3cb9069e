"""Pipelines of scikit-learn about our estimators come back from model files, bit by bit."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
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
    ColumnTransformer([("scaled", StandardScaler(), [0, 2])], remainder="passthrough"),
    MaxAbsScaler(),
    MinMaxScaler(feature_range=(-1, 1), clip=True),
    Normalizer("l1"),
    OneHotEncoder(handle_unknown="ignore", dtype=np.float32),
    QuantileTransformer(n_quantiles=20, output_distribution="normal", random_state=0),
    RobustScaler(quantile_range=(10.0, 90.0)),
    SimpleImputer(strategy="median", add_indicator=True),
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
    assert repr(found[0].get_params()) == repr(step.get_params())
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    np.testing.assert_array_equal(values(found[0], X[:5] * 2), values(step, X[:5] * 2))


def values(step, rows):
    found = step.transform(rows)
    return found.toarray() if hasattr(found, "toarray") else np.asarray(found)


def test_every_transformer_that_files_hold_is_tried():
    assert {type(step).__name__ for step in STEPS} == set(TRANSFORMERS)


GAPS = np.where(X > 1.5, X, np.nan)
WORDS = np.array([["a", 1.0], ["b", None], ["a", np.nan], ["c", 2.0], ["b", 1.0]], object)
NUMBERS = np.array([[1, -1], [2, 5], [1, -1], [3, 5]])
FITTED = {
    "gaps, their columns and their marks": (SimpleImputer(add_indicator=True), GAPS),
    "a column of gaps alone": (SimpleImputer(), np.column_stack([GAPS, np.full(80, np.nan)])),
    "one that is kept": (
        SimpleImputer(keep_empty_features=True, add_indicator=True),
        np.column_stack([np.full(80, np.nan), GAPS]),
    ),
    "gaps of another number": (
        SimpleImputer(missing_values=-1, strategy="most_frequent", add_indicator=True),
        NUMBERS,
    ),
    "text for gaps": (SimpleImputer(strategy="constant", fill_value="none"), WORDS[:, :1]),
    "the commonest word": (
        SimpleImputer(missing_values="a", strategy="most_frequent"),
        WORDS[:, :1],
    ),
    "float32": (SimpleImputer(strategy="median"), GAPS.astype(np.float32)),
    "words, numbers and gaps": (OneHotEncoder(sparse_output=False), WORDS),
    "numbers": (OneHotEncoder(drop="first"), NUMBERS),
    "those of two kinds": (OneHotEncoder(drop="if_binary"), NUMBERS),
    "numbers with a gap": (OneHotEncoder(), np.array([[1.0], [np.nan], [3.0]])),
    "named ones": (OneHotEncoder(categories=[[1, 2, 3], [-1, 5, 7]], drop=[2, 5]), NUMBERS),
    "a part that has no columns": (
        ColumnTransformer([("none", StandardScaler(), []), ("all", RobustScaler(), slice(0, 2))]),
        NUMBERS,
    ),
    "a part of ours": (
        ColumnTransformer(
            [("phi", bo.KernelFeatures("gaussian", **OPTIONS), [0, 1])],
            remainder=MinMaxScaler(),
            transformer_weights={"phi": 0.5},
        ),
        X,
    ),
    "sparse columns": (
        ColumnTransformer([("one", OneHotEncoder(), [0])], remainder="drop", sparse_threshold=1.0),
        NUMBERS,
    ),
}


@pytest.mark.parametrize("case", FITTED)
@pytest.mark.filterwarnings("ignore:Skipping features")
def test_what_a_transformer_learned_comes_back(case):
    step, rows = FITTED[case]
    step = clone(step).fit(rows)
    (_, found), *_ = decode(*coded(make_pipeline(step))).steps
    one, other = found.transform(rows), step.transform(rows)
    assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
    np.testing.assert_array_equal(values(found, rows), values(step, rows))
    assert list(found.get_feature_names_out()) == list(step.get_feature_names_out())
    assert json.dumps(coded(make_pipeline(found))[0]) == json.dumps(coded(make_pipeline(step))[0])


def mixed_table():
    """A table with gaps, words and whole numbers, and its target."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(GAPS, columns=["a", "b", "c"]).assign(
        kind=rng.choice(["x", "y", "z"], 80), level=rng.choice([1, 2, 5], 80)
    )
    return rows.assign(kind=rows["kind"].where(rows.index != 4)), Y + (rows["kind"] == "x")


def mixed_pipeline(columns=("a", "b"), output="default"):
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    names = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    table = ColumnTransformer(
        [
            ("numbers", numbers, columns if callable(columns) else list(columns)),
            ("names", names, ["kind"]),
        ],
        remainder=SimpleImputer(),
    )
    return make_pipeline(table.set_output(transform=output), bo.KernelRidge("gaussian", **OPTIONS))


@pytest.mark.parametrize("output", ["default", "pandas"])
@pytest.mark.parametrize("choose", [False, True], ids=["named", "chosen by type"])
def test_a_table_of_mixed_columns_has_the_same_bits_in_another_process(output, choose, tmp_path):
    rows, target = mixed_table()
    columns = make_column_selector(dtype_include=float) if choose else ("a", "b")
    model = mixed_pipeline(columns, output).fit(rows, target)
    bo.save(model, tmp_path / "model.bochner")
    rows.to_pickle(tmp_path / "rows.pkl")
    code = (
        "import bochner as bo, numpy as np, pandas as pd;"
        "model, rows = bo.load('model.bochner'), pd.read_pickle('rows.pkl');"
        "np.save('found.npy', model.predict(rows[rows.columns[::-1]]));"
        "print(type(model[0].transform(rows)).__name__, *model[0].get_feature_names_out())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), model.predict(rows))
    kind = type(model[0].transform(rows)).__name__
    assert done.stdout.split() == [kind, *model[0].get_feature_names_out()]


def test_a_table_that_is_not_fitted_comes_back_unfitted(tmp_path):
    rows, target = mixed_table()
    found = again(mixed_pipeline(), tmp_path)
    np.testing.assert_array_equal(
        found.fit(rows, target).predict(rows), mixed_pipeline().fit(rows, target).predict(rows)
    )


def test_steps_of_other_widths_come_back(tmp_path):
    model = make_pipeline(
        StandardScaler(), bo.KernelFeatures("gaussian", **OPTIONS), bo.KernelRidge(**OPTIONS)
    ).fit(X, Y)
    np.testing.assert_array_equal(again(model, tmp_path).predict(X), model.predict(X))


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


REFUSED = {
    "a function": (
        FunctionTransformer(np.log1p),
        (
            "save: steps of a pipeline must be estimators of bochner or one of ColumnTransformer, .*; "
            "got FunctionTransformer as step 'functiontransformer'. Estimators of bochner take text"
        ),
    ),
    "a function within": (
        ColumnTransformer([("log", FunctionTransformer(np.log1p), [0])]),
        "got FunctionTransformer as step 'log'",
    ),
    "another word": (ColumnTransformer([("a", "dorp", [0])]), "got str as step 'a'"),
    "rare categories": (
        OneHotEncoder(min_frequency=2),
        (
            "OneHotEncoder in a pipeline must have neither min_frequency nor max_categories, .* got "
            "min_frequency=2, max_categories=None"
        ),
    ),
    "names by a function": (
        OneHotEncoder(feature_name_combiner=lambda a, b: a + str(b)),
        "a model file cannot hold a function",
    ),
    "names by a pattern": (
        ColumnTransformer([("a", "passthrough", [0])], verbose_feature_names_out="{feature_name}"),
        "verbose_feature_names_out of a ColumnTransformer must be True or False",
    ),
    "columns by a function": (
        ColumnTransformer([("a", "passthrough", make_column_selector("a"))]),
        (
            "columns of 'a' in a ColumnTransformer that is not fitted must be names, positions or a "
            "mask; got make_column_selector"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_is_not_known_is_refused(case, tmp_path):
    step, message = REFUSED[case]
    with pytest.raises(InvalidType, match=message):
        bo.save(make_pipeline(step, bo.KernelRidge(**OPTIONS)), tmp_path / "model.bochner")
    assert list(tmp_path.iterdir()) == []


def test_a_transformer_alone_is_refused(tmp_path):
    with pytest.raises(InvalidType, match=r"save: model must be .* got sklearn.*StandardScaler"):
        bo.save(StandardScaler().fit(X), tmp_path / "model.bochner")


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


WRONG = {
    "categories that fall": (OneHotEncoder(), {"categories_": [np.array([2, 1]), np.array([0])]}),
    "no categories": (OneHotEncoder(), {"categories_": [np.zeros(0), np.zeros(1)]}),
    "categories of a column too few": (OneHotEncoder(), {"categories_": [np.zeros(1)]}),
    "categories in a matrix": (OneHotEncoder(), {"categories_": [np.zeros((1, 1))] * 2}),
    "state of another": (OneHotEncoder(), {"statistics_": np.zeros(2)}),
    "a filling too many": (SimpleImputer(), {"statistics_": np.zeros(3)}),
    "fillings of times": (SimpleImputer(), {"dtype": "datetime64[s]"}),
    "marks of no column": (SimpleImputer(add_indicator=True), {"marked": np.array([7])}),
    "more columns than parts": (
        ColumnTransformer([("a", StandardScaler(), [0, 1])]),
        {"n_features_in_": 10**12},
    ),
    "a column that is not there": (
        ColumnTransformer([("a", "passthrough", [0, 1])]),
        {"fitted": [("a", "passthrough", np.array([0, 7]))]},
    ),
    "positions of text": (
        ColumnTransformer([("a", "passthrough", [0, 1])]),
        {"fitted": [("a", "passthrough", np.array(["0", "1"]))]},
    ),
    "a part of another width": (
        ColumnTransformer([("a", StandardScaler(), [0, 1])]),
        {"fitted": [("a", StandardScaler().fit(NUMBERS[:, :1]), np.array([0, 1]))]},
    ),
    "a part that is not fitted": (
        ColumnTransformer([("a", StandardScaler(), [0, 1])]),
        {"fitted": [("a", StandardScaler(), np.array([0, 1]))]},
    ),
    "a part that transforms nothing": (
        ColumnTransformer([("a", StandardScaler(), [0, 1])]),
        {"fitted": [("a", bo.KernelRidge(), np.array([0, 1]))]},
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_fit_that_cannot_be_is_refused(fault):
    step, changes = WRONG[fault]
    model = make_pipeline(step.fit(NUMBERS), StandardScaler())
    decode(*coded(model))
    with pytest.raises((TypeError, ValueError, LookupError)):
        decode(*coded(model, changes))


def test_a_step_after_a_table_must_take_its_columns():
    step = ColumnTransformer([("a", OneHotEncoder(), [0])]).fit(NUMBERS)
    decode(*coded(make_pipeline(step, StandardScaler().fit(NUMBERS[:, [0, 0, 0]]))))
    with pytest.raises(ValueError, match="must take the columns that come to them"):
        decode(*coded(make_pipeline(step, StandardScaler().fit(NUMBERS))))


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
