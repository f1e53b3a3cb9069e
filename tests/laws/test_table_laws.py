"""Raw tables: frames, files and blocks give the same schema, fit and predictions."""

import dataclasses
import datetime as dt
import io
import json
import re
import sys
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gallery import raw_table
from pyarrow import feather
from scipy.sparse import csr_array
from sklearn.model_selection import cross_val_score

import bochner as bo
from bochner.cli.running import run
from bochner.data.blocks import Blocks
from bochner.data.encoders import Levels, Numbers, Times, form_of, ordinal, parts_for, seconds_of
from bochner.data.schema import Schema
from bochner.errors import DataWarning, InvalidInput
from bochner.kernels import Gaussian

N = 400
FAST = {"kernel": "gaussian", "n_features": 64, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    return raw_table(N)


@pytest.fixture(scope="module")
def fitted(table):
    with pytest.warns(DataWarning, match="columns are left out"):
        return bo.KernelRidge(**FAST).fit(table.drop(columns="y"), table["y"])


@pytest.fixture
def quiet():
    """Ignore warnings about the data."""
    with warnings.catch_warnings(action="ignore", category=DataWarning):
        yield


def test_columns_get_encoders_of_their_types(fitted, table, tmp_path):
    kinds = {e.name: type(e) for e in fitted.schema_.encoders}
    numbers = dict.fromkeys(["size", "gap", "flag"], Numbers)
    texts = dict.fromkeys(["colour", "make", "tail"], Levels)
    assert kinds == numbers | texts | {"date": Times, "leaves": Times}
    dropped = [name for name, _ in fitted.schema_.dropped]
    assert dropped == ["one", "nothing", "id", "twin"]
    names = fitted.schema_.feature_names
    assert {"gap is missing", "make is missing", "colour=red", "tail (target)"} <= {*names}
    assert {"date (days)", "date (season, sine)", "leaves (hour, cosine)"} <= {*names}
    assert fitted.map_.n_inputs == len(names)
    bo.save(fitted, tmp_path / "m")
    loaded, expected = bo.load(tmp_path / "m"), fitted.predict(table)
    assert loaded.schema_ == fitted.schema_
    np.testing.assert_array_equal(loaded.predict(table), expected)
    np.testing.assert_array_equal(fitted.predict(table.drop(columns=["y", *dropped])), expected)
    with pytest.raises(InvalidInput, match="X must be a table with the columns"):
        fitted.predict(np.zeros((2, 12)))


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [None, 7])
def test_files_frames_and_blocks_give_the_same_fit(fitted, table, tmp_path, quiet, suffix, rows):
    path = tmp_path / f"t.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    model = bo.KernelRidge(**FAST).fit_blocks(Blocks.from_files(path, target="y", block_rows=rows))
    expected = fitted.predict(table)
    predictions = np.concatenate(list(model.predict_blocks(Blocks.from_files(path))))
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6)
    with_schema = Blocks.from_files(path, schema=fitted.schema_)
    np.testing.assert_allclose(fitted.predict(with_schema), expected, rtol=0, atol=1e-9)
    for make in (pl.from_pandas, pa.Table.from_pandas):
        X = make(table.drop(columns="y"))
        predictions = bo.KernelRidge(**FAST).fit(X, table["y"].to_numpy()).predict(X)
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6)


