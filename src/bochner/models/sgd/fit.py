"""Stochastic gradient descent: choose a strategy, then step over rows; later fits continue."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import free_bytes, warn_user
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Gradients, Predictions
from bochner._core.sizes import block_rows as rows_to_predict
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.data.sources import required_targets
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.rules import exact_map
from bochner.kernels.kernel import Kernel
from bochner.models._calibration import decided
from bochner.models._html import FitSummary
from bochner.models.error_law import ErrorLaw
from bochner.models.sgd.strategies import (
    DUAL,
    EXACT,
    SIZE_ROWS,
    STRATEGIES,
    USUAL_EPOCHS,
    FeatureStrategy,
    FeatureTable,
    KernelStrategy,
    KernelTable,
    SgdChosen,
    SgdSpec,
    SgdTask,
    StepRows,
    Strategy,
    StrategyPlan,
    block_rows,
    plan_strategies,
    table_of,
)
from bochner.selection.candidates import choose_kernel
from bochner.selection.choose import choice_of
from bochner.selection.numbers import by_left_out
from bochner.selection.record import Tuning
from bochner.solvers.convex.problem import TargetsOf
from bochner.solvers.sgd import SLOWEST, Descent, Patience, Walk, as_loss
from bochner.sums.executor import LOCAL, Executor, require_order
from bochner.sums.moments import Precision
from bochner.sums.rows import indicators, nonempty, sampled

WINDOW = 8192  # Rows of a stream that are shuffled together

Table = FeatureTable | KernelTable
Window = tuple[FeatureTable, Array, Array]


@dataclass(frozen=True, eq=False)
class SgdFit(FitSummary):
    """Where a descent has come to."""

    inputs: Inputs
    spec: SgdSpec
    chosen: SgdChosen
    target_shape: tuple[int, ...]  # of one row of y: () or (t,)
    walk: Walk  # coefficients, and their means
    rows: int = 0  # that were stepped on
    weight: float = 0.0  # of these rows
    epochs: int = 0  # in all: the order of rows depends on it
    losses: tuple[float, ...] = ()  # of each epoch of the last fit, before the steps on each row
    scores: tuple[float, ...] = ()  # on rows held out
    errors: ErrorLaw | None = None  # of new rows, where they were calibrated

    @staticmethod
    def start(inputs: Inputs, spec: SgdSpec, chosen: SgdChosen, shape: tuple[int, ...]) -> "SgdFit":
        """Return the fit before the first step."""
        rate, t = spec.schedule(chosen.size).eta0, outputs(inputs, shape)
        return SgdFit(inputs, spec, chosen, shape, Walk.start(t, rate))

    def _features(self) -> dict[str, Any]:
        strategy, phi = self.chosen.strategy, self.chosen.map
        said = {"method": type(strategy).__name__}
        return said if phi is None else said | {"n_features": phi.n_features}

    def _results(self) -> dict[str, Any]:
        return {
            "loss": str(self.spec.loss),
            "rows_stepped_on": self.rows,
            "passes": self.epochs,
            "loss_before_the_last_pass": self.losses[-1] if self.losses else None,
        }

    def predictions(self, blocks: Blocks) -> Predictions:
        """Yield the rows and the values of f, (b, t), block by block."""
        coef, intercept = self.walk.result
        for block in blocks.with_rows(rows_to_predict(coef.shape[0])):
            X = block.X if is_sparse(block.X) else to_numpy(block.X)
            yield block.X, self.chosen.strategy.read(X) @ coef + intercept

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield the rows and the gradients of f, block by block."""
        return self.chosen.strategy.gradients(self.walk.result[0], blocks)

    def targets(self, y: Array) -> Float[Array, "n t"]:
        """Return −1 and +1 of classes, or numbers, one column an output."""
        classes = self.inputs.classes
        return y.reshape(len(y), -1) if classes is None else indicators(y, len(classes))

    def descent(self, width: int) -> Descent:
        """Return the descent that continues this fit; new coefficients are zero."""
        spec = self.spec
        return Descent(
            as_loss(spec.loss, spec.epsilon, spec.quantile),
            spec.schedule(self.chosen.size),
            self.walk.of_width(width, bool(spec.average)),
            spec.fit_intercept,
            spec.average,
            spec.batch_size,
        )


