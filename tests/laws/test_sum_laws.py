"""Every pass over rows is a sum: any cut into blocks and parts gives the sum of all rows."""

import functools
from copy import deepcopy

import array_api_strict
import numpy as np
import pytest
import torch
from tolerance import assert_close

import bochner as bo
from bochner.kernels import Gaussian
from bochner.models._rows import SumOnFeatures
from bochner.models.unsupervised.base import DiagonalOf
from bochner.models.unsupervised.cca import CorrelationsOf
from bochner.solvers.lloyd import CentroidsOf
from bochner.sums.executor import InProcess, Together
from bochner.sums.moments import MomentsOf
from bochner.sums.rows import SampleOf
from bochner.sums.tree import BRANCHES

rng = np.random.default_rng(0)
N, D = 300, 16
X = rng.standard_normal((N, 3))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])
W = rng.integers(0, 3, N).astype(float)
PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)
LIBRARIES = {"torch": torch.asarray, "strict": array_api_strict.asarray}


def numbers(moments):
    """All that moments hold, as one vector."""
    parts = (moments.feature_mean, moments.target_mean, moments.gram, moments.cross, moments.power)
    return np.concatenate([[moments.rows, moments.weight], *(np.ravel(p) for p in parts)])


def of_folds(folds):
    return np.concatenate([numbers(fold) for fold in folds])


def of_clusters(found):
    return np.concatenate([found.sums.ravel(), found.sizes, [found.power, found.inertia]])


CENTRES = CentroidsOf(PHI(X[:4]))
PAIR = bo.KernelCCA(2, Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
SIDES = CorrelationsOf(PAIR.fit(X, Y).fit_.chosen, PAIR.fit_.chosen_y)
MOMENTS = MomentsOf(PHI, "float64")
SUMMANDS = {
    "diagonal": (DiagonalOf(Gaussian(1.0).diag), np.array),
    "clusters": (SumOnFeatures(PHI, CENTRES), lambda total: of_clusters(CENTRES.clusters(total))),
    "halves": (SIDES, lambda total: of_folds(SIDES.halves(total))),
    "moments": (MOMENTS, lambda total: numbers(MOMENTS.moments(total))),
    "sample": (SampleOf(7), lambda total: total.X.ravel()),
}
every_summand = pytest.mark.parametrize("name", SUMMANDS)


def blocks(rows, size):
    return bo.Blocks.from_arrays(X[rows], Y[rows], W[rows], block_rows=size)


@every_summand
@pytest.mark.parametrize("size", [1, 7, 300])
def test_blocks_of_any_size_give_one_sum(name, size):
    summand, result = SUMMANDS[name]
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(InProcess().sum(summand, blocks(slice(None), size))), whole, factor=1e3)


@every_summand
def test_parts_are_merged_into_the_sum_of_all_rows(name):
    summand, result = SUMMANDS[name]
    total = summand.zero()
    for part in np.array_split(np.arange(N), 4):
        one = summand.zero()
        for block in blocks(part, 40):
            one = summand.add(one, block._replace(start=block.start + int(part[0])))
        total = one if part[0] == 0 else summand.merge(total, one)
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(total), whole, factor=1e3)


@every_summand
def test_a_part_without_rows_changes_nothing(name):
    summand, result = SUMMANDS[name]
    whole = InProcess().sum(summand, blocks(slice(None), 50))
    first = summand.merge(summand.zero(), InProcess().sum(summand, blocks(slice(None), 50)))
    assert_close(result(summand.merge(first, summand.zero())), result(whole), factor=1e3)


def test_several_sums_are_made_in_one_pass():
    summands = tuple(summand for summand, _ in SUMMANDS.values())
    totals = InProcess().sum(Together(summands), blocks(slice(None), 50))
    for total, (summand, result) in zip(totals, SUMMANDS.values(), strict=True):
        assert_close(result(total), result(InProcess().sum(summand, blocks(slice(None), 50))))


# ---- the tree


class Words:
    """A summand that writes down in which order it was asked."""

    def zero(self):
        return ""

    def add(self, total, block):
        return f"{total}{block.start} "

    def merge(self, a, b):
        return f"({a}|{b})"


