"""Stochastic gradient descent: choice of a strategy, and epochs of steps over rows.

A strategy uses exact features, kernel values or approximate features, computed in each step, or
once and cached. The choice counts operations, so it is the same on every machine.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np

from bochner._core import checks
from bochner._core.arrays import array_namespace, is_sparse, slices, to_numpy
from bochner._core.random import Seed, stream
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import cached_rows
from bochner._core.text import TableResult
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.data.sources import Block, Piece, join, part, require_targets, weights_of
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.auto import Choice
from bochner.features.map import FeatureMap, Method
from bochner.features.mercer.products import Explicit
from bochner.features.rules import exact_map
from bochner.kernels.kernel import Kernel, has_free
from bochner.models._base import Differentiable, FitSummary, KernelEstimator, getter
from bochner.models._intervals import IntervalRegressor
from bochner.models._labels import LabelEstimator, decide
from bochner.models._parameters import estimator, parameters, spec_of
from bochner.models._rows import TARGETS, KernelSum, row_marks
from bochner.models.error_law import ErrorLaw
from bochner.models.representations.representation import ExactKernel, require_alike
from bochner.selection.choices import Choices, FeatureSpec
from bochner.selection.choose import choose_kernel, choose_map
from bochner.selection.hyperparameters import tune_loo
from bochner.selection.record import Tuning
from bochner.solvers import sgd
from bochner.solvers.cg import TILE
from bochner.sums.passes import LOCAL, Executor, as_sample, draw_rows, indicators, require_order

STRATEGIES = (
    "exact_on_the_fly",
    "exact_cached",
    "kernel_on_the_fly",
    "gram_cached",
    "approximate_on_the_fly",
    "approximate_cached",
)
EXACT, DUAL, CACHED = STRATEGIES[:2], STRATEGIES[2:4], STRATEGIES[1::2]


@dataclass(frozen=True)
class StrategyCost:
    """Predicted operations and memory of one strategy.

    Attributes
    ----------
    name : str
        Strategy, as in the parameter ``strategy``.
    width : int
        Number of values that a step computes per row: D features, or n kernel values.
    operations : float
    bytes : float
        Memory of the fit without X.
    refusal : str
        Reason why the strategy cannot be used; "" if it can.
    """

    name: str
    width: int = 0
    operations: float = np.nan
    bytes: float = np.nan
    refusal: str = ""


@dataclass(frozen=True)
class StrategyPlan(TableResult):
    """Cost of the six strategies for a kernel and a table; prints as a table.

    Attributes
    ----------
    task : str
        Number of rows, columns, outputs and epochs, in words.
    memory : int
        Largest memory of a strategy in bytes: half of the free memory.
    rows : tuple of StrategyCost
    """

    task: str
    memory: int
    rows: tuple[StrategyCost, ...]

    @property
    def best(self) -> str:
        """Name of the strategy with the fewest operations that fits in memory; else least memory.

        A strategy with the exact kernel is preferred if it takes at most 1.5 times the fewest
        operations, or at most 10⁹ (0.25 s) more.
        """
        valid = [row for row in self.rows if not row.refusal]
        fit = [row for row in valid if row.bytes <= self.memory]
        if not fit:
            return min(valid, key=lambda row: row.bytes).name
        lowest = min(row.operations for row in fit)
        ties = [r for r in fit if r.operations <= max(1.5 * lowest, lowest + 1e9)]
        return min(ties, key=lambda row: (row.name not in (*EXACT, *DUAL), row.operations)).name

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        """Return the title, the lines, and the reasons why strategies cannot be run."""
        lines: list[tuple[str, ...]] = [("strategy", "width", "operations", "memory")]
        for row in self.rows:
            mark = " *" * (row.name == self.best)
            cells = f"{row.width:,}", f"{row.operations:.3g}", checks.bytes_in_words(row.bytes)
            lines.append((row.name + mark, *(("-",) * 3 if row.refusal else cells)))
        limit = checks.bytes_in_words(self.memory)
        reasons = (f"{row.name}: {row.refusal}" for row in self.rows if row.refusal)
        title = f"{self.task}; memory in addition to the rows, at most {limit}"
        return title, lines, "\n".join(reasons)


def block_rows(width: int, batch_size: int) -> int:
    """Return the number of rows per block: whole batches of about 2 MB."""
    batches = (1 << 18) // max(1, width * batch_size)
    return batch_size * max(1, min(batches, 4096 // batch_size))


USUAL_EPOCHS = 20  # Number of epochs that a plan assumes if ``tol`` ends the descent


@dataclass(frozen=True)
class SgdSpec:
    """Checked parameters of an estimator; see :class:`KernelSGDClassifier`."""

    features: FeatureSpec  # kernel, method, n_features, random_state
    loss: str
    strategy: Annotated[str, checks.word("auto", *STRATEGIES)]
    alpha: Annotated[float, checks.nonnegative]
    fit_intercept: checks.Switch
    batch_size: checks.Counted
    learning_rate: Annotated[str, checks.word("constant", "optimal", "invscaling", "adaptive")]
    eta0: Annotated[float | None, checks.optional(checks.positive)]  # None: "auto"
    power_t: Annotated[float, checks.finite]
    average: Annotated[int, checks.integer]
    max_iter: checks.Counted
    tol: Annotated[float | None, checks.optional(checks.nonnegative)]
    early_stopping: bool
    validation_fraction: Annotated[float, checks.share]
    n_iter_no_change: checks.Counted
    shuffle: bool
    epsilon: Annotated[float, checks.nonnegative] = 0.1
    quantile: Annotated[float, checks.share] = 0.5

    caller = property(attrgetter("features.caller"))  # Class name of the estimator, for messages

    @staticmethod
    def of(caller: str, losses: tuple[str, ...], parameters: dict[str, Any]) -> "SgdSpec":
        """Return the checked parameters of the estimator ``caller``."""
        checks.one_of(parameters["loss"], caller, "loss", losses)
        width = checks.integer(parameters["n_features"], caller, "n_features", 1)
        features = parameters["kernel"], parameters["method"], width, parameters["random_state"]
        eta = parameters["eta0"]
        is_auto = isinstance(eta, str) and eta == "auto"
        rate = None if is_auto else checks.positive(eta, caller, "eta0")
        parameters = parameters | {"average": int(parameters["average"]), "eta0": rate}
        parameters["features"] = FeatureSpec.of(caller, *features)
        spec = spec_of(SgdSpec, caller, parameters)
        if spec.learning_rate == "optimal" and spec.alpha == 0:
            raise InvalidInput(
                f"{caller}: learning_rate='optimal' requires alpha above zero, as its rates are "
                "1/(alpha (t0 + t)); got 0. Pass another schedule, or a positive alpha."
            )
        return spec

    def schedule(self, size: float) -> sgd.Schedule:
        """Return the learning rates; ``size`` is the mean of k(x, x) over rows."""
        rates = self.alpha, self.eta0, self.power_t
        return sgd.Schedule(self.learning_rate, self.loss, *rates, size)


@dataclass(frozen=True, eq=False)
class SgdFit(FitSummary):
    """State of a descent after a fit."""

    inputs: Inputs
    spec: SgdSpec
    chosen: Choices  # without a map if coefficients belong to rows
    strategy: str
    size: float  # mean of k(x, x), for the learning rates
    target_shape: tuple[int, ...]  # shape of one row of y: () or (t,)
    walk: sgd.Walk  # coefficients, and their means over steps
    plan: StrategyPlan | None = None  # with strategy="auto"
    support: Float[Array, "m d"] | None = None  # rows to which coefficients belong
    rows: int = 0  # number of rows of all calls
    weight: float = 0.0  # sum of the weights of these rows
    epochs: int = 0  # total number of epochs, which determines the order of rows
    losses: tuple[float, ...] = ()  # mean loss of each epoch of the last fit, before each step
    scores: tuple[float, ...] = ()  # score of each epoch of the last fit, on held-out rows
    errors: ErrorLaw | None = None  # distribution of errors of new rows, if calibrated

    @property
    def is_dual(self) -> bool:
        """Whether coefficients belong to rows."""
        return self.strategy in DUAL

    def _results(self) -> dict[str, Any]:
        return {
            "loss": str(self.spec.loss),
            "strategy": self.strategy,
            "rows_stepped_on": self.rows,
            "passes": self.epochs,
            "loss_before_the_last_pass": self.losses[-1] if self.losses else None,
        }

    @property
    def block_rows(self) -> int:
        return TILE if self.is_dual else self.chosen.block_rows

    def values(self) -> Any:
        if self.is_dual:
            return KernelSum(self.chosen.kernel, self.support, *self.walk.result)
        return self.chosen.linear(*self.walk.result)

    def targets(self, y: Array) -> Float[Array, "n t"]:
        """Return targets (n, t): −1 and +1 for classes, or numbers."""
        classes = self.inputs.classes
        return y.reshape(len(y), -1) if classes is None else indicators(y, len(classes))


#: Function from row indices to features or kernel values.
Reader = Callable[[Any], Float[Array, "c m"]]

Window = tuple[Reader, Array, Array]  # Reader of rows, targets, weights


def fit_sgd(spec: SgdSpec, blocks: Blocks, inputs: Inputs, start: SgdFit | None = None) -> SgdFit:
    """Return the fit to rows in memory, starting from an earlier fit or from zero."""
    rows = _gather(spec, blocks)
    fit = _start(spec, blocks, rows, inputs, start)
    return _run_epochs(replace(fit, rows=0, weight=0.0), *_split(fit, rows))


def add_rows(start: SgdFit | None, spec: SgdSpec, blocks: Blocks, inputs: Inputs) -> SgdFit:
    """Return the fit after one epoch over these rows, from an earlier fit or from zero."""
    rows = _gather(spec, blocks)
    fit = _start(spec, blocks, rows, inputs, start, in_pieces=True)
    one_epoch = replace(fit, spec=replace(spec, max_iter=1, tol=None))
    return replace(_run_epochs(one_epoch, rows), spec=spec)


def fit_stream(spec: SgdSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> SgdFit:
    """Return the fit to blocks, read again in each epoch and shuffled in windows of 8192 rows."""
    if spec.strategy in DUAL:
        raise InvalidInput(
            f"{spec.caller}.fit_blocks: strategy={spec.strategy!r} keeps all rows in memory. Pass "
            "a strategy with features, or use fit(X, y)."
        )
    if spec.early_stopping:
        raise InvalidInput(
            f"{spec.caller}.fit_blocks: early_stopping=True keeps held-out rows in memory. Pass "
            "early_stopping=False, or use fit(X, y)."
        )
    reason, remedy = "takes steps in sequence", "Omit where=, or use KernelRidge or SVC."
    require_order(spec.caller, reason, where, remedy)
    block = next(iter(blocks))
    require_targets(spec.caller, block.y)
    w = np.concatenate([w for _, w in where.sum(TARGETS, blocks)])
    n, weight = int(np.count_nonzero(w)), float(w.sum())
    rows = Piece(_rows(block), block.y)
    fit = _start(spec, blocks, rows, inputs, in_pieces=True, where=where)
    if spec.strategy == "auto":  # cache the features if they fit in memory
        size = np.dtype(fit.chosen.precision).itemsize * n * fit.chosen.map.n_features
        kept_at = STRATEGIES.index(fit.strategy) + (size <= checks.free_bytes() // 2)
        fit = replace(fit, strategy=STRATEGIES[kept_at])

    def windows() -> Iterator[Window]:
        for block in blocks.with_rows(8192):
            X, y, w = _weighted_rows(block)
            if len(w):
                read = _reader(fit, X, fit.chosen.map.n_features)
                yield read, fit.targets(y), w / (weight / n)

    return replace(_walk(fit, windows, fit.chosen.map.n_features), rows=n, weight=weight)


def _rows(block: Any) -> Any:
    """Return the rows of a block as NumPy array or CSR matrix."""
    return block.X if is_sparse(block.X) else to_numpy(block.X)


def _weighted_rows(block: Block) -> Piece:
    """Return X, y, w of the rows of positive weight of a block; y and w in float64."""
    X, w = _rows(block), weights_of(block)
    y = None if block.y is None else to_numpy(block.y).astype(np.float64)
    return Piece(X, y, w) if w.all() else part(Piece(X, y, w), np.flatnonzero(w))


def _gather(spec: SgdSpec, blocks: Blocks, has_targets: bool = True) -> Piece:
    """Return all rows of positive weight."""
    [block] = blocks.with_rows(count_rows(blocks))
    if has_targets:
        require_targets(spec.caller, block.y)
    return _weighted_rows(block)


def _split(fit: SgdFit, rows: Piece) -> tuple[Piece, Piece | None]:
    """Return training rows and held-out rows (or None), stratified by class."""
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
            f"{spec.caller}: validation_fraction={spec.validation_fraction} of {n} rows "
            "leaves no rows to train or no held-out rows. Change it, or pass early_stopping=False."
        )
    return part(rows, np.flatnonzero(~held_out)), part(rows, np.flatnonzero(held_out))


def _reader(fit: SgdFit, X: Any, width: int, support: Any = None) -> Reader:
    """Return a reader of features, or of kernel values with ``support``; cached by the strategy."""
    chosen, evaluate = fit.chosen, fit.chosen.kernel.evaluate

    def values(rows: slice | Array) -> Float[Array, "c m"]:
        part = X[rows]
        return to_numpy(evaluate(part, support)) if fit.is_dual else chosen.precision_map(part)

    if fit.strategy not in CACHED:
        return values
    cache = np.empty((X.shape[0], width), chosen.precision)
    for rows in slices(len(cache), block_rows(width, 256)):
        cache[rows] = values(rows)
    return cache.__getitem__


def _run_epochs(fit: SgdFit, rows: Piece, held_out: Piece | None = None) -> SgdFit:
    """Return the fit after epochs over rows in memory; weights are divided by their mean."""
    n_rows, weight = fit.rows + len(rows.w), fit.weight + float(rows.w.sum())
    # Rows that have coefficients, followed by the rows of this fit
    pieces = [Piece(X) for X in (fit.support, rows.X) if X is not None]
    support = join(pieces).X if fit.is_dual else None
    width = fit.chosen.map.n_features if support is None else support.shape[0]
    window = _reader(fit, rows.X, width, support), fit.targets(rows.y), rows.w * (n_rows / weight)
    judge = _judge(fit, held_out, width, support)
    fit = replace(_walk(fit, lambda: (window,), width, judge), weight=weight, rows=n_rows)
    return _keep_support(fit, support) if fit.is_dual else fit


def _walk(
    fit: SgdFit,
    windows: Callable[[], Iterable[Window]],
    width: int,
    judge: Callable[[sgd.Walk], float] | None = None,
) -> SgdFit:
    """Return the fit after epochs over windows, until the loss (or score) no longer improves."""
    spec, cached_windows, losses, scores = fit.spec, list[Window](), list[float](), list[float]()
    walk = fit.walk.of_width(width, bool(spec.average))
    loss, schedule = sgd.as_loss(spec.loss, spec.epsilon, spec.quantile), spec.schedule(fit.size)
    options = loss, schedule, spec.fit_intercept, spec.average, spec.batch_size
    best, n_idle, stopped = np.inf, 0, spec.tol is None
    while len(losses) < spec.max_iter:
        number, cached = fit.epochs + len(losses), list[Window]()
        total = weight = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for i, (read, y, w) in enumerate(cached_windows or windows()):
                n, size = len(w), block_rows(width, spec.batch_size)
                random = stream(fit.chosen.seed, "order", number, i)
                order = random.permutation(n) if spec.shuffle else np.arange(n)
                for index in map(order.__getitem__, slices(n, size)):
                    diagonal = width - n + index if fit.is_dual else None
                    rows = read(index), y[index], w[index]
                    walk, loss_of_batch, mass = sgd.descend(walk, *options, rows, diagonal)
                    total, weight = total + loss_of_batch, weight + mass
                cached += [(read, y, w)] if fit.strategy in CACHED else []
        cached_windows = cached
        if not (np.isfinite(walk.coef).all() and np.isfinite(walk.intercept).all()):
            raise InvalidInput(
                f"{spec.caller}: the steps diverged in epoch {number + 1}: coefficients are no "
                "longer finite numbers. Lower eta0, or scale the columns of X and the target."
            )
        losses.append(total / weight)
        scores += [] if judge is None else [judge(walk)]
        if spec.tol is None:
            continue
        value = -scores[-1] if scores else losses[-1]
        n_idle = n_idle + 1 if value > best - spec.tol else 0
        best = min(best, value)
        if n_idle >= spec.n_iter_no_change:
            stopped = spec.learning_rate != "adaptive" or walk.rate <= sgd.SLOWEST
            if stopped:
                break
            walk = replace(walk, rate=walk.rate / 5)
            n_idle = 0
    if not stopped:
        checks.warn_user(
            f"{spec.caller}: the loss still fell after max_iter={spec.max_iter} epochs. Raise "
            "max_iter or tol, or pass tol=None to always run max_iter epochs."
        )
    epochs = fit.epochs + len(losses)
    return replace(fit, walk=walk, epochs=epochs, losses=tuple(losses), scores=tuple(scores))


def _keep_support(fit: SgdFit, rows: Any) -> SgdFit:
    """Return the fit with the rows of nonzero coefficients; equal rows have their sum."""
    coef, mean = fit.walk.coef, fit.walk.mean_coef
    if fit.support is not None and not is_sparse(rows):
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        if len(distinct) < len(rows):
            total = np.zeros((2, len(distinct), coef.shape[1]))
            for sums, u in zip(total, (coef, mean), strict=True):
                np.add.at(sums, inverse.reshape(-1)[: len(u)], u)
            rows, coef, mean = distinct, total[0], total[1][: len(distinct) * bool(len(mean))]
    walk = replace(fit.walk, coef=coef, mean_coef=mean)
    support = walk.support
    support[0] |= not support.any()  # predictions need at least one row
    walk = replace(walk, coef=coef[support], mean_coef=mean[support] if len(mean) else mean)
    return replace(fit, walk=walk, support=rows[np.flatnonzero(support)])


def _judge(
    fit: SgdFit, held_out: Piece | None, width: int, support: Any
) -> Callable[[sgd.Walk], float] | None:
    """Return a function for the accuracy or R² of the current coefficients on held-out rows."""
    if held_out is None:
        return None
    read, y, w = _reader(fit, held_out.X, width, support), held_out.y, held_out.w
    parts = [*slices(len(w), block_rows(width, 256))]

    def score(walk: sgd.Walk) -> float:
        coef, intercept = walk.result
        f = np.concatenate([read(rows) @ coef for rows in parts]) + intercept
        if fit.inputs.classes is not None:
            return float(np.average(decide(f) == y, weights=w))
        centred = y.reshape(f.shape) - np.average(y.reshape(f.shape), axis=0, weights=w)
        residual, total = w @ (y.reshape(f.shape) - f) ** 2, w @ centred**2
        return float(np.mean(1 - residual / np.where(total > 0, total, 1.0)))

    return score


# --- Choosing the kernel and the strategy --------------------------------------------------------


def _start(
    spec: SgdSpec,
    blocks: Blocks,
    rows: Piece,
    inputs: Inputs,
    start: SgdFit | None = None,
    in_pieces: bool = False,
    where: Executor = LOCAL,
) -> SgdFit:
    """Return the fit to continue: ``start`` with the new spec, or a fit before its first step."""
    if start is not None:
        require_alike(spec.caller, blocks, start.target_shape)
        return replace(start, spec=spec, errors=None)
    fit, sample = _begin(spec, blocks, rows, inputs, where)
    if spec.strategy != "auto":
        return _initial_fit(fit, spec.strategy, sample)
    if not in_pieces:
        plan, options = _plan(fit, sample, rows.X, count_rows(blocks))
        return replace(options[plan.best], plan=plan)
    with suppress(UnsupportedKernel):  # exact features if they are few
        exact = _initial_fit(fit, EXACT[0], sample)
        if exact.chosen.map.n_features <= spec.features.width_to_search:
            return exact
    return _initial_fit(fit, STRATEGIES[4], sample)


def _begin(
    spec: SgdSpec, blocks: Blocks, rows: Piece, inputs: Inputs, where: Executor = LOCAL
) -> tuple[SgdFit, RowSample | None]:
    """Return a fit before its first step, with its kernel, and the sample that chose it, if any."""
    features, sample = spec.features, None
    draws = spec.strategy not in (*EXACT, *DUAL)
    open_kernel = not isinstance(features.kernel, Kernel) or has_free(features.kernel)
    if open_kernel or (draws and features.needs_rows):
        n_classes = 0 if inputs.classes is None else len(inputs.classes)
        sample = draw_rows(blocks, features.seed, n_classes, where)
    search = _search(spec, sample)
    first = part(rows, slice(1024))
    size = float(np.average(to_numpy(search.kernel.diag(first.X)), weights=first.w))
    choice = Choice(None, ExactKernel(), (), "The exact kernel.")
    precision: Any = "float32" if rows.X.dtype == np.float32 else "float64"
    shape = () if rows.y is None else tuple(rows.y.shape[1:])
    t = int(np.prod(shape))
    if inputs.classes is not None:
        t = 1 if len(inputs.classes) == 2 else len(inputs.classes)
    zeros, b = np.zeros((0, t)), np.zeros(t)
    walk = sgd.Walk(zeros, b, zeros, b, rate=spec.schedule(size).eta0)
    chosen = Choices(features.seed, search, choice, precision)
    return SgdFit(inputs, spec, chosen, DUAL[0], size, shape, walk), sample


def _initial_fit(fit: SgdFit, name: str, sample: RowSample | None) -> SgdFit:
    """Return a fit before its first step, for the strategy ``name``."""
    chosen, n_inputs = fit.chosen, fit.inputs.n_columns
    if name in EXACT:
        try:
            phi = exact_map(chosen.kernel, n_inputs)
        except UnsupportedKernel as error:
            if fit.spec.strategy == "auto":
                raise
            raise UnsupportedKernel(
                f"{fit.spec.caller}: strategy={name!r} requires a kernel with finitely many exact "
                f"features: {error} Use strategy='gram_cached' or 'kernel_on_the_fly' for the "
                "exact kernel, 'approximate_cached' for approximate features."
            ) from error
        choice = Choice(phi, Explicit(), (), "The exact features of the kernel.")
        chosen = replace(chosen, choice=choice)
    elif name not in DUAL:
        features = fit.spec.features
        choice = choose_map(features, chosen.kernel, n_inputs, sample, None, None, True)
        chosen = replace(chosen, choice=choice)
    return replace(fit, strategy=name, chosen=chosen)


def _plan(
    fit: SgdFit, sample: RowSample | None, X: Array, n: int
) -> tuple[StrategyPlan, dict[str, SgdFit]]:
    """Return the plan, by the formulas of :meth:`SgdEstimator.plan`, and a fit per strategy."""
    spec, options, costs = fit.spec, dict[str, SgdFit](), list[StrategyCost]()
    epochs = spec.max_iter if spec.tol is None else min(spec.max_iter, USUAL_EPOCHS)
    d, item = X.shape[1], X.dtype.itemsize
    t, batch = len(fit.walk.intercept), min(spec.batch_size, n)
    for name, cached in zip(STRATEGIES[::2], CACHED, strict=True):
        try:
            option = _initial_fit(fit, name, sample)
        except UnsupportedKernel as error:
            costs += [StrategyCost(strategy, refusal=str(error)) for strategy in (name, cached)]
            continue
        options |= {name: option, cached: replace(option, strategy=cached)}
        width = n if option.is_dual else option.chosen.map.n_features
        features = 0 if name in (*EXACT, *DUAL) else 8 * d * width
        at_hand = item * width * min(n, block_rows(width, batch))
        memory, values = 8 * width * t + features + at_hand, n * width * (30 + d / 4)
        steps = n * epochs * 4 * width * t
        costs.append(StrategyCost(name, width, epochs * values + steps, memory))
        costs.append(StrategyCost(cached, width, values + steps, memory + item * n * width))
    task = f"{n:,} rows of {d:,} columns, {t} outputs, {epochs} epochs in batches of {batch}"
    return StrategyPlan(task, checks.free_bytes() // 2, tuple(costs)), options


def _search(spec: SgdSpec, sample: RowSample | None) -> Tuning:
    """Return the kernel, of a name at the best lengthscale for a penalty that steps resolve."""
    # T steps with η ≈ ½ resolve eigenvalues of K/n above 1/(ηT), as a penalty of this size does
    params = spec.features
    if isinstance(params.kernel, Kernel):
        return tune_loo(params.kernel, sample, params.seed, share=spec.alpha)
    rows = as_sample(sample)
    distinct = len(np.unique(row_marks(rows.X, params.seed)))  # copies do not count
    share = max(spec.alpha, 2 / max(1.0, USUAL_EPOCHS * distinct / spec.batch_size))
    return choose_kernel(params.kernel, rows, params.seed, share, None, params.effort or "medium")


@parameters
class SgdEstimator(Differentiable):
    """An estimator whose ``fit_`` is a :class:`SgdFit`."""

    _losses = sgd.CLASS_LOSSES

    strategy: str = "auto"
    method: Method | str = "auto"
    n_features: int = 1024
    alpha: float = 1e-4
    fit_intercept: bool = True
    batch_size: int = 32
    eta0: float | str = "auto"
    average: bool | int = False
    max_iter: int = 1000
    tol: float | None = 1e-3
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    shuffle: bool = True
    warm_start: bool = False
    random_state: Seed = None
    n_jobs: int | None = None

    def _spec(self, start: SgdFit | None = None, **changes: Any) -> SgdSpec:
        """Return the checked parameters, with the seed of the fit ``start`` if it continues."""
        if start is not None:
            changes["random_state"] = start.chosen.seed
        parameters = vars(self) | changes
        return SgdSpec.of(type(self).__name__, self._losses, parameters)

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any) -> SgdFit:
        """Return the fit to rows in memory; with ``warm_start`` it continues the last fit."""
        start = self.fit_ if self.warm_start and self.__sklearn_is_fitted__() else None
        blocks, inputs = self._read(X, y, sample_weight, first=start is None)
        return self._run(partial(fit_sgd, self._spec(start)), blocks, inputs, start)

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> SgdFit:
        n = blocks.n_rows
        if where is LOCAL and n is not None and n <= cached_rows(blocks.n_columns):
            return fit_sgd(self._spec(), blocks, inputs)
        return fit_stream(self._spec(), blocks, inputs, where)

    def _update(self, blocks: Blocks, inputs: Inputs) -> SgdFit:
        start = vars(self).get("fit_")
        return add_rows(start, self._spec(start), blocks, inputs)

    _first_piece = _update

    def plan(self, X: Tabular, y: Array | None = None) -> StrategyPlan:
        """Return the predicted cost of each of the six strategies for a fit to these rows.

        Parameters
        ----------
        X : (n, d)
        y : (n,) or (n, t), optional
            Without y, one output is assumed.

        Returns
        -------
        StrategyPlan
            ``print`` shows the table; a star marks the strategy that "auto" chooses.

        Notes
        -----
        A feature or kernel value takes c = 30 + d/4 operations. Let T = n·epochs, and t the number
        of outputs. Features on the fly take T D (c + 4 t) operations; cached features take n D c +
        4 T D t, and n D numbers in memory. Kernel values on the fly take T n (c + 4 t); the cached
        kernel matrix takes n² c + 4 T n t, and n² numbers in memory.
        """
        blocks, inputs = KernelEstimator._read(self, X) if y is None else self._read(X, y)
        spec = self._spec(strategy="auto", random_state=deepcopy(self.random_state))
        rows = _gather(spec, blocks, has_targets=False)
        return _plan(*_begin(spec, blocks, rows, inputs), rows.X, count_rows(blocks))[0]

    def _fit_on(self, *, rows: bool) -> SgdFit:
        """Return the fit; raise an error unless its coefficients belong to rows, or features."""
        fit = self._fitted
        if fit.is_dual != rows:
            owner = "rows: dual_coef_ of support_vectors_" if fit.is_dual else "features: coef_"
            raise AttributeError(
                f"{type(self).__name__}: with strategy {fit.strategy!r} coefficients belong to "
                f"{owner}."
            )
        return fit

    def _ridge_penalty(self, X: Any, n: int) -> float:
        return float(self.alpha) * n / 2  # alpha is relative to the mean loss

    plan_ = getter(
        "plan",
        'A StrategyPlan: the costs from which "auto" chose the strategy.',
        'plan_: only fit with strategy="auto" makes a plan.',
    )

    @property
    def map_(self) -> FeatureMap:
        """Feature map φ, of a strategy with features."""
        return self._fit_on(rows=False).chosen.map

    @property
    def support_vectors_(self) -> Float[Array, "m d"]:
        """Rows to which ``dual_coef_`` belongs, (m, d), of a strategy with kernel values."""
        return self._fit_on(rows=True).support

    @property
    def coef_(self) -> Any:
        """Coefficients β, one row per output: (t, D) or (K, D); (D,) for a single target."""
        return self._squeeze(self._fit_on(rows=False).walk.result[0].T)

    @property
    def dual_coef_(self) -> Any:
        """Coefficients of ``support_vectors_``: (m,) for one target, else (t, m) or (K, m)."""
        return self._squeeze(self._fit_on(rows=True).walk.result[0].T)

    @property
    def intercept_(self) -> Any:
        """Intercept of each output; a number for a single target."""
        return self._squeeze(self._fitted.walk.result[1])

    strategy_ = getter("strategy", "The strategy of the fit.")
    loss_curve_ = getter(
        "losses", "Mean loss of each epoch of the last fit, computed before each step."
    )
    validation_scores_ = getter("scores", "Score on held-out rows after each epoch.")
    t_ = getter("walk.steps", "Total number of steps.")

    @property
    def n_iter_(self) -> int:
        """Number of epochs of the last fit."""
        return len(self._fitted.losses)


@estimator
class KernelSGDClassifier(LabelEstimator, SgdEstimator):
    """Linear classification on a kernel's features by stochastic gradient descent.

    Minimises Σ wᵢ ℓ(yᵢ, f(xᵢ))/Σ wᵢ + (alpha/2) ‖β‖² over f = φ(x)·β + b, y = ±1, for each class
    against the others, by steps on batches of rows in random order.

    Parameters
    ----------
    %(kernel of rows)s
    loss : {"hinge", "squared_hinge", "log_loss", "modified_huber", "perceptron"}, default "hinge"
        Loss ℓ, with the scale of scikit-learn.
    learning_rate : {"optimal", "constant", "invscaling", "adaptive"}, default "optimal"
        Step size at step s: "optimal": 1/(alpha (t0 + s)), t0 by Bottou (2012); "constant": eta0;
        "invscaling": eta0/s^power_t; "adaptive": eta0, divided by 5 when the loss stops falling.
    power_t : float, default 0.5
        Exponent of "invscaling".
    %(descent)s

    See Also
    --------
    LogisticRegression : The minimum of a logistic loss, by Newton steps.
    KernelSGDRegressor : Regression by stochastic gradients.

    Notes
    -----
    Probabilities are 1/(1 + e^{−f}) with the logistic loss, and (min(max(f, −1), 1) + 1)/2 with the
    modified Huber loss (Zhang 2004), divided by their sum over the classes.

    Time and memory: see :meth:`plan`. With ``partial_fit`` features take O(D) memory for any number
    of rows; with kernel values memory grows with the number of rows. With more than 8192 rows
    ``fit_blocks`` uses features, and shuffles in windows of 8192 rows: shuffle sorted rows first.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelSGDClassifier
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> ring = (X**2).sum(axis=1) > 1.5
    >>> model = KernelSGDClassifier(strategy="approximate_cached", random_state=0).fit(X, ring)
    >>> bool(model.score(X, ring) > 0.95)
    True
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str = "hinge"
    learning_rate: str = "optimal"
    power_t: float = 0.5
    class_weight: Any = None

    def partial_fit(
        self, X: Tabular, y: Array, classes: Array | None = None, sample_weight: Array | None = None
    ) -> Self:
        """Continue the descent by one epoch over these rows.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.
        classes : (K,), optional
            All labels of all calls. Required in the first call unless its y has all labels.

        Notes
        -----
        The first call chooses lengthscale, map and strategy from its rows. "auto" is then a
        strategy on the fly, with exact features if there are at most n_features of them.
        """
        if self.class_weight == "balanced":
            raise InvalidInput(
                "KernelSGDClassifier.partial_fit: class_weight='balanced' requires all rows at "
                "once; pass a dict of class: weight."
            )
        return self._add_rows(X, y, sample_weight, classes=classes)

    @property
    def _lacks_probabilities(self) -> str:  # type: ignore[override]
        required = f"require loss='log_loss' or 'modified_huber'; got loss={self.loss!r}."
        return "" if self.loss in ("log_loss", "modified_huber") else required

    def _probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        xp = array_namespace(f)
        if self.loss == "log_loss":
            p = xp.exp(xp.minimum(f, 0.0)) / (1.0 + xp.exp(-xp.abs(f)))  # does not overflow
        else:
            p = (xp.clip(f, -1.0, 1.0) + 1.0) / 2.0
        if p.shape[1] == 1:
            return xp.concat([1.0 - p, p], axis=1)
        total = xp.sum(p, axis=1, keepdims=True)
        zero = total == 0.0
        return xp.where(zero, 1.0, p) / xp.where(zero, float(p.shape[1]), total)

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(f))


