"""Gaussian process conditioned on derivatives and block averages.

Observations are v_o = L_o f + ε_o with linear functionals L_o and ε_o ~ N(0, σ_o²). Let m and c be
the mean and covariance of f given the targets y of the fit. Then

    E f(x)   = m(x) + c(x, L)ᵀ S⁻¹ (v − L m),   S_op = c(L_o, L_p) + σ_o² δ_op,
    Var f(x) = c(x, x) − c(x, L)ᵀ S⁻¹ c(x, L),

which equals conditioning on y and v at once. Kernel, noise and amplitude are chosen from y only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from bochner._core.arrays import as_array, as_matrix, dense, slices, to_numpy
from bochner._core.blas import cho_factor
from bochner._core.checks import Counted, integer
from bochner._core.names import NamedArguments
from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels.kernel import Kernel
from bochner.models.gaussian_process.law import ExactProcess, FeatureProcess, ProcessLaw, Values
from bochner.models.representations.modes import as_rows
from bochner.selection.choices import Choices, Function

# --- Observations: derivatives and block averages, and their functionals of kernels ---------------
#
# Linear functionals L of f are jointly normal with f. Their covariances are L applied to the
# arguments of the kernel (Solak et al. 2003, eq. 2 and 3), or to features: ∂φ/∂x_j and ∫φ.

MAX_PLACES = 8192  # Largest number of quadrature points: their kernel matrix takes 512 MB
AT_ONCE = 16  # Columns of kernel values per call of ``pullback``


@dataclass(frozen=True, eq=False)
class Derivatives(NamedArguments):
    """Observed slopes: values of ∂f/∂x_j at points, each with normal noise.

    Parameters
    ----------
    X : (m, d)
        Points, with the columns of the fit.
    column : int
        Index j of the column, from 0.
    values : (m,) or (m, t)
        Slopes, in units of y per unit of the column.
    noise : float or (m,), default 0.0
        Variance of the noise in each value; 0: values are exact.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.linspace(-3, 3, 50)[:, None]
    >>> process = bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> slope = bo.Derivatives([[4.0]], 0, [np.cos(4.0)])
    >>> bool(abs(process.observe(slope).predict([[4.0]])[0] - np.sin(4.0)) < 0.1)
    True
    """

    X: Float[Array, "m d"]
    column: Annotated[int, integer]
    values: Float[Array, " m *t"]
    noise: float | Float[Array, " m"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        X = np.asarray(to_numpy(dense(as_matrix(self.X, "Derivatives"))), np.float64)
        object.__setattr__(self, "X", X)
        _check_values(self, len(X))
        if self.column >= X.shape[1]:
            raise InvalidInput(
                f"Derivatives: column must be below the {X.shape[1]} columns of X; got "
                f"{self.column}."
            )

    @property
    def n_columns(self) -> int:
        """Number d of columns."""
        return self.X.shape[1]

    _of_one = 0.0  # L applied to the constant 1

    def _of_kernel(self, kernel: Kernel, Y: Float[np.ndarray, "c d"]) -> Float[np.ndarray, "m c"]:
        """Return ∂k(z, y)/∂z_j for all pairs of points z and rows y."""
        values, identity = np.empty((len(self.X), len(Y))), np.eye(AT_ONCE)
        for start in range(0, len(Y), AT_ONCE):
            part = np.ascontiguousarray(Y[start : start + AT_ONCE])
            m = len(part)
            cotangents = np.tile(identity[:m, :m], (len(self.X), 1))
            G = kernel.pullback(np.repeat(self.X, m, axis=0), part, cotangents)
            values[:, start : start + m] = G[:, self.column].reshape(len(self.X), m)
        return values

    def _of_features(self, chosen: Choices) -> Float[Array, "m D"]:
        slopes = chosen.linear(np.eye(chosen.map.n_features)).slopes
        parts = (slopes(self.X[span]) for span in slices(len(self.X), 256))
        return np.concatenate([part[:, self.column] for part in parts])

    def _of_function(self, f: Callable[[Array], Array], steps: Float[np.ndarray, " d"]) -> Array:
        """Return the slopes of a smooth function by central differences."""
        step = np.zeros(self.n_columns)
        step[self.column] = steps[self.column]
        return (f(self.X + step) - f(self.X - step)) / (2 * steps[self.column])


@dataclass(frozen=True, eq=False)
class BlockAverages(NamedArguments):
    """Observed averages of f over boxes, each with normal noise.

    Parameters
    ----------
    lower, upper : (m, d)
        Corners of the boxes, lower ≤ upper. Along columns with lower = upper f is not averaged.
    values : (m,) or (m, t)
        Averages, in units of y. Divide an integral by the volume of its box.
    noise : float or (m,), default 0.0
        Variance of the noise in each value; 0: values are exact.
    points : int, default 8
        Number of Gauss-Legendre points along each column with lower < upper; at most 8,192 points
        for all boxes together.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.linspace(-3, 3, 50)[:, None]
    >>> process = bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> average = bo.BlockAverages([[3.0]], [[5.0]], [0.8])
    >>> mean = bo.cell_averages(process.observe(average), [[3.0]], [[5.0]])
    >>> round(float(mean[0]), 2)
    0.8
    """

    lower: Float[Array, "m d"]
    upper: Float[Array, "m d"]
    values: Float[Array, " m *t"]
    noise: float | Float[Array, " m"] = 0.0
    points: Counted = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lower", "upper"):
            X = as_matrix(getattr(self, name), "BlockAverages", name)
            object.__setattr__(self, name, np.asarray(to_numpy(dense(X)), np.float64))
        if self.lower.shape != self.upper.shape or np.any(self.lower > self.upper):
            raise InvalidInput(
                "BlockAverages: lower and upper must be corners of the same boxes, lower at most "
                f"upper; got shapes {self.lower.shape} and {self.upper.shape}."
            )
        _check_values(self, len(self.lower))
        places = self.points ** len(self._axes)
        if len(self.lower) * places > MAX_PLACES:
            raise InvalidInput(
                f"BlockAverages: all boxes together must have at most {MAX_PLACES:,} quadrature "
                f"points; got {len(self.lower)} boxes of {places:,}. Pass a smaller points, or "
                "lower equal to upper in columns along which f does not change."
            )

    @property
    def n_columns(self) -> int:
        """Number d of columns."""
        return self.lower.shape[1]

    @property
    def _axes(self) -> Array:
        return np.flatnonzero(np.any(self.upper > self.lower, axis=0))

    @cached_property
    def _rule(self) -> tuple[Float[np.ndarray, "q e"], Float[np.ndarray, " q"]]:
        return quadrature(self.points, len(self._axes))

    @cached_property
    def places(self) -> Float[np.ndarray, "p d"]:
        """Quadrature points of all boxes, box by box."""
        nodes, weights = self._rule
        unit = np.full((len(weights), self.n_columns), 0.5)
        unit[:, self._axes] = nodes
        points = self.lower[:, None] + unit * (self.upper - self.lower)[:, None]
        return points.reshape(-1, self.n_columns)

    _of_one = 1.0

    def _average(self, values: Array) -> Array:
        """Return the average over each box, from values at the quadrature points."""
        values_of_box = values.reshape(len(self.lower), -1, *values.shape[1:])
        return np.einsum("q,mq...->m...", self._rule[1], values_of_box)

    def _of_kernel(self, kernel: Kernel, Y: Float[np.ndarray, "c d"]) -> Float[np.ndarray, "m c"]:
        return self._average(np.asarray(kernel(self.places, Y)))

    def _of_features(self, chosen: Choices) -> Float[Array, "m D"]:
        return self._average(chosen.double(self.places))

    def _of_function(self, f: Callable[[Array], Array], steps: Float[np.ndarray, " d"]) -> Array:
        return self._average(f(self.places))


Observation = Derivatives | BlockAverages


def quadrature(points: int, d: int) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Return Gauss-Legendre nodes of the unit cube, ``points`` per column; weights sum to one."""
    x, w = np.polynomial.legendre.leggauss(points)
    indices = np.indices((points,) * d).reshape(d, points**d).T
    return ((x + 1) / 2)[indices], (w / 2)[indices].prod(axis=1)


