"""Commands that apply a fitted model to files: predict, check, report."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from bochner._core.sizes import block_rows
from bochner.cli.arguments import STANDARD_OUTPUT, found_files, refuse_overwriting
from bochner.cli.models import certified, intervals_of, open_rows, outputs
from bochner.cli.show import Terminal, number
from bochner.data.blocks import Blocks, count_rows
from bochner.data.writers import Chunk, write_table
from bochner.errors import ModelFileError
from bochner.models._base import KernelEstimator
from bochner.models.inspection.importance import ImportanceDisplay
from bochner.models.prediction_displays import has_features
from bochner.models.unsupervised.transform import KernelFeatures
from bochner.persist.files import load
from bochner.report.model import report_model
from bochner.report.quality import coded, errors_of, examine, kind_of
from bochner.report.render import require

#: Bytes written to standard output at a time.
PIECE = 1 << 20


def run_predict(
    terminal: Terminal,
    *,
    model: str,
    files: Sequence[str],
    out: Path,
    coverage: float | None,
    separator: str | None,
) -> None:
    """Predict, write, say how much."""
    paths = found_files(files)
    refuse_overwriting(out, [Path(model), *paths])
    with terminal.phase("open"):
        fitted = open_model(model)
        blocks = open_rows(fitted, paths, separator, truth=False).with_rows(_block_rows(fitted))
    names: dict[str, None] = {}
    columns, held = outputs(fitted, coverage), intervals_of(fitted, coverage)
    with terminal.reading("predict", blocks) as watched:
        chunks = (columns(Blocks.from_arrays(block.X)) for block in watched)
        rows = _write(out, _noted(chunks, names))
    if out == STANDARD_OUTPUT:
        return
    facts = {"rows": rows, "columns": list(names), "seconds": terminal.seconds, "out": str(out)}
    facts |= {} if held is None else {"intervals": held}
    lines = [
        ("rows", f"{rows:,}"),
        ("columns", ", ".join(names)),
        *([] if held is None else [("intervals", f"of new observations. {held}")]),
        terminal.timed,
        ("table", str(out)),
    ]
    terminal.show(facts, lines)


def _block_rows(model: KernelEstimator) -> int:
    return block_rows(model.map_.n_features if has_features(model) else 1024)


def _noted(chunks: Iterable[Chunk], names: dict[str, None]) -> Iterator[Chunk]:
    """Give the same, and note the names of the columns."""
    for chunk in chunks:
        names.update(dict.fromkeys(chunk))
        yield chunk


def _write(out: Path, chunks: Iterator[Chunk]) -> int:
    """Write predictions to a table; return the number of rows."""
    if out == STANDARD_OUTPUT:
        with TemporaryDirectory(prefix="bochner-") as folder:
            table = Path(folder) / "predictions.csv"
            rows = write_table(table, chunks)
            with table.open("rb") as file:
                for part in iter(partial(file.read, PIECE), b""):
                    click.echo(part, nl=False)
        return rows
    return write_table(out, chunks)


def run_check(
    terminal: Terminal, *, model: str, files: Sequence[str], separator: str | None
) -> None:
    """Measure the certificate, and the error where the target is there; say what was found."""
    with terminal.phase("open"):
        fitted = open_model(model)
        paths = found_files(files)
        blocks = open_rows(fitted, paths, separator, truth=True)
        features = open_rows(fitted, paths, separator, truth=False)
    errors: dict[str, dict[str, float]] = {}
    with terminal.reading("predict", blocks) as watched:
        if kind_of(fitted) != "features" and next(iter(watched)).y is not None:
            errors = errors_of(fitted, examine(fitted, coded(fitted, watched), 0))
    with terminal.reading("certify", features) as watched:
        numbers, words = certified(fitted, watched, other=True)
    n_rows = count_rows(features)
    facts = {
        "rows": n_rows,
        "errors": errors,
        "certificate": numbers,
        "certificate_words": words,
        "seconds": terminal.seconds,
    }
    lines = [
        ("rows", f"{n_rows:,}"),
        *((f"error, {name}", _words(found)) for name, found in errors.items()),
        ("certificate", words),
        terminal.timed,
    ]
    terminal.show(facts, lines)


def _words(found: dict[str, Any]) -> str:
    if "accuracy" in found:
        right = f"{100 * found['accuracy']:.2f} % of the labels are right"
        most = f"where the most frequent label has {100 * found['majority']:.2f} %"
        return "; ".join([f"{right}, {most}", *_of_labels(found)])
    return f"RMSE {number(found['rmse'])}, R² {number(found['r_squared'])}"


def _of_labels(found: dict[str, Any]) -> Iterator[str]:
    names = {"log_loss": "log loss", "auc": "AUC"}
    return (f"{name} {number(found[key])}" for key, name in names.items() if key in found)


def run_report(
    terminal: Terminal,
    *,
    model: str,
    files: Sequence[str],
    out: Path,
    rows: int,
    widths: Sequence[int],
    seed: int,
    separator: str | None,
) -> None:
    """Measure, write the page, say what was found."""
    require("bochner report")
    paths = found_files(files)
    refuse_overwriting(out, [Path(model), *paths])
    with terminal.phase("open"):
        fitted = open_model(model)
        blocks = open_rows(fitted, paths, separator, truth=True)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    with terminal.reading("measure", blocks) as watched:
        found = report_model(
            fitted,
            watched,
            n_sample=rows,
            widths=widths or None,
            random_state=seed,
            source=f"{Path(model).name} on {paths[0].name}{more}",
            command=shlex.join(["bochner", "report", model, *files, "--out", str(out)]),
        )
    with terminal.phase("write"):
        page = found.write(out)
    whose = {True: ", those of the fit", False: ", not those of the fit", None: ""}
    lines = [
        ("rows", f"{found.seen.n_rows:,}{whose[found.rows_of_fit]}"),
        *((f"error, {name}", _error(one)) for name, one in found.quality.errors.items()),
        *([("driven by", _drivers(found.importance))] if found.importance else []),
        ("certificate", found.certificate_words),
        terminal.timed,
        ("page", str(page)),
    ]
    terminal.show(found.to_dict() | {"seconds": terminal.seconds, "page": str(page)}, lines)


def _drivers(found: ImportanceDisplay) -> str:
    """Name the columns that predictions depend on most, with their shares of the deviation."""
    lines = found.table(3)[1]
    share = -1 if len(found.outputs) == 1 else 1
    shares = ", ".join(f"{line[0]} {line[share]}" for line in lines)
    return f"{shares} of the deviation of predictions (they do not add up to 100 %)"


def _error(found: dict[str, Any]) -> str:
    """Name the errors, the leave-one-out errors first."""
    names = {"rmse": "RMSE", "r_squared": "R²", "accuracy": "share right"}
    first = [f"leave-one-out {names[k[4:]]} {number(v)}" for k, v in found.items() if "loo_" in k]
    then = [f"{names[k]} {number(v)}" for k, v in found.items() if k in names]
    return ", ".join([*first, *then, *_of_labels(found)])


# --- The model ------------------------------------------------------------------------------------


def open_model(path: str) -> Any:
    """Return the fitted learner in a file."""
    model = load(path)
    learner = isinstance(model, KernelEstimator)
    fitted = learner and not isinstance(model, KernelFeatures) and _is_fitted(model)
    if not fitted:
        kind = "one that is not fitted" if learner else f"a {type(model).__name__}"
        raise ModelFileError(
            f"'{path}' must hold a fitted learner, as bochner fit writes; it holds {kind}."
        )
    return model


def _is_fitted(model: KernelEstimator) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True
