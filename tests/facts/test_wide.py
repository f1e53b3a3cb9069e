"""Ridge regression of more features than a Gram matrix is formed of, against the dense solution."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gallery import maker

import bochner as bo
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian
from bochner.solvers.ridge import iterative, search
from bochner.solvers.ridge.iterative import SampleRows, WideProblem, solve_wide
from bochner.solvers.ridge.krylov import GrowingSubspace, ShiftedSystems
from bochner.solvers.ridge.solution import Outcome
from bochner.sums.passes import LOCAL, gram_products, row_signs

N, D, WIDE = 3000, 240, 1_002


def table(n=N, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.column_stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 2] + 40.0])
    return X, y + noise * rng.standard_normal(y.shape), rng.uniform(0.2, 2.0, n)


PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)


def problem(X, y, w, m=400, signs=4):
    """The problem of a dense twin, as a wide fit makes it."""
    Z, W = PHI(X), w.sum()
    mean, target = w @ Z / W, w @ y / W
    Zc, yc = Z - mean, y - target
    blocks = Blocks.from_arrays(X, y, w)

    def multiply(V, precision):
        return gram_products(partial(LOCAL.sum, blocks=blocks), PHI.features, V, mean, precision)

    power = w @ yc**2
    drawn = Zc.T @ (np.sqrt(w)[:, None] * row_signs(0, 0, len(w), signs))
    some = np.random.default_rng(1).permutation(len(w))[:m]
    sample = SampleRows(Zc[some], yc[some], w[some], W)
    cross = Zc.T @ (w[:, None] * yc)
    return WideProblem(multiply, cross, power, W, len(w), True, drawn, sample), (mean, target), Zc


def exact(Zc, w, cross, alpha):
    return np.linalg.solve(Zc.T @ (w[:, None] * Zc) + alpha * np.eye(D), cross)


@pytest.mark.parametrize("alpha", [3.0, 0.1])
def test_a_given_penalty_is_solved_within_what_the_history_says(alpha):
    """By a preconditioner of some rows; a constant target is that constant."""
    X, y, w = table()
    wide, means, Zc = problem(X, y, w)
    found = solve_wide(wide, np.array([alpha]), False, means)
    f = Zc @ (found.coef - exact(Zc, w, wide.cross, alpha))
    rms = np.sqrt(w @ f**2 / w.sum()) / wide.spread
    bound = float(found.history[-1].split("at most ")[1].split(" of")[0])
    assert rms.max() <= 1.06 * bound  # one digit is written
    assert bound <= 1e-3
    assert found.outcome is Outcome.SOLVED
    sample, r = wide.sample, np.random.default_rng(0).standard_normal((D, 1))
    P = w.sum() / sample.w.sum() * sample.Z.T @ (sample.w[:, None] * sample.Z)
    expected = np.linalg.solve(P + alpha * np.eye(D), r)
    scale = np.abs(expected).max()
    assert np.abs(sample.inverse(r, np.array([alpha])) - expected).max() < 1e-7 * scale
    level = replace(wide, power=np.zeros(2), cross=np.zeros((D, 2)))
    found = solve_wide(level, "loo", False, (means[0], np.full(2, 7.0)))
    assert found.outcome is Outcome.CONSTANT_TARGET
    np.testing.assert_array_equal(found.coef, 0)
    np.testing.assert_allclose(found.intercept, 7.0)


def shifted(k=60, seed=0, noise=0.0):
    """A matrix of falling eigenvalues, two right sides at three penalties, and products."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((k, k)))
    G = (Q * 10.0 ** -np.linspace(0, 5, k)) @ Q.T
    right = np.tile(G @ rng.standard_normal((k, 2)), 3)
    alphas = np.repeat([1e-3, 1e-4, 1e-5], 2)
    systems = ShiftedSystems(right, alphas, np.ones(6))
    calls = []

    def multiply(V, precision):
        calls.append(V.shape[1])
        product = G @ V
        if precision == "float32":
            product *= 1 + noise * rng.standard_normal(product.shape)
        return product

    exactly = [np.linalg.solve(G + a * np.eye(k), b) for a, b in zip(alphas, right.T, strict=True)]
    return G, systems, multiply, np.stack(exactly, axis=1), calls


def test_one_subspace_solves_for_all_penalties_in_the_passes_of_one():
    G, systems, multiply, exactly, calls = shifted()
    space = GrowingSubspace(multiply, 60, 2, "float64")
    found = space.solve(systems, np.divide, 1e-6, 100)
    error = found.u - exactly
    assert found.converged
    # the bound is of the error in the norm of G
    assert np.all(np.einsum("ij,ij->j", error, G @ error) <= found.bound**2 * (1 + 1e-9))
    left = systems.right - G @ found.u - systems.alphas * found.u
    np.testing.assert_allclose(found.residual, left, atol=1e-13)
    assert space.passes == len(calls) == found.iterations <= 32
    again = space.solve(systems, np.divide, 1e-6, 100)
    assert again.iterations == found.iterations  # what was learned is kept


