"""Maps as small PNG files, and the colours they are drawn in.

Colours are laid out in Oklab (Ottosson 2020), whose lightness follows the eye: along each side of
zero it changes by equal steps for equal steps of the value.
"""

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from bochner._core.shapes import Array, Float

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
