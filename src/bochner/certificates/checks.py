"""Checks of a kernel or a feature map of a user's own: its laws, one by one, with the evidence."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import t as student

from bochner._core.arrays import as_matrix, taken, to_numpy
from bochner._core.blas import eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.html import HtmlResult, html_table, paragraph
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel

ROWS = 200  # Rows that are examined: eigenvalues of their matrix take milliseconds
#: Share of the largest value up to which a difference is rounding, in float64 and in float32.
#: Nyström maps add a jitter of 1e-6 to K in float32, which shows near the landmarks.
ROUNDING = {"float64": 1e-10, "float32": 1e-3}
#: Draws of a random map whose mean is compared with the kernel, and pairs it is compared on.
DRAWS, PAIRS = 100, 30

PASSED, FAILED, SKIPPED = "passed", "failed", "not applicable"


@dataclass(frozen=True)
class CheckedLaw(HtmlResult):
    """One law and its outcome."""

    name: str
    outcome: str
    sentence: str
    number: float | None = None
    tolerance: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """The outcome in a word."""
        return {PASSED: "ok", FAILED: "FAILED", SKIPPED: "-"}[self.outcome]

    def __str__(self) -> str:
        said = f"{self.mark:6} {self.name}: {self.sentence}"
        if self.number is None:
            return said
        return f"{said} [{self.number:.3g}, at most {self.tolerance:.3g}]"


@dataclass(frozen=True)
class Check(HtmlResult):
    """Result of :func:`check_kernel` or :func:`check_features`; ``print(check)`` shows every law.

    Attributes
    ----------
    subject : Kernel, FeatureMap or callable
    laws : tuple
        ``check[name]`` is one of them. Each has

        * ``name``, and ``outcome``: "passed", "failed" or "not applicable";
        * ``sentence``: the requirement, and where it failed the value;
        * ``number`` and ``tolerance``: the measured number and its upper limit, if any;
        * ``evidence``, of a kernel: the numbers behind a failure, such as rows, values and an
          eigenvector.
    n_rows, n_columns : int
        Of the rows that were examined.

    See Also
    --------
    bochner.check_kernel : Returns one.
    bochner.check_features : Returns one.

    Examples
    --------
    >>> import bochner as bo
    >>> check = bo.check_kernel(bo.kernels.Gaussian())
    >>> check.ok, check.failed
    (True, ())
    >>> [law.name for law in check.laws][:3]
    ['shape', 'dtype', 'finite']
    """

    subject: Any
    laws: tuple[CheckedLaw, ...]
    n_rows: int
    n_columns: int

    @property
    def ok(self) -> bool:
        """Whether no law failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckedLaw, ...]:
        """The laws that failed."""
        return tuple(law for law in self.laws if law.outcome == FAILED)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, name: str) -> CheckedLaw:
        return {law.name: law for law in self.laws}[name]

    @property
    def _head(self) -> str:
        count = [law.outcome for law in self.laws].count(PASSED)
        return (
            f"{self.subject!r}: on {self.n_rows} rows of {self.n_columns} columns {count} laws "
            f"hold, {len(self.failed)} fail, {len(self.laws) - count - len(self.failed)} do not "
            "apply."
        )

    def __str__(self) -> str:
        return "\n".join([self._head, *map(str, self.laws)])

    def _html_parts(self) -> Iterable[str]:
        """Yield the summary, and each law with its numbers."""
        number = lambda value: "" if value is None else f"{value:.3g}"
        rows = [
            [law.name, law.mark, number(law.number), number(law.tolerance), law.sentence]
            for law in self.laws
        ]
        head = ["law", "outcome", "measured", "at most", "requirement"]
        return [paragraph(self._head), html_table(head, rows, words=(4,))]


@dataclass(frozen=True)
class Subject:
    """The map, its kernel if it has one, the rows, and how to draw another."""

    phi: Any
    kernel: Any
    X: Float[np.ndarray, "n d"]
    redraw: Callable[[int], Any] | None = None
    tolerance: float = 1.0


