"""What a fitted learner is, in words and code, and what it takes to make it again."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from bochner import features, kernels
from bochner.report.model_rows import has_features, kind_of

#: How a ridge penalty was chosen.
CRITERIA = {
    "loo": "chosen by leave-one-out error",
    "gcv": "chosen by generalised cross-validation",
    "evidence": "chosen by marginal likelihood",
    "kfold": "chosen by five folds",
    "given": "as given",
}


@dataclass(frozen=True)
class FitFacts:
    """What was fitted on what.

    Attributes
    ----------
    learner, kind : str
        Class, and what it does.
    kernel, method, reason : str
        As code; and why the method was taken.
    n_features : int or None
        D; None for fits with the kernel itself.
    rows : int or None
        Rows of the fit, where the learner knows.
    n_inputs, raw_columns : int
        Columns that the kernel sees, and columns of the table.
    columns, targets, classes : tuple of str
        Names, where there are any.
    penalty, outcome, precision : str
        In words.
    seed : int or None
    more : tuple of (str, str)
        What this learner alone has to say: name and words.
    code : str
        Python that makes the learner again.
    """

    learner: str
    kind: str
    kernel: str
    method: str
    reason: str
    n_features: int | None
    rows: int | None
    n_inputs: int
    raw_columns: int
    columns: tuple[str, ...]
    targets: tuple[str, ...]
    classes: tuple[str, ...]
    penalty: str
    outcome: str
    precision: str
    seed: int | None
    more: tuple[tuple[str, str], ...]
    code: str


def fit_facts(model: Any, n_inputs: int, columns: Any) -> FitFacts:
    """Return what is known of a fitted learner; ``columns`` are names of what the kernel sees."""
    schema, choice = getattr(model, "schema_", None), getattr(model, "choice_", None)
    return FitFacts(
        learner=type(model).__name__,
        kind=kind_of(model),
        kernel=repr(model.kernel_),
        method=repr(_method(model)),
        reason="" if choice is None else choice.reason,
        n_features=model.map_.n_features if has_features(model) else None,
        rows=_rows(model),
        n_inputs=n_inputs,
        raw_columns=int(model.n_features_in_),
        columns=tuple(map(str, columns or _named(model))),
        targets=tuple((schema and schema.target_names) or ()),
        classes=tuple(map(str, getattr(model, "classes_", ()))),
        penalty=_penalty(model),
        outcome=_outcome(model),
        precision=getattr(model, "feature_dtype_", "float64"),
        seed=getattr(model, "seed_", None),
        more=tuple(_more(model)),
        code=_code(model),
    )


def _named(model: Any) -> Any:
    schema = getattr(model, "schema_", None)
    return getattr(model, "feature_names_in_", ()) if schema is None else schema.feature_names


def _rows(model: Any) -> int | None:
    moments = getattr(model, "moments_", None)
    rows = getattr(moments, "rows", getattr(model, "rows_seen_", None))
    return len(model.X_fit_) if hasattr(model, "X_fit_") else rows


def _method(model: Any) -> Any:
    choice = getattr(model, "choice_", None)
    return model.method if choice is None else choice.method


def _penalty(model: Any) -> str:
    if hasattr(model, "evidence_"):
        noise, amplitude = (_numbers(a) for a in (model.noise_variance_, model.amplitude_))
        return f"noise variance {noise}, amplitude {amplitude}"
    criterion = getattr(getattr(model, "solution_", None), "criterion", None)
    if criterion is not None:
        return f"alpha = {_numbers(model.alpha_)}, {CRITERIA[criterion]}"
    if hasattr(model, "C"):
        how = "chosen on rows left out" if isinstance(model.C, str) else "as given"
        return f"C = {_numbers(model.C_)}, {how}"
    if hasattr(model, "nu"):
        return f"nu = {_numbers(model.nu)}, as given"
    if isinstance(getattr(model, "alpha_", None), float):
        chosen = "chosen on rows left out" if isinstance(model.alpha, str) else "as given"
        return f"alpha = {_numbers(model.alpha_)}, {chosen}"
    given = getattr(model, "alpha", None)
    return f"alpha = {_numbers(given)}, as given" if isinstance(given, float | int) else "none"


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.4g}".replace("-", "−") for value in np.atleast_1d(values))


def _outcome(model: Any) -> str:
    for holder in (getattr(model, "solution_", None), getattr(model, "evidence_", None)):
        outcome = getattr(holder, "outcome", None)
        if outcome is not None:
            return str(outcome)
    passes = getattr(model, "n_iter_", None)
    return "" if passes is None else f"Done after {passes} passes."


def _more(model: Any) -> Iterator[tuple[str, str]]:
    """Give what this learner alone has to say."""
    if hasattr(model, "explained_variance_ratio_"):
        shares = ", ".join(f"{100 * s:.3g} %" for s in model.explained_variance_ratio_[:12])
        yield "explained variance", f"{shares} of that of the kernel, component by component"
    if hasattr(model, "correlations_"):
        yield "correlations", f"{_numbers(model.correlations_)}, of the rows of the fit"
    if hasattr(model, "inertia_"):
        yield "inertia", f"{_numbers(model.inertia_)}; {model.objective_}"
    if hasattr(model, "calibration_") and hasattr(model.calibration_, "guarantee"):
        yield (
            "evidence",
            f"log marginal likelihood {_numbers(model.log_marginal_likelihood_value_)}",
        )
        yield "intervals", model.calibration_.guarantee


# --- code ----------------------------------------------------------------------------------------


def _code(model: Any) -> str:
    """Return Python that gives the same learner on the same rows, and what it chose from them."""
    given = {name: repr(value) for name, value in _changed(model).items()}
    lines = "".join(f"    {name}={text},\n" for name, text in given.items())
    learner = type(model).__name__
    used = set(re.findall(r"\b([A-Z]\w*)\(", " ".join(given.values())))
    imports = [
        _import("bochner", {learner} | (used & set(features.__all__))),
        _import("bochner.kernels", used & set(kernels.__all__) - set(features.__all__)),
    ]
    made = f"model = {learner}(\n{lines})" if lines else f"model = {learner}()"
    return "\n".join([*filter(None, imports), "", made, *_chosen(model)])


def _import(module: str, names: set[str]) -> str:
    return f"from {module} import {', '.join(sorted(names))}" if names else ""


def _changed(model: Any) -> dict[str, Any]:
    """Return the parameters that are not at their defaults, and the seed."""
    defaults = {name: p.default for name, p in signature(type(model)).parameters.items()}
    asked = model.get_params(deep=False)
    if getattr(model, "seed_", None) is not None:
        asked["random_state"] = model.seed_
    return {name: v for name, v in asked.items() if repr(v) != repr(defaults.get(name))}


def _chosen(model: Any) -> Iterator[str]:
    """Give what was left open and found, as comments."""
    if isinstance(model.kernel, str):
        yield f"# kernel found: {model.kernel_!r}"
    method = _method(model)
    if repr(method) != repr(model.method):
        yield f"# method taken: {method!r}"
    if hasattr(model, "map_") and isinstance(getattr(model, "n_features", 0), str):
        yield f"# features found enough: {model.map_.n_features}"
