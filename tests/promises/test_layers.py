"""The architecture, read off the source: who may import whom.

Rows, imports downwards only; parts of one row are strangers to one another. Every import
counts, wherever in the file it stands: inside a function, under ``TYPE_CHECKING``, by
``import_module``.
"""

import ast
import functools
from pathlib import Path

import pytest

import bochner

SOURCE = Path(bochner.__file__).parent

_GROUND = "errors _core data"
_MATHS = f"{_GROUND} kernels solvers sums"
_MIDDLE = f"{_MATHS} features selection certificates"
MAY_IMPORT = {  # a part may import itself and the parts named here, and nothing else
    "errors": "",
    "_native": "",
    "_core": "errors _native",
    "data": "errors _core",
    "kernels": _GROUND,
    "solvers": _GROUND,
    "sums": _GROUND,
    "features": _MATHS,
    "certificates": f"{_MATHS} features",
    "selection": f"{_MATHS} features certificates",
    "models": f"{_MIDDLE} __version__",
    "planner": f"{_MIDDLE} models",
    "landmarks": "features",
    "datasets": "errors",
    "persist": f"{_MIDDLE} landmarks models planner __version__",
    "engines": f"{_MIDDLE} models persist __version__",
    "export": f"{_MIDDLE} models persist __version__",
    "report": f"{_MIDDLE} landmarks models planner persist datasets __version__",
    "cli": f"{_MIDDLE} models planner persist datasets engines report __version__",
}
OPTIONAL = {
    "click",
    "IPython",
    "dask",
    "distributed",
    "pyspark",
    "ray",
    "jinja2",
    "finufft",
    "fsspec",
    "jaxtyping",
    "matplotlib",
    "narwhals",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "skops",
    "torch",
    "xarray",
}
ROWS = [{"errors", "_native"}, {"_core"}, {"data"}, {"kernels", "solvers", "sums"}, {"features"}]
ROWS += [
    {"certificates", "landmarks"},
    {"selection"},
    {"models"},
    {"planner"},
    {"datasets", "persist"},
    {"engines"},
]
ROWS += [{"export", "report"}, {"cli"}]


def files():
    """Every module of the package except the top one, which hands out names of all parts."""
    return sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem != "__init__")


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module_of(path):
    names = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("bochner", *(n for n in names if n != "__init__")))


@functools.cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_names(source):
    """Full names of what a module imports, wherever in the file it does so."""
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant))


