"""Ridge regression of features: choose, sum, solve; and a certificate beside it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.features.waves import WaveMethod
from bochner.models._calibration import Calibration, calibrate, decided
from bochner.models._rows import no_landmarks
from bochner.models.coupling import Coupling, FactoredCoupling
from bochner.models.error_law import ErrorLaw, LeftOutRows
from bochner.models.ridge.grid import GridFit, fit_chosen_waves
from bochner.models.ridge.shown import ShownRidge
from bochner.models.ridge.sums import RidgeSpec, Summed, merged, triangle, warned
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen
from bochner.selection.spec import WIDTH
from bochner.solvers.ridge.eigen import Eigen, decompose, floor
from bochner.solvers.ridge.leave_one_out import Rows, left_out_rows
from bochner.solvers.ridge.path import given_alpha, least_alpha, solve_ridge
from bochner.solvers.ridge.problem import left_out_errors, slack_of_leverage
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Precision
from bochner.sums.rows import sampled

#: Below this rounding makes the slack of a row.
LEAST_SLACK = 1e-6


#: From so many rows on, 2048 features are worth the time, seconds, where a width is not asked for.
WIDE_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class RidgeFit(ShownRidge):
    """A ridge regression of features: what was chosen, the sums, the solution.

    Attributes
    ----------
    inputs : Inputs
    spec : RidgeSpec
    summed : Summed
    solution : Solution
    errors : ErrorLaw or None
        Of new rows; None until it is asked for.
    """

    inputs: Inputs
    spec: RidgeSpec
    summed: Summed
    solution: Solution
    errors: ErrorLaw | None = None

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
        return self.summed.moments.rows

    @property
    def target_variance(self) -> float:
        """Weighted mean square of y about its mean, in the mean of targets."""
        moments = self.summed.moments
        return float(np.mean(moments.power)) / moments.weight

    def predictions(self, blocks: Blocks) -> Iterator[tuple[Array, Array]]:
        """Give the rows of one block after the other, and φ(X) β + b, (b, t)."""
        linear = self.chosen.linear(self.solution.coef)
        for block in blocks.with_rows(self.chosen.block_rows):
            yield block.X, linear(block.X) + self.solution.intercept

    def left_out(self) -> LeftOutRows:
        """Return the rows of the sample as the fit predicts them without each."""
        return self.left_out_of(self.summed.sample)

    def left_out_of(self, sample: RowSample) -> LeftOutRows:
        """Return rows of the fit as it predicts them without each; landmarks are left away."""
        summed = self.summed
        eigen, held = summed.decomposed()
        if held is None or sample is not summed.sample:
            rows = list(summed.centred(sample))
        else:
            rows = [held]
        alpha = np.broadcast_to(np.asarray(self.solution.alpha, np.float64), eigen.power.shape)
        alpha = np.maximum(alpha, floor(eigen))
        parts = list(left_out_rows(eigen, rows, alpha))
        residuals, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        shown = np.where(np.isfinite(errors), errors, residuals)
        told = sample.X, sample.y - shown, errors, sample.w, "leave one out"
        coupling = _couplings(eigen, rows, alpha, residuals, sample.w)
        found = LeftOutRows(*told, coupling, np.arange(len(sample.w)))
        return found.take(no_landmarks(self.chosen.map, sample.X))

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Give the rows of one block after the other, and the gradients of predictions there."""
        return self.chosen.gradients(self.solution.coef, blocks)

    @cached_property
    def calibration(self) -> Calibration:
        """Probabilities of classes, by leave-one-out values of the sample's rows."""
        summed, moments = self.summed, self.summed.seen
        eigen = decompose(moments, summed.fit_intercept)
        shrink = 1 / (eigen.values[:, None] + np.atleast_1d(self.solution.alpha))
        shrink[eigen.values <= 0] = 0.0
        values, sample = [], summed.sample
        for Z, y, w in summed.centred(sample):
            weights = np.ones(len(y)) if w is None else w
            mean = 1 / eigen.weight if eigen.centred else 0.0
            leverage = np.square(Z @ eigen.vectors) @ shrink + mean
            slack = np.maximum(slack_of_leverage(leverage, weights[:, None]), LEAST_SLACK)
            residual = y - Z @ self.solution.coef
            values.append(y - left_out_errors(residual, slack) + moments.target_mean)
        left_out = np.concatenate(values)
        return calibrate(left_out, decided(sample.y), sample.w)

    @cached_property
    def certificate(self) -> Certificate:
        """How far features are from the kernel on the rows of the fit, by their sample."""
        return self._certified(self.summed.sample.X, self.summed.moments.rows)

    def certified(self, blocks: Blocks) -> Certificate:
        """Return the certificate on other rows."""
        return self._certified(sampled(blocks, self.chosen.seed).X, count_rows(blocks))

    def _certified(self, X: Array, n_rows: int) -> Certificate:
        return certify(
            self.chosen.rounded,
            X,
            alpha=float(np.min(self.solution.alpha)) * n_rows / self.summed.moments.rows,
            kernel=self.chosen.kernel,
            n_rows=n_rows,
            random_state=self.chosen.seed,
        )


