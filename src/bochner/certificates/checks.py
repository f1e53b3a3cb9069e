"""Checks of user-defined kernels and feature maps: laws, outcomes and evidence."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bochner._core.arrays import take, to_numpy
from bochner._core.blas import eigh, eigvalsh
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float, Others, Rows
from bochner._core.text import TableResult
from bochner.certificates.pencil import require_rows
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel, require_kernel

#: Share of the largest value up to which a difference is rounding, in float64 and in float32.
#: Nyström maps add a jitter of 1e-6 to K in float32, which shows near the landmarks.
ROUNDING = {"float64": 1e-10, "float32": 1e-3}

PASSED, FAILED, SKIPPED = "passed", "failed", "not applicable"


@dataclass(frozen=True)
class LawCheck:
    """One law and its outcome."""

    name: str
    outcome: str
    sentence: str
    number: float | None = None
    tolerance: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check(TableResult):
    """Result of :func:`check_kernel` or :func:`check_features`; ``print(check)`` shows every law.

    Attributes
    ----------
    subject : Kernel, FeatureMap or callable
        The checked object.
    laws : tuple
        The checked requirements; ``check[name]`` is one of them. Each has

        * ``name``, and ``outcome``: "passed", "failed" or "not applicable";
        * ``sentence``: the requirement in words and, if it failed, the measured value;
        * ``number`` and ``tolerance``: the measured number and its upper bound, or None;
        * ``evidence`` of a failure of a kernel: rows, values and an eigenvector.
    n_rows, n_columns : int
        Size of the table of rows that were examined.
    """

    subject: Any
    laws: tuple[LawCheck, ...]
    n_rows: int
    n_columns: int

    @property
    def ok(self) -> bool:
        """Whether no law failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[LawCheck, ...]:
        """The laws that failed."""
        return tuple(law for law in self.laws if law.outcome == FAILED)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, name: str) -> LawCheck:
        return {law.name: law for law in self.laws}[name]

    _words = (0, 1, 4)

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        number = lambda value: "" if value is None else f"{value:.3g}"
        lines: list[tuple[str, ...]] = [("law", "outcome", "measured", "at most", "requirement")]
        for law in self.laws:
            numbers = number(law.number), number(law.tolerance)
            lines.append((law.name, law.outcome, *numbers, law.sentence))
        count, n_failed = [law.outcome for law in self.laws].count(PASSED), len(self.failed)
        title = (
            f"{self.subject!r}: on {self.n_rows} rows of {self.n_columns} columns {count} laws "
            f"hold, {n_failed} fail, {len(self.laws) - count - n_failed} do not apply."
        )
        return title, lines, ""


#: Outcome, wrong value or reason why the law does not apply, number, tolerance, evidence.
Verdict = tuple[Any, ...]
#: A test of the map (None: of the kernel), its kernel if it has one, and rows.
Test = Callable[[Any, Any, Float[np.ndarray, "n d"]], Verdict]
#: The requirement of each law, and its test.
Laws = dict[str, tuple[str, Test]]


def _check(laws: Laws, phi: Any, kernel: Any, X: Float[np.ndarray, "n d"]) -> Check:
    """Test the laws of `FORM`, and if they hold all other laws."""
    failures, outcomes = False, []
    for name, (requirement, test) in (FORM | laws).items():
        if failures and name in laws:
            outcomes.append(LawCheck(name, SKIPPED, "shape, dtype or finite failed."))
            continue
        try:
            outcome, words, *numbers = test(phi, kernel, X)
            law = LawCheck(name, outcome, f"{requirement}{words or '.'}", *numbers)
        except Exception as error:  # noqa: BLE001  the report has every error of a user's code
            words = "there must be values for every table of finite rows"
            law = LawCheck(name, FAILED, f"{words}; got {type(error).__name__}: {error}")
        failures |= name in FORM and law.outcome == FAILED
        outcomes.append(law)
    return Check(kernel if phi is None else phi, tuple(outcomes), *X.shape)


def _sample(X: Rows, rng: np.random.Generator) -> Others:
    """Return at most 200 random rows in float64."""
    index = np.sort(rng.permutation(X.shape[0])[:200])
    return to_numpy(take(X, index, axis=0)).astype(np.float64)


def _outcome(number: float, tolerance: float) -> Verdict:
    return PASSED if number <= tolerance else FAILED, "", float(number), float(tolerance)


