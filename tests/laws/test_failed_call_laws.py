"""A call that fails changes neither the model nor the result of the next call.

All learners and all calls that change them are tested with failures of the reader at any piece of
any pass, invalid rows in a late block, invalid parameters, warnings as errors, and interrupts or
missing memory at any moment.
"""

import dataclasses
import sys
import warnings
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial

import numpy as np
import pytest
from learners import CASES, FEATURES
from sklearn.base import BaseEstimator, clone

import bochner as bo
from bochner.errors import BochnerError, SolutionWarning
from bochner.kernels import Linear

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning"),
]

NAMES = (
    *("ridge on features", "ridge, all chosen", "ridge, learned metric", "exact ridge"),
    *("ridge classifier of two", "process", "svc of two", "logistic of two", "svr"),
    *("absolute loss", "one class", "sgd", "sgd classifier", "sgd on rows", "components"),
    *("correlations", "clusters", "features"),
)
KINDS = {case.name: case.kind for case in CASES} | {"warm sgd": "number"}
LEARNERS = {name: next(case.model for case in CASES if case.name == name) for name in NAMES}
LEARNERS["warm sgd"] = clone(LEARNERS["sgd"]).set_params(warm_start=True, average=True)
CALLS = ["fit", "fit_blocks", "partial_fit", "fit_transform", "fit_predict"]
CALLS += ["solve_again", "calibrate"]
CONTINUING = ("solve_again", "calibrate", "partial_fit")  # calls that continue the last fit


def rows(name, n, columns=2, seed=0):
    """Return rows and targets that the learner of this name takes."""
    X = np.random.default_rng(seed).standard_normal((n, columns))
    if "class" in KINDS[name]:
        return X, np.where(np.arange(n) % 2, "right", "left")
    return X, None if KINDS[name] == "none" else np.sin(X[:, 0]) + X[:, 1] ** 2


def codes(y):
    return y if y is None or y.dtype.kind != "U" else (y == "right").astype(float)


def has(name, call):
    """Return whether this learner has the call, with its parameters."""
    exceptions = {"fit_blocks": "sgd on rows", "solve_again": "exact ridge"}
    return hasattr(LEARNERS[name], call) and exceptions.get(call) != name


PAIRS = [(name, call) for name in LEARNERS for call in CALLS if has(name, call)]
takes_blocks = pytest.mark.parametrize("name", [n for n, call in PAIRS if call == "fit_blocks"])


def fitted(name):
    """Return the learner after a fit to 40 rows of two columns."""
    model = clone(LEARNERS[name])
    return call_of(model, "fit", *rows(name, 40))() and model


def call_of(model, call, X, y):
    """Return the call with its rows, as a function without arguments."""
    if call == "solve_again":
        return model.solve_again
    if call == "fit_blocks":
        return partial(model.fit_blocks, bo.Blocks.from_arrays(X, codes(y), block_rows=10))
    return partial(getattr(model, call), X, y)


def arguments(name, call):
    """Return new rows; with three columns if the call does not continue the last fit."""
    return rows(name, 30, 2 if call in CONTINUING or name == "warm sgd" else 3, seed=1)


