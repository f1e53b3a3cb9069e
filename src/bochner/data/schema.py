"""Roles and encoders of the columns of a table: features and their categories, targets, weight."""

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bochner.data.encoders import Encoder, Levels, Numbers, as_encoder
from bochner.errors import InvalidInput, InvalidType


@dataclass(frozen=True)
class Schema:
    """Which columns of a table are features, targets and weights, and how text becomes numbers.

    A column with c categories becomes c columns of zeros and ones, one per category in sorted
    order; every other column stays one column. A schema learned by a fit has encoders, which also
    fill missing cells, and encode ordered levels, target means, dates and times. All fields can be
    written as JSON: ``Schema(**json.loads(json.dumps(dataclasses.asdict(schema)))) == schema``.

    Parameters
    ----------
    columns : sequence of str
        Names of the feature columns as they are in the table, in the order of the features.
    categories : mapping of str to sequence of str, or sequence of such pairs, default ()
        The categories of each feature column that holds text.
    target : str, sequence of str or None, default None
        One name gives y of shape (n,); a sequence of t names gives (n, t); None gives no y.
    weight : str or None, default None
        The column that holds the sample weights.
    classes : sequence of str, default ()
        The sorted labels of a target of text, which becomes their numbers 0, 1, ...; empty for a
        target of numbers.
    encoders : sequence of Encoder, default ()
        The encoder of each column that is not dropped, in order; empty if all columns are numbers
        and categories without missing cells.
    dropped : mapping of str to str, or sequence of such pairs, default ()
        Columns that a fit has left out, with the reasons.

    Raises
    ------
    InvalidInput
        A column is named twice, or is both a feature and the target or weight.

    Examples
    --------
    >>> import bochner as bo
    >>> schema = bo.Schema(["area", "town"], {"town": ["Bonn", "Ulm"]}, target="price")
    >>> schema.feature_names
    ('area', 'town=Bonn', 'town=Ulm')
    >>> schema.target_names
    ('price',)
    """

    columns: tuple[str, ...]
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    target: str | tuple[str, ...] | None = None
    weight: str | None = None
    classes: tuple[str, ...] = ()
    encoders: tuple[Encoder, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        vars(self).update(
            columns=tuple(self.columns),
            categories=tuple((name, tuple(c)) for name, c in dict(self.categories).items()),
            target=self.target if isinstance(self.target, str | None) else tuple(self.target),
            classes=tuple(self.classes),
            encoders=tuple(map(as_encoder, self.encoders)),
            dropped=tuple(dict(self.dropped).items()),
        )
        for name in self.raw_names:
            if not isinstance(name, str):
                raise InvalidType(f"Schema: column names must be text; got {name!r}.")
        refuse_repeated(self.raw_names, "Schema: a column must have one role and be named once")
        rule = "Schema: a column must not be named as another's category"
        refuse_repeated(self.feature_names, rule)
        if self.encoders and tuple(e.name for e in self.encoders) != self.used_columns:
            raise InvalidInput(
                "Schema: encoders must be one for each column that is not dropped, in order; got "
                f"those of {quote(e.name for e in self.encoders)} for {quote(self.used_columns)}."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X: ``name`` for numbers, ``name=category`` for text."""
        return tuple(feature for e in self.plain for feature in e.feature_names)

    @property
    def trends(self) -> tuple[int, ...]:
        """Numbers of the columns of X that are days of dates."""
        dates = (e for e in self.encoders if "trend" in getattr(e, "parts", ()))
        return tuple(self.feature_names.index(e.feature_names[0]) for e in dates)

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Names of the feature columns that are not dropped."""
        out = dict(self.dropped)
        return tuple(name for name in self.columns if name not in out)

    @property
    def target_names(self) -> tuple[str, ...] | None:
        """Names of the columns of y, or None if there is no y."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of all columns with a role: features (dropped ones too), targets, weight."""
        weight = () if self.weight is None else (self.weight,)
        return (*self.columns, *(self.target_names or ()), *weight)

    @property
    def read_names(self) -> tuple[str, ...]:
        """Names of all columns that are read, without the dropped ones."""
        return (*self.used_columns, *self.raw_names[len(self.columns) :])

    @property
    def plain(self) -> tuple[Encoder, ...]:
        """The encoders; without a fit, the default encoders of numbers and categories."""
        categories = dict(self.categories)
        return self.encoders or tuple(
            Levels(name, categories[name]) if name in categories else Numbers(name)
            for name in self.used_columns
        )

    def features_only(self) -> "Schema":
        """Return the schema without target and weight, for prediction."""
        return replace(self, target=None, weight=None, classes=())


def reasons(dropped: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of dropped columns by reason."""
    names: dict[str, list[str]] = {}
    for name, reason in dropped:
        names.setdefault(reason, []).append(name)
    return names


def refuse_repeated(names: Iterable[Any], rule: str) -> None:
    """Raise an error for names that occur more than once; its message begins with ``rule``."""
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInput(
            f"{rule}; got {quote(duplicates)} more than once. Rename or drop the repeated ones."
        )


def quote(names: Iterable[object], limit: int = 6) -> str:
    """Return the first ``limit`` names in quotes, and the number of names if there are more."""
    names = list(names)
    text = ", ".join(repr(name) for name in names[:limit])
    return text if len(names) <= limit else f"{text}, ... ({len(names)} in all)"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `` (did you mean 'delay'?)`` for ``dleay``; "" if no known name is similar."""
    lower = {str(k).lower(): k for k in names}
    matches = difflib.get_close_matches(name.lower(), lower, n=3)
    return f" (did you mean {' or '.join(repr(lower[k]) for k in matches)}?)" if matches else ""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Columns and classes of the training data."""

    n_features_in: int
    names: tuple[str, ...] | None = None  # of the columns, if they had names
    schema: Schema | None = None  # of the columns of a table
    classes: Any = None  # labels, sorted, (K,)

    @property
    def n_columns(self) -> int:
        """Number of columns of X, after the columns of a table were encoded."""
        return self.n_features_in if self.schema is None else len(self.schema.feature_names)
