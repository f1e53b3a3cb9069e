"""The commands, one function each. Nothing heavy is imported before a command runs."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import click

import bochner as bo
from bochner._core.progress import Bar, listening
from bochner._core.text import facts_in_words
from bochner.cli import arguments as kinds
from bochner.cli.arguments import STANDARD_OUTPUT, coords_options, input_files, refuse_overwriting

MAX_COLUMNS = 40  # of a model that are printed
LABELS = 11  # width of the labels


@dataclass
class Terminal:
    """Output of a command: progress, results, and the seconds of its phases."""

    as_json: bool
    quiet: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, label: str = "", blocks: Any = None) -> Iterator[Any]:
        """Time phase ``name``; show ``label``, or the number of rows read from ``blocks``."""
        start, has_display = perf_counter(), not self.quiet and sys.stderr.isatty()
        if has_display and (label or blocks is not None):
            bar = Bar(blocks)
            if label:
                bar.at(label)
            with listening(lambda step: bar.at(f"{label}: {step}" if label else step)):
                yield blocks if blocks is None else blocks.watch(bar)
            if label:
                bar.at("")
        else:
            yield blocks
        self.seconds[name] = round(perf_counter() - start, 4)

    def say(self, text: str, err: bool = False) -> None:
        """Print text for people, with ``err`` to stderr."""
        if not self.as_json and not self.quiet:
            click.echo(text, err=err)

    def show(self, lines: Mapping[str, Any] | None = None, /, **facts: Any) -> None:
        """Print ``facts`` as JSON with --json, else ``lines`` (default: the facts) as a table."""
        seconds = {"seconds": self.seconds} if self.seconds else {}
        lines, facts = {**(facts if lines is None else lines), **seconds}, {**facts, **seconds}
        if self.as_json:
            unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
            items = lambda value: value.tolist() if hasattr(value, "tolist") else str(value)
            text = json.dumps(facts, default=items)
            content = json.loads(text, parse_constant=lambda _: None)  # NaN and infinities
            click.echo(json.dumps(content, ensure_ascii=not unicode))
        elif not self.quiet:
            for label, text in facts_in_words(lines):
                line, indent = f"{label:<{LABELS}}  {text}", " " * (LABELS + 2)
                if sys.stdout.isatty():  # files and pipes get unbroken lines, for grep
                    layout: Any = {"subsequent_indent": indent, "break_on_hyphens": False}
                    width = get_terminal_size().columns
                    line = "\n".join(fill(part, width, **layout) for part in line.splitlines())
                click.echo(line)


def _option(names: str, text: str, kind: Any = None, sign: str | None = None, **extra: Any) -> Any:
    return click.option(*names.split(), type=kind, help=text, metavar=sign, **extra)


def _target(text: str, **options: Any) -> Any:
    """Return the option that names one target or several."""
    unpack = lambda _ctx, _param, names: names[0] if len(names) == 1 else names or None
    return _option("--target", text, multiple=True, callback=unpack, **options)


_model = click.argument("model", metavar="MODEL")
_files = click.argument("files", nargs=-1, required=True, metavar="FILES...")
_seed = _option("--seed", "Seed of all randomness.", click.IntRange(0), default=0)
_separator = _option(
    "--separator", "Separator of fields in text files; detected if not given.", sign="CHARACTER"
)
_lengthscale = _option(
    "--lengthscale",
    "One, or one per feature: repeated or like 0.3,1,2. Chosen from the data if not given.",
    kinds.lengthscales,
    "NUMBERS",
    multiple=True,
    callback=lambda _ctx, _param, parts: list(chain.from_iterable(parts)),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(bo.__version__, prog_name="bochner", message="%(prog)s %(version)s")
def bochner() -> None:
    """Kernel methods for tables of any size: fit, predict, and measure the error.

    FILES are Parquet, Feather or text files (CSV, TSV), folders or globs of them, and are read in
    pieces. A dash (-) reads a text table from standard input.
    """


def _command(work: Callable[..., None]) -> Any:
    """Return the command that calls ``work`` with the terminal and all options."""

    @bochner.command(work.__name__.rstrip("_"))
    @_option("--json", "Print one JSON object on stdout.", is_flag=True)
    @_option("--quiet", "Print errors and notes only.", is_flag=True)
    @wraps(work)
    def command(**options: Any) -> None:
        work(Terminal(options["json"], options["quiet"]), SimpleNamespace(**options))

    return command


def _table(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select rows and columns, read by :func:`_blocks`."""
    names = kinds.names, "A,B*,..."
    for add in (
        _separator,
        _option(
            "--types",
            "Types of columns, if the detected types are wrong.",
            kinds.types,
            "A=number,B=category",
            multiple=True,
            callback=lambda _ctx, _param, parts: dict(chain.from_iterable(parts)),
        ),
        _option("--drop", "Columns that are not features.", *names),
        _option("--columns", "Feature columns, by name or pattern; default: all others.", *names),
        _files,
    ):
        command = add(command)
    return command


