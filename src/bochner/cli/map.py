"""bochner map: the mean and deviation of a process at all places of a grid, and their picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner.cli.arguments import refuse_overwriting
from bochner.cli.show import Terminal
from bochner.data.writers import atomic
from bochner.errors import InvalidInput, MissingDependency
from bochner.models.displays import MapDisplay, box_of_rows
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor


def run_map(
    terminal: Terminal, *, model: str, out: Path, places: int, picture: Path | None
) -> None:
    """Predict at all places, write the field and its picture, say what is in them."""
    from bochner.cli.predict import open_model  # noqa: PLC0415  imports stay few deep

    xarray = _xarray()
    refuse_overwriting(out, [Path(model)])
    with terminal.phase("open"):
        fitted = open_model(model)
        _require_map(model, fitted)
    axes = box_of_rows(fitted, places)
    with terminal.phase("predict", "Predicting the map"):
        mean, deviation = fitted.predict_grid(return_std=True, **axes)
    names = fitted.schema_ and fitted.schema_.target_names
    target = names[0] if names else "y"
    with terminal.phase("write"):
        field = xarray.Dataset({target: mean, f"{target}_deviation": deviation})
        with atomic(out) as file:
            file.write(field.to_netcdf(engine="scipy"))
        where = out.with_suffix(".png") if picture is None else picture
        _draw(MapDisplay(axes, np.asarray(mean), np.asarray(deviation), target), where)
    facts: dict[str, Any] = {
        "places": int(mean.size),
        "axes": {name: [float(axis[0]), float(axis[-1])] for name, axis in axes.items()},
        "mean": [float(mean.min()), float(mean.max())],
        "deviation": [float(deviation.min()), float(deviation.max())],
        "seconds": terminal.seconds,
        "out": str(out),
        "picture": str(where),
    }
    lines = [
        ("places", f"{mean.size:,}, {' x '.join(map(str, mean.shape))}"),
        *((name, _between(facts["axes"][name])) for name in axes),
        (target, _between(facts["mean"])),
        ("deviation", _between(facts["deviation"])),
        terminal.timed,
        ("field", str(out)),
        ("picture", str(where)),
    ]
    terminal.show(facts, lines)


def _between(ends: Sequence[float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def _xarray() -> Any:
    try:
        import xarray  # noqa: PLC0415
    except ImportError as missing:
        raise MissingDependency(
            "bochner map writes NetCDF with xarray, not installed here. Install with: pip install "
            "xarray"
        ) from missing
    return xarray


def _require_map(path: str, fitted: Any) -> None:
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


def _draw(shown: MapDisplay, where: Path) -> None:
    """Draw the mean, and its deviation beside it where the map has two columns."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    kinds = ("mean", "deviation") if len(shown.axes) == 2 else ("mean",)
    figure = Figure(figsize=(6 * len(kinds), 4), layout="constrained")
    for ax, what in zip(np.atleast_1d(figure.subplots(1, len(kinds))), kinds, strict=True):
        shown.plot(ax, what)
    with atomic(where) as file:
        figure.savefig(file, format=where.suffix[1:], dpi=150)
