"""Laws of all learners, each by two routes, and for each law a planted fault that it detects.

A law is a function of a case of the table in ``learners.py``. Failed calls have their own file.
"""

import copy
import pickle
import re
from functools import partial
from itertools import count

import array_api_strict
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from learners import ANSWERS, CASES, MAIN, NEW, N, answers, gap
from sklearn.base import clone

import bochner as bo
from bochner.engines import Local
from bochner.errors import BochnerError, DataWarning

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning"),
]
LAWS = {}
WITHOUT = "predict_interval", "predict_proba", "inverse_transform"
#: Methods whose results do not depend on leave-one-out errors or folds.
OF_FIT = tuple(name for name in ANSWERS if name not in WITHOUT)
PIECES = slice(0, 40), slice(40, 41), slice(41, N)


def law(name, has="", kind="", only_named=False):
    """Return a decorator that registers a law for the cases of ``kind`` with the method ``has``.

    These are the cases with its name in ``can`` if ``only_named``, otherwise without it in ``but``.
    """

    def applies(case):
        named = name in (case.law if only_named else case.skip).split()
        return named is only_named and kind in case.kind and (not has or hasattr(case.model, has))

    def add(function):
        LAWS[name] = function, [case for case in CASES if applies(case)]
        return function

    return add


def agree(case, model, other=None, names=OF_FIT):
    """Return whether two fits agree; ``other`` is by default the fit to the rows of the case."""
    results, expected = (answers(fit, case.new, names) for fit in (model, other or case.fitted))
    return gap(results, expected) <= case.rtol


def part_of(y, rows):
    """Return the targets of ``rows`` as a tuple of arguments, empty without targets."""
    return () if y is None else (y[rows],)


# ---- other formats of the same rows


@law("blocks")
def blocks_of_any_size_give_the_same_fit(case):
    """Blocks of one, several and all rows, sorted by class."""
    X, y = case.rows()
    order = np.argsort(y, kind="stable") if "class" in case.kind else np.arange(N)
    X, y = X[order], None if y is None else y[order]
    base = case.fit(X, y)
    for size in (1, 17, N):
        blocks = bo.Blocks.from_arrays(X, y, block_rows=size)
        assert agree(case, clone(case.model).fit_blocks(blocks), base, ANSWERS)


@law("memory")
def features_computed_again_in_each_pass_give_the_same_fit(case):
    blocks = bo.Blocks.from_arrays(*case.rows(), block_rows=17)
    model = clone(case.model).fit_blocks(blocks, Local(cache_bytes=0))
    assert gap(answers(model, case.new, OF_FIT), answers(case.fitted, case.new, OF_FIT)) < 1e-6


@law("stream")
def an_unknown_number_of_rows_gives_the_same_fit(case):
    """Up to float32, which small fits of unknown size may use."""
    X, y = case.rows()
    blocks = bo.Blocks.from_iterable(lambda: ((X[rows], *part_of(y, rows)) for rows in PIECES))
    assert blocks.n_rows is None
    model = clone(case.model).fit_blocks(blocks)
    assert gap(answers(model, case.new, OF_FIT), answers(case.fitted, case.new, OF_FIT)) < 1e-3


@law("sparse")
def sparse_rows_give_the_fit_of_dense_rows(case):
    """Landmarks of sparse rows differ, but predictions of sparse and dense rows agree."""
    X, y = case.rows()
    X, new = (np.column_stack([A[:, 0], np.maximum(A[:, 1], 0.0)]) for A in (X, case.new))
    dense = answers(case.fit(X, y), new)
    for make in (scipy.sparse.csr_array, scipy.sparse.csc_matrix):
        model = case.fit(make(X), y)
        results = answers(model, make(new))
        assert gap(answers(model, new), results) <= case.rtol
        assert "dense" in case.skip or gap(results, dense) <= case.rtol


