"""Where the tables' data come from, and whether a folder holds them as they were used."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import MissingDataSet, Options, Row, stored

__all__ = ["SOURCES", "Source", "digest", "run"]

_UCI = "https://archive.ics.uci.edu/dataset/"


@dataclass(frozen=True)
class Source:
    """A file of the folder of data: what it holds, and where that is to be had.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of ``X``.
    digest : str
        That of :func:`digest`, whatever the order of the rows.
    """

    table: str
    shape: tuple[int, int]
    digest: str
    address: str
    made: str


#: Name of the .npz file, with arrays X and y, and what is in it.
SOURCES = {
    "co2_cdiac": Source(
        "CO2",
        (153648, 3),
        "02acb6d3de3c",
        "https://doi.org/10.3334/CDIAC/ffe.ndp058.2016, files gridcar.2002 to gridcar.2013",
        "a substitute for ODIAC: latitude, longitude, year; cells of one degree above zero in all "
        "twelve years, Tg of carbon a cell and year",
    ),
    "climate_ncep": Source(
        "Climate",
        (122712, 3),
        "0696c953e890",
        "https://psl.noaa.gov/data/gridded/data.ncep.reanalysis.html, file air.mon.ltm.nc",
        "a substitute for Berkeley Earth: latitude, longitude, month 1 to 12; surface air "
        "temperature, monthly long-term means of a grid of 2.5 degrees, each pole one place, °C",
    ),
    "protein": Source(
        "Protein", (45730, 9), "2b59f72d2673", f"{_UCI}265", "CASP.csv: F1 to F9; y is RMSD"
    ),
    "abalone_jmlr": Source(
        "Abalone",
        (4177, 8),
        "4c537bc3bac3",
        f"{_UCI}1",
        "sex as M 1, F 2, I 3; columns standardised; classes: rings to 8, 9 and 10, from 11",
    ),
    "pendigits": Source(
        "Pendigits",
        (10992, 16),
        "a2513133230a",
        f"{_UCI}81",
        "split: 0 for pendigits.tra",
    ),
    "mushroom": Source(
        "Mushroom",
        (8124, 21),
        "34783e4f49b3",
        f"{_UCI}73",
        "letters of a column as integers in their order; veil-type, which is constant, left out",
    ),
    "magic": Source("Magic", (19020, 10), "1f947491771b", f"{_UCI}159", "magic04.data; y: 1 for g"),
    "shuttle": Source(
        "Statlog", (58000, 9), "499f979e4b80", f"{_UCI}148", "split: 0 for shuttle.trn"
    ),
    "connect4": Source(
        "Connect-4", (67557, 42), "15e0e4dfca52", f"{_UCI}26", "b, o, x as 0, 1, 2; y2: 1 for loss"
    ),
}


def digest(X: np.ndarray) -> str:
    """Return the start of the SHA-256 of the rows as little-endian float32, in rising order."""
    rows = np.asarray(X, dtype="<f4")
    return hashlib.sha256(rows[np.lexsort(rows.T)].tobytes()).hexdigest()[:12]


def run(options: Options, _: int) -> Iterator[list[Row]]:
    """Give a row for each file: whether it is there and as it was used, and where it comes from."""
    relief = {"file": "", "table": "Elevation", "state": "in the package: load_earth()"}
    yield [relief, *(_row(name, source, options) for name, source in SOURCES.items())]


def _row(name: str, source: Source, options: Options) -> Row:
    try:
        found = digest(stored(name, options.data)["X"])
        state = "here" if found == source.digest else f"here, but other rows: {found}"
    except MissingDataSet:
        state = "missing"
    n, d = source.shape
    about = {"file": f"{name}.npz", "table": source.table, "state": state}
    return about | {"X": f"{n} × {d}", "from": source.address, "made by": source.made}
