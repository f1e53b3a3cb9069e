"""Outputs of fitted learners as formulas of traced arrays."""

from collections.abc import Iterator
from functools import reduce, singledispatch
from operator import add
from typing import Any

import numpy as np

from bochner._core.arrays import dense
from bochner._core.shapes import Array
from bochner.data.schema import Inputs
from bochner.export.arrays import FLOAT, OnnxNamespace, Traced, Unwritable
from bochner.features.map import FeatureMap
from bochner.features.nystrom import NystromMap
from bochner.kernels.algebra import untransformed
from bochner.kernels.kernel import Kernel
from bochner.models._calibration import Calibration, pieces
from bochner.models.convex.fit import ConvexFit
from bochner.models.gaussian_process.exact import ExactProcess
from bochner.models.gaussian_process.features import FeatureProcess, Predictive
from bochner.models.gaussian_process.fit import ProcessFit
from bochner.models.representations.features import FeatureSums, WideSums
from bochner.models.representations.leaves import LeafRows
from bochner.models.representations.matrix import MatrixRows
from bochner.models.ridge.fit import RidgeFit
from bochner.models.sgd.fit import SgdFit
from bochner.models.unsupervised.base import FeaturesFit
from bochner.models.unsupervised.cca import Correlations
from bochner.models.unsupervised.kmeans import Clustering
from bochner.models.unsupervised.pca import PrincipalComponents
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.losses import LOG_LINK, BelowZero, Logistic, Loss, Multinomial, Quantile

Outputs = dict[str, Traced]


@singledispatch
def outputs(fit: Any, X: Traced) -> Outputs:  # noqa: ARG001  the rules use it
    """Return the outputs for rows X, by name."""
    raise Unwritable(f"what a {type(fit).__name__} predicts")


# --- features ------------------------------------------------------------------------------------


@outputs.register
def _(fit: FeatureMap, X: Traced) -> Outputs:
    return {"features": fit.features(X)}


@outputs.register
def _(fit: FeaturesFit, X: Traced) -> Outputs:
    return outputs(fit.chosen.map, X)


@outputs.register
def _(fit: PrincipalComponents, X: Traced) -> Outputs:
    centred = _of_fit(fit.chosen, X) - fit.summed.moments.feature_mean
    return {"scores": centred @ fit.eigenvectors}


@outputs.register
def _(fit: Correlations, X: Traced) -> Outputs:
    return {"scores": (_of_fit(fit.chosen, X) - fit.x_mean) @ fit.directions.a}


@outputs.register
def _(fit: Clustering, X: Traced) -> Outputs:
    xp, Z, C = OnnxNamespace(X.graph), _of_fit(fit.chosen, X), fit.clusters.centres
    gaps = np.einsum("ij,ij->i", C, C) - 2.0 * (Z @ C.T)
    squares = gaps + xp.sum(Z * Z, axis=1, keepdims=True)
    return {"cluster": xp.argmin(gaps), "distances": xp.sqrt(xp.maximum(squares, 0.0))}


def _of_fit(chosen: Chosen, X: Traced, coef: Array | None = None) -> Traced:
    """Return φ(X), or φ(X) β; landmark maps take the root in the precision of the fit.

    φ(X) β is one product where features are kernel values times a triangle.
    """
    phi = chosen.map
    if not isinstance(phi, NystromMap):
        return phi.features(X) if coef is None else phi.features(X) @ coef
    root = phi.root(np.dtype(chosen.precision)).astype(FLOAT)
    return phi.values(X) @ (root if coef is None else root @ coef)


# --- predictions ---------------------------------------------------------------------------------


@outputs.register
def _(fit: RidgeFit, X: Traced) -> Outputs:
    """Return predictions of a ridge regression, or labels and probabilities of a classifier."""
    rows, solution = fit.representation, fit.solution
    match rows:
        case FeatureSums() | WideSums():
            f = _of_fit(fit.chosen, X, solution.coef) + solution.intercept
        case MatrixRows():
            f = _kernel_sum(fit.chosen.kernel, rows.X, solution, X)
        case LeafRows():  # zero for rows outside of a leaf
            machines = ((rows.machine(leaf, solution), here) for leaf, here in _leaves(rows, X))
            f = reduce(add, (_kernel_sum(m.kernel, m.X, m, X) * here for m, here in machines))
        case _:
            raise Unwritable(f"what a fit of {type(rows).__name__} predicts")
    columns = _targets(f, fit.target_shape, fit.inputs)
    calibration = None if fit.inputs.classes is None else fit.calibration
    return columns | _probabilities(None, calibration, f)


