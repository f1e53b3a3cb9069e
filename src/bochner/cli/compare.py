"""bochner compare: which features serve this kernel best on these rows."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bochner.certificates.comparison import Comparison, compare
from bochner.cli.arguments import refuse_overwriting
from bochner.cli.clock import Clock
from bochner.cli.fit import kernel_of
from bochner.cli.reading import reading, working
from bochner.cli.show import show
from bochner.data.blocks import Blocks
from bochner.data.files import find_files
from bochner.data.sample import RowSample
from bochner.data.writers import atomic
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.selection.lengthscale import choose_lengthscale


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
    show(_facts(found, blocks, clock), _lines(blocks, clock, plot), as_json, quiet)


def _kernel(
    name: str, lengthscale: list[float], sample: RowSample, width: int, seed: int
) -> Kernel:
    kernel = kernel_of(name, lengthscale)
    if isinstance(kernel, Kernel):
        return kernel
    return choose_lengthscale(kernel, sample, width, seed).kernel


def _facts(found: Comparison, blocks: Blocks, clock: Clock) -> dict[str, Any]:
    return {
        "rows": blocks.n_rows,
        "sample": found.n_sample,
        "kernel": repr(found.kernel),
        "features": found.n_features,
        "methods": [{**asdict(row), "method": repr(row.method)} for row in found.rows],
        "best": repr(found.best),
        "seconds": clock.seconds,
    }


def _lines(blocks: Blocks, clock: Clock, plot: Path | None) -> list[tuple[str, str]]:
    return [
        ("rows", f"{blocks.n_rows:,}"),
        ("seconds", str(clock)),
        *([("plot", str(plot))] if plot else []),
    ]
