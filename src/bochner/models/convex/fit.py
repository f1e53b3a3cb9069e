"""Fits by convex losses, and the base class of their estimators."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from operator import attrgetter
from typing import Any, cast

import numpy as np

from bochner import models
from bochner._core.arrays import array_namespace, to_numpy
from bochner._core.checks import integer, positive, switch, warn_user
from bochner._core.shapes import Array, Float, Int, Predictions
from bochner._core.text import as_text, round_numbers
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.kernels.windows import window_count
from bochner.models._base import FitSummary, KernelEstimator, getter
from bochner.models._labels import Calibration
from bochner.models._rows import Features, KernelSum
from bochner.models.error_law import ErrorLaw, HeldOutRows
from bochner.models.representations.representation import ExactKernel, as_method, chosen_exactly
from bochner.selection.choices import Choices, FeatureSpec, Function
from bochner.selection.choose import choose, choose_for_matrix
from bochner.solvers.cg import TILE
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.convex.problem import Optimum, Problem, State
from bochner.sums.passes import LOCAL, Executor, indicators

# --- Classes from pairs of classes ----------------------------------------------------------------
#
# The classifier of a pair predicts class k if f_kl > 0. LIBSVM (Chang and Lin 2011, section 7)
# counts the pairs in which a class is predicted. Pairs of unlikely classes then count as much as
# others, and counts measure no certainty. Here the value of a class is its smallest f_kl,
#
#     v_k = min_l f_kl, smoothed:  −(1/s) log Σ_{l ≠ k} exp(−s f_kl),    s = 4.
#
# A class that is predicted in all its pairs has the largest value. For two classes the value is f.
# Fewer rows are misclassified than with counts, and calibration is far better.

SHARPNESS = 4.0  # s: classes whose values differ by less than about 1/s count equally


@dataclass(frozen=True)
class ClassPairs:
    """Pairs of the classes, in the order of :func:`itertools.combinations`."""

    n_classes: int

    @property
    def ends(self) -> Int[Array, "2 p"]:
        """First and second class of each pair."""
        return np.array(list(combinations(range(self.n_classes), 2))).T

    def targets(self, codes: Array) -> Float[Array, "m p"]:
        """Return 1 for rows of a pair's first class, −1 for its second class, 0 for other rows."""
        codes, (first, second) = np.asarray(codes)[:, None], self.ends
        return (codes == first).astype(np.float64) - (codes == second)

    def values(self, f: Float[Array, "m p"]) -> Float[Array, "m K"]:
        """Return the decision values of classes from the values of pairs, in any array library."""
        values, xp = [], array_namespace(f)
        for columns, signs in self._pairs_of_classes:
            margins = xp.take(f, columns, 1) * signs
            floor = xp.min(margins, axis=1, keepdims=True)
            total = xp.sum(xp.exp(-SHARPNESS * (margins - floor)), axis=1)
            values.append(floor[:, 0] - xp.log(total) / SHARPNESS)
        return xp.stack(values, axis=1)

    def gradients(self, f: Float[Array, "m p"], G: Float[Array, "m d p"]) -> Float[Array, "m d K"]:
        """Return the gradients of the class values from values and gradients of the pairs."""
        gradients = []
        for columns, signs in self._pairs_of_classes:
            margins = -SHARPNESS * f[:, columns] * signs
            share = np.exp(margins - margins.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            gradients.append(np.einsum("mdp,mp->md", G[:, :, columns], share * signs))
        return np.stack(gradients, axis=2)

    @property
    def _pairs_of_classes(self) -> Predictions:
        """Yield for each class the columns of its pairs, and its signs in them, 1 or −1."""
        first, second = self.ends
        for k in range(self.n_classes):
            columns = np.flatnonzero((first == k) | (second == k))
            yield columns, np.where(first[columns] == k, 1.0, -1.0)


class LazyCalibration:
    """Attribute that holds a calibration, or a function that computes it on first access."""

    def __get__(self, fit: Any, owner: type) -> Any:
        if fit is None:
            return None  # the default
        if callable(vars(fit)["calibration"]):
            vars(fit)["calibration"] = vars(fit)["calibration"](fit)
        return vars(fit)["calibration"]

    def __set__(self, fit: Any, value: Any) -> None:
        vars(fit)["calibration"] = value


@dataclass(frozen=True)
class ConvexSpec:
    """Checked parameters of a fit by a convex loss."""

    features: FeatureSpec
    loss: Loss
    alpha: float | None  # the penalty; None: chosen on held-out rows
    fit_intercept: bool
    tol: float
    max_iter: int
    norm: Callable[[float], float] | None = None  # the penalty is alpha R(‖β‖), with this R
    n_classes: int = 0
    pairs: ClassPairs | None = None  # set if each pair of classes has its own problem
    probability: bool = False  # whether decision values are calibrated
    epsilon: float | str | None = None  # of support vector regression: a number or "auto"
    finds_scale: bool = False  # whether Huber's threshold is estimated
    one_level: bool = False  # whether one quantile is predicted as (n,)
    nu: float = 0.5  # share of rows outside, for OneClassSVM

    caller = property(attrgetter("features.caller"))  # name of the estimator in messages

    @property
    def by_ridge(self) -> bool:
        """Whether ridge regressions minimise the loss: for smooth losses without features."""
        return not (self.features.method.has_features or self.loss.nonsmooth)

    def targets(self, codes: Array) -> Float[Array, "m t"]:
        """Return targets of −1 and +1 from class codes, or one-hot columns for a joint loss."""
        if self.pairs is not None:
            return self.pairs.targets(codes)
        if self.loss.joint:
            return (codes[:, None] == np.arange(self.n_classes)).astype(np.float64)
        return indicators(codes, self.n_classes)

    def choose_exactly(self, sample: RowSample, share: float | None, X: Any = None) -> Choices:
        """Return the kernel and the column transformations; ``X`` are the rows of its map."""
        if self.n_classes:
            sample = replace(sample, y=indicators(sample.y[:, 0], self.n_classes))
        tuning, curves = choose_for_matrix(self.features, sample, share, self.fit_intercept)
        return chosen_exactly(self.features.seed, tuning, curves, sample.X if X is None else X)

    def values(self, f: Float[Array, "m t"]) -> Float[Array, "m K"]:
        """Return decision values of the classes from the columns of the problem."""
        return f if self.pairs is None else self.pairs.values(f)


@dataclass(frozen=True, eq=False)
class ConvexFit(FitSummary):
    """A fit by a convex loss, on features or with the exact kernel."""

    inputs: Inputs
    chosen: Choices  # With the exact kernel its map is the Nyström map on all rows
    loss: Loss  # With its parameters in the units of y
    solution: Optimum  # Coefficients of the features, or of the kernel and each row of `X`
    path: HeldOutPath | None = None  # Penalties that were compared
    # Probabilities of a classifier; with the exact kernel they are computed on first access
    calibration: Calibration | None = LazyCalibration()  # type: ignore[assignment]
    target_shape: tuple[int, ...] = ()  # Shape of one row of y, () or (t,)
    errors: ErrorLaw | None = None  # Errors of new rows, after `calibrate`
    left_out: HeldOutRows | None = None  # Rows of a regression with their leave-one-out predictions
    pairs: ClassPairs | None = None  # Set if the columns of f are pairs of classes
    X: Any = None  # Rows of a fit with the exact kernel, of a local fit, or of `dual`
    dual: Float[Array, "n t"] | None = None  # u with β = Σ uᵢ φ(xᵢ), for few rows on features
    representation: Any = None  # Representation of the rows in a fit by ridge regressions

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"calibration": self.calibration}

    @property
    def exact(self) -> bool:
        """Whether the coefficients belong to the kernel and each row of ``X``."""
        return self.X is not None and self.dual is None and self.representation is None

    def _results(self) -> dict[str, Any]:
        alpha, outcome = np.asarray(self.solution.alpha, np.float64), self.solution.outcome
        with np.errstate(divide="ignore"):
            penalty = f"alpha = {as_text(alpha)}, C = {as_text(1 / alpha)}"
        return {
            "loss": round_numbers(repr(self.loss)),
            "penalty": f"{penalty}, {'as given' if self.path is None else self.path.reason}",
            "passes": self.solution.iterations,
            "outcome": outcome.name,
            "outcome_words": str(outcome),
        }

    @property
    def block_rows(self) -> int:
        return TILE if self.exact else (self.representation or self.chosen).block_rows

    def values(self) -> Any:
        coef, intercept, pairs = self.solution.coef, self.solution.intercept, self.pairs
        columns: Any
        if self.representation is not None:
            columns = self.representation.values(self.solution)
        elif self.exact:
            support = np.any(coef != 0, axis=1)
            X = self.X if support.all() else self.X[support]
            columns = KernelSum(self.chosen.kernel, X, coef[support], intercept)
        else:  # for classes in the precision of the features
            dtype = "float64" if self.inputs.classes is None else self.chosen.precision
            columns = self.chosen.linear(coef.astype(dtype, copy=False), intercept)
        if pairs is None:
            return columns
        slopes = lambda X: pairs.gradients(columns(X), columns.slopes(X))
        return Function(lambda X: pairs.values(columns(X)), slopes)

    def by_ridge(self, problem: Problem, state: State, units: Any = 1.0) -> "ConvexFit":
        """Return the fit with the coefficients of its last ridge regression, and left-out rows."""
        rows, regression = problem.rows.regression(problem, state, units)
        solution = replace(self.solution, coef=regression.coef, intercept=regression.intercept)
        left_out, indices = None, rows.held_out_index
        if indices is not None and problem.y.shape[1] == 1:
            y, predicted = units * problem.y[indices], rows.left_out(regression).predicted
            w = problem.w[indices, 0]
            left_out = HeldOutRows(rows.X[indices], predicted, y - predicted, w, "leave one out")
        return replace(self, solution=solution, left_out=left_out, X=rows.X, representation=rows)

    def warn(self) -> "ConvexFit":
        """Return the fit; warn if its outcome is a problem, with the remedy."""
        if not self.solution.outcome.is_good:
            warn_user(str(self.solution.outcome))
        return self


