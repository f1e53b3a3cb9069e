"""Fourier grids, compared with exact Gaussian processes and other packages."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

import bochner as bo
from benchmarks.bench import Options, Row, bench, clock, goal
from benchmarks.learners import missing
from bochner.errors import InvalidInput
from bochner.features.fourier.grid import grid_of
from bochner.kernels import Cauchy, Gaussian, Kernel, Laplace, Matern, RationalQuadratic

Array = np.ndarray

#: Mean and variance of the function at new places.
Predicted = tuple[Array, Array]

NOISE, LENGTHSCALE = 0.09, 0.2
LAW = {"noise": NOISE, "amplitude": 1.0}


def _smooth(X: Array) -> Array:
    return np.sin(9 * X[:, 0]) * np.cos(7 * X[:, -1])


def _places(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Return places in the unit cube, and a smooth function there with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, _smooth(X) + NOISE**0.5 * rng.standard_normal(n)


def exact(kernel: Kernel, X: Array, y: Array, new: Array) -> Predicted:
    """Return mean and variance of an exact process of amplitude 1 with a constant unknown mean."""
    first = np.ones(len(y))
    factor = cho_factor(kernel(X) + NOISE * np.eye(len(y)), lower=True, overwrite_a=True)
    k = kernel(new, X)
    a, b = cho_solve(factor, np.stack([y, first], axis=1)).T
    mean = a.sum() / b.sum()
    variance = kernel.diag(new) - np.einsum("ij,ji->i", k, cho_solve(factor, k.T))
    return mean + k @ (a - mean * b), variance + (1 - k @ b) ** 2 / b.sum()


@bench()
def kriging(options: Options) -> Iterator[Row]:
    """Fourier grids: predictions of exact processes, and up to ten million rows.

    "exact" compares fits of 5,000 rows at each tolerance, or has the message of their error;
    "rows" and "evidence" have many rows: ``--cases "exact*"`` runs a part.
    """
    parts = {"exact": _accuracy, "rows": _many_rows, "evidence": _by_evidence}
    for name, part in parts.items():
        if not options.cases or any(case.startswith(name) for case in options.cases):
            yield from part(options)


def _accuracy(options: Options) -> Iterator[Row]:
    n, m = options.pick((5000, 1000), (400, 50))
    tolerances = options.pick((1e-2, 1e-4, 1e-6, 1e-8, 1e-10), (1e-2,))
    for d in options.pick((1, 2, 3), (1, 2)):
        length, (X, y) = d / 10, _places(n, d)
        new = np.random.default_rng(1).uniform(0, 1, (m, d))
        smooth = (Gaussian(length), RationalQuadratic(2.0, length), Cauchy(length))
        rough = (Matern(2.5, length), Matern(1.5, length), Matern(0.5, length), Laplace(length))
        for kernel in (*smooth, *rough):
            mean, variance = exact(kernel, X, y, new)
            for tolerance in tolerances:
                row = {"case": f"exact, {kernel!r}, d={d}", "who": f"tolerance {tolerance:g}"}
                yield row | _compare(kernel, tolerance, X, y, new, mean, variance)


def _compare(
    kernel: Kernel, tolerance: float, X: Array, y: Array, new: Array, mean: Array, variance: Array
) -> Row:
    d = X.shape[1]
    method = bo.FourierGrid(tolerance, ((0.0, 1.0),) * d)
    row: Row = {"modes": grid_of(kernel, np.zeros(d), np.ones(d), tolerance).n_modes}
    if 250_000 < row["modes"] < 10**8:
        return row | {"refused": "not tried: over 250,000 modes"}
    try:
        fit = lambda: bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X, y)
        model, times = clock(fit)
    except InvalidInput as error:
        return row | {"refused": str(error)}
    row |= {"seconds": times["seconds"]}
    row["error"] = float(np.linalg.norm(model.predict(new) - mean) / np.linalg.norm(mean))
    if tolerance == 1e-2 and model.map_.n_features <= 4096:
        process = bo.GaussianProcessRegressor(kernel, method=method, **LAW).fit(X, y)
        _, std = process.predict(new, return_std=True)
        row["error of deviations"] = float(np.sqrt(np.mean((std / variance**0.5 - 1) ** 2)))
    return goal(row, "error", maximum=tolerance)


def _many_rows(options: Options) -> Iterator[Row]:
    for n, d, maximum in options.pick(((10**6, 2, 2.0), (10**7, 1, 30.0)), ((10_000, 2, 2.0),)):
        X, y = _places(n, d)
        model = bo.KernelRidge(Matern(1.5, 0.1), method=bo.FourierGrid(1e-3), alpha=NOISE)
        model.fit(X[:2000], y[:2000])
        _, times = clock(partial(model.fit, X, y))
        new = np.random.default_rng(1).uniform(0, 1, (10_000, d))
        row = {"case": f"rows, n={n:,}, d={d}", "modes": model.map_.n_features} | times
        row["error"] = float(np.sqrt(np.mean((model.predict(new) - _smooth(new)) ** 2)))
        yield goal(row, "seconds", maximum=maximum)


def _by_evidence(options: Options) -> Iterator[Row]:
    """Yield a fit with lengthscale, noise and amplitude chosen by the evidence of all rows."""
    n = options.pick(10**6, 3000)
    X, y = _places(n + 5000, 2)
    model = bo.GaussianProcessRegressor("matern32", method=bo.FourierGrid(1e-3), random_state=0)
    _, times = clock(lambda: model.fit(X[:n], y[:n]))
    mean, std = model.predict(X[n:], return_std=True)
    row = {"case": f"evidence, n={n:,}", "modes": model.map_.n_features} | times
    row |= _scores(mean, std**2, y[n:], model.noise_variance_)
    yield goal(row, "seconds", maximum=120.0)


def _scores(mean: Array, variance: Array, y: Array, noise: float = NOISE) -> Row:
    deviation = np.sqrt(np.maximum(variance, 0.0) + noise)
    z = np.abs(y - mean) / deviation
    row: Row = {"log density": float(norm.logpdf(y, mean, deviation).mean())}
    for share in (0.9, 0.95):
        row[f"{share:.0%} covers"] = float(np.mean(z < norm.ppf(0.5 + share / 2)))
    return row


@bench()
def kriging_packages(options: Options) -> Iterator[Row]:
    """Fourier grids and other packages with the same kernel, noise and amplitude: 100,000 rows.

    Targets are draws of a Matérn-3/2 process in the unit square and on a line; packages that need
    the matrix of all rows receive fewer. "error" is the root mean squared error of f, "of variance"
    the mean ratio of squared errors to their variance, ideally 1. ``--who "bochner*"`` runs a part.
    """
    packages = dict.fromkeys(package for package, *_ in METHODS.values())
    for d in (2, 1):
        n, m = options.pick((options.rows or 100_000, 20_000), (2000, 50))
        rng = np.random.default_rng(0)
        X = rng.uniform(0, 1, (n + m, d))
        f = _draw(X, d)
        y = f + NOISE**0.5 * rng.standard_normal(n + m)
        for name, (package, predict, limit, columns) in METHODS.items():
            case = f"{d} columns"
            if d in columns and find_spec(package) and options.wants(case, name):
                import_module(package)
                n_rows = min(n, options.pick(limit, max(limit // 10, 200)))
                (mean, variance), times = clock(lambda: predict(X[:n_rows], y[:n_rows], X[n:]))  # noqa: B023
                row = {"case": case, "who": name, "rows": n_rows} | times
                row["error"] = float(np.sqrt(np.mean((mean - f[n:]) ** 2)))
                squares = (mean - f[n:]) ** 2 / np.maximum(variance, 1e-12)
                yield row | _scores(mean, variance, y[n:]) | {"of variance": float(squares.mean())}
    yield from missing(*packages)


def _draw(X: Array, seed: int) -> Array:
    """Return a draw of the process at places, a sum of 2¹⁷ random waves.

    Frequencies of a Matérn-3/2 kernel have Student's distribution of three degrees of freedom.
    """
    finufft, rng = import_module("finufft"), np.random.default_rng(seed)
    d, waves = X.shape[1], 1 << 17
    chi = np.sqrt(rng.chisquare(3, waves) / 3)
    W = rng.standard_normal((d, waves)) / chi / LENGTHSCALE
    size = rng.standard_normal(waves) + 1j * rng.standard_normal(waves)
    transform = finufft.nufft1d3 if d == 1 else finufft.nufft2d3
    places, frequencies = ([np.ascontiguousarray(c) for c in columns] for columns in (X.T, W))
    return np.asarray(transform(*frequencies, size, *places, eps=1e-9)).real / waves**0.5


def _grid(X: Array, y: Array, new: Array, method: Any = None) -> Predicted:
    method = method or bo.FourierGrid({1: 1e-5, 2: 1e-3}[X.shape[1]])
    model = bo.GaussianProcessRegressor(Matern(1.5, LENGTHSCALE), method=method, **LAW).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    return mean, std**2


def _pykrige(X: Array, y: Array, new: Array, nearest: int | None = None) -> Predicted:
    """Return kriging of all rows, or of the nearest rows by the matrix of all distances."""
    kernel, rows = Matern(1.5, LENGTHSCALE), slice(nearest and 100)
    curve = lambda _, h: NOISE + 1 - kernel(np.ravel(h)[:, None], np.zeros((1, 1))).reshape(h.shape)
    options = {"variogram_parameters": [0.0], "variogram_function": curve, "exact_values": False}
    make = import_module("pykrige.ok").OrdinaryKriging
    model, local = make(*X[rows].T, y[rows], "custom", **options), {}
    if nearest:
        (model.X_ADJUSTED, model.Y_ADJUSTED), model.Z = X.T.copy(), y
        local = {"backend": "loop", "n_closest_points": nearest}
    mean, variance = model.execute("points", *new.T, **local)
    return np.asarray(mean), np.asarray(variance) - NOISE


def _gstools(X: Array, y: Array, new: Array) -> Predicted:
    gs, scale = import_module("gstools"), LENGTHSCALE / 2**0.5  # GSTools has sqrt(nu) r / len_scale
    model = gs.Matern(dim=2, var=1.0, len_scale=scale, nu=1.5, nugget=NOISE)
    mean, variance = gs.krige.Ordinary(model, X.T, y, exact=False, cond_err=NOISE)(new.T)
    return np.asarray(mean), np.asarray(variance) - NOISE


def _gpboost(X: Array, y: Array, new: Array) -> Predicted:
    options = {"cov_function": "matern", "cov_fct_shape": 1.5, "likelihood": "gaussian"}
    options |= {"gp_approx": "vecchia", "num_neighbors": 40}
    model = import_module("gpboost").GPModel(gp_coords=X, **options)
    model.set_prediction_data(num_neighbors_pred=40)
    options = {"cov_pars": np.array([NOISE, 1.0, LENGTHSCALE]), "predict_response": False}
    result = model.predict(y=y - y.mean(), gp_coords_pred=new, predict_var=True, **options)
    return result["mu"] + y.mean(), result["var"]


def _scikit(X: Array, y: Array, new: Array) -> Predicted:
    gp = import_module("sklearn.gaussian_process")
    kernel = gp.kernels.Matern(LENGTHSCALE, nu=1.5)
    model = gp.GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(X, y - y.mean())
    mean, std = model.predict(new, return_std=True)
    return mean + y.mean(), std**2


def _celerite(X: Array, y: Array, new: Array) -> Predicted:
    """Return predictions of sorted rows, for parts of the places: variances take n m numbers."""
    celerite2, order, at = import_module("celerite2"), np.argsort(X[:, 0]), np.argsort(new[:, 0])
    term = import_module("celerite2.terms").Matern32Term(sigma=1.0, rho=LENGTHSCALE)
    model = celerite2.GaussianProcess(term, mean=float(y.mean()))
    model.compute(X[order, 0], diag=np.full(len(y), NOISE))
    mean, variance = np.empty(len(new)), np.empty(len(new))
    for rows in np.array_split(at, max(1, len(new) * len(y) // 10**7)):
        mean[rows], variance[rows] = model.predict(y[order], new[rows, 0], return_var=True)
    return mean, variance


def _gpytorch(base: Any, arguments: Callable[[Any], Any], covariance: Any, mean: float) -> Any:
    """Return a process of GPyTorch with a constant mean; ``arguments`` are for ``base``."""
    gpytorch = import_module("gpytorch")

    class Process(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*arguments(self))
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), covariance
            self.mean_module.constant.data.fill_(mean)

        def forward(self, x: Any) -> Any:
            cov = self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), cov)

    return Process().double()


def _of_torch(fit: Callable[..., Any]) -> Callable[[Array, Array, Array], Predicted]:
    """Return a prediction function from one that fits rows, targets, kernel and likelihood."""

    def predict(X: Array, y: Array, new: Array) -> Predicted:
        gpytorch, torch = import_module("gpytorch"), import_module("torch")
        covariance = gpytorch.kernels.MaternKernel(nu=1.5)
        covariance.lengthscale = LENGTHSCALE
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = NOISE
        X, y, new = (torch.tensor(a, dtype=torch.float64) for a in (X, y, new))
        model = fit(X, y, covariance, likelihood.eval()).eval()
        settings = gpytorch.settings  # KISS-GP diverges at the default of 1e-2
        with torch.no_grad(), settings.fast_pred_var(), settings.eval_cg_tolerance(1e-3):
            posterior = model(new)
            return posterior.mean.numpy(), posterior.variance.numpy()

    return predict


@_of_torch
def _svgp(X: Any, y: Any, covariance: Any, likelihood: Any) -> Any:
    """Return SVGP with 500 inducing points; one pass of natural gradients attains the optimum."""
    gpytorch, torch = import_module("gpytorch"), import_module("torch")
    variational, points = gpytorch.variational, X[:500].clone()
    law = variational.NaturalVariationalDistribution(len(points))
    strategy = lambda model: variational.VariationalStrategy(
        model, points, law, learn_inducing_locations=False
    )
    base = gpytorch.models.ApproximateGP
    model = _gpytorch(base, lambda model: (strategy(model),), covariance, float(y.mean()))
    loss = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    step = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.1)
    for batch in torch.randperm(len(y)).split(1000):
        step.zero_grad()
        (-loss(model(X[batch]), y[batch])).backward()
        step.step()
    return model


@_of_torch
def _kiss(X: Any, y: Any, covariance: Any, likelihood: Any) -> Any:
    gpytorch = import_module("gpytorch")
    grid = gpytorch.kernels.GridInterpolationKernel(covariance, grid_size=100, num_dims=2)
    return _gpytorch(gpytorch.models.ExactGP, lambda _: (X, y, likelihood), grid, float(y.mean()))


#: By name: package, function, largest number of rows (by memory or time), numbers of columns.
ALL = 10**9
METHODS: dict[str, tuple[str, Callable[..., Predicted], int, tuple[int, ...]]] = {
    "bochner": ("finufft", _grid, ALL, (1, 2)),
    "bochner, 40 nearest": ("scipy", partial(_grid, method=bo.NearestNeighbours(40)), ALL, (1, 2)),
    "exact": ("scipy", partial(exact, Matern(1.5, LENGTHSCALE)), 4000, (1, 2)),
    "celerite2": ("celerite2", _celerite, ALL, (1,)),
    "scikit-learn": ("sklearn", _scikit, 4000, (1, 2)),
    "PyKrige": ("pykrige", _pykrige, 4000, (2,)),
    "PyKrige, 40 nearest": ("pykrige", partial(_pykrige, nearest=40), 10_000, (2,)),
    "GSTools": ("gstools", _gstools, 1000, (2,)),
    "GPyTorch KISS-GP": ("gpytorch", _kiss, ALL, (2,)),
    "GPyTorch SVGP, 500 places": ("gpytorch", _svgp, ALL, (1, 2)),
    "GPBoost Vecchia, 40 nearest": ("gpboost", _gpboost, ALL, (1, 2)),
}
