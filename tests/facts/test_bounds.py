"""A-priori bounds: their constants by a second route, both ways, what they refuse, the table."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import gammainc, gammaincc, gammaln
from scipy.stats import poisson

import bochner as bo
from bochner import compare_bounds
from bochner.certificates import (
    BallSpectral,
    Bernstein,
    DirectionsNorm,
    Hoeffding,
    OperatorNorm,
    ProjectionCost,
    RahimiRecht,
    SketchNorm,
    Spectral,
    TreeNorm,
    ZonalSpectral,
    covering_constant,
    direction_leverage,
)
from bochner.certificates.bounds.zonal import Cut
from bochner.certificates.pointwise import draw_leverages, eigen
from bochner.errors import InvalidInput, InvalidType, NotPositive, UnsupportedKernel
from bochner.features.method import Request, stream
from bochner.features.rules import draw_map
from bochner.kernels import (
    Angular,
    ArcCosine,
    Cauchy,
    Columns,
    Custom,
    DotExponential,
    DotProduct,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    NeuralTangent,
    Polynomial,
)
from bochner.kernels.radial import radial_kernels


def sphere(n=200, d=3, radius=1.5):
    X = np.random.default_rng(0).standard_normal((n, d))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


# ---- reference values


@pytest.mark.parametrize(
    ("d", "form", "value"),
    [
        (2, "pair", 22.627416997969520780827019587355),
        (9, "pair", 54.756090028531383972625583438489),
        (1, "phase", 27.712812921102036696439141464094),
        (9, "phase", 90.225407207965713313907891404977),
    ],
)
def test_covering_constants_have_their_reference_values(d, form, value):
    assert covering_constant(d, form) == pytest.approx(value, rel=1e-14)


# ---- at an error and a width, written out once more without the code's pieces


def hoeffding(b, e, D):
    return 2 * b.n_pairs * mpmath.exp(-D * e**2 / (4 if b.form == "pair" else 8))


def bernstein(b, e, D):
    m, reach = (D / mpmath.mpf(2), 2) if b.form == "pair" else (D, 3)
    return 2 * b.n_pairs * mpmath.exp(-m * e**2 / (2 * (b.variance + reach * e / 3)))


def rahimi_recht(b, e, D):
    d, reach = mpmath.mpf(b.n_columns), 2 * b.spread * b.diameter / e
    if b.form == "pair":
        beta = ((d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2))) * 2 ** ((6 * d + 2) / (d + 2))
        return beta * reach ** (2 * d / (d + 2)) * mpmath.exp(-D * e**2 / (8 * (d + 2)))
    beta = (d ** (-d / (d + 1)) + d ** (1 / (d + 1))) * 2 ** ((5 * d + 1) / (d + 1))
    beta *= 3 ** (d / (d + 1))
    return beta * reach ** (2 * d / (d + 1)) * mpmath.exp(-D * e**2 / (32 * (d + 1)))


def operator_norm(b, e, D):
    m, L = (D / mpmath.mpf(2), 1) if b.form == "pair" else (D, 2)
    size = b.intrinsic_dimension
    return 8 * size * mpmath.exp(-m * e**2 / (2 * size * L * (1 + 2 * e / 3)))


def spectral(b, e, D):
    m = mpmath.mpf(D) / b.features_per_draw
    return 16 * b.effective_dimension * mpmath.exp(-m * e**2 / (2 * b.leverage * (1 + 2 * e / 3)))


def directions_norm(b, e, D):
    size, m = b.intrinsic_dimension, D - b.n_exact
    return 8 * size * mpmath.exp(-m * e**2 / (2 * size * b.size * (1 + 2 * e / 3)))


def sketch_norm(b, e, D):
    return (2 + mpmath.mpf(3) ** b.degree) * b.intrinsic_dimension**2 / (D * e**2)


def rahimi_recht_2007(b, e, D):
    """Claim 1, as printed: 2⁸ (σ diam/ε)² exp(−Dε²/(4(d + 2)))."""
    m = D / mpmath.mpf(2) if b.form == "pair" else D
    reach = b.spread * b.diameter / e
    return 256 * reach**2 * mpmath.exp(-m * e**2 / (4 * (b.n_columns + 2)))


PRINTED = [
    (Hoeffding(1000), hoeffding),
    (Hoeffding(1000, "phase"), hoeffding),
    (Bernstein(500, 0.5), bernstein),
    (Bernstein(500, 1.2, "phase"), bernstein),
    (RahimiRecht(2.0, 3.0, 4), rahimi_recht),
    (RahimiRecht(2.0, 3.0, 4, "phase"), rahimi_recht),
    (OperatorNorm(7.0), operator_norm),
    (OperatorNorm(7.0, "phase"), operator_norm),
    (Spectral(100.0, 20.0), spectral),
    (Spectral(40.0, 20.0, 3), spectral),
    (DirectionsNorm(7.0, 1.5), directions_norm),
    (DirectionsNorm(3.0, 0.5, 4), directions_norm),
    (SketchNorm(1.5, 3), sketch_norm),
    (RahimiRecht(2.0, 3.0, 4, "pair", 1.0, True), rahimi_recht_2007),
    (RahimiRecht(2.0, 3.0, 4, "phase", 1.0, True), rahimi_recht_2007),
]


def per_draw(bound):
    form = getattr(bound, "form", None)
    drawn = getattr(bound, "features_per_draw", 1)
    return drawn if form is None else {"pair": 2, "phase": 1}[form]


@pytest.mark.parametrize(
    ("bound", "chance"), PRINTED, ids=lambda v: getattr(v, "__name__", None) or repr(v)[:30]
)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_error_at_a_width_solves_the_printed_inequality(bound, chance, confidence):
    D = 60 * per_draw(bound)
    error = bound.error(D, confidence)
    assert chance(bound, mpmath.mpf(error), D) == pytest.approx(1 - confidence, rel=1e-8)


@pytest.mark.parametrize(
    ("bound", "chance"), PRINTED, ids=lambda v: getattr(v, "__name__", None) or repr(v)[:30]
)
def test_the_width_for_an_error_is_the_least_that_satisfies_the_printed_inequality(bound, chance):
    width, e = bound.width(0.3), mpmath.mpf("0.3")
    assert width % per_draw(bound) == 0
    assert chance(bound, e, width) <= 0.05 < chance(bound, e, width - per_draw(bound))


@pytest.mark.parametrize(
    "bound",
    [
        *(b for b, _ in PRINTED),
        ProjectionCost(Spectral(50.0, 10.0), 8.0),
        ZonalSpectral((Cut(3, 2, 0.1, 60.0), Cut(6, 4, 0.001, 90.0)), 20.0),
    ],
    ids=lambda b: repr(b)[:30],
)
def test_width_and_error_undo_each_other_and_fall_together(bound):
    for width in (96, 960, 9600):
        error = bound.error(width)
        assert bound.width(error * (1 + 1e-9)) <= width
        assert bound.width(error * 0.99) > width - 8
        assert bound.error(2 * width) < error < bound.error(width, 0.999)


def test_the_least_that_bounds_take_is_taken():
    """Edges of ranges: one pair, I = 1, τ = d_λ, one direction, rank 1, two rows."""
    X = sphere()
    assert Hoeffding(1).width(0.1) == 2 * math.ceil(200 * math.log(2 / 0.05))
    assert OperatorNorm(1.0).error(100) < OperatorNorm(1.01).error(100)
    assert Spectral(9.0, 9.0).error(100) < Spectral(9.1, 9.0).error(100)
    assert Spectral(9.0, 9.0 * (1 + 1e-10)).leverage == 9.0  # by rounding
    with pytest.raises(InvalidInput, match="no less than effective_dimension"):
        Spectral(9.0, 9.0 * (1 + 1e-7))
    assert Hoeffding(9).error(2) > Hoeffding(9).error(4)
    assert Hoeffding(9, "phase").error(1) > Hoeffding(9, "phase").error(2)
    assert SketchNorm(2.0, 3).error(1) == pytest.approx(math.sqrt(29 * 4 / 0.05))
    wide = ProjectionCost.of(Gaussian(2.0), X, rank=1)
    values = np.linalg.eigvalsh(Gaussian(2.0)(X))
    tail = values[:-1].sum()
    assert wide.tail_ratio == pytest.approx(200 / tail)
    assert wide.spectral.effective_dimension == pytest.approx((values / (values + tail)).sum())
    for rank in (0, -1):
        with pytest.raises(InvalidInput, match="rank must be an integer, 1 or above"):
            ProjectionCost.of(Gaussian(), X, rank=rank)
    assert Hoeffding.of(Gaussian(), X[:2]).n_pairs == 1
    assert Hoeffding.of(Gaussian(), X[:2], "phase").n_pairs == 3
    at = BallSpectral.of_trace(Gaussian(), X, alpha=1.0, n_rows=200)
    assert at == BallSpectral.of_trace(Gaussian(), X, alpha=1.0)


def test_a_width_is_refused_from_ten_to_the_fifteenth_on():
    """Hoeffding's of one pair: D = 4 log 40/ε²."""
    edge = math.sqrt(2 * math.log(40) / 1e15)  # of so many draws
    assert Hoeffding(1).width(1.01 * edge) > 1.9e15
    with pytest.raises(InvalidInput, match="Ask for a larger error"):
        Hoeffding(1).width(0.99 * edge)
    edge = math.sqrt(29 * 4 / 0.05 / 1e15)
    assert SketchNorm(2.0, 3).width(1.01 * edge) > 9e14
    with pytest.raises(InvalidInput, match="Ask for a larger error"):
        SketchNorm(2.0, 3).width(0.99 * edge)


