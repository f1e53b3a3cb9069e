"""A Gaussian process by nearest neighbours: each row is predicted from the rows beside it.

Where a process is rougher than features can draw, rows far away say nothing that those nearby have
not said. Each row is then kriged from its nearest neighbours, by the conditional laws of Vecchia
(1988) and of nearest-neighbour Gaussian processes (Datta et al. 2016); with all rows as neighbours
it is the exact process. After another method, the residuals of that are kriged.

Noise, amplitude and the factor of the lengthscales have the largest mean log density of rows, each
given its neighbours without itself: the pseudo-likelihood of Besag (1975), with leave-one-out
predictions as those of Sundararajan and Keerthi (2001).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from scipy.optimize import minimize

from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner._core.sizes import LOO_ROWS
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.method import Method
from bochner.features.rules import as_method
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import has_free
from bochner.kernels.sphere import is_on_sphere
from bochner.models.gaussian_process.intervals import Conformal
from bochner.models.gaussian_process.neighbourhoods import JUDGED, KeptRows, Neighbourhoods, is_near
from bochner.models.gaussian_process.spec import FeaturelessFit, GaussianProcessSpec
from bochner.models.grid import as_rows
from bochner.models.ridge.sums import require_alike
from bochner.selection.numbers import by_evidence, by_left_out, is_composite
from bochner.selection.process import lengthscales_by_evidence
from bochner.selection.record import Tuning
from bochner.selection.search import COORDINATEWISE, choose_lengthscale, median_scales
from bochner.selection.spec import NAMED, UNASKED
from bochner.selection.waves import scaled
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome
from bochner.sums.executor import LOCAL, Executor, require_order

#: Rows that noise and lengthscales are chosen by, at least, and neighbours of which fewer rows are
#: looked at, whose laws take longer.
FEWEST, MANY = 64, 64

#: Rows beyond those, from which on their errors make intervals, and how many do at most.
ENOUGH, MOST_SCORES = 1024, 4096

#: Noise as a share of a² k(x, x), and factors of the lengthscales: between these.
LEAST, MOST, SHORTEST, LONGEST = 1e-8, 1e3, 1 / 128, 128.0

#: Where the descent may start.
NOISES, FACTORS = (1e2, 0.3, 3e-3, 1e-6), (1.0, 0.25, 1 / 16)

#: The descent: steps of log noise and log factor at first, evaluations, where it ends.
STEPS, EVALUATIONS, WITHIN, CHANGE = (1.5, 0.5), 40, 0.05, 1e-4

#: Rows of a block.
BLOCK_ROWS = 1 << 14

#: Variances of constant targets.
TINY = np.finfo(np.float64).tiny

#: Why there are no features.
NO_MAP = "map_: a fit on nearest neighbours compares rows with the kernel, and has no features."


@dataclass(frozen=True)
class NearestNeighbours(Method):
    """Each row is predicted from its nearest neighbours, of :class:`GaussianProcessRegressor`.

    For processes that are rougher than any features draw: few columns, little noise, many rows.
    The mean and deviation at x are those of the exact process given the ``neighbours`` rows nearest
    to x (kriging in a moving neighbourhood; with an intercept ordinary kriging), and with all rows
    as neighbours those given all.

    Parameters
    ----------
    neighbours : int, default 40
        How many; all, where there are fewer rows. Errors fall quickly up to 20 or 30, time grows
        like the cube. With much noise take more, or a method to come first.
    after : Method or str, optional
        A method that comes first, such as ``FourierGrid(1e-2)`` or ``"auto"``: neighbours then
        predict what its fit to all rows leaves, with a process of mean zero and the same family,
        whose lengthscales are their own. Variances of f are the sums of both fits', as those of
        independent parts are.

    Notes
    -----
    Serves stationary kernels, :class:`~bochner.kernels.OnSphere` of such, of latitude and
    longitude, and products of both of different columns: places on the globe and time. Near is by
    the Euclidean distance, of columns in units of the shortest lengthscale that the kernel has
    along each, found by a tree: quick in up to some ten columns. Noise and amplitude, and for a
    kernel by name, or ``lengthscale="evidence"``, a common factor of its lengthscales, are those of
    the largest leave-one-out density of 512 rows (of 64 at least, with more than 64 neighbours),
    each given its neighbours among all others.

    All rows are kept, in memory and in model files. Time O(n log n) to fit, some seconds at most
    for what is chosen, and O(m³) for each row that is predicted, m the neighbours: 0.2 ms for 40.
    Predictions jump by little where neighbours change. ``partial_fit`` and :func:`merge` choose
    anew from all rows. There are no features, so no certificate; no functions are drawn.

    Sources: Vecchia (1988), *Estimation and model identification for continuous spatial processes*;
    Datta, Banerjee, Finley and Gelfand (2016), *Hierarchical nearest-neighbor Gaussian
    process models for large geostatistical datasets*, section 2; Rasmussen and Williams (2006),
    section 5.4.2, for the density that is maximised.
    """

    neighbours: int = 40
    after: Method | str | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        count = integer(self.neighbours, "NearestNeighbours", "neighbours", 1)
        object.__setattr__(self, "neighbours", count)
        if self.after is None:
            return
        after = as_method(self.after)
        if isinstance(after, NearestNeighbours):
            raise InvalidInput(
                "NearestNeighbours: after must be a method that makes features, such as "
                f"FourierGrid(); got {after}. Ask for more neighbours instead."
            )
        object.__setattr__(self, "after", after)


@runtime_checkable
class FirstFit(Protocol):
    """A Gaussian process on features or on a grid, whose residuals are kriged."""

    @property
    def block_rows(self) -> int:
        """Rows that are predicted together."""

    @property
    def chosen(self) -> Any:
        """The kernel among others."""

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""

    def resolved_moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of what the fit draws of f at rows."""


