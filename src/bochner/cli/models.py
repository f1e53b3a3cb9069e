"""Learners by the names that the command line gives them, model files, and predictions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from bochner import models
from bochner._core.arrays import to_numpy
from bochner._core.names import meant
from bochner.cli.arguments import LEARNERS, STANDARD_OUTPUT
from bochner.cli.show import number
from bochner.data.blocks import Blocks
from bochner.data.writers import Chunk, write_table
from bochner.errors import InvalidInput, ModelFileError
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator
from bochner.models._intervals import WithIntervals
from bochner.models.convex.regressors import KernelRegressor
from bochner.models.gaussian_process.intervals import place_of
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.inspection.importance import ImportanceDisplay
from bochner.models.unsupervised.transform import KernelFeatures
from bochner.persist.files import load
from bochner.report.quality import certificate_of, kind_of
from bochner.selection.spec import NAMED

PIECE = 1 << 20  # Bytes written to standard output at a time
COVERAGE = 0.9  # Share of new observations that intervals hold
WITHOUT_TARGET = ("one-class", "kmeans", "pca")  # Learners that have no target


def learner(name: str, choices: Mapping[str, Any], settings: Sequence[str]) -> Any:
    """Return the learner with the given options and ``--set`` pairs."""
    kind = getattr(models, LEARNERS[name])
    known = set(signature(kind).parameters)
    given = {key: value for key, value in choices.items() if value is not None}
    for option in given.keys() - known:
        raise click.BadParameter(f"{name} has no {option}.", param_hint=f"'--{option}'")
    return kind(**given, **dict(_pair(text, name, known) for text in settings))


def needs_target(name: str) -> bool:
    """Whether it learns from a target."""
    return name not in WITHOUT_TARGET


def _pair(text: str, name: str, known: set[str]) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or key not in known:
        raise click.BadParameter(
            f"must be NAME=VALUE with a parameter of {name}: {', '.join(sorted(known))}; "
            f"got {text!r}{meant(key, known) or '.'}",
            param_hint="'--set'",
        )
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def kernel_of(name: str, lengthscale: list[float]) -> Kernel | str:
    """Return the kernel with this lengthscale, or its name, so that it is chosen."""
    if not lengthscale:
        return name
    if name in ("linear", "auto"):
        reason = "the linear kernel has none" if name == "linear" else "--kernel auto chooses it"
        raise click.BadParameter(f"{reason}; leave it out.", param_hint="'--lengthscale'")
    return NAMED[name](lengthscale[0] if len(lengthscale) == 1 else tuple(lengthscale))


Output = Callable[[Blocks], dict[str, np.ndarray]]


def outputs(model: KernelEstimator, coverage: float | None = None) -> Output:
    """Return what gives the columns of predictions of a few rows.

    ``coverage`` of the intervals of regressors; default 0.9 for gp, and no intervals for others.
    """
    if isinstance(model, GaussianProcessRegressor):
        return _process(model, COVERAGE if coverage is None else coverage)
    return _plain(model) if coverage is None else _with_bounds(model, coverage)


def _plain(model: KernelEstimator) -> Output:
    kind = kind_of(model)
    if kind == "classification":
        return lambda rows: _classes(model, rows)
    if kind == "clusters":
        return lambda rows: {"cluster": to_numpy(model.predict(rows))}
    if kind == "outliers":
        said = {"prediction": model.predict, "score": model.score_samples}
        return lambda rows: {name: to_numpy(ask(rows)) for name, ask in said.items()}
    if kind == "features":
        columns = lambda rows: enumerate(to_numpy(model.transform(rows)).T, start=1)
        return lambda rows: {f"component_{i}": column for i, column in columns(rows)}
    return lambda rows: _named(model, "prediction", model.predict(rows))


def _classes(model: KernelEstimator, rows: Blocks) -> dict[str, np.ndarray]:
    found = {"prediction": to_numpy(model.predict(rows))}
    if hasattr(model, "predict_proba"):
        shares = to_numpy(model.predict_proba(rows)).T
        found |= {f"probability_{c}": p for c, p in zip(model.classes_, shares, strict=True)}
    return found


def intervals_of(model: KernelEstimator, coverage: float | None = None) -> str | None:
    """Return what holds of a model's intervals, in a sentence; None if none are made."""
    if isinstance(model, WithIntervals):
        return None if coverage is None else model.calibration_.guarantee
    if not isinstance(model, GaussianProcessRegressor):
        return None
    if _calibrates(model, COVERAGE if coverage is None else coverage):
        return model.calibration_.guarantee
    return f"Gaussian, true if the model is: {len(model.calibration_)} rows calibrate none."


def _calibrates(model: GaussianProcessRegressor, coverage: float) -> bool:
    """Whether the model's rows are enough for intervals of this coverage."""
    try:
        place_of(len(model.calibration_), coverage)
    except InvalidInput:
        return False
    return True


def _with_bounds(model: KernelEstimator, coverage: float) -> Output:
    """Return what gives predictions, and bounds of new observations."""
    if not isinstance(model, WithIntervals):
        raise click.BadParameter(
            f"{type(model).__name__} predicts no quantity that could lie between bounds; leave "
            "--interval out.",
            param_hint="'--interval'",
        )
    model.calibration_.require(type(model).__name__, coverage)

    def columns(rows: Blocks) -> dict[str, np.ndarray]:
        shown, (_, low, high) = model.predict(rows), model.predict_interval(rows, coverage)
        percent = f"{100 * coverage:g}"
        found = (("prediction", shown), (f"low_{percent}", low), (f"high_{percent}", high))
        return {k: v for name, values in found for k, v in _named(model, name, values).items()}

    return columns


