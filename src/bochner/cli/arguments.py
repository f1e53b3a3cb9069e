"""What users type: the names they may choose from, and checks before anything long is started.

The names are written out so that ``--help`` is quick.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

#: Ways to choose a penalty, as ``bochner.solvers.ridge.path`` names them.
CRITERIA = ("loo", "gcv", "evidence", "kfold")

#: The names of ``bochner.selection.lengthscale.NAMED``.
KERNELS = (
    "auto",
    "gaussian",
    "laplace",
    "exponential",
    "matern12",
    "matern32",
    "matern52",
    "cauchy",
    "rational_quadratic",
    "linear",
)

#: The names of ``bochner.features.draw.NAMED``.
METHODS = (
    "auto",
    "fourier",
    "iid",
    "orthogonal",
    "qmc",
    "structured",
    "mercer",
    "hermite",
    "nystrom",
    "uniform",
)

#: The learners of ``bochner fit``, and their classes.
LEARNERS = {
    "ridge": "KernelRidge",
    "ridge-classifier": "KernelRidgeClassifier",
    "gp": "GaussianProcessRegressor",
    "svc": "SVC",
    "logistic": "LogisticRegression",
    "svr": "SVR",
    "regressor": "KernelRegressor",
    "one-class": "OneClassSVM",
    "sgd-classifier": "KernelSGDClassifier",
    "sgd-regressor": "KernelSGDRegressor",
    "kmeans": "KernelKMeans",
    "pca": "KernelPCA",
}


class Alpha(click.ParamType):
    """A criterion, or a number of at least zero."""

    name = "alpha"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> str | float:
        """Return the word or the number."""
        if value in CRITERIA:
            return value
        number = _number(value)
        if number is None or number < 0:
            self.fail(f"must be {', '.join(CRITERIA)} or a number of 0 or above; got {value!r}.")
        return number


class Lengthscales(click.ParamType):
    """Positive numbers, separated by commas."""

    name = "numbers"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> tuple[float, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        numbers = [_number(part) for part in value.split(",")]
        if any(number is None or number <= 0 for number in numbers):
            self.fail(f"must be positive numbers, as 0.5 or 0.3,1,2; got {value!r}.")
        return tuple(numbers)  # type: ignore[arg-type]


class Widths(click.ParamType):
    """Whole numbers, separated by commas."""

    name = "numbers"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> list[int]:
        """Return the numbers."""
        try:
            return [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"must be whole numbers separated by commas, as 256,1024; got {value!r}.")


class Names(click.ParamType):
    """Names, separated by commas."""

    name = "names"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> list[str]:
        """Return the names."""
        return value.split(",")


class Types(click.ParamType):
    """Names of columns and what they hold, as a=number,b=category."""

    name = "types"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> dict[str, str]:
        """Return the types by name; what a type is, the reader of tables knows."""
        if isinstance(value, dict):
            return value
        pairs = [part.rpartition("=") for part in value.split(",")]
        if any(not name or kind not in ("number", "category") for name, _, kind in pairs):
            self.fail(f"must be as a=number,b=category; got {value!r}.")
        return {name: kind for name, _, kind in pairs}


class Destination(click.ParamType):
    """A file that can be written, found out before the work and not after it."""

    name = "file"

    def __init__(self, suffixes: Sequence[str] = ()) -> None:
        self.suffixes = tuple(suffixes)

    def convert(self, value: Any, _param: Any, _ctx: Any) -> Path:
        """Return the path."""
        path = Path(value).expanduser()
        reason = self._reason(path)
        if reason:
            self.fail(f"'{value}' cannot be written: {reason}")
        return path

    def _reason(self, path: Path) -> str | None:
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            return f"its name must end in {', '.join(self.suffixes)}."
        if path.is_dir():
            return "it is a folder. Name a file in it."
        folder = path.absolute().parent
        if not folder.is_dir():
            return f"there is no folder '{folder}'. Make it first."
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"the folder '{folder}' may not be written to. Choose another."
        if path.exists() and not os.access(path, os.W_OK):
            return "the file there is read-only. Choose another name."
        return None


def one_or_several(_ctx: Any, _param: Any, names: tuple[str, ...]) -> Any:
    """Return the one name that an option was given, or several, or None."""
    return names[0] if len(names) == 1 else names or None


def in_one_list(_ctx: Any, _param: Any, parts: tuple[tuple[float, ...], ...]) -> list[float]:
    """Return the numbers of an option that may be repeated and may hold several."""
    return [number for part in parts for number in part]


def in_one_mapping(_ctx: Any, _param: Any, parts: tuple[dict[str, str], ...]) -> dict[str, str]:
    """Return the pairs of an option that may be repeated."""
    return {name: kind for part in parts for name, kind in part.items()}


def refuse_overwriting(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over what is being read."""
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise click.BadParameter(
            f"'{out}' is one of the files to read. Choose another name.", param_hint="'--out'"
        )


def _number(text: Any) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None