def test_the_command_line_reads_standard_input(table, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = table.to_csv(index=False).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    command = ["fit", "-", "--target", "y", "--out", "m", "--kernel", "gaussian"]
    assert run([*command, "--columns", "s*,colour,leaves", "--drop", "lea*"]) == 0
    assert bo.load("m").schema_.columns == ("size", "colour")
    table.to_csv("t.csv", index=False)
    assert run(["fit", "t.csv", *command[2:], "--drop", "zzz"]) == 1
    assert "must have a column 'zzz' to drop; its columns are" in capsys.readouterr().err
    assert run(["fit", "t.csv", *command[2:], "--drop", "zz*"]) == 1
    assert "must have a column that matches 'zz*' to drop; its" in capsys.readouterr().err
    assert run(["fit", "t.csv", *command[2:], "--columns", "zz*"]) == 1
    assert "must have a column that matches 'zz*'; its columns" in capsys.readouterr().err


COLUMNS = {
    "texts": lambda v: pd.DataFrame({"a": pd.Series(v, dtype=object)}),
    "strings": lambda v: pd.DataFrame({"a": pd.Series(v, dtype="str")}),
    "categories": lambda v: pd.DataFrame({"a": pd.Categorical(v)}),
    "polars": lambda v: pl.DataFrame({"a": v}),
    "polars categories": lambda v: pl.DataFrame({"a": pl.Series(v).cast(pl.Categorical)}),
    "arrow": lambda v: pa.table({"a": pa.chunked_array([v[:2], v[2:]])}),
    "arrow dictionary": lambda v: pa.table({"a": pa.array(v).dictionary_encode()}),
}


@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")
@pytest.mark.parametrize("kind", COLUMNS)
def test_ordinal_codes_are_positions_among_levels(kind):
    table = COLUMNS[kind](["b", None, "a", "new", "b", "é"])
    schema = Schema(("a",), encoders=(ordinal("a", ("a", "b", "é"), 9.0, indicator=True),))
    X = np.concatenate([b.X for b in Blocks.from_table(table, schema=schema)])
    np.testing.assert_array_equal(X, [[0.5, 0], [9, 1], [0, 0], [9, 0], [0.5, 0], [1, 0]])


def test_levels_of_many_blocks_are_looked_up_once():
    class Counted(dict):
        def get(self, *args):
            lookups.append(args[0])
            return super().get(*args)

    encoder, lookups = ordinal("a", ("a", "b", "é"), 9.0), []
    vars(encoder)["code"] = Counted(encoder.code)
    for places in ([1, 0], [0, 1], [1, 1]):
        column = pa.DictionaryArray.from_arrays(pa.array(places, "int32"), pa.array(["a", "b"]))
        assert encoder.encode(encoder.cells(column, str))[:, 0].tolist() == [p / 2 for p in places]
    assert lookups == ["a", "b"]


def test_schemas_are_kept_by_json_and_partial_fits(fitted, table, quiet):
    text = json.dumps(dataclasses.asdict(fitted.schema_))
    assert Schema(**json.loads(text)) == fitted.schema_
    half = bo.KernelRidge(**FAST).fit(table[:200].drop(columns="y"), table["y"][:200])
    schema = half.schema_
    half.partial_fit(table[200:].drop(columns="y"), table["y"][200:])
    assert half.schema_ == schema
    assert half.rows_seen_ == N


def test_new_categories_and_missing_values_warn_and_get_neutral_codes(fitted, table):
    odd = table.drop(columns="y").head(3).assign(colour=["mauve", "red", "red"])
    with pytest.warns(DataWarning, match=r"'colour' has .* such as 'mauve'; first in row 0"):
        X = next(iter(Blocks.from_table(odd, schema=fitted.schema_))).X
    places = [fitted.schema_.feature_names.index(f"colour={c}") for c in ("blue", "green", "red")]
    np.testing.assert_array_equal(X[:, places], [[0, 0, 0], [0, 0, 1], [0, 0, 1]])
    gap = table.drop(columns="y").head(3).assign(size=[1.0, np.nan, 2.0])
    with pytest.warns(
        DataWarning, match=r"'size' has missing values, which count as the median; first in row 1"
    ):
        assert np.isfinite(fitted.predict(gap)).all()
    tails = table.drop(columns="y").assign(tail="never")
    with pytest.warns(DataWarning, match="mostly categories that the fit has not seen"):
        assert np.isfinite(fitted.predict(tails)).all()


def test_new_categories_and_missing_values_warn_once_per_call(table):
    """Forty columns with new categories and one gap give one message."""
    a, colour = table["y"][:90], table["colour"][:90]
    X = pd.DataFrame({f"c{j}": np.roll(colour, j) for j in range(40)} | {"a": a})
    model = bo.KernelRidgeClassifier(**FAST | {"kernel": Gaussian(9.0), "method": "uniform"}).fit(
        X, a > 1
    )
    odd = X.assign(a=[np.nan, *X["a"][1:]], **{f"c{j}": "mauve" for j in range(40)})
    for call in (model.predict_proba, model.predict):
        with warnings.catch_warnings(record=True, action="always") as record:
            call(odd)
        (text,) = (str(w.message) for w in record)
        assert re.search(r"^Columns 'c0', 'c1', .* \(40 in all\) have categories that", text)
        assert "such as 'mauve'; first in row 0 of" in text
        assert "Column 'a' has missing values, which count as the median; first in row 0" in text


@pytest.mark.parametrize("library", [pd.DataFrame, pa.Table.from_pandas])
def test_levels_declared_by_a_type_give_no_warning(table, library, quiet):
    y, X = table["y"][:90], table[["size", "colour"]][:90]
    X = X.assign(colour=pd.Categorical(X["colour"], ["red", "green", "puce", "blue"]))
    declared = X[:1].assign(colour=pd.Categorical(["puce"], X["colour"].cat.categories))
    model = bo.KernelRidge(**FAST).fit(library(X), y)
    assert np.isfinite(model.predict(library(declared))).all()
    text = X.astype({"colour": str})
    assert np.array_equal(model.predict(X), bo.KernelRidge(**FAST).fit(text, y).predict(X))
    with pytest.warns(DataWarning, match="such as 'mauve'; first in row 0"):
        model.predict(declared.assign(colour="mauve"))


def test_levels_are_correct_while_another_thread_reads_other_cells():
    encoder, column = Levels("a", ("x", "y")), pa.array(["x", "y"])
    codes = encoder.cells(column, str)
    words = encoder._latest[0]

    class Words:
        def equals(self, words_):  # at this point another thread reads cells
            encoder._latest[0] = words
            encoder.cells(pa.array(["y", "x"]), str)
            return words.equals(words_)

    encoder._latest[0] = Words()
    np.testing.assert_array_equal(encoder.cells(column, str), codes)


def test_invalid_cells_raise_with_their_column_and_row(fitted, table):
    for change, message in (
        ({"size": "a"}, r"'size' must hold numbers; got 'a' in row 0 of the pandas DataFrame"),
        ({"leaves": "dusk"}, r"'leaves' must hold times as clock; got 'dusk' in row 0 .* Correct"),
        ({"size": np.inf}, r"'size' must hold finite numbers; got inf in row 0"),
        ({"date": 3.0}, r"'date' must hold times, .* row 0 of .* holds double"),
    ):
        with pytest.raises(InvalidInput, match=message):
            fitted.predict(table.assign(**change))


def test_target_means_do_not_leak():
    """Levels are independent of the target; means with the row's own target would predict it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"tail": [f"N{i}" for i in rng.integers(0, 120, 600)], "a": rng.normal(size=600)}
    )
    scores = cross_val_score(bo.KernelRidge(**FAST), frame, rng.normal(size=600), cv=3)
    # R² of noise on 200 rows has deviation √(2/200) = 0.1; leaking means give −0.3 and below
    assert np.mean(scores) > -0.15


@pytest.mark.slow
def test_target_means_have_a_column_for_each_class():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 70, 900)
    frame = pd.DataFrame({"tail": [f"N{c}" for c in codes], "a": rng.normal(size=900)})
    for labels, columns in (((codes % 2), 1), ((codes % 3), 3)):
        model = bo.KernelRidgeClassifier(**FAST).fit(frame, labels)
        assert len([name for name in model.schema_.feature_names if "(target" in name]) == columns
        assert model.score(frame, labels) > 0.95


def test_learners_without_targets_use_the_most_frequent_levels():
    frame = pd.DataFrame(
        {"tail": [f"N{i % 70 if i < 300 else i % 5}" for i in range(600)], "a": np.arange(600.0)}
    )
    (tail, _) = bo.KernelPCA(2, n_features=32, random_state=0).fit(frame).schema_.encoders
    assert tail.tolerated == 1
    assert {"N0", "N4"} <= {*tail.levels}
    assert len(tail.levels) == 50


def test_the_order_of_categories_is_used():
    order = pd.Categorical(["mid", "low", None, "high"] * 30, ["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"grade": order})
    enum = pl.Series(["mid", "low", None, "high"] * 30, dtype=pl.Enum(["low", "mid", "high"]))
    for X in (frame, pl.DataFrame({"grade": enum}), pa.Table.from_pandas(frame)):
        model = bo.KernelRidge(**FAST).fit(X, np.tile([1.0, 0, 3, 2], 30))
        assert model.schema_.encoders == (ordinal("grade", ("low", "mid", "high"), 0.5, True),)
        np.testing.assert_allclose(model.predict(X)[:4], [1, 0, 3, 2], atol=0.1)
    places = np.arange(600) % 60  # more levels than get separate columns
    table_ = pd.DataFrame({"grade": pd.Categorical([f"{i:02}" for i in places], ordered=True)})
    predictions = bo.KernelRidge(**FAST).fit(table_, places % 7 + places).predict(table_)
    np.testing.assert_allclose(predictions, places % 7 + places, atol=4)


DAY, LATER = dt.date(2021, 1, 1), dt.date(2021, 3, 5)

TIMES = {
    "timestamp": pd.date_range("2021-01-01 08:30", periods=60, freq="31h"),
    "zone": pd.date_range("2021-01-01 08:30", periods=60, freq="31h", tz="Europe/Berlin"),
    "day": [dt.date(2021, 1, 1) + dt.timedelta(days=i) for i in range(60)],
    "clock": [dt.time(i % 24, 30) for i in range(60)],
    "duration": pd.to_timedelta(range(60), unit="h"),
    "decimal": [Decimal(i) / 4 for i in range(60)],
    "nullable": pd.array([None if i % 7 == 0 else i for i in range(60)], dtype="Int64"),
    "boolean": pd.array([None if i % 7 == 0 else i % 2 == 0 for i in range(60)], dtype="boolean"),
    "string": pd.array([None if i % 7 == 0 else "xyz"[i % 3] for i in range(60)], dtype="string"),
    "category": pd.Categorical(["xyz"[i % 3] for i in range(60)]),
    "numbers as categories": pd.Categorical([i % 3 for i in range(60)]),
    "period": pd.period_range("2020-01", periods=60, freq="M"),
    "half": np.arange(60, dtype="float16"),
    "interval": pd.cut(np.arange(60) % 7, [-1, 1, 4, 7]),
    "runs": pd.Series(
        pd.arrays.ArrowExtensionArray(
            pa.chunked_array([pa.RunEndEncodedArray.from_arrays([20, 60], pa.array(["x", "z"]))])
        )
    ),
    "long decimal": pd.Series(
        [Decimal(i) / 4 for i in range(60)], dtype=pd.ArrowDtype(pa.decimal256(50, 2))
    ),
    "date64": pd.Series([DAY] * 30 + [LATER] * 30, dtype=pd.ArrowDtype(pa.date64())),
}


@pytest.mark.parametrize("kind", TIMES)
def test_columns_of_all_types_are_fitted(kind, tmp_path):
    frame = pd.DataFrame({"column": TIMES[kind], "other": np.arange(60.0) ** 2 % 7})
    y = np.arange(60.0)
    expected = bo.KernelRidge(**FAST).fit(frame, y).predict(frame)
    assert np.isfinite(expected).all()
    if kind in ("period", "interval", "numbers as categories"):
        return  # not types of Arrow
    arrow = pa.Table.from_pandas(frame)
    tables = [] if kind in ("runs", "long decimal") else [pl.from_arrow(arrow)]  # not in polars
    for X in (arrow, *tables):
        repeat = bo.KernelRidge(**FAST).fit(X, y)
        np.testing.assert_allclose(repeat.predict(X), expected, rtol=0, atol=1e-5)


def test_sparse_columns_of_a_frame_are_converted_without_a_warning():
    rng = np.random.default_rng(0)
    cells = np.where(rng.random(80) < 0.2, 1.5, 0.0)
    dense = pd.DataFrame({"a": rng.normal(size=80), "b": cells})
    frame = dense.assign(b=pd.arrays.SparseArray(cells))
    expected = bo.KernelRidge(**FAST).fit(dense, dense["a"] + cells).predict(dense)
    with warnings.catch_warnings(action="error"):
        model = bo.KernelRidge(**FAST).fit(frame, dense["a"] + cells)
        np.testing.assert_allclose(model.predict(frame), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_target_and_weights_may_be_names_of_columns(make):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=80), "c": rng.choice(["u", "v"], 80), "w": rng.random(80)}
    y = columns["a"] + (columns["c"] == "u")
    table = make(columns | {"price": y})
    X = make({name: columns[name] for name in "ac"})
    expected = bo.KernelRidge(**FAST).fit(X, y, columns["w"])
    model = bo.KernelRidge(**FAST).fit(table, "price", "w")
    assert model.schema_.columns == ("a", "c")
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    np.testing.assert_array_equal(model.predict(table), expected.predict(X))
    assert list(bo.KernelRidgeClassifier(**FAST).fit(make(columns), "c").classes_) == ["u", "v"]
    with pytest.raises(InvalidInput, match=r"must have a column 'prize' \(did you mean 'price'"):
        bo.KernelRidge(**FAST).fit(table, "prize")


@pytest.mark.parametrize("learner", ["KernelRidgeClassifier", "LogisticRegression", "SVC"])
def test_numeric_classes_may_come_with_dates_and_missing_values(learner, tmp_path):
    frame = raw_table(120)[["size", "gap", "date", "colour"]].assign(y=np.arange(120) % 3 == 0)
    frame["y"] = frame["y"] + 0
    frame.to_csv(tmp_path / "t.csv", index=False)
    kind = getattr(bo, learner)
    by_text = kind(**FAST).fit(frame.drop(columns="y"), np.where(frame["y"], "yes", "no"))
    model = kind(**FAST).fit_blocks(Blocks.from_files(tmp_path / "t.csv", target="y"))
    assert list(model.classes_) == [0, 1]
    np.testing.assert_array_equal(model.predict(frame) == 1, by_text.predict(frame) == "yes")


def test_texts_of_times_are_parsed():
    for texts, form, seconds in (
        (["06:00"], "clock", 6 * 3600),
        (["6:30 pm"], "clock", 18.5 * 3600),
        (["1970-01-02"], "year-month-day", 86400),
        (["1970/1/2 01:00:30"], "year-month-day", 86400 + 3630),
        (["1970-01-01T01:00:00.5Z"], "year-month-day", 3600.5),
        (["13.01.1970"], "day.month.year", 12 * 86400),
        (["01/13/1970"], "month/day/year", 12 * 86400),
        (["01/02/1970", "02/13/2020"], "month/day/year", 86400),
        (["01/02/1970", "13/02/2020"], "day.month.year", 31 * 86400),
        (["1970-02"], "year-month", 31 * 86400),
        (["1970 Q2"], "year quarter", 90 * 86400),
        (["1970-q4"], "year quarter", 273 * 86400),
    ):
        assert form_of(texts) == form
        assert seconds_of(texts[0], form) == seconds


def test_other_texts_are_not_parsed_as_times():
    for texts in (["1970 Q5"], ["25:00"], ["1970-02-30"], ["0:30 pm"], ["3"], []):
        assert form_of(texts) == ""
    assert form_of(["2020-01-01", "soon"]) == ""


def with_gaps(n=N, seed=1):
    """Return an array of four columns with a tenth of its cells missing, and a target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return np.where(rng.random(X.shape) < 0.1, np.nan, X), np.sin(X[:, 0]) + X[:, 1] ** 2


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.SVC, bo.KernelKMeans])
def test_arrays_with_missing_values_equal_tables(learner):
    X, y = with_gaps()
    y = y > 1 if learner is bo.SVC else y
    table = pd.DataFrame(X, columns=[*"abcd"])
    fit = learner(**FAST).fit(X, y)
    reference = learner(**FAST).fit(table, y)
    np.testing.assert_array_equal(fit.predict(X[:50]), reference.predict(table[:50]))
    assert fit.n_features_in_ == 4
    assert not hasattr(fit, "feature_names_in_")


