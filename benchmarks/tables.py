"""Real tables nobody was tuned on: error and seconds of learners, and their mean ranks.

``python -m benchmarks tables`` runs all by default and tuned: allow a night.
``python -m benchmarks.tables --out FILE [--table NAME ...] [--learner NAME ...] [--rows N]
[--splits 3]`` runs a part, writes each fit to FILE at once, and goes on where FILE ends;
``--picture FILE.svg`` draws mean ranks with their critical difference.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import studentized_range
from sklearn.metrics import log_loss

from benchmarks.harness import MissingDataSet, Options, Row, say, stored, table
from benchmarks.pictures import figure, save
from benchmarks.rivals import OURS, Learner, learners

__all__ = [
    "CLASSES",
    "QUANTITIES",
    "critical_difference",
    "ranks",
    "run",
    "split",
    "standings",
    "summary",
]

Array = np.ndarray

#: Tables with a quantity to predict, and with classes.
QUANTITIES = (
    "bike_clean",
    "california_housing",
    "kin8nm",
    "power_plant",
    "protein",
    "uci_pol",
    "uci_pumadyn32nm",
    "uci_tamielectric",
    "flights2001_500k",
    "elevation_etopo60",
    "navy_uwind",
    "climate_ncep",
    "co2_cdiac",
    "uci_concrete",
)
CLASSES = (
    "abalone_jmlr",
    "adult",
    "magic",
    "pendigits",
    "letter",
    "covtype_20k",
    "shuttle",
    "connect4",
    "mushroom",
)

#: Targets that vary over many orders of magnitude: their logarithms are predicted.
HEAVY = ("co2_cdiac",)

#: Columns of codes that have no order, where the file does not say so.
CODES = {
    "adult": (
        "workclass",
        "education",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native-country",
    )
}

#: Rows to fit and to test on, at most; and splits.
ROWS, TEST, SPLITS = 6000, 4000, 3


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit and rows to test on, as a data frame of numbers and categories.

    Attributes
    ----------
    X, X_test : DataFrame
    y, y_test : (n,) int64 or float64
        Quantities in standard deviations of the rows to fit.
    """

    X: pd.DataFrame
    y: Array
    X_test: pd.DataFrame
    y_test: Array

    def error(self, predicted: Array) -> float:
        """Return the root mean squared error in deviations, or the share of wrong classes."""
        predicted = np.ravel(predicted)
        if self.y.dtype.kind in "iu":
            return float(np.mean(predicted.astype(self.y.dtype) != self.y_test))
        return float(np.sqrt(np.mean((predicted.astype(np.float64) - self.y_test) ** 2)))


