"""Auto: the method with the least error on a sample of rows, at equal width, within a cost."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.blas import product
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier import Fourier
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.nystrom import Nystrom, NystromMap
from bochner.features.placements import IID, QMC, Orthogonal
from bochner.features.rules import Request, draw_map
from bochner.kernels import Kernel

__all__ = ["Auto", "Candidate", "Choice", "choose"]

#: Above this many columns Sobol points are behind orthogonal ones, and not tried.
QMC_COLUMNS = 20


#: Sparse rows of more cells than this are not made dense to look for equal ones.
MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class Auto(Method):
    """Draw every candidate, measure each on a sample of rows, keep the best within the budget.

    Parameters
    ----------
    candidates : tuple of Method, optional
        Default: Fourier with orthogonal, Sobol (up to 20 columns) and independent frequencies (the
        last only where no other serves), and Nystrom(Pivoted()).
    budget : float, default 4
        A candidate may cost at most this many times the cheapest one in multiplications of the
        fit's sweep (features and moments).
    sample : int, default 1000
        Rows that the error is measured on; they are kept out of the landmarks.

    Notes
    -----
    The error is ‖ZZᵀ − K‖_F / ‖K‖_F. When the width holds all rows, Nyström with all of them is the
    kernel itself and is taken unmeasured. Without rows it is ``Fourier(Orthogonal())``.
    """

    candidates: tuple[Method, ...] | None = None
    budget: float = 4.0
    sample: int = 1000


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison: a method, its relative Frobenius error, its cost a row."""

    method: Method
    error: float
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
        return Choice(phi, fallback, (), f"{fallback!r}: there were no rows to measure on.")
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
    K = to_numpy(kernel(kept, kept))
    rows: list[tuple[Candidate, FeatureMap]] = []
    for option in method.candidates or _defaults(ask.n_inputs):
        try:
            phi = draw_map(option, kernel, replace(ask, X=others, n_features=_width(option, ask)))
        except UnsupportedKernel:
            continue
        rows.append((Candidate(option, _error(phi, kept, K), _cost(phi)), phi))
    if not rows:
        raise UnsupportedKernel(f"Auto: no candidate serves {kernel!r}; Nystrom() serves all.")
    return _pick(rows, method.budget, kept.shape[0])


def _width(method: Method, ask: Request) -> int:
    """Return the width asked for, or one less where features come in pairs."""
    paired = isinstance(method, Fourier) and method.form == "pair" and ask.n_features > 1
    return ask.n_features - ask.n_features % 2 if paired else ask.n_features


def _pick(rows: list[tuple[Candidate, FeatureMap]], budget: float, m: int) -> Choice:
    cheapest = min(row.multiplications for row, _ in rows)
    within = [r for r in rows if r[0].multiplications <= budget * cheapest]
    best, phi = min(within, key=lambda r: r[0].error)
    others = ", ".join(f"{r.method!r} {r.error:.2g}" for r, _ in rows if r is not best)
    reason = (
        f"{best.method!r}: relative error {best.error:.2g} of the kernel matrix of {m} rows"
        + (f", against {others}." if others else ".")
    )
    return Choice(phi, best.method, tuple(row for row, _ in rows), reason)


def _defaults(d: int) -> tuple[Method, ...]:
    sobol = (Fourier(QMC()),) if d <= QMC_COLUMNS else ()
    return (Fourier(Orthogonal()), *sobol, *((Fourier(IID()),) if not sobol else ()), Nystrom())


def _split(ask: Request, X: Array, sample: int) -> tuple[Array, Array]:
    """Return rows to measure on, and the others, from which landmarks may be taken."""
    if sample < 2:
        raise InvalidInput(f"Auto: sample must be at least 2 rows; got {sample!r}.")
    n = X.shape[0]
    m = max(2, min(sample, n // 4))
    order = ask.stream("auto").permutation(n)
    return X[np.sort(order[:m])], X[np.sort(order[m:])]


def _error(phi: FeatureMap, X: Float[Array, "m d"], K: Float[Array, "m m"]) -> float:
    Z = phi(X)
    return float(np.linalg.norm(product(Z, Z.T) - K) / max(np.linalg.norm(K), np.finfo(float).tiny))


def _cost(phi: FeatureMap) -> float:
    """Multiplications a row: projection or distances, elementary functions (20), moments D²."""
    D, d = phi.n_features, phi.n_inputs
    whitening = 2.0 * D if isinstance(phi, NystromMap) else 0.0
    return D * (d + 20 + whitening + D)
