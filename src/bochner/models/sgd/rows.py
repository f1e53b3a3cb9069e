"""What both SGD estimators settle before the first step: parameters, rows, kernel, strategy."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import (
    finite,
    free_bytes,
    integer,
    nonnegative,
    one_of,
    positive,
)
from bochner._core.random import seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.sources import Block
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import FeatureMap
from bochner.features.draw import as_method, exact_map
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._engine import as_features
from bochner.models._inputs import indicators
from bochner.models._state import INPUTS, forget
from bochner.models.sgd.strategies import (
    DUAL,
    EXACT,
    STRATEGIES,
    SgdTask,
    block_rows,
    plan_strategies,
)
from bochner.selection.search import LengthscaleSearch, as_kernel, choose_lengthscale
from bochner.solvers.sgd import Descent

#: Epochs that a plan reckons with where the loss decides.
USUAL_EPOCHS = 20

#: Rows that the mean of k(x, x) is taken over.
SIZE_ROWS = 1024

RATES = ("constant", "optimal", "invscaling", "adaptive")


class Rows(NamedTuple):
    """Rows in memory: X (n, d) NumPy or CSR; y (n,) or (n, t) as given or coded; w (n,) > 0."""

    X: Any
    y: Any
    w: Any

    def take(self, index: Array) -> "Rows":
        """Return these rows."""
        return Rows(self.X[index], None if self.y is None else self.y[index], self.w[index])


# --- Checks --------------------------------------------------------------------------------------


def check(model: Any, losses: tuple[str, ...]) -> None:
    """Refuse parameters that are not what is required."""
    who = type(model).__name__
    one_of(model.loss, who, "loss", losses)
    one_of(model.learning_rate, who, "learning_rate", RATES)
    one_of(model.strategy, who, "strategy", ("auto", *STRATEGIES))
    for name in ("batch_size", "max_iter", "n_features", "n_iter_no_change"):
        integer(getattr(model, name), who, name, 1)
    alpha = nonnegative(model.alpha, who, "alpha")
    if model.learning_rate == "optimal" and alpha == 0:
        raise InvalidInput(
            f"{who}: learning_rate='optimal' requires alpha above zero, for its rates are "
            "1/(alpha (t0 + t)); got 0. Take another schedule, or a penalty."
        )
    if model.eta0 != "auto":
        positive(model.eta0, who, "eta0")
    finite(model.power_t, who, "power_t")
    if model.tol is not None:
        nonnegative(model.tol, who, "tol")
    if positive(model.validation_fraction, who, "validation_fraction") >= 1:
        raise InvalidInput(
            f"{who}: validation_fraction must be between 0 and 1; got {model.validation_fraction}."
        )


# --- Rows ----------------------------------------------------------------------------------------


def gathered(model: Any, blocks: Blocks) -> Rows:
    """Return all rows of positive weight of blocks, as NumPy or CSR, in float64 but for X."""
    rows = rows_of(next(iter(blocks.with_rows(_engine.count_rows(blocks)))))
    if not len(rows.w):
        raise no_weight(model)
    return rows


def no_weight(model: Any) -> InvalidInput:
    """Return the refusal of rows that all weigh nothing."""
    return InvalidInput(
        f"{type(model).__name__}: at least one row must have a weight above zero; all are zero."
    )


def rows_of(block: Block) -> Rows:
    """Return the rows of positive weight of a block."""
    X = block.X if is_sparse(block.X) else to_numpy(block.X)
    w = np.ones(X.shape[0]) if block.w is None else to_numpy(block.w).astype(np.float64)
    rows = Rows(X, None if block.y is None else to_numpy(block.y).astype(np.float64), w)
    return rows if w.all() else rows.take(np.flatnonzero(w))


def targets(model: Any, y: Array) -> Float[Array, "n t"]:
    """Return −1 and +1 of classes, or numbers, one column an output."""
    if hasattr(model, "classes_"):
        return indicators(y, len(model.classes_))
    return y.reshape(len(y), -1)


def _task(model: Any, n: int, X: Array, t: int) -> SgdTask:
    """Return what a plan needs to know."""
    epochs = model.max_iter if model.tol is None else min(model.max_iter, USUAL_EPOCHS)
    return SgdTask(n, X.shape[1], t, epochs, min(model.batch_size, n), np.dtype(X.dtype).itemsize)


# --- Choices -------------------------------------------------------------------------------------


def choose(
    model: Any, blocks: Blocks, rows: Rows, t: int, streaming: bool = False
) -> FeatureMap | None:
    """Choose the kernel's lengthscale, the strategy and its map, where they are open.

    Returns the approximate map, if one was drawn.
    """
    forget(model, but=INPUTS)
    kernel, method = as_kernel(model.kernel), as_method(model.method)
    model.seed_ = seed_of(model.random_state)
    model.feature_dtype_ = "float32" if rows.X.dtype == np.float32 else "float64"
    sample = _sample(model, blocks, kernel, method)
    if isinstance(kernel, Kernel):
        model.search_ = LengthscaleSearch(kernel)
    elif sample is not None:
        share = _share(model, sample)
        model.search_ = choose_lengthscale(kernel, sample, model.n_features, model.seed_, share)
    model.kernel_ = model.search_.kernel
    w = None if rows.w is None else rows.w[:SIZE_ROWS]
    model.size_ = float(np.average(to_numpy(model.kernel_.diag(rows.X[:SIZE_ROWS])), weights=w))
    return _choose_strategy(model, blocks, rows, t, sample, streaming)


def choose_for_stream(model: Any, blocks: Blocks, t: int) -> None:
    """Choose for rows that are never all in memory, and count them."""
    _refuse_memory(model)
    block = next(iter(blocks))
    rows = Rows(block.X if is_sparse(block.X) else to_numpy(block.X), None, None)
    choose(model, blocks, rows, t, streaming=True)
    model.seen_, model.weight_ = _counted(model, blocks)
    size = np.dtype(model.feature_dtype_).itemsize * model.seen_ * model.map_.n_features
    if model.strategy == "auto" and size <= free_bytes() // 2:
        model.strategy_ = model.strategy_.replace("on_the_fly", "cached")


def _refuse_memory(model: Any) -> None:
    who = type(model).__name__
    if model.strategy in DUAL:
        raise InvalidInput(
            f"{who}.fit_blocks: strategy={model.strategy!r} holds all rows, in memory; take a "
            "strategy of features, or fit(X, y)."
        )
    if model.early_stopping:
        raise InvalidInput(
            f"{who}.fit_blocks: early_stopping=True holds rows out in memory; stop by the loss "
            "(early_stopping=False), or fit(X, y)."
        )


def _counted(model: Any, blocks: Blocks) -> tuple[int, float]:
    weights = [rows_of(block).w for block in blocks]
    count, weight = sum(map(len, weights)), float(sum(w.sum() for w in weights))
    if not count:
        raise no_weight(model)
    return count, weight


def _share(model: Any, sample: RowSample) -> float:
    """Return the penalty a row that lengthscales are compared at.

    Steps reach directions of eigenvalue λ of K/n after 1/(ηλ) of them, so that T steps are as a
    penalty of 1/(ηT): a lengthscale that needs a smaller one is out of their reach. η is about ½.
    """
    steps = max(1.0, USUAL_EPOCHS * _different(sample.X, model.seed_) / model.batch_size)
    return max(float(model.alpha), 2 / steps)


def _different(X: Array, seed: int) -> int:
    """Return the number of different rows: copies count like weights, which is to say not."""
    v = stream(seed, "different").standard_normal(X.shape[1])
    return len(np.unique(X @ v if is_sparse(X) else (X * v).sum(axis=1)))


def _sample(model: Any, blocks: Blocks, kernel: Kernel | str, method: Any) -> RowSample | None:
    draws = model.strategy not in (*EXACT, *DUAL)
    if not (isinstance(kernel, str) or (draws and _engine.needs_rows(kernel, method))):
        return None
    return _engine.presample(blocks, model.seed_, len(getattr(model, "classes_", ())))


def _choose_strategy(
    model: Any, blocks: Blocks, rows: Rows, t: int, sample: RowSample | None, streaming: bool
) -> FeatureMap | None:
    d, model.strategy_ = blocks.n_columns, model.strategy
    if model.strategy in EXACT:
        model.map_ = _exact(model, d)
    if model.strategy in (*EXACT, *DUAL):
        return None
    exact = exact_or_reason(model.kernel_, d) if model.strategy == "auto" else ""
    if streaming and model.strategy == "auto":
        model.strategy_ = STRATEGIES[4]
        if not isinstance(exact, str) and exact.n_features <= model.n_features:
            model.strategy_, model.map_ = EXACT[0], exact
            return None
    if model.strategy_ != "auto":
        return _draw(model, d, sample)
    drawn = _drawn_or_reason(model, d, sample)
    _follow_plan(model, blocks, rows, t, exact, drawn)
    return None if isinstance(drawn, str) else drawn


def _follow_plan(
    model: Any, blocks: Blocks, rows: Rows, t: int, exact: FeatureMap | str, phi: FeatureMap | str
) -> None:
    task = _task(model, _engine.count_rows(blocks), rows.X, t)
    model.plan_ = plan_strategies(task, rows.X, model.kernel_, exact, phi)
    model.strategy_ = model.plan_.best
    if model.strategy_ in (*EXACT, *DUAL):
        for name in ("choice_", "map_"):
            model.__dict__.pop(name, None)
    if model.strategy_ in EXACT:
        model.map_ = exact


def _drawn_or_reason(model: Any, d: int, sample: RowSample | None) -> FeatureMap | str:
    try:
        return _draw(model, d, sample)
    except UnsupportedKernel as refused:
        return str(refused)


def _draw(model: Any, d: int, sample: RowSample | None) -> FeatureMap:
    recipe = _engine.prepare(
        model.kernel_, as_method(model.method), model.n_features, d, sample, model.seed_
    )
    model.map_, model.choice_ = recipe.map, recipe.choice
    return recipe.map


def _exact(model: Any, d: int) -> FeatureMap:
    try:
        return exact_map(model.kernel_, d)
    except UnsupportedKernel as refused:
        raise UnsupportedKernel(
            f"{type(model).__name__}: strategy={model.strategy!r} requires a kernel with finitely "
            f"many features of its own: {refused} Take strategy='gram_cached' or "
            "'kernel_on_the_fly' for the kernel itself, 'approximate_cached' for its approximation."
        ) from refused


def exact_or_reason(kernel: Kernel, d: int) -> FeatureMap | str:
    """Return the kernel's own features, or why there are none."""
    try:
        return exact_map(kernel, d)
    except UnsupportedKernel as refused:
        return str(refused)


