"""Pictures of docs/gallery.md: ``python -m benchmarks.gallery [--out DIR] [--quick]``.

Nothing is timed, and the seeds are fixed: the same versions give the same pictures.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from benchmarks.harness import Options, Row, table
from benchmarks.paper import figure1
from benchmarks.pictures import dots, figure, save
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.features.fourier.placements import Placement
from bochner.kernels import Gaussian

__all__ = ["main"]

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

Array = np.ndarray

#: Each method with its colour and its line: a colour for each family.
METHODS: dict[str, tuple[Method, str, str]] = {
    "Fourier(IID())": (bo.Fourier(bo.IID()), "tab:blue", ":"),
    "Fourier(Orthogonal())": (bo.Fourier(bo.Orthogonal()), "tab:blue", "-"),
    "Fourier(Structured())": (bo.Fourier(bo.Structured()), "tab:blue", "--"),
    "Fourier(Fastfood())": (bo.Fourier(bo.Fastfood()), "tab:blue", "-."),
    "Fourier(QMC())": (bo.Fourier(bo.QMC()), "tab:cyan", "-"),
    "Fourier(Grid())": (bo.Fourier(bo.Grid()), "tab:cyan", "--"),
    "Gegenbauer('monomial')": (bo.Gegenbauer("monomial"), "tab:purple", ":"),
    "Gegenbauer()": (bo.Gegenbauer(), "tab:purple", "-"),
    "MercerHarmonic()": (bo.MercerHarmonic(), "tab:red", "-"),
    "HermiteMercer()": (bo.HermiteMercer(), "tab:orange", "-"),
    "Compressed(HermiteMercer())": (bo.Compressed(bo.HermiteMercer()), "tab:orange", "--"),
    "LaplacianEigenfunctions()": (bo.LaplacianEigenfunctions(), "tab:pink", "-"),
    "Maclaurin()": (bo.Maclaurin(), "tab:gray", ":"),
    "TensorSketch()": (bo.TensorSketch(), "tab:gray", "--"),
    "PolySketch()": (bo.PolySketch(), "tab:gray", "-"),
    'Nystrom("uniform")': (bo.Nystrom("uniform"), "tab:green", ":"),
    'Nystrom("kmeans")': (bo.Nystrom("kmeans"), "tab:green", "-."),
    'Nystrom("ridge-leverage")': (bo.Nystrom("ridge-leverage"), "tab:green", "--"),
    'Nystrom("rpcholesky")': (bo.Nystrom(), "tab:green", "-"),
}

DIMENSIONS = (2, 3, 9, 20, 100)
WIDTHS = (32, 64, 128, 256, 512, 1024)

#: Methods whose features grow like a power of d are tried up to this many columns.
MOST_COLUMNS = {"LaplacianEigenfunctions()": 3, "Fourier(Grid())": 3}

#: Compression is of four times as many features, whose eigenvectors take a minute beyond this.
MOST_FEATURES = {"Compressed(HermiteMercer())": 512}

#: Seeds of the random methods; errors are the root of their mean square.
SEEDS = 3

CERTAIN = (bo.MercerHarmonic, bo.HermiteMercer, bo.Compressed, bo.LaplacianEigenfunctions)


def main(arguments: list[str] | None = None) -> int:
    """Draw all pictures, and print the numbers of the first."""
    asked = _parser().parse_args(arguments)
    rows = errors(asked.quick)
    sys.stdout.write(table(rows) + "\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    draw_errors(rows, asked.out / "error.svg")
    draw_frequencies(asked.out / "frequencies.svg")
    draw_spectra(asked.out / "spectrum.svg", 200 if asked.quick else 1000)
    series = [row for part in figure1.run(Options(quick=asked.quick), 1) for row in part]
    figure1.draw(series, asked.out / "series.svg")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery")
    parser.add_argument("--out", type=Path, default=PICTURES, help="folder (docs/pictures)")
    parser.add_argument("--quick", action="store_true", help="small sizes: only try the scripts")
    return parser


# --- Error against width -------------------------------------------------------------------------


def errors(quick: bool = False) -> list[Row]:
    """Return ‖ZZᵀ − K‖_F/‖K‖_F for each d and method, at each width.

    Rows are N(0, I), the lengthscale is their median distance; maps are drawn with 4,000 rows and
    measured on 1,000 others.
    """
    n, m, widths = (500, 200, WIDTHS[:2]) if quick else (4000, 1000, WIDTHS)
    rows = []
    for d in DIMENSIONS:
        X = np.random.default_rng(d).standard_normal((n + m, d))
        kernel = Gaussian(_median_distance(X[:m]))
        K = kernel(X[:m])
        for name, (method, *_) in METHODS.items():
            if d <= MOST_COLUMNS.get(name, d):
                most = MOST_FEATURES.get(name, max(widths))
                found = [_error(method, kernel, D, X[m:], X[:m], K) for D in widths if most >= D]
                named = zip(map(str, widths), found, strict=False)
                rows.append({"d": d, "method": name} | dict(named))
    return rows


def _error(
    method: Method, kernel: Gaussian, D: int, X: Array, kept: Array, K: Array
) -> float | None:
    squares = []
    for seed in range(1 if isinstance(method, CERTAIN) else SEEDS):
        try:
            Z = bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(kept)
        except InvalidInput:  # too narrow for this method
            return None
        squares.append((np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) ** 2)
    return float(np.mean(squares) ** 0.5)


def _median_distance(X: Array) -> float:
    half = len(X) // 2
    return float(np.median(np.linalg.norm(X[:half] - X[half : 2 * half], axis=1)))


def draw_errors(rows: list[Row], path: Path) -> None:
    """Draw a panel for each d, and the names in the last one."""
    canvas, panels = figure(3, 2)
    for panel, d in zip(panels, DIMENSIONS, strict=False):
        for row in (row for row in rows if row["d"] == d):
            widths = [key for key in row if key.isdigit() and row[key] is not None]
            _, colour, line = METHODS[row["method"]]
            values = [max(row[D], 1e-16) for D in widths]
            panel.loglog([int(D) for D in widths], values, line, color=colour)
        panel.set(title=f"d = {d}", xlabel="features D")
        panel.set_xticks(WIDTHS, [str(D) for D in WIDTHS])
        panel.minorticks_off()
    for panel in panels[::3]:
        panel.set_ylabel("‖ZZᵀ − K‖ / ‖K‖")
    for name, (_, colour, line) in METHODS.items():
        panels[-1].plot([], [], line, color=colour, label=name)
    panels[-1].legend(loc="center")
    panels[-1].axis("off")
    save(canvas, path)


# --- Where frequencies fall ----------------------------------------------------------------------

#: Width of a dot, in points.
DOT = 2.5

#: Placement and columns, of which two are shown: transforms are fast ones from 32 columns on.
PLACEMENTS: tuple[tuple[Placement, int], ...] = (
    (bo.IID(), 2),
    (bo.Orthogonal(), 2),
    (bo.QMC(), 2),
    (bo.Grid(), 2),
    (bo.Structured(), 64),
    (bo.Fastfood(), 64),
)


def draw_frequencies(path: Path, m: int = 200) -> None:
    """Draw m frequencies of the Gaussian kernel for each placement, in two coordinates."""
    canvas, panels = figure(3, 2, 2.6, 2.6)
    for panel, (placement, d) in zip(panels, PLACEMENTS, strict=True):
        for (x, y), size in _frequencies(placement, d, m):
            dots(panel, x, y, linewidth=size, color="tab:blue")
        where = "d = 2" if d == 2 else f"2 of d = {d}"
        panel.set(title=f"{placement!r}, {where}", xlim=(-4, 4), ylim=(-4, 4), aspect="equal")
    save(canvas, path)


def _frequencies(placement: Placement, d: int, m: int) -> Iterator[tuple[Array, float]]:
    """Give frequencies (2, m), and the size of their dots: that of nodes goes with their weight."""
    measure = Gaussian(1.0).spectral_measure(d)
    if not isinstance(placement, bo.Grid):
        yield placement.place(measure, m, np.random.default_rng(0))[:2], DOT
        return
    W, weights = placement.nodes(measure, m)
    size = np.clip(np.ceil(4 * DOT * (weights * m) ** 0.25) / 4, DOT / 4, None)
    for value in np.unique(size):
        yield W[:, size == value], float(value)


def _on_sphere(n: int, d: int) -> Array:
    X = np.random.default_rng(0).standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# --- The spectrum that a map captures ------------------------------------------------------------

CAPTURED = (
    "Fourier(Orthogonal())",
    "Fourier(QMC())",
    "Gegenbauer()",
    "MercerHarmonic()",
    "HermiteMercer()",
    "PolySketch()",
    'Nystrom("uniform")',
    'Nystrom("rpcholesky")',
)


def draw_spectra(path: Path, n: int, D: int = 128) -> None:
    """Draw the eigenvalues of Z Zᵀ/n over those of K/n, for rows on a sphere and in space."""
    canvas, panels = figure(3, 1, 3.4, 3.2)
    for panel, (title, X, scale) in zip(panels, _row_sets(n), strict=True):
        kernel = Gaussian(scale)
        _curve(panel, kernel(X), D, color="black", linewidth=3, alpha=0.35, label="K")
        for name in CAPTURED:
            method, colour, line = METHODS[name]
            Z = bo.draw(kernel, method, n_features=D, X=X, random_state=0)(X)
            _curve(panel, Z @ Z.T, D, linestyle=line, color=colour, label=name)
        panel.set(title=title, xlabel="eigenvalue", ylim=(1e-9, 2))
        panel.minorticks_off()
    panels[0].set_ylabel(f"of ZZᵀ/n and K/n, D = {D}")
    panels[0].legend(loc="lower left")
    save(canvas, path)


def _row_sets(n: int) -> Iterator[tuple[str, Array, float]]:
    yield "sphere in R³, ℓ = ½", _on_sphere(n, 3), 0.5
    yield "N(0, I) in R³, ℓ = 1", np.random.default_rng(0).standard_normal((n, 3)), 1.0
    yield "N(0, I) in R⁹, ℓ = 3", np.random.default_rng(0).standard_normal((n, 9)), 3.0


def _curve(panel: Any, A: Array, D: int, **look: Any) -> None:
    values = np.linalg.eigvalsh(A)[::-1] / len(A)
    shown = np.arange(0, min(D + 32, len(A)), 2)
    panel.semilogy(1 + shown, np.maximum(values[shown], 1e-12), **look)


if __name__ == "__main__":
    sys.exit(main())
