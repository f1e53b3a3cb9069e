"""Auto: choose a feature method by its measured error on the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from bochner._core.arrays import is_sparse, slices, to_numpy
from bochner._core.blas import product
from bochner._core.checks import Positive, each, integer, optional
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.sizes import FEW_CELLS
from bochner._core.text import HtmlResult, html_table, paragraph
from bochner.errors import InvalidInput, UnsupportedKernel, attempted
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import Draw, FeatureMap, Method, Request, kind_of
from bochner.features.nystrom import KMeans, Nystrom, NystromMap
from bochner.kernels.kernel import Kernel
from bochner.solvers.ridge import eigen as ridge
from bochner.solvers.ridge.solution import NO_ERROR, SAME, SAME_FLOAT32, best_of, pooled
from bochner.sums.moments import Moments

PAIRS = 1000  # Pairs of rows that errors of the kernel matrix are predicted from


def paired_error(phi: FeatureMap, X: Float[Array, "n d"]) -> float:
    """Return an estimate of ‖ZZᵀ − K‖_F/‖K‖_F from pairs of neighbouring rows and the diagonal."""
    # Rows are in random order: a pair weighs n − 1, an entry of the diagonal one.
    n = X.shape[0] - X.shape[0] % 2
    first, second = X[: min(n, 2 * PAIRS) : 2], X[1 : min(n, 2 * PAIRS) : 2]
    Z, V = to_numpy(phi.features(first)).astype(float), to_numpy(phi.features(second)).astype(float)
    few = slices(first.shape[0], 50)
    parts = [np.diag(to_numpy(phi.kernel.evaluate(first[rows], second[rows]))) for rows in few]
    k = np.concatenate(parts).astype(float)
    diag = to_numpy(phi.kernel.diagonal(first)).astype(float)
    off, diagonal_error = (Z * V).sum(axis=1) - k, (Z * Z).sum(axis=1) - diag
    error = (n - 1) * (off**2).mean() + (diagonal_error**2).mean()
    size = (n - 1) * (k**2).mean() + (diag**2).mean()
    return float(np.sqrt(error / max(size, np.finfo(float).tiny)))


# --- The error of a fit to all rows with a map, predicted from a sample of rows with targets -----
#
# Leave-one-out errors of the sample are extrapolated to all rows at every penalty of the path, and
# the fit chooses its own penalty: maps are compared by the least of these errors.


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of sampled rows, and the fit to all rows that the sample represents."""

    y: Float[Array, "m t"]
    w: Float[Array, " m"]  # weights, positive
    n_rows: int  # rows of the fit, m or more
    share: float | None = None  # a given per-row penalty (alpha/n); None where the fit chooses it


