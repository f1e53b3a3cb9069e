"""Bad and extreme input to KernelRidge: a clear sentence, or finite and sensible predictions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner.errors import InvalidInput, InvalidType, SolutionWarning
from bochner.kernels import Gaussian, Linear
from bochner.solvers.ridge.solution import Outcome

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
DATES = np.arange(180).reshape(60, 3).astype("datetime64[s]")


def put(array, value):
    array = array.copy()
    array[3, ...] = value
    return array


def model(kernel="gaussian", **changes):
    options = dict(method="auto", n_features=32, random_state=0) | changes
    return bo.KernelRidge(kernel, **options)


# ---- refused in a sentence


REFUSED = {
    "infinity": (put(X, np.inf), Y, r"X must hold finite numbers, .*; got infinity"),
    "no rows": (X[:0], Y[:0], r"0 sample\(s\).*minimum of 1 is required by KernelRidge"),
    "no columns": (X[:, :0], Y, r"0 feature\(s\).*minimum of 1 is required by KernelRidge"),
    "one dimension": (X[:, 0], Y, r"two dimensions, .*; got shape \(60,\)\. Reshape"),
    "three dimensions": (
        X[None],
        Y,
        r"KernelRidge: X with three dimensions, .* requires a kernel of sequences",
    ),
    "complex": (X + 1j, Y, r"Complex data not supported"),
    "masked": (np.ma.masked_array(X, X > 2), Y, r"X must have no missing values; got.*1 masked"),
    "words": (np.full((60, 3), "a"), Y, r"X must hold numbers; got text"),
    "words as objects": (np.full((60, 3), "a", object), Y, r"X must hold numbers; got text"),
    "dates": (DATES, Y, r"KernelRidge: X must hold real numbers; got dtype datetime64\[s\]"),
    "spans of time": (DATES - DATES[0], Y, r"X must hold real numbers; got dtype timedelta64\[s\]"),
    "ragged": ([[1.0, 2.0], [3.0]], [1.0, 2.0], r"X must have rows of equal length"),
    "a path": ("table.csv", Y, r"X must be rows; got the text 'table.csv'"),
    "nothing": (None, Y, r"two dimensions, .*; got shape \(\)"),
    "y short": (X, Y[:5], r"inconsistent numbers of samples: \[60, 5\]"),
    "y None": (X, None, r"requires y to be passed, but the target y is None"),
    "y words": (
        X,
        np.full(60, "a"),
        r"KernelRidge: y must hold real numbers; got text, such as 'a'",
    ),
    "y words as objects": (X, np.full(60, "a", object), r"Ridge: y .* a classifier takes labels"),
    "y with commas": (X, np.full(60, "0,5"), r"got text, such as '0,5'. Read them as numbers, as "),
    "y spans of time": (
        X,
        DATES[:, 0] - DATES[0, 0],
        r"KernelRidge: y must hold real numbers; got dtype timedelta64\[s\]\. Divide y by a unit",
    ),
    "y dates": (X, DATES[:, 0], r"KernelRidge: y .* got dtype datetime64\[s\]\. Subtract the fi"),
    "y NaN": (X, put(Y, np.nan), r"y must hold finite numbers; got NaN"),
    "y infinity": (X, put(Y, np.inf), r"y must hold finite numbers; got infinity"),
    "y complex": (X, Y + 1j, r"Complex data not supported"),
    "y of three dimensions": (X, Y[:, None, None], r"Found array with dim 3"),
    "y masked": (X, np.ma.masked_array(Y, Y > 1), r"y must have no missing values; got a masked"),
    "y beyond squaring": (X, Y * 1e170, r"y must lie within ±1e\+150.*Scale it"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
def test_bad_data_are_refused_in_a_sentence(kernel, name):
    rows, y, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        model(kernel).fit(rows, y)


@pytest.mark.parametrize("as_table", [False, True])
def test_dates_are_no_numbers_anywhere(as_table):
    """scikit-learn's checks read them as seconds since 1970."""
    with pytest.raises(InvalidType, match=r"sample_weight must hold real numbers; got dtype date"):
        model().fit(X, Y, DATES[:, 0])
    rows = pd.DataFrame({"a": X[:, 0], "b": DATES[:, 0], "c": X[:, 1]}) if as_table else DATES
    with pytest.raises(InvalidType, match=r"KernelRidge: X must hold real numbers; got dtype date"):
        model().fit(X, Y).predict(rows)


