"""Laws that maps of every family obey: shape, precision, blocks, layout, libraries, seeds, files."""

from functools import cache
from typing import NamedTuple

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import torch
from gallery import (
    BASES,
    COMPRESSED,
    DEEP,
    HERMITE,
    N_COLUMNS,
    NETWORKS,
    POWERS,
    PROJECTED,
    SINES,
    SKETCHED,
    rows,
)
from layouts import assert_same_in_any_layout, in_library
from tolerance import assert_close

from bochner.features import Compressed, Gegenbauer, HermiteMercer, MercerHarmonic, Nystrom, draw
from bochner.kernels import Gaussian, Matern, NeuralTangent, Polynomial
from bochner.persist.values import NamedArrays, decode, encode


class Family(NamedTuple):
    """Pairs of kernel and method, the width, and how much their steps amplify rounding."""

    pairs: list
    width: int = 24
    drawn_from: int = 40
    factor: float = 1.0
    random: bool = True


PRODUCTS = [*BASES, *HERMITE, *COMPRESSED, *SINES, *PROJECTED]
SOME_POWERS = (POWERS[1], POWERS[2], POWERS[4], POWERS[7], POWERS[8])
RADIAL = [Gaussian(), Gaussian((0.5, 1.0, 3.0)), Matern(1.5), Polynomial(3), NeuralTangent(2)]
FAMILIES = {
    "sketches": Family([pair for pair in SKETCHED if pair[0] in SOME_POWERS]),
    "networks": Family([*NETWORKS, *DEEP], width=48),
    "products": Family(PRODUCTS, drawn_from=200, factor=1e4, random=False),
    "Gegenbauer": Family(
        [
            (Gaussian((0.5, 1.0, 3.0)), Gegenbauer("monomial")),
            (Polynomial(3, scale=0.2), Gegenbauer("monomial", order=2)),
            (NeuralTangent(2), Gegenbauer()),
            (Matern(1.5), Gegenbauer()),
        ],
        width=48,
        drawn_from=60,
    ),
    "harmonics": Family(
        [(kernel, MercerHarmonic()) for kernel in RADIAL], width=40, drawn_from=60, random=False
    ),
}
CASES = [(name, pair) for name, family in FAMILIES.items() for pair in family.pairs]
DTYPES = ("float32", "float64")


def takes_sparse_rows(pair):
    """Sums over columns, products and averages over windows are of dense rows."""
    by_column = "Laplace(" in repr(pair[0]) and not isinstance(pair[1], HermiteMercer)
    return not by_column and "Product" not in repr(pair[0]) and pair[1] != Compressed(Nystrom(), 2)


def named(case):
    return f"{case[0]}-{case[1][1]!r}-{case[1][0]!r}"


every_map = pytest.mark.parametrize("case", CASES, ids=named)
of_sparse_rows = pytest.mark.parametrize(
    "case", [case for case in CASES if takes_sparse_rows(case[1])], ids=named
)


@cache
def numbered(number, seed):
    name, pair = CASES[number]
    family = FAMILIES[name]
    X = rows(family.drawn_from)
    return draw(*pair, n_features=family.width, X=X, random_state=seed)


def drawn(case, seed=0):
    return numbered(CASES.index(case), seed)


def factor_of(case, dtype):
    """In float32 the largest amplification is that of the inverse root of a kernel matrix."""
    family, whitened = FAMILIES[case[0]], "Nystrom" in repr(case[1])
    return family.factor if dtype == "float64" else 8.0 if whitened else 1.0


@every_map
def test_a_map_has_the_shape_it_says(case):
    phi = drawn(case)
    assert (phi.n_inputs, phi.kernel) == (N_COLUMNS, case[1][0])
    assert 1 <= phi.n_features <= FAMILIES[case[0]].width
    for n in (0, 7):
        assert phi(rows(7)[:n]).shape == (n, phi.n_features)


@every_map
@pytest.mark.parametrize("dtype", DTYPES)
def test_precision_blocks_and_layout_do_not_matter(case, dtype):
    phi, X = drawn(case), rows(50)
    assert_same_in_any_layout(
        phi, X, phi(X), dtype, factor_of(case, dtype), sparse=takes_sparse_rows(case[1])
    )


@every_map
@pytest.mark.parametrize("xp", [torch, array_api_strict], ids=["torch", "strict"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_array_library_gives_the_features_of_numpy(case, xp, dtype):
    phi, X = drawn(case), rows(9).astype(dtype)
    assert_close(in_library(phi, X, xp), phi(X), dtype, factor=20 * factor_of(case, dtype))


@of_sparse_rows
def test_a_map_drawn_from_sparse_rows_is_that_of_dense_rows(case):
    name, pair = case
    X = rows(60)
    X[np.abs(X) < 0.7] = 0
    maps = (
        draw(*pair, n_features=FAMILIES[name].width, X=form(X), random_state=0)
        for form in (np.asarray, scipy.sparse.csr_array)
    )
    one, other = (phi(X) for phi in maps)
    assert_close(one @ one.T, other @ other.T, factor=100 * FAMILIES[name].factor)


@every_map
def test_seeds_reproduce_a_map_and_differ(case):
    name, pair = case
    family, X = FAMILIES[name], rows(60)
    again = draw(*pair, n_features=family.width, X=rows(family.drawn_from), random_state=1)
    assert (drawn(case, 1)(X) == again(X)).all()
    assert not family.random or not np.allclose(drawn(case, 1)(X), drawn(case, 2)(X))


@every_map
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_map_from_a_file_has_the_same_bits(case, dtype):
    phi, X, arrays = drawn(case), rows(30, seed=2).astype(dtype), NamedArrays()
    text = encode(phi, arrays)
    assert decode(text, arrays.by_name)(X).tobytes() == phi(X).tobytes()
    assert decode(encode(case[1][1], arrays), arrays.by_name) == case[1][1]


def test_a_planted_map_that_depends_on_its_block_is_caught():
    X = rows(50)
    with pytest.raises(AssertionError):
        assert_same_in_any_layout(lambda A: A - A.mean(axis=0), X, X - X.mean(axis=0), "float64")
