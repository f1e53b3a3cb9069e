"""What columns of a table become: values that a fit learns and predictions apply.

An encoder turns the cells of one column, as numbers, into columns of X. Cells of text are places
among its levels, cells that are dates or times are seconds; a missing cell is NaN, a text that is
no level −1. Fields are texts and tuples of numbers, so that they survive JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from bochner.errors import InvalidInput

#: A text that is none of the levels, and one that the type of its column declared beside them.
UNSEEN, DECLARED = -1.0, -2.0


class Lookup:
    """The place of each text among levels, −2 for declared texts: by dictionary, and by Arrow."""

    def __init__(self, levels: tuple[str, ...], declared: tuple[str, ...] = ()) -> None:
        places = {level: float(j) for j, level in enumerate(levels)}
        self.place = dict.fromkeys(declared, DECLARED) | places
        self.codes = np.array([*self.place.values(), UNSEEN])

    @cached_property
    def arrow(self) -> Any:
        """The texts in Arrow, in the order of ``codes``; ``pa.array`` would import pandas."""
        import pyarrow as pa

        texts = [text.encode() for text in self.place]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        buffers = (pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
        return pa.LargeStringArray.from_buffers(len(texts), *buffers)


class Encoder(ABC):
    """What one column of a table becomes."""

    name: str
    declared: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: tables that are computed from them are made again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @cached_property
    def lookup(self) -> Lookup:
        """Places of the levels."""
        return Lookup(self.levels or (), self.declared)

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""

    @abstractmethod
    def encode(self, cells: np.ndarray) -> np.ndarray:
        """Return the columns of X."""

    @property
    def levels(self) -> tuple[str, ...] | None:
        """Texts that cells are places among; None where cells are no texts."""
        return None

    @property
    def is_lossy(self) -> bool:
        """Whether it fills, leaves out or replaces anything."""
        return True

    def surprises(self, cells: np.ndarray) -> str:  # noqa: ARG002
        """Return what cells hold that those of the fit did not, "" if nothing."""
        return ""


def _with_indicator(columns: np.ndarray, missing: np.ndarray, wanted: bool) -> np.ndarray:
    return np.column_stack([columns, missing]) if wanted else columns


def _indicator(name: str, wanted: bool) -> tuple[str, ...]:
    return (f"{name} is missing",) * wanted


@dataclass(frozen=True)
class NumberColumn(Encoder):
    """Numbers: one column, with a fill where they are missing.

    Parameters
    ----------
    name : str
    fill : float
        The median, in place of missing numbers.
    indicator : bool
        Whether a column of 0 and 1 says where they are missing: where some are in the fit.
    comma : bool
        Whether the numbers are texts with a comma before the decimals.
    """

    name: str
    fill: float = 0.0
    indicator: bool = False
    comma: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name, *_indicator(self.name, self.indicator))

    @property
    def is_lossy(self) -> bool:
        return self.indicator or self.comma

    def encode(self, cells: np.ndarray) -> np.ndarray:
        missing = np.isnan(cells)
        filled = np.where(missing, self.fill, cells)[:, None]
        return _with_indicator(filled, missing, self.indicator)

    def surprises(self, cells: np.ndarray) -> str:
        return _missing_at_last(self.indicator, cells, "count as the median")


def _missing_at_last(known: bool, cells: np.ndarray, words: str) -> str:
    return "" if known or not np.isnan(cells).any() else f"missing values, which {words}"


@dataclass(frozen=True)
class OneHot(Encoder):
    """Categories: a column of 0 and 1 for each level.

    Parameters
    ----------
    name : str
    of : tuple of str
        The levels, sorted.
    indicator : bool
        Whether missing ones are a category of their own: where some are in the fit.
    others : bool
        Whether rarer levels were left out on purpose: they are all zeros, without a word.
    declared : tuple of str
        Further levels of the column's categorical type, which no row of the fit has: likewise.
    """

    name: str
    of: tuple[str, ...]
    indicator: bool = False
    others: bool = False
    declared: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (
            *(f"{self.name}={level}" for level in self.of),
            *_indicator(self.name, self.indicator),
        )

    @property
    def levels(self) -> tuple[str, ...]:
        return self.of

    @property
    def is_lossy(self) -> bool:
        return self.indicator or self.others

    def encode(self, cells: np.ndarray) -> np.ndarray:
        columns = (cells[:, None] == np.arange(len(self.of))).astype(np.float64)
        return _with_indicator(columns, np.isnan(cells), self.indicator)

    def surprises(self, cells: np.ndarray) -> str:
        if not self.others and np.any(cells == UNSEEN):
            return "categories that the fit has not seen, which count as none of its own"
        return _missing_at_last(self.indicator, cells, "count as none of its categories")


@dataclass(frozen=True)
class Ordered(Encoder):
    """Categories with an order: one column of their places, 0 for the first and 1 for the last.

    Parameters
    ----------
    name : str
    of : tuple of str
        The levels in their order.
    fill : float
        The median place, for those that are missing or no level.
    indicator : bool
        Whether a column of 0 and 1 says where they are missing: where some are in the fit.
    """

    name: str
    of: tuple[str, ...]
    fill: float = 0.5
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name, *_indicator(self.name, self.indicator))

    @property
    def levels(self) -> tuple[str, ...]:
        return self.of

    def encode(self, cells: np.ndarray) -> np.ndarray:
        known = cells >= 0
        places = np.where(known, cells / max(1, len(self.of) - 1), self.fill)
        return _with_indicator(places[:, None], np.isnan(cells), self.indicator)

    def surprises(self, cells: np.ndarray) -> str:
        if np.any(cells == UNSEEN):
            return "categories that the fit has not seen, which count as the middle one"
        return _missing_at_last(self.indicator, cells, "count as the middle category")


@dataclass(frozen=True)
class TargetMeans(Encoder):
    """Categories of many levels: the mean target of each, drawn towards that of all rows.

    Levels of equal means are one to a kernel of means alone, and what another column does at one
    level it would do at all of about the same mean. Codes keep levels apart in few columns
    (:func:`codes_of_levels`).

    Parameters
    ----------
    name : str
    of : tuple of str
        The levels, sorted.
    means : tuple of (t,) tuples
        Of each level, then of missing cells; [Micci-Barreca (2001)].
    prior : (t,) tuple
        Of all rows, for a level that is not among these.
    coded : bool
        Whether CODE columns of 0 and 1 follow, by which each level is told from the others.
    """

    name: str
    of: tuple[str, ...]
    means: tuple[tuple[float, ...], ...]
    prior: tuple[float, ...]
    coded: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        t = len(self.prior)
        means = (f"{self.name} (target{f' {i}' * (t > 1)})" for i in range(t))
        return (*means, *(f"{self.name} (code {i})" for i in range(CODE * self.coded)))

    @property
    def levels(self) -> tuple[str, ...]:
        return self.of

    def places(self, cells: np.ndarray) -> np.ndarray:
        """Return the places in the table of means: missing cells, then unseen ones, come last."""
        last = float(len(self.of))
        return np.where(np.isnan(cells), last, np.where(cells == UNSEEN, last + 1, cells)).astype(
            np.intp
        )

    def encode(self, cells: np.ndarray) -> np.ndarray:
        places = self.places(cells)
        return self.with_codes(self._table[places], places)

    @cached_property
    def _table(self) -> np.ndarray:
        return np.array([*self.means, self.prior])

    @cached_property
    def _codes(self) -> np.ndarray:
        return codes_of_levels(len(self.of) + 1)

    def with_codes(self, means: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return mean targets and, where levels have them, the codes of these places."""
        if not self.coded:
            return means
        return np.hstack([means, self._codes[places]])

    def surprises(self, cells: np.ndarray) -> str:
        many = np.mean(cells == UNSEEN) if len(cells) else 0.0
        if many > 0.5:
            return "mostly categories that the fit has not seen, which count as the mean of all"
        return ""


