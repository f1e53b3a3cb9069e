"""Ridge regression with the exact kernel: of all rows, or within leaves of a tree.

Few rows are solved directly. More rows are solved by conjugate gradients, with features as
preconditioner; a fit on the features chooses the penalty. Alternatively rows are split into leaves
of neighbouring rows, each with a kernel matrix, and coupled through landmarks
(:mod:`bochner.solvers.ridge.groups`) in O(n) time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, ClassVar, cast

import numpy as np

from bochner._core import native
from bochner._core.arrays import dense, is_sparse, slices, to_numpy, unit_of
from bochner._core.progress import progress
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Int
from bochner._core.sizes import SMALL, cached_rows, prefers_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather, sample_rows
from bochner.features.auto import Choice
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.rules import draw_map
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.distances import overflow
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel, Scaled
from bochner.kernels.stationary import Compilable
from bochner.models._labels import Calibration, calibrate_signs
from bochner.models._rows import KernelSum
from bochner.models.error_law import LEFT_OUT_ROWS, HeldOutRows
from bochner.models.representations.features import FeatureSums
from bochner.models.representations.modes import GridSums, as_rows, chosen_grid_sums
from bochner.models.representations.representation import (
    ExactKernel,
    LocalKernel,
    Representation,
    RidgeSpec,
    chosen_exactly,
    lacks_of_kernel,
    with_seasons,
    without_copies,
)
from bochner.selection import neighbourhoods
from bochner.selection.choices import Choices, Function
from bochner.selection.choose import choose, choose_for_matrix
from bochner.selection.modes import modes_for
from bochner.selection.record import Curves, Tuning
from bochner.solvers.cg import TILE, KernelOperator, KernelTerms
from bochner.solvers.factorisations import FLOAT32_PENALTY, retry
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.eigen import solve_ridge
from bochner.solvers.ridge.groups import ReducedGroup, reduce_rows, solve_shared
from bochner.solvers.ridge.kernel_path import DENSE_FOR_LOSS, PENALTY_ROWS, solve_kernel
from bochner.solvers.ridge.krylov import ShiftedSystems, low_rank_inverse, solve_kernel_systems
from bochner.solvers.ridge.problem import TINY, left_out_errors
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.moments import Accumulator, Precision
from bochner.sums.passes import LOCAL, Executor

#: Number of rows of a local fit with leave-one-out errors, which take a tenth of its time.
LEAVES_LEFT_OUT = 2048

#: Largest number of rows of a stored kernel matrix; largest number of terms of a kernel, and of
#: their columns, without a stored matrix (five products then take as long as storing the matrix).
STORED_ROWS, MAX_TERMS, MAX_COLUMNS = 2048, 3, 32

#: The kernel chosen on a sample of rows, the transformations of columns, and the sample.
Candidate = tuple[Tuning, Any, RowSample]


# --- Kernel ridge regression with the exact kernel ------------------------------------------------
#
# With A = √w K √w, projected orthogonally to √w if there is an intercept, the model is
# f(x) = Σ_i c_i k(x, x_i) + b, c = √w u, (A + alpha I)u = √w y: it minimises
# Σ w_i (y_i − f(x_i))² + alpha |f|² over the RKHS of the kernel.


@dataclass(frozen=True, eq=False)
class MatrixRows(Representation):
    """All rows of a fit with their kernel matrix."""

    chosen: Choices  # Its map is the preconditioner, or the Nyström map on all rows if few
    target_shape: tuple[int, ...]
    rows: int
    fit_intercept: bool
    X: Any
    # Targets and weights, for a fit with features when further rows are added
    y: Any = None
    w: Any = None
    unit: float = 1.0  # Unit of weights in which no row has a weight above one

    lacks: ClassVar[Mapping[str, str]] = lacks_of_kernel("an exact fit")

    block_rows = TILE

    def values(self, solution: Any) -> KernelSum:
        return KernelSum(self.chosen.kernel, self.X, solution.coef, solution.intercept)

    def left_out(self, solution: Solution) -> HeldOutRows | None:
        """Return at most 4096 rows with leave-one-out predictions; None without stored targets."""
        # The random rows come last, as the last block of a Cholesky factor.
        if self.y is None:
            return None
        n, m = len(self.w), min(len(self.w), LEFT_OUT_ROWS)
        index = sample_rows(self.chosen.seed, n, m)
        order = np.concatenate([np.setdiff1d(np.arange(n), index), index])
        y, w, X = self.y[order], self.w[order], self.X[order]
        rows = KernelRows(matrix_of(self.chosen.kernel, X), y, w / self.unit, self.fit_intercept)
        errors, last = rows.solve(solution.alpha / self.unit, m).left_out, slice(n - m, None)
        return HeldOutRows(X[last], y[last] - errors, errors, w[last], "leave one out")

    def refit(
        self, spec: RidgeSpec, solution: Solution, y: Array, w: Array
    ) -> tuple["MatrixRows", Solution]:
        spec, rows = replace(spec, alpha=solution.alpha), RowSample(self.X, y, w, w)
        return self, _solve_cg(spec, self.chosen, rows)

    def calibration(self, solution: Solution) -> Calibration | None:
        return None if self.y is None else _calibrate(solution, self.y, self.w)


def _calibrate(solution: Solution, y: Array, w: Array) -> Calibration | None:
    """Return the calibration of probabilities by leave-one-out values; None if slacks are None."""
    if solution.slack is None:
        return None
    residual = solution.alpha * solution.coef / w[:, None]
    return calibrate_signs(y - left_out_errors(residual, solution.slack), y, w)


def exact_rows(
    spec: RidgeSpec, method: ExactKernel, blocks: Blocks, where: Executor = LOCAL
) -> tuple[MatrixRows, Solution]:
    """Return rows and solution with the exact kernel: direct, or by conjugate gradients."""
    shape = spec.require_kernel("exact", "compares each row with all others", blocks, where)
    n, seed, centred = blocks.n_rows, spec.features.seed, spec.fit_intercept
    if method.preconditioner is None and n is not None and n <= spec.direct_rows:
        rows, unit = without_copies(spec, gather(blocks, seed))
        tuning, curves = choose_exact_kernel(spec, rows)
        tuning = with_seasons(spec.features, tuning, curves, rows, centred)
        chosen = chosen_exactly(seed, tuning, curves, rows.X, method)
        order = rows.order if len(rows) > PENALTY_ROWS else np.arange(len(rows))
        solution = _solve(spec, chosen.kernel, rows.take(order), tuning.share)
        matrix = MatrixRows(chosen, shape, n, centred, rows.X, rows.y, rows.w * unit, unit)
        return matrix, solution.in_unit(unit, np.argsort(order))
    width = 1024 if isinstance(spec.features.width, float) else spec.features.width
    features, alpha = replace(spec.features, width=width), spec.given_alpha
    chosen, _ = choose(features, blocks, alpha=alpha, by_targets=False, where=where)
    reason = (
        f"The exact kernel, by conjugate gradients preconditioned with {chosen.map.n_features} "
        f"features of {chosen.choice.method}."
    )
    chosen = replace(chosen, choice=Choice(chosen.map, method, (), reason))
    rows = gather(blocks, seed)
    solution = _solve_cg(spec, chosen, rows)
    return MatrixRows(chosen, shape, count_rows(blocks), centred, rows.X), solution


def _solve(spec: RidgeSpec, kernel: Kernel, rows: RowSample, share: float) -> Solution:
    """Solve with the kernel matrix of rows in random order; ``share`` is a starting penalty/Σw."""
    start = share * float(rows.w[:PENALTY_ROWS].sum())
    K = matrix_of(kernel, rows.X, spec.fit_intercept)
    log_loss = lambda *of_rows: calibrate_signs(*of_rows).log_loss
    solution = solve_kernel(
        KernelRows(K, rows.y, rows.w, spec.fit_intercept),
        spec.alpha,
        per_target=spec.per_target,
        start=start if np.isfinite(start) else None,
        loss=log_loss if spec.features.of_classes else None,
    )
    if not (isinstance(K, KernelTerms) and any(term.loop is None for _, term in K.terms)):
        return solution
    change = (K[:1, :] - kernel.evaluate(rows.X[:1], rows.X)) @ solution.coef
    return replace(solution, intercept=solution.intercept + spec.fit_intercept * change[0])


def choose_exact_kernel(spec: RidgeSpec, rows: RowSample) -> tuple[Tuning, Curves | None]:
    """Return the kernel, chosen also in neighbourhoods, and the transformations of columns."""
    share = spec.share_of(rows)
    shortens, features = share is None and not spec.features.of_classes, spec.features
    tuning, curves = choose_for_matrix(features, rows, share, spec.fit_intercept, shortens=shortens)
    has_search = len(tuning.candidates) > 1 and tuning.matrix is None and not is_sparse(rows.X)
    if has_search and share is None and len(rows) > 4096:
        near_tuning, solution = choose_locally(spec, rows, (tuning, curves, rows))
        if not spec.features.of_classes:
            return near_tuning, curves
        rows = rows if curves is None else replace(rows, X=curves.inputs(rows.X))
        tuning = _minimise_log_loss(spec, rows, tuning, near_tuning, solution)
    return tuning, curves


def _minimise_log_loss(
    spec: RidgeSpec, rows: RowSample, tuning: Tuning, near_tuning: Tuning, solution: Solution
) -> Tuning:
    """Return the kernel of classes with the least leave-one-out log loss on 3072 random rows.

    Candidates are the kernel of the race, simple ones with errors below 1.1 times its error, and
    the kernel chosen in neighbourhoods, whose ``solution`` on the random rows is known.
    """
    subset = rows.take(rows.order[:DENSE_FOR_LOSS])
    chosen = tuning.chosen

    def loss(kernel: Kernel) -> float:
        end = solution if kernel == near_tuning.kernel else None
        fit = _calibrate(end or _solve(spec, kernel, subset, tuning.share), subset.y, subset.w)
        return np.inf if fit is None else fit.log_loss

    is_close = lambda c: chosen and c.rows == chosen.rows and c.error < 1.1 * chosen.error
    simple = [c.kernel for c in tuning.ranked if c.n_tuned <= 1 and is_close(c)]
    kernels = dict.fromkeys([tuning.kernel, *simple, near_tuning.kernel])
    if len(kernels) == 1:
        return tuning
    losses = {k: loss(k) * (0.998 if k == tuning.kernel else 1.0) for k in kernels}
    best = min(losses, key=lambda kernel: losses[kernel])
    if best == near_tuning.kernel:
        return near_tuning
    records = tuple(replace(c, chosen=c.kernel == best) for c in tuning.candidates)
    return replace(tuning, kernel=best, candidates=records)


def _solve_cg(spec: RidgeSpec, chosen: Choices, rows: RowSample) -> Solution:
    """Choose the penalty on features; solve for coefficients of rows by conjugate gradients."""
    # ``lift`` is the weighted mean of K c of the last product; the intercept subtracts it.
    kernel, weight, root = chosen.kernel, float(rows.w.sum()), np.sqrt(rows.w)[:, None]
    method: Any = chosen.choice.method
    centred = spec.fit_intercept
    peak = float(np.sqrt(np.max(kernel.diag(rows.X))))
    alpha, n, D = spec.given_alpha, len(rows), chosen.map.n_features
    sample = rows.lowest(cached_rows(rows.X.shape[1]))
    # float32 if its rounding error of ZZᵀ, whose trace is at most n peak², is far below alpha
    trace = peak**2 * weight
    resolved = alpha is not None and FLOAT32_PENALTY * trace <= alpha and trace <= 1e30
    precisions: tuple[Precision, ...] = "float32", "float64"
    for precision in precisions[prefers_rows(n, D, SMALL) or not resolved :]:
        chosen, total = replace(chosen, precision=precision), Accumulator(precision)
        Z = np.empty((n, D), precision)
        for part in slices(n, chosen.block_rows):
            Z[part] = to_numpy(chosen.precision_map.features(rows.X[part]))
            total.add(Z[part], rows.y[part], rows.w[part])
        sums = FeatureSums(spec.features.caller, chosen, centred, total.moments(), sample, n)
        eigen, pieces, (centre, mean) = sums.check_range().without_copies(spec).decompose()
        rounding = 100 * float(np.finfo(np.float32).eps * eigen.values.max(initial=0.0))
        if alpha is not None and rounding <= alpha:
            break
    Z -= centre
    if len(sample) < n:  # their features are known
        index = np.flatnonzero(rows.priority <= sample.priority.max())
        blocks = (index[part] for part in slices(len(index), TILE))
        pieces = ((Z[i], rows.y[i] - mean, rows.w[i]) for i in blocks)
    solution = solve_ridge(eigen, pieces, (centre, mean), spec.alpha, per_target=spec.per_target)
    Z *= root
    alphas = np.broadcast_to(np.asarray(solution.alpha), mean.shape)
    if rounding <= np.min(alphas):
        Z = Z.astype(np.float32, copy=False)
    operator = _operator(kernel, rows.X)
    lift: Any = 0.0

    def project(V: Array) -> Array:
        return V - root * (root.T @ V / weight) if centred else V

    def multiply(V: Array, precision: str) -> Array:
        nonlocal lift
        products = root * operator.product(root * V, precision)
        lift = centred * (root.T @ products)[0] / weight
        return project(products)

    scale = np.sqrt(eigen.power / eigen.weight) / ((1 + centred) * peak)
    systems = ShiftedSystems(project(root * (rows.y - mean)), alphas, scale)

    def inverse(r: Array, alphas: Array) -> Array:
        return project(low_rank_inverse(Z, eigen.values, eigen.vectors, r, alphas))

    ordered = bool(chosen.map.below_kernel) and Z.dtype == np.float64
    bounds = (1 + centred) * peak, method.tol, method.max_iter, ordered
    iterate = solve_kernel_systems(systems, multiply, operator.single, inverse, *bounds)
    outcome = solution.outcome
    if outcome is not Outcome.CONSTANT_TARGET and np.any(iterate.bound > method.tol):
        outcome = Outcome.NOT_CONVERGED
    elif outcome not in (Outcome.CONSTANT_TARGET, Outcome.EDGE_LOW, Outcome.EDGE_HIGH):
        outcome = Outcome.SOLVED
    return replace(
        solution,
        coef=root * iterate.u,
        intercept=mean - lift,
        outcome=outcome,
        history=iterate.history,
        iterations=iterate.iterations,
    )


def _operator(kernel: Kernel, X: Array) -> KernelOperator:
    """Return the kernel matrix as an operator, by a compiled loop if the kernel has one."""
    fast = native.loops() is not None and not is_sparse(X)
    if fast and isinstance(kernel, Compilable) and (loop := kernel.compiled) is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = (X - X.mean(axis=0)) / np.asarray(kernel.lengthscale)
        if np.isfinite(scaled).all() and not overflow(scaled, scaled):
            tiles = lambda A, B: native.radial(A, B, *loop)
            return KernelOperator(tiles, scaled, stationary=True, loop=loop)
    return KernelOperator(kernel.evaluate, X, stationary=kernel.spectral(X.shape[1]) is not None)


def compiled_terms(kernel: Kernel, X: Array, n: int, centred: bool = False) -> KernelTerms | None:
    """Return the matrix of n rows as radial and linear terms; None if it is stored instead.

    X may be a sample of the n rows. ``centred``: linear kernels are of centred rows, as float32
    factors require. If there is an intercept, only the intercept changes.
    """
    if n <= STORED_ROWS:
        return None
    kernel, X = kernel.unwrap(X)
    parts = [(k.scale, k.kernel) if isinstance(k, Scaled) else (1.0, k) for k in kernel.summands]
    if len(parts) > MAX_TERMS:
        return None
    inner = [part.unwrap(X) for _, part in parts]
    move = lambda k, Z: (k, Z - Z.mean(axis=0)) if centred and isinstance(k, Linear) else (k, Z)
    inner = [move(*pair) for pair in inner]
    terms = [(share, _operator(*pair)) for (share, _), pair in zip(parts, inner, strict=True)]
    columns = sum(term.X.shape[1] for _, term in terms)
    slow = [k for (_, term), (k, _) in zip(terms, inner, strict=True) if not term.loop]
    fast = len(slow) < len(terms) and all(isinstance(k, Linear) for k in slow)
    return KernelTerms(terms) if fast and columns <= MAX_COLUMNS else None


def matrix_of(kernel: Kernel, X: Array, centred: bool = False) -> Any:
    """Return the kernel matrix of rows as an array, or as `KernelTerms`."""
    terms = compiled_terms(kernel, X, X.shape[0], centred)
    return kernel_matrix(kernel, X) if terms is None else terms


@dataclass(frozen=True, eq=False)
class LeafRows(Representation):
    """All rows in the leaves of a tree, and landmarks that couple the leaves."""

    chosen: Choices  # Its map is the Nyström map of the landmarks
    target_shape: tuple[int, ...]
    rows: int
    # Rows, targets and weights of the fit
    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    tree: neighbourhoods.RowTree
    leaf: Int[Array, " n"]  # Leaf of each row
    # Coefficients of the landmarks for each leaf
    landmark_coef: Float[Array, "l D t"]
    held_out: HeldOutRows | None  # Leave-one-out predictions of some rows of every leaf

    lacks: ClassVar[Mapping[str, str]] = lacks_of_kernel("a local fit")

    def left_out(self, solution: Solution) -> HeldOutRows | None:
        return self.held_out

    @property
    def held_out_index(self) -> Int[Array, " p"]:
        """Row numbers of ``held_out``: the same share of each leaf."""
        rng, step = stream(self.chosen.seed, "rows left out"), -(-len(self.X) // LEAVES_LEFT_OUT)
        orders = (rng.permutation(rows) for rows in self._rows_of)
        return np.concatenate([np.sort(order[: -(-len(order) // step)]) for order in orders])

    def refit(
        self, spec: RidgeSpec, solution: Solution, y: Array, w: Array
    ) -> tuple["LeafRows", Solution]:
        kernel, X = self.chosen.kernel.unwrap(self.X)
        leaves, index = self._rows_of, self.held_out_index
        marks = [np.flatnonzero(np.isin(rows, index)) for rows in leaves]
        mean = spec.fit_intercept * (w @ y) / w.sum()
        # A power of two near the largest |y − mean|, so that float32 does not overflow
        unit = np.array([unit_of(m) for m in np.abs(y - mean).max(axis=0)])
        phi: Any = self.chosen.map
        landmarks = self.chosen.kernel.unwrap(phi.landmarks)[1]
        L = phi.root(np.dtype(np.float64))  # L⁻ᵀ: features are k(x, landmarks) L⁻ᵀ

        def values(rows: Int[Array, " m"]) -> Float[Array, "m D"]:  # computed twice, not stored
            return to_numpy(kernel.evaluate(X[rows], landmarks))

        t = y.shape[1]
        alphas = np.broadcast_to(solution.alpha, t)
        coef, intercept = np.empty(y.shape), np.empty(t)
        by_leaf, errors = np.empty((len(leaves), phi.n_features, t)), np.empty(y.shape)
        for alpha in np.unique(alphas):
            targets, reduced = np.flatnonzero(alphas == alpha), list[ReducedGroup]()
            for number, (rows, mark) in enumerate(zip(leaves, marks, strict=True), 1):
                if len(leaves) > 1:
                    progress("Solving leaf", "", number, len(leaves))
                # If a leaf needed float64, all later leaves use it.
                single = reduced[-1].single if reduced else spec.features.precision != "float64"
                residual = (y[np.ix_(rows, targets)] - mean[targets]) / unit[targets]
                group = partial(_matrix, kernel, X[rows]), values(rows) @ L, residual, w[rows]
                solve_group = partial(reduce_rows, *group, single, mark)
                reduced.append(retry(solve_group, float(alpha), TINY))
            rounding = 1e-5 if reduced[-1].single else 1e-12  # relative error of sums of groups
            sums = reduce(add, (group.sums for group in reduced))
            shared = solve_shared(sums, phi.n_features, spec.fit_intercept, rounding)
            u = unit[targets]
            intercept[targets] = u * shared.intercept + mean[targets]
            for leaf, (rows, mark, part) in enumerate(zip(leaves, marks, reduced, strict=True)):
                root = np.sqrt(w[rows])
                c = part.coefficients(shared, root)
                coef[np.ix_(rows, targets)] = u * c
                by_leaf[leaf][:, targets] = u * (L @ (shared.v - L.T @ (values(rows).T @ c)))
                errors[np.ix_(rows[mark], targets)] = u * part.left_out(shared, c, root)
        errors = errors[index]
        fields = self.X[index], y[index] - errors, errors, w[index], "leave one out"
        result = replace(self, y=y, w=w, landmark_coef=by_leaf, held_out=HeldOutRows(*fields))
        return result, replace(solution, coef=coef, intercept=intercept)

    block_rows = 4096

    def values(self, solution: Any) -> Function:
        leaves = [self.machine(leaf, solution) for leaf in range(self.tree.n_leaves)]
        functions = KernelSum.__call__, KernelSum.slopes
        return Function(*(partial(self._leaf_sums, leaves, of) for of in functions))

    def _leaf_sums(self, leaves: list[KernelSum], of: Callable[..., Array], X: Array) -> Array:
        """Return values, or gradients, at rows X by the kernel sum of the leaf of each row."""
        X = as_rows(X)
        leaf = self.tree.leaves(*self.chosen.kernel.unwrap(X))
        parts = [of(leaves[k], X[leaf == k]) for k in np.unique(leaf)]
        return np.concatenate(parts)[np.argsort(np.argsort(leaf, kind="stable"))]

    def machine(self, leaf: int, solution: Any) -> KernelSum:
        """Return the kernel sum of a leaf, over the landmarks and the rows of the leaf."""
        phi, rows = cast("NystromMap", self.chosen.map), self._rows_of[leaf]
        X = np.concatenate([phi.landmarks, self.X[rows]])
        coef = np.concatenate([self.landmark_coef[leaf], solution.coef[rows]])
        return KernelSum(self.chosen.kernel, X, coef, solution.intercept)

    @cached_property
    def _rows_of(self) -> list[Int[Array, " m"]]:
        """Row numbers of each leaf, ascending."""
        order = np.argsort(self.leaf, kind="stable")
        first = np.searchsorted(self.leaf[order], np.arange(1, self.tree.n_leaves))
        return np.split(order, first)


def leaf_rows(
    spec: RidgeSpec, method: LocalKernel, blocks: Blocks, where: Executor
) -> tuple[LeafRows | GridSums, Solution]:
    """Choose the kernel on a sample; solve within leaves, or by Fourier modes if few suffice."""
    shape = spec.require_kernel("local", "splits rows into leaves", blocks, where)
    rows, unit = without_copies(spec, gather(blocks, spec.features.seed))
    rows = replace(rows, X=dense(rows.X))
    start = _candidate(spec, rows)
    if (chosen := _modes(spec, rows, start)) is not None:
        options = spec.features, spec.fit_intercept, chosen
        return chosen_grid_sums(*options, blocks, where).solve(spec)
    seed, (_, curves, sample) = spec.features.seed, start
    tuning, solution = choose_locally(spec, rows, start)
    tuning = with_seasons(spec.features, tuning, curves, rows, spec.fit_intercept)
    kernel = tuning.kernel if curves is None else curves.of(tuning.kernel)
    inner, inputs = kernel.unwrap(rows.X)
    tree, leaf = neighbourhoods.grow(inner, inputs, method.most_in_leaf(len(rows)), seed)
    ask = Request(rows.X.shape[1], method.landmarks_of(len(rows)), seed, X=sample.X)
    phi = draw_map(Nystrom(), kernel, ask)
    reason = (
        f"The exact kernel within each of {tree.n_leaves} leaves of the {len(rows):,} rows, "
        f"and {phi.n_features} landmarks between leaves."
    )
    choice = Choice(phi, method, (), reason)
    chosen = Choices(seed, replace(tuning, kernel=kernel), choice, curves=curves)
    across_leaves = np.empty((tree.n_leaves, 0, rows.y.shape[1]))
    parts = rows.X, rows.y, rows.w, tree, leaf, across_leaves, None
    tree_rows = LeafRows(chosen, shape, count_rows(blocks), *parts)
    result, solution = tree_rows.refit(spec, replace(solution, slack=None), rows.y, rows.w)
    return replace(result, w=rows.w * unit), solution.in_unit(unit)


def choose_locally(spec: RidgeSpec, rows: RowSample, start: Candidate) -> tuple[Tuning, Solution]:
    """Return kernel, scale and solution, chosen on groups of nearest rows among all rows."""
    seed, (tuning, curves, sample) = spec.features.seed, start
    if curves is not None:
        rows, sample = (replace(item, X=curves.inputs(item.X)) for item in (rows, sample))
    dense_sample = spec.features.is_quick and len(sample) == len(rows.w)
    is_open = isinstance(spec.features.kernel, str) and not dense_sample
    options: dict[str, Any] = {"scales": is_open}
    if is_open and tuning.matrix is None:
        options["kernels"] = neighbourhoods.runners_up(tuning)
        if isinstance(spec.alpha, str):  # with a fixed penalty only the scale is chosen
            arguments = rows, sample, seed, spec.fit_intercept
            options["candidates"] = neighbourhoods.tune(tuning, *arguments)
    tuning, solution = neighbourhoods.compare(tuning, rows, seed, **_penalty(spec), **options)
    # Near rows may have one class or one target, which determines no penalty
    unsure = spec.features.of_classes or solution.outcome is Outcome.CONSTANT_TARGET
    if unsure and solution.criterion != "given":
        subset = rows.take(rows.order[:DENSE_FOR_LOSS])
        solution = _solve(spec, tuning.kernel, subset, tuning.share)
    return tuning, solution


def _penalty(spec: RidgeSpec) -> dict[str, Any]:
    return {"centred": spec.fit_intercept, "alpha": spec.alpha, "per_target": spec.per_target}


def local_kernel(spec: RidgeSpec, rows: RowSample) -> Kernel:
    """Return the kernel of a local fit, or of the Fourier modes that replace it."""
    rows = replace(rows, X=dense(rows.X))
    start = _candidate(spec, rows)
    if (chosen := _modes(spec, rows, start)) is not None:
        return chosen.kernel
    tuning, curves = choose_locally(spec, rows, start)[0], start[1]
    return tuning.kernel if curves is None else curves.of(tuning.kernel)


def _matrix(kernel: Kernel, X: Float[Array, "m d"], dtype: Any) -> Float[Array, "m m"]:
    """Return the kernel matrix of rows, Fortran-contiguous, in ``dtype``."""
    # For stationary kernels, centred float32 rows take a quarter of the time.
    if dtype == np.float32 and kernel.spectral(X.shape[1]) is not None:
        X = (X - X.mean(axis=0)).astype(dtype)
    return np.asarray(to_numpy(kernel.evaluate(X, X)).T, dtype, order="F")


def _modes(spec: RidgeSpec, rows: RowSample, start: Candidate) -> Choices | None:
    """Return the Fourier modes of the kernel, rescaled by all rows; None if too many are needed."""
    tuning, curves, sample = start
    grid = lambda kernel: modes_for(kernel, sample.X, len(rows.w))
    as_given = tuning.matrix is None and curves is None
    if not (spec.features.modes and as_given and grid(tuning.kernel)):
        return None
    seed = spec.features.seed
    result, _ = neighbourhoods.compare(tuning, rows, seed, **_penalty(spec))
    modes = grid(result.kernel)
    if modes is None:
        return None
    return Choices(seed, result, modes)


def _candidate(spec: RidgeSpec, rows: RowSample) -> Candidate:
    """Return the kernel chosen on a sample, the transformations of columns, and the sample."""
    sample = rows.lowest(cached_rows(rows.X.shape[1]))
    arguments = spec.share_of(rows), spec.fit_intercept
    return *choose_for_matrix(spec.features, sample, *arguments), sample
