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
from bochner.certificates.comparison import Comparison, compare
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.fit import kernel_of
from bochner.cli.show import Clock, number, reading, show, table, working
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.data.sample import RowSample, Sample
from bochner.data.writers import atomic
from bochner.errors import InvalidInput
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models.ridge.double_descent import DoubleDescent, double_descent
from bochner.planner.plans import plan
from bochner.report import DemoResult, MethodResult
from bochner.report import run_demo as write_page
from bochner.selection.search import choose_lengthscale


def run_compare(
    *,
    files: Sequence[str],
    target: tuple[str, ...],
    kernel: str,
    lengthscale: list[float],
    features: int,
    seed: int,
    columns: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Sample the rows, compare the methods, say what was found."""
    clock = Clock()
    paths = find_files(list(files))
    if plot is not None:
        refuse_overwriting(plot, paths)
    with clock.phase("read"):
        blocks = Blocks.from_files(
            paths, target=target or None, columns=columns, dtypes=types, separator=separator
        )
        with reading(blocks, quiet) as watched:
            sample = _engine.presample(watched, seed)
    with clock.phase("compare"), working("Drawing every method", quiet):
        found = compare(
            _kernel(kernel, lengthscale, sample, features, seed),
            sample.X,
            n_features=features,
            random_state=seed,
        )
    if plot is not None:
        with atomic(plot) as file:
            found.plot().figure.savefig(file, format=plot.suffix[1:].lower())
    if not as_json and not quiet:
        click.echo(str(found))
    show(_compared(found, blocks, clock), _compare_lines(blocks, clock, plot), as_json, quiet)


def _kernel(
    name: str, lengthscale: list[float], sample: RowSample, width: int, seed: int
) -> Kernel:
    kernel = kernel_of(name, lengthscale)
    if isinstance(kernel, Kernel):
        return kernel
    return choose_lengthscale(kernel, sample, width, seed).kernel


def _compared(found: Comparison, blocks: Blocks, clock: Clock) -> dict[str, Any]:
    return {
        "rows": blocks.n_rows,
        "sample": found.n_sample,
        "kernel": repr(found.kernel),
        "features": found.n_features,
        "methods": [{**asdict(row), "method": repr(row.method)} for row in found.rows],
        "best": repr(found.best),
        "seconds": clock.seconds,
    }


def _compare_lines(blocks: Blocks, clock: Clock, plot: Path | None) -> list[tuple[str, str]]:
    return [
        ("rows", f"{blocks.n_rows:,}"),
        ("seconds", str(clock)),
        *([("plot", str(plot))] if plot else []),
    ]


# --- bochner plan: which method, width and solver to fit with, and what that will take here ------


def run_plan(
    *,
    files: Sequence[str],
    target: str | tuple[str, ...],
    kernel: str,
    lengthscale: list[float],
    seconds: float | None,
    memory: float | None,
    widths: list[int] | None,
    seed: int,
    columns: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read the rows, plan, say what was found."""
    clock = Clock()
    blocks = Blocks.from_files(
        files, target=target, columns=columns, dtypes=types, separator=separator
    )
    budget = {"seconds": seconds, "bytes": memory}
    with clock.phase("plan"), reading(blocks, quiet) as watched:
        found = plan(
            watched,
            kernel=kernel_of(kernel, lengthscale),
            budget={name: value for name, value in budget.items() if value is not None},
            widths=widths,
            random_state=seed,
        )
    if not as_json and not quiet:
        click.echo(str(found))
    show(found.facts() | {"seconds": clock.seconds}, [("seconds", str(clock))], as_json, quiet)


# --- bochner experiment: what the theory says, shown on the user's own rows ----------------------

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


# --- bochner demo: the relief of the Earth, by several methods, on one page ----------------------


def run_demo(*, out: str, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Fit, write the page, say what was found."""
    result = write_page(out, quick=quick, seed=seed, show=None if quiet else _tell)
    if not (as_json or quiet):
        table(
            ("method", "features", "RMSE, m", "R²", "seconds", "ε"),
            [_row(method) for method in result.methods],
            f"ε: distance from the exact kernel at alpha = {result.alpha:.3g}",
        )
    lines = [
        ("kernel", result.kernel),
        ("best", _best(result.best)),
        ("certificate", result.certificate),
        ("seconds", number(result.seconds)),
        ("page", str(result.path)),
    ]
    show(_demo_facts(result), [line for line in lines if line[1]], as_json, quiet)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _best(method: MethodResult) -> str:
    return (
        f"{method.name}, {method.n_features:,} features: "
        f"RMSE {number(method.rmse)} m, R² {number(method.r_squared)}"
    )


def _row(method: MethodResult) -> tuple[str, ...]:
    return (
        method.name,
        f"{method.n_features:,}",
        number(method.rmse),
        f"{method.r_squared:.4f}",
        f"{method.seconds:.2f}",
        number(method.epsilon),
    )


def _demo_facts(result: DemoResult) -> dict[str, Any]:
    return {
        "kernel": result.kernel,
        "alpha": result.alpha,
        "certificate_words": result.certificate,
        "methods": [asdict(method) for method in result.methods],
        "best": asdict(result.best),
        "curves": [asdict(curve) for curve in result.curves],
        "train_rows": result.n_train,
        "test_rows": result.n_test,
        "seconds": result.seconds,
        "page": str(result.path),
    }
