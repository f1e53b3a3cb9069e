"""The end of a model's report: rows to look at, time and memory, the same again."""

from html import escape
from typing import Any

import numpy as np

from bochner.report.model_rows import Row, RowList
from bochner.report.parts import code, facts, number, seconds, section, table

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
