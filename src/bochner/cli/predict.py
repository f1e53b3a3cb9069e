"""bochner predict: a column of predictions for the rows of files, block by block."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bochner._ground.files import find_files
from bochner._ground.writers import write_table
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.clock import Clock
from bochner.cli.models import open_model, open_rows, prediction_names
from bochner.cli.reading import reading
from bochner.cli.show import show

__all__ = ["run_predict"]


def run_predict(
    *,
    model: str,
    files: Sequence[str],
    out: Path,
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
    names = prediction_names(fitted)
    with clock.phase("predict"), reading(blocks, quiet) as watched:
        rows = write_table(out, _columns(names, fitted.predict_blocks(watched)))
    facts = {"rows": rows, "columns": names, "seconds": clock.seconds, "out": str(out)}
    lines = [
        ("rows", f"{rows:,}"),
        ("columns", ", ".join(names)),
        ("seconds", str(clock)),
        ("table", str(out)),
    ]
    show(facts, lines, as_json, quiet)


def _columns(names: list[str], blocks: Iterable[np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    for predicted in blocks:
        yield dict(zip(names, predicted.reshape(len(predicted), -1).T, strict=True))