def test_exact_residuals_correct_what_products_got_wrong():
    """And passes that are used up are said."""
    _, systems, multiply, exactly, _ = shifted(noise=1e-4)
    space = GrowingSubspace(multiply, 60, 2, "float32")
    wrong = space.solve(systems, np.divide, 1e-6, 100)
    left = systems.right - multiply(wrong.u, "float64") - systems.alphas * wrong.u
    assert systems.bound(left).max() > 1e-6
    found, first = space.exactly(systems, np.divide, 1e-6, 200)
    assert first > 1e-6
    assert found.converged
    np.testing.assert_allclose(found.u, exactly, atol=1e-6 * 2 / 1e-5**0.5)
    found, first = GrowingSubspace(multiply, 60, 2, "float64").exactly(systems, np.divide, 1e-12, 5)
    assert not found.converged
    assert found.iterations <= 6
    assert first > 1e-12


def test_leave_one_out_errors_and_traces_are_those_of_the_dense_fit():
    X, y, w = table()
    w = np.ones(N)
    wide, means, Zc = problem(X, y, w, m=1000, signs=32)
    path = solve_wide(wide, "loo", False, means).path
    U, s, _ = np.linalg.svd(Zc, full_matrices=False)
    r = y - means[1]
    for k, alpha in enumerate(path.alphas):
        shrunk = s**2 / (s**2 + alpha)
        hat = U @ (shrunk[:, None] * (U.T @ r))
        each = (((r - hat) / (1 - U**2 @ shrunk - 1 / N)[:, None]) ** 2).mean(axis=0)
        loo = (each / wide.power).mean() * wide.power.mean()
        assert abs(path.loo[k] - loo) < 5 * path.loo_error[k]
        # Hutchinson: variance below 2 |H|² / 32
        deviation = np.sqrt(2 * (shrunk**2).sum() / 32)
        assert abs(path.effective_dimension[k] - shrunk.sum()) < 5 * deviation + 0.01 * D
    assert np.all(path.loo_error < 0.2 * path.loo)


def test_standard_errors_of_left_out_errors_are_those_of_a_jackknife():
    """Of a sample of one row in fifty, by what comes out without each of its rows in turn."""
    m, alpha = 60, 1.0
    X, y, _ = table()
    wide, (_, mean), Zc = problem(X, y, np.ones(N), m=m)
    coef, sample = exact(Zc, np.ones(N), wide.cross, alpha), wide.sample
    H = Zc @ np.linalg.solve(Zc.T @ Zc + alpha * np.eye(D), Zc.T)
    left = N * ((sample.y - sample.Z @ coef) ** 2).mean(axis=0)

    def found(kept):
        fewer = SampleRows(sample.Z[kept], sample.y[kept], sample.w[kept], sample.weight)
        return iterative.left_out(replace(wide, sample=fewer), alpha, coef, left, H.trace(), 0.0)

    without = np.array([found(np.arange(m) != i)[0] for i in range(m)])
    jackknife = (m - 1) / m * ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    errors = (y - mean - H @ (y - mean)) / (1 - H.diagonal() - 1 / N)[:, None]
    expected = (1 - m / N) * jackknife + m / N * (errors**2).var(axis=0) / m
    assert found(np.arange(m))[1] == pytest.approx(np.sqrt(expected), rel=0.15)


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
    assert 0.01 < iterative.guess(wide)[0] / solve_wide(wide, "gcv", False, means).alpha < 100


@pytest.mark.parametrize("start", [0.0, -10.0])
@pytest.mark.parametrize("at", [-0.4, 0.0, 0.25])
def test_the_penalty_lies_where_a_parabola_through_the_least_errors_is_least(at, start):
    """Errors are a parabola in log alpha; where the least is at an end it is that penalty."""
    x = start + np.arange(4.0)
    errors = 2.0 + 3.0 * (x - x[1] - at) ** 2
    found = lambda errors: np.log(search.least_of_parabola(np.exp(x), errors))
    assert found(errors) == pytest.approx(x[1] + at, abs=1e-12)
    assert [found(np.sort(errors)), found(np.sort(errors)[::-1])] == pytest.approx([x[0], x[3]])


ROWS = 8300  # more than are kept of a pass
SETTINGS = {"method": "orthogonal", "n_features": WIDE, "alpha": 30.0, "random_state": 0}
learner = maker(bo.KernelRidge, Gaussian(1.0), **SETTINGS)


