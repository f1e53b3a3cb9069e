"""GaussianProcessRegressor: the exact process with exact features, and what must hold with others."""

from dataclasses import replace
from fractions import Fraction

import array_api_strict as xp
import numpy as np
import pytest
import scipy.sparse
from inside import seen_by
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from tolerance import assert_close, bar

import bochner as bo
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Linear, Matern, Polynomial
from bochner.models.gaussian_process.adaptation import left_out
from bochner.models.gaussian_process.intervals import Conformal
from bochner.solvers.ridge.leave_one_out import resolved_slacks

KERNEL = Gaussian(lengthscale=0.8)
METHODS = ["nystrom", "orthogonal", "hermite", "mercer"]
FAR = np.full((1, 2), 50.0)


def left_out_of(model):
    """Errors and deviations of the rows of a fit without each."""
    return left_out(model.fit_.summed, model.fit_.law, model.sample_)


def table(n=80, t=None, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + noise * rng.standard_normal(n) + 3
    return X, (y if t is None else np.column_stack([(i + 1) * y + X[:, 0] ** i for i in range(t)]))


def model(kernel=KERNEL, **changes):
    options = dict(method="nystrom", n_features=30, random_state=0) | changes
    return bo.GaussianProcessRegressor(kernel, **options)


def law(m, X):
    """Mean, standard deviation and covariance."""
    mean, std = m.predict(X, return_std=True)
    return mean, std, m.predict(X, return_cov=True)[1]


def same(a, b, factor=1e6):
    X = np.vstack([table(20, seed=9)[0], FAR])
    for ours, theirs in zip(law(a, X), law(b, X), strict=True):
        assert_close(ours, theirs, factor=factor)
    assert_close(a.noise_variance_, b.noise_variance_, factor=factor)
    assert_close(a.calibration_.scores, b.calibration_.scores, factor=factor)
    assert a.rows_seen_ == b.rows_seen_


# ---- the exact process, with exact features


@pytest.mark.parametrize("t", [None, 2])
def test_with_all_rows_as_landmarks_it_is_the_exact_process(t):
    X, y = table(t=t)
    new = np.vstack([table(20, seed=1)[0], FAR])
    ours = model(method="auto", n_features=128, noise=0.01, amplitude=2.0, fit_intercept=False)
    exact = Exact(ConstantKernel(2.0) * RBF(0.8), alpha=0.01, optimizer=None).fit(X, y)
    ours.fit(X, y)
    assert "exact kernel" in ours.choice_.reason
    mean, std = exact.predict(new, return_std=True)
    cov = exact.predict(new, return_cov=True)[1]
    for a, b in zip(law(ours, new), (mean, std, cov), strict=True):
        assert np.abs(a - b).max() < 1e-6
    expected = exact.log_marginal_likelihood_value_
    assert abs(ours.log_marginal_likelihood_value_ / expected - 1) < 1e-8


def test_its_evidence_has_its_maximum_where_the_exact_one_has():
    X, y = table(60)
    ours = model(method="auto", n_features=64, fit_intercept=False).fit(X, y)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(0.8, "fixed")
    best = -np.inf
    for noise in ours.noise_variance_ * np.exp([-0.1, 0.0, 0.1]):
        exact = Exact(kernel, alpha=noise, random_state=0).fit(X, y)
        best = max(best, exact.log_marginal_likelihood_value_)
        if noise == ours.noise_variance_:
            assert abs(exact.kernel_.k1.constant_value / ours.amplitude_ - 1) < 1e-3
    assert abs(ours.log_marginal_likelihood_value_ - best) < 1e-5


def test_an_intercept_has_a_flat_prior():
    """Generalised least squares, from the textbook (Rasmussen and Williams, eq. 2.41, 2.42)."""
    X, y = table(40)
    ours = model(method="auto", n_features=64, noise=0.02, amplitude=1.5).fit(X, y)
    new = table(10, seed=1)[0]
    K, k = 1.5 * KERNEL(X) + 0.02 * np.eye(40), 1.5 * KERNEL(new, X)
    ones, inverse = np.ones(40), np.linalg.inv(K)
    b = ones @ inverse @ y / (ones @ inverse @ ones)
    gap = 1 - k @ inverse @ ones
    cov = 1.5 * KERNEL(new) - k @ inverse @ k.T + np.outer(gap, gap) / (ones @ inverse @ ones)
    mean, std, covariance = law(ours, new)
    assert np.abs(mean - (b + k @ inverse @ (y - b))).max() < 1e-6
    assert np.abs(covariance - cov).max() < 1e-6
    assert np.abs(std - np.sqrt(np.diag(cov))).max() < 1e-6


def test_leave_one_out_scores_are_those_of_refits():
    X, y = table(30)
    ours = model(method="auto", n_features=64, noise=0.02, amplitude=1.5, fit_intercept=False)
    scores = []
    for i in range(30):
        rest = np.arange(30) != i
        k, inverse = 1.5 * KERNEL(X[[i]], X[rest])[0], np.eye(29) * 0.02
        inverse = np.linalg.inv(1.5 * KERNEL(X[rest]) + inverse)
        spread = 1.5 - k @ inverse @ k + 0.02
        scores.append((y[i] - k @ inverse @ y[rest]) / np.sqrt(spread))
    errors, deviation = left_out_of(ours.fit(X, y))
    assert np.abs((errors / deviation)[:, 0] - scores).max() < 1e-6


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kind", ["plain", "copies", "weights"])
@pytest.mark.parametrize("noise", [1e-11, 1e-6, 0.1, 10.0])
def test_leave_one_out_errors_are_those_of_refits_however_small_the_noise(noise, kind, centred):
    """A row far from others has 1 − h = noise/(noise + k): 1e-11, which 1 − h in numbers is not.

    Rounding of K, 1e-14, is divided by the noise where copies leave nothing else.
    """
    rng = np.random.default_rng(0)
    X, y = 4 * rng.standard_normal((40, 8)), rng.standard_normal(40)
    w = rng.integers(1, 3, 40) * 1.0 if kind == "weights" else np.ones(40)
    if kind == "copies":
        X[20:] = X[:20]
    ours = model(Matern(0.5, 1.0), method="auto", n_features=64, noise=noise, amplitude=1.0)
    ours.set_params(fit_intercept=centred).fit(X, y, w)
    errors, deviation = left_out_of(ours)
    for i in range(0, 40, 7):
        fewer = w - (np.arange(40) == i)
        mean, std = clone(ours).fit(X, y, fewer).predict(X[[i]], return_std=True)
        factor = max(1e8, 10 / noise)
        assert_close(errors[i], y[i] - mean, factor=factor)
        assert_close(deviation[i] / np.sqrt(std**2 + noise), np.ones(1), factor=factor)


@pytest.mark.parametrize("centred", [True, False])
def test_errors_of_some_rows_are_those_of_all_rows(centred, monkeypatch):
    X, y = table(60, t=2)
    ours = model(noise=1e-3, fit_intercept=centred).fit(X, y, np.linspace(0.2, 3, 60))
    every = left_out_of(ours)
    monkeypatch.setattr("bochner.models.gaussian_process.adaptation.MOST_ROWS", 10)
    for few, many in zip(left_out_of(ours), every, strict=True):
        assert_close(few, many, factor=1e6)


def test_errors_that_rounding_made_are_those_of_the_mean(monkeypatch):
    """Rows far from each other: without one, f̂ is the mean of the others at it."""
    rng = np.random.default_rng(0)
    X, y = 4 * rng.standard_normal((40, 8)), rng.standard_normal(40)
    ours = model(Gaussian(0.5), method="auto", n_features=64, noise=1e-15, amplitude=1.0)
    with pytest.warns(SolutionWarning, match="singular"):
        ours.fit(X, y)
    monkeypatch.setattr("bochner.models.gaussian_process.adaptation.MOST_ROWS", 10)
    errors, _ = left_out_of(ours)
    assert_close(errors[:, 0], y - y.mean(), factor=1e6)


@pytest.mark.parametrize("off", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("weight", [Fraction(1, 2), Fraction(1), Fraction(2)])
def test_slacks_of_rows_apart_are_those_of_fractions_whatever_rounding_did(weight, off):
    """D rows of norm √k, at right angles: without a copy of one, w falls to max(w − 1, 0).

    The leverage k/(wk + λ) is off by twice the first-order error, ε√(kD/λ), which the slack λ/(k + λ)
    outweighs only while λ is far above it: at λ = 1e-3 by 1e9, at 1e-20 not at all.
    """
    D, k, y = 64, Fraction(3, 2), Fraction(5, 4)
    for alpha in map(Fraction, (4.0, 1e-3, 1e-6, 1e-12, 1e-16, 1e-20)):
        left = weight - min(weight, 1)
        exact = y - y * left * k / (left * k + alpha)  # What is left of the row predicts y so
        slack = 1 - min(weight, 1) * k / (weight * k + alpha)
        rounding = off * 2.0**-52 * float(k * D / alpha) ** 0.5
        leverage = np.array([[float(k / (weight * k + alpha)) + rounding]])
        residual = np.array([[float(y * alpha / (weight * k + alpha))]])
        seen = np.array([[float(y)]]), leverage, np.array([float(weight)]), np.array([float(k)])
        found = resolved_slacks(residual, *seen, np.array([float(alpha)]), D, 0.0)
        allowed = 0.3 if off else 1e-9
        assert abs(found[1][0, 0] / float(slack) - 1) < allowed
        assert abs(found[0][0, 0] / found[1][0, 0] / float(exact) - 1) < allowed


@pytest.mark.parametrize(("gram", "resolved"), [(0.0, True), (0.02, True), (0.08, False)])
def test_slacks_below_the_error_of_float32_products_are_not_believed(gram, resolved):
    """Slack ½ against gram/λ: 0, .2 or .8; a row by itself has λ/(λ + k) = 1/21 of both."""
    one = np.ones((1, 1))
    seen = 0.5 * one, 3.0 * one, 0.5 * one, np.ones(1), np.full(1, 2.0), np.full(1, 0.1)
    residual, slack = resolved_slacks(*seen, 1, gram)
    expected = (0.5, 0.5) if resolved else (3 / 21, 1 / 21)
    assert_close([residual[0, 0], slack[0, 0]], expected)


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_is_that_of_kernel_ridge_regression(method):
    X, y = table(t=2)
    ours = model(method=method).fit(X, y)
    for i, alpha in enumerate(ours.alpha_):
        ridge = bo.KernelRidge(KERNEL, method=method, n_features=30, alpha=alpha, random_state=0)
        assert_close(ours.predict(X)[:, i], ridge.fit(X, y[:, i]).predict(X), factor=1e6)


# ---- no variance starves


@pytest.mark.parametrize("method", METHODS)
def test_far_from_the_data_the_deviation_is_that_of_the_kernel(method):
    """Features alone would leave no doubt there: less than half of the deviation."""
    X, y = table(400)
    ours = model(method=method, fit_intercept=False).fit(X, y)
    std = ours.predict(FAR, return_std=True)[1][0]
    assert abs(std / ours.amplitude_**0.5 - 1) < 1e-3
    posterior = ours.predictive_.posterior
    Z = ours.map_(FAR)
    alone = np.sqrt(posterior.floor * posterior.leverage(Z))[0, 0]
    assert alone < 0.5 * std
    assert ours.predict(X, return_std=True)[1].mean() < 0.5 * std


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_covariance_is_one_and_has_the_variances_on_its_diagonal(method, t):
    ours = model(method=method).fit(*table(t=t))
    _, std, cov = law(ours, np.vstack([table(15, seed=2)[0], FAR]))
    std, cov = std.reshape(16, -1), cov.reshape(16, 16, -1)
    for i in range(std.shape[1]):
        assert_close(np.diag(cov[:, :, i]), std[:, i] ** 2, factor=1e3)
        assert np.linalg.eigvalsh(cov[:, :, i]).min() > -1e-10 * cov.max()


# ---- functions


def deviations(functions, m, X):
    """|z| of means and of products of deviations, against the model's mean and covariance."""
    mean, _, cov = law(m, X)
    values = functions(X)
    n, left = values.shape[1], values - mean[:, None]
    pairs = left[:, None] * left[None]
    means = left.mean(axis=1) / np.sqrt(np.diag(cov) / n)
    spread = pairs.std(axis=2) / n**0.5
    with np.errstate(divide="ignore", invalid="ignore"):  # functions that are all alike
        products = np.nan_to_num((pairs.mean(axis=2) - cov) / spread, posinf=1e9, neginf=-1e9)
    return np.concatenate([means, products[np.triu_indices(len(mean))]])


@pytest.mark.parametrize("method", ["nystrom", "orthogonal"])
def test_functions_have_the_mean_and_the_covariance_of_the_process(method):
    """1000 functions at 5 rows: 20 z-scores, false alarms 1e-6.

    Faults that must show: functions of the features alone, and a third more of the rest.
    """
    ours = model(method=method, fit_intercept=False, n_features=20).fit(*table(200))
    X = np.vstack([table(3, seed=3)[0], FAR, FAR + 0.5])
    drawn = ours.sample_functions(1000, random_state=1)
    allowed = bar(20)
    assert np.abs(deviations(drawn, ours, X)).max() < allowed
    alone = replace(drawn, landmarks=None, priors=())
    assert np.abs(deviations(alone, ours, X)).max() > allowed
    louder = replace(drawn, priors=louder_(drawn))
    assert np.abs(deviations(louder, ours, X)).max() > allowed


def louder_(drawn):
    return tuple((f0, 1.33 * weights, 1.33 * at) for f0, weights, at in drawn.priors)


def test_a_map_without_landmarks_borrows_some_for_its_functions():
    """Their variance is the process' own: 5 z-scores, false alarms 1e-6."""
    ours = model(method="hermite", fit_intercept=False, n_features=12).fit(*table(200))
    X = np.vstack([table(3, seed=3)[0], FAR, FAR + 0.5])
    mean, std = ours.predict(X, return_std=True)
    squares = (ours.sample_functions(500, random_state=1)(X) - mean[:, None]) ** 2
    z = (squares.mean(axis=1) - std**2) / (squares.std(axis=1) / 500**0.5)
    assert np.abs(z).max() < bar(5)


@pytest.mark.parametrize("t", [None, 2])
def test_a_function_has_one_value_at_a_row(t):
    ours = model().fit(*table(t=t))
    X = table(40, seed=4)[0]
    f = ours.sample_functions(3, random_state=5)
    assert f(X).shape == ((40, 3) if t is None else (40, 2, 3))
    assert len(f) == 3
    assert_close(f(X)[7:9], f(X[7:9]), factor=10)
    np.testing.assert_array_equal(f(X), ours.sample_functions(3, random_state=5)(X))
    np.testing.assert_array_equal(f(X), ours.sample_y(X, 3, random_state=5))
    before = f(X)
    ours.partial_fit(*table(t=t, seed=8))
    np.testing.assert_array_equal(f(X), before)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2)])