def _values(phi: Any, kernel: Any, X: Array) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the name, the values and the required shape of each result of a kernel or a map."""
    n, half = len(X), max(1, len(X) // 2)
    if phi is None:
        yield "k(X, Y)", kernel(X[:half], X), (half, n)
        yield "k(X)", kernel(X), (n, n)
        yield "k.diag(X)", kernel.diag(X), (n,)
        return
    Z = phi(X)
    D = getattr(phi, "n_features", Z.shape[-1])
    yield "φ(X)", to_numpy(Z), (n, D)
    yield "φ of one row", to_numpy(phi(X[:1])), (1, D)


def _shape(phi: Any, kernel: Any, X: Array) -> Verdict:
    for name, values, shape in _values(phi, kernel, X):
        actual = tuple(getattr(values, "shape", ()))
        if actual != shape:
            return FAILED, f": {name} must have shape {shape}; got {actual}."
    return PASSED, ""


def _dtype(phi: Any, kernel: Any, X: Array) -> Verdict:
    for dtype in ("float64", "float32"):
        for name, values, _ in _values(phi, kernel, X.astype(dtype)):
            if str(values.dtype) != dtype:
                return FAILED, (
                    f"; got {values.dtype} of {name} for {dtype}. Cast the result: "
                    "values.astype(X.dtype)."
                )
    return PASSED, ""


def _finite(phi: Any, kernel: Any, X: Array) -> Verdict:
    for name, values, _ in _values(phi, kernel, X):
        mask = ~np.isfinite(values)
        if mask.any():
            place = tuple(int(i) for i in np.argwhere(mask)[0])
            count = int(mask.sum())
            return FAILED, f"; got {values[place]} of {name} at {place}, {count} in all."
    return PASSED, ""


def _repeats(phi: Any, kernel: Any, X: Array) -> Verdict:
    pairs = zip(_values(phi, kernel, X), _values(phi, kernel, X), strict=True)
    return _outcome(max(float(np.abs(a - b).max(initial=0.0)) for (_, a, _), (_, b, _) in pairs), 0)


def _arguments(phi: Any, kernel: Any, X: Array) -> Verdict:
    rows, reverse = X.copy(), X[::-1].copy()
    kernel(rows, reverse) if phi is None else phi(rows)
    if np.array_equal(rows, X) and np.array_equal(reverse, X[::-1]):
        return PASSED, ""
    return FAILED, "; it wrote into them. Copy before you change."


def _check_equal(A: Array, B: Array, subject: str = "it") -> Verdict:
    gap = np.abs(A - B)
    tolerance = ROUNDING["float64"] * max(float(np.abs(B).max()), np.finfo(float).tiny)
    if gap.size == 0 or gap.max() <= tolerance:
        return PASSED, ""
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    words = (
        f"; {subject} is {A[place]:.6g} instead of {B[place]:.6g} at {place}, and differs in "
        f"{int((gap > tolerance).sum())} of {gap.size} values."
    )
    return FAILED, words, float(gap.max()), tolerance, {"place": place}


#: Laws that must hold before others are tested.
FORM: Laws = {
    "shape": ("there must be values for each row, or each pair of rows", _shape),
    "dtype": ("values must keep the precision of the rows", _dtype),
    "finite": ("values must be finite", _finite),
}
#: Laws of kernels and of maps.
COMMON_LAWS: Laws = {
    "deterministic": ("a second call must return the same values: largest difference", _repeats),
    "arguments": ("the rows passed must not be changed", _arguments),
}


def check_kernel(kernel: Kernel, X: Rows | None = None, *, random_state: Seed = 0) -> Check:
    """Check whether a kernel of your own obeys the laws of a kernel.

    Parameters
    ----------
    kernel : Kernel
        A ``Custom(function)`` or any other kernel.
    X : (n, d), optional
        Rows of your data (at most 200 are examined); by default normal rows of three columns, or
        positive rows if the kernel raises an error for these. A law may hold on some rows and fail
        on others: pass rows of your data.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the choice of rows.

    Returns
    -------
    Check

    Notes
    -----
    O(n²) kernel values and O(n³) for the eigenvalues, n ≤ 200. Laws: shape, dtype (float32 and
    float64 kept), finite, deterministic, arguments (left unchanged), rows (a value depends on its
    own two rows), symmetric, diagonal, and positive (no negative eigenvalue).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Custom
    >>> check = bo.check_kernel(Custom(lambda X, Y: np.tanh(X @ Y.T - 1)))
    >>> check.ok
    False
    >>> [law.name for law in check.failed]
    ['positive']
    """
    require_kernel(kernel, "check_kernel")
    rng = stream(seed_of(random_state), "check_kernel")
    if X is not None:
        rows = _sample(require_rows("check_kernel", X, 1), rng)
    else:
        rows = rng.standard_normal((60, 3))
        try:
            kernel(rows[:1])
        except Exception as error:  # noqa: BLE001  the check reports all that a function raises
            rows = np.abs(rows) if isinstance(error, InvalidInput) else rows
    return _check(KERNEL_LAWS, None, kernel, rows)


def _rows_alone(_: Any, kernel: Any, X: Array) -> Verdict:
    half = (len(X) + 1) // 2
    first = kernel(X[:half], X[half - 1 :])
    return _check_equal(first, kernel(X, X)[:half, half - 1 :], "among fewer rows it")


def _positive(_: Any, kernel: Any, X: Array) -> Verdict:
    """Check eigenvalues for all rows, then for rows close together, where invalid kernels fail."""
    neighbours = X[0] + 0.1 * (X[::-1] - X[0])
    for rows in (X, np.concatenate([X[:20], neighbours[:40]])):
        K = kernel(rows)
        values, vectors = eigh(0.5 * (K + K.T), driver="evd", check_finite=False)
        if values[0] < -ROUNDING["float64"] * len(K) * max(values[-1], 0.0) or values[-1] < 0:
            words = (
                f"; the smallest of {len(K)} eigenvalues is {values[0]:.3g}, the largest "
                f"{values[-1]:.3g}: Σ c_i c_j k(x_i, x_j) = {values[0]:.3g} for the rows and unit "
                "vector c in the evidence. Use another function: this one has no feature map."
            )
            evidence = {"smallest": float(values[0]), "rows": rows, "c": vectors[:, 0]}
            return FAILED, words, None, None, evidence
    return PASSED, ""


KERNEL_LAWS: Laws = COMMON_LAWS | {
    "rows": ("a value must depend on its own two rows only", _rows_alone),
    "symmetric": (
        "k(x, y) must be k(y, x)",
        lambda _, k, X: _check_equal(k(X, X.copy()), k(X.copy(), X).T),
    ),
    "diagonal": (
        "k.diag(X) must be the diagonal of k(X)",
        lambda _, k, X: _check_equal(k.diag(X), np.diag(k(X))),
    ),
    "positive": ("K must be positive semi-definite", _positive),
}


def check_features(
    phi: Any, X: Rows | None = None, *, kernel: Kernel | None = None, random_state: Seed = 0
) -> Check:
    """Check whether a feature map, your own or the library's, obeys the laws of a feature map.

    Parameters
    ----------
    phi : FeatureMap
        The map, or any callable from (n, d) rows to (n, D) features.
    X : (n, d), optional
        Rows of your data, at most 200 of which are examined. By default, ``phi.n_inputs`` columns
        of standard normal numbers; required if the map has no ``n_inputs``.
    kernel : Kernel, optional
        The kernel that φ(x)·φ(y) approximates; ``phi.kernel`` if not given.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the choice of rows.

    Returns
    -------
    Check

    See Also
    --------
    check_kernel : The laws of a kernel.
    certify : The distance of a map from its kernel.

    Notes
    -----
    A map must satisfy these laws:

    * "shape", "dtype", "finite": (n, D) finite features in the precision of the rows;
    * "deterministic", "pickle": a second call, and a pickled copy, return the same features;
    * "arguments": X is not changed; "rows": the features of a row do not depend on other rows;
    * "precision": Z Zᵀ of float32 and of float64 rows agree to one part in 1,000;
    * "columns": rows with another number of columns raise ValueError;
    * "kernel": ‖Z Zᵀ − K‖_F ≤ ‖K‖_F, the error of features that are zero;
    * "length": |φ(x)|² is below k(x, x)/2 for at most a tenth of the rows;
    * "below_kernel": Z Zᵀ ⪯ K, if ``phi.below_kernel`` claims it.

    Examples
    --------
    >>> import bochner as bo
    >>> phi = bo.draw(bo.kernels.Gaussian(), "fourier", n_features=64, n_inputs=3)
    >>> check = bo.check_features(phi)
    >>> check.ok
    True
    >>> check["below_kernel"].outcome
    'not applicable'
    """
    if not callable(phi):
        raise InvalidType(
            f"check_features: phi must be a FeatureMap or a callable of rows; got {phi!r}. "
            "Draw one with bo.draw."
        )
    rng = stream(seed_of(random_state), "check_features")
    if X is not None:
        rows = _sample(require_rows("check_features", X), rng)
    elif (d := getattr(phi, "n_inputs", None)) is not None:
        rows = rng.standard_normal((60, d))
    else:
        raise InvalidInput(
            "check_features: X must be passed if the map has no n_inputs, its number of columns; "
            "got none. Pass rows of your data."
        )
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    return _check(LAWS, phi, kernel, rows)


def _gap(A: Array, B: Array) -> float:
    """Return the largest difference, as a share of the largest value."""
    return float(np.abs(A - B).max()) / max(float(np.abs(B).max()), np.finfo(float).tiny)


def _precision(phi: Any, _: Any, X: Array) -> Verdict:
    single = X.astype(np.float32)
    A, B = to_numpy(phi(single)), to_numpy(phi(single.astype(np.float64)))
    # Features may differ by a rotation; their inner products may not.
    gap = _gap(A.astype(np.float64) @ A.T.astype(np.float64), B @ B.T)
    return _outcome(gap, ROUNDING["float32"])


def _refusal(phi: Any, _: Any, X: Array) -> Verdict:
    try:
        phi(np.concatenate([X, X[:, :1]], axis=1))
    except ValueError as error:
        return PASSED, f": {error}"
    return FAILED, "; got features. Check X.shape[1]."


def _pickle(phi: Any, _: Any, X: Array) -> Verdict:
    if not isinstance(phi, FeatureMap):
        return SKIPPED, "; this is not a FeatureMap."
    copy = pickle.loads(pickle.dumps(phi))
    return _outcome(_gap(to_numpy(copy(X)), to_numpy(phi(X))), 0)


def _kernel_test(test: Callable[[Array, Array], Verdict], below: bool | None = None) -> Test:
    """Return a test of K and Z; ``below``: only of maps that claim Z Zᵀ ⪯ K, or do not."""

    def check(phi: Any, kernel: Any, X: Array) -> Verdict:
        claims = bool(getattr(phi, "below_kernel", False))
        if kernel is None:
            return SKIPPED, "; there is no kernel: pass kernel=."
        if below is not None and below != claims:
            return SKIPPED, f"; this map {'claims' if claims else 'does not claim'} Z Zᵀ ⪯ K."
        K = to_numpy(kernel(X)).astype(np.float64)
        return test((K + K.T) / 2, to_numpy(phi(X)))

    return check


def _kernel(K: Array, Z: Array) -> Verdict:
    error = float(np.linalg.norm(Z @ Z.T.conj() - K)) / max(float(np.linalg.norm(K)), 1e-300)
    return _outcome(error, 1)


def _length(K: Array, Z: Array) -> Verdict:
    is_short = (np.abs(Z) ** 2).sum(axis=1) < 0.5 * np.diag(K)
    return _outcome(float(is_short.mean()), 0.1)


def _loewner_gap(K: Array, Z: Array) -> Verdict:
    depth, size = -float(eigvalsh(K - Z @ Z.T, check_finite=False)[0]), float(np.linalg.norm(K, 2))
    return _outcome(max(depth, 0.0) / max(size, 1e-300), 1e-8)


LAWS: Laws = COMMON_LAWS | {
    "rows": (
        "the features of a row must not depend on other rows",
        lambda phi, _, X: _check_equal(to_numpy(phi(X[::2])), to_numpy(phi(X))[::2], "one"),
    ),
    "precision": ("float32 and float64 rows must have the same products of features", _precision),
    "columns": ("rows of another number of columns must be refused", _refusal),
    "pickle": ("a copy by pickle must give the same features", _pickle),
    "kernel": ("φ(x)·φ(y) must be near k(x, y): ‖Z Zᵀ − K‖/‖K‖, Frobenius", _kernel_test(_kernel)),
    "length": (
        "|φ(x)|² must be about k(x, x): the share of rows with less than half of it",
        _kernel_test(_length, below=False),
    ),
    "below_kernel": (
        "K − Z Zᵀ must have no eigenvalue below zero, as the map claims: −eigenvalue/‖K‖",
        _kernel_test(_loewner_gap, below=True),
    ),
}
