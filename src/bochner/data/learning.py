"""Learn the schema of tables, or check them against a schema learned before."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bochner._core.checks import one_of, warn_user
from bochner.data import encoders
from bochner.data.columns import NOTHING
from bochner.data.encoders import Encoder, Levels, Numbers, Times
from bochner.data.frames import rows_without_target
from bochner.data.partitions import map_partitions
from bochner.data.schema import Schema, did_you_mean, quote
from bochner.data.tables import CELLS_PER_PIECE, Column, Reader, Tables, compact, without_target
from bochner.errors import DataWarning, InvalidInput, InvalidType

Target = str | Sequence[str] | None

#: Kinds that users give for columns: "number" or "category", by name.
Types = Mapping[str, str]

#: Kinds of columns by the words of users.
_KIND_OF_WORD = {"number": "numbers", "category": "text"}

#: Most different texts of a column of categories.
MAX_LEVELS = 100_000

#: Kinds of columns that a fit can encode as numbers.
USABLE = ("numbers", "text", "dates or times", "nothing")

#: Types of numbers whose values float32 holds.
NARROW = {"bool", "int8", "int16", "uint8", "uint16", "halffloat", "float"}

_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


def open_tables(
    readers: Sequence[Reader],
    target: Target = None,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    dtypes: Types | None = None,
    drop: Sequence[str] | None = None,
) -> Tables:
    """Return the rows of these readers as a source, with ``schema`` or one learned from them."""
    readers, types = tuple(readers), dtypes or {}
    counts = [reader.n_rows for reader in readers]
    rows = None if None in counts else sum(filter(None, counts))
    if not isinstance(types, Mapping):
        raise InvalidType(
            "Blocks: dtypes must be a mapping from names of columns to 'number' or 'category'; "
            f"got {type(types).__name__}."
        )
    for name, kind in types.items():
        one_of(kind, "Blocks", f"dtypes[{name!r}]", tuple(_KIND_OF_WORD))
    if types and schema is not None:
        raise InvalidInput(
            "Blocks: dtypes must not be passed with schema, which has the types; got both."
        )
    if rows == 0:
        label = readers[0].label if len(readers) == 1 else f"each of the {len(readers)} files"
        raise InvalidInput(f"Blocks: a table must have at least one row; {label} has none.")
    drafts: tuple[Encoder, ...] | None = None
    if schema is None:
        roles = _roles(readers, target, weight, columns, drop)
        schema, drafts, readers = _learn(readers, roles, types)
    else:
        schema = _adapt(readers, schema, target, weight)
        readers, _ = _scan(readers, schema.target_names or (), ())
    numbers = [e.name for e in schema.plain if isinstance(e, Numbers)]
    n_more = len(readers) - 1
    return Tables(
        readers,
        label=readers[0].label + f" and {n_more} more file{'s' * (n_more > 1)}" * (n_more > 0),
        schema=schema,
        dtype=_dtype(readers, numbers),
        target_dtype=_dtype(readers, schema.target_names or ()),
        n_rows=None if rows is None else rows - sum(len(r.absent) for r in readers),
        n_columns=len(schema.feature_names),
        drafts=drafts,
    )


def _dtype(readers: tuple[Reader, ...], names: Iterable[str]) -> np.dtype:
    """Return float32 if it represents all values of these columns (one at least), else float64."""
    columns = set(names)
    types = {c.type_text for reader in readers for c in reader.columns if c.name in columns}
    return np.dtype(np.float32 if types and types <= NARROW else np.float64)


# --- The roles of columns -------------------------------------------------------------------------


def _roles(
    readers: tuple[Reader, ...],
    target: Target,
    weight: str | None,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
) -> Schema:
    """Return a schema with the roles of columns; a pattern selects all columns that match."""
    reader, roles = readers[0], Schema((), target=target, weight=weight)  # type: ignore[arg-type]
    not_features = {*(roles.target_names or ()), weight}
    names = [c.name for c in reader.columns if c.name not in not_features]
    if columns is None and drop is None:
        _require_same_names(readers)
    matches = names if columns is None else _matching(columns, names, reader)
    drops = set(_matching(drop or (), names, reader, " to drop"))
    features = tuple(name for name in matches if name not in drops)
    if not features:
        suffix = f", without {quote(drops)} of drop" if drops else ""
        raise InvalidInput(
            f"Blocks: {reader.label} must have at least one feature column besides target and "
            f"weight{suffix}; got none{reader.hint}."
        )
    return replace(roles, columns=features)


def _matching(
    patterns: Sequence[str], candidates: list[str], reader: Reader, purpose: str = ""
) -> list[str]:
    """Return the columns with these names, or that match these patterns (``*``, ``?``, ``[``)."""
    names: dict[str, None] = {}
    patterns = [patterns] if isinstance(patterns, str) else patterns
    for pattern in patterns:
        is_name = pattern in candidates or not any(c in str(pattern) for c in "*?[")
        matching = [pattern] if is_name else fnmatch.filter(candidates, pattern)
        if not matching or (is_name and purpose and pattern not in candidates):
            role = "a column {}" if is_name else "a column that matches {}"
            raise _missing_column([(role + purpose, pattern)], reader)
        names |= dict.fromkeys(matching)
    return list(patterns if len({*patterns}) < len(patterns) else names)


def _missing_column(absent: list[tuple[str, str]], reader: Reader) -> InvalidInput:
    """Return the error about absent columns, each with a description as "a target column {}"."""
    names = [column.name for column in reader.columns]
    columns = [f"{role.format(repr(name))}{did_you_mean(name, names)}" for role, name in absent[:6]]
    suffix = f" and {len(absent) - 6} more" if len(absent) > 6 else ""
    return InvalidInput(
        f"Blocks: {reader.label} must have {', '.join(columns)}{suffix}; its columns are "
        f"{quote(names)}{reader.hint}."
    )


def _require_names(reader: Reader, schema: Schema) -> None:
    names_ = {column.name for column in reader.columns}
    roles = [("a column {}", name) for name in schema.used_columns]
    roles += [("a target column {}", name) for name in schema.target_names or ()]
    roles += [("a weight column {}", schema.weight)] if schema.weight is not None else []
    if absent := [(role, name) for role, name in roles if name not in names_]:
        raise _missing_column(absent, reader)


def _require_same_names(readers: tuple[Reader, ...]) -> None:
    """Raise an error if the files of a data set have different columns."""
    first = {column.name for column in readers[0].columns}
    for reader in readers[1:]:
        names = {column.name for column in reader.columns}
        differ = (("lacks", sorted(first - names)), ("adds", sorted(names - first)))
        if parts := [f"{verb} {quote(columns)}" for verb, columns in differ if columns]:
            raise InvalidInput(
                "Blocks: all files of a data set must have the same columns; "
                f"{reader.label} {' and '.join(parts)} compared with {readers[0].label}. "
                "Read them separately, or name the columns to use with columns=[...]."
            )


def _scan(
    readers: tuple[Reader, ...], targets: tuple[str, ...], names: tuple[str, ...]
) -> tuple[tuple[Reader, ...], dict[str, set[str]]]:
    """Return readers with the indices of rows without a target, and the texts of other rows."""
    texts_by_name: dict[str, set[str]] = {name: set() for name in names}
    columns = tuple(dict.fromkeys((*targets, *names)))
    if not columns:
        return readers, {}
    partitions = [r.partition for r in readers if r.partition and r.partition.library]
    if partitions and not names:  # workers look at the rows that they hold
        rows = sum(reader.n_rows or 0 for reader in readers)
        absent = map_partitions(partitions, partial(rows_without_target, targets))
    else:
        absent, rows = [], 0
        for reader in readers:
            start, gaps = 0, [reader.absent]
            size = CELLS_PER_PIECE // len(columns) + 1
            for frame in reader.read(reader, columns, frozenset(columns), size):
                gaps.append(start + without_target(frame, targets))
                present_rows, _ = compact(frame, start, gaps[-1])
                start += frame.num_rows
                for name, texts in texts_by_name.items():
                    if len(texts) <= MAX_LEVELS:
                        texts.update(encoders.texts_in(encoders.column_of(present_rows, name)))
            absent.append(np.concatenate(gaps))
            rows += start
    readers = tuple(replace(r, absent=a) for r, a in zip(readers, absent, strict=True))
    if missing := sum(map(len, absent)):
        reader = next(r for r in readers if len(r.absent))
        place = f"in {reader.place(int(reader.absent[0]))}"
        warn_without_target("Blocks", targets, missing, rows, place)
    return readers, texts_by_name


def warn_without_target(
    caller: str, names: Sequence[str], missing: int, rows: int, first: str
) -> None:
    """Warn of rows without a target, which are left out; raise an error if all are."""
    target = " or ".join(map(repr, names))
    if missing == rows:
        raise InvalidInput(
            f"{caller}: at least one row must have a target {target}; got none in {rows:,} rows."
        )
    message = f"rows without a target {target} are left out: {missing:,} of {rows:,}"
    warn_user(f"{caller}: {message}; first {first}.", DataWarning)


def _learn(
    readers: tuple[Reader, ...], draft: Schema, types: Types
) -> tuple[Schema, tuple[Encoder, ...], tuple[Reader, ...]]:
    """Return the schema, the encoders to fit, and readers that know which rows have no target."""
    if extras := sorted({*types} - {*draft.raw_names}):
        raise InvalidInput(
            f"Blocks: dtypes must name columns of {readers[0].label}; got {quote(extras)}, which "
            f"it does not use; it uses {quote(draft.raw_names)}."
        )
    kinds = _kinds(readers, draft, types)
    roles = tuple(n for n in draft.raw_names[len(draft.columns) :] if kinds[n].kind == "text")
    kinds_read = {"text"} | ({"dates or times", "nothing"} if readers[0].text_file else set())
    features = (name for name in draft.columns if kinds[name].kind in kinds_read)
    targets = tuple(name for name in draft.target_names or () if kinds[name].kind in USABLE)
    readers, texts = _scan(readers, targets, (*features, *roles))
    # targets and weights written with decimal commas are read as numbers
    commas = filter(lambda name: _have_commas(texts[name]), roles)
    kinds |= {name: kinds[name]._replace(kind="numbers") for name in commas}
    target = draft.target
    has_classes = isinstance(target, str) and kinds[target].kind == "text"
    kinds_ok = ("numbers", "text") if isinstance(target, str) else ("numbers",)
    errors = [_wrong_kind(f"column {n!r}", kinds[n], USABLE) for n in draft.columns]
    errors += [_wrong_kind(f"target {n!r}", kinds[n], kinds_ok) for n in draft.target_names or ()]
    if draft.weight is not None:
        errors.append(_wrong_kind(f"weight {draft.weight!r}", kinds[draft.weight], ("numbers",)))
    if any(errors):
        raise InvalidInput(f"Blocks: {' '.join(filter(None, errors))}")
    classes = tuple(sorted(texts[str(target)])) if has_classes else ()
    outcomes = {name: _draft_of(kinds[name], texts.get(name), types) for name in draft.columns}
    drops = tuple((name, reason) for name, reason in outcomes.items() if isinstance(reason, str))
    drafts = tuple(encoder for encoder in outcomes.values() if isinstance(encoder, Encoder))
    levels = tuple((e.name, tuple(sorted(texts[e.name]))) for e in drafts if isinstance(e, Levels))
    for name, values in levels:
        # a type of categories was chosen on purpose
        is_free = kinds[name].type_text.lower().endswith(("string", "string_view"))
        if is_free and name not in types:
            _warn_of_strays(name, values)
    return replace(draft, categories=levels, classes=classes, dropped=drops), drafts, readers


def _kinds(readers: tuple[Reader, ...], schema: Schema, types: Types) -> dict[str, Column]:
    """Return the kind of each column; an error is raised if files disagree on a column used."""
    kinds: dict[str, tuple[Column, str]] = {}
    for reader in readers:
        _require_names(reader, schema)
        for column in reader.columns:
            if column.name in types and column.kind in USABLE:
                column = column._replace(kind=_KIND_OF_WORD[types[column.name]])  # noqa: PLW2901
            first, label = kinds.setdefault(column.name, (column, reader.label))
            if first.kind == "nothing":
                kinds[column.name] = (column, reader.label)
            elif column.kind not in (first.kind, "nothing") and column.name in schema.raw_names:
                raise InvalidInput(
                    "Blocks: all files of a data set must hold the same kind of values; column "
                    f"{column.name!r} holds {column.kind} in {reader.label} and {first.kind} in "
                    f"{label}. Make them alike, or set it with dtypes={{{column.name!r}: "
                    f"'number'}} or 'category' (on the command line --types {column.name}=number)."
                )
    return {name: column for name, (column, _) in kinds.items()}


def _draft_of(  # noqa: PLR0911  one for each kind
    column: Column, texts: set[str] | None, types: Types
) -> Encoder | str:
    """Return the encoder to be fitted to a column, or the reason to drop the column."""
    name = column.name
    if column.kind == "nothing" if texts is None else not texts:
        return NOTHING
    if texts is None:
        if column.kind != "dates or times":
            return Numbers(name)
        type_text = column.type_text.lower()
        is_clock = type_text.startswith("time") and not type_text.startswith("timestamp")
        return Times(name, ("day",) if is_clock else ("trend",))
    if types.get(name) != "category":
        are_numbers = column.kind == "nothing" and all(map(encoders.is_number, texts))
        if are_numbers or _have_commas(texts):
            return Numbers(name, comma=not are_numbers)
        if form := encoders.form_of(texts):
            return Times(name, ("day",) if form == "clock" else ("trend",), form=form)
    if len(texts) > MAX_LEVELS:
        return f"over {MAX_LEVELS:,} different texts"
    if column.order:
        return encoders.ordinal(name, column.order)
    absent = (level for level in column.declared if level not in texts)
    return Levels(name, tuple(sorted(texts)), declared=tuple(absent))


def _have_commas(texts: set[str]) -> bool:
    """Whether texts are numbers, some with a decimal comma."""
    return any(map(_COMMA.fullmatch, texts)) and all(
        _COMMA.fullmatch(text) or encoders.is_number(text) for text in texts
    )


def _wrong_kind(caller: str, column: Column, valid: tuple[str, ...]) -> str:
    """Return the error in the kind of a column; "" if the kind is allowed."""
    if column.kind in valid:
        return ""
    content = f"{column.kind} ({column.type_text})" if column.type_text else column.kind
    remedies = {
        "text": "Code it as numbers first.",
        "dates or times": "Turn it into numbers first, e.g. days since the first.",
        "lists or records": "Spread it over several columns of numbers first.",
        "nothing": "Fill it or drop it.",
    }
    remedy = remedies.get(column.kind, "Turn it into numbers or text first.")
    leave = " Or drop it." if caller.startswith("column") else ""
    *first, last = (kind for kind in valid if kind != "nothing")
    words = f"{', '.join(first)} or {last}" if first else last
    return f"{caller} must hold {words}; got {content}. {remedy}{leave}"


def _warn_of_strays(name: str, values: tuple[str, ...]) -> None:
    """Warn of a text column whose values are numbers with few exceptions."""
    strays = [value for value in values if not encoders.is_number(value)]
    numbers = len(values) - len(strays)
    if strays and numbers >= max(4, 9 * len(strays)):  # perhaps meant to hold numbers
        warn_user(
            f"Blocks: column {name!r} is text, since it has {quote(strays, 3)} besides "
            f"{numbers:,} different numbers. Correct or empty such cells, or set its type with "
            f"dtypes={{{name!r}: 'category'}} (on the command line --types {name}=category).",
            DataWarning,
        )


# --- A schema that was learned before -------------------------------------------------------------


def _adapt(
    readers: tuple[Reader, ...], schema: Schema, target: Target, weight: str | None
) -> Schema:
    """Return the schema, without a weight or target that is absent or empty in these tables."""
    names = {column.name for column in readers[0].columns}
    holding = {column.name for column in readers[0].columns if column.kind != "nothing"}
    if target is not None:
        schema = replace(schema, target=target)  # type: ignore[arg-type]
    elif not holding.issuperset(schema.target_names or ()):
        schema = replace(schema, target=None, classes=())
    if weight is not None or schema.weight not in names:
        schema = replace(schema, weight=weight)
    for reader in readers:
        _require_names(reader, schema)
        for column in reader.columns:
            error = _wrong_kind(f"column {column.name!r} of {reader.label}", column, USABLE)
            if error and column.name in schema.read_names:
                raise InvalidInput(f"Blocks: {error}")
    return schema
