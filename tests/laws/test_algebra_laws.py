"""Laws of maps made by rule: whatever the method, parts become the map of the whole."""

import operator
from dataclasses import dataclass, replace
from functools import reduce

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import tolerance
import torch
from gallery import absolute, rows, weight
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import IID, QMC, Auto, Fourier, Method, Nystrom, draw
from bochner.features.composed import (
    Concatenate,
    LinearMap,
    TensorProduct,
    sketched,
)
from bochner.features.nystrom.nystrom import JITTER, NystromMap
from bochner.features.rules import LEAF_RULES, leaf_map
from bochner.kernels import (
    Angular,
    ArcCosine,
    Bilinear,
    Columns,
    Constant,
    Exp,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Modulated,
    NeuralTangent,
    Normalised,
    Periodic,
    Polynomial,
    Warped,
    Zonal,
)

PAIRS, PHASES = Fourier(IID()), Fourier(IID(), "phase")
MIXED = Gaussian(2.0) + 0.5 * Linear()


# ---- any method gets the algebra from its leaf rule


@dataclass(frozen=True)
class Signed(Method):
    """A method of its own, that serves one kernel only: the Gaussian, by random phases."""


@pytest.fixture
def rule(monkeypatch):
    """Add a row to the table of leaf rules: a method that serves the Gaussian alone."""

    def add(method, drawn):
        def leaf(value, kernel, ask):
            if not isinstance(kernel, Gaussian):
                raise UnsupportedKernel(
                    f"{method.__name__} serves Gaussian() only; got {kernel!r}."
                )
            return drawn(kernel, ask)

        row = (method, Kernel, leaf)
        monkeypatch.setattr("bochner.features.rules.LEAF_RULES", (*LEAF_RULES, row))

    return add


@pytest.fixture(autouse=True)
def signed(rule):
    rule(Signed, lambda kernel, ask: leaf_map(PHASES, kernel, ask))


BUILT = [
    2.0 * Gaussian(),
    Gaussian() + Linear() + 0.5,
    Gaussian() * Linear(),
    MIXED * MIXED,
    MIXED**3,
    Columns(Gaussian((1.0, 2.0)), (2, 0)),
    Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 0.5])),
    Modulated(weight, Gaussian()),
    Normalised(MIXED),
    Warped(absolute, Gaussian()),
    Bilinear(np.diag([1.0, 2.0, 0.5])) + Gaussian(),
    Columns(Modulated(weight, 2.0 * Gaussian()) + 1.0, (1, 2)),
]
SEEDS = 100


def bias(kernel, maps):
    X = 0.7 * rows(5, seed=3)[:4]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], 300)


@pytest.mark.statistical
@pytest.mark.parametrize("method", [Signed(), PAIRS], ids=repr)
@pytest.mark.parametrize("kernel", BUILT, ids=repr)
def test_maps_by_rule_are_unbiased(kernel, method):
    maps = [draw(kernel, method, n_features=60, X=rows(9), random_state=s) for s in range(SEEDS)]
    assert bias(kernel, maps) < 1
    assert max(phi.n_features for phi in maps) <= 60


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [MIXED**3, MIXED * (Matern() + Linear()), 2.0 * (MIXED * MIXED)])
def test_expanded_products_are_unbiased(kernel):
    maps = [draw(kernel, PAIRS, n_features=200, X=rows(9), random_state=s) for s in range(SEEDS)]
    assert "SketchedProduct" not in type(maps[0]).__name__
    assert bias(kernel, maps) < 1


def test_a_part_that_a_method_cannot_serve_is_refused_by_its_own_words():
    for kernel in (Matern(), Matern() + Gaussian(), Normalised(2.0 * Matern()), Exp(Matern())):
        with pytest.raises(UnsupportedKernel, match=r"Signed serves Gaussian\(\) only; got Matern"):
            draw(kernel, Signed(), n_features=60, X=rows(9))


def test_exact_parts_need_no_method():
    kernel = Normalised((Bilinear(np.eye(3)) + 2.0) ** 2) * Constant(3.0)
    phi = draw(kernel, Signed(), n_features=40, n_inputs=3, random_state=0)
    assert phi.n_features == 16
    assert phi.below_kernel
    X = rows(20)
    assert_close(phi(X) @ phi(X).T, kernel(X))


def test_rows_reach_the_parts_as_the_parts_see_them(rule):
    seen = []

    @dataclass(frozen=True)
    class Looking(Method):
        pass

    def looked(kernel, ask):
        seen.append((ask.n_inputs, ask.X))
        return leaf_map(PHASES, kernel, ask)

    rule(Looking, looked)
    X, A = rows(9), np.diag([1.0, 4.0, 9.0])
    for kernel, expected in [
        (Columns(Gaussian(), (2, 0)), X[:, [2, 0]]),
        (Mahalanobis(Gaussian(), A), X * [1.0, 2.0, 3.0]),
        (Columns(Warped(absolute, Gaussian()) + 1.0, (1,)), np.abs(X[:, [1]])),
    ]:
        draw(kernel, Looking(), n_features=8, X=X)
        d, inner = seen.pop()
        assert d == expected.shape[1]
        assert_close(inner, expected)


