"""Fourier grids, harmonics and the globe: modes, sums, fits and plans, by two routes each."""

import math
import sys
from functools import partial

import naive
import numpy as np
import pytest
from gallery import globe
from gallery import unit_table as table
from scipy import sparse
from scipy.integrate import quad
from scipy.special import eval_legendre

import bochner as bo
from bochner.data.sources import Block
from bochner.errors import MissingDependency
from bochner.features.fourier.grid import equispaced_map
from bochner.kernels import Columns, Gaussian, Matern, OnSphere, Periodic, RationalQuadratic, Zonal
from bochner.kernels.sphere import degree_variances, of_degrees
from bochner.models.gaussian_process import grid as process_grid
from bochner.selection.modes import max_modes, modes_for
from bochner.solvers import modes
from bochner.solvers.gram import ToeplitzGram, conjugate_gradients, from_real, full_of, to_real
from bochner.solvers.harmonics import from_modes, to_modes
from bochner.solvers.modes import ModeProblem
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.problem import evidence
from bochner.sums.fourier import BoxAngles, GlobeAngles, as_complex, modes_of, nufft

pytest.importorskip("finufft")

GRID = {"kernel": Gaussian(0.4), "method": bo.FourierGrid(1e-6)}
GLOBE = {"kernel": OnSphere("gaussian", 40.0), "method": bo.SphericalHarmonics(12)}


def places(n=80, d=2, seed=0):
    """Return rows in the unit cube, with two corners, and a noisy wave along the last column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    X[:2] = [[0.0] * d, [1.0] * d]
    y = np.sin(2 * math.pi * X[:, -1] / 0.1) + np.cos(4 * X[:, 0]) + 0.2 * rng.standard_normal(n)
    return X, y


def ridge(kernel, tolerance, X, y, **options):
    method = bo.FourierGrid(tolerance)
    return bo.KernelRidge(kernel, method=method, **{"alpha": 0.1} | options).fit(X, y)


def process(kernel, method, X, y, w=None, **options):
    return bo.GaussianProcessRegressor(kernel, method=method, **options).fit(X, y, w)


@pytest.mark.parametrize("options", [GRID, GLOBE], ids=["grid", "globe"])
def test_equal_rows_are_one_row_of_more_weight(options):
    X, y = places()
    pairs = bo.KernelRidge(**options, alpha=0.5).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    single_fit = bo.KernelRidge(**options, alpha=0.5).fit(X, y, np.full(80, 2.0))
    np.testing.assert_allclose(pairs.predict(X), single_fit.predict(X), atol=1e-6)
    model = process(**options, X=np.vstack([X, X[:1]]), y=np.append(y, y[0] + 1), noise=0.1)
    assert np.isfinite(model.predict(X, return_std=True)).all()


ONE, NEAR = np.array([[0.3, 0.6]]), np.array([[0.3, 0.6], [0.5, 0.2], [0.9, 0.9]])
UNIT = ((0.0, 1.0), (0.0, 1.0))


@pytest.mark.parametrize("options", [{"noise": 0.1}, {"amplitude": 1.0}, {}], ids=str)
def test_a_process_of_one_row_is_finite(options):
    """The row is its own mean: no degree of freedom is left, and the amplitude is zero."""
    model = process(Gaussian(0.4), bo.FourierGrid(1e-6, UNIT), ONE, np.array([2.5]), **options)
    mean, std = model.predict(NEAR, return_std=True)
    np.testing.assert_allclose(mean, 2.5)
    assert np.isfinite([*std, model.amplitude_, model.noise_variance_]).all()


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_a_process_of_one_row_with_known_mean_is_exact(noise):
    """f(x) given y at x' has mean a² k y/(a² + σ²) and variance a² − a⁴ k²/(a² + σ²)."""
    arguments = Gaussian(0.4), bo.FourierGrid(1e-8, UNIT), ONE, np.array([2.5])
    model = process(*arguments, noise=noise, amplitude=2.0, fit_intercept=False)
    mean, std = model.predict(NEAR, return_std=True)
    k = Gaussian(0.4)(NEAR, ONE)[:, 0]
    np.testing.assert_allclose(mean, 2 * k * 2.5 / (2 + noise), atol=1e-6)
    np.testing.assert_allclose(std**2, 2 - 4 * k**2 / (2 + noise), atol=1e-6)
    chosen = process(*arguments, fit_intercept=False)
    assert chosen.amplitude_ + chosen.noise_variance_ == pytest.approx(2.5**2, rel=1e-3)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize(
    ("d", "kernel"),
    [(2, Matern(2.5, 0.2)), (2, RationalQuadratic(2.0, 0.2)), (1, Matern(0.5, 0.1))],
    ids=["plane", "long tails", "rough"],
)
def test_deviations_include_the_variance_of_omitted_modes(d, kernel):
    """At a tolerance of 0.02, deviations of the modes would have a larger error."""
    (X, y), (new, _) = places(1000, d), places(100, d, 1)
    options = dict(noise=0.09, amplitude=1.0, fit_intercept=False)
    model = process(kernel, bo.FourierGrid(0.02), X, y, **options)
    _, std = model.predict(new, return_std=True)
    K, k = kernel(X) + 0.09 * np.eye(1000), kernel(new, X)
    exact = np.sqrt(1 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T)))
    error = lambda deviation: np.sqrt(np.mean((deviation / exact - 1) ** 2))
    assert error(std) < 0.02
    assert error(np.sqrt(std**2 - (1 - model.map_.variances.sum()))) > 2 * error(std)
    _, cov = model.predict(new[:10], return_cov=True)
    np.testing.assert_allclose(np.diag(cov), std[:10] ** 2, rtol=1e-3)


def test_chosen_noise_excludes_the_variance_of_omitted_modes():
    X, y = places(300, 1)
    model = process(Matern(0.5, 0.3), bo.FourierGrid(0.05), X, y)
    omitted = model.amplitude_ * (1 - model.map_.variances.sum())
    assert model.noise_variance_ == pytest.approx(max(model.evidence_.noise[0] - omitted, 0.0))
    assert omitted > 0
    _, of_new = model.predict(X[:5], return_std=True, include_noise=True)
    _, of_f = model.predict(X[:5], return_std=True)
    np.testing.assert_allclose(of_new**2 - of_f**2, model.noise_variance_, atol=1e-12)


# ==== Periodic kernels on Fourier grids, their products and sums with others; exact twins.

SEASON, DAY, LONG = Periodic(0.31, 0.8), Periodic(0.1, 0.7), Periodic(7.0, 1.0)

