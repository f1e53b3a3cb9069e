"""Gaussian process regression at any number of rows."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Self

import numpy as np

from bochner import models
from bochner._core import checks
from bochner._core.arrays import concat, from_numpy, to_numpy
from bochner._core.checks import integer, one_of, require_room, switch, warn_user
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Both, Float, Gradients, Tabular
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, FitSummary, getter
from bochner.models._intervals import IntervalRegressor
from bochner.models._parameters import KernelParameters, estimator
from bochner.models._tables import accept_partitions
from bochner.models.displays import MapDisplay
from bochner.models.error_law import ErrorLaw, fold_scores
from bochner.models.gaussian_process.law import (
    MAX_ROWS,
    ExactProcess,
    FeatureProcess,
    GaussianProcessSpec,
    ProcessLaw,
    log_normal,
)
from bochner.models.gaussian_process.neighbours import NeighbourProcess
from bochner.models.gaussian_process.observations import BlockAverages, Derivatives, observe
from bochner.models.representations import representation
from bochner.models.representations.representation import AddsRows, ExactKernel, LocalKernel
from bochner.solvers.ridge.solution import EvidenceOutcome
from bochner.sums.passes import LOCAL, Executor


def as_variance(value: object, name: str) -> float | None:
    """Return a given noise ≥ 0 or amplitude > 0; None for "auto" and "evidence"."""
    if isinstance(value, str):
        if value in ("auto", "evidence"):
            return None
        raise InvalidInput(
            f'GaussianProcessRegressor: {name} must be "auto", "evidence" or a number, the '
            f"variance in units of y²; got {value!r}."
        )
    check = checks.nonnegative if name == "noise" else checks.positive
    return check(value, "GaussianProcessRegressor", name)


@dataclass(frozen=True, eq=False)
class ProcessFit(FitSummary):
    """Fit of a Gaussian process: the posterior of f."""

    inputs: Inputs
    law: ProcessLaw
    errors: ErrorLaw | None = None  # Distribution of errors of new rows; None until it is computed

    chosen = property(attrgetter("law.chosen"))
    target_shape = property(attrgetter("law.representation.target_shape"))
    block_rows = property(attrgetter("law.block_rows"))

    def values(self) -> Any:
        return self.law.means

    def gradients(self, blocks: Blocks) -> Gradients:
        self.law.require("gradient", self.law.spec.features.caller)
        return super().gradients(blocks)

    def merge_all(self, fits: list["ProcessFit"]) -> "ProcessFit":
        rows = reduce(lambda a, b: a.merge(b), [fit.law.representation for fit in fits])
        return fit_of(self.inputs, self.law.solve(self.law.spec, rows))

    def _results(self) -> dict[str, Any]:
        evidence = self.law.evidence
        return {
            "noise_variance": evidence.noise,
            "amplitude": evidence.amplitude,
            "log_marginal_likelihood": evidence.log_likelihood,
            "outcome": evidence.outcome.name,
            "outcome_words": str(evidence.outcome),
        }


def fit_of(inputs: Inputs, law: ProcessLaw) -> ProcessFit:
    """Return the fit; warn if the outcome is a problem, with the remedy."""
    outcome = law.evidence.outcome
    if outcome in (EvidenceOutcome.FLOAT32_LIMITED, EvidenceOutcome.SINGULAR):
        warn_user(str(outcome))
    return ProcessFit(inputs, law)


@estimator
class GaussianProcessRegressor(KernelParameters, Differentiable, IntervalRegressor, AddsRows):
    """Gaussian process regression: exact for few rows, with features for many.

    y = f(x) + ε, f ~ GP(b, a² k), ε ~ N(0, σ²). With features, f is φ(x)·β + b plus an independent
    process for the part of k that the features miss: far from the data the standard deviation is
    that of the prior.

    Parameters
    ----------
    kernel : Kernel or str, default "auto"
        - "auto": the kernel of smallest held-out error, as in :class:`bochner.KernelRidge`.
        - a name: this family; its lengthscale is chosen on a sample of the rows.
        - a kernel: used without changes, times the amplitude; hyperparameters that are "auto"
          maximise the marginal likelihood, see :class:`bochner.kernels.Free`.
    method : Method, str or None, default None
        - None: "exact" up to 8192 rows (fewer for several targets), unless ``n_features`` or
          ``precision`` is set. For more rows "auto", or for up to four columns
          :class:`NearestNeighbours` if its leave-one-out error is 5 % smaller (``choice_.reason``
          has both errors). It has no ``sample_functions``, ``gradient`` and ``return_cov``.
        - "exact": the exact kernel, by a Cholesky factor of the matrix of at most 20,000 rows.
        - "auto" or a method: features, see :func:`bochner.draw`. As in :class:`bochner.KernelRidge`
          "auto" may use :class:`bochner.FourierGrid` or :class:`bochner.SphericalHarmonics`.
    %(n_features or exact)s
    noise : "auto", "evidence" or float, default "auto"
        - a number: σ², a variance in units of y².
        - "evidence": maximise the marginal likelihood [1]_.
        - "auto": as "evidence". With the exact kernel and a chosen amplitude, the leave-one-out
          error at σ²/a² must also be at most about 1 % above the smallest.
    amplitude : "auto", "evidence" or float, default "auto"
        a², the factor of the kernel, with the options of ``noise``.
    lengthscale : {"auto", "loo", "evidence"}, default "auto"
        - "loo": for a name, the lengthscale of smallest leave-one-out error; a kernel is not
          changed.
        - "evidence": maximise the marginal likelihood of the exact process on at most 1024 rows,
          also for a kernel: over one lengthscale per column if the gain is large enough; for sums
          and products over all hyperparameters, or the "auto" ones. A name "auto" is Matérn 3/2.
        - "auto": for a name, the result with the larger ``loo_log_density_``; otherwise "loo". With
          ``kernel="auto"`` each candidate has tuned lengthscales.
    fit_intercept : bool, default True
        Whether f has an unknown mean b with a flat prior; otherwise b is zero.

    See Also
    --------
    KernelRidge : The same mean, without standard deviations.
    universal_kriging : A process with a trend.

    Notes
    -----
    With the exact kernel: time O(n³/3) and some seconds for the choices, memory O(n²), and O(n²)
    for each predicted standard deviation. With features: time O(n (c(φ) + D²) + D³), memory O(D²)
    and a block. The first call of ``predict_interval`` takes five or ten more fits for up to 5,119
    rows (3,071 with the exact kernel). The mean is that of :class:`KernelRidge` with alpha = σ²/a².

    References
    ----------
    .. [1] Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, section 5.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import GaussianProcessRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = GaussianProcessRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.05 and std[0] < 0.05 and std[1] > 0.5)
    True
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    noise: float | str = "auto"
    amplitude: float | str = "auto"
    lengthscale: str = "auto"

    def _fit(
        self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL, precision: Any = None
    ) -> ProcessFit:
        any_features = self.n_features is None and self.precision == "auto"
        options = representation.as_method(self.method), blocks, where, precision, any_features
        spec = self._spec()
        if inputs.schema is not None:
            spec = replace(spec, features=replace(spec.features, trends=inputs.schema.trends))
        return fit_of(inputs, models.process(spec, *options))

    def _update(self, blocks: Blocks, inputs: Inputs) -> ProcessFit:
        self._require_rows("partial_fit", type(self).__name__)
        law, spec = self._law.of_values, self._current_spec()
        if isinstance(law, ExactProcess):  # the new rows are added to moments of features
            features = replace(law.spec.features, kernel=law.chosen.kernel, learns_metric=False)
            original = replace(law.spec, features=features, lengthscale="loo")
            table = law.as_blocks(law.representation)
            law = FeatureProcess.fit(original, table, precision="float64")
        return fit_of(inputs, law.add_rows(spec, blocks))

    def _spec(self) -> GaussianProcessSpec:
        caller = type(self).__name__
        centred = switch(self.fit_intercept, caller)
        method = representation.as_method(self.method)
        if isinstance(method, ExactKernel) and method.preconditioner is not None:
            raise InvalidInput(
                f"{caller}: method=ExactKernel() takes no preconditioner, because the matrix of "
                f"all rows is factored; got {method!r}. Pass ExactKernel()."
            )
        local = isinstance(method, LocalKernel)  # which a process refuses
        features = self._feature_spec("local" if local else representation.as_features(method))
        lengthscale = one_of(self.lengthscale, caller, "lengthscale", ("auto", "loo", "evidence"))
        if lengthscale == "evidence" and features.learns_metric:
            raise InvalidInput(
                f'{caller}: lengthscale="evidence" and metric="learned" both scale the columns; '
                "set one of them."
            )
        variances = as_variance(self.noise, "noise"), as_variance(self.amplitude, "amplitude")
        criterion = "evidence" if "evidence" in (self.noise, self.amplitude) else "auto"
        return GaussianProcessSpec(features, *variances, lengthscale, centred, criterion)

    def _current_spec(self) -> GaussianProcessSpec:
        """Return the spec of the fit, with the current noise and amplitude."""
        spec = self._spec()
        return replace(self._law.spec, noise=spec.noise, amplitude=spec.amplitude)

    def solve_again(self) -> Self:
        """Solve again from the stored rows or moments, with the current noise and amplitude."""
        law = self._law.of_values
        self.fit_ = fit_of(self._inputs, law.solve(self._current_spec(), law.representation))
        return self

    def observe(self, *observations: Derivatives | BlockAverages) -> Self:
        """Condition the process on derivatives and box averages of f, after ``fit``.

        Parameters
        ----------
        *observations : Derivatives or BlockAverages
            Observations, in the encoded columns (``schema_``). Pass all in one call: a later call
            replaces them; ``fit``, ``partial_fit`` and ``solve_again`` remove them.

        Returns
        -------
        self
            Predictions, sampled functions and intervals are then conditioned on y and the
            observations, exactly with the exact kernel. Kernel, noise and amplitude do not change.

        Raises
        ------
        InvalidInput
            If columns or targets differ from the fit, or the fit is on a Fourier grid or on nearest
            neighbours.
        UnsupportedKernel
            If there are derivatives, and the kernel or features have no closed-form gradient.

        Notes
        -----
        With the exact kernel o observations take O(o n² + o³), and O(o (n + o)) per predicted row.
        With features D replaces n, and derivatives also take D evaluations of φ.
        Sources: Solak et al. (2003), *Derivative observations in Gaussian process models of dynamic
        systems*, eq. 2 and 3; Cressie (1993), section 3.2.4, for averages over blocks.
        """
        fit = self._fitted
        law = observe(fit.law.of_values, observations, type(self).__name__)
        self.fit_ = replace(fit, law=law, errors=None)
        return self

    @accept_partitions
    def predict(
        self,
        X: Tabular,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Return the mean of f at rows, and optionally its standard deviation or covariance.

        Parameters
        ----------
        X : (m, d)
        return_std : bool, default False
            Also return the standard deviation of the function f(x), without noise, as in
            scikit-learn. :meth:`predict_interval` returns bounds of a new y.
        return_cov : bool, default False
            Also return the covariance of f at all pairs of rows; at most 20,000 rows.
        include_noise : bool, default False
            With ``return_std``: return the standard deviation of a new y, √(std² +
            ``noise_variance_``), as GPflow's ``predict_y`` does.

        Returns
        -------
        mean : (m,) or (m, t)
        std : (m,) or (m, t)
            With ``return_std``.
        cov : (m, m) or (m, m, t)
            With ``return_cov``.
        """
        if return_std and return_cov:
            raise InvalidInput("predict: set return_std or return_cov, not both.")
        if switch(include_noise, "predict", "include_noise") and not return_std:
            raise InvalidInput("predict: include_noise=True requires return_std=True.")
        blocks, law, parts = self._rows_to_predict(X), self._law, []
        if return_cov:
            law.require("return_cov", type(self).__name__)
            rows = join([Piece(block.X) for block in blocks]).X
            m = rows.shape[0]
            if m > MAX_ROWS:
                raise InvalidInput(
                    f"predict: return_cov=True allows at most {MAX_ROWS:,} rows; got {m:,}. Use "
                    "return_std=True, or pass fewer rows."
                )
            cov = law.covariance(rows).reshape(m, m, *self.target_shape_)
            return self._reshape(law.means(rows), rows), from_numpy(cov, like=rows)
        if not return_std:
            return concat(list(self.predict_blocks(blocks)))
        for block in blocks.with_rows(law.block_rows):
            mean, variance = law.moments(block.X)
            deviation = np.sqrt(variance + law.noise if include_noise else variance)
            parts.append([self._reshape(values, block.X) for values in (mean, deviation)])
        return tuple(concat(list(part)) for part in zip(*parts, strict=True))

    def predict_grid(self, *, return_std: bool = False, **axes: Any) -> Any:
        """Return the mean of f at all points of a grid: a map, a profile or a volume.

        Parameters
        ----------
        return_std : bool, default False
            Also return the standard deviation of f.
        **axes : (m_j,)
            Coordinates along each column, by its name. If columns have no names: any names, in the
            order of the columns.

        Returns
        -------
        mean : (m_1, ..., m_d) or (m_1, ..., m_d, t)
            An ``xarray.DataArray`` with these coordinates if xarray is installed, otherwise a NumPy
            array.
        std : same type and shape
            With ``return_std``.

        Raises
        ------
        InvalidInput
            If there is not one array of finite coordinates for each column.
        """
        caller, names, d = type(self).__name__, self._inputs.names, self.n_features_in_
        if len(axes) != d or (names is not None and set(axes) != set(names)):
            names_required = "" if names is None else f", named {', '.join(names)}"
            raise InvalidInput(
                f"{caller}.predict_grid: there must be one array of coordinates for each of the "
                f"{d} columns{names_required}; got {', '.join(axes) or 'none'}. Pass "
                f"{', '.join(f'{name}=...' for name in names or 'xyz'[:d])}."
            )
        axes = {name: np.asarray(axes[name], dtype=np.float64) for name in names or axes}
        for name, axis in axes.items():
            if axis.ndim != 1 or not len(axis) or not np.isfinite(axis).all():
                raise InvalidInput(
                    f"{caller}.predict_grid: {name} must be a vector of at least one finite "
                    f"number; got shape {axis.shape}. Pass for example np.linspace(0, 1, 100)."
                )
        shape = tuple(len(axis) for axis in axes.values())
        require_room(
            8 * (d + 3) * math.prod(shape),
            f"{caller}.predict_grid: {math.prod(shape):,} points take",
            "Pass fewer.",
        )
        rows = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, d)
        places = rows if names is None else Blocks.from_arrays(rows)  # columns are in order
        parts = self.predict(places, return_std=return_std)
        parts = parts if return_std else (parts,)
        maps = tuple(part.reshape(*shape, *part.shape[1:]) for part in parts)
        if find_spec("xarray") is not None:
            array: Any = import_module("xarray").DataArray
            dims = [*axes, *["target"] * (maps[0].ndim - d)]
            named_parts = zip(maps, ("mean", "std"), strict=False)
            maps = tuple(
                array(part, coords=axes, dims=dims, name=name) for part, name in named_parts
            )
        return maps if return_std else maps[0]

    def plot_map(self, ax: Any = None, places: int = 200, **axes: Any) -> Any:
        """Plot the mean of a process of one or two columns, over the range of the rows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: a new figure. The axes are returned.
        places : int, default 200
            Number of points along each column.
        **axes : (m_j,)
            Coordinates to use instead of the range, as in :meth:`predict_grid`.
        """
        curve = self.n_features_in_ == 1
        return MapDisplay.from_estimator(self, places, deviation=curve, **axes).plot(ax).ax_

    def plot_deviation(self, ax: Any = None, places: int = 200, **axes: Any) -> Any:
        """Plot the standard deviation of f; parameters as in :meth:`plot_map`."""
        return MapDisplay.from_estimator(self, places, **axes).plot(ax, "deviation").ax_

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return the mean ("prediction") and standard deviation ("deviation") of f in a dict."""
        mean, deviation = self.predict(X, return_std=True)
        return {"prediction": to_numpy(mean), "deviation": to_numpy(deviation)}

    def _centres(self, X: Any) -> Both:
        parts = self.predict(X, return_std=True, include_noise=True)
        mean, deviation = (to_numpy(part).reshape(len(part), -1) for part in parts)
        return mean, deviation

    def _error_law(self) -> ErrorLaw:
        """Return the distribution of fold errors, or of leave-one-out errors of unused rows."""
        scores = self._law.scores()
        if scores is not None:
            errors, deviation = scores
            return ErrorLaw.of_process(errors, deviation, "leave one out")
        return fold_scores(self._law.refit, self._law.representation.sample)

    def log_predictive_density(self, X: Float[Array, "m d"], y: Array) -> Array:
        """Return log N(y; mean, std² + ``noise_variance_``) for each row, (m,) or (m, t)."""
        fit, parts = self._fitted, []
        blocks, _ = self._read(X, y, first=False)
        representation.require_alike(type(self).__name__, blocks, fit.target_shape)
        for block in blocks.with_rows(self._law.block_rows):
            mean, variance = self._law.moments(block.X)
            error = to_numpy(block.y).reshape(mean.shape) - mean
            parts.append(log_normal(error, variance + self._law.noise))
        return np.concatenate(parts).reshape(-1, *self.target_shape_)

    def sample_functions(
        self, n: int = 1, random_state: Seed = None
    ) -> Callable[[Tabular], Float[Array, "m *t n"]]:
        """Draw n functions of the posterior; return a callable X -> (m, n) or (m, t, n).

        The callable returns the same values for the same rows in every call.
        """
        n = integer(n, "sample_functions", "n", 1)
        law = self._law.require("sample_functions", type(self).__name__)
        values, model, shape = law.draw(n, seed_of(random_state)), copy(self), self.target_shape_

        def functions(X: Tabular) -> Float[Array, "m *t n"]:
            parts = []
            for block in model._rows_to_predict(X).with_rows(law.block_rows):
                at = values(block.X)
                parts.append(from_numpy(at.reshape(len(at), *shape, n), like=block.X))
            return concat(parts)

        return functions

    def sample_y(self, X: Tabular, n_samples: int = 1, random_state: Seed = 0) -> Array:
        """Return values of posterior functions at rows, (m, n_samples) or (m, t, n_samples)."""
        return self.sample_functions(n_samples, random_state)(X)

    def _reshape(self, values: Float[Array, "b t"], X: Array) -> Array:
        return from_numpy(values.reshape(len(values), *self.target_shape_), like=X)

    _law = getter("law", "The posterior law of f.")
    _interval_rows = getter("law.block_rows", "Rows per block of intervals.")
    map_ = getter("chosen.choice.map", "Feature map φ.", f"map_: {NeighbourProcess.lacks['map_']}")
    loo_log_density_ = getter(
        "law.loo_log_density",
        "Mean leave-one-out log density of a sample of rows, summed over targets.",
    )
    evidence_ = getter(
        "law.evidence", "An Evidence: noise, amplitude, log likelihood and outcome of each target."
    )

    @property
    def predictive_(self) -> ProcessLaw:
        """Posterior of f: of the coefficients, and of the part of f that features miss."""
        return self._law.require("predictive_")

    def _require_rows(self, name: str, caller: str = "") -> Any:
        return self._law.require(name, caller).representation

    noise_variance_ = getter(
        "law.noise",
        "σ², the variance of a new y about f(x). The noise in ``evidence_`` includes the part of f "
        "that features miss; this σ² does not.",
        by_target=True,
    )
    amplitude_ = getter(
        "law.evidence.amplitude",
        "a², the factor by which ``kernel_`` is multiplied.",
        by_target=True,
    )
    alpha_ = getter("law.evidence.alpha", "σ²/a², the ridge penalty.", by_target=True)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """Log marginal likelihood, summed over targets; restricted if there is an intercept."""
        return float(self.evidence_.log_likelihood.sum())
