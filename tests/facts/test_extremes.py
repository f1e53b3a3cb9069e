"""Extreme data give finite and plausible predictions; fits log their steps."""

import re

import numpy as np
import pytest
from gallery import maker
from learners import KINDS
from sklearn.base import is_classifier

import bochner as bo
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Cauchy, Gaussian, Laplace, Matern, RationalQuadratic
from bochner.solvers.ridge.solution import Outcome

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
model = maker(bo.KernelRidge, "gaussian", method="auto", n_features=32, random_state=0)
FITTED = model().fit(X, Y)


def fitted(rows, y, kernel, method):
    """Return a fit and its predictions: finite, within twice the largest deviation of y."""
    fit = model(kernel, method=method).fit(rows, y)
    predictions, y = fit.predict(rows), np.asarray(y, float)
    assert predictions.shape == y.shape
    assert np.isfinite(predictions).all()
    spread = np.abs(y - y.mean()).max()
    assert np.abs(predictions - y.mean()).max() <= 2 * spread + 1e-12 * np.abs(y).max()
    return fit, predictions


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
def test_any_type_of_real_numbers_gives_the_same_fit(name):
    assert np.abs(model().fit(TYPES[name], Y).predict(X) - FITTED.predict(X)).max() < 0.01


@pytest.mark.parametrize("kernel", ["gaussian", Gaussian(5.0)], ids=repr)
def test_integers_and_booleans_are_fitted(kernel):
    integers = np.round(5 * X).astype(np.int16)
    assert np.corrcoef(fitted(integers, Y, kernel, "auto")[1], Y)[0, 1] > 0.9
    assert np.corrcoef(fitted(X > 0, Y, kernel, "auto")[1], Y)[0, 1] > 0.6
    assert np.corrcoef(fitted(X, Y > 0, kernel, "auto")[1], Y)[0, 1] > 0.6


METHODS = ["auto", "orthogonal", "nystrom"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e150, 1e300, 1e-150, 1e-300])
def test_a_named_kernel_adapts_to_huge_and_tiny_columns(scale, method):
    fit, predictions = fitted(X * scale, Y, "gaussian", method)
    assert np.corrcoef(predictions, Y)[0, 1] > 0.95
    assert 0.1 < np.max(fit.kernel_.lengthscale) / scale < 100
    fitted(X * scale, Y, Gaussian(), method)  # lengthscale one resolves nothing, but must not fail


@pytest.mark.parametrize("method", [*METHODS, bo.LocalKernel(20, 8)], ids=repr)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
@pytest.mark.parametrize("scale", [1e140, 1e-150])
def test_predictions_scale_with_huge_and_tiny_targets(scale, kernel, method):
    _, predictions = fitted(X, Y * scale, kernel, method)
    expected = model(kernel, method=method).fit(X, Y).predict(X)
    assert np.abs(predictions / scale - expected).max() < 0.05


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
def test_weights_of_any_size_give_the_same_fit(criterion):
    """Small weights are shares; a row with all the weight is interpolated."""
    ridge = model(Gaussian(), method="orthogonal", alpha=criterion)
    expected = ridge.fit(X, Y).predict(X)
    alpha = ridge.alpha_
    for scale in (1 / 60, 1e-90):
        weighted = ridge.fit(X, Y, np.full(60, scale))
        assert np.abs(weighted.predict(X) - expected).max() < 1e-6
        assert abs(weighted.alpha_ / scale / alpha - 1) < 1e-6
    assert np.corrcoef(ridge.fit(X, Y, np.full(60, 1e100)).predict(X), Y)[0, 1] > 0.95
    assert np.abs(ridge.fit(X, Y, np.eye(60)[7]).predict(X) - Y[7]).max() < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
def test_fits_far_from_the_origin_are_accurate(kernel, method):
    base = model(kernel, method=method).fit(X, Y).predict(X)
    assert np.abs(fitted(X, Y + 1e9, kernel, method)[1] - 1e9 - base).max() < 1e-3
    assert np.corrcoef(fitted(X + 1e6, Y, kernel, method)[1], Y)[0, 1] > 0.95


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["gaussian", Gaussian()], ids=repr)
def test_degenerate_tables_are_fitted(kernel, method):
    single, _ = fitted(X[:1], Y[:1], kernel, method)
    assert single.solution_.outcome is Outcome.CONSTANT_TARGET
    assert single.predict(X[:1]) == Y[0]
    fitted(X[:2], Y[:2], kernel, method)
    assert np.corrcoef(fitted(X[:, :1], Y, kernel, method)[1], Y)[0, 1] > 0.95
    assert np.corrcoef(fitted(X * [1, 0, 1] + [0, 7, 0], Y, kernel, method)[1], Y)[0, 1] > 0.95
    for constant in (0 * X, 0 * X + 3):
        fit, predictions = fitted(constant, Y, kernel, method)
        assert np.abs(predictions - Y.mean()).max() < 1e-9
        assert fit.solution_.outcome is Outcome.EDGE_HIGH
    copies, _ = fitted(np.repeat(X[:2], 30, axis=0), Y, kernel, method)
    assert np.ptp(copies.predict(X[[0, 0, 0]])) == 0