KERNELS = {
    "periodic": (1, SEASON, 1e-10),
    "of a long period": (1, LONG, 1e-8),
    "sharp": (1, Periodic(0.3, 0.1), 1e-6),
    "quasi-periodic": (1, Gaussian(0.5) * DAY, 1e-8),
    "quasi-periodic Matern": (1, Matern(1.5, 0.4) * SEASON, 1e-4),
    "beside a Matern": (1, Matern(1.5, 0.3) + 0.5 * DAY, 1e-4),
    "beside, of a long period": (1, Matern(2.5, 0.3) + 2 * LONG, 1e-4),
    "two periods": (1, Matern(1.5, 0.3) + DAY + 0.3 * Periodic(0.02), 1e-3),
    "periods of no common multiple": (1, DAY + Periodic(0.1 * 2**0.5), 1e-3),
    "beside long tails": (1, RationalQuadratic(0.7, 0.1) + DAY, 1e-8),
    "times long tails": (1, RationalQuadratic(0.7, 0.1) * DAY, 1e-8),
    "both": (1, Gaussian(1.0) * DAY + Matern(1.5, 0.2) + 2 * Periodic(0.05), 1e-3),
    "power": (1, 0.5 * (DAY + bo.kernels.Constant(0.3)) ** 2, 1e-6),
    "another column": (2, Columns(Matern(2.5, 0.4), (0,)) * Columns(DAY, (1,)), 1e-4),
    "of two": (2, Matern(2.5, 0.5) + Columns(DAY, (1,)), 1e-2),
    "periods of both": (2, Periodic((0.1, 0.31), (1.0, 0.6)), 1e-8),
}

#: Dimension, kernel and tolerance at W/alpha = 10⁴, where truncation would miss the tolerance.
HELD = [(1, Matern(0.5, 0.3), 1e-2), (1, Matern(1.5, 0.1), 1e-8), (2, Matern(1.5, 0.4), 1e-4)]
HELD += [(1, RationalQuadratic(0.7, 0.1), 10.0**-k) for k in (3, 6, 9)]
HELD += [(2, RationalQuadratic(2.0, 0.4), 10.0**-k) for k in (3, 6, 9)]
HELD += [(1, RationalQuadratic(1, 0.1), 1e-6), (1, Gaussian(0.1), 1e-10), (2, Gaussian(0.3), 1e-9)]
HELD += [(2, Matern(2.5, 0.6), 1e-2), (3, Gaussian(0.6), 1e-2), (3, Gaussian(0.6), 1e-4)]


def exact(kernel, X, Y, new, alpha, w=1.0, intercept=True):
    """Return predictions of ridge regression by a dense solve."""
    w = np.broadcast_to(w, len(X))
    coef, b = naive.dual(kernel(X), Y, alpha, w, intercept)
    return kernel(new, X) @ coef + b


def gap(estimate, true):
    return np.linalg.norm(estimate - true) / np.linalg.norm(true)


RIDGES = {
    **{name: (k, bo.FourierGrid(t), places(460, d)[0], t) for name, (d, k, t) in KERNELS.items()},
    "globe": (OnSphere("gaussian", 40.0), bo.SphericalHarmonics(25), globe(400)[0], 1e-6),
    **{f"{k!r}, {t}": (k, bo.FourierGrid(t), places(460, d)[0], t) for d, k, t in HELD},
}


@pytest.mark.main_cases(24)
@pytest.mark.parametrize(("kernel", "method", "X", "tolerance"), RIDGES.values(), ids=RIDGES)
def test_ridge_regression_on_modes_is_within_the_tolerance(kernel, method, X, tolerance):
    """Two targets are draws of the process; once with weights and without an intercept."""
    rng, (X, new) = np.random.default_rng(2), np.split(X, [len(X) - 60])
    L = np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(len(X)))
    Y = L @ rng.standard_normal((len(X), 2)) + 0.08**0.5 * rng.standard_normal((len(X), 2))
    for w, intercept in ((np.ones(len(X)), True), (rng.uniform(0.5, 2, len(X)), False)):
        model = bo.KernelRidge(kernel, method=method, alpha=0.08, fit_intercept=intercept)
        predictions = model.fit(X, Y, w).predict(new)
        assert gap(predictions, exact(kernel, X, Y, new, 0.08, w, intercept)) <= tolerance


def exact_process(kernel, X, y, new, noise, amplitude):
    """Return mean, deviation and log evidence with a mean of flat prior (universal kriging)."""
    n, K, k = len(y), amplitude * kernel(X) + noise * np.eye(len(y)), amplitude * kernel(new, X)
    mean, deviation, b, precision = naive.kriging(K, y, k, amplitude * kernel.diag(new))
    power = (y - b) @ np.linalg.solve(K, y - b) + np.log(precision).item() - np.log(n)
    return mean, deviation, -0.5 * (power + np.linalg.slogdet(K)[1] + (n - 1) * np.log(2 * np.pi))


SKY, TIME = Columns(OnSphere("matern32", 25.0), (1, 2)), Columns(Matern(1.5, 4.0), (0,))
WEATHER = SKY * TIME


def times_and_places(n, seed=0):
    """Return rows of (time, latitude, longitude), and a target."""
    X, y = globe(n, seed)
    return np.column_stack([np.random.default_rng(seed).uniform(0, 10, n), X]), y


#: Kernel, method, rows, tolerance of means and relative tolerance of deviations.
PROCESSES = {
    "grid": (Gaussian(0.5), bo.FourierGrid(1e-9), places(380), 1e-6, 1e-4),
    "periods": (Matern(2.5, 0.3) + 0.5 * DAY, bo.FourierGrid(1e-5), places(580, 1), 1e-3, 1e-2),
    "harmonics": (OnSphere("matern52", 60.0), bo.SphericalHarmonics(24), globe(280), 1e-3, 2e-2),
    "neighbours on the globe": (
        2.0 * OnSphere("matern32", 30.0) + OnSphere("gaussian", 60.0),
        bo.NearestNeighbours(80),
        globe(160),
        1e-5,
        1e-5,
    ),
    **{
        f"neighbours, {k!r}": (k, bo.NearestNeighbours(90), times_and_places(170), 1e-6, 1e-6)
        for k in (
            WEATHER,
            0.5 * WEATHER + bo.kernels.Constant(0.2),
            SKY + TIME,
            SKY + bo.kernels.Exp(TIME),
            WEATHER + 0.3 * SKY**2,
            SKY * Columns(Periodic(2.0, 1.0), (0,)),
        )
    },
}


