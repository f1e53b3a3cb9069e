"""Models fitted apart, put together: their moments add."""

from collections.abc import Callable
from copy import copy
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner.data.sample import RowSample
from bochner.errors import IncompatibleModels, InvalidInput, InvalidType
from bochner.features.map import same_arrays
from bochner.models._base import KernelEstimator
from bochner.models._folds import added as folds_of_both
from bochner.models.gaussian_process.fit import GaussianProcessFit, merge_processes
from bochner.models.ridge.fit import merge_ridge


def merge(*models: Any) -> Any:
    """Return the model of all the rows that several models were fitted on apart.

    Parameters
    ----------
    *models : KernelRidge, KernelRidgeClassifier, GaussianProcessRegressor or KernelPCA
        Fitted learners of one class whose moments add, with the same kernel (a value, or a
        lengthscale that came out the same), method, width and seed, so that their maps are equal.

    Raises
    ------
    IncompatibleModels
        If the maps, or the classes of labels, differ; the message says how to make them equal.
    InvalidType
        If they are learners of other kinds: those with other losses see every row many times.

    Notes
    -----
    Equals one fit on all rows, to rounding, in any order. Leave-one-out errors are those of the
    merged sample of rows.
    """
    if not models:
        raise InvalidInput("merge: at least one fitted model is required; got none.")
    for model in models:
        check_is_fitted(model)
        _check_moments(model)
        _check_same_kind(models[0], model)
        _check_same_map(models[0], model)
    merged = copy(models[0])
    if isinstance(merged, KernelEstimator):
        fits = [model.fit_ for model in models]
        processes = isinstance(fits[0], GaussianProcessFit)
        merged.fit_ = (merge_processes if processes else merge_ridge)(fits)
        return merged
    for name, added in _SUMS.items():
        parts = [getattr(model, name, None) for model in models]
        if all(part is not None for part in parts):
            setattr(merged, name, reduce(added, parts))
    return merged.solve_again()


#: What models hold of the rows they saw, and how it adds up.
_SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "moments_": add,
    "folds_": folds_of_both,
    "_diagonal": add,
    "rows_seen_": add,
    "sample_": RowSample.merge,
}


def _check_moments(model: Any) -> None:
    if not hasattr(model, "moments_") or not hasattr(model, "solve_again"):
        raise InvalidType(
            "merge: models must be made of moments, as KernelRidge, KernelRidgeClassifier, "
            "GaussianProcessRegressor and KernelPCA are (fitted with features, not "
            f'method="exact"); got {type(model).__name__}. Fit it on all rows, with fit_blocks.'
        )


def _check_same_kind(a: Any, b: Any) -> None:
    if type(a) is not type(b):
        raise IncompatibleModels(
            f"merge: models must be of one class; got {type(a).__name__} and {type(b).__name__}."
        )
    if not np.array_equal(getattr(a, "classes_", ()), getattr(b, "classes_", ())):
        raise IncompatibleModels(
            f"merge: models must know the same classes; got {a.classes_.tolist()} and "
            f"{b.classes_.tolist()}. Name all of them in the first partial_fit(..., classes=...)."
        )


def _check_same_map(a: Any, b: Any) -> None:
    if a.kernel_ != b.kernel_ or not same_arrays(a.map_, b.map_):
        raise IncompatibleModels(
            "merge: models must share one feature map; theirs differ "
            f"(kernels {a.kernel_!r} and {b.kernel_!r}). Fit them with the same kernel value, "
            "method, n_features and random_state; Nyström landmarks, and whatever is chosen from "
            "rows, differ with the rows."
        )
    if a.feature_dtype_ != b.feature_dtype_:
        raise IncompatibleModels(
            f"merge: models must have features of one precision; got {a.feature_dtype_} and "
            f"{b.feature_dtype_}. Fit all of them with the same precision=..."
        )
    shapes = [getattr(model, "target_shape_", ()) for model in (a, b)]
    if shapes[0] != shapes[1]:
        raise IncompatibleModels(
            "merge: models must have the same targets; got rows of y of shape "
            f"{shapes[0]} and {shapes[1]}."
        )
