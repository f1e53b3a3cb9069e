"""Passes in one process, and checkpoints from which an interrupted fit resumes.

A checkpoint is a folder with the sums that a fit has computed, and a description of the fit.
"""

import json
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Annotated, Any
from zipfile import BadZipFile

import numpy as np
from joblib.hashing import NumpyHasher

from bochner import __version__
from bochner._core.blas import use_decomposition
from bochner._core.checks import Positive, free_bytes, integer, optional, warn_user
from bochner._core.names import NamedArguments
from bochner._core.optional import raise_as
from bochner.data.blocks import Blocks
from bochner.data.writers import open_atomic
from bochner.engines.device import DevicePasses, eigh_on, open_devices
from bochner.errors import BochnerWarning, DataFileError, InvalidInput, InvalidType
from bochner.persist.values import decode, encode
from bochner.selection.choices import Choices
from bochner.sums.passes import LOCAL, NO_ROWS, Executor, Serial, Summand, sum_blocks, with_count

LOG = logging.getLogger("bochner.engines")

#: Writing takes at most this share of the time, however long one write takes.
SHARE = 0.02

#: The file that describes the fit, the files of its passes, and files that a killed process leaves.
MANIFEST, RECORDS, UNFINISHED = "fit.json", "pass-*.npz", ".*.part"


@dataclass(frozen=True)
class Local(NamedArguments):
    """Run the passes of a fit over the rows in this process, with checkpoints or on a device.

    Parameters
    ----------
    checkpoint : path, optional
        Folder for checkpoints, created by the fit and removed at its end. If it exists, the same
        fit to the same rows resumes from it. Default: no checkpoints.
    interval : float, default 60
        Seconds between checkpoints; more if writing takes over 2 % of the time.
    cache_bytes : int, optional
        Largest number of bytes of features that a learner keeps between passes; 0 keeps none.
        Default: a quarter of the free memory.
    device : str or sequence of str, optional
        Device of torch for features and sums, for example "cuda" or "cuda:1", or several devices
        that share the work. Default: the device of the rows.

    Raises
    ------
    InvalidInput
        ``interval`` is not above zero, ``cache_bytes`` is negative, or the ``random_state`` of a
        fit with a checkpoint is not an integer. The device does not exist, or is combined with a
        checkpoint.
    MissingDependency
        ``device`` is given, and torch is not installed.
    DataFileError
        The checkpoint is of another fit, other data or another version, or its folder cannot be
        created.

    Notes
    -----
    A checkpoint contains the sum of each finished pass, and the partial sum of the current pass. A
    resumed fit gives the same bits as an uninterrupted fit, and repeats the work since the last
    checkpoint. If a checkpoint cannot be written, for example to a full disk, the fit continues
    with a warning. Ctrl-C stops the pass after the current block and writes a checkpoint. A
    checkpoint takes 8 D² bytes for D features, 16 D² above 65,536 rows, and 24 D² above a million.

    A device needs memory for the features of about 60,000 rows, and for four matrices of 8 D²
    bytes. Sparse rows, kernel matrices and samples stay on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> blocks = bo.Blocks.from_arrays(X, np.sin(X[:, 0]))
    >>> where = bo.engines.Local(cache_bytes=0)
    >>> model = bo.KernelRidge("gaussian", random_state=0).fit_blocks(blocks, where)

    A fit that is killed, and started again, resumes from its folder:

    >>> where = bo.engines.Local(checkpoint="fit.checkpoint")  # doctest: +SKIP
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks, where)  # doctest: +SKIP
    """

    checkpoint: str | PathLike[str] | None = None
    interval: Positive = 60.0
    cache_bytes: Annotated[int | None, optional(integer)] = None
    device: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device is not None and self.checkpoint is not None:
            raise InvalidInput(
                "Local: a checkpoint records sums of this process, not sums of device=. Leave "
                "out one of the two."
            )

    @contextmanager
    def passes(self, description: str, blocks: Blocks) -> Iterator[Executor]:
        if self.device is not None:
            devices = open_devices(self.device)
            with use_decomposition(eigh_on(devices[0])):
                yield DevicePasses(devices, self.cache_bytes, repr(self))
            return
        if self.checkpoint is None:
            yield LOCAL if self.cache_bytes is None else Serial(self.cache_bytes)
            return
        seed, start = r"('random_state', (?!\d|np\.u?int)\w+)", r"('warm_start', True)"
        if match := re.search(rf"\({seed}|\({start}", description):
            name, _, value = (match[1] or match[2]).partition(", ")
            raise InvalidInput(
                f"Local: a fit with a checkpoint must be the same each time it is made; got "
                f"{name[1:-1]}={value}. Pass random_state=0, or another integer, and no warm_start."
            )
        room = free_bytes() // 4 if self.cache_bytes is None else self.cache_bytes
        fit = f"{description} of {blocks.block_rows} rows a block of {blocks.source.mark()}"
        passes = PassCache(Path(self.checkpoint).expanduser(), fit, room, self)
        yield passes
        passes.clear()