# ---- what they read off kernels and rows


def test_pairs_and_variances_are_those_of_the_rows():
    X, k = sphere(40), Gaussian(0.8)
    i, j = np.triu_indices(40, 1)
    K, doubled = k(X)[i, j], k(2 * X)[i, j]
    pair, phase = Bernstein.of(k, X), Bernstein.of(3.0 * k, X, "phase")
    assert (pair.n_pairs, phase.n_pairs) == (780, 820)
    assert pair.variance == pytest.approx(((1 + doubled - 2 * K**2) / 2).max())
    assert phase.variance == pytest.approx((1 + doubled / 2 - K**2).max())
    assert (phase.amplitude, Hoeffding.of(3.0 * k, X).amplitude) == (3.0, 3.0)
    assert Hoeffding.of(3.0 * k, X).error(500) == pytest.approx(3 * Hoeffding.of(k, X).error(500))


@pytest.mark.parametrize(
    ("kernel", "second"),
    [
        (Gaussian(0.5), 3 / 0.25),
        (Gaussian((0.5, 1.0, 2.0)), 4 + 1 + 0.25),
        (Matern(2.0, 1.0), 3 * 2.0),
        (Gaussian() * Gaussian(2.0), 3 + 0.75),
        (3.0 * Gaussian() + Gaussian(2.0), (3 * 3 + 0.75) / 4),
        (Gaussian() ** 3, 9.0),
        (Columns(Gaussian(), (0, 2)), 2.0),
        (Gaussian() + 1.0, 1.5),
        (Cauchy(), 6.0),
    ],
    ids=repr,
)
def test_the_spread_of_frequencies_is_that_of_drawn_ones(kernel, second):
    bound = RahimiRecht.of(kernel, sphere())
    assert bound.spread**2 == pytest.approx(second)
    phi = bo.draw(kernel, bo.Fourier(bo.IID()), n_features=40_000, n_inputs=3, random_state=0)
    drawn = (phi.frequencies**2).sum(axis=0) if hasattr(phi, "frequencies") else None
    if drawn is not None:  # tolerance: six standard errors of this sample
        assert abs(drawn.mean() - second) < 6 * drawn.std() / len(drawn) ** 0.5
    assert 2 * 1.5 * 0.95 < bound.diameter < 2 * 1.5 * 3**0.5


