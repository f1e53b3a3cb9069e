"""The numbers of pages and of the README: measured, kept in docs/measured, written there.

``python -m benchmarks.measured --results FILE ...`` reads what ``benchmarks.tables`` wrote, and
``--ranks FILE ...`` takes ranks alone from it: of fits whose seconds are those of a busy machine;
``--raw FILE ...`` reads what ``benchmarks.raw`` wrote;
``--proof`` and ``--scale`` measure the other two tables anew (a minute). Without arguments
docs/compare.md, its pictures, docs/guide/classification.md and the first claim of the README are
written again from what is kept. Each part keeps its date, commit and machine.
"""

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.compared import PICTURES
from benchmarks.harness import Row
from benchmarks.raw import summary as raw_summary
from benchmarks.rivals import OURS as OURS_OF
from benchmarks.tables import CLASSES, means, summary

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "measured" / "tables.json"
PAGE = ROOT / "docs" / "compare.md"
README = ROOT / "README.md"
CLASS_PAGE = ROOT / "docs" / "guide" / "classification.md"

#: The default of ours, and the learners beside it, in the order of the columns.
OURS = "KernelRidge"
OURS_OF_CLASSES = "KernelRidgeClassifier"
RIVALS = (
    "LightGBM",
    "CatBoost",
    "HistGradientBoosting",
    "SVR of scikit-learn",
    "SVC of scikit-learn",
)

#: The columns of the page of classifiers: ours, and those beside them.
CLASSIFIERS = (OURS_OF_CLASSES, "SVC", "LogisticRegression")
BESIDE = ("LightGBM", "CatBoost", "HistGradientBoosting")

#: Rows of the fits of the table of scale.
SCALE = (10_000, 40_000, 160_000)


def circumstances() -> Row:
    """Return when, of what and where something was measured."""
    described = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": commit.stdout.strip() or "unknown",
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "versions": ", ".join(
            f"{name} {version(name)}" for name in ("numpy", "scikit-learn", "lightgbm", "catboost")
        ),
    }


