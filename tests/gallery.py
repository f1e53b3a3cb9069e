"""What the laws run over: every kernel, alone and combined, for three columns; every method."""

import numpy as np

from bochner.features import IID, QMC, Auto, Fourier, Nystrom, Orthogonal, Pivoted, Uniform
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
    RationalQuadratic,
)

N_COLUMNS = 3

STATIONARY = [
    Gaussian(),
    Gaussian(lengthscale=(0.5, 1.0, 3.0)),
    Exponential(lengthscale=2.0),
    RationalQuadratic(shape=0.8, lengthscale=1.5),
    RationalQuadratic(shape=2.5, lengthscale=(0.7, 1.0, 2.0)),
    Laplace(lengthscale=3.0),
    Laplace(lengthscale=(1.0, 2.0, 5.0)),
    Cauchy(lengthscale=1.5),
    Matern(smoothness=0.5),
    Matern(smoothness=0.8, lengthscale=2.0),
    Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)),
    Matern(smoothness=2.5, lengthscale=1.5),
    Matern(smoothness=3.5),
    Matern(smoothness=3.7, lengthscale=0.8),
    Matern(smoothness=40.0),
]

OTHERS = [
    Linear(),
    Constant(value=2.5),
    2.0 * Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)) + Gaussian(lengthscale=0.5),
    Gaussian(lengthscale=2.0) * Laplace(lengthscale=4.0),
    Linear() * Exponential() + 0.5,
    Columns(Gaussian(lengthscale=(1.0, 0.5)), columns=(2, 0)),
    Columns(Cauchy(), columns=(1,)) * Columns(Matern(smoothness=2.5), columns=(0, 2)),
    Mahalanobis(Gaussian(), matrix=((2.0, 0.5, 0.0), (0.5, 1.0, 0.0), (0.0, 0.0, 0.1))),
    Mahalanobis(Linear(), matrix=((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0))),
]

KERNELS = STATIONARY + OTHERS

PLACEMENTS = [IID(), Orthogonal(), QMC()]
FOURIER = [Fourier(placement, form) for placement in PLACEMENTS for form in ("pair", "phase")]
NYSTROM = [Nystrom(Pivoted()), Nystrom(Uniform())]
METHODS = [*FOURIER, *NYSTROM, Auto()]


def serves(method, kernel):
    """Whether the method is meant for the kernel: orthogonal directions need a rotation."""
    by_coordinate = any(name in repr(kernel) for name in ("Laplace", "Cauchy"))
    return not (by_coordinate and isinstance(method, Fourier) and method.placement == Orthogonal())


MAPS = [(kernel, method) for kernel in KERNELS for method in METHODS if serves(method, kernel)]
KINDS = [
    (kernel, method) for kernel, method in MAPS if method in (FOURIER[0], FOURIER[1], NYSTROM[0])
]
"""One for each way to evaluate a map: where frequencies and landmarks come from is no matter."""
RANDOM_MAPS = [(kernel, method) for kernel, method in MAPS if method in FOURIER]


def rows(n, seed=0, mean=0.0, dtype=np.float64):
    """n rows of three columns, normal about ``mean``, the last one equal to the first."""
    X = np.random.default_rng(seed).normal(mean, 1.0, (n, N_COLUMNS)).astype(dtype)
    X[-1] = X[0]
    return X
