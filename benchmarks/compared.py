"""Pictures of docs/compare.md: marks and lines on one scale, as small SVG files.

They are written here without a plotting library, so that the same numbers are the same bytes on
every machine, and a test can compare them with what was measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from benchmarks.harness import Row

__all__ = ["PICTURES"]

WIDTH, LINE, TOP = 760, 22, 62
INK, FAINT, OURS = "#1b2226", "#c9cfd3", "#0d5c7c"

#: The mark of each learner, in the order of the table: its colour, and its outline about (0, 0).
MARKS = (
    (OURS, "M0-7L7 0L0 7L-7 0z"),
    ("#b45309", "M-4-4H4V4H-4z"),
    ("#7c3aed", "M0-5L5 4H-5z"),
    ("#be185d", "M0 5L5-4H-5z"),
    ("#4d7c0f", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"),
    ("#566168", "M-5-2H-2V-5H2V-2H5V2H2V5H-2V2H-5z"),
)


@dataclass(frozen=True)
class Scale:
    """Numbers on a logarithmic scale, between two edges of the picture."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return where a number is."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, steps: Sequence[float]) -> list[float]:
        """Return the round numbers between the edges: these times powers of ten."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = sorted({float(f"{step * 10.0**power:.6g}") for power in powers for step in steps})
        return [value for value in found if self.low <= value * 1.0001 and value <= self.high]


def _around(values: Sequence[float], start: float, stop: float) -> Scale:
    """Return a scale with some room beside the least and the greatest number."""
    low, high = min(values), max(values)
    room = max((high / low) ** 0.06, 1.02)
    return Scale(low / room, high * room, start, stop)


def _number(value: float) -> str:
    """Return a number of a tick as it is read: 0.1, 10, or a power of ten where it is small."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {where}>{escape(words)}</text>"


def _line(x: float, y: float, X: float, Y: float, colour: str = FAINT, width: float = 1) -> str:
    path = f"M{x:.1f} {y:.1f}L{X:.1f} {Y:.1f}"
    return f'<path d="{path}" stroke="{colour}" stroke-width="{width}"/>'


def _mark(which: int, x: float, y: float) -> str:
    colour, outline = MARKS[which % len(MARKS)]
    return f'<path d="{outline}" transform="translate({x:.1f} {y:.1f})" fill="{colour}"/>'


def _picture(height: float, title: str, parts: Sequence[str]) -> str:
    """Return a picture on white, which is read in the light and in the dark."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="13">'
    )
    ground = f'<rect width="{WIDTH}" height="{height:g}" rx="6" fill="white"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> list[str]:
    """Return marks with their names, in one row."""
    parts, x = [], 20.0
    for which, name in enumerate(names):
        parts += [_mark(which, x, 22), _text(x + 12, 26.5, name)]
        x += 34 + 7.2 * len(name)
    return parts


def _axis(scale: Scale, bottom: float, words: str, steps: Sequence[float]) -> list[str]:
    """Return a line at each round number, the number above it, and what is measured."""
    parts = []
    for value in scale.ticks(steps):
        x = scale(value)
        parts += [_line(x, TOP, x, bottom), _text(x, TOP - 5, _number(value), "middle")]
    return [*parts, _text(scale.stop, bottom + 18, words, "end")]


# --- accuracy and speed --------------------------------------------------------------------------


def _learners(kept: Sequence[Row]) -> list[str]:
    """Return the rivals in the order of the tables."""
    found: dict[str, None] = {}
    for row in kept:
        found.update(dict.fromkeys([*row["found"]][1:]))
    return [*found]


def _dots(kept: Sequence[Row], values: Mapping[str, Mapping[str, float]], **axis: Any) -> str:
    """Return a row of marks for each table, the others' over ours."""
    names = ["bochner", *_learners(kept)]
    bottom = TOP + 8 + LINE * len(kept)
    numbers = [v for found in values.values() for v in found.values()]
    scale = _around(numbers, 190, WIDTH - 24)
    parts = [*_legend(names), *_axis(scale, bottom, axis["words"], axis["steps"])]
    for i, row in enumerate(kept):
        y, found = TOP + LINE * (i + 0.75), values[row["table"]]
        parts.append(_text(178, y + 4.5, row["table"], "end"))
        parts += [_mark(names.index(n), scale(v), y) for n, v in found.items()]
    return _picture(bottom + 28, axis["title"], parts)


def _each(kept: Sequence[Row], which: int) -> dict[str, dict[str, float]]:
    """Return errors (0) or core seconds (1) by table and learner; the first learner is ours."""
    tables = {}
    for row in kept:
        ours, *others = row["found"]
        named = {"bochner": row["found"][ours][which]}
        tables[row["table"]] = named | {name: row["found"][name][which] for name in others}
    return tables