def _blocks(args: Any, paths: Sequence[Any], target: Any, **options: Any) -> "bo.Blocks":
    """Return the rows and columns that the options of a command select."""
    table = {"columns": args.columns, "drop": args.drop, "dtypes": args.types}
    return bo.Blocks.from_files(paths, target, separator=args.separator, **table, **options)


@_command
@_option("--out", "Folder for earth.html.", sign="FOLDER", default=".")
@_option("--quick", "Fewer points and features: seconds, not a minute.", is_flag=True)
@_seed
def demo(terminal: Terminal, args: Any) -> None:
    """Fit the relief of the Earth by several methods and write a page of maps."""
    from bochner.report.demo import run_demo
    from bochner.report.render import number

    show_line = None if terminal.quiet else lambda line: click.echo(line, err=True)
    facts = run_demo(args.out, quick=args.quick, seed=args.seed, show=show_line)
    del facts["maps"]
    lines = {name: facts[name] for name in ("kernel", "certificate_words", "seconds", "page")}
    best = facts["best"]
    words = f"RMSE {number(best['rmse'])} m, R² {number(best['r_squared'])}"
    lines["best"] = f"{best['name']}, {best['n_features']:,} features: {words}"
    terminal.show(lines, **facts)


@_command
@_table
@_option("--model", "Learner.", kinds.Word(tuple(kinds.LEARNERS)), default="ridge")
@_target("Column to predict; repeat for several.")
@_option("--out", "Model file to write.", kinds.output_path(), default="m.bochner")
@_option(
    "--kernel", "Kernel; default: that of the learner (ridge: auto).", kinds.Word(kinds.KERNELS)
)
@_lengthscale
@_option("--features", "Number of features D; default: the learner's.", click.IntRange(1))
@_option(
    "--method",
    "Method of the features; auto compares several. Default: the learner's. exact (ridge, "
    "ridge-classifier, gp) and local (ridge, ridge-classifier) use the exact kernel.",
    kinds.Word((*kinds.METHODS, "exact", "local")),
)
@_option(
    "--alpha",
    "Penalty, or the criterion that chooses it; ridge: loo.",
    kinds.alpha,
    "loo|gcv|evidence|NUMBER",
)
@_seed
@_option("--weight", "Column of sample weights.", sign="COLUMN")
@_option("--coords", "One to three columns of coordinates, for gp.", kinds.names, "A[,B[,C]]")
@_option("--precision", "Of features and products.", kinds.Word(("auto", "float32", "float64")))
@_option(
    "--set",
    "Any other parameter of the learner, as --set C=10 or --set loss=hinge; repeat.",
    None,
    "NAME=VALUE",
    multiple=True,
)
@_option(
    "--checkpoint",
    "Folder for a checkpoint each minute: the same command resumes an interrupted fit.",
    click.Path(),
    "FOLDER",
)
@_option(
    "--engine",
    "Engine that reads the rows: this process, or a cluster.",
    kinds.Word(("local", "dask", "ray", "spark")),
    default="local",
)
@_option(
    "--scheduler",
    "Address of the cluster, as tcp://127.0.0.1:8786 or spark://host:7077; default: start one.",
    sign="ADDRESS",
)
@_option(
    "--held-out/--no-held-out",
    "Fit learners without leave-one-out errors again, to measure held-out errors.",
    default=True,
)
def fit(terminal: Terminal, args: Any) -> None:
    """Fit a model to the rows of FILES and write it.

    With --coords the model is a Gaussian process with kernel matern32, unless --model or --kernel
    are given. --method grid uses a Fourier grid, for millions of rows.
    """
    from bochner.cli import models
    from bochner.engines.local import MANIFEST
    from bochner.report.quality import certificate_of, held_out_error, task_of

    args = SimpleNamespace(**vars(args) | coords_options(args.coords, args.columns))
    learner, kernel, lengthscale = args.model, args.kernel, args.lengthscale
    choices = {name: getattr(args, name) for name in ("method", "alpha", "precision")}
    choices |= {"n_features": args.features, "random_state": args.seed}
    if kernel or lengthscale:
        choices["kernel"] = models.kernel_of(kernel or "gaussian", lengthscale)
    model = models.learner(learner, choices, args.set)
    if args.target is None and task_of(model) in ("regression", "classification"):
        raise click.UsageError(f"{learner} learns from a target. Name its column with --target.")
    folder, engine = args.checkpoint, args.engine
    address, conflict, rule = args.scheduler, folder, "--checkpoint requires --engine local"
    if engine == "local":
        rule = "--scheduler requires --engine dask, ray or spark"
        address, conflict = folder, args.scheduler
    if conflict is not None:
        raise click.UsageError(f"{rule}; got --engine {engine}. Leave one of the two out.")
    where = getattr(bo.engines, engine.capitalize())(address)
    paths = input_files(args.files)
    refuse_overwriting(args.out, paths)
    with terminal.phase("open"):
        blocks = _blocks(args, paths, args.target, weight=args.weight)
    if folder is not None and (Path(folder) / MANIFEST).exists():
        terminal.say(f"Resuming the fit in '{folder}'; delete it to begin again.", err=True)
    try:
        with terminal.phase("fit", blocks=blocks) as monitored:
            model.fit_blocks(monitored, where=where)
    except BaseException as stopped:
        if folder is not None and not isinstance(stopped, Exception):
            stopped.add_note(f"the same command resumes the fit in '{folder}'.")
        raise
    with terminal.phase("certify", "Measuring the certificate"):
        certificate, words = certificate_of(model, blocks)
    held_out, held_out_text, facts = None, "", model.fit_.facts()
    if args.held_out and not facts.get("error_words"):
        with terminal.phase("held_out", "Fitting again to measure held-out errors"):
            held_out, held_out_text = held_out_error(model, blocks)
    intervals = {}
    if learner == "gp":
        with terminal.phase("intervals", "Calibrating intervals"):
            intervals["intervals"] = models.intervals_of(model)[1]
    with terminal.phase("write"):
        bo.save(model, args.out)
    terminal.show(
        model=learner,
        **{"rows": blocks.n_rows} | facts,
        held_out=held_out,
        held_out_words=held_out_text,
        certificate=certificate and certificate.to_dict(),
        certificate_words=words,
        **intervals,
        out=str(args.out),
    )


