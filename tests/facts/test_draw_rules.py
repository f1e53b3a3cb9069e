"""What draw gives for each kernel and method, what it refuses, and how "auto" picks."""

import math

import numpy as np
import pytest
from gallery import rows
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features import (
    IID,
    QMC,
    Auto,
    Fourier,
    HermiteMercer,
    HistogramSampling,
    MercerHarmonic,
    NeuralTangentFeatures,
    Nystrom,
    Orthogonal,
    ReLU,
    Structured,
    draw,
)
from bochner.features.auto import Choice
from bochner.features.method import Request
from bochner.features.rules import choose
from bochner.kernels import (
    ArcCosine,
    Cauchy,
    Columns,
    Constant,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    NeuralTangent,
    Polynomial,
    SkewedChi2,
)

X = rows(50)


# ---- widths


@pytest.mark.parametrize(
    ("kernel", "method", "width"),
    [
        (Gaussian(), "fourier", 64),
        (Gaussian() * Matern(1.5), "fourier", 64),
        (2.0 * Gaussian() + Matern(1.5), "fourier", 64),
        (Linear(), "fourier", 3),
        (Constant(2.0), "fourier", 1),
        (Linear() + 1.0, "fourier", 4),
        (Linear() * Linear(), "fourier", 9),
        (Gaussian() + Linear(), "fourier", 63),
        (Gaussian() + 1.0, "fourier", 63),
        (Linear() * Gaussian(), "fourier", 60),
        (Gaussian() * Constant(2.0), "fourier", 64),
        (Columns(Linear(), (0, 2)), "fourier", 2),
        (Gaussian(), "nystrom", 50),
        (Gaussian(), "uniform", 50),
    ],
    ids=repr,
)
def test_width_is_the_one_asked_for_or_the_most_that_is_of_use(kernel, method, width):
    data = rows(51)[:50]
    assert draw(kernel, method, n_features=64, X=data, random_state=0).n_features == width


# ---- edges of rules: the last width or number of columns on either side


def kinds(d, kernel):
    """The methods that are compared for a kernel of d columns, without drawing the winner."""
    data = np.random.default_rng(0).normal(size=(40, d))
    return [c.method for c in chosen(kernel, data, Auto(sample=4), n_features=2).candidates]


def test_methods_are_tried_up_to_and_from_numbers_of_columns():
    """Sobol points to 20 columns, structured frequencies from 128, and principal axes to 2048."""
    for d, sobol in ((20, True), (21, False)):
        assert (Fourier(QMC()) in kinds(d, Matern(1.5, 9.0))) is sobol
        assert (Fourier(IID()) in kinds(d, Matern(1.5, 9.0))) is not sobol
    for d, structured in ((127, False), (128, True)):
        assert (Fourier(Structured()) in kinds(d, Matern(1.5, 9.0))) is structured
    with pytest.raises(UnsupportedKernel, match=r"HermiteMercer .* 2048"):
        draw(Gaussian(), HermiteMercer(), n_features=2, X=np.ones((2, 2049)))


def test_products_are_expanded_where_each_term_has_sixteen_features():
    """(a + b)(c + d), and (a + b)³ by its binomials: four terms, 64 features."""
    for kernel in (
        (Gaussian() + Linear()) * (Matern(1.5) + Linear()),
        (Gaussian() + Linear()) ** 3,
    ):
        for width, expanded in ((64, True), (63, False)):
            phi = draw(kernel, "iid", n_features=width, n_inputs=1, random_state=0)
            assert (len(getattr(phi, "parts", ())) == 4) is expanded
            assert hasattr(phi, "left_signs") is not expanded


def test_exact_factors_are_written_out_where_four_features_are_left():
    for width, written in ((12, True), (11, False)):
        phi = draw(Linear() * Matern(1.5), "iid", n_features=width, n_inputs=3, random_state=0)
        assert hasattr(phi, "left_signs") is not written
    phi = draw(Linear() * Gaussian(), "iid", n_features=15, n_inputs=3, random_state=0)
    assert (phi.left.n_features, phi.right.n_features) == (3, 4)  # pairs: 5 is one too many


