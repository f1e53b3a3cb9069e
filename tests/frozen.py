"""Frozen answers: recorded results of small fits and feature maps, which detect any change.

``python -m tests.frozen`` compares all cases, ``--update NAME ...`` records cases again (a name may
end in ``*``). The commit that records a case again explains why its answer changed. The records are
``tests/frozen_answers/fits.json`` and ``maps.json``, one line per case.
"""

import argparse
import json
import re
import sys
import warnings
from fnmatch import fnmatch
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy import sparse

import bochner as bo
from bochner.errors import BochnerError
from bochner.kernels import Gaussian, Matern, OnSphere

sys.path.append(str(Path(__file__).parent))  # for ``python -m tests.frozen``
gallery, maps = map(import_module, ("gallery", "maps"))

FOLDER = Path(__file__).parent / "frozen_answers"
FITS, MAPS = FOLDER / "fits.json", FOLDER / "maps.json"

#: Tolerance of predictions, in standard deviations of the target; relative tolerance of maps.
PREDICTION, VALUE = 1e-7, 1e-10
#: Relative tolerance of the results of an optimiser: penalties, lengthscales, norms.
OPTIMISED = 1e-6
#: Factor of these tolerances for local fits, in float32, and for iterations that stop at one.
FLOAT32 = 100.0
NUMBER = re.compile(r"(?<![\w.])-?\d+\.?\d*(?:e[-+]?\d+)?")

OUTPUTS = {
    "prediction": lambda m, X: m.predict(X),
    "deviation": lambda m, X: m.predict(X, return_std=True)[1],
    "interval": lambda m, X: np.stack(m.predict_interval(X, coverage=0.8)[1:]),
    "decision": lambda m, X: m.decision_function(X),
    "probability": lambda m, X: m.predict_proba(X),
    "component": lambda m, X: m.transform(X),
    "gradient": lambda m, X: m.gradient(X),
}
NUMBERS = ("alpha_", "C_", "epsilon_", "noise_variance_", "amplitude_", "offset_", "intercept_")
NUMBERS += ("eigenvalues_", "correlations_", "inertia_", "evidence_")
NORMS = ("coef_", "dual_coef_")
LOSSES = ("squared", "absolute", "huber", "quantile")
STRATEGIES = ("approximate_cached", "approximate_on_the_fly", "gram_cached", "kernel_on_the_fly")
FEW = {"max_iter": 3}

# --- Fits --------------------------------------------------------------------------------------


def rows(n=80, d=2, seed=0):
    """Return uniform rows, a smooth target with noise, three classes, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(n) + 5
    classes = np.array(["a", "b", "c"])[np.digitize(y + 0.3 * rng.standard_normal(n), (4.7, 5.3))]
    return X, y, classes, rng.uniform(0.5, 2.0, n)


def of_rows(make, options, kind, variant):
    """Return a model fitted to a variant of the rows, new rows, and the scale of the target."""
    X, y, classes, w = rows()
    new, model, weight = rows(6, seed=1)[0], make(**options), {}
    target = {"number": y, "class": classes, "binary": classes == "a", "none": None}.get(kind)
    if "targets" in (kind, variant):
        target = np.column_stack([y, y**2, X[:, 0]])
    if variant == "weights":
        weight = {"sample_weight": w}
    if variant == "sparse":
        X = sparse.csr_array(np.where(X > 0, X, 0.0))
    if variant == "blocks":
        codes = np.unique(target, return_inverse=True)[1] if kind == "class" else target
        return model.fit_blocks(bo.Blocks.from_arrays(X, codes, block_rows=19)), new, scale(codes)
    return model.fit(X, target, **weight), new, scale(target)


def scale(target):
    """Return the standard deviation of a numeric target, else 1."""
    numeric = target is not None and np.asarray(target).dtype.kind == "f"
    return float(np.max(np.std(target, axis=0))) if numeric else 1.0


def of_table(make, options, kind):
    """Return the same of a frame with text, dates, missing values and a constant column."""
    X, y, classes, _ = rows()
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(80) * 9, unit="D")
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "day": days, "one": 1.0})
    frame["text"] = np.array(["red", "green", "blue", None], dtype=object)[np.arange(80) % 4]
    frame.loc[::7, "x"] = np.nan
    target = y if kind == "number" else classes
    return make(**options).fit(frame, target), frame.iloc[:6], scale(target)


def of_places(make, **options):
    """Return the same of latitudes and longitudes."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(-80, 80, 60), rng.uniform(-180, 180, 60)])
    y = np.cos(np.deg2rad(X[:, 0])) * np.sin(np.deg2rad(X[:, 1]))
    return make(OnSphere(Matern(1.5, 0.5)), **SEED, **options).fit(X, y), X[:6] + 3.0, scale(y)