def test_matrix_bounds_take_their_dimensions_from_the_spectrum():
    X, k = sphere(), Gaussian()
    values = np.linalg.eigvalsh(k(X))
    assert OperatorNorm.of(k, X).intrinsic_dimension == pytest.approx(200 / values[-1])
    bound = Spectral.of(2.0 * k, X, alpha=3.0)
    assert bound.leverage == pytest.approx(2 * 200 / 3.0)
    assert bound.effective_dimension == pytest.approx((2 * values / (2 * values + 3.0)).sum())
    phases = Spectral.of(k, X, alpha=3.0, form="phase")
    assert (phases.features_per_draw, phases.leverage) == (1, pytest.approx(400 / 3.0))
    cost = ProjectionCost.of(k, X, rank=4)
    tail = values[:-4].sum()
    assert cost.tail_ratio == pytest.approx(200 / tail)
    assert cost.spectral.leverage == pytest.approx(200 * 4 / tail)


def test_costs_are_kept_to_eleven_times_the_spectral_and_the_trace_error():
    """The step of the proof behind ``ProjectionCost``, for matrices off in many ways."""
    X, k, rank = sphere(60), Gaussian(), 5
    values, V = np.linalg.eigh(k(X))
    tail = values[:-rank].sum()
    W = V / np.sqrt(values + tail / rank)
    worst = 0.0
    for seed in range(30):
        method = (bo.Fourier(bo.IID()), bo.Nystrom())[seed % 2]
        phi = bo.draw(k, method, n_features=4 + 2 * seed, X=X, random_state=seed)
        E = phi(X) @ phi(X).T - k(X)
        spectral = np.abs(np.linalg.eigvalsh(W.T @ E @ W)).max()
        trace = abs(np.trace(V[:, :-rank].T @ E @ V[:, :-rank])) / tail
        errors = np.linalg.eigvalsh(E)
        ends = errors[-rank:].sum(), errors[:rank].sum()
        cost = max(abs(np.trace(E) - end) for end in ends) / tail
        worst = max(worst, cost / max(spectral, trace))
    assert 0.5 < worst <= 11


