"""Classifiers by convex losses: what SVC and LogisticRegression share, as functions.

A model here has the parameters ``C``, ``precision``, ``fit_intercept``, ``tol``, ``max_iter``,
``warm_start``, ``class_weight`` and what :func:`bochner.models._engine.choose` reads.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._core.checks import integer, positive, warn_user
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, InvalidType
from bochner.features.draw import as_method
from bochner.models import _engine
from bochner.models._feature_blocks import Features, weights_of
from bochner.models._inputs import indicators
from bochner.models._state import INPUTS, forget
from bochner.models.convex import iterated
from bochner.models.convex.calibration import (
    Calibration,
    Rest,
    calibrate,
    folds_of,
)
from bochner.models.convex.iterated import check_steps
from bochner.models.convex.penalty import (
    FIRST,
    Learned,
    Sampled,
    chosen_kernel,
    chosen_penalty,
    sampled,
)
from bochner.selection.width import as_tolerance
from bochner.solvers.convex.class_losses import CrammerSinger, Hinge, SquaredHinge
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.problem import forward

#: Below this many products n·D² a fit in float64 takes no time that anyone would notice. Decisions
#: need no more than float32: where it would blur coefficients, features hardly move decisions.
SMALL = 1e8

#: Rows that probabilities are calibrated on, at most: four numbers are fitted.
CALIBRATION_ROWS = 50_000


class Fitted(NamedTuple):
    """What a fit was made of, its weights in a unit, and the minimum for those."""

    features: Features
    blocks: Blocks
    found: Optimum
    unit: float


def fit(model: Any, blocks: Blocks, loss: Loss) -> Fitted:
    """Choose what is open, sweep the features until the loss is least; return them.

    Sets ``solution_``, ``path_``, ``n_iter_`` and ``feature_dtype_`` beside what
    ``engine.choose`` sets. Weights are counted in a unit near the largest.
    """
    alpha = penalty(model)
    check_steps(model)
    blocks, unit = iterated.in_units(blocks)
    learned = Learned(_compared(loss), len(model.classes_), bool(model.fit_intercept))
    start = _started(model)
    # Once, where it is asked for first: the seed is drawn while things are chosen.
    rows = cache(lambda: sampled(blocks, model.seed_, learned.n_classes))
    near = _choose(model, blocks, None if alpha is None else alpha / unit, learned, start, rows)
    model.path_ = None
    if alpha is None:
        alpha = unit
        if (tried := chosen_penalty(model.map_, rows(), learned, near)) is not None:
            path, end = tried
            model.path_, start, alpha = path, start or end, unit * path.alpha
    features = Features(model.map_, blocks, model.feature_dtype_)
    for _ in features:  # one pass keeps them, where they fit
        pass
    found = minimise(
        features,
        loss,
        alpha / unit,
        fit_intercept=model.fit_intercept,
        start=start,
        moments=None if features.cached or loss.nonsmooth else _moments(model, blocks),
        targets=encoder(len(model.classes_), loss),
        tol=model.tol,
        max_iter=model.max_iter,
    )
    model.solution_ = found.scaled(unit)
    model.n_iter_ = max(1, len(model.solution_.history))
    if not model.solution_.outcome.good:
        warn_user(str(model.solution_.outcome))
    return Fitted(features, blocks, found, unit)


def penalty(model: Any) -> float | None:
    """Return alpha = 1/C, None where C is chosen; an infinite C is no penalty."""
    if isinstance(model.C, str):
        if model.C == "auto":
            return None
        raise InvalidInput(
            f'{type(model).__name__}: C must be "auto" or a positive number; got {model.C!r}.'
        )
    if isinstance(model.C, float) and math.inf == model.C:
        return 0.0
    return 1 / positive(model.C, type(model).__name__, "C")


def encoder(n_classes: int, loss: Loss) -> Callable[[Array], Array]:
    """Return what turns codes into −1 and +1, or into ones in their columns for a joint loss."""
    if loss.joint:
        return lambda codes: (codes[:, None] == np.arange(n_classes)).astype(np.float64)
    return lambda codes: indicators(codes, n_classes)


def _started(model: Any) -> Optimum | None:
    """Return where a warm start begins: the solution before, if it is of the same kind."""
    if not isinstance(model.warm_start, bool | np.bool_):
        raise InvalidType(
            f"{type(model).__name__}: warm_start must be True or False; got {model.warm_start!r}."
        )
    asked = _asked(model)
    before = getattr(model, "solution_", None) if model.warm_start else None
    same = before is not None and model.fitted_for_ == asked
    if not same:
        forget(model, but=INPUTS)
    model.fitted_for_ = asked
    return before if same else None


def _asked(model: Any) -> tuple[str, ...]:
    """Return what must be the same for the features and coefficients of before to serve again."""
    names = ("kernel", "method", "n_features", "metric", "random_state", "precision")
    asked = [getattr(model, name) for name in (*names, "n_features_in_")]
    return tuple(map(repr, (*asked, model.classes_.tolist())))


def _choose(
    model: Any,
    blocks: Blocks,
    alpha: float | None,
    learned: Learned,
    start: Optimum | None,
    rows: Callable[[], Sampled],
) -> int:
    """Choose what is open unless a start has it; return the step of the penalty to look near."""
    found = FIRST

    def search(kernel: Any, sample: RowSample) -> Any:
        nonlocal found
        open_ = as_tolerance(model.n_features) is not None
        width = _engine.SEARCHED if open_ else integer(model.n_features, "bochner", "n_features", 1)
        chosen, found = chosen_kernel(
            kernel, sample, rows(), learned, width, model.seed_, as_method(model.method)
        )
        return chosen

    if start is not None:
        return found
    # Near the answer half of a squared hinge's slope is that of squares: alpha/2 is ridge's.
    share = _engine.share_of(model, blocks, alpha / 2 if alpha else None)
    by_loss = alpha is None and isinstance(model.kernel, str) and not _engine.learns_metric(model)
    _engine.choose(
        model,
        blocks,
        n_classes=learned.n_classes,
        share=share,
        search=search if by_loss else None,
    )
    small = _engine.count_rows(blocks) * model.map_.n_features**2 <= SMALL
    double = small if model.precision == "auto" else model.precision == "float64"
    model.feature_dtype_ = "float64" if double else "float32"
    return found


def _compared(loss: Loss) -> Loss:
    """Return the loss that penalties are compared by: in the place of a slow one its like."""
    if isinstance(loss, CrammerSinger):
        return SquaredHinge() if loss.squared else Hinge()
    return loss


def _moments(model: Any, blocks: Blocks) -> Any:
    return _engine.sweep(model.map_, blocks, model.feature_dtype_, "float32")


# --- after the fit -------------------------------------------------------------------------------


def decisions(model: Any, X: Array) -> Float[Array, "n t"]:
    """Return φ(X) β + b, a column for each problem."""
    check_is_fitted(model)
    theta = model.solution_.theta
    return np.concatenate([forward(Z, theta) for Z in _engine.features_of(model, X)])


def chosen(f: Float[Array, "n t"]) -> Array:
    """Return the codes decided for."""
    return (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)


def decided(model: Any, X: Array) -> Array:
    """Return the classes decided for, (n,)."""
    codes = chosen(decisions(model, X))
    return model.classes_[codes]


def calibrated(model: Any, fitted: Fitted, loss: Loss) -> Calibration:
    """Return the calibration on decision values of rows held out, fold by fold."""
    rests = folds_of(fitted.features, fitted.blocks, model.seed_, len(model.classes_))
    parts = [_held_out(model, rest, loss, fitted.found) for rest in rests]
    if not parts:
        raise InvalidInput(
            f"{type(model).__name__}: probability=True needs some different rows of each class, to "
            "hold some out; too few came. Set probability=False."
        )
    f, codes, w = map(np.concatenate, zip(*parts, strict=True))
    step = -(-len(f) // CALIBRATION_ROWS)
    return calibrate(f[::step], codes[::step], fitted.unit * w[::step])


def _held_out(model: Any, rest: Rest, loss: Loss, start: Optimum) -> tuple[Array, Array, Array]:
    """Fit to the rest, from the fit to all; return decisions, codes and weights of the fold."""
    found = minimise(
        rest,
        loss,
        start.alpha,
        fit_intercept=model.fit_intercept,
        start=start,
        targets=encoder(len(model.classes_), loss),
        tol=model.tol,
        max_iter=model.max_iter,
    )
    fs, ys, ws = [], [], []
    for block, held in rest.blocks():
        fs.append(forward(np.ascontiguousarray(block.Z[held]), found.theta))
        ys.append(np.asarray(block.y)[held])
        ws.append(weights_of(block)[held])
    return np.concatenate(fs), np.concatenate(ys), np.concatenate(ws)
