"""Tables of any length as re-iterable blocks of a few thousand rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bochner._core import sizes
from bochner._core.checks import integer
from bochner._core.progress import Bar
from bochner._core.random import Seed, seed_of
from bochner.data import sources
from bochner.data.files import Paths, find_files, open_file
from bochner.data.frames import library_of, open_table
from bochner.data.learning import Target, Types, open_tables
from bochner.data.partitions import READERS, dask_chunks
from bochner.data.sample import Sample, sample_rows, sample_stream
from bochner.data.schema import Schema, quote
from bochner.data.sources import Arrays, Block, Source
from bochner.data.tables import Tables
from bochner.errors import InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class Blocks:
    """A table of any length as pieces (X, y, w) of bounded size, read as often as needed.

    Made by :meth:`from_arrays`, :meth:`from_table`, :meth:`from_files` or :meth:`from_iterable`.
    Iterating yields one :class:`Block` at a time, each of ``block_rows`` rows except the last.
    Neither the values nor their order depend on ``block_rows``. Every value is checked when it is
    read: a missing or infinite value raises an error that names its column and row.

    Parameters
    ----------
    source : Source
        Source of the rows; use the constructors below.
    block_rows : int
        Rows per block.
    callbacks, changes, weigh : optional
        Set by :meth:`watch`, :meth:`map` and :meth:`reweigh`.

    Notes
    -----
    Text columns become one column of 0 and 1 per category (see :class:`Schema`). Missing cells,
    dates, times and texts of over 1000 categories raise an error when a program reads the blocks;
    the fit of a learner encodes them. X is float32 if every numeric column is float32 or narrower
    (float16, integers of one or two bytes, booleans), else float64. Memory: one block, and about 30
    MB for files of any size.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> blocks = bo.Blocks.from_arrays(X, np.sin(X[:, 0]), block_rows=100)
    >>> blocks.n_rows, blocks.n_columns, len(list(blocks))
    (500, 1, 5)
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks)
    """

    source: Source
    block_rows: int
    callbacks: tuple[Callable[[int], Any], ...] = ()
    changes: tuple[Callable[[Block], Block], ...] = ()  # applied in this order
    weigh: Callable[[Any], Any] | None = None  # factors of the weights, from y
    _count: list[int] = field(default_factory=list)  # number of rows, after a complete pass

    @classmethod
    def from_arrays(
        cls, X: Any, y: Any = None, sample_weight: Any = None, block_rows: int | None = None
    ) -> "Blocks":
        """Cut arrays into blocks that are views of them.

        Parameters
        ----------
        X : array (n, d)
            NumPy array or memory map, SciPy sparse matrix, dask array, torch tensor or other array
            of the array API standard. float32 and float64 stay; other real numbers become float64,
            block by block. Arrays in a file (of h5py, Zarr) are read chunk by chunk in each pass.
        y : array (n,) or (n, t), optional
            One or t targets.
        sample_weight : array (n,), optional
            Weights, zero or above.
        block_rows : int, optional
            Rows per block; default 4096, fewer for more than 1024 columns.

        Raises
        ------
        InvalidInput
            Shapes do not fit, or there are no rows.
        InvalidType
            X is a table (use :meth:`from_table`), or an array holds no real numbers.
        """
        opener = dask_chunks if library_of(X, "engine") == "dask" else sources.open_arrays
        return cls._from_source(opener(X, y, sample_weight), block_rows)

    @classmethod
    def from_table(
        cls,
        table: Any,
        target: Target = None,
        weight: str | None = None,
        schema: Schema | None = None,
        *,
        block_rows: int | None = None,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        dtypes: Types | None = None,
    ) -> "Blocks":
        """Read a table of pandas, polars or pyarrow, or any object with ``__arrow_c_stream__``.

        Tables of dask, Ray and Spark are read partition by partition, by the engine of the fit. Of
        a pyarrow dataset (with its filter and the columns of its folders), a polars LazyFrame and a
        table of DuckDB or ibis, each pass reads only the columns that are used, batch by batch.

        Parameters
        ----------
        table : data frame
            Columns of numbers, booleans, text, categories, dates or times. A ray.data.Dataset is
            executed and a pyspark DataFrame persisted now; the rows of their partitions, and of a
            dask DataFrame's, are counted first. This process reads text columns for categories.
        target : str or sequence of str, optional
            The column of y (n,), or the columns of y (n, t). Rows in which one is missing are left
            out, with a warning.
        weight : str, optional
            The column of sample weights.
        schema : Schema, optional
            Schema learned from other data. Columns are matched by name, in any order. Columns that
            are not in the schema are ignored, and so are a target and a weight that the table
            lacks. Default: learn the schema, with one more pass over the text columns, if any.
        block_rows : int, optional
            Rows per block; default 4096, fewer for more than 1024 columns.
        columns : str or sequence of str, optional
            The feature columns, by name or by pattern as "temp*"; default all but target and
            weight. Not used with ``schema``.
        drop : str or sequence of str, optional
            Names and patterns of columns that are not features.
        dtypes : mapping of str to {"number", "category"}, optional
            Types of columns, if the default is wrong: every cell of a "number" column must be a
            number, and a "category" column becomes columns of 0 and 1 for any cells. Default: a
            column of text holds categories, with a warning if nine of ten different values are
            numbers.

        Raises
        ------
        InvalidInput
            Columns are missing, repeated or hold lists or objects; a text column has a category
            that is not in ``schema``; there are no rows.
        InvalidType
            ``table`` is not a table, or can be read only once.
        MissingDependency
            pyarrow is not installed.
        """
        library = library_of(table, "engine")
        readers = READERS[library](table) if library else [open_table(table)]
        source = open_tables(readers, target, weight, columns, schema, dtypes, drop)
        return cls._from_source(source, block_rows)

    @classmethod
    def from_files(
        cls,
        paths: Paths,
        target: Target = None,
        weight: str | None = None,
        schema: Schema | None = None,
        *,
        block_rows: int | None = None,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        dtypes: Types | None = None,
        separator: str | None = None,
    ) -> "Blocks":
        """Read Parquet, Feather and text files in blocks.

        Parameters
        ----------
        paths : path, URL or sequence of these
            Files (.parquet, .pq; .feather, .arrow; .csv, .tsv, .txt, .tab, also with .gz, .bz2,
            .zst, .lz4), folders and globs. Files of folders and globs are read in the order of
            their names. URLs are read by fsspec: s3://, gs://, https://, memory://.
        target, weight, schema, block_rows, columns, drop, dtypes
            As for :meth:`from_table`.
        separator : str, optional
            Separator of text files. Default: comma, semicolon, tab or bar, detected from the first
            lines.

        Raises
        ------
        DataFileError
            A file does not exist, cannot be read, is damaged, is not a table, or changed after it
            was opened.
        InvalidInput
            As for :meth:`from_table`, and when files have different columns.
        MissingDependency
            pyarrow, or for a URL fsspec or its package for that kind of storage, is not installed.
        """
        readers = [open_file(file, separator) for file in find_files(paths)]
        source = open_tables(readers, target, weight, columns, schema, dtypes, drop)
        return cls._from_source(source, block_rows)

    @classmethod
    def from_iterable(
        cls, source: Iterable[Any] | Callable[[], Iterable[Any]], block_rows: int | None = None
    ) -> "Blocks":
        """Take pieces (X,), (X, y) or (X, y, w) of any size from an iterable.

        Parameters
        ----------
        source : iterable, or function without arguments that returns one
            Each pass iterates over it once, so wrap a generator in a function. The first piece is
            read immediately.
        block_rows : int, optional
            Rows per block; default 4096, fewer for more than 1024 columns.

        Raises
        ------
        InvalidInput
            The source can be read only once, has no rows, or its pieces have different shapes.
        """
        return cls._from_source(sources.open_iterable(source), block_rows)

    @classmethod
    def _from_source(cls, source: Source, block_rows: int | None) -> "Blocks":
        rows = sizes.block_rows(source.n_columns) if block_rows is None else block_rows
        blocks = cls(source, integer(rows, "Blocks", "block_rows", 1))
        if source.n_rows == 0:
            blocks.check_pass(0, weighty=False)  # refuses it
        return blocks

    @property
    def n_columns(self) -> int:
        """Number of columns of X, after categories became columns."""
        return self.source.n_columns

    @property
    def target_shape(self) -> tuple[int, ...] | None:
        """Shape of one row of y: () or (t,); None without y."""
        schema = self.source.schema
        if schema is None or self.changes:
            first: Any = next(self.walk() if self.changes else self.source.pieces(self.block_rows))
            return None if first.y is None else tuple(first.y.shape[1:])
        if schema.target is None:
            return None
        return () if isinstance(schema.target, str) else (len(schema.target),)

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None for CSV files, streams and iterables before a complete pass."""
        return next(iter(self._count), None) if self.source.n_rows is None else self.source.n_rows

    @property
    def schema(self) -> Schema | None:
        """Schema of the columns; None for arrays and iterables."""
        return self.source.schema

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of X, ``name=category`` for text; None for arrays and iterables."""
        return None if self.schema is None else self.schema.feature_names

    @property
    def target_names(self) -> tuple[str, ...] | None:
        """Names of the columns of y, if it has names."""
        return None if self.schema is None else self.schema.target_names

    def __iter__(self) -> Iterator[Block]:
        rows, weighty = 0, False
        for block in self.walk():
            weighty = weighty or block.has_weight
            yield block
            rows += block.X.shape[0]
            self.report_rows(block.X.shape[0])
        self.check_pass(rows, weighty)

    def walk(self) -> Iterator[Block]:
        """Yield the blocks and check each of them."""
        first, pieces = self.source.first, self.source.pieces(self.block_rows)
        for piece in pieces if self.source.is_checked else sources.resize(pieces, self.block_rows):
            block = Block(*piece, first)
            first += piece.X.shape[0]
            for change in self.changes:
                block = change(block)
            yield block

    def report_rows(self, rows: int) -> None:
        """Call the callbacks with the number of rows read since the last call."""
        for callback in self.callbacks:
            callback(rows)

    def check_pass(self, rows: int, weighty: bool) -> None:
        """Raise an error for no rows, no positive weight, or a changed number of rows."""
        if not rows and not self.n_rows:
            raise InvalidInput(
                f"Blocks: a table must have at least one row; {self.source} has none."
            )
        if self.n_rows not in (None, rows):
            raise InvalidInput(
                f"Blocks: every pass must give the same rows; {self.source} gave {self.n_rows} "
                f"before and {rows} now. Read it into a table or file first."
            )
        self._count[:] = [rows]
        if not weighty:
            raise InvalidInput(
                "Blocks: at least one row must have a weight above zero; all are zero, of "
                f"{rows} rows of {self.source}. Leave the weights out, or pass other rows."
            )

    def part(self, start: int, stop: int) -> "Blocks | None":
        """Return the rows from ``start``, the first of a block, to ``stop``; None if impossible."""
        if (source := self.source.part(start, stop)) is None:
            return None
        return replace(self, source=source, callbacks=(), _count=[])

    def with_content(self, rows: Sequence[Any]) -> "Blocks":
        """Return the same blocks with ``rows`` as the contents of the engine's partitions."""
        return replace(self, source=self.source.with_content(rows)) if rows else self

    def with_rows(self, block_rows: int) -> "Blocks":
        """Return the same rows in blocks of ``block_rows`` rows."""
        return replace(self, block_rows=integer(block_rows, "Blocks", "block_rows", 1))

    def watch(self, callback: Callable[[int], Any]) -> "Blocks":
        """Return the same blocks; ``callback(rows)`` is called after each block."""
        return replace(self, callbacks=(*self.callbacks, callback))

    def with_progress(self) -> "Blocks":
        """Return the same blocks, with a bar that counts their rows, pass by pass.

        The bar is drawn below the cell of a notebook or on the last line of a terminal, and
        nowhere else.
        """
        return self.watch(Bar(self))

    def map(self, change: Callable[[Block], Block]) -> "Blocks":
        """Return the same blocks, each replaced by ``change(block)`` after earlier changes."""
        return replace(self, changes=(*self.changes, change))

    def with_targets(self, y: Any, w: Any) -> "Blocks":
        """Return the same blocks with targets and weights from arrays, one entry per row."""
        n = count_rows(self.cells())
        y, w = (None if array is None else np.asarray(array) for array in (y, w))
        rows = sources.as_piece(np.broadcast_to(0.0, (n, 1)), y, w)
        targets = sources.check_values(rows, range(n))

        def replace_targets(block: Block) -> Block:
            part = sources.part(targets, slice(block.start, block.start + block.X.shape[0]))
            return block._replace(y=part.y, w=part.w)

        return self.map(replace_targets)

    def recode(self, code: Callable[[Any], Any]) -> "Blocks":
        """Return the same blocks with ``code(y)`` in place of y: labels become numbers."""
        return self.map(lambda block: block._replace(y=code(block.y)))

    def reweigh(self, weigh: Callable[[Any], Any]) -> "Blocks":
        """Return the same blocks with weights multiplied by ``weigh(y)``."""

        def multiply(block: Block) -> Block:
            factors = weigh(block.y)
            return block._replace(w=factors if block.w is None else block.w * factors)

        return replace(self.map(multiply), weigh=weigh)

    def cells(self) -> "Blocks":
        """Return the same rows of a table before they are encoded; arrays are unchanged."""
        tables = self.source
        return replace(self, source=tables.of_cells()) if isinstance(tables, Tables) else self

    def sample(self, m: int, random_state: Seed = None) -> Sample:
        """Return ``m`` rows drawn at random without replacement, in their order, in one pass.

        Parameters
        ----------
        m : int
            Number of rows, 1 or above; all rows if there are no more.
        random_state : int, numpy.random.Generator or None
            An integer gives the same rows for any source and block size.

        Returns
        -------
        Sample
            (X, y, w, index), ``index`` the row numbers, ascending.

        Notes
        -----
        Every row has a random priority that depends on the seed and its number alone
        (:func:`bochner.data.sample.row_priorities`); the m rows of lowest priority are returned.
        Arrays need no pass. Memory: 2m rows and one block.
        """
        m, seed = integer(m, "Blocks.sample", "m", 1), seed_of(random_state)
        source = self.source
        if isinstance(source, Arrays) and not (source.key or source.step or self.changes):
            index = sample_rows(seed, source.n_rows, m)
            return Sample(*source.rows(index), index)
        return sample_stream(self, m, seed)

    def __repr__(self) -> str:
        rows = "rows not counted" if self.n_rows is None else f"{self.n_rows:,} rows"
        names = "" if self.target_names is None else f", target {quote(self.target_names, 3)}"
        schema, raw = self.schema, ""
        if schema is not None and (schema.categories or schema.encoders):
            raw = f" from {len(schema.columns):,}"
        return (
            f"Blocks({self.source}: {rows}, {self.n_columns:,} columns{raw}{names}; "
            f"{self.block_rows:,} rows per block)"
        )


def count_rows(blocks: Blocks) -> int:
    """Return the number of rows of blocks; if it is unknown, one pass counts them."""
    return blocks.n_rows if blocks.n_rows is not None else sum(b.X.shape[0] for b in blocks)
