"""A binary tree of rows, split along kernel principal components.

Each split is along the first kernel principal component of the rows, computed from a few of them:
p(x) = Σ_j v_j k(x, s_j). Rows with large kernel values are in the same leaf. All leaves have
about equal numbers of rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Int
from bochner.kernels.kernel import Kernel

#: Rows from which a direction is estimated: its component has a quarter of the spread or more.
LOOKED_AT = 64
AT_ONCE = 1 << 16  # Rows of one evaluation of p


class Split(NamedTuple):
    """p(x) = Σ_j v_j k(x, s_j), and the least p of rows of the second half."""

    rows: Float[Array, "m d"]
    weights: Float[Array, " m"]
    cut: float


def _component(kernel: Kernel, rows: Array, weights: Array, X: Array) -> Float[Array, " n"]:
    parts = [
        to_numpy(kernel.evaluate(X[start : start + AT_ONCE], rows)) @ weights
        for start in range(0, len(X), AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


@dataclass(frozen=True, eq=False)
class RowTree:
    """Splits of the inputs, and the leaves."""

    rows: Float[Array, "s m d"]
    weights: Float[Array, "s m"]
    cuts: Float[Array, " s"]
    children: Int[Array, "s 2"]  # Numbers of further splits; −1 − number for a leaf

    def __post_init__(self) -> None:
        # of a file: else rows would come to no leaf
        further = self.children >= 0
        backwards = self.children[further] <= np.nonzero(further)[0]
        low, high = -1 - len(self.cuts), len(self.cuts) - 1
        if backwards.any() or not ((low <= self.children) & (self.children <= high)).all():
            raise ValueError("children must be later splits, or leaves that exist")

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.cuts) + 1

    def leaves(self, kernel: Kernel, X: Float[Array, "n d"]) -> Int[Array, " n"]:
        """Return the leaf of each row; O(n m) kernel values per level."""
        leaves = np.zeros(len(X), np.intp)
        waiting = [(0, np.arange(len(X)))] if len(self.cuts) else []
        while waiting:
            number, here = waiting.pop()
            p = _component(kernel, self.rows[number], self.weights[number], X[here])
            side = p >= self.cuts[number]
            for child, rows in zip(self.children[number], (here[~side], here[side]), strict=True):
                if child < 0:
                    leaves[rows] = -1 - child
                elif len(rows):
                    waiting.append((int(child), rows))
        return leaves


def grow(
    kernel: Kernel, X: Float[Array, "n d"], most: int, seed: int
) -> tuple[RowTree, Int[Array, " n"]]:
    """Split rows until no leaf has more than ``most``; return the tree, and the leaf of each row.

    Leaf sizes are as equal as possible; rows at a cut may be on either side. O(n m) kernel values
    per level.
    """
    rng, leaf, count = stream(seed, "tree"), np.zeros(len(X), np.intp), 0
    splits: list[Split] = []
    children: list[list[int]] = []

    def divide(here: Int[Array, " m"], leaves: int) -> int:
        """Return the number of the split of these rows, or −1 − the number of their leaf."""
        nonlocal count
        if leaves == 1:
            leaf[here] = count
            count += 1
            return -count
        number, half = len(splits), leaves // 2
        split, first = _split(kernel, X, here, leaves, rng)
        splits.append(split)
        children.append([0, 0])
        children[number][1] = divide(here[~first], leaves - half)
        children[number][0] = divide(here[first], half)
        return number

    divide(np.arange(len(X)), max(1, -(-len(X) // most)))
    tree = RowTree(
        np.array([split.rows for split in splits]).reshape(-1, LOOKED_AT, X.shape[1]),
        np.array([split.weights for split in splits]).reshape(-1, LOOKED_AT),
        np.array([split.cut for split in splits]),
        np.array(children, np.intp).reshape(-1, 2),
    )
    return tree, leaf


def _split(
    kernel: Kernel, X: Array, here: Int[Array, " m"], leaves: int, rng: np.random.Generator
) -> tuple[Split, Array]:
    """Return a split of these rows, and which are of the first half."""
    sample = X[np.sort(rng.choice(here, LOOKED_AT, replace=len(here) < LOOKED_AT))]
    rows = np.ascontiguousarray(sample, np.float64)
    K = to_numpy(kernel.evaluate(rows, rows))
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    vector = np.linalg.eigh(centred)[1][:, -1]
    weights = vector - vector.mean()
    weights = weights * np.where(weights[np.abs(weights).argmax()] < 0, -1.0, 1.0)
    p = _component(kernel, rows, weights, X[here])
    count = len(here) * (leaves // 2) // leaves
    order = np.argsort(p, kind="stable")
    first = np.zeros(len(here), bool)
    first[order[:count]] = True
    cut = float(p[order[count - 1]] + p[order[count]]) / 2
    return Split(rows, weights, cut), first


def neighbourhoods(
    kernel: Kernel, X: Float[Array, "n d"], count: int, size: int, seed: int
) -> Int[Array, " m"]:
    """Return about ``size`` near rows in each of ``count`` places, as dense as in the whole table.

    Each place is a random side of repeated splits. O(n m) kernel values per place.
    """
    rng, places = stream(seed, "neighbourhoods"), []
    for _ in range(count):
        here = np.arange(len(X))
        while len(here) > size:
            leaves = max(2, -(-len(here) // size))
            _, first = _split(kernel, X, here, leaves, rng)
            here = here[first] if rng.random() < 0.5 else here[~first]
        places.append(here)
    return np.unique(np.concatenate(places))
