"""Checkpoints: a folder with the sums of a fit so far, and a description of the fit."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from zipfile import BadZipFile

import numpy as np
from joblib.hashing import NumpyHasher

from bochner import __version__
from bochner._core.optional import explained
from bochner.data.writers import atomic
from bochner.errors import DataFileError, InvalidType
from bochner.persist.values import NamedArrays, decode, encode
from bochner.selection.chosen import Chosen
from bochner.solvers.ridge.eigen import Triangle
from bochner.sums.moments import Accumulator

#: The file that says what is fitted, and the one of a pass that is not over.
FIRST, NOW = "fit.json", "now.npz"

#: The name of a record's JSON beside its arrays.
RECORD = "record"

#: Files that a process was killed over while it wrote them.
UNFINISHED = ".*.part"

#: Mutable sums, by their names in files.
OPEN = {"moments": Accumulator, "triangle": Triangle}
_NAMES = {cls: name for name, cls in OPEN.items()}


@dataclass(frozen=True)
class Checkpoint:
    """A folder of recorded passes."""

    folder: Path
    fit: str  # what is fitted, and to which rows
    memory: int  # bytes of features that the fit may keep; a resumed fit may keep as many

    @staticmethod
    def opened(folder: Path, fit: str, memory: int) -> "Checkpoint":
        """Start a checkpoint, or resume it if it is of the same fit; refuse any other folder."""
        asked = {"fit": fit, "version": __version__}
        if folder.is_file():
            raise DataFileError(
                f"Local: the checkpoint '{folder}' must be a folder, or not be there yet; it is a "
                "file. Name another."
            )
        unmade = lambda error: DataFileError(
            f"Local: the checkpoint '{folder}' cannot be made: {(error.strerror or '').lower()}. "
            "Name a folder that can be written."
        )
        with explained(unmade, OSError):
            folder.mkdir(parents=True, exist_ok=True)
        first = folder / FIRST
        if not first.exists():
            if not set(folder.iterdir()) <= set(folder.glob(UNFINISHED)):
                raise foreign(folder, "a folder of other files")
            with atomic(first, "w") as file:
                file.write(json.dumps({**asked, "memory": memory}, indent=1))
            return Checkpoint(folder, fit, memory)
        damaged = foreign(folder, "damaged, or of something else")
        with explained(lambda _: damaged, OSError, ValueError):
            manifest = dict(json.loads(first.read_text(encoding="utf-8")))
        if manifest.get("version") != __version__:
            raise foreign(folder, "by another version of bochner")
        if manifest.get("fit") != fit:
            raise foreign(folder, "of another fit: other parameters, or data that have changed")
        return Checkpoint(folder, fit, int(manifest["memory"]))

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a record, as a whole or not at all."""
        arrays = NamedArrays()
        try:
            header = json.dumps(encode(packed(dict(record)), arrays))
        except InvalidType as error:
            raise InvalidType(
                f"Local: a checkpoint holds sums of NumPy arrays; got {str(error).split(': ')[-1]} "
                "Leave checkpoint out."
            ) from error
        with atomic(self.folder / name) as file:
            np.savez(file, allow_pickle=False, **{RECORD: header}, **arrays.by_name)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a record, None where there is none."""
        path = self.folder / name
        if not path.exists():
            return None
        damaged = lambda error: DataFileError(
            f"Local: the checkpoint '{path}' must be whole; it is damaged "
            f"({str(error).splitlines()[0]}). Delete the folder '{self.folder}' to begin again."
        )
        with explained(damaged, BadZipFile, EOFError, OSError, ValueError, KeyError, TypeError):
            with path.open("rb") as file, np.load(file) as stored:
                arrays = dict(stored)
            return unpacked(decode(json.loads(str(arrays.pop(RECORD))), arrays))

    def clear(self) -> None:
        """Remove all records, and the folder if it is empty then."""
        for name in ("pass-*.npz", NOW, UNFINISHED, FIRST):
            for path in self.folder.glob(name):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def foreign(folder: Path, what: str) -> DataFileError:
    """Return the refusal of a folder that holds something else."""
    return DataFileError(
        f"Local: the checkpoint '{folder}' must be of this fit, to go on from it; it is {what}. "
        "Delete it to begin again, or name another."
    )


# --- Sums as what JSON and arrays hold ------------------------------------------------------------


def packed(value: Any) -> Any:
    """Return a sum whose mutable parts are pairs of a name and their content."""
    name = _NAMES.get(type(value))
    if name is not None:
        return {"open": name, "held": packed(value.__getstate__())}
    if type(value) in (list, tuple):
        return type(value)(packed(part) for part in value)
    if isinstance(value, dict):
        return {key: packed(part) for key, part in value.items()}
    return value


def unpacked(value: Any) -> Any:
    """Return the sum that :func:`packed` took apart."""
    if type(value) in (list, tuple):
        return type(value)(unpacked(part) for part in value)
    if not isinstance(value, dict):
        return value
    if value.keys() != {"open", "held"}:
        return {key: unpacked(part) for key, part in value.items()}
    total: Any = object.__new__(OPEN[value["open"]])
    vars(total).update(unpacked(value["held"]))
    return total


# --- Which sum a record is of ---------------------------------------------------------------------


class _Digest(NumpyHasher):
    """Hash of a value: its arrays, numbers, text and functions, however deep."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, Chosen):  # of choices those of the features, for searches are timed
            obj = obj.map, obj.kernel, obj.precision, obj.seed
        elif isinstance(obj, FunctionType):
            cells = [cell.cell_contents for cell in obj.__closure__ or ()]
            obj = obj.__qualname__, obj.__code__, cells, obj.__defaults__
        elif isinstance(obj, CodeType):
            obj = obj.co_code, [part for part in obj.co_consts if not isinstance(part, CodeType)]
        elif is_dataclass(obj) and not isinstance(obj, type):  # without what it has cached
            values = [getattr(obj, field.name) for field in fields(obj)]
            obj = f"{type(obj).__module__}.{type(obj).__qualname__}", values
        super().save(obj)


def digest_of(value: Any) -> str:
    """Return a digest of the summand of a pass, so that a recorded pass is known again."""
    digest: str = _Digest("md5").hash(value)
    return digest
