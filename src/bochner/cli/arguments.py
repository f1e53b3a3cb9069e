"""Choices of options, written as literals so that ``--help`` is quick; types of arguments."""

import atexit
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click import Choice as ClickChoice

#: Ways to choose a penalty, as ``bochner.solvers.ridge.solution`` names them.
CRITERIA = ("loo", "gcv", "evidence")

# fmt: off
#: The names of ``bochner.selection.spec.NAMED``.
KERNELS = (
    "auto", "gaussian", "laplace", "exponential", "matern12", "matern32", "matern52", "cauchy",
    "rational_quadratic", "linear",
)

#: The names of ``bochner.features.rules.NAMED``.
METHODS = (
    "auto", "fourier", "iid", "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom",
    "uniform", "grid", "leverage",
)
# fmt: on

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


def alpha(text: str) -> str | float:
    """Return a criterion, or a number of at least zero."""
    if text in CRITERIA:
        return text
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    words = f"must be {', '.join(CRITERIA)} or a number of 0 or above; got {text!r}."
    raise click.BadParameter(words)


def _list_of(item: Callable[[str], Any], content: str) -> Callable[[str], list[Any]]:
    """Return a parser of items between commas; ``item`` parses one, ``content`` is for errors."""

    def parse(text: str) -> list[Any]:
        try:
            return list(map(item, text.split(",")))
        except ValueError:
            raise click.BadParameter(f"must be {content}; got {text!r}.") from None

    return parse


def _positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise ValueError
    return float(text)


def _type_pair(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition("=")
    if not name or kind not in ("number", "category"):
        raise ValueError
    return name, kind


names = _list_of(str, "names")
lengthscales = _list_of(_positive, "positive numbers like 0.5 or 0.3,1,2")
widths = _list_of(int, "whole numbers separated by commas, like 256,1024")
types = _list_of(_type_pair, "pairs like a=number,b=category")


class Word(ClickChoice):  # generic from click 8.2 on
    """One of several words; the error for another word suggests the nearest."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the word; refuse a word that is not a choice."""
        if value in self.choices:
            return value
        from bochner._core.names import suggestion  # noqa: PLC0415  needed by refusals alone

        names = ", ".join(map(repr, self.choices))
        words = f"{value!r} is not one of {names}{suggestion(value, self.choices) or '.'}"
        raise click.BadParameter(words, ctx, param)


def output_path(*suffixes: str) -> Callable[[str], Path]:
    """Return a parser of output paths with these suffixes; for tables - is standard output."""

    def file(text: str) -> Path:
        path = Path(text).expanduser()
        if path == STANDARD_OUTPUT and ".csv" in suffixes:
            return path
        folder, ending = path.absolute().parent, path.suffix.lower()
        reasons = {
            "only tables go to standard output. Name a file.": path == STANDARD_OUTPUT,
            f"its name must end in {', '.join(suffixes)}.": suffixes and ending not in suffixes,
            "it is a folder. Name a file in it.": path.is_dir(),
            f"there is no folder '{folder}'. Make it first.": not folder.is_dir(),
            f"the folder '{folder}' may not be written to. Choose another.": not os.access(
                folder, os.W_OK | os.X_OK
            ),
            "the file there is read-only. Choose another name.": path.exists()
            and not os.access(path, os.W_OK),
        }
        for reason, holds in reasons.items():
            if holds:
                raise click.BadParameter(f"'{text}' cannot be written: {reason}")
        return path

    return file


#: Path for standard output, to which a table is written as CSV.
STANDARD_OUTPUT = Path("-")

table = output_path(".parquet", ".pq", ".csv")
picture = output_path(".png", ".svg", ".pdf")


def coords_options(coords: list[str] | None, columns: list[str] | None) -> dict[str, Any]:
    """Return the options that --coords sets, except those that the user gave."""
    if coords is None:
        return {}
    if columns is not None:
        raise click.UsageError("--coords and --columns both name the features. Leave one out.")
    if len(coords) > 3:
        raise click.UsageError(
            f"--coords names one to three columns; got {len(coords)}. Pass them by --columns: "
            "methods with features support any number."
        )
    source = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    choices = {"model": "gp", "kernel": "matern32"}
    return {"columns": coords, **{k: v for k, v in choices.items() if source(k) is default}}


def input_files(files: Iterable[str]) -> list[Any]:
    """Return the files; standard input (-) is copied to a temporary file, for several passes."""
    from bochner.data.files import find_files  # noqa: PLC0415  --help does not wait for it

    paths: list[Any] = []
    for name in files:
        if name != "-":
            paths += find_files(name)
            continue
        folder = Path(tempfile.mkdtemp(prefix="bochner-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        paths.append(folder / "stdin.csv")
        with paths[-1].open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    return paths


def refuse_overwriting(out: Path, inputs: Iterable[object]) -> None:
    """Raise an error if the output is one of the files to read."""
    paths = (Path(str(file)) for file in inputs)
    if out.exists() and any(path.exists() and out.samefile(path) for path in paths):
        raise click.BadParameter(
            f"'{out}' is one of the files to read. Choose another name.", param_hint="'--out'"
        )
