"""What features cost clustering and principal components: the error of every projection's cost.

The cost of a projection P of rank k is Tr(K − PKP), what it leaves out. K-means with k clusters and
kernel PCA with k components are the least of it over some P. With E = Z Zᵀ − K,

    cost of Z − cost of K = Tr((I − P)E),

which over all P of rank k runs from Tr E less the k largest eigenvalues of E to Tr E less the k
smallest; within |Tr E| + √k ‖E‖_F.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.blas import eigvalsh
from bochner._core.checks import integer
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import spectrum
from bochner.certificates.sample import rows_of, sample
from bochner.errors import InvalidInput
from bochner.features.fourier import require_real


@dataclass(frozen=True)
class CostCertificate:
    """How far the cost of any projection of rank k is from the kernel's, on the rows measured.

    Attributes
    ----------
    rank : int
        k: clusters or components.
    least, most : float
        Of cost with features − cost with the kernel, over all projections of this rank.
    best_cost : float
        Σ_{i>k} λ_i(K): no projection costs the kernel less.
    simple_bound : float
        |Tr E| + √k ‖E‖_F: what |cost − cost| does not exceed, coarser.
    n_rows, n_features : int
    """

    rank: int
    least: float
    most: float
    best_cost: float
    simple_bound: float
    n_rows: int
    n_features: int

    @property
    def relative(self) -> float:
        """ε: the costs differ by at most ε times that of the kernel."""
        worst = max(abs(self.least), abs(self.most))
        return worst / self.best_cost if self.best_cost > 0 else float("inf")

    @property
    def factor(self) -> float | None:
        """What a best clustering of the features may cost the kernel, in units of its best.

        (1 + a)/(1 − b), a = most/best_cost and b = −least/best_cost; None (no bound) if b ≥ 1.
        """
        if self.best_cost <= 0:
            return None
        above, below = max(self.most, 0) / self.best_cost, max(-self.least, 0) / self.best_cost
        return None if below >= 1 else (1 + above) / (1 - below)

    def __str__(self) -> str:
        means = (
            "there is no bound on what a clustering of the features costs the kernel"
            if self.factor is None
            else f"the best clustering of the features costs the kernel at most {self.factor:.4g} "
            "times its own best"
        )
        return (
            f"With {self.n_features:,} features, the cost of {self.rank} clusters or components of "
            f"{self.n_rows:,} rows is within {100 * self.relative:.2g} % of that with the exact "
            f"kernel, whatever they are. So {means}."
        )


def certify_costs(
    phi: Any,
    X: Float[Array, "n d"],
    *,
    rank: int,
    kernel: Any = None,
    n_sample: int = 2048,
    random_state: Seed = None,
) -> CostCertificate:
    """Measure how far clustering and principal components of φ(X) are from those of the kernel.

    Parameters
    ----------
    phi : FeatureMap
        Or any callable from rows to features.
    X : (n, d)
    rank : int
        k, clusters or components: below the number of rows measured.
    kernel : Kernel, optional
        ``phi.kernel`` if not given.
    n_sample : int, default 2048
        Rows measured; the statement is about these.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    CostCertificate

    Notes
    -----
    Exact for the rows measured, but for rounding: both ends are reached by a projection. O(m³).
    Sources: Han et al. (2022), theorem 10 and lemma 14; Cohen et al. (2015).
    """
    require_real(phi, "certify_costs")
    n_sample = integer(n_sample, "certify_costs", "n_sample", least=2)
    rows = rows_of(X, n_sample, random_state)
    rank = integer(rank, "certify_costs", "rank", least=1)
    m = int(rows.shape[0])
    if rank >= m:
        raise InvalidInput(
            f"certify_costs: rank must be below the {m} rows measured; got {rank}. Ask for a lower "
            "rank, or measure more rows."
        )
    s = sample(phi, rows, kernel)
    errors, trace = eigvalsh(s.E, check_finite=False), float(np.trace(s.E))
    return CostCertificate(
        rank=rank,
        least=trace - float(errors[m - rank :].sum()),
        most=trace - float(errors[:rank].sum()),
        best_cost=float(spectrum(s.K)[: m - rank].sum()),
        simple_bound=abs(trace) + rank**0.5 * float(np.linalg.norm(s.E)),
        n_rows=m,
        n_features=s.n_features,
    )
