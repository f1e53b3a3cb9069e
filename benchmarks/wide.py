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
from math import comb
from pathlib import Path

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq

from benchmarks.harness import Options, Row, child, judged, say, table

# --- expected --------------------------------------------------------------------------------


Array = np.ndarray

#: Columns, the lengthscale, the levels that are counted, functions of a column, and nodes.
COLUMNS, LENGTHSCALE, LEVELS, FUNCTIONS, NODES = 10, 3.0, 60, 60, 180

#: The least γ that is looked for.
SMALLEST = 1e-16

#: Terms of the target: functions of two columns each.
TERMS = (
    lambda a, b: np.sin(2 * a) * b,
    lambda a, b: np.cos(a + b),
    lambda a, b: np.exp(-((a - b) ** 2)),
    lambda a, b: np.tanh(2 * a * b),
)


def expected_error(n: int, k: int, penalty: float, noise: float) -> float:
    """Return the root mean squared error to the target without its noise."""
    eigenvalues, copies, power, rest = _levels()

    def freedom(gamma: float) -> float:
        return float((copies * eigenvalues / (eigenvalues + gamma)).sum())

    def kappa(gamma: float) -> float:
        return gamma * (k - freedom(gamma)) / k

    def left(log_gamma: float) -> float:
        gamma = float(np.exp(log_gamma))
        return n - freedom(gamma) - penalty / max(kappa(gamma), 1e-300)

    least = np.log(SMALLEST)
    if freedom(SMALLEST) > k:
        least = brentq(lambda g: freedom(np.exp(g)) - k, least, 0.0) + 1e-9
    gamma = float(np.exp(brentq(left, least, 10.0)))
    share = eigenvalues / (eigenvalues + gamma)
    z, q = freedom(gamma), float((copies * share**2).sum())
    kept = 1 - share - kappa(gamma) * share**2 / eigenvalues * k / (k - q)
    total = float(kept @ power) + rest + noise**2
    return (total / (1 - (q * (k - 2 * z) + z**2) / (n * (k - q))) - noise**2) ** 0.5


def _levels() -> tuple[Array, Array, Array, float]:
    """Return eigenvalues of levels, functions of each, the target's power there, and the rest."""
    a, b = 0.25, 0.5 / LENGTHSCALE**2
    c = (a * a + 2 * a * b) ** 0.5
    A, x, w = a + b + c, *hermegauss(NODES)
    w = w / w.sum()
    phi = _functions(x, a, c)
    of_one = phi @ w
    grids, weights = np.meshgrid(x, x, indexing="ij"), np.outer(w, w)
    values = [term(*grids) for term in TERMS]
    values = [value - (weights * value).sum() for value in values]
    found = [phi @ (weights * value) @ phi.T for value in values]
    ones, pairs = of_one**2, np.outer(of_one, of_one)
    crossed = [_by_level(G * pairs) for G in found]
    power = sum(_convolved(_by_level(G**2), *[ones] * (COLUMNS - 2)) for G in found)
    for p, one in enumerate(crossed):
        others = sum(other for q, other in enumerate(crossed) if q != p)
        power = power + _convolved(one, others, *[ones] * (COLUMNS - 4))
    variance = float(sum((weights * value**2).sum() for value in values))
    m = np.arange(LEVELS)
    copies = np.array([float(comb(level + COLUMNS - 1, COLUMNS - 1)) for level in m])
    eigenvalues = (2 * a / A) ** (COLUMNS / 2) * (b / A) ** m
    return eigenvalues, copies, power, max(variance - float(power.sum()), 0.0)


def _functions(x: Array, a: float, c: float) -> Array:
    """Return the eigenfunctions of one column at nodes: orthonormal for a normal law."""
    t, found = (2 * c) ** 0.5 * x, np.zeros((FUNCTIONS, len(x)))
    found[0] = (c / a) ** 0.25 * np.exp(-(c - a) * x * x)
    found[1] = found[0] * t * 2**0.5
    for k in range(1, FUNCTIONS - 1):
        found[k + 1] = t * (2 / (k + 1)) ** 0.5 * found[k] - (k / (k + 1)) ** 0.5 * found[k - 1]
    return found


def _by_level(G: Array) -> Array:
    """Return the sums of a matrix along its anti-diagonals, as many as there are levels."""
    level = np.add.outer(np.arange(len(G)), np.arange(len(G)))
    return np.bincount(level.ravel(), weights=G.ravel(), minlength=LEVELS)[:LEVELS]


def _convolved(*sequences: Array) -> Array:
    total = np.ones(1)
    for each in sequences:
        total = np.convolve(total, each)[:LEVELS]
    return total


# --- wide ------------------------------------------------------------------------------------


#: Rows that predictions are compared on, and columns.
TESTED, COLUMNS_WIDE = 5000, 10

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


def run_wide(options: Options) -> list[Row]:
    """Fits that form no matrix: ridge regression of very many features, and the kernel itself.

    "ridge": rows of ten columns, a target with noise, Gaussian kernel, the same penalty for
    everyone; widths past 10,000 have no Gram matrix; "theory" is the error that is expected of
    random features (:mod:`benchmarks.expected`). "exact": targets drawn from the process itself,
    and the penalty that belongs to their noise; "difference" is that of predictions from those of
    our fit to a bound of 1e-4, root mean square, as a share of their deviation, and everyone has
    the cheapest of some tolerances that leaves what is asked. GPyTorch's preconditioner does not
    go with KeOps, so its conjugate gradients have none. Rivals have ten minutes for a fit. Every
    fit is made in a process of its own, whose peak of resident memory is what the system counted;
    processor seconds are beside those of the wall. Rivals that are not installed are said to be
    missing. ``python -m benchmarks.wide ridge --rows 500000 --widths 8192 32768`` runs a part.
    """
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