@pytest.mark.parametrize(
    ("kernel", "method", "tight"),
    [
        (Angular(), bo.Sign(bo.IID()), True),
        (ArcCosine(0), bo.ReLU(0, bo.IID(), split=True), True),
        (ArcCosine(1), bo.ReLU(1, bo.IID(), split=True), True),
        (ArcCosine(1), bo.ReLU(1, bo.IID(), split=False), False),
        (ArcCosine(2), bo.ReLU(2, bo.IID(), split=True), False),
        (ArcCosine(2), bo.ReLU(2, bo.IID(), split=False), False),
    ],
    ids=repr,
)
def test_no_direction_is_larger_than_the_bound_takes_it_to_be(kernel, method, tight):
    """Σ z(x_j)² of 4,000 directions, and for |u·x| of the direction that has the most."""
    X = np.random.default_rng(0).standard_normal((50, 3)) * (2.0, 1.0, 0.5)
    bound = DirectionsNorm.of(kernel, X, method)
    values = np.linalg.eigvalsh(kernel(X))
    assert bound.intrinsic_dimension == pytest.approx(values.sum() / values[-1])
    exact = {0: 1, 1: 3, 2: 6}[method.order] if getattr(method, "split", False) else 0
    assert bound.n_exact == exact
    phi = bo.draw(kernel, method, n_features=4000 + exact, X=X, random_state=0)
    if tight and exact == 3:
        top = np.linalg.svd(X)[2][0]
        phi = replace(phi, directions=np.repeat(top[:, None], 4000, axis=1))
    sizes = 4000 * (phi(X)[:, exact:] ** 2).sum(axis=0) / values.sum()
    assert sizes.max() <= bound.size * (1 + 1e-9)
    assert sizes.max() >= bound.size * (1 - 1e-9 if tight else 0.2)
    E = phi(X) @ phi(X).T - kernel(X)
    if not (tight and exact == 3):
        assert np.abs(np.linalg.eigvalsh(E)).max() <= bound.error(phi.n_features) * values[-1]


@pytest.mark.parametrize(
    ("kernel", "tight"),
    [
        (Polynomial(2, 0.0), 0.3),
        (Polynomial(3, 1.0), 0.2),
        (DotExponential(0.5), 0.05),
        (Gaussian(2.0), 0.05),
    ],
    ids=["square", "cubic", "exponential", "Gaussian"],
)
def test_no_product_of_signs_is_larger_than_the_bound_takes_it_to_be(kernel, tight):
    """Of 20,000 features, and of those whose signs are all those of the longest row."""
    X = np.random.default_rng(0).standard_normal((50, 3)) * (1.0, 0.5, 0.5)
    products = bo.Maclaurin("geometric")
    bound = DirectionsNorm.of(kernel, X, products)
    phi = bo.draw(kernel, products, n_features=20_000, X=X, random_state=0)
    longest = np.sign(X[np.abs(X).sum(axis=1).argmax()]).astype(np.int8)[:, None]
    for signs in (phi.signs, np.broadcast_to(longest, phi.signs.shape)):
        sizes = 20_000 * (replace(phi, signs=signs)(X) ** 2).sum(axis=0)
        largest = sizes.max() / np.trace(kernel(X))
        assert largest <= bound.size * (1 + 1e-9)
    assert largest >= tight * bound.size
    E = phi(X) @ phi(X).T - kernel(X)
    assert np.linalg.norm(E, 2) <= bound.error(20_000) * np.linalg.norm(kernel(X), 2)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize(
    ("kernel", "d", "method", "widths"),
    [
        (Polynomial(2, 0.0), 4, bo.PolySketch(), (8, 12)),
        (Polynomial(2, 0.0), 4, bo.PolySketch("independent"), (8, 32)),
        (Polynomial(3, 0.0), 3, bo.PolySketch(), (16, 40)),
        (Polynomial(5, 0.0), 3, bo.PolySketch("independent"), (64,)),
        (Polynomial(3, 1.0), 5, bo.PolySketch(), (40,)),
        (Polynomial(2, 0.0), 20, bo.PolySketch(inner=8), (32,)),
    ],
    ids=["square", "square, independent", "cube", "fifth", "offset", "hashed"],
)
def test_trees_of_sketches_vary_no_more_than_the_bound_says(kernel, d, method, widths):
    """The mean square over 400 draws: on equal rows, where the bound is nearest, and on others."""
    for X in (np.ones((1, d)) * np.ones((2, 1)), np.random.default_rng(3).normal(size=(6, d))):
        K, bound = kernel(X), TreeNorm.of(kernel, X, method)
        norm = np.linalg.norm(K, 2)
        assert sum(bound.traces) == pytest.approx(np.trace(K) / norm)
        for D in widths:
            squares = []
            for seed in range(400):
                Z = bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(X)
                squares.append((np.linalg.norm(Z @ Z.T - K) / norm) ** 2)
            mean, spread = np.mean(squares), np.std(squares) / 20
            promised = bound.error(D, 0.9) ** 2 * 0.1
            # Six standard errors: of 18 means of many draws fewer than one in 10⁷ lies beyond.
            assert mean <= promised + 6 * spread
    assert np.isclose(promised, bound._root(D) ** 2)


