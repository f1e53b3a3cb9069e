"""A Gaussian process with the kernel itself: the same as on exact features, and as its formulas."""

import pickle

import numpy as np
import pytest
from scipy.stats import norm

import bochner as bo
from bochner.datasets import load_concrete
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Laplace, Linear, Matern

X = np.random.default_rng(0).uniform(-2, 2, (90, 3))
Y = np.sin(X @ np.array([1.0, -0.5, 0.2])) + 0.2 * np.random.default_rng(1).standard_normal(90)
NEW = np.random.default_rng(2).uniform(-3, 3, (20, 3))
KERNEL = Matern(1.5, 1.7)
WEIGHTS = np.random.default_rng(3).integers(1, 4, 90).astype(float)


def process(kernel=KERNEL, **options):
    return bo.GaussianProcessRegressor(kernel, random_state=0, **options)


@pytest.mark.parametrize("centred", [True, False])
def test_evidence_as_on_features_of_all_rows(centred):
    options = {"fit_intercept": centred, "noise": "evidence", "amplitude": "evidence"}
    exact = process(method="exact", **options).fit(X, Y)
    features = process(method="nystrom", n_features=90, **options).fit(X, Y)
    assert exact.log_marginal_likelihood_value_ == pytest.approx(
        features.log_marginal_likelihood_value_, abs=1e-3
    )
    assert exact.noise_variance_ == pytest.approx(features.noise_variance_, rel=0.02)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_the_same_as_on_features_of_all_rows(centred, weights):
    held = {"noise": 0.05, "amplitude": 0.8, "fit_intercept": centred}
    exact, features = (
        process(**method, **held).fit(X, Y, weights)
        for method in ({"method": "exact"}, {"method": "nystrom", "n_features": 90})
    )
    for one, other in zip(
        exact.predict(NEW, return_std=True), features.predict(NEW, return_std=True), strict=True
    ):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-8)
    for one, other in zip(
        exact.predict(NEW, return_cov=True), features.predict(NEW, return_cov=True), strict=True
    ):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-8)
    assert np.allclose(exact.gradient(NEW), features.gradient(NEW), rtol=1e-5, atol=1e-7)


def test_leave_one_out_density_by_fits_without_each_row():
    held = {"noise": 0.05, "amplitude": 0.8}
    model, found = process(**held).fit(X, Y), []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        mean, std = process(**held).fit(X[others], Y[others]).predict(X[i : i + 1], return_std=True)
        found.append(norm.logpdf(Y[i], mean[0], np.sqrt(std[0] ** 2 + 0.05)))
    assert model.loo_log_density_ == pytest.approx(np.mean(found), rel=1e-7)


@pytest.mark.parametrize("held", [{}, {"noise": 0.03}, {"amplitude": 2.0}], ids=str)
def test_noise_and_amplitude_have_the_largest_evidence(held):
    model = process(**held).fit(X, Y)
    s2, a2 = model.noise_variance_, model.amplitude_
    best = model.log_marginal_likelihood_value_
    for factor in (0.8, 1.25):
        other = {"noise": s2 * factor, "amplitude": a2 * factor}
        for changed in ({"noise": s2 * factor, "amplitude": a2}, other):
            found = process(**(changed | held)).fit(X, Y).log_marginal_likelihood_value_
            assert found <= best + 0.1  # a slope of 1.5e-3 a row is level


def left_out_by_refits(alpha, kernel, rows, y):
    """Return rising squares of errors of rows left out, and the mean log density: by refits."""
    n, K = len(y), kernel(rows)
    errors, spread = np.zeros(n), np.zeros(n)
    for i in range(n):
        own = np.arange(n) != i
        one, none = np.ones((n - 1, 1)), np.zeros((1, 1))
        bordered = np.block([[K[np.ix_(own, own)] + alpha * np.eye(n - 1), one], [one.T, none]])
        k = np.append(K[i, own], 1.0)
        errors[i] = y[i] - k @ np.linalg.solve(bordered, np.append(y[own], 0.0))
        spread[i] = np.sqrt(K[i, i] - k @ np.linalg.solve(bordered, k) + alpha)
    scale = np.sqrt(np.mean((errors / spread) ** 2))
    return np.sort(errors**2), np.mean(norm.logpdf(errors, scale=scale * spread))


