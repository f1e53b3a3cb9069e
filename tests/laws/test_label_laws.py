"""Labels of any type become codes and names again, from arrays, tables and files alike."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bochner import (
    SVC,
    Blocks,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSGDClassifier,
    LogisticRegression,
)
from bochner.errors import DataWarning, InvalidInput
from bochner.kernels import Gaussian
from bochner.models._kinds import LabelEstimator
from bochner.selection.choose import choose
from bochner.selection.chosen import FeatureSpec
from bochner.sums.rows import indicators

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 2))
CODES = np.arange(30) % 3
NAMES = {
    "texts": np.array(["b", "a", "long name"]),
    "integers": np.array([7, -1, 100]),
    "fractions as whole floats": np.array([2.0, 0.0, 5.0]),
    "objects": np.array(["b", "a", "c"], dtype=object),
}


class Classifier(LabelEstimator):
    """A learner that knows its rows and nothing else."""

    def __init__(self, class_weight=None, kernel="gaussian"):
        self.kernel, self.class_weight = kernel, class_weight

    def fit(self, X, y): ...

    @property
    def classes_(self):
        return self.fit_.inputs.classes


def noted(model, found):
    """The blocks; the model keeps what they are."""
    blocks, inputs = found
    model.fit_ = SimpleNamespace(inputs=inputs)
    return blocks


def class_blocks_of(model, X, y, sample_weight=None, classes=None):
    return noted(model, model._class_blocks_of(X, y, sample_weight, classes=classes))


def class_blocks(model, blocks, first=True):
    return noted(model, model._class_blocks(blocks, first))


def all_of(blocks, part):
    return np.concatenate([getattr(block, part) for block in blocks])


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("block_rows", [4, 30])
def test_codes_name_the_labels(names, block_rows):
    model, labels = Classifier(), names[CODES]
    codes = all_of(class_blocks_of(model, X, labels).with_rows(block_rows), "y").astype(int)
    assert model.classes_.tolist() == sorted(set(labels.tolist()))
    assert model.classes_[codes].tolist() == labels.tolist()


@pytest.mark.parametrize(
    "column", [pa.array, pl.Series, pd.Series], ids=["arrow", "polars", "pandas"]
)
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_columns_of_data_frames_give_the_codes_of_arrays(names, column):
    model, labels = Classifier(), names[CODES]
    codes = all_of(class_blocks_of(model, X, column(labels.tolist())), "y").astype(int)
    assert model.classes_[codes].tolist() == labels.tolist()


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_tables_give_the_codes_of_arrays(names):
    table = pd.DataFrame(X, columns=["a", "b"]).assign(label=names[CODES])
    model, same = Classifier(), Classifier()
    codes = all_of(class_blocks(model, Blocks.from_table(table, "label")), "y")
    assert codes.tolist() == all_of(class_blocks_of(same, X, names[CODES]), "y").tolist()
    assert model.classes_.tolist() == same.classes_.tolist()


def test_a_file_of_labels_is_read_in_any_order_of_its_rows(tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "label": NAMES["texts"][CODES]})
    table.to_csv(tmp_path / "rows.csv", index=False)
    model = Classifier()
    blocks = Blocks.from_files(tmp_path / "rows.csv", target="label", block_rows=7)
    codes = all_of(class_blocks(model, blocks), "y").astype(int)
    assert model.classes_[codes].tolist() == table.label.tolist()
    assert blocks.schema.classes == ("a", "b", "long name")
    again = class_blocks(model, blocks, first=False)
    assert all_of(again, "y").tolist() == codes.tolist()


def test_later_tables_may_lack_classes_and_keep_the_codes():
    table = pd.DataFrame({"a": X[:, 0], "label": NAMES["texts"][CODES]})
    model = Classifier()
    class_blocks(model, Blocks.from_table(table, "label"))
    few = table[table.label != "a"]
    codes = all_of(class_blocks(model, Blocks.from_table(few, "label"), first=False), "y")
    assert model.classes_[codes.astype(int)].tolist() == few.label.tolist()


def test_balanced_weights_give_every_class_the_same_sum():
    labels = np.array(["a"] * 20 + ["b"] * 9 + ["c"])
    blocks = class_blocks_of(Classifier("balanced"), X, labels).with_rows(4)
    y, w = all_of(blocks, "y"), all_of(blocks, "w")
    assert [w[y == k].sum() for k in range(3)] == pytest.approx([10, 10, 10])


def test_given_class_weights_multiply_those_of_rows():
    weights = RNG.uniform(1, 2, 30)
    blocks = class_blocks_of(Classifier({1: 5.0}), X, CODES, weights)
    assert all_of(blocks, "w") == pytest.approx(weights * np.where(CODES == 1, 5, 1))


def test_indicators_are_one_column_for_two_classes_and_one_each_for_more():
    assert indicators(np.array([0.0, 1.0]), 2).tolist() == [[-1.0], [1.0]]
    assert indicators(np.array([0.0, 2.0]), 3).tolist() == [[1, -1, -1], [-1, -1, 1]]


def test_the_lengthscale_of_a_classifier_is_chosen_by_its_classes():
    labels = np.array(["in", "out"])[(X[:, 0] ** 2 > 0.5).astype(int)]
    asked = FeatureSpec.of("Classifier", "gaussian", "auto", 16, "auto", 0)
    chosen, rows = choose(asked, class_blocks_of(Classifier(), X, labels), n_classes=2)
    assert set(np.unique(rows.y)) == {-1.0, 1.0}
    assert len(chosen.search.tried) > 1


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (np.zeros(30), None, r"at least 2 classes; got the 1 class 0.0 only"),
        (RNG.standard_normal(30), None, r"Unknown label type: continuous"),
        (CODES, [0, 1], r"one of the classes 0, 1; got 2\. Name all classes in the first call"),
        (CODES[:7], None, r"inconsistent numbers of samples"),
        (None, None, r"requires y to be passed"),
    ],
)
def test_labels_that_are_none_are_refused(labels, classes, message):
    with pytest.raises(ValueError, match=message):
        class_blocks_of(Classifier(), X, labels, classes=classes)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("heavy", r'class_weight must be None, "balanced" or a dict'),
        ({9: 1.0}, r"class_weight must name classes among 0, 1, 2; got 9"),
        ({0: -1.0}, r"must be finite and not negative"),
    ],
)
def test_class_weights_that_are_none_are_refused(weights, message):
    with pytest.raises(InvalidInput, match=message):
        class_blocks_of(Classifier(weights), X, CODES)


def test_blocks_of_a_quantity_are_refused():
    blocks = Blocks.from_arrays(X, RNG.standard_normal((30, 2)))
    with pytest.raises(InvalidInput, match=r"one column of labels; got rows of shape \(2,\)"):
        class_blocks(Classifier(), blocks)
    with pytest.raises(InvalidInput, match=r"the target y is None"):
        class_blocks(Classifier(), Blocks.from_arrays(X))


def test_regression_on_a_target_of_text_is_refused():
    table = pd.DataFrame({"a": X[:, 0], "label": NAMES["texts"][CODES]})
    with pytest.raises(InvalidInput, match=r"target 'label' must hold numbers; got text .*Code it"):
        KernelRidge(Gaussian()).fit_blocks(Blocks.from_table(table, "label"))


# ---- quantities are no classes

CLASSIFIERS = pytest.mark.parametrize(
    "cls", [KernelRidgeClassifier, KernelSGDClassifier, LogisticRegression, SVC]
)
ROWS = np.random.default_rng(1).standard_normal((150, 2))


def ways(cls, y):
    """Every way to fit: to arrays, to blocks, and to a part of the rows."""
    model = cls(Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
    yield lambda: model.fit(ROWS, y)
    if y.dtype.kind != "U":
        yield lambda: model.fit_blocks(Blocks.from_arrays(ROWS, y))
    else:
        frame = pd.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "y": y})
        yield lambda: model.fit_blocks(Blocks.from_table(frame, target="y"))


@CLASSIFIERS
def test_numbers_that_are_not_whole_are_refused_as_classes(cls):
    y = ROWS[:, 0] + ROWS[:, 1]
    for fit in ways(cls, y):
        with pytest.raises(InvalidInput, match=r"not whole, such as .* quantity take (Kernel|SVR)"):
            fit()
    if hasattr(cls, "partial_fit"):
        with pytest.raises(InvalidInput, match=r"numbers that are not whole"):
            cls(Gaussian(1.0), n_features=8).partial_fit(ROWS, y, classes=[0, 1])


@CLASSIFIERS
def test_two_thousand_numbers_are_a_quantity_and_two_hundred_codes_are_none(cls):
    rows = np.zeros((15_000, 1))
    prices = np.arange(15_000) % 2000
    with pytest.raises(InvalidInput, match=r"got 2,000 different numbers in 15,000 rows"):
        cls(Gaussian(1.0), n_features=8).fit(rows, prices)
    Classifier()._class_blocks_of(rows, prices % 200)


@CLASSIFIERS
@pytest.mark.parametrize("kind", ["whole", "text", "text with a hole"])
def test_as_many_numbers_as_rows_are_refused_as_classes(cls, kind):
    y = np.random.default_rng(0).permutation(150)
    if kind != "whole":
        y = (y / 7).astype("U8")
    if kind == "text with a hole":
        y[3] = "?"
    message = r"got 150 different numbers in 150 rows.* quantity take (Kernel|SVR)"
    if kind == "text with a hole":  # of a table, the cell is named
        message = (
            r"150 rows, but for '\?'.* quantity take|149 of its cells are numbers .*first '\?'"
        )
    for fit in ways(cls, y):
        with pytest.raises(InvalidInput, match=message):
            fit()


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_many_classes_of_some_rows_each_are_classes():
    y = np.arange(150) % 60
    for fit in ways(KernelRidgeClassifier, y):
        assert len(fit().classes_) == 60
    model = KernelRidgeClassifier(Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
    assert len(model.partial_fit(ROWS, np.arange(150), classes=np.arange(500)).classes_) == 500


# ---- classes of few rows


LEARNERS = [KernelRidgeClassifier, LogisticRegression, SVC]


def with_rare(sizes, seed=0):
    """Clusters of so many rows, far from one another."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    return 6.0 * np.eye(len(sizes))[y] + 0.3 * rng.standard_normal((len(y), len(sizes))), y