def test_missing_values_of_arrays_become_medians_with_an_indicator(tmp_path):
    X, y = with_gaps()
    gaps = np.isnan(X)
    filled = np.where(gaps, np.nanmedian(X, axis=0), X)
    wide = np.column_stack([c for j in range(4) for c in (filled[:, j], gaps[:, j])])
    model = lambda: bo.KernelRidge(
        **FAST | {"kernel": Gaussian(2.0), "method": bo.Fourier(bo.IID())}
    )
    np.testing.assert_array_equal(model().fit(X, y).predict(X), model().fit(wide, y).predict(wide))
    half = model().fit(X[:200], y[:200]).partial_fit(np.nan_to_num(X[200:]), y[200:])
    bo.save(half, tmp_path / "m.bochner")
    repeat = bo.load(tmp_path / "m.bochner").predict(X.tolist())
    np.testing.assert_array_equal(repeat, half.predict(X))
    assert cross_val_score(bo.KernelRidge(**FAST), X, y, cv=3).min() > 0.2


def test_missing_values_unknown_to_the_fit_raise():
    X, y = with_gaps()
    reference = bo.KernelRidge(**FAST).fit(np.nan_to_num(X), y)
    row, column = np.argwhere(np.isnan(X))[0]
    place = rf"the fit had none; got NaN in row {row}, column {column} \(counted from 0\). Fill"
    with pytest.raises(InvalidInput, match=place):
        reference.predict(X)
    with pytest.raises(InvalidInput, match=place):
        reference.partial_fit(X, y)
    with pytest.raises(InvalidInput, match="a sparse X must have no missing values; got NaN in"):
        bo.KernelRidge(**FAST).fit(csr_array(X), y)
    with pytest.raises(InvalidInput, match=r"X must hold finite numbers, .*; got infinity"):
        bo.KernelRidge(**FAST).fit(np.where(np.isnan(X), np.inf, X), y)


