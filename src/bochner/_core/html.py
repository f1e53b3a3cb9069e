"""Results as HTML: tables and facts that fetch nothing, for notebooks and for pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

#: Colours are inherited from the text, for light and dark themes.
STYLE = (
    ".bochner{font-size:13px;line-height:1.4;color:inherit;max-width:60em;overflow-x:auto}"
    ".bochner table{border-collapse:collapse;margin:.3em 0;color:inherit;background:none}"
    ".bochner caption{caption-side:top;text-align:left;padding:.2em 0;color:inherit;opacity:.75}"
    ".bochner tr,.bochner tr:nth-child(even){background:none}"
    ".bochner th,.bochner td{padding:.15em .8em .15em 0;vertical-align:top;text-align:right;"
    "border:0;color:inherit;background:none;font-variant-numeric:tabular-nums}"
    ".bochner th[scope=row],.bochner .words{text-align:left;white-space:normal}"
    ".bochner th[scope=row]{font-weight:normal}"
    ".bochner thead th{border-bottom:1px solid currentColor;opacity:.75}"
    ".bochner thead th:first-child{text-align:left}"
    ".sk-toggleable .bochner{padding:.2em .6em}"
    ".bochner tr.best>*{font-weight:bold}"
    ".bochner pre{background:none;color:inherit;border:0;padding:0;margin:.3em 0;overflow-x:auto}"
    ".bochner p{margin:.3em 0}"
)


_WORDS = ' class="words"'


class HtmlPart(Protocol):
    """A piece of what is shown."""

    def html(self) -> str:
        """Return it as HTML."""


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str

    def html(self) -> str:
        """Return it as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Image:
    """A picture that the page itself holds."""

    source: str
    title: str

    def html(self) -> str:
        """Return it on white, as it was drawn for."""
        return (
            f'<img src="{escape(self.source)}" alt="{escape(self.title)}" '
            'style="background:white;max-width:100%">'
        )


@dataclass(frozen=True)
class Printed:
    """Text whose columns stand below one another."""

    text: str

    def html(self) -> str:
        """Return it as HTML."""
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True)
class Facts:
    """Names with values, one per line."""

    pairs: tuple[tuple[str, str], ...]

    def html(self) -> str:
        """Return a table of two columns, without lines that have no words."""
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td class="words">{escape(words)}</td></tr>'
            for name, words in self.pairs
            if words
        )
        return f"<table><tbody>{rows}</tbody></table>"


@dataclass(frozen=True)
class HtmlTable:
    """Rows of cells under a head: the first cell of a row names it, others are numbers.

    ``marked`` is the chosen row; ``words`` are the columns that hold sentences.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    marked: int = -1
    words: tuple[int, ...] = ()

    def html(self) -> str:
        """Return the table."""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        head = "".join(
            f'<th scope="col"{_WORDS * (j in self.words)}>{escape(name)}</th>'
            for j, name in enumerate(self.head)
        )
        rows = "\n".join(map(self._row, range(len(self.rows))))
        return (
            f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
        )

    def _row(self, i: int) -> str:
        first, *rest = self.rows[i]
        cells = "".join(
            f"<td{_WORDS * (j in self.words)}>{escape(cell)}</td>"
            for j, cell in enumerate(rest, start=1)
        )
        best = ' class="best"' if i == self.marked else ""
        return f'<tr{best}><th scope="row">{escape(first)}</th>{cells}</tr>'


def fragment(parts: Iterable[HtmlPart]) -> str:
    """Return parts one below the other, with the style that they need and nothing fetched."""
    body = "\n".join(filter(None, (part.html() for part in parts)))
    return f'<div class="bochner"><style>{STYLE}</style>\n{body}\n</div>'


def framed(page: str, title: str, height: int = 640) -> str:
    """Return a page in a frame, which isolates its style from the notebook's."""
    return (
        f'<iframe title="{escape(title)}" srcdoc="{escape(page)}" width="100%" height="{height}" '
        'style="border:1px solid currentColor" sandbox="allow-same-origin"></iframe>'
    )


class HtmlResult:
    """A result that notebooks show as HTML: its parts, or its printed text.

    A terminal shows the text.
    """

    def __init_subclass__(cls) -> None:
        # The default repr of a dataclass writes out all arrays.
        if cls.__str__ is not object.__str__ and "__repr__" not in cls.__dict__:
            cls.__repr__ = HtmlResult.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return str(self)

    def _html_parts(self) -> Iterable[HtmlPart]:
        """Yield the parts: a sentence, or lines as printed."""
        text = str(self)
        return [Printed(text) if "\n" in text else Words(text)]

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        return fragment(self._html_parts())
