"""Where frequencies fall: variances in closed form, orthogonality, errors against scikit-learn.

Placements that are never formed, and weighted ones, are in test_structured_laws.py.
"""

import tracemalloc

import numpy as np
import pytest
from gallery import PLACEMENTS
from scipy.special import hyp1f1
from scipy.stats import beta, ks_2samp, kstest, norm
from scipy.stats import t as student
from sklearn.kernel_approximation import RBFSampler
from tolerance import assert_close, bar

from bochner.errors import InvalidInput
from bochner.features import IID, QMC, Fastfood, Fourier, Orthogonal, Structured, draw
from bochner.features.fourier.placements import orthonormal_rows
from bochner.kernels import (
    Exponential,
    ExponentialPower,
    Gaussian,
    Laplace,
    Matern,
    Periodic,
    RationalQuadratic,
    SpectralMixture,
)

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


@pytest.mark.main_cases(2)
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


@pytest.mark.main_cases(2)
@pytest.mark.statistical
@pytest.mark.parametrize(("d", "m"), [(2, 2), (3, 3), (3, 6), (8, 8)])
def test_variance_of_orthogonal_frequencies_is_the_closed_form(d, m):
    expected = orthogonal_variance(d, m)
    values = estimates(Gaussian(), Fourier(Orthogonal()), 2 * m, d)
    assert variance_excess(values, expected, 4 * len(DISTANCES)) < 1
    # The planted fault: independent directions.
    independent = estimates(Gaussian(), Fourier(IID()), 2 * m, d)
    assert variance_excess(independent, expected, 4 * len(DISTANCES)) > 1


@pytest.mark.parametrize("m", [1, 40, 90, 150, 310])
def test_of_a_wide_block_as_many_directions_as_are_asked_for_are_orthogonal(m):
    """By a Cholesky factor (m ≤ d/2), by reflections, and with whole blocks before."""
    d = 150
    W = Orthogonal().place(Matern(1.5).spectral_measure(d), m, np.random.default_rng(0))
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, m, d):
        block = directions[:, start : start + d]
        assert_close(block.T @ block, np.eye(block.shape[1]))


@pytest.mark.statistical
@pytest.mark.parametrize("count", [30, 70])
def test_parts_of_wide_blocks_are_uniform_in_every_direction(count):
    """(1 + u)/2 of one coordinate of the last row is Beta((d − 1)/2, (d − 1)/2).

    Kolmogorov-Smirnov over 400 draws; the alarm rate is 1e-6 of all four. Planted fault: rows of
    reflections whose signs are left as they come, of which the first never has a positive number
    in the first place.
    """
    d, draws, law = 100, 400, beta(99 / 2, 99 / 2)

    def coordinates(rows):
        return [(1 + rows(np.random.default_rng(seed))) / 2 for seed in range(draws)]

    for place in (0, 17):
        right = coordinates(lambda rng, k=place: orthonormal_rows(d, count, rng)[-1, k])
        assert kstest(right, law.cdf).pvalue > 1e-6 / 4
    wrong = coordinates(lambda rng: np.linalg.qr(rng.standard_normal((d, count)))[0][0, 0])
    assert kstest(wrong, law.cdf).pvalue < 1e-6 / 4


def test_few_frequencies_of_many_columns_take_little_memory():
    """16 of 20,000 columns: a (d, d) matrix is 3.2 GB, the frequencies are 2.6 MB."""
    measure = Gaussian().spectral_measure(20_000)
    for placement in (Orthogonal(), Structured(), Fastfood()):
        tracemalloc.start()
        W = placement.place(measure, 16, np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert W.shape == (20_000, 16)
        assert peak < 20 * W.nbytes, placement


EVERY = [*PLACEMENTS, QMC("halton"), Structured(), Fastfood()]


# ---- nested


@pytest.mark.parametrize("placement", EVERY, ids=repr)
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Matern(1.5, 2.0), RationalQuadratic(0.8), ExponentialPower(power=1.2)],
    ids=repr,
)
@pytest.mark.parametrize("d", [1, 4, 40, 130])
def test_twice_the_width_begins_with_the_frequencies_of_the_narrow_map(placement, kernel, d):
    measure = kernel.spectral_measure(d)
    few, many, whole = (
        placement.place(measure, m, np.random.default_rng(5)) for m in (30, 60, 480)
    )
    assert_close(many[:, :30], few)
    assert_close(whole[:, :60], many)


@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("placement", EVERY, ids=repr)
def test_maps_of_twice_the_width_hold_the_features_of_the_narrow_one(placement, form):
    X = np.random.default_rng(0).normal(size=(9, 40))
    narrow, wide = (
        draw(Matern(2.5, 6.0), Fourier(placement, form), n_features=D, n_inputs=40, random_state=3)
        for D in (48, 96)
    )
    parts = 2 if form == "pair" else 1
    few, many = (phi(X).reshape(9, parts, -1) for phi in (narrow, wide))
    assert_close(2**0.5 * many[:, :, : few.shape[2]], few)


# ---- the radial law of every isotropic kernel


@pytest.mark.statistical
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Matern(0.8), RationalQuadratic(0.8), ExponentialPower(power=0.7), Exponential()],
    ids=repr,
)
@pytest.mark.parametrize("placement", [Orthogonal(), Fastfood(), Structured()], ids=repr)
def test_lengths_of_frequencies_have_the_law_of_the_kernel(kernel, placement):
    """Kolmogorov-Smirnov against independent draws of the measure itself; the alarm rate is 1e-6.

    Planted fault: lengths of another kernel.
    """
    d, m = 32, 6000
    rng = np.random.default_rng(0)

    def lengths(other):
        W = placement.place(other.spectral_measure(d), m, rng)
        return np.linalg.norm(W, axis=0)

    expected = np.linalg.norm(kernel.spectral_measure(d).sample(rng, m), axis=1)
    assert ks_2samp(lengths(kernel), expected).pvalue > 1e-6 / 15
    assert ks_2samp(lengths(Matern(2.0)), expected).pvalue < 1e-6 / 15


# ---- sequences


@pytest.mark.main_cases(7)
@pytest.mark.statistical
@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(),
        Laplace(3.0),
        Matern(0.7),
        ExponentialPower(power=0.7, lengthscale=2.0),
        Periodic(period=2.0),
        SpectralMixture(
            weights=(1.0, 0.5), means=((0.0, 1.0, 0.2),) * 2, scales=((0.1,) * 3, (0.3,) * 3)
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("sequence", ["sobol", "halton"])
def test_low_discrepancy_points_are_unbiased(kernel, sequence):
    """Student's t over seeds; the planted fault is a kernel of 1.3 times the lengthscale."""
    values = estimates(kernel, Fourier(QMC(sequence)), 64, 3, seeds=200)
    K = kernel(pairs_at(DISTANCES, 3))[0, 1:]
    error = values.std(axis=0, ddof=1) / len(values) ** 0.5
    t = np.abs(values.mean(axis=0) - K) / (error + 1e-12)
    allowed = student.isf(1e-6 / (2 * 12 * len(DISTANCES)), len(values) - 1)
    assert t.max() < allowed
    wrong = kernel(1.3 * pairs_at(DISTANCES, 3))[0, 1:]
    assert (np.abs(values.mean(axis=0) - wrong) / error).max() > allowed


def test_sequences_are_named():
    assert repr(QMC()) == "QMC()"
    assert repr(QMC("halton")) == "QMC('halton')"
    with pytest.raises(InvalidInput, match=r'sequence must be "sobol" or "halton"; got .niederr'):
        QMC("niederreiter")


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
