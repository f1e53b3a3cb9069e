"""The certificate of any learner: its features judged at the penalty that its loss amounts to."""

from typing import Any

import numpy as np

from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks
from bochner.features.nystrom.nystrom import Rounded
from bochner.models import _engine


def certificate_of(model: Any, blocks: Blocks, other: bool = False) -> Certificate:
    """Return how far a fitted learner's features are from its kernel on rows.

    Parameters
    ----------
    model : fitted learner
    blocks : Blocks
        The rows of the fit, or others.
    other : bool, default False
        Whether they are others; a ridge regression has its own sample of the rows of its fit.

    Notes
    -----
    ε is measured at :func:`ridge_penalty`: what it means for the risk is proved for ridge
    regression, and a guide for other losses.
    """
    if not other and hasattr(type(model), "certificate_"):
        return model.certificate_
    if hasattr(type(model), "certify_blocks"):
        return model.certify_blocks(blocks)
    rows, n = _engine.presample(blocks, model.seed_), _engine.count_rows(blocks)
    return certify(
        Rounded(model.kernel_, model.map_, getattr(model, "feature_dtype_", "float64")),
        rows.X,
        alpha=ridge_penalty(model, rows.X, n),
        kernel=model.kernel_,
        n_rows=n,
        random_state=model.seed_,
    )


def ridge_penalty(model: Any, X: Any, n: int) -> float:
    """Return alpha of the ridge regression that weighs n rows and coefficients as the model does.

    With C, ½‖β‖² + C Σ loss: 1/(2C). With an SGD learner's alpha, a mean of losses: alpha·n/2.
    Without a penalty (k-means, principal components): a thousandth of k(x, x) a row.
    """
    if hasattr(model, "C"):
        return 1 / (2 * float(np.min(model.C_)))
    if hasattr(model, "learning_rate"):
        return float(model.alpha) * n / 2
    if hasattr(model, "alpha_"):
        return float(np.max(model.alpha_))
    return _engine.UNTOLD * n * float(np.mean(model.kernel_.diag(X[: _engine.SEARCHED])))
