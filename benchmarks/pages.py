"""Tables and pictures of the pages, made from records in docs/measured/results.jsonl.

``python -m benchmarks.pages [FILE ...]`` reads the records of ``tables``, ``raw``, ``proof``,
``scale``, ``choose`` and ``paper`` from files of results, and writes the pages and the README.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy import LEARNERS_OF_RAW, ranks, raw_summary, standings
from benchmarks.bench import CIRCUMSTANCES, ROOT, Row, markdown, read, record_of
from benchmarks.data import CLASSES
from benchmarks.learners import BOCHNER
from benchmarks.paper import PUBLISHED, PUBLISHED_ERRORS, PUBLISHED_OBJECTIVES

DOCS = ROOT / "docs"
RECORDS, PICTURE = DOCS / "measured" / "results.jsonl", DOCS / "pictures" / "compare-accuracy.svg"
PAGE, README, PAPER = DOCS / "compare.md", ROOT / "README.md", DOCS / "paper.md"
CLASS_PAGE = DOCS / "guide" / "classification.md"

#: Learners of the columns, bochner first.
QUANTITY = (*LEARNERS_OF_RAW["quantities"], "SVR of scikit-learn")
CLASS = LEARNERS_OF_RAW["classes"]

# --- records of the pages ------------------------------------------------------------------------


def records() -> dict[str, list[Row]]:
    """Return the records of the pages by part: "accuracy", "classes", "ranks", "raw", ..."""
    parts: dict[str, list[Row]] = {}
    for row in read(RECORDS):
        part = row["bench"]
        if part == "tables":
            part = "classes" if row["case"] in CLASSES else "accuracy"
        parts.setdefault(part, []).append(row)
    return parts


def by_part(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return new rows by part: means over splits of tables, and ranks if trees were tuned."""
    fits = [row for row in rows if row["bench"] == "tables"]
    quantities = [row for row in fits if row["case"] not in CLASSES]
    classes = [row for row in fits if row["case"] in CLASSES]
    parts = {"accuracy": _means(quantities, QUANTITY), "classes": _means(classes, CLASS)}
    if any("tuned" in row["who"] for row in fits):
        tasks = {"quantities": quantities, "classes": classes}
        parts["ranks"] = [row for task, of in tasks.items() for row in shared_standings(of, task)]
    parts["raw"] = [row for row in rows if row["bench"] == "raw" and np.isfinite(row["error"])]
    for part in ("proof", "scale", "choose", "paper"):
        parts[part] = [row for row in rows if row["bench"] == part]
    return {part: rows for part, rows in parts.items() if rows}


def _means(rows: Sequence[Row], learners: Sequence[str]) -> list[Row]:
    """Return mean errors and log losses, and median seconds, over the splits of these learners."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["case"]):
        if row["who"] in learners and np.isfinite(row["error"]):
            groups.setdefault((row["case"], row["who"]), []).append(row)
    records = []
    for (case, learner), fits in groups.items():
        row = {"bench": "tables", "case": case, "who": learner, "seed": None}
        row |= {"rows": fits[0]["rows"], "splits": len(fits)}
        averages = {"error": fmean, "log loss": fmean, "core seconds": median}
        for metric, mean in averages.items():
            if metric != "log loss" or case in CLASSES:
                row[metric] = float(f"{mean(fit[metric] for fit in fits):.4g}")
        records.append(row | {name: fits[-1].get(name) for name in CIRCUMSTANCES})
    return records


def shared_standings(rows: Sequence[Row], task: str) -> list[Row]:
    """Return the standings of a task on the splits that all learners share."""
    splits: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        splits.setdefault((row["case"], row["who"]), set()).add(row["seed"])
    common = set.intersection(*splits.values()) if splits else set()
    fields = {"bench": "ranks", "case": task, "seed": None, "splits": len(common)}
    result = standings([row for row in rows if row["seed"] in common], task == "classes")
    for row in result:
        row.pop("core seconds")  # seconds are those of another table, of an idle machine
    return [fields | row | {name: rows[-1].get(name) for name in CIRCUMSTANCES} for row in result]


# --- tables --------------------------------------------------------------------------------------

Cases, Cell = dict[str, dict[str, Row]], Callable[[str, Any], str]


def row_table(rows: Iterable[Row], columns: Mapping[str, str]) -> str:
    """Return a table with a line for each row; a template is empty if the row lacks its key."""

    def cell(template: str, row: Row) -> str:
        try:
            return template.format(**row).replace("%", " %")
        except KeyError:
            return ""

    return markdown(list(columns), [[cell(t, row) for t in columns.values()] for row in rows])


def cross_table(
    head: Sequence[str],
    lines: Mapping[tuple[str, ...], Mapping[str, Any]],
    columns: Mapping[str, str],
    cell: Cell,
    empty: str = "",
) -> str:
    """Return a table of ``cell`` for each line and column; ``columns`` has names and titles."""
    cells = [
        [*label, *(cell(name, of) if name in of else empty for name in columns)]
        for label, of in lines.items()
    ]
    return markdown([*head, *columns.values()], cells)


def _by_case(rows: Sequence[Row], learner: str | None = None) -> Cases:
    """Return rows by case and learner; only cases with the learner ``learner`` if it is given."""
    cases: Cases = {}
    for row in rows:
        cases.setdefault(row["case"], {})[row["who"]] = row
    return {case: of for case, of in cases.items() if learner is None or learner in of}


def _bold_least(metric: str, name: str, of: Mapping[str, Row]) -> str:
    value = of[name][metric]
    return f"**{value:.3g}**" if value == min(r[metric] for r in of.values()) else f"{value:.3g}"


def metric_table(metric: str, names: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a metric of each table and learner, the smallest in bold, and the mean ranks."""
    cases, lines = _by_case(rows, names[0]), dict[tuple[str, ...], Any]()
    titles = {name: name for name in names if any(name in of for of in cases.values())}
    titles |= {"KernelRidge": "bochner"} if "KernelRidge" in titles else {}
    for case, of in cases.items():
        row = next(iter(of.values()))
        lines[case, f"{row['rows']:,}", str(row["splits"])] = of
    values = pd.DataFrame(rows).pivot(index="case", columns="who", values=metric)
    mean_ranks = lines["**mean rank**", "", ""] = ranks(values.loc[list(cases), list(titles)])

    def cell(name: str, of: Any) -> str:
        return f"{of[name]:.2f}" if of is mean_ranks else _bold_least(metric, name, of)

    return cross_table(["table", "rows", "splits"], lines, titles, cell, "–")


