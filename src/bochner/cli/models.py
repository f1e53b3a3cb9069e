"""Learners by the names that the command line gives them, model files, and predictions."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from bochner import models
from bochner._core.arrays import to_numpy
from bochner.cli.arguments import LEARNERS
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, ModelFileError
from bochner.models._judged import certificate_of
from bochner.models.gaussian_process.intervals import place_of
from bochner.models.unsupervised.transform import KernelFeatures
from bochner.persist import load

#: Share of new observations that intervals hold.
COVERAGE = 0.9

#: Learners that have no target.
WITHOUT_TARGET = ("one-class", "kmeans", "pca")


def learner(name: str, choices: Mapping[str, Any], settings: Sequence[str]) -> Any:
    """Return the learner with what was chosen: options that were given, and ``--set`` pairs."""
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
            f"got {text!r}.",
            param_hint="'--set'",
        )
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


Output = Callable[[Blocks], dict[str, np.ndarray]]


def outputs(model: Any, coverage: float | None = None) -> Output:
    """Return what gives the columns of predictions of a few rows.

    ``coverage`` is that of intervals, of learners that have them; 0.9 if not given.
    """
    if coverage is not None and not hasattr(model, "predict_interval"):
        raise click.BadParameter(
            f"{type(model).__name__} has no intervals; gp has.", param_hint="'--coverage'"
        )
    if is_classifier(model):
        return lambda rows: _classes(model, rows)
    if hasattr(model, "cluster_centers_"):
        return lambda rows: {"cluster": to_numpy(model.predict(rows))}
    if not hasattr(model, "predict"):
        return lambda rows: _columns("component", model.transform(rows))
    if hasattr(model, "sample_functions"):
        return _process(model, COVERAGE if coverage is None else coverage)
    if hasattr(model, "offset_"):
        return lambda rows: {
            "prediction": to_numpy(model.predict(rows)),
            "score": to_numpy(model.score_samples(rows)),
        }
    return lambda rows: _named(model, "prediction", model.predict(rows))


def _classes(model: Any, rows: Blocks) -> dict[str, np.ndarray]:
    found = {"prediction": to_numpy(model.predict(rows))}
    if hasattr(model, "predict_proba"):
        shares = to_numpy(model.predict_proba(rows)).T
        found |= {f"probability_{c}": p for c, p in zip(model.classes_, shares, strict=True)}
    return found


def intervals_of(model: Any, coverage: float | None = None) -> str | None:
    """Return what holds of a model's intervals, in a sentence; None if it has none."""
    if not hasattr(model, "predict_interval"):
        return None
    if _calibrates(model, COVERAGE if coverage is None else coverage):
        return model.calibration_.guarantee
    return f"Gaussian, true if the model is: {len(model.calibration_)} rows calibrate none."


def _calibrates(model: Any, coverage: float) -> bool:
    """Whether the model's rows are enough for intervals of this coverage."""
    try:
        place_of(len(model.calibration_), coverage)
    except InvalidInput:
        return False
    return True


def _process(model: Any, coverage: float) -> Output:
    """Return what gives means, bounds of new observations, and the deviation of the mean."""
    calibrated, percent = _calibrates(model, coverage), f"{100 * coverage:g}"

    def columns(rows: Blocks) -> dict[str, np.ndarray]:
        mean, low, high = model.predict_interval(rows, coverage, calibrated)
        deviation = model.predict(rows, return_std=True)[1]
        return (
            _named(model, "prediction", mean)
            | _named(model, f"low_{percent}", low)
            | _named(model, f"high_{percent}", high)
            | _named(model, "deviation_of_mean", deviation)
        )

    return columns


def _named(model: Any, what: str, values: Any) -> dict[str, np.ndarray]:
    """Return one column for each target, by its name where it has one."""
    values = to_numpy(values)
    if values.ndim == 1:
        return {what: values}
    schema = getattr(model, "schema_", None)
    names: Any = getattr(schema, "target_names", None)
    if not names or len(names) != values.shape[1]:
        names = getattr(model, "quantiles", None) if _has_quantiles(model, values) else None
    chosen = names or range(values.shape[1])
    return {f"{what}_{name}": column for name, column in zip(chosen, values.T, strict=True)}


def _has_quantiles(model: Any, values: np.ndarray) -> bool:
    return getattr(model, "loss", None) == "quantile" and np.size(model.quantiles) == len(values.T)


def _columns(what: str, values: Any) -> dict[str, np.ndarray]:
    return {f"{what}_{i + 1}": column for i, column in enumerate(to_numpy(values).T)}


# --- Open a model file and the files it is to be used on -----------------------------------------


def open_model(path: str) -> Any:
    """Return the fitted learner in a file."""
    model = load(path)
    fitted = hasattr(model, "map_") and hasattr(model, "n_features_in_")
    if not isinstance(model, BaseEstimator) or not fitted or isinstance(model, KernelFeatures):
        kind = type(model).__name__
        raise ModelFileError(
            f"'{path}' must hold a fitted learner, as bochner fit writes; it holds "
            f"{'one that is not fitted' if isinstance(model, BaseEstimator) else f'a {kind}'}."
        )
    return model


def open_rows(model: Any, files: Sequence[Path], separator: str | None, truth: bool) -> Blocks:
    """Return the rows of the files as the model reads them, with the target if ``truth``."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        names = getattr(model, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        return Blocks.from_files(files, columns=columns, separator=separator)
    wanted = schema if truth else schema.features_only()
    return Blocks.from_files(files, schema=wanted, separator=separator)


def certified(model: Any, blocks: Blocks, other: bool = False) -> tuple[dict[str, Any] | None, str]:
    """Return the certificate as numbers and words; why, if there is none.

    On the rows of the fit, or on ``other`` rows. A model without a certificate (alpha = 0, very few
    rows) is still a model.
    """
    try:
        certificate = certificate_of(model, blocks, other=other)
    except InvalidInput as error:
        return None, f"none: {error}"
    return {f.name: getattr(certificate, f.name) for f in fields(certificate)}, str(certificate)
