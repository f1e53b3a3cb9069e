"""From moments to the law of a Gaussian process: evidence, posterior, and what errors add to it.

In the fit, what the features leave out of the rows counts as noise. For a new row it is added, so
its noise is what remains, as leave-one-out errors tell.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bochner._ground.arrays import to_numpy
from bochner._ground.shapes import Array, Float
from bochner.estimators.fitting import engine
from bochner.estimators.gaussian_process.intervals import Conformal
from bochner.estimators.gaussian_process.posterior import posterior_of
from bochner.estimators.gaussian_process.predictive import EXPLAINED, LeftOut, Predictive
from bochner.estimators.ridge import normal
from bochner.solvers.evidence import maximise_evidence

__all__ = ["as_double", "solve_process"]

#: Exponents p tried for them: their amplitude says little of what landmarks leave out.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

#: Shares of the fit's noise that are tried as noise of new rows.
SHARES = np.concatenate([np.logspace(0, -3, 31), [0.0]])

#: Rows that must not be landmarks for the others to be left aside.
ENOUGH = 20


def as_double(model: Any, X: Array) -> Float[Array, "b D"]:
    """Return φ(X) as the model rounds it, in NumPy's float64."""
    Z = to_numpy(engine.as_features(model.map_, X, model.feature_dtype_))
    return Z.astype(np.float64, copy=False)


def solve_process(
    model: Any, noise: float | None, amplitude: float | None
) -> tuple[Predictive, Conformal]:
    """Return the law of f and the scores of its leave-one-out errors, from a model's moments."""
    moments = normal.seen(model, model.moments_)
    means, eigen = (moments.feature_mean, moments.target_mean), normal.decomposed(model, moments)
    posterior = posterior_of(eigen, means, maximise_evidence(eigen, noise, amplitude))
    left_out, t = LeftOut.of(model.map_, model.sample_.X, model.seed_), len(means[1])
    law = Predictive(posterior, left_out, posterior.evidence.noise, np.ones(t))
    return _adapted(law, _looked_at(model), noise is None)


def _looked_at(model: Any) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Give rows of the sample: X, Z, y, w."""
    for rows in normal.pieces(model, normal.judged_sample(model)):
        yield rows.X, as_double(model, rows.X), rows.y, rows.w


def _adapted(
    first: Predictive,
    rows: Iterable[tuple[Array, Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"]]],
    open_noise: bool,
) -> tuple[Predictive, Conformal]:
    """Return the law with its noise and exponents set by leave-one-out errors, and their scores.

    Parameters
    ----------
    first : Predictive
        With the fit's noise.
    rows : iterable of (X, Z, y, w)
        Rows among those of the fit.
    open_noise : bool
        Whether the noise was chosen; a given one stays.

    Notes
    -----
    Leave-one-out errors are (y − f̂)/(1 − h), and the variance of f without the row is
    a²λ h/(1 − h), h = w·leverage: exact. Landmarks are left aside, since they alone have no e(x).
    """
    parts = [(*_seen_at(first, X, Z), y, w) for X, Z, y, w in rows]
    mean, leverage, e, k, y, w = (np.concatenate(part) for part in zip(*parts, strict=True))
    inside = np.clip(np.minimum(w, 1.0)[:, None] * leverage, 0.0, 1 - 1e-10)
    errors, without = (y - mean) / (1 - inside), inside / (1 - inside)
    others = e > EXPLAINED * k
    seen = others if others.sum() >= ENOUGH else np.ones_like(others)
    errors, without, e, k = errors[seen], without[seen], e[seen], k[seen]
    law = _most_likely(first, errors, without, e, k, open_noise and bool(others[seen].all()))
    deviation = np.sqrt(law.combined(without, e, k) + law.noise)
    return law, Conformal.of(errors, deviation, "leave one out")


def _seen_at(law: Predictive, X: Array, Z: Array) -> tuple[Array, Array, Array, Array]:
    left_out, posterior = law.left_out, law.posterior
    return posterior.mean(Z), posterior.leverage(Z), left_out.variance(X, Z), left_out.prior(X)


def _most_likely(
    first: Predictive, errors: Array, without: Array, e: Array, k: Array, open_noise: bool
) -> Predictive:
    """Return the law with the exponent and the noise under which errors are most likely."""
    exponents = (1.0,) if first.left_out.landmarks is None else EXPONENTS
    shares = SHARES if open_noise else SHARES[:1]
    best = np.full(len(first.noise), -np.inf)
    noise, power = first.noise.copy(), first.exponents.copy()
    for p in exponents:
        law = replace(first, exponents=np.full_like(power, p))
        variance = law.combined(without, e, k)
        for share in shares:
            total = np.maximum(variance + share * first.noise, np.finfo(np.float64).tiny)
            score = -(np.log(total) + errors**2 / total).sum(axis=0)
            better = score > best
            best[better] = score[better]
            noise[better], power[better] = share * first.noise[better], p
    return replace(first, noise=noise, exponents=power)
