"""Laws of sums, products and other combinations: maps, exact maps, free hyperparameters."""

import operator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
import tolerance
from gallery import absolute, rows, weight
from internals import with_peak
from scipy.optimize import minimize
from sklearn.base import clone
from tolerance import assert_close

import bochner as bo
from bochner import draw
from bochner.errors import InvalidType
from bochner.features import IID, QMC, Auto, Fourier, Method
from bochner.features.compose import Concatenate
from bochner.features.fourier.fourier import draw_stationary
from bochner.features.nystrom import NystromMap
from bochner.features.rules import RULES, Rule
from bochner.kernels import Columns, Exp, Free, Gaussian, Laplace, Linear, Matern, Periodic
from bochner.kernels.hyperparameters import TunedPositive, places_of, replace_values

PAIRS, PHASES = Fourier(IID()), Fourier(IID(), "phase")
MIXED = Gaussian(2.0) + 0.5 * Linear()
columnwise = lambda d: reduce(operator.add, (Columns(Laplace(4.0), (j,)) for j in range(d)))


@dataclass(frozen=True)
class Signed(Method):
    """A test method that serves only the Gaussian, by random phases."""


@pytest.fixture
def rule(monkeypatch):
    """Return a function that adds a method for the Gaussian to the table of rules."""

    def add(method, make_map):
        row = Rule(method, Gaussian, lambda _, kernel, ask: make_map(kernel, ask), "Gaussian()")
        monkeypatch.setattr("bochner.features.rules.RULES", (*RULES, row))

    return add


@pytest.fixture(autouse=True)
def signed(rule):
    rule(Signed, lambda kernel, request: draw_stationary(PHASES, kernel, request))


COMPOSITE = [
    2.0 * Gaussian(),
    Gaussian() + Linear() + 0.5,
    Gaussian() * Linear(),
    MIXED * MIXED,
    MIXED**3,
    Columns(Gaussian((1.0, 2.0)), (2, 0)),
    bo.kernels.Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 0.5])),
    bo.kernels.Modulated(weight, Gaussian()),
    bo.kernels.Normalised(MIXED),
    bo.kernels.Warped(absolute, Gaussian()),
    Columns(bo.kernels.Modulated(weight, 2.0 * Gaussian()) + 1.0, (1, 2)),
]
SEEDS = 100


def bias(kernel, maps):
    X = 0.7 * rows(5, seed=3)[:4]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], 300)


@pytest.mark.main_cases(3)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "method", "D"),
    [
        *((kernel, method, 60) for kernel in COMPOSITE for method in (Signed(), PAIRS)),
        *((k, PAIRS, 200) for k in (MIXED**3, MIXED * (Matern() + Linear()), 2.0 * MIXED * MIXED)),
    ],
    ids=repr,
)
def test_maps_of_composite_kernels_are_unbiased(kernel, method, D):
    """With 200 features products are expanded."""
    maps = [draw(kernel, method, n_features=D, X=rows(9), random_state=s) for s in range(SEEDS)]
    assert bias(kernel, maps) < 1
    assert max(phi.n_features for phi in maps) <= D
    assert D == 60 or "SketchedProduct" not in type(maps[0]).__name__


