"""The law of f given the rows, as a Gaussian process has it on any representation of these."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.models.gaussian_process.intervals import Conformal, Predicts
from bochner.models.gaussian_process.spec import GaussianProcessSpec
from bochner.selection.chosen import Chosen
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome

#: Why there are no moments of features.
NO_FEATURES = (
    "a fit with the kernel itself makes no features, nor does one on a Fourier grid or on nearest "
    "neighbours; what it keeps of the rows is fit_.law.representation."
)


class ProcessLaw(ABC):
    """The law of f given the rows. Frozen, and saved with the fit."""

    spec: GaussianProcessSpec
    chosen: Chosen  # The kernel, the map, and how they were found
    representation: Any  # The rows as they were solved
    evidence: Evidence  # Noise, amplitude and likelihood of each target
    # Mean log density of rows under the law without each, summed over targets
    loo_log_density: float

    #: Attributes and methods of an estimator that this law cannot serve, and why.
    lacks: ClassVar[Mapping[str, str]] = {"moments_": NO_FEATURES, "predictive_": NO_FEATURES}

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.representation.target_shape

    @property
    def outcome(self) -> EvidenceOutcome:
        """How the choice of noise and amplitude went."""
        return self.evidence.outcome

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ² of a new row."""
        return self.evidence.noise

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """Rows that are predicted together."""

    # --- prediction ------------------------------------------------------------------------------

    @abstractmethod
    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""

    @abstractmethod
    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        raise NotImplementedError

    def functions(self, rows: Callable[[Any], Blocks], n: int, seed: int) -> Any:
        """Draw n functions of the posterior."""
        raise NotImplementedError

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Yield the rows of each block and the gradients of the mean there."""
        raise NotImplementedError

    # --- intervals -------------------------------------------------------------------------------

    @abstractmethod
    def scores(self) -> Conformal | None:
        """Return standardised leave-one-out errors of rows not used for tuning; None if too few."""

    @abstractmethod
    def again(self, blocks: Blocks) -> Predicts:
        """Return the law of a fit of the same kind to other rows."""

    def without_fold(self, rows: RowSample) -> Predicts:
        """Return the law of a fit of the same kind to some rows."""
        y = rows.y.reshape(len(rows), *self.target_shape)
        return self.again(Blocks.from_arrays(rows.X, y, rows.w))

    # --- more rows -------------------------------------------------------------------------------

    @abstractmethod
    def solved(self, spec: GaussianProcessSpec, representation: Any = None) -> "ProcessLaw":
        """Find noise and amplitude again, of these rows or of others in the same form."""

    @abstractmethod
    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "ProcessLaw":
        """Return the law given the rows before and these."""

    def require(self, name: str, who: str = "") -> Self:
        """Return this; refuse an attribute, or a call of ``who``, that it cannot serve."""
        if name not in self.lacks:
            return self
        if who:
            raise InvalidInput(f"{who}.{name}: {self.lacks[name]}")
        raise AttributeError(f"{name}: {self.lacks[name]}")


def log_density(
    errors: Float[Array, "m t"], variance: Float[Array, "m t"], w: Float[Array, " m"]
) -> float:
    """Return the mean of log N(error; 0, variance), summed over targets."""
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    density = -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)
    return float((w @ density / w.sum()).sum())
