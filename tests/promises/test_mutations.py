"""The tool that plants faults plants each of them, once, and nothing else."""

import ast
import os
import pickle

import mutations
import pytest

SOURCE = '''
LIMIT = 3


def f(x: int = 5) -> float:
    """Text with 7 and 1 + 1."""
    if x < 2:
        raise ValueError(f"{x} is below {2 + 0}")
    return -x * 0.5 + LIMIT
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(mutations, "PACKAGE", tmp_path)
    mutations.package.cache_clear()
    yield path
    mutations.package.cache_clear()


def test_every_number_sign_and_comparison_is_changed_once(module):
    """3; the default 5 of a parameter is not looked at; <, 2; +, ×, −, 0.5; no message or type."""
    answers = {}
    for site in mutations.sites(module):
        names: dict = {}
        exec(mutations.mutated(module, site.number), names)  # noqa: S102  of the source above
        try:
            found = names["f"](4)
        except ValueError as refused:
            found = str(refused)
        answers[site.change] = (names["LIMIT"], found, site.line)
    assert answers == {
        "3 becomes 4": (4, 2.0, 2),
        "Lt becomes GtE": (3, "4 is below 2", 7),
        "2 becomes 3": (3, 1.0, 7),
        "Add becomes Sub": (3, -5.0, 9),
        "Mult becomes Div": (3, -5.0, 9),
        "a minus sign is left out": (3, 5.0, 9),
        "0.5 becomes 1.0": (3, -1.0, 9),
    }
    assert ast.unparse(ast.parse(module.read_text())) == ast.unparse(ast.parse(SOURCE))


def test_the_side_that_numpy_finds_is_left_as_it_is_and_an_end_is_not(module):
    module.write_text("rows = x.reshape(-1, 3)[-1]")
    changed = [mutations.mutated(module, site.number) for site in mutations.sites(module)]
    assert [2 in code.co_consts or -2 in code.co_consts for code in changed] == [False, True]
    assert 4 in changed[0].co_consts


def test_lines_can_be_named(module):
    assert [site.change for site in mutations.sites_at(["module.py:7"])] == [
        "Lt becomes GtE",
        "2 becomes 3",
    ]
    assert len(mutations.sites_of(["."])) == 7


def test_a_change_runs_with_its_statement_and_a_constant_with_its_readers(module):
    """Through other constants and defaults too; fields with methods, what has no name with all."""
    module.write_text(
        "LIMIT = 3\nTWICE = sum(2 * LIMIT for x in range(1))\n\n\ndef inner(x, most=TWICE):\n    if x:\n"
        "        return (\n            x\n            + most\n        )\n    return LIMIT\n\n\n"
        "def outer(x):\n    x = abs(x)\n    return inner(x)\n\n\nprint(1)\n\n\n"
        "class Bare:\n    LIMIT = 5\n\n\nclass Kind:\n    LIMIT = 6\n\n    def at(self):\n"
        "        return self\n"
    )
    found = {site.line: mutations.readers(site) for site in mutations.sites(module)}
    every = {f"module.py:{line}" for line in (6, 7, 11, 15, 16, 30)}
    assert found == {
        1: {"module.py:11", "module.py:16"},
        2: {"module.py:16"},
        8: {"module.py:7"},
        19: every,
        23: {"module.py:11", "module.py:16"},
        27: {"module.py:30"},
    }


def test_quick_tests_that_reach_little_come_first_and_many_cases_of_one_later():
    costs = [(0.1, "a[1]"), (0.2, "a[2]"), (0.3, "a[3]"), (0.4, "b"), (0.5, "c[1]"), (0.6, "c[2]")]
    assert mutations.in_turn(costs) == ["a[1]", "b", "c[1]", "a[2]", "c[2]", "a[3]"]


TESTS = """
import importlib.util
import sys

import pytest

spec = importlib.util.spec_from_file_location("bochner.module", {path!r})
module = importlib.util.module_from_spec(spec)
sys.modules["bochner.module"] = module
spec.loader.exec_module(module)


@pytest.fixture(scope="module")
def shared():
    return module.f(4)


def test_one(shared):
    assert shared == 1.0


def test_two(shared):
    assert shared == 1.0


def test_kept():
    assert module.kept(1) == 1.0


def test_kept_too():
    assert module.kept(1) == 1.0


def test_refused():
    with pytest.raises(ValueError, match="below"):
        module.f(1)


def test_that_fails():
    assert module.f(4) == 2.0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be parted here")
def test_the_record_has_what_each_test_reaches_with_what_is_shared_or_kept(module, tmp_path):
    """A fixture and a cache are filled by the first test that asks; what fails is left out."""
    kept = "\n\n@functools.cache\ndef kept(x):\n    return x * 1.0\n"
    module.write_text("import functools\n" + SOURCE + kept)
    tests = tmp_path / "test_reached.py"
    tests.write_text(TESTS.format(path=str(module)))
    codes, plugin = (
        {module: mutations.traced(module)},
        mutations.Reached(tmp_path / "record", "now"),
    )
    arguments = [str(tests), "--rootdir", str(tmp_path)]
    assert mutations.pytest_code(arguments, 60.0, codes.get, [plugin]) == 1
    of, record = pickle.loads((tmp_path / "record").read_bytes())
    assert of == "now"
    assert {test.split("::")[1]: sorted(reached) for test, (_, reached) in record.items()} == {
        "test_one": ["module.py:10", "module.py:8"],
        "test_two": ["module.py:10", "module.py:8"],
        "test_kept": ["module.py:15"],
        "test_kept_too": ["module.py:15"],
        "test_refused": ["module.py:8", "module.py:9"],
    }


def test_known_equivalents_are_still_in_the_source():
    for path, text, change in mutations.EQUIVALENT:
        found = mutations.sites(mutations.PACKAGE / path)
        assert any((site.text, site.change) == (text, change) for site in found), (path, text)


def test_named_numbers_that_no_answer_depends_on_are_still_in_the_source():
    """On one line each: changes of it are let off, and those of no other line of the name."""
    for files in mutations.WORKED_ON.values():
        for path, names in files.items():
            sites = [*mutations.sites(mutations.PACKAGE / path)]
            for name in names:
                off = [s for s in sites if name in s.text.split(" = ")[0].split(", ")]
                assert off, (path, name)
                assert len({site.line for site in off}) == 1
                assert all(map(mutations.known_equal, off))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be parted here")
def test_statuses_are_those_of_the_tests(tmp_path):
    good, bad, endless = (tmp_path / f"test_{name}.py" for name in ("good", "bad", "endless"))
    good.write_text("def test_it():\n    assert True\n")
    bad.write_text("def test_it():\n    assert False\n")
    endless.write_text("def test_it():\n    while True:\n        pass\n")
    codes = [
        mutations.pytest_code([str(file), "--rootdir", str(tmp_path)], seconds, None, [])
        for file, seconds in ((good, 60.0), (bad, 60.0), (endless, 2.0))
    ]
    assert codes[:2] == [0, 1]
    assert codes[2] < 0
