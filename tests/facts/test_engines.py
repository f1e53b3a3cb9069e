"""Engines and devices give the bits of one process; tables that engines hold bring them."""

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from copy import deepcopy
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import bochner as bo
from bochner.cli import main
from bochner.data.columns import CellsOf, columns_from
from bochner.errors import (
    BochnerError,
    DataFileError,
    DataWarning,
    EngineError,
    InvalidInput,
    InvalidType,
)
from bochner.kernels import Gaussian
from bochner.sums.executor import LOCAL
from bochner.sums.moments import Moments, MomentsOf
from bochner.sums.rows import SampleOf

# ==== Engines give the bits of one process, whatever their workers do.


rng = np.random.default_rng(0)
N = 140_000  # three parts
X = rng.standard_normal((N, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
LABELS = (Y > 0).astype(float)
W = rng.integers(0, 3, N).astype(float)
OPTIONS = dict(method="orthogonal", n_features=8, random_state=0)
HERE = bo.engines.Local(memory=0)


def blocks(y=Y, w=None):
    return bo.Blocks.from_arrays(X, y, w)


@pytest.fixture(params=["dask", "ray", "spark"])
def engine(request):
    """The engine, with its workers started."""
    if request.param == "dask":
        return bo.engines.Dask(request.getfixturevalue("dask_client"))
    if request.param == "spark":
        return bo.engines.Spark(request.getfixturevalue("spark_session"))
    request.getfixturevalue("ray_here")
    return bo.engines.Ray()


pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

LEARNERS = {
    "ridge": (bo.KernelRidge, {}, Y, lambda m: m.coef_),
    "classifier": (bo.KernelRidgeClassifier, {}, LABELS, lambda m: m.coef_),
    "pca": (lambda **o: bo.KernelPCA(2, **o), {}, Y, lambda m: m.fit_.eigenvectors),
    "cca": (lambda **o: bo.KernelCCA(1, **o), {}, Y, lambda m: m.fit_.directions.a),
    "clusters": (
        lambda **o: bo.KernelKMeans(3, **o),
        dict(max_iter=2, tol=1.0),
        Y,
        lambda m: m.fit_.clusters.centres,
    ),
    "svc": (bo.SVC, dict(C=1.0), LABELS, lambda m: m.solution_.coef),
    "logistic": (bo.LogisticRegression, dict(C=1.0), LABELS, lambda m: m.solution_.coef),
    "svr": (
        bo.SVR,
        dict(C=1.0, epsilon=0.1, loss="squared_epsilon_insensitive"),
        Y,
        lambda m: m.solution_.coef,
    ),
    "huber": (bo.KernelRegressor, dict(loss="huber", alpha=1.0), Y, lambda m: m.solution_.coef),
    "one class": (bo.OneClassSVM, dict(nu=0.1, tol=1e-2), None, lambda m: m.solution_.coef),
    "process": (
        bo.GaussianProcessRegressor,
        dict(noise=0.1, amplitude=1.0),
        Y,
        lambda m: m.predict(X[:50]),
    ),
}


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("name", LEARNERS)
def test_an_engine_gives_the_bits_of_one_process(dask_client, name):
    make, options, y, bits = LEARNERS[name]
    rows = blocks(y, W if name in ("ridge", "svc") else None)
    here, there = (
        make(kernel=Gaussian(1.0), **options, **OPTIONS).fit_blocks(rows, where=where)
        for where in (HERE, bo.engines.Dask(dask_client))
    )
    np.testing.assert_array_equal(bits(there), bits(here))


@pytest.mark.main_cases(1)
def test_what_is_open_is_chosen_on_the_engine(engine):
    here, there = (
        bo.KernelRidge("gaussian", n_features=8, method="orthogonal", random_state=0).fit_blocks(
            blocks(), where=where
        )
        for where in (HERE, engine)
    )
    assert there.kernel_ == here.kernel_
    np.testing.assert_array_equal(there.coef_, here.coef_)


def test_files_are_read_by_workers_and_text_here(dask_client, tmp_path):
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    for i, rows in enumerate((slice(0, 90_001), slice(90_001, N))):
        table[rows].write_parquet(tmp_path / f"{i}.parquet", row_group_size=33_333)
    (tmp_path / "text").mkdir()
    table[:70_000].write_csv(tmp_path / "text" / "rows.csv")
    for files in (tmp_path / "*.parquet", tmp_path / "text"):
        here, there = (
            bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(
                bo.Blocks.from_files(files, target="y"), where=where
            )
            for where in (HERE, bo.engines.Dask(dask_client))
        )
        np.testing.assert_array_equal(there.coef_, here.coef_)


@cache
def raw_table():
    """Columns of every kind, and gaps in them."""
    pd = pytest.importorskip("pandas")
    few = np.array(["red", "green", "blue"], dtype=object)[rng.integers(0, 3, N)]
    few[rng.random(N) < 0.1] = None
    many = rng.integers(0, 200, N)
    table = pd.DataFrame(
        {
            "a": np.where(rng.random(N) < 0.1, np.nan, X[:, 0]),
            "b": X[:, 1],
            "same": X[:, 1],
            "one": 1.0,
            "few": few,
            "many": np.char.add("N", many.astype(str)),
            "day": pd.date_range("2019-01-01", periods=N, freq="7min"),
        }
    )
    return table.assign(y=Y + many / 100)


def test_columns_are_learned_by_workers_and_are_those_of_one_process(dask_client, tmp_path):
    """Means of 200 levels have the same bits."""
    table = raw_table()
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=33_333)
    sources = (
        bo.Blocks.from_table(table, target="y"),
        bo.Blocks.from_files(tmp_path / "rows.parquet", target="y"),
    )
    for source in sources:
        read = []
        drafts, cells = source.source.drafts, source.cells()
        here = columns_from(drafts, LOCAL.sum(CellsOf(drafts), cells))
        with bo.engines.Dask(dask_client).passes("", source) as executor:
            there = columns_from(drafts, executor.sum(CellsOf(drafts), cells.watch(read.append)))
        assert there.encoders == here.encoders
        kinds = {type(e).__name__ for e in here.encoders}
        assert kinds == {"Numbers", "Levels", "Times"}
        one, other = here.fold_tables["many"], there.fold_tables["many"]
        np.testing.assert_array_equal(other, one)
        assert sum(read) == N


@pytest.mark.main_cases(1)
@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")
def test_a_table_as_it_comes_is_fitted_by_an_engine(engine):
    here, there = (
        bo.KernelRidge(Gaussian(3.0), **OPTIONS).fit_blocks(
            bo.Blocks.from_table(raw_table(), target="y"), where=where
        )
        for where in (HERE, engine)
    )
    assert there.schema_ == here.schema_
    np.testing.assert_array_equal(there.coef_, here.coef_)


def test_sums_of_cells_are_those_of_all_rows_however_they_are_cut():
    blocks = bo.Blocks.from_table(raw_table(), target="y", block_rows=1_000)
    summand, cells = CellsOf(blocks.source.drafts), [*blocks.cells()]
    whole, parts = summand.zero(), [summand.zero() for _ in range(3)]
    for i, block in enumerate(cells):
        whole = summand.add(whole, block)
        parts[i * 3 // len(cells)] = summand.add(parts[i * 3 // len(cells)], block)
    first, second, third = parts
    merged = summand.merge(first, summand.merge(second, third))
    for name in ("rows", "missing", "least", "most", "marks"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))
    np.testing.assert_array_equal(merged.sample.X, whole.sample.X)
    table = raw_table()
    assert merged.rows == len(table)
    np.testing.assert_array_equal(merged.missing, table.drop(columns="y").isna().sum())
    j = [e.name for e in summand.drafts].index("many")
    levels = table["many"].value_counts().reindex(summand.drafts[j].levels)
    np.testing.assert_array_equal(merged.counts[j], levels)
    means = table.groupby("many")["y"].mean().reindex(summand.drafts[j].levels)
    sums = merged.means["many"]
    found = sums.total.sum(axis=0)[:-1, 0] / sums.count.sum(axis=0)[:-1]
    np.testing.assert_allclose(found, means, rtol=1e-12)


def test_a_worker_that_is_killed_changes_no_bits(dask_client):
    make, _, _, bits = LEARNERS["ridge"]
    model = lambda: make(kernel=Gaussian(1.0), **(OPTIONS | dict(n_features=64)))
    whole = model().fit_blocks(blocks(), where=HERE)
    pids = dask_client.run(os.getpid)
    killer = threading.Timer(0.05, os.kill, (next(iter(pids.values())), signal.SIGKILL))
    killer.start()
    there = model().fit_blocks(blocks(), where=bo.engines.Dask(dask_client))
    killer.join()
    np.testing.assert_array_equal(bits(there), bits(whole))
    dask_client.wait_for_workers(2, timeout=60)


# ---- watching


def test_tasks_have_names_rows_are_counted_and_passes_are_logged(dask_client, caplog, monkeypatch):
    """The dashboard groups tasks by what their keys begin with."""
    key_split = pytest.importorskip("dask.utils").key_split
    rows, crews, names, submit = [], [], set(), dask_client.submit

    def noted(*args, key, **options):
        names.add(key_split(key))
        return submit(*args, key=key, **options)

    monkeypatch.setattr(dask_client, "submit", noted)
    watched = blocks().watch(rows.append, crews.append)
    model = bo.KernelRidge(Gaussian(1.0), **OPTIONS)
    with caplog.at_level(logging.INFO, logger="bochner"):
        model.fit_blocks(watched, where=bo.engines.Dask(dask_client))
    assert sum(rows) % N == 0
    assert set(crews) == {2}
    assert f"{N} rows by 2 workers" in caplog.text
    assert names == {"bochner-share", "bochner-rows", "bochner-merge"}


def _sent(dask_worker):
    """Bytes that a worker gave to others so far, by key."""
    log = dask_worker.transfer_outgoing_log
    return [(key, size) for entry in log for key, size in entry["keys"].items()]


def test_a_map_and_sums_of_parts_travel_and_no_rows(dask_client, tmp_path, monkeypatch):
    """Files are read by workers: one map comes in, for each part one sum goes out, 8 D² bytes."""
    pl = pytest.importorskip("polars")
    pickle = pytest.importorskip("cloudpickle")
    wide = 128
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).write_parquet(tmp_path / "rows.parquet")
    submit, handed, before = dask_client.submit, [], dask_client.run(_sent)

    def noted(function, *args, key, **options):
        own = [a for a in args if type(a).__name__ != "Future"]
        handed.append((key.split("-")[1], len(pickle.dumps((function, own)))))
        return submit(function, *args, key=key, **options)

    monkeypatch.setattr(dask_client, "submit", noted)
    model = bo.KernelRidge(Gaussian(1.0), **(OPTIONS | dict(n_features=wide, alpha=0.1)))
    model.fit_blocks(
        bo.Blocks.from_files(tmp_path / "rows.parquet", target="y"),
        where=bo.engines.Dask(dask_client),
    )
    maps, rows, merges = (
        [n for k, n in handed if k == name] for name in ("share", "rows", "merge")
    )
    one_sum, one_map = 8 * wide**2, 8 * wide  # of wide / 2 frequencies in two columns
    assert sum(size > one_map for size in maps) >= 1
    assert max(rows) < 20_000  # where rows are, whatever D
    assert 2 <= len(rows) - len(merges) <= len(rows) / 2  # passes, each of two parts or more
    assert max(merges) < 20_000
    after = dask_client.run(_sent)
    sent = [one for worker in after for one in after[worker][len(before.get(worker, ())) :]]
    sums = [size for key, size in sent if "-share-" not in key]
    assert len(sums) <= len(rows) + len(merges)  # a sum goes to one worker or here, once
    assert max(sums) < 1.1 * one_sum + 10_000
    assert len([key for key, _ in sent if "-share-" in key]) <= 2 * len(maps)


