"""Arrays have the shapes that signatures state."""

import json
import os
import subprocess
import sys

import checked_shapes
import pytest


@pytest.mark.slow
def test_arrays_have_the_shapes_that_signatures_state():
    """Public calls of every kind on small data, and one planted fault, in a process of their own.

    Checking is a fifth of the time of a test: ``BOCHNER_CHECK_SHAPES=1 make test`` checks all.
    """
    done = subprocess.run(
        [sys.executable, checked_shapes.__file__],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    planted = found["wrong"].pop("planted")
    assert "parameters of bochner._core.blas.product" in planted
    assert found["wrong"] == {}
    assert found["checked"] > 700
