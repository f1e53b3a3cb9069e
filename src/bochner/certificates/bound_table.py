"""One table of bounds: their promises, their requirements and the measured errors."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import integer, positive
from bochner._core.html import TableResult
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds import (
    Bound,
    ball_bound,
    chance_of,
    dense_rows,
    features_bound,
    fourier_bound,
    zonal_bound,
)
from bochner.certificates.leverage import eigen
from bochner.certificates.risks import cost_ends
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features.composed import is_stationary
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.method import Method, Request
from bochner.features.random.gegenbauer import Gegenbauer
from bochner.features.random.networks import ReLU, Sign, polynomial_width
from bochner.features.rules import draw_map
from bochner.features.sketch.maclaurin import Maclaurin
from bochner.features.sketch.polysketch import TensorSketch
from bochner.kernels.dotproduct import DotProductKernel, Linear, Polynomial
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import Angular, ArcCosine

Measure = Callable[[Float[np.ndarray, "n n"]], float]  # the size of Z Zᵀ − K


HEAD = ("theorem", "error", "bound", "measured", "features required", "times too many")


@dataclass(frozen=True)
class ComparedBound:
    """One row of a :class:`BoundComparison`: a bound of the features of a method."""

    name: str
    bound: Bound
    method: Method
    limit: float
    measured: float
    required: int | None


@dataclass(frozen=True)
class BoundComparison(TableResult):
    """Bounds for one kernel and rows at one width; prints as a table.

    Attributes
    ----------
    kernel : Kernel
    alpha : float
        Penalty for the rows measured.
    n_features, n_rows, n_draws : int
    confidence : float
    rows : tuple
        Each has ``name``, ``bound``, ``method`` of the features and

        * ``limit``: the bound on the error at this width;
        * ``measured``: the largest error of the draws at this width, on the rows;
        * ``required``: the number of features for which the bound equals the measured error; None
          if there is none.

    See Also
    --------
    bochner.compare_bounds : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> table = bo.compare_bounds(
    ...     bo.kernels.Gaussian(), X, alpha=1.0, n_features=256, n_draws=3, random_state=0
    ... )
    >>> len(table.rows), table.n_rows
    (8, 100)
    """

    kernel: Kernel
    alpha: float
    n_features: int
    n_rows: int
    n_draws: int
    confidence: float
    rows: tuple[ComparedBound, ...]

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        lines: list[tuple[str, ...]] = [HEAD]
        for row in self.rows:
            asked = ("none", "")
            if row.required is not None:
                asked = f"{row.required:,}", f"{row.required / self.n_features:.3g}"
            numbers = f"{row.limit:.3g}", f"{row.measured:.3g}"
            lines.append((row.name, row.bound.quantity, *numbers, *asked))
        title = (
            f"{self.kernel!r}, D = {self.n_features}, {self.n_rows} rows, alpha = {self.alpha:.3g}"
            f": {100 * self.confidence:.3g} % bounds, and the largest error of {self.n_draws} draws"
        )
        return title, lines, ""


def compare_bounds(
    kernel: Kernel,
    X: Float[Array, "n d"],
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
        Of x − y, for bounds of Fourier features; rotation-invariant, for Gegenbauer features;
        ``Angular``, ``ArcCosine`` and ``Polynomial`` also have bounds for their own features.
    X : (n, d)
    alpha : float
        Penalty, on the scale of the n rows.
    n_features : int, default 1024
        D.
    confidence : float, default 0.95
    n_draws : int, default 20
        Independent maps whose largest error is shown: at 20 about the 95 % quantile.
    n_sample : int, default 500
        Rows measured, at the penalty alpha·m/n.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    BoundComparison
        ``required`` of each row is the width at which its bound equals the error that D features
        have: how many a fit would take that trusts the bound. O(n_draws (m² D + m³)).

    See Also
    --------
    certify : Measure the error of one map.
    compare : Methods for a kernel, side by side.

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
    who = "compare_bounds"
    if not isinstance(kernel, Kernel):
        raise InvalidType(f"{who}: kernel must be a Kernel; got {kernel!r}.")
    alpha = positive(alpha, who, "alpha")
    D = integer(n_features, who, "n_features", 2)
    D -= D % 2
    integer(n_draws, who, "n_draws", 1)
    chance_of(confidence)
    seed = seed_of(random_state)
    n_sample = integer(n_sample, who, "n_sample", 2)
    every = dense_rows(X, who)
    rows = every[np.sort(stream(seed, "bounds").permutation(len(every))[:n_sample])]
    penalty = alpha * len(rows) / len(every)
    entries = list(_entries(kernel, rows, penalty, D, confidence))
    if not entries:
        raise UnsupportedKernel(
            f"{who} requires a kernel of x − y, or a rotation-invariant one; got {kernel!r}. "
            "certify measures the error of any map."
        )
    K, errors = to_numpy(kernel(rows)), np.zeros(len(entries))
    for i in range(n_draws):  # bounds of one method share its maps
        ask = Request(rows.shape[1], D, int(stream(seed, "bounds", i).integers(2**31)), X=rows)
        drawn: dict[Method, Array] = {}
        for j, (_, _, method, measure) in enumerate(entries):
            if method not in drawn:
                Z = to_numpy(draw_map(method, kernel, ask)(rows))
                drawn[method] = Z @ Z.T - K
            errors[j] = max(errors[j], measure(drawn[method]))
    compared = []
    for (name, bound, method, _), error in zip(entries, errors.tolist(), strict=True):
        required = None
        with suppress(InvalidInput):  # below the truncation error
            required = bound.width(error, confidence)
        limit = bound.error(D, confidence)
        compared.append(ComparedBound(name, bound, method, limit, error, required))
    return BoundComparison(kernel, penalty, D, len(rows), n_draws, confidence, tuple(compared))


def _entries(
    kernel: Kernel, rows: Float[np.ndarray, "n d"], alpha: float, D: int, confidence: float
) -> Iterator[tuple[str, Bound, Method, Measure]]:
    """Yield the bounds that hold for a kernel: name, bound, method and measure of its error."""
    values, vectors = eigen(kernel, rows, "compare_bounds")
    norm, W = float(values[-1]), vectors / np.sqrt(values + alpha)
    largest = lambda A: float(np.abs(eigvalsh(A, check_finite=False)).max())
    operator = lambda E: largest(E) / norm
    spectral = lambda E: largest(W.T @ E @ W)
    if is_stationary(kernel):
        pairs, by = Fourier(IID()), partial(fourier_bound, kernel, rows)
        rank = min(10, len(rows) - 1)
        entries = lambda E: float(np.abs(E).max())
        costs = lambda E: max(map(abs, cost_ends(E, rank))) / float(values[:-rank].sum())
        yield "Hoeffding", by("hoeffding"), pairs, entries
        yield "Bernstein", by("bernstein"), pairs, entries
        with suppress(UnsupportedKernel):  # frequencies of infinite variance
            yield "Rahimi-Recht", by("rahimi_recht"), pairs, entries
        yield "matrix Bernstein", by("operator_norm"), pairs, operator
        yield "leverage n/λ", by("spectral", alpha=alpha), pairs, spectral
        with suppress(InvalidInput):  # of directions beyond the rank, more than ‖K‖ for each within
            yield f"cost of rank {rank}", by("projection_cost", rank=rank), pairs, costs
    own = partial(features_bound, kernel, rows)
    if isinstance(kernel, Angular):
        signs = Sign(IID())
        yield "matrix Bernstein, signs", own(signs), signs, operator
    if isinstance(kernel, ArcCosine):
        split = 2 * polynomial_width(kernel.order, rows.shape[1]) <= D
        ramps = ReLU(kernel.order, IID(), split=split)
        yield "matrix Bernstein, ReLU", own(ramps), ramps, operator
    if isinstance(kernel, Polynomial):
        relative = lambda E: float(np.linalg.norm(E)) / norm
        yield "Chebyshev, TensorSketch", own(TensorSketch()), TensorSketch(), relative
    if isinstance(kernel, DotProductKernel) and not isinstance(kernel, Linear):
        products = Maclaurin("geometric")
        with suppress(InvalidInput):  # terms that do not fall
            yield "matrix Bernstein, Maclaurin", own(products), products, operator
    for name, bound_of in (("lemma 7", zonal_bound), ("theorems 11 and 12", ball_bound)):
        with suppress(InvalidInput):  # of another kernel, or with more degrees than can be summed
            zonal = bound_of(kernel, rows, alpha=alpha)
            cut = zonal.cut_for(D, confidence)
            radial = "optimal" if all(c.order == 1 for c in zonal.cuts) else "monomial"
            gegenbauer = Gegenbauer(radial, order=cut.order, degree=cut.degree)
            yield f"Gegenbauer, {name}", zonal, gegenbauer, spectral