def _processor() -> str:
    """Return the name that the processor gives itself."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.machine()


# --- accuracy and speed --------------------------------------------------------------------------


def accuracy(rows: Sequence[Row]) -> list[Row]:
    """Return mean errors and median core seconds of each table that ours was fitted to."""
    kept = []
    for name, found in sorted(means(rows).items()):
        ours = OURS_OF_CLASSES if name in CLASSES else OURS
        if ours not in found:
            continue
        learners = [ours, *(rival for rival in RIVALS if rival in found)]
        numbers = {each: [float(f"{v:.4g}") for v in found[each]] for each in learners}
        mine = [row for row in rows if row["table"] == name and row["learner"] == ours]
        sizes = {"rows": mine[0]["rows"], "splits": len(mine)}
        kept.append({"table": name, **sizes, "classes": name in CLASSES, "found": numbers})
    return kept


def accuracy_table(kept: Sequence[Row], which: int) -> str:
    """Return errors (0), or core seconds (1), of each table: ours in bold where nothing is less."""
    shown = [name for name in RIVALS if any(name in row["found"] for row in kept)]
    lines = []
    for row in kept:
        ours = next(iter(row["found"]))
        values = [row["found"].get(name, [None, None])[which] for name in (ours, *shown)]
        least = min(value for value in values if value is not None)
        cells = ["–" if v is None else f"{v:.3g}" for v in values]
        cells = [f"**{c}**" if v == least else c for c, v in zip(cells, values, strict=True)]
        name = f"{row['table']}{' (classes)' * row['classes']}"
        lines.append([name, f"{row['rows']:,}", str(row["splits"]), *cells])
    return _markdown(["table", "rows", "splits", "bochner", *shown], lines)


# --- classes -------------------------------------------------------------------------------------


def classified(rows: Sequence[Row]) -> list[Row]:
    """Return errors, log losses and core seconds of each table of classes and each learner.

    Means over splits, of seconds the median.
    """
    kept = []
    for name in sorted({row["table"] for row in rows} & set(CLASSES)):
        mine = [row for row in rows if row["table"] == name and np.isfinite(row["error"])]
        found = {}
        for learner in (*CLASSIFIERS, *BESIDE):
            fits = [row for row in mine if row["learner"] == learner]
            if fits:
                found[learner] = [_digits(v) for v in _error_loss_seconds(fits)]
        splits = len({row["split"] for row in mine})
        kept.append({"table": name, "rows": mine[0]["rows"], "splits": splits, "found": found})
    return kept


def _error_loss_seconds(fits: Sequence[Row]) -> tuple[float, float, float]:
    error, loss = (float(np.mean([row[name] for row in fits])) for name in ("error", "log loss"))
    return error, loss, float(np.median([row["core seconds"] for row in fits]))


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def classified_table(kept: Sequence[Row]) -> str:
    """Return error, log loss and core seconds in each cell; the least of the first two is bold.

    The last line has the mean ranks by each, of learners that were fitted to all tables.
    """
    names = [name for name in (*CLASSIFIERS, *BESIDE) if any(name in row["found"] for row in kept)]
    lines = []
    for row in kept:
        found = [row["found"].get(name) for name in names]
        least = [min(each[i] for each in found if each) for i in (0, 1)]
        cells = ["–" if each is None else _class_cell(each, least) for each in found]
        lines.append([row["table"], f"{row['rows']:,}", str(row["splits"]), *cells])
    lines.append(["**mean rank**", "", "", *_mean_ranks([row["found"] for row in kept], names)])
    return _markdown(["table", "rows", "splits", *names], lines)


def _mean_ranks(found: Sequence[Mapping[str, Sequence[float]]], names: Sequence[str]) -> list[str]:
    """Return the mean ranks by error, log loss and seconds; equal ones share their places."""
    shared = [name for name in names if all(name in row for row in found)]
    if not shared:
        return ["–"] * len(names)
    values = np.array([[row[name] for name in shared] for row in found])
    places = np.mean(rankdata(values, axis=1), axis=0)
    shown = {
        name: ", ".join(f"{r:.2f}" for r in row) for name, row in zip(shared, places, strict=True)
    }
    return [shown.get(name, "–") for name in names]


def _class_cell(found: Sequence[float], least: Sequence[float]) -> str:
    shown = [f"{value:.3g}" for value in found[:2]]
    shown = [f"**{s}**" if v == m else s for s, v, m in zip(shown, found, least, strict=False)]
    return f"{shown[0]}, {shown[1]}, {found[2]:.3g} s"


# --- ranks ---------------------------------------------------------------------------------------


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Return mean ranks over tables of quantities, then of classes, each of the same splits.

    Only splits count that every learner was fitted to: errors on other rows are not compared.
    """
    kept = []
    for classes in (False, True):
        mine = [row for row in rows if (row["table"] in CLASSES) == classes]
        splits: dict[tuple[str, str], set[int]] = {}
        for row in mine:
            splits.setdefault((row["table"], row["learner"]), set()).add(row["split"])
        shared = set.intersection(*splits.values()) if splits else set()
        found = summary([row for row in mine if row["split"] in shared], classes)
        for row in found:
            row.pop("core seconds")  # the table of seconds has those of a quiet machine
            kept.append({"classes": classes, "splits": len(shared)} | row)
    return kept


