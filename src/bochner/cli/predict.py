"""Commands that apply a fitted model to files: predict, check, report."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bochner._core.sizes import block_rows
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.models import Output, certified, intervals_of, open_model, open_rows, outputs
from bochner.cli.show import Clock, number, reading, show
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.data.writers import write_table
from bochner.report import ModelReport, report_model
from bochner.report.quality import coded, errors_of, look


def run_predict(
    *,
    model: str,
    files: Sequence[str],
    out: Path,
    coverage: float | None,
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict, write, say how much."""
    clock = Clock()
    paths = find_files(list(files))
    refuse_overwriting(out, [Path(model), *paths])
    with clock.phase("open"):
        fitted = open_model(model)
        blocks = open_rows(fitted, paths, separator, truth=False)
    names: dict[str, None] = {}
    columns, held = outputs(fitted, coverage), intervals_of(fitted, coverage)
    with clock.phase("predict"), reading(blocks, quiet) as watched:
        rows = write_table(out, _chunks(fitted, watched, columns, names))
    facts = {"rows": rows, "columns": list(names), "seconds": clock.seconds, "out": str(out)}
    facts |= {} if held is None else {"intervals": held}
    lines = [
        ("rows", f"{rows:,}"),
        ("columns", ", ".join(names)),
        *([] if held is None else [("intervals", f"of new observations. {held}")]),
        ("seconds", str(clock)),
        ("table", str(out)),
    ]
    show(facts, lines, as_json, quiet)


def _chunks(
    model: Any, blocks: Blocks, columns: Output, names: dict[str, None]
) -> Iterator[dict[str, np.ndarray]]:
    """Give the predictions of one block after the other, and note the columns' names."""
    for block in blocks.with_rows(block_rows(model.map_.n_features)):
        chunk = columns(Blocks.from_arrays(block.X))
        names.update(dict.fromkeys(chunk))
        yield chunk


# --- bochner check: the certificate, and the error, on other data --------------------------------


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


# --- bochner report: one page that says how good a model is, and how it came about ---------------


def run_report(
    *,
    model: str,
    files: Sequence[str],
    out: Path,
    rows: int,
    widths: Sequence[int],
    seed: int,
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure, write the page, say what was found."""
    clock = Clock()
    paths = find_files(list(files))
    refuse_overwriting(out, [Path(model), *paths])
    with clock.phase("open"):
        fitted = open_model(model)
        blocks = open_rows(fitted, paths, separator, truth=True)
    with clock.phase("measure"), reading(blocks, quiet) as watched:
        found = report_model(
            fitted,
            watched,
            n_sample=rows,
            widths=widths or None,
            random_state=seed,
            source=_source(model, paths),
            command=shlex.join(["bochner", "report", model, *files, "--out", str(out)]),
        )
    with clock.phase("write"):
        page = found.write(out)
    facts = found.to_dict() | {"seconds": clock.seconds, "page": str(page)}
    show(facts, _lines(found, clock, page), as_json, quiet)


def _source(model: str, paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{Path(model).name} on {paths[0].name}{more}"


def _lines(found: ModelReport, clock: Clock, page: Path) -> list[tuple[str, str]]:
    return [
        ("rows", f"{found.seen.n_rows:,}{_whose(found)}"),
        *((f"error, {name}", _error(one)) for name, one in found.quality.errors.items()),
        ("certificate", found.certificate_words),
        ("seconds", str(clock)),
        ("page", str(page)),
    ]


def _whose(found: ModelReport) -> str:
    words = {True: ", those of the fit", False: ", not those of the fit", None: ""}
    return words[found.rows_of_fit]


def _error(found: dict[str, Any]) -> str:
    """Name the errors, those that were left out first."""
    names = {"rmse": "RMSE", "r_squared": "R²", "accuracy": "share right"}
    first = [f"leave-one-out {names[k[4:]]} {number(v)}" for k, v in found.items() if "loo_" in k]
    return ", ".join([*first, *(f"{names[k]} {number(v)}" for k, v in found.items() if k in names)])
