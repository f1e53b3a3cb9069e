"""Notebook displays of fits."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.text import HtmlResult, facts_in_words, html_facts
from bochner.data.schema import Inputs, reasons
from bochner.kernels.algebra import Monotone
from bochner.kernels.words import in_words, listed
from bochner.selection.rows import deviations


def kernel_words(fit: Any, names: Sequence[str] | None) -> str:
    """Return the kernel in words: lengthscales in deviations of columns, where rows are kept."""
    kernel, X, w = fit.chosen.kernel, None, None
    representation = getattr(getattr(fit, "law", fit), "representation", None)
    for rows in (getattr(representation, "sample", None), representation, fit):
        kept = getattr(rows, "X", None)
        if kept is not None and not is_sparse(kept) and kept.shape[1] == fit.inputs.n_columns:
            w = getattr(rows, "w", None)
            X, w = kept, np.ones(kept.shape[0]) if w is None else w
            break
    if not isinstance(kernel, Monotone):
        return in_words(kernel, names, None if X is None else deviations(X, w))
    curves = fit.chosen.curves
    how = "transformed" if curves is None else curves.name
    spread = None if X is None else deviations(kernel.inputs(np.asarray(X, np.float64)), w)
    bent = listed([names[j] if names else f"column {j}" for j in kernel.columns])
    return f"{in_words(kernel.kernel, names, spread)}; of {how} of {bent}"


class FitSummary(HtmlResult):
    """Fitted state that can be printed: the inputs, the choices and the results of a fit."""

    inputs: Inputs
    chosen: Any

    def facts(self) -> dict[str, Any]:
        """Return all facts of the fit by name, for programs and for people.

        Numbers, texts and lists; where the words of a fact say more than its value, they are
        beside it under its name with ``_words``.
        """
        inputs, schema, search = self.inputs, self.inputs.schema, self.chosen.search
        n, raw = inputs.n_columns, inputs.n_features_in
        names = inputs.names if schema is None else schema.feature_names
        dropped = {} if schema is None else reasons(schema.dropped)
        choice = self.chosen.choice
        facts = {
            "columns": n,
            "columns_words": f"{n:,}" + f" (of {raw:,} in the table)" * (n != raw),
            "raw_columns": raw,
            "names": list(names or ()),
            "targets": list((schema and schema.target_names) or ()),
            "classes": None if inputs.classes is None else inputs.classes.tolist(),
            "left_out": [f"{', '.join(names)} ({why})" for why, names in dropped.items()],
            "kernel": repr(self.chosen.kernel),
            "kernel_words": kernel_words(self, names),
            "kernel_chosen": bool(search.compared),
            "precision": self.chosen.precision,
            "seed": self.chosen.seed,
            "method": repr(choice.method),
            "method_words": choice.reason,
        }
        if choice.method.has_features:
            facts["n_features"] = choice.map.n_features
        return facts | self._results()

    def __str__(self) -> str:
        facts = facts_in_words(self.facts())
        longest = max(len(name) for name, _ in facts)
        lines = (f"  {name:<{longest}}  {words}" for name, words in facts)
        return "\n".join((type(self).__name__, *lines))

    def _html_parts(self) -> Iterator[str]:
        yield html_facts(facts_in_words(self.facts()))

    def _results(self) -> dict[str, Any]:
        return {}

    # scikit-learn's diagram of an estimator shows a fit that has these instead of a table of
    # attributes, which would read all, and measure certificates and calibrations.

    _repr_html_inner = HtmlResult._repr_html_

    def __len__(self) -> int:
        return 1
