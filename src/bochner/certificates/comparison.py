"""compare and compare_bounds: tables of the methods for a kernel, and of bounds of their errors."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import integer, positive
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float, Rows
from bochner._core.text import TableResult, axes_for
from bochner._core.threads import single_thread
from bochner.certificates import bounds
from bochner.certificates.pencil import eigen, require_rows
from bochner.certificates.risks import cost_changes
from bochner.errors import InvalidInput, UnsupportedKernel, attempt
from bochner.features.auto import paired_error, relative_error, width_of
from bochner.features.compose import Compressed, Projected
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import Method, Request
from bochner.features.mercer.products import Explicit, LaplacianEigenfunctions
from bochner.features.mercer.radial import Gegenbauer
from bochner.features.networks import ReLU, Sign, polynomial_width
from bochner.features.nystrom import Nystrom, Uniform
from bochner.features.rules import RULES, as_method, contenders, draw_map
from bochner.features.sketch import Maclaurin, TensorSketch
from bochner.kernels.dotproduct import DotProductKernel, Linear, Polynomial
from bochner.kernels.kernel import Kernel, require_kernel
from bochner.kernels.zonal import Angular, ArcCosine

#: Numbers of a method, in the order of a table.
NUMBERS = ("predicted", "error", "entrywise", "draw_seconds", "seconds")


@dataclass(frozen=True)
class Comparison(TableResult):
    """Methods for a kernel and a number of features, best first: :func:`bochner.compare`.

    Attributes
    ----------
    kernel : Kernel
    n_features : int
        Requested D.
    n_sample : int
        Number of rows on which errors were measured.
    rows : tuple of Bunch
        Methods that support the kernel, by increasing error, then the others. Each has

        * ``method``, and ``n_features``: D of the map that was drawn;
        * ``predicted``: relative Frobenius error, estimated from pairs of rows;
        * ``error``: ‖ZZᵀ − K‖_F / ‖K‖_F on rows that were not used to draw the map;
        * ``entrywise``: max |ZZᵀ − K| on the same rows;
        * ``draw_seconds``, ``seconds``: time to draw the map, and to make the features of 1000
          rows;
        * ``refusal``: the error if the method does not support the kernel, else empty.
    """

    kernel: Kernel
    n_features: int
    n_sample: int
    rows: tuple[Bunch, ...]

    @property
    def best(self) -> Method:
        """The method with the least measured error."""
        return self.rows[0].method

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        title = f"{self.kernel!r}, D = {self.n_features}, errors on {self.n_sample} rows"
        head = ("method", "D", "predicted", "measured", "max error", "draw s", "s/1000 rows")
        lines: list[tuple[str, ...]] = [head]
        for row in self.rows:
            if not row.refusal:
                numbers = [f"{row[name]:.3g}" for name in NUMBERS]
                lines.append((str(row.method), str(row.n_features), *numbers))
        unsupported = ", ".join(str(row.method) for row in self.rows if row.refusal)
        return title, lines, unsupported and f"Unsupported for this kernel: {unsupported}."

    def plot(self, ax: Any = None) -> Any:
        """Draw measured errors as bars, predicted errors as marks, best on top; return the axes."""
        ax = axes_for("Comparison", ax, figsize=(7, 4))
        rows = [row for row in self.rows if not row.refusal][::-1]
        heights = np.arange(len(rows))
        ax.barh(heights, [row.error for row in rows], height=0.6, label="measured")
        ax.plot([row.predicted for row in rows], heights, "k|", ms=12, label="predicted")
        ax.set_yticks(heights, [str(row.method) for row in rows])
        ax.set_xscale("log")
        ax.set_xlabel("relative error of the kernel matrix")
        ax.set_title(f"{self.kernel!r}, D = {self.n_features}", fontsize="medium")
        ax.legend(loc="lower right")
        return ax


@single_thread()
def compare(
    kernel: Kernel,
    X: Rows,
    *,
    n_features: int = 1024,
    methods: Sequence[Method | str] | None = None,
    n_sample: int = 2000,
    random_state: Seed = None,
) -> Comparison:
    """Draw a feature map by every method; return a table of predicted and measured errors.

    Parameters
    ----------
    kernel : Kernel
    X : (n, d)
        Errors are measured on n_sample random rows, at most a quarter; maps use the other rows.
    n_features : int, default 1024
        Number of features of every map.
    methods : sequence of Method or str, optional
        Default: all methods but Compressed, Projected, Explicit and LaplacianEigenfunctions.
    n_sample : int, default 2000
        Number of rows on which errors are measured; memory 8 n_sample² bytes.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Comparison

    See Also
    --------
    compare_bounds : Table of bounds and of the errors of draws.
    certify : The error of one map at the penalty of a fit.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> methods = ["fourier", "nystrom"]
    >>> table = bo.compare(bo.kernels.Gaussian(2.0), X, methods=methods, random_state=0)
    >>> table.best == table.rows[0].method, table.rows[0].error <= table.rows[1].error
    (True, True)
    """
    require_kernel(kernel, "compare")
    width = integer(n_features, "compare", "n_features", 1)
    X = require_rows("compare", X, 8)
    X = X if is_sparse(X) else to_numpy(X)
    seed = seed_of(random_state)
    n_sample = integer(n_sample, "compare", "n_sample", 2)
    order = stream(seed, "compare").permutation(X.shape[0])
    m = max(2, min(n_sample, X.shape[0] // 4))
    test, train = (X[np.sort(part)] for part in (order[:m], order[m:]))
    options = all_methods(X.shape[1]) if methods is None else list(map(as_method, methods))
    ask = Request(X.shape[1], width, seed, X=train)
    K = to_numpy(kernel(test, test))
    rows = [_row(option, kernel, ask, test, K) for option in options]
    if all(row.refusal for row in rows):
        raise InvalidInput(f"compare: no method supports {kernel!r}: {rows[0].refusal}")
    rows.sort(key=lambda row: (bool(row.refusal), row.error))
    return Comparison(kernel, width, test.shape[0], tuple(rows))


def all_methods(d: int) -> tuple[Method, ...]:
    """Return the methods that `Auto` tries for d columns, then other published methods."""
    best = contenders(d)
    # methods that contain methods, or are for kernels with finite features or functions on a box
    exclusions = (Compressed, Projected, Explicit, LaplacianEigenfunctions)
    kinds = dict.fromkeys(r.method for r in RULES if r.needs and r.method not in exclusions)
    classics = (Fourier(IID()), *[kind() for kind in kinds], Nystrom(Uniform()))
    return (*best, *(method for method in classics if method not in best))


def _row(method: Method, kernel: Kernel, ask: Request, X: Array, K: Array) -> Bunch:
    start = time.perf_counter()
    ask = replace(ask, n_features=width_of(method, ask.n_features))
    phi = attempt(draw_map, method, kernel, ask)
    if isinstance(phi, InvalidInput):
        numbers = dict.fromkeys(NUMBERS, np.nan)
        return Bunch(method=method, n_features=0, **numbers, refusal=str(phi))
    draw_seconds = time.perf_counter() - start
    times: list[float] = []  # the shortest of up to three: other processes only add time
    while len(times) < 3 and sum(times) < 1:
        start = time.perf_counter()
        phi(X)
        times.append(time.perf_counter() - start)
    Z = to_numpy(phi(X))
    return Bunch(
        method=method,
        n_features=phi.n_features,
        predicted=paired_error(phi, X),
        error=relative_error(phi, X, K),
        entrywise=float(np.abs(Z @ Z.T - K).max()),
        draw_seconds=draw_seconds,
        seconds=min(times) * 1000 / X.shape[0],
        refusal="",
    )


@dataclass(frozen=True)
class BoundComparison(TableResult):
    """Bounds for one kernel and rows at one width: the table of :func:`bochner.compare_bounds`.

    Attributes
    ----------
    kernel : Kernel
    alpha : float
        Penalty for the rows measured.
    n_features, n_rows, n_draws : int
        Number of features, of rows measured, and of maps drawn.
    confidence : float
        Probability with which each bound holds.
    rows : tuple of Bunch
        Each has ``name``, ``bound``, ``method`` of the features and

        * ``limit``: the bound on the error at this width;
        * ``measured``: the largest error of the draws at this width, on the rows;
        * ``required``: the number of features for which the bound equals the measured error; None
          if there is none.
    """

    kernel: Kernel
    alpha: float
    n_features: int
    n_rows: int
    n_draws: int
    confidence: float
    rows: tuple[Bunch, ...]

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        head = ("theorem", "error", "bound", "measured", "features required", "times too many")
        lines: list[tuple[str, ...]] = [head]
        for row in self.rows:
            widths = ("none", "")
            if row.required is not None:
                widths = f"{row.required:,}", f"{row.required / self.n_features:.3g}"
            numbers = f"{row.limit:.3g}", f"{row.measured:.3g}"
            lines.append((row.name, row.bound.quantity, *numbers, *widths))
        title = (
            f"{self.kernel!r}, D = {self.n_features}, {self.n_rows} rows, alpha = {self.alpha:.3g}"
            f": {100 * self.confidence:.3g} % bounds, and the largest error of {self.n_draws} draws"
        )
        return title, lines, ""


def compare_bounds(
    kernel: Kernel,
    X: Rows,
    *,
    alpha: float,
    n_features: int = 1024,
    confidence: float = 0.95,
    n_draws: int = 20,
    n_sample: int = 500,
    random_state: Seed = None,
) -> BoundComparison:
    """Compare every a-priori bound at a width with the largest error of draws of features.

    Parameters
    ----------
    kernel : Kernel
        A function of x − y, for Fourier features; rotation-invariant, for Gegenbauer features;
        ``Angular``, ``ArcCosine`` and ``Polynomial`` also have bounds for their own features.
    X : (n, d)
    alpha : float
        Penalty, on the scale of the n rows.
    n_features : int, default 1024
        D, rounded down to an even number.
    confidence : float, default 0.95
    n_draws : int, default 20
        Number of independent maps; their largest error, for 20 about the 95 % quantile, is shown.
    n_sample : int, default 500
        Number of rows measured, m, at the penalty alpha·m/n.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    BoundComparison
        O(n_draws (m² D + m³)).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> table = bo.compare_bounds(
    ...     bo.kernels.Gaussian(), X, alpha=1.0, n_features=256, n_draws=3, random_state=0
    ... )
    >>> [row.name for row in table.rows[:3]]
    ['Hoeffding', 'Bernstein', 'Rahimi-Recht']
    >>> all(row.measured < row.limit for row in table.rows)
    True
    """
    caller = "compare_bounds"
    require_kernel(kernel, caller)
    alpha = positive(alpha, caller, "alpha")
    D = integer(n_features, caller, "n_features", 2)
    D -= D % 2
    integer(n_draws, caller, "n_draws", 1)
    bounds.chance_of(confidence)
    seed = seed_of(random_state)
    n_sample = integer(n_sample, caller, "n_sample", 2)
    data = bounds.dense_rows(X, caller)
    rows = data[np.sort(stream(seed, "bounds").permutation(len(data))[:n_sample])]
    penalty = alpha * len(rows) / len(data)
    entries = list(_entries(kernel, rows, penalty, D, confidence))
    if not entries:
        raise UnsupportedKernel(
            f"{caller} requires a kernel of x − y, or a rotation-invariant one; got {kernel!r}. "
            "certify measures the error of any map."
        )
    K, errors = to_numpy(kernel(rows)), np.zeros(len(entries))
    for i in range(n_draws):  # bounds of one method share its maps
        ask = Request(rows.shape[1], D, int(stream(seed, "bounds", i).integers(2**31)), X=rows)
        errors_of_maps: dict[Method, Array] = {}
        for j, (_, _, method, measure) in enumerate(entries):
            if method not in errors_of_maps:
                Z = to_numpy(draw_map(method, kernel, ask)(rows))
                errors_of_maps[method] = Z @ Z.T - K
            errors[j] = max(errors[j], measure(errors_of_maps[method]))
    lines = []
    for (name, bound, method, _), error in zip(entries, errors.tolist(), strict=True):
        width, limit = bound.least_width(error, confidence), bound.error(D, confidence)
        labels = {"name": name, "bound": bound, "method": method, "limit": limit}
        lines.append(Bunch(**labels, measured=error, required=width))
    return BoundComparison(kernel, penalty, D, len(rows), n_draws, confidence, tuple(lines))


def _entries(
    kernel: Kernel, rows: Float[np.ndarray, "n d"], alpha: float, D: int, confidence: float
) -> Iterator[tuple[str, bounds.Bound, Method, Callable[[Array], float]]]:
    """Yield the bounds that hold for a kernel: name, bound, method and measure of its error."""
    values, vectors = eigen(kernel, rows, "compare_bounds")
    norm, W = float(values[-1]), vectors / np.sqrt(values + alpha)
    largest = lambda A: float(np.abs(eigvalsh(A, check_finite=False)).max())
    operator = lambda E: largest(E) / norm
    spectral = lambda E: largest(W.T @ E @ W)
    if (frequencies := kernel.spectral(rows.shape[1])) is not None:
        pairs, fourier = Fourier(IID()), partial(bounds.fourier_bound, kernel, rows)
        rank = min(10, len(rows) - 1)
        entries = lambda E: float(np.abs(E).max())
        costs = lambda E: max(map(abs, cost_changes(E, rank))) / float(values[:-rank].sum())
        yield "Hoeffding", fourier("hoeffding"), pairs, entries
        yield "Bernstein", fourier("bernstein"), pairs, entries
        if frequencies.second_moment < math.inf:
            yield "Rahimi-Recht", fourier("rahimi_recht"), pairs, entries
        yield "matrix Bernstein", fourier("operator_norm"), pairs, operator
        yield "leverage n/λ", fourier("spectral", alpha=alpha), pairs, spectral
        if float(values[:-rank].sum()) <= rank * norm:  # else the penalty is above ‖K‖
            yield f"cost of rank {rank}", fourier("projection_cost", rank=rank), pairs, costs
    features = partial(bounds.features_bound, kernel, rows)
    if isinstance(kernel, Angular):
        signs = Sign(IID())
        yield "matrix Bernstein, signs", features(signs), signs, operator
    if isinstance(kernel, ArcCosine):
        split = 2 * polynomial_width(kernel.order, rows.shape[1]) <= D
        ramps = ReLU(kernel.order, IID(), split=split)
        yield "matrix Bernstein, ReLU", features(ramps), ramps, operator
    if isinstance(kernel, Polynomial):
        relative = lambda E: float(np.linalg.norm(E)) / norm
        yield "Chebyshev, TensorSketch", features(TensorSketch()), TensorSketch(), relative
    if isinstance(kernel, DotProductKernel) and not isinstance(kernel, Linear):
        products = Maclaurin("geometric")
        bound = attempt(features, products)
        if isinstance(bound, bounds.Bound):  # the terms of its series fall
            yield "matrix Bernstein, Maclaurin", bound, products, operator

    def apply(bound_of: Callable[..., bounds.Bound]) -> tuple[bounds.Bound, bounds.Bound]:
        zonal = bound_of(kernel, rows, alpha=alpha)
        return zonal, zonal.best_cut(D, confidence)

    theorems = {"lemma 7": bounds.zonal_bound, "theorems 11 and 12": bounds.ball_bound}
    for name, bound_of in theorems.items():
        pair = attempt(apply, bound_of)
        if isinstance(pair, tuple):  # the theorem covers this kernel and these rows
            zonal, simple = pair
            radial = "optimal" if all(c.order == 1 for c in zonal.cuts) else "monomial"
            gegenbauer = Gegenbauer(radial, order=simple.order, degree=simple.degree)
            yield f"Gegenbauer, {name}", zonal, gegenbauer, spectral
