"""Slow, obvious twins of formulas, for example kernels by loops over pairs of rows in mpmath."""

import math

import mpmath
import numpy as np

from bochner import kernels


def kernel_matrix(kernel, X, Y=None):
    """Return the kernel matrix in float64, by a loop over all pairs."""
    Y = X if Y is None else Y
    return np.array([[float(value(kernel, x, y)) for y in Y.tolist()] for x in X.tolist()])


def value(kernel, x, y):
    """Return k(x, y) of two lists of numbers, by the first formula whose class fits the kernel."""
    formula = next(f for kinds, f in FORMULAS.items() if isinstance(kernel, kinds))
    return formula(kernel, x, y)


def inner_value(kernel, x, y):
    return value(kernel.kernel, x, y)


def per_column(value, d):
    return value if isinstance(value, tuple) else (value,) * d


def differences(kernel, x, y):
    """Return (x_j − y_j) / lengthscale_j as multiple-precision numbers."""
    scales = per_column(kernel.lengthscale, len(x))
    return [(mpmath.mpf(a) - b) / s for a, b, s in zip(x, y, scales, strict=True)]


def distance(kernel, x, y):
    return mpmath.sqrt(sum(d * d for d in differences(kernel, x, y)))


def dot(x, y):
    return mpmath.fsum(mpmath.mpf(a) * b for a, b in zip(x, y, strict=True))


def norm(x):
    return mpmath.sqrt(dot(x, x))


def summed(term, x, y):
    return mpmath.fsum(term(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x, y, strict=True))


def of_function(kernel, rows):
    """Yield the values of the kernel's function at each row, as lists."""
    return (kernel.function(np.array([row]))[0].tolist() for row in rows)


def matern(kernel, x, y):
    nu, r = mpmath.mpf(kernel.smoothness), distance(kernel, x, y)
    u = mpmath.sqrt(2 * nu) * r
    return 2 ** (1 - nu) / mpmath.gamma(nu) * u**nu * mpmath.besselk(nu, u) if r else mpmath.mpf(1)


def mahalanobis(kernel, x, y):
    values, vectors = mpmath.eigsy(mpmath.matrix(kernel.matrix))
    root = vectors * mpmath.diag([mpmath.sqrt(max(v, 0)) for v in values]) * vectors.T
    return inner_value(kernel, list(mpmath.matrix([x]) * root), list(mpmath.matrix([y]) * root))


def cosine(x, y):
    """Return the cosine of the angle, in sixty digits; zero for rows of zeros."""
    with mpmath.workdps(60):
        size = norm(x) * norm(y)
        return min(max(dot(x, y) / size, mpmath.mpf(-1)), mpmath.mpf(1)) if size else mpmath.mpf(0)


def dot_product(kernel, x, y):
    """Return 80 terms of Maclaurin's series."""
    logs = kernel.series(3).log_derivative(np.arange(80)).tolist()
    t = dot(x, y)
    return mpmath.fsum(mpmath.exp(v) / mpmath.factorial(n) * t**n for n, v in enumerate(logs))


def arc_cosine(order, c):
    """Return J_p(θ)/π of Cho and Saul (2009), from cos θ."""
    with mpmath.workdps(60):
        theta = mpmath.acos(c)
        J = (
            mpmath.pi - theta,
            mpmath.sin(theta) + (mpmath.pi - theta) * c,
            3 * mpmath.sin(theta) * c + (mpmath.pi - theta) * (1 + 2 * c**2),
        )
        return J[order] / mpmath.pi


def layers(kernel, x, y):
    """Return the cosines of the angle after 0, 1, ... layers."""
    c = [cosine(x, y)]
    for _ in range(kernel.depth):
        c.append(arc_cosine(1, c[-1]))
    return c


def tangent(kernel, x, y):
    """Return the sum over layers Σ_i Σ_i Π_{j ≥ i} κ_0(Σ_j), without the recursion."""
    c = layers(kernel, x, y)
    steps = [arc_cosine(0, angle) for angle in c[:-1]]
    terms = (angle * mpmath.fprod(steps[i:]) for i, angle in enumerate(c))
    return norm(x) * norm(y) * mpmath.fsum(terms)


