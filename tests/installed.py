"""Test an installed package: ``python tests/installed.py`` runs on each wheel before release."""

import sys
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

import bochner as bo
from bochner.datasets import load_concrete


def main() -> int:
    """Fit, certify and predict; exit with an error without the compiled loops."""
    if find_spec("bochner._native") is None:
        sys.exit("The compiled loops are not in this package.")
    data = load_concrete()
    order = np.random.default_rng(0).permutation(len(data.y))
    test, train = np.split(order, [len(order) // 5])
    model = bo.KernelRidge("gaussian", n_features=512, random_state=0)
    model.fit(data.X[train], data.y[train])
    score = model.score(data.X[test], data.y[test])
    sys.stdout.write(
        f"bochner {version('bochner')}, Python {sys.version.split()[0]}: R² {score:.3f}\n"
        f"{model.certificate_}\n"
    )
    return 0 if score > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