def _couplings(
    eigen: Eigen,
    rows: list[Rows],
    alpha: Float[Array, " t"],
    residuals: Float[Array, "m t"],
    w: Float[Array, " m"],
) -> tuple[Coupling, ...]:
    """Return how errors of the rows hang together, for each target."""
    root, parts = np.sqrt(w), [np.asarray(Z, np.float64) @ eigen.vectors for Z, _, _ in rows]
    turned = root[:, None] * np.concatenate(parts)
    mean = np.full((len(w), int(eigen.centred)), eigen.weight**-0.5) * root[:, None]
    found: dict[float, Array] = {}
    for a in np.unique(alpha):
        found[a] = np.hstack([turned / np.sqrt(eigen.values + a), mean])
    return tuple(
        FactoredCoupling(root * r, root, found[a]) for r, a in zip(residuals.T, alpha, strict=True)
    )


def fit_ridge(
    spec: RidgeSpec,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> RidgeFit:
    """Choose what is open, sum up all rows, solve; again in float64 where float32 limits it.

    Parameters
    ----------
    spec : RidgeSpec
    blocks : Blocks
    inputs : Inputs
        What the rows are.
    where : Executor
    precision : {"float32", "float64"}, optional
        Of all, where rows do not come again.
    """
    chosen, _ = choose(spec.features, blocks, alpha=given_alpha(spec.alpha), where=where)
    return fit_chosen(spec, chosen, blocks, inputs, where, precision)


def fit_chosen(
    spec: RidgeSpec,
    chosen: Chosen,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> RidgeFit:
    """Sum up all rows as features of what was chosen, and solve."""
    summed = spec.rows(chosen, blocks, where, precision)
    solution = solve(spec, summed, blocks, where)
    if solution.outcome is Outcome.FLOAT32_LIMITED and spec.features.precision == "auto":
        summed = spec.rows.again(summed, blocks, where)
        solution = solve(spec, summed, blocks, where)
    return warned(RidgeFit(inputs, spec, summed, solution))


def fit_ridge_or_waves(
    spec: RidgeSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL
) -> RidgeFit | GridFit:
    """Choose what is open; sum up waves of all rows where "auto" took waves, else features."""
    features = with_waves(spec).features
    chosen, sample = choose(features, blocks, alpha=given_alpha(spec.alpha), where=where)
    if sample is None or not isinstance(chosen.choice.method, WaveMethod):
        return fit_chosen(spec, chosen, blocks, inputs, where)
    return fit_chosen_waves(spec, chosen, sample, blocks, inputs, where)


def with_waves(spec: RidgeSpec) -> RidgeSpec:
    """Return the spec that allows waves, where it has a penalty."""
    return replace(spec, features=replace(spec.features, waves=least_alpha(spec.alpha) != 0))


def widened(spec: RidgeSpec, blocks: Blocks) -> RidgeSpec:
    """Return the spec with twice the usual width, where rows are very many."""
    if (blocks.n_rows or 0) < WIDE_ROWS:
        return spec
    return replace(spec, features=replace(spec.features, width=2 * WIDTH))


def with_features(fit: Any, spec: RidgeSpec) -> RidgeFit:
    """Return the fit to the same rows with features of the same kernel, which further rows add to.

    In float64, because rows do not come again.
    """
    kernel, y = fit.chosen.kernel, fit.y.reshape(len(fit.y), *fit.target_shape)
    features = replace(spec.features, kernel=kernel, learns_metric=False)
    blocks = Blocks.from_arrays(fit.X, y, fit.w)
    return fit_ridge(replace(spec, features=features), blocks, fit.inputs, precision="float64")


def with_rows_of(
    fit: RidgeFit, spec: RidgeSpec, blocks: Blocks, where: Executor = LOCAL
) -> RidgeFit:
    """Return the fit to the rows before and to these."""
    return solved_again(fit, spec, fit.summed.with_rows_of(blocks, where))


def solved_again(fit: RidgeFit, spec: RidgeSpec, summed: Summed | None = None) -> RidgeFit:
    """Solve anew, from sums as they are or from others."""
    summed = replace(summed or fit.summed, fit_intercept=spec.fit_intercept)
    return warned(RidgeFit(fit.inputs, spec, summed, solve(spec, summed)))


def merge_ridge(fits: list[RidgeFit]) -> RidgeFit:
    """Return the fit of the rows of all."""
    return solved_again(fits[0], fits[0].spec, merged([fit.summed for fit in fits]))


def solve(
    spec: RidgeSpec, summed: Summed, blocks: Blocks | None = None, where: Executor = LOCAL
) -> Solution:
    """Solve from sums; ``blocks`` are all rows, where they can be read again."""
    double, held = summed.chosen.precision == "float64", None
    if double and least_alpha(spec.alpha) == 0 and (blocks is not None or summed.keeps_all):
        eigen = triangle(summed, blocks, where)
    else:
        eigen, held = summed.decomposed()
    rows: Iterable[Rows] = summed.centred(summed.sample) if held is None else (held,)
    solution = solve_ridge(
        eigen,
        (summed.seen.feature_mean, summed.seen.target_mean),
        spec.alpha,
        rows if spec.alpha == "loo" else None,
        per_target=spec.per_target,
    )
    if not double and summed.moments.precision == "float64" and solution.outcome is Outcome.SOLVED:
        return replace(solution, outcome=Outcome.REFINED)
    return solution
