"""Near rows: a tree of leaves, and kernels tuned and compared on neighbourhoods.

Each split of the tree is along the first kernel principal component, estimated from a few rows s_j:
p(x) = Σ_j v_j k(x, s_j). Leaves have about equal numbers of rows.

A small random sample of a long table has no near rows and does not show local structure. Therefore
lengthscales are tuned by the evidence of blocks of near rows (a composite likelihood: Varin, Reid
and Firth (2011), section 2), kernels and scales are compared by leave-one-out errors of rows in the
middle of neighbourhoods, and the penalty is chosen on a few neighbourhoods.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.arrays import to_numpy
from bochner._core.progress import progress
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Int
from bochner.data.sample import RowSample
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Constant, Kernel
from bochner.kernels.stationary import Exponential, Laplace, Radial
from bochner.selection.held_out import reduction
from bochner.selection.lengthscales import EVIDENCE, ProcessRows, ScaleLoss, cap_scales, descend
from bochner.selection.metric import TunedKernel
from bochner.selection.race import LINEAR
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.rows import four_digits, laplace_scales, near_rows, rounded, times
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import solve_kernel
from bochner.solvers.ridge.solution import Outcome, Solution

#: Rows from which a direction is estimated: its component has a quarter of the spread or more.
DIRECTION_ROWS = 64
BATCH_ROWS = 1 << 16  # Rows of one evaluation of p
FIRST_PLACES = 8  # Number of neighbourhoods on which a kernel is tried first

# --- a tree of rows ------------------------------------------------------------------------------


def _component(kernel: Kernel, rows: Array, weights: Array, X: Array) -> Float[Array, " n"]:
    parts = [
        to_numpy(kernel.evaluate(X[start : start + BATCH_ROWS], rows)) @ weights
        for start in range(0, len(X), BATCH_ROWS)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


@dataclass(frozen=True, eq=False)
class RowTree:
    """Splits of the inputs, and the leaves."""

    rows: Float[Array, "s m d"]
    weights: Float[Array, "s m"]
    cuts: Float[Array, " s"]
    children: Int[Array, "s 2"]  # Numbers of further splits; −1 − number for a leaf
    kernel: Kernel | None = None  # k of p(x), if not the kernel of the fit

    def __post_init__(self) -> None:
        # in a damaged file, rows might reach no leaf
        splits = self.children >= 0
        backwards = self.children[splits] <= np.nonzero(splits)[0]
        low, high = -1 - len(self.cuts), len(self.cuts) - 1
        if backwards.any() or not ((low <= self.children) & (self.children <= high)).all():
            raise ValueError("children must be later splits, or leaves that exist")

    @property
    def n_leaves(self) -> int:
        return len(self.cuts) + 1

    def leaves(self, kernel: Kernel, X: Float[Array, "n d"]) -> Int[Array, " n"]:
        """Return the leaf of each row; O(n m) kernel values per level."""
        leaves, kernel = np.zeros(len(X), np.intp), self.kernel or kernel
        waiting = [(0, np.arange(len(X)))] if len(self.cuts) else []
        while waiting:
            number, index = waiting.pop()
            p = _component(kernel, self.rows[number], self.weights[number], X[index])
            side = p >= self.cuts[number]
            for child, rows in zip(self.children[number], (index[~side], index[side]), strict=True):
                if child < 0:
                    leaves[rows] = -1 - child
                elif len(rows):
                    waiting.append((int(child), rows))
        return leaves


def without_linear(kernel: Kernel) -> Kernel:
    """Return the kernel without linear terms, whose values are not largest for near rows."""
    is_linear = lambda term: all(isinstance(leaf, Linear) for leaf, _ in term.leaves(Kernel))
    terms = [term for term in kernel.summands if not is_linear(term)]
    return reduce(add, terms) if 0 < len(terms) < len(kernel.summands) else kernel


def grow(
    kernel: Kernel, X: Float[Array, "n d"], size: int, seed: int
) -> tuple[RowTree, Int[Array, " n"]]:
    """Return a tree of about equal leaves of at most ``size`` rows, and the leaf of each row."""
    rng, leaf, count = stream(seed, "tree"), np.zeros(len(X), np.intp), 0
    original, kernel = kernel, without_linear(kernel)
    splits: list[tuple[Array, Array, float]] = []  # Rows, weights and cut
    children: list[list[int]] = []

    def divide(index: Int[Array, " m"], leaves: int) -> int:
        """Split rows into ``leaves`` leaves; return the split's number, or −1 − i for leaf i."""
        nonlocal count
        if leaves == 1:
            leaf[index] = count
            count += 1
            return -count
        number, half = len(splits), leaves // 2
        rows, weights, cut, first = _split(kernel, X, index, leaves, rng)
        splits.append((rows, weights, cut))
        children.append([0, 0])
        children[number][1] = divide(index[~first], leaves - half)
        children[number][0] = divide(index[first], half)
        return number

    divide(np.arange(len(X)), max(1, -(-len(X) // size)))
    tree = RowTree(
        np.array([rows for rows, _, _ in splits]).reshape(-1, DIRECTION_ROWS, X.shape[1]),
        np.array([weights for _, weights, _ in splits]).reshape(-1, DIRECTION_ROWS),
        np.array([cut for *_, cut in splits]),
        np.array(children, np.intp).reshape(-1, 2),
        None if kernel is original else kernel,
    )
    return tree, leaf


def _split(
    kernel: Kernel, X: Array, index: Int[Array, " m"], leaves: int, rng: np.random.Generator
) -> tuple[Array, Array, float, Array]:
    """Return s_j, v_j and the cut of a split of rows ``index``, and which have p below the cut."""
    sample = X[np.sort(rng.choice(index, DIRECTION_ROWS, replace=len(index) < DIRECTION_ROWS))]
    rows = np.ascontiguousarray(sample, np.float64)
    K = to_numpy(kernel.evaluate(rows, rows))
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    vector = np.linalg.eigh(centred)[1][:, -1]
    weights = vector - vector.mean()
    weights = weights * np.where(weights[np.abs(weights).argmax()] < 0, -1.0, 1.0)
    p = _component(kernel, rows, weights, X[index])
    count = len(index) * (leaves // 2) // leaves
    order = np.argsort(p, kind="stable")
    first = np.zeros(len(index), bool)
    first[order[:count]] = True
    return rows, weights, float(p[order[count - 1]] + p[order[count]]) / 2, first


# --- lengthscales by the evidence of blocks of near rows ----------------------------------------


def tune(
    tuning: Tuning, rows: RowSample, sample: RowSample, seed: int, centred: bool
) -> Iterator[TunedKernel]:
    """Yield kernels whose lengthscales have the largest evidence in blocks of near rows."""
    is_ard = lambda kernel: isinstance(kernel, Radial) and isinstance(kernel.lengthscale, tuple)
    candidates = [c for c in tuning.candidates if is_ard(c.kernel) and c.n_tuned > 1]
    if not candidates:
        return
    best = min(candidates, key=lambda c: c.error)
    start: Any = best.kernel
    # Weight of the linear kernel: four times the variance it explains over the unexplained one
    linear = [c for c in tuning.candidates if c.name == LINEAR and c.error < 2 * best.error]
    linear_terms = [four_digits(4 / min(max(c.error, 1e-3), 0.8) - 4) * c.kernel for c in linear]
    if linear_terms:  # Lengthscales are tuned on residuals of a linear regression
        subset = sample.lowest(2048)
        terms, root = np.insert(subset.X, 0, float(centred), axis=1), np.sqrt(subset.w)[:, None]
        slopes = np.linalg.lstsq(root * terms, root * subset.y)[0][1:]
        rows = replace(rows, y=rows.y - rows.X @ slopes)
    prefix = f"{LINEAR} + " * len(linear_terms)
    blocks = tuple(
        ProcessRows(block.X - block.X.mean(axis=0), block.y[:, varies], block.w, centred)
        for block in map(rows.take, near_rows(start, rows.X, count=24, size=128, seed=seed))
        if np.any(varies := np.ptp(block.y, axis=0) > 0)
    )
    if not blocks:
        return
    process_rows = ProcessRows(sample.X, sample.y, sample.w, centred)
    d = process_rows.X.shape[1]
    x = np.append(np.zeros(d), np.log(0.05 / process_rows.w.sum()))
    first = Exponential(cap_scales(start, process_rows).lengthscale)
    parts = tuple(ScaleLoss(first, rows, EVIDENCE, d) for rows in blocks)
    end = descend(ScaleLoss(first, process_rows, EVIDENCE, d, parts), x, 10)
    kernel, name = end.rounded_kernel, "Exponential, ARD in neighbourhoods"
    laplace = Laplace(rounded(laplace_scales(kernel.lengthscale, sample.X, sample.w, seed)))
    yield TunedKernel(prefix + name, reduce(add, [*linear_terms, kernel]), end.alpha, d)
    name = f"{prefix}Laplace, lengthscales of {name}"
    yield TunedKernel(name, reduce(add, [*linear_terms, laplace]), end.alpha, d)


def scale_lengthscales(kernel: Kernel, factor: float) -> Kernel | None:
    """Return the kernel with all lengthscales times a factor; None if a part has no lengthscale."""
    has = lambda part: not part.parts and "lengthscale" in part.get_params(deep=False)
    if not all(has(leaf) or isinstance(leaf, Constant) for leaf, _ in kernel.leaves(Kernel)):
        return None
    scale = lambda part: part.replace(lengthscale=rounded(times(part.lengthscale, factor)))
    return kernel.rebuild(lambda part, _: scale(part) if has(part) else part)


class LocalTrial(NamedTuple):
    """A kernel, its solution in a few places, and squared leave-one-out errors."""

    kernel: Kernel
    solution: Solution
    losses: Float[Array, " m"]

    @property
    def error(self) -> float:
        return float(self.losses.mean())


def compare(
    tuning: Tuning,
    rows: RowSample,
    seed: int,
    *,
    centred: bool,
    alpha: Any,
    per_target: bool,
    kernels: Iterable[Kernel] = (),
    candidates: Iterable[TunedKernel] = (),
    scales: bool = True,
) -> tuple[Tuning, Solution]:
    """Return the best of the kernel, ``kernels`` and ``candidates``, its scale and solution."""
    places = near_rows(without_linear(tuning.kernel), rows.X, count=32, size=384, seed=seed)
    # A matrix of 8 × 64 rows takes twenty milliseconds per penalty
    subset = rows.take(np.unique(places[:FIRST_PLACES, :64]))
    start = tuning.share * float(subset.w.sum())
    errors: dict[Kernel, float] = {}
    X, y, w = rows.X, rows.y, rows.w
    mean = w @ y / w.sum()
    spread = np.sqrt(w @ (y - mean) ** 2 / w.sum())
    y = (y - centred * mean) / np.where(spread > 0, spread, 1.0)
    places = places[:, ::-1]  # the nearest last
    core = min(32, -(-places.shape[1] // 4))
    weight = w[places[:, -core:]]
    weight = weight / weight.mean()

    def errors_at(kernel: Kernel, alpha: Any, part: slice) -> Float[Array, " m"]:
        """Return squared leave-one-out errors of central rows of places, over the variance of y."""
        squares = np.full(weight[part].shape, np.inf)
        for place, index in enumerate(places[part]):
            problem = KernelRows(kernel_matrix(kernel, X[index]), y[index], w[index], centred=False)
            with suppress(LinAlgError):
                squares[place] = (problem.solve(alpha, core).left_out ** 2).mean(axis=1)
        return (weight[part] * squares).ravel()

    def improve(kernel: Kernel, best: LocalTrial | None) -> LocalTrial | None:
        """Return a trial; None unless its error is lower by 0.5 % and one standard error.

        A kernel that is worse by half a standard error on the first places is not tried on others.
        """
        problem = KernelRows(kernel_matrix(kernel, subset.X), subset.y, subset.w, centred)
        default = start if np.isfinite(start) else None
        first = default if best is None else float(np.min(best.solution.alpha))
        solution = solve_kernel(problem, alpha, per_target=per_target, start=first)
        penalty = (solution.outcome is Outcome.CONSTANT_TARGET and default) or solution.alpha
        trial = LocalTrial(kernel, solution, errors_at(kernel, penalty, slice(FIRST_PLACES)))
        if best is not None:
            same_rows = best._replace(losses=best.losses[: len(trial.losses)])
            gain, required = reduction(same_rows, trial, minimum=0.0, chance=0.5)
            if gain > required:
                errors[kernel] = best.error + trial.error - same_rows.error
                return None
        losses = errors_at(kernel, penalty, slice(FIRST_PLACES, None))
        trial = trial._replace(losses=np.append(trial.losses, losses))
        errors[kernel] = trial.error
        progress("Comparing kernels in neighbourhoods", f"error {errors[kernel]:.4g}")
        if best is None:
            return trial
        gain, required = reduction(trial, best, minimum=0.005, chance=1.0)
        return trial if gain > required else None

    best = cast(LocalTrial, improve(tuning.kernel, None))
    new = [KernelComparison(c.n_tuned, c.kernel, name=c.name) for c in candidates]
    for kernel in (*kernels, *(c.kernel for c in new)):
        best = improve(kernel, best) or best
    chosen = best.kernel
    if scales and not new:  # candidates have lengthscales tuned in neighbourhoods
        best = _tune_scale(best, improve)
    record: dict[str, Any] = {"gain": np.nan, "required": np.nan, "rows": 0}
    record["measure"], records = "error in neighbourhoods", (*tuning.candidates, *new)
    changes = lambda c: {"error": errors[c.kernel], **record} if c.kernel in errors else {}
    comparisons = (replace(c, chosen=c.kernel == chosen, **changes(c)) for c in records)
    return replace(tuning, kernel=best.kernel, candidates=tuple(comparisons)), best.solution


def runners_up(tuning: Tuning) -> list[Kernel]:
    """Return the two best other kernels with errors below 1.5 times the smallest error."""
    records, kernel = tuning.candidates, tuning.kernel
    limit = 1.5 * min((c.error for c in records if c.kernel == kernel), default=np.inf)
    candidates = [c for c in records if c.kernel != kernel and c.error < limit]
    return list(dict.fromkeys(c.kernel for c in sorted(candidates, key=lambda c: c.error)))[:2]


def _tune_scale(best: LocalTrial, improve: Callable[..., LocalTrial | None]) -> LocalTrial:
    """Shorten, or else lengthen, all lengthscales while the error falls: up to 4 steps of √2."""
    start = best.kernel
    for step in (0.5**0.5, 2**0.5):
        factor = 1.0
        for _ in range(4):
            factor *= step
            scaled = scale_lengthscales(start, factor)
            if scaled is None or not (trial := improve(scaled, best)):
                break
            best = trial
        if best.kernel is not start:
            break
    return best