def rows_of(
    spec: ConvexSpec, blocks: Blocks, alpha: float | None, where: Executor, exact: bool
) -> tuple[Choices, Any, Any]:
    """Return the kernel and features, the rows of a problem (not if ``exact``), and rows in memory.

    ``alpha`` is the given penalty in a ridge regression.
    """
    params, n_classes, design = spec.features, spec.n_classes, cast(Any, None)
    if exact:
        rows = gather(blocks, params.seed)
        return spec.choose_exactly(rows, alpha and alpha / float(rows.w.sum())), design, rows
    if spec.by_ridge:
        if n_classes:
            blocks = blocks.recode(lambda y: indicators(to_numpy(y), n_classes))
        design = models.ridge_rows(spec, alpha, blocks, where)
        return design.rows.chosen, design, design.rows
    chosen, _ = choose(params, blocks, n_classes=n_classes, alpha=alpha, where=where)
    if n_classes and params.precision == "auto":  # float32 is accurate enough for decisions
        small = count_rows(blocks) * chosen.map.n_features**2 <= SMALL
        chosen = replace(chosen, precision="float64" if small else "float32")
    else:
        chosen = chosen.in_precision(params.precision, blocks.n_rows)
    design = Features(chosen.map, blocks, chosen.precision, where=where)
    design.keep()
    return chosen, design, None


