"""A Gaussian process by nearest neighbours: each row is predicted from nearby rows.

If a process is rougher than features can represent, distant rows add little to the nearest ones.
Each row is then kriged from its nearest neighbours, by the conditional laws of Vecchia
(1988) and of nearest-neighbour Gaussian processes (Datta et al. 2016); with all rows as neighbours
it is the exact process.

Noise, amplitude and the factor of the lengthscales have the largest mean log density of rows, each
given its neighbours without itself: the pseudo-likelihood of Besag (1975), with leave-one-out
predictions as in Sundararajan and Keerthi (2001).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner._core.sizes import LOO_ROWS
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.method import Method
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import has_free
from bochner.kernels.sphere import is_on_sphere
from bochner.models.gaussian_process.intervals import Conformal
from bochner.models.gaussian_process.law import ProcessLaw, log_density
from bochner.models.gaussian_process.neighbourhoods import JUDGED, KeptRows, Neighbourhoods, is_near
from bochner.models.gaussian_process.spec import GaussianProcessSpec
from bochner.models.representations.representation import require_alike
from bochner.models.representations.waves import as_rows
from bochner.selection.choose import named_stationary
from bochner.selection.lengthscales import tune_lengthscales
from bochner.selection.numbers import by_evidence, by_left_out, is_composite
from bochner.selection.record import Tuning
from bochner.selection.spec import NAMED, UNASKED
from bochner.selection.walk import COORDINATEWISE, median_scales
from bochner.selection.waves import scaled
from bochner.solvers.neighbours import LocalLaw
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome
from bochner.sums.executor import LOCAL, Executor, require_order

#: Fewest rows that choose noise and lengthscales; number of neighbours above which fewer than
#: ``JUDGED`` rows are used, because each takes longer.
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


@dataclass(frozen=True)
class NearestNeighbours(Method):
    """Each row is predicted from its nearest neighbours, of :class:`GaussianProcessRegressor`.

    For processes that are rougher than any features draw: few columns, little noise, many rows.
    Mean and deviation at x are exact given the ``neighbours`` rows nearest
    to x (kriging in a moving neighbourhood; with an intercept ordinary kriging), and with all rows
    as neighbours those given all.

    Parameters
    ----------
    neighbours : int, default 40
        How many; all, where there are fewer rows. Errors fall quickly up to 20 or 30, time grows
        like the cube. With much noise take more.

    Notes
    -----
    Serves stationary kernels, :class:`~bochner.kernels.OnSphere` of such, of latitude and
    longitude, and products of both of different columns: places on the globe and time. Near is by
    the Euclidean distance, of columns in units of the shortest lengthscale that the kernel has
    along each, found by a tree: quick in up to some ten columns. Noise and amplitude, and for a
    kernel by name, or ``lengthscale="evidence"``, a common factor of its lengthscales, maximise
    the leave-one-out density of 512 rows (of 64 at least, with more than 64 neighbours),
    each given its neighbours among all others.

    All rows are kept, in memory and in model files. Time O(n log n) to fit, some seconds at most
    for what is chosen, and O(m³) for each row that is predicted, m the neighbours: 0.2 ms for 40.
    Predictions jump by little where neighbours change. ``partial_fit`` and :func:`merge` choose
    again from all rows. There are no features, so no certificate; no functions are drawn.

    Sources: Vecchia (1988), *Estimation and model identification for continuous spatial processes*;
    Datta, Banerjee, Finley and Gelfand (2016), *Hierarchical nearest-neighbor Gaussian
    process models for large geostatistical datasets*, section 2; Rasmussen and Williams (2006),
    section 5.4.2, for the density that is maximised.
    """

    has_features: ClassVar[bool] = False
    neighbours: int = 40

    def __post_init__(self) -> None:
        """Check the argument."""
        count = integer(self.neighbours, "NearestNeighbours", "neighbours", 1)
        object.__setattr__(self, "neighbours", count)


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
    """The chosen kernel and its search."""

    seed: int
    search: Tuning
    choice: NeighbourChoice

    map = metric = curves = None
    precision = "float64"

    @property
    def kernel(self) -> Kernel:
        """k, with numbers."""
        return self.search.kernel


def _lacking(what: str, instead: str = "Fit") -> str:
    return (
        f"method=NearestNeighbours(...) gives each row its own neighbours, and has no {what}. "
        f"{instead} with a method that makes features, such as FourierGrid() or Nystrom()."
    )


@dataclass(frozen=True, eq=False)
class NeighbourProcess(ProcessLaw):
    """The law of f given the nearest neighbours of each row."""

    spec: GaussianProcessSpec
    chosen: ChosenNeighbours  # type: ignore[assignment]
    representation: KeptRows
    # Noise and amplitude; its log likelihood is the mean log density of a row times the rows
    evidence: Evidence

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "map_": "a fit on nearest neighbours compares rows with the kernel, and has no features.",
        "return_cov": _lacking("covariance of rows", "Ask for return_std=True, or fit"),
        "sample_functions": _lacking("functions"),
        "gradient": _lacking("gradients"),
        "certify": _lacking("certificate"),
    }

    @property
    def block_rows(self) -> int:
        return BLOCK_ROWS

    @cached_property
    def around(self) -> Neighbourhoods:
        """The rows as neighbours."""
        return _around(self.spec, self.chosen.kernel, self.representation)

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self._law(as_rows(X)).mean

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        law = self._law(as_rows(X))
        return law.mean, law.variance[:, None] * self.evidence.amplitude

    def _law(self, rows: Float[Array, "b d"]) -> LocalLaw:
        return self.around.law(rows, self.around.near(rows), self._share)

    @property
    def _share(self) -> float:
        return float(self.evidence.alpha[0])

    # --- intervals -------------------------------------------------------------------------------

    def left_out(self, own: Array) -> tuple[Float[Array, "m t"], Float[Array, "m t"]]:
        """Return errors of rows of the fit, by their numbers, and deviations of y, without each."""
        around = self.around
        law = around.law(around.X[own], around.near_without(own), self._share)
        variance = law.variance[:, None] * self.evidence.amplitude + self.noise
        return around.y[own] - law.mean, np.sqrt(variance)

    def scores(self) -> Conformal:
        order = np.argsort(self.representation.priority, kind="stable")
        unseen = order[JUDGED:] if len(order) - JUDGED >= ENOUGH else order
        return Conformal.of(*self.left_out(unseen[:MOST_SCORES]), "leave one out")

    @cached_property
    def loo_log_density(self) -> float:  # type: ignore[override]
        """Mean log density of rows under the law without each, summed over targets."""
        own = np.argsort(self.representation.priority, kind="stable")[:LOO_ROWS]
        errors, deviation = self.left_out(own)
        return log_density(errors, deviation**2, self.representation.w[own])

    def again(self, blocks: Blocks) -> "NeighbourProcess":
        return neighbour_process(self.spec, blocks)

    def solved(
        self, spec: GaussianProcessSpec, representation: KeptRows | None = None
    ) -> "NeighbourProcess":
        return near_rows(spec, representation or self.representation)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "NeighbourProcess":
        who, before = spec.features.who, self.representation
        require_alike(who, blocks, before.target_shape)
        rows = KeptRows.of(who, blocks, self.chosen.seed, before.rows)
        return near_rows(spec, before.merge(rows))


def _around(spec: GaussianProcessSpec, kernel: Kernel, rows: KeptRows) -> Neighbourhoods:
    """Return the rows as neighbours."""
    method: NearestNeighbours = spec.features.method  # type: ignore[assignment]
    return Neighbourhoods(kernel, rows.X, rows.y, rows.w, method.neighbours, spec.fit_intercept)


# --- Fitting -------------------------------------------------------------------------------------


def neighbour_process(
    spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
) -> NeighbourProcess:
    """Read all rows, choose the kernel, noise and amplitude.

    Parameters
    ----------
    spec : GaussianProcessSpec
        Its method is :class:`NearestNeighbours`.
    blocks : Blocks
        Read once.
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
    return near_rows(spec, KeptRows.of(asked.who, blocks, asked.seed))


