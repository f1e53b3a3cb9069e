"""Where frequencies fall: variances in closed form, orthogonality, errors against scikit-learn."""

import numpy as np
import pytest
from gallery import PLACEMENTS
from scipy.special import hyp1f1
from scipy.stats import norm
from sklearn.kernel_approximation import RBFSampler
from tolerance import assert_close, bar

from bochner.features import IID, QMC, Fourier, Orthogonal, draw
from bochner.kernels import Exponential, Gaussian, Laplace, Matern, RationalQuadratic

SEEDS = 2000
DISTANCES = np.array([0.3, 0.8, 1.5, 2.5])


def pairs_at(distances, d):
    """Rows 0 and x_j with ‖x_j‖ = distances[j], in a direction of no special kind."""
    u = np.random.default_rng(1).normal(size=d)
    return np.concatenate([np.zeros((1, d)), distances[:, None] * u / np.linalg.norm(u)])


def estimates(kernel, method, n_features, d, seeds=SEEDS):
    X = pairs_at(DISTANCES, d)
    maps = (
        draw(kernel, method, n_features=n_features, n_inputs=d, random_state=s)
        for s in range(seeds)
    )
    return np.array([(Z := phi(X))[1:] @ Z[0] for phi in maps])


def variance_excess(values, expected, comparisons):
    """Largest |s² − σ²| over its bar, from the empirical fourth moment."""
    centred = values - values.mean(axis=0)
    s2 = (centred**2).mean(axis=0)
    error = np.sqrt(((centred**2 - s2) ** 2).mean(axis=0) / len(values))
    return float((np.abs(s2 - expected) / (bar(comparisons) * error)).max())


def variances(kernel, d):
    """(1 + k(2δ) − 2k(δ)²) and (1 + ½k(2δ) − k(δ)²): D times those of pairs and of phases."""
    X = pairs_at(DISTANCES, d)
    k, k2 = kernel(X)[0, 1:], kernel(2 * X)[0, 1:]
    return {"pair": 1 + k2 - 2 * k * k, "phase": 1 + k2 / 2 - k * k}


SAMPLED = [Gaussian(), Laplace(3.0), Matern(1.5), Exponential(2.0), RationalQuadratic(0.8)]


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", SAMPLED, ids=repr)
def test_variance_of_independent_frequencies_is_the_closed_form(kernel):
    expected = variances(kernel, 3)
    pair = estimates(kernel, Fourier(IID(), "pair"), 8, 3)
    phase = estimates(kernel, Fourier(IID(), "phase"), 8, 3)
    comparisons = 2 * len(SAMPLED) * len(DISTANCES)
    assert variance_excess(pair, expected["pair"] / 8, comparisons) < 1
    assert variance_excess(phase, expected["phase"] / 8, comparisons) < 1
    # The planted fault: the variance of the other form.
    assert variance_excess(pair, expected["phase"] / 8, comparisons) > 1
    assert variance_excess(phase, expected["pair"] / 8, comparisons) > 1


def orthogonal_variance(d, m):
    """The closed form of docs/notation.md, Gaussian kernel, m frequencies in blocks of d."""
    z = DISTANCES
    k, k2 = np.exp(-(z**2) / 2), np.exp(-2 * z**2)
    bracket = hyp1f1(d, d / 2, -(z**2) / 2) - np.exp(-(z**2))
    return ((1 + k2) / 2 - k * k) / m + (d - 1) / m * bracket


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "m"), [(2, 2), (3, 3), (3, 6), (8, 8)])
def test_variance_of_orthogonal_frequencies_is_the_closed_form(d, m):
    expected = orthogonal_variance(d, m)
    values = estimates(Gaussian(), Fourier(Orthogonal()), 2 * m, d)
    assert variance_excess(values, expected, 4 * len(DISTANCES)) < 1
    # The planted fault: independent directions.
    independent = estimates(Gaussian(), Fourier(IID()), 2 * m, d)
    assert variance_excess(independent, expected, 4 * len(DISTANCES)) > 1


@pytest.mark.parametrize("d", [1, 2, 5])
def test_blocks_of_orthogonal_frequencies_are_orthogonal_and_differ(d):
    W = Orthogonal().place(Matern(1.5).spectral_measure(d), 3 * d + 1, np.random.default_rng(0))
    assert W.shape == (d, 3 * d + 1)
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, 3 * d, d):
        block = directions[:, start : start + d]
        assert_close(block.T @ block, np.eye(d))
    if d > 1:
        assert not np.allclose(np.abs(directions[:, :d]), np.abs(directions[:, d : 2 * d]))


def test_orthogonal_blocks_are_stretched_by_the_lengthscales():
    scales = (0.5, 2.0, 8.0)
    kernel = Gaussian(scales)
    W = Orthogonal().place(kernel.spectral_measure(3), 3, np.random.default_rng(0))
    unit = Orthogonal().place(Gaussian().spectral_measure(3), 3, np.random.default_rng(0))
    assert_close(W * np.array(scales)[:, None], unit)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=repr)
@pytest.mark.parametrize("m", [1, 2, 7, 64])
def test_any_number_of_frequencies_is_placed(placement, m):
    W = placement.place(Gaussian().spectral_measure(4), m, np.random.default_rng(0))
    assert W.shape == (4, m)
    assert W.dtype == np.float64
    assert np.isfinite(W).all()


def test_sobol_frequencies_are_spread_better_than_independent_ones():
    """Half of the frequencies are below the median of |ω|, but for one, in each coordinate."""
    W = QMC().place(Gaussian().spectral_measure(5), 256, np.random.default_rng(0))
    assert (np.abs((np.abs(W) < norm.ppf(0.75)).sum(axis=1) - 128) <= 1).all()
    W = IID().place(Gaussian().spectral_measure(5), 256, np.random.default_rng(0))
    assert (np.abs((np.abs(W) < norm.ppf(0.75)).sum(axis=1) - 128) > 1).any()


def relative_error(Z, K):
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("d", "placement", "share"),
    [(5, QMC(), 1 / 8), (20, Orthogonal(), 1 / 3), (100, Orthogonal(), 1 / 3)],
)
def test_error_is_a_fraction_of_that_of_scikit_learn(d, placement, share):
    """Gaussian data, median distance as lengthscale, D = 1024; means over eight seeds each."""
    X = np.random.default_rng(d).normal(size=(800, d))
    distances = np.sqrt(((X[:400] - X[400:]) ** 2).sum(axis=1))
    kernel = Gaussian(float(np.median(distances)))
    K, ours, theirs = kernel(X), [], []
    for seed in range(8):
        phi = draw(kernel, Fourier(placement), n_features=1024, X=X, random_state=seed)
        gamma = 1 / (2 * kernel.lengthscale**2)
        sampler = RBFSampler(gamma=gamma, n_components=1024, random_state=seed)
        ours.append(relative_error(phi(X), K))
        theirs.append(relative_error(sampler.fit_transform(X), K))
    assert np.mean(ours) <= share * np.mean(theirs), f"{np.mean(ours) / np.mean(theirs):.3f}"
