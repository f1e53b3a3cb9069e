"""bochner check: the certificate, and the error, on other data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from bochner._ground.arrays import to_numpy
from bochner._ground.blocks import Blocks
from bochner._ground.files import find_files
from bochner.cli.clock import Clock
from bochner.cli.models import checked, open_model, open_rows
from bochner.cli.reading import reading
from bochner.cli.show import number, show
from bochner.estimators.fitting.labels import class_blocks
from bochner.moments import Accumulator, Moments

__all__ = ["run_check"]


def run_check(
    *,
    model: str,
    files: Sequence[str],
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure, say what was found."""
    clock = Clock()
    with clock.phase("open"):
        fitted = open_model(model)
        paths = find_files(list(files))
        blocks = open_rows(fitted, paths, separator, truth=True)
        features = open_rows(fitted, paths, separator, truth=False)
    with clock.phase("predict"), reading(blocks, quiet) as watched:
        errors = _found(fitted, watched)
    with clock.phase("certify"), reading(features, quiet) as watched:
        numbers, words = checked(fitted, watched)
    facts = {
        "rows": features.n_rows,
        "errors": errors,
        "certificate": numbers,
        "certificate_words": words,
        "seconds": clock.seconds,
    }
    lines = [
        ("rows", f"{features.n_rows:,}"),
        *((f"error, {name}", _words(found)) for name, found in errors.items()),
        ("certificate", words),
        ("seconds", str(clock)),
    ]
    show(facts, lines, as_json, quiet)


def _found(model: Any, blocks: Blocks) -> dict[str, dict[str, Any]]:
    """Return how good each target is predicted, or nothing where the files do not have it."""
    if not hasattr(model, "predict") or next(iter(blocks)).y is None:
        return {}
    return _accuracy(model, blocks) if is_classifier(model) else _errors(model, blocks)


def _accuracy(model: Any, blocks: Blocks) -> dict[str, dict[str, Any]]:
    right = weight = 0.0
    for block in class_blocks(model, blocks, reset=False):
        w = np.ones(block.X.shape[0]) if block.w is None else to_numpy(block.w)
        labels = model.classes_[to_numpy(block.y).astype(int)]
        right += float(w @ (to_numpy(model.predict(Blocks.from_arrays(block.X))) == labels))
        weight += float(w.sum())
    return {str(model.schema_.target): {"accuracy": right / weight}}


def _errors(model: Any, blocks: Blocks) -> dict[str, dict[str, Any]]:
    names, total = model.schema_.target_names, Accumulator()
    for block in blocks:
        y = to_numpy(block.y).reshape(block.X.shape[0], -1)
        predicted = to_numpy(model.predict(Blocks.from_arrays(block.X)))
        if predicted.size != y.size:  # several quantiles: none of them is the prediction
            return {}
        residuals = y - predicted.reshape(y.shape)
        total.add(np.zeros((len(y), 1)), np.hstack([residuals, y]), block.w)
    return _by_target(names, total.moments())


def _by_target(names: Sequence[str], moments: Moments) -> dict[str, dict[str, Any]]:
    """Return errors from the moments of residuals and targets, side by side."""
    t = len(names)
    spread = moments.power / moments.weight
    squared = spread[:t] + moments.target_mean[:t] ** 2
    return {
        name: {
            "rmse": float(squared[j] ** 0.5),
            "r_squared": float(1 - squared[j] / spread[t + j]) if spread[t + j] > 0 else None,
        }
        for j, name in enumerate(names)
    }


def _words(found: dict[str, Any]) -> str:
    if "accuracy" in found:
        return f"{100 * found['accuracy']:.2f} % of the labels are right"
    return f"RMSE {number(found['rmse'])}, R² {number(found['r_squared'])}"
