"""What this machine does in a second: measured once, in a few seconds, and kept.

Rates are seconds for one unit of work in the shapes that a fit has, by the very functions that a
fit calls, with as many threads as they will have then. They are kept in the user's cache folder,
in one file for each machine, set of versions and number of threads; ``BOCHNER_CACHE`` in the
environment names another folder. A file that cannot be read or written is as if it were not there.
"""

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.linalg import solve_triangular

from bochner._core import native
from bochner._core.blas import add_gram, cholesky, eigh, product, svd, triangular_product
from bochner.data.writers import atomic
from bochner.errors import DataFileError

Timer = Callable[[], float]

#: Widths that factorisations and sums are timed at; between two of them rates are interpolated,
#: beyond the last one they stay.
WIDTHS = (128, 512, 1024)

#: A measurement is repeated so often, and for so long, and the least is taken: what else the
#: machine does only adds.
REPEATS, MOMENT = 5, 0.15

#: Columns of the rows that features and kernel values are timed on.
COLUMNS = (2, 32)

#: What is kept is measured anew where the machine is now so many times slower or faster.
OTHER_PACE = 1.4

#: Width that the pace is judged by.
PULSE = 512


@dataclass(frozen=True)
class Machine:
    """Seconds for one unit of work.

    Attributes
    ----------
    gram : dict of str to (tuple of float)
        By precision, at each of :data:`WIDTHS`: a row's share of the moments, for each of D²
        entries.
    eigen, factor, singular : tuple of float
        Eigendecomposition and Cholesky factor, for each of D³; singular values of 2D × D
        numbers, for each of 2D³. At each width.
    product : dict of str to float
        By precision: one multiplication of a matrix product.
    triangle, solve : float
        One of a product in place with a triangular matrix, one of a triangular solve.
    cosine : dict of str to (tuple of float)
        By precision: cosine and sine of one frequency of one row, in 2 and in 32 columns.
    hadamard : dict of str to float
        By precision: one of the p log₂ p additions of a transform.
    kernel : dict of str to (tuple of float)
        By precision: one Gaussian kernel value, in 2 and in 32 columns.
    copy : float
        A byte that is read and written in memory.
    threads : int
        Threads of the compiled loops.
    """

    gram: Mapping[str, tuple[float, ...]]
    eigen: tuple[float, ...]
    factor: tuple[float, ...]
    singular: tuple[float, ...]
    product: Mapping[str, float]
    triangle: float
    solve: float
    cosine: Mapping[str, tuple[float, ...]]
    hadamard: Mapping[str, float]
    kernel: Mapping[str, tuple[float, ...]]
    copy: float
    threads: int

    def sweep(self, rows: float, D: int, precision: str) -> float:
        """Return seconds to add so many rows to the moments of D features."""
        return rows * D**2 * _between(self.gram[precision], D)

    def eigh(self, D: int) -> float:
        """Return seconds of the eigendecomposition of a D × D matrix."""
        return D**3 * _between(self.eigen, D)

    def cholesky(self, D: int) -> float:
        """Return seconds of the Cholesky factor of a D × D matrix."""
        return D**3 * _between(self.factor, D)

    def svd(self, n: int, D: int) -> float:
        """Return seconds of the singular values and vectors of an n × D matrix."""
        m = min(n, D)
        return n * D * m * _between(self.singular, m)

    def cosines(self, rows: float, frequencies: int, d: int, precision: str) -> float:
        """Return seconds of cosine and sine features."""
        return rows * frequencies * _in_columns(self.cosine[precision], d)

    def tiles(self, values: float, d: int, precision: str) -> float:
        """Return seconds of so many values of a Gaussian kernel."""
        return values * _in_columns(self.kernel[precision], d)


def _between(rates: tuple[float, ...], D: int) -> float:
    """Return the rate at a width, interpolated in its logarithm."""
    return float(np.exp(np.interp(np.log(D), np.log(WIDTHS), np.log(rates))))


