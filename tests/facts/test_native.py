"""Compiled loops, compared with their NumPy twins and with extended precision."""

import os
import subprocess
import sys
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from internals import with_threads
from layouts import between_bytes

from bochner._core import native
from bochner._core.threads import get_num_threads, set_num_threads
from bochner.errors import InvalidInput
from bochner.kernels import Matern

DTYPES = [np.float32, np.float64]
NONE = np.empty(0)
SHAPES = [  # rows, inputs, columns: one, odd, around the sizes of a vector, a tile and a strip
    (1, 1, 1),
    (2, 3, 5),
    (5, 1, 8),
    (6, 10, 16),
    (7, 31, 17),
    (13, 33, 33),
    (193, 2, 7),
    (9, 4, 511),
    (9, 4, 513),
    (3, 300, 130),
    (3, 5000, 9),
]
PROFILES = [
    *("gaussian", "exponential", "matern32", "matern52"),
    *("rational_quadratic", "laplace", "cauchy"),
]
TURN = 2 * np.longdouble("3.14159265358979323846264338327950288")

if not native.HAVE_NATIVE:
    if os.environ.get("BOCHNER_REQUIRE_ALL") == "1":
        pytest.fail("the compiled module is required here, but missing")
    pytest.skip("built without a compiler: only the twins exist", allow_module_level=True)

from bochner import _native  # noqa: E402


@pytest.fixture(params=_native.levels())
def level(request):
    """Set each instruction set of this processor in turn."""
    original = _native.get_level()
    _native.set_level(request.param)
    yield request.param
    _native.set_level(original)


def data(n, d, m, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    T = (rng.standard_normal((d, m)) / np.sqrt(d)).astype(dtype)
    Y = rng.standard_normal((m, d)).astype(dtype)
    X.flags.writeable = T.flags.writeable = Y.flags.writeable = False
    return X, T, Y


def turns(X, T, b=0):
    """Return the phases in turns in extended precision, and a bound of their rounding errors."""
    X, T = X.astype(np.longdouble), T.astype(np.longdouble)
    return X @ T + b, (np.abs(X) @ np.abs(T) + np.abs(b)) * (X.shape[1] + 2)


def slow_radial(X, Y, profile, a):
    """Return the profile by its formula, in extended precision."""
    difference = X.astype(np.longdouble)[:, None, :] - Y.astype(np.longdouble)[None, :, :]
    s = np.square(difference).sum(axis=-1)
    r = np.sqrt(s)
    root3, root5 = np.sqrt(np.longdouble(3)), np.sqrt(np.longdouble(5))
    return {
        "gaussian": lambda: np.exp(-s / 2),
        "exponential": lambda: np.exp(-r),
        "matern32": lambda: (1 + root3 * r) * np.exp(-root3 * r),
        "matern52": lambda: (1 + root5 * r + 5 * s / 3) * np.exp(-root5 * r),
        "rational_quadratic": lambda: (1 + s / (2 * np.longdouble(a))) ** -np.longdouble(a),
        "laplace": lambda: np.exp(-np.abs(difference).sum(axis=-1)),
        "cauchy": lambda: np.prod(1 / (1 + np.square(difference)), axis=-1),
    }[profile]()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("phases", [False, True])
def test_cosines_and_sines_agree_with_extended_precision(shape, dtype, phases, level):
    X, T, _ = data(*shape, dtype)
    b = np.random.default_rng(1).random(shape[2]).astype(dtype) if phases else 0
    P, rounding = turns(X, T, b)
    Z = native.waves(X, T, 0.25, b if phases else None)
    expected = np.cos(TURN * P) if phases else np.hstack([np.cos(TURN * P), np.sin(TURN * P)])
    assert Z.dtype == dtype
    bound = 0.5 * np.finfo(dtype).eps * (1 + TURN * rounding)
    assert np.all(np.abs(Z - expected / 4) <= np.tile(bound, Z.shape[1] // shape[2]))


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1.6e-7), (np.float64, 3e-16)])
def test_errors_of_cosines_and_sines_are_within_their_limit(dtype, limit, level):
    x = np.linspace(-1.3, 1.3, 200_001).astype(dtype)[:, None]
    Z = native.waves(x, np.ones((1, 1), dtype), 1.0)
    angle = TURN * x[:, 0].astype(np.longdouble)
    assert np.abs(Z[:, 0] - np.cos(angle)).max() <= limit
    assert np.abs(Z[:, 1] - np.sin(angle)).max() <= limit


