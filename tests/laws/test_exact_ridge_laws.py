"""Penalties by fold and by target, and the exact answer by conjugate gradients."""

import warnings

import numpy as np
import pytest
from gallery import table
from sklearn.kernel_ridge import KernelRidge as Exact
from tolerance import assert_close

import bochner as bo
from bochner import Blocks
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Linear, Matern
from bochner.models.ridge.exact import prepare
from bochner.models.ridge.gathered import gather
from bochner.solvers.ridge.solution import Outcome

KERNEL = Gaussian(lengthscale=0.8)


def model(kernel=KERNEL, **changes):
    options = dict(method="orthogonal", n_features=64, alpha=0.3, random_state=0) | changes
    return bo.KernelRidge(kernel, **options)


# ---- a penalty for each target


@pytest.mark.parametrize("method", ["orthogonal", "exact"])
def test_a_list_of_penalties_is_one_for_each_target(method):
    X, y = table(t=2)
    together = model(alpha=[0.1, 5.0], method=method).fit(X, y)
    for i, alpha in enumerate((0.1, 5.0)):
        alone = model(alpha=alpha, method=method).fit(X, y[:, i])
        assert_close(together.predict(X)[:, i], alone.predict(X), factor=1e9)
        assert_close(
            together.solution_.residual_variance[i],
            alone.solution_.residual_variance[0],
            factor=1e8,
        )
    assert "alpha=0.1, 5 by given" in repr(together.solution_)
    if method == "orthogonal":
        assert together.certificate_.alpha == 0.1
    with pytest.raises(InvalidInput, match=r"one for each of the 2 targets; got 3"):
        model(alpha=[0.1, 1.0, 2.0], method=method).fit(X, y)
    with pytest.raises(InvalidInput, match=r"alpha must be a number for each target; got an empty"):
        model(alpha=[]).fit(X, y)
    with pytest.raises(InvalidInput, match=r"alpha\[1\] must be a non-negative finite number"):
        model(alpha=[1.0, -1.0]).fit(X, y)


# ---- the kernel itself


def dual(kernel, X, y, alpha, w):
    """Coefficients and intercept by one dense system: K c + alpha c/w + b = y, Σ c = 0."""
    n = len(X)
    system = np.block([[kernel(X) + alpha * np.diag(1 / w), np.ones((n, 1))], [np.ones((1, n)), 0]])
    found = np.linalg.solve(system, np.vstack([y, np.zeros((1, y.shape[1]))]))
    return found[:-1], found[-1]


KERNELS = [KERNEL, Matern(1.5, 1.0) + Linear() * 0.3, Gaussian(0.1) * 2.0]


@pytest.mark.parametrize("alpha", [1e-3, 0.5])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_exact_without_intercept_is_scikit_learns_kernel_ridge(kernel, alpha):
    X, y = table(400, t=2)
    w = np.random.default_rng(1).uniform(0.1, 2, 400)
    ours = model(kernel, method="exact", alpha=alpha, fit_intercept=False).fit(X, y, w)
    theirs = Exact(kernel="precomputed", alpha=alpha).fit(kernel(X), y, w)
    new = table(200, seed=1)[0]
    difference = np.abs(ours.predict(new) - theirs.predict(kernel(new, X)))
    assert (difference <= 1e-6 * np.sqrt((w @ y**2) / w.sum())).all()
    assert ours.solution_.outcome is Outcome.SOLVED
    assert_close(ours.dual_coef_, theirs.dual_coef_, factor=1e9 / alpha)
    assert (ours.intercept_ == 0).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_exact_with_intercept_is_the_bordered_system(kernel):
    X, y = table(400, t=2)
    w = np.random.default_rng(1).uniform(0.1, 2, 400)
    w[::5] = 0
    ours = model(kernel, method="exact", alpha=0.01).fit(X, y, w)
    kept = w > 0
    c, b = dual(kernel, X[kept], y[kept], 0.01, w[kept])
    new = table(200, seed=1)[0]
    assert np.abs(ours.predict(new) - kernel(new, X[kept]) @ c - b).max() < 1e-6 * y.std()
    assert_close(ours.intercept_, b, factor=1e8)
    residual = y[kept] - kernel(X[kept]) @ c - b
    assert_close(ours.solution_.residual_variance, w[kept] @ residual**2 / w.sum(), factor=1e8)
    assert abs(ours.dual_coef_.sum(axis=0)).max() < 1e-9 * np.abs(ours.dual_coef_).sum()
    assert len(ours.X_fit_) == kept.sum()