@_command
@_model
@_option("--out", "NetCDF file to write.", kinds.output_path(".nc"), "FILE", required=True)
@_option("--places", "Places along each coordinate.", click.IntRange(2), default=200)
@_option("--picture", "Picture to write; default: --out with .png.", kinds.picture, "FILE")
def map_(terminal: Terminal, args: Any) -> None:
    """Write the field that MODEL predicts as a NetCDF file and as a picture.

    MODEL is a Gaussian process of one or two coordinates. Mean and standard deviation are predicted
    over the bounding box of the training rows.
    """
    from matplotlib.figure import Figure

    from bochner._core.optional import package
    from bochner.cli.models import open_model
    from bochner.data.writers import open_atomic

    xarray = package("xarray", "bochner map", "xarray")
    out = args.out
    refuse_overwriting(out, [Path(args.model)])
    with terminal.phase("open"):
        model = open_model(args.model)
    if not isinstance(model, bo.GaussianProcessRegressor):
        raise click.BadParameter(
            f"'{args.model}' must hold a process of one or two coordinates, as bochner fit "
            f"--coords writes; it holds a {type(model).__name__}.",
            param_hint="'MODEL'",
        )
    with terminal.phase("predict", "Predicting the map"):
        display = bo.MapDisplay.from_estimator(model, args.places)
    with terminal.phase("write"):
        fields = {display.name: display.mean, f"{display.name}_deviation": display.deviation}
        dims = {name: (list(display.axes), values) for name, values in fields.items()}
        with open_atomic(out) as file:
            file.write(xarray.Dataset(dims, display.axes).to_netcdf(engine="scipy"))
        picture = args.picture or out.with_suffix(".png")
        names = ("mean", "deviation") if len(display.axes) == 2 else ("mean",)
        figure = Figure(figsize=(6 * len(names), 4), layout="constrained")
        for i, name in enumerate(names, 1):
            display.plot(figure.add_subplot(1, len(names), i), name)
        with open_atomic(picture) as file:
            figure.savefig(file, format=picture.suffix[1:], dpi=150)
    ends = lambda values: [values.min(), values.max()]
    terminal.show(
        places=display.mean.size,
        axes={name: ends(axis) for name, axis in display.axes.items()},
        mean=ends(display.mean),
        deviation=ends(display.deviation),
        out=str(out),
        picture=str(picture),
    )