@pytest.mark.parametrize("dtype", DTYPES)
def test_huge_arguments_are_reduced_exactly(dtype, level):
    x = np.ldexp(np.random.default_rng(2).uniform(1, 2, 100), np.arange(0, 100)).astype(dtype)
    x = np.concatenate([x, -x, np.array([1e6, 1e6 + 0.125, 2**21 + 0.25, 2**23 + 1, 2**47], dtype)])
    Z = native.waves(x[:, None], np.ones((1, 1), dtype), 1.0)
    with mpmath.workdps(60):
        angle = [2 * mpmath.pi * mpmath.mpf(float(v)) for v in x]
        cosines = np.array([float(mpmath.cos(a)) for a in angle])
        sines = np.array([float(mpmath.sin(a)) for a in angle])
    np.testing.assert_allclose(Z[:, 0], cosines, atol=2 * np.finfo(dtype).eps, rtol=0)
    np.testing.assert_allclose(Z[:, 1], sines, atol=2 * np.finfo(dtype).eps, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("profile", PROFILES)
def test_kernel_values_agree_with_extended_precision(profile, shape, dtype, level):
    X, _, Y = data(*shape, dtype)
    slow = slow_radial(X, Y, profile, 0.7)
    K = native.radial(X, Y, profile, 0.7)
    assert K.dtype == dtype
    with np.errstate(divide="ignore"):
        exponent = np.maximum(1, -np.log(np.maximum(slow, np.finfo(dtype).tiny)))
    bound = slow * exponent * (4 + shape[1]) * np.finfo(dtype).eps + 2 * np.finfo(dtype).tiny
    assert np.all(np.abs(K - slow) <= bound)


def calls(dtype, d, m):
    _, T, Y = data(1, d, m, dtype)
    b = np.random.default_rng(1).random(m).astype(dtype)
    yield lambda X: native.waves(X, T, 0.3)
    yield lambda X: native.waves(X, T, 0.3, b)
    for profile in PROFILES:
        yield lambda X, profile=profile: native.radial(X, Y, profile, 0.7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("d", "m"), [(3, 70), (10, 600), (33, 20), (800, 33)])
def test_bits_do_not_depend_on_other_rows(d, m, dtype, level):
    X = data(230, d, m, dtype)[0]
    for call in calls(dtype, d, m):
        joint_fit = call(X)
        edges = [0, 1, 3, 4, 11, 17, 100, 229, 230]
        pieces = np.concatenate([call(X[a:b]) for a, b in pairwise(edges)])
        assert joint_fit.tobytes() == pieces.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_number_of_threads(dtype):
    X = data(2500, 10, 600, dtype)[0]
    for call in calls(dtype, 10, 600):
        results = with_threads(lambda call=call: call(X).tobytes(), 1, 2, 3, 7)
        assert len({*results}) == 1


def run(program, **environment):
    """Return the finished process of a Python program."""
    options = {"env": os.environ | environment, "timeout": 60, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", program], check=False, **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gives_the_same_bits():
    program = """
import os, sys
import numpy as np
from bochner._core import native
X, T = np.random.default_rng(0).standard_normal((3000, 10)), np.ones((10, 600))
before = native.waves(X, T, 1.0)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(native.waves(X, T, 1.0), before) else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program, BOCHNER_NUM_THREADS="4").returncode == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("twin", [False, True])
def test_values_that_are_not_finite_give_nan_in_their_row(bad, dtype, twin, level, monkeypatch):
    if twin:
        monkeypatch.setattr(native, "loops", lambda: None)
    X = np.array(data(8, 5, 21, dtype)[0])
    X[3, 2] = bad
    _, T, _ = data(8, 5, 21, dtype)
    Z = native.waves(X, T, 1.0)
    assert np.isnan(Z[3]).all()
    assert np.isfinite(np.delete(Z, 3, axis=0)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("profile", PROFILES)
def test_nan_gives_nan_and_an_infinite_distance_gives_zero(profile, dtype, level):
    Y = np.zeros((5, 2), dtype)
    K = native.radial(np.array([[np.nan, 0], [np.inf, 0], [0, 0]], dtype), Y, profile, 1.5)
    assert np.isnan(K[0]).all()
    assert np.all(K[1] == 0)
    assert np.all(K[2] == 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rows_and_no_columns_give_empty_arrays(dtype):
    X, T, Y = data(4, 3, 5, dtype)
    assert native.waves(X[:0], T, 1.0).shape == (0, 10)
    assert native.waves(X, np.empty((3, 0), dtype), 1.0).shape == (4, 0)
    assert native.radial(X, Y[:0], "gaussian").shape == (4, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_may_be_a_part_of_a_wider_array(dtype, level):
    X, T, Y = data(11, 3, 9, dtype)
    wide = np.full((11, 40), 7, dtype)
    _native.waves(X, T, NONE.astype(dtype), 1.0, wide[:, 5:23], 1)
    _native.radial(X, Y, "laplace", 1.0, wide[:, 30:39], 1)
    assert np.array_equal(wide[:, 5:23], native.waves(X, T, 1.0))
    assert np.array_equal(wide[:, 30:39], native.radial(X, Y, "laplace"))
    assert np.all(wide[:, [*range(5), *range(23, 30), 39]] == 7)


def test_arrays_that_do_not_fit_raise():
    for call, message in (
        (lambda X, T: native.waves(X, T[:2].copy(), 1.0), "disagree about the number of columns"),
        (lambda X, T: _native.waves(X, T, NONE, 1.0, np.empty((4, 9)), 1), "has the wrong shape"),
        (lambda X, T: _native.waves(X, T, NONE, 1.0, np.empty((10, 4)).T, 1), "must be contiguous"),
        (lambda X, T: native.waves(X, T, 1.0, np.ones(4)), "number of frequencies"),
        (lambda X, T: native.waves(between_bytes(X), T, 1.0), "must be aligned"),
        (lambda X, T: _native.waves(X, T, NONE, 1.0, between_bytes(np.eye(4, 10)), 1), "aligned"),
        (lambda X, T: native.waves(X, np.float32(T), 1.0), "incompatible function arguments"),
        (lambda X, T: native.radial(X, X, "cubic"), "no such profile"),
        (lambda X, T: _native.set_level("abacus"), "no such instruction set"),
    ):
        X, T, _ = data(4, 3, 5, np.float64)
        with pytest.raises((ValueError, TypeError), match=message):
            call(X, T)


def test_an_unknown_instruction_set_in_the_environment_raises():
    end = run("import bochner._core.native", BOCHNER_INSTRUCTIONS="abacus", BOCHNER_PURE_PYTHON="")
    assert end.returncode == 1
    assert "BOCHNER_INSTRUCTIONS must name one of" in end.stderr
    assert f"{', '.join(_native.levels())}; got 'abacus'" in end.stderr


def test_the_number_of_threads_comes_from_the_call_or_the_environment(monkeypatch):
    monkeypatch.delenv("BOCHNER_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert get_num_threads() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert get_num_threads() == 5
    monkeypatch.setenv("BOCHNER_NUM_THREADS", "3")
    assert get_num_threads() == 3
    monkeypatch.setenv("BOCHNER_NUM_THREADS", "many")
    assert get_num_threads() == 5
    assert with_threads(get_num_threads, 2, None) == [2, 5]
    with pytest.raises(InvalidInput, match="requires at least 1 thread, got 0"):
        set_num_threads(0)


def test_pure_python_warns_once_and_gives_the_same_values():
    program = """
import warnings
import numpy as np
from bochner._core import native
from bochner.errors import PurePythonWarning
from bochner.kernels import Matern
assert not native.HAVE_NATIVE
X = np.random.default_rng(0).standard_normal((50, 3))
with warnings.catch_warnings(record=True, action="always") as caught:
    Z = native.waves(X, X[:3].copy(), 1.0)
    native.waves(X, X[:3].copy(), 1.0, X[0])
    K = Matern(2.5)(X)
assert [w.category for w in caught] == [PurePythonWarning], caught
assert "C++ compiler" in str(caught[0].message)
print(float(Z.sum()), float(K.sum()))
"""
    result = run(program, BOCHNER_PURE_PYTHON="1")
    assert result.returncode == 0, result.stderr
    X = np.random.default_rng(0).standard_normal((50, 3))
    local = [native.waves(X, X[:3].copy(), 1.0).sum(), Matern(2.5)(X).sum()]
    np.testing.assert_allclose([float(v) for v in result.stdout.split()], local, rtol=1e-12)
