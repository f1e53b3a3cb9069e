"""bochner fit: from a table of any length to a model file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bochner.cli.arguments import found_files, refuse_overwriting
from bochner.cli.engines import cluster_of, refuse_scheduler
from bochner.cli.facts import facts_of, lines_of
from bochner.cli.models import certified, intervals_of, kernel_of, learner, needs_target
from bochner.cli.show import Terminal
from bochner.data.blocks import Blocks
from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge.estimators import KernelRidge
from bochner.persist.files import save
from bochner.report.held_out import judge_held_out
from bochner.sums.executor import Engine


def run_fit(
    terminal: Terminal,
    *,
    files: Sequence[str],
    model: str,
    target: str | tuple[str, ...] | None,
    out: Path,
    weight: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    types: dict[str, str],
    separator: str | None,
    kernel: str | None,
    lengthscale: list[float],
    features: int | None,
    seed: int,
    settings: Sequence[str],
    checkpoint: str | None,
    engine: str,
    scheduler: str | None,
    judge: bool,
    **choices: Any,
) -> None:
    """Fit, write the model, say what was found."""
    if target is None and needs_target(model):
        raise click.UsageError(f"{model} learns from a target. Name its column with --target.")
    if kernel or lengthscale:
        choices["kernel"] = kernel_of(kernel or "gaussian", lengthscale)
    choices["n_features"] = features
    fitted = learner(model, choices | {"random_state": seed}, settings)
    refuse_scheduler(engine, scheduler)
    where = engine_of(engine, scheduler, checkpoint)
    paths = found_files(files)
    refuse_overwriting(out, paths)
    with terminal.phase("open"):
        blocks = Blocks.from_files(
            paths,
            target=target,
            weight=weight,
            columns=columns,
            drop=drop,
            dtypes=types,
            separator=separator,
        )
    _offer(terminal, checkpoint)
    with terminal.reading("fit", blocks) as watched, _resumable(checkpoint):
        fitted.fit_blocks(watched, where=where)
    with terminal.phase("certify", "Measuring how far the features are"):
        numbers, words = certified(fitted, blocks)
    found, why = None, ""
    if judge and not _has_error(fitted):
        with terminal.phase("judge", "Fitting again without some rows, to judge"):
            found, why = judge_held_out(fitted, blocks)
    held = None
    if isinstance(fitted, GaussianProcessRegressor):
        with terminal.phase("intervals", "Calibrating intervals"):
            held = intervals_of(fitted)
    with terminal.phase("write"):
        save(fitted, out)
    facts = {
        "model": model,
        **facts_of(fitted, blocks.n_rows),
        "held_out": None if found is None else asdict(found),
        "certificate": numbers,
        "certificate_words": words,
        **({} if held is None else {"intervals": held}),
        "seconds": terminal.seconds,
        "out": str(out),
    }
    lines = [
        *lines_of(facts),
        *([("error", why or str(found))] if why or found else []),
        ("certificate", words),
        *([] if held is None else [("intervals", held)]),
        terminal.timed,
        ("model", str(out)),
    ]
    terminal.show(facts, lines)


def _has_error(model: KernelEstimator) -> bool:
    """Whether the fit itself has the errors of rows that were left out."""
    return isinstance(model, KernelRidge) and model.fit_.error[0] is not None


def _offer(terminal: Terminal, checkpoint: str | None) -> None:
    """Offer to go on from a fit that was not finished, or to begin it again."""
    from bochner.engines.checkpoint import FIRST, Checkpoint  # noqa: PLC0415  as Local

    if checkpoint is None or not (Path(checkpoint) / FIRST).exists():
        return
    if not terminal.asks:
        terminal.note(f"Going on from '{checkpoint}'; delete it to begin again.")
    elif not click.confirm(
        f"'{checkpoint}' holds a fit that was not finished. Go on from it?", default=True, err=True
    ):
        Checkpoint(Path(checkpoint), "", 0).clear()


@contextmanager
def _resumable(checkpoint: str | None) -> Iterator[None]:
    """Say of a fit that is stopped how it goes on."""
    try:
        yield
    except BaseException as stopped:
        if checkpoint is not None and not isinstance(stopped, Exception):
            stopped.add_note(f"the same command goes on from '{checkpoint}'.")
        raise


def engine_of(engine: str, scheduler: str | None, checkpoint: str | None) -> Engine:
    """Return where passes are made; refuse options that do not go together."""
    from bochner.engines.local import Local  # noqa: PLC0415  with it come model files

    if checkpoint is not None and engine != "local":
        raise click.UsageError(
            f"--checkpoint is of a fit in this process; got --engine {engine}, whose workers may "
            "die anyway. Leave one of the two out."
        )
    return Local(checkpoint) if engine == "local" else cluster_of(engine, scheduler)
