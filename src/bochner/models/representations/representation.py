"""Base class of representations of the training rows, and methods without features."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from bochner import features
from bochner._core.arrays import dense, to_numpy
from bochner._core.checks import Counted, MaybeCounted, Positive, integer, optional
from bochner._core.shapes import Array, Tabular
from bochner._core.sizes import CACHED_ROWS
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.data.sources import require_targets
from bochner.errors import InvalidInput
from bochner.features.auto import Choice
from bochner.features.map import Method
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.kernels.algebra import Mahalanobis, kernel_matrix
from bochner.kernels.kernel import Algebra, Columns, Kernel
from bochner.models._base import KernelEstimator
from bochner.models._labels import Calibration, calibrate_signs
from bochner.models._rows import KernelSum, row_marks
from bochner.models.error_law import HeldOutRows
from bochner.selection.choices import Choices, FeatureSpec, Function
from bochner.selection.record import Curves, Tuning
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.kernel_path import Penalties
from bochner.solvers.ridge.solution import Alpha, Solution
from bochner.sums.moments import Moments
from bochner.sums.passes import LOCAL, Executor, draw_rows, require_order

#: Attributes that fits on features lack, and the reason.
FEATURES_LACK: dict[str, str] = dict.fromkeys(
    ("dual_coef_", "X_fit_"), 'only a fit with method="exact" or "local" has them; see coef_.'
)


@dataclass(frozen=True)
class RidgeSpec:
    """Checked parameters of a ridge regression."""

    features: FeatureSpec
    alpha: Alpha  # Penalty, penalty of each target, or criterion
    per_target: bool
    fit_intercept: bool
    method: Any = None  # Given method of features, or exact or local kernel; None: chosen

    @cached_property
    def given_alpha(self) -> float | None:
        """Smallest given penalty; None if a criterion chooses it."""
        return None if isinstance(self.alpha, str) else float(np.min(self.alpha))

    @property
    def direct_rows(self) -> int:
        """Largest number of rows for a direct solution; for classes 1.5 times as large."""
        return DIRECT_ROWS * 3 // 2 if self.features.of_classes else DIRECT_ROWS

    def share_of(self, rows: RowSample) -> float | None:
        """Return the given penalty per unit of weight; None if it is chosen."""
        return None if self.given_alpha is None else self.given_alpha / float(rows.w.sum())

    def require_kernel(
        self, method: str, reason: str, blocks: Blocks, where: Executor
    ) -> tuple[int, ...]:
        """Return the shape of a target; refuse alpha = 0 and engines with several workers."""
        caller = self.features.caller
        if self.given_alpha == 0:
            raise InvalidInput(
                f'{caller}: method="{method}" requires alpha above 0; got {self.alpha!r}. '
                "Pass a small alpha, e.g. 1e-6, or use features, which have a least-norm solution."
            )
        words = f'method="{method}" {reason}'
        require_order(caller, words, where, "Omit where=, or use features.")
        return require_targets(caller, blocks.target_shape)


class Lacking:
    """A fit that does not support all attributes and methods of its estimator."""

    #: Attributes and methods that this form does not support, with the reason.
    lacks: ClassVar[Mapping[str, str]] = {}

    def require(self, name: str, caller: str = "") -> Self:
        """Return self; raise an error if it lacks ``name``, a method or attribute of ``caller``."""
        if name not in self.lacks:
            return self
        if caller:
            raise InvalidInput(f"{caller}.{name}: {self.lacks[name]}")
        raise AttributeError(f"{name}: {self.lacks[name]}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only; cached factors are computed again on demand."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


class Representation(Lacking, ABC):
    """The training rows in the form that a fit stores and solves; frozen, saved with the fit."""

    chosen: Choices  # The kernel, the map, and the reasons
    target_shape: tuple[int, ...]  # Shape of one row of y: () or (t,)
    rows: int  # Number of rows read, including rows of weight zero
    sample: Any  # Rows kept for leave-one-out errors and the certificate
    weight: Any  # Sum of the weights of all rows
    max_weight: float  # Largest weight of a row that is left out at once

    certified_rows: ClassVar[int] = CACHED_ROWS  # Largest number of rows of a certificate

    # Methods of sums; ``lacks`` has the reason why other representations do not have them
    solve: ClassVar[Any]  # (spec): the representation and the solution for ``spec``
    add_rows: ClassVar[Any]  # (blocks): the representation with these rows added
    merge: ClassVar[Any]  # (other): the representation of the rows of both

    # For losses other than squares: (spec, solution, y, w), the representation and the solution for
    # these targets and weights, at the penalty of ``solution``; and rows with left-out predictions
    refit: ClassVar[Any]
    held_out_index: Any = None

    # Rows, targets (or None) and weights of fits with the exact kernel
    X: Any
    y: Any
    w: Any

    @property
    def count(self) -> int:
        """Number of rows of positive weight."""
        return int(self.X.shape[0])

    @property
    def target_variance(self) -> float:
        """Weighted variance of y, averaged over targets."""
        if self.y is None:
            return np.nan
        squares = (self.y - np.average(self.y, axis=0, weights=self.w)) ** 2
        return float(np.average(squares.mean(axis=1), weights=self.w))

    #: Number of rows per block of predictions.
    block_rows = property(attrgetter("chosen.block_rows"))
    #: The map φ that the certificate compares with the kernel.
    certified_map = property(attrgetter("chosen.precision_map"))

    def values(self, solution: Any) -> Function | KernelSum:
        """Return the function X ↦ φ(X) β + b; ``solution`` has ``coef`` and ``intercept``."""
        return self.chosen.linear(solution.coef, solution.intercept)

    @property
    def keeps_all(self) -> bool:
        """Whether the sample has all rows."""
        return bool(np.isclose(self.sample.w.sum(), self.weight, rtol=1e-12, atol=0))

    def without_copies(self, spec: Any) -> Self:
        """Return the representation with copies merged in a sample of all rows."""
        sample, unit = without_copies(spec, self.sample) if self.keeps_all else (self.sample, 1.0)
        if sample is self.sample and unit == self.max_weight:
            return self
        changes: Any = {"sample": replace(sample, w=sample.w * unit), "max_weight": unit}
        return replace(self, **changes)  # type: ignore[type-var]

    @abstractmethod
    def left_out(self, solution: Solution) -> HeldOutRows | None:
        """Return rows with their leave-one-out predictions, or None if they are not available."""

    def calibration(self, solution: Solution) -> Calibration | None:
        """Return the calibration of probabilities; None without leave-one-out predictions."""
        rows = self.left_out(solution)
        if rows is None:
            return None
        return calibrate_signs(rows.predicted, rows.predicted + rows.errors, rows.w)

    def certificate(self, alpha: Any, blocks: Blocks | None = None) -> Certificate:
        """Return the certificate on the sample or other rows, with alpha scaled to their number."""
        seed, n = self.chosen.seed, self.count if blocks is None else count_rows(blocks)
        rows: RowSample = self.sample if blocks is None else draw_rows(blocks, seed)
        return certify(
            self.certified_map,
            rows.lowest(self.certified_rows).X,
            alpha=float(np.min(alpha)) * n / max(self.count, 1),
            kernel=self.chosen.kernel,
            n_rows=n,
            random_state=seed,
        )


def lacks_of_kernel(kind: str) -> dict[str, str]:
    """Return the attributes that a fit with the exact kernel lacks, with reasons."""
    reason = f"{kind} has no features, so there is nothing to certify"
    return {
        "coef_": f"{kind} has no features; see dual_coef_ or solution_, and X_fit_.",
        "moments_": f"{kind} has no features.",
        "sample_": f"{kind} has no features.",
        "certificate_": f"{reason}.",
        "certify": f'{reason}; fit with features, e.g. method="auto", for a certificate.',
        "solve_again": f"{kind} keeps no moments. Call fit.",
        "merge": f"{kind} keeps no moments that can be added.",
    }


def require_alike(caller: str, blocks: Blocks, expected: tuple[int, ...]) -> None:
    """Raise an error if the targets differ from the earlier ones."""
    shape = require_targets(caller, blocks.target_shape)
    if shape != expected:
        raise InvalidInput(
            f"{caller}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {expected}."
        )


def without_copies(spec: Any, rows: RowSample) -> tuple[RowSample, float]:
    """Return the rows with equal rows merged, weights divided by a unit so that none is above 1.

    Leave-one-out errors would be too small if a copy of the left-out row remained. If targets
    differ at more than a tenth of the repeated x, rows are separate observations: all rows are
    returned, with the unit 1. The same holds for a given penalty, and for classes.
    """
    if spec.features.of_classes or not isinstance(spec.alpha, str):
        return rows, 1.0
    places = row_marks(rows.X, 0)
    copies = places + row_marks(rows.y, 1)
    _, first, copy = np.unique(copies, return_index=True, return_inverse=True)
    w = np.bincount(copy, rows.w)
    _, place, counts = np.unique(places[first], return_inverse=True, return_counts=True)
    repeated = (np.bincount(place, w) > 1) | (np.bincount(place, np.bincount(copy)) > 1)
    if np.sum(counts > 1) > 0.1 * np.sum(repeated) or not np.any(repeated):
        return rows, 1.0
    order, unit = np.argsort(first), max(float(w.max()), 1.0)
    return replace(rows.take(first[order]), w=w[order] / unit), unit


# --- Methods: the exact kernel, and the kernel within leaves of rows -----------------------------

DIRECT_ROWS = 8192  # Largest number of rows for a Cholesky factor of the n × n matrix

#: Rows per leaf; number of rows above which leaves shrink like 1/√n; least number of rows per leaf.
LEAF_ROWS, MANY_ROWS, FEWEST_LEAF_ROWS = 3072, 1 << 14, 2048


@dataclass(frozen=True)
class ExactKernel(Method):
    """The exact kernel, without features; ``method="exact"``.

    Parameters
    ----------
    preconditioner : Method, str or None, default None
        - None: up to 8192 rows, one Cholesky factor of the n × n matrix per penalty (n³/3
          operations; n²/2 numbers, or 3 n² for kernels without a compiled loop and for sums of many
          terms). More rows: as "nystrom".
        - a method: conjugate gradients, preconditioned with ``n_features`` features. Use Nyström,
          or a Mercer map if the kernel has one; Fourier features help little.
    tol : float, default 1e-6
        Largest error of predictions by conjugate gradients at any x with k(x, x) ≤ max k(x_i, x_i),
        in standard deviations of the target. This is a proven bound; errors are mostly ten to a
        hundred times smaller.
    max_iter : int, default 1000
        Largest number of steps of conjugate gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> model = bo.KernelRidge("gaussian", method=bo.ExactKernel(), random_state=0)
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    has_features: ClassVar[bool] = False
    preconditioner: Annotated[Any, optional(lambda method, *_: features.as_method(method))] = None
    tol: Positive = 1e-6
    max_iter: Counted = 1000