SEED = {"random_state": 0}
ON = {
    "features": {"kernel": Gaussian(0.8), "n_features": 24, "method": "orthogonal", **SEED},
    "the kernel": {"kernel": Gaussian(0.8), "method": "exact", **SEED},
    "few rows": {"kernel": Gaussian(0.8), **SEED},
    "leaves": {"kernel": Gaussian(0.8), "method": bo.LocalKernel(20, 10), "alpha": 0.1, **SEED},
    "a grid": {"kernel": Gaussian(0.8), "method": bo.FourierGrid(), **SEED},
    "neighbours": {"kernel": Matern(1.5, 0.8), "method": bo.NearestNeighbours(10), **SEED},
    "a named kernel": {"kernel": "gaussian", "n_features": 24, **SEED},
    "a chosen kernel": SEED,
}
RIDGE, PROCESS, LOSS = bo.KernelRidge, bo.GaussianProcessRegressor, bo.KernelRegressor
BY_EVIDENCE = {"noise": "evidence", "amplitude": "evidence"}
EVERY = ("weights", "targets", "sparse", "blocks")
MACHINES = [
    ("svc", bo.SVC, {}, "binary", "weights"),
    ("svc of three classes", bo.SVC, {"C": 3.0}, "class"),
    ("logistic", bo.LogisticRegression, {}, "binary", "weights"),
    ("logistic of three classes", bo.LogisticRegression, {"C": 3.0}, "class"),
    ("svr", bo.SVR, {"C": 2.0, "epsilon": 0.05}, "number", "weights"),
    ("one class", bo.OneClassSVM, {"nu": 0.2}, "none"),
    *((f"{loss} loss", LOSS, {"loss": loss, "alpha": 0.01}, "number") for loss in LOSSES),
]
#: Name, learner, key of ON, further options, kind of target, variants of the rows.
LEARNERS = [
    ("ridge", RIDGE, "features", {}, "number", *EVERY),
    ("ridge", RIDGE, "the kernel", {}, "number", *EVERY),
    ("ridge", RIDGE, "leaves", {}, "number", "weights", "targets"),
    ("ridge", RIDGE, "a grid", {}, "number", "targets"),
    ("ridge", RIDGE, "a named kernel", {}, "number", "weights"),
    ("ridge", RIDGE, "a chosen kernel", {}, "number", "weights", "targets"),
    ("ridge by gcv", RIDGE, "features", {"alpha": "gcv"}, "number"),
    ("ridge by gcv", RIDGE, "the kernel", {"alpha": "gcv"}, "number", "weights"),
    ("ridge by evidence", RIDGE, "features", {"alpha": "evidence"}, "number", "targets"),
    ("ridge by evidence", RIDGE, "the kernel", {"alpha": "evidence"}, "number"),
    ("ridge, alpha given", RIDGE, "features", {"alpha": 0.1}, "number", "weights"),
    ("ridge, alphas", RIDGE, "features", {"alpha_per_target": True}, "number", "targets"),
    ("ridge, no intercept", RIDGE, "features", {"fit_intercept": False}, "number", "weights"),
    ("ridge, metric", RIDGE, "a named kernel", {"metric": "learned"}, "number"),
    ("ridge classifier", bo.KernelRidgeClassifier, "features", {}, "class", "weights", "blocks"),
    ("ridge classifier", bo.KernelRidgeClassifier, "the kernel", {}, "class"),
    ("ridge classifier", bo.KernelRidgeClassifier, "a chosen kernel", {}, "class"),
    ("process", PROCESS, "features", {}, "number", *EVERY),
    ("process", PROCESS, "the kernel", {}, "number", "weights", "targets"),
    ("process", PROCESS, "a grid", {}, "number"),
    ("process", PROCESS, "neighbours", {}, "number"),
    ("process", PROCESS, "a named kernel", {}, "number"),
    ("process", PROCESS, "a chosen kernel", {}, "number"),
    ("process by evidence", PROCESS, "features", BY_EVIDENCE, "number"),
    ("process by evidence", PROCESS, "the kernel", BY_EVIDENCE, "number"),
    ("process, law given", PROCESS, "features", {"noise": 0.01, "amplitude": 2.0}, "number"),
    *((name, make, on, *tail) for name, make, *tail in MACHINES for on in ("features", "few rows")),
    ("svc of pairs", bo.SVC, "features", {"multi_class": "ovo", "C": 3.0}, "class"),
    ("svr, C chosen", bo.SVR, "features", {"tol": 1e-9}, "number"),
    ("huber loss, alpha chosen", LOSS, "features", {"loss": "huber"}, "number"),
    *(
        (f"sgd {s}", bo.KernelSGDRegressor, "features", {"strategy": s, **FEW}, "number")
        for s in STRATEGIES
    ),
    (
        "sgd classifier",
        bo.KernelSGDClassifier,
        "features",
        {"strategy": STRATEGIES[0], **FEW},
        "class",
    ),
    ("components", bo.KernelPCA, "features", {"n_components": 3}, "none", "weights", "blocks"),
    ("clusters", bo.KernelKMeans, "features", {"n_clusters": 3}, "none"),
    ("correlations", bo.KernelCCA, "features", {}, "targets"),
    ("features", bo.KernelFeatures, "features", {}, "none"),
]


