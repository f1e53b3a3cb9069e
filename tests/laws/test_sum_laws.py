"""Every pass over rows is a sum: any cut into blocks and parts gives the sum of all rows."""

import array_api_strict
import numpy as np
import pytest
import torch
from tolerance import assert_close

import bochner as bo
from bochner.kernels import Gaussian
from bochner.models import CorrelationsOf, DiagonalOf, SumOnFeatures
from bochner.solvers import CentroidsOf
from bochner.sums import FoldsOf, Local, MomentsOf, SampleOf, Together

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
    "folds": (FoldsOf(PHI, "float64", 7), lambda total: of_folds(FoldsOf.moments(total))),
    "sample": (SampleOf(7), lambda total: total.X.ravel()),
}
every_summand = pytest.mark.parametrize("name", SUMMANDS)


def blocks(rows, size):
    return bo.Blocks.from_arrays(X[rows], Y[rows], W[rows], block_rows=size)


@every_summand
@pytest.mark.parametrize("size", [1, 7, 300])
def test_blocks_of_any_size_give_one_sum(name, size):
    summand, result = SUMMANDS[name]
    whole = result(Local().sum(summand, blocks(slice(None), N)))
    assert_close(result(Local().sum(summand, blocks(slice(None), size))), whole, factor=1e3)


@every_summand
def test_parts_are_merged_into_the_sum_of_all_rows(name):
    summand, result = SUMMANDS[name]
    total = summand.zero()
    for part in np.array_split(np.arange(N), 4):
        one = summand.zero()
        for block in blocks(part, 40):
            one = summand.add(one, block._replace(start=block.start + int(part[0])))
        total = one if part[0] == 0 else summand.merge(total, one)
    whole = result(Local().sum(summand, blocks(slice(None), N)))
    assert_close(result(total), whole, factor=1e3)


@every_summand
def test_a_part_without_rows_changes_nothing(name):
    summand, result = SUMMANDS[name]
    whole = Local().sum(summand, blocks(slice(None), 50))
    first = summand.merge(summand.zero(), Local().sum(summand, blocks(slice(None), 50)))
    assert_close(result(summand.merge(first, summand.zero())), result(whole), factor=1e3)


def test_several_sums_are_made_in_one_pass():
    summands = tuple(summand for summand, _ in SUMMANDS.values())
    totals = Local().sum(Together(summands), blocks(slice(None), 50))
    for total, (summand, result) in zip(totals, SUMMANDS.values(), strict=True):
        assert_close(result(total), result(Local().sum(summand, blocks(slice(None), 50))))


# ---- on the device of the features


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_moments_are_added_up_in_the_library_of_the_rows(library, precision):
    """To NumPy's moments: rounding of products of n rows in this precision, a few times."""
    there = LIBRARIES[library]
    rows = bo.Blocks.from_arrays(there(X), Y, W, block_rows=64)
    summand = MomentsOf(PHI, precision)
    total = Local().sum(summand, rows)
    assert type(total[0]._products[0]) is type(there(X))
    here = Local().sum(summand, blocks(slice(None), 64))
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
    one = result(Local().sum(summand, blocks(slice(None), 50)))
    assert abs(one - result(Local().sum(summand, blocks(slice(None), N)))).max() > 1