def test_a_singular_fit_without_penalty_has_least_norm_and_warns():
    copies = np.repeat(X[:20], 3, axis=0)
    with pytest.warns(SolutionWarning, match=r"singular to working precision.*Raise alpha"):
        fit = model(Gaussian(), method="orthogonal", n_features=64, alpha=0.0).fit(copies, Y)
    assert np.isfinite(fit.predict(X)).all()
    assert np.abs(fit.predict(X[:20]) - Y.reshape(20, 3).mean(axis=1)).max() < 1e-3


@pytest.mark.parametrize("make", [bo.KernelRidge, bo.GaussianProcessRegressor])
def test_targets_and_weights_down_to_the_limit_of_float64_squares_are_fitted(make):
    """Smaller weights raise an error; constant targets of any size are fitted."""
    learner = make(Gaussian(2.0), n_features=32, random_state=0)
    expected = learner.fit(X, Y).predict(X)
    scaled = learner.fit(X, 2.0**-470 * Y).predict(X) * 2.0**470
    for predictions in (scaled, learner.fit(X, Y, np.full(60, 2.0**-290)).predict(X)):
        np.testing.assert_allclose(predictions, expected, rtol=1e-6)
    with pytest.raises(InvalidInput, match=r"weights must have a sum above 1e-90; got 6e-139"):
        learner.fit(X, Y, np.full(60, 1e-140))
    assert np.all(learner.fit(X, np.full(60, 1e-200)).predict(X) == 1e-200)


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
def test_targets_near_the_limits_of_float64_raise_before_any_choice(name):
    """The message names the learner and y, not lengthscales."""
    kind = type(WHOLE[name]()).__name__
    for factor in (1e-300, 1e-160):
        with pytest.raises(InvalidInput, match=f"{kind}: y must have deviations.*Multiply y by a"):
            WHOLE[name]().fit(X, factor * Y)
    for factor in (1e160, 1e300):
        with pytest.raises(InvalidInput, match=f"{kind}: y must lie within .*divide y by a power"):
            WHOLE[name]().fit(X, factor * Y)
    with pytest.raises(InvalidInput, match=f"{kind}: y must lie within"):
        WHOLE[name]().fit(X, np.full(60, 1e308))


@pytest.mark.parametrize("magnitude", [1e-30, 1e18, 1e25, 1e37, 1e100, 1e200])
def test_kernels_of_huge_and_tiny_rows_are_one_or_zero(magnitude):
    """Squared distances overflow float32 above 1e19, and float64 above 1e154."""
    X = np.array([[magnitude], [-magnitude]], np.float32 if magnitude < 1e38 else np.float64)
    materns = map(Matern, (0.5, 0.8, 1.5, 2.5, 3.5, 3.7, 7.3, 40.0))
    for kernel in (Gaussian(), *materns, Laplace(), Cauchy(), RationalQuadratic()):
        K = kernel(X)
        assert (np.diag(K) == 1).all()
        assert K[0, 1] == pytest.approx(1.0 if magnitude < 1 else 0.0, abs=1e-30)


@pytest.mark.main_cases(8)
@pytest.mark.parametrize("cls", KINDS)
def test_a_fit_logs_its_steps_and_prints_them_if_verbose(cls, caplog, capsys):
    y = Y > 0 if is_classifier(cls()) else X[:, :2] if cls is bo.KernelCCA else Y
    caplog.set_level("INFO", logger="bochner")
    silent = cls(random_state=0).fit(X, y)
    logged = [record.getMessage() for record in caplog.records if record.name == "bochner"]
    last = re.compile(rf"{cls.__name__} fitted in [\d.]+ s: Blocks\(")
    assert last.match(logged[-1])
    assert capsys.readouterr().out == ""
    loud = cls(random_state=0, verbose=True).fit(X, y)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(logged)
    assert last.match(printed[-1])
    assert loud.kernel_ == silent.kernel_
    assert "verbose : bool, default False" in cls.__doc__


def test_each_candidate_of_a_default_fit_is_logged(caplog):
    caplog.set_level("INFO", logger="bochner")
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(70, 3))
    target = rows[:, 0] + 0.1 * rng.normal(size=70)
    search = bo.KernelRidge(random_state=0).fit(rows, target).search_
    lines = "\n".join(record.getMessage() for record in caplog.records)
    numbers = re.findall(r"Choosing the kernel with (?:\d+) rows: candidate (\d) of (\d): ", lines)
    assert {int(k) for k, n in numbers if n == "2"} == {1, 2}
    assert all(c.name in lines for c in search.candidates if " + " not in c.name)