# --- What a descent reads of the rows: features or kernel values, on the fly or kept -------------


class FeatureRows:
    """Rows as features.

    Parameters
    ----------
    phi : FeatureMap
    dtype : {"float32", "float64"}
    X : (n, d)
    cached : bool
        Whether all features are computed now and kept.
    """

    def __init__(self, phi: FeatureMap, dtype: str, X: Array, cached: bool) -> None:
        self._map, self._dtype, self._X = phi, dtype, X
        self.n_coef, self.first = phi.n_features, 0
        self._Z = None
        if cached:
            self._Z = np.empty((X.shape[0], phi.n_features), dtype)
            for rows in _blocks(X.shape[0], phi.n_features):
                self._Z[rows] = as_features(phi, X[rows], dtype)

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        if self._Z is not None:
            Z = self._Z[index]
        else:
            Z = as_features(self._map, self._X[index], self._dtype)
        descent.on_features(Z, y, w)

    def values(self, coef: Float[Array, "D t"]) -> Float[Array, "n t"]:
        """Return φ(X) β of all rows."""
        n = self._X.shape[0]
        if self._Z is not None:
            return self._Z @ coef
        parts = (
            as_features(self._map, self._X[rows], self._dtype) for rows in _blocks(n, self.n_coef)
        )
        return np.concatenate([Z @ coef for Z in parts])


