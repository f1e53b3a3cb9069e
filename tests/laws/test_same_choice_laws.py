"""The same is chosen on every machine: BLAS kernels, threads, instruction sets, pure Python."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from inside import levels
from tolerance import of

#: Fits whose every choice is open, on a table of two hundred rows.
PROGRAM = """
import json, warnings
import numpy as np
import bochner as bo
warnings.simplefilter("ignore")
rng = np.random.default_rng(3)
X = rng.standard_normal((260, 4)) * [1.0, 40.0, 0.3, 1.0]
y = np.sin(2 * X[:, 0] + X[:, 1] / 40) + X[:, 2] + 0.2 * rng.standard_normal(260)
models = {
    "auto": bo.KernelRidge("auto", n_features=96, random_state=0),
    "named": bo.KernelRidge("matern32", n_features="auto", random_state=0),
    "learned": bo.KernelRidge(metric="learned", n_features=96, random_state=0),
    "process": bo.GaussianProcessRegressor(n_features=96, random_state=0),
}
for name, model in models.items():
    model.fit(X[:200], y[:200])
    choice = [repr(model.kernel_), repr(model.choice_.method), model.map_.n_features]
    alpha = float(np.max(getattr(model, "alpha_", 1.0)))
    print(json.dumps([name, choice, alpha, model.predict(X[200:]).tolist()]))
"""

#: What each process sets, beside one thread of BLAS. Waiting threads sleep: a core may be taken.
MACHINES = {
    "two threads": {
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_THREAD_TIMEOUT": "4",
    },
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "pure Python": {"BOCHNER_PURE_PYTHON": "1"},
}
MORE = {}
MORE |= {level: {"BOCHNER_INSTRUCTIONS": level} for level in levels()}
if "avx2" in levels():
    MORE |= {core: {"OPENBLAS_CORETYPE": core} for core in ("Haswell", "Zen")}
if "avx512" in levels():
    MORE["SkylakeX"] = {"OPENBLAS_CORETYPE": "SkylakeX"}


def fitted(variables):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        timeout=600,
        check=True,
        capture_output=True,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def here():
    return fitted({})


def assert_same(found, expected):
    """The choices to the last bit; what is solved to rounding times its condition number.

    Rows of features have at most norm one, so that of G + αI is at most 1 + n/α, n = 200.
    """
    assert len(found) == len(expected) == 4
    for (name, choice, alpha, answers), (_, chosen, penalty, wanted) in zip(
        found, expected, strict=True
    ):
        assert choice == chosen, name
        assert np.isclose(alpha, penalty, rtol=1e-9), name
        off = np.abs(np.subtract(answers, wanted)).max()
        assert off <= of(np.float64) * (1 + 200 / alpha) * np.abs(wanted).max(), name


@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_kernel_method_width_and_penalty_are_chosen(machine, here):
    assert_same(fitted(MACHINES[machine]), here)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MORE)
def test_the_same_is_chosen_with_every_instruction_set(machine, here):
    assert_same(fitted(MORE[machine]), here)