def test_composite_maps_state_their_bias_and_cost(monkeypatch):
    """Compressed and deep features are biased; multiples, products, sums, gradients are cheap."""
    X, draws = rows(60), dict(n_features=1024, random_state=0)
    compressed = draw(Gaussian(), bo.Compressed(PAIRS), **draws, X=X)
    assert (compressed.unbiased, compressed.truncation_error(X)) == (False, None)
    deep = [bo.NeuralTangentFeatures(), bo.kernels.NeuralTangent(1), bo.kernels.NeuralTangent(3)]
    assert [draw(kernel, deep[0], **draws, X=X).unbiased for kernel in deep[1:]] == [True, False]
    kernels = Gaussian(11.0), 2.0 * Gaussian(11.0)
    fast = [draw(k, Fourier(bo.Structured()), **draws, n_inputs=128) for k in kernels]
    assert fast[0].multiplications == fast[1].multiplications < 64 * 1024
    phi = draw(MIXED * MIXED, PAIRS, n_features=60, X=rows(9))  # its frequencies are no matrix
    assert phi.multiplications == phi.left.multiplications + phi.right.multiplications
    zonal = bo.kernels.Zonal(tuple(1 / np.arange(1.0, 402.0)))
    K, peak = with_peak(lambda: zonal(rows(500)))
    assert peak - K.nbytes < 30e6  # a matrix per degree would take 800 MB
    calls, evaluate = [], Gaussian.evaluate
    monkeypatch.setattr(Gaussian, "evaluate", lambda *a: calls.append(1) or evaluate(*a))
    reduce(operator.mul, map(Gaussian, range(1, 9))).pullback(X, X, np.ones((60, 60)))
    monkeypatch.setattr(Laplace, "evaluate", lambda *a: calls.append(1) or np.ones((60, 60)))
    assert len(Laplace((1.0, 2.0, 3.0)).vjp(X, X, lambda _: True)[1](np.ones((60, 60)))) == 3
    assert len(calls) == 8 + 1  # once per factor, and once for three lengthscales


def test_exact_kernels_need_no_method():
    kernel = bo.kernels.Normalised((Linear() + 2.0) ** 2) * bo.kernels.Constant(3.0)
    phi = draw(kernel, Signed(), n_features=40, n_inputs=3, random_state=0)
    assert (phi.n_features, phi.below_kernel) == (16, True)
    X = rows(20)
    assert_close(phi(X) @ phi(X).T, kernel(X))


def test_the_width_of_a_product_is_the_requested_one():
    kernel = (bo.kernels.Normalised(MIXED) * bo.kernels.Modulated(weight, Gaussian())) ** 3
    for width in (20, 64, 301):
        phi = draw(kernel, PAIRS, n_features=width, n_inputs=3, random_state=0)
        assert phi.n_features == width
        assert np.isfinite(phi(rows(5))).all()


@pytest.mark.parametrize("power", [2, 3, 4])
def test_powers_of_sums_are_expanded_to_binomial_terms(power):
    kernel = (Gaussian(2.0) + 0.5 * Linear()) ** power
    phi = draw(kernel, PAIRS, n_features=400, n_inputs=3, random_state=0)
    assert len(phi.parts) == power + 1
    X = rows(6)
    assert_close(sum(part.kernel(X) for part in phi.parts), kernel(X), factor=4)
    assert phi.n_features <= 400


def test_products_and_powers_of_maps_below_their_kernels_are_below(rule):
    rule(Signed, lambda k, a: draw(k, "nystrom", n_features=a.n_features, X=a.X, random_state=0))
    X = rows(60)
    for kernel in (
        (Gaussian(2.0) + Linear()) * (Gaussian(3.0) + 1.0),
        (Gaussian(2.0) + Linear()) ** 2,
        Exp(Gaussian(2.0)),
        Exp(0.1 * (Gaussian(1.0) + Gaussian(3.0))),
    ):
        phi = draw(kernel, Signed(), n_features=300, X=X, random_state=0)
        Z, K = phi(X), kernel(X)
        assert phi.below_kernel
        assert phi.n_features <= 300
        assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -1e-9 * K.max()
        assert np.linalg.norm(K - Z @ Z.T) < 0.1 * np.linalg.norm(K)


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_exponentials_are_series_with_exact_low_degrees(scale):
    X, kernel = rows(40), Exp(scale * Linear())
    phi = draw(kernel, Signed(), n_features=400, X=X, random_state=0)
    assert isinstance(phi, Concatenate)
    assert [part.n_features for part in phi.parts[:3]] == [1, 3, 9]
    K, Z = kernel(X), phi(X)
    assert np.linalg.norm(K - Z @ Z.T) < 0.1 / 400**0.5 * np.linalg.norm(K) * 3


