"""A Gaussian process on features: choose, sum, find noise and amplitude."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from bochner._core.blas import product
from bochner._core.shapes import Array, Both, Float, Gradients
from bochner._core.sizes import LOO_ROWS, block_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import SolutionWarning
from bochner.features.nystrom.nystrom import NystromMap
from bochner.kernels.kernel import Kernel
from bochner.models.error_law import ErrorLaw
from bochner.models.gaussian_process.law import (
    ENOUGH,
    GaussianProcessSpec,
    ProcessLaw,
    Values,
    log_normal,
    search_of,
)
from bochner.models.gaussian_process.posterior import (
    EXPLAINED,
    MOST_ROWS,
    WIDTH,
    LeftOut,
    Predictive,
    of_all_rows,
    of_some_rows,
    posterior_of,
    through_features,
    told_apart,
)
from bochner.models.representations.features import FeatureSums, summed_again, summed_features
from bochner.models.representations.representation import RidgeSpec
from bochner.selection.choose import Search, choose
from bochner.selection.chosen import Chosen
from bochner.selection.lengthscales import choose_lengthscale
from bochner.selection.record import Tuning
from bochner.solvers.ridge.evidence import EvidenceOutcome, maximise_evidence
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Precision

# --- From moments to the law: evidence, posterior, and what errors add to it ----------------------
#
# In the fit, what the features leave out of the rows counts as noise. For a new row it is added, so
# its noise is what remains, as leave-one-out errors tell. A landmark is left out as a row and as a
# landmark. With k(S, S) = L Lᵀ, u_i the i-th unit vector and a_i = L⁻¹u_i, functions of the other
# landmarks are those with a_i·β = 0, and they leave 1/|a_i|² of the i-th out.

EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # Exponents p tried for what the features leave out

#: Shares of the fit's noise that are tried as noise of new rows.
SHARES = np.concatenate([np.logspace(0, -3, 31), [0.0]])


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of the fit, as a law sees them."""

    # y − f̂, and 1 − h; see :mod:`bochner.models.gaussian_process.posterior`
    residual: Float[Array, "b t"]
    slack: Float[Array, "b t"]
    # e(x) and k(x, x)
    left: Float[Array, " b"]
    prior: Float[Array, " b"]
    w: Float[Array, " b"]

    @property
    def explained(self) -> Array:
        """Whether features leave nothing out of a row."""
        return self.left <= EXPLAINED * self.prior

    @property
    def errors(self) -> Float[Array, "b t"]:
        """Errors y − f̂ of the fits without each row."""
        return self.residual / self.slack

    def variance(self, law: Predictive) -> Float[Array, "b t"]:
        """Return Var f(x) of the fits without each row."""
        return law.combined((1 - self.slack) / self.slack, self.left, self.prior)


def left_out(sums: FeatureSums, law: Predictive, sample: RowSample) -> Both:
    """Return errors of rows of the fit, and standard deviations of y, both by fits without each.

    Lengthscales, noise, amplitude and exponents stay as the rows have chosen them.
    """
    rows, _ = _looked_at(sums, law, sample)
    return rows.errors, np.sqrt(rows.variance(law) + law.noise)


def _looked_at(sums: FeatureSums, law: Predictive, sample: RowSample) -> tuple[_Rows, bool]:
    """Return rows of the sample, and whether features leave something out of enough of them.

    Then each row that is a landmark is left out as a landmark too.
    """
    parts = []
    for rows in sums.pieces(sample):
        Z = sums.chosen.double(rows.X)
        left = law.left_out.variance(rows.X, Z)
        parts.append((Z, rows.y, rows.w, left, law.left_out.prior(rows.X)))
    Z, y, w, left, prior = (np.concatenate(part) for part in zip(*parts, strict=True))
    all_rows = len(w) == sums.moments.rows and sums.chosen.precision == "float64"
    if all_rows and len(w) <= MOST_ROWS:
        residual, slack = of_all_rows(law.posterior, Z, y, w)
    else:
        residual, slack = of_some_rows(law.posterior, Z, y, w, sums.moments.precision)
    seen = _Rows(residual, slack, left, prior, w)
    if np.maximum(w, 1.0)[~seen.explained].sum() < 20:  # Too few for their errors to tell
        return seen, False
    return _without_own_landmarks(sums, law, seen, sample), True


def _without_own_landmarks(
    sums: FeatureSums, law: Predictive, rows: _Rows, sample: RowSample
) -> _Rows:
    """Return the rows, with each row that is a landmark as if it were no landmark.

    Rows with a copy stay as they are: the copy would be the landmark.
    """
    landmarks = law.left_out.landmarks or sums.chosen.map
    if not isinstance(landmarks, NystromMap):
        return rows
    explained = np.flatnonzero(rows.explained)
    X = sample.take(explained).X
    Z = sums.chosen.double(X)
    inside = law.left_out.inside(X, Z)
    dtype = sums.chosen.precision if landmarks is sums.chosen.map else "float64"
    roots = landmarks.whiten(np.eye(landmarks.n_features, dtype=dtype)).astype(np.float64)
    shares = product(inside, roots.T)
    nearest, alike = shares.argmax(axis=1), shares.max(axis=1) > 0.99  # Rows that are landmarks
    copies = np.bincount(nearest[alike], minlength=len(roots))
    alone = alike & (copies[nearest] == 1) & (rows.w[explained] <= 1)
    these, a = explained[alone], roots[nearest[alone]]
    residual, slack, left = rows.residual.copy(), rows.slack.copy(), rows.left.copy()
    left[these] = 1 / np.einsum("ij,ij->i", a, a)
    if landmarks is sums.chosen.map:
        mean, leverage = law.posterior.influence(Z[alone], a)
        seen = sample.y[these], mean, leverage, rows.w[these], rows.prior[these]
        residual[these], slack[these] = told_apart(law.posterior, *seen)
    return replace(rows, residual=residual, slack=slack, left=left)


