"""A Gaussian process conditioned on derivatives and block averages beside the values of its fit.

With functionals L_o, v_o = L_o f + ε_o, ε_o ~ N(0, σ_o²), and c and m the covariance and the mean
of f given the values,

    E f(x)   = m(x) + c(x, L)ᵀ S⁻¹ (v − L m),   S_op = c(L_o, L_p) + σ_o² δ_op,
    Var f(x) = c(x, x) − c(x, L)ᵀ S⁻¹ c(x, L):

which equals conditioning on all of them at once. The values choose kernel, noise and amplitude.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from bochner._core.arrays import dense, from_numpy, joined, to_numpy
from bochner._core.blas import cho_factor
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, InvalidType
from bochner.models.gaussian_process.exact import ExactProcess, exact_process
from bochner.models.gaussian_process.features import FeatureProcess, feature_process
from bochner.models.gaussian_process.intervals import Conformal
from bochner.models.gaussian_process.law import ProcessLaw
from bochner.models.gaussian_process.observations import (
    BlockAverages,
    Derivatives,
    Observation,
    applied,
    applied_twice,
    constant_of,
    of_function,
    steps_of,
)
from bochner.models.gaussian_process.spec import GaussianProcessSpec

#: Rows that are predicted together.
BLOCK_ROWS = 512

#: Kept values up to which calibrated intervals are made of fits without folds.
FEWER = 3071

#: Share of the largest variance that is added where observations repeat each other.
JITTER = 1e-10


@dataclass(frozen=True, eq=False)
class ObservedProcess(ProcessLaw):
    """A law of f that is given more than values."""

    # Given the values, which choose kernel, noise and amplitude
    base: ExactProcess | FeatureProcess
    observations: tuple[Observation, ...]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: covariances are made again when they are asked for."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    spec = property(attrgetter("base.spec"))
    chosen = property(attrgetter("base.chosen"))
    representation = property(attrgetter("base.representation"))
    evidence = property(attrgetter("base.evidence"))
    noise = property(attrgetter("base.noise"))
    loo_log_density = property(attrgetter("base.loo_log_density"))

    @property
    def lacks(self) -> Mapping[str, str]:  # type: ignore[override]
        """Attributes it does not have, with reasons."""
        nothing = "a process with observations beside values"
        return {
            **self.base.lacks,
            "predictive_": f"{nothing} has no law of coefficients of features.",
            "merge": f"{nothing} is not merged.",
        }

    @property
    def block_rows(self) -> int:
        return min(self.base.block_rows, BLOCK_ROWS)

    # --- prediction ------------------------------------------------------------------------------

    @cached_property
    def _given(self) -> "ExactGiven | FeatureGiven":
        if isinstance(self.base, ExactProcess):
            return ExactGiven(self.base, self.observations)
        return FeatureGiven(self.base, self.observations)

    @cached_property
    def _factors(self) -> list[Float[Array, "o o"]]:
        """L of S = L Lᵀ for each target."""
        noise = np.concatenate([each.noise for each in self.observations])
        factors = []
        for i in range(len(self.noise)):
            S = self._given.covariance(i)
            S[np.diag_indices(len(S))] += noise + JITTER * S.diagonal().max()
            factors.append(cho_factor(S, True, check_finite=False)[0])
        return factors

    def _solved(self, left: Float[Array, "o t"]) -> Float[Array, "o t"]:
        """Return S⁻¹ of what is left of the observations, for each target."""
        columns = enumerate(self._factors)
        return np.stack([cho_solve((L, True), left[:, i]) for i, L in columns], axis=1)

    @cached_property
    def coef(self) -> Float[Array, "o t"]:
        """S⁻¹ (v − L m)."""
        values = np.concatenate([each.values for each in self.observations])
        return self._solved(values - self._given.mean)

    def _added(self, X: Array) -> Float[Array, "b t"]:
        return np.einsum("bot,ot->bt", self._given.cross(X), self.coef)

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        before = self.base.means()
        return lambda X: before(X) + self._added(X)

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        mean, variance = self.base.moments(X)
        cross = self._given.cross(X)
        halves = self._halves(cross)
        told = np.stack([np.einsum("ob,ob->b", half, half) for half in halves], axis=1)
        mean = mean + np.einsum("bot,ot->bt", cross, self.coef)
        return mean, np.maximum(variance - told, 0.0)

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        halves = self._halves(self._given.cross(X))
        return self.base.covariance(X) - np.stack([half.T @ half for half in halves], axis=2)

    def _halves(self, cross: Float[Array, "b o t"]) -> list[Float[Array, "o b"]]:
        columns = enumerate(self._factors)
        return [solve_triangular(L, cross[:, :, i].T, lower=True) for i, L in columns]

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Yield the rows of each block and the gradients of the mean there.

        The contribution of the observations is differentiated by finite differences.
        """
        steps = 100 * self._given.steps
        for rows, G in self.base.gradients(blocks):
            X = np.asarray(to_numpy(dense(rows)), np.float64)
            ends = ((self._added(X + e), self._added(X - e)) for e in np.diag(steps))
            slopes = [(after - before) / 2 for after, before in ends]
            yield rows, G + np.stack(slopes, axis=1) / steps[:, None]

    def functions(self, rows: Callable[[Any], Blocks], n: int, seed: int) -> "ObservedFunctions":
        plain = lambda X: Blocks.from_arrays(np.asarray(X, np.float64))
        drawn = self.base.functions(plain, n, seed)
        t = len(self.noise)
        f = lambda X: to_numpy(drawn(X)).reshape(len(X), t * n)
        found = [of_function(each, f, self._given.steps) for each in self.observations]
        values = np.concatenate([each.values for each in self.observations])[:, :, None]
        noise = np.sqrt(np.concatenate([each.noise for each in self.observations]))
        rough = stream(seed, "observed").standard_normal((len(noise), t, n))
        left = values + noise[:, None, None] * rough - np.concatenate(found).reshape(-1, t, n)
        coef = np.stack([self._solved(left[:, :, k]) for k in range(n)], axis=2)
        return ObservedFunctions(rows, self, drawn, coef)

    def corrections(self, X: Array, coef: Float[Array, "o t n"]) -> Float[Array, "b t n"]:
        """Return c(x, L) times coefficients of each function."""
        return np.einsum("bot,otn->btn", self._given.cross(X), coef)

    # --- intervals -------------------------------------------------------------------------------

    def scores(self) -> Conformal | None:
        few = len(self.representation.sample) <= FEWER
        return None if few else self.base.scores()

    def again(self, blocks: Blocks) -> "ObservedProcess":
        fits = exact_process if isinstance(self.base, ExactProcess) else feature_process
        return ObservedProcess(fits(self.spec, blocks), self.observations)

    def solved(self, spec: GaussianProcessSpec, representation: Any = None) -> ProcessLaw:
        return self.base.solved(spec, representation)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> ProcessLaw:
        return self.base.with_rows_of(spec, blocks)