def fits():
    """Return functions by name of the case; they return model, new rows, scale of the target."""
    cases = {}
    for name, make, device_, options, kind, *variants in LEARNERS:
        for variant in ("plain", *variants):
            label = f"{name} on {device_}" + (f", {variant}" if variant != "plain" else "")
            cases[label] = partial(of_rows, make, ON[device_] | options, kind, variant)
    cases["ridge on many features"] = many_features
    for device_ in ("a named kernel", "a chosen kernel"):
        cases[f"ridge of a table on {device_}"] = partial(of_table, RIDGE, ON[device_], "number")
    cases["logistic of a table"] = partial(
        of_table, bo.LogisticRegression, ON["a named kernel"], "class"
    )
    for make in (RIDGE, PROCESS):
        cases[f"{make.__name__} of places"] = partial(of_places, make)
    cases["process of places on harmonics"] = partial(
        of_places, PROCESS, method=bo.SphericalHarmonics(8)
    )
    return cases | {"ridge, merged": merged, "process after observations": observed}


def many_features():
    with mock.patch("bochner.models.representations.features.WIDE", 20):
        return of_rows(RIDGE, ON["features"], "number", "targets")


def merged():
    X, y, _, _ = rows()
    first, second = (
        RIDGE(**ON["features"]).fit(X[part], y[part]) for part in (slice(30), slice(30, None))
    )
    return bo.merge(first, second), X[:6], scale(y)


def observed():
    model, new, unit = of_rows(PROCESS, ON["the kernel"], "number", "plain")
    return model.observe(bo.Derivatives(new[:2], 0, np.array([0.5, -0.5]))), new, unit


def value_of(ask):
    """Return a numeric output as lists, or None if the model does not have it."""
    try:
        value = np.asarray(ask())
    except (AttributeError, TypeError, NotImplementedError, BochnerError):
        return None
    return value.astype(float).tolist() if value.dtype.kind in "fiub" else None


def answer_of_fit(make):
    """Return the record of a fit: kernel, parameters, norms of coefficients, outputs at six rows."""
    model, new, unit = make()
    record = {"kernel": repr(getattr(model, "kernel_", None)), "scale": unit}
    record |= {name: value_of(partial(getattr, model, name)) for name in NUMBERS}
    record |= {f"norm of {name}": value_of(partial(norm, model, name)) for name in NORMS}
    record |= {name: value_of(partial(output, model, new)) for name, output in OUTPUTS.items()}
    return {key: value for key, value in record.items() if value is not None}