@estimator
class KernelSGDRegressor(IntervalRegressor, SgdEstimator):
    """Linear regression on a kernel's features by stochastic gradient descent.

    Minimises Σ wᵢ ℓ(yᵢ, f(xᵢ))/Σ wᵢ + (alpha/2) ‖β‖² over f = φ(x)·β + b, by steps on batches of
    rows in random order; several targets share the steps.

    Parameters
    ----------
    %(kernel of rows)s
    loss : str, default "squared_error"
        "squared_error" ((y − f)²/2), "huber", "epsilon_insensitive",
        "squared_epsilon_insensitive" or "quantile".
    epsilon : float, default 0.1
        "huber": |y − f| above which the slope is constant. Insensitive losses: |y − f| up to which
        the loss is zero.
    quantile : float, default 0.5
        Level of the "quantile" loss, between 0 and 1.
    learning_rate : {"optimal", "constant", "invscaling", "adaptive"}, default "invscaling"
        Step size, as in :class:`KernelSGDClassifier`; "invscaling" is eta0/s^power_t at step s.
    power_t : float, default 0.25
        Exponent of "invscaling".
    %(descent)s

    See Also
    --------
    KernelRegressor : The minimum of any convex loss, by Newton steps.
    KernelSGDClassifier : Classification by stochastic gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelSGDRegressor(alpha=0, tol=None, max_iter=50, random_state=0)
    >>> bool(model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    _losses = sgd.NUMBER_LOSSES

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str = "squared_error"
    learning_rate: str = "invscaling"
    power_t: float = 0.25
    epsilon: float = 0.1
    quantile: float = 0.5

    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Continue by one epoch over these rows; see :meth:`KernelSGDClassifier.partial_fit`."""
        return self._add_rows(X, y, sample_weight)
