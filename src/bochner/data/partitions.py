"""Tables and arrays in partitions that an engine holds: each is read where it is stored."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from bochner._core.optional import package, raise_as
from bochner.data.frames import CALLER, arrow_columns, label_of, open_table, rows_of
from bochner.data.sources import CELLS_READ, Arrays, Partition, as_piece, zeros_view
from bochner.data.tables import Column, Reader
from bochner.errors import DataFileError, DataWarning, InvalidType


def readers_of(
    partitions: Sequence[Partition], keys: Iterable[str], columns: tuple[Column, ...], label: str
) -> list[Reader]:
    """Return readers of the partitions that have rows; one reader without rows if all are empty."""
    readers = [
        Reader(f"partition {i} of {label}", columns, rows_of, p.n_rows, key, partition=p)
        for i, (p, key) in enumerate(zip(partitions, keys, strict=True))
    ]
    return [r for r in readers if r.n_rows] or [Reader(label, columns, rows_of, 0)]


def naming_errors(label: str) -> AbstractContextManager[None]:
    """Return a context that names the table in errors of the engine that computes it."""
    return raise_as(
        lambda error: DataFileError(
            f"Blocks: {label} must be computed to be read, which failed ({message_of(error)}). "
            "Correct its computation, and fit again."
        )
    )


def message_of(error: Exception) -> str:
    """Return the message of an error; for engines the last line of the worker's traceback."""
    first, *lines = str(error).splitlines() or [""]
    pattern = r"(?!\S*UserCodeException)[\w.]+(Error|Exception|Interrupt)(: |$)"
    last = next((line for line in reversed(lines) if re.match(pattern, line)), "")
    return last[:200] or f"{type(error).__name__}: {first[:200]}"


def as_columns(values: Any, name: str) -> dict[str, np.ndarray]:
    """Return predictions (n,) or (n, t) as columns by name, of t columns NAME_0, NAME_1, ...."""
    array = np.asarray(values)
    if array.ndim == 1:
        return {name: array}
    return {f"{name}_{k}": column for k, column in enumerate(array.T)}


