"""Displays of a fitted learner: ``from_estimator`` stores arrays, ``plot`` draws by matplotlib."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import integer, one_of
from bochner._core.shapes import Array, Float
from bochner._core.text import HtmlResult, axes_for, paragraph, svg_image
from bochner.errors import InvalidInput, InvalidType
from bochner.features.fourier.grid import EquispacedMap
from bochner.kernels.sphere import is_on_sphere
from bochner.models._base import KernelEstimator
from bochner.models._intervals import IntervalRegressor
from bochner.selection.choices import summand_of
from bochner.selection.spec import SEARCHED
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.ridge.solution import Path
from bochner.sums.passes import LOCAL


class Display(HtmlResult):
    """Base class of displays: ``plot`` draws, stores ``ax_`` and ``figure_``, and returns self."""

    ax_: Any
    figure_: Any
    plot: Any  # (ax): draws on given or new axes
    _has_axes = False

    def _axes(self, ax: Any) -> Any:
        """Return the given axes, or new ones, and store them as ``ax_``."""
        axes = axes_for(type(self).__name__, ax)
        vars(self).update(ax_=axes, figure_=axes.figure, _new_axes=ax is None, _has_axes=True)
        return axes

    def _html_parts(self) -> Iterator[str]:
        """Yield the picture; a sentence if matplotlib is missing or the caller passed axes."""
        name = type(self).__name__
        if find_spec("matplotlib") is None:
            yield paragraph(f"{name}: the picture requires matplotlib, which is not installed.")
            return
        ax = vars(self if self._has_axes else self.plot())["ax_"]
        if not vars(self)["_new_axes"]:
            yield paragraph(f"{name}: drawn on the given axes.")
            return
        title = " against ".join(filter(None, [ax.get_ylabel(), ax.get_xlabel()])) or name
        style = 'style="background:white;max-width:100%"'
        yield svg_image(ax.figure, title, style)


#: Names of the criteria of a ridge path.
CRITERIA = {"loo": "leave-one-out", "gcv": "generalised cross-validation"}


@dataclass(frozen=True, eq=False)
class PathDisplay(Display):
    """Criteria for the choice of the penalty, at each compared penalty.

    Attributes
    ----------
    alphas : (p,)
        Penalties, increasing.
    criteria : dict of str to (p,)
        Values of each criterion by its name; NaN if unknown.
    alpha : (t,)
        Penalty of each target in the fit; a single value if all targets have the same.
    unit : str
        Unit of the criteria.
    chosen : str
        Name of the criterion that chose the penalty; "" if the penalty was given.
    effective_dimension : (p,) or None
        Effective dimension d_λ at each penalty.

    See Also
    --------
    SpectrumDisplay : Eigenvalues of the features, and the penalty.
    CalibrationDisplay : Predictions against observations.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = bo.KernelRidge("gaussian", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> display = bo.PathDisplay.from_estimator(model)
    >>> bool((np.diff(display.alphas) > 0).all())
    True
    >>> display.plot()  # doctest: +SKIP
    """

    alphas: Float[Array, " p"]
    criteria: Mapping[str, Float[Array, " p"]]
    alpha: Float[Array, " t"]
    unit: str
    chosen: str = ""
    effective_dimension: Float[Array, " p"] | None = None

    @staticmethod
    def from_estimator(model: KernelEstimator) -> "PathDisplay":
        """Return the display of a fitted learner that compared penalties.

        Raises
        ------
        InvalidInput
            If the fit did not compare penalties.
        """
        check_is_fitted(model)
        path = model._path
        if isinstance(path, HeldOutPath):
            order, name = np.argsort(path.alphas), "held-out rows"
            errors, alpha = {name: path.errors[order]}, np.atleast_1d(path.alpha)
            unit = "loss / loss of the best constant"
            return PathDisplay(path.alphas[order], errors, alpha, unit, name)
        if not isinstance(path, Path):
            raise InvalidInput(
                f"PathDisplay: the model must have compared penalties, as KernelRidge does; this "
                f"{type(model).__name__} did not. Let the fit choose alpha or C, or use another "
                "display."
            )
        solution = model._fitted.solution
        if solution.criterion == "evidence":
            unit = chosen = "log marginal likelihood"
            curves = {unit: path.evidence}
        else:
            unit, chosen = "root mean squared error", CRITERIA.get(solution.criterion, "")
            squares = {name: getattr(path, key) for key, name in CRITERIA.items()}
            curves = {
                n: np.sqrt(np.where((s >= 0) & (s < np.inf), s, np.nan)) for n, s in squares.items()
            }
        curves = {name: values for name, values in curves.items() if np.isfinite(values).any()}
        alpha = np.atleast_1d(solution.alpha)
        return PathDisplay(path.alphas, curves, alpha, unit, chosen, path.effective_dimension)

    def plot(self, ax: Any = None) -> Self:
        """Draw the criteria against the penalty, on log scales for errors; return the display."""
        ax = self._axes(ax)
        from matplotlib.ticker import LogFormatter

        for i, (name, values) in enumerate(self.criteria.items()):
            ax.plot(self.alphas, values, "--" if i else "-", label=name)
        for i, alpha in enumerate(self.alpha[self.alpha > 0]):
            ax.axvline(alpha, color="gray", linestyle=":", label="" if i else "chosen")
        ax.set(xscale="log", xlabel="penalty alpha", ylabel=self.unit)
        values = np.concatenate([np.ravel(v) for v in self.criteria.values()])
        finite = values[np.isfinite(values)]
        if len(finite) and finite.min() > 0:
            part = finite[finite <= 20 * finite.min()]  # larger errors are not shown
            margin = max((part.max() / part.min()) ** 0.05, 1.02)
            ax.set(yscale="log", ylim=(part.min() / margin, part.max() * margin))
            for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
                set_formatter(LogFormatter())  # labels such as 0.2 instead of 2 × 10⁻¹
        ax.legend()
        return self


@dataclass(frozen=True, eq=False)
class SpectrumDisplay(Display):
    """Eigenvalues of G = ZᵀZ with the centred features Z, and the penalty.

    Attributes
    ----------
    eigenvalues : (D,)
        Eigenvalues, decreasing.
    alpha, n_rows : float, int
        Ridge penalty of the model, and the number of rows of these features.

    See Also
    --------
    PathDisplay : Criteria for the choice of the penalty.
    required_features : Number of features that a penalty needs.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = bo.KernelRidge("gaussian", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> display = bo.SpectrumDisplay.from_estimator(model, X)
    >>> 1 < display.effective_dimension < 300
    True
    >>> display.plot()  # doctest: +SKIP
    """

    eigenvalues: Float[Array, " D"]
    alpha: float
    n_rows: int

    @property
    def effective_dimension(self) -> float:
        """Effective dimension d_λ = Tr G(G + λI)⁻¹, λ = alpha."""
        values = self.eigenvalues[self.eigenvalues > 0]
        return float((values / (values + self.alpha)).sum())

    @staticmethod
    def from_estimator(model: KernelEstimator, X: Array | None = None) -> "SpectrumDisplay":
        """Return the display of a fitted learner; takes O(D³).

        Parameters
        ----------
        model : fitted learner
        X : (n, d) or Blocks, optional
            Rows; required for learners that keep no moments: all except KernelRidge,
            KernelRidgeClassifier, GaussianProcessRegressor and KernelPCA.

        Raises
        ------
        InvalidInput
            If the learner keeps no moments and X is not given.
        """
        check_is_fitted(model)
        learner: Any = model
        try:
            moments = learner.moments_
        except AttributeError:  # moments of the rows, without targets
            if X is None:
                raise InvalidInput(
                    f"SpectrumDisplay: {type(model).__name__} keeps no moments of its rows. Pass "
                    "rows: from_estimator(model, X)."
                ) from None
            summand = summand_of(model._chosen, "float64")
            blocks = model._rows_to_predict(X).with_rows(model._chosen.block_rows)
            moments = summand.moments(LOCAL.sum(summand, blocks))
        if not model.get_params().get("fit_intercept", True):  # as in the solution
            moments = moments.about_zero()
        values = np.maximum(eigvalsh(moments.gram, check_finite=False)[::-1], 0.0)
        rows = None if X is None else next(iter(model._rows_to_predict(X))).X[:SEARCHED]
        alpha = model._ridge_penalty(rows, moments.rows)
        return SpectrumDisplay(values, alpha, moments.rows)

    def plot(self, ax: Any = None) -> Self:
        """Draw the eigenvalues above rounding, and the penalty; return the display."""
        ax = self._axes(ax)
        rank = max(1, int(np.sum(self.eigenvalues > 1e-14 * self.eigenvalues[0])))
        number = np.unique(np.geomspace(1, rank, 300).astype(int))  # enough for the axis
        values = self.eigenvalues[number - 1]
        ax.loglog(number, values, ".-", markersize=3, label="eigenvalues of G")
        if self.alpha > 0:
            ax.axhline(self.alpha, color="gray", linestyle=":", label="penalty alpha")
        ax.set(xlabel="number", ylabel="eigenvalue")
        ax.legend()
        return self


TWO_SIDED = float(norm.ppf(0.975))  # Half-width of a 95 % interval, in standard errors

#: Labels of both axes for each kind of calibration.
CALIBRATIONS = {
    "prediction": ("mean prediction", "mean observed"),
    "probability": ("probability predicted", "share observed"),
    "quantile": ("requested quantile", "share of rows below"),
    "coverage": ("requested coverage", "share of rows inside"),
}


@dataclass(frozen=True, eq=False)
class CalibrationDisplay(Display):
    """Predicted means, probabilities, quantiles or intervals against observations.

    Attributes
    ----------
    expected, observed : (b,)
        Means of predictions and observations in each bin; for intervals and quantiles, the
        requested levels and the shares of rows.
    spread : (b,)
        Half-width of the 95 % interval of observed − expected, if the model is correct.
    count : (b,) int
        Number of rows of each bin or level.
    kind : {"prediction", "probability", "quantile", "coverage"}

    See Also
    --------
    NormalScores : Scores of predicted means and standard deviations.
    PathDisplay : Criteria for the choice of the penalty.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = bo.LogisticRegression("gaussian", random_state=0).fit(X, X[:, 0] > 0)
    >>> display = bo.CalibrationDisplay.from_estimator(model, X, X[:, 0] > 0, n_bins=5)
    >>> display.kind, int(display.count.sum())
    ('probability', 300)
    """

    expected: Float[Array, " b"]
    observed: Float[Array, " b"]
    spread: Float[Array, " b"]
    count: Array
    kind: str

    @property
    def error(self) -> float:
        """Mean of |observed − expected| over the rows."""
        return float(np.average(np.abs(self.observed - self.expected), weights=self.count))

    @staticmethod
    def of_means(observed: Array, predicted: Array, n_bins: int = 10) -> "CalibrationDisplay":
        """Return the calibration of means, in bins with equal numbers of rows."""
        order = np.argsort(predicted, kind="stable")
        parts = np.array_split(order, min(n_bins, max(1, len(order) // 2)))
        errors = [TWO_SIDED * np.std(observed[p] - predicted[p]) / len(p) ** 0.5 for p in parts]
        expected, means = (np.array([a[p].mean() for p in parts]) for a in (predicted, observed))
        count = np.array([len(p) for p in parts])
        return CalibrationDisplay(expected, means, np.array(errors), count, "prediction")

    @staticmethod
    def of_probabilities(events: Array, p: Array, n_bins: int = 10) -> "CalibrationDisplay":
        """Return the calibration of probabilities, in as_sample bins of equal width."""
        index = np.minimum((p * n_bins).astype(int), n_bins - 1)
        count = np.bincount(index, minlength=n_bins)
        full = count > 0
        means = (np.bincount(index, a, n_bins)[full] / count[full] for a in (p, events * 1.0))
        expected, observed = means
        variance = np.bincount(index, p * (1 - p), n_bins)[full] / count[full]
        spread = TWO_SIDED * np.sqrt(variance / count[full])
        return CalibrationDisplay(expected, observed, spread, count[full], "probability")

    @staticmethod
    def of_levels(levels: Any, covered: Array, kind: str) -> "CalibrationDisplay":
        """Return the share of rows inside at each level; ``covered`` is (m, b) bool."""
        levels, m = np.asarray(levels, np.float64), len(covered)
        spread = TWO_SIDED * np.sqrt(levels * (1 - levels) / m)
        count = np.full(len(levels), m)
        return CalibrationDisplay(levels, covered.mean(axis=0), spread, count, kind)

    @staticmethod
    def of_scores(scores: Array) -> "CalibrationDisplay":
        """Return the coverage of normal intervals, from errors in standard deviations, (m,)."""
        levels = np.array((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99))
        covered = np.abs(scores)[:, None] <= norm.ppf(0.5 + levels / 2)
        return CalibrationDisplay.of_levels(levels, covered, "coverage")

    @staticmethod
    def from_estimator(
        model: BaseEstimator, X: Array, y: Array, *, n_bins: int = 10
    ) -> "CalibrationDisplay":
        """Return the calibration of a fitted learner on rows that were not used to fit.

        Classifiers: probability of the second of two classes, or of the predicted class if there
        are more. Gaussian processes: coverage of normal intervals of the first target. Several
        quantiles: share of rows below each. Other regressors: mean y and mean prediction of the
        first target, in ``n_bins`` bins.
        """
        y, n_bins = np.asarray(y), integer(n_bins, "CalibrationDisplay", "n_bins", 1)
        if is_classifier(model):
            try:
                p = to_numpy(model.predict_proba(X))
            except AttributeError as error:
                raise InvalidInput(
                    f"CalibrationDisplay: the classifier must predict probabilities; this "
                    f"{type(model).__name__} has no predict_proba. Use LogisticRegression, or "
                    "SVC(probability=True)."
                ) from error
            top = np.ones(len(p), np.intp) if p.shape[1] == 2 else p.argmax(axis=1)
            events, p = y == model.classes_[top], p[np.arange(len(p)), top]
            return CalibrationDisplay.of_probabilities(events, p, n_bins)
        if isinstance(model, IntervalRegressor):
            mean, deviation = model._centres(X)
            if deviation is not None:  # a Gaussian process
                errors = y.reshape(len(y), -1)[:, 0] - mean[:, 0]
                return CalibrationDisplay.of_scores(errors / deviation[:, 0])
        f, y = to_numpy(model.predict(X)), y.reshape(len(y), -1).astype(np.float64)
        f = f.reshape(len(f), -1)
        if f.shape[1] != y.shape[1]:  # several quantiles
            levels = np.atleast_1d(model.quantiles)
            return CalibrationDisplay.of_levels(levels, y <= f, "quantile")
        return CalibrationDisplay.of_means(y[:, 0], f[:, 0], n_bins)

    def plot(self, ax: Any = None) -> Self:
        """Draw observations against predictions; return the display."""
        ax = self._axes(ax)
        ax.axline((self.expected[0],) * 2, slope=1, color="gray", linestyle=":")
        room = [np.inf, np.inf] if self.kind == "prediction" else [self.observed, 1 - self.observed]
        whiskers = [np.minimum(self.spread, limit) for limit in room]
        ax.errorbar(self.expected, self.observed, whiskers, fmt="o-", capsize=3)
        ax.set(**dict(zip(("xlabel", "ylabel"), CALIBRATIONS[self.kind], strict=True)))
        return self


@dataclass(frozen=True, eq=False)
class MapDisplay(Display):
    """Predictions of a process on a grid of one or two columns.

    Attributes
    ----------
    axes : dict of str to (m_j,)
        Coordinates along each column, by name.
    mean, deviation : (m_1,) or (m_1, m_2)
        Mean and standard deviation of f, without noise; ``deviation`` is None if not requested.
    name : str
        Name of the target.
    globe : bool
        Whether columns are latitude and longitude; longitude is the horizontal axis.

    See Also
    --------
    GaussianProcessRegressor : The process.
    cell_averages : Averages of a process over cells.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (200, 2))
    >>> process = bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, X.sum(axis=1))
    >>> display = bo.MapDisplay.from_estimator(process, places=10)
    >>> display.mean.shape, display.deviation.shape
    ((10, 10), (10, 10))
    >>> display.plot()  # doctest: +SKIP
    """

    axes: Mapping[str, Float[Array, " m"]]
    mean: Array
    deviation: Array | None
    name: str = "y"
    globe: bool = False

    @staticmethod
    def from_estimator(
        model: KernelEstimator, places: int = 200, deviation: bool = True, **axes: Array
    ) -> "MapDisplay":
        """Return the map of a fitted Gaussian process of one target over one or two columns.

        Parameters
        ----------
        model : GaussianProcessRegressor
        places : int, default 200
            Number of points along each column, over the range of the rows; ignored with ``axes``.
        deviation : bool, default True
            Whether to predict standard deviations too, which takes longer.
        **axes : (m_j,)
            Coordinates per column, as in :meth:`GaussianProcessRegressor.predict_grid`.

        Raises
        ------
        InvalidInput
            If there are more than two columns, or several targets.
        InvalidType
            If the model is not a Gaussian process.
        """
        check_is_fitted(model)
        process: Any = model
        try:
            predict_grid = process.predict_grid
        except AttributeError:
            raise InvalidType(
                "MapDisplay: model must be a GaussianProcessRegressor; got "
                f"{type(model).__name__}. For other learners use "
                "scikit-learn's PartialDependenceDisplay."
            ) from None
        places, d = integer(places, "MapDisplay", "places", 2), process.n_features_in_
        if d > 2 or process.target_shape_:
            raise InvalidInput(
                f"MapDisplay: a map has one or two columns and one target; got {d} columns and "
                f"targets of shape {process.target_shape_}. Use predict_grid, and draw a slice."
            )
        names, globe = process._inputs.names, is_on_sphere(process.kernel_)
        if not axes:
            rows = process.sample_.X
            low, high = rows.min(axis=0), rows.max(axis=0)
            if globe:
                low, high = np.array([[-90.0, -180.0], [90.0, 180.0]])
            elif isinstance(phi := process._fitted.chosen.choice.map, EquispacedMap):
                low, high = phi.centre - phi.half, phi.centre + phi.half
            named = names or (("lat", "lon") if globe else "xy"[:d])
            ends = zip(named, low, high, strict=True)
            axes = {str(name): np.linspace(a, b, places) for name, a, b in ends}
        grid = predict_grid(return_std=deviation, **axes)
        mean, std = map(np.asarray, grid) if deviation else (np.asarray(grid), None)
        targets = process.schema_ and process.schema_.target_names
        axes = {name: np.asarray(axis) for name, axis in axes.items()}
        return MapDisplay(axes, mean, std, targets[0] if targets else "y", globe)

    def plot(self, ax: Any = None, quantity: str = "mean") -> Self:
        """Draw the map, or for one column a curve with a 95 % band; return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        quantity : {"mean", "deviation"}, default "mean"
        """
        one_of(quantity, "MapDisplay.plot", "quantity", ("mean", "deviation"))
        ax = self._axes(ax)
        values = self.mean if quantity == "mean" else self.deviation
        if values is None:
            raise InvalidInput(
                "MapDisplay.plot: the map has no deviations; create it with deviation=True."
            )
        names = list(self.axes)
        if len(names) == 1:
            places = self.axes[names[0]]
            ax.plot(places, values)
            if quantity == "mean" and self.deviation is not None:
                half = 1.96 * self.deviation
                ax.fill_between(places, values - half, values + half, alpha=0.3)
            ax.set(xlabel=names[0], ylabel=self.name)
        else:
            labels = names[::-1] if self.globe else names  # longitude first
            first, second = (self.axes[name] for name in labels)
            values = values if self.globe else values.T
            label, colours = "mean", "viridis"
            if quantity == "deviation":
                label, colours = "standard deviation of the mean", "magma"
            mesh = ax.pcolormesh(first, second, values, cmap=colours, rasterized=True)
            ax.figure.colorbar(mesh, ax=ax, label=f"{self.name}, {label}")
            ax.set(xlabel=labels[0], ylabel=labels[1])
        return self
