"""Fits that form no matrix: ridge regression of very many features, and the kernel itself.

"ridge": rows of ten columns, a target with noise, Gaussian kernel, the same penalty for everyone;
widths past 10,000 have no Gram matrix; "theory" is the error that is expected of random features
(:mod:`benchmarks.expected`). "exact": targets drawn from the process itself, and the penalty that
belongs to their noise; "difference" is that of predictions from those of our fit to a bound of
1e-4, root mean square, as a share of their deviation, and everyone has the cheapest of some
tolerances that leaves what is asked. GPyTorch's preconditioner does not go with KeOps, so its
conjugate gradients have none. Rivals have ten minutes for a fit. Every fit is made in a
process of its own, whose peak of resident memory is what the system counted; processor seconds
are beside those of the wall. Rivals that are not installed are said to be missing.
``python -m benchmarks.wide ridge --rows 500000 --widths 8192 32768`` runs a part.
"""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.expected import expected_error
from benchmarks.harness import Options, Row, child, judged, say, table

__all__ = ["run"]

#: Rows that predictions are compared on, and columns.
TESTED, COLUMNS = 5000, 10

#: Standard deviation of the noise, and the penalties.
NOISE, RIDGE_ALPHA, EXACT_NOISE = 0.2, 1.0, 0.1

_HEAD = """
import json, os, sys, time
import numpy as np

rows, width, seed, out = int(sys.argv[1]), int(sys.argv[2]), 0, sys.argv[3]
alpha, tol, tested, d = float(sys.argv[4]), float(sys.argv[5]), 5000, 10
rng = np.random.default_rng(seed)
"""

#: Seconds that a rival's fit may take, and the difference that tolerances are tried down to.
LIMIT, ASKED = 600.0, 1e-3

#: The bound on any prediction of the fit that others are compared with.
REFERENCE = 1e-4

#: Tolerances of each learner, from the cheapest on: the first that leaves the difference asked is
#: taken. Ours bounds any prediction, and the difference is some hundreds of times less; that of
#: conjugate gradients bounds a residual.
TOLERANCES = {"ours": (1.0, 0.2, 0.04), "GPyTorch, KeOps": (1.0, 0.1, 0.01, 0.001)}

#: A smooth target of ten columns.
_RIDGE = (
    _HEAD
    + """
X = rng.standard_normal((rows + tested, d))
f = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] + X[:, 3])
f += np.exp(-((X[:, 4] - X[:, 5]) ** 2)) + np.tanh(2 * X[:, 6] * X[:, 7])
y = f + 0.2 * rng.standard_normal(len(f))
"""
)

#: A target of the process with a Gaussian kernel of lengthscale 3, as a sum of 4,000 waves.
_EXACT = (
    _HEAD
    + """
X = rng.standard_normal((rows + tested, d))
W, phase = rng.standard_normal((4000, d)) / 3, rng.uniform(0, 2 * np.pi, 4000)
weights = rng.standard_normal(4000) * np.sqrt(2 / 4000)
f = np.concatenate([np.cos(x @ W.T + phase) @ weights for x in np.array_split(X, 100)])
y = f + 0.1 * rng.standard_normal(len(f))
"""
)

_TAIL = """
np.save(out, predicted)
error = float(np.sqrt(np.mean((predicted - f[rows:]) ** 2)))
print(json.dumps({{"steps": steps, "seconds": seconds, "core s": core, "error": error}}))
"""

_TIMED = """
start, before = time.perf_counter(), time.process_time()
{fit}
seconds, core = time.perf_counter() - start, time.process_time() - before
predicted = {predict}
steps = {steps}
"""

_OURS = {
    "ridge": """
import re
import bochner as bo
model = bo.KernelRidge(bo.kernels.Gaussian(3.0), method="orthogonal", n_features=width,
                       alpha=alpha or "loo", random_state=0)
""",
    "exact": """
import re
import bochner as bo
model = bo.KernelRidge(bo.kernels.Gaussian(3.0), method=bo.ExactKernel("nystrom", tol=tol),
                       n_features=width, alpha=alpha, fit_intercept=False, random_state=0)
""",
}

_OURS_STEPS = (
    'int(([0] + re.findall(r"(?:pass|iteration) (\\d+)", str(model.solution_.history)))[-1])'
)

_XGPR = """
import xGPR
data = xGPR.build_regression_dataset(X[:rows], y[:rows])
model = xGPR.xGPRegression(num_rffs=width, device="cpu", verbose=False)
model.set_hyperparams(np.log([np.sqrt(alpha), 1 / 3.0]), data)
"""

