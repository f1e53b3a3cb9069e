"""Slow, obvious twins: one pair of rows at a time, from the printed formulas, in mpmath."""

from functools import singledispatch

import mpmath
import numpy as np

from bochner.kernels import (
    Cauchy,
    Columns,
    Constant,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)


def kernel_matrix(kernel, X, Y=None):
    """The kernel matrix, float64, by a loop over all pairs."""
    Y = X if Y is None else Y
    return np.array([[float(value(kernel, x, y)) for y in Y.tolist()] for x in X.tolist()])


@singledispatch
def value(kernel, x, y):
    """k(x, y) of two lists of numbers."""
    raise NotImplementedError(kernel)


def differences(kernel, x, y):
    """(x_j - y_j) / lengthscale_j as multiple-precision numbers."""
    scale = kernel.lengthscale
    scales = scale if isinstance(scale, tuple) else [scale] * len(x)
    return [(mpmath.mpf(a) - b) / s for a, b, s in zip(x, y, scales, strict=True)]


def distance(kernel, x, y):
    return mpmath.sqrt(sum(d * d for d in differences(kernel, x, y)))


@value.register
def _(kernel: Gaussian, x, y):
    return mpmath.exp(-(distance(kernel, x, y) ** 2) / 2)


@value.register
def _(kernel: Exponential, x, y):
    return mpmath.exp(-distance(kernel, x, y))


@value.register
def _(kernel: Matern, x, y):
    nu, r = mpmath.mpf(kernel.smoothness), distance(kernel, x, y)
    if r == 0:
        return mpmath.mpf(1)
    u = mpmath.sqrt(2 * nu) * r
    return 2 ** (1 - nu) / mpmath.gamma(nu) * u**nu * mpmath.besselk(nu, u)


@value.register
def _(kernel: RationalQuadratic, x, y):
    a = kernel.shape
    return (1 + distance(kernel, x, y) ** 2 / (2 * a)) ** (-a)


@value.register
def _(kernel: Laplace, x, y):
    return mpmath.exp(-sum(abs(d) for d in differences(kernel, x, y)))


@value.register
def _(kernel: Cauchy, x, y):
    return mpmath.fprod(1 / (1 + d * d) for d in differences(kernel, x, y))


@value.register
def _(kernel: Linear, x, y):
    return mpmath.fsum(mpmath.mpf(a) * b for a, b in zip(x, y, strict=True))


@value.register
def _(kernel: Constant, x, y):
    return mpmath.mpf(kernel.value)


@value.register
def _(kernel: Sum, x, y):
    return value(kernel.left, x, y) + value(kernel.right, x, y)


@value.register
def _(kernel: Product, x, y):
    return value(kernel.left, x, y) * value(kernel.right, x, y)


@value.register
def _(kernel: Scaled, x, y):
    return kernel.scale * value(kernel.kernel, x, y)


@value.register
def _(kernel: Columns, x, y):
    return value(kernel.kernel, [x[c] for c in kernel.columns], [y[c] for c in kernel.columns])


@value.register
def _(kernel: Mahalanobis, x, y):
    vectors, values = spectral_factors(kernel.matrix)
    root = vectors * mpmath.diag([mpmath.sqrt(max(v, 0)) for v in values]) * vectors.T
    return value(kernel.kernel, list(mpmath.matrix([x]) * root), list(mpmath.matrix([y]) * root))


def spectral_factors(matrix):
    """Eigenvectors and eigenvalues of a symmetric matrix in multiple precision."""
    values, vectors = mpmath.eigsy(mpmath.matrix(matrix))
    return vectors, list(values)


# ---- twins of the moments, the solvers and the pivots: loops over rows, solves, enumeration


def moments(Z, y, w=None):
    """W, means and centred sums, by loops in extended precision."""
    Z, y = np.asarray(Z, np.longdouble), np.asarray(y, np.longdouble).reshape(len(Z), -1)
    w = np.ones(len(Z)) if w is None else np.asarray(w, np.longdouble)
    W = w.sum()
    z_mean = sum(a * z for a, z in zip(w, Z, strict=True)) / W
    y_mean = sum(a * t for a, t in zip(w, y, strict=True)) / W
    G = sum(a * np.outer(z - z_mean, z - z_mean) for a, z in zip(w, Z, strict=True))
    B = sum(a * np.outer(z - z_mean, t - y_mean) for a, z, t in zip(w, Z, y, strict=True))
    P = sum(a * (t - y_mean) ** 2 for a, t in zip(w, y, strict=True))
    return W, z_mean, y_mean, G, B, P


def ridge(Z, y, w, alpha, centred=True):
    """Coefficients and intercept by solving the normal equations of [Z, 1], the 1 unpenalised."""
    A = np.column_stack([Z, np.ones(len(Z))]) if centred else Z
    penalty = alpha * np.eye(A.shape[1])
    if centred:
        penalty[-1, -1] = 0
    beta = np.linalg.solve(A.T @ (w[:, None] * A) + penalty, A.T @ (w[:, None] * y))
    return (beta[:-1], beta[-1]) if centred else (beta, np.zeros(y.shape[1]))


def leave_one_out(Z, y, w, alpha, centred=True):
    """Weighted mean squared error of each row predicted by a fit without (one copy of) it."""
    total = np.zeros(y.shape[1])
    for i in range(len(Z)):
        without = w.copy()
        without[i] -= min(w[i], 1.0)
        coef, intercept = ridge(Z, y, without, alpha, centred)
        total += w[i] * (y[i] - Z[i] @ coef - intercept) ** 2
    return total / w.sum()


def pivot_law(K, rank):
    """Probability of every sequence of pivots of simple randomly pivoted Cholesky."""
    if rank == 0:
        return {(): 1.0}
    d = np.maximum(np.diag(K), 0)
    law = {}
    for i in np.flatnonzero(d > 1e-12):
        rest = pivot_law(K - np.outer(K[:, i], K[:, i]) / K[i, i], rank - 1)
        law |= {(int(i), *tail): p * d[i] / d.sum() for tail, p in rest.items()}
    return law
