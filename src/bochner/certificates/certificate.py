"""The certificate: the distance of Z Zᵀ from K on rows, its confidence, and what it means."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import in_float64
from bochner._core.checks import integer, positive, require_room, share
from bochner._core.shapes import Rows
from bochner._core.text import HtmlResult, html_table, paragraph
from bochner._core.threads import single_thread
from bochner.certificates import pencil
from bochner.certificates.pencil import frobenius, rows_of, sample
from bochner.errors import InvalidInput
from bochner.features.map import SMALL_BIAS, FeatureMap
from bochner.solvers.factorisations import eigenvalues

FEWEST_ROWS = 8 * pencil.GROUPS  # of a sample: eight groups of eight


@dataclass(frozen=True)
class Certificate(HtmlResult):
    """Distance of the features from the kernel at the penalty of a fit, of :func:`bochner.certify`.

    ``print(certificate)`` prints sentences; ``certificate.to_dict()`` gives the numbers.

    Attributes
    ----------
    epsilon : float
        Estimate, for all ``n_rows`` rows, of the (ε, alpha)-spectral distance: the smallest ε with
        (1 − ε)(K + alpha I) ⪯ Z Zᵀ + alpha I ⪯ (1 + ε)(K + alpha I).
    epsilon_interval : (float, float)
        Interval for epsilon; both ends are equal if it was measured densely on all rows.
    confidence : float
        Confidence of both intervals; 1 if they were measured densely on all rows.
    frobenius, frobenius_interval : float, (float, float)
        ‖Z Zᵀ − K‖_F / ‖K‖_F of all rows.
    entrywise : float
        Largest |φ(x)·φ(y) − k(x, y)| of the rows measured; for other rows see ``pairs_beyond``.
    effective_dimension : float
        tr K(K + alpha I)⁻¹ of all rows; only a lower bound if not ``resolved``.
    alpha : float
        Requested ridge penalty, for a fit to ``n_rows`` rows.
    alpha_measured : float
        Penalty at which ε holds: ``alpha``, or more where float64 cannot resolve ``alpha``.
    n_rows, n_sample, n_features : int
        Number of rows that the certificate is about, of rows measured, and of features.
    below_kernel : bool
        Whether Z Zᵀ ⪯ K by construction, as for Nyström features: then ε < 1 up to rounding.
    resolved : bool
        Whether the sample is large enough to estimate the effective dimension. If not, the upper
        end is at least the coarse bound ‖Z Zᵀ − K‖/alpha.
    features_to_halve : int or None
        Number of features that would roughly halve ε. For maps below their kernel a lower bound:
        fewer features cannot halve ε. None if ε is zero up to rounding, or more do not lower it.
    operator_norm : float
        ‖Z Zᵀ − K‖/‖K‖ of the rows measured, in the spectral norm.
    truncation_error : float or None
        Share of tr K that the mean of Z Zᵀ over draws lacks for any number of features: the rest of
        a truncated series. Zero for unbiased maps; None if unknown (quadrature, projections).
    """

    epsilon: float
    epsilon_interval: tuple[float, float]
    confidence: float
    frobenius: float
    frobenius_interval: tuple[float, float]
    entrywise: float
    effective_dimension: float
    alpha: float
    alpha_measured: float
    n_rows: int
    n_sample: int
    n_features: int
    below_kernel: bool
    resolved: bool
    features_to_halve: int | None
    operator_norm: float
    truncation_error: float | None = 0.0

    @property
    def exact(self) -> bool:
        """Whether every row was measured."""
        return self.n_sample == self.n_rows

    @property
    def risk_factor(self) -> float | None:
        """1/(1 − ε), ε = ``epsilon_interval[1]``; None if ε ≥ 1 or alpha is lost to rounding.

        With fixed rows, truth f and noise of variance σ², the expected squared error R of the fit
        obeys R ≤ risk_factor · G + risk_noise · σ². G = (λ f·(K + λI)⁻¹f + σ² d_λ)/n, with d_λ the
        effective dimension, bounds the error of the exact kernel, which can be smaller by any
        factor: Avron et al. (2017), lemma 2. :func:`risk` estimates R, G and this error.
        """
        high = self.epsilon_interval[1]
        return None if high >= 1 or self.alpha_measured > self.alpha else 1 / (1 - high)

    @property
    def risk_noise(self) -> float | None:
        """Factor of σ² in the bound of `risk_factor`; None if there is no bound.

        The factor is ε/(1 + ε) · min(D, n)/n at the upper end of the interval.
        """
        high = self.epsilon_interval[1]
        rank = min(self.n_features, self.n_rows)
        return None if self.risk_factor is None else high / (1 + high) * rank / self.n_rows

    @property
    def pairs_beyond(self) -> float:
        """Bound, at ``confidence``, of the share of row pairs with an error above ``entrywise``.

        Zero if every row was measured. Otherwise ln(1/δ)/⌊m/2⌋: the m rows measured hold ⌊m/2⌋
        disjoint pairs, which are independent, and no pair has an error above ``entrywise``.
        """
        if self.exact:
            return 0.0
        return min(1.0, -math.log(1 - self.confidence) / (self.n_sample // 2))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON, with None in place of NaN and infinity."""
        numbers = asdict(self) | {"risk_factor": self.risk_factor, "risk_noise": self.risk_noise}
        content: dict[str, Any] = json.loads(json.dumps(numbers), parse_constant=lambda _: None)
        return content

    def __str__(self) -> str:
        return " ".join(_sentences(self))

    def _html_parts(self) -> Iterator[str]:
        """Yield the errors with their intervals, and the sentences."""
        yield html_table(*errors_table(self), f"{self.n_features:,} features, {self.n_rows:,} rows")
        yield paragraph(str(self))