@law("order", only_named=True)
def a_fit_is_independent_of_the_order_of_rows(case):
    X, y = case.rows()
    order = np.random.default_rng(3).permutation(N)
    assert agree(case, case.fit(X[order], *part_of(y, order)))


@law("dtype")
def float32_rows_give_nearly_the_same_fit(case):
    X, y = case.rows()
    results = answers(case.fit(X.astype("f4"), y), case.new.astype("f4"), OF_FIT)
    limit = 1e-3 if "metric" in case.name else 1e-4  # few steps of a descent amplify it
    assert 0 < gap(results, answers(case.fitted, case.new, OF_FIT)) < limit


@law("libraries")
def predictions_keep_the_array_library_of_the_rows(case):
    X, y = case.rows()
    for xp in (torch, array_api_strict):
        model = case.fit(xp.asarray(X.copy()), None if y is None else xp.asarray(y.copy()))
        new = xp.asarray(case.new.copy())
        for name in ("predict", "transform", "decision_function"):
            if hasattr(model, name) and "class" not in case.kind:
                assert type(getattr(model, name)(new)) is type(new)
        assert gap(answers(model, case.new), answers(case.fitted, case.new)) <= case.rtol


@law("copies")
def a_fit_does_not_follow_later_changes_of_its_arrays(case):
    arrays = [a.copy() for a in case.rows() if a is not None]
    model = case.fit(*arrays)
    for a in arrays:
        a.sort(axis=0)
    assert agree(case, model, names=ANSWERS)


@law("tables")
def tables_have_column_names_and_categories(case):
    X, y = case.rows()
    named = case.fit(pd.DataFrame(X, columns=["east", "north"]), y)
    assert list(named.feature_names_in_) == ["east", "north"]
    new = pd.DataFrame(case.new, columns=["east", "north"])
    assert gap(answers(named, new), answers(case.fitted, case.new)) <= case.rtol
    ask = next(iter(ANSWERS[n] for n in ANSWERS if hasattr(named, n)))
    with pytest.raises(ValueError, match="feature names"):
        ask(named, new.set_axis(["east", "west"], axis=1))
    if isinstance(getattr(case.model, "method", None), bo.FourierGrid | bo.NearestNeighbours):
        return  # methods of few columns
    kinds = np.array(["ash", "elm", "oak"])
    columns = {"a": X[:, 0], "kind": kinds[np.arange(N) % 3].tolist(), "b": X[:, 1]}
    onehot = np.column_stack([X[:, 0], np.eye(3)[np.arange(N) % 3], X[:, 1]])
    expected = case.fit(onehot, y)
    make = (pd.DataFrame, pl.DataFrame, pa.table)[CASES.index(case) % 3]
    model = case.fit(make(columns), y)
    results = answers(model, make({name: columns[name] for name in ("b", "kind", "a")}))
    assert gap(results, answers(expected, onehot)) <= case.rtol
    with pytest.warns(DataWarning, match="fir"):
        results = answers(model, make({"a": [0.5], "kind": ["fir"], "b": [0.0]}), OF_FIT)
    assert gap(results, answers(expected, np.array([[0.5, 0, 0, 0, 0]]), OF_FIT)) <= case.rtol
    repeat = answers(model.fit(X, y), case.new)  # an array after a table
    assert gap(repeat, answers(case.fitted, case.new)) <= case.rtol
    assert not hasattr(model, "feature_names_in_")
    assert model.schema_ is None


# ---- weights, targets, labels


@law("weights", only_named=True)
def integer_weights_equal_repeated_rows(case):
    X, y = case.rows()
    counts = np.random.default_rng(5).integers(0, 4, N)
    data = np.repeat(X, counts, axis=0), *part_of(y, np.repeat(np.arange(N), counts))
    batch = {"batch_size": 1000} if hasattr(case.model, "batch_size") else {}
    assert agree(case, case.fit(X, y, counts.astype(float), **batch), case.fit(*data, **batch))


