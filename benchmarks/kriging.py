"""Fourier grids: predictions of exact processes, a million rows, and kriging's rivals.

Rivals are fitted in the same run with the same kernel, noise and amplitude: PyKrige and GPyTorch's
KISS-GP. Deviations are compared where they are exact, with up to 4,096 waves.
"""

import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

import bochner as bo
from benchmarks.harness import Options, Row, child, judged
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Kernel, Matern, RationalQuadratic

__all__ = ["run"]

Array = np.ndarray

NOISE = 0.09
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
LENGTHS = {1: 0.1, 2: 0.2, 3: 0.3}
MOST_WAVES, MOST_DEVIATED = 200_000, 4096
WRITTEN = 1 << 18
NEAREST, INDUCING, BATCH, ALL = 40, 500, 1000, 10**9

_FIT = """
import json, sys, time
import numpy as np
import bochner as bo
from bochner.kernels import Matern

table, box = sys.argv[1], ((0.0, 1.0),) * int(sys.argv[2])
method = bo.FourierGrid(1e-3, box=box)
start = time.perf_counter()
model = bo.KernelRidge(Matern(1.5, 0.1), method=method, alpha=0.09)
model.fit_blocks(bo.Blocks.from_files(table, target="y"))
print(json.dumps({"seconds": time.perf_counter() - start, "waves": model.map_.n_features}))
"""


def run(options: Options) -> list[Row]:
    """Compare with exact processes, then take many rows, then rivals."""
    return [
        *_exactness(options),
        *_many(options),
        *_files(options),
        *_chosen(options),
        *_rivals(options),
    ]


def truth(X: Array) -> Array:
    """Return a smooth function of the first and the last column."""
    return np.sin(9 * X[:, 0]) * np.cos(7 * X[:, -1])


def rows_of(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Return places in the unit cube, and the function there with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, truth(X) + NOISE**0.5 * rng.standard_normal(n)


# --- exact processes -----------------------------------------------------------------------------


def exact(
    kernel: Kernel, X: Array, y: Array, new: Array, amplitude: float = 1.0
) -> tuple[Array, Array]:
    """Return mean and deviation of an exact process with an unknown mean."""
    one, alpha = np.ones(len(y)), NOISE / amplitude
    factor = cho_factor(kernel(X) + alpha * np.eye(len(y)), lower=True, overwrite_a=True)
    k = kernel(new, X)
    a, b = cho_solve(factor, np.stack([y, one], axis=1)).T
    mean = a.sum() / b.sum()
    rest = 1 - k @ b
    left = kernel.diag(new) - np.einsum("ij,ji->i", k, cho_solve(factor, k.T))
    variance = amplitude * (left + rest**2 / b.sum())
    return mean + k @ (a - mean * b), np.sqrt(variance)


def _exactness(options: Options) -> Iterator[Row]:
    n, m = options.pick((5000, 1000), (400, 50))
    for d, length in LENGTHS.items():
        X, y = rows_of(n, d)
        new = np.random.default_rng(1).uniform(0, 1, (m, d))
        kernels = (Gaussian(length), Matern(0.5, length), Matern(1.5, length))
        for kernel in (*kernels, Matern(2.5, length), RationalQuadratic(2.0, length)):
            mean, deviation = exact(kernel, X, y, new)
            for tolerance in options.pick(TOLERANCES, TOLERANCES[:1]):
                row = _one(kernel, tolerance, X, y, new, mean, deviation)
                if row is None:
                    break
                yield {"what": f"exact, d = {d}", **row}


def _one(
    kernel: Kernel, tolerance: float, X: Array, y: Array, new: Array, mean: Array, deviation: Array
) -> Row | None:
    box = ((0.0, 1.0),) * X.shape[1]
    method, given = bo.FourierGrid(tolerance, box), {"noise": NOISE, "amplitude": 1.0}
    start = time.perf_counter()
    try:
        if _waves(kernel, method) > MOST_WAVES:
            return None
        model = bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X, y)
    except InvalidInput:
        return None
    seconds = time.perf_counter() - start
    error = float(np.linalg.norm(model.predict(new) - mean) / np.linalg.norm(mean))
    found = {"kernel": repr(kernel), "tolerance": tolerance, "waves": model.map_.n_features}
    row = found | {"seconds": seconds, "error": error} | judged(error, tolerance, least=False)
    if tolerance == TOLERANCES[0] and model.map_.n_features <= MOST_DEVIATED:
        process = bo.GaussianProcessRegressor(kernel, method=method, **given).fit(X, y)
        _, std = process.predict(new, return_std=True)
        row["deviation off by"] = float(np.sqrt(np.mean((std / deviation - 1) ** 2)))
    return row


