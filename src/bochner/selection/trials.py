"""Kernels held against one another on rows that none of them was tuned on.

What is chosen by these rows, a penalty or the best of several kernels, is not judged by them: they
are put into folds, and the errors of each fold are those of what is best on the others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from bochner._core.arrays import dense, is_sparse
from bochner._core.blas import cho_factor
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Radial
from bochner.selection.descent import (
    LOWEST,
    Rescaled,
    TimeBudget,
    family_of,
    in_numbers,
)
from bochner.selection.rows import TuningRows
from bochner.solvers.ridge.solution import SAME_ROUNDED
from bochner.sums.moments import Moments

#: Features of a trial, at most.
MOST_FEATURES = 1024

#: Factor between neighbouring penalties of a trial.
STEP = float(np.sqrt(10))

#: What the seed of trials is above that of descents: lengthscales also fit the frequencies seen.
APART = 1000

#: Share of the rows that is held out, and so many at most.
HELD_OUT, MOST_HELD_OUT = 0.25, 2048

#: Rows of more cells than this are not looked through for copies, nor made dense if sparse.
MOST_CELLS = 1 << 22

#: Fewer rows than this say nothing of lengthscales.
FEWEST = 8

#: Folds of the rows held out.
FOLDS = 4


def first_least(errors: Sequence[float]) -> int:
    """Return the place of the first error that is about the least: the simplest one."""
    least = min(errors)
    return next(i for i, error in enumerate(errors) if error <= (1 + SAME_ROUNDED) * least)


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


Rows = TypeVar("Rows", RowSample, TuningRows)


def split_rows(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return rows to tune on and rows to err on; equal rows stay together."""
    X, n = rows.X, len(rows)
    if X.shape[0] * X.shape[1] <= MOST_CELLS:
        group = np.unique(dense(X), axis=0, return_inverse=True)[1].ravel()
    else:
        group = np.arange(n)
    held = min(MOST_HELD_OUT, max(1, int(HELD_OUT * n)))
    place = stream(seed, "held out").permutation(int(group.max()) + 1)[group]
    out = np.argsort(place, kind="stable")[:held]
    out = np.flatnonzero(place <= place[out[-1]])
    return rows.take(np.setdiff1d(np.arange(n), out)), rows.take(out)


