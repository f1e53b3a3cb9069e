"""Charts as inline SVG: axes, marks, nothing that runs; colours come from the page's style."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

import numpy as np

from bochner._core.shapes import Array
from bochner.report.parts import SUPERSCRIPT

Scale = Callable[[float], float]

WIDTH, HEIGHT = 480, 320
RIGHT, TOP, BOTTOM = 16, 32, 46

#: Width of a letter as a share of its height, of the widest digits in common sans-serif fonts.
LETTER = 0.6

#: Height of letters on small screens, where they are drawn largest: see the page's style.
LETTERS = 14.5

#: Points drawn of a cloud, at most: more are one grey patch.
MOST_DOTS = 1500

MARKS = (
    '<circle cx="{x}" cy="{y}" r="4"/>',
    '<rect x="{x}" y="{y}" width="7" height="7" transform="translate(-3.5 -3.5)"/>',
    '<path d="M0 -5L5 4L-5 4Z" transform="translate({x} {y})"/>',
)


@dataclass(frozen=True)
class Axis:
    """A range of values and its name, linear or logarithmic.

    Attributes
    ----------
    low, high : float
    name : str
        What it is, with its unit.
    log : bool
    at : tuple of float
        Where ticks are; chosen if empty.
    """

    low: float
    high: float
    name: str
    log: bool = False
    at: tuple[float, ...] = ()

    @staticmethod
    def over(
        *values: Any, name: str, log: bool = False, at: Sequence[float] = (), margin: float = 0.05
    ) -> "Axis":
        """Return the axis that holds all finite values (positive ones, if logarithmic)."""
        every = np.concatenate([np.ravel(np.asarray(v, np.float64)) for v in values])
        every = every[np.isfinite(every) & ((every > 0) | (not log))]
        if not len(every):
            every = np.array([1.0, 2.0])
        low, high = float(every.min()), float(every.max())
        if log:
            low, high = (low, high) if high > low * 1.0001 else (low / 1.5, high * 1.5)
            reach = (high / low) ** margin
            return Axis(low / reach, high * reach, name, True, tuple(at))
        reach = margin * (high - low) or abs(high) * 0.1 or 1.0
        return Axis(low - reach, high + reach, name, False, tuple(at))

    def scale(self, start: float, end: float) -> Scale:
        """Return where values lie between two ends."""
        a, b = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

        def place(value: float) -> float:
            if self.log and value <= 0:
                return math.nan
            v = math.log(value) if self.log else value
            return round(start + (end - start) * (v - a) / (b - a), 1)

        return place

    def ticks(self) -> list[tuple[float, str]]:
        """Return round values inside, with their texts."""
        if self.at:
            return [(v, tick_text(v)) for v in self.at if self.low <= v <= self.high]
        if self.log and self.high / self.low >= 30:
            return _powers(self.low, self.high)
        step = _step(self.high - self.low)
        first = math.ceil(self.low / step - 1e-9)
        values = [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [(v, tick_text(round(v, 12))) for v in values if v > 0 or not self.log]


def tick_text(value: float) -> str:
    """Write a number as short as it is exact."""
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.6g}"
    return text.replace("-", "−")


def _step(span: float) -> float:
    """Return the round step that gives four to eight ticks."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if span / (m * power) <= 7)


