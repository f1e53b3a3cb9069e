"""Auto(leaves=True): features, or leaves with as many kernel values, by errors of rows left out."""

import re

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Gaussian

D = 48
WAVES = {"short": 0.25, "long": 3.0}  # lengthscales: leaves win, and features


def problem(scale, n=260, t=1):
    """Rows of a square, and draws of the process of the kernel, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    W, phase = rng.standard_normal((2, 300)) / scale, rng.uniform(0, 2 * np.pi, 300)
    f = np.cos(X @ W + phase) @ rng.standard_normal((300, t)) * np.sqrt(2 / 300)
    y = f * np.arange(1, t + 1) + 0.1 * rng.standard_normal((n, t))
    return X, (y[:, 0] if t == 1 else y)


def fitted(scale, X, y, w=None, learner=bo.KernelRidge, **changes):
    options = dict(method=bo.Auto(leaves=True), n_features=D, random_state=0) | changes
    return learner(Gaussian(scale), **options).fit(X, y, w)


def said(model):
    """The ratio of errors that the reason tells."""
    found = re.search(r"is (\S+) of that of|has (\S+) of its mean squared", model.choice_.reason)
    return float(found[1] or found[2])


def slow_errors(model, X, y):
    """Errors of all rows that are no landmarks, each predicted by a fit without it: and which."""
    Z, alpha = model.map_(X), model.alpha_
    marks = getattr(model.map_, "landmarks", np.empty((0, 2)))
    kept = [i for i in range(len(X)) if not (marks == X[i]).all(axis=1).any()]
    errors = []
    for i in kept:
        rest = np.delete(np.arange(len(X)), i)
        ridge = Ridge(alpha, solver="svd").fit(Z[rest], y[rest])
        errors.append(y[i] - ridge.predict(Z[[i]])[0])
    return np.array(errors), np.array(kept)


@pytest.mark.parametrize("waves", WAVES)
@pytest.mark.parametrize("t", [1, 2])
def test_what_errs_less_without_each_row_is_taken(waves, t):
    """Those of features by a fit without each row; several targets in units of their variance."""
    scale = WAVES[waves]
    X, y = problem(scale, t=t)
    features = fitted(scale, X, y, method="auto")
    leaves = fitted(scale, X, y, method=bo.LocalKernel(D // 2, D // 2))
    either = fitted(scale, X, y)
    by_features, kept = slow_errors(features, X, y)
    by_leaves = leaves.fit_.left_out().errors[kept].reshape(by_features.shape)
    variance = y.var(axis=0)
    ratio = (by_leaves**2 / variance).mean() / (by_features**2 / variance).mean()
    assert said(either) == pytest.approx(ratio, rel=6e-3)  # three digits are told
    taken, other = (leaves, features) if waves == "short" else (features, leaves)
    assert (ratio < 1 / 1.02) == (waves == "short")
    assert (either.predict(X) == taken.predict(X)).all()
    assert (either.predict(X) != other.predict(X)).any()
    assert either.choice_.method == taken.choice_.method


def test_rows_count_by_their_weights_in_the_choice():
    """Both errors by the weights of rows, from what each fit tells by itself."""
    X, y = problem(0.25)
    w = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    features = fitted(0.25, X, y, w, method="auto").fit_.left_out()
    leaves = fitted(0.25, X, y, w, method=bo.LocalKernel(D // 2, D // 2)).fit_.left_out()
    place = {tuple(x): i for i, x in enumerate(leaves.X)}
    same = leaves.take(np.array([place[tuple(x)] for x in features.X]))
    assert (same.w == features.w).all()
    squares = [np.average(each.errors[:, 0] ** 2, weights=each.w) for each in (same, features)]
    assert said(fitted(0.25, X, y, w)) == pytest.approx(squares[0] / squares[1], rel=6e-3)
    plain = [np.mean(each.errors**2) for each in (same, features)]
    assert plain[0] / plain[1] != pytest.approx(squares[0] / squares[1], rel=6e-3)


def test_classes_are_predicted_within_leaves_where_they_err_less():
    X, y = problem(0.25)
    labels = np.where(y > 0, "above", "below")
    model = fitted(0.25, X, labels, learner=bo.KernelRidgeClassifier)
    assert isinstance(model.choice_.method, bo.LocalKernel)
    assert set(model.predict(X)) == {"above", "below"}


@pytest.mark.parametrize("width", [260, 31])
def test_leaves_are_not_tried_where_features_hold_all_rows_or_leaves_few(width):
    """D of all rows are the kernel itself; half of 31 are fewer than the 16 that a leaf has."""
    X, y = problem(0.25)
    alone = fitted(0.25, X, y, n_features=width, method="auto")
    either = fitted(0.25, X, y, n_features=width)
    assert either.choice_.reason == alone.choice_.reason
    assert (either.predict(X) == alone.predict(X)).all()
    assert "leaves" in fitted(0.25, X, y, n_features=32 + (width == 260)).choice_.reason


def test_a_width_by_tolerance_is_that_of_its_features():
    X, y = problem(0.25)
    alone = fitted(0.25, X, y, n_features=bo.Tolerance(0.5), method="auto", alpha=1.0)
    either = fitted(0.25, X, y, n_features=bo.Tolerance(0.5), alpha=1.0)
    half = alone.map_.n_features // 2
    assert f"{half} " in either.choice_.reason or either.choice_.method == bo.LocalKernel(
        half, half
    )


def test_a_default_width_and_a_kernel_left_open_are_chosen_for_each():
    X, y = problem(0.25, n=1100)
    model = bo.KernelRidge(method=bo.Auto(leaves=True), effort="low", random_state=0).fit(X, y)
    assert 0 < said(model) < 100


def test_where_leaves_cannot_be_is_said():
    X, y = problem(0.25, n=60)
    auto = bo.Auto(leaves=True)
    with pytest.raises(InvalidInput, match=r"Auto: leaves=True requires KernelRidge or"):
        bo.draw(Gaussian(), auto, n_features=8, X=X)
    with pytest.raises(InvalidInput, match=r"leaves of rows are no features. Leave leaves out."):
        bo.GaussianProcessRegressor(Gaussian(), method=auto, n_features=8).fit(X, y)
    with pytest.raises(InvalidType, match=r"Auto: leaves must be True or False; got 'yes'"):
        bo.Auto(leaves="yes")
    with pytest.raises(InvalidInput, match=r"requires alpha above 0; got 0"):
        fitted(0.25, X, y, alpha=0)
    with pytest.raises(AttributeError) as refused:
        bo.KernelRidge(method=auto).partial_fit(X, y)
    assert "partial_fit: method=Auto(leaves=True) needs all rows" in str(refused.value.__cause__)
