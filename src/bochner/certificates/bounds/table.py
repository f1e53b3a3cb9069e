"""One table of bounds: their promises, their requirements and the measured errors."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import integer, positive
from bochner._core.html import HtmlResult, html_table, paragraph
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner._core.text import columns
from bochner.certificates.bounds import tails
from bochner.certificates.bounds.zonal import BallBound, GegenbauerSizes, ball_bound, zonal_bound
from bochner.certificates.pointwise import KernelEigen, draw_leverages, eigen
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.method import Method, Request
from bochner.features.random.gegenbauer import Gegenbauer
from bochner.features.random.networks import ReLU, Sign, polynomial_width
from bochner.features.rules import draw_map
from bochner.features.sketch.maclaurin import Maclaurin
from bochner.features.sketch.polysketch import TensorSketch
from bochner.features.widths import is_stationary
from bochner.kernels.dotproduct import DotProductKernel, Linear, Polynomial
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import Angular, ArcCosine


@dataclass(frozen=True)
class ComparedBound:
    """One row of a :class:`BoundComparison`: a bound of the features of a method."""

    name: str
    bound: tails.Bound
    method: Method
    measure: Callable[[Float[np.ndarray, "n n"]], float] = field(repr=False)  # size of Z Zᵀ − K
    proved: bool = True
    limit: float = np.nan
    measured: float = np.nan
    required: int | None = None
    sizes: GegenbauerSizes | None = None


HEAD = ("theorem", "error", "bound", "measured", "features required", "times too many")


@dataclass(frozen=True)
class BoundComparison(HtmlResult):
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

        * ``proved``: False if the leverage was measured on draws, which may miss larger ones, and
          for the bound that was printed for phases but holds for pairs;
        * ``limit``: the bound on the error at this width;
        * ``measured``: the largest error of the draws at this width, on the rows;
        * ``required``: the number of features for which the bound equals the measured error; None
          if there is none;
        * ``sizes``: of theorems 11 and 12, degree, order and directions of these features.

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
    >>> [row.name for row in table.rows if not row.proved]
    ['Rahimi-Recht, as printed', 'leverage measured']
    >>> len(table.rows), table.n_rows
    (10, 100)
    """

    kernel: Kernel
    alpha: float
    n_features: int
    n_rows: int
    n_draws: int
    confidence: float
    rows: tuple[ComparedBound, ...]

    def __str__(self) -> str:
        table = columns([HEAD, *map(self._cells, self.rows)], words=(0, 1))
        return "\n".join(filter(None, [self._title, table, self._tail]))

    def _html_parts(self) -> Iterator[str]:
        """Yield the table and the meaning of its marks."""
        yield html_table(HEAD, [*map(self._cells, self.rows)], self._title)
        if self._tail:
            yield paragraph(self._tail)

    @property
    def _title(self) -> str:
        return (
            f"{self.kernel!r}, D = {self.n_features}, {self.n_rows} rows, alpha = {self.alpha:.3g}"
            f": {100 * self.confidence:.3g} % bounds, and the largest error of {self.n_draws} draws"
        )

    @property
    def _tail(self) -> str:
        sizes = [f"{r.name}: for the error found {r.sizes}." for r in self.rows if r.sizes]
        last = "* not proved" if not all(r.proved for r in self.rows) else ""
        return "\n".join(filter(None, [*sizes, last]))

    def _cells(self, row: ComparedBound) -> tuple[str, ...]:
        return (
            row.name + ("" if row.proved else " *"),
            row.bound.quantity,
            f"{row.limit:.3g}",
            f"{row.measured:.3g}",
            "none" if row.required is None else f"{row.required:,}",
            "" if row.required is None else f"{row.required / self.n_features:.3g}",
        )