def tree_of(parts):
    """The definition: sixteen at a time, one merged after the other, until one is left."""
    while len(parts) > 1:
        groups = [parts[i : i + BRANCHES] for i in range(0, len(parts), BRANCHES)]
        parts = [functools.reduce(Words().merge, group) for group in groups]
    return parts[0]


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of two blocks of one row."""
    monkeypatch.setattr("bochner.sums.tree.PART_ROWS", 2)


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 34, 65, 511, 512, 513, 600])
def test_sums_are_merged_as_the_tree_is_defined(small_parts, n):
    rows = bo.Blocks.from_arrays(np.zeros((n, 1)), block_rows=1)
    parts = ["".join(f"{i} " for i in range(n)[k : k + 2]) for k in range(0, n, 2)]
    assert InProcess().sum(Words(), rows) == tree_of(parts)


@every_summand
def test_sums_of_the_tree_are_those_of_one_block(small_parts, name):
    """To rounding of sums of N rows, in another order."""
    summand, result = SUMMANDS[name]
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(InProcess().sum(summand, blocks(slice(None), 5))), whole, factor=1e3)


@every_summand
def test_merging_leaves_the_second_sum_as_it_is(name):
    """Another worker may be asked for it again."""
    summand, result = SUMMANDS[name]
    parts = [InProcess().sum(summand, blocks(rows, 20)) for rows in (slice(100), slice(100, None))]
    kept = deepcopy(parts[1])
    once = result(summand.merge(deepcopy(parts[0]), parts[1]))
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), kept)), once)
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), parts[1])), once)


@pytest.mark.parametrize("library", LIBRARIES)
def test_sums_on_devices_are_merged(library):
    """To NumPy's: rounding of products of n rows, a few times."""
    there = LIBRARIES[library]
    summand = MomentsOf(PHI, "float64")
    parts = [
        InProcess().sum(summand, bo.Blocks.from_arrays(there(X[s]), Y[s], W[s]))
        for s in (slice(90), slice(90, None))
    ]
    ours = numbers(summand.moments(summand.merge(*parts)))
    theirs = numbers(summand.moments(InProcess().sum(summand, blocks(slice(None), N))))
    assert np.abs(ours - theirs).max() < 10 * np.finfo(float).eps * np.sqrt(N) * theirs.max()


def test_means_far_apart_lose_no_digits():
    """Parts about means 1e6 standard deviations apart: what is lost is that of the sum of all."""
    Z = rng.standard_normal((200, 3)) + np.repeat([[0.0], [1e6]], 100, axis=0)
    both = MomentsOf(lambda Z: Z, "float64")
    parts = [
        InProcess().sum(both, bo.Blocks.from_arrays(Z[s], Z[s, 0]))
        for s in (slice(100), slice(100, None))
    ]
    moments = both.moments(both.merge(*parts))
    exact = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
    assert np.abs(moments.gram - exact).max() < 1e-15 * 200 * 1e12 * 10


# ---- on the device of the features


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_moments_are_added_up_in_the_library_of_the_rows(library, precision):
    """To NumPy's moments: rounding of products of n rows in this precision, a few times."""
    there = LIBRARIES[library]
    rows = bo.Blocks.from_arrays(there(X), Y, W, block_rows=64)
    summand = MomentsOf(PHI, precision)
    total = InProcess().sum(summand, rows)
    assert type(total[0]._z0) is type(there(X))
    here = InProcess().sum(summand, blocks(slice(None), 64))
    ours, theirs = (summand.moments(sums) for sums in (total, here))
    eps = np.finfo(precision).eps
    bar = 10 * eps * np.sqrt(N) * numbers(theirs).max()
    assert np.abs(numbers(ours) - numbers(theirs)).max() < bar
    assert ours.precision == precision


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fit_to_rows_of_another_library_is_that_of_numpy(library):
    there = LIBRARIES[library]
    options = dict(method="orthogonal", n_features=D, alpha=0.1, random_state=0)
    ours = bo.KernelRidge(Gaussian(1.0), **options).fit(there(X), there(Y))
    theirs = bo.KernelRidge(Gaussian(1.0), **options).fit(X, Y)
    assert_close(np.asarray(ours.predict(there(X))), theirs.predict(X), factor=1e5)


def test_a_planted_sum_of_one_block_is_seen():
    """A summand that forgets what it had."""

    class Forgets(MomentsOf):
        def add(self, total, block):  # noqa: ARG002
            return MomentsOf.add(self, [], block)

    summand, result = Forgets(PHI, "float64"), SUMMANDS["moments"][1]
    one = result(InProcess().sum(summand, blocks(slice(None), 50)))
    assert abs(one - result(InProcess().sum(summand, blocks(slice(None), N)))).max() > 1
