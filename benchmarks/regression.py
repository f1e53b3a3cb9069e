"""Fit and predict on a real table, in turns with rivals: what ``fourier`` and ``auto`` share."""

from collections.abc import Callable, Mapping
from statistics import mean, stdev

import numpy as np

import bochner as bo
from benchmarks import scaled
from benchmarks.harness import Options, Row, Timing, compared, each, interleaved, judged
from benchmarks.scaled import Split
from bochner.kernels import Gaussian

__all__ = ["Maker", "compare", "ours"]

#: Given the width and the seed, a model with ``fit`` and ``predict``.
Maker = Callable[[int, int], object]


def ours(method: str) -> Maker:
    """Return the library's model with this method; its penalty is chosen by leave-one-out."""

    def make(width: int, seed: int) -> bo.KernelRidge:
        return bo.KernelRidge(Gaussian(1.0), method=method, n_features=width, random_state=seed)

    return make


def compare(
    options: Options, method: str, rivals: Callable[[Split], Mapping[str, tuple[Maker, float]]]
) -> list[Row]:
    """Return a row for each table and rival; a rival comes with how many times faster is asked.

    The seed is the number of the repeat, for everyone, and errors are means over the seeds.
    """
    width = options.pick(2048, 256)

    def rows_of(name: str) -> list[Row]:
        data = scaled.split(name, options, width)
        return _table_rows(options, name, data, width, method, rivals(data))

    return each(scaled.NAMES, rows_of)


def _table_rows(
    options: Options,
    name: str,
    data: Split,
    width: int,
    method: str,
    rivals: Mapping[str, tuple[Maker, float]],
) -> list[Row]:
    makers = {"ours": ours(method)} | {rival: maker for rival, (maker, _) in rivals.items()}
    cases = {key: _case(maker, data, width) for key, maker in makers.items()}
    times = interleaved(cases, options.pick(3, 2), warm_up=False)
    return [
        {
            "table": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(times["ours"], times[rival]),
            **judged(times[rival].median / times["ours"].median, asked),
            "test RMSE": mean(times["ours"].values),
            "rival's": mean(times[rival].values),
            "± over seeds": _spread(times["ours"]),
            "no worse": "yes" if mean(times["ours"].values) <= mean(times[rival].values) else "NO",
            "lengthscale": np.array2string(np.asarray(data.lengthscale), precision=3),
        }
        for rival, (_, asked) in rivals.items()
    ]


def _case(maker: Maker, data: Split, width: int) -> Callable[[int], float]:
    def case(seed: int) -> float:
        return data.error(maker(width, seed).fit(data.X, data.y).predict(data.X_test))

    return case


def _spread(timing: Timing) -> float:
    return stdev(timing.values) if len(timing.values) > 1 else 0.0