def with_seasons(
    spec: FeatureSpec, tuning: Tuning, curves: Curves | None, rows: RowSample, centred: bool
) -> Tuning:
    """Make half of each term of a chosen kernel constant in dates, so that seasons continue.

    Unchanged for given kernels and classes, and if errors of 512 rows would rise by over 0.3 %.
    """

    def halve(part: Any, columns: Any) -> Kernel:
        columns_ = tuple(i for i, c in enumerate(columns) if c not in spec.trends)
        scales = getattr(part, "lengthscale", None)
        if len(columns_) in (0, len(columns)):
            return part
        if isinstance(part, Mahalanobis):
            factor = part.replace(matrix=np.asarray(part.matrix)[np.ix_(columns_, columns_)])
        elif isinstance(scales, tuple):
            factor = part.replace(lengthscale=tuple(scales[i] for i in columns_))
        else:  # one lengthscale, too long for seasons
            return part
        return 0.5 * part + 0.5 * Columns(factor, columns_)

    def log_error(kernel: Kernel) -> float:
        penalties = Penalties(KernelRows(kernel_matrix(kernel, X), subset.y, subset.w, centred))
        start = tuning.share * float(subset.w.sum())
        alpha = penalties.best("loo", start if np.isfinite(start) else 1.0)
        return penalties.slope("loo", None, alpha)[0] / 2

    if spec.kernel != "auto" or not spec.trends or spec.of_classes:
        return tuning
    subset = rows.lowest(512)
    X = subset.X if curves is None else curves.inputs(subset.X)
    halved = tuning.kernel.rebuild(halve, (Algebra, Columns), range(X.shape[1]))
    is_near = log_error(halved) <= log_error(tuning.kernel) + 0.003
    return replace(tuning, kernel=halved) if is_near else tuning