def test_labels_of_nullable_types_without_missing_values_keep_their_type():
    for labels, classes in (
        (pd.array([True, False] * 30, dtype="boolean"), [False, True]),
        (pd.Series([3, 5] * 30, dtype="Int64"), [3, 5]),
        (pd.Series([True, False] * 30, dtype=pd.ArrowDtype(pa.bool_())), [False, True]),
    ):
        X = np.random.default_rng(0).normal(size=(60, 2))
        model = bo.KernelRidgeClassifier(**FAST).fit(X, labels)
        assert model.classes_.dtype == np.array(classes).dtype
        assert model.classes_.tolist() == classes


def missing_targets(missing, target="y"):
    """Return a raw table in which some rows have no target, and the table without these rows."""
    frame = raw_table(N)
    frame["label"] = np.where(frame["y"] > 1, "high", "low")
    frame.loc[missing, target] = None if target == "label" else np.nan
    frame.loc[missing, "colour"] = "violet"  # a category that no row of the fit has
    frame = frame.drop(columns="label" if target == "y" else "y")
    return frame, frame.drop(index=missing).reset_index(drop=True)


MISSING = [0, 1, 7, *range(250, 300), 399]


def formats_of(frame, folder):
    """Yield the table in all formats: frames, Arrow tables, and files."""
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", row_group_size=64)
    feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), f"{folder}/t.arrow")
    frame[:260].to_csv(folder / "a.csv", index=False)
    frame[260:].to_csv(folder / "b.csv", index=False)
    yield from (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy())
    yield pa.Table.from_pandas(frame, preserve_index=False)
    for names in (["t.csv"], ["t.parquet"], ["t.arrow"], ["a.csv", "b.csv"]):
        yield [folder / name for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["y", "label"])