def test_functions_of_kernels_that_are_not_stationary_are_those_of_the_features(kernel):
    ours = model(kernel, method="auto").fit(*table())
    X = table(6, seed=3)[0]
    assert np.abs(deviations(ours.sample_functions(2000, 0), ours, X)).max() < bar(27)


# ---- the same from any blocks and pieces


def test_float32_is_float64_to_its_precision():
    X, y = table(300)
    new = np.vstack([table(20, seed=9)[0], FAR])
    single, double = (
        model(method="orthogonal", noise=0.01, amplitude=1.0, precision=p).fit(X, y)
        for p in ("float32", "float64")
    )
    for a, b in zip(law(single, new), law(double, new), strict=True):
        assert_close(a, b, np.float32, factor=100)


def test_noise_below_what_float32_resolves_is_found_in_float64_or_warned_of():
    X, y = table(300, noise=0.0)
    options = dict(method="orthogonal", n_features=64)
    with pytest.warns(SolutionWarning, match=r"float32 products.*precision=\"float64\""):
        model(**options, precision="float32").fit(X, y)
    again = model(**options).fit_blocks(bo.Blocks.from_iterable(lambda: iter([(X, y)])))
    assert again.feature_dtype_ == "float32"
    assert again.moments_.precision == "float64"


# ---- intervals and densities


