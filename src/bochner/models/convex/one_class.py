"""One-class support vector machines at any number of rows."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, replace

import numpy as np
from sklearn.base import OutlierMixin

from bochner._core.arrays import from_numpy, joined, to_numpy
from bochner._core.checks import finite
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.features.map import Method
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, WithoutTarget
from bochner.models._parameters import estimator
from bochner.models._rows import TARGETS, Features, row_marks
from bochner.models._tables import by_partition
from bochner.models.convex.fit import ConvexEstimator, ConvexFit, ConvexSpec, warned
from bochner.models.representations.representation import exact_choice, gather
from bochner.selection.choose import choose, searched
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.kernel import KernelMatrix
from bochner.solvers.convex.libsvm import judged, refined
from bochner.solvers.convex.losses import BelowZero
from bochner.solvers.convex.newton import minimise, valued
from bochner.solvers.convex.problem import Problem, State, gradients, images, optimum
from bochner.sums.passes import LOCAL, Executor

#: Rounding of scores in blocks of other sizes, as a share of the largest score: whitening amplifies
#: rounding errors.
ROUNDING = {"float64": 1e-9, "float32": 1e-4}


@estimator
class OneClassSVM(OutlierMixin, Differentiable, WithoutTarget, ConvexEstimator):
    """Support of a distribution: detection of outliers, with features for many rows.

    Minimises ½‖β‖² + Σ wᵢ max(0, ρ − φ(xᵢ)·β) − nu W ρ, W = Σ wᵢ (Schölkopf et al. 2001): the
    problem of scikit-learn's ``OneClassSVM`` with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    %(kernel at the median)s
    %(method of one class)s
    %(n_features or exact)s
    nu : float, default 0.5
        Share of rows, in (0, 1]: at most this share of the weight lies outside (φ(x)·β < ρ), and
        at least this share outside or at the border (to rounding of the features).
    %(precision)s
    tol : float, default 1e-6
        Tolerance of the duality gap and of the gain of a step, relative to ½‖β‖² and the loss.
    max_iter : int, default 200
        Largest number of Newton steps.
    %(random_state)s
    %(n_jobs)s

    Attributes
    ----------
    %(chosen)s
    offset_ : (1,)
        ρ: ``decision_function`` is ``score_samples`` − ρ.
    coef_ : (1, D)
        β.
    dual_coef_, X_fit_ : (n,) and (n, d)
        Where the kernel itself was fitted: coefficients of the kernel and each row, and the rows.
    solution_ : Optimum
        β and −ρ, duality gap, outcome, and what every step did.
    n_iter_ : int
    %(columns)s

    See Also
    --------
    KernelFeatures : Features for any linear method.
    SVC : Classification of rows with labels.

    Notes
    -----
    With the kernel itself LIBSVM minimises, in O(n²) to O(n³). Through features time
    O(steps (n D + a D²)), a the rows near the border. ρ is the nu-quantile of the scores,
    unique unless rows fill the outside exactly; then it is the middle of those that are best.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import OneClassSVM
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> model = OneClassSVM(nu=0.1, random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]]).tolist()
    [1, -1]
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    method: Method | str | None = None
    n_features: int | float | str | None = None
    nu: float = 0.5
    tol: float = 1e-6
    max_iter: int = 200

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        nu, spec = finite(self.nu, "OneClassSVM", "nu"), self._convex_spec(BelowZero(), 1.0, True)
        if not 0 < nu <= 1:
            raise InvalidInput(
                f"OneClassSVM: nu must lie in (0, 1]; got {nu!r}. It is the share of rows that may "
                "lie outside: 0.05, say."
            )
        if where is LOCAL and self._on_kernel(blocks, 4096):
            return fit_one_class_exactly(spec, nu, blocks, inputs)
        return fit_one_class(spec, nu, blocks, inputs, where)

    def fit_predict(
        self, X: Tabular, y: object = None, sample_weight: Array | None = None
    ) -> Array:
        """Fit, and return +1 for rows inside and −1 for those outside."""
        return self._atomic(lambda model: model.fit(X, y, sample_weight).predict(X))

    @by_partition
    def decision_function(self, X: Tabular) -> Array:
        """Return φ(X)·β − ρ, (n,): above zero inside, below zero outside."""
        rows = self._rows_to_predict(X)
        return joined([from_numpy(f[:, 0], like=X) for X, f in self._fitted.predictions(rows)])

    @by_partition
    def score_samples(self, X: Tabular) -> Array:
        """Return φ(X)·β, (n,): the higher, the more like the rows of the fit."""
        return self.decision_function(X) + float(self.offset_[0])

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return +1 for rows inside and −1 for those outside, (n,)."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return +1 or −1, and the value above zero inside, of each row."""
        f = to_numpy(self.decision_function(X))
        return {"label": np.where(f >= 0, 1, -1), "decision": f}

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""
        for X, fitted in self._fitted.predictions(self._as_fitted(blocks)):
            yield from_numpy(np.where(fitted[:, 0] >= 0, 1, -1), like=X)

    @property
    def offset_(self) -> Float[Array, " 1"]:
        """ρ, (1,)."""
        return -self.solution_.intercept

    @property
    def dual_coef_(self) -> Float[Array, " n"]:
        """Coefficients of the kernel and each row of ``X_fit_``, of a fit without features."""
        return self._of_rows("dual_coef_").solution.coef[:, 0]


