"""Tables of more columns than rows: no (d, d) matrix, the same answers, rows told apart."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from tolerance import assert_close

import bochner as bo
from bochner import Moments
from bochner.data.sample import RowSample
from bochner.errors import UnsupportedKernel
from bochner.features import Fourier, HermiteMercer, Projected, draw
from bochner.features.mercer.axes import axes_of_rows
from bochner.kernels import Gaussian, Laplace, Linear, Matern
from bochner.selection.descent import Hyperparameters, OnFeatures, Rescaled
from bochner.selection.rows import TuningRows, rows_of
from bochner.selection.search import KernelWalk
from bochner.selection.spec import NAMED
from bochner.selection.trials import APART, HeldOutTrials, KernelCandidate

D = 5000


def table(n=60, d=D, seed=0):
    """Rows about a plane of three dimensions, and what the first of these says of the target."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((n, 3))
    X = hidden @ rng.standard_normal((3, d)) + 0.5 * rng.standard_normal((n, d))
    return X, hidden[:, 0] + 0.1 * rng.standard_normal(n)


def sparse_table(n=60, d=D):
    X = scipy.sparse.random(n, d, density=0.02, format="csr", random_state=0)
    return X, np.asarray(X[:, : d // 5].sum(axis=1)).ravel()


FITS = [
    {},
    {"kernel": "auto"},
    {"kernel": "laplace"},
    {"n_features": 32},
    {"kernel": "auto", "n_features": 32},
    {"n_features": 32, "method": "structured"},
    {"n_features": 32, "method": Projected(Fourier(), 4)},
]


DENSE = [(table, options) for options in FITS]
SPARSE = [(sparse_table, options) for options in FITS if options.get("kernel") != "laplace"]


@pytest.mark.parametrize(("rows", "options"), [*DENSE, *SPARSE])
def test_no_fit_of_a_wide_table_makes_a_matrix_of_columns_by_columns(options, rows):
    """64 MB hold the rows 26 times or 512 frequencies three times; d·d numbers are 200 MB."""
    X, y = rows()
    tracemalloc.start()
    bo.KernelRidge(**({"n_features": 512} | options), random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("kernel", ["gaussian", "auto"])
def test_a_wide_fit_predicts_what_exact_kernel_ridge_regression_predicts(kernel):
    X, y = table(90)
    model = bo.KernelRidge(kernel, random_state=0).fit(X[:60], y[:60])
    H = np.eye(60) - 1 / 60  # the intercept is not penalised
    K = model.kernel_(X[:60])
    dual = np.linalg.solve(H @ K @ H + model.alpha_ * np.eye(60), H @ y[:60])
    rest = model.kernel_(X[60:], X[:60])
    expected = y[:60].mean() + (rest - K.mean(axis=1)) @ H @ dual
    # The features' jitter of 1e-12 beside alpha, through the inverse.
    allowed = 1e-6 + 100 * 1e-12 * 60 / model.alpha_
    assert np.abs(model.predict(X[60:]) - expected).max() < allowed * np.ptp(y)
    assert model.score(X[60:], y[60:]) > 0.8


# ---- angles are remembered: the same criteria as with features made anew


def rows_in_float64(n, d):
    X, y = table(n, d)
    return TuningRows.of(X, y[:, None], np.ones(n), np.ones(d))


@pytest.mark.parametrize("family", [Matern(1.5), Laplace()], ids=repr)
def test_one_lengthscale_of_many_columns_has_the_criterion_of_features_made_anew(family):
    rows, logs = rows_in_float64(50, 40), np.linspace(-0.3, 0.3, 40)
    shape = 0.3 if isinstance(family, Matern) else None
    rescaled = Rescaled.draw(family, 40, 24, 0)
    one, each = (
        Hyperparameters(np.array([1.5]), -4.0, shape),
        Hyperparameters(np.full(40, 1.5), -4.0, shape),
    )
    objective = OnFeatures(rescaled, rows, logs)
    (value, gradient), (expected, by_column) = objective(one), objective(each)
    assert_close(value, expected, factor=100)
    summed = np.concatenate([by_column[:40].sum(keepdims=True), by_column[40:]])
    assert_close(gradient, summed, factor=1000)


@pytest.mark.parametrize("family", [Matern(1.5), Gaussian(), Laplace()], ids=repr)
def test_trials_of_many_columns_err_like_those_of_features_made_anew(family):
    rows, logs = rows_in_float64(60, 40), 1.0 + np.linspace(-0.3, 0.3, 40)
    held_out = HeldOutTrials(
        rows.take(np.arange(45)), rows.take(np.arange(45, 60)), 24, 0, pinned=True
    )
    for factor in (0.0, 0.5):  # the second from the angles of the first
        candidate = KernelCandidate(family, logs + factor, 1e-3, tuned=1)
        rescaled = Rescaled.draw(family, 40, 24, held_out.seed + APART)
        W = rescaled.frequencies(candidate.logs, None)
        Z, rest = (rescaled.features(part.X, W) for part in (held_out.train, held_out.test))
        moments = Moments.of(Z, held_out.train.y, held_out.train.w)
        expected, _ = held_out.errors(moments, rest, 1e-3)
        assert_close(held_out.trial(candidate).error, expected, factor=1000)


@pytest.mark.parametrize("name", ["gaussian", "matern32", "rational_quadratic", "laplace"])
def test_features_of_a_search_are_those_drawn_at_the_lengthscale(name):
    X, y = table(30, 40)
    walk = KernelWalk(NAMED[name], False, 24, 0)
    walk.run(RowSample(X, y[:, None], np.ones(30), np.arange(30.0)))
    start = tuple(np.linspace(3.0, 9.0, 40).tolist())
    for half_octaves in (0.0, 2.0, -1.0):
        scale = tuple(s * 2.0 ** (half_octaves / 2) for s in start)
        assert_close(walk._features(start, half_octaves), walk._map(scale)(X), factor=10)


# ---- what has a bound on columns, and axes of rows


def test_products_along_principal_axes_are_refused_for_thousands_of_columns():
    X, _ = table(20, 2049)
    with pytest.raises(UnsupportedKernel, match=r"HermiteMercer serves at most 2048 columns.*2049"):
        draw(Gaussian(), HermiteMercer(), n_features=8, X=X)


@pytest.mark.parametrize("centred", [True, False])
def test_axes_from_few_rows_are_those_of_the_covariance(centred, monkeypatch):
    X = np.random.default_rng(0).standard_normal((8, 12)) * np.linspace(1, 5, 12) + 3.0
    scales = np.linspace(2, 1, 12)
    whole = axes_of_rows(X, scales, centred, 5)
    monkeypatch.setattr("bochner.features.mercer.axes.MOST_COLUMNS", 10)
    few = axes_of_rows(X, scales, centred, 5)
    assert_close(few, whole, factor=1e4)  # eigenvectors: roundings over the gaps
    assert axes_of_rows(X, scales, centred, 12).shape == (12, 7 + (not centred))


def test_projected_features_of_wide_rows_keep_the_plane_they_lie_about():
    X, _ = table(50, 3000)
    phi = draw(Gaussian(60.0), Projected(Fourier(), 3), n_features=64, X=X, random_state=0)
    assert_close(phi.projection.T @ phi.projection, np.eye(3), factor=10)
    centred = X - X.mean(axis=0)
    kept = np.linalg.norm(centred @ phi.projection) ** 2 / np.linalg.norm(centred) ** 2
    assert kept > 0.8
    assert draw(Linear(), Projected(Fourier(), 3), n_features=8, X=X).n_features == 3


def test_medians_of_wide_rows_are_in_units_of_the_columns():
    X, y = table(40, 3000)
    sample = RowSample(X, y[:, None], np.ones(40), np.arange(40.0))
    assert rows_of(sample).log_median(0) == pytest.approx(0.5 * np.log(2 * 3000), abs=0.15)