@pytest.mark.parametrize("t", [None, 2])
def test_densities_and_gaussian_intervals_are_those_of_the_normal_law(t):
    ours = model().fit(*table(t=t))
    X, y = table(30, t=t, seed=6)
    mean, std = ours.predict(X, return_std=True)
    spread = np.sqrt(std**2 + ours.noise_variance_)
    assert_close(ours.log_predictive_density(X, y), norm.logpdf(y, mean, spread), factor=1e3)
    middle, lower, upper = ours.predict_interval(X, 0.9, calibrated=False)
    assert_close(middle, mean)
    assert_close(lower, norm.ppf(0.05, mean, spread), factor=10)
    assert_close(upper, norm.ppf(0.95, mean, spread), factor=10)


def test_parameters_set_after_a_fit_do_not_change_its_intervals():
    X, y = table(60)
    ours, other = (model().fit(X, y) for _ in range(2))
    other.set_params(noise=100.0, kernel=Gaussian(0.01), n_features=2)
    for a, b in zip(ours.predict_interval(X, 0.8), other.predict_interval(X, 0.8), strict=True):
        np.testing.assert_array_equal(a, b)


def test_calibrated_intervals_hold_the_share_of_calibration_rows_asked_for():
    ours = model().fit(*table(200))
    X, y = table(99, seed=6)
    _, lower, upper = ours.calibrate(X, y).predict_interval(X, 0.9)
    rounding = 1e-9
    assert np.sum((lower - rounding <= y) & (y <= upper + rounding)) == 90
    assert ours.calibration_.source == "held out"
    assert "exchangeable" in ours.calibration_.guarantee
    assert repr(ours.calibration_) == "Conformal(99 scores, held out)"