INTERRUPTED = """
import sys
import numpy as np
import bochner as bo
from bochner.kernels import Gaussian

X = np.random.default_rng(0).standard_normal((1_000_000, 2))
said = []

def say(rows):
    if not said:
        said.append(rows)
        print("reading", flush=True)

blocks = bo.Blocks.from_arrays(X, X[:, 0]).watch(say)
model = bo.KernelRidge(Gaussian(1.0), method="orthogonal", n_features=256, random_state=0)
model.fit_blocks(blocks, where=bo.engines.Dask(sys.argv[1]))
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_fit_by_workers_and_leaves_them_nothing_to_do(dask_client):
    command = [sys.executable, "-c", INTERRUPTED, dask_client.scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.stdout.readline() != b"reading\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    left = lambda dask_scheduler: [k for k in dask_scheduler.tasks if k.startswith("bochner-rows")]
    for _ in range(50):
        if not dask_client.run_on_scheduler(left):
            return
        time.sleep(0.1)
    raise AssertionError("tasks of a fit that was ended are still to be done")


# ---- refusals


@pytest.mark.main_cases(1)
def test_values_that_cannot_be_are_refused_with_their_row(engine):
    there = X.copy()
    there[100_000, 1] = np.nan
    model = bo.KernelRidge(Gaussian(1.0), **OPTIONS)
    with pytest.raises(InvalidInput, match=r"column 1 of X must hold finite.*row 100000") as caught:
        model.fit_blocks(bo.Blocks.from_arrays(there, Y), where=engine)
    assert "Rows 65,536 to 131,071" in str(caught.value)
    assert not hasattr(model, "fit_")


def test_rows_without_weight_are_refused(dask_client):
    with pytest.raises(InvalidInput, match="at least one row must have a weight above zero"):
        bo.KernelPCA(2, Gaussian(1.0), **OPTIONS).fit_blocks(
            blocks(Y, 0 * W), where=bo.engines.Dask(dask_client)
        )


def test_what_fails_on_a_worker_is_told_with_its_rows(dask_client):
    def broken(y):
        raise OSError("no such disk")

    rows = blocks().recoded(broken)
    with (
        bo.engines.Dask(dask_client).passes("", rows) as executor,
        pytest.raises(EngineError, match=r"rows \d+,?\d* to .* of arrays.*OSError: no such disk"),
    ):
        executor.sum(SampleOf(0), rows)


class Lacking:
    """A change of y that comes out of a package which no worker has."""

    def __call__(self, y):
        return y

    def __reduce__(self):
        return import_module, ("package_of_this_process",)


@pytest.mark.main_cases(1)
def test_what_workers_lack_is_named(engine, monkeypatch):
    monkeypatch.setattr("bochner.engines.spark.TRIES", 1)
    model = bo.KernelRidge(Gaussian(1.0), **OPTIONS)
    with pytest.raises(
        EngineError,
        match=r"able to add up rows .* (No module named 'package_of|.*deseriali).*Install on",
    ):
        model.fit_blocks(blocks().recoded(Lacking()), where=engine)
    assert not hasattr(model, "fit_")


@pytest.mark.main_cases(1)
def test_rows_whose_workers_die_each_time_are_named(engine, monkeypatch):
    """What a machine without memory for them does."""
    here, first = os.getpid(), Y[1 << 16]

    def dies(y):
        if os.getpid() != here and y[0] == first:
            os._exit(1)
        return y

    monkeypatch.setattr("bochner.engines.ray.RETRIES", 0)
    monkeypatch.setattr("bochner.engines.spark.TRIES", 1)
    if isinstance(engine, bo.engines.Dask):
        once = lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0)
        engine.client.run_on_scheduler(once)
    model = bo.KernelRidge(Gaussian(1.0), **OPTIONS)
    with pytest.raises(EngineError, match=r"rows [\d,]+ to [\d,]+.* memory"):
        model.fit_blocks(blocks().recoded(dies), where=engine)
    assert not hasattr(model, "fit_")
    if isinstance(engine, bo.engines.Dask):
        engine.client.wait_for_workers(2, timeout=60)
    np.testing.assert_array_equal(
        model.fit_blocks(blocks(), where=engine).coef_,
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=HERE).coef_,
    )


@pytest.mark.filterwarnings("ignore")  # of dask, about ports and what it closes
def test_a_scheduler_that_is_lost_in_a_fit_is_told():
    distributed = pytest.importorskip("distributed")
    options = dict(processes=False, dashboard_address=None, silence_logs=logging.CRITICAL)
    model = bo.KernelRidge(Gaussian(1.0), **OPTIONS)
    with (
        distributed.LocalCluster(1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        watched = blocks().watch(lambda rows: cluster.close())
        with pytest.raises(EngineError, match="Dask: the cluster must stay until the fit is made"):
            model.fit_blocks(watched, where=bo.engines.Dask(client))
        with pytest.raises(EngineError, match=r"Dask: .*(must stay|must answer)"):
            model.fit_blocks(blocks(), where=bo.engines.Dask(client, timeout=1))
    assert not hasattr(model, "fit_")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: bo.KernelSGDRegressor(Gaussian(1.0)), "takes one step after the other"),
        (lambda: bo.KernelKMeans(2, Gaussian(1.0), algorithm="minibatch"), "block after block"),
        (lambda: bo.KernelRidge(Gaussian(1.0), method="exact"), "compares each row with all"),
    ],
)
def test_what_must_go_in_order_is_refused(dask_client, model, message):
    with pytest.raises(InvalidInput, match=rf"{message}.*must come to one process"):
        model().fit_blocks(blocks(), where=bo.engines.Dask(dask_client))


def test_a_scheduler_that_does_not_answer_is_told_in_time():
    pytest.importorskip("distributed")
    where = bo.engines.Dask("tcp://127.0.0.1:1", timeout=1)
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"the scheduler at tcp://127.0.0.1:1 must answer"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=where)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: bo.engines.Ray("127.0.0.1:1", timeout=5), "Ray: the cluster at 127.0.0.1:1"),
        (lambda: bo.engines.Ray("ray://127.0.0.1:1", timeout=5), "Ray: the cluster at ray://127"),
        (lambda: bo.engines.Spark("spark://127.0.0.1:1", 5), "Spark: the cluster at spark://127"),
    ],
    ids=["ray", "ray client", "spark"],
)
def test_a_cluster_that_does_not_answer_is_told_in_time(monkeypatch, make, sentence):
    package = pytest.importorskip("ray" if sentence.startswith("Ray") else "pyspark")
    if sentence.startswith("Ray"):
        monkeypatch.setattr(package, "is_initialized", lambda: False)
    began = time.monotonic()
    with pytest.raises(
        EngineError, match=rf"{sentence}.* must answer within 5 seconds; it did not"
    ):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=make())
    assert time.monotonic() - began < 20


def test_a_session_of_spark_that_was_stopped_is_told():
    pytest.importorskip("pyspark")
    stopped = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))  # as stop leaves it
    with pytest.raises(EngineError, match=r"Spark: the session must be there .* it was stopped"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(
            blocks(), where=bo.engines.Spark(stopped)
        )


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: bo.engines.Dask("tcp://127.0.0.1:1"), "distributed", "dask"),
        (bo.engines.Ray, "ray", "ray"),
        (lambda: bo.engines.Spark(None), "pyspark", "spark"),
    ],
)
def test_an_engine_that_is_not_installed_says_how(monkeypatch, make, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BochnerError, match=rf"needs the package {package}.*bochner\[{extra}\]"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=make())


def test_what_is_no_session_is_refused():
    pytest.importorskip("pyspark")
    with pytest.raises(
        InvalidType, match=r"session must be a pyspark.sql.SparkSession or the add.*got int"
    ):
        bo.engines.Spark(2)


def test_a_session_of_spark_that_is_active_is_taken_and_one_begun_at_an_address(spark_session):
    coefs = [
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=where).coef_
        for where in (HERE, bo.engines.Spark(), bo.engines.Spark("local[2]"))
    ]
    np.testing.assert_array_equal(coefs[1], coefs[0])
    np.testing.assert_array_equal(coefs[2], coefs[0])


@pytest.mark.parametrize("named", [None, "another"])
def test_workers_of_spark_on_this_machine_have_the_python_of_this_process(monkeypatch, named):
    sql = pytest.importorskip("pyspark.sql")
    asked = []
    monkeypatch.setenv("PYSPARK_PYTHON", named or "")
    if named is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    begun = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism="stopped"))
    monkeypatch.setattr(
        sql.SparkSession.Builder,
        "getOrCreate",
        lambda builder: asked.append(os.environ["PYSPARK_PYTHON"]) or begun,
    )
    with pytest.raises(EngineError, match="the session must be there"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(
            blocks(), where=bo.engines.Spark("local[2]")
        )
    assert asked == [named or sys.executable]


def test_a_session_of_spark_that_cannot_begin_is_told(monkeypatch):
    sql = pytest.importorskip("pyspark.sql")

    def fails(builder):
        raise RuntimeError("Java gateway process exited")

    monkeypatch.setattr(sql.SparkSession.Builder, "getOrCreate", fails)
    where = bo.engines.Spark("local[2]")
    with pytest.raises(EngineError, match=r"session at local\[2\] must begin.*Java 17"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(blocks(), where=where)


def test_an_unknown_engine_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'Spork'"):
        bo.engines.Spork  # noqa: B018


# ==== Tables that an engine holds bring it: fits have the bits of one process, predictions stay there.


rng_held_tables = np.random.default_rng(0)
CUTS = [0, 1_000, 1_000, 70_001, N]  # an empty partition, and none that ends where a part does
TABLE = pd.DataFrame(
    {
        "a": rng_held_tables.standard_normal(N),
        "b": rng_held_tables.standard_normal(N),
        "town": rng_held_tables.choice(["Bonn", "Köln"], N),
    }
)
TABLE["fare"] = np.sin(TABLE.a) + (TABLE.town == "Bonn") + 0.1 * rng_held_tables.standard_normal(N)
TABLE["kind"] = np.where(TABLE.fare > 0.5, "high", "low")
ROWS = TABLE.drop(columns=["fare", "kind"])
OPTIONS_HELD_TABLES = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


def in_one_process(learner, **names):
    rows = TABLE[[*ROWS.columns, *names.values()]]
    return learner.fit_blocks(bo.Blocks.from_table(rows, **names), where=HERE)


@pytest.fixture
def cluster(dask_client):
    """The cluster, as dask's own."""
    with dask_client.as_current():
        yield dask_client