@_command
@_table
@_target("Target column, for which the lengthscale is chosen.")
@_option("--kernel", "Kernel.", kinds.Word(kinds.KERNELS), default="gaussian")
@_lengthscale
@_option("--features", "Number of features D.", click.IntRange(1), default=1024)
@_seed
@_option("--plot", "Picture to write.", kinds.picture, "FILE")
def compare(terminal: Terminal, args: Any) -> None:
    """Compare feature methods for a kernel on the rows of FILES.

    Each line is a method: its error of the kernel matrix, predicted and on a sample, and its time.
    """
    import numpy as np

    from bochner.cli.models import kernel_of
    from bochner.data.writers import open_atomic
    from bochner.kernels.kernel import Kernel
    from bochner.models._tables import encode
    from bochner.selection.lengthscales import choose_lengthscale
    from bochner.sums.passes import draw_rows

    paths, plot, seed = input_files(args.files), args.plot, args.seed
    if plot is not None:
        refuse_overwriting(plot, paths)
    blocks = encode("bochner compare", _blocks(args, paths, args.target))
    with terminal.phase("read", blocks=blocks) as monitored:
        sample = draw_rows(monitored, seed)
    with terminal.phase("compare", "Drawing every method"):
        kernel = kernel_of(args.kernel, args.lengthscale)
        if not isinstance(kernel, Kernel):
            kernel = choose_lengthscale(kernel, sample, seed).kernel
        comparison = bo.compare(kernel, sample.X, n_features=args.features, random_state=seed)
    if plot is not None:
        figure = np.ravel(comparison.plot())[0].figure
        with open_atomic(plot) as file:
            figure.savefig(file, format=plot.suffix[1:].lower())
    terminal.say(str(comparison))
    terminal.show(
        {"rows": blocks.n_rows, "plot": plot},
        rows=blocks.n_rows,
        sample=comparison.n_sample,
        kernel=repr(comparison.kernel),
        features=comparison.n_features,
        methods=[{**row, "method": repr(row.method)} for row in comparison.rows],
        best=repr(comparison.best),
    )


