"""Slow, obvious twins: one pair of rows at a time, from the printed formulas, in mpmath."""

import math
from functools import singledispatch

import mpmath
import numpy as np

from bochner.kernels import (
    NNGP,
    AdditiveChi2,
    Angular,
    ArcCosine,
    Bilinear,
    Brownian,
    BrownianBridge,
    Cauchy,
    Columns,
    Constant,
    Custom,
    DotProductKernel,
    Exp,
    Exponential,
    ExponentialPower,
    FourierSeries,
    Gaussian,
    GeneralizedZonal,
    Intersection,
    JensenShannon,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Modulated,
    Monotone,
    NeuralTangent,
    Normalised,
    Periodic,
    Polynomials,
    Power,
    Product,
    RationalQuadratic,
    Scaled,
    SkewedChi2,
    SpectralMixture,
    Sum,
    Warped,
    Windows,
    Zonal,
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


# ---- kernels of inner products and angles


def dot(x, y):
    return mpmath.fsum(mpmath.mpf(a) * b for a, b in zip(x, y, strict=True))


def norm(x):
    return mpmath.sqrt(dot(x, x))


def cosine(x, y):
    """cos of the angle, in sixty digits; a row of zeros stands at a right angle to every row."""
    with mpmath.workdps(60):
        size = norm(x) * norm(y)
        return min(max(dot(x, y) / size, mpmath.mpf(-1)), mpmath.mpf(1)) if size else mpmath.mpf(0)


@value.register
def _(kernel: DotProductKernel, x, y):
    """Maclaurin's series, term by term."""
    derivatives = kernel.power_series.log_derivative(np.arange(80))
    t = dot(x, y)
    terms = [mpmath.exp(v) / mpmath.factorial(n) * t**n for n, v in enumerate(derivatives.tolist())]
    return mpmath.fsum(terms)


@value.register
def _(kernel: Angular, x, y):
    return 1 - 2 * mpmath.acos(cosine(x, y)) / mpmath.pi


def arc_cosine(order, c):
    """J_p(θ)/π of Cho & Saul (2009), from cos θ."""
    with mpmath.workdps(60):
        theta = mpmath.acos(c)
        J = (
            mpmath.pi - theta,
            mpmath.sin(theta) + (mpmath.pi - theta) * c,
            3 * mpmath.sin(theta) * c + (mpmath.pi - theta) * (1 + 2 * c**2),
        )
        return J[order] / mpmath.pi


@value.register
def _(kernel: ArcCosine, x, y):
    return (norm(x) * norm(y)) ** kernel.order * arc_cosine(kernel.order, cosine(x, y))


@value.register
def _(kernel: NNGP, x, y):
    c = cosine(x, y)
    for _ in range(kernel.depth):
        c = arc_cosine(1, c)
    return norm(x) * norm(y) * c


@value.register
def _(kernel: NeuralTangent, x, y):
    """The sum over layers, Σ_i Σ_i Π_{j ≥ i} κ_0(Σ_j): not the recursion."""
    layers = [cosine(x, y)]
    for _ in range(kernel.depth):
        layers.append(arc_cosine(1, layers[-1]))
    steps = [arc_cosine(0, c) for c in layers[:-1]]
    terms = [c * mpmath.fprod(steps[i:]) for i, c in enumerate(layers)]
    return norm(x) * norm(y) * mpmath.fsum(terms)


def gegenbauer(l, d, t):
    """P_l(t) by the explicit sum Σ_j c_j t^(l − 2j) (1 − t²)^j, in eighty digits."""
    with mpmath.workdps(80):
        t, c, total = mpmath.mpf(t), mpmath.mpf(1), mpmath.mpf(0)
        for j in range(l // 2 + 1):
            if j:
                c *= -mpmath.mpf((l - 2 * j + 2) * (l - 2 * j + 1)) / (2 * j * (d - 3 + 2 * j))
            total += c * t ** (l - 2 * j) * (1 - t * t) ** j
        return total


@value.register
def _(kernel: Zonal, x, y):
    c, size = kernel.coefficients, norm(x) * norm(y)
    if size == 0:
        return mpmath.mpf(0 if kernel.power else c[0])
    angle = cosine(x, y)
    series = mpmath.fsum(a * gegenbauer(l, len(x), angle) for l, a in enumerate(c))
    return size**kernel.power * series


@value.register
def _(kernel: GeneralizedZonal, x, y):
    angle = cosine(x, y)
    total = mpmath.mpf(0)
    for l, h in enumerate(kernel.radial_functions):
        pairs = zip(radial(h, norm(x)), radial(h, norm(y)), strict=True)
        exists = l == 0 or norm(x) * norm(y) > 0
        total += exists * mpmath.fsum(a * b for a, b in pairs) * gegenbauer(l, len(x), angle)
    return total


def radial(h, t):
    envelope = mpmath.exp(-h.decay * t * t / 2)
    return [a * t**n * envelope for a, n in zip(h.coefficients, h.powers, strict=True)]


# ---- peaks in the spectrum, histograms, and kernels made of kernels


@value.register
def _(kernel: ExponentialPower, x, y):
    return mpmath.exp(-(distance(kernel, x, y) ** kernel.power))


def per_column(numbers, d):
    return numbers if isinstance(numbers, tuple) else (numbers,) * d


@value.register
def _(kernel: Periodic, x, y):
    columns = zip(
        x, y, per_column(kernel.period, len(x)), per_column(kernel.lengthscale, len(x)), strict=True
    )
    waves = (
        mpmath.sin(mpmath.pi * (mpmath.mpf(a) - b) / p) / length for a, b, p, length in columns
    )
    return mpmath.exp(-2 * mpmath.fsum(w * w for w in waves))


@value.register
def _(kernel: SpectralMixture, x, y):
    delta, total = [mpmath.mpf(a) - b for a, b in zip(x, y, strict=True)], mpmath.mpf(0)
    for w, mean, scale in zip(kernel.weights, kernel.means, kernel.scales, strict=True):
        size = sum((s * t) ** 2 for s, t in zip(per_column(scale, len(x)), delta, strict=True))
        angle = sum(m * t for m, t in zip(per_column(mean, len(x)), delta, strict=True))
        total += w * mpmath.exp(-size / 2) * mpmath.cos(angle)
    return total / mpmath.fsum(kernel.weights)


def summed(term, x, y):
    return mpmath.fsum(term(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x, y, strict=True))


@value.register
def _(kernel: AdditiveChi2, x, y):
    return summed(lambda a, b: 2 * a * b / (a + b) if a + b else 0, x, y)


@value.register
def _(kernel: Intersection, x, y):
    return summed(min, x, y)


@value.register
def _(kernel: JensenShannon, x, y):
    """Entropies: ½[H(a) + H(b) − H(a + b)] + ... in the form ½(x log₂((x + y)/x) + ...)."""

    def half(a, b):
        return a * mpmath.log((a + b) / a, 2) / 2 if a else 0

    return summed(lambda a, b: half(a, b) + half(b, a), x, y)


@value.register
def _(kernel: SkewedChi2, x, y):
    c = kernel.skew
    pairs = [(mpmath.mpf(a) + c, mpmath.mpf(b) + c) for a, b in zip(x, y, strict=True)]
    return mpmath.fprod(2 * mpmath.sqrt(a) * mpmath.sqrt(b) / (a + b) for a, b in pairs)


@value.register
def _(kernel: Custom, x, y):
    return mpmath.mpf(float(kernel.function(np.array([x]), np.array([y]))[0, 0]))


@value.register
def _(kernel: Power, x, y):
    return value(kernel.kernel, x, y) ** kernel.exponent


@value.register
def _(kernel: Exp, x, y):
    return mpmath.exp(value(kernel.kernel, x, y))


@value.register
def _(kernel: Bilinear, x, y):
    return (mpmath.matrix([x]) * mpmath.matrix(kernel.matrix) * mpmath.matrix(y))[0]


@value.register
def _(kernel: Normalised, x, y):
    sizes = value(kernel.kernel, x, x) * value(kernel.kernel, y, y)
    return value(kernel.kernel, x, y) / mpmath.sqrt(sizes) if sizes else mpmath.mpf(0)


@value.register
def _(kernel: Modulated, x, y):
    f, g = (float(kernel.function(np.array([row]))[0]) for row in (x, y))
    return f * value(kernel.kernel, x, y) * g


@value.register
def _(kernel: Monotone, x, y):
    f, g = list(x), list(y)
    for j, points, values in zip(kernel.columns, kernel.points, kernel.values, strict=True):
        f[j], g[j] = (_between(row[j], points, values) for row in (x, y))
    return value(kernel.kernel, f, g)


def _between(number, points, values):
    """Return what a number becomes, by the line between the two points around it."""
    if number <= points[0]:
        return values[0]
    for k in range(1, len(points)):
        if number <= points[k]:
            share = (mpmath.mpf(number) - points[k - 1]) / (mpmath.mpf(points[k]) - points[k - 1])
            return values[k - 1] + share * (mpmath.mpf(values[k]) - values[k - 1])
    return values[-1]


@value.register
def _(kernel: Warped, x, y):
    f, g = (kernel.function(np.array([row]))[0].tolist() for row in (x, y))
    return value(kernel.kernel, f, g)


@value.register
def _(kernel: Windows, x, y):
    a, b = windows(kernel, x), windows(kernel, y)
    total = mpmath.fsum(value(kernel.kernel, u, v) for u in a for v in b)
    power = {"mean": 1, "root": mpmath.mpf(1) / 2, "sum": 0}[kernel.average]
    return total / (max(len(a), 1) * max(len(b), 1)) ** power


def windows(kernel, row):
    """All windows of one row, as lists of numbers."""
    row = list(row)
    steps = (len(row) - kernel.lengths) // kernel.channels
    if kernel.lengths:
        steps = min(steps, math.floor(row.pop(0)))
    starts = range(max(steps - kernel.width + 1, 0))
    c = kernel.channels
    return [row[c * i : c * (i + kernel.width)] for i in starts]


# ---- kernels with features of their own


@value.register
def _(kernel: FourierSeries, x, y):
    angles = [
        2 * mpmath.pi * (mpmath.mpf(a) - b) / kernel.period for a, b in zip(x, y, strict=True)
    ]
    return mpmath.fprod(
        mpmath.fsum(w * mpmath.cos(k * t) for k, w in enumerate(kernel.weights)) for t in angles
    )


@value.register
def _(kernel: Polynomials, x, y):
    middle, half = (kernel.lower + kernel.upper) / 2, (kernel.upper - kernel.lower) / 2
    points = [[(mpmath.mpf(t) - middle) / half for t in row] for row in (x, y)]
    return mpmath.fprod(
        mpmath.fsum(
            w * (2 * k + 1) * mpmath.legendre(k, a) * mpmath.legendre(k, b)
            for k, w in enumerate(kernel.weights)
        )
        for a, b in zip(*points, strict=True)
    )


@value.register
def _(kernel: Brownian | BrownianBridge, x, y):
    rows = [[min(max(mpmath.mpf(t), 0), kernel.length) for t in row] for row in (x, y)]
    tied = isinstance(kernel, BrownianBridge)
    return mpmath.fprod(
        min(a, b) - (a * b / kernel.length if tied else 0) for a, b in zip(*rows, strict=True)
    )


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


def left_out_errors(Z, y, w, alphas, rows, centred=True):
    """y − the prediction without (one copy of) each of these rows, (rows, p, t), by refits.

    Each refit has the singular values of √w Z about its own mean: nothing is squared.
    """
    errors = []
    for i in rows:
        left = w.copy()
        left[i] -= min(w[i], 1.0)
        total = left.sum()
        means = [left @ A / total if centred else 0 * A[0] for A in (Z, y)]
        root = np.sqrt(left)[:, None]
        U, s, Vt = np.linalg.svd(root * (Z - means[0]), full_matrices=False)
        shrunk = (s[:, None, None] / (s[:, None] ** 2 + alphas)[:, :, None]) * (
            U.T @ (root * (y - means[1]))
        )[:, None, :]
        errors.append(y[i] - means[1] - np.tensordot(Vt @ (Z[i] - means[0]), shrunk, 1))
    return np.array(errors)


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


def n_harmonics(l, d):
    """Spherical harmonics of degree l in d dimensions: polynomials of degree l, less r² of l − 2."""
    return math.comb(l + d - 1, l) - (math.comb(l + d - 3, l - 2) if l > 1 else 0)
