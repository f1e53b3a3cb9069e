"""Models fitted apart, put together: their moments add."""

from copy import copy
from functools import reduce
from operator import add

from sklearn.utils.validation import check_is_fitted

from bochner.errors import IncompatibleModels, InvalidInput
from bochner.estimators.ridge import KernelRidge
from bochner.estimators.rows import RowSample
from bochner.features.map import same_arrays

__all__ = ["merge"]


def merge(*models: KernelRidge) -> KernelRidge:
    """Return the model of all the rows that several models were fitted on apart.

    Parameters
    ----------
    *models : KernelRidge
        Fitted with the same kernel (a value, or a lengthscale that came out the same), method,
        width and seed, so that their maps are equal; their moments add.

    Raises
    ------
    IncompatibleModels
        If the maps differ; the message says how to make them equal.

    Notes
    -----
    Equals one fit on all rows, to rounding, in any order. Leave-one-out errors are those of the
    merged sample of rows.
    """
    if not models:
        raise InvalidInput("merge: at least one fitted model is required; got none.")
    for model in models:
        check_is_fitted(model)
        _check_same_map(models[0], model)
    merged = copy(models[0])
    merged.moments_ = reduce(add, (model.moments_ for model in models))
    merged.sample_ = reduce(RowSample.merge, (model.sample_ for model in models))
    merged.rows_seen_ = sum(model.rows_seen_ for model in models)
    return merged.solve_again()


def _check_same_map(a: KernelRidge, b: KernelRidge) -> None:
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
    if a.target_shape_ != b.target_shape_:
        raise IncompatibleModels(
            "merge: models must have the same targets; got rows of y of shape "
            f"{a.target_shape_} and {b.target_shape_}."
        )
