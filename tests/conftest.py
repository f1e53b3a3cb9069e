"""What holds for every test."""

import os
import re
import signal
import sys
import zlib
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

pytest.register_assert_rewrite("layouts", "tolerance", "pages")

# The same cases in each run, so that a failure is of the change at hand. New cases are sought by
# `pytest tests/laws --hypothesis-profile=search`.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

# Shapes of signatures checked at every call: see checked_shapes.py, and promises/test_source_rules.py.
if os.environ.get("BOCHNER_CHECK_SHAPES"):
    import_module("checked_shapes").install()

# SciPy reads it when it is imported; scikit-learn skips its array API checks without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")


def without_lottery(name, config):
    """Give what asks for fresh numbers those of a name, but where new cases are sought."""
    if config.getoption("--hypothesis-profile", None) == "search":
        return
    numbers = np.random.default_rng(zlib.crc32(name.encode()))
    import_module("bochner._core.random").fresh_seed = lambda: int(numbers.integers(2**63))
    np.random.seed(numbers.integers(2**32))  # noqa: NPY002  scikit-learn's, where it has no seed


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share is the same whichever of them is first."""
    without_lottery(f"{fixturedef.baseid}::{fixturedef.argname}", request.config)


#: An error of bochner names who speaks or an argument; then what is required, or what to do.
SENTENCE = re.compile(r"[\w'(<].*(\b(must|require[sd]?|needs?)\b|[.;] [\w'])", re.DOTALL)

#: Words of other messages, which say it all in one clause.
BRIEF = (
    "cannot be",
    "has no argument",
    "has no parameter",
    "no method supports",
    "none of the widths",
    "exact features",
    "exact finite features",
    "has more than",
    "is expecting",  # scikit-learn's own words
    "there is no file",
    "draw: pass X",
    "set return_std or",
)

errors, said = import_module("bochner.errors"), []


def listened(error, *args, **named):
    """Keep the message of an error that bochner itself makes."""
    super(errors.BochnerError, error).__init__(*args, **named)
    if sys._getframe(1).f_code.co_filename.startswith(str(Path(errors.__file__).parent)):
        said.append(str(error))


errors.BochnerError.__init__ = listened


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_call(item):
    """A test has the same draws in each run; errors in it say who requires what."""
    without_lottery(item.nodeid, item.config)
    said.clear()
    found = yield
    odd = [m for m in said if not SENTENCE.match(m) and not any(words in m for words in BRIEF)]
    assert not odd, f"errors must say who requires what, or what to do; got {odd}"
    return found


#: What tests of a file share: a fixture of its own, or processes of Dask, Ray and Spark.
SHARED = re.compile('scope="module"|dask_client')


def together(nodeid):
    """Return what is alike of tests that one process runs, so that what they share is made once."""
    file, _, name = nodeid.partition("::")
    if name.startswith("test_the_law_holds["):
        return name.rpartition("-")[2]  # fits of this learner
    return file if shares(file) else nodeid


@cache
def shares(file):
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    return SHARED.search(text) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Groups of `--dist loadgroup`; those of pytest-xdist 3.8 need a pytest before 9.2."""
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling
    split = lambda self, nodeid: together(nodeid)
    ours = type("Scheduling", (scheduling,), {"_split_scope": split})
    return ours(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Cases beyond those of the main tier are slow."""
    cases = Counter()
    for item in items:
        assert " at 0x" not in item.nodeid, f"no two processes name this case alike: {item.nodeid}"
        function = item.nodeid.split("[")[0]
        cases[function] += 1
        main = item.get_closest_marker("main_cases")
        if main and cases[function] > main.args[0]:
            item.add_marker("slow")


@pytest.fixture(scope="module")
def one_thread():
    """Small matrices gain nothing from threads, and on a busy machine lose much by them."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a terminal: what a shell starts in the background ignores it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
