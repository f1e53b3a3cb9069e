"""Tuning: lengthscales, smoothness and penalty together, by gradients; one mechanism for all.

A descent of the leave-one-out error (or of the evidence) in the logarithms of all that is open, on
Fourier features whose frequencies are rescaled and not drawn anew
(:mod:`bochner.selection.descent`), first with one lengthscale, then with one a column;
families and numbers of lengthscales are then held against one another on rows that no descent saw
(:mod:`bochner.selection.trials`), at the width of the fit.
"""

from dataclasses import replace
from typing import Any

from sklearn.base import BaseEstimator, clone

from bochner._core.checks import one_of, positive, require_squares
from bochner._core.random import seed_of
from bochner._core.threads import one_thread
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.features.rules import as_method
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator
from bochner.models._kinds import LabelEstimator
from bochner.selection.descent import TimeBudget
from bochner.selection.numbers import is_composite, tune_numbers
from bochner.selection.record import Tuning
from bochner.selection.search import tune_kernel
from bochner.selection.spec import SEARCHED, WIDTH
from bochner.solvers.ridge.criteria import CRITERIA
from bochner.sums.rows import sampled


@one_thread()
def tune(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    criterion: str = "loo",
    budget: float | None = None,
) -> Tuning:
    """Tune the kernel of an estimator of this package; ``tuning.estimator`` is ready to be fitted.

    Parameters
    ----------
    estimator : estimator
        Anything with ``kernel``, ``method`` and ``n_features``: KernelRidge, SVC,
        GaussianProcessRegressor and so on. It stays as it is. Of a kernel value the family is
        kept, and its lengthscale is where the search starts; a name, "auto" above all, is searched
        in all families. Of sums and products all numbers are found, or those that are "auto"
        where some are; see :class:`bochner.kernels.Free`.
    X : (n, d)
        Array, sparse matrix or table.
    y : (n,) or (n, t)
        Targets, or labels of classes: those are tuned for as indicators, one against the rest.
    sample_weight : (n,), optional
    criterion : {"loo", "evidence"}, default "loo"
        What is descended.
    budget : float, optional
        Seconds. Without it the search has a number of steps, and its result depends on the
        estimator's ``random_state`` alone.

    Returns
    -------
    Tuning
        ``kernel``, ``share`` (best penalty a row), ``error`` on rows held out, the ``path`` to
        print and ``plot()``, and ``estimator``: a clone with the kernel in its place.

    Raises
    ------
    UnsupportedKernel
        If the kernel has no lengthscale that could be tuned.
    InvalidInput
        If the estimator has no kernel, or an argument is not what was required.

    Notes
    -----
    Works on a sample of at most 8192 rows, in seconds, whatever n.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidge, tune
    >>> X = np.random.default_rng(0).uniform(-3, 3, (400, 3))
    >>> tuning = tune(KernelRidge(n_features=64, random_state=0), X, np.sin(2 * X[:, 1]))
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
    asked, seed = estimator.get_params(deep=False), seed_of(estimator.random_state)
    width = WIDTH if asked["n_features"] is None else asked["n_features"]
    kernel = asked["kernel"] if isinstance(asked["kernel"], Kernel) else "auto"
    sample = _sample(clone(estimator), X, y, sample_weight, seed)
    if isinstance(kernel, Kernel) and is_composite(kernel):
        known = CRITERIA[one_of(criterion, "tune", "criterion", tuple(CRITERIA))]
        seconds = None if budget is None else positive(budget, "tune", "budget")
        tuning = tune_numbers(kernel, sample, known, seed, budget=TimeBudget.of(seconds))
    else:
        tuning = tune_kernel(
            kernel,
            sample,
            width if isinstance(width, int) else SEARCHED,
            seed,
            criterion=criterion,
            budget=budget,
            method=as_method("auto" if asked["method"] is None else asked["method"]),
        )
    return replace(tuning, estimator=clone(estimator).set_params(kernel=tuning.kernel))


def _sample(model: KernelEstimator, X: Any, y: Any, sample_weight: Any, seed: int) -> RowSample:
    """Return rows to tune on, classes as indicators."""
    if not isinstance(model, LabelEstimator):
        sample = sampled(model._blocks_of(X, y, sample_weight)[0], seed)
        require_squares("tune", sample.y, sample.w)
        return sample
    blocks, inputs = model._class_blocks_of(X, y, sample_weight)
    return sampled(blocks, seed, len(inputs.classes))
