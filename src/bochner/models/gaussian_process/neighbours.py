"""Nearest-neighbour Gaussian process: each row is predicted from nearby rows.

With all rows as neighbours it is the exact process. Noise, amplitude and a common factor of the
lengthscales maximise the mean log density of a row given its neighbours, the pseudo-likelihood of
Besag (1975), as in Sundararajan and Keerthi (2001) for Gaussian processes.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from scipy.spatial import cKDTree

from bochner._core.arrays import slices
from bochner._core.checks import Counted
from bochner._core.globe import require_places, unit_vectors
from bochner._core.shapes import Array, Both, Float
from bochner._core.sizes import LOO_ROWS, MAX_CELLS
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.auto import Choice
from bochner.features.map import Method
from bochner.kernels.kernel import Algebra, Columns, Constant, Kernel
from bochner.kernels.sphere import globe_columns, is_on_sphere, kernel_on_points
from bochner.kernels.stationary_families import Periodic
from bochner.models.gaussian_process.law import (
    SCORE_ROWS,
    FeatureProcess,
    FitRows,
    GaussianProcessSpec,
    ProcessLaw,
    log_density,
    log_normal,
)
from bochner.models.representations.modes import as_rows, stationary_kernel
from bochner.models.representations.representation import require_alike
from bochner.selection.choices import Choices
from bochner.selection.lengthscales import STEP, Objective, ProcessRows, best_of, descend
from bochner.selection.modes import FEWEST_ROWS, rescale
from bochner.selection.rows import four_digits
from bochner.solvers.ridge.dual import EVIDENCE
from bochner.solvers.ridge.problem import TINY, left_out_errors
from bochner.solvers.ridge.solution import Evidence, EvidenceOutcome
from bochner.sums.passes import LOCAL, Executor, require_order

JUDGED = 512  # Largest number of rows whose densities choose noise and lengthscales

# --- Predictions of rows, each given its nearest neighbours ---------------------------------------
#
# Let A be the kernel matrix of a row and its m neighbours, plus noise variances; M is A⁻¹, or for a
# mean of flat prior (ordinary kriging) A⁻¹ − A⁻¹1 1ᵀA⁻¹/1ᵀA⁻¹1. Given the neighbours, the row has
# the error (My)_0/M_00 and the variance 1/M_00. Without noise of the row this is for f; with
# y_0 = 0 the error is minus the mean. Slopes follow from ∂M = −M ∂A M.


def is_near(kernel: Kernel, d: int) -> bool:
    """Whether k is stationary; for a kernel on the globe, as a function of points in space."""
    with suppress(UnsupportedKernel):
        steps, globe = of_steps(kernel)
        spectrum = steps.spectral(d if globe is None else d + 1)
        return len(globe_columns(kernel)) < 2 and spectrum is not None
    return False


def of_steps(kernel: Kernel) -> tuple[Kernel, tuple[int, ...] | None]:
    """Return the kernel of points in space, and the columns of latitude and longitude, if any."""
    globe = next(iter(globe_columns(kernel)), None)
    return kernel if globe is None else kernel_on_points(kernel, globe), globe


@dataclass(frozen=True)
class NearestNeighbours(Method):
    """Method of :class:`GaussianProcessRegressor`: predict each row from its nearest neighbours.

    Use it for processes that are too rough for features: few columns, little noise, many rows. Mean
    and standard deviation at x are those given only the rows nearest to x (kriging in a moving
    neighbourhood; with an intercept ordinary kriging). With all rows as neighbours they are exact.

    Parameters
    ----------
    neighbours : int, default 40
        Number of neighbours; all rows if there are fewer. Errors fall quickly up to 20 or 30
        neighbours; time grows with the cube of the number. Use more for noisy data.

    Notes
    -----
    The kernel must be stationary, :class:`~bochner.kernels.OnSphere` of latitude and longitude, or
    a product of both on different columns, such as place and time. Neighbours have the smallest
    Euclidean distance, with each column in units of the shortest lengthscale of the kernel along
    it. A tree finds them, quickly for up to about ten columns. Noise and amplitude maximise the
    leave-one-out density of 512 rows (with more than 64 neighbours of fewer rows, at least 64); so
    does a common factor of the lengthscales, for a kernel by name or ``lengthscale="evidence"``.

    The model contains all rows. A fit takes O(n log n) and at most some seconds for the choices; a
    prediction takes O(m³) per row for m neighbours, 0.2 ms for 40. Predictions have small jumps
    where the set of neighbours changes. ``partial_fit`` and :func:`merge` choose noise, amplitude
    and lengthscales again. There are no certificates, covariances, gradients and sampled functions.

    Sources: Vecchia (1988), *Estimation and model identification for continuous spatial processes*;
    Datta, Banerjee, Finley and Gelfand (2016), *Hierarchical nearest-neighbor Gaussian
    process models for large geostatistical datasets*, section 2; Rasmussen and Williams (2006),
    section 5.4.2, for the density that is maximised.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (500, 1))
    >>> method = bo.NearestNeighbours(20)
    >>> process = bo.GaussianProcessRegressor("matern32", method=method, random_state=0)
    >>> mean, std = process.fit(X, np.sin(6 * X[:, 0])).predict([[0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(3.0)) < 0.01)
    True
    """

    has_features: ClassVar[bool] = False
    neighbours: Counted = 40


def _missing(name: str, advice: str = "Fit") -> str:
    return (
        f"method=NearestNeighbours(...) has its own neighbours for each row, and has no {name}. "
        f"{advice} with a method of features, such as FourierGrid() or Nystrom()."
    )


@dataclass(frozen=True, eq=False)
class NeighbourProcess(ProcessLaw):
    """Posterior of f(x) given the nearest neighbours of x."""

    spec: GaussianProcessSpec
    chosen: Choices  # Without a map
    representation: FitRows
    evidence: Evidence  # log_likelihood is n times the mean log density of a row

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "map_": "a fit on nearest neighbours uses kernel values, and has no features.",
        "return_cov": _missing("covariance of rows", "Ask for return_std=True, or fit"),
        "sample_functions": _missing("functions"),
        "gradient": _missing("gradients"),
    }

    block_rows = property(lambda self: max(1, (1 << 20) // max(64, self.neighbours)))
    noise = property(attrgetter("evidence.noise"))
    neighbours = property(attrgetter("chosen.choice.method.neighbours"))

    @classmethod
    def fit(
        cls, spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
    ) -> "NeighbourProcess":
        """Return the posterior of all rows, with the chosen kernel, noise and amplitude."""
        features = spec.features
        reason = "method=NearestNeighbours(...) compares each row with nearby rows"
        require_order(features.caller, reason, where, "Leave where out, or use features.")
        return NeighbourProcess.solve(spec, rows_of(spec, blocks))

    @cached_property
    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self.moments(X)[0]

    def moments(self, X: Array) -> Both:
        rows = as_rows(X)
        mean, variance = self.krige(rows, self.neighbours_of(rows), float(self.evidence.alpha[0]))
        return mean, variance[:, None] * self.evidence.amplitude

    def left_out(self, index: Array) -> Both:
        """Return leave-one-out errors and standard deviations of y, for training rows by index."""
        rows, alpha = self.representation, float(self.evidence.alpha[0])
        mean, variance = self.krige(rows.X[index], self.near_without(index), alpha)
        deviation = np.sqrt(variance[:, None] * self.evidence.amplitude + self.noise)
        return rows.y[index] - mean, deviation

    def scores(self) -> Both:
        order = self.representation.all_rows.order
        rows = order[JUDGED:] if len(order) - JUDGED >= SCORE_ROWS else order
        return self.left_out(rows[:4096])

    @cached_property
    def loo_log_density(self) -> float:  # type: ignore[override]
        order = self.representation.all_rows.order[:LOO_ROWS]
        errors, deviation = self.left_out(order)
        return log_density(errors, deviation**2, self.representation.w[order])

    @staticmethod
    def solve(spec: GaussianProcessSpec, rows: FitRows) -> "NeighbourProcess":
        rows = rows.without_copies(spec)
        if len(rows) < 2:
            raise InvalidInput(
                f"{spec.features.caller}: NearestNeighbours requires at least 2 rows of positive "
                f"weight, from which noise and amplitude are chosen; got {len(rows)}."
            )
        method: NearestNeighbours = spec.features.method  # type: ignore[assignment]
        options = spec.fit_intercept, spec.lengthscale, spec.noise, spec.amplitude
        sample = replace(rows.sample, w=rows.sample.w / rows.unit)
        start = stationary_kernel(spec.features, sample, *options)
        if not is_near(start.kernel, sample.X.shape[1]):
            raise UnsupportedKernel(
                "NearestNeighbours requires a stationary kernel, for which near rows are the most "
                f"informative; got {start.kernel!r}. Nystrom() accepts every kernel."
            )
        count = f"{min(method.neighbours, len(rows)):,} of {len(rows):,} rows predict each row"
        choice = Choice(None, method, (), f"{method}: as asked; {count}.")
        chosen = Choices(spec.features.seed, replace(start, criterion="loo"), choice)
        return _search(spec, chosen, rows)

    def add_rows(self, spec: GaussianProcessSpec, blocks: Blocks) -> "NeighbourProcess":
        rows = self.representation
        require_alike(spec.features.caller, blocks, rows.target_shape)
        return NeighbourProcess.solve(spec, rows.merge(rows_of(self.spec, blocks, rows.rows)))

    @cached_property
    def units(self) -> Any:
        """Shortest lengthscale of the kernel along each column; 1 where it has none."""
        d = self.places.shape[1]
        unit = np.full(d, np.inf)
        for leaf, columns in self._steps[0].leaves((Algebra, Columns), range(d)):
            length = leaf.get_params(deep=False).get("lengthscale")
            if isinstance(leaf, Periodic):
                periods, lengths = leaf.per_axis(len(columns))
                length = np.multiply(periods, lengths) / (2 * np.pi)
            if length is None and not isinstance(leaf, Constant):
                return 1.0
            unit[[*columns]] = np.fmin(unit[[*columns]], np.nan if length is None else length)
        return unit if np.isfinite(unit).any() else 1.0

    @cached_property
    def _steps(self) -> tuple[Kernel, tuple[int, ...] | None]:
        return of_steps(self.chosen.kernel)

    def points(self, X: Float[Array, "b d"]) -> Float[Array, "b e"]:
        """Return the points between which distances are computed; for the globe in space."""
        globe = self._steps[1]
        if globe is None:
            return X
        on_globe = X if is_on_sphere(self.chosen.kernel) else X[:, list(globe)]
        require_places("NearestNeighbours", on_globe)
        rows = np.delete(X, list(globe), axis=1)
        return np.concatenate([unit_vectors(on_globe), rows], axis=1)

    @cached_property
    def places(self) -> Float[Array, "n e"]:
        return self.points(self.representation.X)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.places / self.units)

    def neighbours_of(self, X: Float[Array, "b d"]) -> Array:
        """Return the indices of the training rows nearest to each row of X, (b, m)."""
        m = min(self.neighbours, len(self.representation))
        return self._tree.query(self.points(X) / self.units, m)[1].reshape(len(X), m)

    def near_without(self, index: Array) -> Array:
        """Return the indices of the nearest other rows, for training rows by index, (b, m)."""
        m = min(self.neighbours, len(self.representation) - 1)
        nearest = self._tree.query(self.places[index] / self.units, m + 1)[1]
        is_self = nearest == index[:, None]
        is_self[~is_self.any(axis=1), -1] = True  # the row itself is not found among m + 1 copies
        return nearest[~is_self].reshape(len(index), m)

    def krige(self, X: Float[Array, "b d"], indices: Array, alpha: float) -> Both:
        """Return mean and variance of f at rows with neighbours ``indices``; ``alpha`` is σ²/a²."""
        places = np.concatenate([self.points(X)[:, None], self.places[indices]], axis=1)
        y, noise = self.representation.y[indices], alpha / self.representation.w[indices]
        pad = (0, 0), (1, 0), (0, 0)  # The row itself has no target and no noise
        (at,) = self.forms(places, np.pad(y, pad), np.pad(noise, pad[:2]))
        return -at[:, 1:] / at[:, :1], 1 / at[:, 0]

    def forms(
        self, places: Float[Array, "b m e"], y: Array, noise: Array, slopes: int = 0
    ) -> list[Array]:
        """Return M_00 and (My)_0 of rows with their neighbours, (b, 1 + t).

        ``y`` and ``noise`` have the targets, (b, m, t), and variances, (b, m). With one or two
        ``slopes`` also the slope in log noise, after that in a log factor of lengthscales.
        """
        (b, m, e), parts = places.shape, []
        i, j = np.tril_indices(m)
        for rows in slices(b, max(1, (1 << 20) // (m**2 * (e + 4)))):
            steps, A = places[rows, i] - places[rows, j], np.empty((rows.stop - rows.start, m, m))
            A[:, i, j] = A[:, j, i] = values = self.values_at(steps)
            A[:, np.arange(m), np.arange(m)] += noise[rows]
            sides = np.zeros((len(A), m, y.shape[2] + 2))
            sides[:, :, 0], sides[:, 0, 1], sides[:, :, 2:] = 1.0, 1.0, y[rows]
            ones, M = np.split(np.linalg.solve(A, sides if slopes else sides[:, :, :2]), [1], 2)
            if self.spec.fit_intercept:
                M -= ones * (M.sum(axis=1) / ones.sum(axis=1))[:, None]
            v = M[:, :, :1]
            changes = [noise[rows, :, None] * v] * (slopes > 0)
            if slopes > 1:
                A[:, i, j] = A[:, j, i] = (self.values_at(steps * (1 - STEP)) - values) / STEP
                changes.insert(0, A @ v)
            form = np.hstack([v[:, 0], (v * y[rows]).sum(axis=1)])
            parts.append([form, *(-(change * M).sum(axis=1) for change in changes)])
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def values_at(self, steps: Float[Array, "b p d"]) -> Float[Array, "b p"]:
        """Return the kernel values at these differences x − y."""
        d = steps.shape[2]
        return self._steps[0](steps.reshape(-1, d), np.zeros((1, d))).reshape(steps.shape[:2])

    @cached_property
    def total(self) -> float:
        """k(x, x)."""
        return float(self.chosen.kernel.diag(np.zeros((1, self.representation.X.shape[1])))[0])


def rows_of(spec: GaussianProcessSpec, blocks: Blocks, start: int = 0) -> FitRows:
    """Return the rows of all blocks, without copies; ``start`` rows were read before."""
    rows = FitRows.of(spec.features.caller, blocks, spec.features.seed, start)
    return replace(rows, X=as_rows(rows.X)).without_copies(spec)


def _search(spec: GaussianProcessSpec, chosen: Choices, rows: FitRows) -> NeighbourProcess:
    """Return the posterior of largest density of sampled targets, given their neighbours."""
    varies = np.any(rows.y != rows.y[:1], axis=0)
    outcome = EvidenceOutcome["SOLVED" if varies.all() else "CONSTANT_TARGET"]
    nan = np.full(len(varies), np.nan)
    start = NeighbourProcess(spec, chosen, rows, Evidence(nan, nan, nan, nan, outcome))
    # Fewer rows if there are many neighbours, because a row then takes longer
    index = rows.all_rows.order[: max(64, int(JUDGED * min(1.0, 64 / start.neighbours) ** 3))]
    noise = None if spec.noise is None else spec.noise / start.total
    law = spec.fit_intercept, noise, 1.0 if noise == 0 else spec.amplitude
    subset = ProcessRows(start.places[index], rows.y[index], rows.w[index], *law)
    loss = NeighbourLoss(start, subset, np.c_[index, start.near_without(index)], varies)
    is_tuned = spec.lengthscale == "evidence" or isinstance(spec.features.kernel, str)
    is_tuned &= "lengthscale" in chosen.kernel.get_params(deep=False)
    logs = product(*[np.log([1.0, 0.25, 0.0625])] * is_tuned, subset.shares)
    end = descend(loss, best_of([descend(loss, np.array(x), 1) for x in logs]).x, 20, 1e-4)
    factors = [four_digits(np.exp(x)) for x in end.x[:-1]]
    alpha = four_digits(end.alpha) if len(subset.shares) > 1 else end.alpha
    kernel = rescale(chosen.kernel, np.array(factors)) if factors else chosen.kernel
    chosen = replace(chosen, search=replace(chosen.search, kernel=kernel))
    amplitude, values, _ = loss.at(np.log(factors), alpha)
    alphas = np.full(len(varies), alpha * start.total * rows.unit)
    noises = amplitude * alphas if noise is None else np.full_like(alphas, spec.noise)
    evidence = Evidence(noises, amplitude, alphas, -values * len(rows), outcome)
    return NeighbourProcess(spec, chosen, rows, evidence)


@dataclass(frozen=True, eq=False)
class NeighbourLoss(Objective):
    """Minus the mean log density of rows given their neighbours, summed over targets.

    A point has the logarithms of a factor of all lengthscales, if these are tuned, and of
    σ²/(a² k(x, x)) per row.
    """

    start: NeighbourProcess
    rows: ProcessRows
    index: Array  # (b, 1 + m): each row, and its neighbours
    varies: Array  # Whether each target varies
    criterion = EVIDENCE

    @cached_property
    def centres(self) -> Any:
        return np.log(self.rows.median(self.start.units * np.ones(self.rows.X.shape[1])))

    def value_and_slope(self, x: Array, alpha: float) -> tuple[float, Float[Array, " q"]]:
        _, values, slope = self.at(x[:-1], alpha)
        return float(values @ self.varies), slope

    def at(self, log_factor: Array, alpha: float) -> tuple[Array, Array, Float[Array, " p"]]:
        """Return a² and minus the mean log density of each target, and the slope of the loss."""
        spec, w, alpha = self.start.spec, self.rows.w / self.rows.w.sum(), alpha * self.start.total
        noise = alpha * self.start.representation.unit / self.start.representation.w[self.index]
        noise[:, 0] = alpha
        y = self.start.representation.y[self.index]
        places = self.start.places[self.index] * np.exp(-np.sum(log_factor))
        forms, *changes = self.start.forms(places, y, noise, 1 + len(log_factor))
        errors, variance = left_out_errors(forms[:, 1:], forms[:, :1]), 1 / forms[:, :1]
        squares, given = w @ (errors**2 / variance), spec.amplitude or (spec.noise or 0.0) / alpha
        a2 = np.full_like(squares, given) if given else np.maximum(squares, TINY)  # if constant
        values = -(w @ log_normal(errors, a2 * variance))
        by_precision = -0.5 * (variance + errors**2 / a2) @ self.varies
        by_form = np.c_[by_precision, self.varies * errors / a2]
        slope = np.array([w @ (by_form * change).sum(axis=1) for change in changes])
        if spec.noise and spec.amplitude is None:  # a² falls with alpha
            slope[-1] -= 0.5 * self.varies @ (1 - squares / a2)
        return a2 if given else np.where(self.varies, a2, 0.0), values, slope


# --- Features, or nearest neighbours for rough processes of few columns ---------------------------
#
# Both are fitted and compared by leave-one-out errors. Neighbours must have errors 5 % smaller,
# because they have no sampled functions, covariances and gradients.

LEFT_OUT = 2048  # Largest number of compared rows, without the rows that choose noise


def by_features_or_neighbours(
    spec: GaussianProcessSpec, law: FeatureProcess, blocks: Blocks
) -> ProcessLaw:
    """Return the posterior on features, or on neighbours if its errors are 5 % smaller."""
    # For more than 8,192 rows of up to four columns that fit in memory. Kernels: that of the
    # features; for a name also this family with new lengthscales, for "auto" two rough families.
    # Each kernel takes about three seconds.
    features, sums, d = spec.features, law.representation, blocks.n_columns
    cells = sums.rows * (d + sums.sample.y.shape[1] + 2)
    is_large = sums.rows >= FEWEST_ROWS and cells <= MAX_CELLS
    name, is_local = features.kernel, is_near(law.chosen.kernel, d)
    kernels: list[tuple[Kernel | str, str]] = [(law.chosen.kernel, "loo")] if is_local else []
    if name == "auto" and features.effort != "low":
        kernels += [(family, spec.lengthscale) for family in ("matern32", "exponential")]
    elif isinstance(name, str) and name != "auto" and is_local:
        kernels.append((name, spec.lengthscale))
    if not is_large or d > 4 or features.learns_metric or not kernels:
        return law
    rows = rows_of(spec, blocks)
    judges = rows.all_rows.order[JUDGED : JUDGED + LEFT_OUT]
    scale = rows.y[judges].std(axis=0)
    if len(judges) == 0 or not np.all(scale > 0):
        return law

    def size(errors: Float[Array, "m t"]) -> float:
        return float(np.sqrt(np.mean((errors / scale) ** 2)))

    order = sums.sample.order[JUDGED : JUDGED + LEFT_OUT]
    reference = size(law.left_out(sums.sample)[0][order])
    candidates = []
    for kernel, lengthscale in kernels:
        features_of_trial = replace(features, kernel=kernel, method=NearestNeighbours())
        trial = replace(spec, features=features_of_trial, lengthscale=lengthscale)
        candidates.append(NeighbourProcess.solve(trial, rows))
    sizes = [size(process.left_out(judges)[0]) for process in candidates]
    error, best = min(zip(sizes, candidates, strict=True), key=lambda pair: pair[0])
    if not error < 0.95 * reference:
        return law
    method: Any = best.chosen.choice.method
    reason = (
        f"{method}: left-out rows are predicted from their {method.neighbours} nearest of "
        f"{sums.rows:,} rows with errors of {error:.3g} deviations of y, against {reference:.3g} "
        f"by {law.chosen.map.n_features:,} features of {law.chosen.choice.method}. "
        'method="auto" uses features.'
    )
    choice = replace(best.chosen.choice, reason=reason)
    return replace(best, chosen=replace(best.chosen, choice=choice))
