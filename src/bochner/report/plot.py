"""Error against features as inline SVG: both axes logarithmic, colours from the page's style."""

import math
from collections.abc import Callable, Sequence
from html import escape

from bochner.report.result import Curve

__all__ = ["legend", "plot", "ticks"]

Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 480, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 34, 46
_MARKS = (
    '<circle cx="{x}" cy="{y}" r="4"/>',
    '<rect x="{x}" y="{y}" width="7" height="7" transform="translate(-3.5 -3.5)"/>',
    '<path d="M0 -5L5 4L-5 4Z" transform="translate({x} {y})"/>',
)


def plot(curves: Sequence[Curve]) -> str:
    """Return the plot as an ``<svg>`` element."""
    widths = sorted({D for c in curves for D in c.n_features})
    low = min(e for c in curves for e in c.rmse) / 1.08
    high = max(e for c in curves for e in c.rmse) * 1.08
    x = _scale(widths[0] / 1.1, widths[-1] * 1.1, _LEFT, _WIDTH - _RIGHT)
    y = _scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        *(_horizontal(y(tick), f"{tick:,}") for tick in ticks(low, high)),
        *(_vertical(x(D), f"{D:,}") for D in widths),
        *(_line(c, i, x, y) for i, c in enumerate(curves)),
        _titles(),
    ]
    label = "Root mean squared error on held-out cells against number of features"
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        + "".join(parts)
        + "</svg>"
    )


def legend(curves: Sequence[Curve]) -> str:
    """Return the names beside their marks, as an HTML list."""
    items = "".join(
        f'<li><svg class="key s{i}" viewBox="0 0 28 12" aria-hidden="true">'
        f'<path class="stroke" d="M0 6H28"/>{_MARKS[i % 3].format(x=14, y=6)}</svg>'
        f"{escape(c.name)}</li>"
        for i, c in enumerate(curves)
    )
    return f'<ul class="legend">{items}</ul>'


def ticks(low: float, high: float) -> list[int]:
    """Return round numbers between low and high, the roundest that are three or more."""
    powers = [10**p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), [1 + 0.5 * i for i in range(18)]):
        found = sorted({round(m * p) for p in powers for m in digits if low <= m * p <= high})
        if len(found) >= 3:
            break
    return found


def _scale(a: float, b: float, start: float, end: float) -> Scale:
    span = math.log(b / a)
    return lambda value: round(start + (end - start) * math.log(value / a) / span, 1)


def _horizontal(y: float, text: str) -> str:
    return (
        f'<path class="grid" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>'
    )


def _vertical(x: float, text: str) -> str:
    floor = _HEIGHT - _BOTTOM
    return (
        f'<path class="grid" d="M{x} {floor}v5"/>'
        f'<text x="{x}" y="{floor + 19}" text-anchor="middle">{text}</text>'
    )


def _line(curve: Curve, i: int, x: Scale, y: Scale) -> str:
    points = [(x(D), y(e)) for D, e in zip(curve.n_features, curve.rmse, strict=True)]
    path = "M" + "L".join(f"{px} {py}" for px, py in points)
    marks = "".join(_MARKS[i % 3].format(x=px, y=py) for px, py in points)
    return f'<g class="s{i}"><path class="stroke" d="{path}"/>{marks}</g>'


def _titles() -> str:
    middle, floor = (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BOTTOM
    return (
        f'<path class="axis" d="M{_LEFT} {_TOP}V{floor}H{_WIDTH - _RIGHT}"/>'
        f'<text class="name" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">'
        "features D (log scale)</text>"
        '<text class="name" x="2" y="15">test RMSE, metres (log scale)</text>'
    )