def ranked_table(kept: Sequence[Row]) -> str:
    """Return the learners of quantities, then those of classes, each by mean rank."""
    lines = []
    for row in kept:
        task = "classes" if row["classes"] else "quantities"
        worse = row.get("worse than the simplest", "")
        name = (
            f"**{row['learner']}**" if row["learner"] in OURS_OF[row["classes"]] else row["learner"]
        )
        keys = "within 1 % of the best", "within 1 % of the best rival", "above the best"
        shares = [f"{100 * row[key]:.0f} %" if key in row else "" for key in keys]
        lines.append(
            [
                f"{row['tables']} of {task}",
                str(row["splits"]),
                name,
                f"{row['mean rank']:.2f}",
                *shares,
                str(worse),
            ]
        )
    head = ["tables", "splits", "learner", "mean rank", "within 1 % of the best"]
    head += ["within 1 % of the best rival", "above the best"]
    return _markdown([*head, "tables worse than the simplest"], lines)


# --- raw tables ----------------------------------------------------------------------------------


def raw(rows: Sequence[Row]) -> list[Row]:
    """Return errors and core seconds of each raw table, by task, split and learner."""
    found: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = row["task"], row["table"], row["split"]
        made = dict(zip(("task", "table", "split"), key, strict=True))
        of_table = found.setdefault(key, made | {"rows": row["rows"], "found": {}})
        if np.isfinite(row["error"]):
            numbers = [_digits(row[name]) for name in ("error", "core seconds")]
            of_table["found"][row["learner"]] = numbers
    return [found[key] for key in sorted(found)]


def raw_table(kept: Sequence[Row]) -> str:
    """Return how learners stand on raw tables: quantities, then classes, each by mean rank."""
    rows = [
        {key: row[key] for key in ("task", "table", "split", "rows")}
        | {"learner": learner, "error": error, "core seconds": seconds}
        for row in kept
        for learner, (error, seconds) in row["found"].items()
    ]
    lines = [_raw_line(row) for row in raw_summary(rows)]
    head = ["tables", "learner", "mean rank", "errs less than all rivals", "within 1 % of the best"]
    return _markdown([*head, "error, of the best rival's", "core seconds"], lines)


def _raw_line(row: Row) -> list[str]:
    ours = OURS_OF[row["task"] == "classes"]
    name = f"**{row['learner']}**" if row["learner"] in ours else row["learner"]
    cells = [f"{row['tables']} of {row['task']}", name, f"{row['mean rank']:.2f}", str(row["wins"])]
    cells += [f"{100 * row['within 1 % of the best']:.0f} %", f"{row['of the best rival']:.3f}"]
    return [*cells, f"{row['core seconds']:.2g}"]


# --- proof ---------------------------------------------------------------------------------------