#: Columns of a code, and levels that have one at most.
CODE, MOST_CODED = 16, 1 << 11


def codes_of_levels(count: int) -> np.ndarray:
    """Return so many words of 0 and 1, (count + 1, CODE): any two differ in at least 4 columns.

    They are words of the Reed–Muller code RM(2, 4), of 2¹¹ words (MacWilliams and Sloane, 1977,
    chapter 13): the bits of a level's number times all monomials of degree ≤ 2 at the 16 points of
    {0, 1}⁴. In the mean they differ in half of the columns, so that a kernel of codes is nearly
    that of one column for each level, and each column is 1 for about half of the levels, so that
    its lengthscale can be told from few rows. The last word, of levels that are not among these,
    is as far from all others.
    """
    x = (np.arange(CODE)[:, None] >> np.arange(4)) & 1
    pairs = [x[:, i] * x[:, j] for i in range(4) for j in range(i)]
    monomials = np.column_stack([np.ones(CODE, np.int64), x, *pairs])
    bits = (np.arange(count)[:, None] >> np.arange(monomials.shape[1])) & 1
    return np.vstack([(bits @ monomials.T) % 2, np.full(CODE, 0.5)])


# --- Times ---------------------------------------------------------------------------------------

DAY = 86_400.0

#: Days of a mean Gregorian year.
YEAR = 365.2425

