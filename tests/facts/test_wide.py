"""Ridge regression of more features than a Gram matrix is formed of, against the dense solution."""

import numpy as np
import pytest

import bochner as bo
from bochner.data import Blocks
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian
from bochner.solvers import JudgingRows, Outcome, RowFactor, WideProblem, guessed, solve_wide
from bochner.sums import LOCAL, FirstsOf, ProductsOf, row_signs

N, D, WIDE = 3000, 240, 10_002
ORIGIN = np.array([0.3, -1.0])


def table(n=N, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.column_stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 2] + 40.0])
    return X, y + noise * rng.standard_normal(y.shape), rng.uniform(0.2, 2.0, n)


PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)


def summed(X, y, w, block_rows=512):
    blocks = Blocks.from_arrays(X, y, w).with_rows(block_rows)
    summand = FirstsOf(PHI.features, D, ORIGIN, 0, 4)
    return blocks, summand.found(LOCAL.sum(summand, blocks))


def problem(X, y, w, m=400, signs=4):
    """The problem of a dense twin, as a wide fit makes it."""
    Z, W = PHI(X), w.sum()
    mean, target = w @ Z / W, w @ y / W
    Zc, yc = Z - mean, y - target
    blocks = Blocks.from_arrays(X, y, w)

    def multiply(V, precision):
        products = ProductsOf(PHI.features, V, mean, precision)
        return products.found(LOCAL.sum(products, blocks))

    power = w @ yc**2
    drawn = Zc.T @ (np.sqrt(w)[:, None] * row_signs(0, 0, len(w), signs))
    some = np.random.default_rng(1).permutation(len(w))[:m]
    judges = JudgingRows(Zc[some], yc[some], w[some])
    cross = Zc.T @ (w[:, None] * yc)
    return WideProblem(multiply, cross, power, W, len(w), True, drawn, judges), (mean, target), Zc


def exact(Zc, w, cross, alpha):
    return np.linalg.solve(Zc.T @ (w[:, None] * Zc) + alpha * np.eye(D), cross)


