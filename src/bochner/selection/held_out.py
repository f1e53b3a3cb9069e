"""What rows held out lose by their predictions: squared errors of numbers, log losses of classes.

A ridge regression of ±1 with the least squared error need not be the best classifier: squared
errors also count by how much values differ from ±1 where the class is certain. So kernels of
classifiers are held against one another by log losses, of probabilities p ∝ exp(a f) at the a that
is best for these rows (Guo et al. 2017): values that order classes alike are as good, whatever
their scale. Targets are those of Platt (1999): rows that are all predicted rightly lose a little.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

from bochner._core.shapes import Array, Bool, Float
from bochner.data.sample import RowSample

#: Logarithms of a between which the best one is looked for, and how near to it is enough.
LEAST, MOST, NEAR = -6.0, 6.0, 1e-3


def relative_losses(
    train: RowSample, test: RowSample, fitted: Float[Array, "m t"], of_classes: bool
) -> Float[Array, " m"]:
    """Return what each row held out loses, times its weight: on average 1 of the best constant.

    Parameters
    ----------
    train : RowSample
        The rows that are fitted; of them is the constant.
    test : RowSample
    fitted : (m, t)
        What is predicted of the rows held out.
    of_classes : bool
        Targets are the ±1 of classes: one column for two of them, else one for each.
    """
    return test.w * (_log_losses if of_classes else _squared)(train, test, fitted)


def _squared(train: RowSample, test: RowSample, fitted: Float[Array, "m t"]) -> Array:
    variance = train.w @ (train.y - train.w @ train.y / train.w.sum()) ** 2 / train.w.sum()
    return ((test.y - fitted) ** 2 / np.maximum(variance, 1e-300)).mean(axis=1)


def _log_losses(train: RowSample, test: RowSample, fitted: Float[Array, "m t"]) -> Array:
    own = test.y > 0
    own = np.hstack([~own, own]) if own.shape[1] == 1 else own
    targets = smoothed(own, test.w)

    def lost(log_a: float) -> Array:
        f = np.exp(log_a) * fitted
        if f.shape[1] == 1:
            return -(targets * log_expit(np.hstack([-f, f]))).sum(axis=1)
        return -(targets * log_softmax(f, axis=1)).sum(axis=1)

    found = minimize_scalar(
        lambda log_a: float(test.w @ lost(log_a)),
        bounds=(LEAST, MOST),
        method="bounded",
        options={"xatol": NEAR},
    )
    shares = np.clip(train.w @ (train.y > 0) / train.w.sum(), 1e-300, 1.0)
    if len(shares) == 1:
        shares = np.append(shares, max(1 - shares[0], 1e-300))
    return lost(float(found.x)) / max(float(-shares @ np.log(shares)), 1e-300)


def smoothed(own: Bool[Array, "n K"], w: Float[Array, " n"]) -> Float[Array, "n K"]:
    """Return Platt's targets: (N + 1)/(N + 2) of the class of a row, N being its rows.

    With them no finite number of rows has a log loss of zero.
    """
    size = (w @ own + 1) / (w @ own + 2)
    rest = (own @ (1 - size)) / (own.shape[1] - 1)
    return np.where(own, size, rest[:, None])
