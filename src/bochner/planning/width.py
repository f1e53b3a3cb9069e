"""How many features are enough: widths are doubled until the certificate holds, then trimmed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bochner._ground.checks import integer, positive
from bochner._ground.memory import free_bytes
from bochner._ground.random import Seed, seed_of
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.auto import Auto
from bochner.features.auto import choose as choose_method
from bochner.features.draw import as_method
from bochner.features.draw import draw as draw_width
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.rules import Request, draw_map
from bochner.kernels import Kernel
from bochner.moments import Moments
from bochner.planning.sample import rows_of, sample
from bochner.planning.spectral_distance import distance
from bochner.solvers.direct import decompose, leave_one_out, penalties

__all__ = ["Enough", "Tried", "Width", "as_enough", "draw", "enough", "penalty_for"]

#: Width that the search starts from, and that method="auto" is decided at.
FIRST, DECIDED = 64, 512

#: Rows that ε is measured on, and that the penalty is forecast from.
SAMPLE, PENALTY_ROWS = 1024, 1024

#: What is asked of a measurement on a sample, as a share of the tolerance: ε of all rows, and of
#: another seed, is up to so much larger.
MARGIN = 0.85

#: Bytes of moments, decomposition and work space, in D × D matrices of float64.
MATRICES = 4


@dataclass(frozen=True)
class Enough:
    """``n_features=Enough(...)``: as many features as bring ε down to a tolerance.

    Parameters
    ----------
    tolerance : float, default 0.1
        Largest (ε, alpha)-spectral distance that is wanted, in (0, 1): the fit is then that of
        the exact kernel up to a factor 1/(1 − ε) in its risk.
    seconds : float, optional
        Stop searching after so long, and take the widest that was tried.
    bytes : int, optional
        Memory for moments and solution, 32 D²; default half of what is free.

    Notes
    -----
    ``n_features="auto"`` is ``Enough()``.
    """

    tolerance: float = 0.1
    seconds: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 < positive(self.tolerance, "Enough", "tolerance") < 1:
            raise InvalidInput(
                f"Enough: tolerance must lie between 0 and 1; got {self.tolerance!r}. Take 0.1."
            )
        if self.seconds is not None:
            positive(self.seconds, "Enough", "seconds")
        if self.bytes is not None:
            integer(self.bytes, "Enough", "bytes", MATRICES * 8 * FIRST**2)

    @property
    def most_features(self) -> int:
        """The width whose moments fit into the memory."""
        room = free_bytes() // 2 if self.bytes is None else self.bytes
        return max(FIRST, int((room / (8 * MATRICES)) ** 0.5))


class Tried(NamedTuple):
    """A width, ε measured there, and seconds since the search began."""

    n_features: int
    epsilon: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Width:
    """A map of the width that was found, and how.

    Attributes
    ----------
    map : FeatureMap
    method : Method
    tolerance, alpha : float
        ε that was wanted, and the penalty that it is for.
    tried : tuple of Tried
        In the order they were tried.
    limit : str or None
        What stopped the search before the tolerance was met: "seconds", "bytes", or "rows" where
        as many features as rows were not enough.
    """

    map: FeatureMap
    method: Method
    tolerance: float
    alpha: float
    tried: tuple[Tried, ...]
    limit: str | None = None

    @property
    def n_features(self) -> int:
        """D."""
        return self.map.n_features

    @property
    def epsilon(self) -> float:
        """ε of the map, as the sample shows it."""
        return next(t.epsilon for t in self.tried if t.n_features == self.n_features)

    def __str__(self) -> str:
        found = f"{self.n_features:,} features of {self.method}: ε ≈ {self.epsilon:.2g}"
        wanted = f"{self.tolerance:g} at alpha = {self.alpha:.3g}"
        if self.limit is None:
            return f"{found}, within {wanted}."
        return f"{found}, above {wanted}: stopped by {_LIMITS[self.limit]}."


_LIMITS = {
    "seconds": "the budget of seconds; more time would allow more features",
    "bytes": "the budget of memory, 32 D² bytes; more memory would allow more features",
    "rows": "the number of rows: the exact kernel costs no more than so many features",
}


def draw(
    kernel: Kernel,
    method: Method | str = "auto",
    *,
    n_features: int | str | Enough = 1024,
    X: Float[Array, "n d"] | None = None,
    n_inputs: int | None = None,
    random_state: Seed = None,
    tolerance: float = 0.1,
    alpha: float | None = None,
) -> FeatureMap:
    """Draw a feature map φ with φ(x)·φ(y) ≈ k(x, y).

    Parameters
    ----------
    kernel : Kernel
        Any kernel of :mod:`bochner.kernels`, or sums and products of them.
    method : Method or str, default "auto"
        How features are made: ``Fourier(placement, form)``, ``Nystrom(landmarks)``,
        ``MercerHarmonic()``, ``Auto()``, ..., or one of the names "auto", "fourier", "iid",
        "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom", "uniform".
    n_features : int or "auto" or Enough, default 1024
        D. "auto": as many as bring the (ε, alpha)-spectral distance on the rows X down to
        ``tolerance``; see :func:`bochner.enough`. Maps whose kernel needs fewer (Linear,
        Constant, a Nyström map that has explained all) have fewer.
    X : (n, d), optional
        Rows of data; Nyström takes landmarks from them, "auto" measures on them. The others use
        their number of columns only.
    n_inputs : int, optional
        d, where there is no X.
    random_state : int, Generator, RandomState or None
        The same seed gives the same map everywhere.
    tolerance : float, default 0.1
        With ``n_features="auto"``: the largest ε wanted.
    alpha : float, optional
        With ``n_features="auto"``: the ridge penalty of the fit, required then.

    Returns
    -------
    FeatureMap
        ``phi(X)`` gives Z, (n, D), with Z @ Z.T ≈ kernel(X, X).

    Raises
    ------
    UnsupportedKernel
        If the method cannot serve the kernel; the message names those that can.
    InvalidInput
        If an argument is not what was required.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import draw
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> phi = draw(Gaussian(lengthscale=2.0), "nystrom", n_features=64, X=X, random_state=0)
    >>> Z = phi(X)
    >>> float(abs(Z @ Z.T - phi.kernel(X, X)).max()) < 0.1
    True
    """
    wanted = as_enough(n_features, tolerance)
    if wanted is None:
        return draw_width(
            kernel,
            method,
            n_features=n_features,  # type: ignore[arg-type]
            X=X,
            n_inputs=n_inputs,
            random_state=random_state,
        )
    if X is None or alpha is None:
        raise InvalidInput(
            'draw: n_features="auto" measures ε on rows at a penalty, so it requires X and alpha; '
            f"got {'no X' if X is None else 'no alpha'}."
        )
    return enough(kernel, method, X, alpha=alpha, wanted=wanted, random_state=random_state).map


def as_enough(n_features: Any, tolerance: float = 0.1) -> Enough | None:
    """Return what is wanted where the width is open, or None where it is a number."""
    if isinstance(n_features, Enough):
        return n_features
    if isinstance(n_features, str):
        if n_features == "auto":
            return Enough(tolerance)
        raise InvalidInput(
            f'n_features must be a positive integer, "auto" or Enough(...); got {n_features!r}.'
        )
    return None


def enough(
    kernel: Kernel,
    method: Method | str,
    X: Float[Array, "n d"],
    *,
    alpha: float,
    wanted: Enough | None = None,
    n_rows: int | None = None,
    random_state: Seed = None,
) -> Width:
    """Find the width at which the features are near enough to the kernel for a fit.

    Parameters
    ----------
    kernel : Kernel
    method : Method or str
        "auto" is decided once, at 512 features.
    X : (n, d)
        Rows of the fit, or a random sample of them.
    alpha : float
        Ridge penalty of the fit, on the scale of ``n_rows`` rows.
    wanted : Enough, default Enough()
        Tolerance and budgets.
    n_rows : int, optional
        Rows of the fit where X is a sample of them.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Width

    Raises
    ------
    InvalidInput
        If alpha is not positive or there are fewer than two rows.

    Notes
    -----
    ε is measured on at most 1024 rows as :func:`bochner.certify` measures it, with K made once;
    widths double until it is at most 0.85 of the tolerance, and two steps of bisection on the
    logarithm then bring the width to within a fifth of the least that would do. Time O(m³ log D +
    m² D) for m sampled rows.
    """
    wanted = Enough() if wanted is None else wanted
    alpha, seed = positive(alpha, "enough", "alpha"), seed_of(random_state)
    search = _Search(kernel, as_method(method), X, alpha, n_rows, seed, wanted)
    low, high = search.double()
    if high is not None:
        search.bisect(low, high)
    return search.found()


class _Search:
    """Widths that were tried, on one sample of rows."""

    def __init__(
        self,
        kernel: Kernel,
        method: Method,
        X: Array,
        alpha: float,
        n_rows: int | None,
        seed: int,
        wanted: Enough,
    ) -> None:
        self._start = time.perf_counter()
        self._kernel, self._X, self._seed, self._wanted = kernel, X, seed, wanted
        self._alpha, self._n = alpha, X.shape[0] if n_rows is None else n_rows
        self._method = self._decided(method)
        self._rows = rows_of(X, SAMPLE, seed)
        self._K: Array | None = None
        self._maps: dict[int, FeatureMap] = {}
        self._tried: dict[int, Tried] = {}
        self._limit: str | None = None

    def _decided(self, method: Method) -> Method:
        if not isinstance(method, Auto):
            return method
        return choose_method(method, self._kernel, self._ask(min(DECIDED, self._n))).method

    def _ask(self, width: int) -> Request:
        return Request(self._X.shape[1], width, self._seed, X=self._X)

    def double(self) -> tuple[int, int | None]:
        """Return the last width that did not do, and the first that did if one did."""
        low = 0
        for width in self._widths():
            if self._epsilon(width) <= MARGIN * self._wanted.tolerance:
                return low, width
            low = width
        return low, None

    def _widths(self) -> Iterator[int]:
        most = min(self._wanted.most_features, self._n)
        width, most = FIRST, max(2, most - most % 2)  # pairs of features need an even width
        while width < most:
            yield width
            if self._late():
                self._limit = "seconds"
                return
            if self._maps[width].n_features < width:  # nothing is left to add
                self._limit = "rows"
                return
            width *= 2
        yield most
        self._limit = "rows" if most >= self._n - 1 else "bytes"

    def _late(self) -> bool:
        limit = self._wanted.seconds
        return limit is not None and time.perf_counter() - self._start > limit

    def bisect(self, low: int, high: int) -> None:
        """Try two widths between one that does not do and one that does."""
        self._limit = None
        for _ in range(2):
            middle = 2 * round((max(low, FIRST // 4) * high) ** 0.5 / 2)
            if not low < middle < high or self._late():
                return
            does = self._epsilon(middle) <= MARGIN * self._wanted.tolerance
            low, high = (low, middle) if does else (middle, high)

    def _epsilon(self, width: int) -> float:
        phi = draw_map(self._method, self._kernel, self._ask(width))
        kernel = self._kernel if self._K is None else _Known(self._K)
        measured = sample(phi, self._rows, kernel)
        self._K = measured.K
        epsilon = distance(measured.K, measured.E, self._n, self._alpha, 0.95).epsilon
        self._maps[width] = phi
        self._tried[width] = Tried(phi.n_features, epsilon, time.perf_counter() - self._start)
        return epsilon

    def found(self) -> Width:
        """Return the narrowest that does, else the best."""
        level = MARGIN * self._wanted.tolerance
        enough = [width for width, t in self._tried.items() if t.epsilon <= level]
        best = min(enough) if enough else min(self._tried, key=lambda w: self._tried[w].epsilon)
        return Width(
            self._maps[best],
            self._method,
            self._wanted.tolerance,
            self._alpha,
            tuple(self._tried.values()),
            None if enough else self._limit,
        )


class _Known(NamedTuple):
    """The kernel matrix of the sample, in place of the kernel."""

    K: Array

    def __call__(self, X: Array) -> Array:  # noqa: ARG002  always of the same rows
        return self.K


def penalty_for(
    kernel: Kernel, X: Float[Array, "m d"], y: Float[Array, "m t"], n_rows: int, seed: int
) -> float:
    """Forecast the penalty that leave-one-out error will choose for ``n_rows`` rows.

    The exact kernel's choice on m and on m/4 sampled rows gives a power of the number of rows
    (between 0 and 1), which is carried on. O(m³).
    """
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:PENALTY_ROWS])
    X, y = X[chosen], y[chosen]
    few = max(2, len(y) // 4)
    small, large = _best(kernel, X[:few], y[:few]), _best(kernel, X, y)
    power = np.clip(np.log(large / small) / np.log(len(y) / few), 0.0, 1.0)
    return float(large * (n_rows / len(y)) ** power)


def _best(kernel: Kernel, X: Array, y: Array) -> float:
    """Return the penalty of least leave-one-out error of the exact kernel on these rows.

    The rows of K's root are the features: Z Zᵀ = K.
    """
    values, vectors = np.linalg.eigh(np.asarray(kernel(X), np.float64))
    Z = vectors * np.sqrt(np.maximum(values, 0.0))
    moments = Moments.of(Z, y)
    eigen = decompose(moments)
    alphas = penalties(eigen)
    rows = [(Z - moments.feature_mean, y - moments.target_mean, None)]
    return float(alphas[int(np.argmin(leave_one_out(eigen, rows, alphas)[0]))])
