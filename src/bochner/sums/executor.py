"""Where sums over rows are made: every pass is a sum, and an executor makes it."""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from operator import methodcaller
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.errors import InvalidInput, InvalidType
from bochner.sums.tree import Summand, summed

LOG = logging.getLogger("bochner.sums")

S = TypeVar("S")


class Executor(Protocol):
    """A place that computes sums, such as this process or a cluster."""

    @property
    def memory(self) -> int | None:
        """Bytes of features that may be kept in this process from pass to pass.

        None: a quarter of what is free.
        """
        ...

    @property
    def in_order(self) -> bool:
        """Whether rows are read in order, in this process."""
        ...

    def sum(self, summand: Summand[S], blocks: Blocks) -> S: ...


@runtime_checkable
class Engine(Protocol):
    """An engine that runs the passes of fits, as passed by a user."""

    def passes(self, asked: str, blocks: Blocks) -> AbstractContextManager[Executor]:
        """Yield the executor of one fit; ``asked`` describes the fit in words."""
        ...


@dataclass(frozen=True)
class InProcess:
    """All blocks in their order, in this process.

    Ctrl-C and errors of the reader leave nothing behind: a sum is handed out whole or not at all.
    """

    # Bytes of features that may be kept from pass to pass; default a quarter of what is free.
    memory: int | None = None
    in_order: ClassVar[bool] = True

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator["InProcess"]:
        yield self

    def sum(self, summand: Summand[S], blocks: Blocks) -> S:
        began = time.monotonic()
        total = summed(summand, blocks, blocks.block_rows)
        LOG.debug("a pass over %r, %.2f s", blocks, time.monotonic() - began)
        return total


LOCAL = InProcess()


def home_of(blocks: Blocks) -> Engine:
    """Return the engine that holds the rows, else this process."""
    library = next((partition.library for partition in blocks.source.partitions), "")
    if not library:
        return LOCAL
    # engines are above all parts that fit, which know none but find them by name
    engine: Engine = import_module("bochner.engines.clusters").HERE[library]()
    return engine


def as_engine(where: object, who: str) -> Engine:
    """Check where a fit is to be made."""
    if isinstance(where, Engine) and not isinstance(where, type):
        return where
    got = f"the class {where.__name__}" if isinstance(where, type) else type(where).__name__
    raise InvalidType(
        f"{who}: where must say where sums are made, one of bochner.engines, as Local(), "
        f"Dask(client), Ray() or Spark(session); got {got}."
    )


def require_order(who: str, why: str, where: Executor, instead: str) -> None:
    """Refuse an executor that does not read rows in order."""
    if not where.in_order:
        raise InvalidInput(
            f"{who}: {why}, so all rows must come to one process, in order; got where={where!r}. "
            f"{instead}"
        )


@dataclass(frozen=True)
class Together:
    """Several summands in one pass; their sums are a list."""

    summands: tuple[Any, ...]

    def zero(self) -> list[Any]:
        return list(map(methodcaller("zero"), self.summands))

    def add(self, total: list[Any], block: Block) -> list[Any]:
        for k, summand in enumerate(self.summands):
            total[k] = summand.add(total[k], block)
        return total

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [s.merge(x, y) for s, x, y in zip(self.summands, a, b, strict=True)]
