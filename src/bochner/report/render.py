"""What pages are made of: style, numbers in words, tables, figures, charts."""

import math
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from bochner import __version__
from bochner._core.shapes import Array

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


# --- How the page looks: one sheet, light and dark, phone and paper ------------------------------

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --ink: #1b2226; --soft: #566168; --rule: #ddd9cf; --wash: #f3f1ea;
  --accent: #0d5c7c; --c0: #a4561a; --c1: #5e4aa5; --c2: #0d6c8f;
  --net: rgb(128 128 128 / .38);
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", Georgia, serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #11171a; --ink: #e3e5e2; --soft: #9ba6aa; --rule: #2c363b; --wash: #182024;
    --accent: #6fc0de; --c0: #e79a56; --c1: #b3a2f2; --c2: #57b8dc;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 3.5rem 1.25rem 4rem; max-width: 66rem;
  background: var(--paper); color: var(--ink); font: 1.0625rem/1.6 var(--sans);
}
h1, h2, .number b { font-family: var(--serif); font-weight: 600; text-wrap: balance; }
h1 { font-size: clamp(2rem, 1.3rem + 3vw, 3.1rem); line-height: 1.1; letter-spacing: -.012em;
  margin: .4rem 0 1rem; }
h2 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .6rem; }
p { margin: 0 0 1rem; max-width: 42rem; text-wrap: pretty; }
.lead { font-size: 1.2rem; line-height: 1.5; }
.kicker { font-size: .82rem; letter-spacing: .09em; text-transform: uppercase; color: var(--soft);
  margin: 0; }