@pytest.mark.main_cases(6)
@pytest.mark.parametrize("name", PROCESSES)
def test_processes_agree_with_exact_ones(name):
    """All rows are neighbours; condition numbers are at most 1e4."""
    kernel, method, (X, y), mean, deviation = PROCESSES[name]
    law, new = {"noise": 0.04, "amplitude": 2.0}, X[-80:]
    X, y = X[:-80], y[:-80]
    model = process(kernel, method, X, y, **law)
    expected = exact_process(kernel, X, y, new, **law)
    predictions = model.predict(new, return_std=True)
    np.testing.assert_allclose(predictions[0], expected[0], atol=mean)
    np.testing.assert_allclose(predictions[1], expected[1], rtol=deviation)
    if "neighbours" not in name:
        assert model.log_marginal_likelihood_value_ == pytest.approx(expected[2], abs=0.05)
        _, cov = model.predict(new[:9], return_cov=True)
        np.testing.assert_allclose(np.diag(cov), predictions[1][:9] ** 2, rtol=1e-4)


def test_chosen_noise_and_amplitude_have_the_largest_evidence():
    (X, y), arguments = places(300), (Gaussian(0.5), bo.FourierGrid(1e-6))
    best = process(*arguments, X, y)
    for noise, amplitude in ((0.8, 1), (1.25, 1), (1, 0.7), (1, 1.4)):
        law = {"noise": noise * best.noise_variance_, "amplitude": amplitude * best.amplitude_}
        value = process(*arguments, X, y, **law).log_marginal_likelihood_value_
        assert value < best.log_marginal_likelihood_value_
        assert value == pytest.approx(exact_process(arguments[0], X, y, X[:2], **law)[2], abs=0.05)


def whole_map(kernel, X, tolerance):
    """Return the map of all modes that a tolerance requires."""
    return bo.draw(kernel, bo.FourierGrid(tolerance), n_features=1 << 20, X=X)


@pytest.mark.parametrize("name", ["periodic", "beside a Matern", "two periods", "another column"])
def test_periodic_parts_continue_beyond_the_box(name):
    """Kernels that decay are below a hundredth there, but not zero."""
    d, kernel, tolerance = KERNELS[name]
    (X, y), (new, _) = places(300, d), places(40, d, 5)
    new[:, -1] += np.where(np.arange(40) % 2, 23.0, -11.0)
    mean = exact(kernel, X, y[:, None], new, 0.08, intercept=False)[:, 0]
    values = ridge(kernel, tolerance, X, y, alpha=0.08, fit_intercept=False).predict(new)
    assert gap(values, mean) <= tolerance if name in ("periodic", "another column") else 0.03


def test_a_periodic_kernel_takes_rows_of_any_cycle():
    (X, y), (new, _) = places(300, 1), places(50, 1, 5)
    late = X + 0.31 * np.arange(300)[:, None]
    joint_fit = ridge(SEASON, 1e-6, np.concatenate([X, late]), np.concatenate([y, y]))
    first = ridge(SEASON, 1e-6, X, y).partial_fit(late, y)
    np.testing.assert_allclose(first.predict(new), joint_fit.predict(new), atol=1e-5)
    assert first.map_.n_features < 40


def test_maps_for_other_lengthscales_keep_the_periods():
    (X, y), kernel = places(300, 1), Matern(1.5, 0.3) + 0.5 * DAY
    phi = ridge(kernel, 1e-3, X, y).map_
    np.testing.assert_allclose(phi.variances_of(kernel), phi.variances, atol=1e-15)
    new = np.array([[0.3], [9.77]])
    np.testing.assert_allclose(phi(new) @ phi(X).T, phi.matrix(np.vstack([new, X]), 1e-9)[:2, 2:])


def test_the_common_period_is_the_least_common_multiple():
    X, _ = places(50, 1)
    for periods, common in (((0.25, 1.0), 1.0), ((4.0, 6.0), 12.0), ((365.25, 7.0), 10227.0)):
        phi = whole_map(Periodic(periods[0]) + Periodic(periods[1]), X, 1e-6)
        assert 2 * math.pi / phi.spacing[0] == pytest.approx(common)


KERNEL, TOLERANCE = Matern(1.5, 0.1), 1e-3


def twins(X, y, w=None, **options):
    options["random_state"] = 0
    grid, exact = (
        process(KERNEL, m, X, y, w, **options) for m in (bo.FourierGrid(TOLERANCE), "exact")
    )
    assert grid.map_.n_features > 20_000
    return grid, exact


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_deviations_equal_those_of_the_exact_process(noise, centred):
    """By rows if noise is small and modes would take long, otherwise by modes."""
    X, y = table(300, noise=noise)
    new, _ = table(50, seed=1)
    grid, exact = twins(X, y, noise=noise**2, amplitude=0.5, fit_intercept=centred)
    (mean, std), (true, deviation) = (m.predict(new, return_std=True) for m in (grid, exact))
    assert gap(mean, true) < TOLERANCE
    np.testing.assert_allclose(std, deviation, rtol=1e-6)
    rows, _ = table(200, seed=2)
    deviations, expected = (m.predict(rows, return_std=True)[1] for m in (grid, exact))
    np.testing.assert_allclose(deviations, expected, rtol=1e-6)
    covariance = [m.predict(new, return_cov=True)[1] for m in (grid, exact)]
    np.testing.assert_allclose(*covariance, atol=1e-6 * covariance[1].max())


def test_noise_and_amplitude_equal_those_of_the_exact_process():
    """For two targets with weights; the means agree too."""
    X, y = table(300, noise=0.02)
    Y = np.stack([y, X[:, 0] - y**2], axis=1)
    grid, exact = twins(X, Y, np.random.default_rng(1).uniform(0.5, 2, len(y)), noise="evidence")
    np.testing.assert_allclose(grid.noise_variance_, exact.noise_variance_, rtol=1e-2)
    np.testing.assert_allclose(grid.amplitude_, exact.amplitude_, rtol=1e-2)
    new, _ = table(80, seed=1)
    (mean, std), (true, deviation) = (m.predict(new, return_std=True) for m in (grid, exact))
    assert gap(mean, true) < 2 * TOLERANCE
    np.testing.assert_allclose(std, deviation, rtol=1e-2)


KERNEL_GRIDDED = Gaussian(0.4)


def sums_modes(model):
    return isinstance(model.choice_.method, bo.FourierGrid | bo.SphericalHarmonics)


