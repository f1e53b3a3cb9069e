"""What several tests need of the inside of the package, which has no public name.

Constants and functions of the inside are replaced by ``monkeypatch.setattr("bochner....", value)``.
"""

from pkgutil import resolve_name

from bochner._core import native

#: Whether loops are compiled; else all is pure Python.
HAVE_NATIVE = native.HAVE_NATIVE


def in_pure_python(monkeypatch):
    """Let the twins of the compiled loops do the work."""
    monkeypatch.setattr(native, "_compiled", None)
    monkeypatch.setattr(native, "_said", {"pure Python"})


def seen_by(monkeypatch, name):
    """A list that gets the arguments of every call of a function of the package."""
    calls, usual = [], resolve_name(name)
    monkeypatch.setattr(name, lambda *a: calls.append(a) or usual(*a))
    return calls