# ---- sketches of products


def squares(seed, width=32, change=lambda phi: phi):
    """Sketches of ⟨x, y⟩², whose maps are exact: all randomness is the sketch's."""
    phi = LinearMap(Linear(), 3)
    return change(sketched(Linear() ** 2, phi, phi, width, np.random.default_rng(seed)))


@pytest.mark.statistical
def test_sketches_of_exact_products_are_unbiased():
    assert bias(Linear() ** 2, [squares(s) for s in range(SEEDS)]) < 1


@pytest.mark.statistical
def test_planted_fault_shared_signs_are_seen():
    def fault(phi):
        return replace(phi, right_signs=phi.left_signs, rows=phi.rows[[0, 0]])

    assert bias(Linear() ** 2, [squares(s, change=fault) for s in range(SEEDS)]) > 1


@pytest.mark.statistical
def test_planted_fault_one_random_map_taken_twice_is_seen():
    """(φ·φ')² is not unbiased for k²."""
    single = [draw(Gaussian(), PAIRS, n_features=8, n_inputs=3, random_state=s) for s in range(400)]
    assert bias(Gaussian() ** 2, [TensorProduct(Gaussian() ** 2, p, p) for p in single]) > 1


def test_the_width_is_the_one_asked_for_however_wide_the_product():
    kernel = (Normalised(MIXED) * Modulated(weight, Gaussian())) ** 3
    for width in (20, 64, 301):
        phi = draw(kernel, PAIRS, n_features=width, n_inputs=3, random_state=0)
        assert phi.n_features == width
        assert np.isfinite(phi(rows(5))).all()


@pytest.mark.parametrize("power", [2, 3, 4])
def test_powers_of_sums_are_their_binomial_terms(power):
    kernel = (Gaussian(2.0) + 0.5 * Linear()) ** power
    phi = draw(kernel, PAIRS, n_features=400, n_inputs=3, random_state=0)
    assert len(phi.parts) == power + 1
    X = rows(6)
    assert_close(sum(part.kernel(X) for part in phi.parts), kernel(X), factor=4)
    assert phi.n_features <= 400


# ---- maps that stay below their kernels


def test_products_and_powers_of_maps_below_their_kernels_stay_below(rule):
    X = rows(60)

    @dataclass(frozen=True)
    class Below(Method):
        pass

    def below(kernel, ask):
        return draw(kernel, "nystrom", n_features=ask.n_features, X=ask.X, random_state=0)

    rule(Below, below)
    for kernel in (
        (Gaussian(2.0) + Linear()) * (Gaussian(3.0) + 1.0),
        (Gaussian(2.0) + Linear()) ** 2,
        Exp(Gaussian(2.0)),
        Exp(0.1 * (Gaussian(1.0) + Gaussian(3.0))),
    ):
        phi = draw(kernel, Below(), n_features=300, X=X, random_state=0)
        Z, K = phi(X), kernel(X)
        assert phi.below_kernel
        assert phi.n_features <= 300
        assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -1e-9 * K.max()
        assert np.linalg.norm(K - Z @ Z.T) < 0.1 * np.linalg.norm(K)


# ---- exponentials by their series


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_exponentials_are_their_series_with_exact_low_degrees(scale):
    X, kernel = rows(40), Exp(scale * Linear())
    phi = draw(kernel, Signed(), n_features=400, X=X, random_state=0)
    assert isinstance(phi, Concatenate)
    assert [part.n_features for part in phi.parts[:3]] == [1, 3, 9]
    K, Z = kernel(X), phi(X)
    assert np.linalg.norm(K - Z @ Z.T) < 0.1 / 400**0.5 * np.linalg.norm(K) * 3


@pytest.mark.statistical
def test_exponentials_of_stationary_kernels_have_sums_of_poisson_many_frequencies():
    for kernel in (Exp(Gaussian()), Exp(2.0 * Matern(1.5) + Periodic(3.0)), Exp(Exp(Gaussian()))):
        maps = [
            draw(kernel, PAIRS, n_features=64, n_inputs=3, random_state=s) for s in range(SEEDS)
        ]
        assert {type(phi).__name__ for phi in maps} == {"FourierMap"}
        assert bias(kernel, maps) < 1


def test_exponentials_out_of_range_are_refused():
    with pytest.raises(InvalidInput, match=r"Exp: values of the kernel must have an exponential"):
        draw(Exp(1000.0 * Gaussian() + Linear()), Signed(), n_features=64, n_inputs=3)


# ---- functions