#: Outcome and sentence of a law, then number, tolerance and evidence where there are any.
Verdict = tuple[Any, ...]
Tests = dict[str, Callable[[Subject], Verdict]]


def _checked(subject: Subject, laws: Tests) -> Iterator[CheckedLaw]:
    """Yield every law; laws of values only where shapes and values are in order."""
    broken = False
    for name, test in (FORM | laws).items():
        if broken and name in laws:
            yield CheckedLaw(name, SKIPPED, "the form of the values comes first.")
            continue
        try:
            law = CheckedLaw(name, *test(subject))
        except Exception as error:  # noqa: BLE001  the report is of all that a user's code raises
            required = "there must be values for every table of finite rows"
            law = CheckedLaw(name, FAILED, f"{required}; got {type(error).__name__}: {error}")
        broken |= name in FORM and law.outcome == FAILED
        yield law


def _some_rows(who: str, X: Any, least: int, rng: np.random.Generator) -> Float[Array, "n d"]:
    """Return at most 200 random rows in float64."""
    X = as_matrix(X, who)
    if X.shape[0] < least:
        rows = "one row" if least == 1 else f"{least} rows"
        raise InvalidInput(f"{who}: X must have at least {rows}; got {X.shape[0]}. Pass more.")
    chosen = np.sort(rng.permutation(X.shape[0])[:ROWS])
    return to_numpy(taken(X, chosen, axis=0)).astype(np.float64)


def _judged(sentence: str, number: float, tolerance: float) -> Verdict:
    outcome = PASSED if number <= tolerance else FAILED
    return outcome, f"{sentence}.", float(number), float(tolerance)


# --- Laws of the values of kernels and maps ------------------------------------------------------


