"""Maps that draw chooses for each kernel and method, errors raised, and sufficient widths."""

import math
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
from gallery import points, rows
from tolerance import assert_close

import bochner as bo
from bochner import draw, required_features
from bochner.errors import FeatureWarning, ModelFileError, UnsupportedKernel
from bochner.features.auto import Choice
from bochner.features.map import Request, parts_of
from bochner.features.rules import choose
from bochner.kernels import ArcCosine, Gaussian, Laplace, Linear, Matern, NeuralTangent, Polynomial
from bochner.kernels.hyperparameters import TunedPositive
from bochner.kernels.series import RadialKernels
from bochner.kernels.spectral import Measure, constant_law

X = rows(50)


def test_candidates_depend_on_the_number_of_columns():
    """Sobol points are candidates up to 20 columns, structured frequencies from 128."""
    for d, candidate, other in (
        (20, bo.Fourier(bo.QMC()), bo.Fourier(bo.IID())),
        (21, bo.Fourier(bo.IID()), bo.Fourier(bo.QMC())),
        (127, bo.Fourier(bo.IID()), bo.Fourier(bo.Structured())),
        (128, bo.Fourier(bo.Structured()), bo.Fourier(bo.QMC())),
    ):
        data = np.random.default_rng(0).normal(size=(40, d))
        choice = chosen(Matern(1.5, 9.0), data, bo.Auto(sample=4), n_features=2)
        methods = [c.method for c in choice.candidates]
        assert candidate in methods
        assert other not in methods


@pytest.mark.parametrize(
    "kernel",
    [(Gaussian() + Linear()) * (Matern(1.5) + Linear()), (Gaussian() + Linear()) ** 3],
    ids=repr,
)
def test_products_are_expanded_if_each_term_gets_sixteen_features(kernel):
    """(a + b)(c + d), and (a + b)³ by its binomials, have four terms: 64 features."""
    for width, expanded in ((64, True), (63, False)):
        phi = draw(kernel, "iid", n_features=width, n_inputs=1, random_state=0)
        assert (len(getattr(phi, "parts", ())) == 4) is expanded
        assert hasattr(phi, "left_signs") is not expanded


def test_each_part_of_a_map_approximates_its_kernel():
    """Within half of the norm of K; the kernel of another power has an error of the whole norm."""
    maps = [draw(Gaussian() ** 2 * Linear() ** 3, "iid", n_features=4096, X=X, random_state=0)]
    for phi in maps:
        K = phi.kernel(X)
        assert np.linalg.norm(phi(X) @ phi(X).T - K) < 0.5 * np.linalg.norm(K)
        maps.extend(parts_of(phi))
    assert sum(phi.kernel == Linear() for phi in maps) == 3


def test_a_sum_divides_its_features_by_the_size_of_random_terms():
    """4 k₁ + k₂ + ⟨x, y⟩ with 43: 32, 8 and 3 exact ones; terms of negligible size get two each."""
    kernel = 4.0 * Gaussian() + Matern(1.5) + Linear()
    phi = draw(kernel, "iid", n_features=43, n_inputs=3, random_state=0)
    assert [part.n_features for part in (*phi.parts[0].parts, phi.parts[1])] == [32, 8, 3]
    for width in (10, 4):
        light = 1e-9 * Gaussian() + Matern(1.5)
        phi = draw(light, "iid", n_features=width, n_inputs=3, random_state=0)
        assert [part.n_features for part in phi.parts] == [2, width - 2]


@pytest.mark.parametrize(("size", "D"), [(0.2, 300), (1.0, 300), (1.0, 3000), (2.5, 2000)])
def test_series_of_exponentials_end_where_the_remainder_is_a_tenth_of_the_noise(size, D):
    """The first n whose share of the mean k(x, x), e^k − Σ_{i ≤ n} kⁱ/i!, is at most 0.1/√D."""
    data = X[:, :2] / np.linalg.norm(X[:, :2], axis=1, keepdims=True)
    kernel = bo.kernels.Exp(size * (Gaussian() * Linear()))  # size on the diagonal
    phi = draw(kernel, "iid", n_features=D, X=data, random_state=0)
    remainder, n = np.exp(size) - 1, 0
    while n < 2 or remainder > 0.1 * D**-0.5 * np.exp(size):
        n += 1
        remainder -= size**n / math.factorial(n)
    assert len(phi.parts) == n + 1


# ---- auto


def chosen(kernel, X, method=None, n_features=32, seed=0) -> Choice:
    request = Request(X.shape[1], n_features, seed, X=X)
    return choose(bo.Auto() if method is None else method, kernel, request)


