"""bochner experiment: what the theory says, shown on the user's own rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.clock import Clock
from bochner.cli.reading import reading, working
from bochner.cli.show import show
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.data.sample import Sample
from bochner.data.writers import atomic
from bochner.errors import InvalidInput
from bochner.models.ridge.interpolants import DoubleDescent, double_descent

#: Rows to test on, at most.
TEST_ROWS = 5000

Rows = tuple[Float[Array, "n d"], Array]


def run_double_descent(
    *,
    files: Sequence[str],
    target: str,
    test: Sequence[str],
    out: Path,
    features: str,
    kernel: str,
    rows: int,
    alpha: Sequence[float],
    task: str,
    seed: int,
    columns: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Sample rows, run the experiment, draw the picture, print the table."""
    clock = Clock()
    paths, test_paths = find_files(list(files)), find_files(list(test)) if test else []
    refuse_overwriting(out, [*paths, *test_paths])
    with clock.phase("read"):
        blocks = Blocks.from_files(
            paths, target=target, columns=columns, dtypes=types, separator=separator
        )
        schema = blocks.schema
        others = Blocks.from_files(test_paths, schema=schema, separator=separator) if test else None
        train, held = _rows(blocks, others, rows, seed, quiet)
    named = schema is not None and schema.classes
    with clock.phase("experiment"), working("Fitting every width", quiet):
        found = double_descent(
            *_standardised(train, held),
            features=features,
            kernel=kernel,
            alpha=alpha,
            task="classification" if named else task,
            random_state=seed,
        )
    with atomic(out) as file:
        found.plot()[0].figure.savefig(file, format=out.suffix[1:].lower())
    if not as_json and not quiet:
        click.echo(str(found))
    show(_facts(found, held, clock), _lines(found, held, clock, out), as_json, quiet)


def _rows(
    blocks: Blocks, others: Blocks | None, rows: int, seed: int, quiet: bool
) -> tuple[Rows, Rows]:
    """Return rows to train and to test on: of a file of their own, or a quarter or more of all."""
    with reading(blocks, quiet) as watched:
        sample = watched.sample(rows if others else rows + TEST_ROWS, seed)
    if others is not None:
        return _arrays(sample), _arrays(others.sample(TEST_ROWS, seed))
    X, y = _arrays(sample)
    if len(y) < 8:
        raise InvalidInput(
            f"bochner experiment: at least 8 rows are required; got {len(y)}. Name a file of test "
            "rows with --test, or bring more."
        )
    order = stream(seed, "test").permutation(len(y))
    m = max(len(y) - rows, len(y) // 4)
    return (X[order[m:]], y[order[m:]]), (X[order[:m]], y[order[:m]])


def _arrays(sample: Sample) -> Rows:
    if sample.y is None:
        raise InvalidInput("bochner experiment: the test rows must have the target; they do not.")
    return to_numpy(sample.X).astype(np.float64), to_numpy(sample.y)


def _standardised(train: Rows, held: Rows) -> tuple[Array, Array, Array, Array]:
    """Return columns of mean 0 and deviation 1 in the training rows; constant ones are left out."""
    mean, deviation = train[0].mean(axis=0), train[0].std(axis=0)
    kept = deviation > 1e-12 * np.abs(train[0]).max(axis=0)
    if not kept.any():
        raise InvalidInput("bochner experiment: every column is constant; nothing can be learned.")
    X, X_test = ((A[:, kept] - mean[kept]) / deviation[kept] for A in (train[0], held[0]))
    return X, train[1], X_test, held[1]


def _facts(found: DoubleDescent, held: Rows, clock: Clock) -> dict[str, Any]:
    names = ("train_error", "test_error", "norm", "train_wrong", "test_wrong")
    return {
        "rows": found.n_rows,
        "test_rows": len(held[1]),
        "kernel": repr(found.kernel),
        "method": repr(found.method),
        "widths": found.widths,
        "alphas": found.alphas,
        **{name: getattr(found, name) for name in names},
        "peak": found.peak,
        "seconds": clock.seconds,
    }


def _lines(found: DoubleDescent, held: Rows, clock: Clock, out: Path) -> list[tuple[str, str]]:
    return [
        ("rows", f"{found.n_rows:,} to train, {len(held[1]):,} to test"),
        ("peak", f"at D = {found.peak:,}, D/n = {found.peak / found.n_rows:.3g}"),
        ("seconds", str(clock)),
        ("picture", str(out)),
    ]
