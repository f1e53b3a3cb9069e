"""What bo.plan predicts against what fits take: seconds, memory and error, on development sets.

Each set is planned, and some of the plan's fits, its choice among them, are run, each in a process
of its own, right after one another: ``fit s`` is of the wall, the peak of resident memory is what
the system counted. "memory" is the whole process: what it had before the fit (measured there) and
what the plan says the fit takes. Errors are leave-one-out, as fits report them.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.development import development
from benchmarks.harness import Options, Row, child, each, judged

__all__ = ["run"]

SETS = ("kin8nm", "california_housing", "protein", "elevation_etopo60")

_PLAN = """
import json, sys
import numpy as np
import bochner as bo
with np.load(sys.argv[1]) as data:
    found = bo.plan(data["X"], data["y"], budget=60, random_state=0)
print(json.dumps(found.facts()))
"""

_FIT = """
import json, resource, sys, time
import numpy as np
import bochner as bo
from bochner.kernels import *
from bochner.features import *
from bochner.landmarks import *
from bochner import ExactKernel

with np.load(sys.argv[1]) as data:
    X, y = data["X"], data["y"]
fit, kernel = json.loads(sys.argv[2]), eval(sys.argv[3])
method, exact = eval(fit["method"]), fit["solver"] == "exact"
if exact and not isinstance(method, ExactKernel):
    method = ExactKernel(method)
single = fit["solver"] == "moments float32"
few = bo.KernelRidge(kernel, method=method, n_features=16).fit(X[:64], y[:64])
model = bo.KernelRidge(
    kernel,
    method=method,
    n_features=fit["n_features"],
    precision="auto" if single or exact else "float64",
    random_state=0,
)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
start, processor = time.perf_counter(), time.process_time()
model.fit(X, y)
taken, busy = time.perf_counter() - start, time.process_time() - processor
solution, error = model.solution_, None
if exact and solution.slack is not None:  # of the last rows; the path is of the first ones
    kept = np.isfinite(solution.slack[:, 0])
    left_out = model.alpha_ * solution.coef[kept, 0] / solution.slack[kept, 0]
    error = float(np.sqrt(np.mean(left_out**2)))
print(json.dumps({
    "seconds": taken,
    "processor s": busy,
    "before MB": before / 1e6,
    "error": error or float(np.sqrt(np.nanmin(solution.path.loo))),
}))
"""


def run(options: Options) -> list[Row]:
    """Plan each set, then fit."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        return each(SETS, lambda name: _both(name, Path(folder), options))


def _both(name: str, folder: Path, options: Options) -> list[Row]:
    data, table = development(name, options, options.pick(None, 1500)), folder / "rows.npz"
    np.savez(table, X=data.X, y=data.y)
    found = child(_PLAN, str(table)).output
    most = options.pick(60.0, 5.0)
    own = ("local", "neighbours")  # of other estimators
    fits = [f for f in found["fits"] if not f["against"] and f["solver"] not in own]
    fits = [fit for fit in fits if fit["seconds"] <= most]
    return [_row(name, fit, found, table) for fit in _some(fits, found["choice"])]


def _some(fits: list[Row], choice: Row) -> list[Row]:
    """Return the choice, the widths 512 and 2048 of each method, and the exact kernel."""
    asked = [f for f in fits if f["n_features"] in (512, 2048) or f["solver"] == "exact"]
    return [*(f for f in fits if f == choice), *(f for f in asked if f != choice)]


def _row(name: str, fit: Row, found: Row, table: Path) -> Row:
    done = child(_FIT, str(table), json.dumps(fit), found["kernel"])
    memory = done.output["before MB"] + fit["bytes"] / 1e6
    row: Row = {
        "table": name,
        "rows": found["rows"],
        "method": fit["method"],
        "D": fit["n_features"],
        "solver": fit["solver"],
        "predicted s": fit["seconds"],
        "fit s": done.output["seconds"],
        "s, of predicted": done.output["seconds"] / fit["seconds"],
        "predicted MB": memory,
        "peak MB": done.peak_mb,
        "MB, of predicted": done.peak_mb / memory,
        "predicted error": fit["error"],
        "error": done.output["error"],
    }
    off = max(row["s, of predicted"], 1 / row["s, of predicted"])
    met = off <= 1.5 and 0.8 <= row["MB, of predicted"] <= 1.2
    return row | judged(off, 1.5, least=False) | {"met": "yes" if met else "NO"}