#: The first day of the Unix epoch was a Thursday; weeks begin on Mondays.
_THURSDAY = 3


def _turns(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angle = 2 * np.pi * turns
    return np.sin(angle), np.cos(angle)


#: What a time becomes: of each part the names of its columns, and the columns.
PARTS: dict[str, tuple[tuple[str, ...], Callable[[np.ndarray], tuple[np.ndarray, ...]]]] = {
    "trend": (("days",), lambda s: (s / DAY,)),
    "year": (("season, sine", "season, cosine"), lambda s: _turns(s / (DAY * YEAR))),
    "week": (("week, sine", "week, cosine"), lambda s: _turns((s / DAY + _THURSDAY) / 7)),
    "day": (("hour, sine", "hour, cosine"), lambda s: _turns(s / DAY)),
}


def parts_for(seconds: np.ndarray, clock: bool) -> tuple[str, ...]:
    """Return what times vary in: those of a clock in the hour; dates in what they span twice.

    First days of months stand for the months, which have no day of the week.
    """
    if clock:
        return ("day",)
    known = seconds[np.isfinite(seconds)]
    span = float(np.ptp(known)) / DAY if len(known) else 0.0
    within = bool(np.any(known % DAY != known[0] % DAY)) if len(known) else False
    weekly = span >= 14 and not _are_months(known)
    rules = {"trend": True, "year": span > YEAR, "week": weekly, "day": within and span >= 2}
    return tuple(part for part, holds in rules.items() if holds)


def _are_months(seconds: np.ndarray) -> bool:
    """Whether all are the first moment of a month."""
    times = seconds.astype("datetime64[s]")
    return bool(np.all(times == times.astype("datetime64[M]")))


def columns_of(seconds: np.ndarray, parts: Iterable[str]) -> np.ndarray:
    """Return the columns that times become, in the order of their parts."""
    return np.column_stack([column for part in parts for column in PARTS[part][1](seconds)])


def names_of(name: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of these columns."""
    return tuple(f"{name} ({word})" for part in parts for word in PARTS[part][0])


@dataclass(frozen=True)
class TimeColumn(Encoder):
    """Dates and times: trend in days, season of the year and of the week, and hour.

    Parameters
    ----------
    name : str
    parts : tuple of {"trend", "year", "week", "day"}
        The parts that vary. All but the trend are cyclic, as a sine and a cosine.
    origin : float
        Seconds from 1970 to where the trend is zero.
    fill : float
        The median in seconds, in place of missing ones.
    indicator : bool
        Whether a column of 0 and 1 says where they are missing: where some are in the fit.
    form : str
        How texts write them; "" for columns of a type of their own.
    """

    name: str
    parts: tuple[str, ...]
    origin: float = 0.0
    fill: float = 0.0
    indicator: bool = False
    form: str = ""

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (*names_of(self.name, self.parts), *_indicator(self.name, self.indicator))

    def encode(self, cells: np.ndarray) -> np.ndarray:
        missing = np.isnan(cells)
        columns = columns_of(np.where(missing, self.fill, cells), self.parts)
        if "trend" in self.parts:
            columns[:, 0] -= self.origin / DAY
        return _with_indicator(columns, missing, self.indicator)

    def surprises(self, cells: np.ndarray) -> str:
        return _missing_at_last(self.indicator, cells, "count as the median time")


@dataclass(frozen=True)
class DroppedColumn(Encoder):
    """A column that tells rows apart by nothing, or by everything.

    Parameters
    ----------
    name : str
    reason : str
        What it holds, in a few words.
    """

    name: str
    reason: str

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ()

    def encode(self, cells: np.ndarray) -> np.ndarray:
        return np.empty((len(cells), 0))


#: Which encoder has these fields.
_KINDS: dict[frozenset[str], type] = {
    frozenset(field.name for field in fields(cls)): cls
    for cls in (NumberColumn, OneHot, Ordered, TargetMeans, TimeColumn, DroppedColumn)
}


def as_encoder(given: Encoder | Mapping[str, Any]) -> Encoder:
    """Return the encoder, which may be a mapping of all its fields, as JSON has it."""
    if isinstance(given, Encoder):
        return given
    kind = _KINDS.get(frozenset(given))
    if kind is None:
        known = ", ".join(cls.__name__ for cls in _KINDS.values())
        raise InvalidInput(
            f"Schema: an encoder must have all fields of one of {known}; got {', '.join(given)}."
        )
    return kind(**{key: _tuples(value) for key, value in given.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def reasons(encoders: Iterable[Encoder]) -> dict[str, list[str]]:
    """Return the names of the columns that are left out, by reason."""
    found: dict[str, list[str]] = {}
    for encoder in encoders:
        if isinstance(encoder, DroppedColumn):
            found.setdefault(encoder.reason, []).append(encoder.name)
    return found


# --- Target means of the rows of a fit: each row by the rows of other folds ----------------------

#: Folds that the rows of a fit go to in turns, in an order that is random.
FOLDS = 5


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """The mean targets that rows of a fit see: those of the rows of other folds.

    Attributes
    ----------
    means : dict of str to (FOLDS, levels + 2, t)
        By column: without the rows of each fold.
    """

    means: dict[str, np.ndarray]

    def encode(self, encoder: TargetMeans, cells: np.ndarray, start: int) -> np.ndarray:
        """Return the columns of rows from number ``start`` on."""
        places = encoder.places(cells)
        means = self.means[encoder.name][folds(start, len(cells)), places]
        return encoder.with_codes(means, places)


def folds(start: int, count: int) -> np.ndarray:
    """Return the folds of rows, which depend on their numbers alone (SplitMix64)."""
    z = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(FOLDS)).astype(np.intp)


def shrunk(
    count: np.ndarray, total: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each level drawn towards that of all, and the latter.

    (Σ w y + m ȳ)/(Σ w + m) with m = σ²/τ², the variance within levels over that between them, of
    which both are estimated by the method of moments. Levels without rows have the mean of all.
    """
    weight = max(float(count.sum()), 1e-300)
    prior = total.sum(axis=0) / weight
    held = count > 0
    n = np.where(held, count, 1.0)[:, None]
    means = np.where(held[:, None], total / n, prior)
    within = np.maximum((square - n * means**2)[held].sum(axis=0), 0.0)
    within /= max(weight - held.sum(), 1.0)
    spread = (count[:, None] * (means - prior) ** 2).sum(axis=0) - (held.sum() - 1) * within
    scale = weight - float((count**2).sum()) / weight
    between = np.maximum(spread / max(scale, 1e-300), 1e-9 * within + 1e-300)
    m = np.minimum(within / between, 1e9)
    return (n * means * held[:, None] + m * prior) / (n * held[:, None] + m + 1e-300), prior