def test_a_tree_that_is_half_as_wide_breaks_its_bound():
    """The planted fault: errors of half the features, against the bound of all."""
    X, kernel = np.eye(4)[:1] + np.ones((3, 4)), Polynomial(2, 0.0)
    bound, K = TreeNorm.of(kernel, X, bo.PolySketch("independent")), kernel(X)
    squares = [
        np.linalg.norm(Z @ Z.T - K) ** 2 / np.linalg.norm(K, 2) ** 2
        for seed in range(400)
        for Z in [
            bo.draw(kernel, bo.PolySketch("independent"), n_features=8, X=X, random_state=seed)(X)
        ]
    ]
    assert np.mean(squares) > bound.error(64, 0.9) ** 2 * 0.1


# ---- generalised zonal kernels


def test_tails_of_the_gaussian_are_those_of_a_poisson_variable():
    X = np.random.default_rng(1).standard_normal((60, 3))
    squares, alpha = (X**2).sum(axis=1), 0.6
    bound = ZonalSpectral.of(Gaussian(), X, alpha=alpha)
    for cut in bound.cuts[::4]:
        expected = gammainc(cut.degree + 1, squares).sum() / alpha
        assert cut.tail == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert cut.order == cut.degree // 2 + 1
    # MATHS R5: P(Poisson(4) > 12)
    assert poisson.sf(12, 4) == pytest.approx(0.00027371682285550300032691074894028, rel=1e-12)
    assert gammaincc(13, 4.0) == pytest.approx(1 - 0.000273716822855503, rel=1e-12)


@pytest.mark.parametrize(
    ("kernel", "X", "radial"),
    [
        (Gaussian(), sphere(), "optimal"),
        (Matern(1.5, 2.0), sphere(), "optimal"),
        (Gaussian(1.5), np.random.default_rng(3).standard_normal((200, 3)), "monomial"),
        (Polynomial(degree=3), np.random.default_rng(3).standard_normal((200, 2)), "monomial"),
    ],
    ids=["sphere", "Matern", "Gaussian", "Polynomial"],
)
def test_no_direction_has_more_leverage_than_lemma_7_says(kernel, X, radial):
    alpha = 4.0
    bound = ZonalSpectral.of(kernel, X, alpha=alpha)
    printed = ZonalSpectral.of(kernel, X, alpha=alpha, componentwise=False)
    for cut, loose in list(zip(bound.cuts, printed.cuts, strict=True))[-1:]:
        phi = bo.draw(
            kernel,
            bo.Gegenbauer(radial, order=cut.order, degree=cut.degree),
            n_features=2000 * cut.order,
            X=X,
            random_state=0,
        )
        tau = draw_leverages(phi(X), eigen(kernel, X, "test"), alpha, cut.order)
        assert tau.max() <= cut.leverage <= loose.leverage
        assert tau.mean() == pytest.approx(bound.effective_dimension, rel=0.2)


def test_lemma_7_by_hand():
    squares = np.array([[4.0, 1.0], [0.5, 0.001], [1e-4, 0.0]])
    steep = np.pi**2 / 6 / 2.0 * np.array([1, 4, 9])
    by_hand = sum(
        a * sum(min(c * v, 1.0) for v in row)
        for a, c, row in zip((1, 3, 5), steep, squares, strict=True)
    )
    assert direction_leverage(squares, 3, 2.0) == pytest.approx(by_hand)
    printed = sum(
        a * min(c * row.sum(), 2.0) for a, c, row in zip((1, 3, 5), steep, squares, strict=True)
    )
    assert direction_leverage(squares, 3, 2.0, componentwise=False) == pytest.approx(printed)