def _in_columns(rates: tuple[float, ...], d: int) -> float:
    """Return a rate that grows in proportion to the number of columns, from a constant."""
    low, high = COLUMNS
    slope = max(0.0, (rates[1] - rates[0]) / (high - low))
    return max(rates[0] + slope * (d - low), 0.5 * rates[0])


# --- kept ----------------------------------------------------------------------------------------


def machine(timer: Timer = time.perf_counter) -> Machine:
    """Return the rates of this machine: those kept, if its pace is still the same, else anew."""
    path = _path(timer)
    kept = _read(path)
    if kept is not None and 1 / OTHER_PACE < _pace(kept, timer) < OTHER_PACE:
        return kept
    found = measured(timer)
    _write(path, found)
    return found


def _pace(kept: Machine, timer: Timer) -> float:
    """Return how many times slower the machine is now than the rates say."""
    return _gram_rate(PULSE, "float64", timer) / kept.gram["float64"][WIDTHS.index(PULSE)]


def _path(timer: Timer) -> Path:
    """Return the file for this machine, these versions and so many threads."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    told = (
        [platform.node(), platform.machine(), platform.processor(), platform.python_version()]
        + [np.__version__, scipy.__version__, _version(), str(native.HAVE_NATIVE)]
        + [str(native.get_num_threads()), str(_cores()), getattr(timer, "__name__", "timer")]
        + [os.environ.get(name, "") for name in names]
    )
    return _folder() / f"machine-{sha256('|'.join(told).encode()).hexdigest()[:16]}.json"


def _version() -> str:
    try:
        return metadata.version("bochner")
    except metadata.PackageNotFoundError:
        return "source"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _folder() -> Path:
    """Return the folder of BOCHNER_CACHE, else the user's for caches."""
    given = os.environ.get("BOCHNER_CACHE")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/bochner").expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "bochner" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bochner"


