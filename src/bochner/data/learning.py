"""Learn the schema of tables, or hold them to one learned before."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bochner.data.schema import (
    CellCounts,
    Schema,
    Types,
    listed,
    require_known,
    shown,
    strays,
    types_of,
)
from bochner.data.tables import (
    CELLS_PER_PIECE,
    MOST_CATEGORIES,
    Column,
    Reader,
    Tables,
    missing_column,
    require_present,
    row_of,
    total_rows,
)
from bochner.errors import InvalidInput

Target = str | Sequence[str] | None


def open_tables(
    readers: Sequence[Reader],
    target: Target = None,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    dtypes: Types | None = None,
) -> Tables:
    """Return the source of these readers: schema given, or learned from the data."""
    readers, types = tuple(readers), types_of(dtypes)
    if types and schema is not None:
        raise InvalidInput(
            "Blocks: dtypes must be left out where schema is given, which says what columns are; "
            "got both."
        )
    _refuse_no_columns(columns)
    if total_rows(readers) == 0:
        raise InvalidInput(f"Blocks: a table must have at least one row; {_all(readers)} has none.")
    if schema is None:
        schema = _learned(readers, target, weight, columns, types)
    else:
        schema = _adapted(readers, schema, target, weight)
    widths = _dtype(readers, _numeric(schema)), _dtype(readers, schema.target_names)
    return Tables(readers, schema, *widths, total_rows(readers), len(schema.feature_names))


def _all(readers: tuple[Reader, ...]) -> str:
    return readers[0].label if len(readers) == 1 else f"each of the {len(readers)} files"


def _numeric(schema: Schema) -> list[str]:
    text = dict(schema.categories)
    return [name for name in schema.columns if name not in text]


def _dtype(readers: tuple[Reader, ...], names: Iterable[str] | None) -> np.dtype:
    """float32 if it holds every value of these columns and there are any, else float64."""
    wanted = set(names or ())
    columns = [c for reader in readers for c in reader.columns if c.name in wanted]
    return np.dtype(np.float32 if columns and all(c.narrow for c in columns) else np.float64)


def _refuse_no_columns(columns: Sequence[str] | None) -> None:
    if columns is not None and (isinstance(columns, str) or not len(columns)):
        raise InvalidInput(
            "Blocks: columns must name at least one feature column, as columns=['a', 'b']; got "
            f"{columns!r}. Leave it out to take all but target and weight."
        )


def _learned(
    readers: tuple[Reader, ...],
    target: Target,
    weight: str | None,
    columns: Sequence[str] | None,
    types: dict[str, str],
) -> Schema:
    if columns is None:
        _require_same_names(readers)
    draft = _draft(readers[0], target, weight, columns)
    require_known(types, draft.raw_names, readers[0].label)
    kinds = _kinds(readers, draft, types)
    _require_numbers(kinds, draft)
    text = tuple(name for name in draft.columns if kinds[name].kind == "text")
    found = dict(_categories(readers, text + _text_target(kinds, draft), types))
    classes = [found.pop(name) for name in _text_target(kinds, draft)]
    return replace(draft, categories=tuple(found.items()), classes=classes[0] if classes else ())


def _text_target(kinds: dict[str, Column], schema: Schema) -> tuple[str, ...]:
    """Return the target if it is one column of text: labels of classes."""
    one = isinstance(schema.target, str) and kinds[schema.target].kind == "text"
    return (schema.target,) if one else ()  # type: ignore[return-value]


def _draft(
    reader: Reader, target: Target, weight: str | None, columns: Sequence[str] | None
) -> Schema:
    """Return the roles of the columns of the first table; nothing known about categories yet."""
    bare = Schema(tuple(columns or ()), target=target, weight=weight)  # type: ignore[arg-type]
    if columns is not None:
        return bare
    others = {*(bare.target_names or ()), weight}
    _require_names(reader, bare)
    names = tuple(column.name for column in reader.columns if column.name not in others)
    if not names:
        raise InvalidInput(
            f"Blocks: {reader.label} must have at least one feature column beside target and "
            f"weight; got none{reader.hint}."
        )
    return replace(bare, columns=names)


def _require_names(reader: Reader, schema: Schema) -> None:
    known = {column.name for column in reader.columns}
    roles = [("column", name) for name in schema.columns]
    roles += [("target", name) for name in schema.target_names or ()]
    roles += [("weight", schema.weight)] if schema.weight is not None else []
    absent = [(role, name) for role, name in roles if name not in known]
    if absent:
        raise missing_column(absent, reader)


def _require_same_names(readers: tuple[Reader, ...]) -> None:
    """Files of one data set hold the same columns, or a column would be lost without a word."""
    first = {column.name for column in readers[0].columns}
    for reader in readers[1:]:
        names = {column.name for column in reader.columns}
        if names != first:
            lacks, adds = sorted(first - names), sorted(names - first)
            said = [f"lacks {listed(lacks)}"] * bool(lacks) + [f"adds {listed(adds)}"] * bool(adds)
            raise InvalidInput(
                "Blocks: all files of a data set must have the same columns; "
                f"{reader.label} {' and '.join(said)} compared with {readers[0].label}. "
                "Read them apart, or name the columns to use with columns=[...]."
            )


def _kinds(readers: tuple[Reader, ...], schema: Schema, types: dict[str, str]) -> dict[str, Column]:
    """Return the kind of each column used, the same in every file that has values in it."""
    kinds: dict[str, tuple[Column, Reader]] = {}
    for reader in readers:
        _require_names(reader, schema)
        for found in reader.columns:
            column = _as_declared(found, types)
            known, where = kinds.setdefault(column.name, (column, reader))
            if known.kind == "nothing":
                kinds[column.name] = (column, reader)
            elif column.kind not in (known.kind, "nothing") and column.name in schema.raw_names:
                raise _differing((column, reader), (known, where))
    return {name: column for name, (column, _) in kinds.items()}


def _as_declared(column: Column, types: dict[str, str]) -> Column:
    """Return the column as numbers or text where the user says so and it can be."""
    kind = {"number": "numbers", "category": "text"}.get(types.get(column.name, ""))
    if kind is None or column.kind not in ("numbers", "text"):
        return column
    return column._replace(kind=kind, narrow=column.narrow and kind == "numbers")


def _differing(here: tuple[Column, Reader], there: tuple[Column, Reader]) -> InvalidInput:
    """Say that files hold different kinds of values; of text beside numbers, which cell."""
    (column, reader), (known, where) = here, there
    first = ""
    if {column.kind, known.kind} == {"numbers", "text"}:
        first = _first_stray([reader if column.kind == "text" else where], column.name)
    return InvalidInput(
        "Blocks: all files of a data set must hold the same kind of values; column "
        f"{column.name!r} holds {column.kind} in {reader.label} and {known.kind} in "
        f"{where.label}{first and f', first {first}'}. Make them alike, or say what it is with "
        f"dtypes={{{column.name!r}: 'number'}} or 'category' (on the command line "
        f"--types {column.name}=number)."
    )


def _frames(readers: Iterable[Reader], names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Give (reader, number of the first row, frame) of these columns, all read as text."""
    for reader in readers:
        start = 0
        for frame in reader.frames(names, frozenset(names), CELLS_PER_PIECE // len(names) + 1):
            yield reader, start, frame
            start += len(frame)


def _first_stray(readers: Iterable[Reader], name: str) -> str:
    """Return the first cell of a column that is no number, and where it is; "" if all are."""
    for reader, start, frame in _frames(readers, (name,)):
        for cell in strays(frame[name].to_list(), start):
            return f"{shown(cell.text)} in {reader.place(cell.row)}"
    return ""


def _require_numbers(kinds: dict[str, Column], schema: Schema) -> None:
    """Refuse what is neither number nor text; targets and weights that are not numbers."""
    for name in schema.columns:
        _refuse_kind(f"column {name!r}", kinds[name], ("numbers", "text"))
    allowed = ("numbers", "text") if isinstance(schema.target, str) else ("numbers",)
    for name in schema.target_names or ():
        _refuse_kind(f"target {name!r}", kinds[name], allowed)
    if schema.weight is not None:
        _refuse_kind(f"weight {schema.weight!r}", kinds[schema.weight], ("numbers",))


_REMEDY = {
    "text": "Code it as numbers first.",
    "dates or times": "Turn it into numbers first, e.g. days since the first.",
    "lists or records": "Spread it over several columns of numbers first.",
    "nothing": "Fill it or drop it.",
}


def _refuse_kind(who: str, column: Column, allowed: tuple[str, ...]) -> None:
    if column.kind in allowed:
        return
    got = f"{column.kind} ({column.shown})" if column.shown else column.kind
    remedy = _REMEDY.get(column.kind, "Turn it into numbers or text first.")
    leave = " Or leave it out with columns=[...]." if who.startswith("column") else ""
    raise InvalidInput(
        f"Blocks: {who} must hold {' or '.join(allowed)}; got {got}. {remedy}{leave}"
    )


def _categories(
    readers: tuple[Reader, ...], names: tuple[str, ...], types: dict[str, str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the sorted distinct values of columns of text, in one pass over these columns only."""
    found: dict[str, set[str]] = {name: set() for name in names}
    tallies = {name: CellCounts() for name in names if name not in types}
    for reader, start, frame in _frames(readers, names) if names else ():
        free = _free_text(reader)
        for name in names:
            require_present(frame[name], row_of(reader, start))
            values = frame[name].to_list()
            found[name].update(map(str, set(values)))
            if name in free and name in tallies:
                tallies[name].add(values)
            _require_few(name, found[name], tallies.get(name), readers)
    for name, tally in tallies.items():
        if tally.strays:
            raise _stray(name, readers, len(found[name]))
    return tuple((name, tuple(sorted(found[name]))) for name in names)


def _free_text(reader: Reader) -> set[str]:
    """Return the columns that hold any text; a type of categories is a choice."""
    return {c.name for c in reader.columns if c.shown.lower().endswith(("string", "string_view"))}


def _stray(name: str, readers: tuple[Reader, ...], texts: int) -> InvalidInput:
    """Say which cell keeps a column from being numbers, and what it would be with it."""
    tally = CellCounts()
    for _, _, frame in _frames(readers, (name,)):
        tally.add(frame[name].to_list())
    more = tally.others - 1
    return InvalidInput(
        f"Blocks: column {name!r} must hold numbers or categories; {tally.numbers:,} of its cells "
        f"are numbers and {tally.others:,} {'are' if more else 'is'} not, first "
        f"{_first_stray(readers, name)}. Mend {'them' if more else 'it'}, or with "
        f"dtypes={{{name!r}: 'category'}} (on the command line --types {name}=category) take "
        f"{'more than' * (texts > MOST_CATEGORIES)} {min(texts, MOST_CATEGORIES):,} columns of 0 "
        "and 1 in its place."
    )


def _require_few(
    name: str, values: set[str], tally: CellCounts | None, readers: tuple[Reader, ...]
) -> None:
    if len(values) > MOST_CATEGORIES:
        if tally is not None and tally.strays:
            raise _stray(name, readers, len(values))
        raise InvalidInput(
            f"Blocks: column {name!r} must have at most {MOST_CATEGORIES} different texts to "
            f"become columns of 0 and 1; got more, e.g. {listed(sorted(values), 3)}. Group "
            "rare ones, turn it into numbers, or leave it out with columns=[...]."
        )


def _adapted(
    readers: tuple[Reader, ...], schema: Schema, target: Target, weight: str | None
) -> Schema:
    """Return the schema without a target or weight that these tables do not have."""
    known = {column.name for column in readers[0].columns}
    if target is not None:
        schema = replace(schema, target=target)  # type: ignore[arg-type]
    elif not known.issuperset(schema.target_names or ()):
        schema = replace(schema, target=None, classes=())
    if weight is not None:
        schema = replace(schema, weight=weight)
    elif schema.weight not in known:
        schema = replace(schema, weight=None)
    _hold(readers, schema)
    return schema


def _hold(readers: tuple[Reader, ...], schema: Schema) -> None:
    """Refuse tables whose columns are not of the kinds that the schema was learned from."""
    text = {*dict(schema.categories), *([schema.target] if schema.classes else [])}
    numbers = {*_numeric(schema), *(schema.target_names or ()), schema.weight} - text
    for reader in readers:
        _require_names(reader, schema)
        for column in reader.columns:
            if column.kind == "nothing":  # its first row says so when it is read
                continue
            if column.name in numbers:
                _refuse_text(column, reader)
            elif column.name in text and column.kind not in ("text", "numbers"):
                _refuse_kind(f"{column.name!r} of {reader.label}", column, ("text",))


def _refuse_text(column: Column, reader: Reader) -> None:
    """Refuse a column that must hold numbers and does not, naming the first cell of text."""
    who = f"{column.name!r} of {reader.label}"
    if column.kind != "text":
        return _refuse_kind(who, column, ("numbers",))
    first = _first_stray([reader], column.name)
    if first:
        raise InvalidInput(
            f"Blocks: {who} must hold numbers; got text, first {first}. Mend the cell, or drop "
            "its row."
        )
    return None
