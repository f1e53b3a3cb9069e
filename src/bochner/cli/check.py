"""bochner check: the certificate, and the error, on other data."""

from collections.abc import Sequence
from typing import Any

from bochner.cli.clock import Clock
from bochner.cli.models import certified, open_model, open_rows
from bochner.cli.reading import reading
from bochner.cli.show import number, show
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.report.model_quality import errors_of
from bochner.report.model_rows import coded, look


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
        numbers, words = certified(fitted, watched, other=True)
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


def _found(model: Any, blocks: Blocks) -> dict[str, dict[str, float]]:
    """Return how good each target is predicted, or nothing where the files do not have it."""
    if not hasattr(model, "predict") or next(iter(blocks)).y is None:
        return {}
    return errors_of(model, look(model, coded(model, blocks), ()))


def _words(found: dict[str, Any]) -> str:
    if "accuracy" in found:
        return f"{100 * found['accuracy']:.2f} % of the labels are right"
    return f"RMSE {number(found['rmse'])}, R² {number(found['r_squared'])}"
