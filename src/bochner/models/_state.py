"""What a call changes on a learner: everything at its end, or nothing."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sklearn.base import BaseEstimator

from bochner.selection.search import NAMED, as_kernel

Model = TypeVar("Model")
Estimator = TypeVar("Estimator", bound=BaseEstimator)
Rest = ParamSpec("Rest")
Result = TypeVar("Result")

#: What a model knows of the rows it is about to be fitted to.
INPUTS = ("classes_", "feature_names_in_", "n_features_in_", "schema_", "target_shape_")

#: What learners keep of a fit. A name that is not here would survive a fit of another kind; names
#: that a user's own class adds stay.
LEARNED = (
    *INPUTS,
    "X_fit_",
    "_asked",
    "_calibration",
    "_certificate",
    "_diagonal",
    "_n_features_out",
    "_objective",
    "_sums",
    "alpha_",
    "calibration_",
    "choice_",
    "choice_y_",
    "cluster_centers_",
    "converged_",
    "correlations_",
    "eigenvalues_",
    "eigenvectors_",
    "epsilon_",
    "feature_dtype_",
    "fitted_for_",
    "folds_",
    "halves_",
    "inertia_",
    "inverse_",
    "joint_",
    "kernel_",
    "kernel_y_",
    "labels_",
    "loo_log_density_",
    "loss_",
    "loss_curve_",
    "map_",
    "map_y_",
    "metric_",
    "moments_",
    "n_iter_",
    "n_partners_",
    "passes_",
    "path_",
    "plan_",
    "predictive_",
    "rows_seen_",
    "sample_",
    "search_",
    "seed_",
    "seen_",
    "singular_values_",
    "size_",
    "solution_",
    "stopping_errors_",
    "strategy_",
    "support_vectors_",
    "t_",
    "validation_scores_",
    "walk_",
    "weight_",
    "weights_seen_",
    "x_mean_",
    "x_weights_",
    "y_mean_",
    "y_weights_",
)


def all_or_nothing(
    method: Callable[Concatenate[Model, Rest], Result],
) -> Callable[Concatenate[Model, Rest], Result]:
    """Return the method, which changes the model once, last: a call that fails changes nothing.

    It runs on a copy of the model that shares all values, and the model takes over the copy's
    attributes by one assignment. So attributes are to be replaced, never changed in place. Whatever
    ends the call before, an error, an interrupt or a warning that is made an error, leaves the
    model as it was. What the model held stays in memory until then.
    """

    @wraps(method)
    def run(model: Model, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        draft = object.__new__(type(model))
        draft.__dict__ = model.__dict__.copy()
        result = method(draft, *args, **kwargs)
        returned: Any = model if result is draft else result
        # No call from here on: Python looks for Ctrl-C at calls and loops.
        model.__dict__ = draft.__dict__
        return returned

    return run


def forget(model: Any, but: tuple[str, ...] = ()) -> None:
    """Remove what a fit has left, so that nothing survives in a fit of another kind."""
    for name in LEARNED:
        if name not in but:
            model.__dict__.pop(name, None)


@all_or_nothing
def set_kernel_params(model: Estimator, params: dict[str, Any]) -> Estimator:
    """Set an estimator's parameters; those under ``kernel__`` replace numbers of its kernel.

    Kernels are values: the one that was passed in is never changed. A name stands for its kernel
    at lengthscale 1.
    """
    inner = {k.removeprefix("kernel__"): v for k, v in params.items() if k.startswith("kernel__")}
    outer = {k: v for k, v in params.items() if not k.startswith("kernel__")}
    BaseEstimator.set_params(model, **outer)
    if inner:
        kernel = as_kernel(model.kernel)
        value = NAMED[kernel](1.0) if isinstance(kernel, str) else kernel
        model.kernel = value.replace(**inner)
    return model
