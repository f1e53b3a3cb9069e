"""The tool that plants faults plants each of them, once, and nothing else."""

import ast
import os

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
    return path


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


def test_lines_can_be_named(module):
    assert [site.change for site in mutations.sites_at(["module.py:7"])] == [
        "Lt becomes GtE",
        "2 becomes 3",
    ]
    assert len(mutations.sites_of(["."])) == 7


def test_tests_are_sought_by_what_reads_the_changed_line(module):
    """Private functions and constants are named in no test: those that read them are."""
    module.write_text(
        "LIMIT = 3\n\n\ndef _inner(x):\n    return x + LIMIT\n\n\ndef _between(x):\n"
        "    return _inner(x)\n\n\ndef outer(x):\n    return _between(x)\n\n\n"
        "def other(x):\n    return outer(x)\n"
    )
    constant, addition = list(mutations.sites(module))
    assert mutations.around(addition) == {"_inner", "_between", "outer"}
    assert mutations.around(constant) == {"_inner", "_between", "outer"}


def test_known_equivalents_are_still_in_the_source():
    for path, text, change in mutations.EQUIVALENT:
        found = mutations.sites(mutations.PACKAGE / path)
        assert any((site.text, site.change) == (text, change) for site in found), (path, text)


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
