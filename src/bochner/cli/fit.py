"""bochner fit: from a table of any length to a model file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.base import is_classifier

from bochner.cli.arguments import found_files, refuse_overwriting
from bochner.cli.engines import cluster_of, refuse_scheduler
from bochner.cli.models import certified, intervals_of, kernel_of, learner, needs_target
from bochner.cli.show import Terminal, number
from bochner.data.blocks import Blocks
from bochner.data.encoders import reasons
from bochner.models._base import KernelEstimator
from bochner.models.convex.classifiers import SVC, LogisticRegression
from bochner.models.convex.regressors import SVR, KernelRegressor
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.prediction_displays import SGD
from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
from bochner.models.ridge.fit import RidgeFit
from bochner.models.unsupervised.kmeans import KernelKMeans
from bochner.models.unsupervised.pca import KernelPCA
from bochner.persist.files import save
from bochner.report.held_out import judge_held_out
from bochner.report.kernel_words import kernel_words
from bochner.report.model import CRITERIA
from bochner.solvers.ridge.solution import Solution
from bochner.sums.executor import Engine


def run_fit(
    terminal: Terminal,
    *,
    files: Sequence[str],
    model: str,
    target: str | tuple[str, ...] | None,
    out: Path,
    weight: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    kernel: str | None,
    lengthscale: list[float],
    features: int | None,
    seed: int,
    settings: Sequence[str],
    checkpoint: str | None,
    engine: str,
    scheduler: str | None,
    judge: bool,
    **choices: Any,
) -> None:
    """Fit, write the model, say what was found."""
    if target is None and needs_target(model):
        raise click.UsageError(f"{model} learns from a target. Name its column with --target.")
    if kernel or lengthscale:
        choices["kernel"] = kernel_of(kernel or "gaussian", lengthscale)
    choices["n_features"] = features
    fitted = learner(model, choices | {"random_state": seed}, settings)
    refuse_scheduler(engine, scheduler)
    where = engine_of(engine, scheduler, checkpoint)
    paths = found_files(files)
    refuse_overwriting(out, paths)
    with terminal.phase("open"):
        blocks = Blocks.from_files(
            paths,
            target=target,
            weight=weight,
            columns=columns,
            drop=drop,
            dtypes=types,
            separator=separator,
        )
    with terminal.reading("fit", blocks) as watched, _resumable(checkpoint):
        fitted.fit_blocks(watched, where=where)
    with terminal.phase("certify", "Measuring how far the features are"):
        numbers, words = certified(fitted, blocks)
    found, why = None, ""
    if judge and not _has_error(fitted):
        with terminal.phase("judge", "Fitting again without some rows, to judge"):
            found, why = judge_held_out(fitted, blocks)
    held = None
    if isinstance(fitted, GaussianProcessRegressor):
        with terminal.phase("intervals", "Calibrating intervals"):
            held = intervals_of(fitted)
    with terminal.phase("write"):
        save(fitted, out)
    facts = {
        "model": model,
        **_facts(fitted, blocks),
        "held_out": None if found is None else asdict(found),
        "certificate": numbers,
        "certificate_words": words,
        **({} if held is None else {"intervals": held}),
        "seconds": terminal.seconds,
        "out": str(out),
    }
    lines = [
        *_lines(facts),
        *([("error", why or str(found))] if why or found else []),
        ("certificate", words),
        *([] if held is None else [("intervals", held)]),
        terminal.timed,
        ("model", str(out)),
    ]
    terminal.show(facts, lines)


def _has_error(model: KernelEstimator) -> bool:
    """Whether the fit itself has the errors of rows that were left out."""
    return isinstance(model, KernelRidge) and _error(model)[0] is not None


@contextmanager
def _resumable(checkpoint: str | None) -> Iterator[None]:
    """Say of a fit that is stopped how it goes on."""
    try:
        yield
    except BaseException as stopped:
        if checkpoint is not None and not isinstance(stopped, Exception):
            stopped.add_note(f"the same command goes on from '{checkpoint}'.")
        raise


def engine_of(engine: str, scheduler: str | None, checkpoint: str | None) -> Engine:
    """Return where passes are made; refuse options that do not go together."""
    from bochner.engines.local import Local  # noqa: PLC0415  with it come model files

    if checkpoint is not None and engine != "local":
        raise click.UsageError(
            f"--checkpoint is of a fit in this process; got --engine {engine}, whose workers may "
            "die anyway. Leave one of the two out."
        )
    return Local(checkpoint) if engine == "local" else cluster_of(engine, scheduler)


def _facts(model: KernelEstimator, blocks: Blocks) -> dict[str, Any]:
    given = not isinstance(model.kernel, str) or model.kernel == "linear"
    common = {
        "rows": blocks.n_rows,
        "columns": model.map_.n_inputs,
        "raw_columns": model.n_features_in_,
        "targets": list((model.schema_ and model.schema_.target_names) or ()),
        "kernel": repr(model.kernel_),
        "kernel_words": kernel_words(model, blocks.feature_names),
        "left_out": _left_out(model),
        "kernel_chosen": not given,
        "method": repr(model.choice_.method),
        "method_reason": model.choice_.reason,
        "n_features": model.map_.n_features,
        "precision": model.feature_dtype_,
    }
    return common | (_ridge(model) if isinstance(model, KernelRidge) else _other(model))


def _left_out(model: KernelEstimator) -> list[str]:
    """Return the columns that the fit does not use, with the reason."""
    encoders = model.schema_.encoders if model.schema_ else ()
    return [f"{', '.join(names)} ({why})" for why, names in reasons(encoders).items()]


def _ridge(model: KernelRidge) -> dict[str, Any]:
    solution = model.solution_
    error, r_squared = _error(model)
    return {
        "rows": model.fit_.rows,
        "precision": model.moments_.precision if isinstance(model.fit_, RidgeFit) else "float64",
        "alpha": model.alpha_,
        "alpha_by": solution.criterion,
        "effective_dimension": _on_path(solution, solution.path.effective_dimension),
        "outcome": solution.outcome.name,
        "outcome_words": str(solution.outcome),
        "error_by": _judge(solution),
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


def _judge(solution: Solution) -> str:
    return "loo" if solution.criterion == "loo" else "gcv"


def _error(model: KernelRidge) -> tuple[float | None, float | None]:
    """Return the root of the leave-one-out (or GCV) mean squared error, and R²."""
    solution = model.solution_
    squared = _on_path(solution, getattr(solution.path, _judge(solution)))
    if squared is None:
        return None, None
    variance = model.fit_.target_variance
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
        *([("left out", "; ".join(facts["left_out"]))] if facts["left_out"] else []),
        ("kernel", facts["kernel_words"] + ", chosen from the data" * facts["kernel_chosen"]),
        ("method", facts["method_reason"]),
        ("features", f"{facts['n_features']:,}, products in {facts['precision']}"),
    ]
    if "alpha_by" in facts:
        judge = {"loo": "leave-one-out", "gcv": "cross-validation (GCV)"}[facts["error_by"]]
        words = f"{judge} RMSE {number(facts['rmse'])}, R² {number(facts['r_squared'])}"
        alpha = f"{facts['alpha']:.4g}, {CRITERIA[facts['alpha_by']]}"
        error = [] if facts["rmse"] is None else [("error", words)]
        return [*lines, ("alpha", alpha), ("outcome", facts["outcome_words"]), *error]
    classes = facts["classes"] and ", ".join(map(str, facts["classes"]))
    found = {"classes": classes, "penalty": facts["penalty"], "passes": facts["passes"]}
    lines += [(name, str(value)) for name, value in found.items() if value is not None]
    return [*lines, ("outcome", facts["outcome_words"])]
