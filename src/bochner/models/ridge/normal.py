"""Ridge regression of features by their normal equations: what its estimators share.

A model here has the parameters ``alpha``, ``alpha_per_target``, ``precision``, ``fit_intercept``
and what :func:`bochner.models._engine.choose` reads.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.checks import warn_user
from bochner._core.shapes import Array
from bochner._core.sizes import FEW, LOO_ROWS
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.errors import IncompatibleModels, InvalidInput
from bochner.features.nystrom import Rounded
from bochner.models import _engine
from bochner.models._folds import added, sweep_folds, total_of
from bochner.models._inputs import required_targets
from bochner.models.ridge.sums import (
    by_folds,
    centred_rows,
    least_norm,
    pieces,
    seen,
    sum_again,
    sum_up,
)
from bochner.solvers.ridge.eigen import Eigen, Triangle, decompose, decompose_rows
from bochner.solvers.ridge.path import as_alpha, kfold_errors, least_alpha, solve_ridge
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.moments import Moments, Precision

#: Least sum of weights, and least sum of squares of a target about its mean, that float64 holds
#: with digits to spare for errors far below it.
LEAST_WEIGHT, LEAST_POWER = 1e-90, 1e-300

#: Outcomes that a user is warned of.
WARNED = (Outcome.FLOAT32_LIMITED, Outcome.SINGULAR, Outcome.NOT_CONVERGED)


def is_exact_fit(model: Any) -> bool:
    """Whether the model was last fitted with the kernel itself."""
    return hasattr(model, "X_fit_")


def draw(model: Any, blocks: Blocks) -> None:
    """Check the arguments, choose what is open, draw the map."""
    _engine.check_precision(model)
    _engine.choose(model, blocks, share=share_of(model, blocks))


def share_of(model: Any, blocks: Blocks) -> float | None:
    """Return a given penalty a row of weight one: what is open is judged at it."""
    alpha = least_alpha(as_alpha(model.alpha))
    return _engine.share_of(model, blocks, None if isinstance(alpha, str) else alpha)


def fit(model: Any, blocks: Blocks, precision: Precision | None = None) -> None:
    """Sum up all rows and solve; again in float64 where float32 limits the answer."""
    model.rows_seen_ = 0
    model.target_shape_ = target_shape(model, blocks)
    _note(model, blocks, sum_up(model, blocks, precision))
    model.solution_ = solve(model, blocks)
    if model.solution_.outcome is Outcome.FLOAT32_LIMITED and model.precision == "auto":
        sum_again(model, blocks)
        model.solution_ = solve(model, blocks)


def add_rows(model: Any, blocks: Blocks) -> None:
    """Add rows to those seen so far, in float64, and solve again."""
    check_targets(model, blocks)
    keeper = Keeper(model.seed_, model.sample_, model.rows_seen_)
    if by_folds(model):
        _require_folds(model)
        phi, dtype, start = model.map_, model.feature_dtype_, model.rows_seen_
        more = sweep_folds(phi, blocks, dtype, "float64", model.seed_, keeper, start)
        model.folds_ = added(model.folds_, more)
        model.moments_ = total_of(model.folds_)
    else:
        model.moments_ += _engine.sweep(model.map_, blocks, model.feature_dtype_, "float64", keeper)
    _note(model, blocks, keeper)
    model.solution_ = solve(model)


def _note(model: Any, blocks: Blocks, keeper: Keeper) -> None:
    model.rows_seen_ += _engine.count_rows(blocks)
    model.sample_ = keeper.sample
    require_squares(model)


def require_squares(model: Any) -> None:
    """Refuse weights and targets so small that their sums and squares vanish in float64."""
    weight, power = model.moments_.weight, model.moments_.power
    if weight < LEAST_WEIGHT:
        raise InvalidInput(
            f"{type(model).__name__}: sample weights must have a sum above {LEAST_WEIGHT:g}; got "
            f"{weight:.3g}. Multiply all weights by one number."
        )
    vanish = (np.ptp(model.sample_.y, axis=0) > 0) & (power < LEAST_POWER)
    if np.any(vanish):
        largest = np.abs(model.sample_.y[:, vanish]).max()
        raise InvalidInput(
            f"{type(model).__name__}: y must have deviations whose squares float64 holds, above "
            f"1e-150; got values of {largest:.3g} at most. Multiply y by a power of ten."
        )


# --- solutions -----------------------------------------------------------------------------------


def solve(model: Any, blocks: Blocks | None = None) -> Solution:
    """Solve from the moments and the sample of rows as they are now.

    ``blocks`` are all rows, where they can be read again: for a fit without penalty.
    """
    model.__dict__.pop("_certificate", None)
    alpha = as_alpha(model.alpha)
    moments = seen(model, model.moments_)
    eigen = _triangle(model, blocks) if _by_rows(model, blocks) else decomposed(model, moments)
    solution = solve_ridge(
        eigen,
        (moments.feature_mean, moments.target_mean),
        alpha,
        centred_rows(model, moments, model.sample_) if alpha == "loo" else (),
        kfold=_kfold(model) if alpha == "kfold" else None,
        per_target=model.alpha_per_target,
    )
    again = moments.precision == "float64" and model.feature_dtype_ == "float32"
    return _refined(solution) if again else solution


def solve_again(model: Any) -> None:
    """Solve anew from what a model with features holds, and warn its user."""
    check_is_fitted(model)
    if is_exact_fit(model):
        raise InvalidInput(
            f"{type(model).__name__}.solve_again: an exact fit keeps no moments that could be "
            "solved again. Call fit."
        )
    model.solution_ = solve(model)
    warn(model)


def _kfold(model: Any) -> Any:
    _require_folds(model)
    folds = [fold for fold in model.folds_ if fold is not None]
    return lambda alphas: kfold_errors(model.moments_, folds, alphas, model.fit_intercept)


def _require_folds(model: Any) -> None:
    folds = getattr(model, "folds_", ())
    if sum(fold.rows for fold in folds if fold is not None) != model.moments_.rows:
        raise IncompatibleModels(
            f'{type(model).__name__}: alpha="kfold" needs the moments of each fold, of all rows; '
            'some were fitted without. Fit anew, or set alpha="loo".'
        )


def _keeps_all(model: Any) -> bool:
    return len(model.sample_) == model.moments_.rows


def judged_sample(model: Any) -> RowSample:
    """Return the rows that the law of a process is adapted to."""
    return model.sample_ if _keeps_all(model) else model.sample_.lowest(LOO_ROWS)


def _by_rows(model: Any, blocks: Blocks | None) -> bool:
    """Whether there is no penalty, and all rows are at hand."""
    at_hand = blocks is not None or _keeps_all(model)
    return at_hand and model.feature_dtype_ == "float64" and least_norm(model)


def decomposed(model: Any, moments: Moments) -> Eigen:
    """Decompose the rows themselves while they are few and at hand, else their moments."""
    few = moments.rows * moments.n_features**2 <= FEW
    if few and _keeps_all(model) and model.feature_dtype_ == "float64":
        rows = centred_rows(model, moments, model.sample_)
        Z, y, w = map(np.concatenate, zip(*rows, strict=True))
        return decompose_rows(Z, y, w, model.fit_intercept)
    return decompose(moments, model.fit_intercept)


def _triangle(model: Any, blocks: Blocks | None) -> Eigen:
    """Decompose all rows by QR, from their blocks or from a sample that is all of them."""
    sums = Triangle(model.fit_intercept)
    if blocks is None:
        for rows in pieces(model, model.sample_):
            sums.add(_engine.as_features(model.map_, rows.X, "float64"), rows.y, rows.w)
    else:
        for block in blocks.with_rows(_engine.block_rows(model.map_.n_features)):
            Z = to_numpy(_engine.as_features(model.map_, block.X, "float64"))
            w = None if block.w is None else to_numpy(block.w)
            sums.add(Z, to_numpy(block.y).astype(np.float64), w)
    return sums.eigen()


def _refined(solution: Solution) -> Solution:
    solved = solution.outcome is Outcome.SOLVED
    return replace(solution, outcome=Outcome.REFINED) if solved else solution


def predict_linear(model: Any, blocks: Blocks) -> Iterator[tuple[Array, Array]]:
    """Give the rows of one block after the other, and their predictions, (b, t)."""
    dtype, solution = model.feature_dtype_, model.solution_
    phi, coef = _engine.linear_of(model.map_, solution.coef, dtype)
    for block in blocks.with_rows(_engine.block_rows(phi.n_features)):
        yield (
            block.X,
            to_numpy(_engine.as_features(phi, block.X, dtype)) @ coef + solution.intercept,
        )


# --- certificate ---------------------------------------------------------------------------------


def certificate_of(model: Any) -> Certificate:
    """Return the certificate on the rows of the fit, measured once, on their sample."""
    if is_exact_fit(model):
        raise AttributeError(
            "certificate_: an exact fit has the kernel itself, and nothing to certify."
        )
    if "_certificate" not in model.__dict__:
        model._certificate = _certify(model, model.sample_.X, model.moments_.rows)
    return model._certificate


def certified(model: Any, blocks: Blocks) -> Certificate:
    """Return the certificate on other rows."""
    if is_exact_fit(model):
        raise InvalidInput(
            f"{type(model).__name__}.certify: an exact fit has the kernel itself, and nothing to "
            'certify; fit with features, e.g. method="auto", for a certificate.'
        )
    rows = _engine.presample(blocks, model.seed_)
    return _certify(model, rows.X, _engine.count_rows(blocks))


def _certify(model: Any, X: Array, n_rows: int) -> Certificate:
    return certify(
        Rounded(model.kernel_, model.map_, model.feature_dtype_),
        X,
        alpha=float(np.min(model.solution_.alpha)) * n_rows / model.moments_.rows,
        kernel=model.kernel_,
        n_rows=n_rows,
        random_state=model.seed_,
    )


# --- checks --------------------------------------------------------------------------------------


def warn(model: Any) -> None:
    """Warn of an outcome that asks for attention; its text is the remedy."""
    outcome = model.solution_.outcome
    if outcome in WARNED:
        warn_user(str(outcome))


def check_targets(model: Any, blocks: Blocks) -> None:
    """Refuse other targets than those before."""
    shape = target_shape(model, blocks)
    if shape != model.target_shape_:
        raise InvalidInput(
            f"{type(model).__name__}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {model.target_shape_}."
        )


def target_shape(model: Any, blocks: Blocks) -> tuple[int, ...]:
    """Return the shape of one row of y: () or (t,)."""
    return tuple(required_targets(type(model).__name__, next(iter(blocks)).y).shape[1:])