def test_one_pass_makes_the_sums_of_all_rows():
    X, y, w = table()
    w[:7] = 0
    _, found = summed(X, y, w)
    Z, about, signs = PHI(X), y - ORIGIN, row_signs(0, 0, N, 4)
    assert found.rows == N - 7
    np.testing.assert_allclose(found.weight, w.sum(), rtol=1e-12)
    np.testing.assert_allclose(found.feature_sum, w @ Z, atol=1e-9 * w.sum())
    np.testing.assert_allclose(found.cross, Z.T @ (w[:, None] * about), rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(found.squares, w @ about**2, rtol=1e-12)
    np.testing.assert_allclose(found.drawn, Z.T @ (np.sqrt(w)[:, None] * signs), atol=1e-8)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_pass_multiplies_by_the_gram_matrix(precision):
    X, y, w = table()
    Z = PHI(X)
    mean = w @ Z / w.sum()
    V = np.random.default_rng(2).standard_normal((D, 3)) * [1e-9, 1.0, 1e9]
    blocks, _ = summed(X, y, w)
    products = ProductsOf(PHI.features, V, mean, precision)
    found = products.found(LOCAL.sum(products, blocks))
    expected = (Z - mean).T @ (w[:, None] * ((Z - mean) @ V))
    # a sum of N products rounded to float32 at each of two multiplications
    unit = np.finfo(precision).eps * np.sqrt(D)
    error = np.linalg.norm(found - expected, axis=0) / np.linalg.norm(expected, axis=0)
    assert error.max() < 10 * unit


def test_signs_of_rows_do_not_depend_on_blocks():
    whole = row_signs(3, 0, 100, 5)
    parts = [row_signs(3, 0, 41, 5), row_signs(3, 41, 59, 5)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert set(np.unique(whole)) == {-1.0, 1.0}
    many = row_signs(3, 0, 40_000, 5)
    # 25 means and products of 40,000 signs, of deviation 1/200 each: 5.5 deviations, one in 10⁶
    products = many.T @ many / len(many) - np.eye(5)
    assert max(abs(products).max(), abs(many.mean(axis=0)).max()) < 5.5 / 200


def test_the_preconditioner_is_the_inverse_of_what_it_is_said_to_be():
    X, y, w = table(400)
    wide, _, _ = problem(X, y, w, m=100)
    factor, judges = wide.factor, wide.judges
    many = w.sum() / judges.w.sum()
    P = many * judges.Z.T @ (judges.w[:, None] * judges.Z)
    r = np.random.default_rng(0).standard_normal((D, 2))
    alphas = np.array([0.1, 3.0])
    found = factor.inverse(alphas)(r)
    for k, alpha in enumerate(alphas):
        expected = np.linalg.solve(P + alpha * np.eye(D), r[:, k])
        np.testing.assert_allclose(found[:, k], expected, rtol=1e-7, atol=1e-9)
    assert isinstance(factor, RowFactor)


@pytest.mark.parametrize("alpha", [3.0, 0.1])
def test_a_given_penalty_is_solved_within_what_the_history_says(alpha):
    X, y, w = table()
    wide, means, Zc = problem(X, y, w)
    found = solve_wide(wide, np.array([alpha]), False, means)
    f = Zc @ (found.coef - exact(Zc, w, wide.cross, alpha))
    rms = np.sqrt(w @ f**2 / w.sum()) / wide.spread
    bound = float(found.history[-1].split("within ")[1].split(" of")[0])
    assert rms.max() <= 1.06 * bound  # one digit is written
    assert bound <= 1e-3
    assert found.outcome is Outcome.SOLVED
    assert found.criterion == "given"


def test_leave_one_out_errors_and_traces_are_those_of_the_dense_fit():
    X, y, w = table()
    w = np.ones(N)
    wide, means, Zc = problem(X, y, w, m=1000, signs=32)
    found = solve_wide(wide, "loo", False, means)
    path = found.path
    for k, alpha in enumerate(path.alphas):
        H = Zc @ np.linalg.solve(Zc.T @ Zc + alpha * np.eye(D), Zc.T)
        errors = (y - means[1] - H @ (y - means[1])) / (1 - H.diagonal() - 1 / N)[:, None]
        each = (errors**2).mean(axis=0)
        loo = (each / wide.power).mean() * wide.power.mean()
        assert abs(path.loo[k] - loo) < 5 * path.loo_error[k]
        # Hutchinson: variance below 2 |H|² / 32
        deviation = np.sqrt(2 * (H**2).sum() / 32)
        assert abs(path.effective_dimension[k] - np.trace(H)) < 5 * deviation + 0.01 * D
    assert np.all(path.loo_error < 0.2 * path.loo)


def dense_errors(wide, Zc, y, w, alpha):
    """Leave-one-out errors of each target, by leverages of all rows."""
    A = Zc.T @ (w[:, None] * Zc) + alpha * np.eye(D)
    h = np.einsum("ij,ji->i", Zc, np.linalg.solve(A, Zc.T)) + 1 / w.sum()
    r = y - w @ y / w.sum() - Zc @ np.linalg.solve(A, wide.cross)
    return w @ (r / (1 - np.minimum(w, 1.0) * h)[:, None]) ** 2 / w.sum()


def test_each_target_has_the_penalty_of_its_least_error():
    X, y, w = table(noise=1.0)
    wide, means, Zc = problem(X, y, w)
    found = solve_wide(wide, "loo", True, means)
    grid = [dense_errors(wide, Zc, y, w, alpha) for alpha in np.geomspace(0.03, 30, 13)]
    ours = [dense_errors(wide, Zc, y, w, alpha)[k] for k, alpha in enumerate(found.alpha)]
    # a step of the path is left out where it gains less than 0.5 %
    assert np.all(ours < 1.007 * np.min(grid, axis=0))


def test_a_sample_alone_guesses_the_order_of_the_penalty():
    X, y, w = table(noise=1.0)
    wide, means, _ = problem(X, y, w)
    found = solve_wide(wide, "gcv", False, means)
    assert 0.01 < guessed(wide).alpha / found.alpha < 100


def test_a_constant_target_is_that_constant():
    X, _, w = table()
    wide, means, _ = problem(X, np.full((N, 2), 7.0), w)
    wide = WideProblem(**{**vars(wide), "power": np.zeros(2), "cross": np.zeros((D, 2))})
    found = solve_wide(wide, "loo", False, means)
    assert found.outcome is Outcome.CONSTANT_TARGET
    np.testing.assert_array_equal(found.coef, 0)
    np.testing.assert_allclose(found.intercept, 7.0)


# --- the learner -------------------------------------------------------------------------------


ROWS = 8300  # more than are kept of a pass


@pytest.fixture(scope="module")
def rows():
    X, y, w = table(ROWS)
    return X, y[:, 0], w


def learner(**options):
    settings = {"method": "orthogonal", "n_features": WIDE, "alpha": 30.0, "random_state": 0}
    return bo.KernelRidge(Gaussian(1.0), **{**settings, **options})


@pytest.fixture(scope="module")
def model(rows):
    return learner().fit(*rows)


def test_the_gradient_of_what_is_minimised_vanishes(model, rows):
    X, y, w = rows
    beta, r, slope = model.coef_, y - model.predict(X), -30.0 * model.coef_
    for some in np.array_split(np.arange(ROWS), 20):
        slope += model.map_(X[some].astype(np.float32)).T @ (w[some] * r[some])
    W, spread = w.sum(), np.sqrt(np.cov(y, aweights=w))
    assert abs(w @ r) < 1e-4 * W * spread  # the intercept
    assert np.linalg.norm(slope) / np.sqrt(4 * 30.0 * W) < 1.5e-3 * spread
    assert np.linalg.norm(beta) > 0.1


def test_a_killed_fit_goes_on_to_the_bits_of_other_blocks(model, rows, tmp_path):
    blocks, stopped = Blocks.from_arrays(*rows).with_rows(1000), []

    class Killed(Exception):
        pass

    def stopping(piece):
        stopped.append(1)
        if len(stopped) == 60:
            raise Killed
        return piece

    where = bo.engines.Local(checkpoint=tmp_path / "run", every=1.0)
    with pytest.raises(Killed):
        learner().fit_blocks(blocks.changed(stopping), where=where)
    done = learner().fit_blocks(blocks.changed(stopping), where=where)
    np.testing.assert_array_equal(done.coef_, model.coef_)


def test_what_was_learned(model, rows, tmp_path):
    X, y, _ = rows
    assert model.alpha_ == 30.0
    assert model.solution_.outcome.good
    assert np.mean((model.predict(X) - y) ** 2) < 0.2
    assert model.certificate_.n_features == WIDE
    bo.save(model, tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    np.testing.assert_array_equal(loaded.predict(X[:9]), model.predict(X[:9]))


def test_what_needs_moments_is_refused(model, rows):
    X, y, _ = rows
    with pytest.raises(InvalidInput, match=r"partial_fit: a fit with more than 10,000 features"):
        model.partial_fit(X[:5], y[:5])
    with pytest.raises(InvalidInput, match=r"solve_again: a fit with more than 10,000 features"):
        model.solve_again()
    with pytest.raises(AttributeError, match="moments_: a fit with more than 10,000 features"):
        _ = model.moments_


def test_vanishing_weights_and_wrong_penalties_are_refused(rows):
    X, y, _ = rows
    with pytest.raises(InvalidInput, match="sample weights must have a sum above"):
        learner().fit(X, y, np.full(ROWS, 1e-95))
    with pytest.raises(InvalidInput, match="alpha must be one number, or one for each of the 1"):
        learner(alpha=[1.0, 2.0]).fit(X, y)


def test_fewer_features_keep_their_moments(rows):
    few = learner(n_features=64).fit(*rows)
    assert few.moments_.rows == ROWS
