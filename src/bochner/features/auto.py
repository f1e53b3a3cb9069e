"""Auto: choose a feature method by its error on the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from bochner._core.arrays import is_sparse, slices, to_numpy
from bochner._core.blas import product
from bochner._core.checks import Positive, integer, optional, sequence_of
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner._core.sizes import FEW_CELLS
from bochner._core.text import HtmlResult, html_table, paragraph
from bochner.errors import InvalidInput, UnsupportedKernel, attempt
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import Draw, FeatureMap, Method, Request, kind_of
from bochner.features.nystrom import KMeans, Nystrom, NystromMap
from bochner.kernels.kernel import Kernel
from bochner.solvers.ridge import eigen as ridge
from bochner.solvers.ridge.solution import NO_ERROR, SAME, SAME_FLOAT32, best_index, pool
from bochner.sums.moments import Moments

PAIRS = 1000  # Pairs of rows for the prediction of errors of the kernel matrix


def paired_error(phi: FeatureMap, X: Float[Array, "n d"]) -> float:
    """Return an estimate of ‖ZZᵀ − K‖_F/‖K‖_F from pairs of neighbouring rows and the diagonal."""
    # Rows are in random order, so pairs represent all off-diagonal entries: weight n − 1 to 1.
    n = X.shape[0] - X.shape[0] % 2
    first, second = X[: min(n, 2 * PAIRS) : 2], X[1 : min(n, 2 * PAIRS) : 2]
    Z, V = to_numpy(phi.features(first)).astype(float), to_numpy(phi.features(second)).astype(float)
    batches = slices(first.shape[0], 50)
    parts = [np.diag(to_numpy(phi.kernel.evaluate(first[rows], second[rows]))) for rows in batches]
    k = np.concatenate(parts).astype(float)
    diag = to_numpy(phi.kernel.diagonal(first)).astype(float)
    pair_error, diagonal_error = (Z * V).sum(axis=1) - k, (Z * Z).sum(axis=1) - diag
    error = (n - 1) * (pair_error**2).mean() + (diagonal_error**2).mean()
    size = (n - 1) * (k**2).mean() + (diag**2).mean()
    return float(np.sqrt(error / max(size, np.finfo(float).tiny)))


# --- The error of a fit to all rows with a map, predicted from a sample of rows with targets -----
#
# Leave-one-out errors of the sample are extrapolated to all rows at every penalty of the path. Maps
# are compared by their smallest extrapolated error.


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets and weights of sampled rows, and the size of the fit to all rows."""

    y: Float[Array, "m t"]
    w: Float[Array, " m"]  # weights, positive
    n_rows: int  # number of rows of the fit, at least m
    share: float | None = None  # alpha/n if it is fixed; None if the fit chooses alpha


