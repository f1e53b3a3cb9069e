"""Try an installed package: ``python tests/installed.py``, as each wheel is before it is published."""

import sys
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

import bochner as bo
from bochner.datasets import load_concrete


def main() -> int:
    """Fit, certify and predict; the compiled loops must be there."""
    if find_spec("bochner._native") is None:
        sys.exit("The compiled loops are not in this package.")
    data = load_concrete()
    order = np.random.default_rng(0).permutation(len(data.y))
    held, kept = np.split(order, [len(order) // 5])
    model = bo.KernelRidge("gaussian", n_features=512, random_state=0)
    model.fit(data.X[kept], data.y[kept])
    share = model.score(data.X[held], data.y[held])
    sys.stdout.write(
        f"bochner {version('bochner')}, Python {sys.version.split()[0]}: R² {share:.3f}\n"
        f"{model.certificate_}\n"
    )
    return 0 if share > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