def proof(n_features: int = 512) -> list[Row]:
    """Return what is promised of features before, measured after, and true, on concrete."""
    import bochner as bo  # noqa: PLC0415
    from bochner.datasets import load_concrete  # noqa: PLC0415
    from bochner.kernels import Gaussian  # noqa: PLC0415

    data = load_concrete()
    X = ((data.X - data.X.mean(axis=0)) / data.X.std(axis=0)).astype(np.float64)
    kernel, alpha = Gaussian(4.0), 10.0
    rows = []
    for method in ("fourier", "nystrom"):
        phi = bo.draw(kernel, method, n_features=n_features, X=X, random_state=0)
        sample = X[np.random.default_rng(0).permutation(len(X))[: len(X) // 2]]
        found = bo.certify(phi, sample, alpha=alpha, n_rows=len(X), random_state=0)
        low, high = found.epsilon_interval
        row = {"method": method, "D": n_features, "low": low, "high": high}
        rows.append(row | {"true": _distance(kernel(X), phi(X), alpha)})
    compared = bo.compare_bounds(
        kernel, X, alpha=alpha, n_features=n_features, n_draws=3, random_state=0
    )
    bound = next(r for r in compared.rows if "spectral" in r.bound.quantity)
    return [*rows, {"method": "fourier, a-priori bound", "D": n_features, "asked": bound.asked}]


def _distance(K: Any, Z: Any, alpha: float) -> float:
    """Return ε by dense matrices: the largest |eigenvalue| of (K + α)^−½ (ZZᵀ − K)(K + α)^−½."""
    values, vectors = np.linalg.eigh(K)
    root = vectors / np.sqrt(np.maximum(values, 0.0) + alpha)
    return float(np.abs(np.linalg.eigvalsh(root.T @ (Z @ Z.T - K) @ root)).max())


def proof_table(kept: Sequence[Row]) -> str:
    """Return the certificates of half the rows beside the truth of all, and the bound."""
    lines = [
        [
            row["method"],
            f"{row['D']:,}",
            f"{row['low']:.3g} to {row['high']:.3g}",
            f"{row['true']:.3g}",
        ]
        for row in kept
        if "true" in row
    ]
    bound = next(row for row in kept if "asked" in row)
    asked = "none serves" if bound["asked"] is None else f"{bound['asked']:,} features asked"
    lines.append([bound["method"], asked, "", ""])
    return _markdown(
        ["features", "D", "ε certified on half the rows, 95 %", "ε of all rows"], lines
    )


# --- scale ---------------------------------------------------------------------------------------

_FIT = """
import json, resource, time
import numpy as np
import bochner as bo
from bochner.kernels import Gaussian

def piece(start, n):
    X = np.random.default_rng(start).uniform(-2, 2, (n, 8))
    return X, np.sin(X @ np.arange(1, 9) / 12)

n = {rows}
pieces = lambda: (piece(i, min(10_000, n - i)) for i in range(0, n, 10_000))
blocks = bo.Blocks.from_iterable(pieces)
began = time.process_time()
model = bo.KernelRidge(Gaussian(4.0), method="fourier", n_features=512, random_state=0)
model.fit_blocks(blocks)
took = time.process_time() - began
X, y = piece(n + 1, 5000)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * {unit}
error = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)) / y.std())
print(json.dumps({{"rows": n, "seconds": took, "peak": peak, "error": error}}))
"""


def scale(sizes: Sequence[int] = SCALE) -> list[Row]:
    """Return core seconds, peak memory and error of fits of one pass, each in a fresh process."""
    unit, rows = 1 if sys.platform == "darwin" else 1024, []
    for n in sizes:
        command = [sys.executable, "-c", _FIT.format(rows=n, unit=unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
    return rows


def scale_table(kept: Sequence[Row]) -> str:
    """Return the fits, beside what a kernel matrix of as many rows would take."""
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['seconds']:.3g}",
            f"{row['peak'] / 1e6:,.0f} MB",
            f"{row['error']:.3g}",
            f"{8 * row['rows'] ** 2 / 1e9:,.0f} GB",
        ]
        for row in kept
    ]
    head = ["rows", "core seconds", "peak of the process", "error, in deviations", "kernel matrix"]
    return _markdown(head, lines)


# --- the page ------------------------------------------------------------------------------------


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


TABLES = {
    "accuracy": lambda rows: accuracy_table(rows, 0),
    "ranks": ranked_table,
    "speed": lambda rows: accuracy_table(rows, 1),
    "proof": proof_table,
    "scale": scale_table,
    "raw": raw_table,
    "classes": classified_table,
}

#: What each table is made of, by the page that it is on.
SOURCES = {
    PAGE: {
        "accuracy": "accuracy",
        "ranks": "ranks",
        "raw": "raw",
        "speed": "accuracy",
        "proof": "proof",
        "scale": "scale",
    },
    CLASS_PAGE: {"classes": "classes"},
}


def written(page: str, kept: Mapping[str, Any], sources: Mapping[str, str] = SOURCES[PAGE]) -> str:
    """Return a page with its tables and pictures made anew of what is kept."""
    for name, source in sources.items():
        if source not in kept:
            continue
        part = kept[source]
        when = part["made"]
        note = (
            f"Measured {when['date']} at {when['commit']}: {when['machine']}; {when['versions']}."
        )
        shown = ""
        if name in PICTURES:
            words, _ = PICTURES[name](part["rows"])
            shown = f"![{words}](pictures/compare-{name}.svg)\n\n"
        table = TABLES[name](part["rows"])
        body = f"<!-- {name} -->\n\n{shown}{table}\n\n{note}\n\n<!-- end -->"
        page, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->", lambda _, b=body: b, page, flags=re.DOTALL
        )
        assert count == 1, name
    return page


