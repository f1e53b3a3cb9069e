"""Pages from Jinja2 templates, pictures from matplotlib as SVG."""

import math
import platform
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bochner as bo
from bochner._core.optional import package
from bochner._core.text import html_table, svg_image

TEMPLATES = Path(__file__).parent / "templates"


def require(caller: str) -> None:
    """Raise MissingDependency if a package that pages need is not installed."""
    for name in ("jinja2", "matplotlib"):
        package(name, caller, '"bochner[report]"')


def page(template: str, **facts: Any) -> str:
    """Return the HTML of a template, filled with ``facts``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["table"] = lambda *parts: Markup(
        f'<div class="wide">{html_table(*parts)}</div>'  # scrolls on narrow pages
    )
    environment.filters["number"] = number
    return environment.get_template(template).render(versions=versions(), **facts)


def number(value: Any, digits: int = 4) -> str:
    """Return a number as text: 12,345, 0.01234, 1.2 × 10⁻⁷; – for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size < 1e9 and (value == round(value) or size >= 10 ** (digits - 1)):
        text = f"{value:,.0f}"
    elif 1e-4 <= size < 1e9:
        text = f"{value:#.{digits}g}".rstrip(".")
    else:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        short = mantissa.rstrip("0").rstrip(".")
        exponent = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{short}\u00a0×\u00a010{exponent}"
    return text.replace("-", "−")


def imports(code: str) -> list[str]:
    """Return the import lines of the names of bochner in ``code``."""
    classes = set(re.findall(r"\b([A-Z]\w*)\(", code))
    homes = {"bochner": bo, "bochner.kernels": bo.kernels, "bochner.landmarks": bo.landmarks}
    pairs = ((home, sorted(classes & {*module.__all__})) for home, module in homes.items())
    return [f"from {home} import {', '.join(names)}" for home, names in pairs if names]


def versions() -> str:
    """Return the versions of the packages in use."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    system = f"{platform.system()} {platform.machine()}"
    return f"bochner {bo.__version__}, Python {platform.python_version()}, {packages}; {system}."


def picture(title: str, draw: Callable[[Any], Any], size: tuple[float, float] = (4.8, 3.2)) -> Any:
    """Return a plot, made by ``draw(axes)``, as SVG; equal numbers give identical text."""
    from markupsafe import Markup  # noqa: PLC0415
    from matplotlib import style
    from matplotlib.figure import Figure

    styles: list[Any] = [TEMPLATES / "picture.mplstyle", {"svg.hashsalt": title}]
    with style.context(styles, after_reset=True):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        return Markup(svg_image(figure, title, 'class="plot"'))