def _powers(low: float, high: float) -> list[tuple[float, str]]:
    """Return powers of ten, seven at most."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first) / 6))
    powers = range(first + (-first) % every, last + 1, every)
    plain = first >= 0 and last <= 4
    return [
        (10.0**p, f"{10**p:,}" if plain else "10" + str(p).translate(SUPERSCRIPT)) for p in powers
    ]


class Mark(Protocol):
    """Something drawn on a chart."""

    def draw(self, on: "Frame") -> str:
        """Return SVG."""
        ...


@dataclass(frozen=True)
class Frame:
    """Where the axes are, and where values lie on them."""

    x: Scale
    y: Scale
    left: float
    right: float = WIDTH - RIGHT
    top: float = TOP
    floor: float = HEIGHT - BOTTOM


@dataclass(frozen=True, eq=False)
class Line:
    """A line through points, with marks where it is measured; NaN interrupts it."""

    x: Array
    y: Array
    series: int = 0
    marked: bool = False
    dashed: bool = False

    def draw(self, on: Frame) -> str:
        """Return SVG."""
        pairs = ((on.x(float(a)), on.y(float(b))) for a, b in zip(self.x, self.y, strict=True))
        points = [pair if all(map(math.isfinite, pair)) else None for pair in pairs]
        path, pen = "", "M"
        for point in points:
            path += "" if point is None else f"{pen}{point[0]} {point[1]}"
            pen = "M" if point is None else "L"
        shape = MARKS[self.series % 3]
        marks = [shape.format(x=p[0], y=p[1]) for p in points if p] if self.marked else []
        dash = ' stroke-dasharray="5 4"' if self.dashed else ""
        line = f'<path class="stroke" d="{path}"{dash}/>'
        return f'<g class="s{self.series % 3}">{line}{"".join(marks)}</g>'


@dataclass(frozen=True, eq=False)
class Dots:
    """A cloud of points, thinned to what can be told apart."""

    x: Array
    y: Array
    series: int = 2

    def draw(self, on: Frame) -> str:
        """Return SVG: one path of dots of no length with round ends."""
        step = -(-len(self.x) // MOST_DOTS)
        pairs = zip(self.x[::step], self.y[::step], strict=True)
        inside = (f"M{on.x(float(a)):g} {on.y(float(b)):g}h0" for a, b in pairs)
        return f'<path class="dots d{self.series % 3}" d="{"".join(inside)}"/>'


@dataclass(frozen=True, eq=False)
class Bars:
    """A histogram: counts between edges, from the floor."""

    edges: Array
    heights: Array
    series: int = 2

    def draw(self, on: Frame) -> str:
        """Return SVG."""
        at = [on.x(float(e)) for e in self.edges]
        shapes = (
            f'<rect x="{a:g}" y="{on.y(float(h)):g}" width="{max(b - a - 1, 0.5):.1f}" '
            f'height="{on.floor - on.y(float(h)):.1f}"/>'
            for a, b, h in zip(at, at[1:], self.heights, strict=False)
            if h > 0
        )
        return f'<g class="s{self.series % 3} bars">{"".join(shapes)}</g>'


@dataclass(frozen=True)
class Rule:
    """A dotted line across at one x, or at one y, with a word."""

    x: float | None = None
    y: float | None = None
    text: str = ""

    def draw(self, on: Frame) -> str:
        """Return SVG."""
        if self.x is not None:
            at = on.x(self.x)
            left = at > (on.left + on.right) / 2
            path, word_x, word_y = f"M{at} {on.top}V{on.floor}", at, on.top + 14
            anchor, shift = ("end", -6) if left else ("start", 6)
        else:
            at = on.y(float(self.y or 0.0))
            path, word_x = f"M{on.left} {at}H{on.right}", on.left
            word_y = at - 6 if at > on.top + 24 else at + 16
            anchor, shift = "start", 8
        word = f'<text class="on" x="{word_x + shift:g}" y="{word_y:g}" text-anchor="{anchor}">'
        return f'<path class="rule" d="{path}"/>' + (
            f"{word}{escape(self.text)}</text>" if self.text else ""
        )


@dataclass(frozen=True)
class Diagonal:
    """Where both axes have the same value."""

    low: float
    high: float

    def draw(self, on: Frame) -> str:
        """Return SVG."""
        path = f"M{on.x(self.low)} {on.y(self.low)}L{on.x(self.high)} {on.y(self.high)}"
        return f'<path class="rule" d="{path}"/>'


@dataclass(frozen=True, eq=False)
class Whiskers:
    """Upright lines from low to high at each x."""

    x: Array
    low: Array
    high: Array

    def draw(self, on: Frame) -> str:
        """Return SVG."""
        lines = (
            f"M{on.x(float(a))} {on.y(float(b))}V{on.y(float(c))}"
            for a, b, c in zip(self.x, self.low, self.high, strict=True)
        )
        return f'<path class="whiskers" d="{"".join(lines)}"/>'


def chart(x: Axis, y: Axis, marks: Iterable[Mark], words: str) -> str:
    """Return an ``<svg>`` with its title, axes, names and marks, in that order."""
    left = _left(y)
    on = Frame(x.scale(left, WIDTH - RIGHT), y.scale(HEIGHT - BOTTOM, TOP), left)
    parts = [
        *(_horizontal(on.y(v), text, on) for v, text in y.ticks()),
        *(_vertical(at, text, on) for at, text in _apart(x, on.x)),
        *(mark.draw(on) for mark in marks),
        _names(x, y, on),
    ]
    title = escape(words)
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def legend(names: Sequence[str], dashed: Sequence[int] = ()) -> str:
    """Return the names beside their marks, as an HTML list."""
    items = "".join(_key(i, name, i in dashed) for i, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def _key(i: int, name: str, dashed: bool) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<li><svg class="key s{i % 3}" viewBox="0 0 28 12" aria-hidden="true">'
        f'<path class="stroke" d="M0 6H28"{dash}/>{MARKS[i % 3].format(x=14, y=6)}</svg>'
        f"{escape(name)}</li>"
    )


def _left(y: Axis) -> float:
    """Return where the axis stands so that its texts have room."""
    longest = max((len(text) for _, text in y.ticks()), default=1)
    return round(16 + LETTER * LETTERS * max(longest, 2), 1)


def _apart(x: Axis, place: Scale) -> list[tuple[float, str]]:
    """Return ticks of x; of two whose texts would touch, the first has its text."""
    found, end = [], -math.inf
    for value, text in x.ticks():
        at, half = place(value), LETTER * LETTERS * len(text) / 2
        room = at - half > end + 6 and at + half <= WIDTH
        found.append((at, text if room else ""))
        end = at + half if room else end
    return found


def _horizontal(y: float, text: str, frame: Frame) -> str:
    return (
        f'<path class="grid" d="M{frame.left} {y}H{frame.right}"/>'
        f'<text x="{frame.left - 8:g}" y="{y + 4:g}" text-anchor="end">{text}</text>'
    )


def _vertical(x: float, text: str, frame: Frame) -> str:
    word = f'<text x="{x}" y="{frame.floor + 19:g}" text-anchor="middle">{text}</text>'
    return f'<path class="grid" d="M{x} {frame.floor}v5"/>' + (word if text else "")


def _names(x: Axis, y: Axis, frame: Frame) -> str:
    middle = (frame.left + frame.right) / 2
    return (
        f'<path class="axis" d="M{frame.left} {frame.top}V{frame.floor}H{frame.right}"/>'
        f'<text class="name" x="{middle:g}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x.name)}</text>"
        f'<text class="name" x="2" y="15">{escape(y.name)}</text>'
    )