def _process(model: GaussianProcessRegressor, coverage: float) -> Output:
    """Return what gives means, bounds of new observations, and deviations of these and of f."""
    calibrated, percent = _calibrates(model, coverage), f"{100 * coverage:g}"

    def columns(rows: Blocks) -> dict[str, np.ndarray]:
        mean, low, high = model.predict_interval(rows, coverage, calibrated)
        deviation = to_numpy(model.predict(rows, return_std=True)[1])
        of_both = np.sqrt(deviation**2 + model.noise_variance_)
        bounds, deviations = (f"low_{percent}", f"high_{percent}"), (of_both, deviation)
        names = ("prediction", *bounds, "deviation_of_observation", "deviation_of_mean")
        found = zip(names, (mean, low, high, *deviations), strict=True)
        return {k: v for name, values in found for k, v in _named(model, name, values).items()}

    return columns


def _named(model: KernelEstimator, what: str, values: Any) -> dict[str, np.ndarray]:
    """Return one column for each target or quantile, by its name where it has one."""
    values = to_numpy(values)
    if values.ndim == 1:
        return {what: values}
    t = values.shape[1]
    names: Any = None if model.schema_ is None else model.schema_.target_names
    if not names or len(names) != t:
        several = isinstance(model, KernelRegressor) and model.loss == "quantile"
        names = model.quantiles if several and np.size(model.quantiles) == t else range(t)
    return {f"{what}_{name}": column for name, column in zip(names, values.T, strict=True)}


# --- A model file and the files it is to be used on ----------------------------------------------


def open_rows(
    model: KernelEstimator, files: Sequence[Path], separator: str | None, truth: bool
) -> Blocks:
    """Return the rows of the files as the model reads them, with the target if ``truth``."""
    schema = model.schema_
    if schema is None:
        # scikit-learn sets this attribute only where columns have names
        names = getattr(model, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        return Blocks.from_files(files, columns=columns, separator=separator)
    wanted = schema if truth else schema.features_only()
    return Blocks.from_files(files, schema=wanted, separator=separator)


def certified(
    model: KernelEstimator, blocks: Blocks, other: bool = False
) -> tuple[dict[str, Any] | None, str]:
    """Return the certificate as numbers and words; why, if there is none.

    On the rows of the fit, or on ``other`` rows. A model without a certificate (alpha = 0, very few
    rows) is still a model.
    """
    found = certificate_of(model, blocks, other)
    if isinstance(found, str):
        return None, f"none: {found}"
    return {f.name: getattr(found, f.name) for f in fields(found)}, str(found)


def open_model(path: str) -> Any:
    """Return the fitted learner in a file."""
    model = load(path)
    is_learner = isinstance(model, KernelEstimator)
    fitted = is_learner and not isinstance(model, KernelFeatures) and _is_fitted(model)
    if not fitted:
        kind = "one that is not fitted" if is_learner else f"a {type(model).__name__}"
        raise ModelFileError(
            f"'{path}' must hold a fitted learner, as bochner fit writes; it holds {kind}."
        )
    return model


def _is_fitted(model: KernelEstimator) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def written(out: Path, chunks: Iterable[Chunk], names: dict[str, None]) -> int:
    """Write predictions to a table, note the names of its columns, return the number of rows."""

    def noted() -> Iterator[Chunk]:
        for chunk in chunks:
            names.update(dict.fromkeys(chunk))
            yield chunk

    if out != STANDARD_OUTPUT:
        return write_table(out, noted())
    with TemporaryDirectory(prefix="bochner-") as folder:
        path = Path(folder) / "predictions.csv"
        rows = write_table(path, noted())
        with path.open("rb") as file:
            for part in iter(partial(file.read, PIECE), b""):
                click.echo(part, nl=False)
    return rows


# --- Results in words -----------------------------------------------------------------------------


def error_words(found: dict[str, Any]) -> str:
    """Write the errors of one target, the leave-one-out errors first."""
    names = {"rmse": "RMSE", "r_squared": "R²", "log_loss": "log loss", "auc": "AUC"}
    loo = [f"leave-one-out {names[k[4:]]} {number(v)}" for k, v in found.items() if k[4:] in names]
    if "loo_accuracy" in found:
        loo.append(f"leave-one-out accuracy {number(found['loo_accuracy'])}")
    words = [f"{name} {number(found[key])}" for key, name in names.items() if key in found]
    if "accuracy" in found:
        right = f"{100 * found['accuracy']:.2f} % of the labels are right"
        words.insert(
            0, f"{right}, where the most frequent label has {100 * found['majority']:.2f} %"
        )
    return ", ".join([*loo, *words])


def drivers(found: ImportanceDisplay) -> str:
    """Name the columns that predictions depend on most, with their shares of the deviation."""
    lines = found.table(3)[1]
    share = -1 if len(found.outputs) == 1 else 1
    shares = ", ".join(f"{line[0]} {line[share]}" for line in lines)
    return f"{shares} of the deviation of predictions (they do not add up to 100 %)"