# ---- theorems 11 and 12


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("radius", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("error", [0.02, 0.5, 0.9])
def test_the_degree_of_the_theorems_leaves_out_what_is_allowed(gaussian, radius, error):
    """n·tail ≤ (ε/10) λ by the law of a Poisson variable, and not by less than it must."""
    n, alpha, scale, growth = 5000, 0.3, 2.0, 1.0 if gaussian else 1.5
    bound = BallSpectral(radius, 4, n, alpha, 10.0, scale, growth, gaussian)
    q, s, m = bound.sizes(error)
    mean = growth * radius**2
    left = scale * n * poisson.sf(q, mean) * (1.0 if gaussian else math.exp(mean))
    assert left <= 0.1 * error * alpha
    lost = math.log(scale * n / (0.1 * error * alpha))
    assert q + 1 == math.ceil(max(math.e**2 * mean, lost - gaussian * mean))
    harmonics = sum(
        math.comb(l + 3, 3) - (math.comb(l + 1, 3) if l > 1 else 0) for l in range(q + 1)
    )
    tau, e = mpmath.mpf(s * harmonics), mpmath.mpf("0.9") * error
    chance = lambda draws: 160 * mpmath.exp(-draws * e**2 / (2 * tau * (1 + 2 * e / 3)))
    assert (s, bound.width(error)) == (q // 2 + 1, s * m)
    assert chance(m) <= 0.05 < chance(m - 1)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Gaussian(0.5), (2.0, 1.0, 1.0, True)),
        (3.0 * Gaussian(2.0), (0.5, 3.0, 1.0, True)),
        (2.0 * DotExponential(0.5), (1.0, 2.0, 0.5, False)),
        (Polynomial(degree=3, offset=2.0), (1.0, 8.0, 12.0, False)),
        (Linear(), (1.0, 1.0, 1.0, False)),
    ],
    ids=repr,
)
def test_the_ball_and_the_growth_are_read_off_kernel_and_rows(kernel, expected):
    X = sphere(50, radius=1.0)
    bound = BallSpectral.of(kernel, X, alpha=0.5)
    found = bound.radius, bound.scale, bound.growth
    assert found == pytest.approx(expected[:3])
    assert (bound.gaussian, bound.n_rows, bound.n_columns) == (expected[3], 50, 3)
    values = np.linalg.eigvalsh(kernel(X))
    assert bound.effective_dimension == pytest.approx((values / (values + 0.5)).sum())
    if not bound.gaussian:  # assumption 1
        n = np.arange(12)
        logs = kernel_series(kernel).log_derivative(n)
        assert np.all(logs <= math.log(bound.scale) + n * math.log(bound.growth) + 1e-9)