SMALL = 1e8  # n D² up to which float64 takes no noticeable time
EXACT_ROWS = 8192  # Largest number of rows of a kernel matrix


class ConvexEstimator(KernelEstimator):
    """An estimator whose fitted value is a :class:`ConvexFit`."""

    fit_intercept: Any
    tol: Any
    max_iter: Any
    method: Any
    n_features: Any
    precision: Any
    _loss: Any  # (n_classes, rows): loss of a classifier; ``rows`` is 0 on features

    def _convex_spec(self, loss: Loss, alpha: float | None, **options: Any) -> ConvexSpec:
        features = self._feature_spec("auto" if self.method is None else as_method(self.method))
        if alpha == 0 and not features.method.has_features:
            raise InvalidInput(
                f"{features.caller}: {features.method} requires a penalty above 0; got 0."
            )
        centred = switch(vars(self).get("fit_intercept", True), features.caller)
        tol = positive(self.tol, features.caller, "tol")
        steps = integer(self.max_iter, features.caller, "max_iter", 1)
        return ConvexSpec(features, loss, alpha, centred, tol, steps, **options)

    def _number(
        self, name: str, check: Callable[[object, str, str], float], word: str = "auto"
    ) -> float | None:
        """Return a checked parameter as a number; None if it is ``word``."""
        caller, value = type(self).__name__, vars(self)[name]
        if not isinstance(value, str):
            return check(value, caller, name)
        if value == word:
            return None
        bound = "above 0" if check is positive else "of 0 or above"
        raise InvalidInput(f'{caller}: {name} must be "{word}" or a number {bound}; got {value!r}.')

    def _uses_kernel(self, blocks: Blocks, limit: int, where: Executor) -> bool:
        """Whether the fit uses a kernel matrix: up to ``limit`` rows, unless features are set."""
        n, method = blocks.n_rows, as_method(self.method)
        is_exact = isinstance(method, ExactKernel) and method.preconditioner is None
        rows = math.inf if n is None else n * window_count(self.kernel, blocks.n_columns)
        are_few = where is LOCAL and rows <= (EXACT_ROWS if is_exact else limit)
        is_open = self.method is None and self.n_features is None and self.precision == "auto"
        return are_few and (is_exact or is_open)

    def _row_fit(self, name: str) -> ConvexFit:
        """Return the fit; if it has no coefficients of rows, raise AttributeError for ``name``."""
        if self._fitted.X is None:
            raise AttributeError(
                f"{name}: only a fit with the exact kernel has them, and a KernelRegressor of at "
                "most 1,024 rows with a penalty above zero; use coef_."
            )
        return self._fitted

    @property
    def coef_(self) -> Any:
        """Coefficients β of ``map_``, also for a fit with the exact kernel.

        Shape (D,) or (t, D) for regression; (1, D) for two classes, (K, D) for K classes;
        (K(K − 1)/2, D) for pairs of classes, in scikit-learn's order.
        """
        fit, coef = self._fitted, self._fitted.solution.coef
        if fit.representation is not None:
            fit.representation.require("coef_")
        return self._squeeze((to_numpy(fit.chosen.map(fit.X)).T @ coef if fit.exact else coef).T)

    @property
    def dual_coef_(self) -> Any:
        """Coefficients u of the rows ``X_fit_``, f = Σ uᵢ k(x, xᵢ) + b: one row per output.

        For fits with the exact kernel, and for a KernelRegressor with a penalty and at most 1,024
        rows. There β = Σ uᵢ φ(xᵢ) by the representer theorem, uᵢ = −wᵢ loss′(yᵢ, f(xᵢ))/alpha_;
        at a kink of the loss, loss′ is a subgradient.
        """
        fit = self._row_fit("dual_coef_")
        return self._squeeze((fit.solution.coef if fit.dual is None else fit.dual).T)

    @property
    def X_fit_(self) -> Any:
        """Rows to which ``dual_coef_`` belongs, (n, d)."""
        return self._row_fit("X_fit_").X

    solution_ = getter(
        "solution",
        "An Optimum: coefficients, objective, duality gap (of regression), outcome with its "
        "remedy, and a record of each step.",
    )
    path_ = _path = getter(
        "path",
        "Compared penalties (1/C, for the first target) and their held-out losses. None if the "
        "penalty was given, or if a class has too few rows to hold some out.",
    )
    n_iter_ = getter("solution.iterations", "Newton steps of the last fit; 1 with LIBSVM.")
