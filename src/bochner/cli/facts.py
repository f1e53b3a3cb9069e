"""Facts of a fitted model, in numbers and in words, for ``bochner fit`` and ``bochner show``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from bochner.cli.show import number
from bochner.data.schema import Schema, reasons
from bochner.models._base import KernelEstimator
from bochner.models.convex.classifiers import SVC, LogisticRegression
from bochner.models.convex.regressors import SVR, KernelRegressor
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.kernel_words import kernel_words
from bochner.models.prediction_displays import SGD, choice_of, has_features, method_of
from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
from bochner.models.ridge.fit import JUDGES
from bochner.models.unsupervised.kmeans import KernelKMeans
from bochner.models.unsupervised.pca import KernelPCA


def facts_of(model: KernelEstimator, rows: int | None) -> dict[str, Any]:
    """Return what a model was fitted to, what it chose, and how it came to its end."""
    names = None if model.schema_ is None else model.schema_.feature_names
    given = not isinstance(model.kernel, str) or model.kernel == "linear"
    choice = choice_of(model)
    phi = None if choice is None and not has_features(model) else model.map_
    common = {
        "rows": rows,
        "columns": model._inputs.n_columns,
        "raw_columns": model.n_features_in_,
        "targets": list((model.schema_ and model.schema_.target_names) or ()),
        "kernel": repr(model.kernel_),
        "kernel_words": kernel_words(model.fit_, names),
        "left_out": _left_out(model),
        "kernel_chosen": not given,
        "method": repr(method_of(model)),
        "method_reason": model.strategy_ if choice is None else choice.reason,
        "n_features": None if phi is None else phi.n_features,
        "precision": model.feature_dtype_,
    }
    return common | (_ridge(model) if isinstance(model, KernelRidge) else _other(model))


def _left_out(model: KernelEstimator) -> list[str]:
    """Return the columns that the fit does not use, with the reason."""
    dropped = model.schema_.dropped if model.schema_ else ()
    return [f"{', '.join(names)} ({why})" for why, names in reasons(dropped).items()]


def _ridge(model: KernelRidge) -> dict[str, Any]:
    fit, solution = model.fit_, model.solution_
    error, r_squared = fit.error
    return {
        "rows": fit.rows,
        "precision": model.moments_.precision if hasattr(model, "moments_") else "float64",
        "alpha": model.alpha_,
        "alpha_by": solution.criterion,
        "alpha_words": solution.chosen_by,
        "effective_dimension": fit.on_path(solution.path.effective_dimension),
        "outcome": solution.outcome.name,
        "outcome_words": str(solution.outcome),
        "error_by": fit.judge,
        "rmse": error,
        "r_squared": r_squared,
    }


def _other(model: KernelEstimator) -> dict[str, Any]:
    """Return how other learners came to their end."""
    solved = not isinstance(model, (GaussianProcessRegressor, KernelKMeans, KernelPCA, *SGD))
    direct = (KernelRidgeClassifier, GaussianProcessRegressor, KernelPCA)
    outcome = model.solution_.outcome if solved else None
    return {
        "penalty": _penalty(model),
        "classes": model.classes_.tolist() if is_classifier(model) else None,
        "passes": None if isinstance(model, direct) else model.n_iter_,
        "outcome": None if outcome is None else outcome.name,
        "outcome_words": "done" if outcome is None else str(outcome),
    }


def _penalty(model: KernelEstimator) -> str | None:
    """Return the penalty used, and what it was compared with."""
    if not isinstance(model, (SVC, SVR, LogisticRegression, KernelRegressor)):
        return None
    name = "alpha" if isinstance(model, KernelRegressor) else "C"
    if name == "alpha" and model.path_ is None:
        return None
    used = model.alpha_ if name == "alpha" else model.C_
    words = f"{name} = {number(float(np.min(used)))}"
    return words if model.path_ is None else f"{words}, {model.path_.reason}"


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts as lines for people."""
    raw = f" (of {facts['raw_columns']} in the table)"
    lines = [
        *([] if facts["rows"] is None else [("rows", f"{facts['rows']:,}")]),
        ("columns", f"{facts['columns']:,}{raw * (facts['columns'] != facts['raw_columns'])}"),
        ("target", ", ".join(facts["targets"]) or "none"),
        *([("left out", "; ".join(facts["left_out"]))] if facts["left_out"] else []),
        ("kernel", facts["kernel_words"] + ", chosen from the data" * facts["kernel_chosen"]),
        ("method", facts["method_reason"]),
    ]
    if facts["n_features"] is not None:
        lines += [("features", f"{facts['n_features']:,}, products in {facts['precision']}")]
    if "alpha_by" in facts:
        judge = JUDGES[facts["error_by"]]
        words = f"{judge} RMSE {number(facts['rmse'])}, R² {number(facts['r_squared'])}"
        alpha = f"{facts['alpha']:.4g}, {facts['alpha_words']}"
        error = [] if facts["rmse"] is None else [("error", words)]
        return [*lines, ("alpha", alpha), ("outcome", facts["outcome_words"]), *error]
    classes = facts["classes"] and ", ".join(map(str, facts["classes"]))
    found = {"classes": classes, "penalty": facts["penalty"], "passes": facts["passes"]}
    lines += [(name, str(value)) for name, value in found.items() if value is not None]
    return [*lines, ("outcome", facts["outcome_words"])]


# --- What is inside a model file ------------------------------------------------------------------

MOST = 40  # Columns that people are shown


def given_of(model: KernelEstimator) -> dict[str, Any]:
    """Return the parameters that are not the defaults."""
    defaults = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    return {name: value for name, value in given.items() if repr(value) != repr(defaults[name])}


def inputs_of(schema: Schema) -> dict[str, str]:
    """Return what each column of a table becomes."""
    categories = {name: f"categories {', '.join(found)}" for name, found in schema.categories}
    names = {encoder.name: encoder.feature_names for encoder in schema.encoders}
    encoded = {name: f"becomes {', '.join(own)}" for name, own in names.items() if own != (name,)}
    out = {name: f"left out ({reason})" for name, reason in schema.dropped}
    return {name: (encoded | categories | out).get(name, "number") for name in schema.columns}


def input_lines(inputs: dict[str, str]) -> list[tuple[str, str]]:
    """Return a line for each column of a table, MOST of them at most."""
    lines = [("column", f"{name}: {kind}") for name, kind in list(inputs.items())[:MOST]]
    rest = len(inputs) - MOST
    return [*lines, ("column", f"and {rest:,} more")] if rest > 0 else lines
