"""Ridge regression along a path and without penalty, decompositions, and evidence."""

import signal
import time
from dataclasses import replace
from functools import reduce
from operator import add
from threading import Timer

import gallery
import naive
import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from tolerance import assert_close

import bochner as bo
from bochner import Moments
from bochner.kernels import Gaussian, Linear
from bochner.solvers import factorisations
from bochner.solvers.factorisations import eigenvalues, lower_factor, retry, run_interruptibly
from bochner.solvers.ridge.eigen import (
    LOWEST,
    Triangle,
    decompose,
    decompose_rows,
    left_out_path,
    maximise_evidence,
    penalties,
    solve_ridge,
)
from bochner.solvers.ridge.problem import evidence as criterion_evidence
from bochner.solvers.ridge.problem import evidence_slope
from bochner.solvers.ridge.problem import gcv as criterion_gcv
from bochner.solvers.ridge.solution import EvidenceOutcome, Outcome, Path, Solution, pool

# ==== Ridge regression along a path, compared with solves, refits and densities.

ALPHAS = np.array([1e-3, 0.1, 2.0, 50.0])


def table(n=25, D=8, t=2, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    Z = rng.normal(0.5, 1.0, (n, D)) * np.linspace(0.3, 2.0, D)
    y = Z @ rng.normal(size=(D, t)) + 3 + noise * rng.normal(size=(n, t))
    return Z, y, rng.integers(1, 4, n).astype(float)


def problem(Z, y, w, centred=True):
    """Return the eigendecomposition, rows about the means, and the means."""
    m = Moments.of(Z, y, w)
    m = m if centred else m.about_zero()
    rows = (Z - m.feature_mean, y - m.target_mean, w)
    return decompose(m, centred), rows, (m.feature_mean, m.target_mean)


centrings = pytest.mark.parametrize("centred", [True, False])
shapes = pytest.mark.parametrize(("n", "D"), [(25, 8), (6, 8)], ids=["n > D", "n < D"])


@centrings
@shapes
@pytest.mark.parametrize("alpha", ALPHAS)
def test_coefficients_solve_the_normal_equations(alpha, n, D, centred):
    Z, y, w = table(n, D)
    eigen, _, means = problem(Z, y, w, centred)
    solution = solve_ridge(eigen, (), means, alpha)
    coef, intercept = naive.ridge(Z, y, w, alpha, centred)
    assert_close(solution.coef, coef, factor=1e4)
    assert_close(solution.intercept, intercept, factor=1e4)
    assert solution.criterion == "given"
    assert alpha in solution.path.alphas


def noise(n, D, t=1, falling=0.0, copies=0, dtype=np.float64):
    """Return features with falling eigenvalues and targets of noise; the last rows are copies."""
    rng = np.random.default_rng([n, D])
    Z = rng.normal(size=(n, D)) * 10.0 ** -np.linspace(0, falling, D) + 0.3
    y = rng.normal(size=(n, t))
    if copies:
        Z[-copies:] = Z[:copies]
    return Z.astype(dtype), y


def weights_of(kind, n):
    rng = np.random.default_rng(n)
    draws = {
        "ones": np.ones(n),
        "counts": rng.integers(1, 4, n).astype(float),
        "shares": rng.uniform(0.2, 0.9, n),
        "mixed": rng.uniform(0.1, 3.0, n),
    }
    return draws[kind]


def rounding_of(alphas, top):
    """Return a hundred times the first-order bounds of rounding in slack and residual."""
    return 100 * np.finfo(float).eps * (1 + top / alphas)


SHAPES = [(5, 12), (30, 60), (40, 40), (41, 40), (43, 40), (60, 40), (200, 20)]


@pytest.mark.main_cases(168)
@centrings
@pytest.mark.parametrize("route", ["moments", "rows"])
@pytest.mark.parametrize("falling", [0.0, 4.0], ids=["flat", "falling"])
@pytest.mark.parametrize("kind", ["ones", "counts", "shares", "mixed"])
@pytest.mark.parametrize(("n", "D"), SHAPES)
def test_leave_one_out_errors_equal_refits_along_the_path(n, D, kind, falling, route, centred):
    Z, y = noise(n, D, 2, falling, copies=n // 10)
    w = weights_of(kind, n)
    eigen, rows, _ = problem(Z, y, w, centred)
    eigen = decompose_rows(*rows, centred) if route == "rows" else eigen
    alphas = penalties(eigen)
    refits = naive.left_out_errors(Z, y, w, alphas, range(n), centred)
    expected = np.einsum("i,ipt->pt", w, refits**2) / w.sum()
    result = left_out_path(eigen, [rows], alphas)
    errors = result.mean_squares
    assert result.rows == n
    allowed = rounding_of(alphas, eigen.values[-1])[:, None] * expected
    assert (np.abs(errors - expected) <= allowed).all()


def leave_one_out(eigen, blocks, alphas):
    """Return mean squared errors of these rows, pooled over targets, and their number."""
    result = left_out_path(replace(eigen, rows=0), blocks, alphas)
    return pool(result.mean_squares, eigen.power / eigen.weight), result.rows


@pytest.mark.parametrize(("n", "D"), [(20, 60), (60, 60), (70, 60), (400, 60)])
@pytest.mark.parametrize("products", ["rows", "rows and moments", "small penalties"])
def test_errors_hidden_by_rounding_are_infinite_and_others_are_right(n, D, products):
    """In float32, or below the path, an error agrees with refits to a fifth, or is infinite."""
    single = products != "small penalties"
    Z, y = noise(n, D, 1, falling=2.0, dtype=np.float32 if single else np.float64)
    w = np.ones(n)
    m = Moments.of(Z, y, w, "float32" if products == "rows and moments" else "float64")
    rows = (Z - m.feature_mean.astype(Z.dtype), y - m.target_mean, w)
    eigen = decompose(m)
    alphas = penalties(eigen) if single else eigen.values[-1] * np.logspace(-18, -8, 41)
    refits = naive.left_out_errors(Z.astype(float), y, w, alphas, range(n))
    expected = (refits**2).mean(axis=0)[:, 0]
    errors = leave_one_out(eigen, [rows], alphas)[0]
    finite = np.isfinite(errors)
    assert np.abs(errors[finite] / expected[finite] - 1).max() <= 0.2
    assert finite[-1]
    assert n >= D or not finite[0]
    path = Path(alphas, errors, errors, -errors, errors, n)
    assert finite[path.best("loo")]
    assert path.lowest("loo") == np.flatnonzero(finite)[0]


@centrings
@pytest.mark.parametrize(("n", "D"), SHAPES)
def test_criteria_from_moments_are_accurate_for_fits_that_interpolate(n, D, centred):
    """GCV and evidence from the n × n side have no cancellation."""
    Z, y = noise(n, D)
    eigen, (Zc, yc, _), _ = problem(Z, y, np.ones(n), centred)
    alphas = penalties(eigen)
    U, s, _ = np.linalg.svd(Zc)
    squares = np.append(s**2, np.zeros(n))[:n]
    if centred:
        squares[min(n - 1, D) :] = 0.0
    shrinkage = alphas / (squares[:, None] + alphas)
    projected = (U.T @ yc) ** 2
    free = shrinkage.sum(axis=0) - centred
    rounding = rounding_of(alphas, eigen.values[-1]) + 1e-8
    gcv = n * (shrinkage**2 * projected).sum(axis=0) / free**2
    assert (np.abs(criterion_gcv(eigen, eigen.at(alphas))[:, 0] - gcv) <= rounding * gcv).all()
    q = (projected * shrinkage).sum(axis=0) / alphas
    contrasts = n - centred  # an intercept removes the direction of the mean
    log_det = np.log(squares[:contrasts, None] + alphas).sum(axis=0)
    evidence = -0.5 * contrasts * (1 + np.log(2 * np.pi * q / contrasts)) - 0.5 * log_det
    actual = criterion_evidence(eigen, eigen.at(alphas))[:, 0]
    assert (np.abs(actual - evidence) <= n * rounding).all()


@pytest.mark.parametrize("m", [100, 400])
@pytest.mark.parametrize("alpha", [1.0, 1e3])
def test_the_standard_error_is_that_of_the_error_on_new_rows(alpha, m):
    """z-scores of 200 tables; for z ~ N(0, I) the squared error on new rows is 1 + |β|²."""
    scores = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        Z, y = rng.normal(size=(400, 10)), rng.normal(size=(400, 1))
        eigen, rows, means = problem(Z, y, np.ones(400))
        result = left_out_path(eigen, [tuple(a[:m] for a in rows)], np.array([alpha]))
        coef = eigen.coefficients(alpha)
        truth = 1 + (coef**2).sum() + (means[1] - means[0] @ coef)[0] ** 2
        scores.append((result.mean_squares[0, 0] - truth) / result.deviation[0])
    assert 0.5 < np.mean(np.square(scores)) < 1.5
    assert abs(np.mean(scores)) < 5 / 200**0.5


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_residuals_at_rounding_level_do_not_change_the_correction(precision):
    """Without noise RSS is rounding at small penalties: the last reliable correction is used."""
    Z = np.random.default_rng(1).normal(size=(300, 8))
    y = Z.sum(axis=1, keepdims=True)
    m = Moments.of(Z, y, None, precision)
    eigen = decompose(m)
    sample = [(Z[:60] - m.feature_mean, y[:60] - m.target_mean, None)]
    alphas = eigen.values[-1] * np.logspace(-14, 1, 61)
    corrected = left_out_path(eigen, sample, alphas).mean_squares[:, 0]
    plain = leave_one_out(eigen, sample, alphas)[0]
    finite = np.isfinite(plain)
    ratio = corrected[finite] / plain[finite]
    assert np.array_equal(finite, np.isfinite(corrected))
    assert ((ratio > 0.3) & (ratio < 3)).all()
    assert np.abs(np.diff(np.log(ratio))).max() < 0.1


def test_the_path_spans_the_penalties_that_the_precision_resolves():
    Z, y, w = table(500)
    for precision, low in (("float64", LOWEST), ("float32", 1e-6)):
        eigen = decompose(Moments.of(Z, y, w, precision))
        alphas, top = penalties(eigen), eigen.values[-1]
        assert_close(alphas[0] / top, low, factor=100)
        assert_close(alphas[-1] / top, 10.0, factor=100)
        assert (np.diff(alphas) > 0).all()
        assert np.max(np.diff(np.log10(alphas))) <= 0.25 + 1e-12
        assert eigen.floor <= alphas[0] * (1 + 1e-12)


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
def test_the_chosen_penalty_is_the_best_of_the_path(criterion):
    """Of equal errors the largest penalty is chosen; without rows "loo" is "gcv"."""
    Z, y, w = table(60, noise=2.0)
    eigen, rows, means = problem(Z, y, w)
    solution = solve_ridge(eigen, [rows], means, criterion)
    values = getattr(solution.path, criterion)
    values = -values if criterion == "evidence" else values
    at = np.flatnonzero(solution.path.alphas == solution.alpha)[0]
    assert values[at] <= values.min() + 1e-4 * abs(values.min())
    assert solution.criterion == criterion
    assert solution.outcome is Outcome.SOLVED
    assert solution.path.loo_rows == (60 if criterion == "loo" else 0)
    baseline = solve_ridge(eigen, (), means, criterion)
    assert baseline.criterion == ("gcv" if criterion == "loo" else criterion)
    assert np.isnan(baseline.path.loo).all()
    errors, alphas = np.array([3.0, 1.00005, 1.0, 1.00002, 1.5]), np.arange(1.0, 6.0)
    path = Path(alphas, errors, errors, -errors, alphas)
    assert path.best(criterion) == (2 if criterion == "evidence" else 3)


def outcome(alpha="gcv", precision="float64", Z=None, y=None):
    Z0, y0, _ = table(60, noise=1.0)
    m = Moments.of(Z0 if Z is None else Z, y0 if y is None else y, None, precision)
    solution = solve_ridge(decompose(m), (), (m.feature_mean, m.target_mean), alpha)
    assert isinstance(solution, Solution)
    assert np.isfinite(solution.coef).all()
    return solution.outcome


REPEATED = table(60)[0] @ np.ones((8, 8))
CONSTANT = np.full((60, 1), 7.0)
#: Eigenvalues over ten decades, all of which a target without noise requires.
SCALES = np.logspace(0, -5, 8)
PLAIN = np.random.default_rng(0).normal(size=(60, 8))
DECAYING = {"Z": PLAIN * SCALES, "y": PLAIN.sum(axis=1, keepdims=True)}
#: A target without correlation with the features.
NOISE = np.random.default_rng(5).normal(size=(60, 1))
UNEXPLAINED = {"Z": PLAIN, "y": NOISE - PLAIN @ np.linalg.lstsq(PLAIN, NOISE)[0]}
OUTCOMES = [
    ({}, "SOLVED"),
    ({"alpha": 1.0}, "SOLVED"),
    ({"alpha": 1.0, "precision": "float32"}, "SOLVED"),
    ({"alpha": 0.0}, "SOLVED"),
    ({"alpha": 1e-3, "Z": REPEATED}, "SOLVED"),
    ({"alpha": 1e-14, "Z": REPEATED}, "SINGULAR"),
    ({"alpha": 0.0, "Z": REPEATED}, "SINGULAR"),
    ({"alpha": 1e-8, "Z": REPEATED, "precision": "float32"}, "FLOAT32_LIMITED"),
    ({"precision": "float32", **DECAYING}, "FLOAT32_LIMITED"),
    (DECAYING, "EDGE_LOW"),
    (UNEXPLAINED, "EDGE_HIGH"),
    ({"y": CONSTANT}, "CONSTANT_TARGET"),
    ({"y": CONSTANT, "alpha": "evidence"}, "CONSTANT_TARGET"),
]


@pytest.mark.parametrize(("options", "expected"), OUTCOMES, ids=lambda value: str(value)[:40])
def test_each_outcome_is_reached(options, expected):
    result = outcome(**options)
    assert result is Outcome[expected]
    assert result.is_good == (expected in ("SOLVED", "CONSTANT_TARGET"))


@pytest.mark.parametrize(("fall", "expected"), [(4e-4, True), (6e-4, False)])
def test_errors_level_at_the_lower_edge_need_no_smaller_penalty(fall, expected):
    errors = np.cumprod([1.0, 1 + fall, 1.1, 1.1])
    path = Path(np.logspace(-6, -5, 4), errors, errors, -errors, errors)
    assert path.best("loo") == 0
    assert path.level("loo") is path.level("gcv") is expected
    assert not path.level("evidence")


# ==== No penalty: the solution of least norm, with fewer, as many or more features than rows.

D = 40
ROWS = [10, 38, 39, 40, 41, 42, 60, 300]


def least_norm(Z, y, w, centred):
    """Return coefficients and intercept by numpy.linalg.lstsq of the centred, weighted rows."""
    z, m = (w @ Z / w.sum(), w @ y / w.sum()) if centred else (np.zeros(Z.shape[1]), 0 * y[0])
    root = np.sqrt(w)[:, None]
    coef = np.linalg.lstsq(root * (Z - z), root * (y - m), rcond=None)[0]
    return coef, m - z @ coef


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("n", ROWS)
def test_a_triangular_factor_gives_the_solution_of_least_norm(n, centred):
    rng = np.random.default_rng(0)
    Z, y, w = rng.normal(0.5, 1, (n, D)), rng.normal(7, 1, (n, 2)), rng.uniform(0.5, 2, n)
    pieces = [slice(start, start + 17) for start in range(0, n, 17)]
    parts = [Triangle.of(Z[piece], y[piece], w[piece], centred) for piece in pieces]
    sums = reduce(add, parts[2:] + parts[:1]) + parts[1] if len(parts) > 1 else parts[0]
    moments = Moments.of(Z, y, w) if centred else Moments.of(Z, y, w).about_zero()
    solution = solve_ridge(sums.eigen(), (), (moments.feature_mean, moments.target_mean), 0.0)
    coef, intercept = least_norm(Z, y, w, centred)
    worst = np.linalg.cond(Z) if n == D else 1e3
    assert_close(solution.coef, coef, factor=worst * 10)
    assert_close(solution.intercept, intercept, factor=worst * 10)
    expected = Outcome.LEAST_NORM if n - centred < D else Outcome.SOLVED
    assert solution.outcome is expected
    assert expected.is_good


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [10, 39, 41, 80, 400])
def test_fits_without_penalty_are_least_squares_of_least_norm(n, intercept):
    X, y = gallery.table(n)
    options = {"method": "iid", "n_features": D, "alpha": 0.0, "fit_intercept": intercept}
    fitted = bo.KernelRidge(Gaussian(0.3), random_state=0, **options).fit(X, y)
    Z = fitted.map_(X)
    coef, b = least_norm(Z, y[:, None], np.ones(n), intercept)
    new, _ = gallery.table(50, seed=1)
    Znew = fitted.map_(new)
    factor = 100 * np.linalg.cond(Z - intercept * Z.mean(axis=0)) if n > D else 1e7
    assert_close(fitted.predict(new), Znew @ coef[:, 0] + b, factor=factor)
    if n < D:
        assert_close(fitted.predict(X), y, factor=1e6)
        assert fitted.solution_.outcome is Outcome.LEAST_NORM


def test_more_rows_than_the_sample_are_reduced_to_a_triangular_factor():
    """The last feature of 10,000 rows is 1e-9 of the first: moments cannot resolve it."""
    X = np.random.default_rng(0).normal(size=(10_000, 3)) * [1.0, 1.0, 1e-9]
    y = X @ [1.0, 1.0, 1e9]
    linear = bo.KernelRidge(Linear(), alpha=0.0, method="iid", n_features=4, random_state=0)
    assert np.abs(linear.fit(X, y).predict(X) - y).max() < 1e-5
    assert len(linear.sample_) < 10_000


# ==== Decompositions in steps, which Ctrl-C can interrupt, give the same numbers.

EPS = np.finfo(np.float64).eps
RNG = np.random.default_rng(0)
M = 150


def kernel_matrix(lengthscale):
    return Gaussian(lengthscale)(RNG.standard_normal((M, 3)))


MATRICES = {
    "random": factorisations.symmetrise(RNG.standard_normal((M, M))),
    "kernel": kernel_matrix(1.0),
    "of low rank": kernel_matrix(100.0),
    "diagonal": np.diag(RNG.standard_normal(M)),
    "tridiagonal": np.diag(np.ones(M))
    + np.diag(np.full(M - 1, 0.5), 1)
    + np.diag(np.full(M - 1, 0.5), -1),
    "zero": np.zeros((M, M)),
    "tiny": 1e-200 * kernel_matrix(1.0),
    "huge": 1e200 * kernel_matrix(1.0),
}
every_matrix = pytest.mark.parametrize("name", MATRICES)


@pytest.fixture
def in_steps(monkeypatch):
    for name, value in {"AT_ONCE": 40, "SLAB": 13}.items():
        monkeypatch.setattr(f"bochner.solvers.factorisations.{name}", value)


@every_matrix
def test_eigenvalues_equal_those_of_lapack(name, in_steps):
    A = MATRICES[name]
    expected = scipy.linalg.eigvalsh(A)
    values = eigenvalues(A)
    assert np.all(np.diff(values) >= 0)
    assert values == pytest.approx(expected, rel=0, abs=10 * M * EPS * np.abs(expected).max())


def test_a_matrix_is_factored_and_solved_in_steps(in_steps):
    A = MATRICES["kernel"] + 0.1 * np.eye(M)
    L = lower_factor(A.copy(order="F"))
    assert np.array_equal(L, np.tril(L))
    assert pytest.approx(A, abs=M * EPS * M) == L @ L.T
    B = RNG.standard_normal((M, 30))
    assert pytest.approx(B, abs=1e-11) == L @ factorisations.solve_lower(L, B)
    with pytest.raises(np.linalg.LinAlgError, match="not positive"):
        lower_factor(MATRICES["random"].copy(order="F"))


def test_the_shift_is_raised_until_a_matrix_has_a_factor():
    shifts = []

    def factor(value, A):
        shifts.append(value)
        return np.linalg.cholesky(A + value * np.eye(2))

    assert retry(lambda v: factor(v, -np.eye(2)), 0.0, 0.02)[0, 0] == pytest.approx(1.0)
    assert shifts == pytest.approx([0.0, 0.02, 0.2, 2.0])
    with pytest.raises(np.linalg.LinAlgError):
        retry(lambda v: np.linalg.cholesky(-np.eye(2)), 0.0, 0.02)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_wait_for_a_decomposition():
    """The decomposition continues in its thread, without Python's lock."""
    start = time.monotonic()
    Timer(0.1, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(lambda: time.sleep(30), 5000)
    assert time.monotonic() - start < 10


def test_matrices_that_do_not_fit_into_memory_raise(monkeypatch):
    monkeypatch.setattr("bochner._core.checks._available", lambda swap=False: 300 << 20)
    X = np.zeros((4000, 1)) + np.arange(4000)[:, None]
    phi = bo.draw(Gaussian(), "iid", n_features=4, n_inputs=1, random_state=0)
    match = r"measuring 3,500 rows densely takes at least 392 MB of memory; 315 MB are free\. Lower n_sample"
    with pytest.raises(bo.errors.InvalidInput, match=match):
        bo.certify(phi, X, alpha=1.0, n_sample=3500)


# ==== Marginal likelihood from moments, compared with dense densities and brute force.


def data(n=30, D=7, t=1, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, D)) * np.logspace(0, -1, D)
    return Z, Z @ rng.standard_normal((D, t)) + noise * rng.standard_normal((n, t)) + 2


def eigen_of(Z, y, w=None, centred=True):
    moments = Moments.of(Z, y, w)
    return decompose(moments if centred else moments.about_zero(), centred)


def log_evidence(eigen, alpha, amplitude=None):
    """Return log p(y) of each target, and its derivative in log λ."""
    arguments = eigen, eigen.at([alpha]), None, amplitude
    return criterion_evidence(*arguments)[0], evidence_slope(*arguments)[0]


def dense(Z, y, noise, amplitude, centred):
    """Return the log density of y, or of the contrasts of y that no constant changes."""
    Q = scipy.linalg.null_space(np.ones((1, len(y)))) if centred else np.eye(len(y))
    K = Q.T @ (amplitude * Z @ Z.T + noise * np.eye(len(y))) @ Q
    return multivariate_normal.logpdf(Q.T @ y, np.zeros(len(K)), K)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("D", [7, 50])
def test_the_evidence_is_the_normal_density_of_the_targets(D, centred):
    Z, y = data(D=D)
    for alpha, amplitude in [(0.1, 2.0), (3.0, 0.5)]:
        value, _ = log_evidence(eigen_of(Z, y, centred=centred), alpha, amplitude)
        assert_close(value[0], dense(Z, y[:, 0], alpha * amplitude, amplitude, centred), factor=1e3)


@pytest.mark.parametrize("amplitude", [None, 0.7])
@pytest.mark.parametrize("centred", [True, False])
def test_slopes_of_the_evidence_equal_differences(centred, amplitude):
    eigen, step = eigen_of(*data(t=2), centred=centred), 1e-4
    for alpha in (1e-2, 1.0, 30.0):
        high, low = (log_evidence(eigen, alpha * np.exp(s), amplitude)[0] for s in (step, -step))
        slope = log_evidence(eigen, alpha, amplitude)[1]
        assert np.abs(slope / ((high - low) / (2 * step)) - 1).max() < 1e-5


@pytest.mark.parametrize("law", [{}, {"noise": 0.2}, {"amplitude": 0.7}])
@pytest.mark.parametrize("centred", [True, False])
def test_the_maximum_equals_that_of_brute_force(centred, law):
    Z, y = data()
    best_law = maximise_evidence(eigen_of(Z, y, centred=centred), **law)

    def loss(logs):
        noise, amplitude = np.exp(logs)
        values = {"noise": noise, "amplitude": amplitude} | law
        return -dense(Z, y[:, 0], **values, centred=centred)

    options = {"xatol": 1e-8, "fatol": 1e-10, "maxiter": 2000}
    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options=options)
    expected = dict(zip(("noise", "amplitude"), np.exp(best.x), strict=True)) | law
    assert abs(best_law.noise[0] / expected["noise"] - 1) < 1e-5
    assert abs(best_law.amplitude[0] / expected["amplitude"] - 1) < 1e-5
    assert_close(best_law.log_likelihood[0], -best.fun, factor=1e5)
    assert_close(best_law.alpha, best_law.noise / best_law.amplitude)
    assert best_law.outcome is EvidenceOutcome.SOLVED