@pytest.fixture
def ddf():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[a:b] for a, b in itertools.pairwise(CUTS)]
    return dd.from_map(lambda i: parts[i], [0, 1, 2, 3], meta=TABLE.iloc[:0])


@pytest.fixture
def dataset(ray_here):
    data = pytest.importorskip("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    rows = TABLE.drop(columns="kind")
    return data.from_pandas([rows.iloc[a:b] for a, b in itertools.pairwise(CUTS)])


@pytest.fixture
def spark_frame(spark_session):
    return spark_session.createDataFrame(TABLE.drop(columns="kind"))


# ---- dask


@pytest.mark.slow
def test_a_dask_table_is_fitted_on_its_cluster_with_the_bits_of_one_process(cluster, ddf):
    here = in_one_process(bo.KernelRidge(**OPTIONS_HELD_TABLES), target="fare")
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(
        ddf.drop(columns=["fare", "kind"]), ddf["fare"]
    )
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.schema_.columns == ("a", "b", "town")


def test_predictions_of_a_dask_table_are_lazy_and_have_its_index(cluster, ddf):
    model = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(
        ddf.drop(columns=["fare", "kind"]), ddf["fare"]
    )
    found = model.predict(ddf)
    assert type(found).__name__ == "Series"
    assert found.npartitions == 4
    pd.testing.assert_series_equal(
        found.compute(), pd.Series(model.predict(TABLE), name="prediction"), rtol=1e-9
    )


@pytest.mark.slow
def test_classes_and_their_probabilities_are_found_on_the_cluster(cluster, ddf):
    X, y = ddf[["a", "b"]], ddf["fare"] > 0.5
    there = bo.LogisticRegression(C=1.0, **OPTIONS_HELD_TABLES).fit(X, y)
    rows = TABLE[["a", "b"]].iloc[:500]
    part = ddf[["a", "b"]].partitions[:1]
    assert list(there.classes_) == [0, 1]
    shares = there.predict_proba(part)
    assert list(shares.columns) == ["probability_0", "probability_1"]
    np.testing.assert_allclose(shares.compute()[:500], there.predict_proba(rows), atol=1e-9)


def test_weights_and_several_targets_come_beside_a_dask_table(cluster, ddf):
    both = ddf.assign(other=2 * ddf["fare"], w=ddf["a"] ** 2)
    X = both[["a", "b"]]
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(
        X, both[["fare", "other"]], sample_weight=both["w"]
    )
    table = TABLE[["a", "b", "fare"]].assign(other=2 * TABLE.fare, w=TABLE.a**2)
    blocks = bo.Blocks.from_table(table, target=["fare", "other"], weight="w")
    here = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit_blocks(blocks, where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert list(there.predict(X).columns) == ["prediction_0", "prediction_1"]


def test_dask_arrays_are_fitted_and_predicted_chunk_by_chunk(cluster):
    da = pytest.importorskip("dask.array")
    X, y = TABLE[["a", "b"]].to_numpy(), TABLE.fare.to_numpy()
    dX, dy = da.from_array(X, chunks=(30_000, 1)), da.from_array(y, chunks=50_000)
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(dX, dy)
    here = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit_blocks(bo.Blocks.from_arrays(X, y), where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(dX)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(), there.predict(X), rtol=1e-9)
    components = bo.KernelPCA(2, **OPTIONS_HELD_TABLES).fit(dX)
    assert components.transform(dX).shape == (N, 2)
    assert components.transform(dX)[:10].compute().shape == (10, 2)


def test_without_a_cluster_a_dask_table_is_read_here_partition_by_partition(ddf):
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(ddf[["a", "b"]], ddf["fare"])
    here = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(TABLE[["a", "b"]], TABLE.fare)
    np.testing.assert_array_equal(there.coef_, here.coef_)


# ---- Ray and Spark


@pytest.mark.slow
def test_a_ray_dataset_is_fitted_where_its_blocks_are(dataset):
    here = in_one_process(bo.KernelRidge(**OPTIONS_HELD_TABLES), target="fare")
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(dataset, "fare")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(dataset.limit(2_000))
    assert type(found).__module__.startswith("ray.data")
    values = found.to_pandas().prediction
    np.testing.assert_allclose(values, here.predict(TABLE.iloc[:2_000]), rtol=1e-9)


@pytest.mark.slow
def test_a_spark_table_is_fitted_where_its_partitions_are(spark_frame):
    here = in_one_process(bo.KernelRidge(**OPTIONS_HELD_TABLES), target="fare")
    there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(spark_frame, "fare")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(spark_frame.limit(2_000))
    assert found.columns == [*ROWS.columns, "fare", "prediction"]
    values = found.toPandas()
    np.testing.assert_allclose(values.prediction, here.predict(values[ROWS.columns]), rtol=1e-9)


# ---- rows without a target


GAPS = TABLE[["a", "b", "fare"]].iloc[:3_000].copy()
GAPS.loc[GAPS.index % 7 == 0, "fare"] = np.nan
NO_FARE = r"429 rows have no target 'fare', of 3,000 rows; first in row 0 of partition 0 of the"


@pytest.mark.parametrize("engine", ["dask", "dask workers", "ray", "spark"])
def test_rows_without_a_target_are_left_out_with_one_warning(engine, request):
    parts = [GAPS.iloc[a:b] for a, b in itertools.pairwise([0, 1_000, 1_000, 3_000])]
    if engine == "ray":
        request.getfixturevalue("ray_here")
        table = pytest.importorskip("ray.data").from_pandas(parts)
    elif engine == "spark":
        table = request.getfixturevalue("spark_session").createDataFrame(GAPS)
    else:
        request.getfixturevalue("cluster") if engine == "dask workers" else None
        dd = pytest.importorskip("dask.dataframe")
        table = dd.from_map(lambda i: parts[i], [0, 1, 2], meta=GAPS.iloc[:0])
    with pytest.warns(DataWarning, match=NO_FARE) as told:
        there = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(table, "fare")
    assert len([one for one in told if issubclass(one.category, DataWarning)]) == 1
    known = bo.Blocks.from_table(GAPS.dropna(), target="fare")
    here = bo.KernelRidge(**OPTIONS_HELD_TABLES).fit_blocks(known, where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)


# ---- refusals


def test_partitions_with_other_columns_are_named():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[:100], TABLE.iloc[100:200].rename(columns={"b": "c"})]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=TABLE.iloc[:0], enforce_metadata=False)
    blocks = bo.Blocks.from_table(odd, target="fare")
    with pytest.raises(
        InvalidInput, match=r"partition 1 of the dask DataFrame must have the col.*no column 'b'"
    ):
        list(blocks)


