"""bochner check: the certificate, and the error, on other data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bochner._ground.arrays import to_numpy
from bochner._ground.blocks import Block, Blocks
from bochner._ground.files import find_files
from bochner.cli.clock import Clock
from bochner.cli.models import certified, open_model, open_rows
from bochner.cli.reading import reading
from bochner.cli.show import number, show
from bochner.estimators import KernelRidge
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
        errors = _errors(fitted, watched)
    with clock.phase("certify"), reading(features, quiet) as watched:
        numbers, words = certified(lambda: fitted.certify_blocks(watched))
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


def _errors(model: KernelRidge, blocks: Blocks) -> dict[str, dict[str, Any]]:
    """Return error and R² of each target, or nothing where the files do not have it."""
    if next(iter(blocks)).y is None:
        return {}
    total = Accumulator()
    for block in blocks:
        y = to_numpy(block.y).reshape(block.X.shape[0], -1)
        residuals = y - _predicted(model, block).reshape(y.shape)
        total.add(np.zeros((len(y), 1)), np.hstack([residuals, y]), block.w)
    return _by_target(model.schema_.target_names, total.moments())


def _predicted(model: KernelRidge, block: Block) -> np.ndarray:
    return np.concatenate(list(model.predict_blocks(Blocks.from_arrays(block.X))))


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
    return f"RMSE {number(found['rmse'])}, R² {number(found['r_squared'])}"
