"""Arrays in files and arrays with coordinates: HDF5, Zarr, netCDF, by themselves and by xarray."""

import pickle

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Gaussian

xr = pytest.importorskip("xarray")

rng = np.random.default_rng(0)
X = rng.standard_normal((10, 20, 6, 2))
Y = np.sin(X[..., 0]) + 0.1 * rng.standard_normal(X.shape[:-1])
ROWS, TARGETS = X.reshape(-1, 2), Y.ravel()
OPTIONS = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def ridge():
    return bo.KernelRidge(**OPTIONS)


PLAIN = ridge().fit(ROWS, TARGETS)
FIELD = xr.DataArray(
    X,
    dims=("time", "lat", "lon", "variable"),
    coords={
        "time": pd.date_range("2000-01-01", periods=10),
        "lat": np.linspace(-45, 45, 20),
        "area": ("lat", np.cos(np.linspace(-1, 1, 20))),
        "variable": ["wind", "pressure"],
    },
    attrs={"units": "various"},
)
TARGET = FIELD.isel(variable=0, drop=True).copy(data=Y)


# ---- with coordinates


@pytest.mark.parametrize("targets", [TARGET, TARGET.transpose("lon", "time", "lat"), Y])
def test_rows_lie_along_all_dimensions_but_the_last_and_keep_their_coordinates(targets):
    model = ridge().fit(FIELD, targets)
    np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
    found = model.predict(FIELD)
    assert found.dims == ("time", "lat", "lon")
    assert found.name == "prediction"
    assert set(found.coords) == {"time", "lat", "area"}
    assert found.attrs == {}
    xr.testing.assert_equal(found.area, FIELD.area)
    np.testing.assert_array_equal(found.data.ravel(), PLAIN.predict(ROWS))


def test_chunks_of_dask_are_predicted_when_they_are_asked_for():
    pytest.importorskip("dask.array")
    field = FIELD.chunk(time=3)
    model = ridge().fit(field, TARGET.chunk(lat=7))
    np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
    found = model.predict(field)
    assert found.chunks is not None
    xr.testing.assert_allclose(found.compute(), PLAIN.predict(FIELD), rtol=1e-12)
    blocks = bo.Blocks.from_arrays(field, TARGET)
    np.testing.assert_array_equal(ridge().fit_blocks(blocks).coef_, PLAIN.coef_)


def test_rows_that_are_left_out_of_a_field_are_gaps_in_its_predictions():
    sea = FIELD.where(FIELD.lat > 0)
    rows = sea.stack(place=("time", "lat", "lon")).transpose("place", "variable").dropna("place")
    found = PLAIN.predict(rows).unstack("place")
    whole = PLAIN.predict(FIELD).sel(lat=found.lat)
    np.testing.assert_allclose(found.transpose(*whole.dims), whole, rtol=1e-12)


def test_several_columns_of_predictions_lie_along_a_dimension_of_their_own():
    both = xr.concat([TARGET, 2 * TARGET], "target").transpose("time", "target", ...)
    found = ridge().fit(FIELD, both).predict(FIELD)
    assert found.dims == ("time", "lat", "lon", "prediction")
    np.testing.assert_allclose(found[..., 1], 2 * found[..., 0], rtol=1e-9)
    classes = bo.LogisticRegression(C=1.0, **OPTIONS).fit(
        FIELD, xr.where(TARGET > 0, "high", "low"), sample_weight=FIELD.area + 0 * TARGET
    )
    assert set(np.unique(classes.predict(FIELD))) == {"high", "low"}
    assert classes.predict_proba(FIELD).dims == ("time", "lat", "lon", "probability")
    process = bo.GaussianProcessRegressor(noise=0.1, amplitude=1.0, **OPTIONS).fit(FIELD, TARGET)
    mean, deviation = process.predict(FIELD, return_std=True)
    assert mean.dims == deviation.dims == TARGET.dims


def test_columns_alone_are_fitted_too():
    features = bo.KernelFeatures(**OPTIONS).fit(FIELD)
    assert features.transform(FIELD).dims == ("time", "lat", "lon", "component")
    parts = bo.KernelPCA(2, **OPTIONS).fit(FIELD, sample_weight=1 + 0 * TARGET)
    assert parts.transform(FIELD).sizes["component"] == 2


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (TARGET.isel(time=slice(9)), "got others of 'time'"),
        (TARGET.isel(lat=0), "got none of 'lat'"),
        (TARGET.assign_coords(lat=np.arange(20.0)), "got others of 'lat'"),
    ],
    ids=["shorter", "fewer", "elsewhere"],
)
def test_targets_of_other_places_are_refused(targets, message):
    with pytest.raises(
        InvalidInput, match=rf"KernelRidge: y must have the row dimensions of X, time.*{message}"
    ):
        ridge().fit(FIELD, targets)


def test_one_dimension_is_refused():
    with pytest.raises(InvalidInput, match=r"X must have two dimensions.*DataArray.*\('time',\)"):
        ridge().fit(FIELD[:, 0, 0, 0], TARGET[:, 0, 0])


# ---- in files


def in_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "rows.h5", "w")
    X = file.create_dataset("X", data=ROWS, chunks=(300, 1))
    return X, file.create_dataset("y", data=TARGETS)


def in_zarr(folder):
    zarr = pytest.importorskip("zarr")
    X = zarr.create_array(folder / "X.zarr", shape=ROWS.shape, chunks=(300, 2), dtype="f8")
    X[:] = ROWS
    y = zarr.create_array(folder / "y.zarr", shape=TARGETS.shape, chunks=(70,), dtype="f8")
    y[:] = TARGETS
    return X, y


