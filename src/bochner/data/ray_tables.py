"""Datasets of ray.data: their blocks are tables in the store of a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bochner._core.optional import needed
from bochner.data.frames import arrow_columns
from bochner.data.partitions import PartitionReader, readers_of, uncomputed, with_columns
from bochner.data.sources import Partition


@dataclass(frozen=True, eq=False)
class RayPartition(Partition):
    """A table in the store."""

    reference: Any  # ray.ObjectRef

    def fetch(self) -> Any:
        return needed("ray", "Blocks.from_table").get(self.reference)

    @classmethod
    def each(cls, partitions: Sequence[Any], call: Callable[[Any], Any]) -> list[Any]:
        ray = needed("ray", "Blocks.from_table")
        task = ray.remote(lambda call, table: call(table))
        return list(ray.get([task.remote(call, one.reference) for one in partitions]))


def readers(table: Any) -> list[PartitionReader]:
    """Return a reader of each block of the dataset, which is executed now."""
    ray = needed("ray", "Blocks.from_table")
    with uncomputed("the ray Dataset"):
        references = table.materialize().to_arrow_refs()
        form = ray.remote(lambda table: (table.num_rows, table.schema))
        parts = ray.get([form.remote(reference) for reference in references])
    partitions = [
        (RayPartition(reference), rows, reference.hex())
        for reference, (rows, _) in zip(references, parts, strict=True)
    ]
    schema = next((schema for rows, schema in parts if rows), parts[0][1])
    return readers_of(partitions, arrow_columns(schema, "the ray Dataset"), table)


def mapped(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return the dataset with the results of ``call`` on its batches as additional columns."""
    more = lambda batch: with_columns(batch, call, name) if batch.num_rows else batch
    return table.map_batches(more, batch_format="pyarrow")