def outputs(inputs: Inputs, shape: tuple[int, ...]) -> int:
    """Return t: columns of the coefficients."""
    if inputs.classes is not None:
        return 1 if len(inputs.classes) == 2 else len(inputs.classes)
    return int(np.prod(shape))


# --- Fits ----------------------------------------------------------------------------------------


def fit_sgd(
    spec: SgdSpec,
    blocks: Blocks,
    inputs: Inputs,
    before: SgdFit | None = None,
    where: Executor = LOCAL,
) -> SgdFit:
    """Step over rows in memory until the loss no longer falls, from a fit before or from zero."""
    rows = _gathered(spec, blocks)
    fit = _start(spec, blocks, rows, inputs, before, where)
    train, held_out = _split(fit, rows)
    return _walked(replace(fit, rows=0, weight=0.0), train, train.w / train.w.mean(), held_out)


def with_rows_of(
    before: SgdFit | None, spec: SgdSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL
) -> SgdFit:
    """Step once on each of these rows, after a fit before or from the start."""
    rows = _gathered(spec, blocks)
    fit = _start(spec, blocks, rows, inputs, before, where, in_pieces=True)
    seen, weight = fit.rows + len(rows.w), fit.weight + float(rows.w.sum())
    once = replace(fit, spec=replace(spec, max_iter=1, tol=None))
    return replace(_walked(once, rows, rows.w * (seen / weight)), spec=spec)


