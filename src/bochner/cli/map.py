"""Checks and the picture of ``bochner map``."""

from pathlib import Path

import numpy as np

from bochner.data.writers import atomic
from bochner.models.displays import MapDisplay


def draw(display: MapDisplay, where: Path) -> None:
    """Draw the mean, and for two columns its deviation in a second picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    kinds = ("mean", "deviation") if len(display.axes) == 2 else ("mean",)
    figure = Figure(figsize=(6 * len(kinds), 4), layout="constrained")
    for ax, what in zip(np.atleast_1d(figure.subplots(1, len(kinds))), kinds, strict=True):
        display.plot(ax, what)
    with atomic(where) as file:
        figure.savefig(file, format=where.suffix[1:], dpi=150)