def test_edges_and_limits_are_reported_as_outcomes():
    Z, y = data(noise=0.0)
    assert maximise_evidence(eigen_of(Z, y)).outcome is EvidenceOutcome.EDGE_LOW
    assert not EvidenceOutcome.EDGE_LOW.is_good
    Z, y = (np.random.default_rng(i).standard_normal((40, 3 - 2 * i)) for i in (0, 1))
    Q = np.linalg.qr(np.column_stack([np.ones(40), Z]))[0]
    assert maximise_evidence(eigen_of(Z, y - Q @ (Q.T @ y))).outcome is EvidenceOutcome.EDGE_HIGH
    Z, y = data(noise=1e-6)
    single = maximise_evidence(decompose(Moments.of(Z, y, precision="float32")))
    assert single.outcome is EvidenceOutcome.FLOAT32_LIMITED
    assert 'precision="float64"' in str(single.outcome)
    Z, y = data(D=3)
    eigen = eigen_of(np.hstack([Z, Z]), y)
    tiny = maximise_evidence(eigen, noise=1e-20, amplitude=1.0)
    assert tiny.outcome is EvidenceOutcome.SINGULAR
    assert tiny.alpha[0] == 0.1 * eigen.floor


def test_a_constant_target_has_neither_noise_nor_amplitude():
    Z, y = data(t=2)
    y[:, 0] = 5.0
    result = maximise_evidence(eigen_of(Z, y))
    assert result.noise[0] == result.amplitude[0] == 0
    assert result.noise[1] > 0
    assert result.outcome is EvidenceOutcome.SOLVED
    single = maximise_evidence(eigen_of(Z, y[:, :1]), noise=0.1)
    assert single.outcome is EvidenceOutcome.CONSTANT_TARGET
    assert single.outcome.is_good
    assert single.noise[0] == 0.1


