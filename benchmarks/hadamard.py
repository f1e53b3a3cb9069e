"""The Walsh-Hadamard transform and structured features, against fht-cpu and matrix products.

Errors stand beside: of the transform against float64, of features against those of the formed
frequencies.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.linalg import hadamard as sylvester

from benchmarks.harness import Options, Row, Timing, compared, interleaved, judged
from bochner._core import native
from bochner._core.threads import get_num_threads
from bochner.features import Fourier, Orthogonal, Structured, draw
from bochner.kernels import Gaussian

__all__ = ["run"]


def run(options: Options) -> list[Row]:
    """Compare the transform, then features."""
    return [*_transforms(options), *_features(options)]


def _transforms(options: Options) -> list[Row]:
    n, p = options.pick(8192, 256), 1024
    X = np.random.default_rng(0).standard_normal((n, p)).astype(np.float32)
    H = sylvester(p).astype(np.float32)
    out, zeros = np.empty_like(X), np.zeros_like(X)
    exact = X[:64].astype(np.float64) @ H
    cases: dict[str, Callable[[int], Any]] = {
        "ours": lambda _: native.hadamard(X, out=out),
        "ours in place": lambda _: native.hadamard(zeros, out=zeros),
        "X @ H": lambda _: X @ H,
        "copy of X": lambda _: np.copyto(out, X),
    }
    if find_spec("fht_cpu"):
        from fht_cpu import fht  # noqa: PLC0415  where it is installed

        os.environ.setdefault("OMP_NUM_THREADS", str(get_num_threads()))
        cases["fht-cpu"] = lambda _: fht(X, out=out)
        cases["fht-cpu in place"] = lambda _: fht(zeros)
    times = interleaved(cases, options.pick(9, 2))
    error = float(np.abs(native.hadamard(X[:64]) - exact).max() / np.abs(exact).max())
    case = {"case": f"{n} x {p} float32", "error": error}
    return _transform_rows(case, times)


def _transform_rows(case: Row, times: dict[str, Timing]) -> list[Row]:
    rows = []
    for ours, rival, least in (
        ("ours", "X @ H", 20.0),
        ("ours", "fht-cpu", 1.0),
        ("ours in place", "fht-cpu in place", 1.0),
    ):
        if rival in times:
            found = compared(times[ours], times[rival])
            row = {**case, "rival": rival, **found}
            rows.append({**row, **judged(row["times faster"], least)})
    rows.append({**case, "rival": "copy of X", **compared(times["ours"], times["copy of X"])})
    if "fht-cpu" not in times:
        rows.append({"note": "fht-cpu is not installed here: pip install fht-cpu."})
    return rows


def _features(options: Options) -> list[Row]:
    rows = []
    for d, D, least in ((1024, 8192, 2.0), (100, 2048, None)):
        n = options.pick(512, 64)  # a block of a fit of this width
        X = np.random.default_rng(d).standard_normal((n, d)).astype(np.float32)
        kernel = Gaussian((2 * d) ** 0.5)
        fast, formed = (
            draw(kernel, Fourier(placement), n_features=D, n_inputs=d, random_state=0)
            for placement in (Structured(), Orthogonal())
        )
        cases = {"fast": lambda _, f=fast, X=X: f(X), "formed": lambda _, f=formed, X=X: f(X)}
        times = interleaved(cases, options.pick(9, 2))
        K = kernel(X[:256].astype(np.float64))
        row = {
            "case": f"features {n} x {d} to {D}",
            "error": _error(fast, X[:256], K),
            "rival": f"dense, of error {_error(formed, X[:256], K):.3g}",
            **compared(times["fast"], times["formed"]),
        }
        rows.append(row if least is None else {**row, **judged(row["times faster"], least)})
    return rows


def _error(phi: Any, X: np.ndarray, K: np.ndarray) -> float:
    Z = phi(X).astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
