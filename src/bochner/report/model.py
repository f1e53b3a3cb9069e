"""Report of a fitted learner on rows: all numbers as values, and an HTML page of them."""

from dataclasses import asdict, dataclass, replace
from html import escape
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

import bochner as bo
from bochner._core.checks import integer
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array
from bochner.data.encoders import Levels, Numbers
from bochner.data.writers import open_atomic
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator
from bochner.models._tables import is_table
from bochner.models.inspection import Inspection
from bochner.report import quality as measures
from bochner.report.model_page import model_page
from bochner.report.quality import EvalRows, task_of
from bochner.report.render import imports
from bochner.sums.passes import indicators


def _code(model: KernelEstimator) -> str:
    """Return Python code that creates the learner, with comments on the choices of its fit."""
    defaults = {name: p.default for name, p in signature(type(model)).parameters.items()}
    settings = model.get_params(deep=False) | {"random_state": model.seed_}
    changes = {k: repr(v) for k, v in settings.items() if repr(v) != repr(defaults.get(k))}
    lines = "".join(f"    {name}={text},\n" for name, text in changes.items())
    learner, facts = type(model).__name__, model.fit_.facts()
    code = f"model = {learner}(\n{lines})" if lines else f"model = {learner}()"
    open_ = {"kernel": "kernel_words", "method": "method", "n_features": "n_features"}
    chosen = [
        f"# {name} chosen: {facts[fact]}"
        for name, fact in open_.items()
        if isinstance(settings.get(name), str | None) and facts.get(fact)
    ]
    return "\n".join([*imports(code), "", code, *chosen])


#: Most columns whose importance is measured; most cells, and fewest rows, of this measurement.
MAX_COLUMNS, CELLS, FEWEST_ROWS = 512, 1 << 16, 128


def partial_dependence(inspection: Inspection, j: int) -> Bunch:
    """Return the partial dependence on column j (Friedman 2001, equation 53).

    ``grid_values`` (g,) are levels of the ``column``, or 25 of its values; ``average`` (t, g) are
    mean predictions at these values, and ``error`` their standard errors, relative to their mean.
    """
    encoder, places = inspection.columns[j]
    if isinstance(encoder, Levels) and (encoder.is_ordered or not encoder.table):
        missing = encoder.indicator and not encoder.is_ordered
        cells = np.append(np.arange(len(encoder.levels)), [np.nan] * missing)
        grid: Any = (*encoder.levels, *("missing",) * missing)
        values = encoder.encode(cells)
    else:
        X = inspection.X[np.argsort(inspection.X[:, places[0]], kind="stable")][:, places]
        if isinstance(encoder, Numbers) and encoder.indicator and not X[:, 1].all():
            X = X[X[:, 1] == 0]
        low, high = np.quantile(np.arange(len(X)), (0.05, 0.95)) if len(X) > 25 else (0, len(X))
        X = X[np.linspace(low, min(high, len(X) - 1), 25).astype(int)]
        grid, first = np.unique(X[:, 0].astype(np.float64), return_index=True)
        values = X[first]
    predictions = []
    for value in values:
        rows = inspection.X.copy()
        rows[:, places] = value
        predictions.append(inspection.predict(rows))
    f = np.array(predictions)  # (g, m, t)
    error = (f - f.mean(axis=0)).std(axis=1).T / f.shape[1] ** 0.5
    labels = {"column": encoder.name, "outputs": inspection.outputs, "unit": inspection.unit}
    return Bunch(grid_values=grid, average=f.mean(axis=1).T, error=error, **labels)