def _leaves(rows: LeafRows, X: Traced) -> Iterator[tuple[int, Any]]:
    """Return the leaves of a tree, each with an indicator column of its rows."""
    xp, tree = OnnxNamespace(X.graph), rows.tree
    kernel, X = untransformed(rows.chosen.kernel, X)

    def below(number: int, inside: Any) -> Iterator[tuple[int, Any]]:
        if number < 0:  # a leaf
            yield -1 - number, inside
            return
        K = kernel.evaluate(X, xp.asarray(tree.rows[number]))
        p = K @ tree.weights[number][:, None]
        second = xp.where(p >= float(tree.cuts[number]), 1.0, 0.0)
        for child, condition in zip(tree.children[number], (1.0 - second, second), strict=True):
            yield from below(int(child), condition * inside)

    return below(0 if len(tree.cuts) else -1, 1.0)


@outputs.register
def _(fit: SgdFit, X: Traced) -> Outputs:
    xp, (coef, intercept) = OnnxNamespace(X.graph), fit.walk.result
    if fit.is_dual:
        f = fit.chosen.kernel.evaluate(X, xp.asarray(dense(fit.support))) @ coef + intercept
    else:
        f = _of_fit(fit.chosen, X, coef) + intercept
    columns = _targets(f, fit.target_shape, fit.inputs)
    if fit.spec.loss == "log_loss":
        columns |= _probabilities(Logistic(), None, f)
    if fit.spec.loss == "modified_huber":
        columns["probability"] = _shares(xp, (xp.clip(columns["decision"], -1.0, 1.0) + 1.0) / 2.0)
    return columns


@outputs.register
def _(fit: ConvexFit, X: Traced) -> Outputs:
    xp, loss, solution = OnnxNamespace(X.graph), fit.loss, fit.solution
    if fit.exact:
        f = _kernel_sum(fit.chosen.kernel, fit.X, solution, X)
    else:
        f = _of_fit(fit.chosen, X, solution.coef) + solution.intercept
    if isinstance(loss, BelowZero):
        inside = xp.where(f[:, 0] >= 0.0, 1.0, -1.0)
        return {"label": xp.astype(inside, np.int64), "decision": f[:, 0]}
    if fit.inputs.classes is not None:
        f = f if fit.pairs is None else fit.pairs.values(f, xp)
        return _targets(f, (), fit.inputs) | _probabilities(loss, fit.calibration, f)
    if isinstance(loss, LOG_LINK):
        f = xp.exp(xp.minimum(f, 700.0))
    elif isinstance(loss, Quantile) and isinstance(loss.level, tuple) and len(loss.level) > 1:
        f = xp.sort(f)
    return _targets(f, fit.target_shape, fit.inputs)


def _kernel_sum(kernel: Kernel, rows: Any, solution: Any, X: Traced) -> Traced:
    K = kernel.evaluate(X, OnnxNamespace(X.graph).asarray(dense(rows)))
    return K @ solution.coef + solution.intercept


def _targets(f: Traced, shape: tuple[int, ...], inputs: Inputs) -> Outputs:
    """Return predictions of numbers, or labels and the decision values that they are read off."""
    xp, classes = OnnxNamespace(f.graph), inputs.classes
    if classes is None:
        return {"prediction": f if shape else f[:, 0]}
    binary = f.shape[1] == 1
    codes = xp.astype(f[:, 0] > 0.0, np.int64) if binary else xp.argmax(f)
    labels = np.asarray(classes)
    labels = labels.astype(object) if labels.dtype.kind in "UOS" else labels
    return {"label": xp.take(xp.kept(labels), codes, 0), "decision": f[:, 0] if binary else f}


# --- probabilities -------------------------------------------------------------------------------