def test_auto_chooses_the_cheapest_of_the_smallest_errors_within_the_budget():
    data = np.random.default_rng(0).normal(size=(1500, 4))
    for kernel in (Gaussian(2.0), Matern(0.5, 0.05), Laplace(4.0), Linear() + Gaussian()):
        for budget in (1.0, 4.0):
            choice = chosen(kernel, data, bo.Auto(budget=budget))
            cheapest = min(c.multiplications for c in choice.candidates)
            affordable = [c for c in choice.candidates if c.multiplications <= budget * cheapest]
            lowest = min(c.predicted for c in affordable)
            for c in choice.candidates:
                assert (c.error is not None) == (c in affordable and c.predicted <= 3 * lowest)
            measured = [c for c in affordable if c.error is not None]
            good = [c for c in measured if c.error <= 1.1 * min(c.error for c in measured)]
            assert choice.method == min(good, key=lambda c: c.multiplications).method
            assert choice.reason.startswith(f"{choice.method}: relative error")


def test_auto_uses_the_spectrum_if_it_decays_fast_and_frequencies_otherwise():
    data = np.random.default_rng(0).normal(size=(4000, 8))
    assert isinstance(chosen(Gaussian(6.0), data).method, bo.HermiteMercer | bo.MercerHarmonic)
    clustered = np.repeat(np.random.default_rng(1).normal(0, 9, (40, 8)), 50, axis=0)
    clustered += 0.1 * np.random.default_rng(2).normal(size=clustered.shape)
    assert isinstance(chosen(Gaussian(4.0), clustered, n_features=60).method, bo.Nystrom)
    rough = chosen(Gaussian(0.2), data, bo.Auto(sample=100), n_features=512)
    assert isinstance(rough.method, bo.Fourier)


def test_auto_is_exact_if_the_width_is_the_number_of_distinct_rows():
    choice = chosen(Matern(0.5), np.repeat(rows(21)[:20], 3, axis=0), n_features=20)
    assert choice.map.n_features == 20
    assert choice.candidates == ()
    assert "20 features are exact for 20 distinct rows" in choice.reason
    Z = choice.map(rows(21))
    assert_close(Z @ Z.T, Matern(0.5)(rows(21)), factor=1e4)


def test_auto_includes_the_special_methods_of_a_kernel():
    for kernel, methods in (
        (Polynomial(2), (bo.MercerHarmonic(), bo.Nystrom())),
        (ArcCosine(1), (bo.MercerHarmonic(), bo.ReLU(1), bo.Nystrom())),
        (NeuralTangent(2), (bo.MercerHarmonic(), bo.NeuralTangentFeatures(), bo.Nystrom())),
        (bo.kernels.SkewedChi2(0.5), (bo.Fourier(bo.QMC()), bo.Nystrom())),
    ):
        data = np.random.default_rng(0).uniform(0.1, 1, size=(500, 3))
        assert tuple(c.method for c in chosen(kernel, data).candidates) == methods


# ---- sufficient widths: the tolerance holds on all rows, and the width is not too large

N, ALPHA, TOLERANCE = 600, 20.0, 0.35
KERNEL = Gaussian(1.5)
METHODS = {"random": bo.Fourier(bo.Orthogonal()), "by landmarks": bo.Nystrom()}


def true_epsilon(phi, X, alpha=ALPHA, kernel=KERNEL):
    """Return ε of all rows, by the dense definition."""
    K, Z = kernel(X), phi(X)
    L = np.linalg.cholesky(K + alpha * np.eye(len(X)))
    half = np.linalg.solve(L, Z @ Z.T - K)
    return float(np.abs(np.linalg.eigvalsh(np.linalg.solve(L, half.T))).max())