#: Makes the first fit.
Fits = Callable[[GaussianProcessSpec, Blocks, Inputs], FirstFit]


def by_neighbours(spec: GaussianProcessSpec) -> bool:
    """Whether a process is asked to be kriged from neighbours."""
    return isinstance(spec.features.method, NearestNeighbours)


@dataclass(frozen=True)
class NeighbourChoice:
    """The method that was asked for, in a sentence."""

    method: NearestNeighbours
    reason: str
    candidates: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class ChosenNeighbours:
    """What was chosen before anything is predicted: the kernel, and how it was found."""

    seed: int
    search: Tuning
    choice: NeighbourChoice

    map = metric = curves = None
    precision = "float64"

    @property
    def kernel(self) -> Kernel:
        """k, with numbers."""
        return self.search.kernel


@dataclass(frozen=True, eq=False)
class NeighbourProcessFit(FeaturelessFit):
    """A Gaussian process by nearest neighbours: all rows, what was chosen, and what came first.

    Attributes
    ----------
    inputs : Inputs
    spec : GaussianProcessSpec
    chosen : ChosenNeighbours
    summed : KeptRows
    evidence : Evidence
        Noise and amplitude; its log likelihood is the mean log density of a row times the rows.
    first : FirstFit or None
        The fit whose residuals are kriged.
    calibrated : Conformal or None
        Scores that calibrated intervals are made of; None until they are asked for.
    """

    inputs: Inputs
    spec: GaussianProcessSpec
    chosen: ChosenNeighbours
    summed: KeptRows
    evidence: Evidence
    first: FirstFit | None = None
    calibrated: Conformal | None = field(default=None)

    @property
    def block_rows(self) -> int:
        """Rows that are predicted together."""
        return BLOCK_ROWS

    @cached_property
    def around(self) -> Neighbourhoods:
        """The rows as neighbours, with what the first fit leaves of their targets."""
        return _around(self.spec, self.chosen.kernel, self.summed, self.first)

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""
        return self._mean

    def _mean(self, X: Array) -> Float[Array, "b t"]:
        rows = as_rows(X)
        mean = self.around.law(rows, self.around.near(rows), self._share).mean
        return mean if self.first is None else mean + _means(self.first, rows)

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""
        rows = as_rows(X)
        law = self.around.law(rows, self.around.near(rows), self._share)
        variance = law.variance[:, None] * self.evidence.amplitude
        if self.first is None:
            return law.mean, variance
        mean, before = self.first.resolved_moments(rows)
        return law.mean + mean, variance + before

    @property
    def _share(self) -> float:
        return float(self.evidence.alpha[0])

    # --- intervals -------------------------------------------------------------------------------

    def left_out(self, own: Array) -> tuple[Float[Array, "m t"], Float[Array, "m t"]]:
        """Return errors of rows of the fit, by their numbers, and deviations of y, without each."""
        around = self.around
        law = around.law(around.X[own], around.near_without(own), self._share)
        variance = law.variance[:, None] * self.evidence.amplitude + self.noise
        if self.first is not None:
            variance += self.first.resolved_moments(around.X[own])[1]
        return around.y[own] - law.mean, np.sqrt(variance)

    def calibration(self) -> Conformal:
        """Return the scores that calibrated intervals are made of; found once, and kept."""
        if self.calibrated is None:
            order = np.argsort(self.summed.priority, kind="stable")
            unseen = order[JUDGED:] if len(order) - JUDGED >= ENOUGH else order
            scores = Conformal.of(*self.left_out(unseen[:MOST_SCORES]), "leave one out")
            object.__setattr__(self, "calibrated", scores)
        return self.calibrated  # type: ignore[return-value]

    @cached_property
    def loo_log_density(self) -> float:
        """Mean log density of rows under the law without each, summed over targets."""
        own = np.argsort(self.summed.priority, kind="stable")[:LOO_ROWS]
        errors, deviation = self.left_out(own)
        spread = np.maximum(deviation**2, TINY)
        density = -0.5 * (np.log(2 * np.pi * spread) + errors**2 / spread)
        return float(np.average(density, axis=0, weights=self.summed.w[own]).sum())

    # --- what neighbours do not tell -------------------------------------------------------------

    def covariance(self, X: Array) -> NoReturn:  # noqa: ARG002  as of other fits
        """Refuse: each row has neighbours of its own."""
        raise self._refusal("covariance of rows", "Ask for return_std=True")

    def functions(self, rows: Any, n: int, seed: int) -> NoReturn:  # noqa: ARG002
        """Refuse, likewise."""
        raise self._refusal("functions")

    def gradients(self, blocks: Blocks) -> Iterator[Any]:  # noqa: ARG002
        """Refuse: predictions jump where neighbours change."""
        raise self._refusal("gradients")

    def certified(self, blocks: Blocks, alpha: float) -> NoReturn:  # noqa: ARG002
        """Refuse: there are no features."""
        raise self._refusal("certificate")

    def _refusal(self, what: str, instead: str = "") -> InvalidInput:
        other = f"{instead}, or fit" if instead else "Fit"
        return InvalidInput(
            f"{self.spec.features.who}: method=NearestNeighbours(...) gives each row its own "
            f"neighbours, and has no {what}. {other} with a method that makes features, such as "
            "FourierGrid() or Nystrom()."
        )