def test_a_normalised_kernel_of_rows_without_length_is_zero_there():
    X = rows(6)
    X[2] = 0
    kernel = Normalised(Linear())
    Z = draw(kernel, Signed(), n_features=9, n_inputs=3)(X)
    assert (Z[2] == 0).all()
    assert kernel.diag(X).tolist() == [1, 1, 0, 1, 1, 1]
    assert_close(Z @ Z.T, kernel(X))


@pytest.mark.parametrize("kernel", [Modulated(weight, Gaussian()), Warped(absolute, Gaussian())])
def test_a_model_file_refuses_a_function_in_a_sentence(kernel, tmp_path):
    model = bo.KernelRidge(kernel, n_features=16, random_state=0).fit(rows(40), rows(40)[:, 0])
    with pytest.raises(
        bo.errors.InvalidType, match=r"model file cannot hold a function.*(weight|absolute)"
    ):
        bo.save(model, tmp_path / "model")


def test_too_few_features_for_the_exact_parts_are_refused():
    with pytest.raises(
        InvalidInput, match=r"Signed: Gaussian.* requires n_features of at least 4.*got 3"
    ):
        draw(Gaussian() + Linear(), Signed(), n_features=3, n_inputs=3)


def columnwise(d):
    return reduce(operator.add, (Columns(Laplace(4.0), (j,)) for j in range(d)))


@pytest.mark.parametrize("weight", [1e-9, 0.01, 100.0, 1e9])
@pytest.mark.parametrize("wide", [6, 64])
def test_every_term_of_a_small_sum_has_features(weight, wide):
    kernel = weight * columnwise(2) + Gaussian((2.0, 3.0))
    phi = draw(kernel, Fourier(QMC()), n_features=wide, X=rows(60)[:, :2], random_state=0)
    assert phi.n_features == wide
    assert min(part.n_features for part in phi.parts) >= 2


def test_auto_takes_landmarks_for_a_kernel_of_more_terms_than_features():
    X = np.random.default_rng(0).normal(size=(600, 80))
    with pytest.raises(InvalidInput, match=r"Fourier: .*at least 160, some for each of its terms"):
        draw(columnwise(80), PAIRS, n_features=64, X=X, random_state=0)
    phi = draw(columnwise(80), Auto(), n_features=64, X=X, random_state=0)
    assert isinstance(phi, NystromMap)
    assert phi.n_features == 64
    with pytest.raises(InvalidInput, match=r"some for each of its terms"):
        draw(columnwise(80), Auto((PAIRS,)), n_features=64, X=X, random_state=0)


STEEP = [
    ArcCosine(2) ** 3,
    (Linear() + Bilinear(np.eye(3))) ** 6,
    1e30 * Linear() * Angular(),
    Polynomial(5, offset=0.0) * NeuralTangent(2),
    Zonal((1.0, 0.5, 0.25), 4),
]
"""Kernels that grow like a power of the norms: no number of the dtype for rows that have one."""


def stretched(X, exponents, seed=5):
    """Return rows multiplied by powers of two, which no digit is lost by, in a random order."""
    powers = np.random.default_rng(seed).permutation(np.linspace(-exponents, exponents, len(X)))
    return X * (2.0 ** np.rint(powers)[:, None]).astype(X.dtype)


@pytest.mark.parametrize("kernel", [Normalised(k) for k in STEEP], ids=repr)
@pytest.mark.parametrize(("dtype", "exponents"), [("float32", 110), ("float64", 500)])
def test_cosines_of_powers_of_norms_are_those_of_rows_of_any_length(kernel, dtype, exponents):
    X = rows(30).astype(dtype)
    expected, long = kernel(X.astype(float)), stretched(X, exponents)
    assert_close(np.diag(expected), np.ones(30))
    for library in (np.asarray, torch.asarray, array_api_strict.asarray, scipy.sparse.csr_array):
        K, values = kernel(library(long)), kernel.diag(library(long))
        assert str(K.dtype).endswith(dtype)
        assert str(values.dtype).endswith(dtype)
        assert_close(K, expected, dtype)
        assert_close(values, np.ones(30), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", [Signed(), Nystrom()], ids=repr)
def test_features_of_cosines_are_those_of_rows_of_any_length(method, dtype):
    kernel, X = Normalised(Linear() ** 4), rows(30).astype(dtype)
    long = stretched(X, 500 if dtype == "float64" else 110)
    for given in (X, long):
        Z = draw(kernel, method, n_features=100, X=given, random_state=0)(long)
        assert Z.dtype == dtype
        lost = max(16 * tolerance.of(dtype), 1e3 * JITTER[np.dtype(dtype)])
        assert np.abs(Z @ Z.T - kernel(X.astype(float))).max() <= lost


def test_a_cosine_of_values_without_a_number_is_refused():
    X = 1e80 * rows(5)
    for call in (Normalised(Linear() ** 2 + 1.0), Normalised(Linear() ** 2 + 1.0).diag):
        with pytest.raises(InvalidInput, match=r"Normalised: kernel\(x, x\) must be .* overflow"):
            call(X)