def test_a_sum_gives_each_part_what_it_asks_for_and_shares_the_rest_by_size():
    """Of 4 k₁ + k₂ + ⟨x, y⟩ with 43: 3 exact, 32 and 8; of terms that weigh nothing two each."""
    kernel = 4.0 * Gaussian() + Matern(1.5) + Linear()
    phi = draw(kernel, "iid", n_features=43, n_inputs=3, random_state=0)
    widths = [part.n_features for part in (*phi.parts[0].parts, phi.parts[1])]
    assert widths == [32, 8, 3]
    light = 1e-9 * Gaussian() + Matern(1.5)
    phi = draw(light, "iid", n_features=10, n_inputs=3, random_state=0)
    assert [part.n_features for part in phi.parts] == [2, 8]
    for width, fits in ((4, True), (3, False)):
        if fits:
            assert draw(light, "iid", n_features=width, n_inputs=3).n_features == 4
        else:
            with pytest.raises(InvalidInput, match="requires n_features of at least 4"):
                draw(light, "iid", n_features=width, n_inputs=3)


@pytest.mark.parametrize(("size", "D"), [(0.2, 300), (1.0, 300), (1.0, 3000), (2.5, 2000)])
def test_exponentials_of_kernels_are_cut_where_the_rest_is_below_a_tenth_of_the_noise(size, D):
    """e^k − Σ_{i ≤ n} kⁱ/i! in the mean of k(x, x), as a share: first n with at most 0.1/√D."""
    data = X[:, :2] / np.linalg.norm(X[:, :2], axis=1, keepdims=True)
    kernel = bo.kernels.Exp(size * (Gaussian() * Linear()))  # size on the diagonal
    phi = draw(kernel, "iid", n_features=D, X=data, random_state=0)
    left, n = np.exp(size) - 1, 0
    while n < 2 or left > 0.1 * D**-0.5 * np.exp(size):
        n += 1
        left -= size**n / math.factorial(n)
    assert len(phi.parts) == n + 1


# ---- refusals


def test_a_kernel_without_a_rotation_is_refused_by_orthogonal_with_the_names_that_serve():
    for kernel in (Laplace(), Cauchy(), Gaussian() * Laplace(), Gaussian() + Cauchy()):
        with pytest.raises(UnsupportedKernel, match=r"Euclidean.*IID\(\).*QMC\(\).*Nystrom"):
            draw(kernel, Fourier(Orthogonal()), X=X)


def test_a_kernel_that_fourier_cannot_serve_is_refused_with_the_name_that_does():
    class Strange(bo.kernels.Kernel):
        pass

    strange = Strange.__new__(Strange) if not Strange.__abstractmethods__ else _strange()
    with pytest.raises(UnsupportedKernel, match=r"Fourier requires a kernel of x − y.*Nystrom"):
        draw(strange, "fourier", X=X)
    with pytest.raises(UnsupportedKernel, match=r"Auto: no candidate serves.*Nystrom"):
        draw(strange, Auto(candidates=(Fourier(),)), X=X)


def _strange():
    names = dict.fromkeys(bo.kernels.Kernel.__abstractmethods__, lambda self, *args: np.eye(12))
    return type("Strange", (bo.kernels.Kernel,), names)()


