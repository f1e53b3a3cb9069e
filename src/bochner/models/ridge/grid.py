"""Ridge regression on a Fourier grid: survey, choose, sum, solve by conjugate gradients."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.features.mercer.sphere import SphericalHarmonics
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import named_on_sphere
from bochner.models.error_law import ErrorLaw, LeftOutRows
from bochner.models.grid import (
    BLOCK_ROWS,
    NO_FEATURES,
    SOLVED,
    SummedWaves,
    Surveyed,
    merged_waves,
    require_penalty,
    resurveyed,
    summed_waves,
    survey,
)
from bochner.models.ridge.shown import ShownRidge
from bochner.models.ridge.sums import RidgeSpec, require_alike, warned
from bochner.selection.chosen import Chosen
from bochner.selection.numbers import by_left_out
from bochner.selection.process import lengthscale_on_sphere, lengthscales_by_evidence
from bochner.selection.record import Tuning
from bochner.selection.search import choose_lengthscale
from bochner.selection.spec import UNASKED
from bochner.solvers.ridge.path import least_alpha
from bochner.solvers.ridge.problem import evidence, gcv
from bochner.solvers.ridge.solution import Outcome, Path, Solution, pooled
from bochner.solvers.waves import WaveProblem, WaveState, scan
from bochner.sums.executor import LOCAL, Executor


@dataclass(frozen=True, eq=False)
class GridFit(ShownRidge):
    """A ridge regression on a Fourier grid: what was chosen, the sums, the solution.

    Attributes
    ----------
    inputs : Inputs
    spec : RidgeSpec
    summed : SummedWaves
    solution : Solution
    errors : ErrorLaw or None
        Of new rows; None until it is asked for.
    """

    inputs: Inputs
    spec: RidgeSpec
    summed: SummedWaves
    solution: Solution
    errors: ErrorLaw | None = None

    def left_out(self) -> LeftOutRows | None:
        """Return rows of the sample as the fit predicts them without each.

        As in GCV, each has the mean leverage of all rows; None where that was not estimated.
        """
        path, alphas = self.solution.path, np.atleast_1d(self.solution.alpha)
        used = [path.effective_dimension[path.alphas == alpha] for alpha in alphas]
        if any(len(each) == 0 or np.isnan(each[0]) for each in used):
            return None
        problem, sample = self.summed.problem, self.summed.sample
        leverage = (
            np.concatenate([each[:1] for each in used]) + problem.gram.centred
        ) / problem.count
        fitted = self.summed.values(self.solution.coef)(sample.X) + self.solution.intercept
        errors = (sample.y - fitted) / np.maximum(1 - leverage, 1e-12)
        return LeftOutRows(sample.X, sample.y - errors, errors, sample.w, "leave one out")

    #: Why there are no moments.
    no_moments: ClassVar[str] = NO_FEATURES

    @property
    def chosen(self) -> Chosen:
        """The kernel, the map, and how they were found."""
        return self.summed.chosen

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.summed.target_shape

    @property
    def rows(self) -> int:
        """Rows of the fit."""
        return self.summed.sums.rows

    @property
    def target_variance(self) -> float:
        """Weighted mean square of y about its mean, in the mean of targets."""
        sums = self.summed.sums
        return float(np.mean(sums.squares - sums.total**2 / sums.weight)) / sums.weight

    def predictions(self, blocks: Blocks) -> Iterator[tuple[Array, Array]]:
        """Give the rows of one block after the other, and f(X), (b, t)."""
        values = self.summed.values(self.solution.coef)
        for block in blocks.with_rows(BLOCK_ROWS):
            yield block.X, values(block.X) + self.solution.intercept

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Give the rows of one block after the other, and the gradients of predictions there."""
        return self.summed.gradients(self.solution.coef, blocks)

    @cached_property
    def certificate(self) -> Certificate:
        """How far the waves are from the kernel on the rows of the fit, by their sample."""
        return self.summed.certificate(float(np.min(self.solution.alpha)))

    def certified(self, blocks: Blocks) -> Certificate:
        """Return the certificate on other rows."""
        return self.summed.certified_blocks(blocks, float(np.min(self.solution.alpha)))