def chosen_exactly(
    seed: int, tuning: Tuning, curves: Curves | None, X: Array, method: ExactKernel | None = None
) -> Choices:
    """Return the choice of the exact kernel, with the Nyström map on all rows X as map."""
    reason = f"Exact kernel, with the full kernel matrix of {X.shape[0]:,} rows."
    phi = NystromMap(tuning.kernel, to_numpy(dense(X if curves is None else curves.inputs(X))))
    choice = Choice(phi, method or ExactKernel(), (), reason)
    chosen = Choices(seed, tuning, choice)
    return chosen if curves is None else chosen.with_curves(curves)


@dataclass(frozen=True)
class LocalKernel(Method):
    """The exact kernel within leaves of near rows, landmarks between leaves; ``method="local"``.

    Parameters
    ----------
    leaf_rows : int, optional
        Largest number of rows per leaf. Larger leaves have smaller errors; time is O(n leaf_rows²).
        Default: 3072 for up to 16,384 rows; for more rows proportional to 1/√n, but at least 2048.
    landmarks : int, optional
        Number of landmarks, which couple rows of different leaves. Time is O(n leaf_rows
        landmarks), memory O(n landmarks). Default: an eighth of ``leaf_rows``, at most 2²⁷/n.

    Notes
    -----
    The kernel of the fit is k(x, x') within a leaf and φ(x)·φ(x') between leaves, with the Nyström
    features φ of the landmarks. It is positive semi-definite, and closer to k than φ alone (Snelson
    and Ghahramani (2007), "partially independent conditional"). Leaves are split at medians of the
    first principal component of the kernel. Predictions have small jumps between leaves.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (400, 1))
    >>> method = bo.LocalKernel(leaf_rows=100, landmarks=20)
    >>> model = bo.KernelRidge("gaussian", method=method, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.01)
    True
    """

    has_features: ClassVar[bool] = False
    leaf_rows: Annotated[int | None, optional(lambda *value: integer(*value, 2))] = None
    landmarks: MaybeCounted = None

    def most_in_leaf(self, n: int) -> int:
        """Return the largest number of rows per leaf, for n rows."""
        if self.leaf_rows is not None:
            return self.leaf_rows
        size = int(LEAF_ROWS * (MANY_ROWS / max(n, MANY_ROWS)) ** 0.5)
        return max(FEWEST_LEAF_ROWS, size)

    def landmarks_of(self, n: int) -> int:
        """Return the number of landmarks for n rows."""
        if self.landmarks is not None:
            return self.landmarks
        return max(1, min(self.most_in_leaf(n) // 8, (1 << 27) // n))


def as_method(method: Any) -> Any:
    """Return the method for the names "exact" and "local"; other values are unchanged."""
    if method == "exact":
        return ExactKernel()
    return LocalKernel() if method == "local" else method


def as_features(method: Any) -> Method | str:
    """Return the method for features; for exact and local fits, that of the preconditioner."""
    if isinstance(method, LocalKernel | ExactKernel):
        return getattr(method, "preconditioner", None) or Nystrom()
    return "auto" if method is None else method


def takes_pieces(model: KernelEstimator) -> bool:
    """Return True if the model supports partial_fit; otherwise raise AttributeError."""
    if not isinstance(as_method(model.method), ExactKernel | LocalKernel):
        return True
    raise AttributeError(
        f"{type(model).__name__}.partial_fit: method={model.method!r} needs all rows at once; "
        "call fit, or use features, whose moments can be added."
    )


class AddsRows(KernelEstimator):
    """An estimator with ``partial_fit``, whose fit stores a representation of the rows."""

    precision: Any

    _require_rows: Any  # (name, caller): the representation; an error if it lacks ``name``
    alpha_: Any
    # (blocks, inputs, where, precision): the fit. ``precision`` is that of all sums; None: chosen,
    # with a second pass if needed
    _fit: Any

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> Any:
        precision = "float32" if self.precision == "float32" else "float64"
        return self._fit(blocks, inputs, LOCAL, precision)

    def _certificate_on(self, blocks: Blocks, new_rows: bool = False) -> Certificate:
        rows = self._require_rows("certify", type(self).__name__)
        return rows.certificate(self.alpha_, blocks if new_rows else None)

    rows_seen_ = property(lambda self: self._require_rows("").rows, doc="Number of rows read.")

    @property
    def moments_(self) -> Moments:
        """Moments of all rows, to which further rows or other models are added."""
        return self._require_rows("moments_").moments

    @property
    def sample_(self) -> RowSample:
        """Rows kept for leave-one-out errors and the certificate."""
        return self._require_rows("sample_").sample

    @available_if(takes_pieces)
    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Add rows to the fit, and solve again.

        The first call draws the map and chooses the kernel. Each call chooses penalty, noise and
        amplitude again. Products are float64 unless ``precision="float32"``. The result equals one
        ``fit`` to all rows with the same map.
        """
        return self._add_rows(X, y, sample_weight)