@law("zeros")
def rows_of_weight_zero_are_ignored(case):
    """Also in choices of kernel, map and penalty."""
    X, y = case.rows()
    w = np.random.default_rng(5).integers(0, 2, N).astype(float)
    baseline = case.fit(X[w > 0], *part_of(y, w > 0))
    if case.kind in ("number", "pair"):
        y = np.where((w == 0).reshape(N, *[1] * (y.ndim - 1)), 1e6, y)
    assert agree(case, case.fit(X, y, w), baseline)


@law("scale", only_named=True)
def weights_in_another_unit_change_no_choice(case):
    """If C or alpha is given, it changes in proportion."""
    X, y = case.rows()
    w, unit = np.random.default_rng(5).uniform(0.5, 2.0, N), 2.0**-20
    state = case.model.get_params(deep=False)
    changes = {"C": state["C"] / unit} if isinstance(state.get("C"), float) else {}
    if isinstance(state.get("alpha"), float) and "strategy" not in state and case.kind != "none":
        changes = {"alpha": state["alpha"] * unit}
    assert agree(case, case.fit(X, y, w * unit, **changes), case.fit(X, y, w))


@law("unit", kind="number", only_named=True)
def predictions_have_the_unit_of_the_targets(case):
    """Local fits in float32 have a smaller range of units."""
    (X, y), names = case.rows(), ("predict", "sample_y", "predict_interval")
    for unit in (2.0**40, *(() if "range" in case.skip else (2.0**-300, 2.0**300))):
        results = answers(case.fit(X, unit * y), case.new, names)
        results = {name: value / unit for name, value in results.items()}
        assert gap(results, answers(case.fitted, case.new, names)) <= case.rtol


@law("offset", kind="number")
def an_offset_of_targets_is_added_and_a_constant_is_predicted(case):
    (X, y), names = case.rows(), ("predict", "predict_interval")
    results = answers(case.fit(X, y + 1e6), case.new, names)
    results = {name: value - 1e6 for name, value in results.items()}
    assert gap(results, answers(case.fitted, case.new, names)) < 1e-6
    assert np.abs(case.fit(X, np.full(N, 7.0)).predict(case.new) - 7.0).max() < 1e-9


@law("targets", kind="number", only_named=True)
def several_targets_equal_separate_fits(case):
    X, y = case.rows(t=2)
    options = {"alpha_per_target": True} if hasattr(case.model, "alpha_per_target") else {}
    joint_fit = case.fit(X, y, **options)
    assert joint_fit.predict(X[:5]).shape == (5, 2)
    for j in range(2):
        single, multiple = (answers(m, case.new, OF_FIT) for m in (case.fit(X, y[:, j]), joint_fit))
        multiple = {name: value[..., j] for name, value in multiple.items()}
        assert gap(multiple, single) <= case.rtol
    assert case.fit(X, y[:, :1]).predict(X[:5]).shape == (5, 1)


@law("labels", kind="class")
def labels_of_any_type_are_predicted(case):
    X, y = case.rows()
    labels = ["low", "mid", "top"], [-1.0, 0.0, 2.0], [7, 8, 100], [False, True]
    for names in map(np.array, labels):
        codes = np.minimum(y, len(names) - 1)
        model, plain = case.fit(X, names[codes]), case.fit(X, codes)
        assert model.predict(X).dtype == names.dtype
        np.testing.assert_array_equal(model.predict(case.new), names[plain.predict(case.new)])
        np.testing.assert_array_equal(model.classes_, names[: codes.max() + 1])
        pair = (m.decision_function(case.new) for m in (model, plain))
        np.testing.assert_allclose(*pair, rtol=case.rtol)


@law("class-weights", has="decision_function", kind="class")
def class_weights_equal_weights_of_their_rows(case):
    X, y = case.rows()
    factors = {0: 1.0, 1: 3.0, 2: 0.5}
    by_class = case.fit(X, y, class_weight={k: factors[k] for k in np.unique(y)})
    assert agree(case, by_class, case.fit(X, y, np.vectorize(factors.get)(y)))
    assert not agree(case, by_class)