def test_a_partition_of_another_type_is_named():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[:100], TABLE.iloc[100:200].assign(b="many")]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=TABLE.iloc[:0], enforce_metadata=False)
    with pytest.raises(
        InvalidInput, match=r"column 'b' .*got 'many'.* row 0 of partition 1 of the dask DataFrame"
    ):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit_blocks(
            bo.Blocks.from_table(odd[["a", "b"]], target="a")
        )


OTHER_TYPES = {
    "times": (1.0, pd.Timestamp("2020-01-01"), "'b' must hold numbers, .* holds timestamp"),
    "lists": (
        1.0,
        pd.Series([[1]] * 100, TABLE.index[100:200]),
        "'b' must hold numbers",  # dask may have made text of them
    ),
    "too long": (
        1.0,
        pd.array([2**60 + 1] * 100, "int64[pyarrow]"),
        "'b' must hold numbers that float64 holds",
    ),
    "numbers": (pd.Timestamp("2020-01-01"), 1.0, "'b' must hold times, .* on it holds double"),
}


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_partition_whose_column_is_of_another_kind_is_named(kind):
    dd = pytest.importorskip("dask.dataframe")
    before, after, match = OTHER_TYPES[kind]
    first = TABLE.iloc[:100][["a", "fare"]]
    parts = [first.assign(b=before), TABLE.iloc[100:200][["a", "fare"]].assign(b=after)]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=parts[0].iloc[:0], enforce_metadata=False)
    with pytest.raises(InvalidInput, match=rf"column {match}") as caught:
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(odd, "fare")
    assert "row 0 of partition 1 of the dask DataFrame" in str(caught.value)