def _called(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def violations(part, source):
    """Parts that the module imports and its own part must not."""
    allowed = {part, *MAY_IMPORT[part].split()}
    names = (n for n in imported_names(source) if n.split(".")[0] == "bochner")
    return {n for n in names if "".join(n.split(".")[1:2]) not in allowed}


@pytest.mark.parametrize("path", files(), ids=module_of)
def test_a_part_imports_only_parts_below_it(path):
    assert violations(part_of(path), tree(path)) == set()


def test_every_part_has_its_place():
    assert {part_of(path) for path in files()} <= set(MAY_IMPORT)


def test_the_table_points_downwards_and_rows_are_strangers():
    row = {part: i for i, parts in enumerate(ROWS) for part in parts}
    for part, below in MAY_IMPORT.items():
        assert all(row[other] < row[part] for other in set(below.split()) - {"__version__"})


PLANTED = {
    "inside a function": ("kernels", "def f():\n    from bochner.features import draw"),
    "sideways": ("kernels", "from bochner.solvers import cg"),
    "the whole package": ("persist", "import bochner"),
    "sideways to a single file": ("solvers", "import bochner.sums.moments"),
    "through the package": ("features", "from bochner import models"),
    "for types only": (
        "certificates",
        "if TYPE_CHECKING:\n    from bochner.models import KernelRidge",
    ),
    "by name": ("_core", "importlib.import_module('bochner.kernels')"),
    "an edge from the middle": ("models", "from bochner.persist import save"),
    "a data set that knows the library": ("datasets", "from bochner._core import arrays"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_violation_is_seen(name):
    part, text = PLANTED[name]
    assert violations(part, ast.parse(text))


def test_planted_relative_import_is_seen():
    with pytest.raises(AssertionError, match="relative import"):
        violations("kernels", ast.parse("from . import kernel"))


# ---- circles


def dependencies(modules):
    """Module to modules: what each imports of the package, the longest name that is a module."""
    graph = {}
    for name, source in modules.items():
        found = {n if n in modules else n.rpartition(".")[0] for n in imported_names(source)}
        graph[name] = (found & set(modules)) - {name}
    return graph


def circle(graph):
    """A list of modules that import each other in a ring, or None."""
    done = set()

    def walk(name, trail):
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return None
        rings = (walk(other, [*trail, name]) for other in sorted(graph[name]))
        ring = next((r for r in rings if r), None)
        done.add(name)
        return ring

    return next((ring for name in sorted(graph) if (ring := walk(name, []))), None)


def test_modules_import_each_other_in_no_circle():
    assert circle(dependencies({module_of(p): tree(p) for p in files()})) is None


def test_planted_circle_is_seen():
    modules = {
        "bochner.a": ast.parse("from bochner.b import thing"),
        "bochner.b": ast.parse("import os\nfrom bochner import c"),
        "bochner.c": ast.parse("def late():\n    import bochner.a"),
        "bochner.d": ast.parse("import bochner.a"),
    }
    ring = circle(dependencies(modules))
    assert ring == ["bochner.a", "bochner.b", "bochner.c", "bochner.a"]


def at_once(source):
    """Imports that run as the module is imported itself, those in branches too."""
    statements = list(source.body)
    for node in statements:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            statements.extend(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef | ast.ExceptHandler):
            statements.extend(
                n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt | ast.excepthandler)
            )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def longest_chain(modules):
    """The modules of the longest chain of imports, the first one on top."""
    graph = dependencies({m: ast.Module([*at_once(t)], []) for m, t in modules.items()})

    @functools.cache
    def below(name):
        return max(([name, *below(other)] for other in graph[name]), key=len, default=[name])

    return max(map(below, graph), key=len)


def test_what_a_module_needs_is_at_most_sixteen_imports_deep():
    """A deeper chain knows too much: split what is low from what is high, or import where it is."""
    assert len(longest_chain({module_of(p): tree(p) for p in files()})) - 1 <= 16


def test_planted_chain_is_measured():
    modules = {
        "bochner.a": ast.parse("try:\n    from bochner.b import thing\nexcept ImportError: ..."),
        "bochner.b": ast.parse("from bochner import c"),
        "bochner.c": ast.parse("class C:\n    def late(self):\n        import bochner.d"),
        "bochner.d": ast.parse("import os"),
    }
    assert longest_chain(modules) == ["bochner.a", "bochner.b", "bochner.c"]


# ---- optional packages


def imported_at_once(source):
    """First names of packages that the module imports as it is imported itself."""
    for name in imported_names(ast.Module([*at_once(source)], [])):
        yield name.split(".")[0]


@pytest.mark.parametrize("path", [p for p in files() if part_of(p) != "cli"], ids=module_of)
def test_optional_packages_are_imported_when_used(path):
    assert OPTIONAL.isdisjoint(imported_at_once(tree(path)))


@pytest.mark.parametrize(
    "text",
    ["import pandas", "try:\n    from rich.table import Table\nexcept ImportError:\n    pass"],
)
def test_planted_optional_import_is_seen(text):
    assert not OPTIONAL.isdisjoint(imported_at_once(ast.parse(text)))


# ---- abstract or final


def classes():
    return [
        (module_of(path), node)
        for path in files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    ]


def is_dataclass(node):
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def inherits_from_a_value(pairs):
    """Classes with a base that is a dataclass: fields and overridden methods in two places."""
    values = {node.name for _, node in pairs if is_dataclass(node)}
    return [
        f"{module}.{node.name}"
        for module, node in pairs
        if values & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    ]


def test_nothing_inherits_from_a_final_class():
    assert inherits_from_a_value(classes()) == []


def test_planted_inheritance_from_a_value_is_seen():
    source = ast.parse("@dataclass(frozen=True)\nclass A: ...\nclass B(kernel.A): ...")
    assert inherits_from_a_value([("m", n) for n in source.body]) == ["m.B"]


def calls_of_super(source):
    """What is asked of ``super()``, anywhere in the module."""
    return [
        node.attr
        for node in ast.walk(source)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and _called(node.value) == "super"
    ]


@pytest.mark.parametrize("path", files(), ids=module_of)
def test_super_is_called_only_where_scikit_learn_asks_for_it(path):
    assert set(calls_of_super(tree(path))) <= {"__sklearn_tags__"}


def test_planted_super_is_seen():
    assert calls_of_super(ast.parse("class A(B):\n    def f(self): return super().f()")) == ["f"]


def thawed(pairs):
    """Dataclasses that can change."""
    return [
        f"{module}.{node.name}"
        for module, node in pairs
        if is_dataclass(node)
        and "frozen=True" not in "".join(map(ast.unparse, node.decorator_list))
    ]


def test_values_are_frozen():
    """In every part but those that count rows as they go by."""
    pairs = [(m, node) for m, node in classes() if m.split(".")[1] not in {"_core", "data", "cli"}]
    assert thawed(pairs) == []


def test_planted_dataclass_that_changes_is_seen():
    assert thawed([("m", ast.parse("@dataclass\nclass A: ...").body[0])]) == ["m.A"]


DECOMPOSITIONS = {"cho_factor", "cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals", "eig"}


def decompositions_on_all_threads(source):
    """SciPy's decompositions that a module imports: those of ``_core.blas`` use one thread."""
    taken = {name.rpartition(".") for name in imported_names(source)}
    return {last for first, _, last in taken if first == "scipy.linalg" and last in DECOMPOSITIONS}


@pytest.mark.parametrize("path", files(), ids=module_of)
def test_decompositions_are_those_that_use_one_thread(path):
    assert not decompositions_on_all_threads(tree(path)), "import them from bochner._core.blas"


def test_planted_decomposition_is_seen():
    assert decompositions_on_all_threads(ast.parse("from scipy.linalg import eigh")) == {"eigh"}
    assert not decompositions_on_all_threads(ast.parse("from scipy.linalg import solve_triangular"))
