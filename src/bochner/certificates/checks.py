"""Checks of a user's own kernel (``check_kernel``) and feature map (``check_features``)."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from bochner._core.arrays import as_matrix, taken, to_numpy
from bochner._core.blas import eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.html import ShownResult
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel

ROWS = 200  # Rows that are looked at: eigenvalues of their matrix take milliseconds
#: Share of the largest value up to which a difference is rounding, in float64 and in float32.
#: Nyström maps add a jitter of 1e-6 to K in float32, which shows near the landmarks.
ROUNDING = {"float64": 1e-10, "float32": 1e-3}


def _some_rows(who: str, X: Any, least: int, rng: np.random.Generator) -> Float[Array, "n d"]:
    """Return at most 200 random rows in float64."""
    X = as_matrix(X, who)
    if X.shape[0] < least:
        rows = "one row" if least == 1 else f"{least} rows"
        raise InvalidInput(f"{who}: X must have at least {rows}; got {X.shape[0]}. Pass more.")
    chosen = np.sort(rng.permutation(X.shape[0])[:ROWS])
    return to_numpy(taken(X, chosen, axis=0)).astype(np.float64)


@dataclass(frozen=True)
class Flaw(ShownResult):
    """One thing that is wrong with a kernel.

    Attributes
    ----------
    name : str
        "raises", "shape", "dtype", "finite", "deterministic", "arguments", "rows", "symmetric",
        "diagonal" or "positive".
    sentence : str
        What was required, what came, and what to do.
    evidence : dict
        The numbers: rows, values, eigenvector.
    """

    name: str
    sentence: str
    evidence: dict[str, Any]

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class KernelCheck(ShownResult):
    """What :func:`check_kernel` found; ``print(check)`` says it in sentences.

    Attributes
    ----------
    kernel : Kernel
    n_rows, n_columns : int
        Of the rows it was looked at with.
    flaws : tuple of Flaw
        Empty if there is nothing wrong.
    """

    kernel: Kernel
    n_rows: int
    n_columns: int
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.flaws

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        looked = f"on {self.n_rows} rows of {self.n_columns} columns"
        if self.ok:
            return (
                f"{self.kernel!r} obeys every law of a kernel {looked}: shape, dtype, finite, "
                "symmetric, positive semi-definite, diagonal."
            )
        lines = "".join(f"\n  {flaw.name}: {flaw}" for flaw in self.flaws)
        return f"{self.kernel!r} is not a kernel {looked}:{lines}"


def check_kernel(
    kernel: Kernel, X: Float[Array, "n d"] | None = None, *, random_state: Seed = 0
) -> KernelCheck:
    """Look for what is wrong with a kernel of your own.

    Parameters
    ----------
    kernel : Kernel
        A ``Custom(function)`` or any other kernel.
    X : (n, d), optional
        Rows of your data, of which at most 200 are looked at; by default normal rows of three
        columns, or positive ones where the kernel refuses those. A law that holds on some rows
        may fail on others: your own are the ones that count.
    random_state : int, Generator, RandomState or None, default 0
        Which rows.

    Returns
    -------
    KernelCheck
        ``.ok``, ``.flaws`` and, as ``str``, sentences.

    Notes
    -----
    O(n²) kernel values and O(n³) for the eigenvalues, n ≤ 200. Looked at: shapes, float32 and
    float64 kept, finite values, the same values when asked again and beside other
    rows, arguments unchanged, k(x, y) = k(y, x), ``diag``, and no negative eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Custom
    >>> check = bo.check_kernel(Custom(lambda X, Y: np.tanh(X @ Y.T - 1)))
    >>> check.ok
    False
    >>> [flaw.name for flaw in check.flaws]
    ['positive']
    """
    if not isinstance(kernel, Kernel):
        raise InvalidType(
            f"check_kernel: kernel must be a Kernel; got {kernel!r}. Wrap a function of your own: "
            "Custom(function)."
        )
    rng = stream(seed_of(random_state), "check_kernel")
    rows = _default_rows(kernel, rng) if X is None else _some_rows("check_kernel", X, 1, rng)
    return KernelCheck(kernel, rows.shape[0], rows.shape[1], tuple(_flaws(kernel, rows, rng)))


def _default_rows(kernel: Kernel, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    normal = rng.standard_normal((60, 3))
    try:
        kernel(normal[:1])
    except InvalidInput:
        return np.abs(normal)
    except Exception:  # noqa: BLE001  whatever a user's function raises is reported by the check
        return normal
    return normal


def _flaws(kernel: Kernel, X: Float[Array, "n d"], rng: np.random.Generator) -> Iterator[Flaw]:
    """Yield what is wrong; laws of values are looked at where shapes and values are in order."""
    try:
        first = list(_form(kernel, X))
        yield from first
        if not any(flaw.name in {"shape", "finite"} for flaw in first):
            for law in (_repeats, _unchanged, _consistent):
                yield from law(kernel, X)
            yield from _positive(kernel, X, rng)
    except Exception as error:  # noqa: BLE001  the report is of whatever a user's function raises
        yield Flaw(
            "raises",
            f"a kernel must give values for every table of finite rows; it raised "
            f"{type(error).__name__}: {error}",
            {"error": error},
        )


def _form(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    """Shapes, dtypes, finite values."""
    few = X[: max(1, len(X) // 2)]
    asked: list[tuple[str, Callable[[Array], Any], tuple[int, ...]]] = [
        ("k(X, Y)", lambda A: kernel(A[: len(few)], A), (len(few), len(X))),
        ("k(X)", kernel, (len(X), len(X))),
        ("k.diag(X)", kernel.diag, (len(X),)),
    ]
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        for what, ask, shape in asked:
            yield from _form_of(what, ask(rows), shape, dtype)


def _form_of(what: str, K: Any, shape: tuple[int, ...], dtype: str) -> Iterator[Flaw]:
    found = tuple(getattr(K, "shape", ()))
    if found != shape:
        yield Flaw(
            "shape",
            f"{what} must have one value for each pair of rows, shape {shape}; got {found}.",
            {"what": what, "required": shape, "found": found},
        )
        return
    if str(K.dtype) != dtype:
        yield Flaw(
            "dtype",
            f"{what} must keep the precision of the rows; got {K.dtype} for {dtype}. Cast the "
            "result: K.astype(X.dtype).",
            {"what": what, "required": dtype, "found": str(K.dtype)},
        )
    if not np.isfinite(K).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(K))[0])
        yield Flaw(
            "finite",
            f"{what} must be finite; got {K[place]} at {place} in {dtype}, and "
            f"{int((~np.isfinite(K)).sum())} such values in all.",
            {"what": what, "place": place, "value": float(K[place])},
        )


def _repeats(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    first, second = kernel(X), kernel(X)
    if not np.array_equal(first, second):
        worst = float(np.abs(first - second).max())
        yield Flaw(
            "deterministic",
            f"k(X) must be the same when asked again; values differ by up to {worst:.3g}. Fix the "
            "random numbers before the kernel is made.",
            {"difference": worst},
        )


def _unchanged(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    rows, others = X.copy(), X[::-1].copy()
    kernel(rows, others)
    if not (np.array_equal(rows, X) and np.array_equal(others, X[::-1])):
        yield Flaw(
            "arguments",
            "k(X, Y) must leave X and Y as they are; it wrote into them. Copy before you change.",
            {},
        )


def _consistent(kernel: Kernel, X: Float[Array, "n d"]) -> Iterator[Flaw]:
    """Each value must be of its own two rows: blocks of any size give one matrix, symmetric."""
    half = (len(X) + 1) // 2
    law = "a value must depend on its own two rows only; beside other rows it"
    yield from _same("rows", law, kernel(X[:half], X[half - 1 :]), kernel(X, X)[:half, half - 1 :])
    A, B = kernel(X, X.copy()), kernel(X.copy(), X)
    yield from _same("symmetric", "k(x, y) must be k(y, x); it", A, B.T)
    diagonal, values = kernel.diag(X), np.diag(kernel(X))
    yield from _same("diagonal", "k.diag(X) must be the diagonal of k(X); it", diagonal, values)


def _same(name: str, law: str, A: Array, B: Array) -> Iterator[Flaw]:
    gap = np.abs(A - B)
    allowed = ROUNDING["float64"] * max(float(np.abs(B).max()), np.finfo(float).tiny)
    if gap.size == 0 or gap.max() <= allowed:
        return
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    yield Flaw(
        name,
        f"{law} is {A[place]:.6g} instead of {B[place]:.6g} at {place}, and differs in "
        f"{int((gap > allowed).sum())} of {gap.size} values.",
        {"place": place, "values": (float(A[place]), float(B[place])), "largest": float(gap.max())},
    )


def _positive(kernel: Kernel, X: Float[Array, "n d"], rng: np.random.Generator) -> Iterator[Flaw]:
    """Look at all rows, then at few close together: a bump that is no kernel shows there."""
    near = X[0] + 0.1 * (X[rng.permutation(len(X))[:ROWS]] - X[0])
    for rows in (X, np.concatenate([X[:20], near[:40]])):
        K = kernel(rows)
        values, vectors = eigh(0.5 * (K + K.T), driver="evd", check_finite=False)
        if values[0] < -ROUNDING["float64"] * len(K) * max(values[-1], 0.0) or values[-1] < 0:
            c = vectors[:, 0]
            yield Flaw(
                "positive",
                f"K must be positive semi-definite; the smallest of {len(K)} eigenvalues is "
                f"{values[0]:.3g}, the largest {values[-1]:.3g}: Σ c_i c_j k(x_i, x_j) = "
                f"{values[0]:.3g} for the rows and unit vector c in the evidence. "
                "Take another function: there is no feature map for this one.",
                {"smallest": float(values[0]), "largest": float(values[-1]), "rows": rows, "c": c},
            )
            return


# --- ``check_features``: whether a feature map obeys its laws, one by one, with the evidence -----

#: Draws of a random map whose mean is compared with the kernel, and pairs it is compared on.
DRAWS, PAIRS = 100, 30
LOST = 0.1  # Share of rows that features may hold less than half of
ALARM = 1e-6  # Chance that an unbiased map is called biased


@dataclass(frozen=True)
class FeatureLaw(ShownResult):
    """One law, and what came of it.

    Attributes
    ----------
    name : str
    outcome : {"passed", "failed", "not applicable"}
    sentence : str
        What was required, and where it failed what came.
    number, tolerance : float or None
        The number that was measured and what it had to stay at or below, where there is one.
    """

    name: str
    outcome: str
    sentence: str
    number: float | None = None
    tolerance: float | None = None

    def __str__(self) -> str:
        mark = {"passed": "ok", "failed": "FAILED", "not applicable": "-"}[self.outcome]
        said = f"{mark:6} {self.name}: {self.sentence}"
        if self.number is None:
            return said
        return f"{said} [{self.number:.3g}, at most {self.tolerance:.3g}]"


@dataclass(frozen=True)
class FeatureCheck(ShownResult):
    """What :func:`check_features` found; ``print(check)`` shows every law.

    Attributes
    ----------
    laws : tuple of FeatureLaw
    n_rows, n_columns : int
        Of the rows the map was looked at with.
    """

    laws: tuple[FeatureLaw, ...]
    n_rows: int
    n_columns: int

    @property
    def ok(self) -> bool:
        """Whether no law failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[FeatureLaw, ...]:
        """The laws that failed."""
        return tuple(law for law in self.laws if law.outcome == "failed")

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, name: str) -> FeatureLaw:
        return {law.name: law for law in self.laws}[name]

    def __str__(self) -> str:
        count = [law.outcome for law in self.laws].count("passed")
        head = (
            f"On {self.n_rows} rows of {self.n_columns} columns {count} laws hold, "
            f"{len(self.failed)} fail, {len(self.laws) - count - len(self.failed)} do not apply."
        )
        return "\n".join([head, *map(str, self.laws)])


