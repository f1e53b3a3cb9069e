"""Functions of estimators: ``tune`` tunes a kernel, ``merge`` merges models of different rows."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from bochner._core.checks import one_of
from bochner._core.random import seed_of
from bochner._core.threads import single_thread
from bochner.errors import IncompatibleModels, InvalidInput, InvalidType
from bochner.features.map import same_arrays
from bochner.kernels.hyperparameters import places_of
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Radial
from bochner.models._base import KernelEstimator
from bochner.models._labels import LabelEstimator
from bochner.selection.hyperparameters import is_composite, tune_hyperparameters
from bochner.selection.lengthscales import median_kernels, require_lengthscale, tune_lengthscales
from bochner.selection.record import Tuning
from bochner.solvers.ridge.dual import CRITERIA
from bochner.sums.moments import require_squares
from bochner.sums.passes import draw_rows


@single_thread()
def tune(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any = None, *, criterion: str = "loo"
) -> Tuning:
    """Tune the kernel of an estimator of this package; the estimator of the result can be fitted.

    Parameters
    ----------
    estimator : estimator
        An estimator with ``kernel``, ``method`` and ``n_features``, such as KernelRidge, SVC or
        GaussianProcessRegressor. It is not changed. Its kernel is one of:

        - a name, such as "auto": the result is the kernel that ``fit`` chooses;
        - a stationary kernel: its lengthscales are multiplied by one factor or one per column;
        - a sum or product: all hyperparameters are tuned, or only those that are "auto" if there
          are any; see :class:`bochner.kernels.Free`.
    X : (n, d)
        Array, sparse matrix or table.
    y : (n,) or (n, t)
        Targets, or labels, which become one indicator per class.
    sample_weight : (n,), optional
    criterion : {"loo", "evidence"}, default "loo"
        "loo": minimise the leave-one-out error. "evidence": maximise the log marginal likelihood;
        with a name, over the lengthscales of this family ("auto" is "matern32").

    Returns
    -------
    Tuning
        ``kernel``, ``share`` (the best penalty per row), ``candidates`` (for a name with their
        held-out errors), and ``estimator``, a clone with this kernel.

    Raises
    ------
    UnsupportedKernel
        If the kernel has no lengthscale.
    InvalidInput
        If the estimator has no kernel, or an argument is invalid.

    Notes
    -----
    Lengthscales are tuned on at most 1024 rows, in seconds for any n. A name takes as long as a
    fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidge, tune
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-3, 3, (400, 3))
    >>> tuning = tune(KernelRidge(Gaussian(1.0), random_state=0), X, np.sin(2 * X[:, 1]))
    >>> lengths = np.array(tuning.kernel.lengthscale)
    >>> bool(lengths[1] < 0.2 * min(lengths[0], lengths[2]))
    True
    """
    if not isinstance(estimator, KernelEstimator):
        raise InvalidInput(
            "tune requires an estimator with kernel, method and n_features, such as "
            f"KernelRidge(); got {estimator!r}. In a pipeline, tune its last step on transformed "
            "rows."
        )
    one_of(criterion, "tune", "criterion", tuple(CRITERIA))
    model: Any = clone(estimator)
    parameters = model.get_params(deep=False)
    if "metric" in parameters:
        model.set_params(metric=None)
    if criterion == "loo" and not isinstance(model.kernel, Kernel):
        weights = () if sample_weight is None else (sample_weight,)
        tuning = replace(model.fit(X, y, *weights).search_, kernel=model.kernel_)
    else:
        seed, centred = seed_of(model.random_state), parameters.get("fit_intercept", True)
        if isinstance(model, LabelEstimator):
            blocks, inputs = LabelEstimator._read(model, X, y, sample_weight)
            sample = draw_rows(blocks, seed, len(inputs.classes))  # classes as indicators
        else:
            sample = draw_rows(model._read(X, y, sample_weight)[0], seed)
            require_squares("tune", sample.y, sample.w)
        kernel, objective = model.kernel, CRITERIA[criterion]
        if not isinstance(kernel, Kernel):
            name = "matern32" if kernel == "auto" else kernel
            kernel = median_kernels(name, sample, seed)[-1]
        if isinstance(kernel, Radial) and not is_composite(kernel):
            tuning = tune_lengthscales(kernel, sample, objective, centred=centred)
        else:
            if not places_of(kernel):
                require_lengthscale(kernel)
            tuning = tune_hyperparameters(kernel, sample, objective, seed, centred=centred)
    return replace(tuning, estimator=clone(estimator).set_params(kernel=tuning.kernel))


def merge(*models: Any) -> Any:
    """Return one model of all rows, merged from models that were fitted to different rows.

    Parameters
    ----------
    *models : KernelRidge, KernelRidgeClassifier, GaussianProcessRegressor or KernelPCA
        Fitted models of one class, on features. Kernel (with its hyperparameters), method, number
        of features and seed must be the same, so that the feature maps are equal.

    Raises
    ------
    IncompatibleModels
        If the class of the models, labels, kernels, maps or targets differ.
    InvalidType
        If a model has no moments, as with ``method="exact"`` or "local", or with another loss.

    Notes
    -----
    The result equals one fit to all rows up to rounding, in any order of the models. Leave-one-out
    errors are computed for the merged samples of rows.

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
        if not hasattr(fit, "merge_all") or "merge" in getattr(rows, "lacks", ()):
            raise InvalidType(
                "merge: models must have moments, as KernelRidge, KernelRidgeClassifier, "
                "GaussianProcessRegressor and KernelPCA have if they are fitted with features (not "
                f'with method="exact" or "local"); got {type(model).__name__}. Fit all rows '
                "together with fit_blocks."
            )
        _require_equal_maps(models[0], model)
    result = copy(models[0])
    result.fit_ = result.fit_.merge_all([model.fit_ for model in models])
    return result


def _require_equal_maps(model: KernelEstimator, other: KernelEstimator) -> None:
    a, b = model.fit_, other.fit_
    maps = a.chosen.choice.map, b.chosen.choice.map
    kinds = type(model).__name__, type(other).__name__
    if kinds[0] != kinds[1]:
        requirement = f"be of one class; got {kinds[0]} and {kinds[1]}."
    elif not np.array_equal(a.inputs.classes, b.inputs.classes):
        requirement = (
            f"have the same classes; got {a.inputs.classes.tolist()} and "
            f"{b.inputs.classes.tolist()}. Pass all classes to the first "
            "partial_fit(..., classes=...)."
        )
    elif a.chosen.kernel != b.chosen.kernel or not (maps[0] is maps[1] or same_arrays(*maps)):
        requirement = (
            "have the same feature map; the maps differ "
            f"(kernels {a.chosen.kernel!r} and {b.chosen.kernel!r}). Fit them with the same kernel "
            "value, method, n_features and random_state; Nyström landmarks, and all choices made "
            "from rows, depend on the rows."
        )
    elif a.chosen.precision != b.chosen.precision:
        requirement = (
            f"have features of one precision; got {a.chosen.precision} and {b.chosen.precision}. "
            "Fit all models with the same precision=..."
        )
    elif getattr(a, "target_shape", None) != getattr(b, "target_shape", None):
        requirement = (
            f"have the same targets; got rows of y of shape {a.target_shape} and {b.target_shape}."
        )
    else:
        return
    raise IncompatibleModels(f"merge: models must {requirement}")