def test_rows_of_the_fit_calibrate_by_cross_validation():
    by_rows = model().fit(*table(99)).calibration_
    assert "99 distinct rows in 10 folds" in by_rows.guarantee
    assert "2 coverage − 1.08 at least" in by_rows.guarantee  # + (1 − 10/99)/11
    assert str(by_rows) == by_rows.guarantee
    assert repr(by_rows) == "CrossConformal(99 scores, 10 folds)"


def test_many_rows_calibrate_by_leave_one_out_errors_of_those_that_chose_nothing(monkeypatch):
    monkeypatch.setattr("bochner.models.gaussian_process.fit.LOO_ROWS", 200)
    monkeypatch.setattr("bochner.models.gaussian_process.fit.ENOUGH", 100)
    ours = model("gaussian").fit(*table(330))
    found, chose = ours.calibration_, ours.sample_.lowest(200)
    assert (len(found), found.source) == (130, "leave one out")
    assert "none for a finite number" in found.guarantee
    errors, deviation = left_out_of(ours)
    unseen = ~np.isin(ours.sample_.priority, chose.priority)
    scores = np.sort(np.abs(errors / deviation)[unseen], axis=0)
    assert_close(found.scores, scores, factor=1e6)


@pytest.mark.parametrize("t", [None, 2])
def test_cross_validated_intervals_are_those_of_fits_without_each_fold(monkeypatch, t):
    """The slow route: refits by hand, all bounds sorted; a row and its copy are in one fold."""
    X, y = table(60, t=t)
    X, y, w = np.vstack([X, X[:9]]), np.concatenate([y, y[:9]]), np.ones(69)
    calls = seen_by(monkeypatch, "bochner.models.gaussian_process.intervals._fold")
    ours = model(Gaussian(0.8)).fit(X, y, w)
    new = np.vstack([table(7, seed=5)[0], FAR])
    mean, lower, upper = (a.reshape(8, -1) for a in ours.predict_interval(new, 0.8))
    taken = [rows for _, _, *rows in calls]
    assert sorted(np.concatenate([judged for _, judged in taken])) == list(range(60))
    lows, highs = [], []
    for seen, judged in taken:
        assert not {*judged, *(judged[judged < 9] + 60)} & {*seen}
        one = clone(ours).fit(X[seen], y[seen])
        (at, sd), (f, s) = (deviations_of_y(one, a) for a in (X[judged], new))
        scores = np.abs(y[judged].reshape(at.shape) - at) / sd
        lows += [f - score * s for score in scores]
        highs += [f + score * s for score in scores]
    lows, highs = np.sort(lows, axis=0), np.sort(highs, axis=0)
    assert_close(lower, np.minimum(lows[11], mean), factor=1e6)  # ⌊0.2 · 61⌋ = 12
    assert_close(upper, np.maximum(highs[48], mean), factor=1e6)  # ⌈0.8 · 61⌉ = 49


