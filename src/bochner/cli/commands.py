"""The commands, one function each. Nothing heavy is imported before a command runs."""

import shlex
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

import bochner as bo
from bochner.cli.arguments import (
    ENGINES,
    KERNELS,
    LEARNERS,
    METHODS,
    STANDARD_OUTPUT,
    OneOf,
    alpha,
    destination,
    found_files,
    lengthscales,
    names,
    on_coordinates,
    one_or_several,
    refuse_overwriting,
    table,
    types,
    widths,
)

if TYPE_CHECKING:
    from bochner.cli.show import Terminal

Facts = dict[str, Any]

#: Facts for programs and people; two, if people are shown others; None if nothing more is printed.
Result = Facts | tuple[Facts, Facts] | None

MOST_COLUMNS = 40  # Columns that people are shown

_seed = click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all randomness.")
_separator = click.option(
    "--separator",
    metavar="CHARACTER",
    help="Between the fields of text files; found by itself if not given.",
)
_files = click.argument("files", nargs=-1, required=True, metavar="FILES...")
_lengthscale = click.option(
    "--lengthscale",
    type=lengthscales,
    multiple=True,
    callback=lambda _ctx, _param, parts: [number for part in parts for number in part],
    metavar="NUMBERS",
    help="One, or one per feature: repeated or as 0.3,1,2. Chosen from the data if not given.",
)
_model = click.argument("model", metavar="MODEL")


def _file(name: str, help_: str, *suffixes: str, **more: Any) -> Any:
    """Return an option that names a file to write."""
    kind = destination(*suffixes)
    return click.option(name, type=kind, metavar="FILE", help=help_, **more)


def _target(help_: str, **more: Any) -> Any:
    """Return the option that names one target or several."""
    return click.option("--target", multiple=True, callback=one_or_several, help=help_, **more)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(bo.__version__, prog_name="bochner", message="%(prog)s %(version)s")
def bochner() -> None:
    """Kernel methods at any size: fit, predict, and say how good the answer is.

    FILES are Parquet, Feather or text files (CSV, TSV), folders or globs of them, and are read in
    pieces. A dash (-) is the table on standard input.
    """


def _command(name: str | None = None) -> Callable[[Callable[..., Result]], Any]:
    """Return a decorator that makes a command of a function and prints its result.

    The function gets the terminal, and its options and arguments by name.
    """

    def decorate(work: Callable[..., Result]) -> Any:
        @bochner.command(name)
        @click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
        @click.option("--quiet", is_flag=True, help="Print errors and notes only.")
        @wraps(work)
        def command(as_json: bool, quiet: bool, **options: Any) -> None:
            from bochner.cli.show import Terminal

            terminal = Terminal(as_json, quiet)
            result = work(terminal, SimpleNamespace(**options))
            if result is not None:
                terminal.show(*(result if isinstance(result, tuple) else (result,)))

        return command

    return decorate