@pytest.mark.parametrize("centred", [True, False])
def test_noise_below_the_resolution_gets_the_amplitude_of_no_noise(centred):
    """At the smallest resolved λ, σ²/λ would be an amplitude as small as σ²."""
    Z, y = data(n=10, D=20, noise=0.0)
    result = maximise_evidence(eigen_of(Z, y, centred=False), noise=0.0)
    assert result.noise[0] == 0
    assert result.amplitude[0] == pytest.approx((y.T @ np.linalg.solve(Z @ Z.T, y) / 10).item())
    x = np.linspace(-3, 3, 40)
    Z = np.linalg.cholesky(np.exp(-((x[:, None] - x) ** 2) / 2) + 1e-14 * np.eye(40))
    y = np.sin(2 * x)[:, None]
    smooth, plain = eigen_of(Z, y, centred=centred), eigen_of(*data(D=50), centred=centred)
    for eigen, outcome in [(smooth, EvidenceOutcome.SINGULAR), (plain, EvidenceOutcome.SOLVED)]:
        baseline = maximise_evidence(eigen, noise=0.0)
        for noise in (1e-20, 1e-30, 1e-60):
            result = maximise_evidence(eigen, noise=noise)
            assert result.noise[0] == noise
            assert result.amplitude[0] == baseline.amplitude[0]
            assert result.alpha[0] == eigen.floor
            assert result.outcome is outcome
