"""Figure 1: the largest error of Taylor, Chebyshev and Gegenbauer series of a kernel on the sphere.

max |κ(t) − κ_q(t)| / κ(1) over t = cos θ from -1 to 1, for degree q: Gaussian exp(-|x − y|²) and
the neural tangent kernels of one and two hidden layers. The Gegenbauer series of dimension d is
the Chebyshev series at d = 2 and tends to Taylor's as d grows.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Options, Row
from bochner.kernels import NeuralTangent
from bochner.kernels.zonal import Angle, coefficients, gegenbauers

__all__ = ["draw", "run"]

Array = np.ndarray
Function = Callable[[Array], Array]

#: Largest degree, as in the paper.
DEGREE = 15

#: Dimensions of the Gegenbauer series beside Chebyshev's, 2.
DIMENSIONS = (4, 8, 32)

#: Radius of the circle on which Taylor coefficients are computed, and points on it.
RADIUS, POINTS = 0.8, 256


def run(options: Options, _: int) -> Iterator[list[Row]]:
    """Give the errors for each kernel; nothing is random."""
    grid = np.linspace(0.0, np.pi, options.pick(20_001, 501))
    for name, function in FUNCTIONS.items():
        yield _kernel(name, function, grid)


def _kernel(name: str, function: Function, theta: Array) -> list[Row]:
    exact, t = function(theta).real, np.cos(theta)
    largest = float(np.abs(exact).max())
    degree = DEGREE
    series = {"Taylor": _taylor(function, t, degree)}
    for d in (2, *DIMENSIONS):
        c = coefficients(lambda angle: function(angle).real, d, degree)
        terms = [c_l * P for c_l, P in zip(c, gegenbauers(degree, d, t), strict=True)]
        series["Chebyshev" if d == 2 else f"Gegenbauer d={d}"] = np.cumsum(terms, axis=0)
    errors = {key: np.abs(sums - exact).max(axis=1) / largest for key, sums in series.items()}
    return [
        {"kernel": name, "series": key} | {f"q={q}": float(error[q]) for q in range(degree + 1)}
        for key, error in errors.items()
    ]


def _taylor(function: Function, t: Array, degree: int) -> Array:
    """Return the partial sums of the Taylor series at t = 0, by Cauchy's formula."""
    z = RADIUS * np.exp(2j * np.pi * np.arange(POINTS) / POINTS)
    values = function(np.arccos(z))
    a = (np.fft.fft(values) / POINTS).real[: degree + 1] / RADIUS ** np.arange(degree + 1)
    return np.cumsum([a_n * t**n for n, a_n in enumerate(a)], axis=0)


# --- Kernels on the unit sphere, as functions of the angle, real or complex ----------------------


def _gaussian(theta: Array) -> Array:
    return np.exp(2 * (np.cos(theta) - 1))


def _tangent(depth: int) -> Function:
    def kernel(theta: Array) -> Array:
        if np.isrealobj(theta):
            return NeuralTangent(depth).profile(Angle.of(theta))
        sigma = tangent = np.cos(theta)
        for _ in range(depth):
            angle = np.arccos(sigma)
            sigma = (np.sqrt(1 - sigma**2) + sigma * (np.pi - angle)) / np.pi
            tangent = tangent * (1 - angle / np.pi) + sigma
        return tangent

    return kernel


FUNCTIONS: dict[str, Function] = {
    "Gaussian": _gaussian,
    "NTK, 1 hidden layer": _tangent(1),
    "NTK, 2 hidden layers": _tangent(2),
}


# --- Picture -------------------------------------------------------------------------------------


def draw(rows: list[Row], path: Path) -> None:
    """Draw the errors against the degree, a panel for each kernel."""
    from benchmarks.pictures import figure, save  # noqa: PLC0415  needs matplotlib

    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    canvas, panels = figure(len(kernels))
    for panel, kernel in zip(panels, kernels, strict=True):
        for row in (row for row in rows if row["kernel"] == kernel):
            error = [value for key, value in row.items() if key.startswith("q=")]
            panel.semilogy(range(len(error)), error, label=row["series"])
        panel.set(title=kernel, xlabel="degree")
        panel.minorticks_off()
    panels[0].set_ylabel("largest error / largest value")
    panels[0].legend()
    save(canvas, path)
