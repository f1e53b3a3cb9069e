"""Results as text and as self-contained HTML for notebooks and pages; axes for plots."""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, Self

from bochner._core.optional import package


def round_numbers(text: str) -> str:
    """Return code with numbers rounded to four digits, for display."""
    return re.sub(r"\d+\.\d{4,}(?:e-?\d+)?", lambda match: f"{float(match[0]):.4g}", text)


def columns(lines: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return lines of cells as text: columns numbered in ``words`` aligned left, others right."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if j in words else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


MAX_ITEMS = 12  # of a list that are printed


def facts_in_words(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the label and the text of each fact that is not empty.

    A fact ``name_words`` is printed instead of ``name``, which is for programs.
    """
    # facts that another fact repeats in words
    for_programs = ("raw_columns", "kernel_chosen", "precision", "seed", "rmse", "r_squared")
    pairs = [(name, value) for name, value in facts.items() if name not in for_programs]
    lines = [(name, as_text(value)) for name, value in pairs if f"{name}_words" not in facts]
    label = lambda name: name.removeprefix("n_").removesuffix("_words").replace("_", " ")
    return [(label(name), words) for name, words in lines if words]


def as_text(value: Any) -> str:
    """Return a fact as text: floats to four digits, at most MAX_ITEMS items of a list."""
    if value is None:
        return ""
    if hasattr(value, "tolist"):
        return as_text(value.tolist())
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {as_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value[:MAX_ITEMS])) + ", …" * (len(value) > MAX_ITEMS)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def axes_for(caller: str, ax: Any = None, figsize: tuple[float, float] = (6, 4), n: int = 1) -> Any:
    """Return ``ax``; if it is None, ``n`` new axes in a row, in a figure of ``figsize`` inches."""
    if ax is not None:
        return ax
    figure = package("matplotlib.figure", f"{caller}.plot", "'bochner[report]'").Figure
    return figure(figsize=figsize, layout="constrained").subplots(1, n)


def svg_image(figure: Any, title: str, look: str) -> str:
    """Return a figure as an <img> of SVG without a date; ``look`` are its attributes."""
    file = StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue().replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    source = f"data:image/svg+xml;base64,{b64encode(text.encode()).decode()}"
    return f'<img {look} alt="{escape(title)}" src="{source}">'


class Sentence(Enum):
    """Enumeration of outcomes: each value is a sentence with its meaning and remedy."""

    def __str__(self) -> str:
        return self.value

    def __reduce__(self) -> tuple[Any, ...]:  # for files of skops
        return type(self), (self.value,)

    @classmethod
    def worst(cls, outcomes: Iterable[Self]) -> Self:
        """Return the worst of several outcomes; members are defined from best to worst."""
        return max(outcomes, key=list(cls).index)


_WORDS = ' class="words"'


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>"


def html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    highlight: int = -1,
    words: tuple[int, ...] = (),
) -> str:
    """Return an HTML table; the row ``highlight`` is bold, and columns ``words`` hold sentences."""
    caption = f"<caption>{escape(caption)}</caption>" if caption else ""
    names = "".join(
        f'<th scope="col"{_WORDS * (j in words)}>{escape(name)}</th>' for j, name in enumerate(head)
    )
    lines = []
    for i, (first, *values) in enumerate(rows):
        cells = "".join(
            f"<td{_WORDS * (j in words)}>{escape(cell)}</td>" for j, cell in enumerate(values, 1)
        )
        best = ' class="best"' if i == highlight else ""
        lines.append(f'<tr{best}><th scope="row">{escape(first)}</th>{cells}</tr>')
    body, top = "\n".join(lines), f"<thead><tr>{names}</tr></thead>\n" if head else ""
    return f"<table>{caption}\n{top}<tbody>\n{body}\n</tbody></table>"


class HtmlResult:
    """A result that notebooks show as HTML: by default its printed text."""

    def __init_subclass__(cls) -> None:
        # The default repr of a dataclass writes out all arrays.
        if cls.__str__ is not object.__str__ and "__repr__" not in cls.__dict__:
            cls.__repr__ = HtmlResult.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return str(self)

    def _html_parts(self) -> Iterable[str]:
        """Yield the parts of the HTML: the printed text, as a paragraph or preformatted lines."""
        text = str(self)
        return [f"<pre>{escape(text)}</pre>" if "\n" in text else paragraph(text)]

    def _repr_html_(self) -> str:
        """Return the parts, one below the other, with their style sheet."""
        body = "\n".join(filter(None, self._html_parts()))
        style = Path(__file__).with_name("notebook.css").read_text(encoding="utf-8")
        return f'<div class="bochner"><style>{style}</style>\n{body}\n</div>'


class TableResult(HtmlResult):
    """A result that is printed as a title, a table and a note, and shown in notebooks as such."""

    _words: tuple[int, ...] = (0,)  # columns that hold words

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        """Return the title, the lines of the table with its head, and the note."""
        raise NotImplementedError

    def __str__(self) -> str:
        title, lines, note = self._table()
        return "\n".join(filter(None, [title, columns(lines, self._words), note]))

    def _html_parts(self) -> Iterator[str]:
        title, (head, *rows), note = self._table()
        yield html_table(head, rows, title, words=self._words[1:])
        if note:
            yield paragraph(note)
