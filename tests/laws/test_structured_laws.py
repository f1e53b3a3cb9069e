"""Frequencies that are not formed, weighted ones, and complex features."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import torch
from inside import native
from scipy.special import hyp1f1
from scipy.stats import t as student
from tolerance import assert_close, bar

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import IID, QMC, Fastfood, Fourier, Grid, Orthogonal, Structured, draw
from bochner.features.fourier.fourier import (
    FourierGridMap,
    FourierMap,
    FourierPhaseMap,
    require_real,
)
from bochner.features.fourier.placements import StructuredMap, chains_of
from bochner.kernels import Gaussian, Laplace, Linear, Matern, RationalQuadratic

D_INPUTS = 100
MAPS = {
    f"{placement!r}-{form}": draw(
        Matern(1.5, lengthscale=8.0),
        Fourier(placement, form),
        n_features=300,
        n_inputs=D_INPUTS,
        random_state=1,
    )
    for placement in (Structured(), Fastfood())
    for form in ("pair", "phase")
}
every_map = pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)


def rows(n, d=D_INPUTS, dtype=np.float64, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)
    X.flags.writeable = False
    return X


def dense(phi):
    """The same map by a product with its frequencies."""
    if len(phi.phases):
        return FourierPhaseMap(phi.kernel, phi.frequencies, phi.phases, phi.amplitude)
    return FourierMap(phi.kernel, phi.frequencies, phi.amplitude)


# ---- the map


@every_map
def test_transforms_give_the_features_of_the_frequencies(phi):
    assert type(phi) is StructuredMap
    assert phi.frequencies.shape == (D_INPUTS, phi.n_frequencies)
    assert phi.n_features == 300
    X = rows(25)
    assert_close(phi(X), dense(phi)(X), factor=8)
    Z = phi(rows(25, dtype=np.float32))
    assert Z.dtype == np.float32
    assert_close(Z, phi(X), np.float32)


@pytest.mark.parametrize("placement", [Structured(), Fastfood()], ids=repr)
@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("d", [100, 784])
def test_float32_features_err_by_two_in_a_million(placement, form, d):
    """The law of every Fourier map: at most 2e-6 √(2/D) (1 + ‖x‖), for lengthscale one."""
    phi = draw(Gaussian(), Fourier(placement, form), n_features=300, n_inputs=d, random_state=0)
    for size in (0, 1e-3, 0.3, 5.0):
        X = (size * rows(100, d)).astype(np.float32)
        bound = 2e-6 * (2 / 300) ** 0.5 * (1 + np.linalg.norm(X, axis=1, keepdims=True))
        assert (np.abs(phi(X) - phi(X.astype(np.float64))) <= bound).all()


def test_lengthscales_of_columns_scale_the_frequencies():
    scales = np.linspace(0.5, 3.0, D_INPUTS)
    for placement in (Structured(), Fastfood()):
        many, one = (
            draw(k, Fourier(placement), n_features=300, n_inputs=D_INPUTS, random_state=0)
            for k in (Gaussian(tuple(scales)), Gaussian())
        )
        assert_close(many.frequencies * scales[:, None], one.frequencies)


def test_frequencies_are_formed_where_that_is_faster():
    def kind(d, n_features, placement=None):
        method = Fourier(placement or Structured())
        return type(draw(Gaussian(), method, n_features=n_features, n_inputs=d, random_state=0))

    assert kind(1024, 8192) is kind(256, 512) is kind(784, 1000, Fastfood()) is StructuredMap
    assert kind(3, 512) is kind(31, 512) is kind(3, 512, Fastfood()) is FourierMap
    assert kind(1024, 32) is FourierMap  # most of a block would be cut away


# ---- the law of the frequencies


def projections(count, d, u, steps=3):
    """Of a direction u on the unit rows of Structured blocks, (count, d); fewer steps: a fault."""
    measure = Gaussian().spectral_measure(d)
    chains = chains_of(Structured(), measure, count * d, np.random.default_rng(0))
    diagonals = chains.diagonals[:, 3 - steps :].copy()
    diagonals[:, -1] = d ** (-steps / 2)
    return native.turns(u[None], chains._replace(diagonals=diagonals)).reshape(count, d)


def deviation(a, r, radius, comparisons):
    """|E cos(length · a · r) − k(r)| beyond what sampling explains; lengths are averaged exactly."""
    d = a.shape[1]
    if radius == "chi":
        values = hyp1f1(d / 2, 0.5, -((a * r) ** 2) / 2).mean(axis=1)
    else:
        values = np.cos(d**0.5 * a * r).mean(axis=1)
    error = values.std(ddof=1) / len(values) ** 0.5
    return abs(values.mean() - np.exp(-(r**2) / 2)) - bar(comparisons) * error


BIAS = 2e-3
"""What `Structured` says of itself at 32 columns."""


@pytest.mark.statistical
def test_bias_of_structured_frequencies_is_below_what_they_say():
    """Along a coordinate, the sum of two, and no axis; planted faults: equal lengths, one step."""
    d, distances = 32, (0.5, 1.0, 1.5, 2.0)
    rng = np.random.default_rng(0)
    directions = np.array([np.eye(d)[0], np.eye(d)[:2].sum(axis=0), rng.normal(size=d)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for u in directions:
        a = projections(4000, d, u)
        assert_close((a * a).sum(axis=1), np.ones(4000))
        for r in distances:
            assert deviation(a, r, "chi", 12) < BIAS
        assert deviation(a, 1.5, "equal", 12) > BIAS
    once = projections(4000, d, directions[0], steps=1)
    assert deviation(once, 1.5, "chi", 12) > BIAS


def test_rows_of_structured_blocks_are_orthogonal_and_differ():
    W = Structured().place(Matern(1.5).spectral_measure(64), 128, np.random.default_rng(0))
    directions = W / np.linalg.norm(W, axis=0)
    for block in (directions[:, :64], directions[:, 64:]):
        assert_close(block.T @ block, np.eye(64))
    assert np.abs(directions[:, :64].T @ directions[:, 64:]).max() > 0.1


@pytest.mark.main_cases(6)
@pytest.mark.statistical
@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("kernel", [Gaussian(), Matern(0.8), RationalQuadratic(0.8)], ids=repr)
def test_fastfood_is_unbiased(kernel, d, form):
    """Student's t over seeds, the alarm rate 1e-6; planted fault: 1.3 times the lengthscale."""
    X = np.concatenate([np.zeros((1, d)), np.eye(d)[:1], rows(2, d) / d**0.5])
    Z = [
        draw(kernel, Fourier(Fastfood(), form), n_features=64, n_inputs=d, random_state=s)(X)
        for s in range(500)
    ]
    values = np.array([z[1:] @ z[0] for z in Z])
    error = values.std(axis=0, ddof=1) / len(values) ** 0.5
    allowed = student.isf(1e-6 / 72, len(values) - 1)
    off = np.abs(values.mean(axis=0) - kernel(X)[0, 1:]) / error
    wrong = np.abs(values.mean(axis=0) - kernel(1.3 * X)[0, 1:]) / error
    assert off.max() < allowed < wrong.max()


