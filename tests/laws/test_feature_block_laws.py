"""Features for many sweeps: the same numbers whether they are kept or made anew."""

import numpy as np
import pytest

import bochner as bo
from bochner import Blocks
from bochner.kernels import Gaussian
from bochner.models._rows import Features

RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((700, 2)), RNG.standard_normal(700), RNG.uniform(1, 2, 700)


class Counted:
    """An iterable that counts how often it is read."""

    def __init__(self):
        self.passes = 0

    def __call__(self):
        self.passes += 1
        return iter([(X[:300], Y[:300], W[:300]), (X[300:], Y[300:], W[300:])])


@pytest.fixture
def phi():
    return bo.draw(Gaussian(), "orthogonal", n_features=16384, n_inputs=2, random_state=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("room", "kept"), [(None, True), (1 << 40, True), (1 << 20, False), (0, False)]
)
def test_kept_features_are_those_made_anew(phi, dtype, room, kept):
    source = Counted()
    features = Features(phi, Blocks.from_iterable(source), dtype, most_bytes=room)
    before = source.passes
    first = [(b.Z.copy(), b.y, b.w, b.start) for b in features]
    assert features.cached is kept
    for block, (Z, y, w, start) in zip(features, first, strict=True):
        assert np.array_equal(block.Z, Z)
        assert block.Z.dtype == np.dtype(dtype)
        assert np.array_equal(block.y, y)
        assert np.array_equal(block.w, w)
        assert block.start == start
    assert source.passes - before == (1 if kept else 2)
    assert features.n_rows == 700
    assert [start for *_, start in first] == [0, 256, 512]


def test_a_pass_that_is_left_keeps_nothing(phi):
    features = Features(phi, Blocks.from_arrays(X, Y, W), "float32")
    next(iter(features))
    assert not features.cached
    assert sum(len(b.Z) for b in features) == 700