_GPYTORCH = """
import gpytorch, torch
torch.set_num_threads(len(os.sched_getaffinity(0)))
Xt, yt = torch.tensor(X[:rows], dtype=torch.float32), torch.tensor(y[:rows], dtype=torch.float32)

class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(Xt, yt, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.keops.RBFKernel()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

likelihood = gpytorch.likelihoods.GaussianLikelihood()
likelihood.noise = alpha
model = Process(likelihood)
model.covar_module.lengthscale = 3.0
model.eval()
def fitted(X):
    settings = gpytorch.settings
    with torch.no_grad(), settings.cg_tolerance(tol), settings.max_cg_iterations(1000), \\
            settings.max_preconditioner_size(0), \\
            settings.max_cholesky_size(1):
        return model(torch.tensor(X, dtype=torch.float32)).mean.numpy().astype(float)
model.covar_module(Xt[:2], Xt[:2]).matmul(yt[:2, None])  # compiles
"""

#: Fits by name: what they need, the code before the clock starts, the fit, predictions, steps.
_FITS = {
    "ours": (
        "bochner",
        "",
        "model.fit(X[:rows], y[:rows])",
        "model.predict(X[rows:])",
        _OURS_STEPS,
    ),
    "xGPR": (
        "xGPR",
        _XGPR,
        'model.fit(data, mode="cg", suppress_var=True, tol=tol)',
        "model.predict(X[rows:])",
        "0",
    ),
    "GPyTorch, KeOps": ("gpytorch", _GPYTORCH, "predicted = fitted(X[rows:])", "predicted", "0"),
}


def run(options: Options) -> list[Row]:
    """Fit features of two widths, then the kernel itself."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows, widths = options.pick((500_000, (8192, 32_768)), (9000, (512, 10_240)))
        found = ridge(rows, widths, Path(folder))
        n, width = options.pick((100_000, 2048), (9000, 256))
        return [*found, *exact(n, width, Path(folder))]


def ridge(rows: int, widths: tuple[int, ...], folder: Path) -> list[Row]:
    """Return a row for each width and learner."""
    found = []
    for width in widths:
        theory = {"theory": expected_error(rows, width, RIDGE_ALPHA, NOISE)}
        for name in ("ours", "xGPR"):
            row, predicted = _fit("ridge", name, rows, width, RIDGE_ALPHA, 1e-4, folder)
            found.append(row if predicted is None else row | theory)
    widest = max(found, key=lambda row: (row["D"], row["by"] == "ours"))
    widest |= judged(widest.get("peak MB", np.nan), 2000, least=False)
    return found


def exact(rows: int, width: int, folder: Path) -> list[Row]:
    """Return a row for each learner, at its first tolerance that leaves the difference asked."""
    reference, right = _fit("exact", "ours", rows, width, EXACT_NOISE**2, REFERENCE, folder)
    if right is None:
        return [reference]
    cheapest = [_cheapest(name, rows, width, right, folder) for name in TOLERANCES]
    return [reference | {"difference": 0.0}, *cheapest]


def _cheapest(name: str, rows: int, width: int, right: np.ndarray, folder: Path) -> Row:
    """Return the row of the first tolerance that suffices, else the last row there is."""
    row: Row = {}
    for tol in TOLERANCES[name]:
        row, predicted = _fit("exact", name, rows, width, EXACT_NOISE**2, tol, folder)
        if predicted is None:
            return row
        row["difference"] = float(np.sqrt(np.mean((predicted - right) ** 2)) / np.std(right))
        if row["difference"] <= ASKED:
            break
    return row | judged(row["difference"], ASKED, least=False)


def _fit(
    kind: str, name: str, rows: int, width: int, alpha: float, tol: float, folder: Path
) -> tuple[Row, np.ndarray | None]:
    package, before, fit, predict, steps = _FITS[name]
    told: Row = {"fit": kind, "by": name, "rows": rows, "D": width, "tol": tol}
    if find_spec(package) is None:
        return told | {"note": f"{package} is not installed"}, None
    target = {"ridge": _RIDGE, "exact": _EXACT}[kind]
    timed = _TIMED.format(fit=fit, predict=predict, steps=steps)
    code = target + (before or _OURS[kind]) + timed + _TAIL.format()
    out = folder / "predicted.npy"
    try:
        limit = 0.0 if name == "ours" else LIMIT
        done = child(code, *map(str, (rows, width, out, alpha, tol)), limit=limit)
    except RuntimeError as error:
        return told | {"note": str(error)}, None
    return told | {"peak MB": done.peak_mb, **done.output}, np.load(out)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide")
    parser.add_argument("kind", choices=("ridge", "exact"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[2048])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "ridge":
            say(table(ridge(asked.rows, tuple(asked.widths), Path(folder))))
        else:
            for width in asked.widths:
                say(table(exact(asked.rows, width, Path(folder))))


if __name__ == "__main__":
    _main()