@_command
@_table
@_target("Column to predict; repeat.", required=True)
@_option("--kernel", "Kernel.", kinds.Word(kinds.KERNELS), default="auto")
@_lengthscale
@_option(
    "--seconds",
    "Time limit of a fit in seconds; default: twice the time must lower the error by 5 %.",
    click.FloatRange(0, min_open=True),
    "S",
)
@_option(
    "--memory",
    "Memory limit of a fit; default: half of the free memory.",
    click.FloatRange(1),
    "BYTES",
)
@_option("--widths", "Numbers of features; 256 to 4096 if not given.", kinds.widths, "D,D,...")
@_seed
def plan(terminal: Terminal, args: Any) -> None:
    """Compare fits to the rows of FILES before running them: method, features, solver.

    Each line has the predicted error, and the predicted seconds and memory on this machine.
    """
    from bochner.cli.models import kernel_of

    blocks = _blocks(args, input_files(args.files), args.target)
    with terminal.phase("plan", blocks=blocks) as monitored:
        comparison = bo.plan(
            monitored,
            kernel=kernel_of(args.kernel, args.lengthscale),
            budget={"seconds": args.seconds, "bytes": args.memory},
            widths=args.widths,
            random_state=args.seed,
        )
    terminal.say(str(comparison))
    terminal.show({}, **comparison.facts())


def _open(terminal: Terminal, args: Any, *with_targets: bool) -> tuple[Any, ...]:
    """Return files, model, and Blocks of the rows per flag, with targets if it is true."""
    from bochner.cli.models import open_model

    paths = input_files(args.files)
    if hasattr(args, "out"):
        refuse_overwriting(args.out, [Path(args.model), *paths])
    with terminal.phase("open"):
        model = open_model(args.model)
        schema, names = model.schema_, model.fit_.inputs.names
        columns = None if schema or not names else list(names)
        schemas = [schema if t or schema is None else schema.features_only() for t in with_targets]
        settings = {"columns": columns, "separator": args.separator}
        return paths, model, *(bo.Blocks.from_files(paths, schema=s, **settings) for s in schemas)


@_command
@_model
@_files
@_option(
    "--out",
    "Table to write, .parquet or .csv; - writes text, and nothing else, to standard output.",
    kinds.table,
    required=True,
)
@_option(
    "--coverage --interval",
    "Probability that an interval contains a new observation. Default for gp: 0.9; for other "
    "learners: no intervals.",
    click.FloatRange(0, 1, min_open=True, max_open=True),
    "SHARE",
)
@_separator
def predict(terminal: Terminal, args: Any) -> None:
    """Write the predictions of MODEL for the rows of FILES, in their order.

    --interval 0.9 adds the columns low_90 and high_90, the ends of a 90 % prediction interval, and
    prints its guarantee. A Gaussian process (gp) always adds an interval, by default of 90 %, and
    two standard deviations: deviation_of_observation is for a new observation, with noise;
    deviation_of_mean is for the function without noise.
    """
    from bochner._core.sizes import block_rows
    from bochner.cli import models

    _, model, blocks = _open(terminal, args, False)
    out = args.out
    width = model.map_.n_features if model.choice_.method.has_features else 1024
    coverage, intervals = models.intervals_of(model, args.coverage)
    with terminal.phase("predict", blocks=blocks.with_rows(block_rows(width))) as monitored:
        chunks = (models.columns_of(model, block.X, coverage) for block in monitored)
        first = next(chunks)
        rows = models.write_predictions(out, chain([first], chunks))
    if out != STANDARD_OUTPUT:
        options = {"intervals": intervals} if intervals else {}
        terminal.show(rows=rows, columns=list(first), **options, out=str(out))


@_command
@_model
@_files
@_separator
def check(terminal: Terminal, args: Any) -> None:
    """Measure the kernel error (certificate) and the prediction errors of MODEL on FILES.

    Prediction errors are measured if FILES have the target.
    """
    from bochner.data.blocks import count_rows
    from bochner.report import quality

    _, model, blocks, features = _open(terminal, args, True, False)
    errors: dict[str, dict[str, float]] = {}
    with terminal.phase("predict", blocks=blocks) as monitored:
        if quality.task_of(model) != "features" and next(iter(monitored)).y is not None:
            rows = quality.examine(model, quality.encode_rows(model, monitored), 0)
            errors = quality.errors_of(model, rows)
    with terminal.phase("certify", blocks=features) as monitored:
        certificate, words = quality.certificate_of(model, monitored, new_rows=True)
    terminal.show(
        rows=count_rows(features),
        errors=errors,
        errors_words=quality.errors_in_words(errors),
        certificate=certificate and certificate.to_dict(),
        certificate_words=words,
    )


