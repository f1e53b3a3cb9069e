"""Checks of a feature map: ``check_features`` looks at its laws, one by one, with the evidence."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from bochner._core.arrays import to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import positive
from bochner._core.html import HtmlPart, HtmlTable, ShownResult, Words
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.certificates.kernel_checks import ROUNDING, some_rows
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel

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

    @property
    def mark(self) -> str:
        """What came of it, in a word."""
        return {"passed": "ok", "failed": "FAILED", "not applicable": "-"}[self.outcome]

    def __str__(self) -> str:
        said = f"{self.mark:6} {self.name}: {self.sentence}"
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

    @property
    def _head(self) -> str:
        count = [law.outcome for law in self.laws].count("passed")
        return (
            f"On {self.n_rows} rows of {self.n_columns} columns {count} laws hold, "
            f"{len(self.failed)} fail, {len(self.laws) - count - len(self.failed)} do not apply."
        )

    def __str__(self) -> str:
        return "\n".join([self._head, *map(str, self.laws)])

    def _shown(self) -> Iterable[HtmlPart]:
        """Give what holds, and each law with its numbers."""
        rows = [
            [law.name, law.mark, _number(law.number), _number(law.tolerance), law.sentence]
            for law in self.laws
        ]
        head = ["law", "outcome", "measured", "at most", "what it asks"]
        return [Words(self._head), HtmlTable(head, rows, words=(4,))]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


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
    return some_rows("check_features", X, 2, rng)


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