.soft, figcaption, footer { color: var(--soft); font-size: .92rem; line-height: 1.5; }
section { margin-top: 3.5rem; }
a { color: var(--accent); }
.numbers { display: grid; grid-template-columns: repeat(4, 1fr); gap: 0 1.5rem; margin: 2rem 0 0;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
.number { padding: 1rem 0; }
.number dd { margin: 0; }
.number dt { color: var(--soft); font-size: .88rem; line-height: 1.35; }
.number b { font-size: 1.9rem; line-height: 1.15; font-variant-numeric: lining-nums; }
.number small { font-size: .95rem; color: var(--soft); }
.number { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 2rem 2.25rem;
  align-items: start; }
figure { margin: 0; }
.pair figure > h3, .map h3 { margin: 0 0 .5rem; font-size: 1rem; font-weight: 600; }
figcaption { margin-top: .6rem; max-width: 42rem; }
.plane { position: relative; margin: 0 0 1.4rem 2.4rem; }
.plane img { display: block; width: 100%; height: auto; aspect-ratio: 2; }
.plane::after { content: ""; position: absolute; inset: 0; pointer-events: none;
  border: 1px solid rgb(128 128 128 / .45);
  background:
    linear-gradient(to right, var(--net) 1px, transparent 1px) 0 0 / calc(100% / 6) 100%,
    linear-gradient(to bottom, var(--net) 1px, transparent 1px) 0 0 / 100% calc(100% / 6);
}
.plane span, .bar span { position: absolute; font-size: .74rem; line-height: 1; color: var(--soft);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.plane .lat { right: calc(100% + .4rem); transform: translateY(-50%); }
.plane .lon { top: calc(100% + .4rem); transform: translateX(-50%); }
.bar { position: relative; margin: 1.1rem auto 2.9rem; width: min(34rem, calc(100% - 3rem)); }
.bar img { display: block; width: 100%; height: .7rem; image-rendering: pixelated; }
.bar span { top: calc(100% + .45rem); transform: translateX(-50%); }
.bar span::before { content: ""; position: absolute; left: 50%; top: -.45rem; height: .28rem;
  border-left: 1px solid var(--soft); }
.pair .bar { width: auto; margin: 1.1rem 0 2.9rem 2.4rem; }
.bar + .pair { margin-top: 3.6rem; }
.bar .unit { top: calc(100% + 1.5rem); left: 50%; }
.bar .unit::before { display: none; }
.wide { overflow-x: auto; margin: 1.25rem 0 .75rem; }
table { border-collapse: collapse; width: 100%; font-size: .98rem; line-height: 1.35;
  font-variant-numeric: tabular-nums lining-nums; }
th, td { padding: .5rem 0 .5rem 1.1rem; text-align: right; vertical-align: baseline;
  border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th { font-weight: 500; font-size: .84rem; color: var(--soft); vertical-align: bottom;
  border-bottom: 1px solid var(--ink); }
tbody th { font-weight: 400; }
tr.best th, tr.best td:not(.plain) { font-weight: 650; }
tr.rival > * { color: var(--soft); }
td small { display: block; color: var(--soft); font-size: .78rem; font-weight: 400;
  white-space: nowrap; }
.plot { display: block; width: 100%; max-width: 40rem; height: auto; overflow: visible; }
.plot text { fill: var(--soft); font: 12px var(--sans); font-variant-numeric: tabular-nums; }
.plot .name { fill: var(--ink); }
.plot .grid { stroke: var(--rule); fill: none; }
.plot .axis { stroke: var(--soft); fill: none; }
.stroke { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { fill: var(--c0); } .s0 .stroke, .s0.key .stroke { stroke: var(--c0); }
.s1 { fill: var(--c1); } .s1 .stroke, .s1.key .stroke { stroke: var(--c1); }
.s2 { fill: var(--c2); } .s2 .stroke, .s2.key .stroke { stroke: var(--c2); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: 0 0 .9rem;
  padding: 0; font-size: .92rem; }
.legend li { display: flex; align-items: center; gap: .5rem; }
.key { width: 28px; height: 12px; }
blockquote { margin: 1.25rem 0; padding: .2rem 0 .2rem 1.25rem;
  border-left: 3px solid var(--accent); max-width: 42rem;
  font-family: var(--serif); font-size: 1.12rem; line-height: 1.55;
  white-space: pre-line; }
pre { background: var(--wash); border: 1px solid var(--rule); border-radius: 6px; overflow-x: auto;
  padding: 1rem 1.1rem; font: .86rem/1.6 var(--mono); tab-size: 4; }
code { font-family: var(--mono); font-size: .9em; }
footer { margin-top: 4rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); }
footer p { max-width: 50rem; }
@media (max-width: 46rem) {
  body { padding: 2rem 1.1rem 3rem; font-size: 1rem; }
  section { margin-top: 2.75rem; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .numbers { grid-template-columns: repeat(2, 1fr); }
  .number { padding: .8rem 0; }
  .number:nth-child(n + 3) { border-top: 1px solid var(--rule); }
  th, td { padding-left: .6rem; }
  table { font-size: .86rem; }
  .r2 { display: none; }
  td small { font-size: .7rem; }
  thead th { font-size: .76rem; }
  .plane { margin-left: 2.1rem; }
  .bar, .pair .bar { width: auto; margin-left: 2.1rem; margin-right: 0; }
  .plot text { font-size: 14.5px; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --wash: #fff; --accent: #0d5c7c;
    --c0: #a4561a; --c1: #5e4aa5; --c2: #0d6c8f; }
  html { font-size: 84%; }
  body { padding: 0; max-width: none; }
  section { margin-top: 1.6rem; }
  figure, .pair > div, table, blockquote, pre, .numbers { break-inside: avoid; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; }
  img, .plane::after { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

#: What a model's report has beside the demo.
REPORT_STYLE = """
h1, h2, h3, .lead, dd { overflow-wrap: anywhere; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1.05rem; font-weight: 600; }
.pair { margin: 1.25rem 0 1.75rem; gap: 1.5rem 2.25rem; }
.pair > div { min-width: 0; }
.pair figure > h3 { margin: 0 0 .5rem; }
.pair .wide { margin-top: 0; }
section > .wide { max-width: 46rem; }
#rows .wide, #predictions > .wide { max-width: none; }
caption { caption-side: top; text-align: left; color: var(--soft); font-size: .88rem;
  padding: 0 0 .35rem; }
.facts { margin: 1rem 0 0; border-top: 1px solid var(--rule); }
.facts > div { display: grid; grid-template-columns: 10.5rem minmax(0, 1fr); gap: 0 1.25rem;
  padding: .5rem 0; border-bottom: 1px solid var(--rule); }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; }
.numbers { grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.number:nth-child(n) { border-top: 0; }
#rows td, #rows th { white-space: nowrap; }
.plot .on { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px;
  stroke-linejoin: round; }
.rule { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 3; }
.whiskers { fill: none; stroke: var(--c2); stroke-width: 1.5; stroke-opacity: .6; }
.dots { fill: none; stroke-width: 4.5; stroke-linecap: round; stroke-opacity: .5; }
.d0 { stroke: var(--c0); } .d1 { stroke: var(--c1); } .d2 { stroke: var(--c2); }
.bars { fill-opacity: .65; }
.plot + figcaption { margin-top: .35rem; }
@media (max-width: 46rem) {
  .facts > div { grid-template-columns: minmax(0, 1fr); }
  .facts dt { font-size: .86rem; }
  .numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@media print {
  section { break-inside: auto; }
  .wide { overflow: visible; }
  .pair { break-inside: avoid; }
  h3, section > p { break-after: avoid; }
}
"""


# --- Charts as inline SVG: axes, marks, nothing that runs; colours come from the page's style ----

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