def test_rows_without_a_target_are_left_out_in_all_formats(tmp_path, target):
    frame, complete = missing_targets(MISSING, target)
    kind = bo.KernelRidge if target == "y" else bo.KernelRidgeClassifier
    with warnings.catch_warnings(action="ignore", category=DataWarning):
        expected = kind(**FAST).fit(complete, target).predict(complete)
    for source, rows in zip(formats_of(frame, tmp_path), (64, 4096) * 4, strict=False):
        make = Blocks.from_files if isinstance(source, list) else Blocks.from_table
        with pytest.warns(DataWarning, match=rf"a target '{target}' are left out: 54 of 400;"):
            blocks = make(source, target=target, block_rows=rows)
        with pytest.warns(DataWarning, match="columns are left out"):
            model = kind(**FAST).fit_blocks(blocks)
        assert np.array_equal(model.predict(complete), expected)
        assert blocks.n_rows == len(complete)
    w = np.arange(1.0, 401)
    with warnings.catch_warnings(record=True, action="always") as record:
        model = kind(**FAST).fit(frame, target, sample_weight=w)
        match = kind(**FAST).fit(complete, target, sample_weight=np.delete(w, MISSING))
    assert "54 of 400; first in row 0 of X (counted from 0)." in str(record[0].message)
    assert np.array_equal(model.predict(complete), match.predict(complete))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_parts_of_blocks_skip_rows_without_a_target(tmp_path, suffix):
    frame, complete = missing_targets(MISSING)
    frame, complete = frame[["size", "y"]], complete[["size", "y"]]
    list(formats_of(frame, tmp_path))
    with pytest.warns(DataWarning, match="target 'y' are left out: 108 of 800; first in row"):
        reference = Blocks.from_files([tmp_path / f"t.{suffix}"] * 2, target="y")
    y = np.tile(complete["y"], 2)
    for start, stop in ((0, 64), (0, len(y)), (200, 250), (300, 400), (345, 347), (691, 692)):
        part = reference.part(start, stop)
        assert np.concatenate([block.y for block in part]).tolist() == y[start:stop].tolist()
        repeat = part.part(1, stop - start) if stop > start + 1 else part
        first = start + (stop > start + 1)
        assert np.concatenate([b.y for b in repeat]).tolist() == y[first:stop].tolist()


