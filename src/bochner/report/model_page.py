"""The page of a model's report: one HTML file that fetches nothing and runs nothing."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from bochner.report import model_pictures as pictures
from bochner.report.model_end import again, cost, listed_rows
from bochner.report.parts import (
    code,
    facts,
    number,
    numbers,
    rounded,
    section,
    table,
)
from bochner.report.style import REPORT_STYLE, STYLE

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
        pictures.widths(r.widths),
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
        pictures.path(r.path),
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
    return section("spectrum", "Spectrum and effective dimension", words, pictures.spectrum(s))


def _quality(r: Any) -> str:
    q = r.quality
    if not q.errors and q.calibration is None:
        return ""
    return section(
        "predictions",
        "Predicted against observed",
        _errors(r),
        "" if q.residuals is None else pictures.residuals(q.residuals, q.left_out),
        "" if q.confusion is None else pictures.confusion(q.confusion, r.fit.classes, q.left_out),
        "" if q.calibration is None else pictures.calibration(q.calibration),
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
