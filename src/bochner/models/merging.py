"""Models fitted apart, put together: their moments add."""

from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner.errors import IncompatibleModels, InvalidInput, InvalidType
from bochner.features.map import same_arrays
from bochner.models._base import KernelEstimator


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
        If they are learners of other kinds: learners with other losses read every row many times.

    Notes
    -----
    Equals one fit on all rows, to rounding, in any order. Leave-one-out errors are computed on
    the merged sample of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (400, 1))
    >>> options = {"method": "fourier", "n_features": 64, "random_state": 0}
    >>> first, last = (
    ...     bo.KernelRidge(bo.kernels.Gaussian(1.0), **options).fit(rows, np.sin(rows[:, 0]))
    ...     for rows in (X[:200], X[200:])
    ... )
    >>> bool(abs(bo.merge(first, last).predict([[1.0]])[0] - np.sin(1.0)) < 0.01)
    True
    """
    if not models:
        raise InvalidInput("merge: at least one fitted model is required; got none.")
    for model in models:
        check_is_fitted(model)
        fit = model.fit_ if isinstance(model, KernelEstimator) else None
        rows = getattr(fit, "representation", getattr(fit, "law", None))
        if not hasattr(fit, "merged") or "merge" in getattr(rows, "lacks", ()):
            raise InvalidType(
                "merge: models must be made of moments, as KernelRidge, KernelRidgeClassifier, "
                "GaussianProcessRegressor and KernelPCA are (fitted with features, not "
                f'method="exact" or "local"); got {type(model).__name__}. Fit it on all rows, with '
                "fit_blocks."
            )
        _check_alike(models[0], model)
    merged = copy(models[0])
    merged.fit_ = merged.fit_.merged([model.fit_ for model in models])
    return merged


def _check_alike(model: KernelEstimator, other: KernelEstimator) -> None:
    a, b = model.fit_, other.fit_
    kinds = type(model).__name__, type(other).__name__
    if kinds[0] != kinds[1]:
        said = f"be of one class; got {kinds[0]} and {kinds[1]}."
    elif not np.array_equal(a.inputs.classes, b.inputs.classes):
        said = (
            f"know the same classes; got {a.inputs.classes.tolist()} and "
            f"{b.inputs.classes.tolist()}. Name all of them in the first "
            "partial_fit(..., classes=...)."
        )
    elif a.chosen.kernel != b.chosen.kernel or not _same_map(a, b):
        said = (
            "share one feature map; theirs differ "
            f"(kernels {a.chosen.kernel!r} and {b.chosen.kernel!r}). Fit them with the same kernel "
            "value, method, n_features and random_state; Nyström landmarks, and whatever is chosen "
            "from rows, differ with the rows."
        )
    elif a.chosen.precision != b.chosen.precision:
        said = (
            f"have features of one precision; got {a.chosen.precision} and {b.chosen.precision}. "
            "Fit all of them with the same precision=..."
        )
    elif getattr(a, "target_shape", None) != getattr(b, "target_shape", None):
        said = (
            f"have the same targets; got rows of y of shape {a.target_shape} and {b.target_shape}."
        )
    else:
        return
    raise IncompatibleModels(f"merge: models must {said}")


def _same_map(a: Any, b: Any) -> bool:
    maps = a.chosen.choice.map, b.chosen.choice.map
    return maps[0] is maps[1] if None in maps else same_arrays(*maps)