@law("probabilities", "predict_proba")
def the_predicted_class_has_the_largest_probability(case):
    model = case.fitted
    X = np.vstack([case.rows(300, seed=4)[0], 1e3 * case.new])
    p, q = model.predict_proba(X), model.predict_log_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(np.exp(q), p, atol=1e-12)
    assert p.min() >= 0
    for values in (p, q):
        np.testing.assert_array_equal(model.classes_[values.argmax(axis=1)], model.predict(X))


# ---- partial fits and merges


@law("pieces", only_named=True)
def partial_fits_equal_one_fit(case):
    X, y = case.rows()
    w = np.random.default_rng(5).uniform(0.5, 2.0, N)
    model = clone(case.model)
    first = {"classes": np.unique(y)} if "class" in case.kind else {}
    for rows in PIECES:
        model.partial_fit(X[rows], *part_of(y, rows), sample_weight=w[rows], **first)
    base = case.fit(X, y, w)
    assert agree(case, model, base)
    assert model.rows_seen_ == base.rows_seen_ == N


@law("merge", only_named=True)
def merges_in_any_order_equal_one_fit(case):
    X, y = case.rows()
    w = np.random.default_rng(5).uniform(0.5, 2.0, N)
    if "class" in case.kind:
        w[:] = 1.0
    parts = [slice(0, 35), slice(35, 60), slice(60, N)]
    a, b, c = (case.fit(X[rows], *part_of(y, rows), w=w[rows]) for rows in parts)
    original, base = answers(a, case.new), case.fit(X, y, w)
    for merged in (bo.merge(a, b, c), bo.merge(c, a, b), bo.merge(a, bo.merge(c, b))):
        assert agree(case, merged, base)
        assert merged.rows_seen_ == N
    assert gap(answers(a, case.new), original) == 0
    last = parts[2]
    extended = bo.merge(a, b).partial_fit(X[last], *part_of(y, last), sample_weight=w[last])
    assert agree(case, extended, base)


@law("alone")
def predictions_are_independent_of_other_rows(case):
    model, X = case.fitted, case.new
    expected = answers(model, X)
    for name, value in expected.items():
        axis = 1 if name == "predict_interval" else 0
        single = [answers(model, X[i : i + 1], [name])[name] for i in range(NEW)]
        assert gap({name: np.concatenate(single, axis=axis)}, {name: value}) <= 1e-12
    blocks = bo.Blocks.from_arrays(X, block_rows=7)
    for name in ("predict", "transform"):
        if hasattr(model, f"{name}_blocks"):
            parts = np.concatenate(list(getattr(model, f"{name}_blocks")(blocks)))
            assert gap({name: parts}, {name: expected[name]}) <= 1e-12


# ---- files, copies and later changes


@law("kept")
def files_pickles_and_copies_give_the_same_bits(case, folder):
    model, X = case.fit(*case.rows()), case.new
    if "class" in case.kind:
        X_fit, y = case.rows()
        model = case.fit(X_fit, np.array(["low", "mid", "top"])[y])
    pickled, expected = pickle.dumps(model), answers(model, X)
    assert b"ClassRows" not in pickled  # an SVC is calibrated first, so rows are not kept
    bo.save(model, folder / "model")
    loaded = bo.load(folder / "model")
    bo.save(loaded, folder / "again")
    if "bytes" not in case.skip:  # arrays that two parts share are written twice by a loaded model
        assert (folder / "again").read_bytes() == (folder / "model").read_bytes()
    copies = loaded, pickle.loads(pickled), copy.deepcopy(model)
    for twin in copies:
        assert gap(answers(twin, X), expected) == 0
        assert repr(twin.get_params()) == repr(model.get_params())
    if hasattr(model, "partial_fit"):
        extra = case.rows(40, seed=2)[0] * 0.5, *part_of(case.rows()[1], slice(40))
        if "class" in case.kind:
            extra = extra[0], np.array(["low", "mid", "top"])[extra[1]]
        model.partial_fit(*extra)
        for twin, names in zip(copies, (ANSWERS, OF_FIT, OF_FIT), strict=True):
            assert gap(answers(twin.partial_fit(*extra), X, names), answers(model, X, names)) == 0