WEIGHTS = {
    "negative": (put(np.ones(60), -1.0), r"Negative values in data passed to `sample_weight`"),
    "all zero": (np.zeros(60), r"at least one non-zero number"),
    "NaN": (put(np.ones(60), np.nan), r"Input sample_weight contains NaN"),
    "short": (np.ones(5), r"sample_weight.shape == \(5,\), expected \(60,\)"),
    "two columns": (np.ones((60, 2)), r"must be 1D array or scalar"),
    "words": (np.full(60, "a"), r"could not convert string to float"),
    "masked": (np.ma.masked_array(np.ones(60), Y > 1), r"sample_weight must have no missing"),
    "beyond squaring": (np.full(60, 1e200), r"sample_weight must be finite and not negative, 1e"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_bad_weights_are_refused_in_a_sentence(name):
    weights, message = WEIGHTS[name]
    with pytest.raises(ValueError, match=message):
        model(Gaussian(), method="orthogonal").fit(X, Y, sample_weight=weights)


ARGUMENTS = {
    "kernel name": (
        dict(kernel="bessel"),
        r"kernel must be a value such as.*'matern32'.*got 'bessel'",
    ),
    "kernel type": (dict(kernel=3), r"kernel must be a value such as.*got 3"),
    "method": (dict(method="best"), r"method must be a value such as.*got 'best'"),
    "no features": (dict(n_features=0), r"n_features must be an integer, 1 or above; got 0"),
    "half features": (dict(n_features=3.5), r"n_features must be an integer, 1 or above; got 3.5"),
    "odd": (dict(n_features=33, method="iid"), r"even number of features.*got 33"),
    "alpha": (dict(alpha=-1), r"alpha must be a non-negative finite number; got -1"),
    "criterion": (dict(alpha="cv"), r'alpha must be "loo", "gcv", "evidence" or a number.*\'cv\''),
    "precision": (dict(precision="half"), r"precision must be one of 'auto', 'float32', 'float64'"),
    "seed": (dict(random_state="a"), r"random_state must be None, a non-negative integer.*'a'"),
    "no rotation": (dict(kernel="laplace", method="orthogonal"), r"Euclidean.*IID\(\).*Nystrom"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bad_arguments_are_refused_in_a_sentence(name):
    changes, message = ARGUMENTS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        model(**changes).fit(X, Y)


PREDICTED = {
    "NaN": (put(X, np.nan), r"the rows of the fit had none; got NaN in row 3, column 0"),
    "columns": (X[:, :2], r"X has 2 features, but KernelRidge is expecting 3 features"),
    "no rows": (X[:0], r"0 sample\(s\).*minimum of 1 is required"),
    "one row without brackets": (X[0], r"two dimensions, .*; got shape \(3,\)"),
    "words": (np.full((2, 3), "a"), r"X must hold numbers; got text"),
    "masked": (np.ma.masked_array(X, X > 2), r"X must have no missing values"),
    "complex": (X + 1j, r"Complex data not supported"),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_bad_rows_to_predict_are_refused_in_a_sentence(name):
    rows, message = PREDICTED[name]
    with pytest.raises(ValueError, match=message):
        FITTED.predict(rows)


FITTED = model().fit(X, Y)


def test_what_needs_a_fit_says_so():
    for use in (lambda m: m.predict(X), lambda m: m.certificate_, bo.merge, lambda m: m.certify(X)):
        with pytest.raises(NotFittedError, match=r"This KernelRidge instance is not fitted yet"):
            use(model())


def test_blocks_without_a_target_are_refused():
    with pytest.raises(InvalidInput, match=r"the target y is None; name it with target="):
        model(Gaussian(), method="iid").fit_blocks(bo.Blocks.from_arrays(X))


# ---- odd, and fitted all the same


METHODS = ["auto", "orthogonal", "nystrom"]


def fitted(rows, y, kernel, method):
    """A fit whose predictions are finite, and never further from the mean than twice any target."""
    found = model(kernel, method=method).fit(rows, y)
    predictions, y = found.predict(rows), np.asarray(y, float)
    assert predictions.shape == y.shape
    assert np.isfinite(predictions).all()
    spread = np.abs(y - y.mean()).max()
    assert np.abs(predictions - y.mean()).max() <= 2 * spread + 1e-12 * np.abs(y).max()
    return found, predictions


TYPES = {
    "float16": X.astype(np.float16),
    "objects": X.astype(object),
    "text of numbers": X.astype(str),
    "lists": X.tolist(),
    "mask without missing": np.ma.masked_array(X, mask=False),
    "Fortran order": np.asfortranarray(X),
    "big-endian": X.astype(">f8"),
}


@pytest.mark.parametrize("name", TYPES)
def test_any_type_of_real_numbers_is_fitted(name):
    expected = FITTED.predict(X)
    assert np.abs(model().fit(TYPES[name], Y).predict(X) - expected).max() < 0.01


@pytest.mark.parametrize("kernel", ["gaussian", Gaussian(5.0)], ids=repr)
def test_whole_numbers_and_truth_values_are_fitted(kernel):
    whole = np.round(5 * X).astype(np.int16)
    assert np.corrcoef(fitted(whole, Y, kernel, "auto")[1], Y)[0, 1] > 0.9
    truth = X > 0
    assert np.corrcoef(fitted(truth, Y, kernel, "auto")[1], Y)[0, 1] > 0.6
    assert np.corrcoef(fitted(X, Y > 0, kernel, "auto")[1], Y)[0, 1] > 0.6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e150, 1e300, 1e-150, 1e-300])
def test_huge_and_tiny_columns_are_served_by_a_named_kernel(scale, method):
    found, predictions = fitted(X * scale, Y, "gaussian", method)
    assert np.corrcoef(predictions, Y)[0, 1] > 0.95
    assert 0.1 < np.max(found.kernel_.lengthscale) / scale < 100
    fitted(X * scale, Y, Gaussian(), method)  # nothing to see at lengthscale one, and no failure


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
@pytest.mark.parametrize("scale", [1e140, 1e-150])
def test_huge_and_tiny_targets_are_scaled_predictions(scale, kernel, method):
    _, predictions = fitted(X, Y * scale, kernel, method)
    expected = model(kernel, method=method).fit(X, Y).predict(X)
    assert np.abs(predictions / scale - expected).max() < 0.05


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
@pytest.mark.parametrize("scale", [1 / 60, 1e-90])
def test_weights_that_sum_to_one_or_less_are_shares(criterion, scale):
    options = dict(method="orthogonal", alpha=criterion)
    expected = model(Gaussian(), **options).fit(X, Y)
    weighted = model(Gaussian(), **options).fit(X, Y, np.full(60, scale))
    assert np.abs(weighted.predict(X) - expected.predict(X)).max() < 1e-6
    assert abs(weighted.alpha_ / scale / expected.alpha_ - 1) < 1e-6


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
def test_huge_weights_are_that_many_copies(criterion):
    found = model(Gaussian(), method="orthogonal", alpha=criterion).fit(X, Y, np.full(60, 1e100))
    assert np.corrcoef(found.predict(X), Y)[0, 1] > 0.95


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
def test_far_from_the_origin_is_no_different(kernel, method):
    near = model(kernel, method=method).fit(X, Y).predict(X)
    assert np.abs(fitted(X, Y + 1e9, kernel, method)[1] - 1e9 - near).max() < 1e-3
    far = fitted(X + 1e6, Y, kernel, method)[1]
    assert np.corrcoef(far, Y)[0, 1] > 0.95


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
def test_degenerate_tables_are_fitted(kernel, method):
    one, _ = fitted(X[:1], Y[:1], kernel, method)
    assert one.solution_.outcome is Outcome.CONSTANT_TARGET
    assert one.predict(X[:1]) == Y[0]
    fitted(X[:2], Y[:2], kernel, method)
    assert np.corrcoef(fitted(X[:, :1], Y, kernel, method)[1], Y)[0, 1] > 0.95
    constant_column = X * [1, 0, 1] + [0, 7, 0]
    assert np.corrcoef(fitted(constant_column, Y, kernel, method)[1], Y)[0, 1] > 0.95
    for same in (0 * X, 0 * X + 3):
        found, predictions = fitted(same, Y, kernel, method)
        assert np.abs(predictions - Y.mean()).max() < 1e-9
        assert found.solution_.outcome is Outcome.EDGE_HIGH
    copies, _ = fitted(np.repeat(X[:2], 30, axis=0), Y, kernel, method)
    assert np.ptp(copies.predict(X[[0, 0, 0]])) == 0


@pytest.mark.parametrize("method", METHODS)
def test_fewer_rows_than_features_are_fitted(method):
    found = model(method=method, n_features=512).fit(X, Y)
    assert found.score(X, Y) > 0.9
    assert found.score(X + 0.01, Y) > 0.8


def test_constant_targets_are_predicted_exactly():
    found, predictions = fitted(X, 0 * Y + 5.0, "gaussian", "auto")
    assert found.solution_.outcome is Outcome.CONSTANT_TARGET
    assert (predictions == 5.0).all()
    mixed = model(Gaussian()).fit(X, np.column_stack([Y, 0 * Y + 5.0]))
    assert np.abs(mixed.predict(X)[:, 1] - 5.0).max() < 1e-12
    assert np.corrcoef(mixed.predict(X)[:, 0], Y)[0, 1] > 0.95


def test_one_row_of_weight_decides_alone():
    found = model(Gaussian(), method="orthogonal").fit(X, Y, np.eye(60)[7])
    assert np.abs(found.predict(X) - Y[7]).max() < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_a_linear_kernel_sees_nothing_of(method):
    found, predictions = fitted(0 * X, Y, Linear(), method)
    assert np.abs(predictions - Y.mean()).max() < 1e-9
    assert np.isfinite(found.predict(X)).all()


def test_no_penalty_is_the_solution_of_least_norm_and_says_that_it_is_singular():
    twice = np.repeat(X[:20], 3, axis=0)
    with pytest.warns(SolutionWarning, match=r"singular to working precision.*Raise alpha"):
        found = model(Gaussian(), method="orthogonal", n_features=64, alpha=0.0).fit(twice, Y)
    assert np.isfinite(found.predict(X)).all()
    means = Y.reshape(20, 3).mean(axis=1)
    assert np.abs(found.predict(X[:20]) - means).max() < 1e-3


@pytest.mark.parametrize("make", [bo.KernelRidge, bo.GaussianProcessRegressor])
def test_targets_and_weights_that_float64_cannot_square_are_refused(make):
    """Just above, answers are those of ordinary numbers; below they would be constants."""
    ours = make(Gaussian(2.0), n_features=32, random_state=0)
    expected = ours.fit(X, Y).predict(X)
    np.testing.assert_allclose(
        ours.fit(X, 2.0**-470 * Y).predict(X) * 2.0**470, expected, rtol=1e-6
    )
    np.testing.assert_allclose(
        ours.fit(X, Y, np.full(60, 2.0**-290)).predict(X), expected, rtol=1e-6
    )
    for factor in (1e-160, 1e-200, 1e-310):
        with pytest.raises(InvalidInput, match=r"y must have deviations.*Multiply y by a power of"):
            ours.fit(X, factor * Y)
    with pytest.raises(InvalidInput, match=r"weights must have a sum above 1e-90; got 6e-139"):
        ours.fit(X, Y, np.full(60, 1e-140))
    assert np.all(ours.fit(X, np.full(60, 1e-200)).predict(X) == 1e-200)


WHOLE = {
    "default": lambda: bo.KernelRidge(random_state=0),
    "a kernel and a penalty": lambda: bo.KernelRidge(Gaussian(2.0), alpha=0.1),
    "columns": lambda: bo.KernelRidge(columns="auto", random_state=0),
    "leaves": lambda: bo.KernelRidge(method=bo.LocalKernel(), random_state=0),
    "process": lambda: bo.GaussianProcessRegressor(random_state=0),
    "process of a kernel": lambda: bo.GaussianProcessRegressor(Gaussian(2.0)),
    "process of features": lambda: bo.GaussianProcessRegressor(method=bo.Nystrom()),
    "neighbours": lambda: bo.GaussianProcessRegressor(method=bo.NearestNeighbours()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_targets_at_the_edges_of_float64_are_refused_before_anything_is_chosen(name):
    """The sentence names the learner and the target; of lengthscales it says nothing."""
    who = type(WHOLE[name]()).__name__
    for factor in (1e-300, 1e-160):
        with pytest.raises(InvalidInput, match=f"{who}: y must have deviations.*Multiply y by a"):
            WHOLE[name]().fit(X, factor * Y)
    for factor in (1e160, 1e300):
        with pytest.raises(InvalidInput, match=f"{who}: y must lie within .*divide y by a power"):
            WHOLE[name]().fit(X, factor * Y)
    with pytest.raises(InvalidInput, match=f"{who}: y must lie within"):
        WHOLE[name]().fit(X, np.full(60, 1e308))


def test_targets_far_from_one_have_the_answers_of_ordinary_ones():
    """A power of two changes no digit, so that the same kernel is chosen."""
    expected = bo.KernelRidge(random_state=0).fit(X, Y).predict(X)
    for power in (-300, 300):
        found = bo.KernelRidge(random_state=0).fit(X, 2.0**power * Y).predict(X)
        np.testing.assert_allclose(found * 2.0**-power, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_tune_refuses_targets_at_the_edges_of_float64(factor):
    with pytest.raises(InvalidInput, match=r"tune: y must .* by a power of ten"):
        bo.tune(bo.KernelRidge(random_state=0), X, factor * Y)