def _means(fit: FirstFit, X: Array) -> Float[Array, "b t"]:
    """Return the means of a fit at any number of rows."""
    means, size = fit.means(), fit.block_rows
    return np.concatenate([means(X[start : start + size]) for start in range(0, len(X), size)])


def _around(
    spec: GaussianProcessSpec,
    kernel: Kernel,
    rows: KeptRows,
    first: FirstFit | None,
) -> Neighbourhoods:
    """Return the rows as neighbours; what a first fit leaves of their targets has mean zero."""
    method: NearestNeighbours = spec.features.method  # type: ignore[assignment]
    y = rows.y if first is None else rows.y - _means(first, rows.X)
    centred = spec.fit_intercept and first is None
    return Neighbourhoods(kernel, rows.X, y, rows.w, method.neighbours, centred)


# --- Fitting -------------------------------------------------------------------------------------


def fit_neighbours(
    spec: GaussianProcessSpec,
    blocks: Blocks,
    inputs: Inputs,
    first: Fits,
    where: Executor = LOCAL,
) -> NeighbourProcessFit:
    """Read all rows, fit what comes first, choose the kernel, noise and amplitude.

    Parameters
    ----------
    spec : GaussianProcessSpec
        Its method is :class:`NearestNeighbours`.
    blocks : Blocks
        Read once.
    inputs : Inputs
    first : callable
        Fits the process whose residuals are kriged.
    where : Executor
        This process.
    """
    asked = spec.features
    if asked.learns_metric:
        raise InvalidInput(
            f'{asked.who}: metric="learned" chooses features, and NearestNeighbours makes none; '
            'set one of them. lengthscale="evidence" scales columns.'
        )
    why = "method=NearestNeighbours(...) compares each row with those beside it"
    require_order(asked.who, why, where, "Leave where out, or take features.")
    return fit_kept(spec, KeptRows.of(asked.who, blocks, asked.seed), inputs, first)


