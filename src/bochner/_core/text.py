"""Results for people: columns of text, outcomes as sentences, and axes to draw on."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Self

from bochner._core.optional import needed


def rounded(text: str) -> str:
    """Return code with its long numbers cut to four digits, to be read and not to be run."""
    return re.sub(r"\d+\.\d{4,}(?:e-?\d+)?", lambda match: f"{float(match[0]):.4g}", text)


def columns(lines: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return lines of cells one below the other, numbers to the right but ``words`` to the left."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if j in words else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


MOST_ITEMS = 12  # Items of a list that are written out


def facts_in_words(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts as labels and words, without those that are empty.

    Of ``name`` and ``name_words``, the first is for programs and the second for people.
    """
    # others say the same in words
    for_programs = ("raw_columns", "kernel_chosen", "precision", "seed", "rmse", "r_squared")
    named = [(name, value) for name, value in facts.items() if name not in for_programs]
    lines = [(name, written(value)) for name, value in named if f"{name}_words" not in facts]
    label = lambda name: name.removeprefix("n_").removesuffix("_words").replace("_", " ")
    return [(label(name), words) for name, words in lines if words]


def written(value: Any) -> str:
    """Write a fact for people: numbers to four digits, of many items the first."""
    if value is None:
        return ""
    if hasattr(value, "tolist"):
        return written(value.tolist())
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {written(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(written, value[:MOST_ITEMS])) + ", …" * (len(value) > MOST_ITEMS)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def axes_for(who: str, ax: Any = None, size: tuple[float, float] = (6, 4), across: int = 1) -> Any:
    """Return the given axes, or ``across`` new ones side by side."""
    if ax is not None:
        return ax
    figure = needed("matplotlib.figure", f"{who}.plot", "'bochner[report]'").Figure
    return figure(figsize=size, layout="constrained").subplots(1, across)


class Sentence(Enum):
    """How something went, and what to do: each value is the sentence."""

    def __str__(self) -> str:
        return self.value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value,)

    @classmethod
    def worst(cls, outcomes: Iterable[Self]) -> Self:
        """Return the outcome of several parts together; members are defined from best to worst."""
        return max(outcomes, key=list(cls).index)