def fit_stream(spec: SgdSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> SgdFit:
    """Walk over blocks that are read again for each epoch, shuffled within windows of 8192 rows."""
    _refuse_memory(spec)
    require_order(
        spec.who,
        "takes one step after the other",
        where,
        "Leave where out, or take KernelRidge or SVC.",
    )
    block = next(iter(blocks))
    shape = tuple(required_targets(spec.who, block.y).shape[1:])
    w = np.concatenate([w for _, w in where.sum(TargetsOf(), blocks)])
    n, weight = int(np.count_nonzero(w)), float(w.sum())
    if not n:
        raise _no_weight(spec)
    X = block.X if is_sparse(block.X) else to_numpy(block.X)
    maker = StrategyMaker.of(spec, blocks, X, None, inputs, where)
    strategy = maker.for_stream(n)
    fit = SgdFit.start(inputs, spec, maker.chosen(strategy), shape)
    descent = fit.descent(strategy.map.n_features)
    kept: list[Window] = []

    def epoch(number: int) -> None:
        windows = kept or _windows(fit, strategy, blocks, weight / n, kept)
        for i, window in enumerate(windows):
            _sweep(fit, descent, *window, number, i)

    losses, _ = _epochs(fit, descent, epoch)
    result = replace(fit, epochs=len(losses), losses=losses)
    return replace(result, walk=descent.walk, rows=n, weight=weight)


def plan_sgd(
    spec: SgdSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL
) -> StrategyPlan:
    """Return what each strategy takes for a fit to these rows."""
    rows = _gathered(spec, blocks, has_targets=False)
    maker = StrategyMaker.of(spec, blocks, rows.X, rows.w, inputs, where)
    t = 1 if rows.y is None else outputs(inputs, rows.target_shape)
    return maker.planned(rows.X, count_rows(blocks), t)[0]


# --- Rows ----------------------------------------------------------------------------------------


def _gathered(spec: SgdSpec, blocks: Blocks, has_targets: bool = True) -> StepRows:
    """Return all rows of positive weight of blocks."""
    block = next(iter(blocks.with_rows(count_rows(blocks))))
    if has_targets:
        required_targets(spec.who, block.y)
    rows = StepRows.of(block)
    if not len(rows.w):
        raise _no_weight(spec)
    return rows


def _no_weight(spec: SgdSpec) -> InvalidInput:
    return InvalidInput(
        f"{spec.who}: at least one row must have a weight above zero; all are zero."
    )


def _start(
    spec: SgdSpec,
    blocks: Blocks,
    rows: StepRows,
    inputs: Inputs,
    before: SgdFit | None,
    where: Executor,
    in_pieces: bool = False,
) -> SgdFit:
    """Return the fit to continue: the one before with the new spec, or one without steps."""
    shape = rows.target_shape
    if before is None:
        maker = StrategyMaker.of(spec, blocks, rows.X, rows.w, inputs, where)
        n, t = count_rows(blocks), outputs(inputs, shape)
        chosen = maker.chosen(maker.for_pieces()) if in_pieces else maker.for_rows(rows.X, n, t)
        return SgdFit.start(inputs, spec, chosen, shape)
    if shape != before.target_shape:
        raise InvalidInput(
            f"{spec.who}: y must have the same targets in every call; got rows of shape "
            f"{before.target_shape} before and {shape} now."
        )
    return replace(before, spec=spec, errors=None)


def _refuse_memory(spec: SgdSpec) -> None:
    """Refuse to stream what needs all rows in memory."""
    if spec.strategy in DUAL:
        raise InvalidInput(
            f"{spec.who}.fit_blocks: strategy={spec.strategy!r} holds all rows, in memory; take a "
            "strategy of features, or fit(X, y)."
        )
    if spec.early_stopping:
        raise InvalidInput(
            f"{spec.who}.fit_blocks: early_stopping=True holds rows out in memory; stop by the "
            "loss (early_stopping=False), or fit(X, y)."
        )


def _windows(
    fit: SgdFit, strategy: FeatureStrategy, blocks: Blocks, mean: float, kept: list[Window]
) -> Iterator[Window]:
    """Give windows of rows; once all were given, all are in ``kept`` where they are to be kept."""
    given: list[Window] = []
    for block in blocks.with_rows(WINDOW):
        X, y, w = StepRows.of(block)
        if not len(w):
            continue
        window = FeatureTable(strategy, X), fit.targets(y), w / mean
        yield window
        given += [window] if strategy.cached else []
    kept += given


def _split(fit: SgdFit, rows: StepRows) -> tuple[StepRows, StepRows | None]:
    """Return rows to train on and rows to stop by: of classes a share of each."""
    spec, n = fit.spec, len(rows.w)
    if not spec.early_stopping:
        return rows, None
    order = stream(fit.chosen.seed, "validation").permutation(n)
    if fit.inputs.classes is not None:
        order = order[np.argsort(rows.y[order], kind="stable")]
    marks = np.floor(np.arange(n + 1) * spec.validation_fraction)
    held_out = np.zeros(n, dtype=bool)
    held_out[order[np.flatnonzero(np.diff(marks))]] = True
    if not held_out.any() or held_out.all():
        raise InvalidInput(
            f"{spec.who}: validation_fraction={spec.validation_fraction} of {n} rows "
            "leaves none to train or none to stop by. Change it, or take early_stopping=False."
        )
    return rows.take(np.flatnonzero(~held_out)), rows.take(np.flatnonzero(held_out))


# --- Walking -------------------------------------------------------------------------------------


def _walked(fit: SgdFit, rows: StepRows, w: Array, held_out: StepRows | None = None) -> SgdFit:
    """Return the fit after epochs over rows, whose steps count ``w`` times."""
    table, y = table_of(fit.chosen.strategy, rows.X), fit.targets(rows.y)
    descent = fit.descent(table.n_coef)
    epoch = lambda number: _sweep(fit, descent, table, y, w, number)
    losses, scores = _epochs(fit, descent, epoch, _judge(fit, table, held_out))
    strategy, walk = table.finished(descent.walk)
    return replace(
        fit,
        chosen=replace(fit.chosen, strategy=strategy),
        walk=walk,
        rows=fit.rows + len(rows.w),
        weight=fit.weight + float(rows.w.sum()),
        epochs=fit.epochs + len(losses),
        losses=losses,
        scores=scores,
    )


def _sweep(
    fit: SgdFit,
    descent: Descent,
    table: Table,
    y: Float[Array, "n t"],
    w: Float[Array, " n"],
    epoch: int,
    window: int = 0,
) -> None:
    """Step once on each row, in the order of a named random stream."""
    n, size = len(w), block_rows(table.n_coef, fit.spec.batch_size)
    order = np.arange(n)
    if fit.spec.shuffle:
        order = stream(fit.chosen.seed, "order", epoch, window).permutation(n)
    for start in range(0, n, size):
        index = order[start : start + size]
        table.step(descent, index, y[index], w[index])


def _epochs(
    fit: SgdFit,
    descent: Descent,
    epoch: Callable[[int], None],
    judge: Callable[[Walk], float] | None = None,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Run epochs until patience is over; return losses, and scores if there is a judge."""
    spec = fit.spec
    patience = Patience(spec.tol, spec.n_iter_no_change)
    losses: list[float] = []
    scores: list[float] = []
    stopped = spec.tol is None
    while len(losses) < spec.max_iter:
        losses.append(_one_epoch(spec, descent, epoch, fit.epochs + len(losses)))
        scores += [] if judge is None else [judge(descent.walk)]
        if patience.over(-scores[-1] if scores else losses[-1]):
            if spec.learning_rate != "adaptive" or descent.rate <= SLOWEST:
                stopped = True
                break
            descent.slow_down(5)
            patience.again()
    if not stopped:
        warn_user(
            f"{spec.who}: the loss still fell after max_iter={spec.max_iter} epochs. Raise "
            "max_iter or tol, or take tol=None to run just so many."
        )
    return tuple(losses), tuple(scores)


def _one_epoch(spec: SgdSpec, descent: Descent, epoch: Callable[[int], None], number: int) -> float:
    """Run an epoch and return its mean loss."""
    descent.begin()
    with np.errstate(over="ignore", invalid="ignore"):
        epoch(number)
    walk = descent.walk
    if not (np.isfinite(walk.coef).all() and np.isfinite(walk.intercept).all()):
        raise InvalidInput(
            f"{spec.who}: the steps diverged in epoch {number + 1}: coefficients are "
            "no longer finite numbers. Lower eta0, or scale the columns of X and the target."
        )
    return descent.total / descent.weight


def _judge(fit: SgdFit, table: Table, held_out: StepRows | None) -> Callable[[Walk], float] | None:
    """Return the score of a walk on the rows held out: accuracy, or R²."""
    if held_out is None:
        return None
    values, w, y = table.others(held_out.X), held_out.w, held_out.y

    def score(walk: Walk) -> float:
        f = values(walk.result[0]) + walk.result[1]
        if fit.inputs.classes is not None:
            return float(np.average(decided(f) == y, weights=w))
        about = y.reshape(f.shape) - np.average(y.reshape(f.shape), axis=0, weights=w)
        left, total = w @ (y.reshape(f.shape) - f) ** 2, w @ about**2
        return float(np.mean(1 - left / np.where(total > 0, total, 1.0)))

    return score


@dataclass(frozen=True, eq=False)
class StrategyMaker:
    """Makes the strategies for one kernel and table of rows."""

    spec: SgdSpec
    search: Tuning
    size: float
    precision: Precision
    n_inputs: int
    sample: RowSample | None  # rows to choose by, where something is open

    @staticmethod
    def of(
        spec: SgdSpec, blocks: Blocks, X: Array, w: Array | None, inputs: Inputs, where: Executor
    ) -> "StrategyMaker":
        """Choose the kernel's lengthscale where that is open; X are some or all rows."""
        asked, sample = spec.features, None
        if spec.needs_rows:
            n_classes = 0 if inputs.classes is None else len(inputs.classes)
            sample = sampled(blocks, asked.seed, n_classes, where)
        search = _searched(spec, sample)
        squares = to_numpy(search.kernel.diag(X[:SIZE_ROWS]))
        size = float(np.average(squares, weights=None if w is None else w[:SIZE_ROWS]))
        precision: Precision = "float32" if X.dtype == np.float32 else "float64"
        return StrategyMaker(spec, search, size, precision, blocks.n_columns, sample)

    def chosen(self, strategy: Strategy, plan: StrategyPlan | None = None) -> SgdChosen:
        """Return all that is settled, with this strategy."""
        return SgdChosen(self.spec.features.seed, self.search, self.size, strategy, plan)

    def named(self, name: str) -> Any:
        """Return the strategy of this name."""
        kernel, cached, choice = self.search.kernel, name in STRATEGIES[1::2], None
        if name in DUAL:
            return KernelStrategy(kernel, self.precision, cached)
        if name in EXACT:
            phi = self._exact()
        else:
            asked = self.spec.features
            choice = choice_of(asked, kernel, self.n_inputs, self.sample, None, None, True)
            phi = choice.map  # type: ignore[assignment]
        return FeatureStrategy(phi, choice, self.precision, cached)

    def _exact(self) -> FeatureMap:
        spec = self.spec
        try:
            return exact_map(self.search.kernel, self.n_inputs)
        except UnsupportedKernel as refused:
            if spec.strategy == "auto":
                raise
            raise UnsupportedKernel(
                f"{spec.who}: strategy={spec.strategy!r} requires a kernel with finitely many "
                f"exact features: {refused} Take strategy='gram_cached' or "
                "'kernel_on_the_fly' for the kernel itself, 'approximate_cached' for its "
                "approximation."
            ) from refused

    def for_rows(self, X: Array, n: int, t: int) -> SgdChosen:
        """Choose for n rows at once, of t outputs: "auto" by the plan."""
        if self.spec.strategy != "auto":
            return self.chosen(self.named(self.spec.strategy))
        plan, options = self.planned(X, n, t)
        return self.chosen(options[plan.best], plan)

    def planned(self, X: Array, n: int, t: int) -> tuple[StrategyPlan, dict[str, Strategy]]:
        """Return the plan, and the strategies that can be run."""
        spec, options = self.spec, {}
        maps: list[Any] = []
        for name, cached in zip(STRATEGIES[::2], STRATEGIES[1::2], strict=True):
            try:
                options[name] = self.named(name)
                options[cached] = replace(options[name], cached=True)
                maps.append(options[name].map)
            except UnsupportedKernel as refused:
                maps.append(str(refused))
        epochs = spec.max_iter if spec.tol is None else min(spec.max_iter, USUAL_EPOCHS)
        itemsize = np.dtype(X.dtype).itemsize
        task = SgdTask(n, X.shape[1], t, epochs, min(spec.batch_size, n), itemsize)
        return plan_strategies(task, maps[0], maps[2]), options

    def for_pieces(self) -> Strategy:
        """Choose for pieces without an end: "auto" takes features on the fly.

        They are the kernel's own where these are no more than asked for.
        """
        if self.spec.strategy != "auto":
            return self.named(self.spec.strategy)
        try:
            exact = self.named(EXACT[0])
        except UnsupportedKernel:
            return self.named(STRATEGIES[4])
        few = exact.map.n_features <= self.spec.features.width_to_search
        return exact if few else self.named(STRATEGIES[4])

    def for_stream(self, n: int) -> Any:
        """Choose for n rows that are never all in memory: "auto" keeps features that fit."""
        strategy: Any = self.for_pieces()
        if self.spec.strategy != "auto":
            return strategy
        size = np.dtype(self.precision).itemsize * n * strategy.map.n_features
        return replace(strategy, cached=size <= free_bytes() // 2)


def _searched(spec: SgdSpec, sample: RowSample | None) -> Tuning:
    """Find the lengthscale of a kernel by name, at a per-row penalty that steps can reach.

    Steps reach directions of eigenvalue λ of K/n after 1/(ηλ) of them, so that T steps are as a
    penalty of 1/(ηT): a lengthscale that needs a smaller one is out of their reach. η is about ½.
    """
    asked = spec.features
    if isinstance(asked.kernel, Kernel):
        return by_left_out(asked.kernel, sample, asked.seed, share=spec.alpha)
    rows, v = nonempty(sample), stream(asked.seed, "different")
    v = v.standard_normal(rows.X.shape[1])
    # Copies count like weights, which is to say not.
    different = np.unique(rows.X @ v if is_sparse(rows.X) else (rows.X * v).sum(axis=1))
    steps = max(1.0, USUAL_EPOCHS * len(different) / spec.batch_size)
    share = max(spec.alpha, 2 / steps)
    width, seed = asked.width_to_search, asked.seed
    return choose_kernel(asked.kernel, rows, width, seed, share, None, asked.effort or "medium")
