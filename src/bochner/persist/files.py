"""A model in one safetensors file: a header, and arrays named by their path in the model.

The metadata of the safetensors file hold one text, the header::

    {"checksum": sha256 of the JSON text of all other entries,
     "class": "models.ridge.estimators:KernelRidge", "format": 3, "library": "0.1.0",
     "tensors": {"solution_.coef": sha256 of its type, shape and numbers, …},
     "value": parameters and fitted state, arrays by name}
"""

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from bochner import __version__
from bochner._core.optional import raise_as
from bochner.data.blocks import Blocks
from bochner.data.files import reason_of, similar_names
from bochner.data.writers import open_atomic
from bochner.errors import BochnerError, InvalidType, ModelFileError
from bochner.features.map import FeatureMap
from bochner.models._base import KernelEstimator
from bochner.persist.values import class_of, decode, encode, name_of

FORMAT = 3  # increased when earlier versions cannot read the file
_DAMAGED = "it is cut short or altered. Copy it again, or save the model again"
_MISREAD = SafetensorError, AttributeError, LookupError, RecursionError, TypeError, ValueError


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a model into one file, atomically.

    Parameters
    ----------
    model : estimator, FeatureMap, Kernel, Method or Moments
        Any object of bochner's classes, fitted or not. Kernel classes of your own must be frozen
        dataclasses, and are passed to :func:`load`. The model's ``random_state`` must be an
        integer or None. Save scikit-learn pipelines with skops: see ``bochner.export.TRUSTED``.
    path : path
        Usually named ``*.bochner``. An existing file is replaced.

    Raises
    ------
    InvalidType
        A part of the model is not of these classes.
    DataFileError
        The file cannot be written.

    See Also
    --------
    load : Read the file.

    Notes
    -----
    The file is JSON and arrays (safetensors); the same model gives the same bytes, and predictions
    of a loaded model are identical, bit for bit. Saving takes twice the memory of the arrays.
    **It holds rows of the training data**: the landmarks of Nyström features, and the random
    sample of rows that the certificate is measured on. Treat it as you treat the data.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> model = bo.KernelRidge(random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bo.save(model, Path(folder) / "model.bochner")
    ...     again = bo.load(Path(folder) / "model.bochner")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    name = name_of(type(model))
    if name is None:
        raise InvalidType(
            "save: model must be an estimator, map, kernel, method or moments of bochner; "
            f"got {type(model).__module__}.{type(model).__qualname__}. Pipelines are for skops."
        )
    value, arrays = encode(model)
    header = {"class": name, "format": FORMAT, "library": __version__, "value": value}
    with open_atomic(path) as file:
        tensors = digests_of(arrays)
        file.write(to_bytes(arrays, {"bochner": seal({**header, "tensors": tensors})}))


def load(path: str | PathLike[str], *, kernels: Iterable[type] = ()) -> Any:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    path : path
    kernels : iterable of classes, optional
        Kernel classes of your own that the file may hold.

    Returns
    -------
    model
        Equal to the saved model: on the same machine its predictions have the same bits.

    Raises
    ------
    ModelFileError
        The file does not exist, is truncated or altered, is no model file, or has a newer format.

    See Also
    --------
    save : Write the file; with an example.

    Notes
    -----
    Untrusted files are safe: only JSON and arrays are read, only classes of bochner are built,
    and no code in the file is run. Types, shapes, indices and sizes are checked, coefficients must
    be finite, and the model is run on rows of zeros before it is returned.
    Loading takes at most about ten times the size of the file in memory, and 100 MB; for a file of
    :func:`save` twice the model's arrays.
    The checksum detects damage, not forgery: the author of a file determines its predictions.
    """
    path = Path(path).expanduser()
    with raise_as(partial(_read_error, path), OSError), path.open("rb") as file:
        beginning, size = file.read(64), file.seek(0, os.SEEK_END)
        with raise_as(lambda _: _refusal(path, _describe(beginning)), *_MISREAD):
            header = _header(path, file, size)
            file.seek(0)
            # not a memory map: it would end the process if the file were truncated meanwhile
            arrays = from_bytes(file.read())
            if header["tensors"] != digests_of(arrays):
                raise _refusal(path, _DAMAGED)
    try:
        require_arrays(arrays)
        require_nesting(header, size)
        user_kernels = {f"{cls.__module__}:{cls.__qualname__}": cls for cls in kernels}
        model = decode(header["value"], arrays, user_kernels)
        class_name = header["class"]
        if type(model) is not (user_kernels.get(class_name) or class_of(class_name)):
            raise TypeError("the file says that it holds another class")
        require_evaluable(model, size)
    except Exception as error:
        reason = _clip(error, 120) or type(error).__name__
        kind = f"a {_clip(header.get('class'), 80).rpartition(':')[2]} as of bochner"
        raise _refusal(
            path,
            f"it holds {kind} {_clip(header.get('library'))}, which this version, {__version__}, "
            f"cannot build ({reason}). Load it with the version that wrote it",
        ) from error
    return model


def seal(header: Mapping[str, Any]) -> str:
    """Return a header as JSON text, with a checksum of its other entries."""
    text = partial(json.dumps, sort_keys=True, separators=(",", ":"), allow_nan=False)
    fields = {name: part for name, part in header.items() if name != "checksum"}
    return text(fields | {"checksum": hashlib.sha256(text(fields).encode()).hexdigest()})


def digests_of(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return a checksum of the type, shape and numbers of each array."""
    totals = {k: hashlib.sha256(f"{A.dtype.name} {A.shape}".encode()) for k, A in arrays.items()}
    for name, total in totals.items():
        total.update(np.ascontiguousarray(arrays[name]).data)
    return {name: total.hexdigest() for name, total in totals.items()}


# --- Refusals ------------------------------------------------------------------------------------


def _refusal(path: Path, end: str) -> ModelFileError:
    return ModelFileError(f"load: '{path}' must be a model file as bochner.save writes it; {end}.")


def _read_error(path: Path, error: OSError) -> ModelFileError:
    if isinstance(error, FileNotFoundError):
        return _refusal(path, f"there is no such file{similar_names(path)}")
    if isinstance(error, IsADirectoryError):
        return _refusal(path, "it is a folder. Name the file in it")
    return _refusal(path, f"it cannot be read: {reason_of(error)}")


def _clip(value: Any, limit: int = 40) -> str:
    """Return a value of a file as one line of text, truncated."""
    return " ".join(str(value).split())[:limit]


def _describe(first_bytes: bytes) -> str:
    """Return the kind of a file that begins with these bytes and is not a model file."""
    if not first_bytes:
        return "it is empty. Copy it again, or save the model again"
    if first_bytes[8:9] == b"{":
        return _DAMAGED
    return "it is something else, such as a pickle or a table, or its beginning is damaged"


def _header(path: Path, file: IO[bytes], size: int) -> dict[str, Any]:
    """Return the header after checking its format and checksum; the arrays are not read."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, 100_000_000):  # the limit of safetensors
        raise ValueError("the header is longer than safetensors allows")
    outer = file.read(length).decode()
    require_bounded(outer, size)
    metadata = json.loads(outer).get("__metadata__")
    if metadata is None or "bochner" not in metadata:
        raise _refusal(path, "it is a safetensors file of another program, or altered")
    text = metadata["bochner"]
    require_bounded(text, size)
    header = json.loads(text)
    version = header.get("format")
    if type(version) is int and version != FORMAT:  # checksums of other formats are unknown
        origin = f"format {_clip(version)} by bochner {_clip(header.get('library'))}"
        raise _refusal(
            path,
            f"it is of {origin}, and this version, {__version__}, reads format {FORMAT}. Upgrade "
            "bochner, or fit the model again and save it",
        )
    if text != seal(header) or type(version) is not int:
        raise _refusal(path, _DAMAGED)
    return header


# --- Limits of the memory that a file may need, proportional to its size: checked before decoding -


def require_bounded(text: str, size: int) -> None:
    """Raise an error if JSON would need far more memory than its file of ``size`` bytes."""
    lists, objects, commas = map(text.count, "[{,")  # 200 bytes each, and 64 for each item
    _require_small(4 * len(text) + 200 * (lists + objects) + 64 * commas, size)


def require_nesting(value: Any, size: int) -> None:
    """Raise an error if JSON is nested too deeply, or its arrays of text need too much memory."""
    level, depth, padding = [value], 0, 0  # NumPy pads each text to the length of the longest
    while level:
        if depth > 600:  # a sum of 100 kernels is 300 deep
            raise ValueError("JSON is nested too deeply")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, list):
                inner += item
            elif isinstance(item, dict):
                inner += item.values()
                match item.get("text"):
                    case [*_, [*texts]]:
                        lengths = [len(text) for text in texts if isinstance(text, str)]
                        padding += 4 * len(texts) * max(lengths, default=0)
        _require_small(padding, size)
        level, depth = inner, depth + 1


def _require_small(need: int, size: int) -> None:
    if need > 10 * size + (1 << 25):
        raise ValueError(f"{need} bytes are too much for a file of {size}")


def require_arrays(arrays: dict[str, np.ndarray]) -> None:
    """Raise an error for booleans other than 0 and 1, and for huge shapes of empty arrays."""
    # NumPy counts True by adding bytes, and would write out of bounds if a byte were above 1.
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"array {name} must hold 0 and 1 only")
        if array.size == 0 and max(array.shape) > 1 << 24:
            raise ValueError(f"array {name} has no elements and the shape {array.shape}")


# --- A model must be consistent and evaluate rows ------------------------------------------------


def require_evaluable(model: Any, size: int) -> None:
    """Raise an error if a map or learner cannot evaluate rows; ``size`` is its size as a file."""
    if isinstance(model, FeatureMap):
        phi: FeatureMap | None = model
        columns = model.n_inputs
        calls: list[Callable[[Any], Any]] = [model]
    elif isinstance(model, KernelEstimator) and hasattr(model, "n_features_in_"):
        model = copy.copy(model)
        phi, columns = getattr(model, "map_", None), model.fit_.inputs.n_columns
        pairs = ("predict", "outputs"), ("transform", "transform")
        calls = [getattr(model, call) for has, call in pairs if hasattr(model, has)]
    else:
        return
    if phi is not None and min(phi.n_inputs, phi.n_features) < 0:
        raise ValueError("a map must have columns and features")
    for width in (columns, 0 if phi is None else phi.n_inputs + phi.n_features):
        if 3 * 4 * 8 * width > 10 * size + (1 << 26):  # three rows of four such arrays
            raise ValueError(f"{width} columns are too many for a file of {size} bytes")
    for n in (2, 3):  # shapes that fit one number of rows by chance fail on the other
        zeros = np.zeros((n, columns))
        for call in calls:
            # errors of bochner are allowed: zero may be outside the domain of a kernel
            with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(BochnerError):
                warnings.simplefilter("ignore", RuntimeWarning)
                predictions = call(zeros if phi is model else Blocks.from_arrays(zeros))
                if isinstance(predictions, dict) and hasattr(model, "classes_"):
                    k = predictions["decision"].size // n
                    if max(2, k) != len(model.classes_):
                        raise ValueError(f"{k} decision values do not fit the classes")