def with_columns(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return an Arrow table or batch with the results of ``call`` as columns (`as_columns`)."""
    pa = package("pyarrow", "predict")
    for column, values in as_columns(call(table), name).items():
        table = table.append_column(column, pa.array(values))
    return table


def _compute(label: str, task: Any) -> Any:
    """Return the rows of a partition, which is a task of dask."""
    with naming_errors(label):
        return task.compute()


def _dask_readers(table: Any) -> list[Reader]:
    """Return a reader of each partition; their rows are counted now."""
    label = label_of(table)
    tasks = table.to_delayed()
    getters = [partial(_compute, f"partition {i} of {label}") for i in range(len(tasks))]
    try:
        rows = [int(n) for n in table.map_partitions(len).compute()]
    except Exception:
        for get, task in zip(getters, tasks, strict=True):
            get(task)  # its error names the partition
        raise
    parts = [
        Partition(task, n, library="dask", get=get)
        for task, n, get in zip(tasks, rows, getters, strict=True)
    ]
    columns = (c._replace(declared=()) for c in open_table(table._meta_nonempty).columns)
    return readers_of(parts, (str(task.key) for task in tasks), tuple(columns), label)


def dask_chunks(X: Any, y: Any, w: Any) -> Arrays:
    """Return X, y and w in chunks of rows; small chunks are joined, since each costs a task."""
    caller = "Blocks.from_arrays"
    dask, as_dask = package("dask", caller), package("dask.array", caller).asarray
    X, y, w = (None if array is None else as_dask(array) for array in (X, y, w))
    for array in (X, y, w):
        if array is not None and np.isnan(array.shape).any():
            array.compute_chunk_sizes()
    n, d = as_piece(*map(zeros_view, (X, y, w))).X.shape
    rows = max(1, min(8192, CELLS_READ // d, -(-n // 64)), *X.chunks[0])
    parts = [
        repeat(None) if a is None else a.rechunk((rows, -1)[: a.ndim]).to_delayed().flat
        for a in (X, y, w)
    ]
    partitions = []
    for start, *arrays in zip(range(0, n, rows), *parts, strict=False):
        get = partial(_compute, f"chunk {start // rows} of the dask Array")
        task, size = dask.delayed(tuple)(arrays), min(rows, n - start)
        partitions.append(Partition(task, size, start, "dask", get))
    return Arrays(tuple(partitions), str(X.name), label="the dask Array", n_columns=d, n_rows=n)


def with_dask_columns(table: Any, columns: dict[str, Any]) -> Any:
    """Return a table with additional columns by name; all have the partitions of the table."""
    for name, column in columns.items():
        if getattr(column, "npartitions", None) != table.npartitions:
            raise InvalidType(
                f"Blocks: {name!r} must be a dask Series with the partitions of X "
                f"({table.npartitions}); got {type(column).__name__}. Take it from the same table."
            )
    return table.assign(**columns)


def _map_dask(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return ``call(rows)`` of each partition as a dask Series, DataFrame or Array."""
    is_array = hasattr(table, "rechunk")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the made-up rows that show the types
        if is_array:
            example = np.asarray(call(np.ones((1, table.shape[1]), table.dtype)))
        else:
            example = _of_partition(table._meta_nonempty, call, name, None).iloc[:0]
    if not is_array:
        return table.map_partitions(_of_partition, call, name, example, meta=example)
    X, options = table.rechunk({1: -1}), {"dtype": example.dtype, "meta": example[:0]}
    if example.ndim == 1:
        return X.map_blocks(call, drop_axis=1, **options)
    return X.map_blocks(call, chunks=(X.chunks[0], (example.shape[1],)), **options)


def _of_partition(frame: Any, call: Callable[[Any], Any], name: str, empty: Any) -> Any:
    """Return predictions with the index of a partition; for a partition without rows ``empty``."""
    if not len(frame) and empty is not None:
        return empty
    columns = as_columns(call(frame), name)
    result = package("pandas", "predict").DataFrame(columns, index=frame.index)
    return result[name] if [*columns] == [name] else result


def _ray_readers(table: Any) -> list[Reader]:
    """Return a reader of each block of the dataset, which is executed now."""
    ray, label = package("ray", CALLER), label_of(table)
    with naming_errors(label):
        references = table.materialize().to_arrow_refs()
        form = ray.remote(lambda table: (table.num_rows, table.schema))
        parts = ray.get([form.remote(reference) for reference in references])
    partitions = [
        Partition(reference, rows, library="ray", get=ray.get)
        for reference, (rows, _) in zip(references, parts, strict=True)
    ]
    schema = next((schema for rows, schema in parts if rows), parts[0][1])
    keys = (reference.hex() for reference in references)
    return readers_of(partitions, keys, arrow_columns(schema, label), label)


def _map_ray(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return the dataset with the results of ``call`` on its batches as additional columns."""
    extend = lambda batch: with_columns(batch, call, name) if batch.num_rows else batch
    return table.map_batches(extend, batch_format="pyarrow")


# --- Spark: an RDD of Arrow streams, which executors keep -----------------------------------------


def _spark_rows(content: tuple[Any, int]) -> Any:
    """Return the rows of a partition, given as an RDD of bytes and the partition's number."""
    streams, number = content
    return table_of(streams.context.runJob(streams, list, [number]))


def _spark_readers(table: Any) -> list[Reader]:
    """Compute and persist the partitions, and return a reader of each."""
    storage = package("pyspark", CALLER).StorageLevel
    to_arrow_schema = package("pyspark.sql.pandas.types", CALLER).to_arrow_schema
    label = label_of(table)
    with naming_errors(label):
        streams = table.mapInArrow(_streams, "rows binary").rdd.map(lambda row: bytes(row[0]))
        streams.persist(storage.MEMORY_AND_DISK)
        count = lambda content: [sum(table_of([part]).num_rows for part in content)]
        rows = streams.mapPartitions(count).collect()
    key = f"rdd {streams.id()} of {table.sparkSession.sparkContext.applicationId}"
    partitions = [
        Partition((streams, number), n, library="pyspark", get=_spark_rows)
        for number, n in enumerate(rows)
    ]
    keys = (f"{key}, {number}" for number in range(len(rows)))
    columns = arrow_columns(to_arrow_schema(table.schema), label)
    return readers_of(partitions, keys, columns, label)


def _map_spark(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return the data frame with the results of ``call`` as additional columns."""
    pyarrow = package("pyarrow", "predict")
    types = package("pyspark.sql.pandas.types", "predict")
    schema = types.to_arrow_schema(table.schema)
    # a made-up row shows the types of predictions
    row = {f.name: "" if "string" in str(f.type) else 1 for f in schema}
    example = pyarrow.RecordBatch.from_pylist([row], schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        result = with_columns(example, call, name)
    return table.mapInArrow(
        lambda batches: (with_columns(b, call, name) for b in batches if b.num_rows),
        types.from_arrow_schema(result.schema),
    )


def _streams(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield each batch of rows as one cell: a stream of Arrow."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


def table_of(streams: list[bytes]) -> Any:
    """Return the rows of several streams as one table."""
    import pyarrow as pa

    return pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in streams)


# --- By the package of the engine -----------------------------------------------------------------

#: Functions that return the readers of the partitions of a table.
READERS = {"dask": _dask_readers, "ray": _ray_readers, "pyspark": _spark_readers}

#: Functions that apply a function to each partition of a table or array; results have a name.
MAPPED = {"dask": _map_dask, "ray": _map_ray, "pyspark": _map_spark}


def map_partitions(partitions: Sequence[Partition], call: Callable[[Any], Any]) -> list[Any]:
    """Return ``call(rows)`` for each partition, computed where the partition is."""
    handles = [partition.content for partition in partitions]
    match partitions[0].library:
        case "dask":
            dask = package("dask", CALLER)
            return list(dask.compute(*[dask.delayed(call)(task) for task in handles]))
        case "ray":
            ray = package("ray", CALLER)
            task = ray.remote(lambda call, table: call(table))
            return list(ray.get([task.remote(call, reference) for reference in handles]))
    streams, call_rows = handles[0][0], lambda rows: [call(table_of([*rows]))]
    return list(streams.context.runJob(streams, call_rows, [number for _, number in handles]))
