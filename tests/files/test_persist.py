"""Model files, pickles and files of skops: the same bits come back, and nothing else is taken."""

import copy
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from dataclasses import dataclass, replace
from importlib import import_module

import forging
import joblib
import numpy as np
import pytest
import scipy.sparse
from safetensors import safe_open
from safetensors.numpy import save as safetensors_bytes
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from bochner import KernelFeatures, KernelRidge, Moments, Schema, models
from bochner.errors import DataFileError, InvalidType, ModelFileError, SolutionWarning
from bochner.kernels import (
    Cauchy,
    Columns,
    Constant,
    Exponential,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    RationalQuadratic,
)
from bochner.persist import FORMAT
from bochner.persist.files import sealed
from bochner.persist.known import RENAMED, is_estimator, name_of, stored_classes
from bochner.persist.validate import require_arrays
from bochner.persist.values import NamedArrays, decode, encode
from bochner.solvers.ridge.solution import Outcome, Path, Solution

# ==== Model files: the same bits come back, and nothing else is ever taken for a model.


RNG = np.random.default_rng(20)
X = RNG.normal(size=(160, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=160)

GAUSSIAN = "kernels.stationary:Gaussian"
RIDGE = "models.ridge.estimators:KernelRidge"
OUTCOME = "solvers.ridge.solution:Outcome"
SCALED = "kernels.kernel:Scaled"
LINEAR_MAP = "features.composed:LinearMap"

KERNELS = [
    2.0 * Matern(smoothness=1.5, lengthscale=[0.3, 1.0, 2.0]) + Gaussian(lengthscale=0.1 + 0.2),
    Columns(RationalQuadratic(shape=0.7, lengthscale=1e-7), (0, 2)) * Exponential(3.0),
    Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 1 / 3])),
    Linear() + Constant(0.25),
    Laplace(0.5) * Cauchy(2.0),
]
MAPS = [
    (Gaussian(0.7), bo.Fourier()),
    (KERNELS[0], bo.Fourier(bo.QMC())),
    (Laplace(0.5), bo.Fourier(bo.IID(), form="phase")),
    (Linear() * Gaussian(2.0) + 1.5, bo.Fourier()),
    (KERNELS[2], bo.Fourier()),
    (Columns(Gaussian(0.9), (0, 2)), bo.Fourier()),
    (Matern(0.5), bo.Nystrom()),
    (Matern(2.5, 2.0), bo.Nystrom(bo.landmarks.Uniform())),
]


def there_and_back(value):
    arrays = NamedArrays()
    text = json.dumps(encode(value, arrays), allow_nan=False)
    return decode(json.loads(text), arrays.by_name)


def test_a_renamed_class_loads_under_its_old_name(monkeypatch):
    monkeypatch.setitem(RENAMED, "kernels.old:Bell", GAUSSIAN)
    assert decode({"class": ["kernels.old:Bell", {"lengthscale": 2.0}]}, {}) == Gaussian(2.0)


def fitted(**options):
    options = {"kernel": Gaussian(1.0), "method": bo.Nystrom(), "n_features": 24} | options
    return KernelRidge(**options, random_state=3).fit(X, Y)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.bochner"


