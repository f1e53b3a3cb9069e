"""Forge model files: alter any part of a valid file, and compute its checksum again.

``python forging.py SEED COUNT`` loads COUNT forged files, uses the models, and prints a line of
JSON with the outcomes. A file must work or raise an error of bochner. Memory is bounded by a
constant plus ten times the size of the file, and processor time by a constant.
"""

import copy
import faulthandler
import json
import resource
import signal
import struct
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import learners
import maps
import numpy as np
import scipy.sparse
from gallery import N_COLUMNS
from safetensors.numpy import save as safetensors_bytes

import bochner as bo
from bochner import Blocks, KernelRidgeClassifier
from bochner.errors import BochnerError
from bochner.kernels import Gaussian
from bochner.persist.files import FORMAT, digests_of, seal
from bochner.persist.values import encode, name_of, stored_classes

#: Bytes of memory for one file, besides ten times its size, and seconds of processor time.
BYTES, SECONDS = 256 << 20, 10

NAMES = sorted(map(name_of, stored_classes()))
RNG = np.random.default_rng(7)
X = np.abs(RNG.normal(size=(24, N_COLUMNS)))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=24)
LABELS = np.where(Y > 0.6, "high", np.where(Y > 0.3, "middle", "low"))
SPARSE = scipy.sparse.csr_array(np.where(X > 0.5, X, 0.0))


def fitted():
    """Yield fitted learners with each kind of state that files hold; one of a table with texts."""
    import pandas as pd  # noqa: PLC0415

    yield from (case.fitted for case in learners.CASES)
    table = pd.DataFrame({"a": X[:, 0], "b": LABELS, "c": X[:, 2], "y": LABELS[::-1]})
    blocks = Blocks.from_table(table, target="y")
    model = KernelRidgeClassifier(Gaussian(2.0), method=bo.Nystrom(), n_features=8, random_state=0)
    yield model.fit_blocks(blocks)


def bases():
    """Yield the header, without checksum, and the arrays of each model."""
    models = list(fitted())
    for model in [*models, *map(maps.map_of, maps.CASES)]:
        try:
            value, arrays = encode(model)
        except BochnerError:  # a kernel with a user's function cannot be saved
            continue
        header = {"class": name_of(type(model)), "fingerprint": None}
        header |= {"format": FORMAT, "library": bo.__version__, "value": value}
        yield header, arrays


# --- Alterations ---------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 2, 3, 7, 8, 9, 255, 2**15, 2**30, 2**31, 2**32 - 1, 2**62, 2**63, 2**64]
NUMBERS += [10**9, -(10**9), -(2**31), -(2**63), 2**130, 0.5, -0.5, 1e-300, 1e300, -1e300, 5e-324]
OTHERS_JSON = [None, True, False, "", "x", "float64", "auto", "gaussian", [], {}, [0], "é" * 100]
OTHERS_JSON += [{"tuple": []}, {"tuple": [1, 2]}, {"float": "nan"}, {"float": "inf"}, {"dict": []}]
OTHERS_JSON += [
    {"array": ["map_.kernel", "C"]},
    {"array": ["solution_.coef", "F"]},
    {"scalar": "solution_.coef"},
    {"class": ["Linear", {}]},
]
OTHERS_JSON += [{"text": ["str", [2], ["a", "b"]]}, {"text": ["str", [3], ["a" * 500, "", ""]]}]


def places(item, pairs):
    """Return ``pairs`` with each (container, key) inside a JSON value appended."""
    keys = item.keys() if isinstance(item, dict) else range(len(item))
    for key in keys:
        pairs.append((item, key))
        if isinstance(item[key], dict | list):
            places(item[key], pairs)
    return pairs


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def alter_json(rng, header):
    """Replace or delete a random value in place; numbers most often become other numbers."""
    pairs = places(header, [])
    numbers = [(c, k) for c, k in pairs if isinstance(c[k], int | float)]
    container, key = pick(rng, numbers if numbers and rng.random() < 0.4 else pairs)
    old, (other, name) = container[key], pick(rng, pairs)
    values = [pick(rng, NUMBERS), pick(rng, OTHERS_JSON), pick(rng, NAMES), other, other[name]]
    values += [[old] * int(rng.integers(50)), str(old)[:50]]
    if isinstance(old, int | float):
        values += [old + 1, old - 1, 2 * old, -old, *(pick(rng, NUMBERS) for _ in range(4))]
    container[key] = copy.deepcopy(pick(rng, values))
    if rng.random() < 0.1:
        del container[key]


EXTREMES = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-300, 1e9, -1e9, 2.0**31, -(2.0**63)]
SHAPES = [(0,), (0, 3), (3, 0), (0, 2**40), (2**40, 0), ()]


