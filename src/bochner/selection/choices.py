"""Checked parameters of features, the chosen kernel and feature map, and moments of features."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from bochner import features
from bochner._core.arrays import is_symbolic, to_numpy
from bochner._core.checks import integer, one_of
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner._core.sizes import SMALL, WIDE, block_rows, prefers_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.errors import InvalidInput
from bochner.features.auto import Auto, Choice
from bochner.features.compose import DerivedMap
from bochner.features.fourier.fourier import Fourier
from bochner.features.map import FeatureMap, Method
from bochner.features.nystrom import COARSE, PrecisionMap
from bochner.kernels.kernel import Kernel, has_free
from bochner.selection.record import Curves, Tuning
from bochner.selection.spec import EFFORTS, SEARCHED, WIDTH, as_kernel
from bochner.sums.moments import Moments, MomentSum, Precision
from bochner.sums.passes import Executor, Summands, sample_summand


@dataclass(frozen=True)
class FeatureSpec:
    """Checked parameters of kernel and features; ``caller`` is the estimator, for messages."""

    caller: str
    kernel: Kernel | str
    method: Method
    width: int | float  # Number of features; a float below one is the largest ε
    learns_metric: bool
    precision: str
    seed: int
    columns: str = "as_given"  # Or "auto": columns may be transformed
    effort: str | None = None  # None is "medium"
    of_classes: bool = False  # Whether targets are classes: kernels are compared by log losses
    modes: bool = False  # Whether "auto" may take Fourier modes instead of features
    trends: tuple[int, ...] = ()  # Columns of X that are days of dates

    @staticmethod
    def of(
        caller: str,
        kernel: object,
        method: Any,
        n_features: object,
        random_state: Seed,
        precision: str = "auto",
        metric: object = None,
        columns: str = "as_given",
        effort: Any = None,
        of_classes: bool = False,
        **_: Any,  # other parameters of the estimator
    ) -> "FeatureSpec":
        one_of(precision, caller, "precision", ("auto", "float32", "float64"))
        one_of(columns, caller, "columns", ("auto", "as_given"))
        if metric is not None and metric != "learned":
            raise InvalidInput(f'{caller}: metric must be None or "learned"; got {metric!r}.')
        if effort is not None:
            one_of(effort, caller, "effort", ("low", *EFFORTS))
        width: Any = WIDTH if n_features is None else n_features
        if isinstance(width, float | str):
            width = 0.1 if width == "auto" else width
            if isinstance(width, str) or not 0 < width < 1:
                raise InvalidInput(
                    f"{caller}: n_features must be a positive integer, a number below one (the "
                    f'largest ε) or "auto"; got {n_features!r}.'
                )
        else:
            width = integer(width, caller, "n_features", 1)
        value, feature_method = as_kernel(kernel), features.as_method(method)
        if metric is not None and has_free(value):
            raise InvalidInput(
                f'{caller}: metric="learned" requires a kernel without free hyperparameters, or a '
                f"name; got {value!r}. Give all numbers, or leave out metric."
            )
        options = precision, seed_of(random_state), columns, effort, of_classes
        return FeatureSpec(caller, value, feature_method, width, metric == "learned", *options)

    @property
    def is_quick(self) -> bool:
        """Whether the kernel is "auto" with ``effort="low"``: choice and fit take little time."""
        return self.kernel == "auto" and self.effort == "low"

    @property
    def transforms_columns(self) -> bool:
        """Whether skewed columns may be transformed: only for a kernel name, not "linear"."""
        return self.columns == "auto" and isinstance(self.kernel, str) and self.kernel != "linear"

    @property
    def width_to_search(self) -> int:
        """Number of features with which kernels are compared."""
        return SEARCHED if isinstance(self.width, float) or self.width > WIDE else self.width

    @property
    def is_open(self) -> bool:
        """Whether kernel, method or width is chosen by the fit."""
        is_free = isinstance(self.kernel, str) or has_free(self.kernel)
        return is_free or isinstance(self.width, float) or isinstance(self.method, Auto)

    @property
    def needs_rows(self) -> bool:
        """Whether features depend on the data."""
        return self.learns_metric or not isinstance(self.method, Fourier) or self.is_open


@dataclass(frozen=True, eq=False)
class Function:
    """A fitted function of checked rows, and its gradients."""

    values: Callable[[Array], Float[Array, "b t"]]
    slopes: Callable[[Array], Float[Array, "b d t"]]

    def __call__(self, X: Array) -> Float[Array, "b t"]:
        return self.values(X)


@dataclass(frozen=True, eq=False)
class Choices:
    """Kernel and feature map of a fit, and the choice of both."""

    seed: int
    search: Tuning
    choice: Choice
    precision: Precision = "float64"  # Of the features
    curves: Curves | None = None  # Transformations of skewed columns within the kernel

    kernel = property(attrgetter("search.kernel"))

    @property
    def explained(self) -> Choice:
        """The choice of the method; its reason also says why the kernel was chosen."""
        reason = self.choice.reason.removesuffix(self.search.reason)  # older files have both
        return replace(self.choice, reason=reason + self.search.reason)

    @property
    def metric(self) -> Tuning | None:
        """The `Tuning` of the learned metric; None if none was learned."""
        return self.search if self.search.matrix is not None else None

    @property
    def map(self) -> FeatureMap:
        if self.choice.map is None:
            raise InvalidInput("map requires features; this fit compares rows with the kernel.")
        return self.choice.map

    @property
    def block_rows(self) -> int:
        """Rows of a block whose features take about 16 MB."""
        return block_rows(self.map.n_features)

    @property
    def precision_map(self) -> PrecisionMap:
        """φ, rounded to its precision."""
        return PrecisionMap(self.map.kernel, self.map, self.precision)

    def add_up(
        self, blocks: Blocks, precision: Precision, where: Executor, start: int = 0
    ) -> tuple[Moments, Any, int]:
        """Return the moments, a sample and the number of rows; ``start`` rows were read before."""
        sums = summand_of(self, precision)
        pair = Summands((sums, sample_summand(self.seed, start)))
        total, sample = where.sum(pair, blocks.with_rows(self.block_rows))
        return sums.moments(total), sample, count_rows(blocks)

    def double(self, X: Array) -> Float[Array, "n D"]:
        """Return φ(X), computed in the precision of the fit, as NumPy's float64."""
        return to_numpy(self.precision_map.features(X)).astype(np.float64, copy=False)

    def in_precision(self, precision: str, n: int | None) -> "Choices":
        """Return a copy with features in this precision; "auto" depends on the n rows."""
        return replace(self, precision=feature_precision(precision, n, self.map))

    def with_curves(self, curves: Curves) -> "Choices":
        """Return a copy that transforms the columns of rows first."""
        kernel, phi = curves.of(self.kernel), self.map
        search = replace(self.search, kernel=kernel)
        choice = replace(self.choice, map=DerivedMap(curves.of(phi.kernel), phi, phi.n_inputs))
        return replace(self, search=search, choice=choice, curves=curves)

    def linear(self, coef: Float[Array, "D t"], intercept: Any = 0.0) -> Function:
        """Return f(x) = φ(x) β + b, from kernel values for landmarks; gradients use unrounded φ."""
        phi, (base, landmarks) = self.precision_map, self.map.unwhitened()
        if landmarks is not None:  # kernel values in float64, as large coefficients need
            phi = PrecisionMap(self.kernel, base, "float64")
            coef = landmarks.root(np.dtype(self.precision)) @ coef.astype(np.float64)
        convert = lambda Z: Z if is_symbolic(Z) else to_numpy(Z)
        values = lambda X: convert(phi.features(X)) @ coef + intercept
        return Function(values, lambda X: base.gradients(X, coef))


def feature_precision(precision: str, n: int | None, phi: FeatureMap) -> Precision:
    """Return the precision of features; "auto" is float64 for few rows and for landmarks.

    A Nyström map in float32 approximates K plus a jitter, which limits the accuracy of most fits.
    """
    if precision != "auto":
        return "float32" if precision == "float32" else "float64"
    small = n is not None and prefers_rows(n, phi.n_features, SMALL)
    return "float64" if small or phi.unwhitened()[1] is not None else "float32"


def summand_of(choices: Choices, precision: Precision) -> MomentSum:
    """Return the summand of moments; whiten kernel values after summation if jitter τ is large."""
    base, landmarks = choices.map.unwhitened()  # whitening multiplies rounding errors by up to 1/τ
    double = choices.precision == "float64"
    if double and landmarks is not None and (landmarks.jitter or 0.0) >= COARSE:
        values = PrecisionMap(base.kernel, base, choices.precision)
        return MomentSum(values.features, precision, landmarks.root(np.dtype("float64")).T)
    return MomentSum(choices.precision_map.features, precision)
