"""How both SGD estimators walk over rows in memory, over streams, and when they stop."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import warn_user
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.models import _engine
from bochner.models._inputs import predict_blocks_of
from bochner.models.sgd.rows import FeatureRows, KernelRows, Rows, rows_of, targets
from bochner.models.sgd.strategies import DUAL, block_rows
from bochner.solvers.sgd import SLOWEST, Descent, Patience, Schedule, Walk, as_loss

#: Rows of a stream that are shuffled together.
WINDOW = 8192


Window = tuple[FeatureRows, Array, Array]

# --- The walk ------------------------------------------------------------------------------------


def fit(model: Any, rows: Rows) -> None:
    """Walk over rows in memory until the loss no longer falls; go on from ``walk_`` if there is."""
    train, held = _split(model, rows)
    table = table_of(model, train.X)
    y, w = targets(model, train.y), train.w / train.w.mean()
    descent = _descent(model, table.n_coef, y.shape[1], table.first)

    def epoch(number: int) -> None:
        sweep(model, descent, table, y, w, _order(model, len(w), number))

    _run(model, descent, epoch, None if held is None else _judge(model, table, held))
    _finish(model, descent, table)
    model.seen_, model.weight_ = len(w), float(train.w.sum())


def table_of(model: Any, X: Array) -> FeatureRows | KernelRows:
    """Return the rows as the strategy reads them."""
    cached = not model.strategy_.endswith("on_the_fly")
    if model.strategy_ in DUAL:
        return KernelRows(model.kernel_, getattr(model, "support_vectors_", None), X, cached)
    return FeatureRows(model.map_, model.feature_dtype_, X, cached)


def sweep(
    model: Any,
    descent: Descent,
    table: FeatureRows | KernelRows,
    y: Float[Array, "n t"],
    w: Float[Array, " n"],
    order: Array,
) -> None:
    """Step on the rows in this order."""
    size = block_rows(table.n_coef, model.batch_size)
    for start in range(0, len(order), size):
        index = order[start : start + size]
        table.step(descent, index, y[index], w[index])


def _order(model: Any, n: int, epoch: int, window: int = 0) -> Array:
    """Return the order of n rows: of a named stream, so that it depends on nothing else."""
    if not model.shuffle:
        return np.arange(n)
    return stream(model.seed_, "order", epoch, window).permutation(n)


def _descent(model: Any, width: int, t: int, before: int = 0) -> Descent:
    """Return the descent from ``walk_``, with coefficients zero for what is new, or from zero."""
    eta0 = None if model.eta0 == "auto" else float(model.eta0)
    schedule = Schedule.of(
        model.learning_rate, model.loss, float(model.alpha), eta0, float(model.power_t), model.size_
    )
    walk = getattr(model, "walk_", None)
    if walk is None:
        walk = Walk.start(width, t, schedule.eta0, bool(model.average))
    elif model.strategy_ in DUAL:
        walk = _longer(walk, width - before)
    loss = as_loss(
        model.loss, getattr(model, "epsilon", 0.1), float(getattr(model, "quantile", 0.5))
    )
    return Descent(loss, schedule, walk, model.fit_intercept, int(model.average), model.batch_size)


def _longer(walk: Walk, count: int) -> Walk:
    zeros = np.zeros((count, walk.coef.shape[1]))
    mean = np.concatenate([walk.mean_coef, zeros]) if len(walk.mean_coef) else walk.mean_coef
    return replace(walk, coef=np.concatenate([walk.coef, zeros]), mean_coef=mean)


def _run(
    model: Any,
    descent: Descent,
    epoch: Callable[[int], None],
    judge: Callable[[Walk], float] | None = None,
) -> None:
    """Run epochs until patience is over; note losses and their number."""
    before = getattr(model, "passes_", 0) if hasattr(model, "walk_") else 0
    patience = Patience(model.tol, model.n_iter_no_change)
    losses: list[float] = []
    scores: list[float] = []
    stopped = model.tol is None
    while len(losses) < model.max_iter:
        losses.append(_one_epoch(model, descent, epoch, before + len(losses)))
        scores += [] if judge is None else [judge(descent.walk)]
        if patience.over(-scores[-1] if scores else losses[-1]):
            if model.learning_rate != "adaptive" or descent.rate <= SLOWEST:
                stopped = True
                break
            descent.rate /= 5
            patience.again()
    model.n_iter_, model.passes_ = len(losses), before + len(losses)
    model.loss_curve_, model.validation_scores_ = tuple(losses), tuple(scores)
    if not stopped:
        warn_user(_unfinished(model))


def _one_epoch(model: Any, descent: Descent, epoch: Callable[[int], None], number: int) -> float:
    descent.total = descent.weight = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        epoch(number)
    walk = descent.walk
    if not (np.isfinite(walk.coef).all() and np.isfinite(walk.intercept).all()):
        raise InvalidInput(
            f"{type(model).__name__}: the steps diverged in epoch {number + 1}: coefficients are "
            "no longer finite numbers. Lower eta0, or scale the columns of X and the target."
        )
    return descent.total / descent.weight


def _unfinished(model: Any) -> str:
    return (
        f"{type(model).__name__}: the loss still fell after max_iter={model.max_iter} epochs. "
        "Raise max_iter or tol, or take tol=None to run just so many."
    )


def _finish(model: Any, descent: Descent, table: FeatureRows | KernelRows | None) -> None:
    """Keep the walk; of a walk on rows, those whose coefficients are not zero."""
    walk = descent.walk
    if isinstance(table, KernelRows):
        rows, walk = _merged(table, walk)
        used = walk.support
        used[0] |= not used.any()  # predictions need a row, of coefficient zero if it must be
        mean = walk.mean_coef[used] if len(walk.mean_coef) else walk.mean_coef
        model.support_vectors_ = rows[np.flatnonzero(used)]
        walk = replace(walk, coef=walk.coef[used], mean_coef=mean)
    model.walk_, model.t_ = walk, walk.steps


def _merged(table: KernelRows, walk: Walk) -> tuple[Array, Walk]:
    """Add the coefficients of equal rows: a warm start on the same rows does not lengthen u."""
    if not table.first or is_sparse(table.all):
        return table.all, walk
    rows, which = np.unique(table.all, axis=0, return_inverse=True)
    if len(rows) == table.n_coef:
        return table.all, walk
    return rows, replace(
        walk,
        coef=_summed(walk.coef, which, len(rows)),
        mean_coef=_summed(walk.mean_coef, which, len(rows)),
    )


def _summed(coef: Float[Array, "n t"], which: Array, m: int) -> Float[Array, "m t"]:
    total = np.zeros((m if len(coef) else 0, coef.shape[1]))
    if len(coef):
        np.add.at(total, which.reshape(-1), coef)
    return total


# --- Validation ----------------------------------------------------------------------------------


def _split(model: Any, rows: Rows) -> tuple[Rows, Rows | None]:
    """Return rows to train on and rows to stop by: of classes a share of each."""
    if not model.early_stopping:
        return rows, None
    n = len(rows.w)
    order = stream(model.seed_, "validation").permutation(n)
    if hasattr(model, "classes_"):
        order = order[np.argsort(rows.y[order], kind="stable")]
    marks = np.floor(np.arange(n + 1) * model.validation_fraction)
    held = np.zeros(n, dtype=bool)
    held[order[np.flatnonzero(np.diff(marks))]] = True
    if not held.any() or held.all():
        raise InvalidInput(
            f"{type(model).__name__}: validation_fraction={model.validation_fraction} of {n} rows "
            "leaves none to train or none to stop by. Change it, or take early_stopping=False."
        )
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


def _judge(model: Any, table: FeatureRows | KernelRows, held: Rows) -> Callable[[Walk], float]:
    """Return the score of a walk on the rows held out: accuracy, or R²."""
    reader = None if isinstance(table, KernelRows) else table_of(model, held.X)

    def score(walk: Walk) -> float:
        coef, intercept = walk.result
        if isinstance(table, KernelRows):
            f = to_numpy(model.kernel_(held.X, table.all)) @ coef + intercept
        else:
            f = reader.values(coef) + intercept  # type: ignore[union-attr]
        return _accuracy(f, held) if hasattr(model, "classes_") else _r_squared(f, held)

    return score


def _accuracy(f: Float[Array, "n t"], held: Rows) -> float:
    codes = f[:, 0] > 0 if f.shape[1] == 1 else f.argmax(axis=1)
    return float(np.average(codes == held.y, weights=held.w))


def _r_squared(f: Float[Array, "n t"], held: Rows) -> float:
    y = held.y.reshape(f.shape)
    about = y - np.average(y, axis=0, weights=held.w)
    left, whole = held.w @ (y - f) ** 2, held.w @ about**2
    return float(np.mean(1 - left / np.where(whole > 0, whole, 1.0)))


# --- Streams -------------------------------------------------------------------------------------


def add(model: Any, rows: Rows) -> None:
    """Step once on each of these rows: one call of ``partial_fit``."""
    model.seen_ = getattr(model, "seen_", 0) + len(rows.w)
    model.weight_ = getattr(model, "weight_", 0.0) + float(rows.w.sum())
    table = table_of(model, rows.X)
    y, w = targets(model, rows.y), rows.w * (model.seen_ / model.weight_)
    descent = _descent(model, table.n_coef, y.shape[1], table.first)
    number = getattr(model, "passes_", 0)

    def epoch(_: int) -> None:
        sweep(model, descent, table, y, w, _order(model, len(w), number))

    loss = _one_epoch(model, descent, epoch, number)
    model.n_iter_, model.passes_, model.loss_curve_ = 1, number + 1, (loss,)
    _finish(model, descent, table)


def fit_stream(model: Any, blocks: Blocks, t: int) -> None:
    """Walk over blocks that are read anew for each epoch, shuffled within windows of 8192 rows."""
    descent = _descent(model, model.map_.n_features, t)
    kept: list[Window] = []
    cached = model.strategy_.endswith("cached")

    def epoch(number: int) -> None:
        for i, (table, y, w) in enumerate(kept or _windows(model, blocks, kept, cached)):
            sweep(model, descent, table, y, w, _order(model, len(w), number, i))

    _run(model, descent, epoch)
    _finish(model, descent, None)


def _windows(model: Any, blocks: Blocks, kept: list[Window], cached: bool) -> Iterator[Window]:
    """Give windows of rows; once all were given, all are in ``kept`` where they are to be kept."""
    given: list[Window] = []
    mean = model.weight_ / model.seen_
    for block in blocks.with_rows(WINDOW):
        X, y, w = rows_of(block)
        if not len(w):
            continue
        table = FeatureRows(model.map_, model.feature_dtype_, X, cached)
        window = table, targets(model, y), w / mean
        yield window
        given += [window] if cached else []
    kept += given


# --- Predictions ---------------------------------------------------------------------------------


def values(model: Any, X: Any) -> tuple[Float[Array, "n t"], Any]:
    """Return f of rows to predict, (n, t), and an array of the library that it goes back to."""
    coef, intercept = model.walk_.result
    blocks = predict_blocks_of(model, X)
    width = model.walk_.coef.shape[0]
    parts = []
    for block in blocks.with_rows(_engine.block_rows(width)):
        rows = block.X if is_sparse(block.X) else to_numpy(block.X)
        parts.append(_read(model, rows) @ coef)
    return np.concatenate(parts) + intercept, block.X


def _read(model: Any, X: Array) -> Float[Array, "n D"]:
    if model.strategy_ in DUAL:
        return to_numpy(model.kernel_(X, model.support_vectors_))
    return _engine.as_features(model.map_, X, model.feature_dtype_)


# --- What was learned ----------------------------------------------------------------------------


def outputs(model: Any) -> int:
    """Return t: columns of the coefficients."""
    if hasattr(model, "classes_"):
        return 1 if len(model.classes_) == 2 else len(model.classes_)
    return int(np.prod(model.target_shape_))


def fitted(model: Any) -> tuple[Float[Array, "D t"], Float[Array, " t"]]:
    """Return coefficients and intercepts to predict with."""
    # AttributeError, as of what was not learned: hasattr() is how scikit-learn asks.
    if not hasattr(model, "walk_"):
        raise AttributeError(f"{type(model).__name__} is not fitted yet.")
    return model.walk_.result


def primal(model: Any) -> Float[Array, "D t"]:
    """Return the coefficients of features."""
    coef = fitted(model)[0]
    if model.strategy_ in DUAL:
        raise AttributeError(
            f"{type(model).__name__}: with strategy {model.strategy_!r} coefficients are those of "
            "rows: dual_coef_ of support_vectors_."
        )
    return coef


def dual(model: Any) -> Float[Array, "m t"]:
    """Return the coefficients of rows."""
    coef = fitted(model)[0]
    if model.strategy_ not in DUAL:
        raise AttributeError(
            f"{type(model).__name__}: with strategy {model.strategy_!r} coefficients are those of "
            "features: coef_."
        )
    return coef
