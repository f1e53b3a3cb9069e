"""Engines give the bits of one process, whatever their workers do."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import bochner as bo
from bochner.errors import BochnerError, EngineError, InvalidInput, InvalidType
from bochner.kernels import Gaussian
from bochner.selection.columns import CellsOf, columns_from
from bochner.sums.executor import LOCAL
from bochner.sums.rows import SampleOf

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
    "huber": (
        bo.KernelRegressor,
        dict(loss="huber", alpha=1.0),
        Y,
        lambda m: m.solution_.coef,
    ),
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
        assert kinds == {"NumberColumn", "DroppedColumn", "OneHot", "TargetMeans", "TimeColumn"}
        one, other = here.out_of_fold.means["many"], there.out_of_fold.means["many"]
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


@pytest.mark.parametrize("name", ["Dask", "Ray", "Spark"])
@pytest.mark.parametrize("timeout", [0, -1.0, np.inf, "soon"])
def test_a_timeout_that_cannot_be_is_refused(name, timeout):
    with pytest.raises((InvalidInput, InvalidType), match=f"{name}: timeout must be"):
        getattr(bo.engines, name)(None, timeout)


def test_a_session_of_spark_that_was_stopped_is_told():
    pytest.importorskip("pyspark")
    stopped = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))  # as stop leaves it
    with pytest.raises(EngineError, match=r"Spark: the session must be there .* it was stopped"):
        bo.KernelRidge(Gaussian(1.0), **OPTIONS).fit_blocks(
            blocks(), where=bo.engines.Spark(stopped)
        )


def test_what_is_no_client_is_refused():
    with pytest.raises(InvalidType, match=r"client must be a distributed.Client or.*got int"):
        bo.engines.Dask(3)


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
