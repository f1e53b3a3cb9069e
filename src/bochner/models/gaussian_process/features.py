"""A Gaussian process on features: choose, sum, find noise and amplitude; its posterior.

With G = V diag(w) Vᵀ about the mean z̄, λ = σ²/a² and b of flat prior,

    f(x) = ȳ + (φ(x) − z̄)·β + b',   β ~ N(β̂, a²λ (G + λI)⁻¹),   b' ~ N(0, a²λ/W),
    Var f(x) = a² λ (Σ_j A_j²/(w_j + λ) + 1/W),   A = Vᵀ(φ(x) − z̄).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from bochner._core.arrays import array_namespace, is_numpy, numpy_rows, squared_norms, to_numpy
from bochner._core.blas import product
from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float
from bochner._core.sizes import LOO_ROWS, block_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.models._rows import no_landmarks
from bochner.models.gaussian_process.law import (
    ENOUGH,
    WIDTH,
    GaussianProcessSpec,
    ProcessLaw,
    Values,
    log_normal,
    prior_functions,
    search_of,
)
from bochner.models.representations.features import FeatureSums, summed_again, summed_features
from bochner.models.representations.representation import RidgeSpec
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen
from bochner.solvers.ridge.eigen import EPS, FLOAT32_GRAM
from bochner.solvers.ridge.problem import slack_of_leverage
from bochner.solvers.ridge.solution import Evidence, EvidenceOutcome, maximise_evidence
from bochner.sums.moments import Precision
from bochner.sums.passes import LOCAL, Executor

# --- What a Gaussian process on features predicts, with what the features leave out --------------
#
#     Var f(x) = a²λ (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + a²λ/W + a² e(x),   e(x) = k(x, x) − |φ(x)|².
#
# Without e(x) the variance would starve: far from the data features vanish, or repeat themselves,
# and leave no doubt. Where ZZᵀ ⪯ K, e is the variance of what no combination of features can be
# (Rasmussen and Williams 2006, section 8.3.4; Titsias 2009). Other maps, as Fourier's, are compared
# with the Nyström projection onto landmarks among the rows: e(x) is then what these leave out,
# k(x, x) far from all rows, and the variance is at most the prior variance. Either e(x)/k(x, x)
# is taken to the power p ≥ 1 that leave-one-out errors ask for: targets smoother, or of less
# amplitude along what is left out, than draws of the kernel have less of it near the rows.

EXPLAINED = 1e-6  # A row is in the span of the features if a smaller share of k(x, x) is left out


@dataclass(frozen=True, eq=False)
class LeftOut:
    """e(x): the part of the prior variance that the features do not have."""

    kernel: Kernel
    # What a map that is not below its kernel is compared with; None for one that is
    landmarks: NystromMap | None

    def prior(self, X: Array) -> Float[Array, " b"]:
        """Return k(x, x)."""
        return np.asarray(to_numpy(self.kernel.diag(X)), np.float64)

    def inside(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b m"]:
        """Return the features that rows are measured by."""
        return Z if self.landmarks is None else to_numpy(self.landmarks(numpy_rows(X)))

    def variance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, " b"]:
        """Return e(x) of rows X with features Z."""
        Z = self.inside(X, Z)
        return np.maximum(self.prior(X) - squared_norms(Z), 0.0)

    def covariance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b b"]:
        """Return the covariance that the features miss; its diagonal is e(x)."""
        Z = self.inside(X, Z)
        left = np.array(to_numpy(self.kernel(X)), np.float64) - Z @ Z.T
        np.fill_diagonal(left, np.maximum(np.diag(left), 0.0))
        return left


# --- Functions drawn from the posterior -----------------------------------------------------------
#
# Pathwise (Wilson et al. 2020), with inducing values drawn from their posterior: with landmarks S,
# L Lᵀ = k(S, S) and φ(x) = L⁻¹k(S, x),
#
#     f(x) = φ(x)·β + b + a (f⁰(x) − φ(x)·L⁻¹f⁰(S)),      β, b from their posterior.
#
# The difference is what the landmarks leave out of f⁰, independent of β. For a map without
# landmarks, some rows are used as landmarks, and the difference is scaled to the variance that the
# map leaves out. f⁰ is a weighted sum of Fourier features, drawn for each function: its covariance
# is exactly k. O(m D (d + n t)), and O(m F d) for each function.


def _among(X: Array, kernel: Kernel, width: int, seed: int, name: str) -> NystromMap | None:
    """Return the Nyström map of landmarks among rows: O(n D²)."""
    phi = draw_map(Nystrom(), kernel, Request(X.shape[1], width, seed, (name,), X))
    return phi if isinstance(phi, NystromMap) else None


# --- From moments to the law: evidence, posterior, and what errors add to it ----------------------
#
# In the fit, what the features leave out of the rows counts as noise. For a new row it is added, so
# its noise is what remains, as leave-one-out errors tell. Rows that are landmarks are no judges:
# leaving out the row does not take the landmark away.


@dataclass(frozen=True, eq=False)
class FeatureProcess(ProcessLaw):
    """The law of f on features."""

    spec: GaussianProcessSpec
    representation: FeatureSums
    # Of β and of the intercept
    values: Float[Array, " r"]  # w
    vectors: Float[Array, "D r"]  # V; directions that are not there have w = 0
    feature_mean: Float[Array, " D"]  # z̄, zero without an intercept
    coef: Float[Array, "D t"]  # β̂
    intercept: Float[Array, " t"]  # ȳ − z̄·β̂
    spread: float  # 1/W, or zero without an intercept
    evidence: Evidence  # λ, a² and σ² of each target
    # Beyond the features
    unexplained: LeftOut
    noise: Float[Array, " t"]  # Variance of y about f(x)
    exponents: Float[Array, " t"]  # p in k(x, x) (e(x)/k(x, x))ᵖ
    loo_log_density: float = np.nan

    lacks = {}  # noqa: RUF012

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
        """Choose what is open, sum up all rows, find the law."""
        search = search_of(spec, FeatureProcess.fit, LOO_ROWS)
        chosen, _ = choose(spec.features, blocks, search=search, where=where)
        return chosen_features(spec, chosen, blocks, where, precision)

    chosen = property(attrgetter("representation.chosen"))

    @property
    def block_rows(self) -> int:  # type: ignore[override]
        """Number of rows predicted together; memory for features or draws limits it."""
        return block_rows(max(self.chosen.n_features, WIDTH))

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:  # with the digits of ``moments``
        return lambda X: self.mean(self.at(X))

    def moments(self, X: Array) -> Both:
        Z, e = self.at(X), self.unexplained
        return self.mean(Z), self.combined(self.leverage(Z), e.variance(X, Z), e.prior(X))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        Z, one = self.at(X), np.ones(len(X))
        left, (roots, roots_all) = self.unexplained.covariance(X, Z), self.factors(X, Z)
        outer = self.evidence.amplitude * roots[:, None] * left[:, :, None] * roots
        total = self.between((Z, Z), (one, one)) + outer
        return roots_all[:, None] * total * roots_all

    def at(self, X: Array) -> Float[Array, "b D"]:
        """Return what f(x) is known by, for :meth:`between`: φ(x)."""
        return self.chosen.double(X)

    @property
    def floor(self) -> Float[Array, " t"]:
        """a²λ: the noise that rows were fitted with."""
        return self.evidence.amplitude * self.evidence.alpha

    def mean(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return E f(x), for rows of features."""
        return Z @ self.coef + self.intercept

    def leverage(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return Var f(x)/(a²λ) of the features alone, for arrays of any library."""
        centred, alpha = Z - self.feature_mean, self.evidence.alpha
        A = product(centred, self.vectors) if is_numpy(Z) else centred @ self.vectors
        leverage = (A * A) @ (1 / (self.values[:, None] + alpha))
        if self.vectors.shape[0] != self.vectors.shape[1]:
            outside = np.maximum(squared_norms(centred) - squared_norms(A), 0.0)
            leverage = leverage + outside[:, None] / alpha
        return leverage + self.spread

    def between(
        self,
        Z: tuple[Float[Array, "b D"], Float[Array, "c D"]],
        constant: tuple[Float[Array, " b"], Float[Array, " c"]],
    ) -> Float[Array, "b c t"]:
        """Return Cov(Lf, L'f) of each target, of the features alone.

        L and L' are linear functionals, given by L φ and by their values for the constant 1.
        """
        pairs = zip(Z, constant, strict=True)
        left, right = (each - np.outer(one, self.feature_mean) for each, one in pairs)
        A, B = (each @ self.vectors for each in (left, right))
        parts, ones = [], np.outer(*constant)
        for scale, alpha in zip(self.evidence.amplitude, self.evidence.alpha, strict=True):
            explained = (A * (self.values / (self.values + alpha))) @ B.T
            parts.append(scale * (left @ right.T - explained + alpha * self.spread * ones))
        return np.stack(parts, axis=2)

    def combined(self, leverage: Array, e: Array, k: Array) -> Float[Array, "b t"]:
        """Return Var f(x) from leverages (b, t), e(x) and k(x, x), in any library."""
        total = self._total(leverage, e, k)
        if self.unexplained.landmarks is None:
            return total
        most = self.evidence.amplitude * k[:, None] + self.floor * self.spread
        return np.minimum(total, most)

    def factors(self, X: Array, Z: Float[Array, "b D"]) -> tuple[Array, Array]:
        """Return what deviations of the process left out, and of the sum, are multiplied by."""
        e, k = self.unexplained.variance(X, Z), self.unexplained.prior(X)
        leverage = self.leverage(Z)
        total, most = self._total(leverage, e, k), self.combined(leverage, e, k)
        ratio = np.divide(most, total, out=np.ones_like(total), where=total > 0)
        return np.sqrt(self._damping(e, k)), np.sqrt(ratio)

    def _total(self, leverage: Array, e: Array, k: Array) -> Array:
        left = e[:, None] * self._damping(e, k)
        return self.floor * leverage + self.evidence.amplitude * left

    def _damping(self, e: Array, k: Array) -> Array:
        """Return (e(x)/k(x, x))ᵖ⁻¹."""
        xp = array_namespace(k)
        share = xp.where(k > 0.0, e / xp.where(k > 0.0, k, 1.0), 0.0)
        return share[:, None] ** (self.exponents - 1.0)

    def _draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[Array, "D t n"], Float[Array, "t n"]]:
        """Return n draws of β and of the intercept that goes with it."""
        D, t = self.coef.shape
        rough = rng.standard_normal((D, t, n))
        shrink = np.sqrt(self.evidence.alpha / (self.values[:, None] + self.evidence.alpha))
        turned = np.tensordot(self.vectors.T, rough, 1)
        moved = np.tensordot(self.vectors, turned * (shrink[:, :, None] - 1), 1)
        deviation = np.sqrt(self.evidence.amplitude)[:, None] * (rough + moved)
        wander = np.sqrt(self.floor * self.spread)[:, None] * rng.standard_normal((t, n))
        offset = self.intercept[:, None] + wander - np.tensordot(self.feature_mean, deviation, 1)
        return self.coef[:, :, None] + deviation, offset

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions; of the features alone if they are exact."""
        coef, offset = self._draw(n, stream(seed, "functions"))
        landmarks = self._landmarks

        def plain(X: Array) -> Float[Array, "b t n"]:
            return np.tensordot(self.at(X), coef, 1) + offset

        if landmarks is None:
            return plain
        kernel, sample = landmarks.kernel, self.representation.sample
        prior = prior_functions(kernel, sample.X, len(offset), n, seed)
        f0 = prior(landmarks.landmarks)
        at = np.ascontiguousarray(f0.reshape(len(f0), -1).T)
        explained = landmarks.whiten(at, at.dtype).T.reshape(f0.shape)
        above = LeftOut(kernel, landmarks)

        def values(X: Array) -> Float[Array, "b t n"]:
            Z, f = self.at(X), plain(X)
            rest = prior(X) - np.tensordot(above.inside(X, Z), explained, 1)
            root, roots = self.factors(X, Z)
            e, theirs = self.unexplained.variance(X, Z), above.variance(X, Z)
            least = EXPLAINED * self.unexplained.prior(X)
            share = np.divide(e, theirs, out=np.zeros_like(e), where=theirs > least)
            scale = np.sqrt(self.evidence.amplitude * share[:, None]) * root
            mean = self.mean(Z)[:, :, None]
            f = f + scale[:, :, None] * rest
            return mean + roots[:, :, None] * (f - mean)

        return values

    @property
    def _landmarks(self) -> NystromMap | None:
        """The map's landmarks, or others where it has none and leaves something out."""
        chosen, left, sample = self.chosen, self.unexplained, self.representation.sample
        phi = left.landmarks or chosen.map
        if isinstance(phi, NystromMap):
            return phi
        X = sample.lowest(256).X
        if np.all(left.variance(X, self.at(X)) <= EXPLAINED * left.prior(X)):
            return None
        return _among(sample.X, chosen.kernel, chosen.n_features, chosen.seed, "functions")

    def scores(self) -> Both | None:
        sample = self.representation.sample
        if len(sample) - LOO_ROWS < ENOUGH:
            return None
        unseen = sample.take(np.argsort(sample.priority, kind="stable")[LOO_ROWS:])
        return self.left_out(self.judges(unseen))

    def judges(self, sample: RowSample) -> RowSample:
        """Return the rows that are no landmarks."""
        phi = self.unexplained.landmarks or self.chosen.map
        return sample.take(no_landmarks(phi, sample.X))

    def left_out(self, sample: RowSample) -> Both:
        """Return errors of rows of the fit, and deviations of y, both by fits without each."""
        errors, rows = self.without_each(sample)
        return errors, np.sqrt(self.combined(*rows) + self.noise)

    def without_each(
        self, sample: RowSample
    ) -> tuple[Float[Array, "b t"], tuple[Float[Array, "b t"], Float[Array, " b"], Array]]:
        """Return errors of fits without each row, and their leverages, e(x), k(x, x): O(b D²).

        Where rounding hides errors (y − f̂)/(1 − h), those of an isolated row: it has 1 − h =
        λ/(λ + k), the least for rows with φ·φ = k, and is predicted by the mean without itself.
        Coordinates are off by ε√k, which moves h by up to 2ε √(kD/λ); float32 products move it by
        their error of G over λ.
        """
        Z, y, w, alpha = self.at(sample.X), sample.y, sample.w, self.evidence.alpha
        left, prior = self.unexplained.variance(sample.X, Z), self.unexplained.prior(sample.X)
        single = self.representation.moments.precision == "float32"
        own = squared_norms(Z - self.feature_mean)[:, None]
        top = self.values.max(initial=0.0) if single else 0.0
        slack = slack_of_leverage(self.leverage(Z), w[:, None])
        rounding = 10 * EPS * np.sqrt(1 + own * Z.shape[1] / alpha) + FLOAT32_GRAM * top / alpha
        least = alpha / (alpha + np.minimum(w, 1.0)[:, None] * own)
        resolved = slack > rounding
        centre = self.intercept + self.feature_mean @ self.coef
        slack = np.where(resolved, slack, least)
        errors = np.where(resolved, (y - self.mean(Z)) / slack, y - centre)
        return errors, ((1 - slack) / slack, left, prior)

    @staticmethod
    def solved(spec: GaussianProcessSpec, sums: FeatureSums) -> "FeatureProcess":
        """Return the law that sums lead to."""
        sums = replace(sums, fit_intercept=spec.fit_intercept)
        means, chosen = sums.means, sums.chosen
        eigen, _ = sums.decomposed()
        evidence = maximise_evidence(eigen, spec.noise, spec.amplitude)
        coef = eigen.coefficients(evidence.alpha)
        phi, others = chosen.map, None
        if not phi.below_kernel:
            width = min(phi.n_features, 1024)
            others = _among(sums.sample.X, phi.kernel, width, chosen.seed, "left out")
        law = FeatureProcess(
            spec,
            sums,
            eigen.values,
            np.ascontiguousarray(eigen.vectors),
            means[0],
            coef,
            means[1] - means[0] @ coef,
            1 / eigen.count if eigen.centred else 0.0,
            evidence,
            LeftOut(phi.kernel, others),
            evidence.noise,
            np.ones(len(means[1])),
        )
        sample = law.judges(sums.sample if sums.keeps_all else sums.sample.lowest(LOO_ROWS))
        (errors, rows), w = law.without_each(sample), sample.w
        # Whether features leave something out of enough rows for their errors to tell
        tells = np.maximum(w, 1.0)[rows[1] > EXPLAINED * rows[2]].sum() >= 20
        exponents = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if tells else (1.0,)
        shares = [*np.logspace(0, -3, 31), 0.0] if tells and spec.noise is None else [1.0]
        # The exponent and the share of the fit's noise that errors ask for; a row of weight w
        # counts as w rows.
        best = np.full(len(law.noise), -np.inf)
        noise, power = law.noise.copy(), law.exponents.copy()
        for p in exponents:
            variance = replace(law, exponents=np.full_like(power, p)).combined(*rows)
            for share in shares:
                score = w @ log_normal(errors, variance + share * law.noise) / w.sum()
                better = score > best
                best[better] = score[better]
                noise[better], power[better] = share * law.noise[better], p
        return replace(law, noise=noise, exponents=power, loo_log_density=float(best.sum()))


def chosen_features(
    spec: GaussianProcessSpec,
    chosen: Chosen,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None = None,
) -> FeatureProcess:
    """Sum the chosen features of all rows, and find the law; again in float64 where needed."""
    asked = RidgeSpec(spec.features, "evidence", False, spec.fit_intercept)
    sums = summed_features(asked, chosen, blocks, where, precision, whitens_sums=False)
    law = FeatureProcess.solved(spec, sums)
    limited = law.evidence.outcome is EvidenceOutcome.FLOAT32_LIMITED
    if limited and spec.features.precision == "auto":
        law = FeatureProcess.solved(spec, summed_again(law.representation, blocks, where))
    return law
