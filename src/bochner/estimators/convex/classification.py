"""Classifiers by convex losses: what SVC and LogisticRegression share, as functions.

A model here has the parameters ``C``, ``precision``, ``fit_intercept``, ``tol``, ``max_iter``,
``warm_start``, ``class_weight`` and what :func:`bochner.estimators.fitting.engine.choose` reads.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._ground.blocks import Blocks
from bochner._ground.checks import positive
from bochner._ground.shapes import Array, Float
from bochner._ground.warned import warn_user
from bochner.errors import InvalidInput, InvalidType
from bochner.estimators.convex.calibration import Calibration, Rest, calibrate, folds_of
from bochner.estimators.convex.iterated import check_steps
from bochner.estimators.fitting import engine
from bochner.estimators.fitting.feature_blocks import Features, weights_of
from bochner.estimators.fitting.labels import indicators
from bochner.estimators.fitting.state import INPUTS, forget
from bochner.solvers.hessian import forward
from bochner.solvers.loss import Loss
from bochner.solvers.newton import minimise
from bochner.solvers.optimum import Optimum

__all__ = ["calibrated", "chosen", "decided", "decisions", "encoder", "fit", "penalty"]

#: Below this many products n·D² a fit in float64 takes no time that anyone would notice. Decisions
#: need no more than float32: where it would blur coefficients, features hardly move decisions.
SMALL = 1e8

#: Rows that probabilities are calibrated on, at most: four numbers are fitted.
CALIBRATION_ROWS = 50_000


def fit(model: Any, blocks: Blocks, loss: Loss) -> Features:
    """Choose what is open, sweep the features until the loss is least; return the features.

    Sets ``solution_``, ``n_iter_`` and ``feature_dtype_`` beside what ``engine.choose`` sets.
    """
    alpha = penalty(model)
    check_steps(model)
    start = _started(model)
    if start is None:
        _choose(model, blocks, alpha)
    features = Features(model.map_, blocks, model.feature_dtype_)
    _require_weight(model, features)
    model.solution_ = minimise(
        features,
        loss,
        alpha,
        fit_intercept=model.fit_intercept,
        start=start,
        moments=None if features.cached or loss.kinked else _moments(model, blocks),
        targets=encoder(len(model.classes_), loss),
        tol=model.tol,
        max_iter=model.max_iter,
    )
    model.n_iter_ = max(1, len(model.solution_.history))
    if not model.solution_.outcome.good:
        warn_user(str(model.solution_.outcome))
    return features


def penalty(model: Any) -> float:
    """Return alpha = 1/C; an infinite C is no penalty."""
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


def _choose(model: Any, blocks: Blocks, alpha: float) -> None:
    # Near the answer half of a squared hinge's slope is that of squares: alpha/2 is ridge's.
    share = engine.share_of(model, blocks, alpha / 2 if alpha > 0 else None)
    engine.choose(model, blocks, n_classes=len(model.classes_), share=share)
    small = engine.count_rows(blocks) * model.map_.n_features**2 <= SMALL
    double = small if model.precision == "auto" else model.precision == "float64"
    model.feature_dtype_ = "float64" if double else "float32"


def _require_weight(model: Any, features: Features) -> None:
    """Read all rows once, so that features are kept where they fit."""
    weight = sum(float(weights_of(b).sum()) for b in features)
    if not weight > 0:
        raise InvalidInput(
            f"{type(model).__name__}: at least one row must have a positive weight; the sum of all "
            f"weights is {weight:g}. Check sample_weight and class_weight."
        )


def _moments(model: Any, blocks: Blocks) -> Any:
    return engine.sweep(model.map_, blocks, model.feature_dtype_, "float32")


# --- after the fit -------------------------------------------------------------------------------


def decisions(model: Any, X: Array) -> Float[Array, "n t"]:
    """Return φ(X) β + b, a column for each problem."""
    check_is_fitted(model)
    theta = model.solution_.theta
    return np.concatenate([forward(Z, theta) for Z in engine.features_of(model, X)])


def chosen(f: Float[Array, "n t"]) -> Array:
    """Return the codes decided for."""
    return (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)


def decided(model: Any, X: Array) -> Array:
    """Return the classes decided for, (n,)."""
    codes = chosen(decisions(model, X))
    return model.classes_[codes]


def calibrated(model: Any, features: Features, blocks: Blocks, loss: Loss) -> Calibration:
    """Return the calibration on decision values of rows held out, fold by fold."""
    rests = folds_of(features, blocks, model.seed_, len(model.classes_))
    parts = [_held_out(model, rest, loss) for rest in rests]
    if not parts:
        raise InvalidInput(
            f"{type(model).__name__}: probability=True needs some different rows of each class, to "
            "hold some out; too few came. Set probability=False."
        )
    f, codes, w = map(np.concatenate, zip(*parts, strict=True))
    step = -(-len(f) // CALIBRATION_ROWS)
    return calibrate(f[::step], codes[::step], w[::step])


def _held_out(model: Any, rest: Rest, loss: Loss) -> tuple[Array, Array, Array]:
    """Fit to the rest, from the fit to all; return decisions, codes and weights of the fold."""
    found = minimise(
        rest,
        loss,
        model.solution_.alpha,
        fit_intercept=model.fit_intercept,
        start=model.solution_,
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