def with_disk(folder):
    """A table whose second partition can be computed while there is a file in a folder."""
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[i : i + 100][["a", "fare"]] for i in (0, 100, 200)]

    def make(i):
        if i == 1 and not any(folder.iterdir()):
            raise OSError("the disk is gone")
        return parts[i]

    return dd.from_map(make, [0, 1, 2], meta=parts[0].iloc[:0])


def test_a_partition_that_cannot_be_computed_is_named(tmp_path):
    with pytest.raises(
        DataFileError, match=r"^Blocks: partition 1 of the dask DataFrame must be .*disk is gone\)"
    ):
        bo.Blocks.from_table(with_disk(tmp_path), target="fare")


@pytest.mark.parametrize("on_workers", [False, True], ids=["here", "on workers"])
def test_a_partition_that_is_lost_between_passes_is_named(dask_client, tmp_path, on_workers):
    (tmp_path / "disk").touch()
    blocks = bo.Blocks.from_table(with_disk(tmp_path), target="fare")
    (tmp_path / "disk").unlink()
    model = bo.KernelRidge(**OPTIONS_HELD_TABLES)
    where = bo.engines.Dask(dask_client) if on_workers else HERE
    with pytest.raises(DataFileError, match=r"^Blocks: partition 1 of the dask .*disk is gone\)"):
        model.fit_blocks(blocks, where=where)
    assert not hasattr(model, "fit_")