def far_out(n, by=60.0):
    """Rows with a few far from the others, and a target with heavy tails and one far out."""
    rng = np.random.default_rng(0)
    rows = rng.standard_t(2, (1200, 3))
    y = 0.5 * np.sin(rows[:, 0]) + 0.5 * rng.standard_t(3, 1200)
    y[0] += by
    return rows[:n], y[:n], rows[400:], y[400:]


def test_the_penalty_is_the_likeliest_of_those_that_err_little():
    rows, y, *_ = far_out(90, 20.0)
    kernel, ladder = Gaussian(4.0), 10.0 ** np.arange(-4, 3.1, 0.5)
    chosen = process(kernel).fit(rows, y).evidence_.alpha[0]
    found = [left_out_by_refits(alpha, kernel, rows, y) for alpha in [chosen, *ladder]]
    error, density = np.array([(squares.mean(), density) for squares, density in found]).T
    best = found[np.argmin(error)][0]
    admissible = error <= best.mean() + 0.02 * best[:-1].sum() / 90
    assert admissible[0]
    assert not admissible[np.argmax(density)]  # which alone would have been taken
    assert density[0] == density[admissible].max()


@pytest.mark.parametrize("length", [1.0, 2.0, 4.0])
def test_one_target_far_out_costs_no_more_than_a_constant(length):
    """The density alone chooses penalties next to nothing: errors of 1.5 to 1.9 constants."""
    rows, y, new, expected = far_out(400)
    found = process(Gaussian(length)).fit(rows, y).predict(new)
    constant = np.sqrt(np.mean((y.mean() - expected) ** 2))
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1.05 * constant


@pytest.mark.parametrize(
    ("factor", "length", "share"), [(20, 2.0, 0.8), (20, 5.0, 0.8), (100, 2.0, 1.0)]
)
def test_one_gross_error_of_a_real_table_costs_little(factor, length, share):
    """Of 500 strengths one is mistyped: by density alone the others err by 2 to 11 constants."""
    table = load_concrete()
    order = np.random.default_rng(0).permutation(len(table.y))
    rows, y = table.X[order].astype(float), table.y[order].astype(float)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    typed = y[:500].copy()
    typed[0] *= factor
    found = process(Gaussian(length)).fit(rows[:500], typed).predict(rows[500:])
    constant = np.sqrt(np.mean((typed.mean() - y[500:]) ** 2))
    assert np.sqrt(np.mean((found - y[500:]) ** 2)) < share * constant


def test_functions_have_the_mean_and_the_covariance_of_the_posterior():
    model = process().fit(X, Y)
    mean, cov = model.predict(NEW[:4], return_cov=True)
    n = 3000
    drawn = model.sample_functions(n, random_state=0)(NEW[:4])
    # Each of 8 numbers is beyond five of its deviations once in 10^5 runs of right code.
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5 * np.sqrt(np.diag(cov) / n))
    spread = drawn.var(axis=1) / np.diag(cov)
    assert np.all(np.abs(spread - 1) < 5 * np.sqrt(2 / n) + 0.01)


def test_functions_of_a_kernel_without_fourier_features():
    model = process(Linear(), noise=0.1, amplitude=1.0).fit(X, Y)
    drawn = model.sample_functions(400, random_state=0)(NEW[:3])
    mean, std = model.predict(NEW[:3], return_std=True)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5 * std / 20)


def test_many_rows_have_a_factor_of_float32_and_scores_of_rows_that_chose_nothing():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (3300, 2))
    y = np.sin(3 * rows[:, 0]) + 0.3 * rng.standard_normal(3300)
    single = process(Gaussian(0.7), noise=0.09, amplitude=1.0).fit(rows, y)
    assert {p.factor.dtype for p in single.fit_.posteriors.values()} == {np.dtype("float32")}
    double = process(Gaussian(0.7), noise=0.09, amplitude=1.0, method="nystrom", n_features=400)
    double.fit(rows, y)
    a, b = (model.predict(NEW[:, :2], return_std=True) for model in (single, double))
    assert np.allclose(a[0], b[0], atol=1e-4)
    assert np.allclose(a[1], b[1], rtol=0.02)
    assert len(single.calibration_) == 3300 - 2048
    new = rng.uniform(-2, 2, (4000, 2))
    truth = np.sin(3 * new[:, 0]) + 0.3 * rng.standard_normal(4000)
    _, low, high = single.predict_interval(new, 0.9)
    # The share covered has deviation √(.09/4000 + .09/1252) about 0.9.
    assert abs(np.mean((low <= truth) & (truth <= high)) - 0.9) < 4 * 0.0097