def _values(subject: Subject, dtype: str = "float64") -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, values and required shape of what a kernel or a map is asked for."""
    phi, kernel, X = subject.phi, subject.kernel, subject.X.astype(dtype)
    n, few = len(X), max(1, len(X) // 2)
    if phi is None:
        yield "k(X, Y)", kernel(X[:few], X), (few, n)
        yield "k(X)", kernel(X), (n, n)
        yield "k.diag(X)", kernel.diag(X), (n,)
        return
    Z = phi(X)
    D = getattr(phi, "n_features", Z.shape[-1])
    yield "φ(X)", to_numpy(Z), (n, D)
    yield "φ of one row", to_numpy(phi(X[:1])), (1, D)


def _shape(subject: Subject) -> Verdict:
    required = "there must be values for each row, or each pair of rows"
    for what, values, shape in _values(subject):
        actual = tuple(getattr(values, "shape", ()))
        if actual != shape:
            return FAILED, f"{required}: {what} must have shape {shape}; got {actual}."
    return PASSED, f"{required}."


def _dtype(subject: Subject) -> Verdict:
    required = "values must keep the precision of the rows"
    for dtype in ("float64", "float32"):
        for what, values, _ in _values(subject, dtype):
            if str(values.dtype) != dtype:
                return FAILED, (
                    f"{required}; got {values.dtype} of {what} for {dtype}. Cast the result: "
                    "values.astype(X.dtype)."
                )
    return PASSED, f"{required}."


def _finite(subject: Subject) -> Verdict:
    required = "values must be finite"
    for what, values, _ in _values(subject):
        bad = ~np.isfinite(values)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            count = int(bad.sum())
            return FAILED, f"{required}; got {values[place]} of {what} at {place}, {count} in all."
    return PASSED, f"{required}."


def _repeats(subject: Subject) -> Verdict:
    twice = zip(_values(subject), _values(subject), strict=True)
    gap = max(float(np.abs(a - b).max(initial=0.0)) for (_, a, _), (_, b, _) in twice)
    return _judged("values must be the same when asked again: largest difference", gap, 0.0)


def _unchanged(subject: Subject) -> Verdict:
    required, X = "rows must be left as they are", subject.X
    rows, others = X.copy(), X[::-1].copy()
    subject.kernel(rows, others) if subject.phi is None else subject.phi(rows)
    if np.array_equal(rows, X) and np.array_equal(others, X[::-1]):
        return PASSED, f"{required}."
    return FAILED, f"{required}; it wrote into them. Copy before you change."


def _same(law: str, A: Array, B: Array) -> Verdict:
    gap = np.abs(A - B)
    allowed = ROUNDING["float64"] * max(float(np.abs(B).max()), np.finfo(float).tiny)
    if gap.size == 0 or gap.max() <= allowed:
        return PASSED, f"{law.rpartition('; ')[0]}."
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    sentence = (
        f"{law} is {A[place]:.6g} instead of {B[place]:.6g} at {place}, and differs in "
        f"{int((gap > allowed).sum())} of {gap.size} values."
    )
    return FAILED, sentence, float(gap.max()), allowed, {"place": place}


#: Laws without which no others are looked at.
FORM: Tests = {"shape": _shape, "dtype": _dtype, "finite": _finite}


# --- Kernels -------------------------------------------------------------------------------------


def check_kernel(
    kernel: Kernel, X: Float[Array, "n d"] | None = None, *, random_state: Seed = 0
) -> Check:
    """Check whether a kernel of your own obeys the laws of a kernel.

    Parameters
    ----------
    kernel : Kernel
        A ``Custom(function)`` or any other kernel.
    X : (n, d), optional
        Rows of your data (at most 200 are examined); by default normal rows of three
        columns, or positive ones where the kernel refuses those. A law that holds on some rows
        may fail on others: your own are the ones that count.
    random_state : int, Generator, RandomState or None, default 0
        Which rows.

    Returns
    -------
    Check
        ``.ok``, ``.failed``, ``.laws`` and, as ``str``, one line per law.

    See Also
    --------
    check_features : The laws of a feature map.

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
    if not isinstance(kernel, Kernel):
        raise InvalidType(
            f"check_kernel: kernel must be a Kernel; got {kernel!r}. Wrap a function of your own: "
            "Custom(function)."
        )
    rng = stream(seed_of(random_state), "check_kernel")
    rows = _default_rows(kernel, rng) if X is None else _some_rows("check_kernel", X, 1, rng)
    laws = _checked(Subject(None, kernel, rows), KERNEL_LAWS)
    return Check(kernel, tuple(laws), *rows.shape)


