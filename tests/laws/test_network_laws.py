"""Laws of the random features of angle kernels: signs, ReLU layers, networks."""

import itertools

import numpy as np
import pytest
import tolerance
from gallery import DEEP, N_COLUMNS, NETWORKS, rows
from scipy.linalg import hadamard
from scipy.stats import t as student
from tolerance import ALARM, assert_close

from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features import IID, NeuralTangentFeatures, Orthogonal, ReLU, Sign, draw
from bochner.features.random.networks import (
    NeuralMap,
    ReLUMap,
    SignMap,
    polynomial_width,
)
from bochner.kernels import NNGP, Angular, ArcCosine, Gaussian, NeuralTangent

D = 48

ALL = [*NETWORKS, *DEEP]
every_map = pytest.mark.parametrize("pair", ALL, ids=repr)


def drawn(pair, seed=0, n_features=D, n_inputs=N_COLUMNS):
    return draw(*pair, n_features=n_features, n_inputs=n_inputs, random_state=seed)


# ---- unbiased


SEEDS = 160
COMPARISONS = 10 * len(NETWORKS)


def bias(kernel, maps):
    X = rows(5, seed=3)[:4]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], COMPARISONS)


@pytest.mark.statistical
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("split", [True, False])
def test_planted_fault_lengths_of_directions_are_seen(order, split):
    """Gaussian ω where the factors d and d(d + 2) expect unit directions, one tenth too long."""
    pair = (ArcCosine(order), ReLU(order, IID(), split))
    maps = [drawn(pair, seed, 400) for seed in range(SEEDS)]
    faults = [ReLUMap(p.kernel, 1.1 * p.directions, p.order, p.split) for p in maps]
    assert bias(pair[0], maps) < 1 < bias(pair[0], faults)


def relative_error(kernel, Z, X):
    K = kernel(X)
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


@pytest.mark.parametrize("pair", DEEP, ids=repr)
def test_deep_features_converge(pair):
    """Sixteen times the width: a quarter of the error, and of the bias less."""
    X = rows(40)
    narrow, wide = (
        np.mean([relative_error(pair[0], drawn(pair, seed, width)(X), X) for seed in range(8)])
        for width in (128, 2048)
    )
    assert wide < 0.35 * narrow


# ---- variance: closed forms for a row with itself


def product_variances(method, d, x, y, runs=4000):
    """Variance of D times the random part of φ(x)·φ(y), one direction at a time."""
    phi = draw(ArcCosine(method.order), method, n_features=runs, n_inputs=d, random_state=1)
    m = phi.directions.shape[1]
    Z = phi(np.stack([x, y]))[:, -m:]
    products = m * Z[0] * Z[1]
    centred = (products - products.mean()) ** 2
    return centred.mean(), centred.std() / np.sqrt(m)


CASES = list(itertools.product((0, 1, 2), (4, 9), (True, False)))


def stated(order, d, split):
    """The table of `ReLU`."""
    c = d * (d + 2) / ((d + 4) * (d + 6))
    if split:
        return (0.0, (3 * d / (d + 2) - 1) / 4, (105 * c - 9) / 4)[order]
    return (1.0, 6 * d / (d + 2) - 1, 210 * c - 9)[order]


@pytest.mark.statistical
@pytest.mark.parametrize(("order", "d", "split"), CASES)
def test_variance_of_a_direction_is_as_stated(order, d, split):
    x = np.eye(d)[0]
    found, error = product_variances(ReLU(order, IID(), split), d, x, x)
    bar = student.isf(ALARM / (2 * len(CASES)), 1000)
    assert abs(found - stated(order, d, split)) <= bar * error + 1e-9


# ---- exact parts and slow twins


@pytest.mark.parametrize("d", [1, 2, 5])
def test_polynomial_features_are_exact(d):
    X = np.random.default_rng(d).normal(size=(12, d))
    G, norms = X @ X.T, (X * X).sum(axis=1)
    exact = (np.full_like(G, 0.5), 0.5 * G, 0.5 * np.outer(norms, norms) + G * G)
    for order in range(3):
        phi = draw(ArcCosine(order), ReLU(order, IID(), True), n_features=20, X=X, random_state=0)
        P = phi(X)[:, : polynomial_width(order, d)]
        assert_close(P @ P.T, exact[order])


