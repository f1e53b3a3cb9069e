"""Number of features: doubled until the certificate holds, then bisected."""

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import as_matrix, in_float64, to_numpy
from bochner._core.blas import eigh
from bochner._core.checks import free_bytes, positive, share
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import HtmlResult
from bochner._core.threads import single_thread
from bochner.certificates.pencil import distance, rows_of, sample
from bochner.features.auto import Auto, loo_path
from bochner.features.map import SMALL_BIAS, FeatureMap, Method, Request
from bochner.features.nystrom import Nystrom
from bochner.features.rules import as_method, draw_map
from bochner.features.rules import choose as choose_method
from bochner.kernels.kernel import Kernel
from bochner.solvers.ridge.solution import SAME, best_index

SAMPLE = 1024  # Rows on which ε is measured
FIRST = 64  # Width at which the search starts


class WidthTrial(NamedTuple):
    """A width, its ε, and seconds since the search began."""

    n_features: int
    epsilon: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Width(HtmlResult):
    """Feature map of the required width, and the record of the search.

    Attributes
    ----------
    map : FeatureMap
    method : Method
    tolerance : float
        Largest ε allowed.
    alpha : float
        Penalty at which ε is measured.
    trials : tuple of WidthTrial
        Widths and their ε, in the order of the search.
    limit : {"memory", "rows", "truncation"} or None
        The limit that stopped the search before the tolerance was met. "rows": as many features as
        rows were not enough. "truncation": ε is the truncation error of a series.
    """

    map: FeatureMap
    method: Method
    tolerance: float
    alpha: float
    trials: tuple[WidthTrial, ...]
    limit: str | None = None

    @property
    def n_features(self) -> int:
        """Number D of features."""
        return self.map.n_features

    @property
    def epsilon(self) -> float:
        """ε of the map on the sample."""
        return next(t.epsilon for t in self.trials if t.n_features == self.n_features)

    @property
    def success(self) -> bool:
        """Whether the map is within the tolerance on the sample."""
        return self.epsilon <= self.tolerance

    def __str__(self) -> str:
        measured = f"{self.n_features:,} features of {self.method}: ε ≈ {self.epsilon:.2g}"
        target = f"{self.tolerance:g} at alpha = {self.alpha:.3g}"
        if self.success or self.limit is None:
            return f"{measured}, within {target}."
        return f"{measured}, above {target}: stopped by {_LIMITS[self.limit]}."


_LIMITS = {
    "memory": "half of the free memory; a fit takes 32 D² bytes",
    "rows": "the number of rows: the exact kernel is as cheap as this many features",
    "truncation": "truncation, not noise: raise the degree or order; more features do not help",
}


