"""What series and radial kernels refuse, in one sentence each."""

import numpy as np
import pytest
from scipy.special import gammaln

from bochner.errors import InvalidInput, InvalidType, NotPositive, UnsupportedKernel
from bochner.kernels import (
    Coefficients,
    Columns,
    DotExponential,
    DotProduct,
    Gaussian,
    Homogeneous,
    Laplace,
    Linear,
    LogDerivatives,
    Matern,
)
from bochner.kernels.dotproduct import Binomial, ExponentialSeries
from bochner.kernels.radial import isotropic, monomials, radial_kernels

ONES = np.ones(1)
REFUSED = {
    "no rotation": (
        lambda: radial_kernels(Laplace(), 3),
        UnsupportedKernel,
        r"require a kernel of ⟨x, y⟩.*GeneralizedZonal.*; got Laplace\(lengthscale=1\.0\)",
    ),
    "a column": (
        lambda: radial_kernels(Columns(Gaussian(), 0), 3),
        UnsupportedKernel,
        "got Columns",
    ),
    "lengthscales": (
        lambda: radial_kernels(Gaussian((1.0, 2.0)), 2),
        UnsupportedKernel,
        r"one lengthscale for all columns; got Gaussian.*Divide the columns",
    ),
    "not isotropic": (
        lambda: isotropic(Linear(), 2),
        UnsupportedKernel,
        r"kernel of the Euclidean distance .*; got Linear\(\)",
    ),
    "no monomials": (
        lambda: monomials(radial_kernels(Matern(), 3), 2, 2, ONES),
        UnsupportedKernel,
        r"Monomial radial functions require a kernel of ⟨x, y⟩ or the Gaussian; got",
    ),
    "not a kernel in so many dimensions": (
        lambda: radial_kernels(NotAKernel(), 3).matrix(1, ONES, ONES),
        NotPositive,
        r"positive semi-definite in dimension 3; got coefficient -1 of degree 1 from NotAKernel",
    ),
    "overflow": (
        lambda: radial_kernels(DotExponential(), 3).matrix(0, 30 * ONES, 30 * ONES),
        InvalidInput,
        r"scale·\|x\|·\|y\| must be below 700; got an overflow",
    ),
    "divergent radius": (
        lambda: radial_kernels(DotProduct(lambda n: gammaln(n + 1.0)), 3).matrix(0, ONES, ONES),
        InvalidInput,
        r"power series must converge at \|x\|·\|y\|; at 1 it has not after 4096 terms",
    ),
    "divergent": (
        lambda: DotProduct(lambda n: gammaln(n + 1.0))([[2.0]]),
        InvalidInput,
        r"must converge at every inner product; at \|⟨x, y⟩\| = 4 it has not",
    ),
    "negative coefficient": (
        lambda: Coefficients((1.0, -0.5)),
        NotPositive,
        r"Coefficients: values must be zero or above.*got -0\.5.*see Zonal",
    ),
    "no coefficients": (lambda: DotProduct(()), InvalidInput, r"at least one; got \(\)"),
    "a word": (lambda: Coefficients("exp"), InvalidInput, r"sequence of numbers.*got 'exp'"),
    "infinite": (lambda: Coefficients((np.inf,)), InvalidInput, r"values\[0\] must be a finite"),
    "no function": (
        lambda: LogDerivatives(2.0),
        InvalidType,
        r"LogDerivatives: function must be a callable .*; got 2\.0 of type float",
    ),
    "a negative degree": (
        lambda: LogDerivatives(np.abs, -1),
        InvalidInput,
        r"degree must be an int",
    ),
    "nan": (
        lambda: LogDerivatives(lambda n: np.nan * n).log_derivative(np.arange(2)),
        NotPositive,
        r"function must return, for each integer n, the logarithm",
    ),
    "shape": (
        lambda: LogDerivatives(lambda n: 1.0).log_derivative(np.arange(2)),
        NotPositive,
        r"for each integer n, .* got array\(1\.\)",
    ),
    "rate": (lambda: ExponentialSeries(0.0), InvalidInput, r"scale must be a positive"),
    "power": (
        lambda: Binomial(-1),
        InvalidInput,
        r"power must be an integer, 0 or above",
    ),
    "offset": (
        lambda: Binomial(2, -1.0),
        InvalidInput,
        r"offset must be a non-negative",
    ),
}


class NotAKernel(Homogeneous):
    """−cos θ, a function of the angle that is no kernel."""

    degree = 0

    def profile(self, angle):
        return -angle.cos

    def __repr__(self):
        return "NotAKernel()"


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name):
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        call()