@_command
@_model
@_files
@_option(
    "--out", "Page to write.", kinds.output_path(".html", ".htm"), "FILE", default="report.html"
)
@_option("--rows", "Number of random rows in the plots.", click.IntRange(16), default=4096)
@_seed
@_separator
def report(terminal: Terminal, args: Any) -> None:
    """Write one HTML page about MODEL on the rows of FILES.

    The page has errors, certificate, penalties, spectrum, calibration, rows to inspect, and how to
    reproduce the page. If FILES are the training rows, the errors of a ridge regression are
    leave-one-out errors.
    """
    from bochner.report.quality import errors_in_words
    from bochner.report.render import require

    require("bochner report")
    file = args.model
    (first, *files), model, blocks = _open(terminal, args, True)
    suffix = f" and {len(files)} more" if files else ""
    with terminal.phase("measure", blocks=blocks) as monitored:
        document = bo.report_model(
            model,
            monitored,
            n_sample=args.rows,
            random_state=args.seed,
            source=f"{Path(file).name} on {first.name}{suffix}",
            command=shlex.join(["bochner", "report", file, *args.files, "--out", str(args.out)]),
        )
    with terminal.phase("write"):
        page = document.write(args.out)
    origin = {True: ", those of the fit", False: ", not those of the fit", None: ""}
    drivers = None
    if document.importance is not None:
        share = -1 if len(document.importance.outputs) == 1 else 1
        drivers = ", ".join(f"{line[0]} {line[share]}" for line in document.importance.table(3)[1])
        drivers += " of the standard deviation of predictions (not additive)"
    words = {
        "rows": f"{document.rows.n_rows:,}{origin[document.is_training]}",
        "errors": errors_in_words(document.quality.errors),
        "importance": drivers,
        "certificate": document.certificate_words,
        "page": str(page),
    }
    terminal.show(words, **document.to_dict(), page=str(page))


@_command
@_model
def show(terminal: Terminal, args: Any) -> None:
    """Describe the file MODEL: learner, columns, kernel, method, penalty, errors of the fit."""
    from bochner.models._base import KernelEstimator

    model = bo.load(Path(args.model))
    if not isinstance(model, KernelEstimator):
        terminal.show(model=type(model).__name__, holds=str(model))
        return
    inputs, schema = {}, model.schema_
    if schema is not None:
        inputs = dict.fromkeys(schema.columns, "number")
        encoders = (e for e in schema.plain if e.feature_names != (e.name,))
        inputs |= {e.name: f"becomes {', '.join(e.feature_names)}" for e in encoders}
        inputs |= {name: f"left out ({reason})" for name, reason in schema.dropped}
    defaults = type(model)().get_params(deep=False)
    parameters = {name: repr(value) for name, value in model.get_params(deep=False).items()}
    terminal.show(
        model=type(model).__name__,
        parameters={k: v for k, v in parameters.items() if v != repr(defaults[k])},
        **model.fit_.facts(),
        inputs=inputs,
        inputs_words="",
        bytes=Path(args.model).stat().st_size,
        search=model.search_.facts(),
        search_words="",
    )
    lines = [f"{name}: {kind}" for name, kind in inputs.items()]
    n_more = len(lines) - MAX_COLUMNS
    for line in [*lines[:MAX_COLUMNS], *[f"and {n_more:,} more"] * (n_more > 0)]:
        terminal.say(f"{'column':<{LABELS}}  {line}")
    if model.search_.candidates:
        terminal.say(f"\n{model.search_}")