def compare_bounds(
    kernel: Kernel,
    X: Float[Array, "n d"],
    *,
    alpha: float,
    n_features: int = 1024,
    rank: int = 10,
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
    rank : int, default 10
        Of the projections whose cost is bounded.
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
    >>> all(row.measured < row.limit for row in table.rows if row.proved)
    True
    """
    if not isinstance(kernel, Kernel):
        raise InvalidType(f"compare_bounds: kernel must be a Kernel; got {kernel!r}.")
    alpha = positive(alpha, "compare_bounds", "alpha")
    D = integer(n_features, "compare_bounds", "n_features", 2)
    integer(n_draws, "compare_bounds", "n_draws", 1)
    tails.chance_of(confidence)
    seed = seed_of(random_state)
    n_sample = integer(n_sample, "compare_bounds", "n_sample", 2)
    rows_all = tails.dense_rows(X, "compare_bounds")
    rows = rows_all[np.sort(stream(seed, "bounds").permutation(len(rows_all))[:n_sample])]
    penalty = alpha * len(rows) / len(rows_all)
    ruler = Ruler.of(eigen(kernel, rows, "compare_bounds"), penalty, rank)
    asked = Request(rows.shape[1], D - D % 2, seed, X=rows)
    entries = list(_entries(kernel, rows, ruler, asked, confidence))
    if not entries:
        raise UnsupportedKernel(
            f"compare_bounds requires a kernel of x − y, or a rotation-invariant one; got "
            f"{kernel!r}. certify measures the error of any map."
        )
    errors, D = _measured_error(entries, kernel, rows, asked, n_draws), asked.n_features
    pairs = zip(entries, errors, strict=True)
    compared = tuple(_compared(entry, error, D, confidence) for entry, error in pairs)
    return BoundComparison(kernel, penalty, D, len(rows), n_draws, confidence, compared)


class Ruler(NamedTuple):
    """The measure of errors of the kernel matrix."""

    eigen: KernelEigen
    penalty: float
    rank: int
    whitening: Float[np.ndarray, "n n"]
    best_cost: float

    @classmethod
    def of(cls, eigen: KernelEigen, penalty: float, rank: int) -> "Ruler":
        """Prepare the whitening (K + λI)^(-½), and the least cost of rank k."""
        rank = min(integer(rank, "compare_bounds", "rank", 1), len(eigen.values) - 1)
        whitening = eigen.vectors / np.sqrt(eigen.values + penalty)
        return cls(eigen, penalty, rank, whitening, float(eigen.values[:-rank].sum()))

    def operator(self, E: Float[np.ndarray, "n n"]) -> float:
        """Return ‖E‖/‖K‖."""
        return float(np.abs(eigvalsh(E, check_finite=False)).max() / self.eigen.values[-1])

    def spectral(self, E: Float[np.ndarray, "n n"]) -> float:
        """Return the spectral distance."""
        W = self.whitening
        return float(np.abs(eigvalsh(W.T @ E @ W, check_finite=False)).max())

    def costs(self, E: Float[np.ndarray, "n n"]) -> float:
        """Return the largest error of the cost of a projection, relative to the least cost."""
        values, trace = eigvalsh(E, check_finite=False), float(np.trace(E))
        least, most = trace - values[-self.rank :].sum(), trace - values[: self.rank].sum()
        return float(max(abs(least), abs(most)) / self.best_cost)


def _entries(
    kernel: Kernel, rows: Array, ruler: Ruler, ask: Request, confidence: float
) -> Iterator[ComparedBound]:
    if is_stationary(kernel):
        yield from _fourier(kernel, rows, ruler, ask)
    if isinstance(kernel, Angular):
        signs = Sign(IID())
        bound = tails.features_bound(kernel, rows, signs)
        yield ComparedBound("matrix Bernstein, signs", bound, signs, ruler.operator)
    if isinstance(kernel, ArcCosine):
        split = 2 * polynomial_width(kernel.order, ask.n_inputs) <= ask.n_features
        ramps = ReLU(kernel.order, IID(), split=split)
        of_ramps = tails.features_bound(kernel, rows, ramps)
        yield ComparedBound("matrix Bernstein, ReLU", of_ramps, ramps, ruler.operator)
    if isinstance(kernel, Polynomial):
        size = float(ruler.eigen.values[-1])
        relative = lambda E: float(np.linalg.norm(E)) / size
        sketch = tails.features_bound(kernel, rows, TensorSketch())
        yield ComparedBound("Chebyshev, TensorSketch", sketch, TensorSketch(), relative)
    if isinstance(kernel, DotProductKernel) and not isinstance(kernel, Linear):
        with suppress(InvalidInput):  # terms that do not fall
            products = Maclaurin("geometric")
            of_products = tails.features_bound(kernel, rows, products)
            yield ComparedBound(
                "matrix Bernstein, Maclaurin", of_products, products, ruler.operator
            )
    with suppress(InvalidInput):  # of another kernel, or with more degrees than can be summed
        zonal = zonal_bound(kernel, rows, alpha=ruler.penalty)
        cut = zonal.cut_for(ask.n_features, confidence)
        single = all(c.order == 1 for c in zonal.cuts)
        method = Gegenbauer("optimal" if single else "monomial", order=cut.order, degree=cut.degree)
        yield ComparedBound("Gegenbauer, lemma 7", zonal, method, ruler.spectral)
    with suppress(InvalidInput):
        ball = ball_bound(kernel, rows, alpha=ruler.penalty)
        sizes = ball.sizes(ball.error(ask.n_features, confidence), confidence)
        method = Gegenbauer("monomial", order=sizes.order, degree=sizes.degree)
        yield ComparedBound(f"Gegenbauer, theorem {ball.theorem}", ball, method, ruler.spectral)


def _fourier(kernel: Kernel, rows: Array, ruler: Ruler, ask: Request) -> Iterator[ComparedBound]:
    pairs, by = Fourier(IID()), partial(tails.fourier_bound, kernel, rows)
    entries = lambda E: float(np.abs(E).max())
    yield ComparedBound("Hoeffding", by("hoeffding"), pairs, entries)
    yield ComparedBound("Bernstein", by("bernstein"), pairs, entries)
    with suppress(UnsupportedKernel):  # frequencies of infinite variance
        yield ComparedBound("Rahimi-Recht", by("rahimi_recht"), pairs, entries)
        printed = by("rahimi_recht_printed", "phase")
        phases = Fourier(IID(), form="phase")
        yield ComparedBound("Rahimi-Recht, as printed", printed, phases, entries, proved=False)
    yield ComparedBound("matrix Bernstein", by("operator_norm"), pairs, ruler.operator)
    uniform = by("spectral", alpha=ruler.penalty)
    yield ComparedBound("leverage n/λ", uniform, pairs, ruler.spectral)
    # The largest leverage of 4096 frequencies, no less than its mean.
    phi = draw_map(Fourier(IID()), kernel, replace(ask, n_features=8192))
    leverages = draw_leverages(np.asarray(phi(rows)), ruler.eigen, ruler.penalty, 2)
    d = tails.effective("compare_bounds", kernel, rows, ruler.penalty)
    measured = tails.leverage_bound(max(float(leverages.max()), d), d)
    yield ComparedBound("leverage measured", measured, pairs, ruler.spectral, proved=False)
    with suppress(InvalidInput):  # of directions beyond the rank, more than ‖K‖ for each within
        costs = by("projection_cost", rank=ruler.rank)
        yield ComparedBound(f"cost of rank {ruler.rank}", costs, pairs, ruler.costs)


def _measured_error(
    entries: list[ComparedBound], kernel: Kernel, rows: Array, ask: Request, n_draws: int
) -> list[float]:
    """Return each entry's largest error over the draws; entries of one method share maps."""
    K, largest = to_numpy(kernel(rows)), np.zeros(len(entries))
    for i in range(n_draws):
        request = replace(ask, seed=int(stream(ask.seed, "bounds", i).integers(2**31)))
        errors: dict[Method, Array] = {}
        for j, entry in enumerate(entries):
            if entry.method not in errors:
                Z = to_numpy(draw_map(entry.method, kernel, request)(rows))
                errors[entry.method] = Z @ Z.T - K
            largest[j] = max(largest[j], entry.measure(errors[entry.method]))
    return largest.tolist()


def _compared(row: ComparedBound, measured: float, D: int, confidence: float) -> ComparedBound:
    bound, required, sizes = row.bound, None, None
    with suppress(InvalidInput):  # below the truncation error
        required = bound.width(measured, confidence)
        sizes = bound.sizes(measured, confidence) if isinstance(bound, BallBound) else None
    limit = bound.error(D, confidence)
    return replace(row, limit=limit, measured=measured, required=required, sizes=sizes)