@pytest.mark.parametrize("preconditioner", ["mercer", "orthogonal", "uniform"])
def test_any_features_precondition(preconditioner):
    X, y = table(300)
    method = bo.ExactKernel(preconditioner=preconditioner, tol=1e-7)
    found = model(method=method, alpha=0.05).fit(X, y)
    assert found.solution_.outcome is Outcome.SOLVED
    assert found.choice_.reason.startswith("The exact kernel, by conjugate gradients")
    expected = model(method="exact", alpha=0.05).fit(X, y)
    assert np.abs(found.predict(X) - expected.predict(X)).max() < 1e-6


def test_an_iteration_that_does_not_converge_says_what_to_do():
    X, y = table(400)
    method = bo.ExactKernel("nystrom", max_iter=3)
    with pytest.warns(SolutionWarning, match=r"iteration stopped before.*Raise alpha, or n_feat"):
        fitted = model(method=method, alpha=1e-6, n_features=8).fit(X, y)
    assert fitted.solution_.outcome is Outcome.NOT_CONVERGED
    assert not fitted.solution_.outcome.good
    assert "pass 3: predictions within" in fitted.solution_.history[-2]
    assert np.isfinite(fitted.predict(X)).all()


def test_constant_targets_and_one_row_need_no_iteration():
    X, y = table(50)
    for rows, targets in ((X, 0 * y + 5.0), (X[:1], y[:1])):
        fitted = model(method="exact").fit(rows, targets)
        assert fitted.solution_.outcome is Outcome.CONSTANT_TARGET
        assert_close(fitted.predict(rows), targets)


@pytest.mark.parametrize(
    ("alpha", "precision"),
    [
        (0.3, "float32"),
        ((0.3, 3.0), "float32"),
        (1e-4, "float64"),
        (1e-5, "float64"),
        ("loo", "float64"),
    ],
)
def test_features_are_rounded_where_that_is_little_beside_a_given_penalty(alpha, precision):
    X, y = table(400, t=2)
    fitted = model(method=bo.ExactKernel("nystrom"), alpha=alpha).fit(X, y)
    rows = gather(Blocks.from_arrays(X, y))
    Z = prepare(fitted.fit_.spec, fitted.fit_.chosen, rows).Z
    assert Z.dtype == precision
    assert_close(Z, fitted.map_(X) - fitted.map_(X).mean(axis=0), precision, factor=100)


def test_columns_that_float32_cannot_hold_are_solved_in_float64():
    X, y = table(200)
    for scale in (1e200, 1e-200):
        fitted = model(Gaussian(scale), method="exact", alpha=0.1).fit(X * scale, y)
        expected = model(Gaussian(1.0), method="exact", alpha=0.1).fit(X, y)
        assert np.abs(fitted.predict(X * scale) - expected.predict(X)).max() < 1e-6


def test_what_an_exact_fit_has_not_is_said():
    X, y = table(60)
    exact, features = model(method="exact").fit(X, y), model().fit(X, y)
    for name in ("coef_", "certificate_", "moments_"):
        assert not hasattr(exact, name)
        assert hasattr(features, name)
    with pytest.raises(AttributeError, match=r"exact fit has no features; see dual_coef_"):
        exact.coef_  # noqa: B018
    with pytest.raises(AttributeError, match=r'only a fit with method="exact" or "local" has them'):
        features.dual_coef_  # noqa: B018
    with pytest.raises(AttributeError, match=r"has the kernel itself, and nothing to certify"):
        exact.certificate_  # noqa: B018
    with pytest.raises(InvalidInput, match=r"nothing to certify; fit with features"):
        exact.certify(X)
    with pytest.raises(AttributeError, match=r"no attribute 'partial_fit'") as refusal:
        model(method="exact").partial_fit(X, y)
    assert 'method="exact" needs all rows at once; call fit' in str(refusal.value.__cause__)
    with pytest.raises(InvalidInput, match=r'method="exact" requires alpha above 0; got 0'):
        model(method="exact", alpha=0).fit(X, y)
    with pytest.raises(InvalidInput, match=r"ExactKernel: tol must be a positive finite number"):
        bo.ExactKernel(tol=0.0)
    refitted = exact.set_params(method="orthogonal").fit(X, y)
    assert (refitted.predict(X) == features.predict(X)).all()
    assert hasattr(refitted, "coef_")


def test_penalties_chosen_for_the_exact_kernel_are_those_of_its_features():
    X, y = table(300, noise=0.3)
    iterated = bo.ExactKernel("nystrom")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)
        exact = model(Matern(1.5, 2.0), method=iterated, alpha="loo").fit(X, y)
        features = model(Matern(1.5, 2.0), method="nystrom", alpha="loo").fit(X, y)
    assert_close(exact.alpha_ / features.alpha_, 1.0, factor=1e6)
    assert_close(exact.solution_.path.loo, features.solution_.path.loo, factor=1e6)
