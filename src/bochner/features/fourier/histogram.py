"""Features of kernels of histograms: spectra sampled at even steps.

An additive kernel Σ_j √(x_j y_j) 𝒦(log y_j/x_j) with the spectral density κ of 𝒦 has, for each
column x, the 2n + 1 features

    √(x L κ(0)),  √(2 x L κ(jL)) cos(jL log x),  √(2 x L κ(jL)) sin(jL log x),  j = 1, …, n,

and zeros where x is zero [Vedaldi & Zisserman (2012), eq. 11].
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from bochner._core.arrays import array_namespace, moved
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.kernels.histogram import Additive, require_above
from bochner.kernels.stationary import refuse_sparse


@dataclass(frozen=True)
class HistogramSampling(Method):
    """Features of histogram kernels from their spectra.

    See Also
    --------
    Nystrom : Fewer features where columns interact.

    Notes
    -----
    Serves `AdditiveChi2`, `Intersection` and `JensenShannon` by sampled spectra, 2n + 1 features
    per column with the largest odd number that n_features leaves for each. Nothing is random, and
    the error has a bound for all data: with 3, 5, 7 features per column at most 3.2, 1.3 and 0.6 %
    of the larger number for χ². Choose it for histograms and other non-negative columns that act
    apart; :class:`Nystrom` needs fewer features where they interact. Cost of φ(X): O(n D).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import AdditiveChi2
    >>> X = np.random.default_rng(0).uniform(0, 1, (50, 3))
    >>> phi = bo.draw(AdditiveChi2(), bo.HistogramSampling(), n_features=21, X=X, random_state=0)
    >>> phi(X).shape
    (50, 21)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.05
    True
    """

    numbers_each = 1


@dataclass(frozen=True, eq=False)
class HistogramMap(FeatureMap):
    """Sampled spectrum of an additive kernel: 2n + 1 features a column, column by column."""

    kernel: Additive
    inputs: int  # d
    terms: int  # n
    step: float  # L

    @property
    def n_features(self) -> int:
        return self.inputs * (2 * self.terms + 1)

    unbiased = False  # A sum approximates an integral; there is no randomness

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        refuse_sparse(self.kernel, X)
        require_above(self.kernel, 0.0, X)
        xp = array_namespace(X)
        frequencies = moved(self.step * np.arange(self.terms + 1), like=X)
        roots = moved(np.sqrt(_weights(self.kernel, self.terms, self.step)), like=X)
        logs = xp.log(xp.where(X > 0, X, xp.ones_like(X)))
        angles = logs[:, :, None] * frequencies
        sizes = xp.sqrt(X)[:, :, None] * roots
        parts = [sizes * xp.cos(angles), (sizes * xp.sin(angles))[:, :, 1:]]
        return xp.reshape(xp.concat(parts, axis=2), (X.shape[0], self.n_features))


def _weights(kernel: Additive, terms: int, step: float) -> Float[np.ndarray, " n"]:
    """Return Lκ(0), 2Lκ(L), …, 2Lκ(nL)."""
    weights = 2 * step * kernel.spectrum(step * np.arange(terms + 1.0))
    weights[0] *= 0.5
    return weights


#: log y/x up to here is looked at: farther apart the terms are below a five-hundredth of the
#: larger number, and so is their error.
FARTHEST = 12.5


def sampling_error(kernel: Additive, terms: int, step: float) -> float:
    """Return the largest error of a term, as a share of the larger of x and y."""
    t = np.linspace(0.0, FARTHEST, 500)
    waves = np.cos(step * np.outer(t, np.arange(terms + 1.0)))
    error = waves @ _weights(kernel, terms, step) - kernel.signature(t)
    return float(np.abs(np.exp(-0.5 * t) * error).max())


@cache
def best_step(kernel: Additive, terms: int) -> float:
    """Return the step of the least largest error, to about 0.1 %."""
    low, high = 0.02 / (1 + terms) ** 0.5, 4.0
    for _ in range(3):
        steps = np.geomspace(low, high, 40)
        errors = [sampling_error(kernel, terms, step) for step in steps]
        best = int(np.argmin(errors))
        low, high = steps[max(best - 1, 0)], steps[min(best + 1, 39)]
    return float(steps[best])


def draw_sampled_spectrum(
    method: HistogramSampling, kernel: Additive, ask: Request
) -> HistogramMap:
    """Draw the features of a spectrum sampled at the best even steps."""
    if ask.n_features < ask.n_inputs:
        raise InvalidInput(
            f"HistogramSampling requires at least one feature a column; got {ask.n_features} for "
            f"{ask.n_inputs} columns. Ask for more features, or use Nystrom(...)."
        )
    terms = (ask.n_features // ask.n_inputs - 1) // 2
    return HistogramMap(kernel, ask.n_inputs, terms, best_step(kernel, terms))
