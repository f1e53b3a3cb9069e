"""Auto: the method with the least error on a sample of rows, at equal width, within a cost."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.blas import product
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.arccosine import ReLU, Sign
from bochner.features.expected import expected_error, paired_error
from bochner.features.fourier import Fourier
from bochner.features.hermite import HermiteMercer
from bochner.features.histogram import HistogramSampling
from bochner.features.map import FeatureMap
from bochner.features.mercer import MercerHarmonic
from bochner.features.method import Method
from bochner.features.neural import NeuralTangentFeatures
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.placements import IID, QMC, Orthogonal
from bochner.features.rules import Request, draw_map
from bochner.features.structured import Structured
from bochner.kernels import Kernel

__all__ = [
    "Auto",
    "Candidate",
    "Choice",
    "choose",
    "contenders",
    "predicted_error",
    "relative_error",
    "width_of",
]

#: Above this many columns Sobol points are behind orthogonal ones, and not tried.
QMC_COLUMNS = 20

#: From this many columns on, structured frequencies can be cheaper than dense ones.
STRUCTURED_COLUMNS = 128

#: A candidate is measured if its predicted error is at most this many times the least.
PROMISING = 3.0

#: Errors within this factor are taken as equal, and the cheaper method is taken.
AS_GOOD = 1.1

#: Rows whose pairs a formula is evaluated on.
FORMULA_ROWS = 500

#: Sparse rows of more cells than this are not made dense to look for equal ones.
MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class Auto(Method):
    """Draw every candidate, predict its error, measure the best, keep one within the budget.

    Parameters
    ----------
    candidates : tuple of Method, optional
        Default: all that :func:`contenders` names and that serve the kernel.
    budget : float, default 4
        A candidate may cost at most this many times the cheapest one in multiplications of the
        fit's sweep (features and moments).
    sample : int, default 1000
        Rows that the error is measured on; they are kept out of the landmarks.

    Notes
    -----
    The error is ‖ZZᵀ − K‖_F / ‖K‖_F. It is predicted by a formula where there is one
    (independent and orthogonal frequencies), else from a thousand pairs of rows; what is predicted
    within three times the least is measured on all pairs of the sample. Of those within a tenth of
    the least error the cheapest is taken. When the width holds all rows, Nyström with all of them
    is the kernel itself and is taken unmeasured. Without rows it is ``Fourier(Orthogonal())``.
    """

    candidates: tuple[Method, ...] | None = None
    budget: float = 4.0
    sample: int = 1000


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison: a method, what it costs a row, and its relative error.

    ``error`` is None where the prediction alone ruled the method out, or its cost.
    """

    method: Method
    predicted: float
    error: float | None
    multiplications: float


@dataclass(frozen=True, eq=False)
class Choice:
    """What was picked, from what, and why.

    Attributes
    ----------
    map : FeatureMap
    method : Method
    candidates : tuple of Candidate
        All that were measured; empty when nothing had to be.
    reason : str
        A sentence.
    """

    map: FeatureMap
    method: Method
    candidates: tuple[Candidate, ...]
    reason: str


def choose(method: Auto, kernel: Kernel, ask: Request) -> Choice:
    """Pick among the candidates of ``method``; see :class:`Auto`."""
    if ask.X is None:
        fallback = Fourier(Orthogonal())
        phi = draw_map(fallback, kernel, ask)
        return Choice(phi, fallback, (), f"{fallback}: there were no rows to measure on.")
    if method.candidates is None and (rows := _all_rows(ask.X, ask.n_features)) is not None:
        reason = (
            f"Nystrom: {ask.n_features} features hold all {len(rows)} different rows, so the fit "
            "is that of the exact kernel."
        )
        return Choice(NystromMap(kernel, rows), Nystrom(), (), reason)
    return _measured(method, kernel, ask)


def _all_rows(X: Array, width: int) -> Float[Array, "D d"] | None:
    """Return all different rows, sorted, if they are no more than the width asked for."""
    n, d = X.shape
    if n > 4 * width or (is_sparse(X) and n * d > MOST_CELLS):
        return None
    rows = np.unique(to_numpy(X).astype(np.float64, copy=False), axis=0)
    return rows if len(rows) <= width else None


@draw_map.register
def _(method: Auto, kernel: Kernel, ask: Request) -> FeatureMap:
    return choose(method, kernel, ask).map


