"""Fixtures: clusters on this machine, started once, and instruction sets of the compiled loops."""

import logging
import shutil
import sys
import warnings

import pytest
from internals import HAVE_NATIVE, in_pure_python

from bochner._core import native


@pytest.fixture(scope="session")
def dask_client():
    """Return a client of two Dask processes, with Dask's warnings and log suppressed."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings(action="ignore"):
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        )
        client = distributed.Client(cluster, set_as_default=False)
        yield client
        client.close()
        cluster.close()


def start_ray(ray, tries=3):
    """Start Ray; try again if its limit of 30 seconds is too short on a busy machine."""
    try:
        ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    except Exception as error:
        if tries == 1 or "timed out" not in str(error):
            raise
        ray.shutdown()
        start_ray(ray, tries - 1)


@pytest.fixture(scope="session")
def ray_here():
    """Return Ray with two processes."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(action="ignore"):
        start_ray(ray)
        yield ray
        ray.shutdown()


@pytest.fixture(scope="session")
def spark_session():
    """Return a session of two Spark processes; skip the test without Java."""
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: install a JRE, and have java on the path")
    with warnings.catch_warnings(action="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        build = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time of a JVM that ends soon
        build = build.config("spark.driver.extraJavaOptions", quick)
        for name in ("spark.driver.bindAddress", "spark.driver.host"):
            build = build.config(name, "127.0.0.1")
        session = build.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(params=["twin", *(native._compiled.levels() if HAVE_NATIVE else [])])
def level(request, monkeypatch):
    """Set each instruction set of this processor in turn, then the pure Python twin."""
    if request.param == "twin":
        in_pure_python(monkeypatch)
        yield request.param
        return
    original = native._compiled.get_level()
    native._compiled.set_level(request.param)
    yield request.param
    native._compiled.set_level(original)
