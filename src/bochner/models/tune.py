"""tune: the search for a kernel, for any estimator of this package."""

from dataclasses import replace
from typing import Any

from sklearn.base import BaseEstimator, clone

from bochner._core.checks import one_of, require_squares
from bochner._core.random import seed_of
from bochner._core.threads import one_thread
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import places_of
from bochner.kernels.stationary import Radial
from bochner.models._base import KernelEstimator
from bochner.models._labels import LabelEstimator
from bochner.selection.lengthscales import at_median, require_lengthscale, tune_lengthscales
from bochner.selection.numbers import is_composite, tune_numbers
from bochner.selection.record import Tuning
from bochner.solvers.ridge.dual import CRITERIA
from bochner.sums.rows import sampled


@one_thread()
def tune(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any = None, *, criterion: str = "loo"
) -> Tuning:
    """Tune the kernel of an estimator of this package; ``tuning.estimator`` is ready to be fitted.

    Parameters
    ----------
    estimator : estimator
        An estimator with ``kernel``, ``method`` and ``n_features``, such as KernelRidge, SVC or
        GaussianProcessRegressor. It is not changed. Its kernel is one of:

        - a name, such as "auto": the kernel is the one that ``fit`` chooses;
        - a stationary kernel: its lengthscales are tuned, from where they are, with one factor or
          one per column;
        - a sum or product: all numbers are tuned, or those that are "auto" if there are any; see
          :class:`bochner.kernels.Free`.
    X : (n, d)
        Array, sparse matrix or table.
    y : (n,) or (n, t)
        Targets or labels of classes; classes are tuned as indicators, one against the rest.
    sample_weight : (n,), optional
    criterion : {"loo", "evidence"}, default "loo"
        The criterion: the leave-one-out error, or minus the evidence. With "evidence" a name is
        a family, whose lengthscales are tuned; "auto" is "matern32".

    Returns
    -------
    Tuning
        ``kernel``, ``share`` (best penalty per row), what was ``compared``, and ``estimator``: a
        clone with this kernel. For a name, ``error`` is the error of candidates on
        held-out rows.

    Raises
    ------
    UnsupportedKernel
        If the kernel has no lengthscale that could be tuned.
    InvalidInput
        If the estimator has no kernel, or an argument is invalid.

    Notes
    -----
    Lengthscales are tuned on at most 1024 rows, in seconds for any n; a name takes a fit.

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
    asked = model.get_params(deep=False)
    if "metric" in asked:
        model.set_params(metric=None)
    if criterion == "loo" and not isinstance(model.kernel, Kernel):
        weights = () if sample_weight is None else (sample_weight,)
        tuning = replace(model.fit(X, y, *weights).search_, kernel=model.kernel_)
    else:
        seed, centred = seed_of(model.random_state), asked.get("fit_intercept", True)
        if isinstance(model, LabelEstimator):
            blocks, inputs = model._class_blocks_of(X, y, sample_weight)
            sample = sampled(blocks, seed, len(inputs.classes))  # classes as indicators
        else:
            sample = sampled(model._blocks_of(X, y, sample_weight)[0], seed)
            require_squares("tune", sample.y, sample.w)
        kernel, by = model.kernel, CRITERIA[criterion]
        if not isinstance(kernel, Kernel):
            name = "matern32" if kernel == "auto" else kernel
            kernel = at_median(name, sample, seed)[-1]
        if isinstance(kernel, Radial) and not is_composite(kernel):
            tuning = tune_lengthscales(kernel, sample, by, centred=centred)
        else:
            if not places_of(kernel):
                require_lengthscale(kernel)
            tuning = tune_numbers(kernel, sample, by, seed, centred=centred)
    return replace(tuning, estimator=clone(estimator).set_params(kernel=tuning.kernel))