@law("again")
def a_second_fit_equals_the_first_and_keeps_parameters(case):
    (X, y), (X_other, y_other) = case.rows(), case.rows(50, seed=1)
    model = clone(case.model)
    original = repr(model.get_params())
    first = model.fit(0.9 * X_other, y_other)
    assert first is model
    assert gap(answers(first.fit(X, y), case.new), answers(case.fitted, case.new)) == 0
    assert repr(model.get_params()) == original == repr(clone(model).get_params())


@law("later")
def parameters_set_after_a_fit_change_no_result(case):
    model = copy.deepcopy(case.fitted)
    for name in (BAD.keys() - {"n_jobs"}) & model.get_params(deep=False).keys():
        model.set_params(**{name: BAD[name][0]})
    model.method = case.fitted.method  # it determines which methods a learner has
    results, expected = (answers(fit, case.new) for fit in (model, case.fitted))
    assert gap(results, {name: expected[name] for name in results}) == 0


@law("gradient", "gradient")
def gradients_equal_differences_of_predictions(case):
    X, step = case.new, 1e-5
    multiple = [case.fit(*case.rows(t=2))] if case in LAWS["targets"][1] else []
    for model in [case.fitted, *multiple]:
        f = getattr(model, "decision_function", None) or model.predict
        slopes = [(f(X + e) - f(X - e)) / (2 * step) for e in step * np.eye(X.shape[1])]
        assert gap({"": model.gradient(X)}, {"": np.stack(slopes, axis=1)}) < 1e-5


@law("intervals", "predict_interval")
def intervals_are_nested_around_the_prediction(case):
    model, X = case.fitted, case.new
    middle, low, high = model.predict_interval(X, 0.6)
    _, lower, higher = model.predict_interval(X, 0.9)
    if case.name != "quantiles":
        np.testing.assert_allclose(middle, model.predict(X), rtol=1e-12, atol=1e-12)
    assert np.all((lower <= low) & (low < high) & (high <= higher))
    X_new, y_new = case.rows(400, seed=7)
    _, low, high = model.predict_interval(X_new, 0.6)
    y_new = y_new.reshape(low.shape) if np.ndim(low) == 1 else y_new[:, None]
    # 5 standard errors of the share of 400 rows and of quantiles of 90 leave-one-out errors
    share = np.mean((low <= y_new) & (y_new <= high))
    assert abs(share - 0.6) < 5 * (0.24 * (1 / 400 + 1 / N)) ** 0.5
    repeat = copy.copy(model).calibrate(X_new, 5 * y_new.reshape(-1))
    assert repeat.calibration_.source == "held out"
    np.testing.assert_array_equal(model.predict_interval(X, 0.9)[1], lower)


OUTPUTS = {
    "prediction": "predict",
    "decision": "decision_function",
    "probability": "predict_proba",
    "scores": "transform",
    "distances": "transform",
    "features": "transform",
    "label": "predict",
    "cluster": "predict",
    "deviation": "sample_y",
}


@law("onnx")
def onnx_graphs_agree_with_the_learner(case):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, X = case.fitted, case.new.astype("f4").astype("f8")
    expected = answers(model, X, (*OF_FIT, "predict_proba"))
    for output, value in model.outputs(X).items():
        assert gap({OUTPUTS[output]: value}, {OUTPUTS[output]: expected[OUTPUTS[output]]}) <= 1e-12
    for precision, close in (("float32", 2e-5), ("float64", 1e-9)):
        graph = bo.export.to_onnx(model, precision=precision)
        session = onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        values = session.run(None, {"X": X.astype(precision)})
        for output, value in zip(session.get_outputs(), values, strict=True):
            name = OUTPUTS[output.name]
            assert gap({name: value}, {name: expected[name]}) <= close


