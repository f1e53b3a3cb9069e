"""bochner predict: a column of predictions for the rows of files, block by block."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bochner._core.sizes import block_rows
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.clock import Clock
from bochner.cli.learners import Output, intervals_of, outputs
from bochner.cli.models import open_model, open_rows
from bochner.cli.reading import reading
from bochner.cli.show import show
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.data.writers import write_table


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