def _waves(kernel: Kernel, method: Any) -> int:
    from bochner.features.fourier.grid import grid_of  # noqa: PLC0415

    lower, upper = np.array(method.box).T
    return grid_of(kernel, lower, upper, method.tolerance).waves


# --- many rows -----------------------------------------------------------------------------------


def _many(options: Options) -> Iterator[Row]:
    cases = ((10**6, 2, 1e-3, 2.0), (10**7, 1, 1e-3, 30.0))
    for n, d, tolerance, asked in options.pick(cases, ((10_000, 2, 1e-3, 2.0),)):
        X, y = rows_of(n, d)
        kernel, method = Matern(1.5, 0.1), bo.FourierGrid(tolerance)
        bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X[:2000], y[:2000])
        start, used = time.perf_counter(), time.process_time()
        model = bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X, y)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        new = np.random.default_rng(1).uniform(0, 1, (10_000, d))
        rmse = float(np.sqrt(np.mean((model.predict(new) - truth(new)) ** 2)))
        row = {"what": f"n = {n:,}, d = {d}", "kernel": repr(kernel), "tolerance": tolerance}
        row |= {"waves": model.map_.n_features, "seconds": seconds, "core seconds": used}
        yield row | {"error": rmse} | judged(seconds, asked, least=False)


def _files(options: Options) -> Iterator[Row]:
    sizes = options.pick((10**6, 10**7), (5000, 20_000))
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for n in sizes:
            table = Path(folder) / "rows.parquet"
            _write(table, n)
            done = child(_FIT, str(table), "2")
            table.unlink()
            row = {"what": f"Parquet, n = {n:,}, d = 2", "waves": done.output["waves"]}
            row |= {"seconds": done.output["seconds"], "peak MB": done.peak_mb}
            yield row | judged(done.peak_mb, 1000, least=False)


def _write(path: Path, n: int) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([(name, pa.float64()) for name in ("u", "v", "y")])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, WRITTEN):
            X, y = rows_of(min(WRITTEN, n - start), 2, seed=start)
            writer.write_table(pa.table([X[:, 0], X[:, 1], y], schema=schema))


def _chosen(options: Options) -> Iterator[Row]:
    """Lengthscale, noise and amplitude by the evidence of all rows; what intervals cover."""
    n = options.pick(10**6, 3000)
    X, y = rows_of(n + 5000, 2)
    start, used = time.perf_counter(), time.process_time()
    model = bo.GaussianProcessRegressor("matern32", method=bo.FourierGrid(1e-3), random_state=0)
    model.fit(X[:n], y[:n])
    seconds, used = time.perf_counter() - start, time.process_time() - used
    mean, std = model.predict(X[n:], return_std=True)
    z = np.abs(y[n:] - mean) / np.sqrt(std**2 + model.noise_variance_)
    row = {"what": f"by evidence, n = {n:,}", "kernel": repr(model.kernel_)}
    row |= {"waves": model.map_.n_features, "seconds": seconds, "core seconds": used}
    row |= {
        f"{share:.0%} covers": float(np.mean(z < norm.ppf(0.5 + share / 2))) for share in (0.9,)
    }
    yield row | judged(seconds, 120.0, least=False)


# --- rivals --------------------------------------------------------------------------------------