@dataclass(frozen=True, eq=False)
class ModelReport:
    """Numbers of a report.

    Attributes
    ----------
    fit : dict of str to Any
        Facts of the fit, its ``learner``, ``kind`` and ``code``.
    rows : Bunch
        Number of rows, counts of predicted groups, and the rows to inspect.
    is_training : bool or None
        Whether the rows are the training rows: same number, mean and variance of the target.
        None if the learner keeps neither.
    certificate : Certificate or None
        Distance of the features from the kernel on these rows.
    certificate_words : str
        The certificate in sentences, or why there is none.
    quality : Bunch
        Errors, residuals, calibration and confusion matrix.
    path : PathDisplay or None
    spectrum : SpectrumDisplay or None
    importance : ImportanceDisplay or None
        How much each column moves the predictions, on at most 1024 rows of the sample.
    dependence : tuple of Bunch
        Partial dependence on each of the two most important columns.
    missing : dict of str to str
        Missing parts, with reasons.
    sample_rows, seed : int
        Number of rows of the sample in the plots, and its seed.
    source, command : str
        Name of the data, and command that wrote the page.

    See Also
    --------
    report_model : Make the report of a learner.
    """

    fit: dict[str, Any]
    rows: Bunch
    is_training: bool | None
    certificate: bo.Certificate | None
    certificate_words: str
    quality: Bunch
    path: bo.PathDisplay | None
    spectrum: bo.SpectrumDisplay | None
    importance: bo.ImportanceDisplay | None
    dependence: tuple[Bunch, ...]
    missing: dict[str, str]
    sample_rows: int
    seed: int
    source: str
    command: str

    def _repr_html_(self) -> str:
        """Return the page in a frame, which isolates its style from the notebook's."""
        title, page = escape(f"Report of {self.fit['learner']}"), escape(self.to_html())
        return (
            f'<iframe title="{title}" srcdoc="{page}" width="100%" height="640" '
            'style="border:1px solid currentColor" sandbox="allow-same-origin"></iframe>'
        )

    def to_html(self) -> str:
        """Return one self-contained page without scripts."""
        return model_page(self)

    def write(self, path: str | PathLike[str]) -> Path:
        """Write the page atomically; return its path."""
        with open_atomic(path, "w") as file:
            file.write(self.to_html())
        return Path(path).expanduser().resolve()

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by name, for JSON."""
        return {
            "fit": self.fit,
            "rows": self.rows.n_rows,
            "is_training": self.is_training,
            "errors": self.quality.errors,
            "certificate": self.certificate and self.certificate.to_dict(),
            "certificate_words": self.certificate_words,
            "path": self.path and asdict(self.path),
            "spectrum": self.spectrum and asdict(self.spectrum),
            "importance": self.importance and asdict(self.importance),
            "dependence": [*map(dict, self.dependence)],
            "calibration": self.quality.calibration and asdict(self.quality.calibration),
            "worst_rows": [row.number for row in self.rows.worst],
            "missing": self.missing,
        }


def report_model(
    model: KernelEstimator,
    X: Any,
    y: Array | None = None,
    sample_weight: Array | None = None,
    *,
    n_sample: int = 4096,
    random_state: Seed = 0,
    source: str = "",
    command: str = "",
) -> ModelReport:
    """Return a report of a fitted learner: its errors, and its distance from the exact kernel.

    Parameters
    ----------
    model : fitted learner
    X : (n, d), table or Blocks
        The training rows, or better, new rows.
    y : (n,) or (n, t), optional
        Targets of the rows; Blocks hold their own targets. Without targets the page has no errors.
    sample_weight : (n,), optional
    n_sample : int, default 4096
        Number of random rows in the plots.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the sample.
    source, command : str, default ""
        Name of the rows and command, as the page shows them.

    Returns
    -------
    ModelReport
        ``write("report.html")`` makes the page.

    Notes
    -----
    The report takes a few passes over the rows, and predictions at up to 2²⁰ random rows. On the
    rows of its fit, a ridge regression or Gaussian process is evaluated by exact leave-one-out
    predictions.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = bo.KernelRidge("gaussian", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> report = bo.report_model(model, X, np.sin(X[:, 0]), n_sample=50)
    >>> report.rows.n_rows, report.path is None
    (300, False)
    >>> path = report.write("report.html")  # doctest: +SKIP
    """
    check_is_fitted(model)
    seed = seed_of(random_state)
    n_sample = integer(n_sample, "report_model", "n_sample", 16)
    blocks = measures.encode_rows(model, X, y, sample_weight)
    data = measures.examine(model, blocks, seed)
    sample = data.sample(n_sample, seed)
    is_training = _are_training_rows(model, data)
    table = model._rows_to_predict(X) if is_table(X) else blocks
    inspected = measures.rows_to_inspect(model, data, table)
    certificate, words = measures.certificate_of(model, blocks, new_rows=is_training is False)
    quality = measures.quality_of(
        model, sample, data, measures.loo_predictions(model) if is_training else None
    )
    parts: dict[str, Any] = {"path": None, "importance": None, "dependence": ()}
    missing: dict[str, str] = {}
    try:
        parts["path"] = bo.PathDisplay.from_estimator(model)
    except InvalidInput:
        missing["path"] = "The learner compared no penalties."
    try:
        parts |= _importance(model, bo.Blocks.from_arrays(sample.X), seed)
    except InvalidInput as error:
        missing["importance"] = str(error)
    facts: dict[str, Any] = {
        "learner": type(model).__name__,
        "kind": task_of(model),
        "rows": getattr(model, "rows_seen_", None),
        **model.fit_.facts(),
    }
    if isinstance(model, bo.GaussianProcessRegressor):
        facts["intervals"] = model.calibration_.guarantee
    return ModelReport(
        fit=facts | {"code": _code(model)},
        rows=inspected,
        is_training=is_training,
        certificate=certificate,
        certificate_words=words,
        quality=quality,
        spectrum=_spectrum(model, sample, inspected.n_rows),
        missing=missing,
        sample_rows=len(sample.index),
        seed=seed,
        source=source,
        command=command,
        **parts,
    )


def _are_training_rows(model: KernelEstimator, data: EvalRows) -> bool | None:
    """Whether these are the training rows, by the mean and variance of the target."""
    fitted: bo.Moments | None = getattr(model, "moments_", None)
    comparable = fitted is not None and len(fitted.target_mean) and data.y is not None
    if fitted is None or not comparable or not data.w.sum() > 0:
        return None
    y = data.y.astype(np.float64)
    if task_of(model) == "classification":
        y = indicators(y, len(model.classes_))
    y, m = y.reshape(len(y), -1), len(y)
    if data.n_rows != fitted.rows or y.shape[1] != len(fitted.target_mean):
        return False
    mean, scale = np.average(y, axis=0, weights=data.w), np.sqrt(fitted.power / fitted.weight)
    if m < data.n_rows:  # random rows
        return bool(np.all(np.abs(mean - fitted.target_mean) <= 6 * scale / m**0.5))
    is_close = np.abs(mean - fitted.target_mean) <= 1e-6 * (scale + np.abs(fitted.target_mean))
    power = data.w @ (y - mean) ** 2
    return bool(np.all(is_close) and np.allclose(power, fitted.power, rtol=1e-5))


def _spectrum(model: KernelEstimator, sample: EvalRows, n: int) -> bo.SpectrumDisplay | None:
    """Return the spectrum of the training rows, or of a sample, scaled to n rows."""
    if not model.choice_.method.has_features:
        return None
    rows = bo.Blocks.from_arrays(sample.X)
    display = bo.SpectrumDisplay.from_estimator(model, rows)
    if hasattr(model, "moments_"):
        return display
    values, alpha = display.eigenvalues * n / len(sample.index), model._ridge_penalty(sample.X, n)
    return replace(display, eigenvalues=values, alpha=alpha, n_rows=n)


def _importance(model: KernelEstimator, rows: bo.Blocks, seed: int) -> dict[str, Any]:
    """Return the importance of columns, and partial dependence on the two most important."""
    d = model.n_features_in_
    if d > MAX_COLUMNS:
        raise InvalidInput(
            f"report_model: importance requires at most {MAX_COLUMNS} columns; got {d:,}. Use "
            'column_importance(model, X, by="gradient"), which ranks the columns.'
        )
    n = max(FEWEST_ROWS, min(1024, CELLS // d))
    importance = bo.column_importance(model, rows, n_rows=n, random_state=seed)
    inspection = Inspection.of("report_model", model, rows, 256, seed)
    first = [int(j) for j in importance.order[:2] if importance.share[j] > 0]
    dependence = tuple(partial_dependence(inspection, j) for j in first)
    return {"importance": importance, "dependence": dependence}