def split(name: str, folder: Path | None, rows: int, seed: int) -> Split:
    """Return rows and targets to fit and to test."""
    arrays = stored(name, folder)
    X, y = _frame(name, arrays), np.ravel(arrays["y2" if name == "connect4" else "y"])
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(rows, 4 * len(y) // 5)
    train, test = order[:n], order[n : n + TEST]
    if name in QUANTITIES:
        y = np.log10(y) if name in HEAVY else y.astype(np.float64)
        y = (y - y[train].mean()) / y[train].std()
    else:
        y = y.astype(np.int64)
    return Split(X.iloc[train], y[train], X.iloc[test], y[test])


def _frame(name: str, arrays: dict[str, Array]) -> pd.DataFrame:
    """Return columns by name, those of codes as categories."""
    columns = [str(column) for column in arrays["feature_names"]]
    frame = pd.DataFrame(arrays["X"].astype(np.float64), columns=columns)
    marked = arrays.get("is_categorical", np.zeros(len(columns))).astype(bool)
    codes = [*np.array(columns)[marked], *CODES.get(name, ())]
    return frame.astype(dict.fromkeys(codes, "int")).astype(dict.fromkeys(codes, "category"))


# --- fits ----------------------------------------------------------------------------------------


def fits(
    names: Sequence[str], options: Options, rows: int, splits: int, asked: Callable[[Row], bool]
) -> Iterator[Row]:
    """Give a row for each table, split and learner that is asked for, as it is fitted."""
    for name, seed in product(names, range(splits)):
        data = split(name, options.data, rows, seed)
        for learner in learners(name in CLASSES):
            row = {"table": name, "rows": len(data.y), "split": seed, "learner": learner.name}
            if len(data.y) <= learner.most and asked(row):
                yield row | measured(learner, data, seed)


def measured(learner: Learner, data: Split, seed: int) -> Row:
    """Return error and seconds of fit and predictions; an error raised is what it got."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, busy = time.perf_counter(), time.process_time()
        try:
            model = learner.fit(data.X, data.y, seed)
            predicted = model.predict(data.X_test)
        except Exception as raised:  # noqa: BLE001  a rival that fails has no error, and it is said
            return {"error": float("nan"), "log loss": None, "failed": str(raised)[:200]}
        seconds = {
            "seconds": time.perf_counter() - start,
            "core seconds": time.process_time() - busy,
        }
        return {"error": data.error(predicted), "log loss": _log_loss(model, data), **seconds}


def _log_loss(model: Any, data: Split) -> float | None:
    if data.y.dtype.kind not in "iu" or not hasattr(model, "predict_proba"):
        return None
    with suppress(AttributeError, NotImplementedError):
        return float(log_loss(data.y_test, model.predict_proba(data.X_test), labels=model.classes_))
    return None


# --- summaries -----------------------------------------------------------------------------------


def means(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean error and median core seconds by table and learner, of what did not fail."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if np.isfinite(row["error"]):
            found.setdefault(row["table"], {}).setdefault(row["learner"], []).append(row)
    return {
        name: {
            learner: (
                float(np.mean([row["error"] for row in fits])),
                float(np.median([row["core seconds"] for row in fits])),
            )
            for learner, fits in of_table.items()
        }
        for name, of_table in found.items()
    }


def ranks(rows: Sequence[Row]) -> tuple[dict[str, float], int]:
    """Return the mean rank of each learner that was fitted to all tables, and their number.

    Learners of equal error share the mean of their places.
    """
    tables = means(rows)
    if not tables:
        return {}, 0
    shared = sorted(set.intersection(*(set(of_table) for of_table in tables.values())))
    errors = np.array([[of_table[name][0] for name in shared] for of_table in tables.values()])
    below = (errors[:, :, None] > errors[:, None, :]).sum(axis=2)
    equal = (errors[:, :, None] == errors[:, None, :]).sum(axis=2)
    places = (below + (1 + equal) / 2).mean(axis=0)
    return dict(zip(shared, places.tolist(), strict=True)), len(tables)


def critical_difference(learners: int, tables: int, level: float = 0.05) -> float:
    """Return the least difference of mean ranks that is no chance (Nemenyi's test).

    q √(k (k + 1) / (6 N)) with q = the studentised range over √2 (Demšar, 2006, section 3.2.2).
    """
    q = studentized_range.ppf(1 - level, learners, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(learners * (learners + 1) / (6 * tables)))


def summary(rows: Sequence[Row], classes: bool) -> list[Row]:
    """Return the standings of a task, and on how many tables ours lose to the simplest."""
    mine = [row for row in rows if (row["table"] in CLASSES) == classes]
    tables = means(mine)
    return [
        r
        | _against_the_simplest(r["learner"], tables, classes)
        | _against_rivals(r["learner"], tables, classes)
        for r in standings(mine)
    ]


def standings(rows: Sequence[Row]) -> list[Row]:
    """Return each learner's mean rank, share of tables near the best, and core seconds."""
    tables, (places, number) = means(rows), ranks(rows)
    found = []
    for learner, place in sorted(places.items(), key=lambda item: item[1]):
        errors = [of_table[learner][0] for of_table in tables.values()]
        best = [min(error for error, _ in of_table.values()) for of_table in tables.values()]
        row = {"learner": learner, "tables": number, "mean rank": place}
        row |= {"within 1 % of the best": _share_near(errors, best)}
        row |= {"above the best": float(np.mean(_above(errors, best)))}
        row |= {"core seconds": float(np.median([t[learner][1] for t in tables.values()]))}
        found.append(row)
    return found


def _share_near(errors: Sequence[float], best: Sequence[float]) -> float:
    """Return the share of errors within 1 % of the best."""
    return float(np.mean([e <= 1.01 * b + 1e-12 for e, b in zip(errors, best, strict=True)]))


def _above(errors: Sequence[float], best: Sequence[float]) -> list[float]:
    """Return by how much errors are above the best, where the best is not nought."""
    return [e / b - 1 for e, b in zip(errors, best, strict=True) if b > 0]


def _against_the_simplest(
    learner: str, tables: dict[str, dict[str, tuple[float, float]]], classes: bool
) -> Row:
    """Return on how many tables a learner of ours is worse than the simplest by over 1 %."""
    simplest, *others = OURS[classes]
    if learner not in others or any(simplest not in of_table for of_table in tables.values()):
        return {}
    worse = [t[learner][0] > 1.01 * t[simplest][0] for t in tables.values()]
    return {"worse than the simplest": int(np.sum(worse))}


def _against_rivals(
    learner: str, tables: dict[str, dict[str, tuple[float, float]]], classes: bool
) -> Row:
    """Return on which share of tables a learner of ours is within 1 % of the best that is not."""
    ours = OURS[classes]
    rivals = [[e for other, (e, _) in t.items() if other not in ours] for t in tables.values()]
    if learner not in ours or not all(rivals):
        return {}
    errors = [of_table[learner][0] for of_table in tables.values()]
    return {"within 1 % of the best rival": _share_near(errors, [min(each) for each in rivals])}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture: mean ranks on a line, and a bar as long as the critical difference."""
    canvas, panels = figure(1, 2, width=7.0, height=2.8)
    for panel, classes, title in zip(panels, (False, True), ("quantities", "classes"), strict=True):
        places, number = ranks([row for row in rows if (row["table"] in CLASSES) == classes])
        panel.set_title(f"Mean rank over {number} tables of {title}")
        if places:
            _draw_ranks(panel, places, number, OURS[classes])
    save(canvas, path)


def _draw_ranks(panel: Any, places: dict[str, float], number: int, ours: Sequence[str]) -> None:
    names = sorted(places, key=lambda name: -places[name])
    colours = ["tab:red" if name in ours else "tab:gray" for name in names]
    panel.barh(names, [places[name] for name in names], color=colours)
    least = places[names[-1]]
    far = least + critical_difference(len(places), number)
    panel.axvline(far, color="black", linestyle=":")
    panel.annotate("critical difference from the first", (far, 0), fontsize=7)
    panel.set_xlim(left=0)


# --- runs ----------------------------------------------------------------------------------------


def run(options: Options) -> list[Row]:
    """Return the summaries of all tables that are there."""
    names = options.pick((*QUANTITIES, *CLASSES), ("uci_concrete", "abalone_jmlr"))
    rows, missing = [], []
    for name in names:
        try:
            asked = lambda row: not options.quick or "tuned" not in row["learner"]
            size, splits = options.pick((ROWS, SPLITS), (300, 1))
            rows += fits([name], options, size, splits, asked)
        except MissingDataSet as left_out:
            missing.append({"note": f"Left out: {left_out}"})
    return [*summary(rows, False), *summary(rows, True), *missing]


def main() -> None:
    """Run the part that is asked for, and go on where the file of results ends."""
    asked = _parser().parse_args()
    kept = kept_rows(asked.out)
    done = {(row["table"], row["rows"], row["split"], row["learner"]) for row in kept}

    def wanted(row: Row) -> bool:
        key = (row["table"], row["rows"], row["split"], row["learner"])
        return key not in done and (not asked.learner or row["learner"] in asked.learner)

    data = Options(asked.data)
    kept += noted(asked.out, fits(asked.table, data, asked.rows, asked.splits, wanted))
    for classes in (False, True):
        say(table(summary(kept, classes)))
    if asked.picture:
        draw(kept, asked.picture)


def kept_rows(path: Path) -> list[Row]:
    """Return what a file of results holds, a line each; nothing where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def noted(path: Path, rows: Iterator[Row]) -> list[Row]:
    """Add each row to a file of results, and print it, as soon as it is there; return all."""
    found = []
    with path.open("a", encoding="utf-8") as out:
        for row in rows:
            found.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            say(" · ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables")
    parser.add_argument("--data", type=Path, required=True, help="folder of the .npz data sets")
    parser.add_argument("--out", type=Path, required=True, help="file of results, a line each")
    parser.add_argument("--table", nargs="*", default=[*QUANTITIES, *CLASSES])
    parser.add_argument("--learner", nargs="*", default=[], help="default: all")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--picture", type=Path, help="write mean ranks to this SVG file")
    return parser


if __name__ == "__main__":
    main()
