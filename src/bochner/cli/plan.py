"""bochner plan: which method, width and solver to fit with, and what that will take here."""

from collections.abc import Sequence

import click

from bochner.cli.clock import Clock
from bochner.cli.fit import kernel_of
from bochner.cli.reading import reading
from bochner.cli.show import show
from bochner.data.blocks import Blocks
from bochner.planner.estimators import plan


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