def loo_path(
    Z: Float[Array, "m D"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"] | None = None,
    share: float | None = None,
    dtype: Any = np.float64,
    ratio: float = 1.0,
) -> tuple[ridge.Eigen, Float[Array, " a"], Float[Array, " a"]]:
    """Return the spectrum of Z, penalties, and the leave-one-out mean squared error of each.

    With ``share`` = alpha/n there is one penalty, for a fit to ``ratio`` times as many rows. Errors
    are computed in ``dtype``. Takes O(m D² + D³) time.
    """
    moments = Moments.of(Z, y, w)
    eigen = ridge.decompose(moments)
    alphas = (
        ridge.penalties(eigen)
        if share is None
        else np.array([ridge.equivalent_alpha(eigen, share, ratio)])
    )
    centred = (Z - moments.feature_mean).astype(dtype, copy=False), y - moments.target_mean, w
    loo = ridge.left_out_path(eigen, [centred], alphas)
    errors = pool(loo.mean_squares, eigen.power / eigen.weight)
    if dtype != np.float64 and not np.isfinite(errors[max(int(errors.argmin()) - 1, 0)]):
        return loo_path(Z, y, w, share, ratio=ratio)  # float32 overflows near the best penalty
    return eigen, alphas, errors


def assess(phi: FeatureMap, X: Float[Array, "m d"], targets: Targets) -> tuple[float, float]:
    """Return the predicted mean squared error of a fit to all rows, and its penalty/‖G‖."""
    Z = to_numpy(phi(X)).astype(np.float64, copy=False)
    ratio = targets.n_rows / max(int(np.count_nonzero(targets.w)), 1)
    # float32 for speed: differences between maps are far larger than its rounding errors.
    options = targets.y, targets.w, targets.share
    eigen, alphas, errors = loo_path(Z, *options, np.float32, ratio)
    errors, alphas = ridge.extrapolate(eigen, errors, alphas, ratio)
    best = best_index(errors, "loo", SAME_FLOAT32)
    variance = float(eigen.power.max()) / eigen.weight
    return max(float(errors[best]), NO_ERROR * variance), float(alphas[best] / (ratio * eigen.top))


# --- Auto: the best method for a kernel, or with targets for a fit, on a sample of rows ----------
#
# All candidates have the same width, and a limited cost relative to the cheapest.

#: A candidate is measured if its predicted error is at most PROMISING times the smallest.
PROMISING = 3.0
ROUNDING = 1e-6  # Rounding error of a kernel matrix in float32; smaller errors count as equal
ROWS_A_FEATURE, LIMIT = 4, 2048  # Rows per feature for the full width; limit of sampled rows
NARROWED = 3 / 8  # Share of the width at which maps are compared if there are too few rows
#: Landmarks by k-means, an additional candidate for fits with targets.
CENTRES = Nystrom(KMeans(iterations=2, seeds="random"))


@dataclass(frozen=True)
class Auto(Method):
    """Draw every candidate, and choose the cheapest whose error is close to the smallest.

    Parameters
    ----------
    candidates : tuple of Method, optional
        Default: methods of :func:`bochner.features.rules.contenders` that support the kernel.
    budget : float, default 4
        Largest cost of a candidate, features and moments, as a multiple of that of the cheapest.
    sample : int, default 1000
        Number of rows, at most n/4, for the error of the kernel matrix; not used as landmarks.

    See Also
    --------
    compare : Show the errors of several methods.
    plan : Choose method and width for a fit.

    Notes
    -----
    The error ‖ZZᵀ − K‖_F / ‖K‖_F is predicted from a thousand pairs of rows. Candidates with at
    most three times the smallest prediction are measured on the sample. The cheapest candidate
    within 10 % of the smallest error is chosen. If D is at least the number of distinct rows,
    Nyström with all of them is exact and is chosen; without rows, ``Fourier(Orthogonal())``.

    With targets, up to four candidates are compared by the error of the fit: Nyström with landmarks
    by pivots and by k-means, the most accurate other map, and the cheapest. Half of the rows, at
    most max(2048, 1.5 D), are not used as landmarks: the leave-one-out errors of fits to them are
    extrapolated to all rows. The cheapest candidate within 2 % of the smallest error is chosen.
    With fewer than four of these rows per feature, maps of 3/8 of the width are compared. With
    fewer than 1.5 per feature, or than 512, the error of the kernel matrix decides.

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
        optional(sequence_of(kind_of("a method, such as Fourier() or Nystrom()", Method))),
    ] = None
    budget: Positive = 4.0
    sample: Annotated[int, partial(integer, minimum=2)] = 1000


@dataclass(frozen=True)
class Candidate:
    """One candidate of the comparison; None for values that are not computed.

    Attributes
    ----------
    method : Method
    predicted, error : float
        Relative error of the kernel matrix, predicted and measured.
    multiplications : float
        Number of multiplications per row.
    extrapolated : float
        Mean squared error, extrapolated to a fit to all rows.
    penalty : float
        Penalty of this fit divided by ‖G‖.
    """

    method: Method
    predicted: float
    error: float | None
    multiplications: float
    extrapolated: float | None = None
    penalty: float | None = None


@dataclass(frozen=True, eq=False)
class Choice(HtmlResult):
    """The chosen method, the candidates, and the reason.

    Attributes
    ----------
    map : FeatureMap or None
        None if the fit uses nearest neighbours only.
    method : Method
    candidates : tuple of Candidate
        Candidates that were drawn; empty without a comparison.
    reason : str
        Reason of the choice, in a sentence.
    """

    map: FeatureMap | None
    method: Method
    candidates: tuple[Candidate, ...]
    reason: str

    def __str__(self) -> str:
        return self.reason

    def _html_parts(self) -> Iterator[str]:
        """Yield the reason, and a table of the candidates with their errors."""
        yield paragraph(self.reason)
        if not self.candidates:
            return
        text = lambda value: "–" if value is None else f"{value:.3g}"
        columns = {
            "method": [str(c.method) for c in self.candidates],
            "predicted kernel error": [text(c.predicted) for c in self.candidates],
            "measured": [text(c.error) for c in self.candidates],
            "multiplications per row": [f"{c.multiplications:,.0f}" for c in self.candidates],
            "squared error": [text(c.extrapolated) for c in self.candidates],
        }
        best = next((i for i, c in enumerate(self.candidates) if c.method == self.method), -1)
        yield html_table(tuple(columns), list(zip(*columns.values(), strict=True)), highlight=best)


#: A candidate and its map.
Row = tuple[Candidate, FeatureMap]


def best_candidate(
    method: Auto,
    kernel: Kernel,
    ask: Request,
    draw: Draw,
    targets: Targets | None,
    defaults: tuple[Method, ...],
) -> Choice:
    """Choose among ``method.candidates`` or ``defaults``; return the Choice with its map."""
    D = ask.n_features
    if (X := ask.X) is None:
        pairs = Fourier(Orthogonal(), "pair" if D > 1 else "phase")
        phi = draw(pairs, kernel, replace(ask, n_features=width_of(pairs, D)))
        return Choice(phi, pairs, (), f"{pairs}: there were no rows to measure errors on.")
    n = X.shape[0]
    large = n > 4 * D or (is_sparse(X) and n * X.shape[1] > FEW_CELLS)
    if method.candidates is None and not large:
        distinct = np.unique(to_numpy(X), axis=0).astype(np.float64)
        if len(distinct) <= D:
            reason = (
                f"Nystrom: {D} features are exact for {len(distinct)} distinct rows, so the fit is "
                "that of the exact kernel."
            )
            return Choice(NystromMap(kernel, distinct), Nystrom(), (), reason)
    floor = max(512, int(ROWS_A_FEATURE * NARROWED * D))
    evaluated = None if targets is None or n // 2 < floor else targets
    options = method.candidates or (defaults if evaluated is None else (*defaults, CENTRES))
    m = max(2, min(method.sample, n // 4)) if evaluated is None else min(n // 2, max(LIMIT, floor))
    # Errors are measured on rows that are not landmarks, where Nyström features would be exact.
    order = ask.stream("auto").permutation(n)
    test, pool = np.sort(order[:m]), np.sort(order[m:])
    narrow = evaluated is not None and m < ROWS_A_FEATURE * D  # few rows: compare narrower maps
    request = replace(ask, X=X[pool], n_features=int(NARROWED * D) if narrow else D)
    sample = test if evaluated is None else test[:: max(1, m // method.sample)]
    rows, budget = _candidates(draw, method, options, kernel, request, X[sample])
    if evaluated is None:
        (best, phi), reason = _pick_by_kernel(rows, budget, X[test], kernel)
    else:
        evaluated = replace(evaluated, y=evaluated.y[test], w=evaluated.w[test])
        (best, phi), reason = _pick_by_targets(rows, budget, X[test], evaluated)
    if narrow:
        phi = draw(best.method, kernel, replace(ask, n_features=width_of(best.method, D)))
    return Choice(phi, best.method, tuple(candidate for candidate, _ in rows), reason)


def _candidates(
    draw: Draw, method: Auto, options: tuple[Method, ...], kernel: Kernel, ask: Request, X: Array
) -> tuple[list[Row], float]:
    """Return the candidates that support the kernel, and the largest allowed cost."""
    candidates: list[Row] = []
    failures: list[InvalidInput] = []
    for number, option in enumerate(options, start=1):
        progress("Comparing features: method", str(option), number, len(options))
        narrow = replace(ask, n_features=width_of(option, ask.n_features))
        phi = attempt(draw, option, kernel, narrow)
        if isinstance(phi, InvalidInput):
            failures.append(phi)
            continue
        # Cost of the map, of elementary functions (20 each), and of the moments (D²).
        D = float(phi.n_features)
        cost = phi.multiplications + 20.0 * D + D * D
        candidates.append((Candidate(option, paired_error(phi, X), None, cost), phi))
    if not candidates:
        errors = (error for error in failures if not isinstance(error, UnsupportedKernel))
        default = UnsupportedKernel(f"Auto: no candidate supports {kernel!r}. Use Nystrom().")
        raise next(errors, default)
    return candidates, method.budget * min(c.multiplications for c, _ in candidates)


def _cheapest(rows: Sequence[tuple[float, Row]], factor: float) -> Row:
    """Return the cheapest candidate whose error is at most ``factor`` times the smallest."""
    limit = factor * min(error for error, _ in rows)
    ties = [pair for pair in rows if pair[0] <= limit]
    lowest = min(row[0].multiplications for _, row in ties)
    ties = [pair for pair in ties if pair[1][0].multiplications <= lowest]
    limit = (1 + SAME) * min(error for error, _ in ties)
    return next(row for error, row in ties if error <= limit)


def _pick_by_kernel(rows: list[Row], budget: float, X: Array, kernel: Kernel) -> tuple[Row, str]:
    """Return the cheapest candidate of nearly the smallest kernel error, and the reason."""
    candidates = [c for c, _ in rows if c.multiplications <= budget]
    limit = PROMISING * min(max(c.predicted, ROUNDING) for c in candidates)
    K = to_numpy(kernel(X, X))
    for i, (c, phi) in enumerate(rows):
        if c.multiplications <= budget and max(c.predicted, ROUNDING) <= limit:
            rows[i] = replace(c, error=relative_error(phi, X, K)), phi
    errors = [(max(row[0].error, ROUNDING), row) for row in rows if row[0].error is not None]
    best = _cheapest(errors, 1.1)
    text = lambda c: f"{c.predicted:.2g} predicted" if c.error is None else f"{c.error:.2g}"
    summary = ", ".join(f"{c.method} {text(c)}" for c, _ in rows if c is not best[0])
    return best, (
        f"{best[0].method}: relative error {best[0].error:.2g} of the kernel matrix of "
        f"{X.shape[0]} rows" + (f", against {summary}." if summary else ".")
    )


def width_of(method: Method, n_features: int) -> int:
    """Return the largest valid width up to n_features; n_features itself if there is none."""
    return n_features - n_features % method.granularity or n_features


def _pick_by_targets(rows: list[Row], budget: float, X: Array, targets: Targets) -> tuple[Row, str]:
    """Return the cheapest candidate of nearly the smallest extrapolated error, and the reason."""
    finalists = _finalists([c for c, _ in rows if c.multiplications <= budget])
    for i, (c, phi) in enumerate(rows):
        if c in finalists:
            error, penalty = assess(phi, X, targets)
            rows[i] = replace(c, extrapolated=error, penalty=penalty), phi
    errors = [(row[0].extrapolated, row) for row in rows if row[0].extrapolated is not None]
    best = _cheapest(errors, 1.02)
    alternatives = [c for _, (c, _) in errors if c is not best[0]]
    summary = ", ".join(f"{c.method} {c.extrapolated:.3g}" for c in alternatives)
    skipped = ", ".join(f"{c.method}" for c, _ in rows if c.extrapolated is None)
    return best, (
        f"{best[0].method}: mean squared error {best[0].extrapolated:.3g} of a fit to "
        f"{targets.n_rows:,} rows, extrapolated from leave-one-out errors of {X.shape[0]:,}"
        + (f", against {summary}; the cheapest within 2 % of the smallest" if summary else "")
        + (f". Not compared because of cost or kernel error: {skipped}." if skipped else ".")
    )


def _finalists(candidates: list[Candidate]) -> list[Candidate]:
    """Return up to four: Nyström methods, the most accurate other candidate, and the cheapest."""
    order = sorted(
        candidates, key=lambda c: (not isinstance(c.method, Nystrom), max(c.predicted, ROUNDING))
    )
    nearest = next((c for c in order if not isinstance(c.method, Nystrom)), order[0])
    cheapest = min(candidates, key=lambda c: (c.multiplications, max(c.predicted, ROUNDING)))
    is_poor = cheapest.predicted > PROMISING * nearest.predicted
    if is_poor and cheapest.multiplications > 0.9 * nearest.multiplications:
        return order[:3]
    return list(dict.fromkeys([cheapest, *order]))[:4]


def relative_error(phi: FeatureMap, X: Float[Array, "m d"], K: Float[Array, "m m"]) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = to_numpy(phi(X))
    return float(np.linalg.norm(product(Z, Z.T) - K) / max(np.linalg.norm(K), np.finfo(float).tiny))