def targets_that_vary(rows: RowSample | TuningRows) -> Float[Array, " t"]:
    """Return which targets vary; none where rows are too few to tune on, or all equal."""
    few = len(rows) < FEWEST
    if few or (not is_sparse(rows.X) and not np.any(rows.X[:1] != rows.X)):
        return np.zeros(rows.y.shape[1], bool)
    return np.ptp(rows.y, axis=0) > 0


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """A kernel to be tried."""

    family: Kernel  # at lengthscale 1, with its smoothness
    logs: Float[Array, " d"]  # log ℓ of each column, in the units of the rows
    share: float  # per-row penalty where the search for it starts
    tuned: int  # lengthscales that were tuned: none, one for all columns, or one each

    @property
    def simple(self) -> bool:
        """Whether one lengthscale serves all columns."""
        return self.tuned <= 1

    def scaled(self, factor: float) -> "KernelCandidate":
        """Return it with all lengthscales times ``factor``."""
        return replace(self, logs=self.logs + np.log(factor))

    def kernel(self, units: Float[Array, " d"]) -> Kernel:
        """Return the kernel in the units of the data."""
        return self.family.replace(lengthscale=in_numbers(np.exp(self.logs) * units, self.simple))


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate did: squared errors of rows held out, at penalties that others chose."""

    candidate: KernelCandidate  # with the penalty that is best on all of these rows
    #: Relative to the targets' variances, their mean over targets, times the rows' weights.
    squared: Float[Array, " n"]
    error: float  # their weighted mean

    def surely_below(self, other: "Trial") -> bool:
        """Whether the error is lower by more than the standard deviation of the difference."""
        gain, least = self.gain(other)
        return gain > least

    def gain(self, other: "Trial") -> tuple[float, float]:
        """Return by how much the error is lower, and the deviation of that, or its rounding."""
        if not (np.isfinite(other.error) and np.isfinite(self.error)):
            return (np.inf if self.error < other.error else 0.0), 0.0
        scale = self.error / max(float(self.squared.sum()), np.finfo(float).tiny)
        difference = scale * (other.squared - self.squared)
        deviation = float(difference.std()) * len(difference) ** 0.5
        return float(difference.sum()), deviation + SAME_ROUNDED * other.error


@dataclass(frozen=True, eq=False)
class HeldOutTrials:
    """Rows to fit and rows to err on, the width, and the seed: frequencies are alike for all.

    They are other frequencies than those of the descents, as are those of the fit.
    Where the penalty is given, ``pinned``, it is the same for all too. ``angles`` are remembered.
    """

    train: TuningRows
    test: TuningRows
    width: int
    seed: int
    pinned: bool = False
    angles: dict[tuple[Any, ...], tuple[Rescaled, list[Array]]] = field(default_factory=dict)

    def trial(self, candidate: KernelCandidate) -> Trial:
        """Return the trial of a candidate: one product of n D² and a Cholesky factor a penalty."""
        Z, rest = self._features(candidate)
        moments = Moments.of(Z, self.train.y, self.train.w)
        tried = {0: self.errors(moments, rest, candidate.share)}
        for direction in () if self.pinned else (-1, 1):
            step = 0
            while tried[step][0] <= min(error for error, _ in tried.values()) and abs(step) < 8:
                step += direction
                if step not in tried:
                    tried[step] = self.errors(moments, rest, candidate.share * STEP**step)
        steps = sorted(tried, reverse=True)  # of penalties as good as one another the largest
        best = steps[first_least([tried[step][0] for step in steps])]
        share = max(candidate.share * STEP**best, LOWEST["float64"])
        squared = crossed([tried[step][1] for step in steps])
        error = float(squared.sum() / self.test.w.sum())
        return Trial(replace(candidate, share=share), squared, error)

    def errors(
        self, moments: Moments, rest: Float[Array, "n D"], share: float
    ) -> tuple[float, Float[Array, " n"]]:
        """Return the error of the rows held out, and their squares, at a per-row penalty."""
        penalty = max(share, LOWEST["float64"]) * moments.weight
        try:
            factor = cho_factor(moments.gram + penalty * np.eye(len(moments.gram)), True)
        except LinAlgError:
            return float("inf"), np.full(len(self.test), np.inf)
        coef = cho_solve(factor, moments.cross)
        variance = moments.power / moments.weight
        kept = variance > 0
        residuals = self.test.y - moments.target_mean - (rest - moments.feature_mean) @ coef
        squared = self.test.w * (residuals[:, kept] ** 2 / variance[kept]).mean(axis=1)
        return float(squared.sum() / self.test.w.sum()), squared

    def trials(
        self,
        candidates: Iterable[KernelCandidate],
        note: Callable[[Trial], None],
        budget: TimeBudget,
    ) -> list[Trial]:
        """Return the trials, of the first of a kind at least, whatever the time."""
        trials: list[Trial] = []
        for candidate in candidates:
            known = any(t.candidate.tuned == candidate.tuned for t in trials)
            if not (budget.over and known):
                trials.append(self.trial(candidate))
                note(trials[-1])
        return trials

    def _features(self, candidate: KernelCandidate) -> list[Float[Array, "n D"]]:
        """Return the features of both; multiples of many lengthscales share their angles.

        Kernels of the Euclidean distance share them too, but for the radii of their frequencies.
        """
        both, d = [rows.X for rows in (self.train, self.test)], len(candidate.logs)
        if d <= self.width // 2:
            rescaled = Rescaled.draw(candidate.family, d, self.width, self.seed + APART)
            W = rescaled.frequencies(candidate.logs, None)
            return [rescaled.features(X, W) for X in both]
        shared = candidate.logs - candidate.logs[0]
        family = Radial if isinstance(candidate.family, Radial) else type(candidate.family)
        kept = self.angles.get((family, shared.tobytes()))
        if kept is None:
            drawn = Rescaled.draw(candidate.family, d, self.width, self.seed + APART)
            pairs = [drawn.angles(X, shared) for X in both]
            kept = pairs[0][0], [angles for _, angles in pairs]
            self.angles[family, shared.tobytes()] = kept
        base, angles = kept
        rescaled = replace(base, family=family_of(candidate.family))
        W = rescaled.frequencies(np.full(len(base.base), candidate.logs[0]), None)
        return [rescaled.features(X, W) for X in angles]
