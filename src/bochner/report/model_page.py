"""The page of a report of a model: one HTML file that fetches nothing and runs nothing."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from bochner._core.shapes import Array
from bochner.models.displays import (
    CALIBRATIONS,
    CalibrationDisplay,
    PathDisplay,
    ResidualDisplay,
    SpectrumDisplay,
)
from bochner.models.width_display import WidthDisplay
from bochner.report.quality import Row, RowList
from bochner.report.render import (
    REPORT_STYLE,
    STYLE,
    Axis,
    Bars,
    Diagonal,
    Dots,
    Line,
    Rule,
    Whiskers,
    chart,
    code,
    facts,
    figure,
    legend,
    number,
    numbers,
    pair,
    rounded,
    seconds,
    section,
    table,
)

#: Ranks whose eigenvalues stand in the table.
RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

#: Quantiles of the residuals in the table.
SHARES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)

#: Labels that a table of confusions is shown whole for.
MOST_LABELS = 12


def widths(found: WidthDisplay) -> str:
    """Return error against width, and the table."""
    judged = bool(np.isfinite(found.errors).any())
    shown = found.errors if judged else found.kernel_errors
    exact = [] if found.exact is None else [Rule(y=found.exact, text="exact kernel")]
    picture = chart(
        Axis.over(found.widths, name="features D (log scale)", log=True, at=found.widths),
        Axis.over(shown, found.exact or shown, name=_name(found.measure), margin=0.12),
        [*exact, Line(found.widths, shown, marked=True)],
        f"{found.measure} against the number of features",
    )
    rows = zip(found.widths, found.errors, found.kernel_errors, found.seconds, strict=True)
    cells = [_width(*row, judged) for row in rows]
    head = ["D", *([found.measure] if judged else []), "kernel error"]
    done = "Fitted to" if judged else "Drawn for"
    caption = f"{done} {found.n_train:,} rows, judged on {found.n_test:,} others"
    return pair(
        figure("Error against width", picture),
        table([*head, *(["seconds"] if judged else [])], cells, caption, len(cells) - 1),
    )


def _width(D: int, error: float, kernel: float, took: float, judged: bool) -> list[str]:
    middle = [number(error, 3)] if judged else []
    return [f"{D:,}", *middle, number(kernel, 3), *([seconds(took)] if judged else [])]


def _name(measure: str) -> str:
    return measure[0].upper() + measure[1:]


def path(found: PathDisplay) -> str:
    """Return the criteria along the path of penalties, and their table."""
    names = list(found.criteria)
    lines = [
        Line(found.alphas, found.criteria[name], i, dashed=i > 0) for i, name in enumerate(names)
    ]
    taken = [Rule(x=float(a), text="taken") for a in found.alpha[:1] if a > 0]
    values = np.concatenate([found.criteria[name] for name in names])
    log = "likelihood" not in found.unit
    picture = chart(
        Axis.over(found.alphas, found.alpha[:1], name="penalty alpha (log scale)", log=True),
        Axis.over(_seen(values, log), name=f"{_name(found.unit)}{' (log scale)' * log}", log=log),
        [*taken, *lines],
        f"{found.unit} against the penalty",
    )
    rows, marked = _path_rows(found)
    effective = [] if found.effective_dimension is None else ["d_λ"]
    return pair(
        figure("Each penalty’s error", picture, above=legend(names, range(1, len(names)))),
        table(["alpha", *names, *effective], rows, _name(found.unit), marked),
    )


def _seen(values: Array, log: bool) -> Array:
    """Leave out what would flatten the rest: errors of fits that hardly leave a freedom."""
    finite = values[np.isfinite(values)]
    return finite[finite <= 20 * finite.min()] if log and len(finite) else finite


def _path_rows(found: PathDisplay) -> tuple[list[list[str]], int]:
    """Return ten rows or so along the path, the one taken among them."""
    at = int(np.argmin(np.abs(np.log(found.alphas) - np.log(max(found.alpha[0], 1e-300)))))
    step = max(1, len(found.alphas) // 9)
    chosen = list(range(at % step, len(found.alphas), step))
    columns = [found.alphas, *found.criteria.values()]
    if found.effective_dimension is not None:
        columns.append(found.effective_dimension)
    return [[number(c[i], 3) for c in columns] for i in chosen], chosen.index(at)


def spectrum(found: SpectrumDisplay) -> str:
    """Return the eigenvalues of G and the penalty, and the table."""
    values = found.eigenvalues
    shown = values[values > max(1e-14 * values[0], 0)]
    rank = 1 + np.arange(len(shown))
    rule = [Rule(y=found.alpha, text="penalty alpha")] if found.alpha > 0 else []
    alpha = [found.alpha] if found.alpha > 0 else []
    picture = chart(
        Axis.over(rank, name="number of the eigenvalue (log scale)", log=True, margin=0.03),
        Axis.over(shown, alpha, name="Eigenvalue of G (log scale)", log=True),
        [*rule, Line(*_thin(rank, shown), 2)],
        "Eigenvalues of G against their number, both on a logarithmic scale",
    )
    total = values.sum()
    rows = [
        [f"{r:,}", number(values[r - 1], 3), f"{100 * values[r:].sum() / total:.3g} %"]
        for r in (*(r for r in RANKS if r < len(shown)), len(shown))
    ]
    caption = f"Of {found.n_rows:,} rows"
    return pair(
        figure("Spectrum of the features", picture),
        table(["number", "eigenvalue", "of the trace beyond"], rows, caption),
    )


def _thin(x: Array, y: Array) -> tuple[Array, Array]:
    """Return at most some 300 points, as dense as a logarithmic axis shows."""
    kept = np.unique(np.geomspace(1, len(x), 300).astype(int)) - 1
    return x[kept], y[kept]


# --- predictions ---------------------------------------------------------------------------------


def residuals(found: ResidualDisplay, left_out: bool) -> str:
    """Return predicted against observed, residuals against predictions, and their histogram."""
    how = " (leave-one-out)" if left_out else ""
    name, e = found.name, found.residuals
    low = float(min(found.predicted.min(), found.observed.min()))
    high = float(max(found.predicted.max(), found.observed.max()))
    both = chart(
        Axis.over([low, high], name=f"predicted {name}{how}"),
        Axis.over([low, high], name=f"Observed {name}"),
        [Dots(found.predicted, found.observed), Diagonal(low, high)],
        f"Observed against predicted {name}, a dot for each row of the sample",
    )
    against = chart(
        Axis.over(found.predicted, name=f"predicted {name}{how}"),
        Axis.over(e, name=f"Observed − predicted {name}"),
        [Dots(found.predicted, e), Rule(y=0.0)],
        f"Residuals against predicted {name}",
    )
    heights, edges = np.histogram(e, bins=min(40, max(8, int(len(e) ** 0.5))))
    bars = chart(
        Axis.over(edges, name=f"observed − predicted {name}", margin=0.02),
        Axis(0.0, 1.06 * float(heights.max()), "Rows"),
        [Bars(edges, heights), Rule(x=0.0)],
        "Histogram of the residuals",
    )
    rows = [[f"{100 * s:g} %", number(float(np.quantile(e, s)), 3)] for s in SHARES]
    caption = f"Mean {number(float(e.mean()), 2)}, deviation {number(float(e.std()), 3)}"
    quantiles = table(["of the rows below", f"residual, {name}"], rows, caption)
    return pair(
        figure("Predicted against observed", both, "On the line both are equal."),
        figure("Residuals against predictions", against, "No pattern is what one hopes for."),
    ) + pair(figure("Residuals", bars), quantiles)


def calibration(found: CalibrationDisplay) -> str:
    """Return what came against what was promised, and the table."""
    across, up = CALIBRATIONS[found.kind]
    low = found.observed - found.spread
    high = found.observed + found.spread
    shares = found.kind != "prediction"
    inside = [np.clip(a, 0.0, 1.0) if shares else a for a in (low, high)]
    ends = [0.0, 1.0] if shares else [found.expected.min(), found.expected.max()]
    picture = chart(
        Axis.over(found.expected, ends, name=across),
        Axis.over(*inside, ends, name=_name(up)),
        [
            Diagonal(float(ends[0]), float(ends[1])),
            Whiskers(found.expected, *inside),
            Line(found.expected, found.observed, 2, marked=True),
        ],
        f"{up} against {across}",
    )
    columns = zip(found.expected, found.observed, found.spread, found.count, strict=True)
    rows = [[number(e, 3), number(o, 3), f"± {number(s, 2)}", f"{n:,}"] for e, o, s, n in columns]
    caption = f"Off by {number(found.error, 2)} on average, row by row"
    return pair(
        figure("Calibration", picture, WORDS[found.kind]),
        table([across, up, "by chance", "rows"], rows, caption),
    )


WORDS = {
    "prediction": "Rows in bins of as many each, by their prediction. On the line the prediction "
    "is right on average; whiskers: what chance makes of it in 95 of 100 cases.",
    "probability": "Rows in bins by the probability stated. On the line, what is said to happen "
    "with 70 % happens in 70 of 100 cases; whiskers: chance alone, in 95 of 100.",
    "quantile": "Share of rows below each quantile; on the line it is what was asked for.",
    "coverage": "Share of rows inside Gaussian intervals. Below the line they are too narrow, "
    "above it too wide; whiskers: chance alone, in 95 of 100.",
}


def confusion(found: Array, labels: tuple[str, ...], left_out: bool) -> str:
    """Return rows by true and predicted label: all, or the commonest confusions."""
    how = "; of the sample, each predicted by a fit without it" if left_out else ""
    if len(labels) > MOST_LABELS:
        return _commonest(found, labels, how)
    rows = [
        [label, *(number(float(n), 5) for n in row), _share(row, i)]
        for i, (label, row) in enumerate(zip(labels, found, strict=True))
    ]
    caption = f"Rows by true label (down) and predicted label (across){how}"
    return table(["true", *labels, "found"], rows, caption)


def _share(row: Any, i: int) -> str:
    return f"{100 * row[i] / row.sum():.3g} %" if row.sum() > 0 else "–"


def _commonest(found: Array, labels: tuple[str, ...], how: str) -> str:
    wrong = found - np.diag(np.diag(found))
    order = np.argsort(-wrong, axis=None)[:MOST_LABELS]
    places = [np.unravel_index(o, wrong.shape) for o in order]
    rows = [
        [labels[i], labels[j], number(float(wrong[i, j]), 5), _share(found[i], j)]
        for i, j in places
        if wrong[i, j] > 0
    ]
    caption = f"The commonest confusions of {len(labels)} labels{how}"
    return table(["true", "predicted", "rows", "of that label"], rows, caption)


# --- The end of a model's report: rows to look at, time and memory, the same again ---------------

#: Columns of a row that are shown.
COLUMNS = 6


def listed_rows(r: Any) -> str:
    """Return the rows to look at."""
    if not r.seen.lists:
        return ""
    return section("rows", "Rows to look at", *(_list(r, one) for one in r.seen.lists))


def _list(r: Any, one: RowList) -> str:
    names = r.fit.columns or [f"x{i + 1}" for i in range(len(one.rows[0].x))]
    observed = [] if one.rows[0].observed is None else ["observed"]
    predicted = [] if one.rows[0].predicted is None else ["predicted"]
    head = ["row", one.measure, *observed, *predicted, *names[:COLUMNS]]
    rows = [
        [
            f"{row.number:,}",
            number(row.value, 3),
            *(_told(r, row.observed, coded=True) for _ in observed),
            *(_told(r, row.predicted) for _ in predicted),
            *_values(row),
        ]
        for row in one.rows
    ]
    more = f" The first {COLUMNS} columns of {len(names):,}." if len(names) > COLUMNS else ""
    return (
        f"<h3>{escape(one.title)}</h3>{table(head, rows)}"
        f'<p class="soft">{escape(one.words)} Rows are numbered from 0.{more}</p>'
    )


def _values(row: Row) -> list[str]:
    return [number(float(v), 4) for v in row.x[:COLUMNS]]


def _told(r: Any, value: Any, coded: bool = False) -> str:
    """Write a target or prediction: a label, or one or more numbers."""
    if r.fit.kind == "classification":
        return r.fit.classes[int(value)] if coded else str(value)
    return ", ".join(number(float(v), 4) for v in np.atleast_1d(value))


def cost(r: Any) -> str:
    """Return seconds and memory by phase."""
    total = sum(phase.seconds for phase in r.phases)
    rows = [[phase.name, seconds(phase.seconds), _memory(phase.peak_bytes)] for phase in r.phases]
    rows.append(["all", seconds(total), _memory(r.phases[-1].peak_bytes)])
    refit = ""
    if r.widths is not None and np.isfinite(r.widths.seconds[-1]):
        refit = (
            f"<p>A fit with {r.widths.widths[-1]:,} features to {r.widths.n_train:,} rows took "
            f"{seconds(float(r.widths.seconds[-1]))} s on this machine.</p>"
        )
    caption = "Of this report. Peak: the most that the process had taken by then"
    return section(
        "cost",
        "Time and memory",
        refit,
        table(["phase", "seconds", "peak memory"], rows, caption, len(rows) - 1),
    )


def _memory(peak: int | None) -> str:
    return "–" if peak is None else f"{peak / 2**20:,.0f} MiB"


def again(r: Any) -> str:
    """Return what it takes to make it again."""
    command = f"$ {r.command}\n\n" if r.command else ""
    return section(
        "again",
        "The same again",
        "<p>On the same rows this makes the same learner.</p>",
        f"<pre><code>{escape(command + r.fit.code)}</code></pre>",
        facts(
            [
                ("seed of the fit", "" if r.fit.seed is None else str(r.fit.seed)),
                ("seed of the report", str(r.seed)),
                ("rows, SHA-256", code(r.seen.fingerprint)),
                ("versions", escape(r.versions)),
            ]
        ),
    )


# --- The page of a model's report: one HTML file that fetches nothing and runs nothing -----------

#: What the learner does, and to what.
DOES = {
    "regression": "regression",
    "classification": "classification",
    "outliers": "rows unlike the others",
    "clusters": "clusters",
    "features": "features",
}


def model_page(r: Any) -> str:
    """Return the page of a :class:`ModelReport` as text."""
    parts = [part for part in _sections(r) if part]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(_title(r))} · bochner</title>",
            f"<style>{STYLE}{REPORT_STYLE}</style>",
            "</head>",
            "<body>",
            _header(r),
            "<main>",
            *parts,
            "</main>",
            _footer(r),
            "</body>",
            "</html>",
            "",
        ]
    )


def _sections(r: Any) -> Iterator[str]:
    yield _fit(r)
    yield _certificate(r)
    yield _widths(r)
    yield _path(r)
    yield _spectrum(r)
    yield _quality(r)
    yield listed_rows(r)
    yield cost(r)
    yield again(r)


# --- head ----------------------------------------------------------------------------------------


def _title(r: Any) -> str:
    targets = ", ".join(r.fit.targets[:3])
    return f"{r.fit.learner} of {targets}" if targets else r.fit.learner


def _header(r: Any) -> str:
    source = f" · {escape(r.source)}" if r.source else ""
    return (
        f'<header>\n<p class="kicker">bochner report{source}</p>\n<h1>{escape(_title(r))}</h1>\n'
        f'<p class="lead">{_lead(r)}</p>\n{numbers(_figures(r))}\n</header>'
    )


def _lead(r: Any) -> str:
    rows = "rows" if r.fit.rows is None else f"{r.fit.rows:,} rows"
    width = "with " if r.fit.n_features is None else f"with {r.fit.n_features:,} features of "
    return (
        f"{DOES[r.fit.kind].capitalize()}, fitted to {rows} of {_columns(r)}, {width}"
        f"{_kernel(r)}. Looked at here: {r.seen.n_rows:,} rows. {_whose(r)}"
    )


def _kernel(r: Any) -> str:
    """Name the kernel, with its numbers where these are few."""
    short = rounded(r.fit.kernel)
    return f"the kernel {code(short if len(short) <= 40 else short.split('(')[0])}"


def _columns(r: Any) -> str:
    return "1 column" if r.fit.n_inputs == 1 else f"{r.fit.n_inputs:,} columns"


def _whose(r: Any) -> str:
    """Say whether the model has seen these rows, and what follows."""
    if r.fit.kind not in ("regression", "classification"):
        return ""
    if not r.quality.errors and r.quality.calibration is None:
        return "They have no target, so nothing is said of errors."
    if r.rows_of_fit and r.quality.left_out:
        return (
            "They are the rows of the fit, so the errors to believe are those called "
            "leave-one-out: each row predicted by a fit without it, exactly."
        )
    if r.rows_of_fit:
        return "They are the rows of the fit, so errors flatter it: judge it on others."
    if r.rows_of_fit is False:
        return "They are not the rows of the fit."
    return (
        "The learner keeps no record of its rows: if these are among them, errors flatter it, and "
        "rows kept back would tell more."
    )


def _figures(r: Any) -> Iterator[tuple[str, str, str]]:
    """Give the few numbers that matter."""
    yield from _errors_first(r)
    if r.fit.n_features is not None:
        yield f"{r.fit.n_features:,}", "", "features D"
    if r.certificate is not None:
        yield number(r.certificate.epsilon, 2), "ε", "distance from the exact kernel, relative"
    if r.spectrum is not None and r.spectrum.alpha > 0:
        yield number(r.spectrum.effective_dimension, 3), "d_λ", "effective dimension"


def _errors_first(r: Any) -> Iterator[tuple[str, str, str]]:
    if not r.quality.errors:
        return
    name, found = next(iter(r.quality.errors.items()))
    how = "leave-one-out " if r.quality.left_out else ""
    key = "loo_" if r.quality.left_out else ""
    if "accuracy" in found:
        yield f"{100 * found[f'{key}accuracy']:.4g}", "%", f"{how}labels right"
        return
    yield number(found[f"{key}rmse"], 3), "", f"{how}RMSE of {name}"
    share = found[f"{key}r_squared"]
    yield number(100 * share, 3), "%", f"of the variance explained, {how}R²"


# --- sections ------------------------------------------------------------------------------------


def _fit(r: Any) -> str:
    f = r.fit
    raw = f" (of {f.raw_columns:,} in the table)" if f.raw_columns != f.n_inputs else ""
    names = ": " + _listed(f.columns) if f.columns else ""
    return section(
        "fit",
        "What was fitted on what",
        facts(
            [
                ("learner", code(f.learner)),
                ("rows of the fit", "" if f.rows is None else f"{f.rows:,}"),
                ("columns", f"{f.n_inputs:,}{raw}{names}"),
                ("target", _listed(f.targets)),
                ("classes", _listed(f.classes)),
                ("kernel", code(rounded(f.kernel))),
                ("features", _features(f)),
                ("penalty", escape(f.penalty)),
                ("outcome", escape(f.outcome)),
                *((name, escape(words)) for name, words in f.more),
                ("clusters" if f.kind == "clusters" else "rows", _counts(r)),
                ("rows looked at", f"{r.seen.n_rows:,}; pictures show {r.sample_rows:,} of them"),
            ]
        ),
    )


def _listed(names: Any, most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return escape(", ".join(names[:most])) + more


def _features(f: Any) -> str:
    if f.n_features is None:
        return f"none: {code(f.method)}"
    reason = f" {escape(f.reason)}" if f.reason else ""
    return f"D = {f.n_features:,} by {code(f.method)}, in {f.precision}.{reason}"


def _counts(r: Any) -> str:
    total = sum(r.seen.counts.values())
    shown = list(r.seen.counts.items())[:24]
    words = ", ".join(f"{name}: {n:,} ({100 * n / total:.3g} %)" for name, n in shown)
    return escape(words)


def _certificate(r: Any) -> str:
    words = f"<blockquote>{escape(r.certificate_words)}</blockquote>"
    c = r.certificate
    title = "How far from the exact kernel"
    if c is None:
        return section("kernel", title, words)
    rows = [
        ["ε, spectral", number(c.epsilon, 3), _interval(c.epsilon_interval)],
        ["Frobenius", number(c.frobenius, 3), _interval(c.frobenius_interval)],
        ["operator norm", number(c.operator_norm, 3), ""],
        ["largest entry", number(c.entrywise, 3), ""],
        ["effective dimension", number(c.effective_dimension, 3), ""],
    ]
    head = ["error", "value", f"{100 * c.confidence:g} % interval"]
    if c.confidence == 1:
        head, rows = head[:2], [row[:2] for row in rows]
    return section(
        "kernel",
        title,
        words,
        table(head, rows, _measured(c)),
        f'<p class="soft">{_meaning(r)}</p>',
    )


def _interval(ends: Any) -> str:
    return f"{number(ends[0], 3)} to {number(ends[1], 3)}"


def _measured(c: Any) -> str:
    return (
        f"At alpha = {number(c.alpha, 3)}, {c.n_features:,} features, measured on "
        f"{c.n_sample:,} of {c.n_rows:,} rows"
    )


def _meaning(r: Any) -> str:
    ridge = (
        "ε is the least with (1 − ε)(K + λI) ≼ ZZᵀ + λI ≼ (1 + ε)(K + λI); Frobenius and operator "
        "norm are of ZZᵀ − K, relative to K; the largest entry is of |φ(x)·φ(y) − k(x, y)|."
    )
    if r.fit.learner in ("KernelRidge", "KernelRidgeClassifier"):
        return ridge
    return (
        f"{ridge} λ is the penalty of the ridge regression that weighs rows and coefficients as "
        "this learner does; what ε means for the risk is proved for ridge regression, and a guide "
        "here."
    )


def _widths(r: Any) -> str:
    title = "Error against the number of features"
    if r.widths is None:
        return section("widths", title, f"<p>{escape(r.without.get('widths', ''))}</p>")
    best = r.widths.exact
    judged = bool(np.isfinite(r.widths.errors).any())
    tail = _tail(r.widths.errors if judged else r.widths.kernel_errors, best if judged else None)
    return section(
        "widths",
        title,
        f"<p>The same kernel and method at other widths, {'fitted' if judged else 'drawn'} anew "
        f"for {r.widths.n_train:,} random rows and judged on {r.widths.n_test:,} others. {tail}"
        "</p>",
        widths(r.widths),
        '<p class="soft">With more rows than were tried here wide maps pay more; the error of the '
        "kernel is ‖ZZᵀ − K‖/‖K‖ (Frobenius) on rows held out.</p>",
    )


def _tail(errors: Any, exact: float | None) -> str:
    """Say what the last doubling has gained, and what is left to gain."""
    if len(errors) < 2 or not errors[-2] > 0:
        return ""
    gain = 100 * (1 - errors[-1] / errors[-2])
    words = f"The last step took {number(gain, 2)} % off the error"
    if exact is None or not errors[-1] > 0:
        return f"{words}."
    left = 100 * (1 - exact / errors[-1])
    if left <= 0:
        return f"{words}; the exact kernel does no better."
    return f"{words}; the exact kernel would take off another {number(left, 2)} %."


def _path(r: Any) -> str:
    if r.path is None:
        return ""
    how = f", by the criterion “{r.path.chosen}”" if r.path.chosen else ", as it was given"
    alphas = ", ".join(number(float(a), 3) for a in r.path.alpha)
    return section(
        "penalty",
        "The path of penalties",
        f"<p>What every penalty would have done. Taken: alpha = {alphas}{escape(how)}.</p>",
        path(r.path),
    )


def _spectrum(r: Any) -> str:
    if r.spectrum is None:
        return ""
    s, D = r.spectrum, len(r.spectrum.eigenvalues)
    words = (
        f"<p>G = ZᵀZ has {D:,} eigenvalues. At alpha = {number(s.alpha, 3)} they amount to an "
        f"effective dimension of {number(s.effective_dimension, 4)}: so many directions does the "
        "penalty leave free, the others it holds near zero.</p>"
        if s.alpha > 0
        else f"<p>G = ZᵀZ has {D:,} eigenvalues.</p>"
    )
    return section("spectrum", "Spectrum and effective dimension", words, spectrum(s))


def _quality(r: Any) -> str:
    q = r.quality
    if not q.errors and q.calibration is None:
        return ""
    return section(
        "predictions",
        "Predicted against observed",
        _errors(r),
        "" if q.residuals is None else residuals(q.residuals, q.left_out),
        "" if q.confusion is None else confusion(q.confusion, r.fit.classes, q.left_out),
        "" if q.calibration is None else calibration(q.calibration),
        "" if q.calibration is not None or q.confusion is None else _no_probabilities(r),
    )


def _errors(r: Any) -> str:
    """Return the errors of every target, on all rows and left out."""
    if not r.quality.errors:
        return ""
    keys = {
        "rmse": "RMSE",
        "r_squared": "R²",
        "accuracy": "labels right",
        "loo_rmse": "leave-one-out RMSE",
        "loo_r_squared": "leave-one-out R²",
        "loo_accuracy": "leave-one-out, right",
    }
    known = [key for key in keys if key in next(iter(r.quality.errors.values()))]
    rows = [
        [name, *(number(found[key], 4) for key in known)]
        for name, found in r.quality.errors.items()
    ]
    left = f"; what leaving out costs, on {r.sample_rows:,} of them" if r.quality.left_out else ""
    caption = f"On {r.seen.n_rows:,} rows{left}"
    return table(["target", *(keys[key] for key in known)], rows, caption)


def _no_probabilities(r: Any) -> str:
    return (
        f'<p class="soft">This {escape(r.fit.learner)} gives no probabilities, so there is no '
        "calibration of them; LogisticRegression and SVC(probability=True) do.</p>"
    )


# --- foot ----------------------------------------------------------------------------------------


def _footer(r: Any) -> str:
    return (
        f"<footer><p>{escape(r.versions)} Pictures show {r.sample_rows:,} random rows, each "
        "counted once; errors in tables are of all rows, by their weights.</p></footer>"
    )