REFUSED = [
    (dict(kernel="gaussian"), InvalidInput, r"draw: kernel must be a Kernel.*got 'gaussian'"),
    (dict(method="best"), InvalidInput, r"method must be a value such as.*'qmc'.*got 'best'"),
    (dict(method=IID()), InvalidInput, r"method must be a value such as.*got IID\(\)"),
    (dict(n_features=0), InvalidInput, r"draw: n_features must be a positive integer; got 0"),
    (dict(n_features=2.5), InvalidInput, r"n_features must be a positive integer; got 2.5"),
    (dict(method="iid", n_features=7), InvalidInput, r'even number.*got 7.*form="phase"'),
    (dict(method="iid", n_features=1), InvalidInput, r"even number of features.*got 1"),
    (dict(X=None), InvalidInput, r"pass X \(rows of data\) or n_inputs"),
    (dict(X=None, n_inputs=3, method="nystrom"), InvalidInput, r"landmarks from rows.*Pass X="),
    (dict(X=np.array([[np.nan]])), InvalidInput, r"X must be finite; got NaN or infinity"),
    (dict(X=np.array([["a"]])), InvalidType, r"must hold real numbers; got dtype <U1"),
    (dict(X=np.zeros(3)), InvalidInput, r"two dimensions.*got shape \(3,\)"),
    (dict(random_state=-1), InvalidInput, r"random_state must be None, a non-negative integer"),
    (dict(random_state="x"), InvalidInput, r"random_state must be None.*got 'x'"),
    (dict(kernel=Linear() + Gaussian(), method="iid", n_features=4), InvalidInput, r"at least 5"),
    (dict(kernel=Linear() * Gaussian(), method="iid", n_features=1), InvalidInput, r"too few feat"),
    (dict(method=Auto(sample=1)), InvalidInput, r"sample must be at least 2 rows; got 1"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_wrong_arguments_are_refused_in_a_sentence(changes, error, message):
    arguments = dict(kernel=Gaussian(), method="auto", n_features=16, X=X, random_state=0)
    with pytest.raises(error, match=message):
        draw(**arguments | changes)


def test_wrong_parts_of_methods_are_refused():
    with pytest.raises(
        InvalidInput, match=r"placement must be IID\(\), Orthogonal\(\), Stru.*'iid'"
    ):
        Fourier("iid")
    with pytest.raises(
        InvalidInput, match=r"form must be one of 'pair', 'phase', 'complex'; got .cos"
    ):
        Fourier(IID(), "cos")
    with pytest.raises(
        InvalidInput, match=r"landmarks must be 'rpcholesky', 'kmeans', .*; got 'pivots'"
    ):
        Nystrom("pivots")
    with pytest.raises(InvalidInput, match=r"QMC.* serves at most 21200 columns; got 30000"):
        draw(Gaussian(), "qmc", n_features=2, n_inputs=30000)


@pytest.mark.parametrize("method", ["iid", "nystrom", "auto"])
def test_rows_that_do_not_fit_a_map_are_refused(method):
    phi = draw(Gaussian(), method, n_features=8, X=X, random_state=0)
    with pytest.raises(InvalidInput, match=r"must have the 3 columns the map was drawn for; got 2"):
        phi(X[:, :2])
    with pytest.raises(InvalidInput, match=r"X must be finite; got NaN or infinity"):
        phi(np.full((2, 3), np.inf))
    with pytest.raises(InvalidType, match=r"must hold real numbers; got dtype complex128"):
        phi(X.astype(complex))
    with pytest.raises(InvalidInput, match=r"two dimensions.*got shape \(3,\)"):
        phi(X[0])


# ---- auto


def chosen(kernel, X, method=None, n_features=32, seed=0) -> Choice:
    ask = Request(X.shape[1], n_features, seed, X=X)
    return choose(Auto() if method is None else method, kernel, ask)


def test_auto_takes_the_cheapest_of_the_least_errors_within_the_budget():
    data = np.random.default_rng(0).normal(size=(1500, 4))
    for kernel in (Gaussian(2.0), Matern(0.5, 0.05), Laplace(4.0), Linear() + Gaussian()):
        for budget in (1.0, 4.0):
            choice = chosen(kernel, data, Auto(budget=budget))
            cheapest = min(c.multiplications for c in choice.candidates)
            within = [c for c in choice.candidates if c.multiplications <= budget * cheapest]
            least = min(c.predicted for c in within)
            for c in choice.candidates:
                assert (c.error is not None) == (c in within and c.predicted <= 3 * least)
            measured = [c for c in within if c.error is not None]
            good = [c for c in measured if c.error <= 1.1 * min(c.error for c in measured)]
            assert choice.method == min(good, key=lambda c: c.multiplications).method
            assert choice.reason.startswith(f"{choice.method}: relative error")


def test_auto_predicts_and_measures_the_error_that_fresh_rows_show():
    rng = np.random.default_rng(0)
    data, fresh = rng.normal(size=(2000, 4)), rng.normal(size=(500, 4))
    choice = chosen(Gaussian(2.0), data)
    K = Gaussian(2.0)(fresh)
    for candidate in choice.candidates:
        phi = draw(Gaussian(2.0), candidate.method, n_features=32, X=data, random_state=5)
        error = np.linalg.norm(phi(fresh) @ phi(fresh).T - K) / np.linalg.norm(K)
        assert 0.5 < candidate.predicted / error < 2
        assert candidate.error is None or 0.5 < candidate.error / error < 2


def test_auto_follows_the_spectrum_where_it_decays_and_takes_frequencies_where_it_does_not():
    data = np.random.default_rng(0).normal(size=(4000, 8))
    assert isinstance(chosen(Gaussian(6.0), data).method, HermiteMercer | MercerHarmonic)
    clustered = np.repeat(np.random.default_rng(1).normal(0, 9, (40, 8)), 50, axis=0)
    clustered += 0.1 * np.random.default_rng(2).normal(size=clustered.shape)
    assert isinstance(chosen(Gaussian(4.0), clustered, n_features=60).method, Nystrom)
    rough = chosen(Gaussian(0.2), data, Auto(sample=100), n_features=512)
    assert isinstance(rough.method, Fourier)


def test_auto_takes_all_rows_where_the_width_holds_them():
    choice = chosen(Matern(0.5), np.repeat(rows(21)[:20], 3, axis=0), n_features=20)
    assert choice.map.n_features == 20
    assert choice.candidates == ()
    assert "20 features hold all 20 different rows" in choice.reason
    Z = choice.map(rows(21))
    assert_close(Z @ Z.T, Matern(0.5)(rows(21)), factor=1e4)


@pytest.mark.parametrize(
    ("kernel", "methods"),
    [
        (Polynomial(2), (MercerHarmonic(), Nystrom())),
        (ArcCosine(1), (MercerHarmonic(), ReLU(1), Nystrom())),
        (NeuralTangent(2), (MercerHarmonic(), NeuralTangentFeatures(), Nystrom())),
        (SkewedChi2(0.5), (Fourier(QMC()), HistogramSampling(), Nystrom())),
    ],
    ids=repr,
)
def test_auto_has_the_methods_that_a_kernel_is_known_for(kernel, methods):
    data = np.random.default_rng(0).uniform(0.1, 1, size=(500, 3))
    assert tuple(c.method for c in chosen(kernel, data).candidates) == methods


def test_auto_takes_structured_frequencies_where_the_transform_is_cheaper():
    data = np.random.default_rng(0).normal(size=(600, 1024))
    options = (Fourier(Orthogonal()), Fourier(Structured()))
    choice = chosen(Gaussian(10.0), data, Auto(options, sample=150), n_features=8192)
    assert choice.method == Fourier(Structured())


# ---- pivots: the accelerated algorithm has the law of the simple one


def test_the_cost_of_a_map_is_that_of_its_parts():
    """A structured map makes the same products behind a factor; harmonics make next to none."""
    options = dict(n_features=1024, n_inputs=512, random_state=0)
    plain = bo.draw(Gaussian(), bo.Fourier(bo.Structured()), **options)
    scaled = bo.draw(2.0 * Gaussian(), bo.Fourier(bo.Structured()), **options)
    assert scaled.multiplications == plain.multiplications < 512 * 1024
    X = np.random.default_rng(0).normal(size=(50, 3))
    for method in (bo.MercerHarmonic(), bo.HermiteMercer()):
        phi = bo.draw(Gaussian(), method, n_features=200, X=X, random_state=0)
        assert phi.multiplications < phi.n_inputs * phi.n_features
