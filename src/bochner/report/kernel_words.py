"""A kernel in words: of many lengthscales those that matter, ranked; all others counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner.data.sample import RowSample
from bochner.kernels.kernel import Kernel
from bochner.kernels.monotone import Monotone
from bochner.models._base import KernelEstimator
from bochner.report.render import number, rounded
from bochner.selection.rows import deviations

#: Lengthscales that are written out.
SHOWN = 6


def kernel_words(model: KernelEstimator, names: Sequence[str] | None = None) -> str:
    """Return the kernel of a fitted learner for people to read.

    Of more than SHOWN lengthscales those that are shortest in standard deviations of their columns,
    where rows of the fit are kept to tell; ``names`` are of the columns that the kernel sees.
    """
    kernel = model.kernel_
    if isinstance(kernel, Monotone):
        bent = ", ".join(_named(names, max(kernel.columns) + 1)[j] for j in kernel.columns)
        curves = model.fit_.chosen.curves
        how = "transformed" if curves is None else curves.name
        return f"{_words(kernel.kernel, model, names)}; of {how} of {bent}"
    return _words(kernel, model, names)


def _named(names: Sequence[str] | None, d: int) -> list[str]:
    known = names if names is not None and len(names) >= d else None
    return [f"column {j}" for j in range(d)] if known is None else list(map(str, known))


def _words(kernel: Kernel, model: KernelEstimator, names: Sequence[str] | None) -> str:
    scales = getattr(kernel, "lengthscale", None)
    if not isinstance(scales, tuple) or len(scales) <= SHOWN:
        return rounded(repr(kernel))
    found = np.asarray(scales, np.float64)
    spread = _deviations(getattr(model.fit_, "summed", None), len(found))
    return _ranked(kernel, found if spread is None else found / spread, spread, names)


def _deviations(summed: Any, d: int) -> np.ndarray | None:
    """Return the deviations of columns in the rows that the fit keeps; None if it keeps none."""
    sample = getattr(summed, "sample", None)
    if not isinstance(sample, RowSample) or is_sparse(sample.X) or sample.X.shape[1] != d:
        return None
    return deviations(sample.X, sample.w)


def _ranked(
    kernel: Kernel, scales: np.ndarray, spread: np.ndarray | None, names: Sequence[str] | None
) -> str:
    named = _named(names, len(scales))
    first = np.argsort(scales, kind="stable")
    units = "in standard deviations, " if spread is not None else ""
    listed = ", ".join(f"{named[j]} {number(float(scales[j]), 3)}" for j in first[:SHOWN])
    rest = scales[first[SHOWN:]]
    return (
        f"{type(kernel).__name__}, {len(scales)} lengthscales, {units}shortest first: {listed}; "
        f"{len(rest)} others from {number(float(rest[0]), 3)} to {number(float(rest[-1]), 3)}"
    )
