"""One map for all: array libraries, precisions, blocks, layouts in memory."""

import array_api_strict
import numpy as np
import scipy.sparse
from tolerance import assert_close, of

STRICTEST = {"boolean_indexing": False, "data_dependent_shapes": False, "enabled_extensions": ()}
"""Flags of array-api-strict: nothing but what every library has."""


def in_library(function, X, xp):
    """The rows of a function computed in an array library, as NumPy."""
    with array_api_strict.ArrayAPIStrictFlags(**STRICTEST):
        Z = function(xp.asarray(X))
    assert type(Z) is type(xp.asarray(X))
    assert Z.dtype == getattr(xp, X.dtype.name)
    return np.from_dlpack(Z)


def between_bytes(A):
    """The same numbers, one byte after where such numbers should lie in memory."""
    moved = np.frombuffer(bytearray(A.nbytes + 1), A.dtype, offset=1).reshape(A.shape)
    moved[...] = A
    return moved


def assert_same_in_any_layout(phi, X, Z, dtype, factor=1.0, sparse=True):
    """The features of fifty rows are Z in either precision, by blocks, strided, sparse, whole."""
    bound = factor * of(dtype) * np.abs(Z).max()
    rough = X.astype(dtype)
    rough.flags.writeable = False
    whole = phi(rough)
    assert (type(whole), whole.dtype) == (np.ndarray, dtype)
    assert np.abs(whole - Z).max() < 40 * bound
    for block in (1, 7, 32):
        parts = np.concatenate([phi(rough[i : i + block]) for i in range(0, 50, block)])
        assert np.abs(parts - whole).max() < bound
    strided = np.repeat(rough, 2, axis=1)[:, ::2]
    for same in (np.asfortranarray(rough), strided, between_bytes(rough)):
        assert np.abs(phi(same) - whole).max() < bound
    if sparse:
        assert_close(phi(scipy.sparse.csr_array(rough)), whole, dtype, factor=factor)
    assert phi(rough[:0]).shape == (0, phi.n_features)
    integers = np.round(3 * X)
    assert (phi(integers.astype(np.int16)) == phi(integers)).all()


class OnlyAStream:
    """An object that knows nothing but Arrow's C stream protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)
