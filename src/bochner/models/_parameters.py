"""Decorators that make estimators from annotated parameters, and texts of shared parameters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from textwrap import fill, indent
from typing import Any, TypeVar, dataclass_transform

from bochner._core.names import checks_of
from bochner._core.random import Seed
from bochner.features.map import Method

#: Entries of docstrings: ``%(key)s`` in a docstring is replaced by the text of this key.
TEXTS = {
    "random_state": """\
random_state : int, Generator, RandomState or None, default None
    Seed of features, samples and folds. The same seed gives the same model for any block size.""",
    "n_jobs": """\
n_jobs : int or None, default None
    Largest number of threads of a fit or prediction; -1: all processors. None: the number set by
    :class:`joblib.parallel_config`, else as many as are useful. Results do not depend on it.""",
    "verbose": """\
verbose : bool, default False
    Print the stages and candidates of a fit while it runs. They are always logged at INFO on the
    logger ``bochner``.""",
    "kernel or auto": """\
kernel : Kernel or str, default "auto"
    - "auto": the kernel of smallest held-out error; see :class:`bochner.KernelRidge`.
    - a name, as in KernelRidge: this family; its lengthscale is chosen on a sample of the rows.
    - a kernel: used without changes; hyperparameters that are "auto" are tuned.""",
    "effort": """\
effort : {"low", "medium", "high"}, default "medium"
    Effort of the search with ``kernel="auto"``; see :class:`bochner.KernelRidge`.""",
    "kernel of rows": """\
kernel : Kernel or str, default "gaussian"
    - a name, as in :class:`bochner.KernelRidge`: this family; its lengthscale is chosen on a sample
      of the rows.
    - a kernel: used without changes; hyperparameters that are "auto" are tuned.""",
    "kernel at the median": """\
kernel : Kernel or str, default "gaussian"
    - a name: this family; its lengthscale is the median distance between rows of a sample.
    - a kernel: used without changes.""",
    "method": """\
method : Method or str, default "auto"
    Method of the features; see :func:`bochner.draw`.""",
    "method or exact": """\
method : Method, str or None, default None
    - None: the exact kernel up to 8192 rows (fewer with more than 1024 columns), unless
      ``n_features`` or ``precision`` is set; "auto" for more. Without an intercept: up to 2048 rows
      for a squared hinge, never for a hinge.
    - "exact": the exact kernel (:class:`bochner.ExactKernel`); above 8192 rows for smooth losses.
    - "local": local fits (:class:`bochner.LocalKernel`), for smooth losses.
    - "auto" or a method: features; see :func:`bochner.draw`.""",
    "n_features or exact": """\
n_features : int, float, "auto" or None, default None
    Number of features. Below one: the largest ε of :func:`bochner.required_features`; "auto" is
    0.1. None: 1024, where features are used.""",
    "quick method": """\
method : Method or str, default "auto"
    Method of the features; see :func:`bochner.draw`. With 128 columns or more and more than four
    sampled rows per feature, "auto" compares only methods that are quickly drawn.""",
    "n_features": """\
n_features : int, float or "auto", default 1024
    Number of features. Below one: the largest ε of :func:`bochner.required_features`; "auto" is
    0.1.""",
    "metric": """\
metric : None or "learned", default None
    "learned": scale and rotate the columns by the gradients of a few fits on a sample of rows;
    see :class:`bochner.KernelRidge`.""",
    "columns": """\
columns : {"auto", "as_given"}, default "auto"
    "auto": with a kernel by name, skewed columns and columns with outliers are transformed by
    logarithms, quantiles or clipping if this lowers the leave-one-out error on a sample of rows
    by 3 %; ``kernel_`` is then a :class:`bochner.kernels.Monotone`. "as_given": never.""",
    "C": """\
C : "auto" or float, default "auto"
    Weight of the losses, as in scikit-learn; ``inf``: no penalty. "auto": the C of smallest
    held-out loss on a sample of some thousand rows.""",
    "class_weight": """\
class_weight : dict, "balanced" or None, default None
    Factor of the sample weights of each class; "balanced": equal total weight of all classes.""",
    "fit_intercept": """\
fit_intercept : bool, default True
    Whether to fit the intercept b, without penalty; otherwise b is zero.""",
    "precision": """\
precision : {"auto", "float32", "float64"}, default "auto"
    Precision of features and their products; "auto" is float64 for small fits.""",
}

TEXTS["descent"] = """\
strategy : str, default "auto"
    - "exact_on_the_fly", "exact_cached": steps on the exact features of a kernel with finitely many
      features (Linear, Polynomial, their sums and products).
    - "kernel_on_the_fly", "gram_cached": steps on kernel values, with a coefficient for each row.
    - "approximate_on_the_fly", "approximate_cached": n_features features by ``method``.
    - "auto": the strategy with the fewest operations that fits in memory, see :meth:`plan`.

    Both strategies of a line give the same model up to rounding; so do the first four if the kernel
    has exact features.
method : Method or str, default "auto"
    Method of approximate features; see :func:`bochner.draw`.
n_features : int, default 1024
    Number of approximate features.
alpha : float, default 1e-4
    Penalty, relative to the mean loss.