def twin_of_sign(phi, x):
    return [np.sign(x @ u) / phi.n_features**0.5 for u in phi.directions.T]


def twin_of_relu(phi, x):
    d, m = phi.directions.shape
    c = (1, d, d * (d + 2))[phi.order]
    t = phi.directions.T @ x
    if phi.split:
        power = (np.sign(t), np.abs(t), t * np.abs(t))[phi.order]
        return list(np.sqrt(c / (2 * m)) * power)
    return list(np.sqrt(2 * c / m) * np.where(t > 0, t**phi.order, 0))


def signed_transform(v, signs):
    padded = np.zeros(len(signs))
    padded[: len(v)] = v
    return hadamard(len(signs)) @ (signs * padded)


def twin_of_network(phi, x):
    """The sums that the module states, one row at a time: pairs (j, block) of A_j and T_j."""
    u, A, T = x / np.linalg.norm(x), [], []

    def sigma(h):
        return np.concatenate([2.0 ** (-h / 2) * u, *(2.0 ** ((j - h) / 2) * a for j, a in A)])

    def full(h):
        parts = [((h + 1) / 2**h) ** 0.5 * u]
        for (j, a), (_, t) in zip(A, T, strict=True):
            parts += [((h - j + 1) / 2 ** (h - j)) ** 0.5 * a, 2.0 ** ((j - h) / 2) * t]
        return np.concatenate(parts)

    for h, W in enumerate(phi.ramps):
        p, m = W.shape
        below = sigma(h)
        if phi.steps:
            mixed = signed_transform(full(h), phi.signs[h])[phi.picks[h]]
            T.append((h + 1, np.sign(phi.steps[h].T @ below) * mixed / np.sqrt(2 * len(mixed))))
        A.append((h + 1, np.array([abs(w @ below) for w in W.T]) * np.sqrt(p / (2 * m))))
    return np.linalg.norm(x) * (full if phi.steps else sigma)(len(A))


@pytest.mark.parametrize("kernel", [NeuralTangent(1), NeuralTangent(3), NNGP(1), NNGP(4)], ids=repr)
def test_layers_share_the_features_by_their_factors(kernel):
    """As (L − j + 1) 2^(j − L) to A_j and j 2^(j − L) to T_j; of NNGP 2^(j − L), and no T_j."""
    phi, L = draw(kernel, NeuralTangentFeatures(), n_features=1003, n_inputs=3), kernel.depth
    tangent = isinstance(kernel, NeuralTangent)
    ramps = [(L - j + 1 if tangent else 1) / 2 ** (L - j) for j in range(1, L + 1)]
    steps = [j / 2 ** (L - j) if tangent else 0.0 for j in range(1, L + 1)]
    found = [W.shape[1] for W in phi.ramps], [W.shape[1] for W in phi.steps] or [0] * L
    assert phi.n_features == 1003
    for widths, shares in zip(found, (ramps, steps), strict=True):
        expected = 1000 * np.array(shares) / (sum(ramps) + sum(steps))
        assert np.abs(np.array(widths) - expected).max() <= 1


@pytest.mark.parametrize("kind", [NeuralTangent, NNGP])
def test_directions_of_layers_are_orthogonal_in_blocks_and_of_length_one(kind):
    phi = draw(kind(2), NeuralTangentFeatures(), n_features=43, n_inputs=4, random_state=0)
    below = 4
    for W in (*phi.ramps, *phi.steps):
        assert_close(np.linalg.norm(W, axis=0), np.ones(W.shape[1]))
    for W in phi.ramps:
        assert W.shape[0] == below
        for start in range(0, W.shape[1], below):
            block = W[:, start : start + below]
            assert_close(block.T @ block, np.eye(block.shape[1]))
        below += W.shape[1]


def test_exact_parts_are_split_off_where_they_are_half_of_the_features_at_most():
    for d, exact, method, kernel in (
        (5, 5, ReLU(1), ArcCosine(1)),
        (5, 1, ReLU(0), ArcCosine(0)),
        (5, 15, ReLU(2), ArcCosine(2)),
    ):
        for width, split in ((2 * exact, True), (2 * exact - 1, False)):
            phi = draw(kernel, method, n_features=width, n_inputs=d, random_state=0)
            assert phi.n_features == width
            found = isinstance(phi, NeuralMap) if kernel == NNGP(1) else phi.split
            assert found is split


