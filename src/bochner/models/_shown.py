"""Notebook displays of fits and estimators."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils import estimator_html_repr

from bochner._core.html import Facts, HtmlPart, ShownResult
from bochner.data.schema import Inputs
from bochner.models.kernel_words import kernel_words

#: A line: name and value.
Fact = tuple[str, str]

MOST_LABELS = 12  # Classes that are named


class ShownFit(ShownResult):
    """A fitted value with a notebook display: inputs, choices, results."""

    inputs: Inputs

    def __str__(self) -> str:
        facts = [(name, words) for name, words in self._facts() if words]
        longest = max(len(name) for name, _ in facts)
        lines = (f"  {name:<{longest}}  {words}" for name, words in facts)
        return "\n".join((type(self).__name__, *lines))

    def _shown(self) -> Iterator[HtmlPart]:
        yield Facts(self._facts())

    def _facts(self) -> tuple[Fact, ...]:
        return (*self._asked(), *self._features(), *self._found())

    def _asked(self) -> Iterator[Fact]:
        """Yield the columns, the classes and the kernel."""
        inputs, schema = self.inputs, self.inputs.schema
        known = inputs.names if schema is None else schema.feature_names
        raw = f" (of {inputs.n_features_in:,} in the table)"
        yield "columns", f"{inputs.n_columns:,}{raw * (inputs.n_columns != inputs.n_features_in)}"
        if inputs.classes is not None:
            more = ", …" * (len(inputs.classes) > MOST_LABELS)
            yield "classes", ", ".join(map(str, inputs.classes[:MOST_LABELS])) + more
        yield "kernel", kernel_words(self, known)

    def _features(self) -> Iterator[Fact]:
        """Yield the method and the reason for it."""
        fit: Any = self  # ``chosen`` is a field of some fits and a property of others
        yield "method", fit.chosen.choice.reason

    def _found(self) -> Iterable[Fact]:
        """Yield results specific to this kind of fit."""
        return ()


@dataclass(frozen=True)
class InDiagram:
    """Content of scikit-learn's diagram of a fitted estimator, instead of its attributes.

    Its own table would read all attributes, and certificates and calibrations are measured where
    they are first read.
    """

    fit: ShownResult

    def __len__(self) -> int:
        return 1

    def _repr_html_inner(self) -> str:
        """Return the HTML."""
        return self.fit._repr_html_()


class ShownEstimator:
    """An estimator in notebooks: scikit-learn's diagram, with what the fit has found."""

    fit_: Any

    def _get_fitted_attr_html(self, doc_link: str = "") -> InDiagram:
        return InDiagram(self.fit_)

    def _html_repr(self) -> str:
        """Return the diagram; below it the fit, where scikit-learn leaves no place for it."""
        diagram = estimator_html_repr(self)
        if "fit_" not in self.__dict__:
            return diagram
        found = self.fit_._repr_html_()
        return diagram if found in diagram else diagram + found

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return text and, unless ``display="text"`` was set in scikit-learn, HTML."""
        shown = {"text/plain": repr(self)}
        return shown | ({"text/html": self._html_repr()} if _diagrams() else {})


def _diagrams() -> bool:
    return bool(get_config()["display"] == "diagram")


def numbers(values: Any) -> str:
    """Write a number, or the first few of several."""
    several = np.atleast_1d(np.asarray(values, np.float64)).ravel()
    return ", ".join(f"{value:.4g}" for value in several[:4]) + ", …" * (len(several) > 4)