def test_a_chunk_that_cannot_be_computed_is_named(cluster):
    da, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask").delayed
    bad = delayed(lambda: 1 / 0)()
    X = da.concatenate(
        [da.from_array(ROWS[["a", "b"]].to_numpy()[:100]), da.from_delayed(bad, (100, 2), float)]
    )
    with pytest.raises(DataFileError, match=r"chunk 1 of the dask Array .*ZeroDivisionError"):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(X, X[:, 0])


def broken(batches):
    raise OSError("the disk is gone")


def test_a_ray_dataset_that_cannot_be_computed_is_told(dataset):
    with pytest.raises(DataFileError, match=r"the ray Dataset must be .*OSError: the disk is gone"):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(dataset.map_batches(broken), "fare")


def test_a_spark_table_that_cannot_be_computed_or_has_no_rows_is_told(spark_frame):
    lost = spark_frame.mapInArrow(broken, spark_frame.schema)
    with pytest.raises(
        DataFileError, match=r"the pyspark DataFrame must .*OSError: the disk is go"
    ):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(lost, "fare")
    with pytest.raises(InvalidInput, match=r"at least one row; the pyspark DataFrame has none"):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(spark_frame.filter("a > 100"), "fare")


def test_rows_that_change_between_passes_are_refused(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    rows = TABLE[["a", "fare"]]

    def fewer(_):
        (tmp_path / f"{len([*tmp_path.iterdir()])}").touch()
        return rows.iloc[: 100 - len([*tmp_path.iterdir()])]

    blocks = bo.Blocks.from_table(dd.from_map(fewer, [0], meta=rows.iloc[:0]), target="fare")
    with pytest.raises(InvalidInput, match=r"partition 0 .* same \d+ rows in every pass; got \d+"):
        list(blocks)


def test_a_dask_table_without_rows_is_refused(ddf):
    with pytest.raises(InvalidInput, match="must have at least one row"):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(
            ddf[["a", "b"]].partitions[1], ddf["fare"].partitions[1]
        )


def test_a_target_of_other_partitions_is_refused(ddf):
    with pytest.raises(
        InvalidType, match=r"'fare' must be a dask Series with the partitions of X \(4\)"
    ):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(ddf[["a", "b"]], TABLE.fare)


def test_a_target_that_is_left_in_the_table_is_refused(ddf):
    with pytest.raises(InvalidInput, match=r"must not be columns of X too; got 'fare' in both"):
        bo.KernelRidge(**OPTIONS_HELD_TABLES).fit(ddf[["a", "fare"]], ddf["fare"])


def test_several_arrays_at_once_are_refused(ddf):
    model = bo.GaussianProcessRegressor(noise=0.1, amplitude=1.0, **OPTIONS_HELD_TABLES)
    model.fit(TABLE[["a", "b"]].iloc[:500], TABLE.fare.iloc[:500])
    with pytest.raises(InvalidInput, match="one array can be asked for; got several"):
        model.predict(ddf[["a", "b"]], return_std=True)


# ---- the command line


@pytest.fixture
def files(tmp_path):
    TABLE[["a", "b", "fare"]].to_parquet(tmp_path / "rows.parquet", row_group_size=50_000)
    model = bo.KernelRidge(**OPTIONS_HELD_TABLES)
    model.fit_blocks(bo.Blocks.from_files(tmp_path / "rows.parquet", target="fare"))
    bo.save(model, tmp_path / "m.bochner")
    return tmp_path


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return ended.value.code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "ray", "spark"])
def test_the_command_fits_by_workers_of_any_engine(files, request, name):
    where = ["--engine", name, "--quiet"]
    if name == "dask":
        address = request.getfixturevalue("dask_client").scheduler.address
        where += ["--scheduler", address]
    else:
        request.getfixturevalue({"ray": "ray_here", "spark": "spark_session"}[name])
    rows, fit = files / "rows.parquet", ["--target", "fare", "--kernel", "gaussian"]
    fit += ["--lengthscale", "1", "--features", "8"]
    for out, options in (("there", where), ("here", ["--quiet"])):
        assert command("fit", rows, *fit, "--out", files / f"{out}.bochner", *options) == 0
    here, there = (bo.load(files / f"{out}.bochner") for out in ("here", "there"))
    np.testing.assert_array_equal(there.coef_, here.coef_)