def left_out(
    Z: Float[Array, "m D"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"] | None = None,
    share: float | None = None,
    dtype: Any = np.float64,
    ratio: float = 1.0,
) -> tuple[ridge.Eigen, Float[Array, " a"], Float[Array, " a"]]:
    """Return the spectrum, penalties (one if a share is given) and their errors; O(m D² + D³).

    Errors are leave-one-out mean squared errors of ridge regression on features.
    """
    moments = Moments.of(Z, y, w)
    eigen = ridge.decompose(moments)
    alphas = (
        ridge.penalties(eigen)
        if share is None
        else np.array([ridge.equivalent_alpha(eigen, share, ratio)])
    )
    centred = (Z - moments.feature_mean).astype(dtype, copy=False), y - moments.target_mean, w
    errors = pooled(ridge.left_out_path(eigen, [centred], alphas).each, eigen.power / eigen.weight)
    if dtype != np.float64 and not np.isfinite(errors[max(int(errors.argmin()) - 1, 0)]):
        return left_out(Z, y, w, share, ratio=ratio)  # the best may lie where these overflow
    return eigen, alphas, errors


def judge(phi: FeatureMap, X: Float[Array, "m d"], targets: Targets) -> tuple[float, float]:
    """Return the predicted mean squared error of a fit to all rows, and its penalty over ‖G‖."""
    Z = to_numpy(phi(X)).astype(np.float64, copy=False)
    ratio = targets.n_rows / max(int(np.count_nonzero(targets.w)), 1)
    # Of float32 for speed: the errors of two maps differ by far more than its rounding.
    about = targets.y, targets.w, targets.share
    eigen, alphas, errors = left_out(Z, *about, np.float32, ratio)
    errors, alphas = ridge.extrapolate(eigen, errors, alphas, ratio)
    best = best_of(errors, "loo", SAME_FLOAT32)
    variance = float(eigen.power.max()) / eigen.weight
    return max(float(errors[best]), NO_ERROR * variance), float(alphas[best] / (ratio * eigen.top))


# --- Auto: the method that serves a kernel best, or with targets a fit, on a sample of rows ------
#
# All candidates have the same width, and none may cost much more than the cheapest.

#: A candidate is measured if its predicted error is at most this many times the least.
PROMISING = 3.0
LEAST = 1e-6  # Rounding of a kernel matrix in float32: errors below it are equal
ROWS_A_FEATURE, MANY = 4, 2048  # Rows per feature, and rows, of which errors are extrapolated
NARROWED = 3 / 8  # Share of the width at which maps are judged if there are too few rows
#: Landmarks where rows are dense, beside pivots, for a learner with targets.
CENTRES = Nystrom(KMeans(iterations=2, seeds="random"))


@dataclass(frozen=True)
class Auto(Method):
    """Draw every candidate, and keep the cheapest whose error is about the smallest.

    Parameters
    ----------
    candidates : tuple of Method, optional
        Default: all that :func:`bochner.features.rules.contenders` names and that serve the kernel.
    budget : float, default 4
        Largest cost of a candidate (features and moments), relative to the cheapest.
    sample : int, default 1000
        Rows on which the error of the kernel matrix is measured; none of them is a landmark.

    See Also
    --------
    compare : Show the errors of several methods.
    plan : Choose method and width for a fit.

    Notes
    -----
    The error ‖ZZᵀ − K‖_F / ‖K‖_F is predicted from a thousand pairs of rows. Candidates with at
    most three times the least prediction are measured on the sample, and the cheapest within a
    tenth of the least error is taken. If D is at least the number of different rows, Nyström with
    all of them is exact and is taken. Without rows the choice is ``Fourier(Orthogonal())``.

    With targets, up to four candidates are compared by the error of the fit: landmarks by pivots
    and by k-means, the most accurate other map, and the cheapest. Leave-one-out errors of half of
    the sampled rows, at most 2048 or 1.5 D, none of them a landmark, are extrapolated; the cheapest
    within 2 % of the least is taken. With fewer than four such rows per feature, maps of three
    eighths of the width are compared; with fewer than 1.5 the error of the kernel matrix decides.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.Auto(candidates=(bo.Fourier(), bo.HermiteMercer()))
    >>> phi = bo.draw(Gaussian(), method, n_features=32, X=X, random_state=0)
    >>> phi(X).shape
    (50, 32)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.1
    True
    """

    candidates: Annotated[
        tuple[Method, ...] | None,
        optional(each(kind_of("a method, such as Fourier() or Nystrom()", Method))),
    ] = None
    budget: Positive = 4.0
    sample: Annotated[int, partial(integer, least=2)] = 1000


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison; None for numbers that are not computed."""

    method: Method
    predicted: float  # Relative error of the kernel matrix, and the error that was measured
    error: float | None
    multiplications: float  # Per row
    extrapolated: float | None = None  # Mean squared error of a fit to all rows
    penalty: float | None = None  # Of this fit, as a share of ‖G‖


@dataclass(frozen=True, eq=False)
class Choice(HtmlResult):
    """The chosen method, the candidates, and the reason."""

    map: FeatureMap | None  # None if the rows are nearest neighbours only
    method: Method
    candidates: tuple[Candidate, ...]  # All that were drawn; empty when nothing had to be
    reason: str  # A sentence

    def __str__(self) -> str:
        return self.reason

    def _html_parts(self) -> Iterator[str]:
        """Return the reason, and the candidates with the errors of each."""
        yield paragraph(self.reason)
        if not self.candidates:
            return
        said = lambda value: "–" if value is None else f"{value:.3g}"
        columns = {
            "method": [str(c.method) for c in self.candidates],
            "predicted kernel error": [said(c.predicted) for c in self.candidates],
            "measured": [said(c.error) for c in self.candidates],
            "multiplications a row": [f"{c.multiplications:,.0f}" for c in self.candidates],
            "squared error": [said(c.extrapolated) for c in self.candidates],
        }
        marked = next((i for i, c in enumerate(self.candidates) if c.method == self.method), -1)
        yield html_table(tuple(columns), list(zip(*columns.values(), strict=True)), marked=marked)


#: A candidate and the map that was drawn.
Row = tuple[Candidate, FeatureMap]


def best_candidate(
    method: Auto,
    kernel: Kernel,
    ask: Request,
    draw: Draw,
    targets: Targets | None,
    usual: tuple[Method, ...],
) -> Choice:
    """Pick a candidate of ``method``, or a usual one; ``targets`` are of the rows of ``ask``."""
    D = ask.n_features
    if (X := ask.X) is None:
        pairs = Fourier(Orthogonal(), "pair" if D > 1 else "phase")
        phi = draw(pairs, kernel, replace(ask, n_features=width_of(pairs, D)))
        return Choice(phi, pairs, (), f"{pairs}: there were no rows to measure on.")
    n = X.shape[0]
    large = n > 4 * D or (is_sparse(X) and n * X.shape[1] > FEW_CELLS)
    if method.candidates is None and not large:
        different = np.unique(to_numpy(X), axis=0).astype(np.float64)
        if len(different) <= D:
            reason = (
                f"Nystrom: {D} features hold all {len(different)} different rows, so the fit is "
                "that of the exact kernel."
            )
            return Choice(NystromMap(kernel, different), Nystrom(), (), reason)
    fewest = max(512, int(ROWS_A_FEATURE * NARROWED * D))
    judged = None if targets is None or n // 2 < fewest else targets
    options = method.candidates or (usual if judged is None else (*usual, CENTRES))
    m = max(2, min(method.sample, n // 4)) if judged is None else min(n // 2, max(MANY, fewest))
    # Errors are measured on rows outside the draw: features of landmarks are exact at landmarks.
    order = ask.stream("auto").permutation(n)
    kept, others = np.sort(order[:m]), np.sort(order[m:])
    narrow = judged is not None and m < ROWS_A_FEATURE * D  # no wider than the rows allow
    asked = replace(ask, X=X[others], n_features=int(NARROWED * D) if narrow else D)
    sample = kept if judged is None else kept[:: max(1, m // method.sample)]
    rows, most = _candidates(draw, method, options, kernel, asked, X[sample])
    if judged is None:
        (best, phi), reason = _by_kernel(rows, most, X[kept], kernel)
    else:
        judged = replace(judged, y=judged.y[kept], w=judged.w[kept])
        (best, phi), reason = _by_targets(rows, most, X[kept], judged)
    if narrow:
        phi = draw(best.method, kernel, replace(ask, n_features=width_of(best.method, D)))
    return Choice(phi, best.method, tuple(candidate for candidate, _ in rows), reason)


def _candidates(
    draw: Draw, method: Auto, options: tuple[Method, ...], kernel: Kernel, ask: Request, kept: Array
) -> tuple[list[Row], float]:
    """Return the candidates that serve the kernel, and the multiplications that are allowed."""
    candidates: list[Row] = []
    refused: list[InvalidInput] = []
    for number, option in enumerate(options, start=1):
        progress("Comparing features: method", str(option), number, len(options))
        narrow = replace(ask, n_features=width_of(option, ask.n_features))
        phi = attempted(draw, option, kernel, narrow)
        if isinstance(phi, InvalidInput):
            refused.append(phi)
            continue
        # Of the map, 20 for an elementary function, and of the moments D².
        D = float(phi.n_features)
        cost = phi.multiplications + 20.0 * D + D * D
        candidates.append((Candidate(option, paired_error(phi, kept), None, cost), phi))
    if not candidates:
        others = (other for other in refused if not isinstance(other, UnsupportedKernel))
        none = UnsupportedKernel(f"Auto: no candidate serves {kernel!r}; Nystrom() serves all.")
        raise next(others, none)
    return candidates, method.budget * min(c.multiplications for c, _ in candidates)


def _cheapest(rows: Sequence[tuple[float, Row]], factor: float) -> Row:
    """Return the cheapest row whose error is within this factor of the least."""
    limit = factor * min(error for error, _ in rows)
    close = [pair for pair in rows if pair[0] <= limit]
    least = min(row[0].multiplications for _, row in close)
    close = [pair for pair in close if pair[1][0].multiplications <= least]
    limit = (1 + SAME) * min(error for error, _ in close)
    return next(row for error, row in close if error <= limit)


# --- by the kernel matrix ------------------------------------------------------------------------


def _by_kernel(rows: list[Row], most: float, X: Array, kernel: Kernel) -> tuple[Row, str]:
    """Return the cheapest row whose kernel matrix is about as good as the best, and the reason."""
    affordable = [c for c, _ in rows if c.multiplications <= most]
    limit = PROMISING * min(max(c.predicted, LEAST) for c in affordable)
    K = to_numpy(kernel(X, X))
    for i, (c, phi) in enumerate(rows):
        if c.multiplications <= most and max(c.predicted, LEAST) <= limit:
            rows[i] = replace(c, error=relative_error(phi, X, K)), phi
    measured = [(max(row[0].error, LEAST), row) for row in rows if row[0].error is not None]
    best = _cheapest(measured, 1.1)
    said = lambda c: f"{c.predicted:.2g} predicted" if c.error is None else f"{c.error:.2g}"
    against = ", ".join(f"{c.method} {said(c)}" for c, _ in rows if c is not best[0])
    return best, (
        f"{best[0].method}: relative error {best[0].error:.2g} of the kernel matrix of "
        f"{X.shape[0]} rows" + (f", against {against}." if against else ".")
    )


def width_of(method: Method, n_features: int) -> int:
    """Return the largest width of the method within this one; this one where there is none."""
    return n_features - n_features % method.granularity or n_features


# --- by targets ----------------------------------------------------------------------------------


def _by_targets(rows: list[Row], most: float, X: Array, targets: Targets) -> tuple[Row, str]:
    """Return the cheapest row whose extrapolated error is about the least, and the reason."""
    finalists = _finalists([c for c, _ in rows if c.multiplications <= most])
    for i, (c, phi) in enumerate(rows):
        if c in finalists:
            error, penalty = judge(phi, X, targets)
            rows[i] = replace(c, extrapolated=error, penalty=penalty), phi
    judged = [(row[0].extrapolated, row) for row in rows if row[0].extrapolated is not None]
    best = _cheapest(judged, 1.02)
    others = [c for _, (c, _) in judged if c is not best[0]]
    against = ", ".join(f"{c.method} {c.extrapolated:.3g}" for c in others)
    rest = ", ".join(f"{c.method}" for c, _ in rows if c.extrapolated is None)
    return best, (
        f"{best[0].method}: mean squared error {best[0].extrapolated:.3g} of a fit to "
        f"{targets.n_rows:,} rows, extrapolated from leave-one-out errors of {X.shape[0]:,}"
        + (f", against {against}; the cheapest within 2 % of the least" if against else "")
        + (f". Not compared, for their cost or kernel matrix: {rest}." if rest else ".")
    )


def _finalists(candidates: list[Candidate]) -> list[Candidate]:
    """Return up to four: methods with landmarks, the most accurate other, and the cheapest."""
    order = sorted(
        candidates, key=lambda c: (not isinstance(c.method, Nystrom), max(c.predicted, LEAST))
    )
    nearest = next((c for c in order if not isinstance(c.method, Nystrom)), order[0])
    cheapest = min(candidates, key=lambda c: (c.multiplications, max(c.predicted, LEAST)))
    worse = cheapest.predicted > PROMISING * nearest.predicted
    if worse and cheapest.multiplications > 0.9 * nearest.multiplications:
        return order[:3]
    return list(dict.fromkeys([cheapest, *order]))[:4]


def relative_error(phi: FeatureMap, X: Float[Array, "m d"], K: Float[Array, "m m"]) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = to_numpy(phi(X))
    return float(np.linalg.norm(product(Z, Z.T) - K) / max(np.linalg.norm(K), np.finfo(float).tiny))
