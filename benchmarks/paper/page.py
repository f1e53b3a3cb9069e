"""The numbers of docs/paper.md: written there from what the other commands have kept."""

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, say
from benchmarks.paper.methods import PUBLISHED

__all__ = ["PAGE", "difference", "filled", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
COLUMNS = ("Elevation", "CO2", "Climate", "Protein")
TITLES = {"CO2": "CO₂"}

#: Columns whose targets are those of the paper, and how near an error must be to agree with it.
SAME, NEAR = ("Elevation", "Protein"), 0.1

#: Protocols of table 2 that are not the paper's methods.
OURS = ("ours", "leaves", "learner")

PAPERS_ERROR, PAPERS_OBJECTIVE = "paper's MSE", "paper's"

#: Standard errors that a difference must be beyond, to be called one.
BEYOND = 2.0
#: Degrees of the series that the page shows.
DEGREES = (3, 7, 15)
#: Numbers of features of table 3.
WIDTHS = (1024, 512)

Results = dict[str, list[Row]]


def write(results: Iterable[Results]) -> int:
    """Write the tables of the page anew, of those experiments that there are numbers of."""
    found: Results = {}
    for result in results:
        for name, rows in result.items():
            found.setdefault(name, []).extend(rows)
    text, written = filled(PAGE.read_text(encoding="utf-8"), found)
    PAGE.write_text(text, encoding="utf-8")
    say(f"{PAGE.name}: wrote {', '.join(written) or 'nothing: --json FILE has the numbers'}.")
    return int(not written)


def filled(text: str, found: Results) -> tuple[str, list[str]]:
    """Return the page with its tables, and the names of those that were written."""
    written = []
    for name, (source, made) in TABLES.items():
        rows = [row for row in found.get(source, []) if "note" not in row]
        body = made(rows) if rows else ""
        if body:
            pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
            text, count = re.subn(
                pattern, lambda m, b=body: f"{m[1]}\n{b}\n{m[2]}", text, flags=re.DOTALL
            )
            written += [name] * count
    return text, written


# --- Table 2 -------------------------------------------------------------------------------------


def _of(rows: list[Row], protocol: str) -> dict[tuple[str, str], Row]:
    """Return the rows of a protocol by method and data set; the last of equal ones."""
    return {(row["method"], row["data"]): row for row in rows if row["protocol"] == protocol}


def _table(rows: list[Row], protocols: tuple[str, ...], cell: Callable[[Row], str]) -> str:
    known = {key: row for name in protocols for key, row in _of(rows, name).items()}
    if not known:
        return ""
    data = [name for name in COLUMNS if any(column == name for _, column in known)]
    lines = [["", *(TITLES.get(name, name) for name in data)], ["---"] * (len(data) + 1)]
    for method in dict.fromkeys(method for method, _ in known):
        cells = [known.get((method, name)) for name in data]
        lines.append([method, *("" if row is None else cell(row) for row in cells)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float, error: float) -> str:
    """Write a number with two digits of its standard error, where it has one."""
    if not error > 0:
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _published(rows: list[Row]) -> str:
    return _table(
        rows,
        ("published",),
        lambda row: (
            number(row["MSE"], row["±"])
            + ("" if row[PAPERS_ERROR] is None else f" ({row[PAPERS_ERROR]:g})")
        ),
    )


def _agreement(rows: list[Row]) -> str:
    """Say which published errors came out within a tenth, of the columns with the same targets."""
    lines = []
    for name in SAME:
        shares = {
            method: row["MSE"] / row[PAPERS_ERROR] - 1
            for (method, data), row in _of(rows, "published").items()
            if data == name and row[PAPERS_ERROR] is not None
        }
        words = {
            "within a tenth of what was published": [
                m for m, s in shares.items() if abs(s) <= NEAR
            ],
            "lower": [f"{m} (by {-s:.0%})" for m, s in shares.items() if s < -NEAR],
            "higher": [f"{m} (by {s:.0%})" for m, s in shares.items() if s > NEAR],
        }
        if shares:
            said = "; ".join(
                f"{word}: {', '.join(found)}" for word, found in words.items() if found
            )
            lines.append(f"* {name}: {said}.")
    return "\n".join(lines)


def _own(rows: list[Row]) -> str:
    def cell(row: Row) -> str:
        scale = "" if row["lengthscale"] is None else f", ℓ = {row['lengthscale']:.2g}"
        return f"{number(row['MSE'], row['±'])}{scale}, {row['seconds']:.2g} s"

    return _table(rows, ("own", *OURS), cell)


def _sizes(rows: list[Row]) -> str:
    lines = []
    for name in COLUMNS:
        row = next((row for row in rows if row["data"] == name), None)
        if row is not None:
            seeds = len(row["errors"])
            lines.append(
                f"* {TITLES.get(name, name)}: {row['rows']:,} rows to fit, {row['tested']:,} to "
                f"test, {row['columns']} columns, {seeds} seed{'s' * (seeds > 1)}."
            )
    return "\n".join(lines)


def difference(ours: list[float], theirs: list[float]) -> str:
    """Return "lower", "higher" or "level": by the differences on the same splits, and their error.

    Level is what is not beyond two standard errors of the mean difference, and all of one seed.
    """
    pairs = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean = sum(pairs) / len(pairs)
    if len(pairs) < 2:
        return "level"
    spread = math.sqrt(sum((p - mean) ** 2 for p in pairs) / (len(pairs) - 1) / len(pairs))
    if abs(mean) <= BEYOND * spread:
        return "level"
    return "lower" if mean < 0 else "higher"


def _verdicts(rows: list[Row]) -> str:
    own = _of(rows, "own")
    ours = {key: row for protocol in OURS for key, row in _of(rows, protocol).items()}
    lines = []
    for name in COLUMNS:
        published = [row for (m, data), row in own.items() if data == name and m in PUBLISHED]
        if not published:
            continue
        best = min(published, key=lambda row: row["MSE"])
        words = [
            f"{method} is **{difference(row['errors'], best['errors'])}** "
            f"({number(row['MSE'], row['±'])})"
            for (method, data), row in ours.items()
            if data == name
        ]
        first = f"best of the six is {best['method']} ({number(best['MSE'], best['±'])})"
        lines.append(f"* {TITLES.get(name, name)}: {first}; {'; '.join(words)}.")
    return "\n".join(lines)


# --- Figure 1 and table 3 ------------------------------------------------------------------------


def _series(rows: list[Row]) -> str:
    lines = [["largest error at degree", *map(str, DEGREES)], ["---"] * (len(DEGREES) + 1)]
    for row in rows:
        values = [f"{row[f'q={q}']:.2g}" for q in DEGREES]
        lines.append([f"{row['kernel']}: {row['series']}", *values])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _clusters(width: int) -> Callable[[list[Row]], str]:
    def made(rows: list[Row]) -> str:
        wanted = _clusterings(rows, width)
        data = list(dict.fromkeys(name for _, name in wanted))
        lines = [[f"D = {width:,}", *data], ["---"] * (len(data) + 1)]
        for method in dict.fromkeys(method for method, _ in wanted):
            cells = [wanted.get((method, name)) for name in data]
            lines.append([method, *("" if row is None else _objectives(row) for row in cells)])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) if data else ""

    return made


def _clusterings(rows: list[Row], width: int) -> dict[tuple[str, str], Row]:
    return {(row["method"], row["data"]): row for row in rows if row["D"] == width}


def _objectives(row: Row) -> str:
    published = f", {row[PAPERS_OBJECTIVE]:.2f}" if row["method"] in PUBLISHED else ""
    spread = f" ± {row['±']:.4f}" if row["±"] >= 0 else ""
    return f"{row['exact']:.4f}{spread} ({row['in features']:.2f}{published})"


def _clustered(rows: list[Row]) -> str:
    """Say what was clustered: rows, columns and clusters of each data set, and seeds."""
    found = {row["data"]: row for row in rows if row["D"] in WIDTHS}
    return "\n".join(
        f"* {name}: {row['rows']:,} rows, {row['columns']} columns, {row['clusters']} clusters, "
        f"{len(row['errors'])} seed{'s' * (len(row['errors']) > 1)}."
        for name, row in found.items()
    )


def _judged(rows: list[Row]) -> str:
    """Say how ours stand to the best of the six by the exact objective, as the table shows it."""
    lines = []
    for width in WIDTHS:
        wanted = _clusterings(rows, width)
        for name in dict.fromkeys(name for _, name in wanted):
            of = {method: row for (method, data), row in wanted.items() if data == name}
            best = min((of[method] for method in PUBLISHED), key=lambda row: row["exact"])
            theirs = [round(error, 4) for error in best["errors"]]
            words = [
                f"{method.removeprefix('ours: ')} "
                f"**{difference([round(error, 4) for error in row['errors']], theirs)}**"
                for method, row in of.items()
                if method not in PUBLISHED
            ]
            lines.append(f"* {name}, D = {width:,}: {best['method']}; {', '.join(words)}.")
    return "\n".join(lines)


#: Name of each part of the page that is written: the experiment, and its text.
TABLES: dict[str, tuple[str, Callable[[list[Row]], Any]]] = {
    "figure 1": ("figure1", _series),
    "table 2: rows": ("table2", _sizes),
    "table 2: published": ("table2", _published),
    "table 2: agreement": ("table2", _agreement),
    "table 2: own": ("table2", _own),
    "table 2: verdicts": ("table2", _verdicts),
    "table 3: rows": ("table3", _clustered),
    "table 3: 1024": ("table3", _clusters(1024)),
    "table 3: 512": ("table3", _clusters(512)),
    "table 3: verdicts": ("table3", _judged),
}
