"""Landmarks chosen from all rows of a stream, which is read as often as the choice needs.

``draw`` chooses among rows in memory, a random sample of a long stream. Where rare clusters
matter, choose among all of them, and draw the map with the landmarks given:

    chosen = landmarks_of(Pivoted(), kernel, blocks, 512, random_state=0)
    phi = draw(kernel, Nystrom(Given(chosen.rows)), n_features=512, n_inputs=d)
"""

from collections.abc import Iterable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from bochner._core.arrays import as_matrix, is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import sample_stream
from bochner.errors import InvalidInput
from bochner.features.landmarks import (
    Chosen,
    Given,
    KMeans,
    Landmarks,
    Pivoted,
    RidgeLeverage,
    Uniform,
    dense_rows,
    in_units,
    lengthscales,
)
from bochner.features.leverage import leverage_rows
from bochner.features.nystrom import NystromMap
from bochner.kernels import Kernel
from bochner.solvers.pivots import accept

#: Share of the trace below which the residual is the jitter of the map.
EXPLAINED = 1e-11


def landmarks_of(
    landmarks: Landmarks,
    kernel: Kernel,
    blocks: Iterable[Any],
    count: int,
    *,
    random_state: Seed = None,
) -> Chosen:
    """Choose up to ``count`` landmarks among all rows of blocks that can be read again.

    Parameters
    ----------
    landmarks : Landmarks
        Beside one reading that counts the rows, ``Uniform()`` reads them once; ``KMeans()`` once
        for seeds and ``iterations`` times by mini-batches; ``RidgeLeverage()`` about
        2 log₂(n/count) times; ``Pivoted()`` once for each eighth of the landmarks or less, ten to
        twenty times, with the law of pivots among all rows. ``pool`` has no part, nor ``mode``.
    kernel : Kernel
    blocks : iterable
        ``Blocks``, or any list of blocks (X, ...) with rows X, NumPy or CSR.
    count : int
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Chosen
        ``rows``, (m, d) float64, and ``unexplained``, the share of the trace of all rows that the
        landmarks leave, for ``Pivoted()``.

    Raises
    ------
    InvalidInput
        If the blocks have no rows.

    Notes
    -----
    Memory: a block's k(X, S), D² numbers, and 16 bytes a row for ``RidgeLeverage()``. Time: as in
    memory, and for ``Pivoted()`` about three times that of one sweep of the features each time the
    rows are read with all landmarks.
    """
    count = integer(count, "landmarks_of", "count", least=1)
    rows = _Rows(blocks)
    rows.count()
    return _streamed(landmarks, kernel, rows, count, stream(seed_of(random_state), "landmarks"))