def _adapted(
    first: Predictive, rows: _Rows, exponents: Iterable[float], shares: Iterable[float]
) -> tuple[Predictive, Float[Array, " t"]]:
    """Return the law with the exponent and the share of the fit's noise that errors ask for.

    A row of weight w counts as w rows.
    """
    errors = rows.errors
    best = np.full(len(first.noise), -np.inf)
    noise, power = first.noise.copy(), first.exponents.copy()
    for p in exponents:
        variance = rows.variance(replace(first, exponents=np.full_like(power, p)))
        for share in shares:
            score = rows.w @ log_normal(errors, variance + share * first.noise) / rows.w.sum()
            better = score > best
            best[better] = score[better]
            noise[better], power[better] = share * first.noise[better], p
    return replace(first, noise=noise, exponents=power), best


@dataclass(frozen=True, eq=False)
class FeatureProcess(ProcessLaw):
    """The law of f on features."""

    spec: GaussianProcessSpec
    representation: FeatureSums
    predictive: Predictive
    loo_log_density: float

    lacks = {}  # noqa: RUF012

    @classmethod
    def fit(
        cls,
        spec: GaussianProcessSpec,
        blocks: Blocks,
        where: Executor = LOCAL,
        precision: Precision | None = None,
    ) -> "FeatureProcess":
        """Choose what is open, sum up all rows, find the law; in float64 where that is needed.

        ``precision`` is that of all sums, where rows cannot be read again.
        """
        chosen, _ = choose(spec.features, blocks, search=feature_search(spec), where=where)
        return chosen_features(spec, chosen, blocks, where, precision)

    chosen = property(attrgetter("representation.chosen"))
    evidence = property(attrgetter("predictive.posterior.evidence"))
    noise = property(attrgetter("predictive.noise"))
    block_rows = property(attrgetter("chosen.block_rows"))
    coef = property(attrgetter("predictive.posterior.coef"))
    intercept = property(attrgetter("predictive.posterior.intercept"))

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self.predictive.posterior.mean(self.chosen.double(X))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        return self.predictive.covariance(X, self.chosen.double(X))

    def moments(self, X: Array) -> Both:
        return self.predictive.moments(X, self.chosen.double(X))

    def gradients(self, blocks: Blocks) -> Gradients:
        return self.chosen.gradients(self.coef, blocks)

    def draw(self, n: int, seed: int) -> Values:
        return through_features(self.representation, self.predictive, n, seed)

    @property
    def drawn_rows(self) -> int:
        return block_rows(max(self.chosen.n_features, WIDTH))

    def scores(self) -> ErrorLaw | None:
        sample = self.representation.sample
        if len(sample) - LOO_ROWS < ENOUGH:
            return None
        unseen = np.argsort(sample.priority, kind="stable")[LOO_ROWS:]
        errors, deviation = left_out(self.representation, self.predictive, sample)
        return ErrorLaw.of_process(errors[unseen], deviation[unseen], "leave one out")

    def solved(self, spec: GaussianProcessSpec, rows: FeatureSums) -> "FeatureProcess":
        return solved(spec, rows)


def chosen_features(
    spec: GaussianProcessSpec,
    chosen: Chosen,
    blocks: Blocks,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> FeatureProcess:
    """Sum the chosen features of all rows, and find the law."""
    asked = RidgeSpec(spec.features, "evidence", False, spec.fit_intercept)
    law = solved(spec, summed_features(asked, chosen, blocks, where, precision, forecasts=False))
    limited = law.evidence.outcome is EvidenceOutcome.FLOAT32_LIMITED
    if limited and spec.features.precision == "auto":
        law = solved(spec, summed_again(law.representation, blocks, where))
    return law


def solved(spec: GaussianProcessSpec, sums: FeatureSums) -> FeatureProcess:
    """Return the law that sums lead to."""
    sums = replace(sums, fit_intercept=spec.fit_intercept)
    means, chosen = (sums.seen.feature_mean, sums.seen.target_mean), sums.chosen
    eigen, _ = sums.decomposed()
    posterior = posterior_of(eigen, means, maximise_evidence(eigen, spec.noise, spec.amplitude))
    without = LeftOut.of(chosen.map, sums.sample.X, chosen.seed)
    law = Predictive(posterior, without, posterior.evidence.noise, np.ones(len(means[1])))
    rows, tells = _looked_at(sums, law, sums.judged)
    exponents = EXPONENTS if tells else EXPONENTS[:1]
    shares = SHARES if tells and spec.noise is None else SHARES[:1]
    law, densities = _adapted(law, rows, exponents, shares)
    return FeatureProcess(spec, sums, law, float(densities.sum()))


# --- Lengthscales --------------------------------------------------------------------------------


def feature_search(spec: GaussianProcessSpec) -> Search | None:
    """Return how the kernel is found; None for the usual search."""
    asked = spec.features

    def named(name: str, sample: RowSample) -> Tuning:
        return choose_lengthscale(name, sample, asked.seed)

    def log_density(sample: RowSample, kernel: Kernel) -> float:
        few = sample.lowest(LOO_ROWS)
        features = replace(asked, kernel=kernel, width=asked.width_to_search)
        blocks = Blocks.from_arrays(few.X, few.y, few.w)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SolutionWarning)
            trial = replace(spec, features=features, lengthscale="loo")
            return FeatureProcess.fit(trial, blocks).loo_log_density

    return search_of(spec, named, log_density)
