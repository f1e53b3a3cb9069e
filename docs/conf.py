"""How Sphinx makes the pages: ``make docs``. It fetches no file from the web."""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pybtex.database import parse_file
from pybtex.plugin import find_plugin

from bochner import __version__

HERE = Path(__file__).parent

project = "bochner"
author = "bochner developers"
project_copyright = "bochner developers"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "api/templates", "auto_examples/**/*.ipynb", "examples"]
highlight_language = "none"  # an indented formula is not Python
nitpicky = False
# Learners inherit properties, so that one attribute name has a page of each class that defines it.
suppress_warnings = ["ref.python"]

# ---- pages

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

# ---- names

autosummary_generate = True
templates_path = ["api/templates"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()

# ---- examples

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "min_reported_time": 10_000,  # times depend on the machine that made the pages
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "copyfile_regex": "",
}

# ---- look

html_theme = "pydata_sphinx_theme"
html_title = "bochner"
html_static_path = ["_static"]
html_css_files = ["bochner.css"]
html_show_sourcelink = False
WHOLE_WIDTH = ("index", "choose", "failures", "compare", "how")  # pages without a sidebar
html_sidebars: dict[str, list[str]] = {name: [] for name in WHOLE_WIDTH}
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "header_links_before_dropdown": 8,
    "footer_start": ["copyright"],
    "footer_end": [],
}

# ---- citations: [@key] and [@key, eq. 3] on pages, which end with their references

CITED = re.compile(r"\[@(\w+)((?:, [^\]]+)?)\]")
WORKS = parse_file(HERE / "references.bib").entries
STYLE, MARKDOWN = (
    find_plugin(f"pybtex.{kind}", name)()
    for kind, name in (("style.formatting", "unsrt"), ("backends", "markdown"))
)


def in_words(key: str) -> str:
    """Return ``Han et al. 2022`` for a key."""
    work = WORKS[key]
    names = [" ".join(person.last_names).strip("{}") for person in work.persons["author"]]
    people = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if names[1:] else "")
    return f"{people} {work.fields['year']}"


def cited(line: str, fenced: bool) -> str:
    """Return a line of Markdown with keys as links to the references, or as text if ``fenced``."""
    link = "({1})" if fenced else r'\[<a href="#{0}">{1}</a>{2}\]'
    return CITED.sub(lambda m: link.format(m[1], in_words(m[1]) + m[2] * fenced, m[2]), line)


def references(keys: Iterable[str]) -> Iterator[str]:
    """Yield a list item for each work."""
    for key in keys:
        text = STYLE.format_entry(key, WORKS[key]).text.render(MARKDOWN)
        yield f'- <span id="{key}"></span>{text}'


def with_citations(app: Any, name: str, source: list[str]) -> None:
    """Replace keys in brackets by links, and add the references of a page."""
    if Path(app.env.doc2path(name)).suffix != ".md":
        return
    fenced, lines = False, []
    for line in source[0].splitlines():
        fenced ^= line.startswith("```")
        lines.append(cited(line, fenced or line.startswith("    ")))
    keys = (
        WORKS if name == "bibliography" else dict.fromkeys(m[1] for m in CITED.finditer(source[0]))
    )
    if keys:
        lines += ["", *["## References"] * (name != "bibliography"), "", *references(keys)]
    source[0] = "\n".join(lines) + "\n"


# ---- docstrings: escape bars of absolute values, trailing underscores, and "D." at line starts

LITERAL = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_?)")
#: Links of inherited docstrings to pages of scikit-learn.
LINK = re.compile(r":ref:`(?:([^`<]*?)\s*<)?([^`<>]+)>?`")
#: Formulas of inherited docstrings, for which pages would load MathJax.
FORMULA = re.compile(r":math:`([^`]+)`")


def plain(text: str) -> str:
    """Return text with escaped bars and trailing underscores."""
    text = re.sub(r"(?<!\\)\|", r"\\|", text)
    return re.sub(r"(?<=\w)_(?=[^\w`]|$)", r"\\_", text)


def escaped(line: str) -> str:
    """Return a line of reStructuredText, escaped except for literals and roles."""
    if re.match(r"\s*(\.\. |>>>|\.\.\. |:\w+:)", line):
        return line
    parts = LITERAL.split(re.sub(r"^(\s*)(?=[A-Za-z]\.(\s|$))", r"\1\\", line))
    return "".join(part if i % 2 else plain(part) for i, part in enumerate(parts))


def as_written(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the lines of a docstring, except for literal blocks."""
    depth = None
    if str(getattr(obj, "__module__", "")).startswith("sklearn"):
        lines[:] = [LINK.sub(lambda m: m[1] or m[2], line) for line in lines]
        lines[:] = [FORMULA.sub(r"``\1``", line).replace(r"\frac{u}{v}", "u/v") for line in lines]
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if depth is not None and line.strip() and indent <= depth:
            depth = None
        if depth is None:
            lines[i] = escaped(line)
            depth = indent if line.rstrip().endswith("::") else None


def with_arguments(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str, Any] | None:
    """Return the signature of ``__init__`` if ``__new__`` only checks the names of arguments."""
    if what != "class" or "**" not in (signature or ""):
        return None
    parameters = inspect.signature(obj).parameters.values()
    plain = [p.replace(annotation=p.empty) for p in parameters]
    return str(inspect.Signature(plain)), returns


def setup(app: Any) -> None:
    """Connect the three functions above to Sphinx."""
    app.connect("autodoc-process-signature", with_arguments)
    app.connect("source-read", with_citations)
    app.connect("autodoc-process-docstring", as_written, priority=900)
