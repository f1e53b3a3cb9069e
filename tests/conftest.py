"""What holds for every test."""

import os
from importlib import import_module

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

pytest.register_assert_rewrite("layouts", "tolerance", "pages")

# The same cases in each run, so that a failure is of the change at hand. New cases are sought by
# `pytest tests/laws --hypothesis-profile=search`.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

# Shapes of signatures checked at every call: see checked_shapes.py, and promises/test_shapes.py.
if os.environ.get("BOCHNER_CHECK_SHAPES"):
    import_module("checked_shapes").install()

# SciPy reads it when it is imported; scikit-learn skips its array API checks without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")


@pytest.fixture(scope="module")
def one_thread():
    """Small matrices gain nothing from threads, and on a busy machine lose much by them."""
    with threadpool_limits(1):
        yield