def fit_kept(
    spec: GaussianProcessSpec, rows: KeptRows, inputs: Inputs, fits: Fits
) -> NeighbourProcessFit:
    """Return the fit to rows in memory."""
    if len(rows) < 2:
        raise InvalidInput(
            f"{spec.features.who}: NearestNeighbours needs at least 2 rows of positive weight, to "
            f"choose noise and amplitude by; got {len(rows)}."
        )
    method: NearestNeighbours = spec.features.method  # type: ignore[assignment]
    first = None if method.after is None else _first(spec, method.after, rows, inputs, fits)
    start = _kernel(spec, rows) if first is None else Tuning(first.chosen.kernel)
    if not is_near(start.kernel):
        raise UnsupportedKernel(
            "NearestNeighbours requires a stationary kernel, for which rows nearby say most; got "
            f"{start.kernel!r}. Nystrom() serves every kernel."
        )
    found, evidence = Search.of(spec, start, rows, first).found()
    count = f"{min(method.neighbours, len(rows)):,} of {len(rows):,} rows predict each row"
    choice = NeighbourChoice(method, f"{method}: as asked; {count}.")
    chosen = ChosenNeighbours(spec.features.seed, found, choice)
    return NeighbourProcessFit(inputs, spec, chosen, rows, evidence, first)


def fit_nearest(spec: GaussianProcessSpec, rows: KeptRows, inputs: Inputs) -> NeighbourProcessFit:
    """Return the fit of :class:`NearestNeighbours` as it is by default to rows in memory."""
    features = replace(spec.features, method=NearestNeighbours())
    return fit_kept(replace(spec, features=features), rows, inputs, _no_first)


def _no_first(*_: object) -> Any:
    raise AssertionError("neighbours come after no other method here")


def with_neighbours_of(
    fit: NeighbourProcessFit, spec: GaussianProcessSpec, blocks: Blocks, fits: Fits
) -> NeighbourProcessFit:
    """Return the fit to the rows before and to these."""
    who, before = spec.features.who, fit.summed
    require_alike(who, blocks, before.target_shape)
    rows = KeptRows.of(who, blocks, fit.chosen.seed, before.rows)
    return fit_kept(spec, before.merge(rows), fit.inputs, fits)


def merge_neighbours(fits: list[NeighbourProcessFit], first: Fits) -> NeighbourProcessFit:
    """Return the fit of the rows of all."""
    rows = fits[0].summed
    for fit in fits[1:]:
        rows = rows.merge(fit.summed)
    return fit_kept(fits[0].spec, rows, fits[0].inputs, first)


def _first(
    spec: GaussianProcessSpec, after: Any, rows: KeptRows, inputs: Inputs, fits: Fits
) -> FirstFit:
    """Return the fit that comes first: what it cannot draw is noise to it."""
    features = replace(spec.features, method=after)
    return fits(replace(spec, features=features, noise=None, amplitude=None), rows.blocks, inputs)


def _kernel(spec: GaussianProcessSpec, rows: KeptRows) -> Tuning:
    """Return the kernel as given, or a start, which some rows choose."""
    asked, sample = spec.features, rows.sample
    kernel = asked.kernel
    if kernel in UNASKED:
        return choose_lengthscale(kernel, sample, asked.width_to_search, asked.seed)
    if isinstance(kernel, str):
        kernel = NAMED[kernel](median_scales(sample, kernel in COORDINATEWISE, asked.seed)[0])
    elif spec.lengthscale == "loo" or not (spec.lengthscale == "evidence" or has_free(kernel)):
        return by_left_out(kernel, sample, asked.seed, centred=spec.fit_intercept)
    elif is_composite(kernel):
        return by_evidence(kernel, sample, asked.seed, centred=spec.fit_intercept)
    if spec.lengthscale == "loo" or rows.X.shape[1] == 1 or is_on_sphere(kernel):
        return Tuning(kernel)
    return lengthscales_by_evidence(kernel, sample, centred=spec.fit_intercept)