def _standing(row: Row) -> Row:
    """Return a row of standings with the name of its learner, in bold for bochner."""
    of_classes = row["case"] == "classes"
    name = f"**{row['who']}**" if row["who"] in BOCHNER[of_classes] else row["who"]
    return row | {"learner": name, "target": "classes" if of_classes else "numeric target"}


def rank_table(rows: Sequence[Row]) -> str:
    """Return the learners of quantities, then of classes, by mean rank."""
    columns = {"tables": "{cases}, {target}", "splits": "{splits}", "learner": "{learner}"}
    columns |= {"mean rank": "{mean rank:.2f}"}
    for key in ("within 1 % of the best", "within 1 % of the best other library", "above the best"):
        columns[key] = f"{{{key}:.0%}}"
    columns["tables worse than the simplest learner"] = "{worse than the simplest}"
    return row_table(map(_standing, rows), columns)


def raw_table(rows: Sequence[Row]) -> str:
    """Return the standings on raw tables: quantities, then classes."""
    columns = {
        "tables": "{cases}, {target}",
        "learner": "{learner}",
        "mean rank": "{mean rank:.2f}",
        "lowest error": "{wins}",
        "within 1 % of the best": "{within 1 % of the best:.0%}",
        "error / lowest error of the others": "{of the best other:.3f}",
        "CPU seconds": "{core seconds:.2g}",
    }
    return row_table(map(_standing, raw_summary(rows)), columns)


def proof_table(rows: Sequence[Row]) -> str:
    """Return certificates of half of the rows, ε of all rows, and the a-priori bound."""
    required = lambda row: f"{row['asked']:,} features required" if "asked" in row else "none"
    lines = [row | {"D": f"{row['D']:,}" if "true" in row else required(row)} for row in rows]
    columns = {"features": "{who}", "D": "{D}"}
    columns["ε from half of the rows, 95 % interval"] = "{low:.3g} to {high:.3g}"
    return row_table(lines, columns | {"ε of all rows": "{true:.3g}"})


def scale_table(rows: Sequence[Row]) -> str:
    """Return fits of one pass, and the size of a kernel matrix of as many rows."""
    columns = {"rows": "{rows:,}", "CPU seconds": "{core seconds:.3g}"}
    columns["peak memory"] = "{peak MB:,.0f} MB"
    columns |= {"error / standard deviation": "{error:.3g}", "kernel matrix": "{matrix:,.0f} GB"}
    return row_table([row | {"matrix": 8e-9 * row["rows"] ** 2} for row in rows], columns)


# --- the pages -----------------------------------------------------------------------------------

