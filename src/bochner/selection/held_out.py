"""Held-out rows of a search, and the losses of predictions on them.

Regressions use squared errors, classifiers log losses: the ridge regression of ±1 with the least
squared error need not be the best classifier, because squared errors also count how much values
differ from ±1 where the class is certain. Log losses are computed from probabilities p ∝ exp(a f),
with the best a for the held-out rows (Guo et al. 2017). They use Platt's targets (1999): even if
all rows are predicted correctly, the loss is above zero.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

from bochner._core.arrays import dense, is_sparse
from bochner._core.random import stream
from bochner._core.shapes import Array, Bool, Float
from bochner.data.sample import RowSample
from bochner.solvers.ridge.solution import SAME_ROUNDED

#: Above this number of cells rows are not searched for copies, and sparse rows stay sparse.
MAX_CELLS = 1 << 22
FEWEST = 8  # Fewer rows than this do not determine lengthscales
FOLDS = 4  # Folds of the held-out rows


def reduction(candidate: Any, other: Any, minimum: float, chance: float) -> tuple[float, float]:
    """Return the reduction of the error from ``other`` to ``candidate``, and the required one.

    Both have an ``error``, the mean of their ``losses``. Required is the larger of
    ``minimum`` times the error of ``other`` and ``chance`` standard errors of the difference.
    """
    if not (np.isfinite(candidate.error) and np.isfinite(other.error)):
        return (np.inf if candidate.error < other.error else 0.0), 0.0
    unit = candidate.error / max(float(candidate.losses.sum()), 1e-300)
    difference = unit * (other.losses - candidate.losses)
    chance *= float(difference.std()) * len(difference) ** 0.5
    return other.error - candidate.error, max(minimum * other.error, chance)


def split_rows(rows: RowSample, seed: int) -> tuple[RowSample, RowSample]:
    """Return the rows to tune on and the held-out rows; equal rows stay together."""
    X, n = rows.X, len(rows)
    group = np.arange(n)
    if X.shape[0] * X.shape[1] <= MAX_CELLS:
        group = np.unique(dense(X), axis=0, return_inverse=True)[1].ravel()
    size = min(2048, max(1, int(0.25 * n)))
    place = stream(seed, "held out").permutation(int(group.max()) + 1)[group]
    test = np.argsort(place, kind="stable")[:size]
    test = np.flatnonzero(place <= place[test[-1]])
    return rows.take(np.setdiff1d(np.arange(n), test)), rows.take(test)


def varying_targets(rows: RowSample) -> Bool[Array, " t"]:
    """Return which targets vary; all False for too few rows, or if all rows of X are equal."""
    if len(rows) < FEWEST or (not is_sparse(rows.X) and not np.any(rows.X[:1] != rows.X)):
        return np.zeros(rows.y.shape[1], bool)
    return np.ptp(rows.y, axis=0) > 0


def first_least(errors: Float[Array, " p"]) -> int:
    """Return the index of the first error that equals the least up to rounding."""
    return int(np.argmax(errors <= (1 + SAME_ROUNDED) * errors.min()))


def nested_errors(losses: Sequence[Float[Array, " n"]]) -> Float[Array, " n"]:
    """Return, for each fold, the losses of the candidate that is best on the other folds.

    ``losses`` has the losses of each candidate, in the order of preference. With fewer than eight
    rows the losses of the best candidate are returned.
    """
    table = np.stack(losses)
    fold = np.arange(table.shape[1]) % FOLDS
    if table.shape[1] < 2 * FOLDS:
        return table[first_least(table.sum(axis=1))]
    errors = np.empty(table.shape[1])
    for k in range(FOLDS):
        errors[fold == k] = table[first_least(table[:, fold != k].sum(axis=1)), fold == k]
    return errors


def relative_losses(
    train: RowSample, test: RowSample, fitted: Float[Array, "m t"], of_classes: bool
) -> Float[Array, " m"]:
    """Return the loss of each held-out row times its weight; 1 is the loss of the best constant.

    Targets of classes are ±1: one column for two classes, else one for each.
    """
    if of_classes:
        return test.w * _log_losses(train, test, fitted)
    variance = train.w @ (train.y - train.w @ train.y / train.w.sum()) ** 2 / train.w.sum()
    return test.w * ((test.y - fitted) ** 2 / np.maximum(variance, 1e-300)).mean(axis=1)


def _log_losses(train: RowSample, test: RowSample, fitted: Float[Array, "m t"]) -> Array:
    member = test.y > 0
    member = np.hstack([~member, member]) if member.shape[1] == 1 else member
    targets = platt_targets(member, test.w)

    def losses(log_a: float) -> Array:
        f = np.exp(log_a) * fitted
        if f.shape[1] == 1:
            return -(targets * log_expit(np.hstack([-f, f]))).sum(axis=1)
        return -(targets * log_softmax(f, axis=1)).sum(axis=1)

    best = minimize_scalar(
        lambda log_a: float(test.w @ losses(log_a)),
        bounds=(-6, 6),
        method="bounded",
        options={"xatol": 1e-3},
    )
    shares = np.clip(train.w @ (train.y > 0) / train.w.sum(), 1e-300, 1.0)
    if len(shares) == 1:
        shares = np.append(shares, max(1 - shares[0], 1e-300))
    return losses(float(best.x)) / max(float(-shares @ np.log(shares)), 1e-300)


def platt_targets(
    member: Bool[Array, "n K"], w: Float[Array, " n"], prior: float = 1.0
) -> Float[Array, "n K"]:
    """Return p = (N + prior)/(N + 2 prior) for the class of a row, of weight N, else 1 − p."""
    size = (w @ member + prior) / (w @ member + 2 * prior)
    share = (member @ (1 - size)) / (member.shape[1] - 1)
    return np.where(member, size, share[:, None])