def _read(path: Path) -> Machine | None:
    """Return what was kept, or None where that is not rates: whatever else it is, it is no harm."""
    try:
        return _checked(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _checked(kept: Any) -> Machine:
    fields = {name: _numbers(kept[name]) for name in Machine.__dataclass_fields__}
    found = Machine(**fields)
    lengths = [len(r) for r in (*found.gram.values(), found.eigen, found.factor, found.singular)]
    pairs = [len(r) for r in (*found.cosine.values(), *found.kernel.values())]
    by_precision = (found.gram, found.product, found.cosine, found.hadamard, found.kernel)
    both = [set(part) for part in by_precision]
    if set(lengths) != {len(WIDTHS)} or set(pairs) != {2} or both != [{"float32", "float64"}] * 5:
        raise ValueError("not rates of this version")
    return found


def _numbers(kept: Any) -> Any:
    """Return positive numbers, as tuples where they are lists."""
    if isinstance(kept, dict):
        return {name: _numbers(item) for name, item in kept.items()}
    if isinstance(kept, list):
        return tuple(map(_numbers, kept))
    if isinstance(kept, bool) or not isinstance(kept, int | float) or not 0 < kept < math.inf:
        raise ValueError(f"not a rate: {kept!r}")
    return kept


def _write(path: Path, found: Machine) -> None:
    """Keep the rates; where that cannot be they are measured again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path, "w") as file:
            json.dump(asdict(found), file)
    except (OSError, DataFileError):
        return


# --- measured ------------------------------------------------------------------------------------


def least_time(act: Callable[[], Any], timer: Timer = time.perf_counter) -> float:
    """Return the least seconds of a few repeats, after one that is not counted if it was short."""
    seconds: list[float] = []
    began = timer()
    act()
    first = timer() - began
    while len(seconds) < REPEATS and sum(seconds) + first < MOMENT:
        began = timer()
        act()
        seconds.append(timer() - began)
    return max(min(seconds, default=first), 1e-9)


def measured(timer: Timer = time.perf_counter) -> Machine:
    """Measure all rates, in about three seconds of one core."""
    single = ("float32", "float64")
    return Machine(
        gram={p: tuple(_gram_rate(D, p, timer) for D in WIDTHS) for p in single},
        eigen=tuple(_eigen_rate(D, timer) for D in WIDTHS),
        factor=tuple(_factor_rate(D, timer) for D in WIDTHS),
        singular=tuple(_singular_rate(min(D, 512), timer) for D in WIDTHS),
        product={p: _product_rate(p, timer) for p in single},
        triangle=_triangle_rate(timer),
        solve=_solve_rate(timer),
        cosine={p: tuple(_cosine_rate(d, p, timer) for d in COLUMNS) for p in single},
        hadamard={p: _hadamard_rate(p, timer) for p in single},
        kernel={p: tuple(_kernel_rate(d, p, timer) for d in COLUMNS) for p in single},
        copy=_copy_rate(timer),
        threads=native.get_num_threads(),
    )


def _rows(n: int, D: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, D), dtype=np.float32).astype(dtype)


def _gram(D: int, seed: int = 0) -> np.ndarray:
    """Return a positive matrix whose eigenvalues fall as those of features do."""
    Z = _rows(2 * D, D, seed=seed) * np.arange(1, D + 1) ** -1.5
    return Z.T @ Z + 1e-8 * np.eye(D)


def _gram_rate(D: int, precision: str, timer: Timer) -> float:
    """Time what a sweep does with the features of a block: centre, add up, and the sums of y."""
    n = 2048
    Z, mean, room = _rows(n, D, precision), _rows(1, D, precision), np.empty((n, D), precision)
    G, right = np.zeros((D, D), precision, order="F"), _rows(2, n, precision)

    def act() -> None:
        np.subtract(Z, mean, out=room)
        product(right, room)
        add_gram(G, room)

    return least_time(act, timer) / (n * D**2)


def _eigen_rate(D: int, timer: Timer) -> float:
    G = _gram(D)
    return least_time(lambda: eigh(G, driver="evd", check_finite=False), timer) / D**3


def _factor_rate(D: int, timer: Timer) -> float:
    G = _gram(D)
    return least_time(lambda: cholesky(G, lower=True, check_finite=False), timer) / D**3


def _singular_rate(D: int, timer: Timer) -> float:
    Z = _rows(2 * D, D)
    act = least_time(lambda: svd(Z, full_matrices=False, check_finite=False), timer)
    return act / (2 * D**3)


def _product_rate(precision: str, timer: Timer) -> float:
    A, B = _rows(2048, 512, precision), _rows(512, 512, precision)
    return least_time(lambda: product(A, B), timer) / (2048 * 512**2)


def _triangle_rate(timer: Timer) -> float:
    C, L = _rows(2048, 512), np.tril(_rows(512, 512)) / 512
    return least_time(lambda: triangular_product(C, L), timer) / (2048 * 512**2)


def _solve_rate(timer: Timer) -> float:
    L, B = cholesky(_gram(512), lower=True), _rows(512, 2048)
    act = least_time(lambda: solve_triangular(L, B, lower=True, check_finite=False), timer)
    return act / (2048 * 512**2)


def _cosine_rate(d: int, precision: str, timer: Timer) -> float:
    X, T = _rows(2048, d, precision), _rows(d, 256, precision, seed=1)
    room = np.empty((2048, 512), precision)
    return least_time(lambda: native.cos_sin(X, T, 1.0, room), timer) / (2048 * 256)


def _hadamard_rate(precision: str, timer: Timer) -> float:
    X = _rows(2048, 256, precision)
    room = np.empty_like(X)
    return least_time(lambda: native.hadamard(X, room), timer) / (2048 * 256 * 8)


def _kernel_rate(d: int, precision: str, timer: Timer) -> float:
    X = _rows(1024, d, precision)
    return least_time(lambda: native.radial(X, X, "gaussian", 1.0), timer) / 1024**2


def _copy_rate(timer: Timer) -> float:
    A = np.ones(1 << 22)
    room = np.empty_like(A)
    return least_time(lambda: np.copyto(room, A), timer) / A.nbytes