def _check_values(observation: Any, m: int) -> None:
    """Check values and noise of an observation, and store them as (m, t) and (m,)."""
    caller = type(observation).__name__
    values = np.asarray(to_numpy(as_array(observation.values, caller, "values")), np.float64)
    noise = np.asarray(observation.noise, np.float64)
    if m == 0 or values.ndim not in (1, 2) or len(values) != m or not np.isfinite(values).all():
        raise InvalidInput(
            f"{caller}: values must be a finite number for each of the {m} points or boxes; got "
            f"shape {values.shape}."
        )
    if noise.shape not in ((), (m,)) or not (np.isfinite(noise) & (noise >= 0)).all():
        raise InvalidInput(
            f"{caller}: noise must be a variance, zero or above, or an array of one for each "
            f"value; got {observation.noise!r}."
        )
    object.__setattr__(observation, "values", values.reshape(m, -1))
    object.__setattr__(observation, "noise", np.broadcast_to(noise, (m,)).copy())


def apply_twice(
    first: Observation, second: Observation, kernel: Kernel, steps: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "m c"]:
    """Return the kernel with ``first`` applied to one argument and ``second`` to the other."""
    # Second derivatives are differences, over ``steps``, of first derivatives in closed form, so
    # that rounding is divided by a step and not by its square
    if isinstance(first, BlockAverages) and isinstance(second, Derivatives):
        return apply_twice(second, first, kernel, steps).T
    return second._of_function(lambda P: first._of_kernel(kernel, P).T, steps).T


