"""Fourier features by ridge leverage: unbiased, nearer at small penalties, within their bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import tolerance
from scipy.stats import chi, kstest, kstwo

import bochner as bo
from bochner.certificates import LeverageSpectral, Spectral, draw_leverages, eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import (
    LeverageFourierMap,
    Request,
    as_method,
    draw_map,
    half_widths,
    leverages,
    modified_density,
    stream,
)
from bochner.kernels import Constant, Exponential, Gaussian, Laplace, Linear, Matern

SEEDS = range(100)


def cube(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


def drawn(kernel, method, X, D=64, seed=0):
    return bo.draw(kernel, method, n_features=D, X=X, random_state=seed)


# ---- unbiased, on rows that no map was drawn from


CASES = [
    (Gaussian(0.3), bo.LeverageFourier(), 1),
    (Gaussian((0.7, 0.4)), bo.LeverageFourier(1e-6), 2),
    (Gaussian(1.0), bo.LeverageFourier(1e-2, "modified"), 4),
    (Gaussian(1.0), bo.LeverageFourier(0.3, "modified"), 20),
    (Gaussian(0.5), bo.LeverageFourier(density="empirical"), 2),
    (Matern(1.5, 0.5), bo.LeverageFourier(), 2),
    (Laplace(1.0), bo.LeverageFourier(), 2),
    (Exponential(2.0), bo.LeverageFourier(1e-3), 5),
    (2.0 * Gaussian(0.5) + Linear() + 1.0, bo.LeverageFourier(), 2),
    (Gaussian(1.0) * Matern(2.5, 1.0), bo.LeverageFourier(), 2),
]
NAMES = [f"{kernel}-{method}-{d}" for kernel, method, d in CASES]


def maps(kernel, method, d):
    return [drawn(kernel, method, cube(60, d), seed=seed) for seed in SEEDS]


def bias(kernel, found, d):
    X = 0.8 * cube(4, d, seed=1)
    return tolerance.bias(kernel(X), [phi(X) for phi in found], 10 * len(CASES))


@pytest.mark.statistical
@pytest.mark.parametrize(("kernel", "method", "d"), CASES, ids=NAMES)
def test_features_are_unbiased_and_say_so(kernel, method, d):
    found = maps(kernel, method, d)
    assert all(phi.unbiased and not phi.below_kernel for phi in found)
    assert bias(kernel, found, d) < 1


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case", [CASES[0], CASES[4], CASES[5]], ids=lambda c: NAMES[CASES.index(c)]
)
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_planted_weights_are_seen(case, power):
    """No weights, and their roots."""
    kernel, method, d = case
    found = maps(kernel, method, d)
    assert all(type(phi) is LeverageFourierMap for phi in found)
    faults = [replace(p, weights=(32 * p.weights) ** power / 32) for p in found]
    assert bias(kernel, found, d) < 1 < bias(kernel, faults, d)


# ---- the modified density: bounds by hand, its draws, its mass


DENSITIES = [((12.0,), 1e6), ((1.0,), 1e2), ((3.0, 1.0), 1e4), ((2.0, 2.0, 0.5), 1e5)]


def gaussian(w):
    return math.exp(-0.5 * (w @ w) - 0.5 * len(w) * math.log(2 * math.pi))


def bound_by_hand(w, half, n_lambda):
    """The least of Π (R_k + t√((1 + ω_k²)/2))/π + n_λ p d² e^(−t²) over t, and n_λ p."""
    p, found = n_lambda * gaussian(w), [n_lambda * gaussian(w)]
    for t in np.linspace(0, 8, 400):
        box = np.prod(
            [(R + t * math.sqrt((1 + c * c) / 2)) / math.pi for R, c in zip(half, w, strict=True)]
        )
        found.append(box + p * len(w) ** 2 * math.exp(-t * t))
    return min(found)


@pytest.mark.parametrize(("half", "n_lambda"), DENSITIES)
def test_the_density_is_above_the_bound_and_near_it(half, n_lambda):
    density = modified_density(np.array(half), n_lambda)
    W, ratios = density.draw(400, np.random.default_rng(0))
    q = [gaussian(w) / ratio for w, ratio in zip(W, ratios, strict=True)]
    least = [bound_by_hand(w, half, n_lambda) / density.mass for w in W]
    share = np.array(q) / np.array(least)
    assert share.min() > 0.97  # by hand t has finer steps on a longer way, here shells have edges
    assert np.median(share) < (1.1 if len(half) == 1 else 4.0)


def largest_by_hand(half, n_lambda, below, above):
    """The least over t of a bound of p τ on below ≤ |ω| ≤ above: its box there, p at the start.

    Of a box no product Π (R_k + t√((1 + ω_k²)/2)) with |ω| ≤ r is above that of equal parts (of
    the mean of R_k, all ω_k² = r²/d), or that of all ω_k² = r².
    """
    d, found = len(half), []
    p = n_lambda * math.exp(-0.5 * below**2) / (2 * math.pi) ** (d / 2)
    for t in np.linspace(0, math.sqrt(max(math.log(n_lambda), 0) + 2 * math.log(d) + 4), 129)[1:]:
        even = (sum(half) / d + t * math.sqrt((1 + above**2 / d) / 2)) ** d
        each = math.prod(R + t * math.sqrt((1 + above**2) / 2) for R in half)
        found.append(min(even, each) / math.pi**d + p * d * d * math.exp(-t * t))
    return min(*found, p)


@pytest.mark.parametrize(
    ("half", "n_lambda"), [*DENSITIES, ((9.0, 0.01), 1e4), ((1.0,) * 15, 1e9), ((0.1,), 0.3)]
)
def test_levels_are_the_bounds_of_their_shells(half, n_lambda):
    """512 shells to √(2 log n_λ + 8), as many as have a bound below n_λ p at their end."""
    density = modified_density(np.array(half), n_lambda)
    edges = np.linspace(0, math.sqrt(max(2 * math.log(n_lambda), 0) + 8), 513)
    kept = len(density.log_levels)
    np.testing.assert_allclose(density.radii, edges[: kept + 1], rtol=1e-12)
    levels = [largest_by_hand(half, n_lambda, *edges[i : i + 2]) for i in range(512)]
    np.testing.assert_allclose(np.exp(density.log_levels), levels[:kept], rtol=1e-9)
    p = n_lambda * np.exp(-0.5 * edges[1:] ** 2) / (2 * math.pi) ** (len(half) / 2)
    below = np.flatnonzero(np.array(levels) < p)
    assert kept == (below[-1] + 1 if len(below) else 0)


def test_of_sixteen_columns_on_the_density_is_that_of_the_kernel():
    many, fewer = (modified_density(np.full(d, 0.01), 1e9) for d in (16, 15))
    assert len(many.log_levels) == 0
    assert len(fewer.log_levels) > 0
    W, ratios = many.draw(100, np.random.default_rng(0))
    np.testing.assert_allclose(ratios, 1.0, rtol=1e-12)
    assert many.mass == pytest.approx(1e9, rel=1e-12)


@pytest.mark.parametrize(("half", "n_lambda"), DENSITIES)
def test_draws_weigh_p_over_q_and_shells_hold_their_mass(half, n_lambda):
    """Of 20,000 draws a share s is off by √(s/20,000); five of them, for some 12 shares."""
    density, d = modified_density(np.array(half), n_lambda), len(half)
    W, ratios = density.draw(20_000, np.random.default_rng(2))
    r = np.linalg.norm(W, axis=1)
    shell = np.searchsorted(density.radii, r, side="right") - 1
    inside = shell < len(density.log_levels)
    p = np.exp(-0.5 * r * r) / (2 * math.pi) ** (d / 2)
    bound = n_lambda * p
    bound[inside] = np.exp(density.log_levels[shell[inside]])
    np.testing.assert_allclose(ratios, p * density.mass / bound, rtol=1e-9)
    volume = math.pi ** (d / 2) / math.gamma(d / 2 + 1) * np.diff(density.radii**d)
    masses = np.exp(density.log_levels) * volume
    beyond = n_lambda * chi(d).sf(density.radii[-1])
    assert density.mass == pytest.approx(masses.sum() + beyond, rel=1e-9)
    for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 1.0)):
        some = slice(int(low * len(masses)), int(high * len(masses)))
        share = masses[some].sum() / density.mass
        found = ((shell >= some.start) & (shell < some.stop)).mean()
        assert abs(found - share) <= 5 * math.sqrt(share / 20_000) + 1e-12
    middle = (r[inside] ** d - density.radii[shell[inside]] ** d) / np.diff(density.radii**d)[
        shell[inside]
    ]
    assert abs(middle.mean() - 0.5) < 5 / math.sqrt(12 * len(middle))


@pytest.mark.parametrize(("half", "n_lambda"), DENSITIES[:2])
def test_the_mass_is_the_integral_of_the_bound(half, n_lambda):
    w = np.linspace(-10, 10, 2001)
    whole = np.trapezoid([bound_by_hand(np.array([c]), half, n_lambda) for c in w], w)
    assert modified_density(np.array(half), n_lambda).mass == pytest.approx(whole, rel=0.005)


@pytest.mark.statistical
@pytest.mark.parametrize(("half", "n_lambda"), DENSITIES)
def test_draws_have_the_density_that_their_weights_say(half, n_lambda):
    """Draws of q weighted by p/q have lengths of a Gaussian vector: Kolmogorov's distance.

    Weights are at most c: a draw that is kept with chance (p/q)/c is one of p, and as many are kept
    as m/c, within a tenth; their distance is that of independent draws of p.
    """
    d, rng = len(half), np.random.default_rng(1)
    W, ratios = modified_density(np.array(half), n_lambda).draw(20_000, rng)
    r = np.linalg.norm(W, axis=1)
    kept = r[rng.random(len(r)) * ratios.max() < ratios]
    assert len(kept) == pytest.approx(20_000 / ratios.max(), rel=0.1)

    def off(lengths):
        return kstest(lengths, chi(d).cdf).statistic / kstwo(len(lengths)).isf(tolerance.ALARM)

    assert off(kept) < 1 < off(r)


# ---- leverage


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.7), 2.0 * Gaussian(0.5)], ids=repr)
def test_leverages_are_quadratic_forms_of_waves(kernel):
    X, W = cube(40, 2), np.random.default_rng(2).standard_normal((5000, 2)) * 3
    K = kernel(X)
    Z = np.exp(1j * X @ W.T)
    by_hand = (Z.conj() * np.linalg.solve(K + 1e-3 * np.trace(K) * np.eye(40), Z)).sum(axis=0)
    found = leverages(kernel, X, W, 1e-3)
    np.testing.assert_allclose(found, by_hand.real, rtol=1e-9)  # of condition 40/1e-3
    np.testing.assert_allclose(leverages(kernel, scipy.sparse.csr_array(X), W, 1e-3), found)


@pytest.mark.parametrize(("d", "lengthscale", "most"), [(1, 0.05, 1.5), (2, 0.3, 4), (3, 0.7, 12)])
def test_no_draw_has_more_leverage_than_the_mass(d, lengthscale, most):
    kernel, X, alpha = Gaussian(lengthscale), cube(300, d), 0.03
    bound, found = LeverageSpectral.of(kernel, X, alpha=alpha), eigen(kernel, X, "test")
    phi = drawn(kernel, bound.method, X, D=2000)
    tau = draw_leverages(phi(X), found, alpha, 2)
    d_lambda = float(np.sum(found.values / (found.values + alpha)))
    assert tau.max() <= bound.mass <= most * d_lambda
    assert bound.mass < 0.1 * Spectral.of(kernel, X, alpha=alpha).leverage
    assert tau.mean() == pytest.approx(d_lambda, rel=6 * tau.std() / d_lambda / len(tau) ** 0.5)


def test_a_density_of_half_the_box_is_no_bound():
    kernel, X, alpha = Gaussian(0.05), cube(300, 1), 0.03
    found = eigen(kernel, X, "test")
    half = modified_density(half_widths(X) / 0.05 / 2, 300 / alpha)
    W, ratios = half.draw(1000, np.random.default_rng(0))
    tau = ratios * leverages(kernel, X, W / 0.05, alpha / 300)
    assert tau.max() > half.mass
    assert half.mass < np.sum(found.values / (found.values + alpha))


def distance(kernel, X, method, alpha, seed, D=512):
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    Z = drawn(kernel, method, X, D=D, seed=seed)(X)
    white = V / np.sqrt(np.maximum(values, 0) + alpha)
    return np.abs(np.linalg.eigvalsh(white.T @ (Z @ Z.T - K) @ white)).max()


@pytest.mark.parametrize(
    ("kernel", "d"), [(Gaussian(0.1), 1), (Gaussian(0.35), 2), (Gaussian(0.8), 3), (Matern(1.5), 2)]
)
def test_the_spectral_distance_is_far_below_that_of_independent_frequencies(kernel, d):
    X, alpha = cube(200, d), 1e-4 * 200
    methods = (bo.LeverageFourier(), bo.Fourier(bo.IID()))
    found = [[distance(kernel, X, m, alpha, seed) for seed in range(7)] for m in methods]
    weighted, plain = map(np.median, found)
    assert 1.5 * weighted < plain


def test_draws_stay_below_the_promised_distance():
    """Thirty draws, of which more than seven above a 95 % bound have a chance below 1e-3."""
    kernel, X, alpha, D = Gaussian(0.5), cube(100, 2), 0.7, 256
    bound = LeverageSpectral.of(kernel, X, alpha=alpha)
    found = [distance(kernel, X, bound.method, alpha, seed, D) for seed in range(30)]
    promised = bound.error(D)
    assert sum(e > promised for e in found) <= 7
    assert sum(e > 0.05 * promised for e in found) > 7  # a twentieth of it would be seen
    assert bound.width(promised) in (D - 2, D, D + 2)


def test_the_bound_is_spectral_at_its_mass_and_knows_multiples_and_sampled_rows():
    X = cube(100, 2)
    bound = LeverageSpectral.of(3.0 * Gaussian(0.5), X, alpha=0.6)
    assert bound == LeverageSpectral.of(Gaussian(0.5), X, alpha=0.2)
    assert bound.penalty == pytest.approx(0.6 / 300)
    assert bound.width(0.5) == Spectral(bound.mass, bound.mass).width(0.5)
    many = LeverageSpectral.of(Gaussian(0.5), X, alpha=20.0, n_rows=10_000)
    assert (many.mass, many.n_rows) == (bound.mass, 10_000)


# ---- what is refused, and what maps do


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: bo.LeverageFourier(0.0), InvalidInput, "LeverageFourier: penalty must be"),
        (lambda: bo.LeverageFourier(density="p"), InvalidInput, "density must be one of 'auto'"),
        (
            lambda: bo.draw(Gaussian(), bo.LeverageFourier(), n_features=8, n_inputs=2),
            InvalidInput,
            "LeverageFourier takes the extents of columns, and rows to measure leverage on",
        ),
        (
            lambda: drawn(Gaussian(), bo.LeverageFourier(), cube(9, 2), D=7),
            InvalidInput,
            "LeverageFourier requires an even number of features, .* got 7. Ask for one more",
        ),
        (
            lambda: drawn(Matern(1.5), bo.LeverageFourier(density="modified"), cube(9, 2)),
            UnsupportedKernel,
            r'LeverageFourier\(density="modified"\) requires a Gaussian kernel; got Matern',
        ),
        (
            lambda: draw_map(
                bo.LeverageFourier(), bo.kernels.Polynomial(2), Request(30, 8, 0, X=cube(9, 30))
            ),
            UnsupportedKernel,
            "LeverageFourier requires a kernel of x − y, or sums and products of such",
        ),
        (
            lambda: LeverageSpectral.of(Matern(1.5), cube(9, 2), alpha=1.0),
            UnsupportedKernel,
            "LeverageSpectral requires a Gaussian kernel; got Matern.* Spectral.of has the",
        ),
        (
            lambda: LeverageSpectral.of(Gaussian(), cube(9, 2), alpha=1.0, n_rows=3),
            InvalidInput,
            "LeverageSpectral: n_rows must be an integer, 9 or above; got 3",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


def test_names_plans_comparisons_and_files_know_the_method(tmp_path):
    X = cube(200, 2)
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    assert as_method("leverage") == bo.LeverageFourier()
    model = bo.KernelRidge(Gaussian(0.5), method="leverage", n_features=64, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.99
    bo.save(model, tmp_path / "model.bochner")
    np.testing.assert_array_equal(bo.load(tmp_path / "model.bochner").predict(X), model.predict(X))
    bounds = bo.compare_bounds(Gaussian(0.5), X, alpha=1.0, n_features=64, random_state=0)
    assert "leverage weighted" in str(bounds)
    assert "LeverageFourier()" in str(bo.compare(Gaussian(0.5), X, n_features=64, random_state=0))


def test_a_plan_says_what_the_bound_asks_for():
    X = cube(300, 2)
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * stream(0, "noise").standard_normal(300)
    found = bo.plan(
        X, y, Gaussian(0.5), n_rows=1200, methods=["leverage"], widths=[32], random_state=0
    )
    bound = found.fits[0].bound
    assert bound.n_rows == 1200
    words = (
        "LeverageFourier(), by leverage: within ε = 0.5 of the kernel, with 95 % chance, for any "
        f"1,200 rows of their box: D = {bound.width(0.5):,} with penalty={bound.penalty:.2g}."
    )
    assert words in str(found)
    theorem = {"epsilon": 0.5, "n_features": bound.width(0.5), "penalty": bound.penalty}
    assert found.facts()["fits"][0]["theorem"] == theorem
    other = bo.plan(X, y, Matern(1.5), methods=["leverage"], widths=[32], random_state=0)
    assert other.fits[0].bound is None


def test_constant_columns_and_one_row_are_served():
    X = np.column_stack([cube(30, 1), np.ones(30)])
    for rows in (X, X[:1]):
        phi = drawn(Gaussian(0.5), bo.LeverageFourier(), rows)
        assert np.isfinite(phi(X)).all()
    assert drawn(Gaussian(0.5) + Constant(2.0), bo.LeverageFourier(), X).n_features <= 64
