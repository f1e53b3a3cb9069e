"""HTML page of a model report: one file without scripts and external resources."""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from sklearn.metrics import PredictionErrorDisplay

import bochner as bo
from bochner._core.shapes import Array
from bochner._core.text import as_text, facts_in_words, round_numbers
from bochner.certificates.certificate import errors_table
from bochner.models.displays import CALIBRATIONS
from bochner.report.quality import MEASURES
from bochner.report.render import number, page, picture, require

MAX_LABELS = 12  # with more labels only the most frequent confusions are shown
COLUMNS = 6  # of a row that are shown


def model_page(r: Any) -> str:
    """Return the page of a :class:`ModelReport` as text."""
    require("The page of a report")
    f, q, targets = r.fit, r.quality, ", ".join(r.fit["targets"][:3])
    counts, total = list(r.rows.counts.items())[:24], sum(r.rows.counts.values())
    labels = tuple(map(str, f["classes"] or ()))
    kernel = round_numbers(f["kernel"])
    errors: dict[str, float] = next(iter(q.errors.values()), {})
    return page(
        "model.html.j2",
        r=r,
        title=f"{f['learner']} of {targets}" if targets else f["learner"],
        facts=[pair for pair in facts_in_words(f) if pair[0] not in ("kind", "code")],
        short_kernel=kernel if len(kernel) <= 40 else kernel.split("(")[0],
        figures=list(_main_numbers(r)),
        counts=", ".join(f"{name}: {n:,} ({100 * n / total:.3g} %)" for name, n in counts),
        certificate=None if r.certificate is None else errors_table(r.certificate),
        path=None if r.path is None else _path(r.path),
        spectrum=None if r.spectrum is None else _spectrum(r.spectrum),
        errors=(
            ["target", *(MEASURES[key] for key in errors)],
            [[name, *(number(v[key], 4) for key in errors)] for name, v in q.errors.items()],
        ),
        residuals=None if q.residuals is None else _residuals(q.residuals, next(iter(q.errors))),
        confusion=None if q.confusion is None else _confusion(q.confusion, labels, q.left_out),
        calibration=None if q.calibration is None else _calibration(q.calibration),
        importance=None if r.importance is None else _importance(r.importance),
        dependence=[_dependence(display) for display in r.dependence],
        worst=_list(r) if r.rows.worst else None,
    )