#: By page: name of the part of the page, its rows, and its table.
PARTS: dict[Path, dict[str, tuple[str, Callable[[Sequence[Row]], str]]]] = {
    PAGE: {
        "accuracy": ("accuracy", partial(metric_table, "error", QUANTITY)),
        "ranks": ("ranks", rank_table),
        "raw": ("raw", raw_table),
        "speed": ("accuracy", partial(metric_table, "core seconds", QUANTITY)),
        "proof": ("proof", proof_table),
        "scale": ("scale", scale_table),
    },
    CLASS_PAGE: {
        f"classes: {metric}": ("classes", partial(metric_table, metric, CLASS))
        for metric in ("error", "log loss", "core seconds")
    },
}


def fill_page(page: str, parts: Mapping[str, Sequence[Row]], path: Path = PAGE) -> str:
    """Return a page with its tables, made from records."""
    for name, (part, table_of) in PARTS[path].items():
        if rows := parts.get(part):
            picture = (
                f"![{alt_text(rows)}](pictures/{PICTURE.name})\n\n" if name == "accuracy" else ""
            )
            page = replace_part(page, name, f"\n{picture}{table_of(rows)}\n\n{_measured(rows)}\n")
    return page


def _measured(rows: Sequence[Row]) -> str:
    """Return date, commit and machine; learners that were measured at another commit are named."""
    last, other = max(rows, key=lambda row: str(row["date"])), {}
    for row in rows:
        if row["commit"] != last["commit"]:
            other.setdefault((row["date"], row["commit"]), {})[row["who"]] = None
    named = "".join(f"; {', '.join(name)} {d} at {c}" for (d, c), name in other.items())
    machine = max((row["machine"] for row in rows), key=len)  # With the versions of all libraries
    return "Measured {date} at {commit}".format(**last) + f"{named}: {machine}."


def replace_part(page: str, name: str, body: str) -> str:
    """Return a page with a new body between the marks of a part."""
    pattern = rf"<!-- {name} -->.*?<!-- end -->"
    body = f"<!-- {name} -->\n{body}\n<!-- end -->"
    page, count = re.subn(pattern, lambda _: body, page, flags=re.DOTALL)
    assert count == 1, name
    return page


def headline(rows: Sequence[Row]) -> str:
    """Return the first claim of the README."""
    cases = _by_case(rows, QUANTITY[0])
    limit = max(of[QUANTITY[0]]["rows"] for of in cases.values())
    seconds, light = (
        median(of[name]["core seconds"] for of in cases.values() if name in of)
        for name in ("KernelRidge", "LightGBM")
    )
    return (
        f"On {len(cases)} tables with numeric targets and up to {limit:,} rows, **bochner has the "
        f"lowest error on {_wins(cases)} of {len(cases)}**, compared with\nLightGBM, CatBoost, "
        "HistGradientBoosting and scikit-learn's `SVR`, all with default parameters. The median "
        f"fit takes {seconds:.2g} CPU\nseconds; LightGBM takes {light:.2g}. "
        "`python -m benchmarks tables --data DIR` measures it ([table](docs/compare.md)).\n\n"
        f"![{alt_text(rows)}](docs/pictures/compare-accuracy.svg)"
    )


def _wins(cases: Cases) -> int:
    return sum(min(of, key=lambda w: of[w]["error"]) == QUANTITY[0] for of in cases.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Read records from files, and write pages, README and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="files of results")
    parsed = parser.parse_args(arguments)
    parts = records() | by_part(read(*parsed.files))
    rows = (record_of(row["bench"], row, {}) for rows in parts.values() for row in rows)
    RECORDS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for page in PARTS:
        page.write_text(fill_page(page.read_text("utf-8"), parts, page), encoding="utf-8")
    text = replace_part(README.read_text("utf-8"), "headline", headline(parts["accuracy"]))
    README.write_text(text, encoding="utf-8")
    PAPER.write_text(fill_paper(PAPER.read_text("utf-8"), parts.get("paper", [])), encoding="utf-8")
    draw_errors(parts["accuracy"], PICTURE)
    return 0


# --- docs/paper.md -------------------------------------------------------------------------------


def fill_paper(text: str, rows: Sequence[Row]) -> str:
    """Return the page with new tables, where there are rows."""
    series = [r | {"series": r["case"].split(", ", 1)[1]} for r in rows if "figure 1" in r["case"]]
    columns = {"largest error at degree": "{series}: {who}"}
    columns |= {str(q): f"{{q={q}:.2g}}" for q in (3, 7, 15)}
    tables = {"figure 1": row_table(series, columns) if series else ""}
    tables["table 2: published"] = _by_method(rows, ["table 2, published"], "", _published)
    parts = [f"table 2, {part}" for part in ("tuned", "bochner", "local", "default")]
    tables["table 2: tuned"] = _by_method(rows, parts, "", _bochner_result)
    for D in (1024, 512):
        tables[f"table 3: {D}"] = _by_method(rows, [f"table 3, D={D}"], f"D = {D:,}", _clusters)
    for name, body in tables.items():
        text = replace_part(text, name, f"\n{body}\n") if body else text
    return text


