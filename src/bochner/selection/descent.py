"""Descents of a criterion in log lengthscales, log smoothness and log penalty, by L-BFGS.

The criterion is one of Fourier features of a family of kernels, whose frequencies are drawn once
and rescaled: ω_j = s_j(ν) b_j/ℓ with directions b_j and s_j² the quantile, at a level drawn once,
of the family's mixing law at smoothness ν. So it is a smooth function of all log ℓ and log ν, and
with P = XW, Z = m^(−½) [cos P, sin P] and the criterion's gradient [C, S] in Z

    ∂/∂P = Z_cos ∘ S − Z_sin ∘ C,   ∂/∂W = Xᵀ ∂/∂P,
    ∂/∂log ℓ_k = −Σ_j W_kj (∂/∂W)_kj,   ∂/∂log ν = Σ_j (∂ log s_j/∂ log ν) Σ_k W_kj (∂/∂W)_kj.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._core import native
from bochner._core.arrays import is_sparse
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.maps import by_angles
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.kernels.kernel import Kernel
from bochner.kernels.spectral import GaussianMixture, One
from bochner.kernels.stationary import Radial, RationalQuadratic, Stationary
from bochner.kernels.stationary_families import Matern
from bochner.selection.rows import Scale, TuningRows, significant
from bochner.solvers.ridge.criteria import Criterion, LeaveOneOutError

#: Step in log ν of the quantiles' central difference.
STEP = 1e-4


#: The criterion of a descent, unless another is asked for.
LOO = LeaveOneOutError()


def family_of(kernel: Kernel) -> Stationary:
    """Return the kernel at lengthscale 1, or say that it has none to tune."""
    if isinstance(kernel, Stationary) and "lengthscale" in kernel.get_params(deep=False):
        return kernel.replace(lengthscale=1.0)
    raise UnsupportedKernel(
        "Tuning requires a stationary kernel with a lengthscale (Gaussian, Matern, Exponential, "
        f"RationalQuadratic, Laplace, Cauchy), or one of their names; got {kernel!r}. Choose "
        "other kernels by the estimator's error on rows that were held out."
    )


def shape_name(kernel: Kernel) -> str | None:
    """Return the name of the parameter that says how smooth functions are, if it can be tuned."""
    names: dict[type, str] = {Matern: "smoothness", RationalQuadratic: "shape"}
    return names.get(type(kernel))


def in_numbers(scales: Float[Array, " d"], one: bool) -> Scale:
    """Return lengthscales as a kernel has them: one number where one serves all columns.

    They are rounded to four digits: the last ones of a float64 differ between processors.
    """
    if one and np.ptp(scales) <= 1e-9 * scales.max():
        return significant(float(scales[0]))
    return tuple(map(significant, scales.tolist()))


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A family of kernels with its base frequencies."""

    family: Stationary  # at lengthscale 1
    #: Frequencies at lengthscale 1; for kernels of the Euclidean distance those of the Gaussian.
    base: Float[Array, "d m"]
    levels: Float[Array, " m"]  # levels of the mixing law's quantiles

    @staticmethod
    def draw(kernel: Kernel, d: int, n_features: int, seed: int) -> "Rescaled":
        """Draw the base of a family: D/2 frequencies, levels one in each m-th of (0, 1)."""
        family, m = family_of(kernel), max(1, n_features // 2)
        rng = stream(seed, "tuning")
        levels = (rng.permutation(m) + 0.5) / m
        if isinstance(family, Radial):
            base = Orthogonal().place(GaussianMixture(One(), (1.0,) * d), m, rng)
        else:
            base = IID().place(family.spectral_measure(d), m, rng)
        return Rescaled(family, base, levels)

    def frequencies(self, logs: Float[Array, " d"], log_shape: float | None) -> Array:
        """Return W, (d, m), at these log lengthscales and, if it is not the family's own, log ν."""
        return self.base * (self._radii(log_shape) * np.exp(-logs)[:, None])

    def features(self, X: Array, W: Float[Array, "d m"]) -> Float[Array, "n D"]:
        """Return [cos XW, sin XW]/√m in the precision of X."""
        scale = W.shape[1] ** -0.5
        if is_sparse(X):
            P = X @ W.astype(X.dtype)
            return scale * np.hstack([np.cos(P), np.sin(P)])
        return native.cos_sin(X, np.ascontiguousarray(W / (2 * np.pi), dtype=X.dtype), scale)

    def angles(self, X: Array, logs: Float[Array, " d"]) -> tuple["Rescaled", Array]:
        """Return rows as their angles x·b_j/ℓ, in their precision, and the family's base for these.

        Where one number is tuned for all columns, this is all that it multiplies.
        """
        P = X @ (self.base * np.exp(-logs)[:, None]).astype(X.dtype)
        return replace(self, base=np.eye(P.shape[1])), P

    def through(
        self, X: Array, W: Array, Z: Array, gradient: Array, log_shape: float | None
    ) -> tuple[Float[Array, " d"], float]:
        """Return a criterion's gradient in log ℓ (d,) and log ν, given that in the features."""
        turned = W * np.asarray(X.T @ by_angles(Z, gradient), dtype=np.float64)
        if log_shape is None:
            return -turned.sum(axis=1), 0.0
        rates = np.log(self._radii(log_shape + STEP) / self._radii(log_shape - STEP)) / (2 * STEP)
        return -turned.sum(axis=1), float(turned.sum(axis=0) @ rates)

    def kernel(self, lengthscale: Any, log_shape: float | None) -> Stationary:
        """Return the kernel of the family with these numbers."""
        name = shape_name(self.family)
        shape = {} if name is None or log_shape is None else {name: float(np.exp(log_shape))}
        return self.family.replace(lengthscale=lengthscale, **shape)

    def _radii(self, log_shape: float | None) -> Float[Array, " m"]:
        if not isinstance(self.family, Radial):
            return np.ones(len(self.levels))
        family: Any = self.kernel(1.0, log_shape)
        return np.sqrt(family.mixing.quantile(self.levels))


# --- Descents ------------------------------------------------------------------------------------
#
# Two processors round differently, and a descent would carry that on from step to step. So it sees
# its criterion on a grid: points, values and slopes are rounded to multiples that are far above the
# rounding of float64 and far below what matters, and every processor takes the same steps.

#: Lowest per-row penalty: what products in float32 resolve, and in float64.
LOWEST = {"float32": 1e-6, "float64": 1e-10}

#: Lowest per-row penalty of a descent: it leaves the slopes ten digits, and the grid below fewer.
LEAST = 1e-6

#: A step that gains less than this share of the criterion is the last.
GAIN = 3e-4

#: Value where there is none.
WORST = 1e3

#: log ℓ stays within these of its start where there is no prior, log ν and log share at all.
FAR, SHAPES, HIGHEST = 7.0, (0.4, 12.0), 10.0

#: Multiples that points, values and slopes of a descent are rounded to.
POINTS, VALUES, SLOPES = 1e-6, 1e-6, 1e-5

#: Lengthscales are rounded to this share of an octave where a descent has ended.
SIXTEENTH = float(np.log(2)) / 16


def on_grid(x: Any, step: float) -> Any:
    """Return the multiples of `step` nearest to x."""
    return np.round(np.asarray(x, np.float64) / step) * step


@dataclass(frozen=True)
class Prior:
    """What is known of log ℓ before any target is seen: it is about that of the median distance.

    A normal law of log ℓ about `centre` adds (log ℓ − centre)²/(2·spread²·n) to a criterion that
    is a mean over n rows: a row's worth of knowledge, which many rows outweigh and which decides
    where they say nothing. A lengthscale leaves the range from `shortest` to `longest` times that
    of the centre only if its start is outside.
    """

    centre: float  # log ℓ at the median distance of rows
    rows: float  # n
    columns: int = 1  # d: the median distance of d columns is that of one times √d
    spread: float = 3.0
    shortest: float = 1 / 128
    longest: float = 32.0

    def of(self, logs: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        """Return what is added to the criterion, and its gradient."""
        scaled = (logs - self.centre) / (self.spread**2 * self.rows)
        return 0.5 * float(scaled @ (logs - self.centre)), scaled

    def bounds(self, start: float) -> tuple[float, float]:
        """Return the range of log ℓ, and its start in any case."""
        low = self.centre + np.log(self.shortest) - 0.5 * np.log(self.columns)
        return min(float(low), start), max(self.centre + float(np.log(self.longest)), start)


@dataclass(frozen=True)
class TimeBudget:
    """Seconds since the start, and how many there are."""

    start: float
    seconds: float = float("inf")

    @staticmethod
    def of(seconds: float | None) -> "TimeBudget":
        """Start now."""
        return TimeBudget(time.perf_counter(), float("inf") if seconds is None else seconds)

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.passed >= self.seconds

    def part(self, share: float) -> "TimeBudget":
        """Return the budget that is spent when this share of all seconds has passed."""
        return replace(self, seconds=share * self.seconds)


class _Spent(Exception):
    """Raised within a descent, and caught there."""


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Where a descent stands: all that is tuned, as logarithms."""

    #: log ℓ, of all columns together or of each, in the units of the rows.
    lengths: Float[Array, " p"]
    share: float  # log of the per-row penalty, alpha/W
    shape: float | None = None  # log ν where the smoothness is tuned

    @property
    def vector(self) -> Float[Array, " q"]:
        """All of them side by side."""
        shape = [] if self.shape is None else [self.shape]
        return np.concatenate([self.lengths, shape, [self.share]])

    def like(self, vector: Float[Array, " q"]) -> "Hyperparameters":
        """Return hyperparameters from their vector."""
        shape = None if self.shape is None else float(vector[-2])
        return Hyperparameters(vector[: len(self.lengths)], float(vector[-1]), shape)


class Descended(ABC):
    """A criterion as a function of hyperparameters, to be minimised."""

    criterion: Criterion

    @abstractmethod
    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion, and its gradient in the vector of the hyperparameters."""

    @abstractmethod
    def kernel(self, at: Hyperparameters) -> Kernel:
        """Return the kernel with these hyperparameters, in the units of the data."""

    @abstractmethod
    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        """Return the range of each hyperparameter in a descent from here."""


@dataclass(frozen=True, eq=False)
class OnFeatures(Descended):
    """A criterion of a family's rescaled features of rows."""

    rescaled: Rescaled
    rows: TuningRows
    offsets: Float[Array, " d"]  # what is added to the log lengthscales
    criterion: Criterion = LOO
    pinned: bool = False  # whether the penalty stays
    prior: Prior | None = None  # of the log lengthscales, without the offsets

    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion, less the log prior per row, and the gradient; O(n D (D + d))."""
        y, w = self.rows.y, self.rows.w
        rescaled, X, logs = self._seen(at)
        W = rescaled.frequencies(logs, at.shape)
        Z = rescaled.features(X, W)
        score = self.criterion(Z, y, w, float(np.exp(at.share) * w.sum()))
        by_logs, by_shape = rescaled.through(X, W, Z, score.by_features, at.shape)
        lengths = by_logs if len(at.lengths) > 1 else by_logs.sum(keepdims=True)
        shape = [] if at.shape is None else [by_shape]
        known, by_known = (0.0, 0.0) if self.prior is None else self.prior.of(at.lengths)
        gradient = np.concatenate([lengths + by_known, shape, [score.by_log_alpha]])
        return score.value + known, gradient

    def _seen(self, at: Hyperparameters) -> tuple[Rescaled, Array, Float[Array, " p"]]:
        """Return base, rows and log ℓ: with one ℓ for more columns than frequencies, of angles."""
        d, m = self.rescaled.base.shape
        if len(at.lengths) > 1 or d <= m:
            return self.rescaled, self.rows.X, self.logs(at)
        rescaled, angles = self._angles
        return rescaled, angles, np.full(m, at.lengths[0])

    @cached_property
    def _angles(self) -> tuple[Rescaled, Array]:
        return self.rescaled.angles(self.rows.X, self.offsets)

    def kernel(self, at: Hyperparameters) -> Kernel:
        scales = np.exp(self.logs(at)) * self.rows.units
        return self.rescaled.kernel(in_numbers(scales, len(at.lengths) == 1), at.shape)

    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        if self.prior is None:
            lengths = [(x - FAR, x + FAR) for x in at.lengths]
        else:
            lengths = [self.prior.bounds(float(x)) for x in at.lengths]
        shape = [] if at.shape is None else [tuple(np.log(SHAPES))]
        share = (at.share,) * 2 if self.pinned else (np.log(LEAST), np.log(HIGHEST))
        return [*lengths, *shape, share]

    def logs(self, at: Hyperparameters) -> Float[Array, " d"]:
        """Return log ℓ of each column, in the units of the rows."""
        return self.offsets + at.lengths


On = TypeVar("On", bound=Descended)


@dataclass(frozen=True, eq=False)
class Evaluated(Generic[On]):
    """Hyperparameters, what is descended, and its value there."""

    of: On
    at: Hyperparameters
    value: float

    @property
    def rounded(self) -> "Evaluated[On]":
        """The same at lengthscales on their grid, where every processor puts them."""
        lengths = on_grid(self.at.lengths, SIXTEENTH)
        return replace(self, at=replace(self.at, lengths=lengths))


Note = Callable[[Evaluated[Any]], None]


def descend(
    of: On,
    start: Hyperparameters,
    evaluations: int,
    budget: TimeBudget,
    note: Note,
    gain: float = GAIN,
) -> Evaluated[On]:
    """Return the best of at most so many evaluations; ``note`` is called with each.

    The start counts, whatever the time: there is always something to return.
    """
    best, count = Evaluated(of, start, float("inf")), 0
    bounds = of.bounds(start)
    free = np.array([low < high for low, high in bounds])

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count and (budget.over or count >= evaluations):
            raise _Spent
        count += 1
        at = start.like(np.where(free, on_grid(vector, POINTS), start.vector))
        try:
            value, gradient = of(at)
        except LinAlgError:  # rounding left G + αI no longer positive: as bad as can be
            return WORST, np.zeros_like(vector)
        found = Evaluated(of, at, float(on_grid(value, VALUES)))
        note(found)
        best = found if found.value < best.value else best
        return found.value, on_grid(gradient, SLOPES)

    with suppress(_Spent):
        minimize(
            value_and_gradient,
            start.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": gain},
        )
    return best


def go_on(
    tried: Iterable[Evaluated[On]],
    evaluations: int,
    budget: TimeBudget,
    note: Note,
    gain: float = GAIN,
) -> Evaluated[On]:
    """Descend from the best of what was tried; return the better of it and of the end."""
    start = min(tried, key=lambda found: found.value)
    end = descend(start.of, start.at, evaluations, budget, note, gain)
    return end if end.value < start.value else start