batch_size : int, default 32
    Number of rows per step.
eta0 : float or "auto", default "auto"
    Step size. "auto": 1/(L (mean k(x, x) + 1)), with the largest curvature L of the loss (1 if the
    loss is not smooth).
average : bool or int, default False
    Whether to predict with the mean coefficients of all steps; an integer: from this step on.
max_iter : int, default 1000
    Largest number of epochs.
tol : float or None, default 1e-3
    Stop if for n_iter_no_change epochs the mean loss (with early_stopping: minus the score) does
    not fall below its minimum by tol. None: run max_iter epochs.
early_stopping : bool, default False
    Whether to stop by the score on held-out rows: the accuracy, or R² for regression.
validation_fraction : float, default 0.1
    Share of held-out rows, with early_stopping.
n_iter_no_change : int, default 5
    Number of epochs without improvement, see ``tol``.
shuffle : bool, default True
    Whether rows are in random order in each epoch; the order depends on seed and epoch only.
warm_start : bool, default False
    Whether ``fit`` continues from the last fit, with its kernel, map and strategy."""

Estimator = TypeVar("Estimator")


def spec_of(kind: type[Estimator], caller: str, params: Mapping[str, Any]) -> Estimator:
    """Return a spec whose parameters are checked as the annotations of its fields declare."""
    checks: Any = checks_of(kind)  # type: ignore[arg-type]
    names = [f.name for f in fields(kind) if f.name in params]  # type: ignore[arg-type]
    return kind(**{n: checks[n](params[n], caller, n) if n in checks else params[n] for n in names})


@dataclass_transform(eq_default=False, kw_only_default=True)
def parameters(cls: type[Estimator]) -> type[Estimator]:
    """Make the annotated names of a class parameters of all estimators that inherit from it."""
    cls.__shared__ = tuple(cls.__annotations__)  # type: ignore[attr-defined]
    return cls


@parameters
class KernelParameters:
    """Keyword parameters of estimators that choose kernel and features."""

    effort: str = "medium"
    method: Method | str | None = None
    n_features: int | float | str | None = None
    metric: str | None = None
    columns: str = "auto"
    precision: str = "auto"
    fit_intercept: bool = True
    random_state: Seed = None
    n_jobs: int | None = None


@parameters
class FeatureParameters:
    """Keyword parameters of estimators that always use features."""

    method: Method | str | None = "auto"
    n_features: int | float | str | None = 512
    precision: str = "auto"
    random_state: Seed = None
    n_jobs: int | None = None


@dataclass_transform(eq_default=False)
def estimator(cls: type[Estimator]) -> type[Estimator]:
    """Return the class as an estimator of scikit-learn: with a constructor and a full docstring.

    Its annotated names, and those of its base classes with `parameters`, are parameters, which the
    constructor stores unchanged; keyword only after ``_: KW_ONLY``. In the docstring ``%(key)s`` is
    replaced by a text of :data:`TEXTS`. Entries are added for parameters that have a text but no
    entry, and for fitted attributes (properties), from their docstrings.
    """
    for base in cls.__mro__[1:]:
        for name in vars(base).get("__shared__", ()):
            if name not in cls.__annotations__:
                cls.__annotations__[name] = base.__annotations__[name]
                setattr(cls, name, field(default=getattr(base, name), kw_only=True))
    shared_text = lambda match: indent(TEXTS[match[2]], match[1])
    doc = cleandoc(cls.__doc__ or "")  # does nothing from Python 3.13 on
    doc = re.sub(r"^( *)%\(([\w ]+)\)s$", shared_text, doc, flags=re.MULTILINE)
    described = doc.partition("Parameters\n")[2].partition("See Also\n")[0]
    documented = " ".join(re.findall(r"^(\w[\w, ]*)", described, re.MULTILINE)).replace(",", "")
    entries = [TEXTS[n] for n in cls.__annotations__ if n in TEXTS and n not in documented.split()]
    entries += ["\nAttributes\n----------"]
    members = {n: m for base in reversed(cls.__mro__) for n, m in reversed([*vars(base).items()])}
    if "metric" not in cls.__annotations__:
        members.pop("metric_", None)
    for name, member in reversed(members.items()):
        if isinstance(member, property) and name.endswith("_") and not name.startswith("_"):
            kind = getattr(member.fget, "__annotations__", {}).get("return")
            text = cleandoc(member.__doc__ or "")
            text = text if "\n" in text else fill(text, 92)
            type_text = f" : {kind.__name__}" if isinstance(kind, type) and kind is not Any else ""
            entries.append(f"{name}{type_text}\n{indent(text, ' ' * 4)}")
    text_added = "\n".join(entries)
    cls.__doc__ = doc.replace("\n\nSee Also\n", f"\n{text_added}\n\nSee Also\n", 1)
    result: Any = dataclass(eq=False, repr=False, match_args=False)(cls)
    for parameter in fields(result):
        delattr(result, parameter.name)  # an instance must not fall back on the default
    # The parameters of an estimator change: it must not look like a dataclass.
    del result.__dataclass_fields__, result.__dataclass_params__
    return cls
