"""Rows as sums of Fourier modes or spherical harmonics, without features."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from bochner._core.arrays import dense, numpy_rows
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import require_targets
from bochner.errors import InvalidInput
from bochner.features.auto import Choice
from bochner.features.compose import check_box
from bochner.features.fourier.grid import FourierGrid, equispaced_map
from bochner.features.mercer.sphere import ModeMap, ModeMethod, SphericalHarmonics, spherical_map
from bochner.kernels.kernel import Kernel, has_free
from bochner.kernels.sphere import as_sphere_kernel
from bochner.models.error_law import HeldOutRows
from bochner.models.representations import representation
from bochner.models.representations.representation import Representation, RidgeSpec
from bochner.selection.choices import Choices, FeatureSpec, Function
from bochner.selection.choose import choose_family
from bochner.selection.hyperparameters import tune_evidence, tune_loo
from bochner.selection.lengthscales import lengthscale_on_sphere
from bochner.selection.record import Tuning
from bochner.selection.spec import UNTUNED
from bochner.solvers.gram import full_of
from bochner.solvers.modes import MIN_ALPHA, ModeProblem, ModeState
from bochner.solvers.ridge.problem import evidence, gcv
from bochner.solvers.ridge.search import settle
from bochner.solvers.ridge.solution import Outcome, Path, Solution, choose_alpha, pool
from bochner.sums.fourier import ModeSums, as_complex, corners_of, modes_of, nufft
from bochner.sums.passes import LOCAL, BlockSum, Executor, Summands, as_sample, sample_summand


def as_rows(X: Array) -> Float[Array, "n d"]:
    """Return rows in NumPy's float64, dense and contiguous."""
    return numpy_rows(dense(X))


#: Rows per block: many, as each transform includes an FFT of the whole grid.
BLOCK_ROWS = 1 << 19

#: Errors of transforms and of solutions relative to the tolerance. In predictions, errors of
#: transforms are multiplied by up to W/alpha.
TRANSFORMED, SOLVED = 1e-3, 0.01