# ---- errors

#: Values of parameters that are invalid for all learners.
BAD = {
    "C": (0.0, -np.inf, "best"),
    "alpha": (-1.0, "best"),
    "class_weight": ("even", {9: 1.0}, {0: -1.0}),
    "effort": ("much",),
    "epsilon": ("best", -1.0),
    "eta0": (0.0, None),
    "learning_rate": ("fast",),
    "loss": ("l1",),
    "metric": ("euclid",),
    "multi_class": ("one",),
    "n_features": (0, "many"),
    "noise": ("loo", -1.0),
    "nu": (0.0, 1.5),
    "penalty": (3.0,),
    "precision": ("half",),
    "quantile": (1.0,),
    "random_state": ("seed",),
    "strategy": ("both",),
    "tol": (-1.0,),
    "validation_fraction": (1.5,),
    **dict.fromkeys(("columns", "lengthscale", "power_t"), ("x",)),
    **dict.fromkeys(("inverse_kernel", "kernel_y"), (3,)),
    **dict.fromkeys(("kernel", "method"), ("nothing", 3)),
    **dict.fromkeys(("amplitude", "batch_size", "n_clusters", "n_components", "n_init"), (0,)),
    **dict.fromkeys(("max_iter", "n_iter_no_change", "n_jobs"), (0, 1.5)),
}


@law("parameters")
def errors_of_parameters_state_the_name_the_rule_and_the_value(case):
    X, y = case.rows()
    for name in BAD.keys() & case.model.get_params(deep=False).keys():
        for value in BAD[name]:
            word = "kernel" if "kernel" in name else name
            text = re.escape(repr(value)) if isinstance(value, str | int | float) else ""
            with pytest.raises(BochnerError, match=rf"\b{word} (must|requires) .*; got .*{text}"):
                case.fit(X, y, **{name: value})


def bad_calls(case):
    """Yield a pattern of the message, and the invalid call."""
    (X, y), model, fitted = case.rows(), clone(case.model), copy.deepcopy(case.fitted)
    predict = getattr(model, "predict", None) or model.transform
    yield "not fitted yet", lambda: predict(X)
    predict_fitted = getattr(fitted, "predict", None) or fitted.transform
    yield "X has 1 features, but .* is expecting 2", lambda: predict_fitted(X[:, :1])
    yield "X must have two dimensions", lambda: model.fit(X[:, 0], y)
    infinite = np.where(np.arange(N)[:, None] == 3, np.inf, X)
    yield "X must hold finite", lambda: model.fit(infinite, y)
    yield "0 sample|got none", lambda: model.fit(X[:0], *part_of(y, slice(0)))
    if "zeros" not in case.skip or hasattr(model, "alpha"):
        for words, w in {
            "at least one non-zero": np.zeros(N),
            "Negative values": -np.ones(N),
            r"1e\+150 at most; got 1e\+200": np.full(N, 1e200),
            r"shape == \(89,\), expected \(90,\)": np.ones(N - 1),
        }.items():
            yield words, partial(model.fit, X, y, sample_weight=w)
    weightless = bo.Blocks.from_arrays(X, y, np.zeros(N))
    yield "at least one row must have a weight above zero", lambda: model.fit_blocks(weightless)
    if y is not None:
        yield "requires y to be passed", lambda: model.fit(X, None)
        yield "the target y is None", lambda: model.fit_blocks(bo.Blocks.from_arrays(X))
        yield r"inconsistent numbers of samples: \[90, 89\]", lambda: model.fit(X, y[1:])
        gaps = np.where((np.arange(N) == 2).reshape(N, *[1] * (y.ndim - 1)), np.nan, y)
        yield "y must .*; got nan", lambda: model.fit(X, gaps)
    if "class" in case.kind:
        yield "at least 2 classes; got 1 class, 0", lambda: model.fit(X, 0 * y)
        yield "numbers that are not whole.*continuous", lambda: model.fit(X, X[:, 0])
    if hasattr(model, "partial_fit"):
        wide = np.hstack([X, X])
        yield "X has 4 features", lambda: fitted.partial_fit(wide, *part_of(y, slice(N)))
        if case.kind == "number":
            targets = np.column_stack([y, y])
            yield "same targets in every call", lambda: fitted.partial_fit(X, targets)
        if "class" in case.kind:
            yield "every label must be one of the classes", lambda: fitted.partial_fit(X, y + 1)