def gegenbauer(l, d, t):
    """Return P_l(t) by the explicit sum Σ_j c_j t^(l − 2j) (1 − t²)^j, in eighty digits."""
    with mpmath.workdps(80):
        t, c, total = mpmath.mpf(t), mpmath.mpf(1), mpmath.mpf(0)
        for j in range(l // 2 + 1):
            if j:
                c *= -mpmath.mpf((l - 2 * j + 2) * (l - 2 * j + 1)) / (2 * j * (d - 3 + 2 * j))
            total += c * t ** (l - 2 * j) * (1 - t * t) ** j
        return total


def zonal(kernel, x, y):
    c, size = kernel.coefficients, norm(x) * norm(y)
    if size == 0:
        return mpmath.mpf(0 if kernel.power else c[0])
    angle = cosine(x, y)
    series = mpmath.fsum(a * gegenbauer(l, len(x), angle) for l, a in enumerate(c))
    return size**kernel.power * series


def generalised_zonal(kernel, x, y):
    angle, total = cosine(x, y), mpmath.mpf(0)
    for l, h in enumerate(kernel.radial_functions):
        pairs = zip(radial(h, norm(x)), radial(h, norm(y)), strict=True)
        exists = l == 0 or norm(x) * norm(y) > 0
        total += exists * mpmath.fsum(a * b for a, b in pairs) * gegenbauer(l, len(x), angle)
    return total


def radial(h, t):
    envelope = mpmath.exp(-h.decay * t * t / 2)
    return [a * t**n * envelope for a, n in zip(h.coefficients, h.powers, strict=True)]


def periodic(kernel, x, y):
    scales = (per_column(n, len(x)) for n in (kernel.period, kernel.lengthscale))
    columns = zip(x, y, *scales, strict=True)
    waves = (mpmath.sin(mpmath.pi * (mpmath.mpf(a) - b) / p) / s for a, b, p, s in columns)
    return mpmath.exp(-2 * mpmath.fsum(w * w for w in waves))


def spectral_mixture(kernel, x, y):
    delta, total = [mpmath.mpf(a) - b for a, b in zip(x, y, strict=True)], mpmath.mpf(0)
    for w, mean, scale in zip(kernel.weights, kernel.means, kernel.scales, strict=True):
        size = sum((s * t) ** 2 for s, t in zip(per_column(scale, len(x)), delta, strict=True))
        angle = sum(m * t for m, t in zip(per_column(mean, len(x)), delta, strict=True))
        total += w * mpmath.exp(-size / 2) * mpmath.cos(angle)
    return total / mpmath.fsum(kernel.weights)


def jensen_shannon(kernel, x, y):
    """Return the kernel by entropies of the form ½(x log₂((x + y)/x) + ...)."""
    half = lambda a, b: a * mpmath.log((a + b) / a, 2) / 2 if a else 0
    return summed(lambda a, b: half(a, b) + half(b, a), x, y)


def skewed(kernel, x, y):
    pairs = [(mpmath.mpf(a) + kernel.skew, b + kernel.skew) for a, b in zip(x, y, strict=True)]
    return mpmath.fprod(2 * mpmath.sqrt(a) * mpmath.sqrt(b) / (a + b) for a, b in pairs)


def normalised(kernel, x, y):
    sizes = inner_value(kernel, x, x) * inner_value(kernel, y, y)
    return inner_value(kernel, x, y) / mpmath.sqrt(sizes) if sizes else mpmath.mpf(0)


def modulated(kernel, x, y):
    f, g = of_function(kernel, (x, y))
    return f * inner_value(kernel, x, y) * g


def monotone(kernel, x, y):
    f, g = list(x), list(y)
    for j, points, values in zip(kernel.columns, kernel.points, kernel.values, strict=True):
        f[j], g[j] = (_interpolate(row[j], points, values) for row in (x, y))
    return inner_value(kernel, f, g)


def _interpolate(number, points, values):
    """Return the value at ``number`` on the line between the two points around it."""
    if number <= points[0]:
        return values[0]
    for k in range(1, len(points)):
        if number <= points[k]:
            share = (mpmath.mpf(number) - points[k - 1]) / (mpmath.mpf(points[k]) - points[k - 1])
            return values[k - 1] + share * (mpmath.mpf(values[k]) - values[k - 1])
    return values[-1]


def of_windows(kernel, x, y):
    a, b = windows(kernel, x), windows(kernel, y)
    total = mpmath.fsum(inner_value(kernel, u, v) for u in a for v in b)
    power = {"mean": 1, "root": mpmath.mpf(1) / 2, "sum": 0}[kernel.average]
    return total / (max(len(a), 1) * max(len(b), 1)) ** power


def windows(kernel, row):
    """Return all windows of a row, as lists of numbers."""
    row = list(row)
    steps = (len(row) - kernel.lengths) // kernel.channels
    if kernel.lengths:
        steps = min(steps, math.floor(row.pop(0)))
    starts = range(max(steps - kernel.width + 1, 0))
    c = kernel.channels
    return [row[c * i : c * (i + kernel.width)] for i in starts]


def fourier_series(kernel, x, y):
    turn = 2 * mpmath.pi / kernel.period
    angles = [turn * (mpmath.mpf(a) - b) for a, b in zip(x, y, strict=True)]
    waves = lambda t: (w * mpmath.cos(k * t) for k, w in enumerate(kernel.weights))
    return mpmath.fprod(mpmath.fsum(waves(t)) for t in angles)


def polynomials(kernel, x, y):
    middle, half = (kernel.lower + kernel.upper) / 2, (kernel.upper - kernel.lower) / 2
    points = ([(mpmath.mpf(t) - middle) / half for t in row] for row in (x, y))
    term = lambda k, a, b: (2 * k + 1) * mpmath.legendre(k, a) * mpmath.legendre(k, b)
    sums = lambda a, b: mpmath.fsum(w * term(k, a, b) for k, w in enumerate(kernel.weights))
    return mpmath.fprod(sums(a, b) for a, b in zip(*points, strict=True))


def brownian(kernel, x, y):
    rows = [[min(max(mpmath.mpf(t), 0), kernel.length) for t in row] for row in (x, y)]
    bridge = lambda a, b: a * b / kernel.length if kernel.bridge else 0
    return mpmath.fprod(min(a, b) - bridge(a, b) for a, b in zip(*rows, strict=True))


#: k(x, y) of each class of kernels; a class is listed before its base classes.
FORMULAS = {
    kernels.Gaussian: lambda k, x, y: mpmath.exp(-(distance(k, x, y) ** 2) / 2),
    kernels.Exponential: lambda k, x, y: mpmath.exp(-distance(k, x, y)),
    kernels.ExponentialPower: lambda k, x, y: mpmath.exp(-(distance(k, x, y) ** k.power)),
    kernels.Matern: matern,
    kernels.RationalQuadratic: lambda k, x, y: (
        (1 + distance(k, x, y) ** 2 / (2 * k.shape)) ** (-k.shape)
    ),
    kernels.Laplace: lambda k, x, y: mpmath.exp(-sum(map(abs, differences(k, x, y)))),
    kernels.Cauchy: lambda k, x, y: mpmath.fprod(1 / (1 + d * d) for d in differences(k, x, y)),
    kernels.Linear: lambda k, x, y: dot(x, y),
    kernels.Constant: lambda k, x, y: mpmath.mpf(k.value),
    kernels.Sum: lambda k, x, y: value(k.left, x, y) + value(k.right, x, y),
    kernels.Product: lambda k, x, y: value(k.left, x, y) * value(k.right, x, y),
    kernels.Scaled: lambda k, x, y: k.scale * inner_value(k, x, y),
    kernels.Columns: lambda k, x, y: inner_value(k, *([z[c] for c in k.columns] for z in (x, y))),
    kernels.Mahalanobis: mahalanobis,
    kernels.Power: lambda k, x, y: inner_value(k, x, y) ** k.exponent,
    kernels.Exp: lambda k, x, y: mpmath.exp(inner_value(k, x, y)),
    kernels.Normalised: normalised,
    kernels.Modulated: modulated,
    kernels.Monotone: monotone,
    kernels.Warped: lambda k, x, y: inner_value(k, *of_function(k, (x, y))),
    kernels.Windows: of_windows,
    kernels.Custom: lambda k, x, y: mpmath.mpf(k.function(np.array([x]), np.array([y])).item()),
    kernels.Periodic: periodic,
    kernels.SpectralMixture: spectral_mixture,
    kernels.AdditiveChi2: lambda k, x, y: summed(
        lambda a, b: 2 * a * b / (a + b) if a + b else 0, x, y
    ),
    kernels.Intersection: lambda k, x, y: summed(min, x, y),
    kernels.JensenShannon: jensen_shannon,
    kernels.SkewedChi2: skewed,
    kernels.FourierSeries: fourier_series,
    kernels.Polynomials: polynomials,
    kernels.Brownian: brownian,
    kernels.Angular: lambda k, x, y: 1 - 2 * mpmath.acos(cosine(x, y)) / mpmath.pi,
    kernels.ArcCosine: lambda k, x, y: (
        (norm(x) * norm(y)) ** k.order * arc_cosine(k.order, cosine(x, y))
    ),
    kernels.NNGP: lambda k, x, y: norm(x) * norm(y) * layers(k, x, y)[-1],
    kernels.NeuralTangent: tangent,
    kernels.Zonal: zonal,
    kernels.GeneralizedZonal: generalised_zonal,
    kernels.DotProductKernel: dot_product,
}


def moments(Z, y, w=None):
    """Return W, means and centred sums, by loops in extended precision."""
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
    """Return coefficients and intercept, from normal equations of [Z, 1]; 1 has no penalty."""
    A = np.column_stack([Z, np.ones(len(Z))]) if centred else Z
    penalty = alpha * np.eye(A.shape[1])
    if centred:
        penalty[-1, -1] = 0
    beta = np.linalg.solve(A.T @ (w[:, None] * A) + penalty, A.T @ (w[:, None] * y))
    return (beta[:-1], beta[-1]) if centred else (beta, np.zeros(y.shape[1]))


def dual(K, y, alpha, w, centred=True):
    """Return coefficients and intercept by one dense system: K c + alpha c/w + b = y, Σ c = 0."""
    n = len(K)
    A = K + alpha * np.diag(1 / w)
    if not centred:
        return np.linalg.solve(A, y), np.zeros(y.shape[1])
    system = np.block([[A, np.ones((n, 1))], [np.ones((1, n)), 0]])
    solution = np.linalg.solve(system, np.vstack([y, np.zeros((1, y.shape[1]))]))
    return solution[:-1], solution[-1]


def kriging(K, y, k, variances, F=None, f=None):
    """Return mean and deviation at new rows, trend coefficients, and their precision matrix.

    K is the kernel matrix of the rows plus noise, k that of new rows; F and f are trend columns.
    """
    F = np.ones((len(y), 1)) if F is None else F
    f = np.ones((len(k), 1)) if f is None else f
    inverse = np.linalg.inv(K)
    precision = F.T @ inverse @ F
    beta = np.linalg.solve(precision, F.T @ inverse @ y)
    excess = f - k @ inverse @ F
    variance = variances - np.einsum("ij,jk,ik->i", k, inverse, k)
    variance += np.einsum("ip,pq,iq->i", excess, np.linalg.inv(precision), excess)
    return f @ beta + k @ inverse @ (y - F @ beta), np.sqrt(variance), beta, precision


def left_out_errors(Z, y, w, alphas, rows, centred=True):
    """Return y minus predictions without (a copy of) each of these rows, (rows, p, t), by refits.

    Each refit uses the singular values of the centred √w Z, so no number is squared.
    """
    errors = []
    for i in rows:
        weights = w.copy()
        weights[i] -= min(w[i], 1.0)
        total = weights.sum()
        means = [weights @ A / total if centred else 0 * A[0] for A in (Z, y)]
        root = np.sqrt(weights)[:, None]
        U, s, Vt = np.linalg.svd(root * (Z - means[0]), full_matrices=False)
        shrunk = (s[:, None, None] / (s[:, None] ** 2 + alphas)[:, :, None]) * (
            U.T @ (root * (y - means[1]))
        )[:, None, :]
        errors.append(y[i] - means[1] - np.tensordot(Vt @ (Z[i] - means[0]), shrunk, 1))
    return np.array(errors)


def pivot_law(K, rank):
    """Return the probability of each sequence of pivots of simple randomly pivoted Cholesky."""
    if rank == 0:
        return {(): 1.0}
    d = np.maximum(np.diag(K), 0)
    law = {}
    for i in np.flatnonzero(d > 1e-12):
        tails = pivot_law(K - np.outer(K[:, i], K[:, i]) / K[i, i], rank - 1)
        law |= {(int(i), *tail): p * d[i] / d.sum() for tail, p in tails.items()}
    return law


def n_harmonics(l, d):
    """Return the number of spherical harmonics of degree l in d dimensions."""
    return math.comb(l + d - 1, l) - (math.comb(l + d - 3, l - 2) if l > 1 else 0)