@dataclass(frozen=True, eq=False)
class ObservedProcess(ProcessLaw):
    """A posterior of f conditioned on derivatives or averages."""

    base: ExactProcess | FeatureProcess  # Given y only; it chooses kernel, noise and amplitude
    observations: tuple[Observation, ...]

    spec = property(attrgetter("base.spec"))
    chosen = property(attrgetter("base.chosen"))
    representation = property(attrgetter("base.representation"))
    evidence = property(attrgetter("base.evidence"))
    noise = property(attrgetter("base.noise"))
    loo_log_density = property(attrgetter("base.loo_log_density"))
    of_values = property(attrgetter("base"))

    @property
    def lacks(self) -> Mapping[str, str]:  # type: ignore[override]
        """Attributes that the posterior does not have, with reasons."""
        subject = "a process with derivatives or block averages"
        return {
            **self.base.lacks,
            "predictive_": f"{subject} has no law of coefficients of features.",
            "merge": f"{subject} cannot be merged.",
        }

    @property
    def block_rows(self) -> int:  # type: ignore[override]
        return min(self.base.block_rows, 512)

    @cached_property
    def _factors(self) -> list[Float[Array, "o o"]]:
        """Cholesky factor L of S = L Lᵀ for each target, S the covariance of the observations."""
        noise = np.concatenate([o.noise for o in self.observations])
        prior: tuple[Array, ...] = ()
        if isinstance(self.base, ExactProcess):
            obs, options = self.observations, (self.chosen.kernel, self._steps)
            products = np.block([[apply_twice(a, b, *options) for b in obs] for a in obs])
            prior = ((products + products.T) / 2,)
        functionals = (self._functionals,) * 2, (self._constant,) * 2
        covariance = self.base.cross_covariance(*functionals, *prior)
        factors = []
        for S in np.moveaxis(covariance, 2, 0).copy():
            # 1e-10 of the largest variance keeps S regular if observations are repeated
            S[np.diag_indices(len(S))] += noise + 1e-10 * S.diagonal().max()
            factors.append(cho_factor(S, True, check_finite=False)[0])
        return factors

    def _solve(self, residuals: Float[Array, "o t"]) -> Float[Array, "o t"]:
        """Return S⁻¹ times the residuals of the observations, for each target."""
        columns = enumerate(self._factors)
        return np.stack([cho_solve((L, True), residuals[:, i]) for i, L in columns], axis=1)

    @cached_property
    def coef(self) -> Float[Array, "o t"]:
        """S⁻¹ (v − L m)."""
        values = np.concatenate([observation.values for observation in self.observations])
        mean = self._functionals @ self.base.coef + np.outer(self._constant, self.base.intercept)
        return self._solve(values - mean)

    def _correction(self, X: Array) -> Float[Array, "b t"]:
        return np.einsum("bot,ot->bt", self._cross(X), self.coef)

    @cached_property
    def means(self) -> Function:
        means = self.base.means

        def slopes(X: Array) -> Float[Array, "b d t"]:  # of the second part by differences
            steps = 100 * self._steps
            ends = ((self._correction(X + e), self._correction(X - e)) for e in np.diag(steps))
            parts = [(high - means) / 2 for high, means in ends]
            return means.slopes(X) + np.stack(parts, axis=1) / steps[:, None]

        return Function(lambda X: means(X) + self._correction(X), slopes)

    def moments(self, X: Array) -> Both:
        mean, variance = self.base.moments(X)
        cross = self._cross(X)
        halves = self._halves(cross)
        reduction = np.stack([np.einsum("ob,ob->b", half, half) for half in halves], axis=1)
        mean = mean + np.einsum("bot,ot->bt", cross, self.coef)
        return mean, np.maximum(variance - reduction, 0.0)

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        halves = self._halves(self._cross(X))
        return self.base.covariance(X) - np.stack([half.T @ half for half in halves], axis=2)

    def _halves(self, cross: Float[Array, "b o t"]) -> list[Float[Array, "o b"]]:
        columns = enumerate(self._factors)
        return [solve_triangular(L, cross[:, :, i].T, lower=True) for i, L in columns]

    def draw(self, n: int, seed: int) -> Values:
        """Draw functions of the posterior by Matheron's rule, from draws of the base process."""
        draws, t = self.base.draw(n, seed), len(self.noise)
        f = lambda X: draws(X).reshape(len(X), t * n)
        prior = [o._of_function(f, 100 * self._steps) for o in self.observations]
        values = np.concatenate([o.values for o in self.observations])[:, :, None]
        noise = np.sqrt(np.concatenate([o.noise for o in self.observations]))
        rough = stream(seed, "observed").standard_normal((len(noise), t, n))
        residuals = values + noise[:, None, None] * rough - np.concatenate(prior).reshape(-1, t, n)
        coef = np.stack([self._solve(residuals[:, :, k]) for k in range(n)], axis=2)

        def conditioned(X: Array) -> Float[Array, "b t n"]:
            rows = as_rows(X)
            return draws(rows) + np.einsum("bot,otn->btn", self._cross(rows), coef)

        return conditioned

    def scores(self) -> Both | None:
        # With fewer rows intervals use cross-validation (fold_scores)
        return None if len(self.representation.sample) < 3072 else self.base.scores()

    def refit(self, rows: RowSample) -> "ObservedProcess":
        return ObservedProcess(self.base.refit(rows), self.observations)

    # --- Covariances with the functionals, given y. A functional L is represented by L k(·, X) for
    # the exact kernel, by L φ for features, and by L 1.

    @cached_property
    def _steps(self) -> Float[Array, " d"]:
        """Step of differences along each column: 1e-5 of the length over which f changes."""
        kernel, X = self.chosen.kernel, as_rows(self.representation.sample.X)
        spread = X.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        steps = np.empty(len(spread))
        for j, s in enumerate(spread):
            shifted = X[:1].copy()
            shifted[:, j] += 1e-3 * s
            K = np.asarray(kernel(np.vstack([X[:1], shifted])))
            change = float(K[0, 0] + K[1, 1] - 2 * K[0, 1]) / max(float(K[0, 0]), 1e-300)
            steps[j] = 1e-5 * np.clip(1e-3 / np.sqrt(max(change, 1e-18)), 1e-3, 1e3) * s
        return steps

    @cached_property
    def _constant(self) -> Float[Array, " o"]:
        """Values of the functionals for the constant 1."""
        return np.concatenate([np.full(len(o.values), o._of_one) for o in self.observations])

    @cached_property
    def _functionals(self) -> Float[Array, "o n"]:
        if isinstance(self.base, ExactProcess):
            return self._of_kernel(as_rows(self.representation.X))
        return np.concatenate([o._of_features(self.chosen) for o in self.observations])

    def _of_kernel(self, X: Float[Array, "b d"]) -> Float[Array, "o b"]:
        return np.concatenate([o._of_kernel(self.chosen.kernel, X) for o in self.observations])

    def _cross(self, X: Array) -> Float[Array, "b o t"]:
        """Return c(x, L) for each row."""
        X = as_rows(X)
        prior = (self._of_kernel(X).T,) if isinstance(self.base, ExactProcess) else ()
        factors = np.ones(len(X)), self._constant
        return self.base.cross_covariance((self.base.at(X), self._functionals), factors, *prior)


def observe(law: ProcessLaw, observations: tuple[Any, ...], caller: str) -> ObservedProcess:
    """Return the posterior given these observations, which replace earlier observations."""
    if not isinstance(law, ExactProcess | FeatureProcess):
        raise InvalidInput(
            f"{caller}.observe: the fit must use the exact kernel or features; got a fit on a "
            "Fourier grid or on nearest neighbours. Fit with another method."
        )
    d, t = law.chosen.map.n_inputs, len(law.noise)
    for item in observations:
        if not isinstance(item, Derivatives | BlockAverages):
            raise InvalidType(
                f"{caller}.observe: expected Derivatives or BlockAverages; got {item!r}."
            )
        if item.n_columns != d or item.values.shape[1] != t:
            raise InvalidInput(
                f"{caller}.observe: {type(item).__name__} must have the {d} columns and {t} "
                f"targets of the fit; got {item.n_columns} and {item.values.shape[1]}."
            )
    if not observations:
        raise InvalidInput(f"{caller}.observe: expected Derivatives or BlockAverages; got none.")
    process = ObservedProcess(law, observations)
    process.coef  # noqa: B018  raises here if the kernel has no derivatives
    return process
