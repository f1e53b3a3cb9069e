"""Kernels held against one another on rows that none of them was tuned on.

What is chosen by these rows, a penalty or the best of several kernels, is not judged by them: they
are put into folds, and the errors of each fold are those of what is best on the others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from bochner._core.blas import add_gram, cho_factor, mirror
from bochner._core.shapes import Array, Float
from bochner.kernels import Kernel, Radial
from bochner.selection.descent import LOWEST, Clock
from bochner.selection.rescaled import (
    Rescaled,
    Rows,
    family_of,
    in_numbers,
)

#: Features of a trial, at most.
MOST_FEATURES = 1024

#: Factor between neighbouring penalties of a trial.
STEP = float(np.sqrt(10))

#: What the seed of trials is above that of descents: lengthscales also fit the frequencies seen.
APART = 1000

#: Folds of the rows held out.
FOLDS = 4

#: Errors within this share of the least are equal: the first of them, which is the simplest, is it.
EQUAL = 1e-6


def first_least(errors: Sequence[float]) -> int:
    """Return the place of the first error that is about the least."""
    least = min(errors)
    return next(i for i, error in enumerate(errors) if error <= (1 + EQUAL) * least)


def crossed(squared: Sequence[Float[Array, " n"]]) -> Float[Array, " n"]:
    """Return the squared errors of what is best on the other folds, for each fold in turn.

    Each of `squared` holds those of one of several that are chosen from, in the order of
    preference. Their sum is that of the choice, made with a quarter of the rows less, on rows that
    it was not made by. Of fewer rows than folds, those of the one that is best.
    """
    table = np.stack(squared)
    fold = np.arange(table.shape[1]) % FOLDS
    if table.shape[1] < 2 * FOLDS:
        return table[first_least(table.sum(axis=1).tolist())]
    found = np.empty(table.shape[1])
    for k in range(FOLDS):
        best = first_least(table[:, fold != k].sum(axis=1).tolist())
        found[fold == k] = table[best, fold == k]
    return found


def trial_width(n_features: int, n: int, least: int) -> int:
    """Return the features of a trial: those of the fit, as far as n rows bear them."""
    return min(n_features, MOST_FEATURES, max(least, n // 2))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel to be tried.

    Attributes
    ----------
    family : Kernel
        At lengthscale 1, with its smoothness.
    logs : (d,)
        log ℓ of each column, in the units of the rows.
    share : float
        Penalty a row where the search for it starts.
    tuned : int
        Lengthscales that were tuned: none, one for all columns, or one each.
    """

    family: Kernel
    logs: Float[Array, " d"]
    share: float
    tuned: int

    @property
    def simple(self) -> bool:
        """Whether one lengthscale serves all columns."""
        return self.tuned <= 1

    def scaled(self, factor: float) -> "Candidate":
        """Return it with all lengthscales times ``factor``."""
        return replace(self, logs=self.logs + np.log(factor))

    def kernel(self, units: Float[Array, " d"]) -> Kernel:
        """Return the kernel in the units of the data."""
        return self.family.replace(lengthscale=in_numbers(np.exp(self.logs) * units, self.simple))


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate did: squared errors of rows held out, at penalties that others chose.

    Attributes
    ----------
    candidate : Candidate
        With the penalty that is best on all of these rows.
    squared : (n,)
        Relative to the targets' variances, their mean over targets, times the rows' weights.
    error : float
        Their weighted mean.
    """

    candidate: Candidate
    squared: Float[Array, " n"]
    error: float

    def surely_below(self, other: "Trial", deviations: float = 1.0) -> bool:
        """Whether the error is lower by so many standard deviations of the paired difference."""
        if not np.isfinite(other.error):
            return bool(np.isfinite(self.error))
        gain, deviation = self.gain(other)
        return gain > deviations * deviation + EQUAL * other.error

    def gain(self, other: "Trial") -> tuple[float, float]:
        """Return by how much the error is lower, and the standard deviation of that."""
        scale = self.error / max(float(self.squared.sum()), np.finfo(float).tiny)
        difference = scale * (other.squared - self.squared)
        spread = float(difference.std()) * len(difference) ** 0.5
        return float(difference.sum()), spread


@dataclass(frozen=True, eq=False)
class Court:
    """Rows to fit and rows to err on, the width, and the seed: frequencies are alike for all.

    They are other frequencies than those of the descents, as are those of the fit.
    Where the penalty is given, ``pinned``, it is the same for all too. ``angles`` are remembered.
    """

    train: Rows
    test: Rows
    width: int
    seed: int
    pinned: bool = False
    angles: dict[tuple[Any, ...], tuple[Rescaled, list[Array]]] = field(default_factory=dict)

    def hear(self, candidate: Candidate) -> Trial:
        """Return the trial of a candidate: one product of n D² and a Cholesky factor a penalty."""
        system = self._system(candidate)
        tried = {0: self._trial(system, candidate.share)}
        for direction in () if self.pinned else (-1, 1):
            step = 0
            while tried[step][0] <= min(error for error, _ in tried.values()) and abs(step) < 8:
                step += direction
                if step not in tried:
                    tried[step] = self._trial(system, candidate.share * STEP**step)
        steps = sorted(tried, reverse=True)  # of penalties as good as one another the largest
        best = steps[first_least([tried[step][0] for step in steps])]
        share = max(candidate.share * STEP**best, LOWEST["float64"])
        squared = crossed([tried[step][1] for step in steps])
        error = float(squared.sum() / self.test.w.sum())
        return Trial(replace(candidate, share=share), squared, error)

    def hear_all(
        self, candidates: Iterable[Candidate], note: Callable[[Trial], None], clock: Clock
    ) -> list[Trial]:
        """Return the trials, of the first of a kind at least, whatever the time."""
        trials: list[Trial] = []
        for candidate in candidates:
            known = any(t.candidate.tuned == candidate.tuned for t in trials)
            if not (clock.over and known):
                trials.append(self.hear(candidate))
                note(trials[-1])
        return trials

    def _system(self, candidate: Candidate) -> "_System":
        d = len(candidate.logs)
        if d > self.width // 2:
            return _System.of(*self._from_angles(candidate), self.train)
        rescaled = Rescaled.draw(candidate.family, d, self.width, self.seed + APART)
        W = rescaled.frequencies(candidate.logs, None)
        Z, rest = (rescaled.features(rows.X, W) for rows in (self.train, self.test))
        return _System.of(Z, rest, self.train)

    def _from_angles(self, candidate: Candidate) -> tuple[Array, Array]:
        """Return the features of both, from angles that multiples of the lengthscales share.

        Kernels of the Euclidean distance share them too, but for the radii of their frequencies.
        """
        shared = candidate.logs - candidate.logs[0]
        family = Radial if isinstance(candidate.family, Radial) else type(candidate.family)
        kept = self.angles.get((family, shared.tobytes()))
        if kept is None:
            drawn = Rescaled.draw(candidate.family, len(shared), self.width, self.seed + APART)
            both = [drawn.angles(rows.X, shared) for rows in (self.train, self.test)]
            kept = both[0][0], [angles for _, angles in both]
            self.angles[family, shared.tobytes()] = kept
        base, angles = kept
        rescaled = replace(base, family=family_of(candidate.family))
        W = rescaled.frequencies(np.full(len(base.base), candidate.logs[0]), None)
        return tuple(rescaled.features(X, W) for X in angles)

    def _trial(self, system: "_System", share: float) -> tuple[float, Array]:
        share = max(share, LOWEST["float64"])
        try:
            predicted = system.predicted(share)
        except LinAlgError:
            return float("inf"), np.full(len(self.test), np.inf)
        variance = self.train.w @ (self.train.y - system.mean) ** 2 / self.train.w.sum()
        kept = variance > 0
        relative = (self.test.y - predicted)[:, kept] ** 2 / variance[kept]
        squared = self.test.w * relative.mean(axis=1)
        return float(squared.sum() / self.test.w.sum()), squared


@dataclass(frozen=True, eq=False)
class _System:
    """Normal equations of the rows to fit, and the features of the rows to err on."""

    gram: Float[Array, "D D"]
    cross: Float[Array, "D t"]
    rest: Float[Array, "n D"]
    mean: Float[Array, " t"]
    weight: float

    @staticmethod
    def of(Z: Float[Array, "n D"], rest: Float[Array, "m D"], train: Rows) -> "_System":
        W, root = train.w.sum(), np.sqrt(train.w)[:, None].astype(Z.dtype)
        z = ((train.w @ Z) / W).astype(Z.dtype)
        mean = train.w @ train.y / W
        rooted = np.ascontiguousarray(root * (Z - z))
        gram = np.zeros((Z.shape[1],) * 2, Z.dtype, order="F")
        add_gram(gram, rooted)
        cross = rooted.T @ (root * (train.y - mean)).astype(Z.dtype)
        return _System(mirror(gram).astype(np.float64), cross, rest - z, mean, float(W))

    def predicted(self, share: float) -> Float[Array, "n t"]:
        A = self.gram + share * self.weight * np.eye(len(self.gram))
        coef = cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), self.cross)
        return self.rest @ coef.astype(self.rest.dtype) + self.mean