def alter_array(rng, arrays):
    """Replace a random array by one of other values, dtype or shape, or by another array."""
    if not arrays:
        return
    name, other = pick(rng, sorted(arrays)), pick(rng, sorted(arrays))
    array = np.atleast_1d(arrays[name])
    with np.errstate(all="ignore"):
        extreme = np.asarray(pick(rng, EXTREMES)).astype(array.dtype)
    part = array.copy()
    part.flat[rng.integers(max(array.size, 1)) : array.size] = extreme
    forms = [part, np.full_like(array, extreme), arrays[other], array[: len(array) // 2]]
    forms += [array.astype(pick(rng, ["?", "i1", "i4", "i8", "u8", "f2", "f4", "f8"]))]
    forms += [np.frombuffer(array.tobytes() * 8, pick(rng, ["i4", "i8", "f4", "f8", "u1"]))]
    forms += [np.concatenate([array, array]), np.zeros(pick(rng, SHAPES), array.dtype)]
    forms += [array.reshape(pick(rng, [(array.size,), (1, array.size), (array.size, 1)]))]
    altered = pick(rng, forms)
    arrays[name] = np.ascontiguousarray(altered) if altered.ndim else altered


def alter_bytes(rng, data):
    """Return the file with an altered safetensors header: lengths, offsets, shapes or dtypes."""
    size = struct.unpack("<Q", data[:8])[0]
    if rng.random() < 0.2:
        wrong = pick(rng, [0, 1, size - 1, size + 1, 2**31, 99_999_999, 2**63])
        return struct.pack("<Q", wrong) + data[8:]
    outer = json.loads(data[8 : 8 + size])
    names = [name for name in outer if name != "__metadata__"]
    if names:
        entry = outer[pick(rng, names)]
        key = pick(rng, ["dtype", "shape", "data_offsets"])
        if key == "dtype":
            entry[key] = pick(rng, ["BOOL", "I8", "F8_E4M3", "BF16", "I32", "F16", "U64", "X", ""])
        else:
            numbers = entry[key] or [0]
            numbers[int(rng.integers(len(numbers)))] = pick(rng, NUMBERS[:22])
            entry[key] = numbers
    text = json.dumps(outer).encode()
    if rng.random() < 0.2:
        name = names[0] if names else "0"
        text = text[:-1] + f',"{name}":'.encode() + json.dumps(outer.get(name, 1)).encode() + b"}"
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def forge(rng, header, arrays):
    """Return the bytes of one forged file, or None if it cannot be written."""
    header, arrays = copy.deepcopy(header), dict(arrays)
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.65:
            alter_json(rng, header)
        else:
            alter_array(rng, arrays)
    try:
        data = file_bytes(header, arrays, duplicate=rng.random() < 0.03)
    except (TypeError, ValueError):
        return None
    return alter_bytes(rng, data) if rng.random() < 0.05 else data


def file_bytes(header, arrays, duplicate=False):
    """Return the bytes of a file with a valid checksum; ``duplicate``: with a duplicate key."""
    text = seal(header | {"tensors": digests_of(arrays)})
    text = text[:-1] + ',"value":null}' if duplicate else text
    return safetensors_bytes(arrays, {"bochner": text})


# --- Use of the files ----------------------------------------------------------------------------


def use(model):
    """Call a loaded model on rows: it must work or raise an error of bochner."""
    if isinstance(model, bo.FeatureMap):
        model(rows_of(model.n_inputs))
        return
    if not hasattr(model, "n_features_in_"):
        return
    rows = rows_of(model.n_features_in_)
    for name in ("predict", "transform", "predict_proba", "decision_function"):
        if hasattr(model, name):
            with suppress(BochnerError):
                getattr(model, name)(rows)
    # Other readers of the state may fail, but must not crash or run without end.
    if getattr(model, "sample_", None) is not None:
        model.sample_.X @ np.ones(model.sample_.X.shape[1])
        model.sample_.lowest(3)
    if hasattr(model, "partial_fit") and hasattr(model, "moments_"):
        with suppress(Exception):
            model.partial_fit(rows, np.ones((len(rows), *getattr(model, "target_shape_", ()))))


def rows_of(columns):
    return np.resize(X, (4, columns))


def bound(size):
    """Limit the memory of the process to its present size plus that for a file of ``size``."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + BYTES + 10 * size, -1))


def outcome_of(path):
    """Return the outcome of a file: "refused", "loaded", or the text of a wrong error."""
    bound(path.stat().st_size)
    try:
        model = bo.load(path)
    except BochnerError:
        return "refused"
    except Exception as error:  # noqa: BLE001  any other error is a fault
        return f"load: {type(error).__name__}: {error}"
    try:
        use(model)
    except BochnerError:
        return "loaded"
    except Exception as error:  # noqa: BLE001
        return f"use of {type(model).__name__}: {type(error).__name__}: {error}"
    return "loaded"


def main(seed, count):
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    good, counts = list(bases()), {"refused": 0, "loaded": 0, "wrong": []}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / "forged.bochner"
        for header, arrays in good:  # files without alterations must load
            path.write_bytes(file_bytes(copy.deepcopy(header), arrays))
            if (outcome := outcome_of(path)) != "loaded":
                counts["wrong"].append(f"{header['class']}: {outcome}")
        for number in range(count):
            data = forge(np.random.default_rng([seed, number]), *good[number % len(good)])
            if data is None:
                continue
            sys.stderr.write(f"{number}\n")  # names the file if the process dies
            path.write_bytes(data)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            outcome = outcome_of(path)
            if outcome in counts:
                counts[outcome] += 1
            else:
                counts["wrong"].append(f"{number}: {outcome}")
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)  # prints the stack; then the process ends
    main(int(sys.argv[1]), int(sys.argv[2]))