def test_the_address_of_a_cluster_takes_an_engine(files, capsys):
    rows = ["fit", files / "rows.parquet", "--target", "fare", "--out", files / "x"]
    assert command(*rows, "--scheduler", "tcp://x") == 2
    assert "--scheduler ADDRESS is of a cluster" in " ".join(capsys.readouterr().err.split())


# ==== Fits whose features are made on devices of torch: the bits of torch's own arrays, any number.


rng_devices = np.random.default_rng(0)
X_DEVICES = rng_devices.standard_normal((N, 2)).astype(np.float32)
Y_DEVICES = np.sin(X_DEVICES[:, 0]) + 0.1 * rng_devices.standard_normal(N)
LABELS_DEVICES = (Y_DEVICES > 0).astype(float)
W_DEVICES = rng_devices.integers(0, 3, N).astype(float)

THERE = "device must name devices that torch has here, and that know float64; got"
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def ridge(**given):
    options = dict(method="orthogonal", n_features=16, random_state=0) | given
    return bo.KernelRidge(Gaussian(2.0), **options)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_moved_give_the_bits_of_rows_that_are_there(device, monkeypatch):
    monkeypatch.setattr("bochner.engines.device.ROWS", 4096)  # as blocks of rows that are there
    there = [torch.from_numpy(a).to(device) for a in (X_DEVICES, Y_DEVICES, W_DEVICES)]
    expected = ridge().fit(*there).coef_
    moved = ridge().fit_blocks(
        bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES, W_DEVICES),
        where=bo.engines.Local(device=device),
    )
    np.testing.assert_array_equal(moved.coef_, expected)
    here = ridge().fit(X_DEVICES, Y_DEVICES, W_DEVICES)
    # Products of float32, whose errors the smallest eigenvalue and the penalty divide.
    assert type(moved.predict(X_DEVICES[:5])) is np.ndarray
    np.testing.assert_allclose(
        moved.predict(X_DEVICES[:500]), here.predict(X_DEVICES[:500]), atol=1e-3
    )


@pytest.mark.parametrize("devices", [("cpu",) * 2, ["cpu"] * 3], ids=["two", "three"])
def test_several_devices_give_the_bits_of_one(devices):
    blocks = bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES, W_DEVICES)
    one = ridge().fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    several = ridge().fit_blocks(blocks, where=bo.engines.Local(device=devices))
    np.testing.assert_array_equal(several.coef_, one.coef_)


