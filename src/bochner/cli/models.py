"""Learners by their names on the command line, model files, and predictions."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
from scipy.special import ndtri

import bochner as bo
from bochner._core.arrays import to_numpy
from bochner.cli.arguments import LEARNERS, STANDARD_OUTPUT
from bochner.data.writers import Chunk, write_table
from bochner.errors import InvalidType, ModelFileError
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator
from bochner.models._intervals import IntervalRegressor
from bochner.selection.spec import NAMED


def learner(name: str, choices: Mapping[str, Any], settings: Sequence[str]) -> Any:
    """Return an unfitted learner with the options ``choices`` and the ``--set`` pairs."""
    parameters = {key: value for key, value in choices.items() if value is not None}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"must be NAME=VALUE; got {text!r}.", param_hint="'--set'")
        parameters[key] = value
        with suppress(json.JSONDecodeError):
            parameters[key] = json.loads(value)
    try:
        return getattr(bo, LEARNERS[name])(**parameters)
    except InvalidType as error:  # its message lists the parameters
        raise click.UsageError(str(error)) from error


def kernel_of(name: str, lengthscale: list[float]) -> Kernel | str:
    """Return the kernel with this lengthscale, or its name if the lengthscale is not given."""
    if not lengthscale:
        return name
    if name in ("linear", "auto"):
        reason = "the linear kernel has none" if name == "linear" else "--kernel auto chooses it"
        raise click.BadParameter(f"{reason}; leave it out.", param_hint="'--lengthscale'")
    return NAMED[name](lengthscale[0] if len(lengthscale) == 1 else tuple(lengthscale))


def columns_of(model: Any, X: Any, coverage: float | None) -> dict[str, np.ndarray]:
    """Return the columns of predictions by name, with intervals unless ``coverage`` is None."""
    rows, percent = bo.Blocks.from_arrays(X), f"{100 * (coverage or 0):g}"
    names: tuple[str, ...] = ("prediction", f"low_{percent}", f"high_{percent}")
    if isinstance(model, bo.GaussianProcessRegressor):
        assert coverage is not None
        mean, deviation = model.outputs(rows).values()
        total, law = np.sqrt(deviation**2 + model.noise_variance_), model.calibration_
        half = ndtri(0.5 + coverage / 2) * total  # Gaussian, if there are too few scores
        low, high = mean - half, mean + half
        if law.calibrates(coverage):
            columns_ = [values.reshape(len(values), -1) for values in (mean, total)]
            ends = law.bounds(X, columns_[0], coverage, columns_[1])
            low, high = (end.reshape(mean.shape) for end in ends)
        names = (*names, "deviation_of_observation", "deviation_of_mean")
        columns = dict(zip(names, (mean, low, high, total, deviation), strict=True))
    elif coverage is not None:
        columns = dict(zip(names, model.predict_interval(rows, coverage), strict=True))
    else:
        columns = model.outputs(rows)
    if "label" in columns:
        label = {"prediction": columns["label"]}
        if isinstance(model, bo.OneClassSVM):
            return label | {"score": columns["decision"] + float(model.offset_[0])}
        shares = zip(model.classes_, columns.get("probability", np.empty((0, 0))).T, strict=False)
        return label | {f"probability_{c}": p for c, p in shares}
    if "scores" in columns:
        return {f"component_{i}": column for i, column in enumerate(columns["scores"].T, start=1)}
    targets = (_label_targets(model, name, values) for name, values in columns.items())
    return {name: column for target in targets for name, column in target.items()}


def intervals_of(
    model: KernelEstimator, coverage: float | None = None
) -> tuple[float | None, str | None]:
    """Return the coverage of intervals (0.9 for gp if not given), and the guarantee.

    Both are None if no intervals are made.
    """
    if isinstance(model, bo.GaussianProcessRegressor):
        law, coverage = model.calibration_, 0.9 if coverage is None else coverage
        if law.calibrates(coverage):
            return coverage, law.guarantee
        return coverage, f"Gaussian, true if the model is: {len(law)} rows are too few."
    if coverage is None:
        return None, None
    name = type(model).__name__
    if not isinstance(model, IntervalRegressor):
        text = f"{name} has no prediction intervals; leave --interval out."
        raise click.BadParameter(text, param_hint="'--interval'")
    model.calibration_.require(name, coverage)
    return coverage, model.calibration_.guarantee


def _label_targets(model: KernelEstimator, label: str, values: Any) -> dict[str, np.ndarray]:
    """Return one column per target or quantile, with its name or number added to the label."""
    values = to_numpy(values)
    if values.ndim == 1:
        return {label: values}
    t = values.shape[1]
    names: Any = None if model.schema_ is None else model.schema_.target_names
    if not names or len(names) != t:
        is_quantile = isinstance(model, bo.KernelRegressor) and model.loss == "quantile"
        names = model.quantiles if is_quantile and np.size(model.quantiles) == t else range(t)
    return {f"{label}_{name}": column for name, column in zip(names, values.T, strict=True)}


def open_model(path: str) -> Any:
    """Return the fitted learner in a file."""
    model = bo.load(path)
    is_learner = isinstance(model, KernelEstimator)
    is_fitted = is_learner and not isinstance(model, bo.KernelFeatures) and "fit_" in vars(model)
    if not is_fitted:
        kind = "one that is not fitted" if is_learner else f"a {type(model).__name__}"
        raise ModelFileError(
            f"'{path}' must hold a fitted learner, as bochner fit writes; it holds {kind}."
        )
    return model


def write_predictions(out: Path, chunks: Iterable[Chunk]) -> int:
    """Write predictions to a table and return the number of rows."""
    if out != STANDARD_OUTPUT:
        return write_table(out, chunks)
    with TemporaryDirectory(prefix="bochner-") as folder:
        path = Path(folder) / "predictions.csv"
        rows = write_table(path, chunks)
        with path.open("rb") as file:
            stream = click.get_binary_stream("stdout")  # type: ignore[operator]
            copyfileobj(file, stream)
            stream.flush()
    return rows
