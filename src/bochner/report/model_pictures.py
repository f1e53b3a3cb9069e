"""Pictures of a model's report, each with its table of numbers."""

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
from bochner.report.chart import (
    Axis,
    Bars,
    Diagonal,
    Dots,
    Line,
    Rule,
    Whiskers,
    chart,
    legend,
)
from bochner.report.parts import figure, number, pair, seconds, table

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