def deviations_of_y(one, X):
    """Mean and standard deviation of y, (m, t)."""
    mean, std = one.predict(X, return_std=True)
    return (a.reshape(len(X), -1) for a in (mean, np.sqrt(std**2 + one.noise_variance_)))


def covered(ours, X, y, coverage=0.9):
    _, lower, upper = ours.predict_interval(X, coverage)
    return np.mean((lower <= y) & (y <= upper))


def test_intervals_cover_noise_though_lengthscales_were_chosen_on_the_same_rows():
    """Mean of four shares of fits of 30 rows, each of the Beta law about 0.9: alarms 1e-6.

    Leave-one-out errors of the fits, where noise is taken for a function, covered a half.
    """
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((530, 8)), rng.standard_normal(530)
        ours = model("gaussian", method="auto", n_features=64).fit(X[:30], y[:30])
        shares.append(covered(ours, X[30:], y[30:]))
    assert np.mean(shares) > 0.9 - bar(1) * np.sqrt(0.9 * 0.1 / 32 / 4)


def test_intervals_cover_new_rows_though_those_of_the_fit_are_there_twice():
    """Leave-one-out errors of copies are zero: they cover nothing."""
    X, y = table(1040, noise=0.3)
    ours = model(method="auto", n_features=128).fit(np.tile(X[:40], (2, 1)), np.tile(y[:40], 2))
    assert len(ours.calibration_) == 40
    assert covered(ours, X[40:], y[40:]) > 0.9 - bar(1) * np.sqrt(0.09 / 42)
    naive = Conformal.of(*left_out_of(ours), "leave one out")
    ours.fit_ = replace(ours.fit_, calibrated=naive)
    assert covered(ours, X[40:], y[40:]) < 0.5


