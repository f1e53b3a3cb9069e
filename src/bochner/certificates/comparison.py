"""compare: every method that serves a kernel, with predicted and measured errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import as_matrix, is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.html import TableResult
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import axes_for
from bochner._core.threads import one_thread
from bochner.errors import InvalidInput, InvalidType
from bochner.features.auto import paired_error, relative_error, width_of
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.mercer.products import Explicit, LaplacianEigenfunctions
from bochner.features.method import Method, Request
from bochner.features.nystrom.landmarks import Uniform
from bochner.features.nystrom.nystrom import Nystrom
from bochner.features.projections import Compressed, Projected
from bochner.features.rules import RULES, as_method, contenders, draw_map
from bochner.kernels.kernel import Kernel

#: Methods of other methods, of finite kernels and of functions of a box: they are not compared.
PARTIAL = (Compressed, Projected, Explicit, LaplacianEigenfunctions)
HEAD = ("method", "D", "predicted", "measured", "max entry", "draw s", "s/1000 rows")


@dataclass(frozen=True)
class Compared:
    """One method of a :class:`Comparison`."""

    method: Method
    n_features: int = 0
    predicted: float = np.nan
    error: float = np.nan
    entrywise: float = np.nan
    draw_seconds: float = np.nan
    seconds: float = np.nan
    refused: str = ""


@dataclass(frozen=True)
class Comparison(TableResult):
    """Methods for one kernel at one width, best first; prints as a table.

    Attributes
    ----------
    kernel : Kernel
    n_features : int
        D that was asked for.
    n_sample : int
        Rows that errors were measured on.
    rows : tuple
        The methods that serve the kernel by rising error, then the others. Each has

        * ``method``, and ``n_features``: D of the map that was drawn;
        * ``predicted``: relative Frobenius error, estimated from pairs of rows;
        * ``error``: ‖ZZᵀ − K‖_F / ‖K‖_F on rows that the map was not drawn from;
        * ``entrywise``: max |ZZᵀ − K| on the same rows;
        * ``draw_seconds``, ``seconds``: time to draw the map, and to make the features of 1000
          rows;
        * ``refused``: why the method does not serve the kernel; empty where it does.

    See Also
    --------
    compare : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> methods = ["fourier", "nystrom"]
    >>> table = bo.compare(
    ...     bo.kernels.Gaussian(), X, n_features=64, methods=methods, random_state=0
    ... )
    >>> table.best == table.rows[0].method, len(table.rows)
    (True, 2)
    >>> table.rows[0].error <= table.rows[1].error
    True
    """

    kernel: Kernel
    n_features: int
    n_sample: int
    rows: tuple[Compared, ...]

    @property
    def best(self) -> Method:
        """The method with the least measured error."""
        return self.rows[0].method

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        title = f"{self.kernel!r}, D = {self.n_features}, errors on {self.n_sample} rows"
        lines: list[tuple[str, ...]] = [HEAD]
        for row in self.rows:
            errors = row.predicted, row.error, row.entrywise, row.draw_seconds, row.seconds
            if not row.refused:
                numbers = [f"{value:.3g}" for value in errors]
                lines.append((str(row.method), str(row.n_features), *numbers))
        refused = ", ".join(str(row.method) for row in self.rows if row.refused)
        return title, lines, refused and f"Do not serve it: {refused}."

    def plot(self, ax: Any = None) -> Any:
        """Draw measured errors as bars and predictions as marks, best on top, on ``ax`` or new."""
        ax = axes_for("Comparison", ax, size=(7, 4))
        served = [row for row in self.rows if not row.refused][::-1]
        heights = np.arange(len(served))
        ax.barh(heights, [row.error for row in served], height=0.6, label="measured")
        ax.plot([row.predicted for row in served], heights, "k|", ms=12, label="predicted")
        ax.set_yticks(heights, [str(row.method) for row in served])
        ax.set_xscale("log")
        ax.set_xlabel("relative error of the kernel matrix")
        ax.set_title(f"{self.kernel!r}, D = {self.n_features}", fontsize="medium")
        ax.legend(loc="lower right")
        return ax


@one_thread()
def compare(
    kernel: Kernel,
    X: Float[Array, "n d"],
    *,
    n_features: int = 1024,
    methods: Sequence[Method | str] | None = None,
    n_sample: int = 2000,
    random_state: Seed = None,
) -> Comparison:
    """Draw every method for a kernel, and return predicted and measured errors side by side.

    Parameters
    ----------
    kernel : Kernel
    X : (n, d)
        Rows of data; a random n_sample of them, at most a quarter, is kept to measure on, maps
        are drawn from the others.
    n_features : int, default 1024
        D, the same for all.
    methods : sequence of Method or str, optional
        Default: every method of the library that can serve a kernel whole, as named in
        :mod:`bochner.features`.
    n_sample : int, default 2000
        Rows to measure on; memory 8 n_sample².
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Comparison

    See Also
    --------
    compare_bounds : Bounds and the errors of draws, side by side.
    certify : The error of one map at the penalty of a fit.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> table = bo.compare(bo.kernels.Gaussian(2.0), X, n_features=128, random_state=0)
    >>> table.rows[0].error < 1e-3 < table.rows[-1].error or bool(table.rows[-1].refused)
    True
    """
    if not isinstance(kernel, Kernel):
        raise InvalidType(f"compare: kernel must be a Kernel, e.g. Gaussian(0.5); got {kernel!r}.")
    width = integer(n_features, "compare", "n_features", 1)
    X = as_matrix(X, "compare")
    X = X if is_sparse(X) else to_numpy(X)
    if X.shape[0] < 8:
        raise InvalidInput(f"compare: X must have at least 8 rows; got {X.shape[0]}.")
    seed = seed_of(random_state)
    n_sample = integer(n_sample, "compare", "n_sample", 2)
    order = stream(seed, "compare").permutation(X.shape[0])
    m = max(2, min(n_sample, X.shape[0] // 4))
    kept, others = (X[np.sort(part)] for part in (order[:m], order[m:]))
    options = all_methods(X.shape[1]) if methods is None else list(map(as_method, methods))
    ask = Request(X.shape[1], width, seed, X=others)
    K = to_numpy(kernel(kept, kept))
    rows = [_row(option, kernel, ask, kept, K) for option in options]
    if all(row.refused for row in rows):
        raise InvalidInput(f"compare: no method serves {kernel!r}: {rows[0].refused}")
    ranked = sorted(rows, key=lambda row: (bool(row.refused), row.error))
    return Comparison(kernel, width, kept.shape[0], tuple(ranked))


def all_methods(d: int) -> tuple[Method, ...]:
    """Return the contenders and the methods of the literature they are compared with."""
    best = contenders(d)
    kinds = dict.fromkeys(rule.method for rule in RULES)
    others = [kind() for kind in kinds if kind not in PARTIAL]
    published = (Fourier(IID()), *others, Nystrom(Uniform()))
    return (*best, *(method for method in published if method not in best))


def _row(method: Method, kernel: Kernel, ask: Request, kept: Array, K: Array) -> Compared:
    started = time.perf_counter()
    try:
        phi = draw_map(method, kernel, replace(ask, n_features=width_of(method, ask.n_features)))
    except InvalidInput as refused:
        return Compared(method, refused=str(refused))
    draw_seconds = time.perf_counter() - started
    times: list[float] = []  # the least of up to three counts: other work only adds
    while len(times) < 3 and sum(times) < 1:
        started = time.perf_counter()
        phi(kept)
        times.append(time.perf_counter() - started)
    seconds = min(times) * 1000 / kept.shape[0]
    Z = to_numpy(phi(kept))
    errors = relative_error(phi, kept, K), float(np.abs(Z @ Z.T - K).max())
    predicted = paired_error(phi, kept)
    return Compared(method, phi.n_features, predicted, *errors, draw_seconds, seconds)
