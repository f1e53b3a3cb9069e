"""Laws of the maps made of products, of sines, of compressed and projected maps."""

from itertools import pairwise

import numpy as np
import pytest
from gallery import BASES, COMPRESSED, HERMITE, SINES, rows
from tolerance import assert_close

from bochner.features import Compressed, HermiteMercer, Nystrom, draw
from bochner.kernels import Gaussian, Matern

D = 24
BELOW = [*BASES, *HERMITE, *COMPRESSED[:2]]
CERTIFIED = [p for p in BELOW if hasattr(draw(*p, n_features=D, X=rows(40)), "residual")]


def named(pair):
    return f"{pair[1]!r}-{pair[0]!r}"


every_certified = pytest.mark.parametrize("pair", CERTIFIED, ids=named)


def drawn(pair, n_features=D, seed=0, X=None):
    X = rows(200) if X is None else X
    return draw(*pair, n_features=n_features, X=X, random_state=seed)


# ---- below the kernel


@every_certified
def test_more_features_leave_less(pair):
    X, wide = rows(50, seed=8), drawn(pair, 400)
    leaves = [drawn(pair, m).residual(X).mean() for m in (8, 32, 128)]
    leaves.append(wide.residual(X).mean())
    assert all(b <= a + 1e-12 for a, b in pairwise(leaves))
    assert leaves[-1] < 0.7 * leaves[0] + 1e-12


# ---- nested


NESTED = [
    *BASES[:2],
    *BASES[3:],
    (Gaussian(), HermiteMercer(scale=1.0)),
    (Gaussian(lengthscale=(0.5, 1.0, 3.0)), HermiteMercer(scale=0.8)),
    *SINES[:3],
]


@pytest.mark.parametrize("pair", NESTED, ids=named)
def test_the_first_half_of_twice_the_width_is_the_map(pair):
    X = rows(50, seed=8)
    for narrow in (3, 16, 24):
        wide = drawn(pair, 2 * narrow)(X)
        assert_close(wide[:, :narrow], drawn(pair, narrow)(X), factor=10)


# ---- one map for all: blocks, libraries, precisions, seeds


@pytest.mark.parametrize("pair", [*HERMITE[:1], *HERMITE[3:4], *SINES[:1]], ids=named)
def test_deterministic_maps_of_few_rows_do_not_depend_on_the_seed(pair):
    X = rows(50, seed=8)
    assert (drawn(pair, seed=3)(X) == drawn(pair, seed=4)(X)).all()


def test_the_order_of_rows_does_not_matter():
    X = rows(300)
    phi, psi = (drawn((Gaussian(), HermiteMercer()), X=A) for A in (X, X[::-1]))
    assert_close(phi(X), psi(X), factor=1e4)


# ---- what each is made of


def test_axes_and_lengthscales_are_those_of_the_rows():
    """Rotated rows have rotated axes: the features are the same, up to signs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * (3.0, 1.0, 0.3) + 5.0
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    phi, psi = (drawn((Gaussian(), HermiteMercer(scale=1.0)), X=A) for A in (X, X @ Q))
    assert_close(np.abs(phi(X)), np.abs(psi(X @ Q)), factor=1e3)
    scaled = drawn((Gaussian((3.0, 1.0, 0.3)), HermiteMercer(scale=1.0)), X=X * (3.0, 1.0, 0.3))
    assert_close(np.abs(scaled(X * (3.0, 1.0, 0.3))), np.abs(phi(X)), factor=1e3)


def test_compression_of_all_directions_changes_no_product():
    phi = drawn((Matern(1.5), Compressed(Nystrom(), width=1)))
    psi = drawn((Matern(1.5), Nystrom()))
    assert type(phi) is type(psi)
