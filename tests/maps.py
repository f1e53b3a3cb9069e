"""Table of feature maps: each class with each kind of kernel once; all combinations are slow."""

from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

import gallery
import numpy as np
import pytest
from gallery import FOURIER, HERMITE, MAPS, MERCER, N_COLUMNS, NETWORKS, OTHERS, POWERS, STATIONARY

import bochner as bo
from bochner import draw
from bochner.features.nystrom import NystromMap
from bochner.kernels import Gaussian, Linear, Matern, NeuralTangent, Polynomial


class Family(NamedTuple):
    """Pairs of kernel and method, all combinations, and the factor by which rounding grows."""

    pairs: list
    product: list = []  # noqa: RUF012
    width: int = 24
    n_rows: int = 40
    factor: float = 1.0
    random: bool = True
    columns: int = N_COLUMNS


class Case(NamedTuple):
    family: str
    kernel: object
    method: object

    def __str__(self):
        return f"{self.family}-{self.method!r}-{self.kernel!r}"


PAIR, PHASE = FOURIER[:2]
SOME_POWERS = (POWERS[1], POWERS[2], POWERS[4], POWERS[7])
OF_BASES = [*gallery.BASES, *HERMITE[2:6], *HERMITE[-2:], *gallery.COMPRESSED]
OF_BASES += [*gallery.SINES[:3], *gallery.PROJECTED]
BY_WAVES = [p for p in MAPS if p[1] in FOURIER]
BY_ROWS = [p for p in MAPS if isinstance(p[1], bo.Nystrom | bo.Auto)]
RADIAL = (Gaussian(), Gaussian((0.5, 1.0, 3.0)), Matern(1.5), Polynomial(3), NeuralTangent(2))
FAMILIES = {
    "frequencies": Family(
        [
            *zip((STATIONARY[i] for i in (1, 3, 13, 11, 8, 10)), FOURIER, strict=True),
            *((k, PHASE if i % 3 == 0 else PAIR) for i, k in enumerate((STATIONARY[6], *OTHERS))),
            *(p for p in BY_WAVES if p[1] == PAIR and p[0] not in (*STATIONARY, *OTHERS)),
            (Gaussian(), bo.Fourier(bo.QMC("halton"))),
            (Gaussian(0.7), bo.LeverageFourier()),
            (Matern(1.5), bo.LeverageFourier(1e-3)),
            (2.0 * Gaussian(0.5) + Linear() + 1.0, bo.LeverageFourier()),
        ],
        product=BY_WAVES,
        factor=16.0,
    ),
    "transforms": Family(
        [
            (Matern(1.5, lengthscale=8.0), bo.Fourier(placement, form))
            for placement in (bo.Structured(), bo.Fastfood())
            for form in ("pair", "phase")
        ],
        width=300,
        columns=100,
    ),
    "landmarks": Family(
        [
            *((Gaussian(), method) for method in gallery.LANDMARKS),
            *(
                (k, bo.Nystrom())
                for k in (STATIONARY[8], *OTHERS[2:4], gallery.SERIES[0], *gallery.SERIES[-2:])
            ),
            *((k, bo.Nystrom()) for k in gallery.WITHOUT_FREQUENCIES[2:6]),
            (Gaussian(2.0), bo.Auto()),
        ],
        product=BY_ROWS,
    ),
    "sketches": Family([p for p in gallery.SKETCHED if p[0] in SOME_POWERS], gallery.SKETCHED),
    "networks": Family([*NETWORKS[:4], *NETWORKS[-5:], *gallery.DEEP], product=NETWORKS, width=48),
    "products": Family(
        OF_BASES, product=[*HERMITE, *gallery.SINES], n_rows=200, factor=1e4, random=False
    ),
    "Gegenbauer": Family(
        [
            (Gaussian((0.5, 1.0, 3.0)), bo.Gegenbauer("monomial")),
            (Polynomial(3, scale=0.2), bo.Gegenbauer("monomial", order=2)),
            (NeuralTangent(2), bo.Gegenbauer()),
            (Matern(1.5), bo.Gegenbauer()),
        ],
        product=gallery.GEGENBAUER,
        width=48,
        n_rows=60,
    ),
    "harmonics": Family(
        [p for p in MERCER if p[0] in RADIAL], product=MERCER, width=40, n_rows=60, random=False
    ),
}
CASES = [Case(name, *pair) for name, family in FAMILIES.items() for pair in family.pairs]
PRODUCT = [Case(name, *pair) for name, family in FAMILIES.items() for pair in family.product]
PRODUCT = [case for case in PRODUCT if case not in CASES]

NAMES = [*map(str, (*CASES, *PRODUCT))]


def of_maps(selects=lambda case: True, main=lambda case: True, **extra):
    """Return a parametrisation by the cases for which ``selects`` holds, and the values of ``extra``.

    In the main tier each case has one combination of values, in turn; all others are slow.
    """
    params = []
    for i, case in enumerate((*CASES, *PRODUCT)):
        for j, values in enumerate(product(*extra.values()) if selects(case) else ()):
            fast = i < len(CASES) and main(case) and j == i % prod(map(len, extra.values()))
            name = "-".join(
                [getattr(value, "__name__", str(value)) for value in values] + NAMES[i : i + 1]
            )
            marks = () if fast else pytest.mark.slow
            params.append(pytest.param(case, *values, id=name, marks=marks))
    return pytest.mark.parametrize(("case", *extra), params)


def takes_sparse_rows(case):
    """Return whether the map takes sparse rows: not for sums over columns, products, windows."""
    words = repr(case.kernel)
    if isinstance(case.method, bo.HermiteMercer):
        return "Product" not in words
    dense = any(word in words for word in gallery.DENSE_ONLY) and case.family != "Gegenbauer"
    return not dense and "Product" not in words and case.method != bo.Compressed(bo.Nystrom(), 2)


def rows_of(case, n, seed=0):
    """Return n rows with the number of columns of the family."""
    d = FAMILIES[case.family].columns
    return gallery.rows(n, seed) if d == N_COLUMNS else gallery.points(n, d, seed)


def new_map(case, seed=0, width=None, X=None):
    """Return a new map of a case."""
    family = FAMILIES[case.family]
    X = rows_of(case, family.n_rows) if X is None else X
    options = {"n_features": width or family.width, "X": X, "random_state": seed}
    return draw(case.kernel, case.method, **options)


@cache
def _cached(number, seed):
    return new_map([*CASES, *PRODUCT][number], seed)


def map_of(case, seed=0):
    """Return the map of a case, from a cache."""
    return _cached([*CASES, *PRODUCT].index(case), seed)


def factor_of(case, dtype):
    """Return the factor of a map's tolerance: the inverse root of a kernel matrix amplifies most."""
    family, phi = FAMILIES[case.family], map_of(case)
    if isinstance(phi, NystromMap):
        minimum = 200 if dtype == "float32" else 1e4
        return max(minimum, np.abs(phi.root(np.dtype(dtype))).sum(axis=0).max())
    whitened = "Nystrom" in repr(case.method)
    return family.factor if dtype == "float64" else 8.0 if whitened else min(family.factor, 16.0)
