"""Maps as small PNG files, and the colours they are drawn in.

Colours are laid out in Oklab (Ottosson 2020), whose lightness follows the eye: along each side of
zero it changes by equal steps for equal steps of the value.
"""

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.datasets import load_earth
from bochner.report.render import (
    STYLE,
    Axis,
    Line,
    chart,
    legend,
    numbers,
    versions,
)


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One row of the table of methods.

    Attributes
    ----------
    name : str
        As it is shown.
    code : str
        The Python expression that gives the method.
    n_features : int
        D.
    rmse : float
        Root mean squared error on the held-out cells, metres.
    r_squared : float
        1 − (mean squared error) / (variance), on the held-out cells.
    seconds : float
        Fit and prediction of the held-out cells, wall clock.
    loo : float
        Leave-one-out error on the training cells, metres.
    alpha : float
        The penalty chosen.
    epsilon, epsilon_interval, frobenius : float, pair, float or None
        Of the certificate; None where there is none.
    certificate : str
        The certificate in words, or "".
    """

    name: str
    code: str
    n_features: int
    rmse: float
    r_squared: float
    seconds: float
    loo: float
    alpha: float
    epsilon: float | None = None
    epsilon_interval: tuple[float, float] | None = None
    frobenius: float | None = None
    certificate: str = ""


@dataclass(frozen=True)
class Curve:
    """Held-out error of one method against the number of features.

    Attributes
    ----------
    name : str
    n_features : tuple of int
    rmse : tuple of float
        Metres, one for each number of features.
    """

    name: str
    n_features: tuple[int, ...]
    rmse: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class DemoResult:
    """All that the demo found.

    Attributes
    ----------
    methods : tuple of MethodResult
        The table, all at the same width.
    curves : tuple of Curve
    best : MethodResult
        The fit that the maps show: of those along the curves, the one with the least
        leave-one-out error on the training cells (the held-out cells have no say).
    truth, prediction : (rows, columns)
        Metres, south first.
    held_out : (rows, columns) bool
        Cells that no fit has seen.
    kernel, alpha : str, float
        The kernel of all fits, as code, and the alpha of the certificates in the table.
    certificate : str
        That of ``best`` at this alpha, in words; ``best.certificate`` is at its own.
    n_train, n_test : int
    seed : int
    quick : bool
    seconds : float
        All of it, wall clock.
    path : Path
        The page.
    """

    methods: tuple[MethodResult, ...]
    curves: tuple[Curve, ...]
    best: MethodResult
    truth: Float[Array, "rows columns"]
    prediction: Float[Array, "rows columns"]
    held_out: Float[Array, "rows columns"]
    kernel: str
    alpha: float
    certificate: str
    n_train: int
    n_test: int
    seed: int
    quick: bool = False
    seconds: float = 0.0
    path: Path = Path("earth.html")

    @property
    def error(self) -> Float[Array, "rows columns"]:
        """Prediction less truth, metres."""
        return self.prediction - self.truth

    @property
    def latitudes(self) -> Float[Array, " rows"]:
        """Degrees north of the middle of each row of cells."""
        rows = self.truth.shape[0]
        return -90 + (np.arange(rows) + 0.5) * 180 / rows

    @property
    def area_rmse(self) -> float:
        """Error on held-out cells, each weighted by its area (the cosine of its latitude)."""
        area = np.cos(np.deg2rad(self.latitudes))[:, None] * self.held_out
        return float(np.sqrt((area * self.error**2).sum() / area.sum()))

    def rmse_where(self, cells: Float[Array, "rows columns"]) -> float:
        """Error on the held-out cells among these, metres; NaN where there are none."""
        chosen = self.error[cells & self.held_out]
        return float(np.sqrt(np.mean(chosen**2))) if chosen.size else float("nan")


Shade = tuple[float, float, float]


@dataclass(frozen=True)
class Ramp:
    """Colours of values from ``low`` to ``high``; values beyond take the end colours.

    Attributes
    ----------
    low, high : float
        Range, with zero inside it.
    below, above : pair of (lightness, chroma, hue)
        Colours just beside zero and at the end, for negative and for positive values.
    """

    low: float
    high: float
    below: tuple[Shade, Shade]
    above: tuple[Shade, Shade]

    def colours(self) -> Float[Array, "256 3"]:
        """Return the palette, uint8: 128 colours for each side of zero."""
        return np.concatenate([_side(*self.below)[::-1], _side(*self.above)])

    def index(self, values: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
        """Return the number of each value's colour, uint8."""
        share = np.where(values < 0, values / -self.low, values / self.high)
        steps = np.minimum(np.floor(np.abs(share) * 128), 127)
        return np.where(values < 0, 127 - steps, 128 + steps).astype(np.uint8)

    def place(self, value: float) -> float:
        """Return where a value lies along the palette, 0 to 1."""
        return 0.5 + 0.5 * value / (self.high if value > 0 else -self.low)