def kernel_series(kernel):
    return radial_kernels(kernel, 3).power_series


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2), 2.0 * Polynomial(3)], ids=repr)
def test_of_a_polynomial_no_degree_beyond_its_own_is_asked_for(kernel):
    """Not the hundreds of degrees of assumption 1: at its own degree nothing is cut."""
    X, degree = np.random.default_rng(0).normal(size=(40, 3)), kernel_series(kernel).degree
    bound = BallSpectral.of(kernel, X, alpha=1.0)
    q, s, _ = bound.sizes(0.5)
    assert (q, s) == (degree, degree // 2 + 1)
    phi = bo.draw(kernel, bo.Gegenbauer("monomial", s, q), n_features=64 * s, X=X, random_state=0)
    assert phi.left_out(X).max() <= 100 * np.finfo(float).eps * kernel.diag(X).max()
    assert replace(bound, highest=None).sizes(0.5).degree > 50


# ---- refusals


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: Hoeffding(0), InvalidInput, "n_pairs must be an integer, 1 or above; got 0"),
        (lambda: Hoeffding(5, "complex"), InvalidInput, "form must be one of 'pair', 'phase'"),
        (lambda: Hoeffding(5).width(0.0), InvalidInput, "error must be a positive finite number"),
        (lambda: Hoeffding(5).width(1e-9), InvalidInput, "Ask for a larger error"),
        (lambda: Hoeffding(5).error(1), InvalidInput, "n_features must be an integer, 2 or above"),
        (lambda: Hoeffding(5).error(10, 1.0), InvalidInput, "confidence must be above 0 and below"),
        (lambda: Bernstein(5, -1.0), InvalidInput, "variance must be a positive finite number"),
        (lambda: RahimiRecht(math.inf, 1.0, 2), UnsupportedKernel, "finite variance"),
        (lambda: RahimiRecht.of(Laplace(), sphere()), UnsupportedKernel, "got Laplace"),
        (lambda: RahimiRecht.of(Exponential(), sphere()), UnsupportedKernel, "finite variance"),
        (lambda: RahimiRecht.of(Matern(1.0), sphere()), UnsupportedKernel, "Hoeffding or Bernst"),
        (lambda: Hoeffding.of(Linear(), sphere()), UnsupportedKernel, "requires a kernel of x − y"),
        (lambda: Hoeffding.of(Gaussian(), sphere()[:1]), InvalidInput, "at least 2 rows; got 1"),
        (lambda: OperatorNorm(0.5), InvalidInput, "1 or above, as Tr K/‖K‖ is; got 0.5"),
        (lambda: Spectral(5.0, 9.0), InvalidInput, "no less than effective_dimension"),
        (lambda: Spectral.of(Gaussian(), sphere(), alpha=0.0), InvalidInput, "alpha must be a pos"),
        (lambda: Spectral.of(Gaussian(), sphere(), alpha=-1.0), InvalidInput, "got -1.0"),
        (lambda: Spectral.of(Gaussian(), sphere(), alpha=1e4), InvalidInput, "at most ‖K‖ ="),
        (lambda: ProjectionCost(3.0, 1.0), InvalidInput, "spectral must be a Spectral bound"),
        (lambda: ProjectionCost.of(Gaussian(), sphere(), rank=200), InvalidInput, "lower rank"),
        (lambda: ZonalSpectral((), 3.0), InvalidInput, "cuts must be one Cut or more"),
        (
            lambda: ZonalSpectral.of(Matern(1.5), 2 * np.eye(3)[[0, 0, 1]] + np.eye(3), alpha=1.0),
            UnsupportedKernel,
            "or rows on one sphere; got Matern",
        ),
        (
            lambda: ZonalSpectral.of(Gaussian(0.01), np.diag([1.0, 2.0, 3.0]), alpha=0.1),
            InvalidInput,
            "degrees leave out of the trace",
        ),
        (
            lambda: ZonalSpectral((Cut(3, 2, 0.1, 60.0),), 9.0).width(0.05),
            InvalidInput,
            "what the last cut leaves out",
        ),
        (
            lambda: ZonalSpectral((Cut(3, 2, 0.1, 60.0),), 9.0).error(1),
            InvalidInput,
            "n_features must be 2 or above, one direction",
        ),
        (
            lambda: BallSpectral.of(Matern(1.5), sphere(), alpha=1.0),
            UnsupportedKernel,
            "BallSpectral requires the Gaussian, DotExponential, or a kernel of ⟨x, y⟩ of finite",
        ),
        (
            lambda: BallSpectral.of_trace(Gaussian(), sphere(50), alpha=1.0, n_rows=49),
            InvalidInput,
            "BallSpectral: n_rows must be an integer, 50 or above; got 49",
        ),
        (
            lambda: BallSpectral(10.0, 9, 100, 1.0, 10.0).width(0.5),
            InvalidInput,
            "degree 738 in 9 columns has more than 1e\\+15 functions, which a ball of radius 10",
        ),
        (
            lambda: BallSpectral(1.0, 3, 100, 1.0, 10.0).error(3),
            InvalidInput,
            "n_features must be 4 or above, one direction; got 3",
        ),
        (
            lambda: DirectionsNorm.of(Angular(), sphere(), bo.ReLU(1)),
            UnsupportedKernel,
            r"DirectionsNorm requires Angular\(\) with Sign\(IID\(\)\), ArcCosine\(order\) with ReLU",
        ),
        (
            lambda: DirectionsNorm.of(Angular(), sphere(), bo.Sign()),
            UnsupportedKernel,
            r"requires Angular\(\) with Sign\(IID\(\)\).* got Angular\(\) with Sign\(placement",
        ),
        (
            lambda: DirectionsNorm.of(ArcCosine(1), sphere(), bo.ReLU(1)),
            UnsupportedKernel,
            "features that are independent",
        ),
        (
            lambda: DirectionsNorm.of(Polynomial(2), sphere(), bo.Maclaurin()),
            UnsupportedKernel,
            'with Maclaurin."geometric".*got Polynomial',
        ),
        (
            lambda: DirectionsNorm.of(
                DotProduct(lambda n: gammaln(n + 1.0)), 0.3 * sphere(), bo.Maclaurin("geometric")
            ),
            UnsupportedKernel,
            "whose terms 2ᴺ a_N",
        ),
        (lambda: TreeNorm.of(DotExponential(), sphere()), UnsupportedKernel, "of finite degree"),
        (
            lambda: TreeNorm((1.0,), (0.5, 0.5), 3, bo.PolySketch()),
            InvalidInput,
            "one number for each degree",
        ),
        (
            lambda: TreeNorm.of(Polynomial(9), sphere()).error(6),
            InvalidInput,
            "n_features must give each degree a feature; 6 do not",
        ),
        (lambda: SketchNorm.of(Linear(), sphere()), UnsupportedKernel, "requires a Polynomial"),
        (lambda: SketchNorm(2.0, 3).width(1e-9), InvalidInput, "Ask for a larger error"),
        (lambda: BallSpectral(-1.0, 3, 9, 1.0, 2.0), InvalidInput, "radius must be a positive"),
        (
            lambda: OperatorNorm.of(Custom(lambda X, Y: -(X @ Y.T)), sphere()),
            UnsupportedKernel,
            "requires a kernel of x − y",
        ),
        (
            lambda: compare_bounds(Custom(lambda X, Y: -(X @ Y.T)), sphere(), alpha=1.0),
            NotPositive,
            "must be positive semi-definite; its eigenvalues run from",
        ),
        (
            lambda: compare_bounds(Linear() * NeuralTangent(), sphere(), alpha=1.0),
            UnsupportedKernel,
            "compare_bounds requires a kernel of x − y, or a rotation-invariant one",
        ),
        (lambda: compare_bounds("gaussian", sphere(), alpha=1.0), InvalidType, "must be a Kernel"),
        (
            lambda: compare_bounds(Gaussian(), sphere(), alpha=0),
            InvalidInput,
            "alpha must be a pos",
        ),
    ],
)
def test_what_cannot_be_bounded_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


