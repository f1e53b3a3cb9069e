"""The law of f given the rows: the base class of the forms that Gaussian processes have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bochner._core.checks import require_squares
from bochner._core.shapes import Array, Both, Float, Gradients, Int
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Piece, join, required_targets
from bochner.kernels.kernel import Kernel, has_free
from bochner.models.error_law import ErrorLaw
from bochner.models.representations.representation import Lacking, gather
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.lengthscales import choose_lengthscale
from bochner.selection.numbers import by_evidence
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.spec import UNASKED
from bochner.solvers.ridge.solution import Evidence

#: Fewest rows that chose neither lengthscales nor noise whose errors make intervals.
ENOUGH = 1024


@dataclass(frozen=True)
class GaussianProcessSpec:
    """Checked parameters of a Gaussian process."""

    features: FeatureSpec
    # None: chosen by the evidence
    noise: float | None
    amplitude: float | None
    lengthscale: str  # "auto", "loo", "evidence"
    fit_intercept: bool
    # "auto", "evidence". The criterion for noise and amplitude where the kernel itself is fitted.
    criterion: str = "evidence"


def search_of(
    spec: GaussianProcessSpec,
    log_density: Callable[[RowSample, Kernel], float],
    share: float | None = None,
) -> Callable[[Any, RowSample], Tuning] | None:
    """Return how lengthscales are found; None for the usual search.

    The lengthscale of a family is found by leave-one-out errors and by the evidence. Where both
    ways are open the one with the larger leave-one-out log density is taken: ``log_density`` is
    that of a fit to some rows with a kernel. ``share`` is a given penalty per unit of weight.
    """
    kernel, by = spec.features.kernel, spec.lengthscale
    given: Any = {"centred": spec.fit_intercept, "noise": spec.noise, "amplitude": spec.amplitude}
    if kernel == "linear" or by == "loo":
        return None

    def named(name: str, sample: RowSample) -> Tuning:
        return choose_lengthscale(name, sample, spec.features.seed, share, spec.fit_intercept)

    def likeliest(kernel: Kernel | str, sample: RowSample) -> Tuning:
        if isinstance(kernel, str):
            kernel = named("matern32" if kernel == "auto" else kernel, sample).kernel
        return by_evidence(kernel, sample, spec.features.seed, **given)

    if by == "evidence" or has_free(kernel):
        return likeliest
    if isinstance(kernel, Kernel) or kernel in UNASKED or spec.features.learns_metric:
        return None

    def likelier(name: str, sample: RowSample) -> Tuning:
        first = named(name, sample)
        second = likeliest(first.kernel, sample)
        if not second.compared or second.kernel == first.kernel:
            return first
        before, after = (log_density(sample, tuning.kernel) for tuning in (first, second))
        numbers = [np.size(tuning.kernel.get_params()["lengthscale"]) for tuning in (first, second)]
        measure, better = "minus the log density per row, left out", after > before
        compared = (
            KernelComparison(numbers[0], first.kernel, -before, np.nan, np.nan, True, measure),
            KernelComparison(
                numbers[1], second.kernel, -after, after - before, 0.0, better, measure
            ),
        )
        tuning = second if better else first
        return replace(tuning, compared=(*tuning.compared, *compared))

    return likelier


#: Values of n functions at rows, (b, t, n).
Values = Callable[[Array], Float[Array, "b t n"]]

#: Why there are no moments of features.
NO_FEATURES = (
    "a fit with the kernel itself makes no features, nor does one on a Fourier grid or on nearest "
    "neighbours; what it keeps of the rows is fit_.law.representation."
)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """All rows of positive weight, and how many were read."""

    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    priority: Float[Array, " n"]  # Random, of the numbers of the rows: which of them are looked at
    rows: int
    target_shape: tuple[int, ...]

    @staticmethod
    def of(who: str, blocks: Blocks, seed: int, start: int = 0) -> "KeptRows":
        """Read all blocks, after ``start`` rows."""
        shape, rows = required_targets(who, blocks.target_shape), gather(blocks, seed, start)
        require_squares(who, rows.y, rows.w)
        return KeptRows(rows.X, rows.y, rows.w, rows.priority, count_rows(blocks), shape)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def every(self) -> RowSample:
        """All rows, as a sample."""
        return RowSample(self.X, self.y, self.w, self.priority)

    @property
    def sample(self) -> RowSample:
        """Some rows at random."""
        return self.every.lowest(kept_rows(self.X.shape[1]))

    @property
    def order(self) -> Int[Array, " n"]:
        """Numbers of the rows in random order."""
        return np.argsort(self.priority, kind="stable")

    def merge(self, other: "KeptRows") -> "KeptRows":
        """Return the rows of both."""
        X, y, w = join([Piece(self.X, self.y, self.w), Piece(other.X, other.y, other.w)])
        priority = np.concatenate([self.priority, other.priority])
        return KeptRows(X, y, w, priority, self.rows + other.rows, self.target_shape)


class ProcessLaw(Lacking, ABC):
    """The law of f given the rows. Frozen, and saved with the fit."""

    spec: GaussianProcessSpec
    representation: Any  # The rows as they were solved
    evidence: Evidence  # Noise, amplitude and likelihood of each target
    # Mean log density of rows under the law without each, summed over targets
    loo_log_density: float
    block_rows: int  # Rows that are predicted together
    chosen: Chosen  # The kernel, the map, and how they were found
    fit: ClassVar[Any]  # (spec, blocks, where): choose what is open, read all rows, find the law

    lacks: ClassVar[Mapping[str, str]] = {"moments_": NO_FEATURES, "predictive_": NO_FEATURES}

    @property
    def of_values(self) -> "ProcessLaw":
        """The law given the values alone, without derivatives and averages."""
        return self

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ² of a new row."""
        return self.evidence.noise

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""
        return self.representation.values(self)

    @abstractmethod
    def moments(self, X: Array) -> Both:
        """Return the mean and variance of f at rows."""

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        raise NotImplementedError

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions of the posterior; return their values at rows, (b, t, n)."""
        raise NotImplementedError

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield the rows of each block and the gradients of the mean there."""
        return self.representation.gradients(self, blocks)

    @abstractmethod
    def scores(self) -> ErrorLaw | None:
        """Return standardised leave-one-out errors of rows not used for tuning; None if too few."""

    def again(self, rows: RowSample) -> Any:
        """Return the law of a fit of the same kind to other rows."""
        y = rows.y.reshape(len(rows), *self.representation.target_shape)
        return self.fit(self.spec, Blocks.from_arrays(rows.X, y, rows.w))

    def solved(self, spec: GaussianProcessSpec, rows: Any) -> "ProcessLaw":
        """Return the law of rows in the same form, with noise and amplitude found again."""
        raise NotImplementedError

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "ProcessLaw":
        """Return the law given the rows before and these."""
        return self.solved(spec, self.representation.with_rows_of(blocks))


def log_normal(errors: Float[Array, "*m t"], variance: Float[Array, "*m t"]) -> Array:
    """Return log N(error; 0, variance)."""
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    return -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)


def log_density(
    errors: Float[Array, "m t"], variance: Float[Array, "m t"], w: Float[Array, " m"]
) -> float:
    """Return the mean of log N(error; 0, variance), summed over targets."""
    return float((w @ log_normal(errors, variance) / w.sum()).sum())
