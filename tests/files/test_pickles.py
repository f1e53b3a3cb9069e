"""Pickles of estimators come back in the version that wrote them, and are refused by others."""

import copy
import pickle
from importlib import import_module

import joblib
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from bochner import models
from bochner.errors import ModelFileError

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.sin(X[:, 0])


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
    model = make_pipeline(StandardScaler(), ridge).fit(X, Y)
    path = tmp_path / "model.joblib"
    joblib.dump(model, path)
    np.testing.assert_array_equal(joblib.load(path).predict(X), model.predict(X))
    by_another(model, lambda value: joblib.dump(value, path))
    with pytest.raises(ModelFileError, match="KernelRidge: a pickle opens in the version"):
        joblib.load(path)


def test_a_pickle_that_says_no_version_is_refused():
    with pytest.raises(ModelFileError, match="the pickle is by one that says no version"):
        bo.KernelRidge().__setstate__({"kernel": "auto"})


def test_copies_have_the_same_attributes():
    model = bo.KernelRidge("gaussian", n_features=8, random_state=0).fit(X, Y)
    for twin in (copy.copy(model), copy.deepcopy(model)):
        assert vars(twin).keys() == vars(model).keys()
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