@pytest.fixture(scope="module")
def rows():
    X, y, w = table(ROWS)
    return X, y[:, 0], w


@pytest.fixture(scope="module")
def model(rows):
    """A fit of more features than moments are kept of, which here are a tenth as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.models.representations.features.WIDE", WIDE // 10 * 9)
        yield learner().fit(*rows)


def test_the_gradient_of_what_is_minimised_vanishes(model, rows, tmp_path):
    X, y, w = rows
    beta, r, slope = model.coef_, y - model.predict(X), -30.0 * model.coef_
    for some in np.array_split(np.arange(ROWS), 20):
        slope += model.map_(X[some].astype(np.float32)).T @ (w[some] * r[some])
    W, spread = w.sum(), np.sqrt(np.cov(y, aweights=w))
    assert abs(w @ r) < 1e-4 * W * spread  # the intercept
    assert np.linalg.norm(slope) / np.sqrt(4 * 30.0 * W) < 1.5e-3 * spread
    assert np.linalg.norm(beta) > 0.1
    assert model.solution_.outcome.good
    assert model.certificate_.n_features == WIDE
    bo.save(model, tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    np.testing.assert_array_equal(loaded.predict(X[:9]), model.predict(X[:9]))


@pytest.mark.slow
def test_a_killed_fit_goes_on_to_the_bits_of_other_blocks(model, rows, tmp_path):
    blocks, stopped = Blocks.from_arrays(*rows).with_rows(1000), []

    class Killed(Exception):
        pass

    def stopping(piece):
        stopped.append(1)
        if len(stopped) == 20:  # of 31
            raise Killed
        return piece

    where = bo.engines.Local(checkpoint=tmp_path / "run", every=1.0)
    with pytest.raises(Killed):
        learner().fit_blocks(blocks.map(stopping), where=where)
    done = learner().fit_blocks(blocks.map(stopping), where=where)
    np.testing.assert_array_equal(done.coef_, model.coef_)


@pytest.mark.parametrize("alpha", ["loo", 0.5])
def test_rows_are_predicted_without_each(alpha, monkeypatch):
    """As by moments of the same features, and so intervals and probabilities."""
    X, y, _ = table(2000)
    y = y[:, 0]
    options = {"n_features": 128, "alpha": alpha}
    moments = learner(**options).fit(X, y).fit_
    monkeypatch.setattr("bochner.models.representations.features.WIDE", 8)
    monkeypatch.setattr("bochner.models.representations.features.kept_rows", lambda _: 100)
    model = learner(**options).fit(X, y)
    found = model.fit_.left_out()
    sample = model.fit_.representation.sample.lowest(len(found.w))
    rows = moments.representation
    rows = replace(rows, sums=rows.moments, sample=sample)
    right = rows.left_out(moments.solution).errors
    assert (found.errors - right).std() < 0.25 * right.std()  # leverages are of a few hundred rows
    new, target, _ = table(1000, seed=1)
    _, low, high = model.predict_interval(new, 0.9)
    held = np.mean((low <= target[:, 0]) & (target[:, 0] <= high))
    # len(found.w) scores decide where the bounds lie
    assert abs(held - 0.9) < 5 * np.sqrt(0.09 / len(found.w) + 0.09 / 1000)
    labels = bo.KernelRidgeClassifier(**model.get_params(deep=False)).fit(X, y > 0)
    assert labels.calibration_.log_loss < 0.6
    np.testing.assert_array_equal(labels.predict_proba(X)[:, 1] > 0.5, labels.predict(X))


def test_what_needs_moments_is_refused(model, rows):
    X, y, _ = rows
    more = "a fit with more than 10,000 features"
    for call in (lambda: model.partial_fit(X[:5], y[:5]), model.solve_again):
        with pytest.raises(InvalidInput, match=f"(partial_fit|solve_again): {more}"):
            call()
    with pytest.raises(AttributeError, match=f"moments_: {more}"):
        _ = model.moments_
    with pytest.raises(InvalidInput, match="sample weights must have a sum above"):
        learner().fit(X, y, np.full(ROWS, 1e-95))


def test_few_rows_of_more_features_are_decomposed_without_their_gram_matrix(monkeypatch):
    monkeypatch.setattr("bochner.models.representations.features.decompose", None)
    X, y, _ = table(400)
    model = learner(Gaussian(2.0), n_features=800, alpha=2.0).fit(X, y)
    Z = model.map_(X) - model.map_(X).mean(axis=0)
    dual = np.linalg.solve(Z @ Z.T + 2 * np.eye(400), y - y.mean(axis=0))
    np.testing.assert_allclose(model.predict(X), y.mean(axis=0) + Z @ (Z.T @ dual), atol=1e-9)