def errors_table(c: Certificate) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: the errors of the features and their intervals."""
    errors: tuple[tuple[str, float, tuple[float, ...]], ...] = (
        ("ε, spectral", c.epsilon, c.epsilon_interval),
        ("Frobenius", c.frobenius, c.frobenius_interval),
        ("operator norm", c.operator_norm, ()),
        ("largest entry", c.entrywise, ()),
        ("effective dimension", c.effective_dimension, ()),
    )
    rows = [[name, f"{v:.3g}", " to ".join(f"{e:.3g}" for e in span)] for name, v, span in errors]
    head = ["error", "value", f"{100 * c.confidence:g} % interval"]
    digits = 2 if c.confidence == 1 else 3  # without an interval where all rows were measured
    return head[:digits], [row[:digits] for row in rows]


@single_thread()
def certify(
    phi: Any,
    X: Rows,
    *,
    alpha: float,
    kernel: Any = None,
    n_rows: int | None = None,
    n_sample: int = 2048,
    confidence: float = 0.95,
    random_state: Any = None,
) -> Certificate:
    """Measure the distance of φ(X) φ(X)ᵀ from K, and its meaning for a fit with this penalty.

    Parameters
    ----------
    phi : FeatureMap
        A map, or any callable from (n, d) rows to (n, D) features, in the precision of X;
        everything else is computed in float64.
    X : (n, d)
        Rows of the fit, a random sample of these, or rows to be predicted.
    alpha : float
        Ridge penalty of the fit, above zero, on the scale of ``n_rows`` rows.
    kernel : Kernel, optional
        The exact kernel; ``phi.kernel`` if not given.
    n_rows : int, optional
        Number of rows of the fit, if X is a random sample of them; default n.
    n_sample : int, default 2048
        Number of rows measured, 64 or more; a random sample if X has more rows. 2048 rows take
        one to two seconds on two cores and resolve effective dimensions up to about 2000.
    confidence : float, default 0.95
        Confidence of the intervals, above 0 and below 1.
    random_state : int, Generator, RandomState or None
        Seed of the sample.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        If X is not a table of at least two finite rows that fit the map, alpha is not positive,
        or there is neither ``kernel`` nor ``phi.kernel``.
    NotPositive
        If the kernel matrix of the sample has an eigenvalue below zero.

    See Also
    --------
    certify_costs : The same for clusters and principal components.
    risk : The error of a fit, split by its causes; needs targets.

    Notes
    -----
    If all ``n_rows`` rows are measured, ε is exact up to rounding and the confidence 1. Otherwise
    m random rows S are measured at the penalty alpha·m/n. ε is the larger of ε₊ (excess of φφᵀ
    over K) and ε₋ (shortfall). Their intervals, of log ε₊ and log ε₋/(1 − ε₋), have four parts:

    * *spread*: Student's interval from 8 disjoint groups of m/8 rows, shrunk to m rows; at the
      lower end also by the finite-population factor √(1 − m/n);
    * *self-regularisation*: the change of ε from alpha·m/n to the penalty t at which m rows have
      the effective dimension of n rows at alpha, at most a factor of ten;
    * *trend*: the change of ε from m/8 to m rows, continued to n rows as a power;
    * *floor*: without such a t the sample does not resolve alpha (``resolved`` is False), and the
      upper end is at least ‖E_S‖/(alpha·m/n), which bounds ε.

    The intervals cover ε of all rows at least as often as stated: an experimental result, without
    proof (guide "Certificates"). Rare rows unlike all others can have a larger ε than any sample
    shows. The interval of the Frobenius error is computed as for a ratio of two U-statistics.

    An alpha below m·2⁻⁵²·‖K‖ is lost to rounding in K + alpha I. ε is then measured at that value
    (``alpha_measured``), is a lower bound for ε at ``alpha``, and no risk is stated.

    Cost: O(m(D + d)m + 2m³), memory 5m² numbers, for any n (16 GB for m = 20,000). Sources: Avron
    et al. (2017) for ε; Jacot et al. (2020) for the matched penalty.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "fourier", n_features=500, n_inputs=2, random_state=0)
    >>> certificate = bo.certify(phi, X, alpha=1.0)
    >>> certificate.exact, certificate.n_rows, certificate.features_to_halve
    (True, 100, 2000)
    >>> 0 < certificate.epsilon < 1 < certificate.risk_factor
    True
    """
    alpha = positive(alpha, "certify", "alpha")
    n_sample = integer(n_sample, "certify", "n_sample", minimum=FEWEST_ROWS)
    confidence = share(confidence, "certify", "confidence")
    rows = rows_of(X, n_sample, random_state)
    require_room(
        32 * rows.shape[0] ** 2,
        f"certify: measuring {rows.shape[0]:,} rows densely takes",
        "Lower n_sample.",
    )
    length = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    n = integer(length if n_rows is None else n_rows, "certify", "n_rows", minimum=length)
    if rows.shape[0] < min(n, FEWEST_ROWS):
        raise InvalidInput(
            f"certify: X must have at least {FEWEST_ROWS} rows to represent n_rows={n}; got "
            f"{rows.shape[0]}. Pass a larger sample, or leave out n_rows to measure these rows."
        )
    K, E, D = sample(phi, rows, kernel)
    m = len(K)
    is_below = bool(getattr(phi, "below_kernel", False))
    # k(x, x) − E|φ(x)|² of rows, None if unknown; a user's map counts as unbiased if not below K
    deficit = np.maximum(-np.diagonal(E), 0.0) if is_below else np.zeros(m)
    if not is_below and isinstance(phi, FeatureMap):
        deficit = phi.truncation_error(in_float64(rows))
    distance = pencil.distance(K, E, n, alpha, confidence)
    ratio, ratio_interval = frobenius(K, E, n, confidence)
    e, penalty = distance["epsilon"], distance["alpha_measured"] * m / n
    halving = None
    truncation = None if deficit is None else float(deficit.sum() / max(np.trace(K), 1e-300))
    if e > 0 and is_below:
        errors = eigenvalues(pencil.whiten(pencil.factor(K, penalty), E))
        halving = D + max(1, int(np.sum(errors < -e / 2)))
    elif e > 0 and deficit is not None and float(deficit.sum()) <= SMALL_BIAS * e * penalty:
        halving = 4 * D  # the bias is at most Σ rest/penalty on the rows measured
    return Certificate(
        **distance,
        confidence=1.0 if m == n else confidence,
        frobenius=ratio,
        frobenius_interval=ratio_interval,
        entrywise=float(np.abs(E).max()),
        alpha=alpha,
        n_rows=n,
        n_sample=m,
        n_features=D,
        below_kernel=is_below,
        features_to_halve=halving,
        operator_norm=pencil.operator_ratio(K, E),
        truncation_error=truncation,
    )


def _sentences(c: Any) -> Iterator[str]:
    """Yield the certificate in sentences: distance, caveats, meaning, more features, the matrix."""
    low, high = c.epsilon_interval
    interval = f"{100 * c.confidence:.3g} % interval {low:.2g} to {high:.2g}, "
    scope = f"measured on {'all' if c.exact else f'{c.n_sample:,}'} of them"
    yield (
        f"With {c.n_features:,} features, {c.n_rows:,} rows and alpha = {c.alpha_measured:.3g}, "
        f"the features are within ε = {c.epsilon:.2g} of the exact kernel "
        f"({'' if low == high else interval}{scope})."
    )
    if c.alpha_measured > c.alpha:
        yield (
            f"The requested alpha, {c.alpha:.3g}, is lost to rounding in float64; its ε is not "
            "below this value."
        )
    elif not c.resolved:
        yield (
            "The sample is too small to resolve this alpha, so the upper end is coarse: measure "
            "more rows (n_sample) or raise alpha."
        )
    if c.risk_factor is not None and c.risk_factor < 10:
        yield (
            "So the expected squared error of the fit on its rows is at most "
            f"{c.risk_factor:.3g} times the bound for the exact kernel, plus "
            f"{100 * c.risk_noise:.2g} % of the noise variance."
        )
    else:
        reason = f", because {'ε' if c.epsilon >= 1 else 'the interval'} reaches 1"
        yield (
            "There is no useful bound for the error of the fit relative to the exact kernel"
            f"{reason if high >= 1 else ''}; the fit may still be good."
        )
    if c.epsilon == 0:
        yield "That is zero up to rounding."
    elif c.features_to_halve is not None:
        words = "about {:,} features: the error of random features falls like 1/√D."
        if c.below_kernel:
            words = "at least {:,} features: their error follows the spectrum of the kernel."
        yield f"Halving ε takes {words.format(c.features_to_halve)}"
    elif c.truncation_error is None:
        yield "How many features halve ε is not known: their error does not fall like 1/√D."
    else:
        yield (
            "More features of this kind need not lower ε: any number of them leaves out "
            f"{100 * c.truncation_error:.2g} % of the kernel's trace. Raise their degree or order."
        )
    prefix = "" if c.resolved else "at least "
    pairs = f" on the sample (and at most {100 * c.pairs_beyond:.2g} % of all pairs by more)"
    yield (
        f"The error of the kernel matrix is {100 * c.frobenius:.2g} % (Frobenius) or "
        f"{100 * c.operator_norm:.2g} % (operator norm), of its entries at most "
        f"{c.entrywise:.2g}{'' if c.exact else pairs}; its effective dimension is {prefix}"
        f"{c.effective_dimension:.3g}."
    )