# --- What comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**80), 0.1 + 0.2, 5e-324, -0.0, float("inf"), -float("inf"), float("nan"),
        "", "Nyström \u2028 \\ \"", [], [1, [2.5, None]], (), (1, ("a", [2])), {}, {"a": (1,)},
        {"class": [GAUSSIAN, {}]}, np.float32(0.1), np.float64(np.nan), np.int8(-3),
        np.bool_(True), np.str_("a"),
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value):
    back = there_and_back(value)
    assert type(back) is (str if isinstance(value, np.str_) else type(value))
    assert repr(back) == repr(type(back)(value) if isinstance(value, np.str_) else value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("code", "?bhilBHILefd")
@pytest.mark.parametrize("shape", [(), (0, 3), (4,), (2, 3), (2, 3, 2)])
def test_arrays_come_back_bit_for_bit_in_their_order(code, shape, order):
    array = np.asarray(RNG.normal(size=shape) * 50, order=order).astype(code)
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.c_contiguous == array.flags.c_contiguous
    assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize("dtype", [object, "U5"])
def test_arrays_of_text_come_back_as_text(dtype):
    array = np.array([["a", "größe"], ["", "x=y"]], dtype=dtype)
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


def test_special_numbers_in_arrays_keep_their_bits():
    errors = np.array([[np.nan, -0.0], [np.inf, 5e-324]])
    assert there_and_back(errors).tobytes() == errors.tobytes()


def test_arrays_of_the_other_byte_order_keep_their_numbers():
    back = there_and_back(np.arange(5, dtype=">i4"))
    assert back.tolist() == [0, 1, 2, 3, 4]


def test_an_array_that_comes_twice_is_stored_once():
    arrays = NamedArrays()
    encode([X, {"again": X}, (X.T,)], arrays)
    assert len(arrays.by_name) == 2


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array"])
def test_sparse_rows_come_back(kind):
    S = getattr(scipy.sparse, kind)(np.where(X > 1, X, 0.0))
    back = there_and_back(S)
    assert type(back) is type(S)
    assert back.data.tobytes() == S.data.tobytes()
    assert np.array_equal(back.toarray(), S.toarray())


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_and_pipelines_are_refused_with_the_remedy(make, path):
    model = KernelRidge(Gaussian(1.0), n_features=4, random_state=make(5))
    with pytest.raises(InvalidType, match="a random_state by an integer"):
        bo.save(model.fit(X, Y), path)
    with pytest.raises(InvalidType, match="Pipelines are for skops"):
        bo.save(make_pipeline(model), path)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_come_back_equal(kernel, path):
    bo.save(kernel, path)
    assert bo.load(path) == kernel
    assert bo.load(path)(X).tobytes() == kernel(X).tobytes()


@pytest.mark.parametrize(
    "method",
    [
        bo.Fourier(bo.QMC(), form="phase"),
        bo.Nystrom(bo.landmarks.RPCholesky(pool=7)),
        bo.Auto(budget=2.0),
    ],
    ids=repr,
)
def test_methods_come_back_equal(method, path):
    bo.save(method, path)
    assert bo.load(path) == method


@pytest.mark.parametrize(("kernel", "method"), MAPS, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maps_give_the_same_bits(kernel, method, dtype, path):
    phi = bo.draw(kernel, method, n_features=48, X=X, random_state=1)
    bo.save(phi, path)
    back = bo.load(path)
    assert type(back) is type(phi)
    assert back.kernel == kernel
    assert back(X.astype(dtype)).tobytes() == phi(X.astype(dtype)).tobytes()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": bo.Fourier(bo.QMC()), "alpha": "gcv", "precision": "float32"},
        {"method": "auto", "kernel": "gaussian"},
        {"method": bo.Fourier(form="phase"), "alpha": 0.5, "fit_intercept": False},
    ],
    ids=repr,
)
def test_predictions_have_the_same_bits(options, path):
    model = fitted(**options)
    before = model.predict(X)
    bo.save(model, path)
    back = bo.load(path)
    assert back.predict(X).tobytes() == before.tobytes()
    assert repr(back) == repr(model)
    assert back.get_params().keys() == model.get_params().keys()


def test_several_targets_and_sparse_rows_predict_the_same_bits(path):
    S = scipy.sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    model = KernelRidge(Gaussian(1.0), method=bo.Fourier(), n_features=32, random_state=0)
    model.fit(S, np.column_stack([Y, -2 * Y]))
    bo.save(model, path)
    assert bo.load(path).predict(S).tobytes() == model.predict(S).tobytes()


def test_all_that_was_learned_comes_back(model, path):
    certificate = model.certificate_
    bo.save(model, path)
    back = bo.load(path)
    assert back.kernel_ == model.kernel_
    assert back.solution_.outcome is model.solution_.outcome
    assert str(back.solution_.path) == str(model.solution_.path)
    assert back.moments_.gram.tobytes() == model.moments_.gram.tobytes()
    assert back.choice_.reason == model.choice_.reason
    assert back.certificate_ == certificate
    assert vars(back).keys() == vars(model).keys()


def test_a_loaded_model_goes_on_as_if_it_had_never_been_saved(path):
    stays = KernelRidge(Gaussian(1.0), method=bo.Nystrom(), n_features=24, random_state=3)
    stays.partial_fit(X[:90], Y[:90])
    bo.save(stays, path)
    comes = bo.load(path)
    for each in (stays, comes):
        each.partial_fit(X[90:], Y[90:])
    assert comes.predict(X).tobytes() == stays.predict(X).tobytes()
    assert bo.merge(comes, stays).moments_.rows == 320


