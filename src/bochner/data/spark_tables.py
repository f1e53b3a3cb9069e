"""Data frames of Spark: their partitions, as Arrow batches that executors keep."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bochner._core.optional import needed
from bochner.data.frames import arrow_columns
from bochner.data.partitions import PartitionReader, readers_of, uncomputed, with_columns
from bochner.data.sources import Partition
from bochner.errors import DataWarning

_WHO = "Blocks.from_table"


@dataclass(frozen=True, eq=False)
class SparkPartition(Partition):
    """A partition of an RDD of Arrow streams."""

    streams: Any  # pyspark.RDD of bytes
    number: int

    def fetch(self) -> Any:
        parts = self.streams.context.runJob(self.streams, list, [self.number])
        return table_of(parts)

    @classmethod
    def each(cls, partitions: Sequence[Any], call: Callable[[Any], Any]) -> list[Any]:
        streams, numbers = partitions[0].streams, [one.number for one in partitions]
        results = streams.context.runJob(streams, lambda rows: [call(table_of([*rows]))], numbers)
        return list(results)


def readers(table: Any) -> list[PartitionReader]:
    """Return a reader of each partition, which are computed and persisted now."""
    storage = needed("pyspark", _WHO).StorageLevel
    with uncomputed("the pyspark DataFrame"):
        streams = table.mapInArrow(_streams, "rows binary").rdd.map(lambda row: bytes(row[0]))
        streams.persist(storage.MEMORY_AND_DISK)
        rows = streams.mapPartitions(_count).collect()
    key = f"rdd {streams.id()} of {table.sparkSession.sparkContext.applicationId}"
    partitions = [
        (SparkPartition(streams, number), count, f"{key}, {number}")
        for number, count in enumerate(rows)
    ]
    return readers_of(partitions, arrow_columns(_schema(table), "the pyspark DataFrame"), table)


def _schema(table: Any) -> Any:
    return needed("pyspark.sql.pandas.types", _WHO).to_arrow_schema(table.schema)


def _streams(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield each batch of rows as one cell: a stream of Arrow."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


def _count(streams: Iterator[bytes]) -> Iterator[int]:
    counts = [*streams]
    yield table_of(counts).num_rows if counts else 0


def table_of(streams: list[bytes]) -> Any:
    """Return the rows of several streams as one table."""
    import pyarrow as pa

    return pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in streams)


def mapped(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return the data frame with the result of ``call`` in further columns."""
    pyarrow = needed("pyarrow", "predict")
    types = needed("pyspark.sql.pandas.types", "predict")
    schema = _schema(table)
    # a row is made up, to see the types of predictions
    row = {f.name: "" if "string" in str(f.type) else 1 for f in schema}
    example = pyarrow.RecordBatch.from_pylist([row], schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        (result,) = _with_columns(iter([example]), call, name)
    return table.mapInArrow(
        lambda batches: _with_columns(batches, call, name), types.from_arrow_schema(result.schema)
    )


def _with_columns(batches: Iterator[Any], call: Callable[[Any], Any], name: str) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        if not batch.num_rows:
            continue
        table = with_columns(pa.Table.from_batches([batch]), call, name)
        yield from table.combine_chunks().to_batches()
