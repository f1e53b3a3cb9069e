"""check_features: each law passes sound maps, fails spoiled ones, and says what it measured."""

import numpy as np
import pytest
from scipy.stats import t as student

import bochner as bo
from bochner import FeatureMap, check_features
from bochner.kernels import Custom, Gaussian


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def maps():
    methods = bo.Fourier(bo.IID()), bo.Nystrom()
    return [bo.draw(Gaussian(1.5), m, n_features=60, X=rows(), random_state=0) for m in methods]


class Broken(FeatureMap):
    """cos and sin of three columns, spoiled by ``how``."""

    def __init__(self, how):
        self.how, self.kernel, self.calls = how, Custom(cosines), 0

    n_inputs, n_features = 3, 6

    @property
    def below_kernel(self):
        return self.how in ("below", "exact")

    def features(self, X):
        Z = np.concatenate([np.cos(X), np.sin(X)], axis=1) / np.sqrt(3).astype(X.dtype)
        self.calls += 1
        if self.how in SPOILED:
            return SPOILED[self.how](Z, X, self.calls)
        return Z

    def __call__(self, X):
        return self.features(X[:, :3]) if self.how == "refusal" else FeatureMap.__call__(self, X)


def cosines(X, Y):
    return np.cos(X[:, None] - Y[None]).mean(axis=2)


def written(Z, X, calls):
    X += 1
    return Z


SPOILED = {
    "shape": lambda Z, X, c: Z[:, :5],
    "dtype": lambda Z, X, c: Z.astype(np.float64),
    "finite": lambda Z, X, c: np.where(X[:, :1] > 0, np.inf, Z),
    "deterministic": lambda Z, X, c: Z + c,
    "arguments": written,
    "alone": lambda Z, X, c: Z - Z.mean(axis=0),
    "precision": lambda Z, X, c: Z * (1.1 if X.dtype == np.float32 else 1.0),
    "kernel": lambda Z, X, c: Z * 2,
    "below": lambda Z, X, c: Z * 1.01,
    "raises": lambda Z, X, c: Z @ Z,
}


@pytest.mark.parametrize("how", [*SPOILED, "refusal"])
def test_each_planted_fault_of_features_is_seen_by_its_law(how):
    phi = Broken(how)
    X = rows(40) if how != "arguments" else rows(40).copy()
    check = check_features(phi, X)
    assert not check
    if how == "raises":
        assert "it raised" in str(check) or "got ValueError" in str(check)
    else:
        assert how in [law.name for law in check.failed]
        assert check[how].outcome == "failed"


def test_sound_features_obey_every_law():
    check = check_features(Broken("exact"), rows(40))
    assert check.ok
    assert check["below"].outcome == "passed"
    assert check["kernel"].number < 1e-12
    # It says that it stays below: then its lengths may be any, and no draws are compared.
    assert [law.outcome for law in check.laws].count("not applicable") == 2


@pytest.mark.parametrize("which", [0, 1], ids=["Fourier", "Nystrom"])
def test_maps_of_the_library_obey_every_law(which):
    phi = maps()[which]
    method = (bo.Fourier(bo.IID()), bo.Nystrom())[which]
    redraw = lambda s: bo.draw(phi.kernel, method, n_features=60, X=rows(), random_state=s)
    check = check_features(phi, rows(), redraw=redraw)
    assert check.ok, str(check)
    assert check["unbiased"].outcome == ("passed", "not applicable")[which]


def test_features_that_lose_rows_are_seen_without_another_draw():
    """One order of one column: where e^{−r²}(1 + r²) < ½, less than half of k(x, x) is left.

    ‖Z Zᵀ − K‖/‖K‖ stays below one, which is all that is asked of it.
    """
    X = rows(d=1)
    for order, outcome in ((1, "failed"), (12, "passed")):
        method = bo.Gegenbauer("monomial", order)
        phi = bo.draw(Gaussian(), method, n_features=4096, X=X, random_state=0)
        check = check_features(phi, X)
        assert check["kernel"].outcome == "passed"
        assert check["length"].outcome == outcome
        assert bool(check) == (outcome == "passed")


def test_planted_bias_is_seen():
    phi = maps()[0]

    def redraw(seed):
        other = bo.draw(
            phi.kernel, bo.Fourier(bo.IID()), n_features=60, n_inputs=3, random_state=seed
        )
        return lambda X: 1.1 * other(X)

    assert check_features(phi, rows(), redraw=redraw)["unbiased"].outcome == "failed"


def test_a_bias_is_measured_in_standard_errors():
    """Of 100 draws, on the pairs i and 7 i: by hand, and with a bar of one mistake in a million."""
    X, phi, seen, products = rows(60), maps()[0], [], []

    def redraw(seed):
        other = bo.draw(
            phi.kernel, bo.Fourier(bo.IID()), n_features=60, n_inputs=3, random_state=seed
        )

        def features(A):
            seen.append(A)
            Z = other(A)
            products.append([Z[i] @ Z[7 * i % 60] for i in range(30)])
            return Z

        return features

    law = check_features(phi, X, redraw=redraw)["unbiased"]
    draws, K = np.array(products), phi.kernel(seen[0])
    off = np.abs(draws.mean(axis=0) - [K[i, 7 * i % 60] for i in range(30)])
    errors = draws.std(axis=0, ddof=1) / 10
    random = errors > 1e-10  # a row and itself have the same product in every draw
    assert len(draws) == 100
    assert sorted(map(tuple, seen[0])) == sorted(map(tuple, X))
    assert law.number == pytest.approx((off / errors)[random].max(), rel=1e-6)
    assert 2 * 30 * student.sf(law.tolerance, 99) == pytest.approx(1e-6)


class Scaled:
    """A map times a number, which says of itself what the map says."""

    def __init__(self, phi, factor):
        self.phi, self.factor, self.kernel = phi, factor, phi.kernel
        self.below_kernel = phi.below_kernel

    def __call__(self, X):
        return self.factor * self.phi(X)


def test_what_is_measured_of_a_map_is_what_matrices_show():
    X, (fourier, nystrom) = rows(80), maps()
    K = fourier.kernel(X)
    for factor in (0.69, 0.72, 1.0, 1.3):
        Z = factor * fourier(X)
        check = check_features(Scaled(fourier, factor), X)
        apart = np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)
        assert check["kernel"].number == pytest.approx(apart)
        assert check["length"].number == float(factor**2 < 0.5)  # iid waves have |φ|² = k
        Z = factor * nystrom(X)
        check = check_features(Scaled(nystrom, factor), X)
        least = min(np.linalg.eigvalsh(K - Z @ Z.T)[0], 0.0)
        assert check["below"].number == pytest.approx(-least / np.linalg.norm(K, 2), abs=1e-9)
        assert check["below"].outcome == ("passed" if factor <= 1 else "failed")
