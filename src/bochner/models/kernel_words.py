"""The kernel of a fit in words, with the names and deviations of its columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner.kernels.monotone import Monotone
from bochner.kernels.words import in_words, listed
from bochner.selection.rows import deviations


def kernel_words(fit: Any, names: Sequence[str] | None = None) -> str:
    """Return the kernel of a learner's fit for people to read.

    Of many lengthscales those that are shortest in standard deviations of their columns, where
    rows of the fit are kept to tell; ``names`` are of the columns that the kernel sees.
    """
    kernel = fit.chosen.kernel
    X, w = _kept(fit)
    if not isinstance(kernel, Monotone):
        return in_words(kernel, names, None if X is None else deviations(X, w))
    curves = fit.chosen.curves
    how = "transformed" if curves is None else curves.name
    spread = None if X is None else deviations(kernel.inputs(np.asarray(X, np.float64)), w)
    bent = listed([names[j] if names else f"column {j}" for j in kernel.columns])
    return f"{in_words(kernel.kernel, names, spread)}; of {how} of {bent}"


def _kept(fit: Any) -> tuple[Any, Any]:
    """Return rows that the fit keeps, a sample or all, and their weights; None if it keeps none."""
    held = getattr(getattr(fit, "law", fit), "representation", None)
    for rows in (getattr(held, "sample", None), held, fit):
        X = getattr(rows, "X", None)
        if X is not None and not is_sparse(X) and X.shape[1] == fit.inputs.n_columns:
            w = getattr(rows, "w", None)
            return X, np.ones(X.shape[0]) if w is None else w
    return None, None