def test_sparse_copies_are_copies():
    X, y = table(20)
    X = scipy.sparse.csr_array(np.where(X > 0, X, 0.0))
    ours = model(method="orthogonal").fit(scipy.sparse.vstack([X, X]), np.tile(y, 2))
    assert len(ours.calibration_) == 20


def test_one_row_calibrates_nothing_and_says_so():
    ours = model("gaussian", n_features=4).fit([[1.0, 2.0]], [3.0])
    assert ours.calibration_.guarantee.startswith("None: one row alone")
    with pytest.raises(InvalidInput, match=r"0 rows cannot calibrate a coverage of 0.95"):
        ours.predict_interval([[1.0, 2.0]])


def test_split_conformal_intervals_cover_as_asked_though_the_model_is_wrong():
    """2000 calibrations of 19 rows, one new row each: coverage 18/20, z-score, alarms 1e-6.

    Fault that must show: Gaussian intervals of that model.
    """
    X, y = table(100, noise=0.5)
    ours = model(noise=1e-3, amplitude=1.0).fit(X, y)
    new, target = table(40_000, seed=7, noise=0.5)
    mean, std = ours.predict(new, return_std=True)
    scores = (np.abs(target - mean) / np.sqrt(std**2 + 1e-3)).reshape(2000, 20)

    def z(covered):
        return (np.mean(covered) - 0.9) / np.sqrt(0.09 / 2000)

    reach = [Conformal.of(s[:19, None], np.ones((19, 1)), "held out").quantile(0.9) for s in scores]
    assert abs(z(scores[:, 19] <= np.ravel(reach))) < bar(1)
    assert abs(z(scores[:, 19] <= norm.ppf(0.95))) > bar(1)