# ---- Gauss-Hermite nodes


@pytest.mark.parametrize(
    ("d", "n_features", "q"), [(1, 40, 40), (2, 300, 17), (2, 128, 11), (3, 1000, 10)]
)
def test_grids_are_exact_where_points_are_near(d, n_features, q):
    phi = draw(Gaussian(2.0), Fourier(Grid()), n_features=n_features, n_inputs=d)
    assert type(phi) is FourierGridMap
    assert phi.n_features == 2 * ((q**d + 1) // 2) <= n_features + 1
    X = 0.3 * rows(20, d)
    Z = phi(X)
    assert_close(Z @ Z.T, Gaussian(2.0)(X), factor=100)
    assert_close((Z * Z).sum(axis=1), np.ones(20))
    assert_close(phi(torch.asarray(X)), Z)
    assert_close(phi(X.astype(np.float32)), Z, np.float32)
    assert_close(phi(scipy.sparse.csr_array(X)), Z)


def test_grids_integrate_what_one_node_less_does_not():
    """q nodes hold |ω|^(2q−2) exactly and not |ω|^(2q): moments of the normal law."""
    for q in (3, 4, 7):
        W, weights = Grid().nodes(Gaussian().spectral_measure(1), (q + 1) // 2)
        moments = [weights @ W[0] ** (2 * j) for j in range(q + 1)]
        exact = [float(np.prod(np.arange(2 * j - 1, 0, -2))) for j in range(q + 1)]
        q_used = 2 * len(weights) - (W[0] == 0).any()
        assert_close(moments[:q_used], exact[:q_used])


def test_grids_serve_sums_of_gaussians_and_refuse_others():
    kernel = 2.0 * Gaussian((2.0, 3.0)) + Gaussian(4.0)
    X = 0.3 * rows(10, 2)
    Z = draw(kernel, Fourier(Grid()), n_features=400, X=X)(X)
    assert_close(Z @ Z.T, kernel(X), factor=100)
    for other in (Matern(1.5), Laplace()):
        with pytest.raises(UnsupportedKernel, match=r"Gaussian kernel.*Gauss-Hermite.*QMC"):
            draw(other, Fourier(Grid()), n_features=64, n_inputs=2)
    with pytest.raises(InvalidInput, match=r"at most 3 columns.*got 4\. Use Fourier\(QMC"):
        draw(Gaussian(), Fourier(Grid()), n_features=64, n_inputs=4)
    with pytest.raises(InvalidInput, match=r'Grid.* requires form="pair".*got .phase'):
        Fourier(Grid(), "phase")


# ---- complex features


@pytest.mark.parametrize("placement", [IID(), Orthogonal(), QMC(), Structured()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_features_are_the_pairs_as_one_number(placement, dtype):
    X = rows(12, 64, dtype)
    ask = dict(n_inputs=64, random_state=2)
    phi = draw(Matern(1.5, 9.0), Fourier(placement, "complex"), n_features=200, **ask)
    pairs = draw(Matern(1.5, 9.0), Fourier(placement), n_features=400, **ask)
    Z, P = phi(X), pairs(X)
    assert Z.dtype == (np.complex64 if dtype == np.float32 else np.complex128)
    assert Z.shape == (12, phi.n_features) == (12, 200)
    assert (Z.real == P[:, :200]).all()
    assert (Z.imag == P[:, 200:]).all()
    assert_close((Z @ Z.conj().T).real, P @ P.T, dtype)
    assert np.abs(Z @ Z.conj().T - phi.kernel(X.astype(float))).max() < 0.4
    with array_api_strict.ArrayAPIStrictFlags(boolean_indexing=False):
        for xp in (torch, array_api_strict):
            same = phi(xp.asarray(np.array(X)))
            assert_close(np.from_dlpack(xp.real(same)), Z.real, dtype)
            assert_close(np.from_dlpack(xp.imag(same)), Z.imag, dtype)


def test_complex_features_are_refused_by_what_fits_with_the_name_that_serves():
    X, y = rows(40, 3), rows(40, 1)[:, 0]
    method = Fourier(IID(), "complex")
    phi = draw(Gaussian(), method, n_features=8, X=X)
    for consume in (
        lambda: require_real(phi, "fit"),
        lambda: require_real(draw(Gaussian() + Linear(), method, n_features=16, X=X), "fit"),
        lambda: bo.KernelRidge(Gaussian(), method=method, n_features=8).fit(X, y),
        lambda: bo.certify(phi, X, alpha=1.0),
    ):
        with pytest.raises(InvalidInput, match=r'requires real features.*form="pair"'):
            consume()
