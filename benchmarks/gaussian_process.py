"""Gaussian processes: log predictive density, coverage and seconds, beside GPyTorch's and xGPR's.

Everyone standardised inputs and target, everyone chooses lengthscales, noise and amplitude in their
own way, and that time counts. Rivals that descend by steps stop after a given time.
"""

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.stats import norm

import bochner as bo
from benchmarks import scaled
from benchmarks.harness import Options, Row, each, judged
from benchmarks.scaled import Split

__all__ = ["run"]

Array = np.ndarray

#: Mean and standard deviation of the test targets, with the noise.
Predicted = tuple[Array, Array]

#: Given rows, width and seconds, a fit and its predictions.
Case = Callable[[Split, int, float], Predicted]


def run(options: Options) -> list[Row]:
    """Compare on ``protein``, and count what nominal intervals cover there and on the relief."""

    def rows_of(name: str) -> list[Row]:
        data = scaled.split(name, options, options.pick(1024, 128))
        densities = _compared(options, name, data) if name == "protein" else []
        return densities + _covered(options, name, data)

    rows = each(scaled.NAMES, rows_of)
    missing = [name for name in ("gpytorch", "xGPR") if find_spec(name) is None]
    return rows + [{"note": f"{name}: not installed."} for name in missing]


def _compared(options: Options, name: str, data: Split) -> list[Row]:
    width, limit = options.pick(1024, 128), options.pick(45.0, 2.0)
    mine = _timed(_ours, data, width, limit)
    rows = [_row(name, "ours", data, width, mine)]
    for rival, case in _rivals().items():
        theirs = _timed(case, data, width, limit)
        row = _row(name, rival, data, width, theirs)
        gain = _density(mine[2], data) - _density(theirs[2], data)
        faster = theirs[0] / mine[0]
        rows.append(row | {"ours better by": gain, "ours faster": faster} | judged(gain, 0.0))
    return rows


def _rivals() -> dict[str, Case]:
    gpytorch: dict[str, Case] = {"GPyTorch SVGP": _svgp, "GPyTorch SGPR": _sgpr}
    found = gpytorch if find_spec("gpytorch") is not None else {}
    return found | ({"xGPR": _xgpr} if find_spec("xGPR") is not None else {})


def _timed(case: Case, data: Split, width: int, limit: float) -> tuple[float, float, Predicted]:
    start, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = case(data, width, limit)
    return time.perf_counter() - start, time.process_time() - used, predicted


def _density(predicted: Predicted, data: Split) -> float:
    return float(norm.logpdf(data.y_test, *predicted).mean())


def _row(name: str, who: str, data: Split, width: int, done: tuple[float, float, Predicted]) -> Row:
    seconds, used, (mean, std) = done
    inside = np.abs(data.y_test - mean) <= norm.ppf(0.975) * std
    return {
        "table": name,
        "rows": len(data.y),
        "who": who,
        "D": width,
        "seconds": seconds,
        "CPU s": used,
        "log density": _density((mean, std), data),
        "95 % covers": float(inside.mean()),
        "test RMSE": data.error(mean),
    }


def _covered(options: Options, name: str, data: Split) -> list[Row]:
    """Count what Gaussian and calibrated intervals hold, with Fourier and other features."""
    rows: list[Row] = []
    for method in ("auto", "orthogonal"):
        width = options.pick(1024, 128)
        model = bo.GaussianProcessRegressor(method=method, n_features=width, random_state=0)
        model.fit(data.X, data.y)
        for kind, calibrated in (("Gaussian", False), ("calibrated", True)):
            _, lower, upper = model.predict_interval(data.X_test, 0.95, calibrated=calibrated)
            covers = float(np.mean((lower <= data.y_test) & (data.y_test <= upper)))
            rows.append(
                {
                    "table": name,
                    "rows": len(data.y),
                    "who": f"{method}, {kind}",
                    "D": width,
                    "95 % covers": covers,
                    "asked": "0.93 to 0.97",
                    "met": "yes" if 0.93 <= covers <= 0.97 else "NO",
                }
            )
    return rows


# --- the models ----------------------------------------------------------------------------------


def _ours(data: Split, width: int, _: float) -> Predicted:
    model = bo.GaussianProcessRegressor(n_features=width, random_state=0)
    mean, std = model.fit(data.X, data.y).predict(data.X_test, return_std=True)
    return mean, np.sqrt(std**2 + model.noise_variance_)


def _svgp(data: Split, width: int, limit: float) -> Predicted:
    """Stochastic variational: width/2 inducing points, Adam on blocks of 1024 rows."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points: Any) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, law))
            self.mean_module = gpytorch.means.ConstantMean()
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(inner)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
    torch.manual_seed(0)
    model = Model(X[torch.randperm(len(X))[: width // 2]].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    _descend(model, likelihood, elbo, _blocks(X, y), 0.01, limit)
    return _of_torch(model, likelihood, data)


def _sgpr(data: Split, width: int, limit: float) -> Predicted:
    """Titsias' bound on all rows: width/4 inducing points (a step is O(n m²)), Adam."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
    torch.manual_seed(0)
    points = X[torch.randperm(len(X))[: width // 4]].clone()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                gpytorch.kernels.ScaleKernel(inner), points, likelihood
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    _descend(model, likelihood, bound, iter(lambda: (X, y), None), 0.1, limit)
    return _of_torch(model, likelihood, data)


def _blocks(X: Any, y: Any) -> Any:
    import torch  # noqa: PLC0415

    while True:
        for rows in torch.randperm(len(X)).split(1024):
            yield X[rows], y[rows]


def _descend(
    model: Any, likelihood: Any, bound: Any, blocks: Any, rate: float, limit: float
) -> None:
    import torch  # noqa: PLC0415

    own = {id(p): p for module in (model, likelihood) for p in module.parameters()}
    steps = torch.optim.Adam(own.values(), lr=rate)
    model.train(), likelihood.train()
    start = time.perf_counter()
    for X, y in blocks:
        steps.zero_grad()
        loss = -bound(model(X), y)
        loss.backward()
        steps.step()
        if time.perf_counter() - start > limit:
            return


def _of_torch(model: Any, likelihood: Any, data: Split) -> Predicted:
    import torch  # noqa: PLC0415

    model.eval(), likelihood.eval()
    with torch.no_grad():
        law = likelihood(model(torch.from_numpy(data.X_test)))
        return law.mean.numpy(), np.sqrt(law.variance.numpy())


def _xgpr(data: Split, width: int, _: float) -> Predicted:
    """Random features; tuned by marginal likelihood in ten steps, exact fit."""
    from xGPR import build_regression_dataset, xGPRegression  # noqa: PLC0415

    X, y = data.X.astype(np.float64), data.y.astype(np.float64)
    rows = build_regression_dataset(X, y, chunk_size=2000)
    model = xGPRegression(
        num_rffs=width, variance_rffs=width // 2, kernel_choice="RBF", device="cpu", verbose=False
    )
    model.tune_hyperparams_crude(rows, max_bayes_iter=10)
    model.fit(rows, mode="exact")
    test = data.X_test.astype(np.float64)
    mean, variance = model.predict(test, get_var=True)
    return mean, np.sqrt(np.maximum(variance, 1e-12))