def test_nominal_intervals_cover_targets_drawn_from_the_process():
    """Noise of a tenth: 4000 new rows, 94 to 96 in 100; a model without its noise has far less."""
    ours = model(n_features=60).fit(*table(2000))
    X, y = table(4000, seed=11)
    mean, lower, upper = ours.predict_interval(X, 0.95, calibrated=False)
    assert 0.94 < np.mean((lower <= y) & (y <= upper)) < 0.97
    std = ours.predict(X, return_std=True)[1]
    assert np.mean(np.abs(y - mean) < 1.96 * std) < 0.6
    _, lower, upper = ours.predict_interval(X, 0.95)
    assert 0.935 < np.mean((lower <= y) & (y <= upper)) < 0.965


# ---- refusals, and data that say little


def test_a_constant_target_is_predicted_without_doubt():
    X = table(50)[0]
    ours = model("gaussian").fit(X, np.full(50, 2.5))
    mean, std = ours.predict(X, return_std=True)
    assert np.all(mean == 2.5)
    assert np.all(std == 0)
    assert np.all(np.array(ours.predict_interval(X)) == 2.5)
    assert np.all(np.isfinite(ours.log_predictive_density(X, np.full(50, 2.5))))


def test_one_row_is_enough():
    ours = model("gaussian", n_features=4).fit([[1.0, 2.0]], [3.0])
    assert ours.predict([[5.0, 5.0]])[0] == 3.0


@pytest.mark.parametrize("coverage", [0, 1, 95, "most", True])
def test_what_is_no_coverage_is_refused(coverage):
    ours = model().fit(*table())
    with pytest.raises(InvalidInput, match=r"coverage must be a number above 0 and below 1"):
        ours.predict_interval(FAR, coverage)


def test_refusals(monkeypatch):
    X, y = table()
    ours = model().fit(X, y)
    with pytest.raises(InvalidInput, match=r"return_std or return_cov, not both"):
        ours.predict(X, return_std=True, return_cov=True)
    with pytest.raises(InvalidInput, match=r"9 rows cannot calibrate a coverage of 0.95.*takes 19"):
        ours.calibrate(X[:9], y[:9]).predict_interval(X)
    with pytest.raises(InvalidInput, match=r"same targets in every call; got rows of shape \(2,\)"):
        ours.partial_fit(*table(t=2))
    with pytest.raises(InvalidInput, match=r"same targets in every call"):
        ours.calibrate(*table(t=2))
    with pytest.raises(InvalidInput, match=r"noise must be \"auto\", \"evidence\" or a number"):
        model(noise="loo").fit(X, y)
    with pytest.raises(InvalidInput, match=r"amplitude must be a positive finite number"):
        model(amplitude=0).fit(X, y)
    with pytest.raises(InvalidInput, match=r"precision must be one of"):
        model(precision="half").fit(X, y)
    with pytest.raises(InvalidInput, match=r"the target y is None; name it with target="):
        model().fit_blocks(bo.Blocks.from_arrays(X))
    with pytest.raises(InvalidInput, match=r"at least one row must have a weight above zero"):
        model(method="orthogonal").fit_blocks(bo.Blocks.from_arrays(X, y, np.zeros(len(y))))
    monkeypatch.setattr("bochner.models.gaussian_process.regressor.MOST_ROWS", 10)
    with pytest.raises(InvalidInput, match=r"covariance is given for 10 rows at most; got 80"):
        ours.predict(X, return_cov=True)


def test_arrays_of_other_libraries_stay_in_them():
    X, y = table()
    ours = model(Matern(1.5, 1.0), method="orthogonal")
    mean, std = ours.fit(X, y).predict(X, return_std=True)
    there, target = xp.asarray(X), xp.asarray(y)
    moved = ours.fit(there, target).predict(there, return_std=True)
    assert_close(np.asarray(moved[0]), mean, factor=1e5)
    assert_close(np.asarray(moved[1]), std, factor=1e5)
    found = (*moved, *ours.predict_interval(there), ours.sample_functions(2, 0)(there))
    assert {type(a) for a in found} == {type(there)}
