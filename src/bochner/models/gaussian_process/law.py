"""The posterior of f given the rows: base class, exact process, process on features."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from bochner import models
from bochner._core.arrays import array_namespace, numpy_rows, squared_norms, to_numpy
from bochner._core.blas import product
from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float
from bochner._core.sizes import LOO_ROWS, block_rows, cached_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather
from bochner.data.sources import join, require_targets
from bochner.errors import InvalidInput, SolutionWarning, UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel, has_free
from bochner.models._rows import KernelSum, no_landmarks
from bochner.models.representations.features import FeatureRows, sum_again, sum_features
from bochner.models.representations.representation import (
    Lacking,
    RidgeSpec,
    chosen_exactly,
    with_seasons,
    without_copies,
)
from bochner.selection.choices import Choices, FeatureSpec
from bochner.selection.choose import Search, choose, choose_for_matrix
from bochner.selection.hyperparameters import tune_evidence
from bochner.selection.lengthscales import choose_lengthscale
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.spec import UNTUNED
from bochner.solvers.ridge.dual import KernelFactor, KernelRows
from bochner.solvers.ridge.eigen import EPS, FLOAT32_GRAM, maximise_evidence
from bochner.solvers.ridge.kernel_path import EVIDENCE_ROWS, choose_penalty
from bochner.solvers.ridge.problem import amplitude_at, evidence, left_out_errors, slack_of_leverage
from bochner.solvers.ridge.solution import Evidence, EvidenceOutcome
from bochner.sums.moments import Precision, require_squares
from bochner.sums.passes import LOCAL, Executor, require_order

#: Leave-one-out intervals require this number of rows that did not choose lengthscales or noise.
SCORE_ROWS = 1024


@dataclass(frozen=True)
class GaussianProcessSpec:
    """Checked parameters of a Gaussian process."""

    features: FeatureSpec
    noise: float | None  # None: chosen by the evidence
    amplitude: float | None  # None: chosen by the evidence
    lengthscale: str  # "auto", "loo", "evidence"
    fit_intercept: bool
    criterion: str = "evidence"  # or "auto": that for noise and amplitude of an exact process

    @property
    def alpha(self) -> float | str:
        """The given noise, or the criterion that chooses it."""
        return "evidence" if self.noise is None else self.noise


def search_of(
    spec: GaussianProcessSpec, fit: Callable[..., Any], limit: int, share: float | None = None
) -> Search | None:
    """Return the function that chooses lengthscales; None: the default of `choose`."""
    # It uses leave-one-out errors or the evidence. If both are allowed, ``fit`` returns a posterior
    # for either from ``limit`` rows, and the larger leave-one-out log density decides.
    # ``share`` is a given penalty per unit of weight.
    kernel, criterion = spec.features.kernel, spec.lengthscale
    options: Any = {"centred": spec.fit_intercept, "noise": spec.noise, "amplitude": spec.amplitude}
    if kernel == "linear" or criterion == "loo":
        return None

    def by_errors(name: str, sample: RowSample) -> Tuning:
        return choose_lengthscale(name, sample, spec.features.seed, share, spec.fit_intercept)

    def by_likelihood(kernel: Kernel | str, sample: RowSample) -> Tuning:
        if isinstance(kernel, str):
            kernel = by_errors("matern32" if kernel == "auto" else kernel, sample).kernel
        return tune_evidence(kernel, sample, spec.features.seed, **options)

    if criterion == "evidence" or has_free(kernel):
        return by_likelihood
    if isinstance(kernel, Kernel) or kernel in UNTUNED or spec.features.learns_metric:
        return None

    def log_density(sample: RowSample, kernel: Kernel) -> float:
        rows = sample.lowest(limit)
        features = replace(spec.features, kernel=kernel, width=spec.features.width_to_search)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SolutionWarning)
            trial = replace(spec, features=features, lengthscale="loo")
            return fit(trial, Blocks.from_arrays(rows.X, rows.y, rows.w)).loo_log_density

    def by_density(name: str, sample: RowSample) -> Tuning:
        first = by_errors(name, sample)
        second = by_likelihood(first.kernel, sample)
        if not second.candidates or second.kernel == first.kernel:
            return first
        density, end_density = (log_density(sample, tuning.kernel) for tuning in (first, second))
        sizes = [np.size(tuning.kernel.get_params()["lengthscale"]) for tuning in (first, second)]
        measure, improves = "minus the leave-one-out log density per row", end_density > density
        start = KernelComparison(sizes[0], first.kernel, -density, np.nan, np.nan, True, measure)
        gain = end_density - density, 0.0, improves, measure
        end = KernelComparison(sizes[1], second.kernel, -end_density, *gain)
        tuning = second if improves else first
        return replace(tuning, candidates=(*tuning.candidates, start, end))

    return by_density


#: Values of n functions at rows, (b, t, n).
Values = Callable[[Array], Float[Array, "b t n"]]


@dataclass(frozen=True, eq=False)
class FitRows:
    """All rows of positive weight, and the number of rows read."""

    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    priority: Float[Array, " n"]  # Random number of each row; a sample has the lowest numbers
    rows: int
    target_shape: tuple[int, ...]
    unit: float = 1.0  # Unit in which no weight is above 1, for leave-one-out errors

    @staticmethod
    def of(caller: str, blocks: Blocks, seed: int, start: int = 0) -> "FitRows":
        """Return the rows of all blocks; ``start`` is the number of rows read before."""
        shape, rows = require_targets(caller, blocks.target_shape), gather(blocks, seed, start)
        require_squares(caller, rows.y, rows.w)
        return FitRows(**vars(rows), rows=count_rows(blocks), target_shape=shape)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def all_rows(self) -> RowSample:
        """All rows, as a sample."""
        return RowSample(self.X, self.y, self.w, self.priority)

    @property
    def sample(self) -> RowSample:
        """Random sample of the rows."""
        return self.all_rows.lowest(cached_rows(self.X.shape[1]))

    def without_copies(self, spec: GaussianProcessSpec) -> "FitRows":
        """Return the rows with copies merged, unless the noise is given."""
        rows, unit = without_copies(spec, self.all_rows)
        return replace(self, **vars(replace(rows, w=rows.w * unit)), unit=unit)

    def merge(self, other: "FitRows") -> "FitRows":
        X, y, w = join([self, other])
        priority = np.concatenate([self.priority, other.priority])
        return FitRows(X, y, w, priority, self.rows + other.rows, self.target_shape)


class ProcessLaw(Lacking, ABC):
    """Posterior of f given the rows; frozen, and saved with the fit."""

    spec: GaussianProcessSpec
    representation: Any  # The rows, or their sums
    evidence: Evidence  # Noise, amplitude and likelihood of each target
    loo_log_density: float  # Mean leave-one-out log density of rows, summed over targets
    noise: Float[Array, " t"]  # σ² of a new row
    block_rows: int  # Number of rows that are predicted together
    chosen: Choices  # The kernel, the map, and the record of their choice
    fit: ClassVar[Any]  # (spec, blocks, where): posterior given all rows, after all open choices
    covariance: ClassVar[Any]  # (X): the covariance of f at all pairs of rows, (m, m, t)
    draw: ClassVar[Any]  # (n, seed): X ↦ values of n functions of the posterior, (b, t, n)
    solve: ClassVar[Any]  # (spec, rows): posterior given rows; noise and amplitude chosen again

    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("moments_", "predictive_"),
        "fits with the exact kernel, on a Fourier grid or by nearest neighbours have no features; "
        "fit_.law.representation has their rows or sums.",
    )

    @property
    def of_values(self) -> "ProcessLaw":
        """The posterior given the targets y only, without derivatives and averages."""
        return self

    @cached_property
    def means(self) -> Any:
        """The mean of f: X ↦ (b, t), with its gradients ``slopes``."""
        return self.representation.values(self)

    @abstractmethod
    def moments(self, X: Array) -> Both:
        """Return the mean and variance of f at rows."""

    @abstractmethod
    def scores(self) -> Both | None:
        """Return left-out errors and deviations of rows not used to tune; None if too few."""

    def refit(self, rows: RowSample) -> Any:
        """Return the posterior given other rows, with all choices made again."""
        return self.fit(self.spec, self.as_blocks(rows))

    def as_blocks(self, rows: Any) -> Blocks:
        """Return rows as blocks, with targets in the shape of the fit."""
        y = rows.y.reshape(len(rows), *self.representation.target_shape)
        return Blocks.from_arrays(rows.X, y, rows.w)

    def add_rows(self, spec: GaussianProcessSpec, blocks: Blocks) -> "ProcessLaw":
        """Return the posterior given the earlier rows and these rows."""
        return self.solve(spec, self.representation.add_rows(blocks))


def log_normal(errors: Float[Array, "*m t"], variance: Float[Array, "*m t"]) -> Array:
    """Return log N(error; 0, variance)."""
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    return -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)


def log_density(
    errors: Float[Array, "m t"], variance: Float[Array, "m t"], w: Float[Array, " m"]
) -> float:
    """Return the mean of log N(error; 0, variance), summed over targets."""
    return float((w @ log_normal(errors, variance) / w.sum()).sum())


# --- The posterior with the exact kernel ---------------------------------------------------------
#
# The kernel is chosen as in :class:`bochner.KernelRidge`, by held-out errors. Noise and amplitude
# maximise the evidence among those with nearly the smallest leave-one-out error.

MAX_ROWS = 20_000  # Largest number of rows; the matrix and its factor take 7 GB
MAX_SCORES = 2048  # Largest number of errors for intervals
WIDTH = 1024  # Number F of features of a function drawn from the prior


def factor_all(rows: KernelRows, alphas: Float[Array, " t"]) -> list[KernelFactor]:
    """Return the factor of the kernel matrix for each target, computed once per penalty."""
    factors = {alpha: rows.factor(float(alpha)) for alpha in np.unique(alphas)}
    return [factors[alpha] for alpha in alphas]


def kernel_rows(
    kernel: Kernel, rows: FitRows, centred: bool, limit: int | None = None
) -> KernelRows:
    """Return the kernel matrix of the first ``limit`` rows; weights are divided by the unit."""
    K = np.asarray(to_numpy(kernel(rows.X[:limit])), np.float64)
    return KernelRows(K, rows.y[:limit], rows.w[:limit] / rows.unit, centred)


@dataclass(frozen=True, eq=False)
class ExactProcess(ProcessLaw):
    """The posterior of f with the exact kernel."""

    spec: GaussianProcessSpec
    chosen: Choices  # Its map is the Nyström map on all rows
    representation: FitRows  # All rows, in random order
    evidence: Evidence
    coef: Float[Array, "n t"]  # Coefficients of k(x, x_i)
    intercept: Float[Array, " t"]
    loo_log_density: float

    block_rows = 1024
    noise = property(attrgetter("evidence.noise"))

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "merge": "an exact fit keeps no moments that add.",
    }

    @staticmethod
    def fit(spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL) -> "ExactProcess":
        """Return the posterior of all rows; kernel, noise and amplitude are chosen on samples."""
        reason = 'method="exact" compares each row with all others'
        require_order(spec.features.caller, reason, where, "Leave where out, or use features.")
        caller, n = spec.features.caller, count_rows(blocks)
        if n > MAX_ROWS:
            raise InvalidInput(
                f'{caller}: method="exact" factors the matrix of all rows, at most {MAX_ROWS:,}; '
                f'got {n:,}. Use features (method="auto") or NearestNeighbours().'
            )
        rows = FitRows.of(caller, blocks, spec.features.seed)
        rows = replace(rows, **vars(rows.all_rows.take(rows.all_rows.order)))  # In random order
        rows = rows.without_copies(spec)
        features, share = spec.features, None  # A given penalty per unit of weight
        if spec.noise and spec.amplitude is not None:
            share = spec.noise / spec.amplitude / float(rows.w.sum())
        search = search_of(spec, ExactProcess.fit, 1024, share)
        centred, scaled = spec.fit_intercept, replace(rows.all_rows, w=rows.w / rows.unit)
        options: Any = {"search": search, "shortens": spec.noise is spec.amplitude is None}
        tuning, curves = choose_for_matrix(features, scaled, share, centred, **options)
        tuning = with_seasons(features, tuning, curves, scaled, centred)
        chosen = chosen_exactly(features.seed, tuning, curves, rows.X)
        start = tuning.share * float(scaled.w[:EVIDENCE_ROWS].sum())
        return solve_exactly(spec, chosen, rows, start if 0 < start < np.inf else None)

    @staticmethod
    def of(
        spec: GaussianProcessSpec,
        chosen: Choices,
        rows: FitRows,
        evidence: Evidence,
        factors: list[KernelFactor],
        density: float = np.nan,
    ) -> "ExactProcess":
        """Return the posterior from the factor of each target."""
        coef = np.stack([factor.coef[:, i] for i, factor in enumerate(factors)], axis=1)
        intercept = np.array([factor.intercept[i] for i, factor in enumerate(factors)])
        law = ExactProcess(spec, chosen, rows, evidence, coef, intercept, density)
        law.__dict__["factors"] = factors
        return law

    @cached_property
    def factors(self) -> list[KernelFactor]:
        """Factor of the kernel matrix for each target; model files do not contain it."""
        rows = self.representation
        problem = kernel_rows(self.chosen.kernel, rows, self.spec.fit_intercept)
        return factor_all(problem, self.evidence.alpha / rows.unit)

    @cached_property
    def means(self) -> KernelSum:
        return KernelSum(self.chosen.kernel, self.representation.X, self.coef, self.intercept)

    def moments(self, X: Array) -> Both:
        return self.means(X), self.variance(X)

    def variance(self, X: Array) -> Float[Array, "b t"]:
        """Return the variance of f at rows."""
        prior = np.asarray(to_numpy(self.chosen.kernel.diag(numpy_rows(X))), np.float64)
        return self._per_target(KernelFactor.variance, self.at(X), prior)

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        prior = np.asarray(to_numpy(self.chosen.kernel(numpy_rows(X))), np.float64)
        return self.cross_covariance((self.at(X),) * 2, (np.ones(len(prior)),) * 2, prior)

    def at(self, X: Array) -> Float[Array, "b n"]:
        """Return the kernel values k(x, x_i), for :meth:`cross_covariance`."""
        kernel, rows = self.means.transformed_rows
        K = kernel(self.chosen.kernel.unwrap(numpy_rows(X))[1], rows)
        return np.asarray(to_numpy(K), np.float64)

    def cross_covariance(
        self, k: tuple[Array, Array], constant: tuple[Array, Array], prior: Float[Array, "b c"]
    ) -> Float[Array, "b c t"]:
        """Return Cov(Lf, L'f) of linear functionals; see :meth:`KernelFactor.cross_covariance`."""
        return self._per_target(KernelFactor.cross_covariance, k, prior, constant)

    def _per_target(self, method: Callable[..., Array], *args: Any) -> Array:
        """Return a² method(factor, *args) for each target, computed once per penalty."""
        factors = {factor.alpha: factor for factor in self.factors}
        values = {alpha: method(factor, *args) for alpha, factor in factors.items()}
        parts = [values[factor.alpha] for factor in self.factors]
        return np.stack(parts, axis=-1) * self.evidence.amplitude

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions by Matheron's rule (Wilson et al. 2020, eq. 8).

        f(x) = a f⁰(x) + k(x, X) c + b, where f⁰ and ε are draws from the prior, and c and b are the
        fit to y − a (f⁰(X) + ε).
        """
        rows, amplitude = self.representation, self.evidence.amplitude
        prior = prior_functions(self.chosen.kernel, rows.X, rows.y.shape[1], n, seed)
        normal = stream(seed, "noise of functions").standard_normal((*rows.y.shape, n))
        noise = np.sqrt(self.evidence.alpha / rows.w[:, None])[:, :, None] * normal
        targets = rows.y[:, :, None] - np.sqrt(amplitude)[:, None] * (prior(rows.X) + noise)
        pairs = [factor.coefficients(targets[:, j]) for j, factor in enumerate(self.factors)]
        coef, offset = np.stack([c for c, _ in pairs], axis=1), np.stack([b for _, b in pairs])

        def values(X: Array) -> Float[Array, "b t n"]:
            f0 = np.sqrt(amplitude)[:, None] * prior(numpy_rows(X))
            return f0 + np.tensordot(self.at(X), coef, 1) + offset

        return values

    def scores(self) -> Both | None:
        n_unused = len(self.representation) - EVIDENCE_ROWS
        if n_unused < SCORE_ROWS:
            return None
        m = min(n_unused, MAX_SCORES)
        left_out = [factor.left_out(m) for factor in self.factors]
        errors = np.stack([e[:, i] for i, (e, _) in enumerate(left_out)], axis=1)
        slack = np.hstack([slack for _, slack in left_out])
        new = self.evidence.alpha * (1 / slack + self.representation.unit - 1)
        return errors, np.sqrt(self.evidence.amplitude * new / self.representation.unit)

    def solve(self, spec: GaussianProcessSpec, rows: FitRows) -> "ExactProcess":
        return solve_exactly(spec, self.chosen, rows)


def solve_exactly(
    spec: GaussianProcessSpec, chosen: Choices, rows: FitRows, start: float | None = None
) -> ExactProcess:
    """Return the posterior given rows, for the chosen kernel; ``start``: first guess of σ²/a²."""
    rows = rows if spec.noise is None else replace(rows, unit=1.0)
    problem = kernel_rows(chosen.kernel, rows, spec.fit_intercept)
    alphas, outcome = choose_penalty(
        problem, spec.noise, spec.amplitude, criterion=spec.criterion, start=start
    )
    factors = factor_all(problem, alphas)
    n, fixed, results = len(rows), (spec.noise or None, spec.amplitude), []
    m = n if n <= EVIDENCE_ROWS else min(max(n - EVIDENCE_ROWS, SCORE_ROWS), MAX_SCORES)
    w = problem.w[-m:]
    for i, factor in enumerate(factors):
        if not problem.power[i] > 0:
            results.append((spec.noise or 0.0, spec.amplitude or 0.0, np.nan, np.nan))
            continue
        alpha, (errors, slack) = factor.alpha, factor.left_out(m)
        a2, log_p = (float(f(problem, factor, *fixed)[i]) for f in (amplitude_at, evidence))
        density = w @ log_normal(errors[:, i], alpha * a2 / slack[:, 0]) / w.sum()
        noise = alpha * rows.unit * a2 if spec.noise is None else spec.noise
        results.append((noise, a2, log_p, density))
    noise, amplitude, likelihood, densities = np.array(results).T
    best = Evidence(noise, amplitude, alphas * rows.unit, likelihood, outcome)
    return ExactProcess.of(spec, chosen, rows, best, factors, float(densities.sum()))


def prior_functions(kernel: Kernel, X: Array, t: int, n: int, seed: int) -> Values:
    """Draw n functions of the prior for t targets, by Fourier features or else Nyström features."""
    functions = []
    for i in range(n):
        ask = Request(X.shape[1], WIDTH, seed, ("prior", str(i)), X)
        try:
            phi = draw_map(Fourier(IID()), kernel, ask)
        except UnsupportedKernel:
            phi = draw_map(Nystrom(), kernel, ask)
        weights = stream(seed, "prior functions", i).standard_normal((phi.n_features, t))
        functions.append((phi, weights))
    return lambda X: np.stack([to_numpy(phi(X)) @ weights for phi, weights in functions], axis=2)


# --- Predictions of a Gaussian process on features, with the variance that features miss ---------
#
# With G = V diag(w) Vᵀ about the mean z̄, λ = σ²/a² and a flat prior on b,
#
#     f(x) = ȳ + (φ(x) − z̄)·β + b',   β ~ N(β̂, a²λ (G + λI)⁻¹),   b' ~ N(0, a²λ/W),
#     Var f(x) = a² λ (Σ_j A_j²/(w_j + λ) + 1/W),   A = Vᵀ(φ(x) − z̄).
#
# The variance that features miss, a² e(x) with e(x) = k(x, x) − |φ(x)|², is added to Var f(x).
# Without it the variance is too small far from the data, where features vanish or repeat (variance
# starvation). If ZZᵀ ⪯ K, e is the prior variance of f outside the span of the features (Rasmussen
# and Williams 2006, section 8.3.4; Titsias 2009). For other maps, such as Fourier maps, e is the
# variance outside the span of landmarks among the rows, k(x, x) far from all rows, and Var f is at
# most the prior variance. In both cases e(x)/k(x, x) is raised to a power p ≥ 1 chosen by
# leave-one-out errors: targets that are smoother than draws from the prior, or smaller outside the
# span, have less of this variance near the rows.

SPAN = 1e-6  # A row with a smaller share e(x)/k(x, x) is in the span of the features


@dataclass(frozen=True, eq=False)
class ResidualVariance:
    """e(x): the prior variance outside the span of the features."""

    kernel: Kernel
    landmarks: NystromMap | None  # Their span is used unless ZZᵀ ⪯ K

    def prior(self, X: Array) -> Float[Array, " b"]:
        """Return k(x, x)."""
        return np.asarray(to_numpy(self.kernel.diag(X)), np.float64)

    def span_features(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b m"]:
        """Return the features whose span is used: the features of the landmarks, or Z."""
        return Z if self.landmarks is None else to_numpy(self.landmarks(numpy_rows(X)))

    def variance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, " b"]:
        """Return e(x) of rows X with features Z."""
        Z = self.span_features(X, Z)
        return np.maximum(self.prior(X) - squared_norms(Z), 0.0)

    def covariance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b b"]:
        """Return the prior covariance outside the span; its diagonal is e(x)."""
        Z = self.span_features(X, Z)
        residual = np.array(to_numpy(self.kernel(X)), np.float64) - Z @ Z.T
        np.fill_diagonal(residual, np.maximum(np.diag(residual), 0.0))
        return residual


# --- Functions drawn from the posterior -----------------------------------------------------------
#
# Pathwise (Wilson et al. 2020), with inducing values drawn from their posterior: with landmarks S,
# L Lᵀ = k(S, S) and φ(x) = L⁻¹k(S, x),
#
#     f(x) = φ(x)·β + b + a (f⁰(x) − φ(x)·L⁻¹f⁰(S)),      β, b from their posterior.
#
# The difference in parentheses is the part of f⁰ outside the span of the landmarks, independent of
# β. For a map without landmarks, random rows are used as landmarks, and the difference is scaled to
# the variance that the map misses. f⁰ is a weighted sum of Fourier features, drawn again for each
# function, so that its covariance is exactly k. O(m D (d + n t)), and O(m F d) for each function.


def _nystrom(X: Array, kernel: Kernel, width: int, seed: int, name: str) -> NystromMap | None:
    """Return the Nyström map of landmarks among rows: O(n D²)."""
    phi = draw_map(Nystrom(), kernel, Request(X.shape[1], width, seed, (name,), X))
    return phi if isinstance(phi, NystromMap) else None


# --- From moments to the posterior: evidence, and corrections by leave-one-out errors ------------
#
# In the fit, the part of f that features miss counts as noise. In predictions the variance of this
# part is separate, so the noise of a new y is smaller; leave-one-out errors determine it. Landmarks
# are excluded, because leaving out their row does not remove the landmark.


@dataclass(frozen=True, eq=False)
class FeatureProcess(ProcessLaw):
    """The posterior of f on features."""

    spec: GaussianProcessSpec
    representation: FeatureRows
    values: Float[Array, " r"]  # w
    vectors: Float[Array, "D r"]  # V; omitted directions have w = 0
    feature_mean: Float[Array, " D"]  # z̄; zero without an intercept
    coef: Float[Array, "D t"]  # β̂
    intercept: Float[Array, " t"]  # ȳ − z̄·β̂
    spread: float  # 1/W; zero without an intercept
    evidence: Evidence  # λ, a² and σ² of each target
    unexplained: ResidualVariance  # e(x)
    noise: Float[Array, " t"]  # Variance of a new y about f(x)
    exponents: Float[Array, " t"]  # p in k(x, x) (e(x)/k(x, x))ᵖ
    loo_log_density: float = np.nan

    lacks = property(attrgetter("representation.lacks"))

    def __repr__(self) -> str:
        D, t = self.coef.shape
        return f"FeatureProcess(D={D}, targets={t})"

    @classmethod
    def fit(
        cls,
        spec: GaussianProcessSpec,
        blocks: Blocks,
        where: Executor = LOCAL,
        precision: Precision | None = None,
    ) -> "FeatureProcess":
        """Return the posterior given all rows, after all open choices."""
        if not spec.features.method.has_features:  # the method is another representation
            ridge = RidgeSpec(
                spec.features, "evidence", False, spec.fit_intercept, spec.features.method
            )
            rows, _ = models.represent(ridge, blocks, where, precision, False)
            return FeatureProcess.solve(spec, rows)
        search = search_of(spec, FeatureProcess.fit, LOO_ROWS)
        prepare = partial(without_copies, spec)
        chosen, _ = choose(spec.features, blocks, search=search, where=where, prepare=prepare)
        return fit_on_features(spec, chosen, blocks, where, precision)

    chosen = property(attrgetter("representation.chosen"))

    @property
    def block_rows(self) -> int:  # type: ignore[override]
        """Number of rows predicted together, limited by the memory for features and draws."""
        return block_rows(max(self.chosen.map.n_features, WIDTH))

    def moments(self, X: Array) -> Both:
        Z, e = self.at(X), self.unexplained
        return self.means(X), self.total_variance(self.leverage(Z), e.variance(X, Z), e.prior(X))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        Z, ones = self.at(X), np.ones(len(X))
        residual, (roots, factors) = self.unexplained.covariance(X, Z), self.factors(X, Z)
        outer = self.evidence.amplitude * roots[:, None] * residual[:, :, None] * roots
        total = self.cross_covariance((Z, Z), (ones, ones)) + outer
        return factors[:, None] * total * factors

    def at(self, X: Array) -> Float[Array, "b D"]:
        """Return the features φ(x), for :meth:`cross_covariance`."""
        return self.chosen.double(X)

    @property
    def floor(self) -> Float[Array, " t"]:
        """Variance of the noise in the fit, a²λ."""
        return self.evidence.amplitude * self.evidence.alpha

    def mean(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return E f(x) from the features of x."""
        return Z @ self.coef + self.intercept

    def leverage(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return Var f(x)/(a²λ), without the variance that features miss, in any array library."""
        centred, alpha = Z - self.feature_mean, self.evidence.alpha
        A = product(centred, self.vectors) if isinstance(Z, np.ndarray) else centred @ self.vectors
        leverage = (A * A) @ (1 / (self.values[:, None] + alpha))
        if self.vectors.shape[0] != self.vectors.shape[1]:
            residual = np.maximum(squared_norms(centred) - squared_norms(A), 0.0)
            leverage = leverage + residual[:, None] / alpha
        return leverage + self.spread

    def cross_covariance(
        self,
        Z: tuple[Float[Array, "b D"], Float[Array, "c D"]],
        constant: tuple[Float[Array, " b"], Float[Array, " c"]],
    ) -> Float[Array, "b c t"]:
        """Return Cov(Lf, L'f) for each target, without the covariance that features miss."""
        # The linear functionals L and L' are given by their values for φ and for the constant 1.
        pairs = zip(Z, constant, strict=True)
        left, right = (values - np.outer(factor, self.feature_mean) for values, factor in pairs)
        A, B = (values @ self.vectors for values in (left, right))
        parts, ones = [], np.outer(*constant)
        for scale, alpha in zip(self.evidence.amplitude, self.evidence.alpha, strict=True):
            explained = (A * (self.values / (self.values + alpha))) @ B.T
            parts.append(scale * (left @ right.T - explained + alpha * self.spread * ones))
        return np.stack(parts, axis=2)

    def total_variance(self, leverage: Array, e: Array, k: Array) -> Float[Array, "b t"]:
        """Return Var f(x) from leverages (b, t), e(x) and k(x, x), in any array library."""
        total = self._total(leverage, e, k)
        if self.unexplained.landmarks is None:
            return total
        limit = self.evidence.amplitude * k[:, None] + self.floor * self.spread
        return np.minimum(total, limit)

    def factors(self, X: Array, Z: Float[Array, "b D"]) -> tuple[Array, Array]:
        """Return factors of the standard deviation outside the span, and of f in total."""
        e, k = self.unexplained.variance(X, Z), self.unexplained.prior(X)
        leverage = self.leverage(Z)
        total, limit = self._total(leverage, e, k), self.total_variance(leverage, e, k)
        ratio = np.divide(limit, total, out=np.ones_like(total), where=total > 0)
        return np.sqrt(self._damping(e, k)), np.sqrt(ratio)

    def _total(self, leverage: Array, e: Array, k: Array) -> Array:
        variance = e[:, None] * self._damping(e, k)
        return self.floor * leverage + self.evidence.amplitude * variance

    def _damping(self, e: Array, k: Array) -> Array:
        """Return (e(x)/k(x, x))ᵖ⁻¹ with the exponents p."""
        xp = array_namespace(k)
        share = xp.where(k > 0.0, e / xp.where(k > 0.0, k, 1.0), 0.0)
        return share[:, None] ** (self.exponents - 1.0)

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions of the posterior; only from features if these are exact."""
        rng, (D, t) = stream(seed, "functions"), self.coef.shape
        normal = rng.standard_normal((D, t, n))  # for joint draws of β and the intercept
        shrinkage = np.sqrt(self.evidence.alpha / (self.values[:, None] + self.evidence.alpha))
        coordinates = np.tensordot(self.vectors.T, normal, 1)
        change = np.tensordot(self.vectors, coordinates * (shrinkage[:, :, None] - 1), 1)
        deviation = np.sqrt(self.evidence.amplitude)[:, None] * (normal + change)
        shift = np.sqrt(self.floor * self.spread)[:, None] * rng.standard_normal((t, n))
        offset = self.intercept[:, None] + shift - np.tensordot(self.feature_mean, deviation, 1)
        coef, landmarks = self.coef[:, :, None] + deviation, self._landmarks

        def on_features(X: Array) -> Float[Array, "b t n"]:
            return np.tensordot(self.at(X), coef, 1) + offset

        if landmarks is None:
            return on_features
        kernel, sample = landmarks.kernel, self.representation.sample
        prior = prior_functions(kernel, sample.X, len(offset), n, seed)
        f0 = prior(landmarks.landmarks)
        flat = np.ascontiguousarray(f0.reshape(len(f0), -1).T)
        coefficients = landmarks.whiten(flat, flat.dtype).T.reshape(f0.shape)
        residual = ResidualVariance(kernel, landmarks)

        def values(X: Array) -> Float[Array, "b t n"]:
            Z, f = self.at(X), on_features(X)
            part = prior(X) - np.tensordot(residual.span_features(X, Z), coefficients, 1)
            root, factor = self.factors(X, Z)
            e, variance = self.unexplained.variance(X, Z), residual.variance(X, Z)
            floor = SPAN * self.unexplained.prior(X)
            share = np.divide(e, variance, out=np.zeros_like(e), where=variance > floor)
            scale = np.sqrt(self.evidence.amplitude * share[:, None]) * root
            mean = self.mean(Z)[:, :, None]
            return mean + factor[:, :, None] * (f + scale[:, :, None] * part - mean)

        return values

    @property
    def _landmarks(self) -> NystromMap | None:
        """Nyström map of the landmarks, or of random rows; None if the features are exact."""
        chosen, residual, sample = self.chosen, self.unexplained, self.representation.sample
        phi = residual.landmarks or chosen.map
        if isinstance(phi, NystromMap):
            return phi
        X = sample.lowest(256).X
        if np.all(residual.variance(X, self.at(X)) <= SPAN * residual.prior(X)):
            return None
        return _nystrom(sample.X, chosen.kernel, chosen.map.n_features, chosen.seed, "functions")

    def scores(self) -> Both | None:
        sample = self.representation.sample
        if len(sample) - LOO_ROWS < SCORE_ROWS:
            return None
        unused = sample.take(sample.order[LOO_ROWS:])
        return self.left_out(self.without_landmarks(unused))

    def without_landmarks(self, sample: RowSample) -> RowSample:
        """Return the rows that are not landmarks."""
        phi = self.unexplained.landmarks or self.chosen.map
        return sample.take(no_landmarks(phi, sample.X))

    def left_out(self, sample: RowSample) -> Both:
        """Return leave-one-out errors of training rows, and the standard deviations of their y."""
        errors, rows = self.leave_one_out(sample)
        return errors, np.sqrt(self.total_variance(*rows) + self.noise)

    def leave_one_out(
        self, sample: RowSample
    ) -> tuple[Float[Array, "b t"], tuple[Float[Array, "b t"], Float[Array, " b"], Array]]:
        """Return (errors, (leverages, e(x), k(x, x))) of rows in fits without the row: O(b D²)."""
        # If rounding dominates (y − f̂)/(1 − h), the row is treated as isolated: its prediction is
        # the mean of other rows, and 1 − h = λ/(λ + k) is the smallest value for rows with φ·φ = k.
        # Errors ε√k of coordinates change h by up to 2ε √(kD/λ); float32 products change it by
        # their error in G, divided by λ.
        Z, y, w, alpha = self.at(sample.X), sample.y, sample.w, self.evidence.alpha
        e, prior = self.unexplained.variance(sample.X, Z), self.unexplained.prior(sample.X)
        single = self.representation.precision == "float32"
        norms = squared_norms(Z - self.feature_mean)[:, None]
        top = self.values.max(initial=0.0) if single else 0.0
        w, max_weight = w[:, None], self.representation.max_weight
        slack = slack_of_leverage(self.leverage(Z), w, max_weight)
        rounding = 10 * EPS * np.sqrt(1 + norms * Z.shape[1] / alpha) + FLOAT32_GRAM * top / alpha
        floor = alpha / (alpha + np.minimum(w, max_weight) * norms)
        resolved = slack > rounding
        centre = self.intercept + self.feature_mean @ self.coef
        slack = np.where(resolved, slack, floor)
        errors = np.where(resolved, left_out_errors(y - self.mean(Z), slack), y - centre)
        return errors, ((1 - slack) / slack / max_weight, e, prior)

    @staticmethod
    def solve(spec: GaussianProcessSpec, sums: Any) -> "FeatureProcess":
        sums = replace(sums, fit_intercept=spec.fit_intercept).without_copies(spec)
        chosen, (eigen, _, means) = sums.chosen, sums.decompose()
        evidence = maximise_evidence(eigen, spec.noise, spec.amplitude)
        coef = eigen.coefficients(evidence.alpha)
        phi, landmarks = chosen.map, None
        if not phi.below_kernel:
            width = min(phi.n_features, 1024)
            landmarks = _nystrom(sums.sample.X, phi.kernel, width, chosen.seed, "left out")
        law = FeatureProcess(
            spec,
            sums,
            eigen.values,
            np.ascontiguousarray(eigen.vectors),
            means[0],
            coef,
            means[1] - means[0] @ coef,
            1 / max(eigen.weight, eigen.rows) if eigen.centred else 0.0,
            evidence,
            ResidualVariance(phi.kernel, landmarks),
            evidence.noise,
            np.ones(len(means[1])),
        )
        sample = sums.sample if sums.keeps_all else sums.sample.lowest(LOO_ROWS)
        sample = law.without_landmarks(sample)
        (errors, parts), w = law.leave_one_out(sample), sample.w
        # Choose exponent and share of the noise if at least 20 rows are outside the span
        is_large = np.maximum(w / sums.max_weight, 1.0)[parts[1] > SPAN * parts[2]].sum() >= 20
        exponents = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if is_large else (1.0,)
        shares = [*np.logspace(0, -3, 31), 0.0] if is_large and spec.noise is None else [1.0]
        # The pair with the largest density of these errors wins; weight w counts as w rows
        best = np.full(len(law.noise), -np.inf)
        noise, power = law.noise.copy(), law.exponents.copy()
        for p in exponents:
            variance = replace(law, exponents=np.full_like(power, p)).total_variance(*parts)
            for share in shares:
                total = variance + share * law.noise / sums.max_weight
                score = w @ log_normal(errors, total) / w.sum()
                improves = score > best
                best[improves] = score[improves]
                noise[improves], power[improves] = share * law.noise[improves], p
        return replace(law, noise=noise, exponents=power, loo_log_density=float(best.sum()))


def fit_on_features(
    spec: GaussianProcessSpec,
    chosen: Choices,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None = None,
) -> FeatureProcess:
    """Return the posterior from sums of features of all rows, summed in float64 if needed."""
    ridge = RidgeSpec(spec.features, "evidence", False, spec.fit_intercept)
    sums = sum_features(ridge, chosen, blocks, where, precision, whitens_sums=False)
    law = FeatureProcess.solve(spec, sums)
    limited = law.evidence.outcome is EvidenceOutcome.FLOAT32_LIMITED
    if limited and spec.features.precision == "auto":
        law = FeatureProcess.solve(spec, sum_again(sums, blocks, where))
    return law