def _default_rows(kernel: Kernel, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    normal = rng.standard_normal((60, 3))
    try:
        kernel(normal[:1])
    except InvalidInput:
        return np.abs(normal)
    except Exception:  # noqa: BLE001  the check reports all that a user's function raises
        return normal
    return normal


def _rows_alone(subject: Subject) -> Verdict:
    k, X, half = subject.kernel, subject.X, (len(subject.X) + 1) // 2
    law = "a value must depend on its own two rows only; beside other rows it"
    return _same(law, k(X[:half], X[half - 1 :]), k(X, X)[:half, half - 1 :])


def _positive(subject: Subject) -> Verdict:
    """Check all rows, then few close together: a bump that is no kernel shows there."""
    X, required = subject.X, "K must be positive semi-definite"
    near = X[0] + 0.1 * (X[::-1] - X[0])
    for rows in (X, np.concatenate([X[:20], near[:40]])):
        K = subject.kernel(rows)
        values, vectors = eigh(0.5 * (K + K.T), driver="evd", check_finite=False)
        if values[0] < -ROUNDING["float64"] * len(K) * max(values[-1], 0.0) or values[-1] < 0:
            sentence = (
                f"{required}; the smallest of {len(K)} eigenvalues is {values[0]:.3g}, the largest "
                f"{values[-1]:.3g}: Σ c_i c_j k(x_i, x_j) = {values[0]:.3g} for the rows and unit "
                "vector c in the evidence. Take another function: there is no feature map for "
                "this one."
            )
            evidence = {"smallest": float(values[0]), "rows": rows, "c": vectors[:, 0]}
            return FAILED, sentence, None, None, evidence
    return PASSED, f"{required}."


KERNEL_LAWS: Tests = {
    "deterministic": _repeats,
    "arguments": _unchanged,
    "rows": _rows_alone,
    "symmetric": lambda s: _same(
        "k(x, y) must be k(y, x); it", s.kernel(s.X, s.X.copy()), s.kernel(s.X.copy(), s.X).T
    ),
    "diagonal": lambda s: _same(
        "k.diag(X) must be the diagonal of k(X); it", s.kernel.diag(s.X), np.diag(s.kernel(s.X))
    ),
    "positive": _positive,
}


# --- Feature maps --------------------------------------------------------------------------------


def check_features(
    phi: Any,
    X: Float[Array, "n d"] | None = None,
    *,
    kernel: Kernel | None = None,
    redraw: Callable[[int], Any] | None = None,
    tolerance: float = 1.0,
    random_state: Seed = 0,
) -> Check:
    """Check whether a feature map, your own or the library's, obeys the laws of a feature map.

    Parameters
    ----------
    phi : FeatureMap
        The map, or any callable from (n, d) rows to (n, D) features.
    X : (n, d), optional
        Rows of your data (at most 200 are examined); by default normal rows of the map's
        ``n_inputs`` columns. Prefer your own.
    kernel : Kernel, optional
        The kernel that φ(x)·φ(y) approximates; ``phi.kernel`` if not given.
    redraw : callable, optional
        Returns a new draw of the map from a seed. With it, the mean of 100 draws is compared with
        the kernel.
        ``lambda seed: bo.draw(kernel, method, n_features=D, X=X, random_state=seed)``.
    tolerance : float, default 1.0
        Largest allowed ‖Z Zᵀ − K‖_F/‖K‖_F; at 1 the features are no better than no features.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the choice of rows.

    Returns
    -------
    Check
        ``.ok``, ``.failed``, ``.laws`` and, as ``str``, one line per law.

    See Also
    --------
    check_kernel : The laws of a kernel.
    certify : The distance of a map from its kernel.

    Notes
    -----
    Laws: shape, dtype, finite, deterministic, arguments (left unchanged), alone (features of a row
    do not depend on other rows), precision (float32 and float64 agree), refusal (of another number
    of columns), pickled (a copy gives the same features), kernel (the error is at most
    ``tolerance``), length (|φ(x)|² is below k(x, x)/2 for at most a tenth of the rows), below
    (Z Zᵀ ⪯ K, for maps that claim it) and unbiased (with ``redraw``; one false alarm in a million
    checks).

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
    if X is not None:
        rows = _some_rows("check_features", X, 2, rng)
    elif (d := getattr(phi, "n_inputs", None)) is not None:
        rows = rng.standard_normal((60, d))
    else:
        raise InvalidInput(
            "check_features: X must be given where the map does not say how many columns it takes; "
            "got none. Pass rows of your data."
        )
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    laws = _checked(Subject(phi, kernel, rows, redraw, tolerance), LAWS)
    return Check(phi, tuple(laws), *rows.shape)


def _features(subject: Subject, X: Array) -> Float[np.ndarray, "n D"]:
    return to_numpy(subject.phi(X))


def _alone(subject: Subject) -> Verdict:
    X, half = subject.X, (len(subject.X) + 1) // 2
    law = "the features of a row must not depend on other rows; one"
    return _same(law, _features(subject, X[:half]), _features(subject, X)[:half])


def _gap(A: Array, B: Array) -> float:
    """Return the largest difference, as a share of the largest value."""
    return float(np.abs(A - B).max()) / max(float(np.abs(B).max()), np.finfo(float).tiny)


def _precision(subject: Subject) -> Verdict:
    single = subject.X.astype(np.float32)
    A, B = _features(subject, single), _features(subject, single.astype(np.float64))
    # Features may differ by a rotation; their inner products may not.
    gap = _gap(A.astype(np.float64) @ A.T.astype(np.float64), B @ B.T)
    sentence = "float32 and float64 rows must have the same products of features"
    return _judged(sentence, gap, ROUNDING["float32"])


def _refusal(subject: Subject) -> Verdict:
    required = "rows of another number of columns must be refused"
    try:
        subject.phi(np.concatenate([subject.X, subject.X[:, :1]], axis=1))
    except ValueError as error:
        return PASSED, f"{required}: {error}"
    return FAILED, f"{required}; got features. Check X.shape[1]."


def _pickled(subject: Subject) -> Verdict:
    required = "a copy by pickle must give the same features"
    if not isinstance(subject.phi, FeatureMap):
        return SKIPPED, f"{required}; this is no FeatureMap."
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


def _kernel(subject: Subject) -> Verdict:
    required = "φ(x)·φ(y) must be near k(x, y): ‖Z Zᵀ − K‖/‖K‖, Frobenius"
    if reason := _inapplicable(subject):
        return SKIPPED, f"{required}; {reason}."
    K, Z = _matrix(subject), _features(subject, subject.X)
    error = float(np.linalg.norm(Z @ Z.T.conj() - K)) / max(float(np.linalg.norm(K)), 1e-300)
    return _judged(required, error, subject.tolerance)


def _length(subject: Subject) -> Verdict:
    required = "|φ(x)|² must be about k(x, x): the share of rows with less than half of it"
    if reason := _inapplicable(subject, below=False):
        return SKIPPED, f"{required}; {reason}."
    Z, diagonal = _features(subject, subject.X), np.diag(_matrix(subject))
    lost = (np.abs(Z) ** 2).sum(axis=1) < 0.5 * diagonal
    return _judged(required, float(lost.mean()), 0.1)


def _below(subject: Subject) -> Verdict:
    required = "K − Z Zᵀ must have no eigenvalue below zero, as the map says: its depth over ‖K‖"
    if reason := _inapplicable(subject, below=True):
        return SKIPPED, f"{required}; {reason}."
    K, Z = _matrix(subject), _features(subject, subject.X)
    depth, size = -float(eigvalsh(K - Z @ Z.T, check_finite=False)[0]), float(np.linalg.norm(K, 2))
    return _judged(required, max(depth, 0.0) / max(size, 1e-300), 1e-8)


def _unbiased(subject: Subject) -> Verdict:
    required = (
        f"the mean over {DRAWS} draws must be k(x, y): the largest distance in standard errors, "
        f"over {PAIRS} pairs"
    )
    if subject.redraw is None:
        return SKIPPED, f"{required}; pass redraw= to look."
    if reason := _inapplicable(subject, below=False):
        return SKIPPED, f"{required}; {reason}."
    first = np.arange(PAIRS) % len(subject.X)
    second = (first * 7 + np.arange(PAIRS) // len(subject.X)) % len(subject.X)
    draws = np.empty((DRAWS, PAIRS))
    for seed in range(DRAWS):
        Z = to_numpy(subject.redraw(seed)(subject.X)).astype(np.float64)
        draws[seed] = np.einsum("ij,ij->i", Z[first], Z[second])
    off = np.abs(draws.mean(axis=0) - _matrix(subject)[first, second])
    # Where draws agree to rounding there is no spread to measure by, and rounding is no bias.
    spread = draws.std(axis=0, ddof=1) / DRAWS**0.5 + 1e-12 * np.abs(draws).max()
    bar = float(student.isf(1e-6 / (2 * PAIRS), DRAWS - 1))  # one false alarm in a million
    return _judged(required, float((off / spread).max()), bar)


LAWS: Tests = {
    "deterministic": _repeats,
    "arguments": _unchanged,
    "alone": _alone,
    "precision": _precision,
    "refusal": _refusal,
    "pickled": _pickled,
    "kernel": _kernel,
    "length": _length,
    "below": _below,
    "unbiased": _unbiased,
}