def _rivals(options: Options) -> Iterator[Row]:
    """Given kernel, noise and amplitude: error and log density of new rows, and seconds."""
    n, m = options.pick((100_000, 2000), (2000, 50))
    X, y = rows_of(n + m, 2)
    test = X[n:], y[n:]
    missing = []
    for name, package, case, most in _CASES:
        if find_spec(package) is None:
            missing.append(package)
            continue
        import_module(package)
        rows = slice(min(n, options.pick(most, most // 10)))
        start, used = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, variance = case(X[rows], y[rows], test[0])
        seconds, used = time.perf_counter() - start, time.process_time() - used
        density = norm.logpdf(test[1], mean, np.sqrt(np.maximum(variance, 0) + NOISE)).mean()
        error = float(np.sqrt(np.mean((mean - truth(test[0])) ** 2)))
        row = {"what": f"{name}, n = {rows.stop:,}", "seconds": seconds, "core seconds": used}
        yield row | {"error": error, "log density": float(density)}
    yield from ({"note": f"{name}: not installed."} for name in missing)


def _ours(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    given = {"noise": NOISE, "amplitude": 1.0}
    method = bo.FourierGrid(1e-2)
    model = bo.GaussianProcessRegressor(Matern(1.5, 0.2), method=method, **given).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    return mean, std**2


def _exact_few(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    mean, std = exact(Matern(1.5, 0.2), X, y, new)
    return mean, std**2


def _pykrige(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """All rows in one system."""
    mean, variance = _pykriged(X, y).execute("points", *new.T)
    return np.asarray(mean), np.asarray(variance) - NOISE


def _pykrige_local(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Forty rows about each place; it makes the matrix of all pairs of rows, even so."""
    model = _pykriged(X[:100], y[:100])
    (model.X_ADJUSTED, model.Y_ADJUSTED), model.Z = X.T.copy(), y
    found = model.execute("points", *new.T, backend="loop", n_closest_points=NEAREST)
    return np.asarray(found[0]), np.asarray(found[1]) - NOISE


def _pykriged(X: Array, y: Array) -> Any:
    from pykrige.ok import OrdinaryKriging  # noqa: PLC0415

    kernel = Matern(1.5, 0.2)
    curve = lambda _, h: NOISE + 1 - kernel(np.ravel(h)[:, None], np.zeros((1, 1))).reshape(h.shape)
    return OrdinaryKriging(
        *X.T, y, "custom", variogram_parameters=[0.0], variogram_function=curve, exact_values=False
    )


def _gstools(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    import gstools as gs  # noqa: PLC0415

    scale = 0.2 / 2**0.5  # its Matern has sqrt(nu) r / scale, ours sqrt(2 nu) r / lengthscale
    model = gs.Matern(dim=2, var=1.0, len_scale=scale, nu=1.5, nugget=NOISE)
    kriged = gs.krige.Ordinary(model, X.T, y, exact=False, cond_err=NOISE)
    mean, variance = kriged(new.T)
    return np.asarray(mean), np.asarray(variance) - NOISE


def _gpboost(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    import gpboost  # noqa: PLC0415

    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEAREST,
        likelihood="gaussian",
    )
    model.set_prediction_data(num_neighbors_pred=NEAREST)
    found = model.predict(
        y=y - y.mean(),
        gp_coords_pred=new,
        cov_pars=np.array([NOISE, 1.0, 0.2]),
        predict_var=True,
        predict_response=False,
    )
    return found["mu"] + y.mean(), found["var"]


def _scikit(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    from sklearn import gaussian_process as gp  # noqa: PLC0415

    kernel = gp.kernels.Matern(0.2, nu=1.5)
    model = gp.GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(X, y - y.mean())
    mean, std = model.predict(new, return_std=True)
    return mean + y.mean(), std**2


def _svgp(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Natural gradients: with kernel and noise given, one of all rows ends at the optimum."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, places: Any) -> None:
            law = gpytorch.variational.NaturalVariationalDistribution(len(places))
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, places, law, learn_inducing_locations=False
                )
            )
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.MaternKernel(nu=1.5)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    X, y, new = (torch.tensor(a, dtype=torch.float64) for a in (X, y, new))
    model, likelihood = Process(X[:INDUCING].clone()), gpytorch.likelihoods.GaussianLikelihood()
    model.double(), likelihood.double()
    model.covar_module.lengthscale, likelihood.noise = 0.2, NOISE
    model.mean_module.constant.data.fill_(float(y.mean()))
    loss = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    step = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.1)
    for at in torch.randperm(len(y)).split(BATCH):
        step.zero_grad()
        (-loss(model(X[at]), y[at])).backward()
        step.step()
    model.eval()
    with torch.no_grad():
        found = model(new)
        return found.mean.numpy(), found.variance.numpy()


def _kiss(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, X: Any, y: Any, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.GridInterpolationKernel(
                gpytorch.kernels.MaternKernel(nu=1.5), grid_size=100, num_dims=2
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    X, y, new = (torch.tensor(a, dtype=torch.float32) for a in (X, y, new))
    model = Process(X, y, likelihood)
    model.covar_module.base_kernel.lengthscale = 0.2
    likelihood.noise = NOISE
    model.mean_module.constant.data.fill_(float(y.mean()))
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        found = model(new)
        return found.mean.numpy(), found.variance.numpy()


#: Name, package, case, and the most rows that it is given: what memory or minutes hold.
_CASES = (
    ("ours", "finufft", _ours, ALL),
    ("exact", "scipy", _exact_few, 4000),
    ("scikit-learn", "sklearn", _scikit, 4000),
    ("PyKrige", "pykrige", _pykrige, 4000),
    ("PyKrige, 40 nearest", "pykrige", _pykrige_local, 20_000),
    ("GSTools", "gstools", _gstools, 4000),
    ("GPyTorch KISS-GP", "gpytorch", _kiss, ALL),
    ("GPyTorch SVGP, 500 places", "gpytorch", _svgp, ALL),
    ("GPBoost Vecchia, 40 nearest", "gpboost", _gpboost, ALL),
)
