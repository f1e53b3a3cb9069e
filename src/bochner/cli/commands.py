"""The commands and their options. Nothing heavy is imported before a command runs."""

from importlib import import_module
from typing import Any

import click

from bochner import __version__
from bochner.cli.arguments import (
    ENGINES,
    KERNELS,
    LEARNERS,
    METHODS,
    OneOf,
    alpha,
    destination,
    in_one_list,
    in_one_mapping,
    lengthscales,
    names,
    on_coordinates,
    one_or_several,
    table,
    types,
    widths,
)

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
_quiet = click.option("--quiet", is_flag=True, help="Print errors and notes only.")
_seed = click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all randomness.")
_separator = click.option(
    "--separator",
    metavar="CHARACTER",
    help="Between the fields of text files; found by itself if not given.",
)
_files = click.argument("files", nargs=-1, required=True, metavar="FILES...")
_columns = click.option(
    "--columns",
    type=names,
    metavar="A,B*,...",
    help="Feature columns, by name or pattern; all others if not given.",
)
_coords = click.option(
    "--coords",
    type=names,
    metavar="A[,B[,C]]",
    help="Columns of coordinates, one to three: a Gaussian process of them.",
)
_drop = click.option("--drop", type=names, metavar="A,B*,...", help="Columns that are no features.")
_types = click.option(
    "--types",
    type=types,
    multiple=True,
    callback=in_one_mapping,
    metavar="A=number,B=category",
    help="What columns hold, where that is not what they look like.",
)
_kernel = click.option("--kernel", type=OneOf(KERNELS), default="gaussian", help="Family.")
_lengthscale = click.option(
    "--lengthscale",
    type=lengthscales,
    multiple=True,
    callback=in_one_list,
    metavar="NUMBERS",
    help="One, or one per feature: repeated or as 0.3,1,2. Chosen from the data if not given.",
)
_features = click.option("--features", type=click.IntRange(1), default=1024, help="Number D.")
_target_optional = click.option(
    "--target", multiple=True, help="Column to leave out, and to choose the lengthscale by."
)
_model = click.argument("model", metavar="MODEL")


def _run(module: str, name: str, options: dict[str, Any]) -> None:
    """Import a command's work and do it."""
    from bochner.cli.show import Terminal  # noqa: PLC0415

    terminal = Terminal(options.pop("as_json"), options.pop("quiet"))
    getattr(import_module(f"bochner.cli.{module}"), name)(terminal, **options)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="bochner", message="%(prog)s %(version)s")
def bochner() -> None:
    """Kernel methods at any size: fit, predict, and say how good the answer is.

    FILES are Parquet or CSV files, folders of them, or globs; none is read as a whole. A dash (-)
    is the table that comes on standard input.
    """


_engine = click.option(
    "--engine",
    type=OneOf(ENGINES),
    default="local",
    help="Who reads the rows: this process, or the workers of a cluster.",
)
_scheduler = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of the cluster, as tcp://127.0.0.1:8786 or spark://host:7077; one is started here if not "
    "given.",
)


@bochner.command()
@click.option("--out", default=".", metavar="FOLDER", help="Where earth.html goes.")
@click.option("--quick", is_flag=True, help="Fewer points and features: seconds, not a minute.")
@_seed
@_json
@_quiet
def demo(**options: Any) -> None:
    """Fit the relief of the Earth by several methods and write a page of maps."""
    _run("compare", "run_demo", options)


@bochner.command()
@_files
@click.option("--model", type=OneOf(tuple(LEARNERS)), default="ridge", help="What to learn.")
@click.option(
    "--target",
    multiple=True,
    callback=one_or_several,
    help="Column to predict; repeat for several.",
)
@click.option("--out", default="m.bochner", type=destination(), help="Model file to write.")
@click.option(
    "--kernel",
    type=OneOf(KERNELS),
    help="Family; the learner's own if not given: ridge: auto.",
)
@_lengthscale
@click.option(
    "--features", type=click.IntRange(1), help="Number D; the learner's own if not given."
)
@click.option(
    "--method",
    type=OneOf((*METHODS, "exact", "local")),
    help="How features are made; auto measures and says why. The learner's own if not given. "
    "exact (ridge, ridge-classifier, gp) and local (ridge, ridge-classifier): the kernel itself.",
)
@click.option(
    "--alpha",
    type=alpha,
    metavar="loo|gcv|evidence|NUMBER",
    help="Penalty, or how to choose it, of learners that have one; ridge: loo.",
)
@_seed
@click.option("--weight", metavar="COLUMN", help="Column of sample weights.")
@_columns
@_coords
@_drop
@_types
@click.option(
    "--precision",
    type=OneOf(("auto", "float32", "float64")),
    help="Of features and products; auto where not given.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other parameter of the learner, as --set C=10 or --set loss=hinge; repeat.",
)
@click.option(
    "--checkpoint",
    type=click.Path(),
    metavar="FOLDER",
    help="Where a fit that may be killed is recorded each minute: the same command goes on.",
)
@_engine
@_scheduler
@click.option(
    "--judge/--no-judge",
    default=True,
    help="Whether learners without leave-one-out errors are fitted again without some rows.",
)
@_separator
@_json
@_quiet
def fit(**options: Any) -> None:
    """Fit a model to the rows of FILES and write it.

    With --coords the model is a Gaussian process of kernel matern32, unless --model or --kernel say
    what it is to be. --method grid takes a Fourier grid, for millions of rows.
    """
    _run("fit", "run_fit", options | on_coordinates(options.pop("coords"), options["columns"]))