def _table(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the options that say which rows and columns are read, for :func:`_blocks`."""
    several: Any = {"type": names, "metavar": "A,B*,..."}
    for add in (
        _separator,
        click.option(
            "--types",
            type=types,
            multiple=True,
            callback=lambda _ctx, _param, parts: {k: v for part in parts for k, v in part.items()},
            metavar="A=number,B=category",
            help="What columns hold, where that is not what they look like.",
        ),
        click.option("--drop", **several, help="Columns that are no features."),
        click.option(
            "--columns",
            **several,
            help="Feature columns, by name or pattern; all others if not given.",
        ),
        _files,
    ):
        command = add(command)
    return command


def _blocks(given: Any, paths: Sequence[Any], target: Any, **more: Any) -> "bo.Blocks":
    """Return the rows and columns that the options of a command select."""
    table = {"columns": given.columns, "drop": given.drop, "dtypes": given.types}
    return bo.Blocks.from_files(paths, target, separator=given.separator, **table, **more)


@_command()
@click.option("--out", default=".", metavar="FOLDER", help="Where earth.html goes.")
@click.option("--quick", is_flag=True, help="Fewer points and features: seconds, not a minute.")
@_seed
def demo(terminal: "Terminal", given: Any) -> Result:
    """Fit the relief of the Earth by several methods and write a page of maps."""
    from bochner._core.text import columns
    from bochner.report.demo import run_demo
    from bochner.report.render import number, require

    require("bochner demo")
    said = None if terminal.quiet else lambda line: click.echo(line, err=True)
    result = run_demo(given.out, quick=given.quick, seed=given.seed, show=said)
    errors = lambda m: (number(m.rmse), f"{m.r_squared:.4f}", f"{m.seconds:.2f}", number(m.epsilon))
    rows = [(m.name, f"{m.n_features:,}", *errors(m)) for m in result.methods]
    terminal.say(columns([("method", "features", "RMSE, m", "R²", "seconds", "ε"), *rows]))
    terminal.say(f"ε: distance from the exact kernel at alpha = {result.alpha:.3g}\n")
    best = result.best
    facts = {
        "kernel": result.kernel,
        "alpha": result.alpha,
        "certificate_words": result.certificate,
        "methods": [*map(vars, result.methods)],
        "best": vars(best),
        "curves": [curve._asdict() for curve in result.curves],
        "train_rows": result.n_train,
        "test_rows": result.n_test,
        "seconds": result.seconds,
        "page": str(result.path),
    }
    words = f"RMSE {number(best.rmse)} m, R² {number(best.r_squared)}"
    lines = {name: facts[name] for name in ("kernel", "certificate_words", "seconds", "page")}
    return facts, lines | {"best": f"{best.name}, {best.n_features:,} features: {words}"}


@_command()
@_table
@click.option("--model", type=OneOf(tuple(LEARNERS)), default="ridge", help="What to learn.")
@_target("Column to predict; repeat for several.")
@click.option("--out", default="m.bochner", type=destination(), help="Model file to write.")
@click.option(
    "--kernel", type=OneOf(KERNELS), help="Family; the learner's own if not given: ridge: auto."
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
@click.option(
    "--coords",
    type=names,
    metavar="A[,B[,C]]",
    help="Columns of coordinates, one to three: a Gaussian process of them.",
)
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
@click.option(
    "--engine",
    type=OneOf(ENGINES),
    default="local",
    help="Who reads the rows: this process, or the workers of a cluster.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of the cluster, as tcp://127.0.0.1:8786 or spark://host:7077; one is started here if not "
    "given.",
)
@click.option(
    "--judge/--no-judge",
    default=True,
    help="Whether learners without leave-one-out errors are fitted again without some rows.",
)
def fit(terminal: "Terminal", given: Any) -> Result:
    """Fit a model to the rows of FILES and write it.

    With --coords the model is a Gaussian process of kernel matern32, unless --model or --kernel are
    given. --method grid takes a Fourier grid, for millions of rows.
    """
    from bochner.cli import models
    from bochner.engines.local import FIRST
    from bochner.report.quality import certificate_of, judge_held_out

    given = SimpleNamespace(**vars(given) | on_coordinates(given.coords, given.columns))
    model, kernel, lengthscale = given.model, given.kernel, given.lengthscale
    if given.target is None and model not in models.WITHOUT_TARGET:
        raise click.UsageError(f"{model} learns from a target. Name its column with --target.")
    choices = {name: getattr(given, name) for name in ("method", "alpha", "precision")}
    choices |= {"n_features": given.features, "random_state": given.seed}
    if kernel or lengthscale:
        choices["kernel"] = models.kernel_of(kernel or "gaussian", lengthscale)
    fitted = models.learner(model, choices, given.settings)
    where = _engine_of(given.engine, given.scheduler, given.checkpoint)
    paths = found_files(given.files)
    refuse_overwriting(given.out, paths)
    with terminal.phase("open"):
        blocks = _blocks(given, paths, given.target, weight=given.weight)
    folder = given.checkpoint
    if folder is not None and (Path(folder) / FIRST).exists():
        terminal.say(f"Resuming the fit in '{folder}'; delete it to begin again.", err=True)
    try:
        with terminal.reading("fit", blocks) as watched:
            fitted.fit_blocks(watched, where=where)
    except BaseException as stopped:
        if folder is not None and not isinstance(stopped, Exception):
            stopped.add_note(f"the same command resumes the fit in '{folder}'.")
        raise
    with terminal.phase("certify", "Measuring how far the features are"):
        certificate, words = certificate_of(fitted, blocks)
    held_out, held_out_words = None, ""
    if given.judge and not (
        isinstance(fitted, bo.KernelRidge) and fitted.fit_.error[0] is not None
    ):
        with terminal.phase("judge", "Fitting again without some rows, to judge"):
            held_out, held_out_words = judge_held_out(fitted, blocks)
    facts: dict[str, Any] = {}
    if model == "gp":
        with terminal.phase("intervals", "Calibrating intervals"):
            facts = {"intervals": models.intervals_of(fitted, models.COVERAGE)}
    with terminal.phase("write"):
        bo.save(fitted, given.out)
    return {
        "model": model,
        "rows": blocks.n_rows,
        **fitted.fit_.facts(),
        "held_out": held_out,
        "held_out_words": held_out_words,
        "certificate": certificate and certificate.to_dict(),
        "certificate_words": words,
        **facts,
        "seconds": terminal.seconds,
        "out": str(given.out),
    }


def _engine_of(engine: str, scheduler: str | None, checkpoint: str | None) -> Any:
    """Return the engine of the passes; refuse options that do not go together."""
    if engine == "local" and scheduler is not None:
        raise click.UsageError(
            "--scheduler ADDRESS is of a cluster, which --engine dask, ray or spark asks for; got "
            "--engine local. Leave it out, or name the engine."
        )
    if checkpoint is not None and engine != "local":
        raise click.UsageError(
            f"--checkpoint is of a fit in this process; got --engine {engine}, whose workers may "
            "die anyway. Leave one of the two out."
        )
    made = getattr(bo.engines, engine.capitalize())
    return made(checkpoint if engine == "local" else scheduler)


@_command("map")
@_model
@_file("--out", "NetCDF file to write.", ".nc", required=True)
@click.option("--places", type=click.IntRange(2), default=200, help="Places along each coordinate.")
@_file("--picture", "Picture to write; beside --out if not given.", ".png", ".svg", ".pdf")
def map_(terminal: "Terminal", given: Any) -> Result:
    """Write the field that MODEL, a process of one or two coordinates, predicts: NetCDF, picture.

    Mean and standard deviation at places over the box of the rows of the fit.
    """
    from matplotlib.figure import Figure

    from bochner._core.optional import needed
    from bochner.cli.models import open_model
    from bochner.data.writers import atomic

    xarray = needed("xarray", "bochner map", "xarray")
    out = given.out
    refuse_overwriting(out, [Path(given.model)])
    with terminal.phase("open"):
        fitted = open_model(given.model)
    if not isinstance(fitted, bo.GaussianProcessRegressor):
        raise click.BadParameter(
            f"'{given.model}' must hold a process of one or two coordinates, as bochner fit "
            f"--coords writes; it holds a {type(fitted).__name__}.",
            param_hint="'MODEL'",
        )
    with terminal.phase("predict", "Predicting the map"):
        display = bo.MapDisplay.from_estimator(fitted, given.places)
    with terminal.phase("write"):
        fields = {display.name: display.mean, f"{display.name}_deviation": display.deviation}
        dims = {name: (list(display.axes), values) for name, values in fields.items()}
        with atomic(out) as file:
            file.write(xarray.Dataset(dims, display.axes).to_netcdf(engine="scipy"))
        where = given.picture or out.with_suffix(".png")
        kinds = ("mean", "deviation") if len(display.axes) == 2 else ("mean",)
        figure = Figure(figsize=(6 * len(kinds), 4), layout="constrained")
        for i, what in enumerate(kinds, 1):
            display.plot(figure.add_subplot(1, len(kinds), i), what)
        with atomic(where) as file:
            figure.savefig(file, format=where.suffix[1:], dpi=150)
    ends = {name: [float(a.min()), float(a.max())] for name, a in fields.items() if a is not None}
    return {
        "places": int(display.mean.size),
        "axes": {name: [float(axis[0]), float(axis[-1])] for name, axis in display.axes.items()},
        "mean": ends[display.name],
        "deviation": ends[f"{display.name}_deviation"],
        "seconds": terminal.seconds,
        "out": str(out),
        "picture": str(where),
    }


@_command()
@_table
@click.option(
    "--target", multiple=True, help="Column to leave out, and to choose the lengthscale by."
)
@click.option("--kernel", type=OneOf(KERNELS), default="gaussian", help="Family.")
@_lengthscale
@click.option("--features", type=click.IntRange(1), default=1024, help="Number D.")
@_seed
@_file("--plot", "Picture to write.", ".svg", ".png", ".pdf")
def compare(terminal: "Terminal", given: Any) -> Result:
    """Say which features serve a kernel best on the rows of FILES.

    Draws every method on a sample of the rows: error predicted and measured, and time.
    """
    import numpy as np

    from bochner.cli.models import kernel_of
    from bochner.data.writers import atomic
    from bochner.kernels.kernel import Kernel
    from bochner.models._tables import encoded
    from bochner.selection.lengthscales import choose_lengthscale
    from bochner.sums.passes import sampled

    paths, plot, seed = found_files(given.files), given.plot, given.seed
    if plot is not None:
        refuse_overwriting(plot, paths)
    blocks = encoded("bochner compare", _blocks(given, paths, given.target or None))
    with terminal.reading("read", blocks) as watched:
        sample = sampled(watched, seed)
    with terminal.phase("compare", "Drawing every method"):
        chosen = kernel_of(given.kernel, given.lengthscale)
        if not isinstance(chosen, Kernel):
            chosen = choose_lengthscale(chosen, sample, seed).kernel
        comparison = bo.compare(chosen, sample.X, n_features=given.features, random_state=seed)
    if plot is not None:
        figure = np.ravel(comparison.plot())[0].figure
        with atomic(plot) as file:
            figure.savefig(file, format=plot.suffix[1:].lower())
    terminal.say(str(comparison))
    facts = {
        "rows": blocks.n_rows,
        "sample": comparison.n_sample,
        "kernel": repr(comparison.kernel),
        "features": comparison.n_features,
        "methods": [{**vars(row), "method": repr(row.method)} for row in comparison.rows],
        "best": repr(comparison.best),
        "seconds": terminal.seconds,
    }
    return facts, {"rows": blocks.n_rows, "seconds": terminal.seconds, "plot": plot}


@_command()
@_table
@_target("Column to predict; repeat.", required=True)
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
def plan(terminal: "Terminal", given: Any) -> Result:
    """Compare fits to the rows of FILES before running them: method, features, solver.

    Each has the predicted error, and the predicted seconds and memory on this machine.
    """
    from bochner.cli.models import kernel_of

    budget = {"seconds": given.seconds, "bytes": given.memory}
    blocks = _blocks(given, found_files(given.files), given.target)
    with terminal.reading("plan", blocks) as watched:
        planned = bo.plan(
            watched,
            kernel=kernel_of(given.kernel, given.lengthscale),
            budget={name: value for name, value in budget.items() if value is not None},
            widths=given.widths,
            random_state=given.seed,
        )
    terminal.say(str(planned))
    return planned.facts() | {"seconds": terminal.seconds}, {"seconds": terminal.seconds}


def _opened(terminal: "Terminal", given: Any, *truth: bool) -> tuple[Any, ...]:
    """Return files, model, and for each flag the rows, with their target if it is true."""
    from bochner.cli.models import open_model

    paths = found_files(given.files)
    if hasattr(given, "out"):
        refuse_overwriting(given.out, [Path(given.model), *paths])
    with terminal.phase("open"):
        fitted = open_model(given.model)
        schema = fitted.schema_
        # scikit-learn sets this attribute only where columns have names
        names = [str(name) for name in getattr(fitted, "feature_names_in_", ())]
        columns = None if schema or not names else names
        schemas = [schema if t or schema is None else schema.features_only() for t in truth]
        how = {"columns": columns, "separator": given.separator}
        return paths, fitted, *(bo.Blocks.from_files(paths, schema=s, **how) for s in schemas)


@_command()
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
    help="Probability that an interval contains a new observation. gp: 0.9 if not given; others: "
    "no intervals if not given.",
)
@_separator
def predict(terminal: "Terminal", given: Any) -> Result:
    """Write the predictions of MODEL for the rows of FILES, in their order.

    With --interval 0.9 also the bounds of a new observation, low_90 and high_90, and in words what
    holds of them. Of a Gaussian process (gp) these come unasked, and with them two deviations:
    deviation_of_observation, with the noise, and deviation_of_mean, of the function without
    noise, which is no bound of observations.
    """
    from bochner._core.sizes import block_rows
    from bochner.cli import models

    _, fitted, blocks = _opened(terminal, given, False)
    out = given.out
    width = fitted.map_.n_features if fitted._has_features else 1024
    coverage = models.coverage_of(fitted, given.coverage)
    intervals = models.intervals_of(fitted, coverage)
    with terminal.reading("predict", blocks.with_rows(block_rows(width))) as watched:
        chunks = (models.columns_of(fitted, block.X, coverage) for block in watched)
        first = next(chunks)
        rows = models.written(out, chain([first], chunks))
    if out == STANDARD_OUTPUT:
        return None
    facts = {"rows": rows, "columns": list(first)} | ({"intervals": intervals} if intervals else {})
    return facts | {"seconds": terminal.seconds, "out": str(out)}


@_command()
@_model
@_files
@_separator
def check(terminal: "Terminal", given: Any) -> Result:
    """Say how far the features of MODEL are from its kernel on the rows of FILES.

    Where FILES have the target, also how far its predictions are from it.
    """
    from bochner.data.blocks import count_rows
    from bochner.report import quality

    _, fitted, blocks, features = _opened(terminal, given, True, False)
    errors: dict[str, dict[str, float]] = {}
    with terminal.reading("predict", blocks) as watched:
        if quality.kind_of(fitted) != "features" and next(iter(watched)).y is not None:
            rows = quality.examine(fitted, quality.coded(fitted, watched), 0)
            errors = quality.errors_of(fitted, rows)
    with terminal.reading("certify", features) as watched:
        certificate, words = quality.certificate_of(fitted, watched, other=True)
    return {
        "rows": count_rows(features),
        "errors": errors,
        "errors_words": quality.errors_in_words(errors),
        "certificate": certificate and certificate.to_dict(),
        "certificate_words": words,
        "seconds": terminal.seconds,
    }


@_command()
@_model
@_files
@_file("--out", "Page to write.", ".html", ".htm", default="report.html")
@click.option(
    "--rows", type=click.IntRange(16), default=4096, help="Random rows that pictures show."
)
@_seed
@_separator
def report(terminal: "Terminal", given: Any) -> Result:
    """Write one HTML page about MODEL on the rows of FILES.

    The page has errors, certificate, penalties, spectrum, calibration, rows to inspect, and how to
    reproduce the page. If FILES are the rows of the fit, a ridge regression is judged by
    leave-one-out predictions.
    """
    from bochner.report.quality import errors_in_words
    from bochner.report.render import require

    require("bochner report")
    model = given.model
    (first, *others), fitted, blocks = _opened(terminal, given, True)
    more = f" and {len(others)} more" if others else ""
    with terminal.reading("measure", blocks) as watched:
        document = bo.report_model(
            fitted,
            watched,
            n_sample=given.rows,
            random_state=given.seed,
            source=f"{Path(model).name} on {first.name}{more}",
            command=shlex.join(["bochner", "report", model, *given.files, "--out", str(given.out)]),
        )
    with terminal.phase("write"):
        page = document.write(given.out)
    whose = {True: ", those of the fit", False: ", not those of the fit", None: ""}
    last, driven = {"seconds": terminal.seconds, "page": str(page)}, None
    if document.importance is not None:
        share = -1 if len(document.importance.outputs) == 1 else 1
        driven = ", ".join(f"{line[0]} {line[share]}" for line in document.importance.table(3)[1])
        driven += " of the deviation of predictions (they do not add up to 100 %)"
    words = {
        "rows": f"{document.seen.n_rows:,}{whose[document.rows_of_fit]}",
        "errors": errors_in_words(document.quality.errors),
        "driven_by": driven,
        "certificate": document.certificate_words,
    }
    return document.to_dict() | last, words | last


@_command()
@_model
def show(terminal: "Terminal", given: Any) -> Result:
    """Say what is inside the file MODEL: learner, columns, kernel, method, penalty, outcome."""
    from bochner.cli.models import inputs_of
    from bochner.cli.show import LABELS
    from bochner.models._base import KernelEstimator

    with terminal.phase("read"):
        loaded = bo.load(Path(given.model))
    if not isinstance(loaded, KernelEstimator):
        return {"model": type(loaded).__name__, "holds": str(loaded)}
    inputs = {} if loaded.schema_ is None else inputs_of(loaded.schema_)
    defaults = type(loaded)().get_params(deep=False)
    parameters = {name: repr(value) for name, value in loaded.get_params(deep=False).items()}
    terminal.show(
        {
            "model": type(loaded).__name__,
            "parameters": {k: v for k, v in parameters.items() if v != repr(defaults[k])},
            **loaded.fit_.facts(),
            "inputs": inputs,
            "inputs_words": "",
            "bytes": Path(given.model).stat().st_size,
            "search": loaded.search_.facts(),
            "search_words": "",
        }
    )
    lines = [f"{name}: {kind}" for name, kind in inputs.items()]
    more = len(lines) - MOST_COLUMNS
    for line in [*lines[:MOST_COLUMNS], *[f"and {more:,} more"] * (more > 0)]:
        terminal.say(f"{'column':<{LABELS}}  {line}")
    if loaded.search_.compared:
        terminal.say(f"\n{loaded.search_}")
    return None
