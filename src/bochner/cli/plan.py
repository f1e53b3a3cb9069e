"""bochner plan: which method, width and solver to fit with, and what that will take here."""

from collections.abc import Sequence
from typing import Any

import click

from bochner._ground.blocks import Blocks
from bochner._ground.files import find_files
from bochner.cli.clock import Clock
from bochner.cli.fit import kernel_of
from bochner.cli.reading import reading
from bochner.cli.show import show
from bochner.estimators.planned import Plan, plan

__all__ = ["run_plan"]


def run_plan(
    *,
    files: Sequence[str],
    target: Sequence[str],
    kernel: str,
    lengthscale: Sequence[tuple[float, ...]],
    seconds: float | None,
    memory: float | None,
    widths: str | None,
    seed: int,
    columns: str | None,
    separator: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read the rows, plan, say what was found."""
    clock = Clock()
    blocks = Blocks.from_files(
        find_files(list(files)),
        target=target[0] if len(target) == 1 else tuple(target),
        columns=None if columns is None else columns.split(","),
        separator=separator,
    )
    budget = {"seconds": seconds, "bytes": memory}
    with clock.phase("plan"), reading(blocks, quiet) as watched:
        found = plan(
            watched,
            kernel=kernel_of(kernel, [number for part in lengthscale for number in part]),
            budget={name: value for name, value in budget.items() if value is not None},
            widths=None if widths is None else _numbers(widths),
            random_state=seed,
        )
    if not as_json and not quiet:
        click.echo(str(found))
    show(_facts(found, clock), [("seconds", str(clock))], as_json, quiet)


def _numbers(widths: str) -> list[int]:
    try:
        return [int(part) for part in widths.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be whole numbers separated by commas, as 256,1024; got {widths!r}.",
            param_hint="'--widths'",
        ) from None


def _facts(found: Plan, clock: Clock) -> dict[str, Any]:
    return found.facts() | {"seconds": clock.seconds}