def state_of(value):
    """Return the complete content of a value, bit for bit, as texts and bytes."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {key: state_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [state_of(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: state_of(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value).__name__, fields  # an interrupted repr() returns "..." ever after
    return state_of(vars(value)) if isinstance(value, BaseEstimator) else repr(value)


def assert_equal(a, b):
    """Assert that two models have equal predictions and counts, up to rounding."""
    left, right = vars(a), vars(b)
    assert sorted(left) == sorted(right)
    X = rows("svr", 5, a.n_features_in_, seed=2)[0]
    for method in ("predict", "decision_function", "transform", "predict_proba"):
        if hasattr(a, method):
            left, right = getattr(a, method)(X), getattr(b, method)(X)
            if np.asarray(left).dtype.kind == "U":
                assert np.array_equal(left, right)
            else:
                assert left == pytest.approx(right, rel=1e-9, abs=1e-9)
    for name in ("rows_seen_", "t_", "weights_seen_"):
        assert np.array_equal(getattr(a, name, None), getattr(b, name, None))
    if hasattr(a, "fit_"):
        for name in ("rows", "weight", "epochs"):
            assert getattr(a.fit_, name, None) == getattr(b.fit_, name, None)


@contextmanager
def unchanged(model):
    original, names = state_of(vars(model)), list(vars(model))
    yield
    assert list(vars(model)) == names
    assert state_of(vars(model)) == original


class Stop:
    """A profile function that raises an error at the n-th call, where Python also checks Ctrl-C."""

    def __init__(self, at, error=None):
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, _frame, event, called):
        # Python does not check before a call of __exit__, so that locks are released
        if event in ("call", "c_call") and getattr(called, "__name__", "") != "__exit__":
            self.calls += 1
            if self.calls == self.at:
                raise self.error


def stopped(call, stop):
    """Return whether the call failed; NumPy may raise TypeError in interrupted functions."""
    original = sys.getprofile()
    sys.setprofile(stop)
    try:
        call()
    except (KeyboardInterrupt, MemoryError, TypeError):
        return True
    finally:
        sys.setprofile(original)
    return False


def moments(call, count, seed):
    """Return random numbers of calls at which to stop, and the errors to raise."""
    counter = Stop(-1)
    stopped(call, counter)
    numbers = np.random.default_rng(seed).integers(1, counter.calls, count).tolist()
    return zip(numbers, (KeyboardInterrupt, MemoryError) * count, strict=False)


class ReaderError(Exception):
    """Error of a failing reader."""


class FailingReader:
    """Pieces of rows; reading fails at the k-th piece of the s-th pass."""

    def __init__(self, X, y, at=(0, 0)):
        self.pieces = [
            (X[i : i + 8], *(() if y is None else (y[i : i + 8],))) for i in range(0, len(X), 8)
        ]
        self.at, self.counts = at, []  # of pieces that each pass read

    def __call__(self):
        self.counts.append(0)
        for k, piece in enumerate(self.pieces, 1):
            if (len(self.counts), k) == self.at:
                raise ReaderError
            self.counts[-1] = k
            yield piece


@pytest.mark.main_cases(10)
@pytest.mark.parametrize(("name", "call"), PAIRS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_call_stopped_at_any_moment_changes_nothing(name, call):
    start, args = fitted(name), arguments(name, call)
    model, failures = deepcopy(start), 0
    original = state_of(vars(start))
    for stop in moments(call_of(deepcopy(start), call, *args), 3, seed=len(name)):
        if stopped(call_of(model, call, *args), Stop(*stop)):
            assert state_of(vars(model)) == original
            failures += 1
        else:
            model = deepcopy(start)
    call_of(model, call, *args)()
    call_of(start, call, *args)()
    assert_equal(model, start)
    assert failures >= 1


@pytest.mark.main_cases(6)
@takes_blocks
def test_a_reader_that_fails_in_any_pass_changes_nothing(name):
    model = fitted(name)
    X, y = arguments(name, "fit_blocks")
    complete = FailingReader(X, codes(y))
    clone(model).fit_blocks(bo.Blocks.from_iterable(complete))
    for s, count in list(enumerate(complete.counts, 1))[1:]:
        for k in (1, 3)[: 1 + (count > 1)]:  # a pass for the shape of y reads only one piece
            failing = bo.Blocks.from_iterable(FailingReader(X, codes(y), (s, k)))
            with unchanged(model), pytest.raises(ReaderError):
                model.fit_blocks(failing)
    assert sum(len(block.X) for block in failing) == len(X)  # later passes succeed
    assert_equal(model.fit_blocks(failing), fitted(name).fit_blocks(failing))


@pytest.mark.main_cases(24)
@takes_blocks
@pytest.mark.parametrize("bad", ["X", "y", "w"])
def test_invalid_rows_in_a_late_block_change_nothing(name, bad):
    model = fitted(name)
    X, y = arguments(name, "fit_blocks")
    y = np.zeros(len(X)) if y is None else codes(y).astype(float)
    w = np.ones(len(X))
    {"X": X[:, 0], "y": y, "w": w}[bad][-1] = -1.0 if bad == "w" else np.nan
    with unchanged(model), pytest.raises(ValueError, match=r"NaN|zero or above"):
        model.fit_blocks(bo.Blocks.from_arrays(X, y, w, block_rows=8))


@pytest.mark.main_cases(8)
@pytest.mark.parametrize("name", LEARNERS)
def test_invalid_parameters_change_nothing(name):
    names = [key for key in LEARNERS[name].get_params(deep=False) if key not in FREE]
    model, args = fitted(name), rows(name, 30, 3, seed=1)
    failures = 0
    for key in names:
        original = getattr(model, key)
        model.set_params(**{key: object()})
        with unchanged(model):
            try:
                copy(model).fit(*args)
            except (BochnerError, ValueError, TypeError):
                failures += 1
                with pytest.raises((BochnerError, ValueError, TypeError)):
                    model.fit(*args)
        model.set_params(**{key: original})
    assert failures >= 3


#: Parameters that accept any value as true or false, or that some fits do not read.
FREE = ("alpha_per_target", "fit_intercept", "fit_inverse_transform", "shuffle", "warm_start")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("svc of two", {"max_iter": 1}),
        ("svr", {"max_iter": 1}),
        ("absolute loss", {"max_iter": 1}),
        ("one class", {"max_iter": 1}),
        ("one class", {"max_iter": 1, "tol": 1e-13, "method": "exact", "kernel": Linear()}),
        ("sgd", {"max_iter": 1, "tol": 0.0}),
        ("sgd classifier", {"max_iter": 1, "tol": 0.0}),
        ("exact ridge", {"method": bo.ExactKernel("nystrom", max_iter=1), "alpha": 1e-9}),
        ("components", {"n_components": 25}),
        ("correlations", {"n_components": 25}),
        ("clusters", {"max_iter": 1}),
    ],
)
def test_a_warning_as_an_error_changes_nothing(name, params):
    model, (X, y) = fitted(name).set_params(**params), rows(name, 150, 3, seed=1)
    errors = warnings.catch_warnings(action="error", category=SolutionWarning)
    with errors, unchanged(model), pytest.raises(SolutionWarning):
        model.fit(X, y)


@pytest.mark.parametrize("name", ["svc of two", "svr", "components", "correlations"])
def test_a_warning_has_the_line_of_the_user(name):
    model = fitted(name).set_params(**{"max_iter": 1} if "sv" in name else {"n_components": 25})
    with pytest.warns(SolutionWarning) as record:
        model.fit(*rows(name, 150, 3, seed=1))
    assert record[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "original", "result"),
    [
        ("ridge, all chosen", {"metric": "learned"}, {"metric": None}),
        ("ridge on features", {"method": "exact"}, {"method": "orthogonal"}),
        ("ridge on features", {}, {"method": "exact"}),
        ("svc of two", {}, {"probability": False}),
        ("logistic of two", {"kernel": "gaussian", "metric": "learned"}, {"metric": None}),
        ("components", {}, {"fit_inverse_transform": False}),
        ("sgd", {}, {"strategy": "gram_cached"}),
        ("sgd on rows", {}, {"strategy": "approximate_cached"}),
    ],
)
def test_a_fit_keeps_nothing_of_the_last_fit(name, original, result):
    X, y = rows(name, 40)
    model = clone(LEARNERS[name]).set_params(**original)
    model.fit(X, y).set_params(**result).fit(*arguments(name, "fit"))
    other = clone(LEARNERS[name]).set_params(**original | result)
    assert_equal(model, other.fit(*arguments(name, "fit")))


@pytest.mark.parametrize("name", [name for name, call in PAIRS if call == "partial_fit"])
def test_rows_of_a_failed_call_are_not_counted(name):
    X, y = rows(name, 60, seed=3)
    model, single_fit = fitted(name), fitted(name)
    with unchanged(model), pytest.raises((BochnerError, ValueError)):
        model.partial_fit(np.column_stack([X, X]), y)
    assert_equal(model.partial_fit(X, y), single_fit.partial_fit(X, y))


class Scaled(bo.KernelRidge):
    """A user's subclass that sets attributes before and after the fit of its base class."""

    def fit(self, X, y):
        self.scale_ = np.abs(X).max()
        super().fit(X / self.scale_, y)
        self.more_ = self.scale_ * 2
        return self

    def predict(self, X):
        return super().predict(X / self.scale_)


def test_subclasses_of_users_keep_their_attributes():
    X, y = rows("svr", 40)
    model = Scaled(**FEATURES).fit(X, y)
    model.fit(2 * X, y)
    assert model.more_ == 2 * model.scale_ == 4 * np.abs(X).max()
    assert model.predict(2 * X).shape == (40,)