@pytest.mark.statistical
def test_exponentials_of_stationary_kernels_have_unbiased_fourier_features():
    for kernel in (Exp(Gaussian()), Exp(2.0 * Matern(1.5) + Periodic(3.0)), Exp(Exp(Gaussian()))):
        maps = [
            draw(kernel, PAIRS, n_features=64, n_inputs=3, random_state=s) for s in range(SEEDS)
        ]
        assert {type(phi).__name__ for phi in maps} == {"FourierMap"}
        assert bias(kernel, maps) < 1


def test_a_normalised_kernel_is_zero_for_rows_of_zeros():
    X = rows(6)
    X[2] = 0
    kernel = bo.kernels.Normalised(Linear())
    Z = draw(kernel, Signed(), n_features=9, n_inputs=3)(X)
    assert (Z[2] == 0).all()
    assert kernel.diag(X).tolist() == [1, 1, 0, 1, 1, 1]
    assert_close(Z @ Z.T, kernel(X))


@pytest.mark.parametrize(
    "kernel", [bo.kernels.Modulated(weight, Gaussian()), bo.kernels.Warped(absolute, Gaussian())]
)
def test_saving_a_kernel_with_a_function_raises(kernel, tmp_path):
    phi = draw(kernel, "iid", n_features=16, n_inputs=3, random_state=0)
    with pytest.raises(InvalidType, match=r"file cannot hold a function.*(weight|absolute)"):
        bo.save(phi, tmp_path / "map")


@pytest.mark.parametrize("weight", [1e-9, 0.01, 100.0, 1e9])
@pytest.mark.parametrize("wide", [6, 64])
def test_each_term_of_a_sum_gets_features(weight, wide):
    kernel = weight * columnwise(2) + Gaussian((2.0, 3.0))
    phi = draw(kernel, Fourier(QMC()), n_features=wide, X=rows(60)[:, :2], random_state=0)
    assert phi.n_features == wide
    assert min(part.n_features for part in phi.parts) >= 2


def test_auto_uses_landmarks_for_kernels_of_more_terms_than_features():
    X = np.random.default_rng(0).normal(size=(600, 80))
    phi = draw(columnwise(80), Auto(), n_features=64, X=X, random_state=0)
    assert (type(phi), phi.n_features) == (NystromMap, 64)


SEASON = Gaussian("auto") + Periodic(1.0, "auto") * Gaussian("auto")


