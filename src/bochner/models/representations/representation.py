"""Base class of representations of the training rows, and the spec of a ridge regression."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float, Gradients, Predictions
from bochner._core.sizes import KEPT_ROWS
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, row_priorities
from bochner.data.sources import Piece, join, part, required_targets
from bochner.errors import InvalidInput
from bochner.kernels.algebra import Columns, Mahalanobis
from bochner.kernels.kernel import ALGEBRA, Constant, Kernel, leaves_of
from bochner.kernels.stationary import Stationary
from bochner.models._calibration import Calibration
from bochner.models.error_law import LeftOutRows
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.solvers.ridge.path import Alpha, least_alpha
from bochner.solvers.ridge.solution import Solution
from bochner.sums.executor import LOCAL, Executor, require_order
from bochner.sums.rows import sampled

#: Why fits through features have no coefficients of rows.
KERNEL_ONLY = 'only a fit with method="exact" or "local" has them; see coef_.'


@dataclass(frozen=True)
class RidgeSpec:
    """Checked parameters of a ridge regression."""

    features: FeatureSpec
    alpha: Alpha  # The penalty, one for each target, or how it is chosen
    per_target: bool
    fit_intercept: bool


class Lacking:
    """A value that does not support some attributes and methods of an estimator."""

    #: Attributes and methods of an estimator that this cannot serve, and why.
    lacks: ClassVar[Mapping[str, str]] = {}

    def require(self, name: str, who: str = "") -> Self:
        """Return this; refuse an attribute, or a call of ``who``, that it cannot serve."""
        if name not in self.lacks:
            return self
        if who:
            raise InvalidInput(f"{who}.{name}: {self.lacks[name]}")
        raise AttributeError(f"{name}: {self.lacks[name]}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: cached factors and problems are made again when they are asked for."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


class Representation(Lacking, ABC):
    """The form in which a fit holds and solves the training rows; frozen, saved with the fit."""

    chosen: Chosen  # The kernel, the map, and how they were found
    target_shape: tuple[int, ...]  # Of one row of y: () or (t,)
    rows: int  # Rows that were read, including rows of weight zero
    sample: Any  # Rows kept for leave-one-out errors and the certificate

    certified_rows: ClassVar[int] = KEPT_ROWS  # On which the certificate is measured, at most

    @property
    @abstractmethod
    def count(self) -> int:
        """Rows of positive weight."""

    @property
    @abstractmethod
    def target_variance(self) -> float:
        """Weighted variance of y, averaged over targets."""

    @property
    def block_rows(self) -> int:
        """Rows that are predicted together."""
        return self.chosen.block_rows

    def values(self, solution: Any) -> Callable[[Array], Float[Array, "b t"]]:
        """Return f, X ↦ φ(X) β + b, of a solution or law with ``coef`` and ``intercept``."""
        linear = self.chosen.linear(solution.coef)
        return lambda X: linear(X) + solution.intercept

    def predictions(self, solution: Any, blocks: Blocks) -> Predictions:
        """Yield the rows of each block and their predictions, (b, t)."""
        values = self.values(solution)
        for block in blocks.with_rows(self.block_rows):
            yield block.X, values(block.X)

    def gradients(self, solution: Any, blocks: Blocks) -> Gradients:
        """Yield the rows of each block and the gradients of predictions there."""
        return self.chosen.gradients(solution.coef, blocks)

    @abstractmethod
    def left_out(self, solution: Solution) -> LeftOutRows | None:
        """Return rows with their leave-one-out predictions; None where there are none."""

    def calibration(self, solution: Solution) -> Calibration | None:
        """Return probabilities of classes by leave-one-out values; None where there are none."""
        rows = self.left_out(solution)
        return None if rows is None else rows.calibration

    @property
    def certified_map(self) -> Any:
        """φ, as the certificate compares it with the kernel."""
        return self.chosen.rounded

    def certificate(self, alpha: float, blocks: Blocks | None = None) -> Certificate:
        """Return the certificate on a sample of the rows, or on others; alpha in proportion."""
        seed, n = self.chosen.seed, self.count if blocks is None else count_rows(blocks)
        rows: RowSample = self.sample if blocks is None else sampled(blocks, seed)
        return certify(
            self.certified_map,
            rows.lowest(self.certified_rows).X,
            alpha=alpha * n / max(self.count, 1),
            kernel=self.chosen.kernel,
            n_rows=n,
            random_state=seed,
        )

    def solve(self, spec: RidgeSpec) -> tuple[Self, Solution]:
        """Solve again, with the penalty and intercept of ``spec``."""
        raise NotImplementedError

    def with_rows_of(self, blocks: Blocks, where: Executor = LOCAL) -> Self:
        """Return the rows before and these."""
        raise NotImplementedError

    def merge(self, other: Any) -> Self:
        """Return the rows of both."""
        raise NotImplementedError


def lacks_of_kernel(kind: str) -> dict[str, str]:
    """Return what fits with the kernel itself lack, ``kind`` of them."""
    nothing = f"{kind} has the kernel itself, and nothing to certify"
    return {
        "coef_": f"{kind} has no features; see dual_coef_ or solution_, and X_fit_.",
        "moments_": f"{kind} has no features.",
        "sample_": f"{kind} has no features.",
        "certificate_": f"{nothing}.",
        "certify": f'{nothing}; fit with features, e.g. method="auto", for a certificate.',
        "solve_again": f"{kind} keeps no moments that could be solved again. Call fit.",
        "merge": f"{kind} keeps no moments that add.",
    }


def require_kernel_fit(
    spec: RidgeSpec, method: str, reason: str, blocks: Blocks, where: Executor
) -> tuple[int, ...]:
    """Refuse a penalty of zero and workers; return the shape of a target."""
    who = spec.features.who
    if least_alpha(spec.alpha) == 0:
        raise InvalidInput(
            f'{who}: method="{method}" requires alpha above 0; got {spec.alpha!r}. '
            "Pass a small one, e.g. 1e-6, or take features: they have a solution of least norm."
        )
    why = f'method="{method}" {reason}'
    require_order(who, why, where, "Leave where out, or take features.")
    return required_targets(who, blocks.target_shape)


def given_share(spec: RidgeSpec, rows: RowSample) -> float | None:
    """Return the given penalty per unit of weight; None where it is to be chosen."""
    alpha = least_alpha(spec.alpha)
    return None if isinstance(alpha, str) else alpha / float(rows.w.sum())


def variance_of(y: Float[Array, "n t"], w: Float[Array, " n"]) -> float:
    """Return the weighted mean square of targets about their means, in the mean of targets."""
    return float(np.average(((y - np.average(y, axis=0, weights=w)) ** 2).mean(axis=1), weights=w))


def require_alike(who: str, blocks: Blocks, before: tuple[int, ...]) -> None:
    """Refuse other targets than those before."""
    shape = required_targets(who, blocks.target_shape)
    if shape != before:
        raise InvalidInput(
            f"{who}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {before}."
        )


def piece_of(block: Any) -> Piece:
    """Return the rows of a block in NumPy's float64, X maybe in CSR."""
    n = block.X.shape[0]
    X = block.X if is_sparse(block.X) else to_numpy(block.X)
    y = np.empty((n, 0)) if block.y is None else to_numpy(block.y).astype(np.float64)
    w = np.ones(n) if block.w is None else to_numpy(block.w).astype(np.float64)
    return Piece(X.astype(np.float64, copy=False), y.reshape(n, -1), w)


def gather(blocks: Blocks, seed: int, start: int = 0) -> RowSample:
    """Return all rows of positive weight, X in float64 or CSR; ``start`` rows came before."""
    X, y, w = join([piece_of(block) for block in blocks])
    kept, priority = np.flatnonzero(w > 0), row_priorities(seed, start, len(w))
    if len(kept) < len(w):
        (X, y, w), priority = part(Piece(X, y, w), kept), priority[kept]
    return RowSample(X if is_sparse(X) else np.ascontiguousarray(X), y, w, priority)


def of_differences(kernel: Kernel) -> bool:
    """Whether the kernel is one of x − y alone."""
    leaves = leaves_of(kernel, (*ALGEBRA, Mahalanobis, Columns))
    return all(isinstance(leaf, Stationary | Constant) for leaf in leaves)