def test_tables_keep_their_schema(path, tmp_path):
    (tmp_path / "t.csv").write_text(
        "a,c,y\n" + "".join(f"{i},{'rst'[i % 3]},{i % 7}\n" for i in range(60))
    )
    blocks = bo.Blocks.from_files(tmp_path / "t.csv", target="y")
    model = KernelRidge(Gaussian(5.0), method=bo.Fourier(), n_features=16, random_state=0)
    model.fit_blocks(blocks)
    bo.save(model, path)
    back = bo.load(path)
    assert back.schema_ == model.schema_
    assert back.schema_.columns == ("a", "c")
    assert back.schema_.target == "y"
    assert back.schema_.encoders[1].of == ("r", "s", "t")
    assert back.schema_.feature_names == ("a", "c=r", "c=s", "c=t")
    assert back.feature_names_in_.tolist() == ["a", "c"]
    assert back.feature_names_in_.dtype == object


def test_the_transformer_comes_back_with_its_output_setting(path):
    pandas = pytest.importorskip("pandas")
    model = KernelFeatures(Gaussian(1.0), n_features=16, random_state=0).fit(X)
    bo.save(model.set_output(transform="pandas"), path)
    Z = bo.load(path).transform(X)
    assert isinstance(Z, pandas.DataFrame)
    assert Z.to_numpy().tobytes() == model.transform(X).to_numpy().tobytes()


def test_a_model_that_is_not_fitted_keeps_its_parameters(path):
    model = KernelRidge(Laplace(2.0), method=bo.Auto(), alpha=float("inf"), random_state=7)
    bo.save(model, path)
    assert bo.load(path).get_params() == model.get_params()


@dataclass(frozen=True)
class TinyFit:
    coef: np.ndarray
    steps: int


class Tiny(BaseEstimator):
    def __init__(self, alpha=1.0):
        self.alpha = alpha

    @property
    def coef_(self):
        return self.fit_.coef

    @property
    def n_features_in_(self):
        return len(self.fit_.coef)


@pytest.fixture
def tiny(monkeypatch):
    """A learner whose fit is one value, known to model files."""
    names = {Tiny: "Tiny", TinyFit: "TinyFit"}
    classes = {name: cls for cls, name in names.items()}
    name = lambda cls: names.get(cls) or name_of(cls)
    estimator = lambda cls: cls is Tiny or is_estimator(cls)
    for module in ("files", "values"):
        monkeypatch.setattr(f"bochner.persist.{module}.name_of", name)
    monkeypatch.setattr("bochner.persist.values.class_of", lambda name: classes[name])
    monkeypatch.setattr("bochner.persist.values.is_estimator", estimator)
    model = Tiny(alpha=2.0)
    model.fit_ = TinyFit(np.array([1.0, 2.0]), 3)
    return model


def test_a_fit_that_is_one_value_comes_back(tiny, path):
    bo.save(tiny, path)
    back = bo.load(path)
    assert back.alpha == 2.0
    assert back.fit_.steps == 3
    assert back.coef_.tolist() == [1, 2]
    with safe_open(path, framework="np") as file:
        assert list(file.keys()) == ["fit_.coef"]


def test_a_fit_that_is_one_value_is_held_to_its_types(tiny, path):
    tiny.fit_ = TinyFit(np.array([1.0, 2.0]), "three")
    bo.save(tiny, path)
    refused(path, "steps of TinyFit must be of type")


# --- The file ------------------------------------------------------------------------------------


def header_of(path):
    with safe_open(path, framework="np") as file:
        return json.loads(file.metadata()["bochner"])


def test_the_header_says_what_the_model_is_and_what_it_was_fitted_on(model, path):
    bo.save(model, path)
    header = header_of(path)
    assert header["format"] == FORMAT
    assert header["library"] == bo.__version__
    assert header["class"] == RIDGE
    assert header["value"]["estimator"][1]["kernel"] == {"class": [GAUSSIAN, {"lengthscale": 1.0}]}
    fingerprint = header["fingerprint"]
    assert (fingerprint["rows"], fingerprint["columns"], fingerprint["features"]) == (160, 3, None)
    bo.save(fitted(), path)
    assert header_of(path)["fingerprint"] == fingerprint
    bo.save(KernelRidge(Gaussian(1.0), n_features=24, random_state=3).fit(X, 2 * Y), path)
    assert header_of(path)["fingerprint"]["moments"] != fingerprint["moments"]


