"""bochner show: what is inside a model file."""

from pathlib import Path
from typing import Any

from bochner.cli.facts import facts_of, lines_of
from bochner.cli.show import Terminal
from bochner.data.schema import Schema
from bochner.models._base import KernelEstimator
from bochner.persist.files import load

MOST = 40  # Columns that people are shown


def run_show(terminal: Terminal, *, model: str) -> None:
    """Tell what the model of a file was fitted to, what it chose, and what it reads."""
    with terminal.phase("read"):
        found = load(Path(model))
        if not isinstance(found, KernelEstimator):
            facts: dict[str, Any] = {"model": type(found).__name__, "holds": str(found)}
            terminal.show(facts, [(name, str(value)) for name, value in facts.items()])
            return
    schema = found.schema_
    inputs = {} if schema is None else _inputs(schema)
    size = Path(model).stat().st_size
    facts = {
        "model": type(found).__name__,
        **facts_of(found, None),
        "inputs": inputs,
        "bytes": size,
        "parameters": {name: repr(value) for name, value in _given(found).items()},
        "search": found.search_.facts(),
    }
    lines = [
        ("learner", type(found).__name__),
        ("given", ", ".join(f"{k}={v}" for k, v in facts["parameters"].items()) or "defaults"),
        *lines_of(facts),
        *_lines(inputs),
        ("file", f"{size:,} bytes"),
    ]
    terminal.show(facts, lines)
    if facts["search"]:
        terminal.say(f"\n{found.search_}")


def _given(model: KernelEstimator) -> dict[str, Any]:
    """Return the parameters that are not the defaults."""
    defaults = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    return {name: value for name, value in given.items() if repr(value) != repr(defaults[name])}


def _inputs(schema: Schema) -> dict[str, str]:
    """Return what each column of a table becomes."""
    categories = {name: f"categories {', '.join(found)}" for name, found in schema.categories}
    names = {encoder.name: encoder.feature_names for encoder in schema.encoders}
    encoded = {name: f"becomes {', '.join(own)}" for name, own in names.items() if own != (name,)}
    out = {name: f"left out ({reason})" for name, reason in schema.dropped}
    return {name: (encoded | categories | out).get(name, "number") for name in schema.columns}


def _lines(inputs: dict[str, str]) -> list[tuple[str, str]]:
    lines = [("column", f"{name}: {kind}") for name, kind in list(inputs.items())[:MOST]]
    rest = len(inputs) - MOST
    return [*lines, ("column", f"and {rest:,} more")] if rest > 0 else lines
