"""bochner report: one page that says how good a model is, and how it came about."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bochner.cli.arguments import refuse_overwriting
from bochner.cli.clock import Clock
from bochner.cli.models import open_model, open_rows
from bochner.cli.reading import reading
from bochner.cli.show import number, show
from bochner.data.files import find_files
from bochner.report import ModelReport, report_model


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
