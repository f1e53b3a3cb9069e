"""Numbers that predictions are made of must be numbers."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from bochner.features import hermite
from bochner.kernels import Kernel
from bochner.persist.known import MAPS
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.ridge.solution import Solution
from bochner.solvers.sgd import Walk
from bochner.sums.moments import Moments

#: Fields that must be finite; of maps all fields, where infinity may stand for log 0 and its like.
_FIELDS: dict[type, tuple[str, ...]] = {
    Solution: ("coef", "intercept"),
    Optimum: ("coef", "intercept"),
    Walk: ("coef", "intercept", "mean_coef", "mean_intercept"),
    Moments: ("weight", "feature_mean", "target_mean", "gram", "cross", "power"),
}

#: Fitted arrays of learners that must be finite.
FITTED = (
    "cluster_centers_",
    "eigenvectors_",
    "support_vectors_",
    "x_mean_",
    "x_weights_",
    "y_mean_",
    "y_weights_",
)

#: The largest degree, depth or power: more would be work without an end. Arrays as long as theirs
#: may hold larger ones, of which there is then one for each feature.
_DEEPEST = 10_000

#: Arrays of degrees, of which all lower ones are gone through.
_DEGREES: dict[type, tuple[str, ...]] = {
    hermite.HermiteMap: ("indices",),
}


def require_numbers(value: Any) -> None:
    """Refuse coefficients, sums and features that are not numbers, and endless kernels.

    Raises
    ------
    ValueError
        The value holds such.
    """
    for name in _FIELDS.get(type(value), ()):
        if not is_finite(getattr(value, name)):
            raise ValueError(f"{name} of {type(value).__name__} must be finite")
    if type(value) in MAPS and any(_has_nan(part) for part in _parts(value)):
        raise ValueError(f"{type(value).__name__} must hold numbers")
    for name in _DEGREES.get(type(value), ()):
        if not _are_degrees(getattr(value, name)):
            raise ValueError(f"{name} of {type(value).__name__} must be degrees")
    if isinstance(value, Kernel) and any(type(n) is int and n > _DEEPEST for n in _parts(value)):
        raise ValueError(f"{type(value).__name__} must have no number above {_DEEPEST}")


def is_finite(value: Any) -> bool:
    """Whether an array or number is finite everywhere."""
    numbers = value.data if scipy.sparse.issparse(value) else value
    return bool(np.isfinite(numbers).all())


def _are_degrees(values: Any) -> bool:
    """Whether these are whole numbers, not negative, of a size that can be gone through."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        return False
    return values.size == 0 or 0 <= values.min() <= values.max() <= max(_DEEPEST, values.size)


def _has_nan(part: Any) -> bool:
    if isinstance(part, tuple):
        return any(map(_has_nan, part))
    number = isinstance(part, float | np.ndarray)
    return bool(number and np.isnan(np.asarray(part)).any())


def _parts(value: Any) -> Iterator[Any]:
    return (getattr(value, f.name) for f in dataclasses.fields(value) if f.init)
