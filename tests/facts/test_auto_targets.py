"""Methods judged by targets: what is extrapolated to a fit to all rows, and what is taken."""

import naive
import numpy as np
import pytest
from gallery import table

import bochner as bo
from bochner import Moments
from bochner.features import Auto, Fourier, HermiteMercer, MercerHarmonic, Nystrom
from bochner.features.judging import Targets, judge
from bochner.features.method import Request
from bochner.features.rules import choose
from bochner.kernels import Gaussian, Linear
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.leave_one_out import extrapolate, leave_one_out

N = 1200


def judged(kernel, X, y, method=None, n_features=32, n_rows=None):
    targets = Targets(y.reshape(len(X), -1), np.ones(len(X)), n_rows or len(X))
    ask = Request(X.shape[1], n_features, 0, X=X)
    return choose(Auto() if method is None else method, kernel, ask, targets)


# ---- what is extrapolated


def extrapolated(X, y, w, alpha, n):
    """The error of a fit to n rows, and its penalty, from traces of the residual maker I − H."""
    Z = np.sqrt(w)[:, None] * (X - w @ X / w.sum())
    hat = Z @ np.linalg.inv(Z.T @ Z + alpha * np.eye(Z.shape[1])) @ Z.T
    free = max(w.sum(), len(w)) - 1
    left, squared = free - np.trace(hat), free - 2 * np.trace(hat) + np.trace(hat @ hat)
    slack, ratio = left**2 / (free * squared), n / len(w)
    error = naive.leave_one_out(X, y, w, alpha)[0] * slack / (1 - (1 - slack) / ratio)
    return error, alpha * (ratio * free - np.trace(hat)) / left


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
def test_what_is_extrapolated_is_the_least_leave_one_out_error_less_what_few_rows_cost(weights):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 3)), rng.normal(size=(25, 1))
    w = rng.uniform(*weights, 25)
    W, n = w.sum(), 100
    phi = bo.draw(Linear(), "orthogonal", n_features=3, n_inputs=3)
    Z = (X - w @ X / W) * np.sqrt(w)[:, None]
    top = np.linalg.eigvalsh(Z.T @ Z)[-1]
    expected = [extrapolated(X, y, w, alpha, n) for alpha in np.logspace(-11, 1, 49) * top]
    error, penalty = min(expected)
    found = judge(phi, X, Targets(y, w, n))
    assert found.error == pytest.approx(error, rel=1e-4)
    assert found.penalty == pytest.approx(penalty / (n / 25 * top), rel=1e-6)
    share = 0.3  # of all rows: of the sample the penalty of equal effect, a little less
    alphas = np.linspace(0.2, 0.3, 201) * W
    pairs = np.array([extrapolated(X, y, w, alpha, n) for alpha in alphas])
    given = np.interp(share * W * n / 25, pairs[:, 1], pairs[:, 0])
    assert judge(phi, X, Targets(y, w, n, share)).error == pytest.approx(given, rel=1e-3)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("D", [100, 230, 256, 400, 1000])