def test_the_same_model_gives_the_same_bytes(model, path):
    bo.save(model, path)
    before = path.read_bytes()
    bo.save(bo.load(path), path)
    assert path.read_bytes() == before


def test_a_failed_save_leaves_what_was_there(model, path, monkeypatch):
    bo.save(model, path)
    before = path.read_bytes()

    def full(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyboardInterrupt):
        bo.save(Gaussian(2.0), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_saving_where_there_is_no_folder_says_so(tmp_path):
    with pytest.raises(DataFileError, match="cannot be written: no such file or directory"):
        bo.save(Gaussian(), tmp_path / "nowhere" / "k.bochner")


def test_every_public_value_of_the_package_can_be_saved():
    from bochner import features, kernels  # noqa: PLC0415

    public = [getattr(module, name) for module in (kernels, features) for name in module.__all__]
    finals = {c for c in public if isinstance(c, type) and not getattr(c, "__abstractmethods__", 0)}
    stored = set(stored_classes())
    assert finals - {features.Method} <= stored
    assert {Moments, Outcome, Path, Solution, Schema, KernelRidge} <= stored


# --- What is refused when it is saved ------------------------------------------------------------


class Mine(Kernel):
    def evaluate(self, X, Y):
        return X @ Y.T

    def diagonal(self, X):
        return (X**2).sum(1)


class Gaussian2(KernelRidge):
    pass


Gaussian2.__name__ = "KernelRidge"


@pytest.mark.parametrize("foreign", [Mine(), {"a": 1}, X, Gaussian2(), "gaussian", None])
def test_only_what_bochner_made_is_saved(foreign, path):
    with pytest.raises(InvalidType, match="save: model must be an estimator, map, kernel, method"):
        bo.save(foreign, path)
    assert not path.exists()


@pytest.mark.parametrize("part", [Mine(), X.astype("complex128"), np.array([1, "a"], object)])
def test_a_part_that_is_not_bochners_own_is_named(part, path):
    model = KernelRidge(part)
    with pytest.raises(InvalidType, match=r"save: (a model must be made of|arrays must hold)"):
        bo.save(model, path)
    assert not path.exists()


# --- What is refused when it is loaded -----------------------------------------------------------


def refused(path, match):
    with pytest.raises(ModelFileError, match=match) as caught:
        bo.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def write_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (
            lambda p: p.write_bytes(pickle.dumps([1.0, 2.0])),
            "it is a pickle, which bochner does not",
        ),
        (write_zip, "it is a ZIP archive"),
        (lambda p: p.write_bytes(b"PAR1" + bytes(90)), "it is a Parquet table"),
        (lambda p: p.write_text("a,b\n1,2\n"), "it is something else, or its beginning is damaged"),
        (lambda p: p.write_bytes(b""), "it is empty"),
        (lambda p: p.write_bytes(b"\x01"), "it is something else"),
        (lambda p: p.write_bytes(struct.pack("<Q", 2**63) + b"{}"), "cut short or altered"),
        (lambda p: p.write_bytes(struct.pack("<Q", 2) + b"[]"), "it is something else"),
        (lambda p: p.write_bytes(struct.pack("<Q", 2) + b"{}"), "file of another program"),
        (lambda p: p.mkdir(), "it is a folder. Name the file in it"),
        (lambda p: p.with_name("modell.bochner").touch(), r"no such file \(did you mean 'modell"),
        (
            lambda p: p.write_bytes(safetensors_bytes({"a": X})),
            "safetensors file of another program",
        ),
        (
            lambda p: p.write_bytes(safetensors_bytes({"a": X}, {"bochner": "[" * 100000})),
            "cut short or altered",
        ),
        (lambda p: p.write_bytes(safetensors_bytes({"a": X}, {"bochner": "[]"})), "cut short or"),
        (lambda p: p.write_bytes(safetensors_bytes({"a": X}, {"bochner": "{}"})), "cut short or"),
    ],
)
def test_anything_else_gets_one_sentence(write, match, path):
    write(path)
    refused(path, match)


def test_a_file_that_cannot_be_read_says_why(path, monkeypatch):
    bo.save(Gaussian(), path)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    refused(path, "it cannot be read: permission denied")


