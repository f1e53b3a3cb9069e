"""Kernels held against one another on rows that none of them was tuned on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from bochner._ground.blas import add_gram, mirror
from bochner._ground.lapack import cho_factor
from bochner._ground.shapes import Array, Float
from bochner.estimators.tuning.descent import LOWEST, Clock
from bochner.estimators.tuning.rescaled import Rescaled, Rows, in_numbers
from bochner.kernels import Kernel

__all__ = ["Candidate", "Court", "Trial", "trial_width"]

#: Features of a trial, at most.
MOST_FEATURES = 1024

#: Factor between neighbouring penalties of a trial.
STEP = float(np.sqrt(10))


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
    simple : bool
        Whether one lengthscale serves all columns.
    """

    family: Kernel
    logs: Float[Array, " d"]
    share: float
    simple: bool

    def scaled(self, factor: float) -> "Candidate":
        """Return it with all lengthscales times ``factor``."""
        return replace(self, logs=self.logs + np.log(factor))

    def kernel(self, units: Float[Array, " d"]) -> Kernel:
        """Return the kernel in the units of the data."""
        return self.family.replace(lengthscale=in_numbers(np.exp(self.logs) * units, self.simple))


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate did: squared errors of rows held out, at the penalty that was best.

    Attributes
    ----------
    candidate : Candidate
        With that penalty.
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
        difference = other.squared - self.squared
        return float(difference.sum()) > deviations * float(difference.std()) * len(
            difference
        ) ** 0.5 + 1e-12 * float(other.squared.sum())


@dataclass(frozen=True, eq=False)
class Court:
    """Rows to fit and rows to err on, the width, and the seed of the frequencies: alike for all.

    Where the penalty is given, ``pinned``, it is the same for all too.
    """

    train: Rows
    test: Rows
    width: int
    seed: int
    pinned: bool = False

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
        best = min(tried, key=lambda step: tried[step][0])
        share = max(candidate.share * STEP**best, LOWEST["float64"])
        return Trial(replace(candidate, share=share), tried[best][1], tried[best][0])

    def hear_all(
        self, candidates: Iterable[Candidate], note: Callable[[Trial], None], clock: Clock
    ) -> list[Trial]:
        """Return the trials, of the first of a kind at least, whatever the time."""
        trials: list[Trial] = []
        for candidate in candidates:
            known = any(t.candidate.simple == candidate.simple for t in trials)
            if not (clock.over and known):
                trials.append(self.hear(candidate))
                note(trials[-1])
        return trials

    def _system(self, candidate: Candidate) -> "_System":
        d = len(candidate.logs)
        rescaled = Rescaled.draw(candidate.family, d, self.width, self.seed)
        W = rescaled.frequencies(candidate.logs, None)
        Z, rest = (rescaled.features(rows.X, W) for rows in (self.train, self.test))
        return _System.of(Z, rest, self.train)

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
