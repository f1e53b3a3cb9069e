"""A-priori bounds: constants by a second route, error and width, errors raised, the table."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from gallery import sphere
from scipy.linalg import eigh
from scipy.special import gammainc
from scipy.stats import poisson

import bochner as bo
from bochner import certificates, compare_bounds
from bochner.certificates.bounds import Bound, direction_leverage
from bochner.features.map import Request, stream
from bochner.features.rules import draw_map
from bochner.kernels import Angular, ArcCosine, DotExponential, Gaussian, Monomials, Polynomial

ROWS = sphere(40)
PAIRS = {"pair": 780, "phase": 820}


def hoeffding(e, D, form):
    return 2 * PAIRS[form] * mpmath.exp(-D * (e / 3) ** 2 / (4 if form == "pair" else 8))


def bernstein(e, D, form):
    k, doubled = Gaussian(0.8)(ROWS), Gaussian(0.8)(2 * ROWS)
    m, reach, e = (D / mpmath.mpf(2), 2, e / 3) if form == "pair" else (D, 3, e / 3)
    v = (1 + doubled - 2 * k**2) / 2 if form == "pair" else 1 + doubled / 2 - k**2
    return 2 * PAIRS[form] * mpmath.exp(-m * e**2 / (2 * (v.max() + reach * e / 3)))


def rahimi_recht(e, D, form):
    d, e = mpmath.mpf(3), e / 3
    radius = np.linalg.norm(ROWS - ROWS.mean(axis=0), axis=1).max()
    reach = 2 * 3**0.5 / 0.8 * min(2 * radius, np.linalg.norm(np.ptp(ROWS, axis=0))) / e
    if form == "pair":
        beta = ((d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2))) * 2 ** ((6 * d + 2) / (d + 2))
        return beta * reach ** (2 * d / (d + 2)) * mpmath.exp(-D * e**2 / (8 * (d + 2)))
    beta = (d ** (-d / (d + 1)) + d ** (1 / (d + 1))) * 2 ** ((5 * d + 1) / (d + 1))
    beta *= 3 ** (d / (d + 1))
    return beta * reach ** (2 * d / (d + 1)) * mpmath.exp(-D * e**2 / (32 * (d + 1)))


def operator_norm(e, D, form):
    m, L = (D / mpmath.mpf(2), 1) if form == "pair" else (D, 2)
    values = np.linalg.eigvalsh(Gaussian(0.8)(ROWS))
    size = values.sum() / values[-1]
    return 8 * size * mpmath.exp(-m * e**2 / (2 * size * L * (1 + 2 * e / 3)))


def spectral(e, D, form):
    m, L = (D / mpmath.mpf(2), 1) if form == "pair" else (D, 2)
    values = 3 * np.linalg.eigvalsh(Gaussian(0.8)(ROWS))
    tau, d = 3 * 40 * L / 2.0, (values / (values + 2.0)).sum()
    return 16 * d * mpmath.exp(-m * e**2 / (2 * tau * (1 + 2 * e / 3)))


def tensor_sketch(e, D, _):
    values = np.linalg.eigvalsh(Polynomial(3)(ROWS))
    return (2 + mpmath.mpf(3) ** 3) * (values.sum() / values[-1]) ** 2 / (D * e**2)


features_bound, fourier_bound = certificates.features_bound, certificates.fourier_bound
FORMS, SCALED = ("pair", "phase"), 3.0 * Gaussian(0.8)
WITH_NONE = SCALED + bo.kernels.Constant(0.0) * bo.kernels.Laplace()  # of infinite variance
PRINTED = [
    *((fourier_bound(SCALED, ROWS, "hoeffding", f), hoeffding, f) for f in FORMS),
    *((fourier_bound(SCALED, ROWS, "bernstein", f), bernstein, f) for f in FORMS),
    *((fourier_bound(WITH_NONE, ROWS, "rahimi_recht", f), rahimi_recht, f) for f in FORMS),
    *((fourier_bound(Gaussian(0.8), ROWS, "operator_norm", f), operator_norm, f) for f in FORMS),
    *((fourier_bound(SCALED, ROWS, "spectral", f, alpha=2.0), spectral, f) for f in FORMS),
    (features_bound(Polynomial(3), ROWS, bo.TensorSketch()), tensor_sketch, ""),
]
IDS = [f"{chance.__name__} {form}" for _, chance, form in PRINTED]


@pytest.mark.parametrize(("bound", "chance", "form"), PRINTED, ids=IDS)
def test_error_and_width_solve_the_printed_inequality(bound, chance, form):
    step = 2 if form == "pair" else 1
    for confidence in (0.5, 0.95, 0.999):
        probability = chance(mpmath.mpf(bound.error(60 * step, confidence)), 60 * step, form)
        assert probability == pytest.approx(1 - confidence, rel=1e-8)
    width, e = bound.width(0.3), mpmath.mpf("0.3")
    assert width % step == 0
    assert chance(e, width, form) <= 0.05 < chance(e, width - step, form)


TWO_CUTS = (
    replace(certificates.leverage_bound(60.0, 20.0, 2), tail=0.1),
    replace(certificates.leverage_bound(90.0, 20.0, 4), tail=0.001),
)
SOME_CUTS = Bound("spectral distance", cuts=TWO_CUTS)


def test_width_and_error_are_inverse_to_each_other():
    for bound in (
        *(b for b, *_ in PRINTED),
        features_bound(ArcCosine(1), ROWS, bo.ReLU(1, bo.IID())),
        fourier_bound(Gaussian(), ROWS, "projection_cost", rank=4),
        SOME_CUTS,
    ):
        for width in (96, 960, 9600):
            error = bound.error(width)
            assert bound.width(error * (1 + 1e-9)) <= width
            assert bound.width(error * 0.99) > width - 8
            assert bound.error(2 * width) < error < bound.error(width, 0.999)


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
def test_no_direction_exceeds_the_size_in_the_bound(kernel, method, tight):
    """Checks Σ z(x_j)² of 4,000 directions, for |u·x| that of the largest direction."""
    X = np.random.default_rng(0).standard_normal((50, 3)) * (2.0, 1.0, 0.5)
    bound = features_bound(kernel, X, method)
    values = np.linalg.eigvalsh(kernel(X))
    size = bound.variance * values[-1] / values.sum()  # sup|z|² over Tr K
    exact = {0: 1, 1: 3, 2: 6}[method.order] if getattr(method, "split", False) else 0
    assert bound.exact == exact
    phi = bo.draw(kernel, method, n_features=4000 + exact, X=X, random_state=0)
    if tight and exact == 3:
        phi = replace(phi, directions=np.repeat(np.linalg.svd(X)[2][0][:, None], 4000, axis=1))
    sizes = 4000 * (phi(X)[:, exact:] ** 2).sum(axis=0) / values.sum()
    assert sizes.max() <= size * (1 + 1e-9)
    assert sizes.max() >= size * (1 - 1e-9 if tight else 0.2)
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
def test_no_product_of_signs_exceeds_the_size_in_the_bound(kernel, tight):
    """Checks 20,000 features, and those with all signs of the row with the largest l1 norm."""
    X = np.random.default_rng(0).standard_normal((50, 3)) * (1.0, 0.5, 0.5)
    products = bo.Maclaurin("geometric")
    bound = features_bound(kernel, X, products)
    values = np.linalg.eigvalsh(kernel(X))
    size = bound.variance * values[-1] / values.sum()
    phi = bo.draw(kernel, products, n_features=20_000, X=X, random_state=0)
    longest = np.sign(X[np.abs(X).sum(axis=1).argmax()]).astype(np.int8)[:, None]
    for signs in (phi.signs, np.broadcast_to(longest, phi.signs.shape)):
        sizes = 20_000 * (replace(phi, signs=signs)(X) ** 2).sum(axis=0)
        largest = sizes.max() / np.trace(kernel(X))
        assert largest <= size * (1 + 1e-9)
    assert largest >= tight * size
    E = phi(X) @ phi(X).T - kernel(X)
    assert np.linalg.norm(E, 2) <= bound.error(20_000) * np.linalg.norm(kernel(X), 2)


def test_tails_of_the_gaussian_equal_tails_of_a_poisson_variable():
    X = np.random.default_rng(1).standard_normal((60, 3))
    squares, alpha = (X**2).sum(axis=1), 0.6
    for cut in certificates.zonal_bound(Gaussian(), X, alpha=alpha).cuts[::4]:
        expected = gammainc(cut.degree + 1, squares).sum() / alpha
        assert cut.tail == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert cut.order == cut.degree // 2 + 1


MIXED = 2.0 * bo.kernels.GeneralizedZonal((Monomials((1.0, 0.5), (0, 2)), Monomials((0.7,), (1,))))


def test_no_direction_has_more_leverage_than_the_bound_of_lemma_7():
    for kernel, X, radial in (
        (Gaussian(), sphere(200), "optimal"),
        (bo.kernels.Matern(1.5, 2.0), sphere(200), "optimal"),
        (Gaussian(1.5), np.random.default_rng(3).standard_normal((200, 3)), "monomial"),
        (Polynomial(degree=3), np.random.default_rng(3).standard_normal((200, 2)), "monomial"),
        (MIXED, np.random.default_rng(3).standard_normal((200, 3)), "monomial"),
    ):
        cut = certificates.zonal_bound(kernel, X, alpha=4.0).cuts[-1]
        method = bo.Gegenbauer(radial, order=cut.order, degree=cut.degree)
        Z = bo.draw(kernel, method, n_features=2000 * cut.order, X=X, random_state=0)(X)
        h = np.einsum("ij,ij->j", Z, np.linalg.solve(kernel(X) + 4.0 * np.eye(len(X)), Z))
        tau = 2000 * h.reshape(cut.order, 2000).sum(axis=0)  # of all functions of a direction
        assert tau.max() <= cut.variance, kernel
        assert tau.mean() == pytest.approx(math.exp(cut.log_constant) / 16, rel=0.2)


def test_the_bound_of_lemma_7_agrees_with_a_calculation_by_hand():
    squares = np.array([[4.0, 1.0], [0.5, 0.001], [1e-4, 0.0]])
    steep = np.pi**2 / 6 / 2.0 * np.array([1, 4, 9])
    expected = sum(
        a * sum(min(c * v, 1.0) for v in row)
        for a, c, row in zip((1, 3, 5), steep, squares, strict=True)
    )
    assert direction_leverage(squares, 3, 2.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kernel", "mean", "factor", "gaussian"),
    [
        (3.0 * Gaussian(2.0), 0.25, 3.0, True),
        (2.0 * DotExponential(0.5), 0.5, 2.0, False),
        (bo.kernels.DotProduct(lambda n: n * math.log(2.0)), 2.0, 1.0, False),
    ],
    ids=["Gaussian", "DotExponential", "own derivatives"],
)
def test_the_omitted_part_in_a_ball_is_within_its_bound(kernel, mean, factor, gaussian):
    """The exact part is C n P(N > q)/λ, N Poisson of mean β r²; for ⟨x, y⟩ times e^(β r²)."""
    X = sphere(50, radius=1.0)
    bound = certificates.ball_bound(kernel, X, alpha=0.5)
    assert bound == certificates.ball_bound(kernel, X, alpha=0.5)
    other_bound = certificates.zonal_bound(kernel, X, alpha=0.5)
    for cut in bound.cuts:
        q = cut.degree
        assert q + 1 >= math.e**2 * mean
        exact = factor * 50 / 0.5 * poisson.sf(q, mean) * (1 if gaussian else math.exp(mean))
        assert exact <= cut.tail
        harmonics = sum(2 * l + 1 for l in range(q + 1))  # in three dimensions
        assert (cut.order, cut.variance) == (q // 2 + 1, cut.order * harmonics)
    assert bound.width(0.5) > other_bound.width(0.5)


def test_a_polynomial_has_no_omitted_part_in_a_ball():
    cut = certificates.ball_bound(Polynomial(degree=3, offset=2.0), sphere(50), alpha=0.5).cuts[-1]
    assert (cut.degree, cut.order, cut.tail) == (3, 2, 0.0)


@pytest.fixture(scope="module")
def table():
    X = sphere(120)
    return compare_bounds(Gaussian(), X, alpha=2.0, n_features=301, n_draws=4, random_state=0)


def test_the_table_compares_each_bound_with_measured_errors(table):
    names = [row.name for row in table.rows]
    assert names[:3] == ["Hoeffding", "Bernstein", "Rahimi-Recht"]
    assert names[-2:] == ["Gegenbauer, lemma 7", "Gegenbauer, theorems 11 and 12"]
    assert table.n_features == 300
    for row in table.rows:
        assert 0 < row.measured < row.limit
        assert row.limit == row.bound.error(300)
        assert row.required == row.bound.width(row.measured) > 300


def test_measured_errors_equal_those_of_the_same_draws_by_dense_algebra(table):
    """The spectral distance is computed again as a generalised eigenvalue problem."""
    X, k = sphere(120), Gaussian()
    entries, distances = [], []
    for i in range(4):
        seed = int(stream(0, "bounds", i).integers(2**31))
        phi = draw_map(bo.Fourier(bo.IID()), k, Request(3, 300, seed, X=X))
        entries.append(np.abs(phi(X) @ phi(X).T - k(X)).max())
        mu = eigh(phi(X) @ phi(X).T + 2 * np.eye(120), k(X) + 2 * np.eye(120), eigvals_only=True)
        distances.append(np.abs(mu - 1).max())
    measured = {row.name: row.measured for row in table.rows}
    assert measured["Hoeffding"] == pytest.approx(max(entries))
    assert measured["leverage n/λ"] == pytest.approx(max(distances))
