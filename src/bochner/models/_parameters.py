"""Constructors of estimators from declared parameters, and texts of shared parameters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from textwrap import fill, indent
from typing import Any, TypeVar, dataclass_transform

from bochner._core.names import checks_of
from bochner._core.random import Seed
from bochner.features.map import Method

#: Entries of docstrings by placeholder, ``%(method)s``, which is often a parameter name.
TEXTS = {
    "random_state": """\
random_state : int, Generator, RandomState or None, default None
    Seed of features, samples and folds. The same seed gives the same model for any block size.""",
    "n_jobs": """\
n_jobs : int or None, default None
    Largest number of threads of a fit or prediction; -1: all processors. None: as many as are
    useful, or as :class:`joblib.parallel_config` sets. Results do not depend on it.""",
    "verbose": """\
verbose : bool, default False
    Print the stages and candidates of a fit while it runs. They are always logged at INFO on the
    logger ``bochner``.""",
    "kernel or auto": """\
kernel : Kernel or str, default "auto"
    - "auto": the best candidate on held-out rows; see :class:`bochner.KernelRidgeClassifier`.
    - a name: this family; its lengthscale is chosen from a sample of the rows.
    - a kernel: used without changes.""",
    "effort": """\
effort : {"low", "medium", "high"}, default "medium"
    Effort of the search with ``kernel="auto"``; see :class:`bochner.KernelRidge`.""",
    "kernel at the median": """\
kernel : Kernel or str, default "gaussian"
    A name: this family, with the median distance of a sample of rows as lengthscale. A kernel:
    used without changes.""",
    "method": """\
method : Method or str, default "auto"
    Method of the features; see :func:`bochner.draw`.""",
    "method or exact": """\
method : Method, str or None, default None
    - None: the exact kernel up to 8192 rows (without an intercept: up to 2048 with a squared hinge,
      never with a hinge), unless ``n_features`` or ``precision`` is set; "auto" for more rows.
    - "exact": the exact kernel. "local": local fits (:class:`bochner.LocalKernel`). Above 8192 rows
      and in local fits the loss must be smooth.
    - "auto" or a method: features; see :func:`bochner.draw`.""",
    "n_features or exact": """\
n_features : int, float, "auto" or None, default None
    Number of features, or the largest ε if below one; "auto" is 0.1. None: 1024.""",
    "quick method": """\
method : Method or str, default "auto"
    Method of the features; see :func:`bochner.draw`. With 128 columns or more, and more than four
    rows per feature, "auto" leaves out methods that take longer to draw than the fit, and
    compares Nyström features with quickly computed centres.""",
    "n_features": """\
n_features : int, float or "auto", default 1024
    Number of features, or the ε of :func:`bochner.required_features`; "auto" is 0.1.""",
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
    Weight of the losses, as in scikit-learn; ``inf`` is no penalty. "auto": the C with the
    smallest held-out loss on a sample of some thousand rows.""",
    "class_weight": """\
class_weight : dict, "balanced" or None, default None
    Factor of the sample weights per class; "balanced": equal total weight of all classes.""",
    "fit_intercept": """\
fit_intercept : bool, default True
    Whether b is fitted (unpenalised) or zero.""",
    "precision": """\
precision : {"auto", "float32", "float64"}, default "auto"
    Precision of features and their products; "auto" is float64 for small fits.""",
}

Made = TypeVar("Made")


def spec_of(kind: type[Made], who: str, params: Mapping[str, Any]) -> Made:
    """Return a spec whose parameters are checked as the annotations of its fields declare."""
    checks: Any = checks_of(kind)  # type: ignore[arg-type]
    names = [f.name for f in fields(kind) if f.name in params]  # type: ignore[arg-type]
    return kind(**{n: checks[n](params[n], who, n) if n in checks else params[n] for n in names})


@dataclass_transform(eq_default=False, kw_only_default=True)
def parameters(cls: type[Made]) -> type[Made]:
    """Mark a class whose annotated names are parameters of all estimators that inherit from it."""
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
def estimator(cls: type[Made]) -> type[Made]:
    """Make a class an estimator in scikit-learn's idiom, from its annotations.

    Annotated names with defaults are parameters: the constructor stores them unchanged, keyword
    only after ``_: KW_ONLY``. Those of base classes marked `parameters` are added. In the
    docstring ``%(name)s`` is replaced by a text of :data:`TEXTS`; missing entries of parameters
    are added, and an entry for each fitted attribute (a property) from its docstring.
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
    known = " ".join(re.findall(r"^(\w[\w, ]*)", described, re.MULTILINE)).replace(",", "")
    entries = [TEXTS[n] for n in cls.__annotations__ if n in TEXTS and n not in known.split()]
    entries += ["\nAttributes\n----------"]
    members = {n: m for base in reversed(cls.__mro__) for n, m in reversed([*vars(base).items()])}
    for name, member in reversed(members.items()):
        if isinstance(member, property) and name.endswith("_") and not name.startswith("_"):
            kind = getattr(member.fget, "__annotations__", {}).get("return")
            text = cleandoc(member.__doc__ or "")
            text = text if "\n" in text else fill(text, 92)
            of = f" : {kind.__name__}" if isinstance(kind, type) and kind is not Any else ""
            entries.append(f"{name}{of}\n{indent(text, ' ' * 4)}")
    added = "\n".join(entries)
    cls.__doc__ = doc.replace("\n\nSee Also\n", f"\n{added}\n\nSee Also\n", 1)
    made: Any = dataclass(eq=False, repr=False, match_args=False)(cls)
    for parameter in fields(made):
        delattr(made, parameter.name)  # an instance must not fall back on the default
    # The parameters of an estimator change: it must not look like a dataclass.
    del made.__dataclass_fields__, made.__dataclass_params__
    return cls
