"""Error of the kernel matrix at equal width, against RBFSampler.

Gaussian rows, Gaussian kernel with the median distance of the rows as its lengthscale, pair form;
‖ZZᵀ − K‖_F / ‖K‖_F with K from scikit-learn, medians over seeds. Seconds are those of drawing the
map and making the features.
"""

from collections.abc import Callable
from statistics import median

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

import bochner as bo
from benchmarks.harness import Options, Row, interleaved, judged
from bochner.kernels import Gaussian

__all__ = ["run"]

#: Columns d, placement, and the share of the rival's error that is asked.
CASES = ((5, "qmc", 1 / 8), (20, "orthogonal", 1 / 3), (100, "orthogonal", 1 / 3))


def run(options: Options) -> list[Row]:
    """Measure each case."""
    return [_case(options, *case) for case in CASES]


def _case(options: Options, d: int, placement: str, asked: float) -> Row:
    n, D = options.pick((2000, 1024), (300, 1024))
    X = np.random.default_rng(d).standard_normal((n, d))
    scale = float(np.median(pdist(X)))
    K = rbf_kernel(X, gamma=0.5 / scale**2)
    makers = {"ours": _ours(placement, scale, D, X), "rival": _rival(scale, D, X)}
    times = interleaved(makers, options.pick(11, 3))
    errors = {
        name: median(float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) for Z in timing.values)
        for name, timing in times.items()
    }
    share = errors["ours"] / errors["rival"]
    return {
        "case": f"d={d}, D={D}, n={n}, {placement}",
        "error": errors["ours"],
        "rival's": errors["rival"],
        "share": share,
        **judged(share, asked, least=False),
        "seconds": times["ours"].median,
        "rival s": times["rival"].median,
    }


def _ours(placement: str, scale: float, D: int, X: np.ndarray) -> Callable[[int], np.ndarray]:
    def case(seed: int) -> np.ndarray:
        return bo.draw(Gaussian(scale), placement, n_features=D, X=X, random_state=seed)(X)

    return case


def _rival(scale: float, D: int, X: np.ndarray) -> Callable[[int], np.ndarray]:
    def case(seed: int) -> np.ndarray:
        sampler = RBFSampler(gamma=0.5 / scale**2, n_components=D, random_state=seed)
        return sampler.fit_transform(X)

    return case
