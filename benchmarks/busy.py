"""Fits beside a processor that another process has, against the same fits alone.

Threads that wait for one another at full speed are the danger: where one of two processors is
taken, each wait takes until the other process is moved away, and decompositions that wait a few
thousand times took 18 to 53 seconds in the place of one. "one thread" is the same fit, alone, with
BLAS, the compiled loops and what is done side by side on one thread: what threads gain, and what a
busy processor may cost.

Processor seconds of the fit alone are compared with those of one thread: threads that wait at full
speed take processors that other processes could use.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import bochner as bo
from benchmarks.harness import Options, Row, interleaved, judged
from bochner._core.blas import eigh, factor
from bochner._core.threads import set_num_threads
from bochner.datasets import load_concrete
from bochner.kernels import Gaussian

__all__ = ["run"]

#: Times as long as alone that a fit may take beside a busy processor.
ASKED = 4.0

#: Times the processor seconds of one thread that a fit may take.
ASKED_CPU = 1.3


def run(options: Options) -> list[Row]:
    """Time every fit alone, beside a busy processor, and alone on one thread, in turns."""
    n, wide, repeats = options.pick((20_000, 2048, 3), (1_000, 128, 1))
    return [_row(name, fit, repeats) for name, fit in _cases(n, wide).items()]


def _cases(n: int, wide: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    A = rng.standard_normal((2 * wide, wide))
    G = A.T @ A
    spd = np.asfortranarray(A @ A.T + np.eye(2 * wide))
    kernel = Gaussian(2.0)
    ridge = bo.KernelRidge(kernel, method="orthogonal", n_features=wide, random_state=0)
    process = bo.GaussianProcessRegressor(n_features=wide // 4, random_state=0)
    machine = bo.SVC(kernel, n_features=wide // 4, random_state=0)
    logistic = bo.LogisticRegression(kernel, n_features=wide // 4, random_state=0)
    exact = bo.KernelRidge(kernel, method="exact", n_features=wide // 4, random_state=0)
    default = bo.KernelRidge(random_state=0)
    concrete = load_concrete()
    strong = concrete.y > 35
    small, gp = X[: n // 10], bo.GaussianProcessRegressor("gaussian", random_state=0)
    log_wide = bo.LogisticRegression(n_features=wide // 2, random_state=0)
    concrete_svc = bo.SVC(n_features=256, random_state=0)
    return {
        f"LogisticRegression by default, D={wide // 2}, 1,461 rows": lambda: log_wide.fit(
            X[:1461], y[:1461] > 0
        ),
        "SVC by default, D=256, concrete": lambda: concrete_svc.fit(concrete.X, strong),
        "Four learners on concrete": lambda: _learners(concrete.X, concrete.y, strong),
        f"GaussianProcessRegressor, exact, {n // 10:,} rows": lambda: gp.fit(small, y[: n // 10]),
        f"KernelPCA, {n // 4:,} rows": lambda: bo.KernelPCA(random_state=0).fit(X[: n // 4]),
        f"Cholesky factor, {2 * wide} x {2 * wide}": lambda: factor(spd.copy(order="F")),
        f"KernelRidge by default, {n // 4:,} rows": lambda: default.fit(X[: n // 4], y[: n // 4]),
        f"eigh, {wide} x {wide}": lambda: eigh(G, driver="evd"),
        f"KernelRidge, D={wide}": lambda: ridge.fit(X, y),
        f'KernelRidge, "exact", {n // 4:,} rows': lambda: exact.fit(X[: n // 4], y[: n // 4]),
        f"GaussianProcessRegressor, D={wide // 4}": lambda: process.fit(X, y),
        f"SVC, D={wide // 4}": lambda: machine.fit(X, y > 0),
        f"LogisticRegression, D={wide // 4}": lambda: logistic.fit(X, y > 0),
    }


def _learners(X: Any, y: Any, strong: Any) -> None:
    """Fit the learners of README's block on shared features."""
    bo.GaussianProcessRegressor(n_features=256, random_state=0).fit(X, y)
    bo.SVC(n_features=256, random_state=0).fit(X, strong)
    quantile = bo.KernelRegressor(loss="quantile", n_features=128, alpha=0.1, random_state=0)
    quantile.fit(X, y)
    bo.KernelKMeans(n_clusters=4, n_features=128, random_state=0).fit_predict(X)


def _row(name: str, fit: Callable[[], object], repeats: int) -> Row:
    def cpu(_: int) -> float:
        start = time.process_time()
        fit()
        return time.process_time() - start

    def beside(_: int) -> None:
        with _busy_processor():
            fit()

    def on_one_thread(_: int) -> float:
        set_num_threads(1)
        with threadpool_limits(1):
            seconds = cpu(0)
        set_num_threads(None)
        return seconds

    cases = {"alone": cpu, "busy": beside, "one thread": on_one_thread}
    times = interleaved(cases, repeats)
    alone, busy = times["alone"].median, times["busy"].median
    used = [statistics.median(times[case].values) for case in ("alone", "one thread")]
    extra = used[0] / used[1]
    return {
        "case": name,
        "seconds": alone,
        "beside a busy one": busy,
        "one thread": times["one thread"].median,
        "times as long": busy / alone,
        "times the CPU": extra,
    } | judged(max(busy / alone / ASKED, extra / ASKED_CPU), 1.0, least=False)


@contextmanager
def _busy_processor() -> Iterator[None]:
    """Keep one processor busy by a process of its own."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()