@contextmanager
def _deferred_signals() -> Iterator[list[Callable[[], None]]]:
    """Defer SIGINT and SIGTERM within this context; yield the list of handlers to call later.

    A second signal is handled at once. Only the main thread receives signals.
    """
    signals: list[Callable[[], None]] = []
    previous: dict[int, Any] = {}

    def defer(number: int, frame: FrameType | None) -> None:
        if signals:
            previous[number](number, frame)
        signals.append(partial(previous[number], number, frame))

    try:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
                if callable(handler := signal.getsignal(name)):
                    previous[name] = handler
                    signal.signal(name, defer)
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class PassCache:
    """Passes of one fit: a pass with a record in the folder is read, else computed and recorded."""

    in_order = True

    def __init__(self, folder: Path, fit: str, memory: int, engine: Local) -> None:
        self._folder, self._interval, self.label = folder, engine.interval, repr(engine)
        self.memory = self._open({"fit": fit, "version": __version__}, memory)
        self._number = 0
        self._unwritten: dict[str, dict[str, Any]] = {}  # records by file
        self._deadline = time.monotonic() + self._interval

    def _open(self, description: dict[str, str], memory: int) -> int:
        """Create the folder, or check that it is of this fit; return the fit's bytes of cache."""
        folder = self._folder
        no_folder = lambda error: DataFileError(
            f"Local: the checkpoint '{folder}' must be a folder, and it cannot be made: "
            f"{(error.strerror or '').lower()}. Name a folder that can be written."
        )
        with raise_as(no_folder, OSError):
            folder.mkdir(parents=True, exist_ok=True)
        file_ = folder / MANIFEST
        if not file_.exists():
            if not set(folder.iterdir()) <= set(folder.glob(UNFINISHED)):
                raise self._refusal("a folder of other files")
            with open_atomic(file_, "w") as file:
                file.write(json.dumps({**description, "memory": memory}, indent=1))
            return memory
        failure = self._refusal("damaged, or of something else")
        with raise_as(lambda _: failure, OSError, ValueError):
            manifest = dict(json.loads(file_.read_text(encoding="utf-8")))
        changes = "of another fit: other parameters, or data that have changed"
        for key, reason in (("version", "by another version of bochner"), ("fit", changes)):
            if manifest.get(key) != description[key]:
                raise self._refusal(reason)
        return int(manifest["memory"])

    def _refusal(self, reason: str) -> DataFileError:
        """Return the error for a folder that is not a checkpoint of this fit."""
        return DataFileError(
            f"Local: the checkpoint '{self._folder}' must be of this fit, to resume it; it is "
            f"{reason}. Delete it to begin again, or name another."
        )

    def clear(self) -> None:
        """Remove all records, and the folder if it is empty then."""
        for name in (RECORDS, UNFINISHED, MANIFEST):
            for path in self._folder.glob(name):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()

    def sum(self, summand: Summand[Any], blocks: Blocks) -> Any:
        number, self._number = self._number, self._number + 1
        name, start = RECORDS.replace("*", f"{number:05}"), time.monotonic()
        digest: str = _Digest("md5").hash((summand, blocks.block_rows))
        record = self._read(name, number, digest) or {"digest": digest}
        if "total" not in record:
            record["total"] = self._compute(name, record, with_count(summand), blocks)
            record.pop("state", None)
            self._unwritten[name] = deepcopy(record)  # the caller may change the sum
            if time.monotonic() >= self._deadline:
                self._write()
        total, (rows, weighty) = record["total"] or NO_ROWS
        seconds = time.monotonic() - start
        LOG.info("%s: pass %d, %d rows, %.2f s", self.label, number + 1, rows, seconds)
        blocks.check_pass(rows, weighty)
        return total

    def _read(self, name: str, number: int, digest: Any) -> Any:
        """Return the record of a pass; None if there is none."""
        path = self._folder / name
        if not path.exists():
            return None
        failure = lambda error: self._refusal(f"damaged ({name}: {str(error).splitlines()[0]})")
        with raise_as(failure, BadZipFile, EOFError, OSError, ValueError, KeyError, TypeError):
            with path.open("rb") as file, np.load(file) as record_arrays:
                arrays = dict(record_arrays)
            record: Any = decode(json.loads(str(arrays.pop("record"))), arrays)
        if record["digest"] != digest:
            raise self._refusal(f"of other sums (pass {number + 1} of the fit)")
        return record

    def _compute(self, name: str, record: Any, summand: Summand[Any], blocks: Blocks) -> Any:
        """Return the sum of a pass, resumed from its record; Ctrl-C stops after recording."""
        n, state = blocks.n_rows, record.get("state")
        rows = state[0] * blocks.block_rows if state else 0
        rows = rows if n is None else min(rows, n)
        tail = blocks.part(rows, n) if rows and n is not None else None
        LOG.info("%s: pass %d from row %d on", self.label, self._number, rows)
        blocks.report_rows(rows)
        with _deferred_signals() as signals:

            def watch(block: Any, state: list[Any]) -> None:
                blocks.report_rows(block.X.shape[0])
                if time.monotonic() >= self._deadline or signals:
                    self._unwritten[name] = {"digest": record["digest"], "state": state}
                    self._write()
                if signals:
                    signals[0]()

            tail_blocks = (block for block in (tail or blocks).walk() if block.start >= rows)
            return sum_blocks(summand, tail_blocks, blocks.block_rows, state, watch)

    def _write(self) -> None:
        """Write the records; warn if they cannot be written."""
        start = time.monotonic()
        try:
            for name in list(self._unwritten):
                record, arrays = encode(self._unwritten[name])
                with open_atomic(self._folder / name) as file:
                    np.savez(file, allow_pickle=False, record=json.dumps(record), **arrays)
                del self._unwritten[name]
        except InvalidType as error:
            raise InvalidType(
                f"Local: a checkpoint holds sums of NumPy arrays; got {str(error).split(': ')[-1]} "
                "Leave checkpoint out."
            ) from error
        except DataFileError as error:
            warn_user(
                "Local: the checkpoint of an interrupted fit cannot be written: "
                f"{error} The fit continues, and writes again in {self._interval:g} seconds.",
                BochnerWarning,
            )
        end = time.monotonic()
        LOG.debug("%s: recorded in %.2f s", self.label, end - start)
        self._deadline = end + max(self._interval, (end - start) / SHARE)


# --- The fingerprint of a sum, by which its record is recognised ----------------------------------


class _Digest(NumpyHasher):
    """Hash of a value: its arrays, numbers, text and functions, at any depth."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, Choices):  # the parts that determine the features
            obj = obj.map, obj.kernel, obj.precision, obj.seed
        elif isinstance(obj, FunctionType):
            cells = [cell.cell_contents for cell in obj.__closure__ or ()]
            obj = obj.__qualname__, obj.__code__, cells, obj.__defaults__
        elif isinstance(obj, CodeType):
            obj = obj.co_code, [part for part in obj.co_consts if not isinstance(part, CodeType)]
        elif is_dataclass(obj) and not isinstance(obj, type):  # without cached properties
            values = [getattr(obj, field.name) for field in fields(obj)]
            obj = f"{type(obj).__module__}.{type(obj).__qualname__}", values
        super().save(obj)
