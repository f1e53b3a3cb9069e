"""Tuning: lengthscales, smoothness and penalty together, by gradients; one mechanism for all.

A descent of the leave-one-out error (or of the evidence) in the logarithms of all that is open, on
Fourier features whose frequencies are rescaled and not drawn anew
(:mod:`bochner.selection.descent`), first with one lengthscale, then with one a column;
families and numbers of lengthscales are then held against one another on rows that no descent saw
(:mod:`bochner.selection.trials`), at the width of the fit.
"""

from dataclasses import replace
from typing import Any

from sklearn.base import BaseEstimator, clone, is_classifier

from bochner._core.random import seed_of
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.features.draw import as_method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._inputs import class_blocks_of, fit_blocks_of
from bochner.selection.record import Tuning
from bochner.selection.search import tune_kernel


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
        in all families.
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
    if not all(hasattr(estimator, name) for name in ("kernel", "method", "n_features")):
        raise InvalidInput(
            "tune requires an estimator with kernel, method and n_features, such as "
            f"KernelRidge(); got {estimator!r}. In a pipeline, tune its last step on transformed "
            "rows."
        )
    model, kernel = clone(estimator), estimator.kernel
    seed = seed_of(estimator.random_state)
    tuning = tune_kernel(
        kernel if isinstance(kernel, Kernel) else "auto",
        _sample(model, X, y, sample_weight, seed),
        estimator.n_features if isinstance(estimator.n_features, int) else _engine.SEARCHED,
        seed,
        criterion=criterion,
        budget=budget,
        method=as_method(estimator.method),
    )
    return replace(tuning, estimator=clone(estimator).set_params(kernel=tuning.kernel))


def _sample(model: BaseEstimator, X: Any, y: Any, sample_weight: Any, seed: int) -> RowSample:
    """Return rows to tune on, classes as indicators."""
    if not is_classifier(model):
        return _engine.presample(fit_blocks_of(model, X, y, sample_weight, reset=True), seed)
    blocks = class_blocks_of(model, X, y, sample_weight)
    return _engine.presample(blocks, seed, len(model.classes_))