@pytest.fixture
def limits(monkeypatch):
    """Treat more than 250 rows as many."""
    monkeypatch.setattr("bochner.models.route.most_at_once", lambda _: 250)
    monkeypatch.setattr("bochner.models.route.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.selection.modes.FEWEST_ROWS", 251)


def test_many_rows_of_few_columns_get_a_grid():
    X, _ = table(500)
    choice = modes_for(KERNEL_GRIDDED, X, 100_000)
    assert choice.method == bo.FourierGrid(1e-3)
    assert choice.map.error <= 1e-3
    assert f"{choice.map.n_features:,} Fourier modes" in choice.reason
    worst = np.abs(choice.map.matrix(X, 1e-9) - KERNEL_GRIDDED(X)).max()
    assert choice.map.error == pytest.approx(worst, 2)


@pytest.mark.parametrize("n", [200_000, 10**6])
def test_rough_kernels_get_a_coarser_grid_or_none(n):
    X, lengths = table(500)[0], np.geomspace(0.5, 0.005, 12)
    choices = [modes_for(Matern(1.5, length), X, n) for length in lengths]
    tolerances = [choice.method.tolerance if choice else 1.0 for choice in choices]
    assert tolerances == sorted(tolerances)
    assert {1e-3, 1e-2} < {*tolerances} <= {1e-3, 1e-2, 3e-2, 1.0}
    assert all(c.map.n_features <= max_modes(n) for c in choices if c)


def test_kernels_of_the_globe_get_harmonics():
    X, y = globe()
    for method in ("exact", bo.SphericalHarmonics(12)):
        fit = bo.KernelRidge(OnSphere(lengthscale="auto"), method=method, random_state=0).fit(X, y)
        assert 30 < fit.kernel_.kernel.lengthscale < 2000  # in degrees; the function is smooth
    choice = modes_for(OnSphere("matern32", 20.0), X, 200_000)
    assert isinstance(choice.method, bo.SphericalHarmonics)
    assert choice.map.error <= 1e-3
    coarser = bo.SphericalHarmonics(choice.method.degree - 1)
    assert bo.draw(OnSphere("matern32", 20.0), coarser, n_features=10**6, X=X).error > 1e-3
    assert "rows of the globe are summed as" in choice.reason
    assert modes_for(OnSphere("exponential", 0.5), X, 100_000) is None


def test_other_kernels_and_rows_get_no_modes():
    for kernel, X, n in (
        (KERNEL_GRIDDED, table(300)[0], 8192),
        (KERNEL_GRIDDED, table(300, 4)[0], 10**5),
        (bo.kernels.Linear(), table(300)[0], 10**5),
        (bo.kernels.Exponential(1e-4), table(300)[0], 10**5),
        (KERNEL_GRIDDED, sparse.csr_array(table(300)[0]), 10**5),
        (KERNEL_GRIDDED, table(300)[0] * [1, 0], 10**5),
    ):
        assert modes_for(kernel, X, n) is None


def test_without_finufft_no_modes_are_chosen(monkeypatch):
    monkeypatch.setattr("bochner.selection.modes.find_spec", lambda _: None)
    assert modes_for(KERNEL_GRIDDED, table(300)[0], 10**5) is None
    monkeypatch.setitem(sys.modules, "finufft", None)
    with pytest.raises(MissingDependency, match=r"needs the package finufft.*bochner\[grid\]"):
        bo.KernelRidge(**GRID).fit(*table(300))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_default_fits_on_modes_agree_with_the_kernel(limits, d):
    (X, y), (new, _) = table(400, d), table(60, d, 1)
    model = bo.KernelRidge(KERNEL_GRIDDED, alpha=0.3, random_state=0).fit(X, y)
    assert model.choice_.method == bo.FourierGrid(1e-3 if d < 3 else 3e-2)
    expected = exact(KERNEL_GRIDDED, X, y[:, None], new, 0.3)[:, 0]
    assert gap(model.predict(new), expected) < 3 * model.choice_.method.tolerance
    repeat = bo.KernelRidge(KERNEL_GRIDDED, method=model.choice_.method, alpha=0.3, random_state=0)
    np.testing.assert_allclose(model.predict(new), repeat.fit(X, y).predict(new), rtol=1e-12)
    blocks = bo.Blocks.from_arrays(X, y, block_rows=37)
    repeat = bo.KernelRidge(KERNEL_GRIDDED, alpha=0.3, random_state=0).fit_blocks(blocks)
    assert repeat.choice_.reason == model.choice_.reason
    np.testing.assert_allclose(repeat.predict(new), model.predict(new), rtol=1e-8, atol=1e-8)
    law = {"noise": 0.01, "amplitude": 2.0}
    model = bo.GaussianProcessRegressor(KERNEL_GRIDDED, random_state=0, **law).fit(X, y)
    assert sums_modes(model)
    mean, std, _ = exact_process(KERNEL_GRIDDED, X, y, new, **law)
    predictions = model.predict(new, return_std=True)
    np.testing.assert_allclose(predictions[0], mean, atol=0.02 if d < 3 else 0.2)
    np.testing.assert_allclose(predictions[1], std, rtol=0.05 if d < 3 else 0.5)


def test_options_of_features_are_respected(limits):
    """So are partial fits."""
    X, y = table()
    linear = {"kernel": bo.kernels.Linear()}
    for changes in ({"n_features": 32}, {"method": "fourier"}, {"precision": "float64"}, linear):
        options = {"kernel": KERNEL_GRIDDED, "random_state": 0} | changes
        assert not sums_modes(bo.KernelRidge(**options).fit(X, y))
    for Learner in (bo.KernelRidge, bo.GaussianProcessRegressor):
        assert not sums_modes(Learner(KERNEL_GRIDDED, random_state=0).partial_fit(X, y))


@pytest.mark.parametrize("alpha", ["loo", "evidence", 0.1])
def test_a_constant_target_does_not_change_the_outcome(alpha):
    (X, y), model = table(), bo.KernelRidge(alpha=alpha, alpha_per_target=True, **GRID)
    varying, joint, constant = (model.fit(X, np.outer(y, t)).solution_ for t in ([1], [1, 0], [0]))
    assert joint.outcome is varying.outcome
    assert constant.alpha == alpha or isinstance(alpha, str)


