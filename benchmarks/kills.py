"""Fits whose processes are killed at random moments: how many end with the bits of one left alone.

``python -m benchmarks.kills checkpoint 100``: a process that records, killed and begun again.
``python -m benchmarks.kills dask 50``: one of two workers of a Dask cluster on this machine.
``python -m benchmarks.kills overhead``: seconds of a fit, plain, recorded, and by two workers.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

N, D = 140_000, 16

#: Widths that overhead is measured at, and their rows.
WIDTHS = {512: 200_000, 2048: 200_000}


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
    blocks, moments = data(), np.random.default_rng(1)
    whole = model().fit_blocks(blocks).coef_
    seconds = seconds_of(blocks, bo.engines.Local())
    folder = Path(tempfile.mkdtemp())
    kills = same = fits = 0
    while kills < times:
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


def killed_workers(times: int) -> dict[str, Any]:
    """Kill one of two workers at a moment that is uniform over a fit's time."""
    blocks, moments = data(), np.random.default_rng(1)
    whole = model().fit_blocks(blocks).coef_
    same = killed = 0
    with _two_workers() as client:
        where = bo.engines.Dask(client, timeout=120)
        seconds = min(seconds_of(blocks, where) for _ in range(2))
        for _ in range(times):
            client.wait_for_workers(2, timeout=120)
            pids = client.run(os.getpid, on_error="ignore")
            pid = int(moments.choice(list(pids.values())))
            timer = threading.Timer(moments.uniform(0, seconds), _kill, (pid,))
            timer.start()
            same += np.array_equal(model().fit_blocks(blocks, where=where).coef_, whole)
            killed += not timer.is_alive()
            timer.join()
    return {"killed within": killed, "fits": times, "same bits": same, "seconds of a fit": seconds}


def _two_workers() -> Any:
    import distributed  # noqa: PLC0415

    cluster = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    return distributed.Client(cluster)


def overhead() -> dict[str, Any]:
    """Return seconds of a fit, the least of three: plain, recorded, by two workers."""
    found = {}
    for width, n in WIDTHS.items():
        blocks = data(n)
        with tempfile.TemporaryDirectory() as folder, _two_workers() as client:
            places = {
                "plain": bo.engines.Local(),
                "recorded": bo.engines.Local(Path(folder) / "run.ckpt", every=2),
                "two workers": bo.engines.Dask(client),
            }
            found[width] = {
                name: min(seconds_of(blocks, where, width) for _ in range(3))
                for name, where in places.items()
            }
    return found


if __name__ == "__main__":
    case, *counts = sys.argv[1:]
    cases = {"checkpoint": killed_processes, "dask": killed_workers, "overhead": overhead}
    sys.stdout.write(json.dumps(cases[case](*map(int, counts)), indent=1) + "\n")
