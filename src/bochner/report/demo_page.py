"""Results of the demo and its page: one HTML file without scripts or external files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bochner import landmarks
from bochner._core.shapes import Array, Float
from bochner.datasets.loaders import load_earth
from bochner.report.render import number, page, picture

#: Colours of maps from low to zero and from zero to high. Along each side the lightness that the
#: eye sees (Oklab, Ottosson 2020) changes by equal steps. Sea blue, land green to brown.
RELIEF = (
    ("#0b1b47", "#2b4b6f", "#577d98", "#8aafc1", "#c5e4ed"),
    ("#bed598", "#a8a064", "#8c6f3c", "#6b4221", "#451a0f"),
)
#: Too low violet, too high orange; no error has the colour of the paper.
ERROR = (
    ("#531d8d", "#7757aa", "#a08bc5", "#c9bedf", "#f5f4f8"),
    ("#f8f4f2", "#e1c7b5", "#cb997b", "#b46d45", "#9a3c00"),
)
#: A space between a number and its unit, where a line must not break.
UNIT = re.compile(r"(?<=\d) (?=m\b|%)")


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One row of the table of methods."""

    name: str  # as it is shown
    code: str  # the Python expression that gives the method
    n_features: int
    rmse: float  # on the held-out cells, metres
    r_squared: float  # on the held-out cells
    seconds: float  # of fit and prediction of the held-out cells, wall clock
    loo: float  # root mean squared leave-one-out error on the training cells, metres
    alpha: float  # the penalty chosen
    epsilon: float | None = None  # of the certificate, as what follows; None where there is none
    epsilon_interval: tuple[float, float] | None = None
    frobenius: float | None = None
    certificate: str = ""  # in words


@dataclass(frozen=True)
class NearResult:
    """One row of the second table."""

    name: str
    code: str
    detail: str
    rmse: float  # on the held-out cells, metres
    seconds: float  # of fit and prediction of the held-out cells, wall clock


@dataclass(frozen=True)
class Curve:
    """Held-out error of one method against the number of features."""

    name: str
    n_features: tuple[int, ...]
    rmse: tuple[float, ...]  # metres, one for each number of features


@dataclass(frozen=True, eq=False)
class DemoResult:
    """All that the demo found.

    Attributes
    ----------
    methods : tuple of MethodResult
        The table, all at the same width.
    curves : tuple of Curve
    best : MethodResult
        The fit that the maps show: of those along the curves, the one with the least
        leave-one-out error on the training cells (the held-out cells have no say).
    truth, prediction : (rows, columns)
        Metres, south first.
    held_out : (rows, columns) bool
        Cells that no fit has seen.
    kernel, alpha : str, float
        The kernel of all fits, as code, and the alpha of the certificates in the table.
    certificate : str
        Certificate of ``best`` at this alpha, in words; ``best.certificate`` is at its alpha.
    n_train, n_test : int
    seed : int
    quick : bool
    seconds : float
        All of it, wall clock.
    path : Path
        The page.
    near : tuple of NearResult
        Harmonics of the globe, the nearest cells, and what is learned from the relief around.
    """

    methods: tuple[MethodResult, ...]
    curves: tuple[Curve, ...]
    best: MethodResult
    truth: Float[Array, "rows columns"]
    prediction: Float[Array, "rows columns"]
    held_out: Float[Array, "rows columns"]
    kernel: str
    alpha: float
    certificate: str
    n_train: int
    n_test: int
    seed: int
    quick: bool = False
    seconds: float = 0.0
    path: Path = Path("earth.html")
    near: tuple[NearResult, ...] = ()

    @property
    def error(self) -> Float[Array, "rows columns"]:
        """Prediction less truth, metres."""
        return self.prediction - self.truth

    @property
    def latitudes(self) -> Float[Array, " rows"]:
        """Degrees north of the middle of each row of cells."""
        rows = self.truth.shape[0]
        return -90 + (np.arange(rows) + 0.5) * 180 / rows

    @property
    def area_rmse(self) -> float:
        """Error on held-out cells, each weighted by its area (the cosine of its latitude)."""
        area = np.cos(np.deg2rad(self.latitudes))[:, None] * self.held_out
        return float(np.sqrt((area * self.error**2).sum() / area.sum()))

    def rmse_where(self, cells: Float[Array, "rows columns"]) -> float:
        """Error on the held-out cells among these, metres; NaN where there are none."""
        chosen = self.error[cells & self.held_out]
        return float(np.sqrt(np.mean(chosen**2))) if chosen.size else float("nan")