def _by_method(rows: Iterable[Row], parts: Sequence[str], first: str, cell: Cell) -> str:
    """Return a table of methods and data sets; ``cell`` receives the frame of all seeds."""
    fits: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for part in parts:
        for row in rows:
            table, name, *remainder = row["case"].split(", ")
            if ", ".join([table, *remainder]) == part:
                fits.setdefault((row["who"],), {}).setdefault(name, []).append(row)
    titles = {name: "CO₂" if name == "CO2" else name for of in fits.values() for name in of}
    of_seeds = lambda name, of: cell(name, pd.DataFrame(of[name]))
    return cross_table([first], fits, titles, of_seeds) if fits else ""


def number(values: pd.Series) -> str:
    """Return a mean as text, with two digits of its standard error if there are several values."""
    mean, error = values.mean(), values.sem()
    if not error > 0:
        return f"{mean:.4g}"
    digits = max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _published_number(numbers: Sequence[float], fits: pd.DataFrame, form: str) -> str:
    """Return the published number of a method, if there is one."""
    value = dict(zip(PUBLISHED, numbers, strict=True)).get(fits["who"][0])
    return "" if value is None else form.format(value)


def _published(name: str, fits: pd.DataFrame) -> str:
    return number(fits["MSE"]) + _published_number(PUBLISHED_ERRORS[name], fits, " ({:g})")


def _bochner_result(_: str, fits: pd.DataFrame) -> str:
    scale = f", ℓ = {fits['lengthscale'][0]:.2g}" if "lengthscale" in fits else ""
    return f"{number(fits['MSE'])}{scale}, {fits['core seconds'].mean():.2g} s"


def _clusters(name: str, fits: pd.DataFrame) -> str:
    error = fits["exact"].sem()
    spread = f" ± {error:.4f}" if error >= 0 else ""
    published = _published_number(PUBLISHED_OBJECTIVES[name], fits, ", {:.2f}")
    return f"{fits['exact'].mean():.4f}{spread} ({fits['in features'].mean():.2f}{published})"


# --- the picture ---------------------------------------------------------------------------------

STYLE: Row = {"svg.fonttype": "none", "svg.hashsalt": "bochner", "figure.facecolor": "white"}
STYLE |= {"axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "font.size": 9}
STYLE |= {"grid.color": "#dddddd", "grid.linewidth": 0.6, "legend.fontsize": 7}
STYLE |= {"legend.frameon": False, "xtick.bottom": False, "ytick.left": False}
COLOURS, MARKERS = ("#0d5c7c", "#b45309", "#7c3aed", "#be185d", "#4d7c0f"), "Ds^vo"


def alt_text(rows: Sequence[Row]) -> str:
    """Return the description of the picture of docs/compare.md."""
    cases = _by_case(rows, QUANTITY[0])
    return (
        f"Errors on {len(cases)} tables, relative to bochner on the same table: "
        f"bochner has the lowest error on {_wins(cases)} of them"
    )


def draw_errors(rows: Sequence[Row], path: Path) -> None:
    """Draw the ratio of the error of each learner to the error of bochner, by table.

    The same rows give the same bytes: there is no date, and coordinates have one decimal.
    """
    import matplotlib as mpl  # noqa: PLC0415  imported when used
    from matplotlib.figure import Figure  # noqa: PLC0415

    cases, text = dict(reversed(_by_case(rows, QUANTITY[0]).items())), StringIO()
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(7.6, 1.2 + 0.25 * len(cases)), layout="constrained")
        panel = canvas.subplots()
        for name, colour, marker in zip(QUANTITY, COLOURS, MARKERS, strict=True):
            fitted = [(i, of) for i, of in enumerate(cases.values()) if name in of]
            ratios = [of[name]["error"] / of[QUANTITY[0]]["error"] for _, of in fitted]
            label = "bochner" if name == QUANTITY[0] else name
            style = {"color": colour, "marker": marker, "linestyle": "none", "label": label}
            panel.semilogx(ratios, [i for i, _ in fitted], **style)
        panel.set_yticks(range(len(cases)), cases)
        panel.set_xlabel("error / error of bochner; values above 1 are worse")
        ticks = (0.8, 1, 1.5, 2, 3, 4)
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        canvas.legend(loc="outside upper center", ncols=5)
        panel.minorticks_off()
        canvas.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = re.sub(r"-?\d+\.\d{2,}", lambda match: f"{float(match[0]):.1f}", text.getvalue())
    svg = re.sub(r"\s*\n(?=[MLCQz\"])", "", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r" id=\"\w+_\d+\"| transform=\"rotate\(-0[^\"]*\"", "", svg)
    path.write_text(re.sub(r"\n\s+", "\n", svg), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