@pytest.mark.parametrize("write", [in_hdf5, in_zarr])
def test_an_array_in_a_file_is_read_by_slices_that_end_where_chunks_do(
    write, tmp_path, monkeypatch
):
    monkeypatch.setattr("bochner.data.stored.CELLS_READ", 2 * 700)  # two chunks of 300 rows
    rows, targets = write(tmp_path)
    blocks = bo.Blocks.from_arrays(rows, targets, block_rows=256)
    taken = []
    read = type(blocks.source)._read
    monkeypatch.setattr(
        type(blocks.source), "_read", lambda s, a, b: taken.append((a, b)) or read(s, a, b)
    )
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), ROWS)
    assert taken == [(0, 600), (600, 1200)]
    part = pickle.loads(pickle.dumps(blocks.part(256, 1100)))
    np.testing.assert_array_equal(np.concatenate([block.X for block in part]), ROWS[256:1100])
    assert next(iter(part)).start == 256


@pytest.mark.parametrize("write", [in_hdf5, in_zarr])
def test_an_array_in_a_file_is_fitted_and_predicted_as_one_in_memory(write, tmp_path):
    rows, targets = write(tmp_path)
    blocks = bo.Blocks.from_arrays(rows, targets)
    there = (ridge().fit(rows, targets), ridge().fit_blocks(blocks))
    for model in there:
        np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
        np.testing.assert_array_equal(model.predict(rows), PLAIN.predict(ROWS))
    labels = np.where(TARGETS > 0, "high", "low")
    classes = bo.SVC(C=1.0, **OPTIONS)
    assert classes.fit(rows, labels).score(rows, labels) > 0.9


@pytest.mark.parametrize("write", [in_hdf5, in_zarr])
def test_an_array_in_a_file_is_fitted_through_dask(write, tmp_path):
    da = pytest.importorskip("dask.array")
    rows, targets = (da.from_array(array, chunks="auto") for array in write(tmp_path))
    model = ridge().fit(rows, targets)
    np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
    np.testing.assert_allclose(model.predict(rows).compute(), PLAIN.predict(ROWS), rtol=1e-12)


def test_small_chunks_of_dask_are_read_together():
    """A task takes milliseconds, and more where its graph is long."""
    da = pytest.importorskip("dask.array")
    rows = da.from_array(ROWS, chunks=(2, 1))
    targets = da.from_array(TARGETS, chunks=5)
    tasks = bo.Blocks.from_arrays(rows, targets).source.partitions
    assert len(rows.to_delayed()) == len(ROWS) / 2
    assert len(tasks) < 100
    np.testing.assert_array_equal(ridge().fit(rows, targets).coef_, PLAIN.coef_)
    large = da.from_array(ROWS, chunks=(500, 2))
    found = bo.Blocks.from_arrays(large, targets).source.chunks
    assert [chunk.rows for chunk in found] == [500, 500, len(ROWS) - 1000]


@pytest.mark.parametrize(("name", "package"), [("netcdf", "h5netcdf"), ("zarr", "zarr")])
def test_a_file_of_xarray_is_predicted_into_another(name, package, tmp_path):
    pytest.importorskip(package)
    pytest.importorskip("dask.array")
    whole = xr.Dataset({"X": FIELD, "y": TARGET})
    if name == "zarr":
        whole.drop_vars("variable").to_zarr(tmp_path / "field.zarr", consolidated=False)
        field = xr.open_zarr(tmp_path / "field.zarr", consolidated=False)
    else:
        whole.to_netcdf(tmp_path / "field.nc", engine="h5netcdf")
        field = xr.open_dataset(tmp_path / "field.nc", engine="h5netcdf", chunks={"time": 4})
    model = ridge().fit(field.X, field.y)
    np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
    model.predict(field.X).to_netcdf(tmp_path / "found.nc", engine="scipy")
    with xr.open_dataarray(tmp_path / "found.nc", engine="scipy") as found:
        xr.testing.assert_allclose(found, PLAIN.predict(FIELD), rtol=1e-12)


def test_a_checkpoint_tells_stored_rows_from_others(tmp_path):
    rows, _ = in_hdf5(tmp_path)
    before = bo.Blocks.from_arrays(rows, TARGETS).source.mark()
    assert bo.Blocks.from_arrays(rows, TARGETS).source.mark() == before
    assert bo.Blocks.from_arrays(rows, -TARGETS).source.mark() != before
    rows[-1] = 0
    assert bo.Blocks.from_arrays(rows, TARGETS).source.mark() != before


def test_stored_values_that_cannot_be_are_refused(tmp_path):
    rows, _ = in_hdf5(tmp_path)
    rows[700, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"column 1 of X must hold finite.*row 700"):
        ridge().fit(rows, TARGETS)
    with pytest.raises(InvalidInput, match=r"y must .*one entry per row of X \(1200\); got .*\(5,"):
        ridge().fit(rows, TARGETS[:5])
    with pytest.raises(InvalidType, match="must hold real numbers"):
        bo.Blocks.from_arrays(rows.file.create_dataset("z", data=1j * ROWS))
    with pytest.raises(InvalidInput, match="at least one row"):
        bo.Blocks.from_arrays(rows.file.create_dataset("none", shape=(0, 2), dtype="f8"))