def forged(path, value, arrays=None, **changes):
    """Write a file with a right checksum around a value that encode would not write."""
    header = {"class": GAUSSIAN, "fingerprint": None, "format": FORMAT, "library": "9.9"}
    header |= {"value": value} | changes
    arrays = {"0": np.array([1.0])} if arrays is None else arrays
    path.write_bytes(safetensors_bytes(arrays, {"bochner": sealed(header, arrays)}))


def test_a_newer_format_asks_for_an_upgrade(path):
    forged(path, {}, format=FORMAT + 1)
    refused(
        path, r"it is of format 4 by bochner 9.9, and this version, .*, reads format 3. Upgrade"
    )


@pytest.mark.parametrize("old", [1, 2])
def test_an_old_format_is_refused_in_one_sentence(old, path):
    forged(path, {}, format=old)
    refused(path, rf"it is of format {old}, which no released .*, reads format 3. Fit the model")


def test_a_forged_file_with_right_parts_loads(path):
    forged(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]})
    assert bo.load(path) == Gaussian(2.0)


def without(item, name):
    """Return a value of a file with no field of this name."""
    if isinstance(item, dict):
        return {key: without(part, name) for key, part in item.items() if key != name}
    return [without(part, name) for part in item] if isinstance(item, list) else item


@pytest.mark.parametrize("field", ["reach", "compared"])
def test_a_file_without_a_field_that_has_a_default_loads(field, path):
    """Of an error law its reach, inside which these rows are; of a search what was compared."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 2))
    model = KernelRidge(random_state=0)
    model.fit(rows, rows[:, 0] + np.exp(rows[:, 1] / 2) * rng.standard_normal(300))
    expected = model.predict_interval(rows[:9])
    bo.save(model, path)
    header = header_of(path)
    value = without(header["value"], field)
    assert value != header["value"]
    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    forged(path, value, arrays, **{"class": RIDGE})
    for found, wanted in zip(bo.load(path).predict_interval(rows[:9]), expected, strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    "value",
    [
        {"class": ["os.system", {"command": "true"}]},
        {"class": ["subprocess:Popen", {"args": ["true"]}]},
        {"class": ["models.._native:Any", {}]},
        {"class": ["cli.show:Terminal", {"as_json": True, "quiet": True}]},
        {"class": ["kernels.stationary:np", {}]},
        {"class": ["features.fourier.fourier:Gaussian", {}]},
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
def test_a_forged_file_builds_nothing_but_stored_classes(value, path):
    forged(path, value)
    refused(path, "holds a Gaussian as of bochner 9.9, which this version, .*, cannot build")


@pytest.mark.parametrize("version", ["3", "1", 0, -1, None, True, 3.0, [3]])
def test_a_format_that_is_none_is_refused(version, path):
    forged(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]}, format=version)
    refused(path, "it says that it is of format .*, and there is only 3")


def test_a_file_without_a_format_is_refused(path):
    header = {
        "class": "kernels.dotproduct:Linear",
        "library": "9.9",
        "value": {"class": ["kernels.dotproduct:Linear", {}]},
    }
    path.write_bytes(safetensors_bytes({}, {"bochner": sealed(header, {})}))
    refused(path, "it says that it is of format None, and there is only 3")


def test_a_file_that_holds_another_class_than_it_says_is_refused(path):
    forged(path, {"class": [GAUSSIAN, {"lengthscale": 2.0}]}, **{"class": RIDGE})
    refused(path, "says that it holds another class")


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
        ([3, 3], INDICES, INDPTR[:3], "index pointer size 3"),
        ([3, 3], INDICES.astype("f4"), INDPTR, "vectors of numbers and of indices"),
        ([3, 3], INDICES.astype("i1"), INDPTR.astype("i1"), "of one type, of 32 or 64 bits"),
        ([3, 3], INDICES[:, None], INDPTR, "vectors of numbers and of indices"),
        ([-3, -3], INDICES, INDPTR, "no shape of a sparse matrix"),
        ([3.0, 3.0], INDICES, INDPTR, "no shape of a sparse matrix"),
        ([2**40, 2**40], INDICES, INDPTR, "no shape of a sparse matrix"),
    ],
)  # fmt: skip
def test_sparse_matrices_that_point_out_of_bounds_are_refused(
    kind, shape, indices, indptr, match, path
):
    parts = {"0": np.ones(3), "1": np.asarray(indices), "2": np.asarray(indptr)}
    parts = {name: np.ascontiguousarray(part) for name, part in parts.items()}
    sparse = {"sparse": [kind, shape, *({"array": [name, "C"]} for name in parts)]}
    sparse = json.loads(json.dumps(sparse))
    if match is None:
        assert decode(sparse, parts).sum() == 3
    else:
        with pytest.raises((TypeError, ValueError), match=match):
            decode(sparse, parts)


def test_booleans_are_0_or_1():
    with pytest.raises(ValueError, match="array 0 must hold 0 and 1 only"):
        require_arrays({"0": np.array([0, 7], np.uint8).view(bool)})


def bombs():
    """Small files that ask for much memory."""
    text = {"text": ["str", [20_001], ["x" * 100_000, *[""] * 20_000]]}
    yield {"class": [GAUSSIAN, {"lengthscale": text}]}, {}
    many = {"text": ["str", [1001], ["x" * 1000, *[""] * 1000]]}
    yield {"tuple": [many] * 100}, {}
    yield {"class": [GAUSSIAN, {"lengthscale": [[] for _ in range(1_000_000)]}]}, {}
    yield (
        {"class": [GAUSSIAN, {"lengthscale": {"array": ["0", "C"]}}]},
        {"0": np.zeros((0, 2**40))},
    )
    yield (
        {
            "class": [
                LINEAR_MAP,
                {"kernel": {"class": ["kernels.dotproduct:Linear", {}]}, "inputs": 10**9},
            ]
        },
        {},
    )


@pytest.mark.parametrize("bomb", list(bombs()), ids=["text", "texts", "lists", "empty", "columns"])
def test_no_file_takes_much_more_memory_than_its_size(bomb, path):
    forged(path, *bomb, **{"class": LINEAR_MAP})
    tracemalloc.start()
    try:
        refused(path, "cannot build|cut short or altered")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * path.stat().st_size + (1 << 25)


def test_nesting_beyond_all_kernels_is_refused(path):
    value = {"class": [GAUSSIAN, {"lengthscale": 1.0}]}
    for _ in range(250):
        value = {"class": [SCALED, {"scale": 1.0, "kernel": value}]}
    forged(path, value, **{"class": SCALED})
    refused(path, "JSON is nested too deeply")


def test_a_sum_of_a_hundred_kernels_is_not_too_deep(path):
    kernel = sum((Columns(Gaussian(float(j + 1)), (j,)) for j in range(1, 100)), Gaussian())
    bo.save(kernel, path)
    assert bo.load(path) == kernel


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["coef", "intercept"])
def test_coefficients_that_are_no_numbers_are_refused(part, bad, path):
    model = fitted()
    getattr(model.solution_, part).flat[0] = bad
    bo.save(model, path)
    refused(path, f"{part} of Solution must be finite")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"predict": 1}, "predict is no name of fitted state"),
        ({"__class__": 1}, "__class__ is no name of fitted state"),
        ({"kernel_": 1}, "kernel_ is no name of fitted state"),
    ],
)
def test_parts_of_a_learner_that_do_not_fit_are_refused(change, match, path):
    model = fitted()
    vars(model).update(change)
    bo.save(model, path)
    refused(path, match)


def changed(fit, place, value):
    """The fit with another value at a place such as "summed.target_shape"."""
    name, _, rest = place.partition(".")
    return replace(fit, **{name: changed(getattr(fit, name), rest, value) if rest else value})


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        ("inputs.n_features_in", 4, "parts of the model disagree"),
        ("inputs.n_features_in", 10**9, "parts of the model disagree"),
        ("inputs.n_features_in", "3", "must be of type|n_features_in of Inputs"),
        ("summed.chosen.choice.map", None, "must be of type|map of Choice"),
        ("summed.target_shape", (2,), "cannot reshape"),
        ("solution", None, "solution of RidgeFit"),
    ],
)
def test_parts_of_a_fit_that_do_not_fit_are_refused(place, value, match, path):
    model = fitted()
    model.fit_ = changed(model.fit_, place, value)
    bo.save(model, path)
    refused(path, match)


@pytest.mark.slow
def test_forged_files_never_crash_hang_or_take_memory():
    """5,000 altered files with right checksums, used where they load, in a process of their own."""
    program = pathlib.Path(forging.__file__)
    done = subprocess.run(
        [sys.executable, str(program), "20", "5000"],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    came = json.loads(done.stdout.splitlines()[-1])  # a forged ``verbose`` prints before it
    assert came["wrong"] == []
    assert came["loaded"] > 500
    assert came["refused"] > 2500


def test_a_file_cut_short_anywhere_is_refused(model, path):
    bo.save(model, path)
    whole = path.read_bytes()
    for cut in sorted(
        {len(whole) * i // 50 for i in range(50)} | set(range(40)) | {len(whole) - 1}
    ):
        path.write_bytes(whole[:cut])
        refused(path, "must be a model file as bochner.save writes it")
    path.write_bytes(whole + b"\0")
    refused(path, "it is cut short or altered. Copy it again, or save the model again")


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_a_file_altered_anywhere_is_refused_or_still_the_same(model, path, flip):
    bo.save(model, path)
    whole, before = path.read_bytes(), model.predict(X).tobytes()
    places = np.unique(
        np.concatenate([np.arange(64), np.geomspace(64, len(whole) - 1, 150).astype(int)])
    )
    altered, same = bytearray(whole), 0
    for place in places:
        altered[place] ^= flip
        path.write_bytes(altered)
        try:
            same += bo.load(path).predict(X).tobytes() == before
        except ModelFileError:
            same += 1
        altered[place] ^= flip
    assert same == len(places)


def test_every_bit_is_covered_and_the_array_is_named(path):
    bo.save(bo.draw(Gaussian(), n_features=4, n_inputs=2, random_state=0), path)
    whole = path.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    outer = json.loads(whole[8:start])
    owner = {}
    for name in outer.keys() - {"__metadata__"}:
        owner |= dict.fromkeys(range(*(start + o for o in outer[name]["data_offsets"])), name)
    assert sorted(owner) == list(range(start, len(whole)))
    for place in range(len(whole)):
        for bit in range(8):
            altered = bytearray(whole)
            altered[place] ^= 1 << bit
            path.write_bytes(altered)
            name = owner.get(place)
            refused(path, f"its array '{name}' is altered" if name else "must be a model file as")


def test_loading_warns_of_nothing(model, path):
    bo.save(model, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SolutionWarning)
        bo.load(path)


# ==== Pickles of estimators come back in the version that wrote them, and are refused by others.


X_PICKLES = np.random.default_rng(0).normal(size=(60, 2))
Y_PICKLES = np.sin(X_PICKLES[:, 0])


@pytest.fixture
def by_another(monkeypatch):
    """As if what is pickled from here on were by another version."""
    module = import_module("bochner.models._pickles")

    def write(value, dump):
        with monkeypatch.context() as there:
            there.setattr(module, "__version__", "0.0.9")
            return dump(value)

    return write


@pytest.mark.parametrize(
    "name", [name for name in models.__all__ if hasattr(getattr(models, name), "get_params")]
)
def test_a_pickle_opens_in_the_version_that_wrote_it_and_in_no_other(name, by_another):
    model = getattr(models, name)()
    again = pickle.loads(pickle.dumps(model))
    assert vars(again).keys() == vars(model).keys()
    message = (
        f"{name}: a pickle opens in the version of bochner that wrote it; this is "
        f"{bo.__version__}, and the pickle is by 0.0.9. Fit again, and keep models with bochner.save"
    )
    with pytest.raises(ModelFileError, match=message):
        pickle.loads(by_another(model, pickle.dumps))


def test_a_file_of_joblib_with_a_pipeline_is_refused_too(tmp_path, by_another):
    ridge = bo.KernelRidge("gaussian", n_features=8, random_state=0)
    model = make_pipeline(StandardScaler(), ridge).fit(X_PICKLES, Y_PICKLES)
    path = tmp_path / "model.joblib"
    joblib.dump(model, path)
    np.testing.assert_array_equal(joblib.load(path).predict(X_PICKLES), model.predict(X_PICKLES))
    by_another(model, lambda value: joblib.dump(value, path))
    with pytest.raises(ModelFileError, match="KernelRidge: a pickle opens in the version"):
        joblib.load(path)


def test_a_pickle_that_says_no_version_is_refused():
    with pytest.raises(ModelFileError, match="the pickle is by one that says no version"):
        bo.KernelRidge().__setstate__({"kernel": "auto"})


def test_copies_have_the_same_attributes():
    model = bo.KernelRidge("gaussian", n_features=8, random_state=0).fit(X_PICKLES, Y_PICKLES)
    for twin in (copy.copy(model), copy.deepcopy(model)):
        assert vars(twin).keys() == vars(model).keys()
        np.testing.assert_array_equal(twin.predict(X_PICKLES), model.predict(X_PICKLES))


# ==== Files of skops: every learner comes back as it was, by the types that are named to be trusted.


skops_io = pytest.importorskip("skops.io")

X_SKOPS = np.random.default_rng(0).normal(size=(80, 2))
Y_SKOPS, CLASSES = X_SKOPS[:, 0] + X_SKOPS[:, 1] ** 2, X_SKOPS[:, 0] > 0
WORDS = np.where(CLASSES, "right", "left")
OPTIONS = dict(n_features=16, random_state=0)
MODELS = {
    "ridge": lambda: bo.KernelRidge(**OPTIONS).fit(X_SKOPS, Y_SKOPS),
    "ridge of a sum": lambda: bo.KernelRidge(
        Gaussian() + 0.5 * Matern(1.5), method="nystrom", **OPTIONS
    ).fit(X_SKOPS, Y_SKOPS),
    "exact": lambda: bo.KernelRidge(method="exact", random_state=0).fit(X_SKOPS, Y_SKOPS),
    "ridge classifier": lambda: bo.KernelRidgeClassifier(**OPTIONS).fit(X_SKOPS, WORDS),
    "process": lambda: bo.GaussianProcessRegressor(**OPTIONS).fit(X_SKOPS, Y_SKOPS),
    "svc": lambda: bo.SVC(probability=True, **OPTIONS).fit(X_SKOPS, CLASSES),
    "logistic": lambda: bo.LogisticRegression(method="hermite", **OPTIONS).fit(X_SKOPS, CLASSES),
    "svr": lambda: bo.SVR(**OPTIONS).fit(X_SKOPS, Y_SKOPS),
    "regressor": lambda: bo.KernelRegressor(**OPTIONS).fit(X_SKOPS, Y_SKOPS),
    "one class": lambda: bo.OneClassSVM(**OPTIONS).fit(X_SKOPS),
    "descent": lambda: bo.KernelSGDRegressor(**OPTIONS).fit(X_SKOPS, Y_SKOPS),
    "descent of classes": lambda: bo.KernelSGDClassifier(**OPTIONS).fit(X_SKOPS, CLASSES),
    "components": lambda: bo.KernelPCA(2, fit_inverse_transform=True, **OPTIONS).fit(X_SKOPS),
    "means": lambda: bo.KernelKMeans(2, **OPTIONS).fit(X_SKOPS),
    "features": lambda: bo.KernelFeatures(method="hermite", **OPTIONS).fit(X_SKOPS),
    "correlations": lambda: bo.KernelCCA(1, **OPTIONS).fit(X_SKOPS, X_SKOPS[:, :1] ** 2),
    "pipeline": lambda: make_pipeline(StandardScaler(), bo.KernelRidge(**OPTIONS)).fit(
        X_SKOPS, Y_SKOPS
    ),
    "not fitted": lambda: bo.KernelRidge(Gaussian(0.5)),
}


def answers(model):
    if not hasattr(model, "fit_") and not hasattr(model, "steps"):
        return repr(model)
    return (model.predict if hasattr(model, "predict") else model.transform)(X_SKOPS).tolist()


@pytest.mark.main_cases(7)
@pytest.mark.parametrize("name", MODELS)
def test_a_learner_comes_back_as_it_was(name):
    model = MODELS[name]()
    wanted = answers(model)
    again = skops_io.loads(skops_io.dumps(model), trusted=bo.export.TRUSTED)
    assert type(again) is type(model)
    assert answers(again) == wanted


def test_what_was_asked_for_before_comes_back_too():
    model = bo.KernelRidge(**OPTIONS).fit(X_SKOPS, Y_SKOPS)
    wanted = model.certificate_.epsilon
    again = skops_io.loads(skops_io.dumps(model), trusted=bo.export.TRUSTED)
    assert again.certificate_.epsilon == wanted
    assert again.solution_.outcome is model.solution_.outcome


def test_without_the_list_nothing_of_ours_is_built():
    with pytest.raises(skops_io.exceptions.UntrustedTypesFoundException, match="bochner"):
        skops_io.loads(skops_io.dumps(MODELS["ridge"]()))