def _main_numbers(r: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the main numbers: value, unit and name."""
    if r.quality.errors:
        name, errors = next(iter(r.quality.errors.items()))
        prefix, key = ("leave-one-out ", "loo_") if r.quality.left_out else ("", "")
        if "accuracy" in errors:
            yield f"{100 * errors[f'{key}accuracy']:.4g}", "%", f"{prefix}accuracy"
        else:
            share = 100 * errors[f"{key}r_squared"]
            yield number(errors[f"{key}rmse"], 3), "", f"{prefix}RMSE of {name}"
            yield number(share, 3), "%", f"of the variance explained, {prefix}R²"
    if "n_features" in r.fit:
        yield as_text(r.fit["n_features"]), "", "features D"
    if r.certificate is not None:
        yield number(r.certificate.epsilon, 2), "ε", "distance from the exact kernel, relative"
    if r.spectrum is not None and r.spectrum.alpha > 0:
        yield number(r.spectrum.effective_dimension, 3), "d_λ", "effective dimension"


def _figure(title: str, plot: Callable[[Any], Any], *table: Any, words: str = "") -> dict[str, Any]:
    """Return a picture, described by ``words``, and its table: head, rows, caption, bold row."""
    return {"title": title, "picture": picture(words or title, plot), "table": table}


def _path(display: bo.PathDisplay) -> dict[str, Any]:
    """Return a plot of the criteria along the path, and a table of about ten penalties."""
    distance = np.abs(np.log(display.alphas) - np.log(max(display.alpha[0], 1e-300)))
    centre, step = int(np.argmin(distance)), max(1, len(display.alphas) // 9)
    index = list(range(centre % step, len(display.alphas), step))
    columns = {"alpha": display.alphas, **display.criteria}
    if display.effective_dimension is not None:
        columns["d_λ"] = display.effective_dimension
    rows = [[number(values[i], 3) for values in columns.values()] for i in index]
    table = [*columns], rows, display.unit[:1].upper() + display.unit[1:], index.index(centre)
    words = f"{display.unit} against the penalty"
    return _figure("Error of each penalty", display.plot, *table, words=words)


def _spectrum(display: bo.SpectrumDisplay) -> dict[str, Any]:
    """Return a plot of the eigenvalues of the features' Gram matrix, and a table of a few ranks."""
    values = display.eigenvalues
    rank = int(np.sum(values > max(1e-14 * values[0], 0)))
    total, ranks = values.sum(), [k * 10**p for p in range(4) for k in (1, 2, 5)]
    rows = [
        [f"{r:,}", number(values[r - 1], 3), f"{number(100 * values[r:].sum() / total, 3)} %"]
        for r in (*(r for r in ranks if r < rank), rank)
    ]
    table = ["number", "eigenvalue", "rest of the trace"], rows, f"Of {display.n_rows:,} rows"
    words = "Eigenvalues of G against their number"
    return _figure("Spectrum of the features", display.plot, *table, words=words)


def _importance(display: bo.ImportanceDisplay) -> dict[str, Any]:
    """Return a plot and a table of the importance of columns, the most important first."""
    head, rows, tail = display.table()
    caption = f"Measured on {display.n_rows:,} rows" + (f"; {tail}" if tail else "")
    return _figure("Importance of columns", display.plot, head, rows, caption)


def _dependence(display: Any) -> dict[str, Any]:
    """Return a plot of the partial dependence on a column, for several classes that of the last."""
    grid, multiple = display.grid_values, len(display.outputs) > 1
    y = f"{display.unit} of {display.outputs[-1]}" if multiple else display.unit
    f, spread = display.average[-1], 2 * display.error[-1]

    def plot(ax: Any) -> None:
        ax.set(xlabel=display.column.replace("$", r"\$"), ylabel=f"mean {y}".replace("$", r"\$"))
        if isinstance(grid, tuple):
            ax.errorbar(range(len(grid)), f, spread, fmt="o", capsize=3)
            is_short = max(map(len, grid)) * len(grid) < 40
            ax.set_xticks(range(len(grid)), grid, rotation=0 if is_short else 90)
        else:
            ax.plot(grid, f)
            ax.fill_between(grid, f - spread, f + spread, alpha=0.2)

    title = f"Mean {y} against {display.column}"
    return {"title": title, "picture": picture(title, plot)}


def _residuals(display: PredictionErrorDisplay, name: str) -> dict[str, Any]:
    """Return plots: observed and residuals against predicted values; histogram of residuals."""
    e = display.y_true - display.y_pred
    step = -(-len(e) // 1500)  # more dots would cover one another
    dots = PredictionErrorDisplay(y_true=display.y_true[::step], y_pred=display.y_pred[::step])

    def histogram(ax: Any) -> None:
        ax.hist(e, bins=min(40, max(8, int(len(e) ** 0.5))))
        ax.axvline(0, color="gray", linestyle=":")
        ax.set(xlabel="observed − predicted", ylabel="rows")

    shares = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
    rows = [[f"{100 * s:g} %", number(float(np.quantile(e, s)), 3)] for s in shares]
    caption = f"Mean {number(float(e.mean()), 2)}, deviation {number(float(e.std()), 3)}"
    table = ["quantile", f"residual, {name}"], rows, caption
    return {
        "actual": picture(
            f"Observed against predicted {name}, a dot for each row of the sample",
            lambda ax: dots.plot(ax, kind="actual_vs_predicted"),
        ),
        "against": picture(f"Residuals against predicted {name}", dots.plot),
        "histogram": _figure("Residuals", histogram, *table, words="Histogram of the residuals"),
    }


def _calibration(display: bo.CalibrationDisplay) -> dict[str, Any]:
    x_label, y_label = CALIBRATIONS[display.kind]
    columns = zip(display.expected, display.observed, display.spread, display.count, strict=True)
    rows = [[number(e, 3), number(o, 3), f"± {number(s, 2)}", f"{n:,}"] for e, o, s, n in columns]
    caption = f"Mean of |observed − expected| over the rows: {number(display.error, 2)}"
    table = [x_label, y_label, "by chance", "rows"], rows, caption
    return _figure("Calibration", display.plot, *table, words=f"{y_label} against {x_label}")


def _confusion(matrix: Array, labels: tuple[str, ...], n_hidden: int) -> tuple[Any, Any, str]:
    """Return the table of rows by true and predicted label, or of the most frequent confusions."""
    note = f"; of {n_hidden:,} rows, each predicted by a fit without it" if n_hidden else ""
    total = matrix.sum(axis=1, keepdims=True)
    share = [
        [f"{100 * n / t:.3g} %" if t > 0 else "–" for n in row]
        for row, t in zip(matrix, total[:, 0], strict=True)
    ]
    if len(labels) <= MAX_LABELS:
        caption = f"Rows by true label (down) and predicted label (across){note}"
        rows = [
            [label, *(number(float(n), 5) for n in matrix[i]), share[i][i]]
            for i, label in enumerate(labels)
        ]
        return ["true", *labels, "recall"], rows, caption
    errors = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-errors, axis=None)[:MAX_LABELS]
    rows = [
        [labels[i], labels[j], number(float(errors[i, j]), 5), share[i][j]]
        for i, j in (np.unravel_index(o, errors.shape) for o in order)
        if errors[i, j] > 0
    ]
    caption = f"The most frequent confusions of {len(labels)} labels{note}"
    return ["true", "predicted", "rows", "of that label"], rows, caption


def _list(r: Any) -> dict[str, Any]:
    """Return a table of the rows to inspect, with observed and predicted values if any."""
    first, names = r.rows.worst[0], r.rows.columns or r.fit["names"]
    names = names or [f"x{i + 1}" for i in range(len(first.x))]
    rows = [
        [f"{row.number:,}", number(row.value, 3), *map(_cell, [*row.known, *row.x[:COLUMNS]])]
        for row in r.rows.worst
    ]
    heads = ["observed", "predicted"][-len(first.known) :]
    return {
        "head": ["row", r.rows.measure, *heads, *names[:COLUMNS]],
        "rows": rows,
        "hidden": (COLUMNS, len(names)) if len(names) > COLUMNS else None,
    }


def _cell(value: Any) -> str:
    """Return a cell as text: a number, or each number of several targets, to four digits."""
    if isinstance(value, np.ndarray):
        return ", ".join(map(_cell, value))
    is_text = value is not None and (isinstance(value, bool) or not isinstance(value, Real))
    return str(value) if is_text else number(value, 4)
