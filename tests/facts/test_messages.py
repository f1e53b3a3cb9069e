"""What cannot be is refused in a sentence: who, what was required, what came, what to do."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import is_classifier

import bochner as bo
from bochner import models
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Gaussian
from bochner.landmarks import Given

RNG = np.random.default_rng(11)
X = RNG.normal(size=(70, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=70)

LEARNERS = [
    cls
    for cls in map(models.__dict__.get, models.__all__)
    if isinstance(cls, type) and hasattr(cls, "fit_blocks")
]
CLASSIFIERS = [cls for cls in LEARNERS if is_classifier(cls())]


@pytest.mark.main_cases(8)
@pytest.mark.parametrize("cls", LEARNERS)
def test_a_fit_logs_its_steps_and_prints_them_if_verbose(cls, caplog, capsys):
    y = Y > 0 if cls in CLASSIFIERS else X[:, :2] if cls is bo.KernelCCA else Y
    caplog.set_level("INFO", logger="bochner")
    silent = cls(random_state=0).fit(X, y)
    logged = [record.getMessage() for record in caplog.records if record.name == "bochner"]
    assert logged[-1].startswith(f"{cls.__name__} fitted to Blocks(")
    assert capsys.readouterr().out == ""
    loud = cls(random_state=0, verbose=True).fit(X, y)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(logged)
    assert printed[-1].startswith(f"{cls.__name__} fitted to Blocks(")
    assert loud.kernel_ == silent.kernel_
    assert "verbose : bool, default False" in cls.__doc__


def test_each_candidate_of_a_default_fit_is_logged(caplog):
    caplog.set_level("INFO", logger="bochner")
    found = bo.KernelRidge(random_state=0).fit(X, Y).search_
    lines = "\n".join(record.getMessage() for record in caplog.records)
    numbers = re.findall(r"Choosing the kernel with 53 rows: candidate (\d) of (\d): ", lines)
    assert {int(k) for k, n in numbers if n == "3"} == {1, 2, 3}
    assert all(c.name in lines for c in found.compared if " + " not in c.name)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern32"])
def test_columns_of_denormal_numbers_are_refused(kernel):
    model = bo.KernelRidge(kernel, n_features=16, random_state=0)
    with pytest.raises(
        InvalidInput, match=r"differences float64 holds to all its digits; got columns of"
    ):
        model.fit(X * 1e-315, Y)
    model.fit(X * 1e-300, Y)
    assert model.score(X * 1e-300, Y) > 0.5


def test_given_landmarks_are_written_by_their_shape():
    assert str(bo.Nystrom(Given(X[:8]))) == "Nystrom(landmarks=Given(rows=<array (8, 3)>))"


def test_methods_with_given_landmarks_are_compared():
    methods = [bo.Nystrom(Given(X[:8])), bo.Fourier()]
    found = bo.compare(Gaussian(), X, n_features=8, methods=methods, random_state=0)
    assert "Given(rows=<array (8, 3)>)" in str(found)


def test_whole_numbers_that_float64_does_not_hold_are_named(tmp_path):
    table = pa.table({"a": [1, 2**53, 2**53 + 1, 5], "b": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "t.parquet")
    match = r"column 'a' must hold .* whole ones from -2\*\*53 to 2\*\*53; got 9007199254740993 in row 2"
    with pytest.raises(InvalidInput, match=match):
        list(bo.Blocks.from_files(tmp_path / "t.parquet"))


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize(
    ("other", "match"),
    [
        (1, "labels in y must be all text or all numbers; got 'a' and 1. Make them alike"),
        (None, r"y must have no missing labels; got None in row 1 \(counted from 0\). Drop"),
    ],
)
def test_labels_of_mixed_kinds_are_refused(cls, other, match):
    with pytest.raises(InvalidInput, match=f"{cls.__name__}: {match}"):
        cls(n_features=16).fit(X, np.array(["a", other] * 35, dtype=object))


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "string", "float64"])
def test_missing_labels_of_every_kind_are_named_by_their_row(dtype):
    labels = pd.Series([1, 0] * 35, dtype="Int64").astype(dtype)
    labels[5] = np.nan if dtype == "float64" else pd.NA
    match = r"Classifier: y must have no missing labels; got (<NA>|nan) in row 5 \(counted from 0\)"
    with pytest.raises(InvalidInput, match=match):
        bo.KernelRidgeClassifier(n_features=16).fit(X, labels)


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize("method", [None, "fourier"])
def test_weights_that_are_all_zero_are_refused(cls, method):
    if cls is bo.KernelFeatures and method is not None:
        method = "nystrom"  # those of a given kernel by Fourier features read no row
    y = (Y > 0).astype(float)
    options = {"n_features": 16} | ({} if method is None else {"method": method})
    model = cls(**options) if method is None else cls(kernel=Gaussian(), **options)
    with pytest.raises(
        InvalidInput, match="at least one row must have a weight above zero; all are zero"
    ):
        model.fit_blocks(bo.Blocks.from_arrays(X, y, np.zeros(70)))


def test_columns_of_one_name_are_refused():
    table = pd.DataFrame(np.column_stack([X, Y]), columns=list("abca"))
    model = bo.KernelRidge(n_features=16, random_state=0)
    with pytest.raises(
        InvalidInput, match="columns of X must have different names; got 'a' more than once"
    ):
        model.fit(table, Y)
    model.fit(pd.DataFrame(X, columns=list("abc")), Y)
    with pytest.raises(
        InvalidInput, match="columns of X must have different names; got 'a' more than once"
    ):
        model.predict(table)


@pytest.mark.parametrize("column", [pd.Series(Y), pd.Series(["a"] * 70), pl.Series("a", Y)])
def test_a_series_is_no_table(column):
    with pytest.raises(
        InvalidInput, match=r"got a Series, which is one column. Pass X.to_frame\(\)"
    ):
        bo.KernelRidge(n_features=16).fit(column, Y)


def test_rows_may_come_as_lists():
    one = bo.required_features(Gaussian(2.0), "fourier", X.tolist(), alpha=1.0, random_state=0)
    assert (
        one.n_features
        == bo.required_features(Gaussian(2.0), "fourier", X, alpha=1.0, random_state=0).n_features
    )


@pytest.mark.parametrize("cls", [c for c in LEARNERS if "fit_intercept" in c().get_params()])
@pytest.mark.parametrize("given", [None, "no", 2.5])
def test_an_intercept_is_wanted_or_not(cls, given):
    model, y = cls(n_features=16, fit_intercept=given), (Y > 0).astype(int)
    match = f"{cls.__name__}: fit_intercept must be True or False; got {given!r}"
    with pytest.raises(InvalidType, match=match):
        model.fit(X, y)
    with pytest.raises(InvalidType, match=match):
        model.fit_blocks(bo.Blocks.from_arrays(X, y))


@pytest.mark.parametrize("alpha", ["x", -1.0, None])
def test_the_penalty_of_kernel_pca_is_checked(alpha):
    with pytest.raises((InvalidInput, InvalidType), match="alpha must be"):
        bo.KernelPCA(n_features=16, alpha=alpha).fit(X)


@pytest.mark.parametrize("n_inputs", [1.5, True, "3", 0, -2])
def test_a_number_of_columns_is_a_whole_number(n_inputs):
    with pytest.raises(
        (InvalidInput, InvalidType), match="draw: n_inputs must be an integer, 1 or above"
    ):
        bo.draw(Gaussian(), n_features=8, n_inputs=n_inputs)


def test_whole_numbers_of_other_types_are_taken():
    phi = bo.draw(Gaussian(), n_features=8, n_inputs=np.int64(3), random_state=0)
    assert phi(X).sum(axis=1).shape == (70,)
    assert (phi(X) ** 2).sum(axis=1) == pytest.approx(np.ones(70), abs=1.0)


ROWS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([["a", "b"]] * 6, ROWS[:, 0], "KernelRidge: X must hold numbers; got text .* DataFrame"),
        (ROWS[:, 0], ROWS[:, 0], r"two dimensions, .* got shape \(6,\)\. Reshape your data"),
        ([[1.0, 2.0], [3.0]], [1.0, 2.0], "X must have rows of equal length; got several lengths"),
        (ROWS * np.nan, ROWS[:, 0], r"at least one column must tell rows apart; got none"),
        (ROWS + np.inf, ROWS[:, 0], r"X must hold finite numbers, or NaN .*; got infinity\. Drop"),
        (ROWS, ROWS[:, 0] * np.nan, r"y must hold finite numbers; got NaN\. Leave out"),
    ],
    ids=["text", "one column", "lengths", "gaps", "infinity", "target"],
)
def test_rows_that_cannot_be_read_are_refused_with_what_to_do(X, y, message):
    with pytest.raises(bo.errors.InvalidInput, match=message):
        bo.KernelRidge().fit(X, y)


def test_rows_to_predict_that_cannot_be_read_are_refused_alike():
    model = bo.KernelRidge(random_state=0).fit(ROWS, ROWS[:, 0])
    with pytest.raises(bo.errors.InvalidInput, match="KernelRidge: X must have no missing values"):
        model.predict(ROWS * np.nan)