@dataclass(frozen=True)
class Subject:
    """The map, its kernel if it has one, the rows, and how to draw another."""

    phi: Any
    kernel: Any
    X: Float[np.ndarray, "n d"]
    redraw: Callable[[int], Any] | None
    tolerance: float


def check_features(
    phi: Any,
    X: Float[Array, "n d"] | None = None,
    *,
    kernel: Kernel | None = None,
    redraw: Callable[[int], Any] | None = None,
    tolerance: float = 1.0,
    random_state: Seed = 0,
) -> FeatureCheck:
    """Look whether a feature map, of yours or of the library, obeys the laws of one.

    Parameters
    ----------
    phi : FeatureMap
        Or any callable from (n, d) rows to (n, D) features.
    X : (n, d), optional
        Rows of your data, of which at most 200 are looked at; by default normal rows of the map's
        ``n_inputs`` columns. Your own are the ones that count.
    kernel : Kernel, optional
        What φ(x)·φ(y) stands for; ``phi.kernel`` if not given.
    redraw : callable, optional
        From a seed to a map like this one: then the mean of 100 draws is compared with the kernel.
        ``lambda seed: bo.draw(kernel, method, n_features=D, X=X, random_state=seed)``.
    tolerance : float, default 1.0
        What ‖Z Zᵀ − K‖_F/‖K‖_F may be: at 1 features are no better than none.
    random_state : int, Generator, RandomState or None, default 0
        Which rows.

    Returns
    -------
    FeatureCheck
        ``.ok``, ``.failed``, ``.laws`` and, as ``str``, one line a law.

    Notes
    -----
    Laws: shape, dtype, finite, deterministic, arguments, alone (a row's features are its own),
    precision (float32 and float64 agree), refusal (of other columns), pickled, kernel, length (no
    more than a tenth of the rows has less than half of k(x, x) in |φ(x)|²: a row that is lost
    costs little of ‖K‖, and all that is predicted of it), below (of maps that claim Z Zᵀ ⪯ K) and
    unbiased (of maps that can be drawn again; called biased by
    mistake once in a million checks, if the draws' products are about normal).

    Examples
    --------
    >>> import bochner as bo
    >>> from bochner.certificates import check_features
    >>> check = check_features(bo.draw(bo.kernels.Gaussian(), "fourier", n_features=64, n_inputs=3))
    >>> check.ok
    True
    >>> check["below"].outcome
    'not applicable'
    """
    if not callable(phi):
        raise InvalidType(
            f"check_features: phi must be a FeatureMap or a callable of rows; got {phi!r}. "
            "Draw one with bo.draw."
        )
    tolerance = positive(tolerance, "check_features", "tolerance")
    rng = stream(seed_of(random_state), "check_features")
    rows = _rows(phi, X, rng)
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    subject = Subject(phi, kernel, rows, redraw, tolerance)
    return FeatureCheck(tuple(_laws(subject)), *rows.shape)


