"""The six methods of the paper as they were published, and ours."""

from statistics import stdev

import numpy as np

import bochner as bo
from benchmarks.harness import Row
from bochner.features import Method
from bochner.kernels import Kernel

__all__ = ["METHODS", "OPTIMAL", "OURS", "PUBLISHED", "standard_error", "verdict", "warm_up"]

#: Han et al. (2022), section 6.2, in the order of their tables.
PUBLISHED: dict[str, Method | str] = {
    "Nystrom": bo.Nystrom("ridge-leverage"),
    "Fourier": bo.Fourier(bo.IID()),
    "FastFood": bo.Fourier(bo.Fastfood()),
    "Maclaurin": bo.Maclaurin(degrees="geometric"),
    "PolySketch": bo.PolySketch(pairs="independent"),
    "Gegenbauer": bo.Gegenbauer("monomial"),
}

#: Its radial functions are not the paper's.
OPTIMAL: dict[str, Method | str] = {"Gegenbauer, optimal": bo.Gegenbauer()}

OURS: dict[str, Method | str] = {
    "ours: auto": "auto",
    "ours: MercerHarmonic": bo.MercerHarmonic(),
    "ours: HermiteMercer": bo.HermiteMercer(),
}

METHODS = PUBLISHED | OURS


#: Values nearer than this share of each other are called equal.
EQUAL = 1e-3


def warm_up(kernel: Kernel, X: np.ndarray) -> None:
    """Use every method once on few rows, so that nobody's seconds hold an import."""
    for method in METHODS.values():
        bo.draw(kernel, method, n_features=32, X=X[:200], random_state=0)(X[:200])


def standard_error(values: list[float]) -> float:
    """Return that of the mean; of one value it is not known, NaN."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def verdict(rows: list[Row], column: str) -> Row:
    """Return, as a note, auto's value and seconds against the best of the published methods."""
    by_name = {str(row["method"]): row for row in rows}
    best = min(PUBLISHED, key=lambda name: by_name[name][column])
    ours, theirs = by_name["ours: auto"], by_name[best]
    ratio = ours[column] / theirs[column]
    word = "equal to" if abs(ratio - 1) < EQUAL else "lower than" if ratio < 1 else "NOT lower than"
    return {
        "note": f"{rows[0]['data']}: auto {ours[column]:.4g} in {ours['seconds']:.3g} s, {word} "
        f"the best published ({best}), {theirs[column]:.4g} in {theirs['seconds']:.3g} s."
    }