def earth_page(result: DemoResult) -> str:
    """Return the page as text."""
    r, ends = result, sorted(result.curves, key=lambda curve: curve.rmse[-1])
    alphas = [row.alpha for row in r.methods if row.epsilon is not None]
    made = set(re.findall(r"(\w+)\(", r.best.code))
    text = page(
        "demo.html.j2",
        r=r,
        maps={
            "truth": _map("Relief as measured, m", r.truth, RELIEF, (-7500, 6000)),
            "prediction": _map("Relief as predicted, m", r.prediction, RELIEF, (-7500, 6000)),
            "error": _map("Prediction less truth, m", r.error, ERROR, (-1500, 1500)),
        },
        curves=picture("Test error against the number of features", draw_curves(r.curves)),
        where=_where(r),
        alphas=f"{number(min(alphas), 1)} to {number(max(alphas), 1)}",
        ends=ends,
        names=", ".join(sorted({*made - set(landmarks.__all__), "KernelRidge"})),
        landmarks=", ".join(sorted(made & set(landmarks.__all__))),
        source=_source(),
    )
    return UNIT.sub("\u00a0", text)


def _where(r: DemoResult) -> dict[str, Any]:
    """Return how large the errors on held-out cells are, and the largest."""
    errors = np.abs(r.error[r.held_out])
    worst = np.where(r.held_out, np.abs(r.error), 0)
    row, column = np.unravel_index(int(np.argmax(worst)), worst.shape)
    latitude, longitude = r.latitudes[row], -180 + (column + 0.5) * 360 / worst.shape[1]
    north, east = "N" if latitude > 0 else "S", "E" if longitude > 0 else "W"
    return {
        "median": np.median(errors),
        "inside": np.mean(errors < 250),
        "place": f"{abs(latitude):.1f}° {north}, {abs(longitude):.1f}° {east}",
        "predicted": f"{r.prediction[row, column]:,.0f} m".replace("-", "−"),
        "true": f"{r.truth[row, column]:,.0f} m".replace("-", "−"),
        "deviation": r.truth[r.held_out].std(),
    }


def _source() -> str:
    """Return the data set's own words on source and licence."""
    parts = load_earth().description.split("\n\n")
    return " ".join(" ".join(p.split()) for p in parts if p.startswith(("Source", "Licence")))


# --- Pictures ------------------------------------------------------------------------------------


def colours(sides: tuple[tuple[str, ...], tuple[str, ...]]) -> Any:
    """Return the matplotlib colour map with these colours below and above its middle."""
    from matplotlib.colors import LinearSegmentedColormap

    places = [*np.linspace(0, 0.5, len(sides[0])), *np.linspace(0.5, 1, len(sides[1]))]
    stops = list(zip(places, [*sides[0], *sides[1]], strict=True))
    return LinearSegmentedColormap.from_list("map", stops, N=256)


def _map(title: str, values: Array, sides: Any, ends: tuple[int, int]) -> Any:
    """Return a map with its degrees and its colours."""
    from matplotlib.colors import TwoSlopeNorm

    def draw(ax: Any) -> None:
        image = ax.imshow(
            values,
            cmap=colours(sides),
            norm=TwoSlopeNorm(0, *ends),
            extent=(-180, 180, -90, 90),
            origin="lower",
            interpolation="none",
        )
        east, north = range(-120, 121, 60), range(-60, 61, 30)
        ax.set_xticks(east, [f"{abs(d)}°{'WE'[d > 0] if d else ''}" for d in east])
        ax.set_yticks(north, [f"{abs(d)}°{'SN'[d > 0] if d else ''}" for d in north])
        ax.set_axisbelow(False)
        ax.grid(True, axis="both", color="gray", alpha=0.4, linewidth=0.5)
        ax.tick_params(length=0)
        bar = ax.figure.colorbar(
            image, orientation="horizontal", aspect=40, pad=0.03, extend="both"
        )
        bar.set_label(title)
        bar.ax.set_xscale("linear")

    return picture(title, draw, (4.8, 3.0))


def draw_curves(curves: Sequence[Curve]) -> Callable[[Any], None]:
    """Return what draws errors against numbers of features on axes."""
    from matplotlib.ticker import MaxNLocator

    def draw(ax: Any) -> None:
        for curve, mark in zip(curves, "os^*D" * len(curves), strict=False):
            ax.plot(curve.n_features, curve.rmse, mark + "-", markersize=5, label=curve.name)
        widths = sorted({D for curve in curves for D in curve.n_features})
        ax.set(xscale="log", yscale="log", xlabel="features D", ylabel="test RMSE, m")
        ax.set_xticks(widths, [f"{D:,}" for D in widths])
        ax.minorticks_off()
        ax.yaxis.set_major_locator(MaxNLocator(6))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.legend()

    return draw