def headlined(readme: str, kept: Mapping[str, Any]) -> str:
    """Return the README with its first claim made anew of what is kept."""
    body = f"<!-- headline -->\n{headline(kept['accuracy']['rows'])}\n<!-- end -->"
    made, count = re.subn(
        r"<!-- headline -->.*?<!-- end -->", lambda _: body, readme, flags=re.DOTALL
    )
    assert count == 1
    return made


def headline(rows: Sequence[Row]) -> str:
    """Return how often ours errs least, what it costs, and the picture of both."""
    least = sum(min(row["found"].items(), key=_error)[0].startswith("KernelRidge") for row in rows)
    most = max(row["rows"] for row in rows)
    seconds = [
        median(row["found"][name][1] for row in rows if name in row["found"])
        for name in (OURS, "LightGBM")
    ]
    words, _ = PICTURES["accuracy"](rows)
    return (
        f"Default against default, on {len(rows)} tables of up to {most:,} rows: **bochner errs "
        f"least on {least} of {len(rows)}**, beside\nLightGBM, CatBoost, HistGradientBoosting and "
        f"scikit-learn's machines. The price is time: {seconds[0]:.2g} seconds of one core\nin the "
        f"middle, where LightGBM takes {seconds[1]:.2g}. `python -m benchmarks.tables` measures it "
        f"anew.\n\n![{words}](docs/pictures/compare-accuracy.svg)"
    )


def _error(found: tuple[str, Sequence[float]]) -> float:
    return found[1][0]


def drawn(kept: Mapping[str, Any]) -> dict[Path, str]:
    """Return the pictures of what is kept, by file."""
    folder = PAGE.parent / "pictures"
    return {
        folder / f"compare-{name}.svg": PICTURES[name](kept[source]["rows"])[1]
        for name, source in SOURCES[PAGE].items()
        if source in kept and name in PICTURES
    }


def _rows(files: Sequence[Path]) -> list[Row]:
    return [json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()]


def main() -> None:
    """Measure the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measured")
    parser.add_argument("--results", type=Path, nargs="*", default=[], help="of benchmarks.tables")
    parser.add_argument(
        "--ranks", type=Path, nargs="*", default=[], help="of the same; errors only"
    )
    parser.add_argument("--raw", type=Path, nargs="*", default=[], help="of benchmarks.raw")
    parser.add_argument("--proof", action="store_true")
    parser.add_argument("--scale", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    made, rows = circumstances(), _rows(asked.results)
    quantities = [row for row in rows if row["table"] not in CLASSES]
    classes = [row for row in rows if row["table"] in CLASSES]
    if asked.ranks:
        kept["ranks"] = {"made": made, "rows": ranked(_rows(asked.ranks))}
    if asked.raw:
        kept["raw"] = {"made": made, "rows": raw(_rows(asked.raw))}
    if quantities:
        kept["accuracy"] = {"made": made, "rows": accuracy(quantities)}
    if classes:
        kept["classes"] = {"made": made, "rows": classified(classes)}
    if asked.proof:
        kept["proof"] = {"made": made, "rows": proof()}
    if asked.scale:
        kept["scale"] = {"made": made, "rows": scale()}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for page, sources in SOURCES.items():
        text = written(page.read_text(encoding="utf-8"), kept, sources)
        page.write_text(text, encoding="utf-8")
    README.write_text(headlined(README.read_text(encoding="utf-8"), kept), encoding="utf-8")
    for file, picture in drawn(kept).items():
        file.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