@dataclass(frozen=True, eq=False)
class Search:
    """The search for noise, amplitude and the factor of the lengthscales.

    Attributes
    ----------
    spec : GaussianProcessSpec
    start : Tuning
        The kernel whose lengthscales are multiplied.
    around : Neighbourhoods
    own : (r,)
        Numbers of the rows that are judged, and the numbers of their neighbours:
    near : (r, m)
    scales : bool
        Whether lengthscales are open.
    """

    spec: GaussianProcessSpec
    start: Tuning
    around: Neighbourhoods
    own: Array
    near: Array
    scales: bool

    @staticmethod
    def of(
        spec: GaussianProcessSpec,
        start: Tuning,
        rows: KeptRows,
        first: FirstFit | None,
    ) -> "Search":
        """Find the neighbours of the rows that are judged."""
        around = _around(spec, start.kernel, rows, first)
        own = np.argsort(rows.priority, kind="stable")[: judged_rows(around.count)]
        asked = first is not None or spec.lengthscale == "evidence"
        named = isinstance(spec.features.kernel, str)
        has = "lengthscale" in start.kernel.get_params(deep=False)
        near = around.near_without(own)
        return Search(spec, start, around, own, near, has and (asked or named))

    def found(self) -> tuple[Tuning, Evidence]:
        """Return the kernel, and the noise and amplitude of each target."""
        at, outcome = self._best()
        kernel, share = self.kernel(at), self.share(at[0])
        a2, density = self.amplitudes(at)
        constant = ~np.any(self.around.y != self.around.y[:1], axis=0)
        if self.spec.amplitude is None and self.spec.noise is None:
            a2 = np.where(constant, 0.0, a2)
        alpha = np.full(len(a2), share)
        noise = np.full(len(a2), self.spec.noise) if self.spec.noise is not None else a2 * share
        outcome = EvidenceOutcome.CONSTANT_TARGET if constant.any() else outcome
        evidence = Evidence(noise, a2, alpha, density * len(self.around.w), outcome)
        return replace(self.start, kernel=kernel, criterion="loo"), evidence

    def kernel(self, at: Float[Array, " p"]) -> Kernel:
        """Return the kernel at a place: log noise, and log factor where lengthscales are open."""
        if not self.scales:
            return self.start.kernel
        return scaled(self.start.kernel, np.array([_digits(np.exp(at[1]))]))

    def share(self, log_share: float) -> float:
        """Return σ²/a² for a log share of k(x, x); as given, where both are."""
        noise, amplitude = self.spec.noise, self.spec.amplitude
        least = LEAST * self.around.whole
        if noise == 0:
            return least
        if noise is not None and amplitude is not None:
            return max(noise / amplitude, least)
        return max(_digits(np.exp(log_share)) * self.around.whole, least)

    def amplitudes(self, at: Float[Array, " p"]) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return a² of each target, as held or the best, and the mean log density of a row."""
        around, share = self.around, self.share(at[0])
        there = replace(around, kernel=self.kernel(at))
        law = there.law(around.X[self.own], self.near, share)
        variance, w = law.variance + share, around.w[self.own]
        squares = (around.y[self.own] - law.mean) ** 2 / variance[:, None]
        a2 = self._held(share, np.average(squares, axis=0, weights=w))
        spread = np.average(np.log(variance), weights=w) + np.log(2 * np.pi * a2)
        return a2, -0.5 * (spread + np.average(squares, axis=0, weights=w) / a2)

    def _held(self, share: float, best: Float[Array, " t"]) -> Float[Array, " t"]:
        if self.spec.amplitude is not None:
            return np.full_like(best, self.spec.amplitude)
        if self.spec.noise:
            return np.full_like(best, max(self.spec.noise / share, TINY))
        return np.maximum(best, TINY)

    def _best(self) -> tuple[Float[Array, " p"], EvidenceOutcome]:
        """Return where rows are likeliest, from the best of several starts on."""

        def judged(at: Float[Array, " p"]) -> float:
            return -float(self.amplitudes(at)[1].sum())

        free = 1 + self.scales
        noise, amplitude = self.spec.noise, self.spec.amplitude
        both = noise == 0 or (noise is not None and amplitude is not None)
        bounds = np.log([(LEAST, MOST), (SHORTEST, LONGEST)])[:free]
        starts = product(NOISES[:1] if both else NOISES, FACTORS[: 1 + 2 * self.scales])
        begin = min((np.log(start)[:free] for start in starts), key=judged)
        simplex = begin + np.vstack([np.zeros(free), np.diag(STEPS[:free])])
        found = minimize(
            judged,
            begin,
            method="Nelder-Mead",
            bounds=bounds,
            options={
                "initial_simplex": np.clip(simplex, *bounds.T),
                "maxfev": EVALUATIONS,
                "xatol": WITHIN,
                "fatol": CHANGE,
            },
        )
        return found.x, EvidenceOutcome.SOLVED


def judged_rows(neighbours: int) -> int:
    """Return how many rows are judged that have so many neighbours."""
    return max(FEWEST, int(JUDGED * min(1.0, MANY / neighbours) ** 3))


def _digits(value: float) -> float:
    """Return three digits of a number, the same on every processor."""
    return float(f"{value:.3g}")