class _Rows:
    """The rows of blocks, each time it is iterated."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        if iter(blocks) is blocks:
            raise InvalidInput(
                "landmarks_of: blocks must be readable again and again, e.g. Blocks or a list; got "
                f"{type(blocks).__name__}, which is read once. Pass Blocks.from_iterable(...)."
            )
        self._blocks = blocks

    def __iter__(self) -> Iterator[Float[Array, "b d"]]:
        for block in self._blocks:
            X = as_matrix(block[0], "landmarks_of")
            X = X if is_sparse(X) else to_numpy(X)
            if X.shape[0]:
                yield X.astype(np.float64, copy=False)

    def numbered(self) -> Iterator[tuple[Array, None, None, int]]:
        """Give blocks as `sample_stream` reads them: rows, and the number of the first."""
        start = 0
        for X in self:
            yield X, None, None, start
            start += X.shape[0]

    def count(self) -> int:
        """Return n, which must not be zero."""
        n = sum(X.shape[0] for X in self)
        if not n:
            raise InvalidInput("landmarks_of: blocks must hold rows; got none. Pass some.")
        return n

    def sample(self, m: int, rng: np.random.Generator) -> Float[Array, "m d"]:
        """Return m rows uniformly at random, in random order."""
        rows = sample_stream(self.numbered(), m, int(rng.integers(2**63 - 1))).X
        return dense_rows(rows, rng.permutation(rows.shape[0]))


@singledispatch
def _streamed(
    landmarks: Landmarks,
    kernel: Kernel,
    rows: _Rows,
    count: int,
    rng: np.random.Generator,
) -> Chosen:
    raise InvalidInput(
        "landmarks_of: landmarks must be Pivoted(), Uniform(), KMeans(), RidgeLeverage() or "
        f"Given(rows); got {landmarks!r}."
    )


@_streamed.register
def _(
    landmarks: Uniform, kernel: Kernel, rows: _Rows, count: int, rng: np.random.Generator
) -> Chosen:
    return Chosen(rows.sample(count, rng))


@_streamed.register
def _(
    landmarks: Given, kernel: Kernel, rows: _Rows, count: int, rng: np.random.Generator
) -> Chosen:
    return Chosen(landmarks.rows[:count].copy())


@_streamed.register
def _(
    landmarks: KMeans, kernel: Kernel, rows: _Rows, count: int, rng: np.random.Generator
) -> Chosen:
    from sklearn.cluster import MiniBatchKMeans  # noqa: PLC0415  takes a second to import

    seeds = in_units(np.unique(rows.sample(count, rng), axis=0), kernel)
    # No reassignment: it would move centres that a block happens not to visit.
    clusters = MiniBatchKMeans(
        len(seeds),
        init=seeds,
        n_init=1,
        random_state=int(rng.integers(2**31)),
        reassignment_ratio=0.0,
    )
    for _ in range(landmarks.iterations):
        for X in rows:
            clusters.partial_fit(in_units(X, kernel))
    return Chosen(
        np.unique(clusters.cluster_centers_, axis=0) * lengthscales(kernel, seeds.shape[1])
    )


@_streamed.register
def _(
    landmarks: RidgeLeverage, kernel: Kernel, rows: _Rows, count: int, rng: np.random.Generator
) -> Chosen:
    return Chosen(leverage_rows(kernel, rows, rows.count(), count, landmarks.alpha, rng))


@_streamed.register
def _(
    landmarks: Pivoted, kernel: Kernel, rows: _Rows, count: int, rng: np.random.Generator
) -> Chosen:
    size, S, trace = max(16, min(256, count // 8)), None, None
    while True:
        proposed, start, left = _proposals(kernel, S, rows, size, rng)
        trace = left if trace is None else trace
        if S is not None and (len(S) == count or left <= EXPLAINED * trace):
            return Chosen(S, left / (trace or 1.0))
        # Equal rows are one row: proposed twice, they have two chances of one acceptance.
        number = np.unique(proposed, axis=0, return_inverse=True)[1].reshape(-1)
        H = _left(kernel, S, proposed)
        taken, _ = accept(H, start, number, rng.random(len(proposed)))
        new = proposed[[int(np.flatnonzero(number == i)[0]) for i in taken]]
        if S is None:
            S = new if len(new) else proposed[:1]
        elif not len(new):
            return Chosen(S, left / (trace or 1.0))
        else:
            S = np.concatenate([S, new])[:count]


def _proposals(
    kernel: Kernel,
    S: Float[Array, "s d"] | None,
    rows: _Rows,
    size: int,
    rng: np.random.Generator,
) -> tuple[Float[Array, "b d"], Float[Array, " b"], float]:
    """Return rows drawn by their residual, with replacement, their residuals, and the sum of all.

    In one reading: each of the draws goes over to a block with the block's share of the sum so far.
    """
    total, chosen, residuals = 0.0, None, np.zeros(size)
    phi = None if S is None else NystromMap(kernel, S)
    for X in rows:
        left = kernel.diag(X) if phi is None else phi.residual(X)
        here = float(left.sum())
        if chosen is None:
            chosen = dense_rows(X, np.zeros(size, np.intp))
        total += here
        moving = np.flatnonzero(rng.random(size) * total < here)
        if here > 0.0 and len(moving):
            index = rng.choice(len(left), size=len(moving), p=left / here)
            chosen[moving], residuals[moving] = dense_rows(X, index), left[index]
    assert chosen is not None
    return chosen, residuals, total


def _left(
    kernel: Kernel, S: Float[Array, "s d"] | None, rows: Float[Array, "b d"]
) -> Float[Array, "b b"]:
    K = kernel(rows)
    if S is None:
        return K
    Z = NystromMap(kernel, S)(rows)
    return K - Z @ Z.T