def fit_one_class(
    spec: ConvexSpec, nu: float, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL
) -> ConvexFit:
    """Choose what is open, minimise, and put the offset at the quantile nu of the scores."""
    chosen, _ = choose(spec.features, blocks, where=where)
    chosen = chosen.in_precision(spec.features.precision, blocks.n_rows)
    features = Features(chosen.map, blocks, chosen.precision, where=where)
    w = np.concatenate([w for _, w in features.sum(TARGETS)])[:, None]
    drift = nu * float(w.sum())
    problem = Problem(features, np.zeros_like(w), w, spec.loss, spec.alpha, True, drift)
    state = minimise(problem, _start(problem, nu), tol=spec.tol, max_iter=spec.max_iter)
    # The best offsets are the nu-quantiles of the scores: one of them, or all between two rows, of
    # which the middle is taken. Rows at the border, of equal scores but for rounding, are inside.
    there, rho = w[:, 0] > 0, -float(state.intercept[0])
    f, rounding = state.fitted[there, 0], ROUNDING[chosen.precision]
    shift = quantile_shift(f, w[there, 0], rho, nu, rounding)
    state = replace(state, fitted=state.fitted - shift, intercept=state.intercept - shift)
    solution = optimum(problem, valued(problem, state))
    return warned(ConvexFit(inputs, chosen, spec.loss, solution))


def fit_one_class_exactly(spec: ConvexSpec, nu: float, blocks: Blocks, inputs: Inputs) -> ConvexFit:
    """Choose the kernel where it is open, minimise on the matrix of rows, and put the offset."""
    every = gather(blocks, spec.features.seed)
    X, w = every.X, every.w
    tuning = searched(spec.features, replace(every, y=every.y[:, :0]))
    chosen = Chosen(spec.features.seed, tuning, exact_choice(tuning, X))
    # Copies are one row with their weight: weights and copies of rows give the same machine.
    marks = row_marks(X, 0)  # an order that does not depend on the order of rows
    _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
    total = np.bincount(inverse, w)
    K = np.ascontiguousarray(chosen.kernel(X[first]))
    size, weight = float(np.diag(K).mean()) or 1.0, float(total.mean())
    K /= size
    w_one = total / weight
    drift = nu * float(w_one.sum())  # ½ aᵀKa for 0 ≤ a ≤ w and Σ a = nu Σ w, where ρ = −b
    y, worth = np.zeros((len(total), 1)), weight**2 * size
    problem = Problem(KernelMatrix(K), y, w_one[:, None], spec.loss, 1.0, True, drift, worth)
    if nu == 1:  # all coefficients are at their bounds, and any ρ above all scores is best
        at = judged(problem, w_one[:, None], -(K @ w_one).max(keepdims=True))
    else:
        at = refined(problem, spec.tol, spec.max_iter, (1e-6, 1e-10))
    rho = -float(at.intercept[0])
    shift = quantile_shift(at.fitted[:, 0], w_one, rho, nu, ROUNDING["float64"])
    at = judged(problem, at.coef, at.intercept - shift, spec.tol, at.steps[0].products)
    solution = optimum(problem, at)
    coef = weight * solution.coef[inverse] * (w / total[inverse])[:, None]
    solution = replace(solution, coef=coef, intercept=weight * size * solution.intercept)
    return warned(ConvexFit(inputs, chosen, spec.loss, solution, X=X))


def _start(problem: Problem, nu: float) -> State:
    """Return the point where every row pulls alike, with the share nu of them outside."""
    theta = gradients(problem.rows, nu * problem.w) / problem.alpha
    theta[:, -1] = 0.0
    u, fitted = np.full(problem.y.shape, -nu), images(problem.rows, theta)
    f, w = fitted[:, 0], problem.w[:, 0]
    order = np.argsort(f)
    outside = np.searchsorted(np.cumsum(w[order]), nu * w.sum())
    rho = f[order[min(outside, len(f) - 1)]]
    width = float(np.sqrt(w @ (f - rho) ** 2 / w.sum())) or 1.0
    return State(theta[:, :-1].T, np.array([-rho]), fitted - rho, u, width)


def quantile_shift(
    f: Float[Array, " n"], w: Float[Array, " n"], rho: float, nu: float, rounding: float
) -> float:
    """Return by how much the best offset is above ρ, at which the scores f are zero."""
    order = np.argsort(f, kind="stable")
    f, shares = f[order], np.cumsum(w[order]) / w.sum()
    border = int(np.searchsorted(shares, nu, side="right"))
    if border == len(f):
        return 0.0  # all may lie outside
    shift = float(f[border] - rounding * np.abs(f + rho).max())
    if border and shares[border - 1] > nu * (1 - 1e-12):
        shift = min(shift, 0.5 * float(f[border - 1] + f[border]))
    return shift
