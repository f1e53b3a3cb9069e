"""Model files, pickles and skops files: values are restored bit by bit, and other files raise."""

import copy
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import forging
import numpy as np
import pytest
import scipy.sparse
from internals import with_peak
from learners import CASES, answers, gap
from safetensors import safe_open
from safetensors.numpy import save as safetensors_bytes
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from bochner import KernelFeatures, KernelRidge, Moments, Schema
from bochner.errors import DataFileError, InvalidType, ModelFileError
from bochner.kernels import Cauchy, Columns, Constant, Exponential, Gaussian, Kernel, Laplace
from bochner.persist.files import FORMAT, digests_of, seal
from bochner.persist.values import RENAMED, decode, encode, stored_classes
from bochner.solvers.ridge.solution import Outcome, Path, Solution

RNG = np.random.default_rng(20)
X = RNG.normal(size=(160, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=160)

GAUSSIAN = "kernels.stationary:Gaussian"
RIDGE = "models.ridge.estimators:KernelRidge"
OUTCOME = "solvers.ridge.solution:Outcome"
SCALED = "kernels.kernel:Scaled"
LINEAR_MAP = "features.compose:LinearMap"

KERNELS = [
    2.0 * bo.kernels.Matern(smoothness=1.5, lengthscale=[0.3, 1.0, 2.0])
    + Gaussian(lengthscale=0.1 + 0.2),
    Columns(bo.kernels.RationalQuadratic(shape=0.7, lengthscale=1e-7), (0, 2)) * Exponential(3.0),
    bo.kernels.Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 1 / 3])),
    bo.kernels.Linear() + Constant(0.25),
    Laplace(0.5) * Cauchy(2.0),
]
METHODS = [bo.Fourier(bo.QMC(), form="phase"), bo.Auto(budget=2.0)]
METHODS += [bo.Nystrom(bo.landmarks.RPCholesky(pool=7))]


def round_trip(value):
    """Return a value that is encoded and decoded."""
    item, arrays = encode(value)
    return decode(json.loads(json.dumps(item, allow_nan=False)), arrays)


def test_a_renamed_or_moved_class_loads_under_its_old_name(monkeypatch):
    monkeypatch.setitem(RENAMED, "Bell", "Gaussian")
    for name in ("kernels.old:Bell", "kernels.old:Gaussian", "kernels.kernel:Bell"):
        assert decode({"class": [name, {"lengthscale": 2.0}]}, {}) == Gaussian(2.0)
    series = {"class": ["kernels.dotproduct:DotProduct", {"series": {"tuple": [1.0, 0.5]}}]}
    assert decode(series, {}) == bo.kernels.DotProduct((1.0, 0.5))


def fit_ridge(**options):
    options = {"kernel": Gaussian(1.0), "method": bo.Nystrom(), "n_features": 24} | options
    return KernelRidge(**options, random_state=3).fit(X, Y)


@pytest.fixture(scope="module")
def model():
    return fit_ridge()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.bochner"


# --- restored values -----------------------------------------------------------------------------


PLAIN = [
    None, True, 0, -(2**80), 0.1 + 0.2, 5e-324, -0.0, float("inf"), -float("inf"), float("nan"),
    "", "Nyström \u2028 \\ \"", [], [1, [2.5, None]], (), (1, ("a", [2])), {}, {"a": (1,)},
    {"class": [GAUSSIAN, {}]}, np.float32(0.1), np.float64(np.nan), np.int8(-3), np.bool_(True),
]  # fmt: skip


def test_plain_values_are_restored():
    for value in PLAIN:
        back = round_trip(value)
        assert (type(back), repr(back)) == (type(value), repr(value))
    assert round_trip(np.str_("a")) == "a"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("code", "?bhilBHILefd")
