"""From moments to the law of a Gaussian process: evidence, posterior, and what errors add to it.

In the fit, what the features leave out of the rows counts as noise. For a new row it is added, so
its noise is what remains, as leave-one-out errors tell. A landmark is left out as a row and as a
landmark. With k(S, S) = L Lᵀ, u_i the i-th unit vector and a_i = L⁻¹u_i, functions of the other
landmarks are those with a_i·β = 0, and they leave 1/|a_i|² of the i-th out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.blas import product
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.features.nystrom.nystrom import NystromMap
from bochner.models.gaussian_process.posterior import (
    EXPLAINED,
    MOST_ROWS,
    LeftOut,
    Predictive,
    of_all_rows,
    of_some_rows,
    posterior_of,
    told_apart,
)
from bochner.models.representations.features import FeatureSums
from bochner.solvers.ridge.evidence import maximise_evidence

#: Exponents p tried for what the features leave out.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

#: Shares of the fit's noise that are tried as noise of new rows.
SHARES = np.concatenate([np.logspace(0, -3, 31), [0.0]])

#: Rows that features must leave something out of, for errors to tell of it.
ENOUGH = 20

#: Weight of the landmark that a row is, among those that it is made of.
ITSELF = 0.99


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


def solve_process(
    sums: FeatureSums, noise: float | None, amplitude: float | None
) -> tuple[Predictive, Float[Array, " t"]]:
    """Return the law of f, and mean log densities of rows under that without them."""
    means = sums.seen.feature_mean, sums.seen.target_mean
    eigen, _ = sums.decomposed()
    posterior = posterior_of(eigen, means, maximise_evidence(eigen, noise, amplitude))
    without, t = LeftOut.of(sums.chosen.map, sums.sample.X, sums.chosen.seed), len(means[1])
    law = Predictive(posterior, without, posterior.evidence.noise, np.ones(t))
    sample = sums.judged
    rows = _looked_at(sums, law, sample)
    if np.maximum(rows.w, 1.0)[~rows.explained].sum() < ENOUGH:
        return _adapted(law, rows, EXPONENTS[:1], SHARES[:1])
    rows = _without_own_landmarks(sums, law, rows, sample)
    return _adapted(law, rows, EXPONENTS, SHARES if noise is None else SHARES[:1])


def left_out(
    sums: FeatureSums, law: Predictive, sample: RowSample
) -> tuple[Float[Array, "m t"], Float[Array, "m t"]]:
    """Return errors of rows of the fit, and standard deviations of y, both by fits without each.

    Lengthscales, noise, amplitude and exponents stay as the rows have chosen them.
    """
    rows = _looked_at(sums, law, sample)
    if np.maximum(rows.w, 1.0)[~rows.explained].sum() >= ENOUGH:
        rows = _without_own_landmarks(sums, law, rows, sample)
    return rows.errors, np.sqrt(rows.variance(law) + law.noise)


def _looked_at(sums: FeatureSums, law: Predictive, sample: RowSample) -> _Rows:
    """Return rows of the sample."""
    parts = []
    for rows in sums.pieces(sample):
        Z = sums.chosen.double(rows.X)
        left = law.left_out.variance(rows.X, Z)
        parts.append((Z, rows.y, rows.w, left, law.left_out.prior(rows.X)))
    Z, y, w, left, prior = (np.concatenate(part) for part in zip(*parts, strict=True))
    whole = len(w) == sums.moments.rows and sums.chosen.precision == "float64"
    if whole and len(w) <= MOST_ROWS:
        residual, slack = of_all_rows(law.posterior, Z, y, w)
    else:
        residual, slack = of_some_rows(law.posterior, Z, y, w, sums.moments.precision)
    return _Rows(residual, slack, left, prior, w)


def _without_own_landmarks(
    sums: FeatureSums, law: Predictive, rows: _Rows, sample: RowSample
) -> _Rows:
    """Return rows that are landmarks as they are seen without those.

    A row that is there twice is not: its copy would be the landmark.
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
    own, alike = shares.argmax(axis=1), shares.max(axis=1) > ITSELF
    copies = np.bincount(own[alike], minlength=len(roots))
    alone = alike & (copies[own] == 1) & (rows.w[explained] <= 1)
    these, a = explained[alone], roots[own[alone]]
    residual, slack, left = rows.residual.copy(), rows.slack.copy(), rows.left.copy()
    left[these] = 1 / np.einsum("ij,ij->i", a, a)
    if landmarks is sums.chosen.map:
        mean, leverage = law.posterior.held(Z[alone], a)
        seen = sample.y[these], mean, leverage, rows.w[these], rows.prior[these]
        residual[these], slack[these] = told_apart(law.posterior, *seen)
    return replace(rows, residual=residual, slack=slack, left=left)


def _adapted(
    first: Predictive, rows: _Rows, exponents: Iterable[float], shares: Iterable[float]
) -> tuple[Predictive, Float[Array, " t"]]:
    """Return the law with the exponent and the noise under which errors are most likely.

    Parameters
    ----------
    first : Predictive
        With the fit's noise.
    rows : _Rows
        A subset of the rows of the fit.
    exponents, shares : iterable of float
        What is tried: shares of the fit's noise.

    Notes
    -----
    A row of weight w counts as w rows.
    """
    errors = rows.errors
    best = np.full(len(first.noise), -np.inf)
    noise, power = first.noise.copy(), first.exponents.copy()
    for p in exponents:
        variance = rows.variance(replace(first, exponents=np.full_like(power, p)))
        for share in shares:
            score = rows.w @ _log_density(errors, variance + share * first.noise) / rows.w.sum()
            better = score > best
            best[better] = score[better]
            noise[better], power[better] = share * first.noise[better], p
    return replace(first, noise=noise, exponents=power), best


def _log_density(errors: Float[Array, "b t"], variance: Float[Array, "b t"]) -> Array:
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    return -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)