def test_warnings_about_text_files_state_the_line_number(tmp_path):
    (tmp_path / "t.csv").write_text('a,y\n"two\nlines",1\nx,\n\nx,3\n')
    with pytest.warns(DataWarning, match=r"target 'y' are left out: 1 of 3; first in line 4 of"):
        Blocks.from_files(tmp_path / "t.csv", target="y")
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,\n")
    with pytest.raises(InvalidInput, match="one row must have a target 'y'; got none in 2"):
        Blocks.from_files(tmp_path / "t.csv", target="y")
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [np.nan, np.nan]})
    with pytest.raises(InvalidInput, match="at least one row must have a target 'y'; got none in"):
        bo.KernelRidge().fit(frame, "y")


def test_the_command_line_checks_rows_with_a_target_and_predicts_all_rows(tmp_path, capsys):
    frame, complete = missing_targets(MISSING)
    frame.to_csv(tmp_path / "t.csv", index=False)
    complete.to_csv(tmp_path / "rest.csv", index=False)
    frame.assign(y="").to_csv(tmp_path / "none.csv", index=False)
    out = ["--out", f"{tmp_path}/m.bochner", "--features", "32", "--kernel", "gaussian"]
    assert run(["fit", f"{tmp_path}/t.csv", "--target", "y", *out]) == 0
    output = capsys.readouterr()
    assert "rows without a target 'y' are left out: 54 of 400; first in line 2 of" in output.err
    assert re.search(r"rows +346\n", output.out)

    def errors_of(name):
        assert run(["check", f"{tmp_path}/m.bochner", f"{tmp_path}/{name}", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["errors"]

    assert errors_of("t.csv") == errors_of("rest.csv")
    assert errors_of("none.csv") == {}
    p = ["--out", f"{tmp_path}/p.csv", "--json"]
    assert run(["predict", f"{tmp_path}/m.bochner", f"{tmp_path}/t.csv", *p]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 400


def panel(rows=20, n_levels=60, seed=0):
    """Return levels with the same mean, half with slope 1 and half with slope −1."""
    rng = np.random.default_rng(seed)
    level = np.repeat(np.arange(n_levels), rows)
    x = rng.uniform(-1, 1, len(level))
    frame = pd.DataFrame({"x": x, "level": [f"l{k:02d}" for k in level]})
    return frame, x * np.where(level % 2, 1.0, -1.0)


@pytest.mark.slow
def test_levels_of_equal_means_get_codes_if_they_have_enough_rows():
    frame, y = panel()
    model = bo.KernelRidge(random_state=0).fit(frame, y)
    names = model.schema_.feature_names
    assert names == ("x", "level (target)", *(f"level (code {i})" for i in range(16)))
    new, truth = panel(seed=1)
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.25 * truth.std()
    table, y = panel(rows=9)
    model = bo.KernelRidge(**FAST).fit(table, y)
    assert model.schema_.feature_names == ("x", "level (target)")


def test_missing_levels_have_a_code_and_new_levels_are_equidistant():
    frame, y = panel()
    frame.loc[::7, "level"] = None
    model = bo.KernelRidge(**FAST).fit(frame, y)
    (encoder,) = (e for e in model.schema_.encoders if e.name == "level")
    (missing, new) = encoder.encode(np.array([np.nan, -1.0]))
    assert set(missing[1:]) == {0.0, 1.0}
    assert new[1:].tolist() == [0.5] * 16


def test_times_have_the_parts_of_their_range():
    days = np.arange(10.0) * 86400
    assert parts_for(days, clock=False) == ("trend",)
    assert parts_for(days * 3, clock=False) == ("trend", "week")
    assert parts_for(days * 60, clock=False) == ("trend", "year", "week")
    assert parts_for(days * 1.1, clock=False) == ("trend", "day")
    assert parts_for(np.array([np.nan]), clock=True) == ("day",)
    frame = pd.DataFrame({"when": [f"{2000 + k // 4} Q{k % 4 + 1}" for k in range(80)]})
    seconds = np.array([seconds_of(text, "year quarter") for text in frame["when"]])
    assert parts_for(seconds, clock=False) == ("trend", "year")  # always the first day of a quarter
    assert parts_for(seconds + 86400, clock=False) == ("trend", "year", "week")
    model = bo.KernelRidge(**FAST).fit(frame, np.arange(80.0))
    expected = ("when (days)", "when (season, sine)", "when (season, cosine)")
    assert model.schema_.feature_names == expected
    assert model.predict(pd.DataFrame({"when": ["2004Q3"]})) == pytest.approx([18.0], abs=1.0)


@pytest.mark.parametrize(
    "model", [bo.KernelRidge(), bo.KernelRidge(method="local"), bo.GaussianProcessRegressor()]
)
def test_a_season_continues_after_the_last_date(model):
    """Far from all dates the kernel was zero, and predictions were the mean target."""
    days = np.sort(np.random.default_rng(0).integers(0, 8000, 300))
    frame = pd.DataFrame({"day": pd.Timestamp("1990-01-01") + pd.to_timedelta(days, unit="D")})
    y = days / 365.2425 % 1 + 0.1 * np.random.default_rng(1).standard_normal(300)
    kernel, origin = model.set_params(random_state=0).fit(frame, y).kernel_, np.zeros((1, 5))
    later = origin + np.array([1e9, 0, 0, 0, 0])
    assert kernel(origin, later)[0, 0] == pytest.approx(kernel(origin, origin)[0, 0] / 2, rel=0.01)