@law("rows")
def invalid_rows_raise_with_their_message(case):
    for words, call in bad_calls(case):
        with pytest.raises((ValueError, TypeError), match=f"(?i){words}"):
            call()


# ---- the tests of all laws, and a planted fault for each


def check(name, case, folder):
    function = LAWS[name][0]
    function(case, folder) if name == "kept" else function(case)


def in_main(name, case):
    """Return whether the main tier has the test: half of the laws of each case."""
    if case.name in MAIN:
        return name in MAIN[case.name].split()
    return ([*LAWS].index(name) + CASES.index(case)) % 2 == 0


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=[pytest.mark.slow] * (not in_main(name, case)))
        for name, (_, cases) in LAWS.items()
        for case in cases
    ],
    ids=str,
)
def test_the_law_holds(name, case, tmp_path):
    check(name, case, tmp_path)


BY_NAME = {case.name: case for case in CASES}
ORIGINAL = {kind: (kind.fit, kind.predict) for kind in (bo.KernelRidge, bo.KernelRidgeClassifier)}
ORIGINAL_INTERVAL = bo.KernelRidge.predict_interval


def drifting():
    """Return a predict method with an error that grows at each call."""
    calls = count(1)
    return lambda self, X: ORIGINAL[bo.KernelRidge][1](self, X) * (1 + 0.01 * next(calls))


def narrow_intervals(self, X, coverage):
    middle, low, high = ORIGINAL_INTERVAL(self, X, coverage)
    return middle, low + (coverage > 0.8) * (middle - low), high


def ignore_class_weights(self, X, y, sample_weight=None):
    fit, _ = ORIGINAL[bo.KernelRidgeClassifier]
    return fit(self.set_params(class_weight=None), X, y, sample_weight)


def predict_codes(self, X):
    return np.searchsorted(self.classes_, ORIGINAL[bo.KernelRidgeClassifier][1](self, X))


#: Faults (method, replacement) of laws that do not compare predictions.
FAULTS = {
    "labels": ("predict", predict_codes),
    "class-weights": ("fit", ignore_class_weights),
    "probabilities": ("predict_proba", lambda self, X: np.exp(self.predict_log_proba(X))[:, ::-1]),
    "intervals": ("predict_interval", narrow_intervals),
    "parameters": ("fit", lambda m, X, y: ORIGINAL[type(m)][0](m.set_params(effort="low"), X, y)),
    "rows": ("predict", lambda self, X: ORIGINAL[bo.KernelRidge][1](self, X[:, [0, -1]])),
}
FAULTY = {"class-weights": "exact ridge classifier", "offset": "exact ridge, alpha given"}
FAULTY |= dict.fromkeys(("labels", "probabilities"), "ridge classifier")


@pytest.mark.parametrize("name", LAWS)
def test_the_law_detects_a_planted_fault(name, tmp_path, monkeypatch):
    case = BY_NAME[FAULTY.get(name, "ridge, alpha given")]
    check(name, case, tmp_path)
    monkeypatch.setattr(type(case.model), *FAULTS.get(name, ("predict", drifting())))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(name, case, tmp_path)