def _rows(phi: Any, X: Any, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    if X is None:
        d = getattr(phi, "n_inputs", None)
        if d is None:
            raise InvalidInput(
                "check_features: X must be given where the map does not say how many columns it "
                "takes; got none. Pass rows of your data."
            )
        return rng.standard_normal((60, d))
    return _some_rows("check_features", X, 2, rng)


def _laws(subject: Subject) -> Iterator[FeatureLaw]:
    """Yield every law; those of values only where features have their shape and are finite."""
    form = [_looked(subject, law) for law in (_shape, _dtype, _finite)]
    yield from form
    broken = any(law.outcome == "failed" for law in form)
    for law in (_deterministic, _arguments, _alone, _precision, _refusal, _pickled, *MEANING):
        if broken:
            yield FeatureLaw(law.__name__[1:], "not applicable", "the features' form comes first.")
        else:
            yield _looked(subject, law)


#: What came of a law: outcome, sentence, and where there are such number and tolerance.
Found = tuple[str, str] | tuple[str, str, float, float]


def _looked(subject: Subject, law: Callable[[Subject], Found]) -> FeatureLaw:
    """Look at one law; whatever a user's map raises is what came of it."""
    try:
        return FeatureLaw(law.__name__[1:], *law(subject))
    except Exception as error:  # noqa: BLE001  the report is of whatever a user's map raises
        said = f"got {type(error).__name__}: {error}"
        required = "features must be made of every table of finite rows"
        return FeatureLaw(law.__name__[1:], "failed", f"{required}; {said}")


def _features(subject: Subject, X: Array) -> Float[np.ndarray, "n D"]:
    return to_numpy(subject.phi(X))


def _shape(subject: Subject) -> Found:
    n, found = len(subject.X), tuple(getattr(subject.phi(subject.X), "shape", ()))
    D = getattr(subject.phi, "n_features", found[1] if len(found) == 2 else "D")
    few = tuple(getattr(subject.phi(subject.X[:1]), "shape", ()))
    required = f"φ(X) must be ({n}, {D}), one row for each of X"
    if found == (n, D) and few == (1, D):
        return "passed", f"{required}."
    return "failed", f"{required}; got {found}, and {few} for one row."


def _dtype(subject: Subject) -> Found:
    required = "features must have the precision of the rows"
    for dtype in ("float64", "float32"):
        found = str(_features(subject, subject.X.astype(dtype)).dtype)
        if found != dtype:
            return "failed", f"{required}; got {found} for {dtype}."
    return "passed", f"{required}."


def _finite(subject: Subject) -> Found:
    count = int((~np.isfinite(_features(subject, subject.X))).sum())
    return _judged("features must be finite: the count of those that are not", count, 0)


def _judged(sentence: str, number: float, tolerance: float) -> Found:
    outcome = "passed" if number <= tolerance else "failed"
    return outcome, f"{sentence}.", float(number), float(tolerance)


def _gap(A: Array, B: Array) -> float:
    """Return the largest difference, as a share of the largest value."""
    return float(np.abs(A - B).max()) / max(float(np.abs(B).max()), np.finfo(float).tiny)


def _deterministic(subject: Subject) -> Found:
    gap = _gap(_features(subject, subject.X), _features(subject, subject.X))
    return _judged("the same rows must give the same features again", gap, 0)


def _arguments(subject: Subject) -> Found:
    rows = subject.X.copy()
    _features(subject, rows)
    return _judged("the rows must be left as they are", float(np.abs(rows - subject.X).max()), 0)


def _alone(subject: Subject) -> Found:
    half = (len(subject.X) + 1) // 2
    gap = _gap(_features(subject, subject.X[:half]), _features(subject, subject.X)[:half])
    return _judged("the features of a row must not depend on other rows", gap, ROUNDING["float64"])


def _precision(subject: Subject) -> Found:
    single = subject.X.astype(np.float32)
    A, B = _features(subject, single), _features(subject, single.astype(np.float64))
    # Features may differ by a rotation; what they mean may not.
    gap = _gap(A.astype(np.float64) @ A.T.astype(np.float64), B @ B.T)
    sentence = "float32 and float64 rows must have the same products of features"
    return _judged(sentence, gap, ROUNDING["float32"])


def _refusal(subject: Subject) -> Found:
    required = "rows of another number of columns must be refused"
    try:
        subject.phi(np.concatenate([subject.X, subject.X[:, :1]], axis=1))
    except ValueError as error:
        return "passed", f"{required}: {error}"
    return "failed", f"{required}; got features. Check X.shape[1]."


def _pickled(subject: Subject) -> Found:
    required = "a copy by pickle must give the same features"
    if not isinstance(subject.phi, FeatureMap):
        return "not applicable", f"{required}; this is no FeatureMap."
    copy = pickle.loads(pickle.dumps(subject.phi))
    return _judged(required, _gap(to_numpy(copy(subject.X)), _features(subject, subject.X)), 0)


def _matrix(subject: Subject) -> Float[np.ndarray, "n n"]:
    K = to_numpy(subject.kernel(subject.X)).astype(np.float64)
    return (K + K.T) / 2


def _inapplicable(subject: Subject, below: bool | None = None) -> str:
    """Say why a law of the kernel does not apply: without one, or to maps (not) below theirs."""
    claims = bool(getattr(subject.phi, "below_kernel", False))
    if subject.kernel is None:
        return "there is no kernel: pass kernel="
    if below is None or below == claims:
        return ""
    return "this map says it stays below" if claims else "this map does not say so"


def _kernel(subject: Subject) -> Found:
    required = "φ(x)·φ(y) must be near k(x, y): ‖Z Zᵀ − K‖/‖K‖, Frobenius"
    if reason := _inapplicable(subject):
        return "not applicable", f"{required}; {reason}."
    K, Z = _matrix(subject), _features(subject, subject.X)
    error = float(np.linalg.norm(Z @ Z.T.conj() - K)) / max(float(np.linalg.norm(K)), 1e-300)
    return _judged(required, error, subject.tolerance)


def _length(subject: Subject) -> Found:
    required = "|φ(x)|² must be about k(x, x): the share of rows with less than half of it"
    if reason := _inapplicable(subject, below=False):
        return "not applicable", f"{required}; {reason}."
    Z, whole = _features(subject, subject.X), np.diag(_matrix(subject))
    lost = (np.abs(Z) ** 2).sum(axis=1) < 0.5 * whole
    return _judged(required, float(lost.mean()), LOST)


def _below(subject: Subject) -> Found:
    required = "K − Z Zᵀ must have no eigenvalue below zero, as the map says: its depth over ‖K‖"
    if reason := _inapplicable(subject, below=True):
        return "not applicable", f"{required}; {reason}."
    K, Z = _matrix(subject), _features(subject, subject.X)
    depth, size = -float(eigvalsh(K - Z @ Z.T, check_finite=False)[0]), float(np.linalg.norm(K, 2))
    return _judged(required, max(depth, 0.0) / max(size, 1e-300), 1e-8)


def _unbiased(subject: Subject) -> Found:
    required = (
        f"the mean over {DRAWS} draws must be k(x, y): the largest distance in standard errors, "
        f"over {PAIRS} pairs"
    )
    if subject.redraw is None:
        return "not applicable", f"{required}; pass redraw= to look."
    if reason := _inapplicable(subject, below=False):
        return "not applicable", f"{required}; {reason}."
    first = np.arange(PAIRS) % len(subject.X)
    second = (first * 7 + np.arange(PAIRS) // len(subject.X)) % len(subject.X)
    draws = np.empty((DRAWS, PAIRS))
    for seed in range(DRAWS):
        Z = to_numpy(subject.redraw(seed)(subject.X)).astype(np.float64)
        draws[seed] = np.einsum("ij,ij->i", Z[first], Z[second])
    off = np.abs(draws.mean(axis=0) - _matrix(subject)[first, second])
    # Where draws agree to rounding there is no spread to measure by, and rounding is no bias.
    spread = draws.std(axis=0, ddof=1) / DRAWS**0.5 + 1e-12 * np.abs(draws).max()
    bar = float(student.isf(ALARM / (2 * PAIRS), DRAWS - 1))
    return _judged(required, float((off / spread).max()), bar)


MEANING = (_kernel, _length, _below, _unbiased)
