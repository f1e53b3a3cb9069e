"""Checks that a map gives the same features in each array library, precision and memory layout."""

import array_api_strict
import numpy as np
import scipy.sparse
from tolerance import assert_close, of

STRICTEST = {"boolean_indexing": False, "data_dependent_shapes": False, "enabled_extensions": ()}
"""Flags of array-api-strict that allow only what every array library has."""


def in_library(function, X, xp):
    """Return function(X), computed in an array library, as a NumPy array."""
    with array_api_strict.ArrayAPIStrictFlags(**STRICTEST):
        Z = function(xp.asarray(X))
    assert type(Z) is type(xp.asarray(X))
    assert Z.dtype == getattr(xp, X.dtype.name)
    return np.from_dlpack(Z)


def between_bytes(A):
    """Return a copy whose memory is not aligned: one byte off."""
    copy = np.frombuffer(bytearray(A.nbytes + 1), A.dtype, offset=1).reshape(A.shape)
    copy[...] = A
    return copy


def assert_same_in_any_layout(phi, X, Z, dtype, factor=1.0, sparse=True):
    """Assert that fifty rows have features Z in either precision, by blocks and in any layout."""
    bound = factor * of(dtype) * np.abs(Z).max()
    rows = X.astype(dtype)
    rows.flags.writeable = False
    features = phi(rows)
    assert (type(features), features.dtype) == (np.ndarray, dtype)
    assert np.abs(features - Z).max() < 40 * bound
    for block in (1, 7, 32):
        parts = np.concatenate([phi(rows[i : i + block]) for i in range(0, 50, block)])
        assert np.abs(parts - features).max() < bound
    strided = np.repeat(rows, 2, axis=1)[:, ::2]
    for layout in (np.asfortranarray(rows), strided, between_bytes(rows)):
        assert np.abs(phi(layout) - features).max() < bound
    if sparse:
        assert_close(phi(scipy.sparse.csr_array(rows)), features, dtype, factor=factor)
    assert phi(rows[:0]).shape == (0, phi.n_features)
    integers = np.round(3 * X)
    assert (phi(integers.astype(np.int16)) == phi(integers)).all()


class OnlyAStream:
    """An object with only Arrow's C stream protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)
