"""What pages are made of: numbers in words, tables, figures, sections."""

import math
import platform
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from typing import Any

from bochner import __version__

#: Numbers of more digits than people read.
LONG = re.compile(r"\d+\.\d{4,}(?:e-?\d+)?")

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: Any, digits: int = 4) -> str:
    """Write a number to some digits, for people: 12,345, 0.01234, 1.2 × 10⁻⁷, – for none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if value == round(value) and size < 1e9:
        text = f"{value:,.0f}"
    elif 1e-4 <= size < 10 ** (digits - 1):
        text = f"{value:#.{digits}g}".rstrip(".")
    elif 1 <= size < 1e9:
        text = f"{value:,.0f}"
    else:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        short = mantissa.rstrip("0").rstrip(".")
        text = f"{short}\u00a0×\u00a010{str(int(power)).translate(SUPERSCRIPT)}"
    return text.replace("-", "−")


def rounded(text: str) -> str:
    """Return code with its long numbers cut to four digits, to be read and not to be run."""
    return LONG.sub(lambda found: f"{float(found[0]):.4g}", text)


def versions() -> str:
    """Return the versions of all that took part."""
    others = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    system = f"{platform.system()} {platform.machine()}"
    return f"bochner {__version__}, Python {platform.python_version()}, {others}; {system}."


def seconds(value: float) -> str:
    """Write seconds to what a watch tells."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def section(name: str, title: str, *parts: str) -> str:
    """Return a section that can be linked to."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{inside}\n</section>'


def pair(*parts: str) -> str:
    """Return parts side by side, one below the other on small screens."""
    return f'<div class="pair">\n{"".join(f"<div>{part}</div>" for part in parts)}\n</div>'


def figure(title: str, picture: str, caption: str = "", above: str = "") -> str:
    """Return a picture with its title and what to see in it."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{escape(title)}</h3>{above}{picture}{below}</figure>"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", marked: int = -1
) -> str:
    """Return a table whose first column names the rows; one row may be marked."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "\n".join(_row(cells, i == marked) for i, cells in enumerate(rows))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table>{title}<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(cells: Sequence[str], marked: bool) -> str:
    first, *rest = (escape(cell) for cell in cells)
    kind = ' class="best"' if marked else ""
    others = "".join(f"<td>{cell}</td>" for cell in rest)
    return f'<tr{kind}><th scope="row">{first}</th>{others}</tr>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and words, as a list of terms; empty words are left out."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{words}</dd></div>" for name, words in pairs if words
    )
    return f'<dl class="facts">{items}</dl>'


def code(text: str) -> str:
    """Return text as code within a line."""
    return f"<code>{escape(text)}</code>"


def numbers(figures: Iterable[tuple[str, str, str]]) -> str:
    """Return a few large numbers: value, unit, what it is."""
    items = "\n".join(
        f'<div class="number"><dt>{escape(what)}</dt>'
        f"<dd><b>{value}</b> <small>{escape(unit)}</small></dd></div>"
        for value, unit, what in figures
    )
    return f'<dl class="numbers">\n{items}\n</dl>'