def width_of(method, epsilon, seed):
    """Return the required features for the rows of a seed, and ε of all these rows."""
    X, options = points(N, seed=seed), {"alpha": ALPHA, "epsilon": epsilon, "random_state": seed}
    widths = required_features(KERNEL, method, X, **options)
    return widths, true_epsilon(widths.map, X)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_tolerance_holds_on_all_rows_in_nineteen_seeds_of_twenty(method, monkeypatch):
    """Four failures of twenty have a probability of 1/63; with half the width most seeds fail."""
    monkeypatch.setattr("bochner.selection.width.SAMPLE", N // 3)  # ε of other rows is extrapolated
    widths, errors = zip(*(width_of(method, TOLERANCE, s) for s in range(20)), strict=True)
    assert all(f.limit is None for f in widths)
    assert np.sum(np.array(errors) > TOLERANCE) <= 3
    halved = []
    for seed, f in enumerate(widths):
        X, D = points(N, seed=seed), f.n_features // 4 * 2
        halved.append(true_epsilon(draw(KERNEL, method, n_features=D, X=X, random_state=seed), X))
    assert np.sum(np.array(halved) > TOLERANCE) >= 17


def test_the_reason_that_ends_the_search_is_stated(monkeypatch):
    def search(epsilon):
        options = {"alpha": 3.0, "epsilon": epsilon, "random_state": 0}
        return required_features(KERNEL, "orthogonal", points(300, seed=0), **options)

    widths = search(1e-6)
    assert (widths.limit, widths.n_features) == ("rows", 300)
    assert "the number of rows" in str(widths)
    monkeypatch.setattr("bochner.selection.width.free_bytes", lambda: 64 * 130**2)
    widths = search(0.001)
    assert (widths.limit, max(t.n_features for t in widths.trials)) == ("memory", 130)
    assert "half of the free memory" in str(widths)


def test_truncation_is_distinguished_from_noise():
    """With degree 1 twice the features do not lower ε; with degree 20 the tolerance is met."""
    X = points(600, seed=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    options = {"alpha": 0.6, "epsilon": 0.5, "random_state": 0}
    cut = required_features(KERNEL, bo.Gegenbauer(degree=1), X, **options)
    assert cut.limit == "truncation"
    assert cut.n_features < 600
    assert "stopped by truncation, not noise: raise the degree or order" in str(cut)
    assert [t.epsilon for t in cut.trials][-1] > 0.9 * [t.epsilon for t in cut.trials][-2]
    full = required_features(KERNEL, bo.Gegenbauer(degree=20), X, **options)
    assert full.limit is None
    assert full.epsilon < 0.5
    noise = required_features(KERNEL, "iid", X, alpha=0.01, epsilon=0.1, random_state=0)
    assert noise.limit == "rows"


def test_the_automatic_method_meets_the_tolerance_and_ends_with_exact_features():
    """For 301 rows, an odd number, no smaller map meets the tolerance."""
    X, options = points(400, seed=1), {"alpha": 4.0, "epsilon": 0.2, "random_state": 0}
    assert true_epsilon(required_features(KERNEL, "auto", X, **options).map, X, 4.0) <= 0.2
    X = points(301, seed=6)
    kernel = Gaussian(0.2)
    widths = required_features(kernel, "auto", X, alpha=1e-6, epsilon=1e-3, random_state=0)
    assert widths.limit is None
    assert widths.n_features == 301
    assert "Nystrom()" in str(widths)
    assert np.allclose(widths.map(X) @ widths.map(X).T, kernel(X), atol=1e-7)


@pytest.mark.slow
def test_the_automatic_method_is_not_wider_than_landmarks_if_few_rows_are_far_away():
    """Mercer maps have the least error of the matrix here, but a large ε at the far rows."""
    X = np.random.default_rng(0).standard_t(2.5, (900, 2))
    automatic, landmarks = (
        required_features(Gaussian(1.0), method, X, alpha=0.01, random_state=0)
        for method in ("auto", "nystrom")
    )
    assert automatic.limit is None
    assert automatic.n_features <= 1.2 * landmarks.n_features


def test_a_tolerance_that_is_not_reached_gives_a_warning():
    """For a rough kernel at a small penalty, no number of random features below n is sufficient."""
    X = points(200, seed=1)
    kernel, options = Matern(0.5), {"n_features": "auto", "random_state": 0}
    with pytest.warns(FeatureWarning, match=r"n_features: .*ε ≈ .*, above 0.1 at alpha"):
        model = bo.KernelRidge(kernel, method="iid", alpha=0.01, **options).fit(X, X[:, 0])
    assert true_epsilon(model.map_, X, 0.01, kernel) > 0.1


def test_a_fit_uses_the_features_that_its_penalty_requires():
    X = points(700, seed=2)
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(700)
    model = bo.KernelRidge(KERNEL, method="nystrom", n_features="auto", random_state=0).fit(X, y)
    assert model.map_.n_features < 700
    assert "within 0.1 at alpha" in model.choice_.reason
    assert model.certificate_.epsilon <= 0.1
    loose = bo.KernelRidge(KERNEL, method="nystrom", n_features=0.9, random_state=0)
    assert loose.fit(X, y).map_.n_features < model.map_.n_features
    features = bo.KernelFeatures(KERNEL, method="nystrom", n_features=0.1, random_state=0).fit(X)
    assert features.map_.n_features < 700
    assert true_epsilon(features.map_, X, 1e-3 * 700) <= 0.1  # the penalty without a target


# ---- Kernels of a user that define only their values and one view


def user_kernel(name, of, **view):
    """Return a kernel of a new class with values of(size, X, Y) and one view."""
    values = {"evaluate": lambda k, X, Y: of(k.size, X, Y)}
    values["diagonal"] = lambda k, X: np.diag(of(k.size, X, X))
    fields = {"size": 1.0, "__annotations__": {"size": TunedPositive}, "__module__": __name__}
    return dataclass(frozen=True)(type(name, (bo.kernels.Kernel,), fields | values | view))(1.5)


def degrees_of_lines(k, d):
    first = lambda l, r, s: (l == 1) * k.size * np.outer(r, s)
    return RadialKernels(d, lambda q, r, s: np.stack([first(l, r, s) for l in range(q + 1)]))


gaussian_law = lambda k, d: Measure(constant_law(), np.full(d, 1 / k.size), role="factor")
WAVES = user_kernel("Waves", lambda size, X, Y: Gaussian(size)(X, Y), spectral=gaussian_law)
of_squares = lambda k, d: bo.kernels.PowerSeries((1.0, 0.0, k.size))
SQUARES = user_kernel("Squares", lambda size, X, Y: 1.0 + size * (X @ Y.T) ** 2, series=of_squares)
LINES = user_kernel("Lines", lambda size, X, Y: size * (X @ Y.T), zonal=degrees_of_lines)
views = {"exact": lambda k, d: d, "features": lambda k, X: k.size**0.5 * X * X}
FEW = user_kernel("Few", lambda size, X, Y: size * (X * X) @ (Y * Y).T, **views)
SERVED = {
    WAVES: ["iid", "qmc", "structured", "leverage", "grid", bo.LaplacianEigenfunctions()],
    SQUARES: ["mercer", bo.Gegenbauer(), bo.Maclaurin(), bo.TensorSketch(), bo.PolySketch()],
    LINES: ["mercer", bo.Gegenbauer()],
    FEW: [bo.Explicit(), "iid"],
}


@pytest.mark.parametrize("error", [UnsupportedKernel, ZeroDivisionError])
@pytest.mark.parametrize("method", ["iid", "nystrom"])
def test_an_error_in_a_part_of_a_kernel_reaches_the_user(method, error):
    """Such an error was once taken for an unsupported method."""

    def fail(*_):
        raise error("these rows are invalid")

    kernel = 2.0 * (Gaussian() + user_kernel("Torn", fail, spectral=fail) * Linear())
    for call in (draw, lambda k, m, X: bo.KernelRidge(k, method=m).fit(X, X[:, 0])):
        with pytest.raises(error, match=r"^these rows are invalid$"):
            call(kernel, method, X=X)


@pytest.mark.parametrize("kernel", SERVED, ids=repr)
def test_a_user_kernel_is_served_by_the_methods_of_its_view(kernel, tmp_path):
    X = np.random.default_rng(0).standard_normal((200, 2))
    y, kind = np.sin(X[:, 0]), type(kernel)
    for combined in (kernel, 2.0 * kernel + 0.5, kernel * Linear()):
        K = combined(X)
        for method in (*SERVED[kernel], "nystrom"):
            phi = draw(combined, method, n_features=256, X=X, random_state=0)
            assert np.linalg.norm(phi(X) @ phi(X).T - K) < 0.45 * np.linalg.norm(K), method
    if kernel != FEW:
        with pytest.raises(UnsupportedKernel, match=rf"got {kind.__name__}\(size=1.5\)"):
            draw(kernel, bo.Sign(), n_features=256, X=X)
    maps = bo.KernelRidge(kernel, method=SERVED[kernel][0], n_features=64, random_state=0)
    assert not find_spec("onnx") or bo.export.to_onnx(maps.fit(X, y)).graph.node
    model = bo.KernelRidge(kind("auto"), random_state=0).fit(X, y)
    assert isinstance(model.kernel_, kind)
    assert kind.__name__ in str(bo.plan(X, y, kernel=kernel))
    bo.save(model, tmp_path / "model.bochner")
    with pytest.raises(ModelFileError, match="kernel of your own"):
        bo.load(tmp_path / "model.bochner")
    repeat = bo.load(tmp_path / "model.bochner", kernels=(kind,))
    np.testing.assert_array_equal(repeat.predict(X), model.predict(X))