def _probabilities(loss: Loss | None, calibration: Calibration | None, f: Traced) -> Outputs:
    """Return probabilities of classes, where the loss or a calibration gives any."""
    xp = OnnxNamespace(f.graph)
    if calibration is not None:
        parts = pieces(xp.minimum, xp.maximum, xp.clip)
        scores = [a * part(f) for a, part in zip(calibration.slopes.tolist(), parts, strict=True)]
        f = reduce(add, scores)
    elif not isinstance(loss, Multinomial | Logistic):
        return {}
    if f.shape[1] == 1:
        p = 1.0 / (1.0 + xp.exp(xp.concat([f, -f], axis=1)))
    elif calibration is None and isinstance(loss, Logistic):
        p = _shares(xp, 1.0 / (1.0 + xp.exp(-f)))
    else:
        p = _shares(xp, xp.exp(f - xp.max(f, axis=1, keepdims=True)))
    return {"probability": p}


def _shares(xp: OnnxNamespace, p: Traced) -> Traced:
    """Return p and what is left of one, or p of several classes over their sum."""
    if p.ndim == 1:
        return xp.stack([1.0 - p, p], axis=1)
    total = xp.sum(p, axis=1, keepdims=True)
    none = total == 0.0
    return xp.where(none, 1.0 / p.shape[1], p / xp.where(none, 1.0, total))


# --- Gaussian processes --------------------------------------------------------------------------


@outputs.register
def _(fit: ProcessFit, X: Traced) -> Outputs:
    match fit.law:
        case FeatureProcess() as law:
            Z = _of_fit(law.chosen, X)
            mean = Z @ law.predictive.posterior.coef + law.predictive.posterior.intercept
            variance = _variance(OnnxNamespace(X.graph), law.predictive, X, Z)
        case ExactProcess() as law:
            mean, variance = _by_kernel(law, X)
        case law:
            raise Unwritable(f"what a {type(law).__name__} predicts")
    deviation = OnnxNamespace(X.graph).sqrt(variance)
    pair = (mean, deviation) if fit.target_shape else (mean[:, 0], deviation[:, 0])
    return dict(zip(("prediction", "deviation"), pair, strict=True))


def _by_kernel(law: ExactProcess, X: Traced) -> tuple[Traced, Traced]:
    """Return the posterior mean and variance of f at X, by the exact kernel."""
    xp, kernel = OnnxNamespace(X.graph), law.chosen.kernel
    k = kernel.evaluate(X, xp.asarray(dense(law.representation.X)))
    prior, parts = kernel.diagonal(X)[:, None], []
    for factor, a2 in zip(law.posterior.factors, law.evidence.amplitude, strict=True):
        inverse, one, total = factor.quadratic
        left = prior - xp.sum((k @ inverse) * k, axis=1, keepdims=True)
        by_intercept = (
            (k @ one[:, None] - 1.0) * total**-0.5 if law.spec.fit_intercept else 0.0 * prior
        )
        parts.append(a2 * xp.maximum(left + by_intercept * by_intercept, 0.0))
    return k @ law.coef + law.intercept, xp.concat(parts, axis=1)


def _variance(xp: OnnxNamespace, law: Predictive, X: Traced, Z: Traced) -> Traced:
    """Return Var f(x) as :class:`Predictive` has it."""
    k = law.left_out.kernel.diagonal(X)[:, None]
    inside = Z if law.left_out.landmarks is None else law.left_out.landmarks.features(X)
    e = xp.maximum(k - xp.sum(inside * inside, axis=1, keepdims=True), 0.0)
    share = xp.where(k > 0.0, e / xp.where(k > 0.0, k, 1.0), 0.0)
    amplitude, floor = law.posterior.evidence.amplitude, law.posterior.floor
    damped = e if np.all(law.exponents == 1) else k * xp.pow(share, law.exponents)
    total = floor * _leverage(xp, law, Z) + amplitude * damped
    if law.left_out.landmarks is None:
        return total
    return xp.minimum(total, amplitude * k + floor * law.posterior.spread)


def _leverage(xp: OnnxNamespace, law: Predictive, Z: Traced) -> Traced:
    posterior, alpha = law.posterior, law.posterior.evidence.alpha
    centred = Z - posterior.feature_mean
    A = centred @ posterior.vectors
    leverage = (A * A) @ (1.0 / (posterior.values[:, None] + alpha)) + posterior.spread
    if posterior.vectors.shape[0] == posterior.vectors.shape[1]:
        return leverage
    outside = xp.sum(centred * centred, axis=1, keepdims=True)
    outside = outside - xp.sum(A * A, axis=1, keepdims=True)
    return leverage + xp.maximum(outside, 0.0) / alpha
