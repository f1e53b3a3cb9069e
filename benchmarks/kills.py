"""Fits whose processes are killed at random moments: how many end with the bits of one left alone.

``python -m benchmarks.kills checkpoint 100``: a process that records, killed and begun again.
``python -m benchmarks.kills dask 50``: one of two workers of a Dask cluster on this machine.
``python -m benchmarks.kills ray 50``, ``spark 50``: one of the Python processes of these.
``python -m benchmarks.kills overhead 1024 400000 3``: seconds of fits of so many features and rows,
plain, recorded, and by two workers of Dask, by turns.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

N, D = 140_000, 16

#: Rows of a fit whose process is killed: one of some seconds, with many records.
KILLED = 3_000_000


def data(n: int = N) -> bo.Blocks:
    """Return rows of four columns and a target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    return bo.Blocks.from_arrays(X, np.sin(X[:, 0]) + X[:, 1])


def model(width: int = D) -> bo.KernelRidge:
    """Return a learner that is the same each time."""
    return bo.KernelRidge(Gaussian(2.0), method="orthogonal", n_features=width, random_state=0)


def seconds_of(blocks: bo.Blocks, where: Any, width: int = D) -> float:
    """Return the seconds that a fit takes."""
    began = time.perf_counter()
    model(width).fit_blocks(blocks, where=where)
    return time.perf_counter() - began


def killed_processes(times: int) -> dict[str, Any]:
    """Fork, kill at a moment that is uniform over a fit's time, and fork again until one ends."""
    blocks, moments = data(KILLED), np.random.default_rng(1)
    whole = model().fit_blocks(blocks).coef_
    seconds = seconds_of(blocks, bo.engines.Local())
    folder = Path(tempfile.mkdtemp())
    kills = same = fits = 0
    while kills < times:
        sys.stderr.write(f"{kills} kills, {fits} fits, {same} with the same bits\n")
        code, deaths = _fit_until_done(blocks, folder, seconds, moments)
        kills, fits = kills + deaths, fits + 1
        same += code == 0 and np.array_equal(np.load(folder / "coef.npy"), whole)
    shutil.rmtree(folder)
    return {"kills": kills, "fits": fits, "same bits": same, "seconds of a fit": seconds}


def _fit_until_done(
    blocks: bo.Blocks, folder: Path, seconds: float, moments: np.random.Generator
) -> tuple[int, int]:
    """Return the code that a fit ended with, and how often it was killed before."""
    deaths = 0
    while True:
        child = os.fork()
        if child == 0:
            where = bo.engines.Local(folder / "run.ckpt", every=seconds / 30)
            np.save(folder / "coef.npy", model().fit_blocks(blocks, where=where).coef_)
            os._exit(0)
        timer = threading.Timer(moments.uniform(0, seconds), _kill, (child,))
        timer.start()
        _, status = os.waitpid(child, 0)
        timer.cancel()
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status), deaths
        deaths += 1


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def killed_workers(times: int, where: Any, pids: Callable[[], Any]) -> dict[str, Any]:
    """Kill one of an engine's processes at a moment that is uniform over a fit's time."""
    blocks, moments = data(), np.random.default_rng(1)
    whole = model().fit_blocks(blocks).coef_
    same = killed = 0
    seconds = min(seconds_of(blocks, where) for _ in range(3))
    for i in range(times):
        living = list(pids())
        timer = threading.Timer(moments.uniform(0, seconds), _kill, (int(moments.choice(living)),))
        timer.start()
        same += np.array_equal(model().fit_blocks(blocks, where=where).coef_, whole)
        killed += not timer.is_alive()
        sys.stderr.write(f"{i + 1} fits, {killed} killed within, {same} with the same bits\n")
        timer.join()
    return {"killed within": killed, "fits": times, "same bits": same, "seconds of a fit": seconds}


def killed_of_dask(times: int) -> dict[str, Any]:
    """Kill workers of Dask; others are started in their place, by no nanny.

    A nanny does not start a worker again that dies before the nanny knows that it runs.
    """
    import distributed  # noqa: PLC0415

    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        ExitStack() as stack,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        workers: dict[int, subprocess.Popen[bytes]] = {}
        stack.callback(lambda: [worker.kill() for worker in workers.values()])

        def pids() -> Any:
            while True:
                for pid in [pid for pid, worker in workers.items() if worker.poll() is not None]:
                    del workers[pid]
                while len(workers) < 2:
                    worker = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
                    workers[worker.pid] = worker
                if {*client.run(os.getpid, on_error="ignore").values()} == {*workers}:
                    return workers
                time.sleep(0.5)

        pids()
        return killed_workers(times, bo.engines.Dask(client, timeout=120), pids)


def killed_of_ray(times: int) -> dict[str, Any]:
    """Kill workers of Ray, busy or not; a machine that others use answers late, and is not dead."""
    import ray  # noqa: PLC0415

    patient = {"health_check_timeout_ms": 120_000, "health_check_failure_threshold": 20}
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, _system_config=patient)
    return killed_workers(times, bo.engines.Ray(), lambda: _children("ray::"))


def killed_of_spark(times: int) -> dict[str, Any]:
    """Kill Python workers of Spark, busy or not."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    build = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        build = build.config(name, "127.0.0.1")
    session = build.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return killed_workers(times, bo.engines.Spark(session), lambda: _children("pyspark.daemon"))


def _children(*words: str) -> list[int]:
    """Return the processes below this one whose command has a word, and which have none below.

    Agents of Ray are none of them: a node ends with its agents.
    """
    import psutil  # noqa: PLC0415  of distributed and ray

    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            named = any(word in command for word in words) and "Agent" not in command
            if named and not process.children():
                found.append(process.pid)
    return found


def _two_workers() -> Any:
    import distributed  # noqa: PLC0415

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return distributed.Client(cluster)


def overhead(width: int = 1024, n: int = 400_000, rounds: int = 3) -> dict[str, Any]:
    """Return seconds of fits by turns, the least: of the clock, and of processors altogether.

    On a machine that others use, those of processors alone tell what an engine costs.
    """
    blocks, found = data(n), {}
    with tempfile.TemporaryDirectory() as folder, _two_workers() as client:
        places = {
            "plain": bo.engines.Local(memory=0),
            "recorded": bo.engines.Local(Path(folder) / "run.ckpt", every=2, memory=0),
            "two workers": bo.engines.Dask(client),
        }
        for _ in range(rounds):
            for name, where in places.items():
                began = _processors(client)
                seconds = seconds_of(blocks, where, width)
                found.setdefault(name, []).append((seconds, _processors(client) - began))
    return {
        name: dict(zip(("clock", "processors"), map(min, zip(*each, strict=True)), strict=True))
        for name, each in found.items()
    }


def _processors(client: Any) -> float:
    """Return the processor seconds of this process and of all workers so far."""
    return time.process_time() + sum(client.run(time.process_time).values())


if __name__ == "__main__":
    case, *counts = sys.argv[1:]
    cases = {
        "checkpoint": killed_processes,
        "dask": killed_of_dask,
        "ray": killed_of_ray,
        "spark": killed_of_spark,
        "overhead": overhead,
    }
    sys.stdout.write(json.dumps(cases[case](*map(int, counts)), indent=1) + "\n")