def test_a_plan_lists_modes_with_their_error(monkeypatch):
    """The root mean square of 256 rows has deviation 1/√512: 15 % are 3.4 of them, 1 in 1,500."""
    monkeypatch.setattr("bochner.selection.modes.FEWEST_ROWS", 251)
    X, y = table(600, noise=0.3)
    plan = bo.plan(X, y, KERNEL_GRIDDED, widths=[16, 64], random_state=0)
    (modes,) = (fit for fit in plan.fits if fit.solver == "modes")
    model = bo.KernelRidge(KERNEL_GRIDDED, method=modes.method, random_state=0).fit(X, y)
    assert modes.n_features == model.map_.n_features
    assert modes.kernel_error < 1e-3
    average = np.full((600, 600), 1 / 600)  # leave-one-out errors by hand
    centred = (np.eye(600) - average) @ KERNEL_GRIDDED(X) @ (np.eye(600) - average)
    H = average + centred @ np.linalg.inv(centred + model.alpha_ * np.eye(600))
    errors = (y - H @ y) / (1 - np.diag(H))
    assert modes.error == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.15)
    assert modes.name == f"{modes.n_features:,} Fourier modes of FourierGrid(tolerance=0.001)"
    assert sums_modes(plan.estimator(modes).fit(X, y))


# ==== Sums of modes, products with their matrix, solutions, posteriors.

EXTENTS = [(6,), (3, 4), (2, 1, 2), (3, 0)]


@pytest.mark.parametrize("extent", EXTENTS)
def test_sums_of_modes_follow_their_definition(extent):
    rng = np.random.default_rng(0)
    angles = rng.uniform(-np.pi, np.pi, (50, len(extent)))
    values = rng.standard_normal((2, 50)) + 1j * rng.standard_normal((2, 50))
    k = np.stack(np.meshgrid(*[np.arange(-m, m + 1) for m in extent], indexing="ij"), -1)
    modes = np.exp(1j * np.tensordot(k, angles, (-1, 1)))
    sums = nufft(angles, values, 1e-12, extent)
    np.testing.assert_allclose(sums, np.tensordot(values, modes.conj(), (1, -1)), atol=1e-9)
    coef = rng.standard_normal(sums.shape)
    back = np.tensordot(coef, modes, (tuple(range(1, coef.ndim)), tuple(range(modes.ndim - 1))))
    np.testing.assert_allclose(nufft(angles, coef, 1e-12), back, atol=1e-9)


TURNED = bo.kernels.Mahalanobis(Matern(2.5, 0.4), ((2.0, 0.5), (0.5, 1.0)))
CASES = [
    (1, Gaussian(0.1), (1e-2, 1e-6, 1e-11)),
    (1, bo.kernels.Exponential(0.5), (1e-2,)),
    (1, Matern(1.5, 0.1), (1e-2, 1e-5)),
    (1, RationalQuadratic(1.0, 0.1), (1e-2, 1e-4)),
    (1, bo.kernels.Laplace(0.5), (1e-2,)),
    (1, bo.kernels.Cauchy(0.2), (1e-2, 1e-4)),
    (1, bo.kernels.SpectralMixture((1.0, 2.0), (30.0, 5.0), (3.0, 2.0)), (1e-3, 1e-7)),
    (2, Gaussian((0.2, 0.5)), (1e-2, 1e-9)),
    (2, Matern(3.7, 0.4), (1e-4,)),
    (2, TURNED, (1e-3,)),
    (2, 3 * Gaussian(0.2) + 2 * Matern(2.5, 0.5) + bo.kernels.Constant(0.7), (1e-3,)),
    (2, Columns(Matern(2.5, 0.2), (0,)) * Columns(Gaussian(0.3), (1,)), (1e-3, 1e-5)),
    (2, Columns(Matern(2.5, 0.2), (1,)) + Columns(Gaussian(0.3), (0,)), (1e-3,)),
    (2, Gaussian(0.3) ** 2, (1e-5,)),
    (2, Matern(2.5, 0.3) * Matern(1.5, 1.0), (1e-3,)),
    (3, Gaussian(0.5), (1e-2, 1e-4)),
    (1, RationalQuadratic(0.7, 0.1), (1e-3, 1e-6, 1e-9)),
    (1, bo.kernels.Cauchy(0.1) + 0.3 * Gaussian(0.2), (1e-6,)),
    (2, RationalQuadratic(2.0, (0.2, 0.3)), (1e-6,)),
    (2, bo.kernels.Mahalanobis(RationalQuadratic(1.0, 0.4), ((2.0, 0.5), (0.5, 1.0))), (1e-4,)),
    (3, RationalQuadratic(2.0, 0.4), (1e-3,)),
]


@pytest.mark.parametrize(
    ("d", "kernel", "tolerance"),
    [(d, kernel, tolerance) for d, kernel, tolerances in CASES for tolerance in tolerances],
    ids=str,
)
def test_modes_approximate_the_kernel_within_the_tolerance(d, kernel, tolerance):
    X, _ = places(60, d)
    phi = equispaced_map(kernel, np.zeros(d), np.ones(d), tolerance)
    Z, K = phi(X), kernel(X)
    assert Z.shape[1] == phi.n_features
    worst = np.abs(Z @ Z.T - K).max() / K[0, 0]
    assert worst <= tolerance
    assert worst >= 1e-5 * tolerance  # the number of modes is not far too large


#: Highest mode of each column for a tolerance, as counted from the spectrum.
HIGHEST = [
    (Gaussian(0.1), 1e-2, [11]),
    (Matern(1.5, 0.1), 1e-5, [670]),
    (Gaussian((0.2, 0.5)), 1e-9, [14, 11]),
    (Matern(2.5, 0.3), 1e-3, [27, 27]),
    (RationalQuadratic(1.0, 0.1), 1e-4, [83]),
    (RationalQuadratic(0.7, 0.1), 1e-6, [124]),
    (bo.kernels.Exponential(0.5), 1e-2, [1242]),
    (Matern(1.5, 0.5), 1e-2, [31, 31]),
    (bo.kernels.Exponential(0.5), 3e-2, [299, 299]),
]


@pytest.mark.parametrize(("kernel", "tolerance", "highest"), HIGHEST, ids=str)
def test_a_tolerance_requires_a_known_number_of_modes(kernel, tolerance, highest):
    d = len(highest)
    assert equispaced_map(kernel, np.zeros(d), np.ones(d), tolerance).extent.tolist() == highest


# --- Sums, products, solutions -------------------------------------------------------------------


def sums_of(places, extent, X, y, w, centred):
    """Return sums of modes of two parts, about the mean of the targets if centred."""
    cut = len(X) // 3
    slices = slice(cut), slice(cut, None)
    parts = (Block(X[rows], y[rows], w[rows], rows.start or 0) for rows in slices)
    first, second = (modes_of(places, extent, np.ones(3), 1e-13, part) for part in parts)
    sums = first + second
    return sums.about(sums.origin + sums.total / sums.weight if centred else np.zeros(3))