def accuracy(kept: Sequence[Row]) -> tuple[str, str]:
    """Return the words for a picture of errors, and the picture: each over ours."""
    tables = _each(kept, 0)
    best = sum(found["bochner"] == min(found.values()) for found in tables.values())
    title = (
        f"Errors on {len(kept)} tables, each over that of bochner on the same table: bochner errs "
        f"least on {best} of them"
    )
    shares = {
        table: {name: error / found["bochner"] for name, error in found.items()}
        for table, found in tables.items()
    }
    words = "error over that of bochner; right of 1: errs more"
    return title, _dots(kept, shares, title=title, words=words, steps=(0.8, 1, 1.5, 2, 3, 4))


def speed(kept: Sequence[Row]) -> tuple[str, str]:
    """Return the words for a picture of core seconds, and the picture."""
    tables = _each(kept, 1)
    middle = sorted(found["bochner"] for found in tables.values())[len(tables) // 2]
    title = (
        f"Core seconds of a fit with its predictions on {len(kept)} tables: bochner takes "
        f"{middle:.2g} seconds in the middle"
    )
    words = "core seconds of a fit with its predictions"
    return title, _dots(kept, tables, title=title, words=words, steps=(1, 3))


# --- proof ---------------------------------------------------------------------------------------


def proof(kept: Sequence[Row]) -> tuple[str, str]:
    """Return the words for a picture of certificates, and the picture: a bar, and the truth."""
    rows = [row for row in kept if "true" in row]
    inside = sum(row["low"] <= row["true"] <= row["high"] for row in rows)
    title = (
        f"Certified intervals of the distance from the exact kernel, and the true distance, which "
        f"lies inside in {inside} of {len(rows)}"
    )
    shares = [[row[side] / row["true"] for side in ("low", "high")] for row in rows]
    scale = _around([1.0, *(share for pair in shares for share in pair)], 250, 700)
    bottom = TOP + 12 + 44 * len(rows)
    parts = [_line(14, 22, 44, 22, OURS, 8), _text(54, 26.5, "certified from half of the rows")]
    parts += [_mark(1, 290, 22), _text(302, 26.5, "true, of all rows")]
    parts += _axis(scale, bottom, "distance ε over the true one", (0.5, 0.6, 0.8, 1, 1.2, 1.5, 2))
    for i, (row, (low, high)) in enumerate(zip(rows, shares, strict=True)):
        y = TOP + 32 + 44 * i
        words = f"{row['method']}, D = {row['D']:,}: ε = {row['true']:.2g}"
        parts.append(_text(238, y + 4.5, words, "end"))
        parts.append(_line(scale(low), y, scale(high), y, OURS, 8))
        parts.append(_mark(1, scale(1.0), y))
    return title, _picture(bottom + 28, title, parts)


# --- scale ---------------------------------------------------------------------------------------


def scale(kept: Sequence[Row]) -> tuple[str, str]:
    """Return the words for a picture of memory against rows, and the picture."""
    sizes = [row["rows"] for row in kept]
    lines = {
        "kernel matrix": ("#b45309", [8e-9 * n * n for n in sizes]),
        "one pass": (OURS, [row["peak"] / 1e9 for row in kept]),
    }
    title = (
        f"Memory of one pass from {sizes[0]:,} to {sizes[-1]:,} rows stays at "
        f"{max(lines['one pass'][1]):.2g} GB; a kernel matrix grows to "
        f"{lines['kernel matrix'][1][-1]:,.0f} GB"
    )
    across = _around(sizes, 90, 600)
    up = _around([v for _, values in lines.values() for v in values], 270, 40)
    parts = [_text(20, 24, "memory, GB")]
    for value in up.ticks((1,)):
        parts += [_line(90, up(value), 600, up(value))]
        parts += [_text(80, up(value) + 4.5, _number(value), "end")]
    for n in sizes:
        parts.append(_text(across(n), 292, f"{n:,}", "middle"))
    parts.append(_text(610, 292, "rows"))
    for which, (name, (colour, values)) in enumerate(lines.items()):
        places = [(across(n), up(v)) for n, v in zip(sizes, values, strict=True)]
        ends = pairwise(places)
        parts += [_line(*here, *there, colour, 2.5) for here, there in ends]
        parts += [_mark(1 - which, *place) for place in places]
        parts.append(_text(places[-1][0] + 14, places[-1][1] + 4.5, name, colour=colour))
    return title, _picture(306, title, parts)


#: By the name of the table that stands below it.
PICTURES = {"accuracy": accuracy, "speed": speed, "proof": proof, "scale": scale}