@dataclass(frozen=True, eq=False)
class ObservedFunctions:
    """n functions: ``functions(X)`` gives their values at rows, (m, n) or (m, t, n)."""

    rows: Callable[[Any], Blocks]
    law: ObservedProcess
    before: Any  # Functions of the posterior of the values
    coef: Float[Array, "o t n"]

    def __len__(self) -> int:
        return self.coef.shape[2]

    def __call__(self, X: Array) -> Array:
        """Return the values at rows X; the same rows give the same values in any call."""
        blocks = self.rows(X).with_rows(self.law.block_rows)
        return joined([self._values(block.X) for block in blocks])

    def _values(self, X: Array) -> Array:
        rows = np.asarray(to_numpy(dense(X)), np.float64)
        values = to_numpy(self.before(rows)).reshape(len(rows), *self.coef.shape[1:])
        values = values + self.law.corrections(rows, self.coef)
        shape = self.law.target_shape
        return from_numpy(values.reshape(len(rows), *shape, len(self)), like=X)


# --- Covariances with the functionals, given the values ------------------------------------------


class ExactGiven:
    """Of a fit with the kernel itself."""

    def __init__(self, law: ExactProcess, observations: tuple[Observation, ...]) -> None:
        self.law, self.observations = law, observations
        kernel = law.chosen.kernel
        X = np.asarray(to_numpy(dense(law.representation.X)), np.float64)
        self.steps = steps_of(kernel, X)
        self.constant = np.concatenate([constant_of(each) for each in observations])
        self.k = np.concatenate([applied(each, kernel, X) for each in observations])
        pairs = [
            [applied_twice(a, b, kernel, self.steps) for b in observations] for a in observations
        ]
        prior = np.block(pairs)
        self.prior = (prior + prior.T) / 2
        self.mean = self.k @ law.coef + np.outer(self.constant, law.intercept)

    def covariance(self, target: int) -> Float[Array, "o o"]:
        """Return c(L, L) of one target."""
        constant = self.constant, self.constant
        return self._between((self.k, self.k), self.prior, constant, target)

    def cross(self, X: Array) -> Float[Array, "b o t"]:
        """Return c(x, L) of each row."""
        rows, kernel = np.asarray(to_numpy(dense(X)), np.float64), self.law.chosen.kernel
        prior = np.concatenate([applied(each, kernel, rows) for each in self.observations]).T
        k = np.asarray(kernel(rows, self.law.representation.X)), self.k
        constant = np.ones(len(rows)), self.constant
        each = [self._between(k, prior, constant, i) for i in range(len(self.law.noise))]
        return np.stack(each, axis=2)

    def _between(self, k: Any, prior: Array, constant: Any, target: int) -> Array:
        alpha, scale = (a[target] for a in (self.law.evidence.alpha, self.law.evidence.amplitude))
        return scale * self.law.posteriors[float(alpha)].between(k, prior, constant)