def near_rows(spec: GaussianProcessSpec, rows: KeptRows) -> NeighbourProcess:
    """Return the law given rows in memory."""
    if len(rows) < 2:
        raise InvalidInput(
            f"{spec.features.who}: NearestNeighbours needs at least 2 rows of positive weight, to "
            f"choose noise and amplitude by; got {len(rows)}."
        )
    method: NearestNeighbours = spec.features.method  # type: ignore[assignment]
    start = _kernel(spec, rows)
    if not is_near(start.kernel):
        raise UnsupportedKernel(
            "NearestNeighbours requires a stationary kernel, for which rows nearby say most; got "
            f"{start.kernel!r}. Nystrom() serves every kernel."
        )
    found, evidence = Search.of(spec, start, rows).found()
    count = f"{min(method.neighbours, len(rows)):,} of {len(rows):,} rows predict each row"
    choice = NeighbourChoice(method, f"{method}: as asked; {count}.")
    return NeighbourProcess(
        spec, ChosenNeighbours(spec.features.seed, found, choice), rows, evidence
    )


def default_neighbours(spec: GaussianProcessSpec, rows: KeptRows) -> NeighbourProcess:
    """Return the law by :class:`NearestNeighbours` as it is by default."""
    features = replace(spec.features, method=NearestNeighbours())
    return near_rows(replace(spec, features=features), rows)