@pytest.mark.parametrize("shape", [(), (0, 3), (4,), (2, 3), (2, 3, 2)])
def test_arrays_are_restored_with_bits_and_order(code, shape, order):
    array = np.asarray(RNG.normal(size=shape) * 50, order=order).astype(code)
    back = round_trip(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.c_contiguous == array.flags.c_contiguous
    assert back.flags.f_contiguous == array.flags.f_contiguous


def test_arrays_of_text_and_of_other_byte_order_keep_their_values():
    text = np.array([["a", "größe"], ["", "x=y"]])
    for array in (text, text.astype(object), np.array([[np.nan, -0.0], [np.inf, 5e-324]])):
        back = round_trip(array)
        assert (back.dtype, repr(back.tolist())) == (array.dtype, repr(array.tolist()))
    assert round_trip(np.arange(5, dtype=">i4")).tolist() == [0, 1, 2, 3, 4]
    assert len(encode([X, {"again": X}, (X.T,)])[1]) == 2  # equal arrays are stored once


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array"])
def test_sparse_matrices_are_restored(kind):
    S = getattr(scipy.sparse, kind)(np.where(X > 1, X, 0.0))
    back = round_trip(S)
    assert type(back) is type(S)
    assert back.data.tobytes() == S.data.tobytes()
    assert np.array_equal(back.toarray(), S.toarray())


@pytest.mark.parametrize("value", [*KERNELS, *METHODS], ids=repr)
def test_kernels_and_methods_are_restored(value, path):
    bo.save(value, path)
    assert bo.load(path) == value


def test_transformers_keep_their_output_setting(path):
    pandas = pytest.importorskip("pandas")
    model = KernelFeatures(Gaussian(1.0), n_features=16, random_state=0).fit(X)
    bo.save(model.set_output(transform="pandas"), path)
    Z = bo.load(path).transform(X)
    assert isinstance(Z, pandas.DataFrame)
    assert Z.to_numpy().tobytes() == model.transform(X).to_numpy().tobytes()


def test_unfitted_models_keep_their_parameters(path):
    model = KernelRidge(Laplace(2.0), method=bo.Auto(), alpha=float("inf"), random_state=7)
    bo.save(model, path)
    assert bo.load(path).get_params() == model.get_params()


# --- files ---------------------------------------------------------------------------------------


def test_a_failed_save_keeps_the_old_file(model, path, monkeypatch):
    bo.save(model, path)
    original = path.read_bytes()

    def full(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyboardInterrupt):
        bo.save(Gaussian(2.0), path)
    assert path.read_bytes() == original
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with pytest.raises(DataFileError, match="cannot be written: no such file or directory"):
        bo.save(Gaussian(), path / ".." / "nowhere" / "k.bochner")


def test_all_public_values_can_be_saved_and_have_unique_names():
    from bochner import features, kernels  # noqa: PLC0415

    public = [getattr(module, name) for module in (kernels, features) for name in module.__all__]
    finals = {c for c in public if isinstance(c, type) and not getattr(c, "__abstractmethods__", 0)}
    stored = [*stored_classes()]
    assert len({kind.__name__ for kind in stored}) == len(stored)
    assert finals - {features.Method} <= {*stored}
    assert {Moments, Outcome, Path, Solution, Schema, KernelRidge} <= {*stored}


# --- errors of save ------------------------------------------------------------------------------


class Custom(Kernel):
    def evaluate(self, X, Y):
        return X @ Y.T

    def diagonal(self, X):
        return (X**2).sum(1)


class Gaussian2(KernelRidge):
    pass


Gaussian2.__name__ = "KernelRidge"


def test_only_values_of_bochner_are_saved(path):
    for model, match in (
        *((m, "model must be an") for m in (Custom(), {"a": 1}, X, Gaussian2(), "gaussian", None)),
        (KernelRidge(Custom()), "a model must be made of"),
        (KernelRidge(X.astype("complex128")), "arrays must hold"),
        (KernelRidge(np.array([1, "a"], object)), "arrays must hold"),
        (make_pipeline(KernelRidge()), "Pipelines are for skops"),
        (KernelRidge(random_state=np.random.default_rng(5)), "a random_state by an integer"),
        (KernelRidge(random_state=np.random.RandomState(5)), "a random_state by an integer"),
    ):
        with pytest.raises(InvalidType, match=f"save: .*{match}"):
            bo.save(model, path)
        assert not path.exists()


# --- errors of load ------------------------------------------------------------------------------


def raises(path, match):
    with pytest.raises(ModelFileError, match=match) as record:
        bo.load(path)
    assert "\n" not in str(record.value)
    assert str(path) in str(record.value)


def of_safetensors(header):
    return safetensors_bytes({"a": X}, {"bochner": header})


FOREIGN = [
    (pickle.dumps([1.0, 2.0]), "it is something else, such as a pickle or a table"),
    (b"a,b\n1,2\n", "or its beginning is damaged"),
    (b"", "it is empty"),
    (b"\x01", "it is something else"),
    (struct.pack("<Q", 2**63) + b"{}", "cut short or altered"),
    (struct.pack("<Q", 2) + b"[]", "it is something else"),
    (struct.pack("<Q", 2) + b"{}", "file of another program"),
    (safetensors_bytes({"a": X}), "safetensors file of another program"),
    *((of_safetensors(header), "cut short or altered") for header in ("[" * 100000, "[]", "{}")),
]


@pytest.mark.parametrize(("content", "match"), FOREIGN, ids=range(len(FOREIGN)))
def test_other_files_raise_with_one_sentence(content, match, path):
    path.write_bytes(content)
    raises(path, match)


def test_folders_similar_names_and_unreadable_files_raise(path, monkeypatch):
    path.with_name("modell.bochner").touch()
    raises(path, r"no such file \(did you mean 'modell")
    path.mkdir()
    raises(path, "it is a folder. Name the file in it")
    path.rmdir()
    bo.save(Gaussian(), path)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    raises(path, "it cannot be read: permission denied")


def forge(path, value, arrays=None, **changes):
    """Write a file with a correct checksum and any value."""
    header = {"class": GAUSSIAN, "format": FORMAT, "library": "9.9"}
    header |= {"value": value} | changes
    arrays = {"0": np.array([1.0])} if arrays is None else arrays
    header["tensors"] = digests_of(arrays)
    path.write_bytes(safetensors_bytes(arrays, {"bochner": seal(header)}))


@pytest.mark.parametrize("version", [FORMAT + 1, 1, 2, "3", "1", 0, -1, None, True, 3.0, [3]])
def test_another_format_raises_with_one_sentence(version, path):
    forge(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]}, format=version)
    of = r"is of format .* by bochner 9.9, and this version, .*, reads format 3. Upgrade"
    raises(path, of if type(version) is int else "cut short or altered")


