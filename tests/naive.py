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