class KernelRows:
    """Rows as kernel values with all rows that coefficients may be on.

    Parameters
    ----------
    kernel : Kernel
    before : (m, d) or None
        Rows that have coefficients already.
    X : (n, d)
        Rows to step on; they get the coefficients after those.
    cached : bool
        Whether all kernel values are computed now and kept.
    """

    def __init__(self, kernel: Kernel, before: Array | None, X: Array, cached: bool) -> None:
        self._kernel = kernel
        self.first = 0 if before is None else before.shape[0]
        self.all = X if before is None else below(before, X)
        self.n_coef = self.all.shape[0]
        self._K = None
        if cached:
            self._K = np.empty((X.shape[0], self.n_coef), X.dtype)
            for rows in _blocks(X.shape[0], self.n_coef):
                self._K[rows] = to_numpy(kernel(X[rows], self.all))

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        own = self.first + index
        if self._K is not None:
            descent.on_kernels(self._K[index], y, w, slice(None), own)
            return
        # A row that has had no step yet has the coefficient zero: its kernel values are not needed.
        used = descent.walk.support
        used[own] = True
        columns = np.flatnonzero(used)
        there = self.all if len(columns) == self.n_coef else self.all[columns]
        K = to_numpy(self._kernel(self.all[own], there))
        descent.on_kernels(K, y, w, columns, np.searchsorted(columns, own))


def below(A: Array, B: Array) -> Array:
    """Return the rows of A and then those of B."""
    if is_sparse(A) or is_sparse(B):
        return scipy.sparse.vstack([A, B], format="csr")
    return np.concatenate([A, B])


def _blocks(n: int, width: int) -> Any:
    size = block_rows(width, 256)
    return (slice(start, start + size) for start in range(0, n, size))
