"""One-class machines on 278,000 rows of 20 columns, against scikit-learn's.

Rows: a mixture of eight normal clouds; of the rows to test, one in twenty is drawn from a wide
cloud instead. "AUC" is the share of pairs of such a row and a plain one that the score has in the
right order. scikit-learn's exact machine, whose time grows like n² or worse, gets 10,000 rows;
its ``SGDOneClassSVM`` gets all, on ``RBFSampler`` features of the same width.
"""

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDOneClassSVM
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import OneClassSVM

import bochner as bo
from benchmarks.harness import Options, Row, interleaved, judged
from bochner.kernels import Gaussian

__all__ = ["run"]

COLUMNS, NU, LENGTHSCALE, WIDTH = 20, 0.05, 4.0, 512


def run(options: Options) -> list[Row]:
    """Time all three once, in turns."""
    n, few = options.pick((278_000, 10_000), (5_000, 1_000))
    X, (new, strange) = _rows(n, 0), _test_rows(10_000)
    gamma = 1 / (2 * LENGTHSCALE**2)
    ours = bo.OneClassSVM(
        Gaussian(LENGTHSCALE), method="orthogonal", n_features=WIDTH, nu=NU, random_state=0
    )
    sgd = make_pipeline(
        RBFSampler(gamma=gamma, n_components=WIDTH, random_state=0),
        SGDOneClassSVM(nu=NU, random_state=0),
    )
    exact = OneClassSVM(gamma=gamma, nu=NU)
    cases = {
        f"bochner, D={WIDTH}": (ours, n),
        f"RBFSampler + SGDOneClassSVM, D={WIDTH}": (sgd, n),
        "OneClassSVM": (exact, few),
    }
    fits = {name: (lambda _, m=model, k=k: m.fit(X[:k])) for name, (model, k) in cases.items()}
    times = interleaved(fits, 1, warm_up=False)
    rows = [
        {
            "case": name,
            "rows": k,
            "seconds": times[name].median,
            "AUC": roc_auc_score(strange, -model.decision_function(new)),
            "outside": float(np.mean(model.predict(X[:few]) < 0)),
            "nu": NU,
        }
        for name, (model, k) in cases.items()
    ]
    rows[0] |= judged(rows[0]["seconds"], 60, least=False)
    return rows


def _rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(99).standard_normal((8, COLUMNS))
    X = centres[rng.integers(8, size=n)] + rng.standard_normal((n, COLUMNS))
    return X.astype(np.float32)


def _test_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    strange = rng.random(n) < 0.05
    wide = (2.2 * rng.standard_normal((n, COLUMNS))).astype(np.float32)
    return np.where(strange[:, None], wide, _rows(n, 2)), strange
