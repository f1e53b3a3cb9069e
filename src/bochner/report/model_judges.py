"""What the rows of a report are listed by, and the leverage of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.models.displays import scores_of
from bochner.report.model_rows import Judge, RowList, as_given, features, has_features, kind_of
from bochner.solvers.ridge.eigen import Eigen, Rounding, left_out_errors

OFF = "Rows that the features approximate worst"
UNSURE = "Rows whose prediction is least certain"
STRANGE = "Rows most unlike the others"
MISSED = "Rows missed by most"


def judges_for(model: Any, reference: Array, leverage: "Leverage | None") -> tuple[Judge, ...]:
    """Return what the rows of this learner are listed by.

    Parameters
    ----------
    model : fitted learner
    reference : (m, d)
        Random rows that the kernel is compared on.
    leverage : Leverage or None
        Of ridge regressions.
    """
    found = (_off(model, reference), _unsure(model, leverage), _missed(model))
    return tuple(one for one in found if one is not None)


def _off(model: Any, reference: Array) -> Judge | None:
    if not has_features(model):
        return None
    kernel = model.kernel_
    if model.map_.below_kernel:
        words = (
            "e(x)/k(x, x), e(x) = k(x, x) − |φ(x)|²: the share of the row that the features leave "
            "out. Where it is near 1 they know nothing of the row, and the prediction leans to "
            "the intercept."
        )
        return Judge(RowList(OFF, "share left out", words), lambda X, Z, *_: _share(kernel, X, Z))
    other = features(model, reference)
    words = (
        f"Root mean square of φ(x)·φ(s) − k(x, s) over {reference.shape[0]:,} random rows s, in "
        "units of the kernel. Features of this map have the length √k(x, x), so that e(x) tells "
        "nothing."
    )

    def off(X: Array, Z: Array, *_: Any) -> Array:
        K = to_numpy(kernel(X.astype(np.float64), reference.astype(np.float64)))
        return np.sqrt(np.mean((Z @ other.T - K) ** 2, axis=1))

    return Judge(RowList(OFF, "kernel error", words), off)


def _share(kernel: Any, X: Array, Z: Array) -> Array:
    size = to_numpy(kernel.diag(X.astype(np.float64))).astype(np.float64)
    left = np.maximum(size - np.einsum("ij,ij->i", Z, Z), 0.0)
    return np.divide(left, size, out=np.zeros_like(left), where=size > 0)


def _unsure(model: Any, leverage: "Leverage | None") -> Judge | None:
    kind = kind_of(model)
    if kind == "classification":
        return _doubtful(model)
    if hasattr(model, "sample_functions"):
        words = "Standard deviation of f(x) under the posterior, in units of the target."
        return Judge(RowList(UNSURE, "deviation", words), lambda X, *_: _deviation(model, X))
    if leverage is not None:
        words = (
            "σ√h(x): the standard deviation that a Gaussian process on the same features would "
            "state, in units of the target; h(x) is the leverage of the row."
        )
        return Judge(RowList(UNSURE, "deviation", words), lambda _, Z, *__: leverage.deviation(Z))
    if kind == "outliers":
        words = "−φ(x)·β: the higher, the less like the rows of the fit."
        return Judge(RowList(STRANGE, "strangeness", words), lambda X, *_: _strangeness(model, X))
    if kind == "clusters":
        words = "Distance to the nearest centre over that to the next: 1 is just between two."
        return Judge(RowList(UNSURE, "ratio", words), lambda X, *_: _between(model, X))
    return None


def _doubtful(model: Any) -> Judge:
    if hasattr(model, "predict_proba"):
        words = "1 − the probability of the label predicted."
        return Judge(RowList(UNSURE, "doubt", words), lambda X, *_: _doubt(model, X))
    words = "The margin between the label predicted and the next, with a minus: 0 is a tie."
    return Judge(RowList(UNSURE, "−margin", words), lambda X, *_: -_margin(model, X))


def _doubt(model: Any, X: Array) -> Array:
    return 1 - to_numpy(model.predict_proba(as_given(model, X))).max(axis=1)


def _margin(model: Any, X: Array) -> Array:
    f = to_numpy(model.decision_function(as_given(model, X)))
    if f.ndim == 1:
        return np.abs(f)
    best = np.sort(f, axis=1)
    return best[:, -1] - best[:, -2]


def _deviation(model: Any, X: Array) -> Array:
    deviation = to_numpy(model.predict(as_given(model, X), return_std=True)[1])
    return deviation.reshape(len(deviation), -1)[:, 0]


def _strangeness(model: Any, X: Array) -> Array:
    return -to_numpy(model.score_samples(as_given(model, X)))


def _between(model: Any, X: Array) -> Array:
    distances = np.sort(to_numpy(model.transform(as_given(model, X))), axis=1)
    ratio = np.ones(len(distances))
    if distances.shape[1] < 2:
        return 0 * ratio
    return np.divide(distances[:, 0], distances[:, 1], out=ratio, where=distances[:, 1] > 0)


def _missed(model: Any) -> Judge | None:
    if hasattr(model, "sample_functions"):
        words = "|y − mean| in standard deviations of a new y: beyond 4 is a row to look at."
        empty = RowList(MISSED, "deviations off", words)
        return Judge(empty, lambda X, _, y, __: _surprise(model, X, y))
    if kind_of(model) == "regression":
        words = "|observed − predicted|, in units of the target (the first, if there are several)."
        return Judge(RowList(MISSED, "error", words), lambda X, _, y, f: _error(X, y, f))
    return None


def _surprise(model: Any, X: Array, y: Array | None) -> Array:
    if y is None:
        return np.full(X.shape[0], -np.inf)
    return np.abs(scores_of(model, as_given(model, X), y)[:, 0])


def _error(X: Array, y: Array | None, f: Array | None) -> Array:
    if y is None or f is None or f.size != y.size:
        return np.full(X.shape[0], -np.inf)
    return np.abs(y.reshape(len(y), -1) - f.reshape(len(y), -1))[:, 0]


@dataclass(frozen=True, eq=False)
class Leverage:
    """h(x) of a ridge regression: (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + 1/W, (b, t)."""

    eigen: Eigen
    mean: Float[Array, " D"]
    alpha: Float[Array, " t"]
    deviations: Float[Array, " t"]

    @staticmethod
    def of(model: Any, eigen: Eigen) -> "Leverage | None":
        """Return that of a ridge regression or Gaussian process; None where h tells nothing.

        Without a penalty every row that can be passed through is, and h is 1.
        """
        alpha = model.evidence_.alpha if hasattr(model, "evidence_") else model.solution_.alpha
        alpha = np.atleast_1d(np.asarray(alpha, np.float64))
        if not np.all(alpha > 0):
            return None
        moments = model.moments_
        mean = moments.feature_mean if eigen.centred else 0 * moments.feature_mean
        freedom = (eigen.values[:, None] / (eigen.values[:, None] + alpha)).sum(axis=0)
        left = np.maximum(eigen.count - eigen.centred - freedom, 1.0)
        power = eigen.residual_power_at(alpha)
        return Leverage(eigen, mean, alpha, np.sqrt(power / left))

    def __call__(self, Z: Array) -> Float[Array, "b t"]:
        """Return h of rows of features."""
        squares = ((Z - self.mean) @ self.eigen.vectors) ** 2
        spread = 1 / self.eigen.weight if self.eigen.centred else 0.0
        return squares @ (1 / (self.eigen.values[:, None] + self.alpha)) + spread

    def left_out(
        self, Z: Array, y: Float[Array, "b t"], fitted: Float[Array, "b t"], w: Array
    ) -> Float[Array, "b t"]:
        """Return what the fit without the row predicts for it, exactly: y − (y − ŷ)/(1 − h)."""
        return y - left_out_errors(y - fitted, self._slack(Z, w))

    def tells(self, Z: Array, w: Array) -> bool:
        """Whether rounding leaves 1 − h of all rows."""
        return bool(np.all(self._slack(Z, w) > 0))

    def _slack(self, Z: Array, w: Array) -> Float[Array, "b t"]:
        return Rounding.of(self.eigen, np.float64).slack(self(Z), w, self.alpha)

    def deviation(self, Z: Array) -> Array:
        """Return σ√h of the first target."""
        return self.deviations[0] * np.sqrt(self(Z)[:, 0])