@dataclass(frozen=True, eq=False)
class GridSums(Representation):
    """Sums of Fourier modes over all rows; further rows can be added."""

    caller: str  # Class name of the estimator, for messages
    chosen: Choices  # Its map has the modes
    fit_intercept: bool
    sums: ModeSums
    sample: RowSample  # For leave-one-out errors and the certificate
    rows: int
    target_shape: tuple[int, ...]
    max_weight: float = 1.0  # Largest weight of a row that is left out at once

    lacks: ClassVar[Mapping[str, str]] = representation.FEATURES_LACK | {
        "moments_": "a fit that sums modes makes no features; its sums are "
        "fit_.representation.sums."
    }

    def __post_init__(self) -> None:
        extent = self.map.shape
        shapes = [tuple(times * m + 1 for m in extent) for times in (4, 2)]
        sums, t = self.sums, len(self.sums.origin)
        if sums.gram.shape != (*shapes[0], 2) or sums.cross.shape != (t, *shapes[1], 2):
            raise InvalidInput(
                f"GridSums: sums must belong to the modes of the map, {extent} each way; got "
                f"arrays of {sums.gram.shape} and {sums.cross.shape}."
            )

    map = property(attrgetter("chosen.map"))
    #: Tolerance of the method, for transforms and solutions.
    tolerance = property(attrgetter("chosen.choice.method.tolerance"))
    count = property(attrgetter("sums.rows"))
    weight = property(attrgetter("sums.weight"))

    @property
    def unexplained(self) -> float:
        """k(x, x) minus the sum of the weights of the modes."""
        origin = np.zeros((1, self.map.n_inputs))
        return max(float(self.chosen.kernel.diag(origin)[0]) - self.problem.gram.size, 0.0)

    @property
    def target_mean(self) -> Float[Array, " t"]:
        """ȳ, or zero without an intercept."""
        sums = self.sums
        if not self.fit_intercept:
            return np.zeros_like(sums.origin)
        return sums.origin + sums.total / sums.weight

    @cached_property
    def problem(self) -> ModeProblem:
        return self.problem_of(self.map.variances)

    def problem_of(self, variances: Array) -> ModeProblem:
        """Return the problem with these weights of the modes."""
        sums = self.sums.about(self.target_mean)
        gram = self.map.gram(as_complex(sums.gram), variances, self.fit_intercept)
        n = len(self.sample) if self.keeps_all else sums.rows
        count = max(sums.weight / self.max_weight, float(n))
        rng = stream(self.chosen.seed, "probes")
        return ModeProblem.of(gram, as_complex(sums.cross), sums.squares, count, rng)

    def intercept(self, coef: Float[Array, "D t"]) -> Float[Array, " t"]:
        """Return b = ȳ − φ̄·β, or zero without an intercept."""
        if not self.fit_intercept:
            return np.zeros(coef.shape[1])
        means = self.problem.gram.sums / self.sums.weight
        return self.target_mean - means @ coef

    def linear(self, coef: Float[Array, "D t"]) -> Callable[[Array], Float[Array, "b t"]]:
        """Return the function X ↦ φ(X) β, β = ``coef``."""
        return self.of_modes(full_of(self.problem.gram.spectrum(coef.T)))

    def values(self, solution: Any) -> Function:
        linear, slopes = self.linear(solution.coef), partial(self._slopes, solution.coef)
        return Function(lambda X: linear(X) + solution.intercept, slopes)

    def of_modes(self, modes: Array) -> Callable[[Array], Float[Array, "b s"]]:
        """Return the functions of spectra; pairs share a transform (real and imaginary part)."""
        count = len(modes)
        pairs = modes[::2].copy()
        pairs[: count // 2] += 1j * modes[1::2]

        def at(X: Array) -> Float[Array, "b s"]:
            angles = self.map.places.angles(as_rows(X))
            values = nufft(angles, pairs, TRANSFORMED * self.tolerance)
            parts = np.stack([values.real, values.imag], axis=1).reshape(-1, len(angles))
            return np.ascontiguousarray(parts[:count].T)

        return at

    @property
    def target_variance(self) -> float:
        sums = self.sums
        return float(np.mean(sums.squares - sums.total**2 / sums.weight)) / sums.weight

    def solve(self, spec: RidgeSpec) -> tuple["GridSums", Solution]:
        _require_penalty(spec)
        sums = replace(self, fit_intercept=spec.fit_intercept).without_copies(spec)
        return sums, solve_modes(spec, sums)

    block_rows = BLOCK_ROWS

    def left_out(self, solution: Solution) -> HeldOutRows | None:
        """Return leave-one-out predictions of the sample, by the mean leverage as in GCV."""
        path, alphas = solution.path, np.atleast_1d(solution.alpha)
        dimensions = [path.effective_dimension[path.alphas == alpha] for alpha in alphas]
        if any(len(values) == 0 or np.isnan(values[0]) for values in dimensions):
            return None
        problem, sample = self.problem, self.sample
        freedom = np.concatenate([values[:1] for values in dimensions]) + problem.gram.centred
        fitted = self.values(solution)(sample.X)
        errors = (sample.y - fitted) / np.maximum(1 - freedom / problem.count, 1e-12)
        return HeldOutRows(sample.X, sample.y - errors, errors, sample.w, "leave one out")

    def _slopes(self, coef: Float[Array, "D t"], X: Array) -> Float[Array, "b d t"]:
        """Return gradients at X: the modes i k ∂θ/∂x e^{i k·θ}."""
        modes = full_of(self.problem.gram.spectrum(coef.T))
        slopes = []
        for a, rate in enumerate(self.map.places.rates):
            k = np.arange(modes.shape[1 + a]) - modes.shape[1 + a] // 2
            factor = (1j * rate * k).reshape(-1, *(1,) * (modes.ndim - 2 - a))
            slopes.append(self.of_modes(modes * factor)(X))
        return np.stack(slopes, axis=1)

    def add_rows(self, blocks: Blocks) -> "GridSums":
        representation.require_alike(self.caller, blocks, self.target_shape)
        sampler = sample_summand(self.chosen.seed, self.rows)
        summands = Summands((summand_of(self.chosen, self.sums.origin), sampler))
        sums, rows = LOCAL.sum(summands, blocks.with_rows(BLOCK_ROWS))
        return self.merge(replace(self, sums=sums, sample=as_sample(rows), rows=count_rows(blocks)))

    def merge(self, other: "GridSums") -> "GridSums":
        sample, rows = self.sample + other.sample, self.rows + other.rows
        return replace(self, sums=self.sums + other.sums, sample=sample, rows=rows)

    @property
    def certified_map(self) -> Any:
        """Function from m rows to m features with Z Zᵀ the approximate kernel matrix."""

        def root(X: Array) -> Float[Array, "m m"]:
            matrix = self.map.matrix(as_rows(X), TRANSFORMED * self.tolerance)
            values, vectors = np.linalg.eigh(matrix)
            return vectors * np.sqrt(np.maximum(values, 0.0))

        return root

    def certificate(self, alpha: Any, blocks: Blocks | None = None) -> Certificate:
        certificate = super().certificate(alpha, blocks)
        return replace(certificate, n_features=self.map.n_features, features_to_halve=None)


@dataclass(frozen=True, eq=False)
class Survey:
    """Results of a first pass: a sample of the rows, and the bounding box."""

    features: FeatureSpec
    sample: RowSample
    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    target_shape: tuple[int, ...]

    method = property(attrgetter("features.method"))

    def map_of(self, kernel: Kernel, ends: tuple[Kernel, ...] = ()) -> ModeMap:
        """Return the map of a kernel; with ``ends``, a coarser map for both of these kernels."""
        if isinstance(self.method, SphericalHarmonics):
            return spherical_map(kernel, self.method.degree)
        tolerance = max(3e-3 if ends else 0.0, self.method.tolerance)
        return equispaced_map(kernel, self.lower, self.upper, tolerance, ends)

    def choose(self, tuning: Tuning, phi: ModeMap | None = None) -> Choices:
        """Return the choice for a kernel, with the map ``phi`` (default: the map of the method)."""
        phi = self.map_of(tuning.kernel) if phi is None else phi
        words = f"{phi.n_features:,} modes are within {phi.error:.2g} of the kernel"
        reason = f"{self.method}: as asked; {words}."
        return Choices(self.features.seed, tuning, Choice(phi, self.method, (), reason))

    def sum_up(self, chosen: Choices, centred: bool, blocks: Blocks, where: Executor) -> GridSums:
        """Return the sums of the Fourier modes of the chosen map over all rows."""
        origin = np.average(self.sample.y, axis=0, weights=self.sample.w)
        sums = where.sum(summand_of(chosen, origin), blocks.with_rows(BLOCK_ROWS))
        parts = self.features.caller, chosen, centred, sums, self.sample
        return GridSums(*parts, count_rows(blocks), self.target_shape)


def survey(features: FeatureSpec, blocks: Blocks, where: Executor) -> Survey:
    """Read all rows once; return a sample and the bounding box."""
    caller, shape = features.caller, require_targets(features.caller, blocks.target_shape)
    summand = Summands((sample_summand(features.seed), BlockSum(corners_of)))
    rows, boxes = where.sum(summand, blocks.with_rows(BLOCK_ROWS))
    sample = as_sample(rows)
    lowest, largest = np.stack(boxes, axis=1)
    lower, upper, method = lowest.min(axis=0), largest.max(axis=0), features.method
    if not np.isfinite([lower, upper]).all():
        raise InvalidInput(
            f"{caller}: sample weights must have a sum above 0; got no row of positive weight."
        )
    if isinstance(method, FourierGrid) and method.box is not None:
        lower, upper = check_box("FourierGrid", method.box, blocks.n_columns)
    return Survey(features, sample, lower, upper, shape)


def summand_of(chosen: Choices, origin: Float[Array, " t"]) -> BlockSum:
    """Return the summand of the modes of a map, with an origin of the targets."""
    phi: ModeMap = chosen.map  # type: ignore[assignment]
    method: ModeMethod = chosen.choice.method  # type: ignore[assignment]
    error = min(TRANSFORMED * method.tolerance, 1e-8)  # limits the penalties that are resolved
    return BlockSum(partial(modes_of, phi.places, phi.shape, origin, error))


def grid_sums(spec: RidgeSpec, blocks: Blocks, where: Executor) -> tuple[GridSums, Solution]:
    """Return sums and solution: a first pass, the choice of the kernel, and the sums of modes."""
    _require_penalty(spec)
    result = survey(spec.features, blocks, where)
    criterion = "auto" if isinstance(spec.features.kernel, str) else "loo"
    sample = representation.without_copies(spec, result.sample)[0]
    tuning = stationary_kernel(spec.features, sample, spec.fit_intercept, criterion)
    chosen = result.choose(tuning)
    return result.sum_up(chosen, spec.fit_intercept, blocks, where).solve(spec)


def _require_penalty(spec: RidgeSpec) -> None:
    if spec.given_alpha == 0:
        raise InvalidInput(
            f"{spec.features.caller}: alpha must be above 0 where modes are summed, which are more "
            'than rows determine; got 0. Pass a small alpha, or alpha="evidence".'
        )


def chosen_grid_sums(
    features: FeatureSpec, centred: bool, chosen: Choices, blocks: Blocks, where: Executor
) -> GridSums:
    """Return the sums over all rows for a choice that was made on a sample."""
    result = survey(replace(features, method=chosen.choice.method), blocks, where)
    choice = replace(chosen.choice, map=result.map_of(chosen.kernel))
    chosen = replace(chosen, choice=choice)
    return result.sum_up(chosen, centred, blocks, where)


def stationary_kernel(
    features: FeatureSpec,
    sample: RowSample,
    centred: bool,
    lengthscale: str,
    noise: float | None = None,
    amplitude: float | None = None,
) -> Tuning:
    """Return the kernel: given, or chosen by leave-one-out errors or evidence of a sample."""
    # Evidence tunes free kernels and names (not UNTUNED) unless "loo", given kernels if "evidence"
    kernel = features.kernel
    if features.learns_metric:
        raise InvalidInput(
            f'{features.caller}: metric="learned" chooses features of many columns, but '
            f"{features.method} supports few; set one of the two. For a Gaussian process, "
            'lengthscale="evidence" scales each column.'
        )
    if isinstance(features.method, SphericalHarmonics) and not has_free(kernel):
        on_sphere = as_sphere_kernel(kernel)
        if isinstance(kernel, Kernel) and lengthscale != "evidence":
            return Tuning(on_sphere)
        return lengthscale_on_sphere(on_sphere, sample, centred, noise=noise, amplitude=amplitude)
    if isinstance(kernel, str):
        tuning = choose_family(features, sample)
        if lengthscale == "loo" or kernel in UNTUNED:
            return tuning
        kernel = tuning.kernel
    elif lengthscale == "loo" or not (lengthscale == "evidence" or has_free(kernel)):
        return tune_loo(kernel, sample, features.seed, centred=centred)
    fixed = {"noise": noise, "amplitude": amplitude}
    return tune_evidence(kernel, sample, features.seed, centred=centred, **fixed)


def solve_modes(spec: RidgeSpec, sums: GridSums) -> Solution:
    """Choose the penalty unless it is given, and solve."""
    problem, alpha = sums.problem, "gcv" if spec.alpha == "loo" else spec.alpha
    paths, outcomes = list[list[ModeState]](), [Outcome.SOLVED]

    def best(target: int | None) -> float:
        single = problem if target is None else problem.target(target)
        states: dict[float, ModeState] = {}

        def value(penalty: float) -> float:
            if penalty not in states:
                states[penalty] = single.at(penalty)
            return _value(states[penalty], str(alpha))

        start = 0.1 * single.scale
        limits = (math.log(MIN_ALPHA * single.scale), math.log(start)), math.log(10.0) / 4, 48
        value(settle(value, start, *limits, decrease=-1e-9, sizes=(4, 2, 1)))  # adds the last state
        path = sorted(states)
        paths.append([states[penalty] for penalty in path])
        best = min(path, key=value)
        ends = {path[0]: Outcome.EDGE_LOW, path[-1]: Outcome.EDGE_HIGH}
        outcomes.append(ends.get(best, Outcome.SOLVED))
        return best

    constant = problem.scale * 1e-3
    chosen, criterion = choose_alpha(problem.power, alpha, spec.per_target, best, constant)
    outcome = Outcome.worst(outcomes) if np.any(problem.power > 0) else Outcome.CONSTANT_TARGET
    pairs = [(problem, float(chosen[0]))]
    if len(chosen) > 1:
        pairs = [(problem.target(i), float(a)) for i, a in enumerate(chosen)]
    error = SOLVED * sums.tolerance
    states = [replace(s, probes=s.probes[:0]).at(a, error) for s, a in pairs]
    coef = np.concatenate([state.coef.T for state in states], axis=1)
    worst = max(float(state.krylov.residual.max(initial=0.0)) for state in states)
    steps = max(state.krylov.products for state in states)
    if worst > error:
        outcome = Outcome.NOT_CONVERGED
    words = (
        f"{problem.gram.dimension:,} modes, {steps} steps of conjugate gradients to a relative "
        f"error of {worst:.1g}."
    )
    path = paths[0] if paths else []
    points = path or states
    criteria = np.full((4, len(points)), np.nan)  # only states of the path have probes
    for i, state in enumerate(path):
        of_noise = _value(state, "gcv"), -_value(state, "evidence")
        criteria[1:, i] = *of_noise, state.effective_dimension
    values = Path(np.array([state.alpha for state in points]), *criteria)
    alpha_ = chosen if len(chosen) > 1 else float(chosen[0])
    return Solution(coef, sums.intercept(coef), alpha_, outcome, values, criterion, (words,))


def _value(state: ModeState, criterion: str) -> float:
    """Return the criterion to minimise: pooled errors, or minus the log evidence."""
    if criterion == "evidence":
        return -float(evidence(state.problem, state).sum())
    return float(pool(gcv(state.problem, state)[None], state.problem.power)[0])
