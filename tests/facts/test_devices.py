"""Fits whose features are made on devices of torch: the bits of torch's own arrays, any number."""

import logging
import sys
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse
import torch

import bochner as bo
from bochner.errors import BochnerError, InvalidInput, InvalidType
from bochner.kernels import Gaussian
from bochner.sums.moments import Moments, MomentsOf

N = 140_000  # three parts
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 2)).astype(np.float32)
Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
LABELS = (Y > 0).astype(float)
W = rng.integers(0, 3, N).astype(float)

THERE = "device must name devices that torch has here, and that know float64; got"
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def ridge(**given):
    options = dict(method="orthogonal", n_features=16, random_state=0) | given
    return bo.KernelRidge(Gaussian(2.0), **options)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_moved_give_the_bits_of_rows_that_are_there(device, monkeypatch):
    monkeypatch.setattr("bochner.engines.device.ROWS", 4096)  # as blocks of rows that are there
    there = [torch.from_numpy(a).to(device) for a in (X, Y, W)]
    expected = ridge().fit(*there).coef_
    moved = ridge().fit_blocks(
        bo.Blocks.from_arrays(X, Y, W), where=bo.engines.Local(device=device)
    )
    np.testing.assert_array_equal(moved.coef_, expected)
    here = ridge().fit(X, Y, W)
    # Products of float32, whose errors the smallest eigenvalue and the penalty divide.
    assert type(moved.predict(X[:5])) is np.ndarray
    np.testing.assert_allclose(moved.predict(X[:500]), here.predict(X[:500]), atol=1e-3)


@pytest.mark.parametrize("devices", [("cpu",) * 2, ["cpu"] * 3], ids=["two", "three"])
def test_several_devices_give_the_bits_of_one(devices):
    blocks = bo.Blocks.from_arrays(X, Y, W)
    one = ridge().fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    several = ridge().fit_blocks(blocks, where=bo.engines.Local(device=devices))
    np.testing.assert_array_equal(several.coef_, one.coef_)


@pytest.mark.slow
@pytest.mark.parametrize("split", [0, 2], ids=["one", "merged"])
def test_sums_of_many_features_are_those_of_plain_products(split):
    """Two panels; blocks that wait for others, some with weights; a merge while some wait."""
    Z = rng.standard_normal((19_000, 2100)).astype(np.float32) + 1
    y, w = rng.standard_normal(len(Z)), rng.integers(0, 3, len(Z)).astype(float)
    w[:6000] = 1
    summand = MomentsOf(lambda rows: rows, "float32")
    totals = [summand.zero(), summand.zero()]
    for number, cut in enumerate(
        [slice(3000), slice(3000, 6000), slice(6000, 9000), slice(9000, None)]
    ):
        block = bo.Block(
            torch.from_numpy(Z[cut]), y[cut], w[cut] if number > 1 else None, cut.start or 0
        )
        totals[number < split] = summand.add(totals[number < split], block)
    kept = deepcopy(totals[1])
    found = summand.moments(summand.merge(*totals))
    expected = Moments.of(Z.astype(float), y, w)
    for name in ("gram", "cross", "feature_mean", "target_mean", "power"):
        # Of 19,000 products of size one: each is rounded by 6e-8, a sum of 8192 by 6e-8 of itself.
        mine, plain = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(mine, plain, rtol=1e-5, atol=19_000 * 6e-8 * 8192**0.5)
    if split:
        after, before = (summand.moments(total).gram for total in (totals[1], kept))
        np.testing.assert_array_equal(after, before)


LEARNERS = {
    "classifier": (bo.KernelRidgeClassifier, LABELS, lambda m: m.coef_),
    "process": (bo.GaussianProcessRegressor, Y, lambda m: m.predict(X[:50])),
    "logistic": (bo.LogisticRegression, LABELS, lambda m: m.coef_),
    "pca": (lambda *a, **o: bo.KernelPCA(2, *a, **o), Y, lambda m: np.abs(m.transform(X[:50]))),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_takes_a_device(name):
    make, y, found = LEARNERS[name]
    options = dict(kernel=Gaussian(2.0), method="orthogonal", n_features=8, random_state=0)
    blocks = bo.Blocks.from_arrays(X[:9000], y[:9000])
    on_device = make(**options).fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    here = make(**options).fit_blocks(blocks)
    np.testing.assert_allclose(found(on_device), found(here), rtol=2e-2, atol=2e-3)


def test_large_decompositions_are_made_on_the_device_and_others_here(monkeypatch):
    made = []
    plain = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda A: made.append(len(A)) or plain(A))
    blocks = bo.Blocks.from_arrays(X[:3000].astype(float), Y[:3000])
    wide = ridge(n_features=1024, alpha=1.0)
    on_device = wide.fit_blocks(blocks, where=bo.engines.Local(device="cpu")).predict(X[:50])
    assert made == [1024]
    np.testing.assert_allclose(on_device, wide.fit_blocks(blocks).predict(X[:50]), atol=1e-3)
    ridge().fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    assert made == [1024]


def test_rows_are_counted_and_passes_are_logged(caplog):
    seen = []
    blocks = bo.Blocks.from_arrays(X, Y).watch(seen.append)
    with caplog.at_level(logging.INFO, logger="bochner.engines"):
        ridge(alpha=1.0).fit_blocks(blocks, where=bo.engines.Local(device=("cpu", "cpu")))
    assert sum(seen) % N == 0
    assert "device=('cpu', 'cpu')" in caplog.text


def test_sparse_rows_stay_where_they_are():
    rows = scipy.sparse.random_array((6000, 20), density=0.2, rng=1, format="csr")
    y = rows.sum(axis=1)
    found = ridge(alpha=1.0).fit_blocks(
        bo.Blocks.from_arrays(rows, y), where=bo.engines.Local(device="cpu")
    )
    expected = ridge(alpha=1.0).fit(rows, y)
    # Blocks of other sizes: rounding of the sums, which the penalty divides.
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        (3, InvalidType, r"device must be a name of torch, .* got int"),
        ((), InvalidInput, "device must name one device at least"),
        ("abacus", InvalidInput, f"{THERE} abacus"),
        (
            ("cpu", "cuda:77"),
            InvalidInput,
            f"{THERE} cpu, cuda",
        ),
    ],
    ids=["number", "none", "unknown", "absent"],
)
def test_devices_that_cannot_be_are_refused(device, error, message):
    model = ridge()
    with pytest.raises(error, match=f"Local: {message}"):
        model.fit_blocks(bo.Blocks.from_arrays(X, Y), where=bo.engines.Local(device=device))
    assert not hasattr(model, "fit_")


def test_a_device_without_float64_is_refused(monkeypatch):
    """As those of Apple."""
    made = torch.empty

    def empty(*size, dtype=torch.float32, **options):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made(*size, dtype=dtype, **options)

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(InvalidInput, match=r"that know float64; got cpu \(Cannot convert a MPS"):
        ridge().fit_blocks(bo.Blocks.from_arrays(X, Y), where=bo.engines.Local(device="cpu"))


def test_a_device_and_a_checkpoint_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"records sums of this process.*Leave out one"):
        bo.engines.Local(tmp_path / "run.ckpt", device="cpu")


def test_torch_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BochnerError, match=r"device= needs the package torch.*pip install torch"):
        ridge().fit_blocks(bo.Blocks.from_arrays(X, Y), where=bo.engines.Local(device="cpu"))