def fit_grid(spec: RidgeSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> GridFit:
    """Survey the rows, choose what is open, sum up all rows as waves, solve.

    Parameters
    ----------
    spec : RidgeSpec
        Its method is a :class:`FourierGrid`.
    blocks : Blocks
        Read twice: for the box of the rows, and for the sums.
    inputs : Inputs
    where : Executor
    """
    _require_served(spec)
    surveyed = survey(spec.features, blocks, where)
    chosen = surveyed.chosen(_kernel(spec, surveyed))
    summed = summed_waves(surveyed, chosen, spec.fit_intercept, blocks, where)
    return warned(GridFit(inputs, spec, summed, solve_waves(spec, summed)))


def fit_chosen_waves(
    spec: RidgeSpec,
    chosen: Chosen,
    sample: RowSample,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
) -> GridFit:
    """Sum up all rows as the waves that were chosen from a sample, and solve."""
    surveyed, chosen = resurveyed(spec.features, chosen, sample, blocks, where)
    summed = summed_waves(surveyed, chosen, spec.fit_intercept, blocks, where)
    return warned(GridFit(inputs, spec, summed, solve_waves(spec, summed)))


def with_grid_rows_of(
    fit: GridFit, spec: RidgeSpec, blocks: Blocks, where: Executor = LOCAL
) -> GridFit:
    """Return the fit to the rows before and to these."""
    require_alike(spec.features.who, blocks, fit.target_shape)
    return grid_solved_again(fit, spec, fit.summed.with_rows_of(blocks, where))


def grid_solved_again(fit: GridFit, spec: RidgeSpec, summed: SummedWaves | None = None) -> GridFit:
    """Solve anew, from sums as they are or from others."""
    _require_served(spec)
    summed = replace(summed or fit.summed, fit_intercept=spec.fit_intercept)
    return warned(GridFit(fit.inputs, spec, summed, solve_waves(spec, summed)))


def merge_grids(fits: list[GridFit]) -> GridFit:
    """Return the fit of the rows of all."""
    return grid_solved_again(fits[0], fits[0].spec, merged_waves([fit.summed for fit in fits]))


def _require_served(spec: RidgeSpec) -> None:
    who, alpha = spec.features.who, least_alpha(spec.alpha)
    if not isinstance(alpha, str):
        require_penalty(who, float(alpha))


def _kernel(spec: RidgeSpec, surveyed: Surveyed) -> Tuning:
    """Return the kernel as given, or of a name by the evidence of a sample of the rows."""
    asked, sample = spec.features, surveyed.sample
    if isinstance(asked.method, SphericalHarmonics):
        kernel = named_on_sphere(asked.who, asked.kernel)
        if isinstance(asked.kernel, Kernel):
            return Tuning(kernel)
        return lengthscale_on_sphere(kernel, sample, spec.fit_intercept)
    if not isinstance(asked.kernel, str):
        return by_left_out(asked.kernel, sample, asked.seed, centred=spec.fit_intercept)
    found = choose_lengthscale(asked.kernel, sample, asked.width_to_search, asked.seed)
    if asked.kernel in UNASKED:
        return found
    return lengthscales_by_evidence(found.kernel, sample, centred=spec.fit_intercept)


# --- Solving -------------------------------------------------------------------------------------


def solve_waves(spec: RidgeSpec, summed: SummedWaves) -> Solution:
    """Choose the penalty where it is open, and solve at it."""
    problem, alpha = summed.problem, spec.alpha
    if not np.any(problem.power > 0):
        return _solution(summed, [], problem.scale * 1e-3, Outcome.CONSTANT_TARGET)
    if isinstance(alpha, str):
        return _chosen(spec, summed, "evidence" if alpha == "evidence" else "gcv")
    return _solution(summed, [], alpha, Outcome.SOLVED)


def _chosen(spec: RidgeSpec, summed: SummedWaves, criterion: str) -> Solution:
    problem = summed.problem
    t = len(problem.power)
    if spec.per_target and t > 1:
        paths = [_path(problem.target(i), criterion) for i in range(t)]
        alpha: float | Array = np.array([_best(path, criterion)[0] for path in paths])
        outcome = max((_best(path, criterion)[1] for path in paths), key=_badness)
        return _solution(summed, paths[0], alpha, outcome, criterion)
    path = _path(problem, criterion)
    alpha, outcome = _best(path, criterion)
    return _solution(summed, path, alpha, outcome, criterion)


def _badness(outcome: Outcome) -> int:
    return list(Outcome).index(outcome)


def _path(problem: WaveProblem, criterion: str) -> list[WaveState]:
    return scan(problem, lambda state: _value(state, criterion))


def _value(state: WaveState, criterion: str) -> float:
    """Return what is least at the best penalty: pooled errors, or minus the log evidence."""
    if criterion == "evidence":
        return -float(evidence(state.problem, state).sum())
    return float(pooled(gcv(state.problem, state)[None], state.problem.power)[0])


def _best(path: list[WaveState], criterion: str) -> tuple[float, Outcome]:
    values = [_value(state, criterion) for state in path]
    at = int(np.argmin(values))
    ends = {0: Outcome.EDGE_LOW, len(path) - 1: Outcome.EDGE_HIGH}
    return path[at].alpha, ends.get(at, Outcome.SOLVED)


def _solution(
    summed: SummedWaves,
    path: list[WaveState],
    alpha: float | Float[Array, " t"],
    outcome: Outcome,
    criterion: str = "given",
) -> Solution:
    """Solve to a share of the tolerance, at the penalty of each target."""
    problem, error = summed.problem, SOLVED * summed.tolerance
    several = np.broadcast_to(alpha, len(problem.power))
    if np.ndim(alpha) == 0:
        states = [problem.without_probes().at(float(alpha), error)]
    else:
        states = [
            problem.target(i).without_probes().at(float(a), error) for i, a in enumerate(several)
        ]
    coef = np.concatenate([problem.gram.to_real(state.c) for state in states], axis=1)
    residual = np.concatenate([state.rss for state in states]) / summed.sums.weight
    worst = max(float(state.krylov.residual.max(initial=0.0)) for state in states)
    steps = max(state.krylov.steps for state in states)
    if worst > error:
        outcome = Outcome.NOT_CONVERGED
    done = (
        f"{problem.gram.dimension:,} waves, {steps} steps of conjugate gradients to a relative "
        f"error of {worst:.1g}."
    )
    known = _path_of(path) if path else _path_of(states, criteria=False)
    intercept = summed.intercept(coef)
    given = float(alpha) if np.ndim(alpha) == 0 else np.asarray(alpha, dtype=float)
    return Solution(coef, intercept, given, outcome, known, criterion, residual, (done,))


def _path_of(states: list[WaveState], criteria: bool = True) -> Path:
    """Return criteria at all penalties tried; none where there are no probes."""
    alphas = np.array([state.alpha for state in states])
    nothing = np.full(len(states), np.nan)
    if not criteria:
        return Path(alphas, nothing, nothing, nothing, nothing)
    errors = np.array(
        [pooled(gcv(state.problem, state)[None], state.problem.power)[0] for state in states]
    )
    likelihood = np.array([evidence(state.problem, state).sum() for state in states])
    dimension = np.array([state.effective_dimension for state in states])
    return Path(alphas, nothing, errors, likelihood, dimension)