#: Sea from pale to deep blue, land from green over ochre to brown.
RELIEF = Ramp(
    -7500, 6000, ((0.90, 0.035, 215), (0.24, 0.085, 265)), ((0.84, 0.085, 125), (0.28, 0.07, 35))
)
#: Too low violet, too high orange; no error is the colour of the paper.
ERROR = Ramp(
    -1500, 1500, ((0.97, 0.005, 300), (0.38, 0.17, 300)), ((0.97, 0.005, 60), (0.48, 0.14, 45))
)
ERROR_DARK = Ramp(
    -1500, 1500, ((0.24, 0.01, 300), (0.80, 0.13, 305)), ((0.24, 0.01, 60), (0.82, 0.14, 65))
)


def png(values: Float[Array, "rows columns"], ramp: Ramp) -> str:
    """Return a map as the address of a PNG that carries its own bytes; the first row is below."""
    index = ramp.index(np.asarray(values, np.float64))[::-1]
    rows, columns = index.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # each line begins with filter 0
    lines[:, 1:] = index
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, body)
        for name, body in (
            (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            (b"PLTE", ramp.colours().tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _side(near: Shade, far: Shade) -> Float[Array, "128 3"]:
    L, chroma, hue = np.linspace(near, far, 128).T
    a, b = chroma * np.cos(np.deg2rad(hue)), chroma * np.sin(np.deg2rad(hue))
    return _srgb(np.stack([L, a, b], axis=1))


# Oklab to linear sRGB: Ottosson (2020), "A perceptual color space for image processing".
_TO_CONES = np.array(
    [
        [1, 0.3963377774, 0.2158037573],
        [1, -0.1055613458, -0.0638541728],
        [1, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _srgb(oklab: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
    linear = np.clip((oklab @ _TO_CONES.T) ** 3 @ _TO_RGB.T, 0, 1)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * curved).astype(np.uint8)


# --- The demo's page: one HTML file that fetches nothing and runs nothing ------------------------

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The Earth from $D features · bochner</title>
<style>$style</style>
</head>
<body>
<header>
<p class="kicker">bochner demo</p>
<h1>The Earth’s relief, learned from $D features</h1>
<p class="lead">Kernel ridge regression on $n_train places, each given by where it lies on the globe
and how high it is. The $n_test places it is judged by were chosen at random and kept from
it.</p>
$numbers
</header>
<main>
<section>
<h2>Truth, prediction, error</h2>
<div class="pair">
$truth
$prediction
</div>
$relief_bar
<div class="pair">
<div>
$error
$error_bar
</div>
<div>
$where
</div>
</div>
</section>
<section>
<h2>The methods, at $width features each</h2>
<p>All share one kernel, <code>$kernel</code>, whose lengthscale (in Earth radii) was chosen once
by leave-one-out error on training cells; each chooses its own ridge penalty the same way.</p>
<div class="wide">
$table
</div>
<p class="soft">RMSE and R² on the $n_test held-out cells. Seconds: fit and prediction, once, by the
wall clock. Kernel error: ‖ZZᵀ − K‖ / ‖K‖ in the Frobenius norm. ε: the least with
(1 − ε)(K + λI) ≼ ZZᵀ + λI ≼ (1 + ε)(K + λI), measured on a random sample of training cells, its
interval in small print. It is taken at λ = $alpha for all, one ten-thousandth of the rows, so that
it can be compared; the penalties that the fits chose ($alphas) are far smaller, because the relief
has no noise, and there no map of this width is close to the kernel.</p>
<p class="soft">$rival</p>
</section>
<section>
<h2>Error against the number of features</h2>
<div class="pair">
<figure>
$legend
$plot
</figure>
<div>
$curve_words
</div>
</div>
</section>
<section>
<h2>How far from the exact kernel</h2>
<p>No fit on $n_train rows needs the $n_train × $n_train kernel matrix, yet each can be held
against it. Of the features behind the maps, “$best_name” with $D of them, the certificate at the
alpha of the table says:</p>
<blockquote>$common</blockquote>
<p>And at the penalty which the fit chose for itself:</p>
<blockquote>$own</blockquote>
</section>
<section>
<h2>The same again</h2>
<p>The seed fixes the split, the features and the samples. On another machine, or with another
number of threads, sums are rounded in another order, which at penalties this small moves errors by
a percent or so; seconds are the machine’s.</p>
<pre><code>$code</code></pre>
<p class="soft">$versions</p>
</section>
</main>
<footer>
<p>$source</p>
<p>Cells are one degree of latitude and longitude$every, drawn on an equirectangular map, which
stretches what lies near the poles. Held-out cells lie between cells that were learned from: this
is interpolation, and says nothing of a continent left out whole.</p>
</footer>
</body>
</html>
""")

#: A space between a number and its unit, where a line must not break.
UNIT = re.compile(r"(?<=\d) (?=m\b|%)")

CODE = """\
$ bochner demo --seed {seed}{quick}

from bochner import {names}
from bochner.datasets import load_earth
from bochner.kernels import {kernel_name}

earth = load_earth()                                  # X: 64,800 points of the sphere
model = KernelRidge(
    {kernel},
    method={method},
    n_features={n_features},
    random_state={seed},
).fit(earth.X, earth.y)                               # all cells, none held out
relief = model.predict(earth.X).reshape(180, 360)     # metres, south first
print(model.certificate_)"""


def earth_page(result: DemoResult) -> str:
    """Return the page as text."""
    return UNIT.sub("\u00a0", _filled(result))


def _filled(result: DemoResult) -> str:
    best = result.best
    return PAGE.substitute(
        style=STYLE,
        D=f"{best.n_features:,}",
        n_train=f"{result.n_train:,}",
        n_test=f"{result.n_test:,}",
        width=f"{result.methods[0].n_features:,}",
        numbers=_numbers(result),
        truth=_map("Truth", png(result.truth, RELIEF), "Relief of the Earth as measured"),
        prediction=_map("Prediction", png(result.prediction, RELIEF), "Relief as predicted"),
        relief_bar=_bar(RELIEF, (-6000, -3000, 0, 3000, 6000), "metres above sea level"),
        error=_map(
            "Error: prediction less truth",
            png(result.error, ERROR),
            "Prediction less truth",
            png(result.error, ERROR_DARK),
        ),
        error_bar=_bar(
            ERROR,
            (-1500, -750, 0, 750, 1500),
            "metres; violet too low, orange too high",
            ERROR_DARK,
        ),
        where=_where(result),
        kernel=escape(result.kernel),
        table=_table(result),
        alpha=f"{result.alpha:.3g}",
        alphas=_alphas(result),
        rival=_rival(result),
        legend=legend([curve.name for curve in result.curves]),
        plot=_plot(result.curves),
        curve_words=_curve_words(result),
        best_name=escape(best.name),
        common=escape(result.certificate),
        own=escape(best.certificate),
        code=escape(_code(result)),
        versions=escape(versions()),
        source=escape(_source()),
        every="; quick, every second row and column of them" if result.quick else "",
    )


# --- numbers and words ---------------------------------------------------------------------------


def _numbers(result: DemoResult) -> str:
    best = result.best
    figures = (
        (f"{best.rmse:,.0f}", "m", "root mean squared error on cells never seen"),
        (f"{100 * best.r_squared:.1f}", "%", "of the variance of the relief explained (R²)"),
        (f"{best.n_features:,}", "", f"features, for {result.n_train:,} rows"),
        (f"{best.seconds:.1f}", "s", "to fit and to predict"),
    )
    return numbers(figures)


def _where(result: DemoResult) -> str:
    errors = np.abs(result.error[result.held_out])
    inside = np.mean(errors < 250)
    worst = np.where(result.held_out, np.abs(result.error), 0)
    row, column = np.unravel_index(int(np.argmax(worst)), worst.shape)
    place = _place(result.latitudes[row], -180 + (column + 0.5) * 360 / worst.shape[1])
    sd = float(result.truth[result.held_out].std())
    return (
        f"<p>Half of the held-out cells are predicted within {np.median(errors):,.0f} m, and "
        f"{100 * inside:.0f} % within 250 m. At sea the error is "
        f"{result.rmse_where(result.truth < 0):,.0f} m, on land "
        f"{result.rmse_where(result.truth >= 0):,.0f} m: coasts, trenches and mountain ranges are "
        f"sharper than {result.best.n_features:,} features can draw.</p>"
        f"<p>The largest miss is at {place}: {_metres(result.prediction[row, column])} predicted, "
        f"{_metres(result.truth[row, column])} true.</p>"
        f'<p class="soft">For scale: predicting the mean everywhere errs by {sd:,.0f} m. With each '
        f"cell weighted by its area, the error is {result.area_rmse:,.0f} m rather than "
        f"{result.best.rmse:,.0f} m. The maps show all cells, learned and held out; numbers are "
        "of held-out cells only.</p>"
    )


def _place(latitude: float, longitude: float) -> str:
    north, east = "N" if latitude > 0 else "S", "E" if longitude > 0 else "W"
    return f"{abs(latitude):.1f}° {north}, {abs(longitude):.1f}° {east}"


def _metres(value: float) -> str:
    return f"{value:,.0f} m".replace("-", "−")


def _plot(curves: Sequence[Curve]) -> str:
    """Return error against features, both axes logarithmic."""
    widths = sorted({D for curve in curves for D in curve.n_features})
    return chart(
        Axis.over(widths, name="features D (log scale)", log=True, at=widths),
        Axis.over(*(c.rmse for c in curves), name="Test RMSE, metres (log scale)", log=True),
        [Line(c.n_features, c.rmse, i, marked=True) for i, c in enumerate(curves)],
        "Root mean squared error on held-out cells against number of features",
    )


def _curve_words(result: DemoResult) -> str:
    ends = sorted(((c.rmse[-1], c.rmse[0], c) for c in result.curves), key=lambda e: e[0])
    (last, first, best), worst = ends[0], ends[-1]
    widths = best.n_features
    return (
        f"<p>From {widths[0]:,} to {widths[-1]:,} features, “{escape(best.name)}” goes from "
        f"{first:,.0f} m to {last:,.0f} m, “{escape(worst[2].name)}” from {worst[1]:,.0f} m "
        f"to {worst[0]:,.0f} m.</p>"
        '<p class="soft">Lower is better. Every point is one fit with this seed. The maps above '
        "show the fit with the least leave-one-out error on training cells; the held-out cells "
        "have no say in that.</p>"
    )


def _alphas(result: DemoResult) -> str:
    chosen = [row.alpha for row in result.methods if row.epsilon is not None]
    return f"{_power(min(chosen))} to {_power(max(chosen))}"


def _power(value: float) -> str:
    """Return a number as one digit and a power of ten."""
    digit, power = f"{value:.0e}".split("e")
    return f"{digit} × 10<sup>{int(power)}</sup>".replace("-", "−")


def _rival(result: DemoResult) -> str:
    row = result.methods[-1]
    return (
        f"{escape(row.name)}: <code>{escape(row.code)}</code> at the same kernel and width, given "
        f"alpha = {row.alpha:.3g}, which bochner chose for independent Fourier features; its "
        "seconds hold no choice of a penalty."
    )


# --- table ---------------------------------------------------------------------------------------

HEAD = (
    '<table><thead><tr><th scope="col">Method</th><th scope="col">Test RMSE, m</th>'
    '<th scope="col" class="r2">R²</th><th scope="col">Seconds</th>'
    '<th scope="col">Kernel error, %</th>'
    '<th scope="col">ε</th></tr></thead>'
)


def _table(result: DemoResult) -> str:
    least = round(min(row.rmse for row in result.methods))
    rows = "\n".join(_row(row, round(row.rmse) == least) for row in result.methods)
    return f"{HEAD}\n<tbody>\n{rows}\n</tbody></table>"


def _row(row: MethodResult, best: bool) -> str:
    kind = "rival" if row.epsilon is None else "best" if best else ""
    frobenius = "–" if row.frobenius is None else f"{100 * row.frobenius:.1f}"
    return (
        f'<tr class="{kind}"><th scope="row">{escape(row.name)}</th><td>{row.rmse:,.0f}</td>'
        f'<td class="r2">{row.r_squared:.3f}</td>'
        f"<td>{row.seconds:.1f}</td><td>{frobenius}</td>"
        f"<td>{_epsilon(row)}</td></tr>"
    )


def _epsilon(row: MethodResult) -> str:
    if row.epsilon is None or row.epsilon_interval is None:
        return "–"
    low, high = (f"{e:.3g}" for e in row.epsilon_interval)
    return f"{row.epsilon:.3g}<small>{low} to {high}</small>"


# --- maps ----------------------------------------------------------------------------------------


def _map(title: str, image: str, words: str, dark: str | None = None) -> str:
    """Return a map with its degrees; in the dark it may have another picture."""
    latitudes = "".join(
        f'<span class="lat" style="top:{50 - 50 * d / 90:.2f}%">{_degrees(d, "N", "S")}</span>'
        for d in (60, 30, 0, -30, -60)
    )
    longitudes = "".join(
        f'<span class="lon" style="left:{50 + 50 * d / 180:.2f}%">{_degrees(d, "E", "W")}</span>'
        for d in (-120, -60, 0, 60, 120)
    )
    return (
        f'<figure class="map"><h3>{title}</h3><div class="plane">{_picture(image, words, dark)}'
        f"{latitudes}{longitudes}</div></figure>"
    )


def _picture(image: str, words: str, dark: str | None) -> str:
    plain = f'<img src="{image}" alt="{escape(words)}">'
    if dark is None:
        return plain
    return (
        f'<picture><source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
        f"{plain}</picture>"
    )


def _bar(ramp: Ramp, marks: tuple[int, ...], unit: str, dark: Ramp | None = None) -> str:
    """Return the colours from low to high with their values."""
    spans = "".join(
        f'<span style="left:{100 * ramp.place(m):.2f}%">{m:,}</span>'.replace(">-", ">−")
        for m in marks
    )
    other = None if dark is None else png(_strip(dark), dark)
    picture = _picture(png(_strip(ramp), ramp), f"Colours, {unit}", other)
    return f'<div class="bar">{picture}{spans}<span class="unit">{unit}</span></div>'


def _strip(ramp: Ramp) -> Float[Array, "1 256"]:
    """One value in the middle of each colour."""
    steps = (np.arange(128) + 0.5) / 128
    return np.concatenate([steps[::-1] * ramp.low, steps * ramp.high])[None]


def _degrees(value: int, positive: str, negative: str) -> str:
    return f"{abs(value)}°{positive if value > 0 else negative if value < 0 else ''}"


# --- how to get it again -------------------------------------------------------------------------


def _code(result: DemoResult) -> str:
    used = set(re.findall(r"(\w+)\(", result.best.code)) | {"KernelRidge"}
    return CODE.format(
        names=", ".join(sorted(used)),
        seed=result.seed,
        quick=" --quick" if result.quick else "",
        kernel=result.kernel,
        kernel_name=result.kernel.split("(")[0],
        method=result.best.code,
        n_features=result.best.n_features,
    )


def _source() -> str:
    """Return the data set's own words on source and licence."""
    parts = load_earth().description.split("\n\n")
    return " ".join(" ".join(p.split()) for p in parts if p.startswith(("Source", "Licence")))