def series(n=120, seed=0, period=1.0):
    """Return rows and targets: a trend and a season, with noise of deviation 0.1."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 8, (n, 1)), axis=0)
    f = 0.3 * X[:, 0] + np.sin(2 * np.pi * X[:, 0] / period)
    return X, f + 0.1 * rng.standard_normal(n)


@dataclass(frozen=True)
class Rational(bo.kernels.Radial):
    """(1 + r²)^(−shape), a user kernel with a hyperparameter."""

    shape: TunedPositive = 1.0
    lengthscale: TunedPositive = 1.0

    mixing = None

    def profile(self, s):
        return (1 + s) ** -self.shape


@dataclass(frozen=True)
class Powers(bo.kernels.algebra.Transformed):
    """A kernel of |x|^power, another user kernel."""

    kernel: bo.kernels.kernel.Part
    power: TunedPositive = 1.0

    def inputs(self, X):
        return np.abs(X) ** self.power


@dataclass(frozen=True)
class PlusConstant(bo.kernels.kernel.Combined):
    kernel: bo.kernels.kernel.Part
    lift: TunedPositive = 1.0
    combine = lambda self, part: part() + self.lift**2
    backward = lambda self, C, K, part: (C,)


TRACED = [
    2.0 * Rational(0.7, 2.0) + Powers(Laplace((0.5, 1.0)), 1.3),
    Laplace((0.5, 1.0)) + bo.kernels.Cauchy((0.7, 2.0)),
    bo.kernels.Cauchy(0.8) * Laplace(1.5),
    2.0 * Gaussian((1.0, 2.0)) * Periodic(1.3, 0.7),
    PlusConstant(Periodic((1.3, 2.0), (0.7, 1.1)), 0.5),
    Exp(0.1 * bo.kernels.RationalQuadratic(0.7, 1.2)),
    (Matern(1.2, 0.8) + 0.4 * bo.kernels.Exponential((0.7, 2.0))) ** 2,
    Columns(Periodic(2.0, 1.0) * Laplace(1.0), (1,)) + Matern(2.5),
    bo.kernels.Polynomial(2, 1.0, 0.5) * bo.kernels.DotExponential(0.3)
    + bo.kernels.ExponentialPower(1.3, 0.9),
    bo.kernels.Mahalanobis(Gaussian(1.5), ((1.0, 0.2), (0.2, 0.5))) * bo.kernels.Constant(0.3),
    bo.kernels.SpectralMixture((2.0, 1.0), (0.7, (1.0, 2.0)), ((0.5, 1.0), 0.3)) * 1.5,
]


@pytest.mark.parametrize("kernel", TRACED, ids=range(len(TRACED)))
def test_derivatives_in_all_hyperparameters_equal_differences(kernel):
    rng = np.random.default_rng(0)
    X, C = rng.standard_normal((15, 2)), rng.standard_normal((15, 15))
    K, back = kernel.vjp(X, X, lambda _: True)
    assert_close(K(), kernel(X))
    slopes, step = back(C), 1e-5
    assert set(slopes) == set(places_of(kernel)) != set()
    for place, slope in slopes.items():
        value = place.get(kernel)
        high, low = (
            replace_values(kernel, {place: value * np.exp(h)})(X).ravel() for h in (step, -step)
        )
        expected = C.ravel() @ (high - low) / (2 * step)
        assert abs(slope - expected) < 1e-6 * (1 + abs(expected)), place


def test_a_fit_recovers_the_frequencies_of_a_spectral_mixture():
    """The target has two waves; the fitted kernel also has the larger evidence."""
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(0, 10, (60, 1)), 0.1 * rng.standard_normal(60)
    y = np.sin(3.0 * X[:, 0]) + 0.5 * np.cos(7.0 * X[:, 0]) + noise
    start = bo.kernels.SpectralMixture(("auto",) * 2, (Free(), "auto"), (Free(start=0.3), "auto"))
    guess = bo.kernels.SpectralMixture((1.0, 1.0), (2.8, 7.3), (0.3, 0.3))
    fits = [bo.GaussianProcessRegressor(k, random_state=0).fit(X, y) for k in (start, guess)]
    assert np.allclose(sorted(fits[0].kernel_.means), (3.0, 7.0), atol=0.1)
    value = lambda f: log_evidence(f.amplitude_ * f.kernel_(X), y - y.mean(), f.noise_variance_)
    assert value(fits[0]) > value(fits[1]) + 5


def log_evidence(K, y, noise):
    """Return the evidence of a process without mean (Rasmussen and Williams, 2.30)."""
    A = K + noise * np.eye(len(y))
    return -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2 * np.pi * A)[1])


def test_the_evidence_equals_that_of_a_search_by_values():
    X, y = series(60)
    model = bo.GaussianProcessRegressor(
        SEASON, method="nystrom", n_features=60, fit_intercept=False, random_state=0
    ).fit(X, y)

    def value(logs):
        long, trend, smooth, slow, wave, noise = np.exp(logs)
        kernel = long * Gaussian(trend) + wave * Periodic(1.0, smooth) * Gaussian(slow)
        return -log_evidence(kernel(X), y, noise)

    # The start is the truth: a long trend, a wave of period one, a noise variance of 0.01.
    start = np.log([4.0, 10.0, 1.0, 20.0, 1.0, 0.01])
    brute = minimize(value, start, method="Nelder-Mead", options={"maxfev": 4000, "maxiter": 4000})
    gap = -brute.fun - model.log_marginal_likelihood_value_
    assert gap < 1.0, gap  # the penalty of one parameter in Akaike's criterion
    assert model.kernel_.right.kernel.left.period == 1.0


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("period", [0.37, 1.0, 2.6])
def test_a_fit_recovers_a_free_period(period):
    X, y = series(150, period=period)
    kernel = Gaussian("auto") + Periodic("auto", "auto")
    kernel_ = bo.GaussianProcessRegressor(kernel, n_features=150, random_state=0).fit(X, y).kernel_
    assert abs(kernel_.right.kernel.period / period - 1) < 0.01


def test_given_hyperparameters_stay_and_free_ones_are_fitted():
    X, y = series(100)
    long = Gaussian(Free(50.0, low=20.0, high=60.0))
    kernel = 0.25 * Gaussian(3.0) + Periodic(1.0, "auto") * long
    fitted = bo.KernelRidge(kernel, random_state=0).fit(X, y).kernel_
    assert fitted.left == kernel.left
    assert fitted.right.kernel.left.period == 1.0
    assert 20.0 <= fitted.right.kernel.right.lengthscale <= 60.0


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("kind", ["tune", "evidence"])
def test_tune_and_evidence_fit_all_hyperparameters_if_none_is_free(kind):
    X, y = series(100)
    kernel = 4.0 * Gaussian(9.0) + Periodic(1.1) * Matern(2.5, 30.0)
    if kind == "tune":
        tuning = bo.tune(bo.KernelRidge(kernel, random_state=0), X, y)
        fitted = tuning.estimator.fit(X, y).kernel_
        assert fitted == tuning.kernel
        assert tuning.criterion == "loo"
    else:
        model = bo.GaussianProcessRegressor(kernel, lengthscale="evidence", random_state=0)
        fitted = model.fit(X, y).kernel_
    assert abs(fitted.right.kernel.left.period - 1.0) < 0.02
    assert fitted.right.kernel.right.smoothness == 2.5  # the family does not change
    assert abs(fitted.left.scale + fitted.right.scale - 1) < 1e-3


LEARNERS = {
    "ridge": bo.KernelRidge(SEASON, random_state=0),
    "features": bo.KernelRidge(SEASON, method="nystrom", n_features=50, random_state=0),
    "process": bo.GaussianProcessRegressor(
        SEASON, lengthscale="loo", n_features=50, random_state=0
    ),
    "descent": bo.KernelSGDRegressor(SEASON, random_state=0),
}


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_with_targets_fit_free_hyperparameters(name):
    X, y = series(90)
    model = clone(LEARNERS[name]).fit(X, y)
    assert not any(isinstance(p.get(model.kernel_), Free) for p in places_of(model.kernel_))
    assert model.kernel_.right.kernel.left.period == 1.0
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9


def test_few_rows_or_a_constant_target_keep_the_start_values():
    X, y = series(5)
    kernel = Gaussian(Free(2.0)) + Periodic(1.0, "auto")
    plain = bo.kernels.Scaled(1.0, Gaussian(2.0)) + bo.kernels.Scaled(1.0, Periodic(1.0, 1.0))
    assert bo.KernelRidge(kernel, random_state=0).fit(X, y).kernel_ == plain
    X, _ = series(40)
    assert bo.KernelRidge(kernel, random_state=0).fit(X, np.ones(40)).kernel_ == plain


def test_a_kernel_without_fields_can_be_combined():
    class Brown(bo.kernels.Kernel):  # no dataclass
        def evaluate(self, X, Y):
            return np.minimum(X, Y.T)

        def diagonal(self, X):
            return X[:, 0]

    X, y = series(20)
    K, B = np.minimum(X, X.T), Brown()
    for kernel, values in [(B + Linear(), K + X @ X.T), (2.0 * B, 2 * K), (B * B, K * K)]:
        assert_close(kernel(X), values)
    assert (2.0 * B).get_params() == {"scale": 2.0, "kernel": B}
    assert bo.KernelRidge(B + Linear(), alpha=1e-3, random_state=0).fit(X, y).score(X, y) > 0.5
