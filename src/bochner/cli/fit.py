"""bochner fit: from a table of any length to a model file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner.cli.arguments import refuse_overwriting
from bochner.cli.models import certified, intervals_of, learner, needs_target
from bochner.cli.show import Clock, number, reading, show, working
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.kernels import Kernel
from bochner.models.ridge.regressor import KernelRidge
from bochner.persist import save
from bochner.report.model import CRITERIA
from bochner.selection.search import NAMED
from bochner.solvers.ridge.solution import Solution


def run_fit(
    *,
    files: Sequence[str],
    model: str,
    target: str | tuple[str, ...] | None,
    out: Path,
    weight: str | None,
    columns: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    as_json: bool,
    quiet: bool,
    **choices: Any,
) -> None:
    """Fit, write the model, say what was found."""
    clock = Clock()
    if target is None and needs_target(model):
        raise click.UsageError(f"{model} learns from a target. Name its column with --target.")
    fitted = _model(model, **choices)
    paths = find_files(list(files))
    refuse_overwriting(out, paths)
    with clock.phase("open"):
        blocks = Blocks.from_files(
            paths,
            target=target,
            weight=weight,
            columns=columns,
            dtypes=types,
            separator=separator,
        )
    with clock.phase("fit"), reading(blocks, quiet) as watched:
        fitted.fit_blocks(watched)
    with clock.phase("certify"), working("Measuring how far the features are", quiet):
        numbers, words = certified(fitted, blocks)
    held = None
    if hasattr(fitted, "predict_interval"):
        with clock.phase("intervals"), working("Calibrating intervals", quiet):
            held = intervals_of(fitted)
    with clock.phase("write"):
        save(fitted, out)
    facts = {
        "model": model,
        **_facts(fitted, blocks),
        "certificate": numbers,
        "certificate_words": words,
        **({} if held is None else {"intervals": held}),
        "seconds": clock.seconds,
        "out": str(out),
    }
    lines = [
        *_lines(facts),
        ("certificate", words),
        *([] if held is None else [("intervals", held)]),
        ("seconds", str(clock)),
        ("model", str(out)),
    ]
    show(facts, lines, as_json, quiet)


def _model(
    name: str,
    *,
    kernel: str,
    lengthscale: list[float],
    features: int,
    seed: int,
    settings: Sequence[str],
    **rest: Any,
) -> Any:
    kind = kernel_of(kernel, lengthscale)
    return learner(
        name, {"kernel": kind, "n_features": features, "random_state": seed} | rest, settings
    )


def kernel_of(name: str, lengthscale: list[float]) -> Kernel | str:
    """Return the kernel with this lengthscale, or its name, so that it is chosen."""
    if not lengthscale:
        return name
    if name in ("linear", "auto"):
        reason = "the linear kernel has none" if name == "linear" else "--kernel auto chooses it"
        raise click.BadParameter(f"{reason}; leave it out.", param_hint="'--lengthscale'")
    return NAMED[name](lengthscale[0] if len(lengthscale) == 1 else tuple(lengthscale))


def _facts(model: Any, blocks: Blocks) -> dict[str, Any]:
    given = not isinstance(model.kernel, str) or model.kernel == "linear"
    schema = model.schema_
    common = {
        "rows": blocks.n_rows,
        "columns": model.map_.n_inputs,
        "raw_columns": model.n_features_in_,
        "targets": list((schema and schema.target_names) or ()),
        "kernel": repr(model.kernel_),
        "kernel_chosen": not given,
        "method": repr(model.choice_.method),
        "method_reason": model.choice_.reason,
        "n_features": model.map_.n_features,
        "precision": getattr(model, "feature_dtype_", "float64"),
    }
    return common | (_ridge(model) if isinstance(model, KernelRidge) else _other(model))


def _ridge(model: KernelRidge) -> dict[str, Any]:
    solution = model.solution_
    error, r_squared = _error(model)
    return {
        "rows": model.moments_.rows,
        "precision": model.moments_.precision,
        "alpha": model.alpha_,
        "alpha_by": solution.criterion,
        "effective_dimension": _on_path(solution, solution.path.effective_dimension),
        "outcome": solution.outcome.name,
        "outcome_words": str(solution.outcome),
        "error_by": _judge(solution),
        "rmse": error,
        "r_squared": r_squared,
    }


def _other(model: Any) -> dict[str, Any]:
    """Return how other learners came to their end."""
    outcome = getattr(getattr(model, "solution_", None), "outcome", None)
    classes = getattr(model, "classes_", None)
    return {
        "penalty": _penalty(model),
        "classes": None if classes is None else classes.tolist(),
        "passes": getattr(model, "n_iter_", None),
        "outcome": None if outcome is None else outcome.name,
        "outcome_words": "done" if outcome is None else str(outcome),
    }


def _penalty(model: Any) -> str | None:
    """Return the penalty used, and what it was compared with."""
    path = getattr(model, "path_", None)
    if hasattr(model, "C"):
        used = f"C = {number(float(np.min(model.C_)))}"
    elif path is not None:
        used = f"alpha = {number(float(np.min(model.alpha_)))}"
    else:
        return None
    return used if path is None else f"{used}, {path.reason}"


def _judge(solution: Solution) -> str:
    return "loo" if solution.criterion == "loo" else "gcv"


def _error(model: KernelRidge) -> tuple[float | None, float | None]:
    """Return the root of the leave-one-out (or GCV) mean squared error, and R²."""
    solution, moments = model.solution_, model.moments_
    squared = _on_path(solution, getattr(solution.path, _judge(solution)))
    if squared is None:
        return None, None
    variance = float(np.mean(moments.power)) / moments.weight
    return squared**0.5, 1 - squared / variance if variance > 0 else None


def _on_path(solution: Solution, values: np.ndarray) -> float | None:
    """Return the value at the penalty used, if it is on the path and finite."""
    where = np.flatnonzero(np.isclose(solution.path.alphas, solution.alpha, rtol=1e-9, atol=0))
    value = float(values[where[0]]) if len(where) else float("nan")
    return value if np.isfinite(value) and value >= 0 else None


def _lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    raw = f" (of {facts['raw_columns']} in the table)"
    lines = [
        ("rows", f"{facts['rows']:,}"),
        ("columns", f"{facts['columns']:,}{raw * (facts['columns'] != facts['raw_columns'])}"),
        ("target", ", ".join(facts["targets"]) or "none"),
        ("kernel", facts["kernel"] + ", lengthscale chosen from the data" * facts["kernel_chosen"]),
        ("method", facts["method_reason"]),
        ("features", f"{facts['n_features']:,}, products in {facts['precision']}"),
    ]
    ours = _ridge_lines(facts) if "alpha_by" in facts else _other_lines(facts)
    return [*lines, *ours]


def _ridge_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    judge = {"loo": "leave-one-out", "gcv": "cross-validation (GCV)"}[facts["error_by"]]
    return [
        ("alpha", f"{facts['alpha']:.4g}, {CRITERIA[facts['alpha_by']]}"),
        ("outcome", facts["outcome_words"]),
        ("error", f"{judge} RMSE {number(facts['rmse'])}, R² {number(facts['r_squared'])}"),
    ]


def _other_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    classes = facts["classes"]
    named = [] if classes is None else [("classes", ", ".join(map(str, classes)))]
    passes = [] if facts["passes"] is None else [("passes", f"{facts['passes']}")]
    penalty = [] if facts["penalty"] is None else [("penalty", facts["penalty"])]
    return [*named, *penalty, *passes, ("outcome", facts["outcome_words"])]