@bochner.command("map")
@_model
@click.option(
    "--out", required=True, type=destination(".nc"), metavar="FILE", help="NetCDF file to write."
)
@click.option("--places", type=click.IntRange(2), default=200, help="Places along each coordinate.")
@click.option(
    "--picture",
    type=destination(".png", ".svg", ".pdf"),
    metavar="FILE",
    help="Picture to write; beside --out if not given.",
)
@_json
@_quiet
def map_(**options: Any) -> None:
    """Write the field that MODEL, a process of one or two coordinates, predicts: NetCDF, picture.

    Mean and standard deviation at places over the box of the rows of the fit.
    """
    _run("map", "run_map", options)


@bochner.command()
@_files
@_target_optional
@_kernel
@_lengthscale
@_features
@_seed
@_columns
@_drop
@_types
@click.option(
    "--plot", type=destination(".svg", ".png", ".pdf"), metavar="FILE", help="Picture to write."
)
@_separator
@_json
@_quiet
def compare(**options: Any) -> None:
    """Say which features serve a kernel best on the rows of FILES.

    Draws every method on a sample of the rows: error predicted and measured, and time.
    """
    _run("compare", "run_compare", options)


@bochner.command()
@_files
@click.option(
    "--target",
    multiple=True,
    required=True,
    callback=one_or_several,
    help="Column to predict; repeat.",
)
@click.option("--kernel", type=OneOf(KERNELS), default="auto", help="Family.")
@_lengthscale
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Most seconds of a fit; without it, more time must be worth it.",
)
@click.option(
    "--memory",
    type=click.FloatRange(1),
    metavar="BYTES",
    help="Most memory of a fit; half of the free memory if not given.",
)
@click.option(
    "--widths",
    type=widths,
    metavar="D,D,...",
    help="Numbers of features; 256 to 4096 if not given.",
)
@_seed
@_columns
@_drop
@_types
@_separator
@_json
@_quiet
def plan(**options: Any) -> None:
    """Compare fits to the rows of FILES before running them: method, features, solver.

    Each has the predicted error, and the predicted seconds and memory on this machine.
    """
    _run("compare", "run_plan", options)


@bochner.command()
@_model
@_files
@click.option(
    "--out",
    required=True,
    type=table,
    help="Table to write, .parquet or .csv; - is text on standard output, and nothing else there.",
)
@click.option(
    "--interval",
    "--coverage",
    "coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Share of new observations that intervals of a regressor hold: of gp 0.9 if not given, of "
    "others none.",
)
@_separator
@_json
@_quiet
def predict(**options: Any) -> None:
    """Write the predictions of MODEL for the rows of FILES, in their order.

    With --interval 0.9 also the bounds of a new observation, low_90 and high_90, and in words what
    holds of them. Of a Gaussian process (gp) these come unasked, and with them two deviations:
    deviation_of_observation, with the noise, and deviation_of_mean, that of the function without
    it, which is no bound of observations.
    """
    _run("predict", "run_predict", options)


@bochner.command()
@_model
@_files
@_separator
@_json
@_quiet
def check(**options: Any) -> None:
    """Say how far the features of MODEL are from its kernel on the rows of FILES.

    Where FILES have the target, also how far its predictions are from it.
    """
    _run("predict", "run_check", options)


@bochner.command()
@_model
@_files
@click.option(
    "--out",
    default="report.html",
    type=destination(".html", ".htm"),
    metavar="FILE",
    help="Page to write.",
)
@click.option(
    "--rows",
    type=click.IntRange(16),
    default=4096,
    help="Random rows that pictures show and other widths are tried on.",
)
@click.option(
    "--width",
    "widths",
    type=click.IntRange(1),
    multiple=True,
    help="Number of features to try; repeat. The model's, halved five times, if not given.",
)
@_seed
@_separator
@_json
@_quiet
def report(**options: Any) -> None:
    """Write one HTML page about MODEL on the rows of FILES.

    Errors, certificate, other widths, penalties, spectrum, calibration, rows to look at, and what
    it takes to make it again. Where FILES are the rows of the fit, a ridge regression is judged by
    leave-one-out predictions.
    """
    _run("predict", "run_report", options)


@bochner.command()
@_model
@_json
@_quiet
def show(**options: Any) -> None:
    """Say what is inside the file MODEL: learner, columns, kernel, method, penalty, outcome."""
    _run("inside", "run_show", options)
