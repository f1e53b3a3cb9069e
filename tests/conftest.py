"""Settings, hooks and fixtures of all tests."""

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

# The same cases in each run, so that a failure is caused by the last change of the code.
# `pytest tests/laws --hypothesis-profile=search` tries new cases.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

# Shapes are checked at every call: see checked_shapes.py, and promises/test_source_rules.py.
if os.environ.get("BOCHNER_CHECK_SHAPES"):
    import_module("checked_shapes").install()

# SciPy reads this when it is imported; without it scikit-learn skips its array API checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")


def fix_seeds(name, config):
    """Derive seeds of unseeded random numbers from a name, except with the search profile."""
    if config.getoption("--hypothesis-profile", None) == "search":
        return
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    import_module("bochner._core.random").fresh_seed = lambda: int(rng.integers(2**63))
    np.random.seed(rng.integers(2**32))  # noqa: NPY002  scikit-learn uses it without random_state


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Fix the seeds of a shared fixture: its values do not depend on the test that runs first."""
    fix_seeds(f"{fixturedef.baseid}::{fixturedef.argname}", request.config)


#: A message names the class or the argument first; then it states the requirement or the remedy.
SENTENCE = re.compile(r"[\w'(<].*(\b(must|require[sd]?|needs?)\b|[.;] [\w'])", re.DOTALL)

#: Phrases of messages that state the fault and the requirement in one clause.
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

errors, messages = import_module("bochner.errors"), []


def record_message(error, *args, **named):
    """Create an error, and record its message if bochner raises it."""
    super(errors.BochnerError, error).__init__(*args, **named)
    if sys._getframe(1).f_code.co_filename.startswith(str(Path(errors.__file__).parent)):
        messages.append(str(error))


errors.BochnerError.__init__ = record_message


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_call(item):
    """Fix the seeds of a test, and check the form of all messages that bochner raises in it."""
    fix_seeds(item.nodeid, item.config)
    messages.clear()
    result = yield
    odd = [m for m in messages if not SENTENCE.match(m) and not any(words in m for words in BRIEF)]
    assert not odd, f"messages must state the requirement or the remedy; got {odd}"
    return result


#: Text of files whose tests share a fixture of the module, or processes of Dask.
SHARED = re.compile('scope="module"|dask_client')


def group_of(nodeid):
    """Return the group of a test: one process runs a group and makes shared fixtures once."""
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
    """Return a scheduler by groups for `--dist loadgroup`: that of xdist 3.8 fails in pytest 9.2."""
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling
    split = lambda self, nodeid: group_of(nodeid)
    by_group = type("Scheduling", (scheduling,), {"_split_scope": split})
    return by_group(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark cases after the first ``main_cases`` of a test as slow."""
    cases = Counter()
    for item in items:
        assert " at 0x" not in item.nodeid, f"the name differs between processes: {item.nodeid}"
        function = item.nodeid.split("[")[0]
        cases[function] += 1
        main = item.get_closest_marker("main_cases")
        if main and cases[function] > main.args[0]:
            item.add_marker("slow")


@pytest.fixture(scope="module")
def one_thread():
    """Use one BLAS thread: small matrices gain nothing from more, and lose on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def ctrl_c():
    """Handle Ctrl-C as in a terminal; a process in the background would ignore it."""
    original = signal.getsignal(signal.SIGINT)
    if original is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, original)
