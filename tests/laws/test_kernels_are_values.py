"""Kernels never change, compare by content, print as code and travel."""

import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
import torch
from gallery import FUNCTIONS, KERNELS, MATRIX
from sklearn.base import clone

import bochner.kernels
from bochner.kernels import (
    Bilinear,
    Columns,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    RationalQuadratic,
    Scaled,
)

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@every_kernel
def test_repr_is_the_code_that_makes_it(kernel):
    assert eval(repr(kernel), vars(bochner.kernels) | FUNCTIONS) == kernel


PARTS = Gaussian(2.0), Columns(Laplace(1.5), (0,)), Linear()


def grown(rng, depth):
    if not depth:
        return PARTS[rng.integers(len(PARTS))]
    left, right = grown(rng, depth - 1), grown(rng, rng.integers(depth))
    return (left + right, left * right, 0.5 * left, left ** int(rng.integers(1, 4)))[
        rng.integers(4)
    ]


def test_operators_are_written_as_they_are_typed():
    a, b, c = PARTS[0], PARTS[1], PARTS[2]
    assert repr(0.3 * c + c**2 * a) == f"0.3 * {c!r} + {c!r}**2 * {a!r}"
    assert repr((a + b) * (c * (2.0 * a)) + (b + c)) == (
        f"({a!r} + {b!r}) * ({c!r} * (2.0 * {a!r})) + ({b!r} + {c!r})"
    )
    rng = np.random.default_rng(0)
    for depth in range(200):
        kernel = grown(rng, depth % 5)
        assert eval(repr(kernel), vars(bochner.kernels)) == kernel


@every_kernel
def test_equal_values_hash_and_pickle_alike(kernel):
    twin = pickle.loads(pickle.dumps(kernel))
    assert twin == kernel
    assert hash(twin) == hash(kernel)
    assert len({kernel, twin}) == 1


@pytest.mark.parametrize("kernel", [Bilinear(MATRIX), Mahalanobis(Gaussian(), MATRIX)], ids=repr)
def test_a_root_is_found_once_and_is_no_part_of_the_value(kernel):
    twin = pickle.loads(pickle.dumps(kernel))
    assert kernel.root is kernel.root
    np.testing.assert_allclose(kernel.root @ kernel.root.T, MATRIX, atol=1e-12)
    assert twin == kernel
    assert hash(twin) == hash(kernel)
    assert repr(twin) == repr(kernel)
    assert twin.get_params() == kernel.get_params()


@every_kernel
def test_fields_cannot_be_set(kernel):
    assert not hasattr(kernel, "set_params")
    for field in fields(kernel):
        with pytest.raises(FrozenInstanceError):
            setattr(kernel, field.name, 1.0)


@every_kernel
def test_every_parameter_can_be_replaced_by_its_path(kernel):
    params = kernel.get_params()
    assert kernel.replace(**params) == kernel
    assert kernel.replace() is kernel
    for path, value in params.items():
        if isinstance(value, float):
            changed = kernel.replace(**{path: 0.5 * value})
            assert changed.get_params()[path] == 0.5 * value
            assert changed != kernel
    assert kernel.get_params() == params


def test_replacement_reaches_deep_and_whole_parts_first():
    k = 2.0 * Matern(smoothness=1.5) + Gaussian()
    assert k.get_params(deep=False) == {"left": k.left, "right": k.right}
    assert k.replace(left__kernel__lengthscale=0.5).left == Scaled(2.0, Matern(1.5, 0.5))
    changed = k.replace(left=Laplace(), left__lengthscale=3, right__lengthscale=[1, 2])
    assert changed == Laplace(3.0) + Gaussian((1.0, 2.0))


@every_kernel
def test_scikit_learn_clones_to_the_value_itself(kernel):
    assert clone(kernel) is kernel


def test_fields_are_plain_numbers_and_canonical_ones_are_kept():
    assert Gaussian(np.float32(0.5)).lengthscale == 0.5
    for given in ([1, 2], np.array([1.0, 2.0]), (1, np.float64(2)), torch.tensor([1.0, 2.0])):
        kernel = Gaussian(given)
        assert kernel.lengthscale == (1.0, 2.0)
        assert [type(v) for v in kernel.lengthscale] == [float, float]
    scale, columns, matrix = (0.5, 2.0), (1, 0), ((1.0, 0.0), (0.0, 1.0))
    assert Gaussian(scale).lengthscale is scale
    assert Columns(Gaussian(), columns).columns is columns
    assert Mahalanobis(Gaussian(), matrix).matrix is matrix
    assert Columns(Gaussian(), 2) == Columns(Gaussian(), np.array([2])) == Columns(Gaussian(), (2,))
    assert Mahalanobis(Gaussian(), np.eye(2, dtype=int)) == Mahalanobis(Gaussian(), matrix)
    assert RationalQuadratic(np.int64(2)).shape == 2.0
    assert Exponential(np.array(3)).lengthscale == 3.0
