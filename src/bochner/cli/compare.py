"""Commands about rows of files: compare, plan, experiment; and the demo."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.certificates.comparison import compare
from bochner.cli.arguments import found_files, refuse_overwriting
from bochner.cli.models import kernel_of
from bochner.cli.show import Terminal, number
from bochner.data.blocks import Blocks
from bochner.data.sample import Sample
from bochner.data.writers import atomic
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models._tables import encoded
from bochner.models.ridge.double_descent import double_descent
from bochner.planner.plans import plan
from bochner.report.demo import run_demo as write_page
from bochner.report.render import require
from bochner.selection.search import choose_lengthscale
from bochner.sums.rows import sampled

TEST_ROWS = 5000  # Rows to test double descent on, at most

Rows = tuple[Float[Array, "n d"], Array]


def run_compare(
    terminal: Terminal,
    *,
    files: Sequence[str],
    target: tuple[str, ...],
    kernel: str,
    lengthscale: list[float],
    features: int,
    seed: int,
    plot: Path | None,
    types: dict[str, str],
    **table: Any,
) -> None:
    """Sample the rows, compare the methods, say what was found."""
    paths = found_files(files)
    if plot is not None:
        refuse_overwriting(plot, paths)
    blocks = Blocks.from_files(paths, target=target or None, dtypes=types, **table)
    blocks = encoded("bochner compare", blocks)
    with terminal.reading("read", blocks) as watched:
        sample = sampled(watched, seed)
    with terminal.phase("compare", "Drawing every method"):
        chosen = kernel_of(kernel, lengthscale)
        if not isinstance(chosen, Kernel):
            chosen = choose_lengthscale(chosen, sample, features, seed).kernel
        found = compare(chosen, sample.X, n_features=features, random_state=seed)
    if plot is not None:
        _draw(found, plot)
    terminal.say(str(found))
    facts = {
        "rows": blocks.n_rows,
        "sample": found.n_sample,
        "kernel": repr(found.kernel),
        "features": found.n_features,
        "methods": [{**asdict(row), "method": repr(row.method)} for row in found.rows],
        "best": repr(found.best),
        "seconds": terminal.seconds,
    }
    drawn = [] if plot is None else [("plot", str(plot))]
    terminal.show(facts, [("rows", f"{blocks.n_rows:,}"), terminal.timed, *drawn])


def _draw(found: Any, path: Path) -> None:
    """Write the picture of a result, as a whole or not at all."""
    figure = np.ravel(found.plot())[0].figure
    with atomic(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())


def run_plan(
    terminal: Terminal,
    *,
    files: Sequence[str],
    kernel: str,
    lengthscale: list[float],
    seconds: float | None,
    memory: float | None,
    widths: list[int] | None,
    seed: int,
    types: dict[str, str],
    **table: Any,
) -> None:
    """Read the rows, plan, say what was found."""
    budget = {"seconds": seconds, "bytes": memory}
    blocks = Blocks.from_files(found_files(files), dtypes=types, **table)
    with terminal.reading("plan", blocks) as watched:
        found = plan(
            watched,
            kernel=kernel_of(kernel, lengthscale),
            budget={name: value for name, value in budget.items() if value is not None},
            widths=widths,
            random_state=seed,
        )
    terminal.say(str(found))
    terminal.show(found.facts() | {"seconds": terminal.seconds}, [terminal.timed])


# --- Double descent ------------------------------------------------------------------------------


def run_double_descent(
    terminal: Terminal,
    *,
    files: Sequence[str],
    test: Sequence[str],
    out: Path,
    rows: int,
    task: str,
    seed: int,
    types: dict[str, str],
    separator: str | None,
    target: str,
    columns: list[str] | None,
    drop: list[str] | None,
    **asked: Any,
) -> None:
    """Sample rows, run the experiment, draw the picture, print the table."""
    paths, test_paths = found_files(files), found_files(test) if test else []
    refuse_overwriting(out, [*paths, *test_paths])
    blocks = Blocks.from_files(
        paths, target=target, columns=columns, drop=drop, dtypes=types, separator=separator
    )
    schema = blocks.schema
    others = Blocks.from_files(test_paths, schema=schema, separator=separator) if test else None
    with terminal.reading("read", blocks) as watched:
        train, held = _rows(watched, others, rows, seed)
    if schema is not None and schema.classes:
        task = "classification"
    with terminal.phase("experiment", "Fitting every width"):
        found = double_descent(*_standardised(train, held), task=task, random_state=seed, **asked)
    _draw(found, out)
    terminal.say(str(found))
    names = ("train_error", "test_error", "norm", "train_wrong", "test_wrong", "peak")
    facts = {
        "rows": found.n_rows,
        "test_rows": len(held[1]),
        "kernel": repr(found.kernel),
        "method": repr(found.method),
        "widths": found.widths,
        "alphas": found.alphas,
        **{name: getattr(found, name) for name in names},
        "seconds": terminal.seconds,
    }
    lines = [
        ("rows", f"{found.n_rows:,} to train, {len(held[1]):,} to test"),
        ("peak", f"at D = {found.peak:,}, D/n = {found.peak / found.n_rows:.3g}"),
        terminal.timed,
        ("picture", str(out)),
    ]
    terminal.show(facts, lines)


def _rows(blocks: Blocks, others: Blocks | None, rows: int, seed: int) -> tuple[Rows, Rows]:
    """Return rows to train and to test on: of a file of their own, or a quarter or more of all."""
    sample = blocks.sample(rows if others else rows + TEST_ROWS, seed)
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


# --- The demo ------------------------------------------------------------------------------------


def run_demo(terminal: Terminal, *, out: str, quick: bool, seed: int) -> None:
    """Fit, write the page, say what was found."""
    require("bochner demo")
    said = None if terminal.quiet else lambda line: click.echo(line, err=True)
    result = write_page(out, quick=quick, seed=seed, show=said)
    errors = lambda m: (number(m.rmse), f"{m.r_squared:.4f}", f"{m.seconds:.2f}", number(m.epsilon))
    rows = [(m.name, f"{m.n_features:,}", *errors(m)) for m in result.methods]
    head = ("method", "features", "RMSE, m", "R²", "seconds", "ε")
    caption = f"ε: distance from the exact kernel at alpha = {result.alpha:.3g}"
    terminal.table(head, rows, caption)
    best = result.best
    words = f"RMSE {number(best.rmse)} m, R² {number(best.r_squared)}"
    lines = [
        ("kernel", result.kernel),
        ("best", f"{best.name}, {best.n_features:,} features: {words}"),
        ("certificate", result.certificate),
        ("seconds", number(result.seconds)),
        ("page", str(result.path)),
    ]
    facts = {
        "kernel": result.kernel,
        "alpha": result.alpha,
        "certificate_words": result.certificate,
        "methods": [asdict(method) for method in result.methods],
        "best": asdict(best),
        "curves": [asdict(curve) for curve in result.curves],
        "train_rows": result.n_train,
        "test_rows": result.n_test,
        "seconds": result.seconds,
        "page": str(result.path),
    }
    terminal.show(facts, [line for line in lines if line[1]])