def test_errors_are_extrapolated_below_and_above_as_many_features_as_rows(D):
    """256 rows tell the error of 4096, at equal penalties: their hundred tables to one in ten.

    With the trace of H² in place of δ it is told a quarter or less, once D reaches 256.
    """
    told, true = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        beta = rng.normal(size=D) / D**0.5
        Z, noise = rng.normal(size=(256, D)), 0.5
        y = (Z @ beta + noise * rng.normal(size=256))[:, None]
        moments = Moments.of(Z, y)
        eigen, alphas = decompose(moments), np.array([10.0])
        rows = Z - moments.feature_mean, y - moments.target_mean, None
        errors, _ = leave_one_out(eigen, [rows], alphas)
        errors, alphas = extrapolate(eigen, errors, alphas, 16.0)
        told.append(errors[0])
        if seed < 10:
            more = rng.normal(size=(4096, D))
            target = more @ beta + noise * rng.normal(size=4096)
            A = more.T @ more + alphas[0] * np.eye(D)
            coef = np.linalg.solve(A, more.T @ target)
            true.append(noise**2 + ((coef - beta) ** 2).sum())
    assert np.mean(told) == pytest.approx(np.mean(true), rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_quarter_of_the_rows_and_less_extrapolate_to_the_error_of_all(seed):
    """Means of 1,024 and 4,096 squares: 4.4 % and 2.2 %; four deviations of both are 20 %.

    Leave-one-out errors themselves, what 1,024 rows would err, are a third too high.
    """
    rng = np.random.default_rng(seed)
    d, n, m, beta = 256, 8192, 1024, rng.normal(size=256)
    X = rng.normal(size=(n + 4096, d))
    y = (X @ beta + 4 * rng.normal(size=len(X)))[:, None]
    phi = bo.draw(Linear(), "orthogonal", n_features=d, n_inputs=d)
    coef = np.linalg.lstsq(X[:n], y[:n], rcond=None)[0]
    true = float(((y[n:] - X[n:] @ coef) ** 2).mean())
    assert judge(phi, X[:m], Targets(y[:m], np.ones(m), n)).error == pytest.approx(true, rel=0.2)
    plain = judge(phi, X[:m], Targets(y[:m], np.ones(m), m)).error
    assert plain > 1.2 * true


# ---- what is taken


def clustered(n=N, d=8):
    """Rows about forty points, and a smooth function of them: landmarks hold all of it."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(0, 9, (40, d)), n // 40, axis=0) + 0.1 * rng.normal(size=(n, d))
    return X, Gaussian(4.0)(X, X[:: n // 40]) @ rng.normal(size=40) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("kernel", "data", "kinds"),
    [
        (Gaussian(4.0), clustered(), Nystrom),
        (Gaussian(1.5), table(N, noise=1e-6), Nystrom | HermiteMercer | MercerHarmonic),
        (Gaussian(0.7), table(N), MercerHarmonic),
    ],
    ids=["clusters", "exact", "noise"],
)
def test_the_cheapest_of_the_least_extrapolated_errors_is_taken(kernel, data, kinds):
    X, y = data
    choice = judged(kernel, X, y, n_features=48)
    asked = [c for c in choice.candidates if c.extrapolated is not None]
    cheapest = min(choice.candidates, key=lambda c: (c.multiplications, c.predicted))
    nearest = min(
        (c for c in asked if not isinstance(c.method, Nystrom)), key=lambda c: c.predicted
    )
    hardly = cheapest.multiplications > 0.9 * nearest.multiplications
    assert 2 <= len(asked) <= 4
    assert (cheapest in asked) is not (hardly and cheapest.predicted > 3 * nearest.predicted)
    assert choice.method in [c.method for c in asked]
    least = min(c.extrapolated for c in asked)
    close = [c for c in asked if c.extrapolated <= 1.02 * least]
    best = next(c for c in close if c.method == choice.method)
    assert best.multiplications == min(c.multiplications for c in close)
    assert choice.penalty == min(c.penalty for c in asked) > 0
    assert isinstance(choice.method, kinds)
    assert choice.reason.startswith(
        f"{choice.method}: mean squared error {best.extrapolated:.3g} of a fit to {N:,} rows, extrapolated "
        f"from leave-one-out errors of {N // 2}, against "
    )


def test_targets_can_ask_for_another_method_than_the_kernel_does():
    """Noise alone: all err alike, and the cheapest does; the kernel is nearest to landmarks."""
    X, _ = clustered()
    y = np.random.default_rng(3).normal(size=N)
    ask = Request(X.shape[1], 48, 0, X=X)
    candidates = (Fourier(), Nystrom())
    assert choose(Auto(candidates), Gaussian(4.0), ask).method == Nystrom()
    assert judged(Gaussian(4.0), X, y, Auto(candidates), 48).method == Fourier()


def test_maps_too_wide_for_the_rows_are_judged_by_narrower_ones_and_stay_wide():
    X, y = clustered()
    for width, asks in ((150, True), (400, True), (402, False)):
        choice = judged(Gaussian(4.0), X, y, Auto((Fourier(),)), width)
        assert choice.map.n_features == width
        assert (choice.candidates[0].extrapolated is not None) == asks
    narrow = judged(Gaussian(4.0), X, y, Auto((Fourier(),)), 150).candidates[0].extrapolated
    wide = judged(Gaussian(4.0), X, y, Auto((Fourier(),)), 400).candidates[0].extrapolated
    assert wide == narrow


@pytest.mark.parametrize(
    ("n", "words"), [(N, "extrapolated from leave-one-out"), (600, "relative")]
)
def test_learners_with_targets_and_enough_rows_are_judged_by_them(n, words):
    X, y = table(n)
    model = bo.KernelRidge(Gaussian(0.3), n_features=64, random_state=0).fit(X, y)
    assert words in model.choice_.reason
    labels = bo.KernelRidgeClassifier(Gaussian(0.3), n_features=64, random_state=0).fit(X, y > 5)
    assert words in labels.choice_.reason
    constant = bo.KernelRidge(Gaussian(0.3), n_features=64, random_state=0).fit(X, 0 * y)
    assert "relative error" in constant.choice_.reason
    components = bo.KernelPCA(2, Gaussian(0.3), n_features=64, random_state=0).fit(X)
    assert "relative error" in components.choice_.reason


def test_a_preconditioner_is_to_be_near_the_kernel_whatever_the_targets():
    X, _ = clustered()
    y = np.random.default_rng(3).normal(size=N)
    candidates = Auto((Fourier(), Nystrom()))
    options = dict(n_features=48, alpha=1.0, random_state=0)
    features = bo.KernelRidge(Gaussian(4.0), method=candidates, **options).fit(X, y)
    assert features.choice_.method == Fourier()
    exact = bo.KernelRidge(Gaussian(4.0), method=bo.ExactKernel(candidates), **options).fit(X, y)
    assert "features of Nystrom()" in exact.choice_.reason


@pytest.mark.parametrize("share", [0.0, 1e-300, 1e3])
def test_given_penalties_of_any_size_are_judged(share):
    X, y = table(200)
    phi = bo.draw(Gaussian(1.5), "orthogonal", n_features=16, X=X, random_state=0)
    targets = Targets(y.reshape(200, -1), np.ones(200), 800, share)
    assert judge(phi, X, targets).error > 0