def _kernel(spec: GaussianProcessSpec, rows: KeptRows) -> Tuning:
    """Return the kernel as given, or a start, which some rows choose."""
    asked, sample = spec.features, rows.sample
    kernel = asked.kernel
    if kernel in UNASKED:
        return named_stationary(asked, sample)
    if isinstance(kernel, str):
        kernel = NAMED[kernel](median_scales(sample, kernel in COORDINATEWISE, asked.seed)[0])
    elif spec.lengthscale == "loo" or not (spec.lengthscale == "evidence" or has_free(kernel)):
        return by_left_out(kernel, sample, asked.seed, centred=spec.fit_intercept)
    elif is_composite(kernel):
        return by_evidence(kernel, sample, asked.seed, centred=spec.fit_intercept)
    if spec.lengthscale == "loo" or rows.X.shape[1] == 1 or is_on_sphere(kernel):
        return Tuning(kernel)
    return tune_lengthscales(kernel, sample, centred=spec.fit_intercept)


@dataclass(frozen=True, eq=False)
class Search:
    """The search for noise, amplitude and the factor of the lengthscales."""

    spec: GaussianProcessSpec
    start: Tuning  # The kernel whose lengthscales are multiplied
    around: Neighbourhoods
    own: Array  # Rows that are judged
    near: Array  # Their neighbours
    scales: bool  # Whether lengthscales are open

    @staticmethod
    def of(
        spec: GaussianProcessSpec,
        start: Tuning,
        rows: KeptRows,
    ) -> "Search":
        """Find the neighbours of the rows that are judged."""
        around = _around(spec, start.kernel, rows)
        own = np.argsort(rows.priority, kind="stable")[: judged_rows(around.count)]
        asked = spec.lengthscale == "evidence"
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
        """Return the maximum of the density, from the best of several starts."""

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
    """Return the number of rows on which a fit with this many neighbours is judged."""
    return max(FEWEST, int(JUDGED * min(1.0, MANY / neighbours) ** 3))


def _digits(value: float) -> float:
    """Return three digits of a number, the same on every processor."""
    return float(f"{value:.3g}")
