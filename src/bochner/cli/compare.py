"""Commands about rows of files: compare and plan; and the demo."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from bochner.certificates.comparison import compare
from bochner.cli.arguments import found_files, refuse_overwriting
from bochner.cli.models import kernel_of
from bochner.cli.show import Terminal, number
from bochner.data.blocks import Blocks
from bochner.data.writers import atomic
from bochner.kernels.kernel import Kernel
from bochner.models._tables import encoded
from bochner.planner.plans import plan
from bochner.report.demo import run_demo as write_page
from bochner.report.render import require
from bochner.selection.walk import choose_lengthscale
from bochner.sums.rows import sampled


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