@pytest.mark.parametrize("cls", LEARNERS)
def test_classes_of_few_rows_are_named_and_take_part(cls):
    """A class of one row, far from all others, is found again."""
    X, y = with_rare([200, 200, 1, 3])
    named = rf"{cls.__name__}: 2 classes have fewer than 5 of the 404 rows: 'c \(1\)', 'd \(3\)'\. "
    given = {"alpha": 1e-3} if cls is KernelRidgeClassifier else {"C": 100.0}
    model = cls(Gaussian(2.0), random_state=0, **given)
    with pytest.warns(DataWarning, match=named + "These rows take part"):
        model.fit(X, np.array(list("abcd"))[y])
    assert model.predict(X[[0, 200, 400]]).tolist() == ["a", "b", "c"]
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_class_of_few_rows_is_one_class():
    X, y = with_rare([200, 4])
    with pytest.warns(DataWarning, match=r"1 class has fewer than 5 of the 204 rows: '1 \(4\)'\."):
        SVC(Gaussian(2.0), random_state=0).fit(X, y)


def test_few_rows_in_all_and_classes_of_five_are_not_named():
    for sizes in ([96, 3], [200, 5]):
        SVC(Gaussian(2.0), C=1.0, probability=False, random_state=0).fit(*with_rare(sizes))
