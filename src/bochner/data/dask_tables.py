"""Tables and arrays of dask: their partitions are tasks that return rows."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.optional import needed
from bochner.data.frames import open_table
from bochner.data.partitions import (
    CELLS_READ,
    Chunk,
    Chunks,
    PartitionReader,
    by_name,
    readers_of,
    uncomputed,
)
from bochner.data.sources import Partition, rows_and_columns, stand_ins
from bochner.errors import InvalidType

_WHO = "Blocks.from_arrays"

#: Small chunks are read together, for a task takes milliseconds: as few as this many tasks, of at
#: most so many rows.
TASKS, ROWS = 64, 8192


@dataclass(frozen=True, eq=False)
class DaskPartition(Partition):
    """A partition as a task that is not done."""

    task: Any  # dask.delayed.Delayed
    label: str

    def fetch(self) -> Any:
        with uncomputed(self.label):
            return self.task.compute()

    @classmethod
    def each(cls, partitions: Sequence[Any], call: Callable[[Any], Any]) -> list[Any]:
        dask = needed("dask", "Blocks.from_table")
        return list(dask.compute(*[dask.delayed(call)(one.task) for one in partitions]))


def readers(table: Any) -> list[PartitionReader]:
    """Return a reader of each partition; their rows are counted now."""
    label = f"the dask {type(table).__name__}"
    parts = [
        DaskPartition(t, f"partition {i} of {label}") for i, t in enumerate(table.to_delayed())
    ]
    try:
        rows = [int(n) for n in table.map_partitions(len).compute()]
    except Exception:
        for partition in parts:
            partition.fetch()  # says which it is
        raise
    parts_rows = [(part, n, str(part.task.key)) for part, n in zip(parts, rows, strict=True)]
    columns = open_table(table._meta_nonempty).columns
    return readers_of(parts_rows, tuple(c._replace(declared=()) for c in columns), table)


def chunks(X: Any, y: Any, w: Any) -> Chunks:
    """Return arrays as a source: chunks of rows of X, and the same rows of y and w."""
    dask, as_dask = needed("dask", _WHO), needed("dask.array", _WHO).asarray
    X, y, w = (None if array is None else as_dask(array) for array in (X, y, w))
    for array in (X, y, w):
        if array is not None and np.isnan(array.shape).any():
            array.compute_chunk_sizes()
    n_rows, n_columns = rows_and_columns(stand_ins(X, y, w))
    sizes = _together(X.chunks[0], n_columns)
    parts: list[Any] = [[None] * len(sizes)] * 3
    for k, array in enumerate((X, y, w)):
        if array is not None:
            columns = {1: -1} if array.ndim == 2 else {}
            parts[k] = array.rechunk({0: sizes, **columns}).to_delayed().flat
    tasks = [dask.delayed(tuple)(list(rows)) for rows in zip(*parts, strict=True)]
    pieces = tuple(
        Chunk(DaskPartition(task, f"chunk {i} of the dask Array"), n, n)
        for i, (task, n) in enumerate(zip(tasks, sizes, strict=True))
        if n
    )
    return Chunks(pieces, "the dask Array", str(X.name), n_rows, n_columns)


def _together(sizes: tuple[int, ...], columns: int) -> tuple[int, ...]:
    """Return the rows of chunks, where small ones are with those that follow them."""
    enough = min(ROWS, CELLS_READ // columns, -(-sum(sizes) // TASKS))
    groups = [0]
    for size in sizes:
        if groups[-1] and groups[-1] + size > enough:
            groups.append(0)
        groups[-1] += size
    return tuple(groups)


def with_columns(table: Any, columns: dict[str, Any]) -> Any:
    """Return a table with the columns of further tables; all have the same partitions."""
    for name, column in columns.items():
        if getattr(column, "npartitions", None) != table.npartitions:
            raise InvalidType(
                f"Blocks: {name!r} must be a dask Series with the partitions of X "
                f"({table.npartitions}); got {type(column).__name__}. Take it from the same table."
            )
    return table.assign(**columns)


def mapped(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return what ``call`` gives of each partition: a Series or DataFrame, or an Array."""
    is_array = hasattr(table, "rechunk")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rows that are made up to see types
        if is_array:
            example = np.asarray(call(np.ones((1, table.shape[1]), table.dtype)))
        else:
            example = _of_partition(table._meta_nonempty, call, name, None).iloc[:0]
    if not is_array:
        return table.map_partitions(_of_partition, call, name, example, meta=example)
    X, how = table.rechunk({1: -1}), {"dtype": example.dtype, "meta": example[:0]}
    if example.ndim == 1:
        return X.map_blocks(call, drop_axis=1, **how)
    return X.map_blocks(call, chunks=(X.chunks[0], (example.shape[1],)), **how)


def _of_partition(frame: Any, call: Callable[[Any], Any], name: str, none: Any) -> Any:
    """Return predictions with the index of a partition; for an empty partition ``none``."""
    if not len(frame) and none is not None:
        return none
    pandas = needed("pandas", "predict")
    columns = by_name(call(frame), name)
    result = pandas.DataFrame(columns, index=frame.index)
    return result[name] if [*columns] == [name] else result