@pytest.mark.slow
@pytest.mark.parametrize("split", [0, 2], ids=["one", "merged"])
def test_sums_of_many_features_are_those_of_plain_products(split):
    """Two panels; blocks that wait for others, some with weights; a merge while some wait."""
    Z = rng_devices.standard_normal((19_000, 2100)).astype(np.float32) + 1
    y, w = rng_devices.standard_normal(len(Z)), rng_devices.integers(0, 3, len(Z)).astype(float)
    w[:6000] = 1
    summand = MomentsOf(lambda rows: rows, "float32")
    totals = [summand.zero(), summand.zero()]
    for number, cut in enumerate(
        [slice(3000), slice(3000, 6000), slice(6000, 9000), slice(9000, None)]
    ):
        block = bo.Block(
            torch.from_numpy(Z[cut]), y[cut], w[cut] if number > 1 else None, cut.start or 0
        )
        totals[number < split] = summand.add(totals[number < split], block)
    kept = deepcopy(totals[1])
    found = summand.moments(summand.merge(*totals))
    expected = Moments.of(Z.astype(float), y, w)
    for name in ("gram", "cross", "feature_mean", "target_mean", "power"):
        # Of 19,000 products of size one: each is rounded by 6e-8, a sum of 8192 by 6e-8 of itself.
        mine, plain = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(mine, plain, rtol=1e-5, atol=19_000 * 6e-8 * 8192**0.5)
    if split:
        after, before = (summand.moments(total).gram for total in (totals[1], kept))
        np.testing.assert_array_equal(after, before)


LEARNERS_DEVICES = {
    "classifier": (bo.KernelRidgeClassifier, LABELS_DEVICES, lambda m: m.coef_),
    "process": (bo.GaussianProcessRegressor, Y_DEVICES, lambda m: m.predict(X_DEVICES[:50])),
    "logistic": (bo.LogisticRegression, LABELS_DEVICES, lambda m: m.coef_),
    "pca": (
        lambda *a, **o: bo.KernelPCA(2, *a, **o),
        Y_DEVICES,
        lambda m: np.abs(m.transform(X_DEVICES[:50])),
    ),
}


@pytest.mark.parametrize("name", LEARNERS_DEVICES)
def test_every_learner_takes_a_device(name):
    make, y, found = LEARNERS_DEVICES[name]
    options = dict(kernel=Gaussian(2.0), method="orthogonal", n_features=8, random_state=0)
    blocks = bo.Blocks.from_arrays(X_DEVICES[:9000], y[:9000])
    on_device = make(**options).fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    here = make(**options).fit_blocks(blocks)
    np.testing.assert_allclose(found(on_device), found(here), rtol=2e-2, atol=2e-3)


def test_large_decompositions_are_made_on_the_device_and_others_here(monkeypatch):
    made = []
    plain = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda A: made.append(len(A)) or plain(A))
    blocks = bo.Blocks.from_arrays(X_DEVICES[:3000].astype(float), Y_DEVICES[:3000])
    wide = ridge(n_features=1024, alpha=1.0)
    on_device = wide.fit_blocks(blocks, where=bo.engines.Local(device="cpu")).predict(
        X_DEVICES[:50]
    )
    assert made == [1024]
    np.testing.assert_allclose(
        on_device, wide.fit_blocks(blocks).predict(X_DEVICES[:50]), atol=1e-3
    )
    ridge().fit_blocks(blocks, where=bo.engines.Local(device="cpu"))
    assert made == [1024]


def test_rows_are_counted_and_passes_are_logged(caplog):
    seen = []
    blocks = bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES).watch(seen.append)
    with caplog.at_level(logging.INFO, logger="bochner.engines"):
        ridge(alpha=1.0).fit_blocks(blocks, where=bo.engines.Local(device=("cpu", "cpu")))
    assert sum(seen) % N == 0
    assert "device=('cpu', 'cpu')" in caplog.text


def test_sparse_rows_stay_where_they_are():
    rows = scipy.sparse.random_array((6000, 20), density=0.2, rng=1, format="csr")
    y = rows.sum(axis=1)
    found = ridge(alpha=1.0).fit_blocks(
        bo.Blocks.from_arrays(rows, y), where=bo.engines.Local(device="cpu")
    )
    expected = ridge(alpha=1.0).fit(rows, y)
    # Blocks of other sizes: rounding of the sums, which the penalty divides.
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        (3, InvalidType, r"device must be a name of torch, .* got int"),
        ((), InvalidInput, "device must name one device at least"),
        ("abacus", InvalidInput, f"{THERE} abacus"),
        (("cpu", "cuda:77"), InvalidInput, f"{THERE} cpu, cuda"),
    ],
    ids=["number", "none", "unknown", "absent"],
)
def test_devices_that_cannot_be_are_refused(device, error, message):
    model = ridge()
    with pytest.raises(error, match=f"Local: {message}"):
        model.fit_blocks(
            bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES), where=bo.engines.Local(device=device)
        )
    assert not hasattr(model, "fit_")


def test_a_device_without_float64_is_refused(monkeypatch):
    """As those of Apple."""
    made = torch.empty

    def empty(*size, dtype=torch.float32, **options):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made(*size, dtype=dtype, **options)

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(InvalidInput, match=r"that know float64; got cpu \(Cannot convert a MPS"):
        ridge().fit_blocks(
            bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES), where=bo.engines.Local(device="cpu")
        )


def test_a_device_and_a_checkpoint_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"records sums of this process.*Leave out one"):
        bo.engines.Local(tmp_path / "run.ckpt", device="cpu")


def test_torch_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BochnerError, match=r"device= needs the package torch.*pip install torch"):
        ridge().fit_blocks(
            bo.Blocks.from_arrays(X_DEVICES, Y_DEVICES), where=bo.engines.Local(device="cpu")
        )