@single_thread()
def required_features(
    kernel: Kernel,
    method: Method | str,
    X: Float[Array, "n d"],
    *,
    alpha: float,
    epsilon: float = 0.1,
    n_rows: int | None = None,
    random_state: Seed = None,
) -> Width:
    """Find the width at which the features approximate the kernel well enough for a fit.

    Parameters
    ----------
    kernel : Kernel
    method : Method or str
        "auto" chooses once, at 512 features; landmarks are used instead if their ε is smaller.
    X : (n, d)
        Rows of the fit, or a random sample of them.
    alpha : float
        Ridge penalty of the fit, on the scale of ``n_rows`` rows.
    epsilon : float, default 0.1
        Largest (ε, alpha)-spectral distance, in (0, 1): the bound of the risk of the fit is at
        most 1/(1 − ε) times the bound of the exact kernel.
    n_rows : int, optional
        Number of rows of the fit if X is a sample of them.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Width

    Raises
    ------
    InvalidInput
        If alpha is not positive or there are fewer than two rows.

    See Also
    --------
    certify : Measure ε of a map.

    Notes
    -----
    ε is measured on m ≤ 1024 rows as in :func:`bochner.certify`, with one kernel matrix. Widths
    double until ε is at most 0.85 of the tolerance. Two steps of bisection on the logarithm then
    find the smallest such width to within a fifth. Time O(m³ log D + m² D). With "auto", and if X
    has all rows, a width of n features means the exact kernel.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> width = bo.required_features(Gaussian(2.0), "nystrom", X, alpha=0.1, random_state=0)
    >>> width.n_features < 200, width.limit is None
    (True, True)
    """
    alpha, seed = positive(alpha, "required_features", "alpha"), seed_of(random_state)
    epsilon = share(epsilon, "required_features", "epsilon")
    X = as_matrix(X, "required_features")
    n = int(X.shape[0]) if n_rows is None else n_rows
    return _Search(kernel, X, alpha, n, seed, epsilon).run(as_method(method))


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for a width on one sample of rows."""

    kernel: Kernel
    X: Array
    alpha: float
    n: int
    seed: int
    tolerance: float
    maps: dict[int, FeatureMap] = field(default_factory=dict)
    trials: dict[int, WidthTrial] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    def run(self, method: Method) -> Width:
        """Double the width until it suffices, or halve it while it does; then bisect twice."""
        exact = method if isinstance(method, Auto) and self.n == self.X.shape[0] else None
        method = self._decide(method)
        last = min(max(FIRST, int((free_bytes() // 2 / 32) ** 0.5)), self.n)
        last = last if exact and last == self.n else max(2, last - last % 2)  # pairs
        low, high, width, limit = 0, 0, FIRST, None
        while not high and limit is None:
            width = min(width, last)
            if exact and width == self.n:  # as many features as rows are the exact kernel
                choice = choose_method(exact, self.kernel, self._ask(width))
                method, self.maps[width] = choice.method, choice.map  # type: ignore[assignment]
            if self._suffices(method, width):
                high = width
            elif self._is_truncated(low, width):
                limit = "truncation"
            elif width == last:
                limit = "rows" if last >= self.n - 1 else "memory"
            elif self.maps[width].n_features < width:  # the map is complete
                limit = "rows"
            low, width = low if high else width, 2 * width
        while high > 4 and not low:
            middle = high // 4 * 2
            low, high = (0, middle) if self._suffices(method, middle) else (middle, high)
        for _ in range(2 * (low > 0)):
            middle = 2 * round((low * high) ** 0.5 / 2)
            if not low < middle < high:
                break
            low, high = (low, middle) if self._suffices(method, middle) else (middle, high)
        best = high or min(self.trials, key=lambda width: self.trials[width].epsilon)
        trials = tuple(self.trials.values())
        return Width(self.maps[best], method, self.tolerance, self.alpha, trials, limit)

    def _decide(self, method: Method) -> Method:
        """Return the method; for "auto", its choice or landmarks, whichever has the smaller ε.

        "auto" compares errors of the matrix, which miss a single badly approximated direction.
        """
        if not isinstance(method, Auto):
            return method
        ask = self._ask(min(512, self.n))
        choice = choose_method(method, self.kernel, ask)
        maps: dict[Method, Any] = {choice.method: choice.map}
        if not (method.candidates or Nystrom() in maps):
            maps[Nystrom()] = draw_map(Nystrom(), self.kernel, ask)
        epsilons = {m: self._epsilon(phi) for m, phi in maps.items()}
        smallest = (1 + SAME) * min(epsilons.values())  # in a tie the choice of "auto"
        return next(m for m, epsilon in epsilons.items() if epsilon <= smallest)

    def _ask(self, width: int) -> Request:
        return Request(self.X.shape[1], width, self.seed, X=self.X)

    def _is_truncated(self, previous: int, width: int) -> bool:
        """Whether ε hardly fell from ``previous`` to ``width``, because a series is truncated."""
        if not previous or self.trials[width].epsilon < 0.9 * self.trials[previous].epsilon:
            return False
        alpha, phi = self.alpha * self._rows.shape[0] / self.n, self.maps[width]
        tolerance = SMALL_BIAS * self.trials[width].epsilon * alpha
        bias = None if phi.below_kernel else phi.truncation_error(in_float64(self._rows))
        return bias is not None and float(bias.sum()) > tolerance

    def _suffices(self, method: Method, width: int) -> bool:
        """Whether a width suffices, with a margin for other rows and seeds."""
        if width not in self.maps:
            self.maps[width] = draw_map(method, self.kernel, self._ask(width))
        phi = self.maps[width]
        epsilon = self._epsilon(phi)
        self.trials[width] = WidthTrial(phi.n_features, epsilon, time.perf_counter() - self.start)
        return epsilon <= 0.85 * self.tolerance

    def _epsilon(self, phi: FeatureMap) -> float:
        K, E, _ = sample(phi, self._rows, lambda _: self._K)
        return distance(K, E, self.n, self.alpha, 0.95)["epsilon"]

    @cached_property
    def _rows(self) -> Array:
        return rows_of(self.X, SAMPLE, self.seed)

    @cached_property
    def _K(self) -> Array:
        return self.kernel(in_float64(self._rows))


def penalty_for(
    kernel: Kernel, X: Float[Array, "m d"], y: Float[Array, "m t"], n_rows: int, seed: int
) -> float:
    """Extrapolate the penalty that leave-one-out error will choose for ``n_rows`` rows.

    The penalty grows like n_rows^p; p in [0, 1] is from fits to m ≤ 1024 and to m/4 rows: O(m³).
    """
    rows = np.sort(stream(seed, "penalty").permutation(len(y))[:1024])
    X, y = X[rows], y[rows]
    m_small = max(2, len(y) // 4)
    small, large = (_exact_penalty(kernel, X[:m], y[:m]) for m in (m_small, len(y)))
    power = np.clip(np.log(large / small) / np.log(len(y) / m_small), 0.0, 1.0)
    return float(large * (n_rows / len(y)) ** power)


def _exact_penalty(kernel: Kernel, X: Float[Array, "m d"], y: Float[Array, "m t"]) -> float:
    """Return the penalty of least leave-one-out error, with the rows of √K as features."""
    values, vectors = eigh(to_numpy(kernel(X)).astype(np.float64), driver="evd", check_finite=False)
    _, alphas, errors = loo_path(vectors * np.sqrt(np.maximum(values, 0.0)), y)
    return float(alphas[best_index(errors, "loo")])