def test_few_rows_have_cross_conformal_intervals():
    model = process("gaussian", lengthscale="loo").fit(X, Y)
    assert "CV+" in model.calibration_.guarantee
    mean, low, high = model.predict_interval(NEW, 0.8)
    assert np.all((low <= mean) & (mean <= high))


def test_the_default_is_the_kernel_itself_unless_features_are_asked_for():
    assert "The exact kernel of 90 rows" in process().fit(X, Y).choice_.reason
    for asked in ({"n_features": 20}, {"precision": "float64"}, {"method": "auto"}):
        assert "The exact kernel of" not in process(**asked).fit(X, Y).choice_.reason
    for missing in ("moments_", "predictive_"):
        with pytest.raises(AttributeError, match="kernel itself makes no features"):
            getattr(process().fit(X, Y), missing)


def test_rows_that_come_later_are_added_through_features():
    model = process(noise=0.05, amplitude=1.0).fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])
    whole = process(noise=0.05, amplitude=1.0).fit(X, Y)
    assert model.rows_seen_ == 90
    # Landmarks are the first 60 rows, so functions differ a little.
    assert np.sqrt(np.mean((model.predict(X) - whole.predict(X)) ** 2)) < 0.1
    with pytest.raises(AttributeError, match="partial_fit"):
        process(method="exact").fit(X, Y).partial_fit  # noqa: B018


def test_solved_again_with_another_noise():
    model = process(noise=0.05, amplitude=1.0).fit(X, Y)
    again = model.set_params(noise=0.5).solve_again()
    assert np.allclose(
        again.predict(NEW), process(noise=0.5, amplitude=1.0).fit(X, Y).predict(NEW), atol=1e-10
    )


def test_constant_target():
    mean, std = process().fit(X, np.full(90, 3.0)).predict(NEW, return_std=True)
    assert np.allclose(mean, 3.0)
    assert np.all(std == 0)


def test_lengthscales_by_evidence_and_by_the_likelier():
    y = np.sin(3 * X[:, 0]) + 0.05 * np.random.default_rng(1).standard_normal(90)
    by_evidence = process("gaussian", lengthscale="evidence").fit(X, y)
    lengths = by_evidence.kernel_.lengthscale
    assert lengths[0] < 0.2 * min(lengths[1:])
    likelier = process("gaussian").fit(X, y)
    assert (
        likelier.loo_log_density_
        >= process("gaussian", lengthscale="loo").fit(X, y).loo_log_density_ - 1e-9
    )
    assert any("log density" in c.measure for c in likelier.search_.compared)


def test_saved_and_pickled_without_the_factor(tmp_path):
    model = process(Laplace(2.0)).fit(X, Y)
    expected = model.predict(NEW, return_std=True)
    bo.save(model, tmp_path / "model.bochner")
    size = len(pickle.dumps(model))
    assert size < 8 * 90 * 90  # fewer bytes than the factor alone
    for again in (bo.load(tmp_path / "model.bochner"), pickle.loads(pickle.dumps(model))):
        found = again.predict(NEW, return_std=True)
        assert all(np.allclose(a, b, rtol=1e-9) for a, b in zip(found, expected, strict=True))


REFUSED = {
    "rows": (
        lambda: process(Gaussian(), method="exact").fit(np.zeros((20_001, 1)), np.arange(20_001.0)),
        "at most; got 20,001",
    ),
    "preconditioner": (
        lambda: process(method=bo.ExactKernel("nystrom")).fit(X, Y),
        "takes no preconditioner",
    ),
    "noise": (lambda: process(noise="loo").fit(X, Y), 'noise must be "auto", "evidence" or a'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, message = REFUSED[name]
    with pytest.raises(InvalidInput, match=message):
        call()
