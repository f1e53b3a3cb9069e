"""What the columns of a table mean: features and their categories, targets, weight."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bochner.errors import InvalidInput, InvalidType

__all__ = ["Schema", "did_you_mean", "listed", "repeated"]


@dataclass(frozen=True)
class Schema:
    """Which columns of a table are features, targets and weights, and how text becomes numbers.

    A column with c categories becomes c columns of zeros and ones, one per category in sorted
    order; every other column stays one column. All fields survive JSON:
    ``Schema(**json.loads(json.dumps(dataclasses.asdict(schema)))) == schema``.

    Parameters
    ----------
    columns : sequence of str
        Names of the feature columns as they are in the table, in the order of the features.
    categories : mapping of str to sequence of str, or sequence of such pairs
        The categories of each feature column that holds text, default none.
    target : str, sequence of str or None
        One name gives y of shape (n,); a sequence of t names gives (n, t); None gives no y.
    weight : str or None
        The column that holds the sample weights.
    classes : sequence of str
        The sorted labels of a target of text, which becomes their numbers 0, 1, ...; empty for a
        target of numbers.

    Raises
    ------
    InvalidInput
        A column is named twice, or is both a feature and the target or weight.
    """

    columns: tuple[str, ...]
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    target: str | tuple[str, ...] | None = None
    weight: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.categories
        pairs = given.items() if isinstance(given, Mapping) else given
        target = self.target if isinstance(self.target, str | None) else tuple(self.target)
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "categories", tuple((name, tuple(c)) for name, c in pairs))
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "classes", tuple(self.classes))
        self._check()

    def _check(self) -> None:
        for name in self.raw_names:
            if not isinstance(name, str):
                raise InvalidType(f"Schema: column names must be text; got {name!r}.")
        _refuse(repeated(self.raw_names), "a column must have one role and be named once")
        _refuse(repeated(self.feature_names), "a column must not be named as another's category")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X: ``name`` for numbers, ``name=category`` for text."""
        categories = dict(self.categories)
        return tuple(
            feature
            for name in self.columns
            for feature in (
                (f"{name}={c}" for c in categories[name]) if name in categories else (name,)
            )
        )

    @property
    def target_names(self) -> tuple[str, ...] | None:
        """Names of the columns of y, or None if there is no y."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of all columns that are read: features, targets, weight."""
        weight = () if self.weight is None else (self.weight,)
        return (*self.columns, *(self.target_names or ()), *weight)

    def features_only(self) -> "Schema":
        """Return the schema without target and weight: what prediction reads."""
        return replace(self, target=None, weight=None, classes=())


def _refuse(names: Sequence[str], rule: str) -> None:
    if names:
        raise InvalidInput(
            f"Schema: {rule}; got {listed(names)} more than once. Rename or drop one."
        )


def repeated(names: Iterable[Any]) -> list[Any]:
    """Return the names that come more than once, each once."""
    seen: dict[Any, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


def listed(names: Iterable[object], most: int = 6) -> str:
    """Write names for a sentence: ``'a', 'b', ... (12 in all)``."""
    names = list(names)
    text = ", ".join(repr(name) for name in names[:most])
    return text if len(names) <= most else f"{text}, ... ({len(names)} in all)"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'delay'?)`` for ``dleay``, or nothing if no name is near."""
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, n=3)
    return f" (did you mean {' or '.join(repr(lower[k]) for k in near)}?)" if near else ""
