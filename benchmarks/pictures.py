"""Figures of the pages: small SVG files, the same bytes for the same numbers."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

__all__ = ["dots", "figure", "save"]

STYLE = {
    "axes.grid": True,
    "axes.prop_cycle": None,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bochner",
    "xtick.bottom": False,
    "ytick.left": False,
}


def figure(columns: int, rows: int = 1, width: float = 3.2, height: float = 2.9) -> tuple[Any, Any]:
    """Return a figure and its panels in a flat array."""
    import matplotlib as mpl  # noqa: PLC0415  imported when used
    import numpy as np  # noqa: PLC0415
    from cycler import cycler  # noqa: PLC0415

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    colours = mpl.colormaps["tab20"].colors[::2] + mpl.colormaps["tab20"].colors[1::2]
    mpl.rcParams.update(STYLE | {"axes.prop_cycle": cycler(color=colours)})
    size = (width * columns, height * rows)
    canvas, panels = plt.subplots(rows, columns, figsize=size, layout="constrained")
    return canvas, np.atleast_1d(panels).ravel()


def dots(panel: Any, x: Any, y: Any, **look: Any) -> None:
    """Draw a dot at each point, all as one path: strokes of no length with round ends."""
    import numpy as np  # noqa: PLC0415

    gap = np.full(len(x), np.nan)
    strokes = [np.column_stack([values, values, gap]).ravel() for values in (x, y)]
    panel.plot(*strokes, solid_capstyle="round", **look)


def save(canvas: Any, path: Path) -> None:
    """Write the figure without a date, as short as can be."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    text = StringIO()
    canvas.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(canvas)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_shortened(text.getvalue()), encoding="utf-8")


def _shortened(svg: str) -> str:
    """Return the picture with coordinates to a tenth of a point and without idle characters."""
    svg = re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", svg)
    svg = re.sub(r"\s*\n(?=[MLCQz\"])", "", svg)
    svg = re.sub(r"(?<=[MLCQ]) (?=[-\d])", "", svg)
    svg = re.sub(r"M([-\d. ]+)L\1(?=[M\"])", r"M\1h0", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r"stroke-dashoffset: 0; |transform=\"rotate\(-0[^\"]*\"| id=\"\w*_\d+\"", "", svg)
    return re.sub(r"\n\s+", "\n", svg)
