"""Rows to look at a fitted learner with, its outputs, and columns as users name them.

A column of a table may have become several columns of numbers: categories, parts of a date, an
indicator of missing cells. They are moved together, so that every row that is predicted could have
come from a table.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.checks import integer
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.encoders import Encoder, Numbers
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator


@dataclass(frozen=True)
class InspectedColumn:
    """A column as the user names it, and the columns of X that it became."""

    name: str
    places: tuple[int, ...]
    encoder: Encoder


def columns_of(model: KernelEstimator) -> tuple[InspectedColumn, ...]:
    """Return the columns of the fit, without those that were left out."""
    schema = model.schema_
    if schema is None:
        names = model._inputs.names or [f"column {j}" for j in range(model.n_features_in_)]
        encoders: Any = [Numbers(name) for name in names]
    else:
        encoders = schema.plain
    ends = np.cumsum([len(e.feature_names) for e in encoders])
    pairs = zip(encoders, ends, strict=True)
    columns = (
        InspectedColumn(e.name, tuple(range(end - len(e.feature_names), end)), e)
        for e, end in pairs
    )
    return tuple(column for column in columns if column.places)


@dataclass(frozen=True, eq=False)
class Inspected:
    """A fitted learner, its columns, and rows of numbers to look at it with."""

    model: KernelEstimator
    columns: tuple[InspectedColumn, ...]
    X: Float[Array, "m d"]  # Dense encoded rows

    @staticmethod
    def of(
        who: str, model: KernelEstimator, X: Any, n_rows: int, random_state: Seed
    ) -> "Inspected":
        """Draw at most ``n_rows`` rows at random."""
        check_is_fitted(model)
        if not (is_regressor(model) or is_classifier(model)):
            raise InvalidInput(
                f"{who}: the learner must predict a target; {type(model).__name__} has none. Take "
                "a regressor or a classifier."
            )
        m = integer(n_rows, who, "n_rows", 2)
        rows = model._rows_to_predict(X).sample(m, seed_of(random_state)).X
        return Inspected(model, columns_of(model), to_numpy(rows))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what :meth:`predict` gives: targets, or classes."""
        if is_classifier(self.model):
            labels = self.model.classes_
            return tuple(map(str, labels[-1:] if len(labels) == 2 else labels))
        t = self.predict(self.X[:1]).shape[1]
        names = () if self.model.schema_ is None else self.model.schema_.target_names or ()
        if len(names) == t:
            return names
        return ("prediction",) if t == 1 else tuple(f"prediction {j}" for j in range(t))

    @property
    def unit(self) -> str:
        """Name of the predicted quantity."""
        return "decision value" if is_classifier(self.model) else "prediction"

    def predict(self, X: Float[Array, "b d"]) -> Float[Array, "b t"]:
        """Return predictions, or decision values of a classifier, of encoded rows."""
        asked = self.model.decision_function if is_classifier(self.model) else self.model.predict
        predictions = to_numpy(asked(Blocks.from_arrays(X)))
        return predictions.reshape(len(predictions), -1).astype(np.float64)

    def index(self, who: str, column: Any) -> int:
        """Return the number of a column that is named, or numbered from 0."""
        names = [c.name for c in self.columns]
        if isinstance(column, str) and column in names:
            return names.index(column)
        if isinstance(column, int | np.integer) and not isinstance(column, bool):
            at = int(column)
            if 0 <= at < len(names):
                return at
        text = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise InvalidInput(
            f"{who}: columns must be names or numbers of the {len(names)} columns of the fit "
            f"({text}); got {column!r}."
        )


def exchanged(
    X: Float[Array, "m d"], column: InspectedColumn, other: Float[Array, "m d"]
) -> Float[Array, "m d"]:
    """Return rows with one column taken from other rows."""
    out, places = X.copy(), list(column.places)
    out[:, places] = other[:, places]
    return out