def omit(item, name):
    """Return the value of a file without a field."""
    if isinstance(item, dict):
        return {key: omit(part, name) for key, part in item.items() if key != name}
    return [omit(part, name) for part in item] if isinstance(item, list) else item


@pytest.mark.parametrize("field", ["reach", "share"])
def test_a_file_without_a_field_with_a_default_loads(field, path):
    """The reach of an error law (these rows are inside), and the penalty of a search."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 2))
    model = KernelRidge(random_state=0)
    model.fit(rows, rows[:, 0] + np.exp(rows[:, 1] / 2) * rng.standard_normal(300))
    expected = model.predict_interval(rows[:9])
    bo.save(model, path)
    with safe_open(path, "np") as file:
        header = json.loads(file.metadata()["bochner"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    value = omit(header["value"], field)
    assert value != header["value"]
    forge(path, value, arrays, **{"class": RIDGE})
    for bound, other in zip(bo.load(path).predict_interval(rows[:9]), expected, strict=True):
        assert np.array_equal(bound, other)


@pytest.mark.parametrize(
    "value",
    [
        {"class": ["os.system", {"command": "true"}]},
        {"class": ["subprocess:Popen", {"args": ["true"]}]},
        {"class": ["models.._native:Any", {}]},
        {"class": ["cli.commands:Terminal", {"as_json": True, "quiet": True}]},
        {"class": ["kernels.stationary:np", {}]},
        {"class": [RIDGE, {}]},
        {"class": [GAUSSIAN, {"length": 2.0}]},
        {"class": [GAUSSIAN, {"lengthscale": -1.0}]},
        {"class": [GAUSSIAN, {"lengthscale": {"array": ["7", "C"]}}]},
        {"class": [OUTCOME, {"value": 1}]},
        {"class": GAUSSIAN},
        {"estimator": [GAUSSIAN, {}, {}]},
        {"estimator": [RIDGE, {"nonsense": 1}, {}]},
        {"estimator": [RIDGE, {}, [1]]},
        {"enum": [OUTCOME, "FINE"]},
        {"enum": [GAUSSIAN, "FINE"]},
        {"pickle": "gASVCg=="},
        {"array": ["0", "C"], "class": []},
        {"text": ["V8", [1], ["a"]]},
        {"text": ["object", [1], [3]]},
        {"text": ["str", [2], ["a"]]},
        {"sparse": ["csr_array", [1, 1], 1, 2, 3]},
        {"random": ["Generator", {"dict": [["bit_generator", "PCG64"]]}]},
        {"float": "one"},
        {"dict": [[[1], 2]]},
        {},
    ],
    ids=repr,
)
def test_forged_files_make_only_stored_classes(value, path):
    forge(path, value)
    raises(path, "holds a Gaussian as of bochner 9.9, which this version, .*, cannot build")


def test_a_file_of_another_class_than_stated_raises(path):
    forge(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]})
    assert bo.load(path) == Gaussian(2.0)
    forge(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]}, **{"class": RIDGE})
    raises(path, "says that it holds another class")
    old = "kernels.old:Gaussian"
    forge(path, {"class": [old, {"lengthscale": 2.0}]}, **{"class": old})
    assert bo.load(path) == Gaussian(2.0)


INDICES, INDPTR = np.array([0, 2, 1]), np.array([0, 2, 2, 3])


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "csr_matrix", "csc_matrix"])
@pytest.mark.parametrize(
    ("shape", "indices", "indptr", "match"),
    [
        ([3, 3], INDICES, INDPTR, None),
        ([3, 3], [0, 2**30, 1], INDPTR, "indices must be < 3"),
        ([3, 3], INDICES - 1, INDPTR, "indices must be >= 0"),
        ([3, 3], INDICES[:2], INDPTR, "same size"),
        ([3, 3], INDICES, INDPTR + 1, "should start with 0"),
        ([3, 3], INDICES, [0, 2, 2**30, 3], "non-decreasing"),
        ([3, 3], INDICES, [0, 2, 2, 2**30], "less than the size"),
        ([3, 3], INDICES[:0], [0, 2, 1, 0], "non-decreasing"),
        ([3, 3], INDICES, INDPTR[:3], "index pointer size 3"),
        ([3, 3], INDICES.astype("f4"), INDPTR, "vectors of numbers and of indices"),
        ([3, 3], INDICES.astype("i1"), INDPTR.astype("i1"), "of one type, of 32 or 64 bits"),
        ([3, 3], INDICES[:, None], INDPTR, "vectors of numbers and of indices"),
        ([-3, -3], INDICES, INDPTR, "not the shape of a sparse matrix"),
        ([3.0, 3.0], INDICES, INDPTR, "not the shape of a sparse matrix"),
        ([2**40, 2**40], INDICES, INDPTR, "not the shape of a sparse matrix"),
    ],
)  # fmt: skip
def test_sparse_matrices_with_invalid_indices_raise(kind, shape, indices, indptr, match):
    parts = {"0": np.ones(3 if len(indices) else 0), "1": indices, "2": indptr}
    parts = {name: np.ascontiguousarray(part) for name, part in parts.items()}
    sparse = {"sparse": [kind, shape, *({"array": [name, "C"]} for name in parts)]}
    sparse = json.loads(json.dumps(sparse))
    if match is None:
        assert decode(sparse, parts).sum() == 3
    else:
        with pytest.raises((TypeError, ValueError), match=match):
            decode(sparse, parts)


def bombs():
    """Yield values and arrays of small files that would need much memory."""
    scale = lambda value: {"class": [GAUSSIAN, {"lengthscale": value}]}
    yield scale({"text": ["str", [20_001], ["x" * 100_000, *[""] * 20_000]]}), {}
    texts = {"text": ["str", [1001], ["x" * 1000, *[""] * 1000]]}
    yield {"tuple": [texts] * 100}, {}
    yield scale([[] for _ in range(1_000_000)]), {}
    yield scale({"array": ["0", "C"]}), {"0": np.zeros((0, 2**40))}
    linear = {"kernel": {"class": ["kernels.dotproduct:Linear", {}]}, "inputs": 10**9}
    yield {"class": [LINEAR_MAP, linear]}, {}


def test_loading_takes_memory_in_proportion_to_the_file(path):
    for bomb in bombs():
        forge(path, *bomb, **{"class": LINEAR_MAP})
        _, peak = with_peak(lambda: raises(path, "cannot build|cut short or altered"))
        assert peak < 10 * path.stat().st_size + (1 << 25)


def test_sums_of_a_hundred_kernels_load_and_deeper_nesting_raises(path):
    kernel = sum((Columns(Gaussian(float(j + 1)), (j,)) for j in range(1, 100)), Gaussian())
    bo.save(kernel, path)
    assert bo.load(path) == kernel
    value = {"class": [GAUSSIAN, {"lengthscale": 1.0}]}
    for _ in range(250):
        value = {"class": [SCALED, {"scale": 1.0, "kernel": value}]}
    forge(path, value, **{"class": SCALED})
    raises(path, "JSON is nested too deeply")


def replace_at(fit, place, value):
    """Return the fit with another value at a place such as "representation.target_shape"."""
    name, _, tail = place.partition(".")
    return replace(fit, **{name: replace_at(getattr(fit, name), tail, value) if tail else value})


def test_inconsistent_parts_of_a_fit_raise(model, path):
    damaged = replace(model.moments_, weight=np.nan)
    for place, value, match in (
        ("inputs.n_features_in", 4, "parts of the model disagree"),
        ("inputs.n_features_in", 10**9, "parts of the model disagree"),
        ("inputs.n_features_in", "3", "must be of type|n_features_in of Inputs"),
        ("representation.chosen.choice.map", None, "map requires features"),
        ("representation.target_shape", (2,), "cannot reshape"),
        ("solution", None, "solution of RidgeFit"),
        ("solution.coef", np.full((24, 1), np.nan), "coef of Solution must be finite"),
        ("solution.intercept", np.array([np.inf]), "intercept of Solution must be finite"),
        ("representation.sums", damaged, "weight of Moments must be finite"),
    ):
        other = copy.copy(model)
        other.fit_ = replace_at(model.fit_, place, value)
        bo.save(other, path)
        raises(path, match)


@pytest.mark.parametrize("name", ["predict", "__class__", "kernel_"])
def test_other_attributes_than_the_fit_raise(name, model, path):
    model = copy.copy(model)
    vars(model)[name] = 1
    bo.save(model, path)
    raises(path, "has no such fitted state")


@pytest.mark.slow
def test_forged_files_do_not_crash_hang_or_take_memory():
    """5,000 altered files with correct checksums, used if they load, in another process."""
    program = pathlib.Path(forging.__file__)
    result = subprocess.run(
        [sys.executable, str(program), "20", "5000"],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    counts = json.loads(result.stdout.splitlines()[-1])  # a forged ``verbose`` prints before it
    assert counts["wrong"] == []
    assert counts["loaded"] > 500
    assert counts["refused"] > 2500


def test_truncated_files_raise(model, path):
    bo.save(model, path)
    content = path.read_bytes()
    for cut in sorted({len(content) * i // 50 for i in range(50)} | {*range(40), len(content) - 1}):
        path.write_bytes(content[:cut])
        raises(path, "must be a model file as bochner.save writes it")
    path.write_bytes(content + b"\0")
    raises(path, "it is cut short or altered. Copy it again, or save the model again")


def test_a_change_of_any_byte_raises(path):
    bo.save(bo.draw(Gaussian(), n_features=4, n_inputs=2, random_state=0), path)
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1 << place % 8
        path.write_bytes(altered)
        raises(path, "must be a model file as" if place < start else "it is cut short or altered")


# ---- pickles


@pytest.fixture
def by_another(monkeypatch):
    """Return a function that pickles as another version of bochner."""
    module = import_module("bochner.models._base")

    def write(value, dump):
        with monkeypatch.context() as patch:
            patch.setattr(module, "__version__", "0.0.9")
            return dump(value)

    return write


@pytest.mark.parametrize(
    "name", [kind.__name__ for kind in stored_classes() if issubclass(kind, BaseEstimator)]
)
def test_a_pickle_opens_only_in_the_version_that_wrote_it(name, by_another):
    model = getattr(bo, name)()
    assert vars(pickle.loads(pickle.dumps(model))).keys() == vars(model).keys()
    message = (
        f"{name}: a pickle opens only in the version of bochner that wrote it; this is "
        f"{bo.__version__}, the pickle is from 0.0.9. Fit again, and store models with bochner.save"
    )
    with pytest.raises(ModelFileError, match=message):
        pickle.loads(by_another(model, pickle.dumps))


# ---- files of skops


@pytest.fixture
def skops_io():
    return pytest.importorskip("skops.io")


@pytest.mark.main_cases(7)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_learners_are_restored_by_skops_if_trusted(skops_io, case):
    loaded = skops_io.loads(skops_io.dumps(case.fitted), trusted=bo.export.TRUSTED)
    assert gap(answers(loaded, case.new), answers(case.fitted, case.new)) == 0
    assert repr(loaded.get_params()) == repr(case.fitted.get_params())
    with pytest.raises(skops_io.exceptions.UntrustedTypesFoundException, match="bochner"):
        skops_io.loads(skops_io.dumps(case.fitted))


def test_pipelines_and_certificates_are_restored_by_skops(skops_io):
    model = make_pipeline(StandardScaler(), KernelRidge(n_features=16, random_state=0)).fit(X, Y)
    loaded = skops_io.loads(skops_io.dumps(model), trusted=bo.export.TRUSTED)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded[-1].certificate_.epsilon == model[-1].certificate_.epsilon
    assert loaded[-1].solution_.outcome is model[-1].solution_.outcome