# ---- the table


@pytest.fixture(scope="module")
def table():
    X = sphere(120)
    return compare_bounds(Gaussian(), X, alpha=2.0, n_features=301, n_draws=4, random_state=0)


def test_the_table_compares_every_bound_with_what_draws_show(table):
    names = [row.name for row in table.rows]
    assert names[:3] == ["Hoeffding", "Bernstein", "Rahimi-Recht"]
    assert names[-2:] == ["Gegenbauer, lemma 7", "Gegenbauer, theorem 12"]
    assert table.n_features == 300
    for row in table.rows:
        assert 0 < row.found < row.promised
        assert row.promised == row.bound.error(300)
        assert row.asked == row.bound.width(row.found) > 300
    unproved = [row.name for row in table.rows if not row.proved]
    assert unproved == ["Rahimi-Recht, as printed", "leverage measured"]


@pytest.mark.parametrize("kernel", [Gaussian(0.5), 3.0 * DotExponential(0.5)], ids=repr)
def test_the_trace_bounds_the_effective_dimension(kernel):
    X = sphere(50, radius=1.0)
    exact, fast = (of(kernel, X, alpha=0.5) for of in (BallSpectral.of, BallSpectral.of_trace))
    by_trace = min(50.0, np.trace(kernel(X)) / 0.5)
    assert exact.effective_dimension < fast.effective_dimension == pytest.approx(by_trace)
    assert exact.sizes(0.5)[:2] == fast.sizes(0.5)[:2]
    assert exact.sizes(0.5).directions <= fast.sizes(0.5).directions
    many = BallSpectral.of_trace(kernel, X, alpha=500.0, n_rows=50_000)
    assert (many.n_rows, many.sizes(0.5)[:2]) == (50_000, fast.sizes(0.5)[:2])
    assert many.effective_dimension == pytest.approx(np.trace(kernel(X)) * 1000 / 500)
    assert (exact.theorem == 12) is isinstance(kernel, Gaussian)


def test_kernels_of_angles_and_powers_have_rows_of_their_own():
    X = sphere(40)
    names = {
        kernel: compare_bounds(kernel, X, alpha=2.0, n_features=64, n_draws=2, random_state=0)
        .rows[0]
        .name
        for kernel in (Angular(), ArcCosine(1), Polynomial(2))
    }
    assert list(names.values()) == [
        "matrix Bernstein, signs",
        "matrix Bernstein, ReLU",
        "Chebyshev, TensorSketch",
    ]


def test_found_errors_are_those_of_the_same_draws_by_hand(table):
    """The spectral distance again, as a generalised eigenvalue problem; entries by hand."""
    X, k = sphere(120), Gaussian()
    entries, distances = [], []
    for i in range(4):
        seed = int(stream(0, "bounds", i).integers(2**31))
        phi = draw_map(bo.Fourier(bo.IID()), k, Request(3, 300, seed, X=X))
        E = phi(X) @ phi(X).T - k(X)
        entries.append(np.abs(E).max())
        mu = eigh(phi(X) @ phi(X).T + 2 * np.eye(120), k(X) + 2 * np.eye(120), eigvals_only=True)
        distances.append(np.abs(mu - 1).max())
    found = {row.name: row.found for row in table.rows}
    assert found["Hoeffding"] == pytest.approx(max(entries))
    assert found["leverage n/λ"] == pytest.approx(max(distances))