def _measured(method: Auto, kernel: Kernel, ask: Request) -> Choice:
    kept, others = _split(ask, ask.X, method.sample)
    options = method.candidates or contenders(ask.n_inputs)
    asked = replace(ask, X=others)
    drawn = [entry for option in options if (entry := _drawn(option, kernel, asked, kept))]
    if not drawn:
        raise UnsupportedKernel(f"Auto: no candidate serves {kernel!r}; Nystrom() serves all.")
    cheapest = min(candidate.multiplications for candidate, _ in drawn)
    within = [d for d in drawn if d[0].multiplications <= method.budget * cheapest]
    least = min(candidate.predicted for candidate, _ in within)
    K = to_numpy(kernel(kept, kept))
    rows = [
        (replace(c, error=relative_error(phi, kept, K)), phi)
        if c.multiplications <= method.budget * cheapest and c.predicted <= PROMISING * least
        else (c, phi)
        for c, phi in drawn
    ]
    return _pick(rows, kept.shape[0])


def _drawn(
    option: Method, kernel: Kernel, ask: Request, kept: Array
) -> tuple[Candidate, FeatureMap] | None:
    """Return a candidate with its predicted error, or None where it does not serve the kernel.

    Errors are predicted on rows that nothing was drawn from: landmarks are exact on their own.
    """
    try:
        phi = draw_map(option, kernel, replace(ask, n_features=width_of(option, ask.n_features)))
    except UnsupportedKernel:
        return None
    return Candidate(option, predicted_error(option, phi, kept), None, _cost(phi)), phi


def width_of(method: Method, n_features: int) -> int:
    """Return the width asked for, or one less where features come in pairs."""
    paired = isinstance(method, Fourier) and method.form == "pair" and n_features > 1
    return n_features - n_features % 2 if paired else n_features


def _pick(rows: list[tuple[Candidate, FeatureMap]], m: int) -> Choice:
    errors = [np.inf if c.error is None else c.error for c, _ in rows]
    close = [row for row, error in zip(rows, errors, strict=True) if error <= AS_GOOD * min(errors)]
    best, phi = min(close, key=lambda row: row[0].multiplications)
    return Choice(phi, best.method, tuple(c for c, _ in rows), _reason(best, rows, m))


def _reason(best: Candidate, rows: list[tuple[Candidate, FeatureMap]], m: int) -> str:
    others = ", ".join(
        f"{c.method} {c.predicted:.2g} predicted"
        if c.error is None
        else f"{c.method} {c.error:.2g}"
        for c, _ in rows
        if c is not best
    )
    return f"{best.method}: relative error {best.error:.2g} of the kernel matrix of {m} rows" + (
        f", against {others}." if others else "."
    )


def contenders(d: int) -> tuple[Method, ...]:
    """Return the methods that can be best for some kernel of d columns."""
    sobol = (Fourier(QMC()),) if d <= QMC_COLUMNS else (Fourier(IID()),)
    structured = (Fourier(Structured()),) if d >= STRUCTURED_COLUMNS else ()
    return (
        MercerHarmonic(),
        HermiteMercer(),
        Fourier(Orthogonal()),
        *structured,
        *sobol,
        Sign(),
        ReLU(0),
        ReLU(1),
        ReLU(2),
        NeuralTangentFeatures(),
        HistogramSampling(),
        Nystrom(),
    )


def _split(ask: Request, X: Array, sample: int) -> tuple[Array, Array]:
    """Return rows to measure on, and the others, from which landmarks may be taken."""
    if sample < 2:
        raise InvalidInput(f"Auto: sample must be at least 2 rows; got {sample!r}.")
    n = X.shape[0]
    m = max(2, min(sample, n // 4))
    order = ask.stream("auto").permutation(n)
    return X[np.sort(order[:m])], X[np.sort(order[m:])]


def predicted_error(method: Method, phi: FeatureMap, X: Float[Array, "n d"]) -> float:
    """Return the error that theory expects, or that pairs of these rows show."""
    if not is_sparse(X):
        expected = expected_error(method, phi.kernel, X[:FORMULA_ROWS], phi.n_features)
        if expected is not None:
            return expected
    return paired_error(phi, X)


def relative_error(phi: FeatureMap, X: Float[Array, "m d"], K: Float[Array, "m m"]) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = to_numpy(phi(X))
    return float(np.linalg.norm(product(Z, Z.T) - K) / max(np.linalg.norm(K), np.finfo(float).tiny))


def _cost(phi: FeatureMap) -> float:
    """Multiplications a row: of the map, 20 for an elementary function, and of the moments D²."""
    D = phi.n_features
    whitening = 2.0 * D * D if isinstance(phi, NystromMap) else 0.0
    made = float(getattr(phi, "multiplications", D * phi.n_inputs)) + whitening
    return made + 20.0 * D + float(D) * D
