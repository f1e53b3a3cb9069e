"""Empirical variograms, and kernels fitted to them.

γ(h) = ½ E (y(x) − y(x + h))² is, of a process of noise σ², amplitude a² and kernel k with k(0) = 1,

    γ(h) = σ² + a² (1 − k(h)):    nugget σ², partial sill a², sill σ² + a².

Of places on the globe h is the great-circle distance, in degrees.
"""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.optimize import brentq, least_squares

from bochner._core.arrays import dense, to_numpy
from bochner._core.checks import integer, one_of, positive
from bochner._core.globe import require_places, unit_vectors
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float, Int
from bochner._core.text import HtmlResult, axes_for
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import OnSphere, named_on_sphere
from bochner.selection.spec import NAMED, as_kernel
from bochner.selection.waves import scaled
from bochner.sums.passes import sampled


@dataclass(frozen=True, eq=False)
class VariogramModel(HtmlResult):
    """A kernel, its amplitude and noise, in the words of geostatistics.

    Attributes
    ----------
    kernel : Kernel
        With k(0) = 1.
    amplitude : float
        a², the partial sill.
    noise : float
        σ², the nugget.
    direction : (d,)
        Unit vector along which distances are taken; of a kernel of the globe along the equator.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> kernel = bo.kernels.Gaussian(2.0)
    >>> model = bo.VariogramModel(kernel, amplitude=3.0, noise=0.5, direction=np.array([1.0]))
    >>> model.nugget, model.sill, round(model.range, 2)
    (0.5, 3.5, 4.9)
    >>> process = bo.GaussianProcessRegressor(**model.parameters)
    """

    kernel: Kernel
    amplitude: float
    noise: float
    direction: Float[Array, " d"]

    def __call__(self, lags: Array) -> Float[Array, " m"]:
        """Return γ at distances above zero."""
        lags = np.asarray(lags, float)
        return self.noise + self.amplitude * (1 - _along(self.kernel, self.direction, lags))

    nugget = property(attrgetter("noise"), doc="σ²: γ just above zero.")

    @property
    def sill(self) -> float:
        """The sill σ² + a²: the semivariance γ at large distances."""
        return self.noise + self.amplitude

    @property
    def range(self) -> float:
        """Distance at which the correlation has come down to 5 %: the practical range."""
        left = lambda h: float(_along(self.kernel, self.direction, np.array([h]))[0]) - 0.05
        if isinstance(self.kernel, OnSphere):  # no place is further away than the antipode
            return float(brentq(left, 0.0, 180.0)) if left(180.0) < 0 else math.inf
        far = next((h for h in 2.0 ** np.arange(-99, 100) if left(h) <= 0), math.inf)
        return float(brentq(left, far / 2, far)) if far < math.inf else far

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of a process: ``GaussianProcessRegressor(**model.parameters)``."""
        return {"kernel": self.kernel, "amplitude": self.amplitude, "noise": self.noise}

    def __str__(self) -> str:
        """Return nugget, sill and range in a line."""
        return (
            f"{self.kernel!r}: nugget {self.nugget:.4g}, sill {self.sill:.4g}, "
            f"range {self.range:.4g}"
        )


@dataclass(frozen=True, eq=False)
class Variogram:
    """γ of pairs of rows by distance.

    Attributes
    ----------
    lags : (m,)
        Mean distance of the pairs of each class of distances.
    gamma : (m,)
        γ, in units of y².
    pairs : (m,) int
        How many they are.
    variance : float
        Of y: where γ levels off if there is no trend.
    estimator : {"matheron", "cressie-hawkins"}
    direction : (d,) or None
        Unit vector that the pairs lie along; None where they lie along any.
    n_columns : int
    metric : {"euclidean", "great-circle"}

    See Also
    --------
    variogram : Estimate one from rows.
    VariogramModel : A kernel, amplitude and noise fitted to one.
    """

    lags: Float[Array, " m"]
    gamma: Float[Array, " m"]
    pairs: Int[Array, " m"]
    variance: float
    estimator: str
    direction: Float[Array, " d"] | None
    n_columns: int
    metric: str = "euclidean"

    def fit(self, kernel: Kernel | str = "matern32") -> VariogramModel:
        """Fit a kernel's lengthscale, amplitude and noise by weighted least squares.

        Parameters
        ----------
        kernel : Kernel or str, default "matern32"
            With a lengthscale, which is multiplied by the best factor; lengthscales of several
            columns keep their ratios. Of great-circle distances an
            :class:`~bochner.kernels.OnSphere`, or a name of its families.

        Notes
        -----
        Least Σ N (γ̂/γ − 1)² over the classes of distances (Cressie 1985), from six starts. Pairs
        share rows, so that no errors follow from it; the evidence of a process
        (``GaussianProcessRegressor(lengthscale="evidence")``) uses rows better.

        Raises
        ------
        UnsupportedKernel
            If the kernel has no lengthscale, or is not one of the globe where distances are.
        """
        unit = np.eye(self.n_columns)[0] if self.direction is None else self.direction
        known: Any
        if self.metric == "great-circle":
            unit, known = np.array([0.0, 1.0]), named_on_sphere(kernel)
            if not isinstance(known, OnSphere):
                raise UnsupportedKernel(
                    "Variogram.fit requires OnSphere(...) for great-circle distances, or a "
                    f'name such as "matern32"; got {kernel!r}.'
                )
        else:
            known = as_kernel(kernel)
            known = NAMED[known](1.0) if isinstance(known, str) else known
        if "lengthscale" not in known.get_params(deep=False):
            raise UnsupportedKernel(
                f"Variogram.fit requires a kernel with a lengthscale, such as Matern(1.5); got "
                f"{kernel!r}."
            )
        weight = np.sqrt(self.pairs / self.pairs.sum())
        mean = float(np.exp(np.mean(np.log(np.asarray(known.lengthscale)))))
        first = scaled(known, np.array([1.0 / mean]))
        top = max(self.variance, float(self.gamma.max()))

        def curve(p: Float[Array, " 3"]) -> Array:
            size, a2, s2 = np.exp(p)
            return s2 + a2 * (1 - _along(first, unit, self.lags / size))

        starts = [
            np.log([share * self.lags[-1], (1 - nugget) * top, nugget * top])
            for share in (0.05, 0.15, 0.5)  # Lengthscales, of the longest lag
            for nugget in (0.02, 0.5)  # Of the variance
        ]
        lowest = [self.lags[0] * 1e-3, top * 1e-6, top * 1e-9]
        bounds = np.log([lowest, [self.lags[-1] * 100, top * 1e3, top * 10]])
        miss = lambda p: weight * (self.gamma / curve(p) - 1)
        tried = [least_squares(miss, np.clip(p, *bounds), bounds=bounds) for p in starts]
        size, a2, s2 = np.exp(min(tried, key=lambda fit: fit.cost).x)
        fit = scaled(first, np.array([size]))
        return VariogramModel(fit, float(a2), float(s2), unit)

    def plot(self, ax: Any = None, model: VariogramModel | None = None) -> Any:
        """Draw γ against distance, and a model's curve; return the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure if not given.
        model : VariogramModel, optional
            As :meth:`fit` returns.
        """
        ax = axes_for("Variogram", ax)
        ax.plot(self.lags, self.gamma, "o", label=self.estimator)
        ax.axhline(self.variance, color="gray", linestyle=":", label="variance of y")
        if model is not None:
            h = np.linspace(0, self.lags[-1], 200)[1:]
            ax.plot(h, model(h), label=f"nugget {model.nugget:.3g}, sill {model.sill:.3g}")
        far = "distance, degrees" if self.metric == "great-circle" else "distance"
        ax.set(xlabel=far, ylabel="γ", xlim=(0, None), ylim=(0, None))
        ax.legend()
        return ax


def _along(kernel: Kernel, unit: Float[Array, " d"], lags: Float[Array, " m"]) -> Array:
    """Return k at distances along a direction, as a share of k(0)."""
    origin = np.zeros((1, len(unit)))
    return kernel(lags[:, None] * unit, origin)[:, 0] / float(kernel.diag(origin)[0])


def variogram(
    X: Any,
    y: Any = None,
    *,
    n_lags: int = 15,
    max_lag: float | None = None,
    estimator: str = "matheron",
    direction: Any = None,
    tolerance: float = 22.5,
    metric: str = "euclidean",
    n_sample: int = 4096,
    random_state: Seed = 0,
) -> Variogram:
    """Return the empirical variogram of rows: half the mean squared difference by distance.

    Parameters
    ----------
    X : (n, d) or Blocks
        Coordinates, in units that distances mean something in.
    y : (n,)
        One target; with Blocks, theirs.
    n_lags : int, default 15
        Classes of distances, of equal width.
    max_lag : float, optional
        The longest distance; default half of the diagonal of the box of the rows, a usual choice:
        pairs further apart are few and lie at the edges.
    estimator : {"matheron", "cressie-hawkins"}, default "matheron"
        Half the mean of squared differences (Matheron 1963), or by fourth powers of means of their
        fourth roots, which outliers move little (Cressie and Hawkins 1980, equation 3.10).
    direction : (d,), optional
        Only pairs along this vector: a directional variogram.
    tolerance : float, default 22.5
        Degrees that a pair may lie off the direction.
    metric : {"euclidean", "great-circle"}, default "euclidean"
        "great-circle": rows are (latitude, longitude) in degrees, and so are distances; the
        longest lag is by default the largest distance of a row from their middle, at most 90.
    n_sample : int, default 4096
        Rows whose pairs are looked at, at most; chosen at random.
    random_state : int, Generator, RandomState or None, default 0

    Returns
    -------
    Variogram
        Classes without pairs are left out.

    Raises
    ------
    InvalidInput
        If there is not one target that varies, no pair is as near, or, of great circles, rows are
        no places or a direction is asked for.

    Notes
    -----
    Time O(m² d) for m sampled rows, a second; memory O(m).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (500, 2))
    >>> variogram = bo.variogram(X, np.sin(6 * X[:, 0]))
    >>> bool(variogram.gamma[0] < variogram.gamma[-1])
    True
    >>> model = variogram.fit("gaussian")
    >>> bool(model.sill > model.nugget)
    True
    """
    who = "variogram"
    n_lags = integer(n_lags, who, "n_lags", 1)
    one_of(estimator, who, "estimator", ("matheron", "cressie-hawkins"))
    globe = one_of(metric, who, "metric", ("euclidean", "great-circle")) == "great-circle"
    n_sample = integer(n_sample, who, "n_sample", 2)
    tolerance = positive(tolerance, who, "tolerance")
    blocks = X if isinstance(X, Blocks) else Blocks.from_arrays(X, y)
    rows = sampled(blocks, seed_of(random_state)).lowest(n_sample)
    places = to_numpy(dense(rows.X)).astype(np.float64)
    if rows.y.shape[1] != 1 or not np.ptp(rows.y) > 0:
        raise InvalidInput(
            f"variogram: y must be one target that varies; got {rows.y.shape[1]} targets"
            f"{' of one value' if rows.y.shape[1] == 1 else ''}. Pass one column of numbers."
        )
    if globe and direction is not None:
        raise InvalidInput(
            "variogram: direction is a vector of the plane, and great circles turn; got "
            f"{direction!r}. Leave it out, or project the places first."
        )
    unit = None
    if direction is not None:
        unit = np.asarray(direction, dtype=np.float64)
        if unit.shape != places.shape[1:] or not 0 < np.linalg.norm(unit) < np.inf:
            raise InvalidInput(
                f"variogram: direction must be a vector of {places.shape[1]} numbers, not all "
                f"zero; got {direction!r}."
            )
        unit = unit / np.linalg.norm(unit)
    if globe:
        require_places("variogram", places)
        places = unit_vectors(places)
    longest = _longest(places, globe) if max_lag is None else positive(max_lag, who, "max_lag")
    if not longest > 0:
        raise InvalidInput(
            f"variogram: rows must be at two places at least; got {len(places):,} rows at the same "
            "one. Pass rows of several places."
        )
    # Of pairs of rows: their number, and sums of distances, of squares and roots of |y − y′|
    y, sums = rows.y[:, 0], np.zeros((4, n_lags))
    cosine = math.cos(math.radians(min(tolerance, 90.0)))
    for start in range(0, len(places), size := 256):  # rows whose distances are taken together
        here = slice(start, start + size)
        steps = places[here, None] - places[None, start:]
        apart = np.linalg.norm(steps, axis=2)
        apart = np.degrees(2 * np.arcsin(np.minimum(apart / 2, 1.0))) if globe else apart
        once = np.arange(start, len(places)) > np.arange(start, start + len(apart))[:, None]
        near = once & (apart <= longest)
        if unit is not None:
            near &= (np.abs(steps @ unit) >= cosine * apart) & (apart > 0)
        h, change = apart[near], np.abs(y[here, None] - y[None, start:])[near]
        at = np.minimum((h * (n_lags / longest)).astype(np.int64), n_lags - 1)
        for i, values in enumerate((None, h, change**2, np.sqrt(change))):
            sums[i] += np.bincount(at, values, n_lags)
    known = sums[0] > 0
    if not known.any():
        raise InvalidInput(
            f"variogram: some pairs of rows must be at most max_lag apart, and along the "
            f"direction; no two of {len(places):,} rows are within {longest:.4g}. Pass a larger "
            "max_lag or tolerance."
        )
    pairs, distance, squares, roots = (values[known] for values in sums)
    gamma = squares / (2 * pairs)
    if estimator == "cressie-hawkins":
        bias = 0.457 + 0.494 / pairs + 0.045 / pairs**2
        gamma = (roots / pairs) ** 4 / bias / 2
    variance = float(np.var(rows.y))
    d, count = (2 if globe else places.shape[1]), pairs.astype(np.int64)
    return Variogram(distance / pairs, gamma, count, variance, estimator, unit, d, metric)


def _longest(places: Float[Array, "m d"], globe: bool) -> float:
    """Return half of how far rows are apart: of the diagonal of their box, or in degrees."""
    if not globe:
        return float(np.linalg.norm(np.ptp(places, axis=0))) / 2
    middle = places.mean(axis=0)
    nearest = float((places @ middle).min()) / max(float(np.linalg.norm(middle)), 1e-300)
    return min(math.degrees(math.acos(min(max(nearest, -1.0), 1.0))), 90.0)
