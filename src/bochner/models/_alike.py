"""Folds by what rows hold: equal rows are left out together, wherever they stand.

A row that is left out and has an equal one among those kept is not left out at all. And a row of
weight 2 is then the same as two rows, and the order of rows does not matter.
"""

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Bool, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput

#: Folds, each left out once.
N_FOLDS = 5


def left_out(
    who: str, blocks: Blocks, w: Float[Array, " n"], seed: int, folds: int
) -> Bool[Array, "n k"]:
    """Return which rows each of the first ``folds`` of five folds leaves out, by one pass."""
    numbers = fold_numbers(blocks, w, seed)
    many = 1 + int(numbers[w > 0].max(initial=-1))
    if many < 2:
        raise InvalidInput(
            f"{who}: to leave rows out, at least 2 different rows of positive weight are "
            f"required; got n_samples = {many}. Give alpha as a number."
        )
    return numbers[:, None] == np.arange(min(folds, many))


def fold_numbers(blocks: Blocks, w: Float[Array, " n"], seed: int) -> Array:
    """Return the fold of every row, 0 to 4, by one pass.

    Different rows of positive weight, in an order that is random, go to the folds in turns; fewer
    than five have a fold each.
    """
    marks = np.concatenate([row_marks(block.X, seed) for block in blocks])
    return np.searchsorted(np.unique(marks[w > 0]), marks) % N_FOLDS


def row_marks(X: Array, seed: int) -> Array:
    """Return a random number for each row, the same for rows that are equal: a sum of products.

    All modulo 2⁶⁴, so exact; zeros add nothing, so that sparse rows have the numbers of dense ones.
    """
    d = X.shape[1]
    odd = stream(seed, "marks").integers(2**63, size=d, dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    if is_sparse(X):
        rows = X.tocsr()
        products = _mixed(rows.data) * odd[rows.indices]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
        return _mixed_again(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])
    return _mixed_again((_mixed(to_numpy(X)) * odd).sum(axis=1, dtype=np.uint64))


def _mixed(X: Array) -> Array:
    bits = (np.asarray(X, np.float64) + 0.0).view(np.uint64)
    return bits ^ (bits >> np.uint64(29))


def _mixed_again(marks: Array) -> Array:
    """Spread the numbers over all bits: the finaliser of Steele, Lea and Flood (2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        marks = (marks ^ (marks >> np.uint64(shift))) * np.uint64(factor)
    return marks ^ (marks >> np.uint64(31))
