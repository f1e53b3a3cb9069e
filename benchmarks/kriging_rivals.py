"""Rivals of Fourier grids, told the same kernel, noise and amplitude, on draws of that process.

A hundred thousand rows of a Matérn-3/2 process in the unit square, and along a line, where
celerite2 is a rival; those that hold the matrix of all rows get as many as memory bears. "error" is
that of f at new places, root mean square; "covers" is the share of new targets, noise and all, in
intervals of 90 and 95 %. Time is that of all that a rival does, from rows to mean and deviation.

``python -m benchmarks.kriging_rivals [--columns 1 2] [--only NAME ...]`` runs a part.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.stats import norm

import bochner as bo
from benchmarks.harness import Options, Row, say, table
from benchmarks.kriging import NOISE, exact
from bochner.kernels import Matern

__all__ = ["run"]

Array = np.ndarray

LENGTHSCALE = 0.2
ROWS, NEW, WAVES = 100_000, 20_000, 1 << 17
NEAREST, INDUCING, BATCH, ALL = 40, 500, 1000, 10**9
TOLERANCES = {1: 1e-5, 2: 1e-3}


def run(options: Options) -> list[Row]:
    """Compare in two columns and in one."""
    return [row for d in (2, 1) for row in _compared(options, d)]


def drawn(X: Array, seed: int) -> Array:
    """Return a function of the process at places: random waves, so many that it is nearly normal.

    Frequencies of a Matérn kernel of smoothness 3/2 follow Student's law of three degrees, whose
    tails hold what is rough: a thousandth of the waves, a thousandth of the variance.
    """
    import finufft  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    d = X.shape[1]
    shrunk = np.sqrt(rng.chisquare(3, WAVES) / 3)
    W = rng.standard_normal((d, WAVES)) / shrunk / LENGTHSCALE
    size = rng.standard_normal(WAVES) + 1j * rng.standard_normal(WAVES)
    transform = finufft.nufft1d3 if d == 1 else finufft.nufft2d3
    places = [np.ascontiguousarray(column) for column in X.T]
    waves = [np.ascontiguousarray(column) for column in W]
    return np.asarray(transform(*waves, size, *places, eps=1e-9)).real / WAVES**0.5


def _compared(options: Options, d: int, only: Sequence[str] = ()) -> Iterator[Row]:
    n, m = options.pick((ROWS, NEW), (2000, 50))
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n + m, d))
    f = drawn(X, d)
    y = f + NOISE**0.5 * rng.standard_normal(n + m)
    missing = []
    for name, package, case, most, columns in _CASES:
        if d not in columns or (only and name not in only):
            continue
        if find_spec(package) is None:
            missing.append(package)
            continue
        import_module(package)
        few = min(n, options.pick(most, max(most // 10, 200)))
        start, used = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, variance = case(X[:few], y[:few], X[n:])
        taken = {
            "seconds": time.perf_counter() - start,
            "core seconds": time.process_time() - used,
        }
        row = {"what": f"{name}, n = {few:,}, d = {d}"} | taken
        yield row | _scores(mean, np.maximum(variance, 0.0), f[n:], y[n:])
    yield from ({"note": f"{name}: not installed."} for name in missing)


def _scores(mean: Array, variance: Array, f: Array, y: Array) -> Row:
    deviation = np.sqrt(variance + NOISE)
    z = np.abs(y - mean) / deviation
    found = {
        "error": float(np.sqrt(np.mean((mean - f) ** 2))),
        "log density": float(norm.logpdf(y, mean, deviation).mean()),
        "of f": float(np.mean((f - mean) ** 2 / np.maximum(variance, 1e-12))),
    }
    return found | {
        f"{share:.0%} covers": float(np.mean(z < norm.ppf(0.5 + share / 2)))
        for share in (0.9, 0.95)
    }


# --- ours ----------------------------------------------------------------------------------------


def _ours(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    given = {"noise": NOISE, "amplitude": 1.0}
    method = bo.FourierGrid(TOLERANCES[X.shape[1]])
    kernel = Matern(1.5, LENGTHSCALE)
    model = bo.GaussianProcessRegressor(kernel, method=method, **given).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    return mean, std**2


def _nearest(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    given = {"noise": NOISE, "amplitude": 1.0}
    kernel, method = Matern(1.5, LENGTHSCALE), bo.NearestNeighbours(NEAREST)
    model = bo.GaussianProcessRegressor(kernel, method=method, **given).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    return mean, std**2


def _exact_few(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    mean, std = exact(Matern(1.5, LENGTHSCALE), X, y, new)
    return mean, std**2


# --- rivals --------------------------------------------------------------------------------------


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

    kernel = Matern(1.5, LENGTHSCALE)
    curve = lambda _, h: NOISE + 1 - kernel(np.ravel(h)[:, None], np.zeros((1, 1))).reshape(h.shape)
    return OrdinaryKriging(
        *X.T, y, "custom", variogram_parameters=[0.0], variogram_function=curve, exact_values=False
    )


def _gstools(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    import gstools as gs  # noqa: PLC0415

    scale = (
        LENGTHSCALE / 2**0.5
    )  # its Matern has sqrt(nu) r / scale, ours sqrt(2 nu) r / lengthscale
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
        cov_pars=np.array([NOISE, 1.0, LENGTHSCALE]),
        predict_var=True,
        predict_response=False,
    )
    return found["mu"] + y.mean(), found["var"]


def _scikit(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    from sklearn import gaussian_process as gp  # noqa: PLC0415

    kernel = gp.kernels.Matern(LENGTHSCALE, nu=1.5)
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
    model.covar_module.lengthscale, likelihood.noise = LENGTHSCALE, NOISE
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
    X, y, new = (torch.tensor(a, dtype=torch.float64) for a in (X, y, new))
    model = Process(X, y, likelihood).double()
    likelihood.double()
    model.covar_module.base_kernel.lengthscale = LENGTHSCALE
    likelihood.noise = NOISE
    model.mean_module.constant.data.fill_(float(y.mean()))
    model.eval()
    likelihood.eval()
    accuracy = gpytorch.settings.eval_cg_tolerance(1e-3)  # float32 and its 1e-2 diverge here
    with torch.no_grad(), gpytorch.settings.fast_pred_var(), accuracy:
        found = model(new)
        return found.mean.numpy(), found.variance.numpy()


def _celerite(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Matérn-3/2 is the limit of its terms; rows and new places in rising order."""
    import celerite2  # noqa: PLC0415
    from celerite2 import terms  # noqa: PLC0415

    order, at = np.argsort(X[:, 0]), np.argsort(new[:, 0])
    term = terms.Matern32Term(sigma=1.0, rho=LENGTHSCALE)
    model = celerite2.GaussianProcess(term, mean=float(y.mean()))
    model.compute(X[order, 0], diag=np.full(len(y), NOISE))
    mean, variance = np.empty(len(new)), np.empty(len(new))
    for rows in np.array_split(
        at, max(1, len(new) * len(y) // 10**7)
    ):  # its variance has n m cells
        mean[rows], variance[rows] = model.predict(y[order], new[rows, 0], return_var=True)
    return mean, variance


#: Name, package, case, the most rows that it is given (what memory or minutes hold), and columns.
_CASES = (
    ("ours", "finufft", _ours, ALL, (1, 2)),
    ("ours, 40 nearest", "scipy", _nearest, ALL, (1, 2)),
    ("exact", "scipy", _exact_few, 4000, (1, 2)),
    ("celerite2", "celerite2", _celerite, ALL, (1,)),
    ("scikit-learn", "sklearn", _scikit, 4000, (1, 2)),
    ("PyKrige", "pykrige", _pykrige, 4000, (2,)),
    ("PyKrige, 40 nearest", "pykrige", _pykrige_local, 10_000, (2,)),
    ("GSTools", "gstools", _gstools, 1000, (2,)),
    ("GPyTorch KISS-GP", "gpytorch", _kiss, ALL, (2,)),
    ("GPyTorch SVGP, 500 places", "gpytorch", _svgp, ALL, (1, 2)),
    ("GPBoost Vecchia, 40 nearest", "gpboost", _gpboost, ALL, (1, 2)),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kriging_rivals")
    parser.add_argument("--columns", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    for d in asked.columns:
        rows = []
        for row in _compared(Options(quick=asked.quick, data=None), d, asked.only):
            rows.append(row)
            say(str(row))
        say(table(rows))


if __name__ == "__main__":
    main()