def problem_of(extent, centred, n=150):
    """Return the ModeProblem of rows in a box, their features, targets and weights."""
    rng, d = np.random.default_rng(1), len(extent)
    X, w = rng.uniform(-1, 1, (n, d)), rng.uniform(0, 2, n)
    y = rng.standard_normal((n, 3)) + 2
    places = BoxAngles(np.zeros(d), np.full(d, 1.7), np.ones(d), np.zeros(d))
    sums = sums_of(places, extent, X, y, w, centred)
    v = rng.uniform(0.1, 1, tuple(2 * m + 1 for m in extent))
    v = (v + np.flip(v)) / 2
    k = np.stack(np.meshgrid(*[np.arange(-m, m + 1) for m in extent], indexing="ij"), -1)
    k = k.reshape(-1, d)[v.size // 2 :]
    r = np.sqrt(2 * v.ravel()[v.size // 2 :])
    r[0] /= np.sqrt(2)
    Z = np.hstack([np.cos(1.7 * X @ k.T) * r, (np.sin(1.7 * X @ k.T) * r)[:, 1:]])
    gram = ToeplitzGram(as_complex(sums.gram), v, centred)
    return ModeProblem.of(gram, as_complex(sums.cross), sums.squares, max(w.sum(), n), rng), Z, y, w


def problem_of_globe(degree, centred, X=None):
    """Return the same of places on the globe."""
    rng, X = np.random.default_rng(1), globe(200)[0] if X is None else X
    n = len(X)
    w, y = rng.uniform(0, 2, n) if n == 200 else np.ones(n), rng.standard_normal((n, 3)) + 2
    sums = sums_of(GlobeAngles(), (degree, degree), X, y, w, centred)
    kernel, method = OnSphere(Matern(0.8, 2.0), 5.0), bo.SphericalHarmonics(degree)
    phi = bo.draw(kernel, method, n_features=(degree + 1) ** 2, X=X)
    gram = phi.gram(as_complex(sums.gram), phi.variances, centred)
    problem = ModeProblem.of(gram, as_complex(sums.cross), sums.squares, w.sum(), rng)
    return problem, phi(X), y, w


def matrices(Z, y, w, centred):
    """Return Gram matrix, cross products and squares of weighted rows, centred or not."""
    Zc, yc = (A - (w @ A / w.sum()) * centred for A in (Z, y))
    return Zc.T @ (w[:, None] * Zc), Zc.T @ (w[:, None] * yc), w @ yc**2


def assert_preconditioner(M, problem, G, c):
    """Check roots and solutions of M; return the number of products at penalty 0.5."""
    np.testing.assert_allclose(M.root(M.inverse_root(c)), c, atol=1e-9)
    by_roots = M.inverse_root(M.inverse_root(c), transposed=True)
    np.testing.assert_allclose(by_roots, M.solve(c), atol=1e-9)
    steps = conjugate_gradients(M, problem.b, 1e-11)
    expected = np.linalg.solve(G + 0.5 * np.eye(len(G)), problem.b.T)
    np.testing.assert_allclose(steps.solution.T, expected, atol=1e-7)
    return steps.products


def assert_inverse(M, A):
    """Check the trace of the inverse and the determinant of a matrix."""
    assert M.inverse_diagonal.sum() == pytest.approx(np.trace(np.linalg.inv(A)))
    assert M.log_determinant() == pytest.approx(np.linalg.slogdet(A)[1])


GLOBE_DEGREE = 6


@pytest.mark.parametrize("extent", [*EXTENTS, "globe"])
@pytest.mark.parametrize("centred", [True, False])
def test_products_and_solutions_equal_those_of_the_dense_matrix(extent, centred):
    on_globe = extent == "globe"
    make, size = (problem_of_globe, GLOBE_DEGREE) if on_globe else (problem_of, extent)
    problem, *rows = make(size, centred)
    G, B, power = matrices(*rows, centred)
    c, gram = np.random.default_rng(2).standard_normal((2, len(G))), problem.gram
    np.testing.assert_allclose(gram(c), c @ G, atol=1e-9)
    np.testing.assert_allclose(problem.b, B.T, atol=1e-9)
    np.testing.assert_allclose(problem.power, power, rtol=1e-9)
    if on_globe:
        low = [gram.low_degrees(0.5, degree) for degree in (0, 2, GLOBE_DEGREE)]
        np.testing.assert_allclose(gram.block(3), G[:16, :16], atol=1e-10)
        assert gram.size == pytest.approx((gram.roots**2).sum())
        assert_inverse(low[-1], G + 0.5 * np.eye(len(G)))
    else:
        np.testing.assert_allclose(to_real(from_real(c, extent), extent), c, atol=1e-13)
        low = [gram.preconditioner(0.5, limit == 10_000, limit) for limit in (1, 4, 10_000)]
    for M in low:
        assert_preconditioner(M, problem, G, c)


@pytest.mark.parametrize("centred", [True, False])
def test_rows_on_parallels_give_one_block_per_order(centred):
    """With more than 2L rows on each parallel, the blocks are G itself."""
    lat, lon = np.meshgrid(np.linspace(-80, 60, 9), np.arange(14) * 360 / 14, indexing="ij")
    problem, *rows = problem_of_globe(5, centred, np.stack([lat.ravel(), lon.ravel()], axis=1))
    assert problem.gram.by_order
    G, *_ = matrices(*rows, centred)
    A, M = G + 0.5 * np.eye(len(G)), problem.gram.preconditioner(0.5)
    c = np.random.default_rng(2).standard_normal((2, len(A)))
    np.testing.assert_allclose(M.solve(c), np.linalg.solve(A, c.T).T, atol=1e-9)
    assert_inverse(M, A)
    assert assert_preconditioner(M, problem, G, c) <= 2


@pytest.mark.parametrize("law", [(None, None), (0.3, None), (None, 2.5)], ids=str)
def test_slopes_of_the_evidence_equal_differences(law):
    """Central differences in log α have an error of h²/6 times a third derivative."""
    problem, *_ = problem_of((4, 3), True)
    h = 1e-3
    for alpha in (0.1, 0.7, 5.0):
        lower, at, upper = (problem.at(alpha * np.exp(s * h), 1e-12) for s in (-1, 0, 1))
        rise = (evidence(upper.problem, upper, *law) - evidence(lower.problem, lower, *law)) / (
            2 * h
        )
        np.testing.assert_allclose(at.slope(*law), rise, rtol=1e-4, atol=1e-4)


# --- Learners ------------------------------------------------------------------------------------


def test_tapered_kernels_approximate_other_lengthscales():
    X, y = places(300, 1)
    model = ridge(RationalQuadratic(1.0, 0.1), 1e-6, X, y)
    phi, kernel = model.map_, RationalQuadratic(1.0, 0.11)
    assert phi.tapered
    np.testing.assert_array_equal(phi.variances, phi.variances_of(phi.kernel))
    t = np.linspace(-1, 1, 50) * 2 * phi.half
    k = np.arange(-phi.extent[0], phi.extent[0] + 1)
    values = np.cos(t[:, None] * k * phi.spacing) @ phi.variances_of(kernel)
    np.testing.assert_allclose(values, kernel(t[:, None], np.zeros((1, 1)))[:, 0], atol=1e-6)
    np.testing.assert_allclose(phi(np.array([[9.0], [-7.0]])) @ phi(X).T, 0, atol=1e-6)


@pytest.mark.statistical
def test_deviations_by_draws_and_by_solutions_agree(monkeypatch):
    """With 128 draws and 40 solved modes the error is below 2 %; draws alone have 6 %."""
    X, y = places(400, 1)
    new, options = np.linspace(0, 1, 200)[:, None], dict(noise=0.04, amplitude=1.0)
    process = bo.GaussianProcessRegressor(Matern(1.5, 0.3), method=bo.FourierGrid(1e-3), **options)
    _, exact = process.fit(X, y).predict(new, return_std=True)
    for module in (process_grid, modes):
        monkeypatch.setattr(module, "MAX_EXACT", 10)
    monkeypatch.setattr(process_grid, "MAX_VARIANCE_ROWS", 40)
    _, limits = process.fit(X, y).predict(new[:10], return_std=True)
    np.testing.assert_allclose(limits, exact[:10], rtol=1e-3)
    _, by_draws = process.predict(new, return_std=True)
    assert 1e-4 < np.sqrt(np.mean((by_draws / exact - 1) ** 2)) < 0.02


def test_the_certificate_measures_the_error_of_the_modes():
    X, y = places(300, 2)
    model = bo.KernelRidge(Gaussian(0.3), method=bo.FourierGrid(1e-3), alpha=1.0).fit(X, y)
    Z, K = model.map_(X), Gaussian(0.3)(X)
    assert model.certificate_.entrywise == pytest.approx(np.abs(Z @ Z.T - K).max(), rel=0.05)
    assert model.certificate_.n_features == model.map_.n_features
    assert model.certificate_.epsilon < 0.1


@pytest.mark.parametrize("method", [bo.FourierGrid(1e-3), bo.NearestNeighbours(10), None])
def test_predict_grid_returns_predictions_with_coordinates(method, monkeypatch):
    """For each representation, also after derivatives are observed; no matrix is factored again."""
    X, y = places(200, 2)
    model = bo.GaussianProcessRegressor(Gaussian(0.3), method=method, noise=0.1).fit(X, y)
    if method is None:
        model = model.observe(bo.Derivatives(X[:3], 0, y[:3], noise=0.1))
    model.predict(X[:1], return_std=True)
    monkeypatch.setattr(KernelRows, "factor", None)
    assert model.plot_deviation(places=9).collections
    a, b = np.linspace(0, 1, 5), np.linspace(0, 1, 3)
    mean, std = model.predict_grid(u=a, v=b, return_std=True)
    rows = np.stack(np.meshgrid(a, b, indexing="ij"), axis=-1).reshape(-1, 2)
    m, s = model.predict(rows, return_std=True)
    np.testing.assert_allclose(np.asarray(mean).ravel(), m)
    np.testing.assert_allclose(np.asarray(std).ravel(), s)
    xarray = pytest.importorskip("xarray")
    assert isinstance(mean, xarray.DataArray)
    assert mean.dims == ("u", "v")
    np.testing.assert_array_equal(mean["u"], a)


def test_maps_of_one_column_are_plotted_as_curves_with_bands():
    (X, y), t = places(100, 1), np.linspace(0, 1, 9)
    model = bo.GaussianProcessRegressor(Gaussian(0.3), method=bo.FourierGrid(1e-3)).fit(X, y)
    ax = model.plot_map(t=t)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict(t[:, None]))
    assert len(ax.collections) == 1
    assert ax.get_xlabel() == "t"


@pytest.mark.parametrize("kernel", [Matern(1.5, 0.1), RationalQuadratic(0.7, 0.1)], ids=repr)
@pytest.mark.parametrize("upper", [[0.5], [0.5, 0.4]], ids=len)
def test_a_multiple_of_a_kernel_has_the_same_grid(kernel, upper):
    X = np.array([[0.0] * len(upper), upper])
    first, scaled = (whole_map(c * kernel, X, 1e-3) for c in (1.0, 7.0))
    assert first.tapered == scaled.tapered
    np.testing.assert_array_equal(first.spacing, scaled.spacing)
    np.testing.assert_array_equal(first.extent, scaled.extent)
    np.testing.assert_allclose(scaled.weights, 7.0 * first.weights, rtol=1e-9, atol=1e-12)
    assert scaled.error == pytest.approx(first.error, rel=1e-6)


# ==== The globe: kernels, harmonics, lengthscales and nearest neighbours, by two routes each.

SPHERICAL = [
    OnSphere("gaussian", 30.0),
    OnSphere("matern32", 5.0),
    OnSphere(Matern(0.8, 2.0), 5.0),
    2.0 * OnSphere("matern52", 40.0) * OnSphere("gaussian", 60.0) + bo.kernels.Constant(0.5),
    OnSphere(Zonal((0.5, 1.0, 0.0, 0.25), power=0)),
]


def in_turns(n, seed=0):
    """Return uniform places on the sphere; longitudes may exceed one turn."""
    X, turns = globe(n, seed)[0], np.random.default_rng(seed).integers(-1, 2, n)
    return X + np.outer(360 * turns, [0, 1])


def angle(X, Y):
    """Return great-circle angles by the haversine formula, in radians."""
    (a, b), (c, d) = (np.deg2rad(Z).T[:, :, None] for Z in (X, Y))
    c, d = c.T, d.T
    half = np.sin((a - c) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((b - d) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(np.minimum(half, 1.0)))


def test_kernels_on_the_sphere_depend_on_the_chord():
    X, Y = in_turns(20), in_turns(15, 1)
    chord = 2 * np.sin(angle(X, Y) / 2) / np.deg2rad(7.0)
    expected = (1 + np.sqrt(3) * chord) * np.exp(-np.sqrt(3) * chord)
    np.testing.assert_allclose(OnSphere("matern32", 7.0)(X, Y), expected, atol=1e-9)
    np.testing.assert_allclose(OnSphere("matern32", 7.0).diag(X), 1.0)


@pytest.mark.parametrize("kernel", SPHERICAL, ids=repr)
def test_degree_variances_equal_the_integral(kernel):
    """By quadrature of k on a meridian; the sum over degrees above 200 is at most the remainder."""
    variances = degree_variances(kernel, 200)
    meridian = lambda t: kernel([[90.0, 0.0]], [[90.0 - np.rad2deg(t), 0.0]])[0, 0]
    for l in (0, 1, 2, 7):
        integrand = lambda t, l=l: meridian(t) * eval_legendre(l, np.cos(t)) * np.sin(t) / 2
        value, error = quad(integrand, 0, np.pi, limit=200, points=[0.05, 0.3])
        assert variances[l] == pytest.approx(value, abs=error + 1e-9)
    X = in_turns(40)
    remainder = kernel.diag(X[:1])[0] - (2 * np.arange(201) + 1) @ variances
    assert np.abs(of_degrees(variances, X) - kernel(X)).max() <= remainder + 1e-9


def test_gradients_in_degrees_equal_differences():
    X, Y = in_turns(6), in_turns(4, 1)
    C = np.random.default_rng(2).standard_normal((6, 4))
    k, step = OnSphere("matern52", 40.0), 1e-4
    gradient = k.pullback(X, Y, C)
    for a in range(2):
        h = step * np.eye(2)[a]
        slope = ((k(X + h, Y) - k(X - h, Y)) / (2 * step) * C).sum(axis=1)
        np.testing.assert_allclose(gradient[:, a], slope, atol=1e-7)


@pytest.mark.parametrize("degree", [1, 2, 7, 12])
def test_modes_of_harmonics_equal_features_and_from_modes_is_the_adjoint(degree):
    """Features are polynomials of points in space, from another recurrence."""
    X, D = in_turns(30), (degree + 1) ** 2
    coef = np.random.default_rng(1).standard_normal((D, 3))
    zonal = OnSphere(Zonal(tuple(2.0 * np.arange(degree + 1) + 1), power=0))  # a_l = 1
    phi = bo.draw(zonal, bo.SphericalHarmonics(degree), n_features=D, n_inputs=2)
    np.testing.assert_allclose(phi.weights, 1.0, atol=1e-12)
    modes = full_of(to_modes(coef.T, degree))
    k = np.arange(-degree, degree + 1)
    theta = GlobeAngles().angles(X)
    tables = [np.exp(1j * np.outer(theta[:, a], k)) for a in range(2)]
    values = np.einsum("nk,skm,nm->ns", tables[0], modes, tables[1])
    np.testing.assert_allclose(values.imag, 0.0, atol=1e-11)
    np.testing.assert_allclose(values.real, phi(X) @ coef, atol=1e-11)
    a, b, _ = (to_real(to_modes(c, degree), (degree, degree)) for c in coef.T[:, None])
    back = from_modes(to_modes(coef.T[[1]], degree))[0]
    np.testing.assert_allclose((a * b).sum(), coef[:, 0] @ back, atol=1e-10)


@pytest.mark.parametrize(
    ("kernel", "method", "X", "truth"),
    [
        (partial(RationalQuadratic, 1.0), bo.FourierGrid(), np.linspace(0, 1, 999)[:, None], 0.1),
        (partial(Matern, 1.5), bo.FourierGrid(1e-3), np.linspace(0, 1, 800)[:, None], 0.1),
        (partial(OnSphere, "matern52"), bo.SphericalHarmonics(25), in_turns(1500), 40.0),
    ],
    ids=["tapered grid", "grid", "globe"],
)
def test_chosen_lengthscales_have_a_larger_evidence(kernel, method, X, truth):
    rng, n = np.random.default_rng(0), len(X)
    root = np.linalg.cholesky(kernel(truth)(X) + 1e-8 * np.eye(n))
    y = root @ rng.standard_normal(n) + 0.1 * rng.standard_normal(n)
    best, *fits = (
        process(kernel(share * truth), method, X, y, random_state=0, **options)
        for share, options in ((0.75, {"lengthscale": "evidence"}), (0.6, {}), (1.5, {}))
    )
    values = [fit.log_marginal_likelihood_value_ for fit in fits]
    assert best.log_marginal_likelihood_value_ > max(values)


def by_neighbours(kernel, neighbours, X, y):
    return process(kernel, bo.NearestNeighbours(neighbours), X, y, noise=0.02, amplitude=1.3)


def points(X):
    lat, lon = np.deg2rad(X[:, 1]), np.deg2rad(X[:, 2])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def test_columns_of_columns_select_the_right_columns():
    X, y = times_and_places(60)
    wider = np.hstack([np.ones((60, 1)), X])
    predictions = by_neighbours(Columns(WEATHER, (1, 2, 3)), 12, wider, y).predict(wider)
    np.testing.assert_allclose(predictions, by_neighbours(WEATHER, 12, X, y).predict(X), atol=1e-9)


def test_neighbours_are_nearest_in_lengthscales_of_place_and_time():
    (X, y), (new, _) = times_and_places(300), times_and_places(8, 1)
    new[0, 2] = 179.9  # longitude wraps
    predictions = by_neighbours(WEATHER, 12, X, y).predict(new, return_std=True)
    for i, row in enumerate(new):
        chords = np.linalg.norm(points(X) - points(row[None]), axis=1) / np.deg2rad(25.0)
        rows = np.argsort(np.hypot(chords, (X[:, 0] - row[0]) / 4.0))[:12]
        twin = by_neighbours(WEATHER, 12, X[rows], y[rows]).predict(row[None], return_std=True)
        np.testing.assert_allclose([part[i] for part in predictions], np.ravel(twin), atol=1e-9)


def test_weights_above_one_do_not_change_the_kernel_on_modes():
    """Otherwise copies of an omitted row would let the lengthscale follow the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(200)
    model = bo.KernelRidge("gaussian", method=bo.FourierGrid(), random_state=0)
    kernels = [model.fit(X, y, sample_weight=np.full(200, w)).kernel_ for w in (1.0, 10.0)]
    assert kernels[0] == kernels[1]