def test_the_fewest_features_of_each_form_are_drawn():
    """One for each part of a layer beside the exact ones; two where steps are sketched."""
    for kernel, method, fewest in (
        (NeuralTangent(1), NeuralTangentFeatures(), 5),
        (NNGP(1), NeuralTangentFeatures(), 4),
        (ArcCosine(1), ReLU(1, split=True), 4),
    ):
        assert drawn((kernel, method), n_features=fewest).n_features == fewest
        with pytest.raises(InvalidInput):
            drawn((kernel, method), n_features=fewest - 1)


@every_map
def test_features_are_those_of_the_slow_twin(pair):
    phi, X = drawn(pair), rows(7)
    Z = phi(X)
    twin = {
        SignMap: twin_of_sign,
        ReLUMap: twin_of_relu,
        NeuralMap: twin_of_network,
    }[type(phi)]
    slow = np.array([twin(phi, x) for x in X])
    assert_close(Z[:, -slow.shape[1] :], slow)


# ---- one map for all: blocks, libraries, precisions, seeds


@pytest.mark.parametrize("placement", [IID(), Orthogonal()], ids=repr)
@pytest.mark.parametrize("order", [None, 0, 1, 2])
def test_twice_the_width_keeps_the_directions(placement, order):
    kernel = Angular() if order is None else ArcCosine(order)
    method = Sign(placement) if order is None else ReLU(order, placement, split=False)
    narrow, wide = (drawn((kernel, method), 0, width) for width in (D, 2 * D))
    assert_close(wide.directions[:, :D], narrow.directions)


@every_map
def test_lengths_act_as_in_the_kernel(pair):
    """φ(c x) = c^p φ(x), and a row of zeros is at right angles to all, as the kernel has it."""
    kernel, _ = pair
    phi, X = drawn(pair), rows(9)
    assert_close(phi(7.0 * X), 7.0**kernel.degree * phi(X))
    X[3] = 0
    Z = phi(X)
    assert np.isfinite(Z).all()
    exact = (ArcCosine(0), ReLU(0, IID(), split=False)) != pair
    assert_close((Z @ Z.T)[3], kernel(X)[3] if exact else Z @ Z[3])
    assert_close(Z[3] @ Z[3], kernel(X)[3, 3])


# ---- refusals


REFUSED = [
    (Gaussian(), Sign(), UnsupportedKernel, r"Sign requires Angular\(\).*Nystrom"),
    (Gaussian(), ReLU(), UnsupportedKernel, r"ReLU\(1\) requires ArcCosine\(1\).*Nystrom"),
    (ArcCosine(2), ReLU(1), UnsupportedKernel, r"ReLU\(1\) requires ArcCosine\(1\).*order=2"),
    (
        Angular(),
        NeuralTangentFeatures(),
        UnsupportedKernel,
        r"NeuralTangentFeatures requires NeuralTangent\(depth\) or NNGP.*Nystrom",
    ),
    (ArcCosine(2), ReLU(2, split=True), InvalidInput, r"more than the 6 features.*got 5.*split"),
    (NeuralTangent(9), NeuralTangentFeatures(), InvalidInput, r"too few features.*more"),
]


@pytest.mark.parametrize(("kernel", "method", "error", "message"), REFUSED, ids=repr)
def test_refusals(kernel, method, error, message):
    with pytest.raises(error, match=message):
        draw(kernel, method, n_features=5, n_inputs=3)


def test_refused_arguments():
    with pytest.raises(InvalidInput, match=r"ReLU: order must be 0, 1 or 2; got 3"):
        ReLU(3)
    with pytest.raises(InvalidInput, match=r"Sign: placement must be IID\(\).*got 'iid'"):
        Sign("iid")
    with pytest.raises(InvalidInput, match=r"ReLU: placement must be IID\(\).*got 'iid'"):
        ReLU(1, "iid")
    with pytest.raises(InvalidType, match=r"ReLU: split must be True, False or None; got 3"):
        ReLU(1, split=3)