class FeatureGiven:
    """Of a fit through features: rows ∂φ/∂x_j and averages of φ."""

    def __init__(self, law: FeatureProcess, observations: tuple[Observation, ...]) -> None:
        self.law = law
        X = np.asarray(to_numpy(dense(law.representation.sample.X)), np.float64)
        self.steps = steps_of(law.chosen.kernel, X)
        self.constant = np.concatenate([constant_of(each) for each in observations])
        self.Z = np.concatenate([self._features(each) for each in observations])
        posterior = law.predictive.posterior
        self.mean = self.Z @ posterior.coef + np.outer(self.constant, posterior.intercept)

    def _features(self, given: Observation) -> Float[Array, "m D"]:
        chosen = self.law.chosen
        if isinstance(given, BlockAverages):
            return given.averaged(chosen.double(given.places))
        blocks = Blocks.from_arrays(given.X)
        found = chosen.gradients(np.eye(chosen.n_features), blocks)
        return np.concatenate([G[:, given.column] for _, G in found])

    def covariance(self, target: int) -> Float[Array, "o o"]:
        """Return c(L, L) of one target."""
        constant = self.constant, self.constant
        return self.law.predictive.posterior.between((self.Z, self.Z), constant, target)

    def cross(self, X: Array) -> Float[Array, "b o t"]:
        """Return c(x, L) of each row."""
        Z, posterior = self.law.chosen.double(X), self.law.predictive.posterior
        both, constant = (Z, self.Z), (np.ones(len(Z)), self.constant)
        each = [posterior.between(both, constant, i) for i in range(len(self.law.noise))]
        return np.stack(each, axis=2)


def observed(law: ProcessLaw, observations: tuple[Any, ...], who: str) -> ObservedProcess:
    """Return a law that is given observations, in place of those it was given before."""
    if not isinstance(law, ExactProcess | FeatureProcess):
        raise InvalidInput(
            f"{who}.observe: the fit must be one with the kernel itself or with features; got "
            "one on a Fourier grid or on nearest neighbours. Fit with another method."
        )
    d, t = law.chosen.map.n_inputs, len(law.noise)
    for each in observations:
        if not isinstance(each, Derivatives | BlockAverages):
            raise InvalidType(
                f"{who}.observe: observations must be Derivatives or BlockAverages; got {each!r}."
            )
        if each.n_columns != d or each.values.shape[1] != t:
            raise InvalidInput(
                f"{who}.observe: {type(each).__name__} must have the {d} columns and {t} targets "
                f"of the fit; got {each.n_columns} and {each.values.shape[1]}."
            )
    if not observations:
        raise InvalidInput(f"{who}.observe: pass Derivatives or BlockAverages; got none.")
    found = ObservedProcess(law, observations)
    found.coef  # noqa: B018  refuses what has no derivatives before anything is assigned
    return found