def norm(model, name):
    return np.linalg.norm(np.asarray(getattr(model, name), dtype=float))


# --- Maps --------------------------------------------------------------------------------------


def cases_of_maps():
    """Return the cases of the table of maps, and each kernel with each way to evaluate a map.

    Cases with k-means++ are left out: of two rows that are nearest to each other, both lower the
    distances by the same amount, and rounding decides which becomes a centre.
    """
    kinds = (case for case in maps.PRODUCT if case[1:] in gallery.KINDS)
    return {str(case): case for case in (*maps.CASES, *kinds) if "k-means++" not in str(case)}


def answer_of_map(case):
    """Return type and width of a map, and its kernel among four rows: rotations do not matter."""
    phi = maps.map_of(case)
    Z = np.asarray(phi(maps.rows_of(case, 5)[:4]), dtype=float)
    value = (Z @ Z.T)[np.triu_indices(4)]
    return {"type": type(phi).__name__, "width": Z.shape[1], "value": value.tolist()}


# --- Records -----------------------------------------------------------------------------------

KINDS = {
    FITS: lambda: {name: partial(answer_of_fit, make) for name, make in fits().items()},
    MAPS: lambda: {name: partial(answer_of_map, case) for name, case in cases_of_maps().items()},
}


def quiet(answer):
    """Return the answer of a case; fits of so few rows may warn."""
    with warnings.catch_warnings(action="ignore"):
        return answer()


def differences(old, new, factor=1.0):
    """Return a sentence for each entry of a record that changed by more than its tolerance."""
    sentences = [f"{key}: recorded only" for key in old.keys() - new.keys()]
    sentences += [f"{key}: new" for key in new.keys() - old.keys()]
    for key in old.keys() & new.keys():
        if not agrees(key, old[key], new[key], old.get("scale", 1.0), factor):
            sentences.append(f"{key}: {old[key]} recorded, {new[key]} now")
    return sentences


def agrees(key, old, new, unit, factor):
    """Return whether two entries agree: outputs in units of the target, numbers relatively."""
    if isinstance(old, str):
        if NUMBER.sub("#", old) != NUMBER.sub("#", new):
            return False
        old, new = ([float(x) for x in NUMBER.findall(text)] for text in (old, new))
    if np.shape(old) != np.shape(new):
        return False
    bound = PREDICTION * unit if key in OUTPUTS else OPTIMISED * np.abs(old)
    bound = factor * (VALUE * np.max(np.abs(old)) if key == "value" else bound)
    return bool(np.all((np.abs(np.subtract(old, new)) <= bound) | (np.isnan(old) & np.isnan(new))))


def write(path, records):
    """Write one line per case, with twelve significant digits."""
    short = lambda number: float(f"{float(number):.12g}")
    records = json.loads(json.dumps(records), parse_float=short)
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in records.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def changes(path, names=".*"):
    """Return a sentence for each entry that changed, is new, or exists only in the record."""
    cases, records = KINDS[path](), json.loads(path.read_text(encoding="utf-8"))
    sentences = [f"{name}: no such case" for name in records.keys() - cases.keys()]
    for name, case in [(name, cases[name]) for name in cases if re.match(names, name)]:
        factor = FLOAT32 if re.search("leaves|harmonics", name) else 1.0
        entries = differences(records.get(name, {}), quiet(case), factor)
        sentences += [f"{name}: {sentence}" for sentence in entries]
    return sentences


def record(path, patterns):
    """Record the cases whose names match one of the patterns; return their number."""
    cases = KINDS[path]()
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    names = [name for name in cases if any(fnmatch(name, p) or name == p for p in patterns)]
    records |= {name: quiet(cases[name]) for name in names}
    write(path, {name: records[name] for name in cases if name in records})
    return len(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", nargs="+", metavar="NAME", help="record these cases again")
    patterns = parser.parse_args().update
    if patterns is None:
        sys.exit("\n".join(sentence for path in KINDS for sentence in changes(path)))
    for path in KINDS:
        sys.stdout.write(f"{path.name}: {record(path, patterns)} cases recorded\n")


if __name__ == "__main__":
    main()
