"""Checks and the picture of ``bochner map``."""

from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner.data.writers import atomic
from bochner.errors import InvalidInput
from bochner.models.displays import MapDisplay
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor


def require_map(path: str, fitted: Any) -> None:
    """Refuse a model that is no process of one target over one or two coordinates."""
    if not isinstance(fitted, GaussianProcessRegressor):
        raise click.BadParameter(
            f"'{path}' must hold a process of one or two coordinates, as bochner fit --coords "
            f"writes; it holds a {type(fitted).__name__}.",
            param_hint="'MODEL'",
        )
    if fitted.n_features_in_ > 2 or fitted.target_shape_:
        raise InvalidInput(
            f"bochner map draws one target over one or two coordinates; got "
            f"{fitted.n_features_in_} columns and targets of shape {fitted.target_shape_}. Fit "
            "with --coords A,B and one --target."
        )


def draw(shown: MapDisplay, where: Path) -> None:
    """Draw the mean, and for two columns its deviation in a second picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    kinds = ("mean", "deviation") if len(shown.axes) == 2 else ("mean",)
    figure = Figure(figsize=(6 * len(kinds), 4), layout="constrained")
    for ax, what in zip(np.atleast_1d(figure.subplots(1, len(kinds))), kinds, strict=True):
        shown.plot(ax, what)
    with atomic(where) as file:
        figure.savefig(file, format=where.suffix[1:], dpi=150)
