"""Methods without features of all rows: the kernel itself, and the kernel within leaves of rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bochner import features
from bochner._core.arrays import dense, to_numpy
from bochner._core.checks import integer, positive
from bochner._core.shapes import Array
from bochner.features.auto import Choice
from bochner.features.method import Method
from bochner.features.nystrom.nystrom import Nystrom, NystromMap
from bochner.models._base import KernelEstimator
from bochner.selection.record import Tuning

DIRECT_ROWS = 8192  # Up to this many rows the n × n matrix is factored for each penalty, in seconds

#: Rows per leaf; number of rows above which leaves shrink like 1/√n; least rows per leaf.
LEAF_ROWS, MANY_ROWS, FEWEST_LEAF_ROWS = 3072, 1 << 14, 2048

#: Rows of a leaf for each landmark, and numbers that landmarks and rows make, at most.
ROWS_A_LANDMARK, MOST_ACROSS = 8, 1 << 27


@dataclass(frozen=True)
class ExactKernel(Method):
    """The kernel itself, with no features; the method of ``"exact"``.

    Parameters
    ----------
    preconditioner : Method, str or None, default None
        None: up to 8192 rows the n × n system is solved directly, by one Cholesky factor per
        penalty (n³/3 operations, 3 n² numbers); more rows are solved as with "nystrom". A method:
        conjugate gradients for any number of rows, preconditioned with ``n_features`` features:
        Nyström with pivots, or a Mercer map if the kernel has one. Fourier features help little.
    tol : float, default 1e-6
        Of conjugate gradients: largest error of a prediction at any x with
        k(x, x) ≤ max k(x_i, x_i), in standard deviations of the target. It is a proven bound; the
        error is mostly ten to a hundred times smaller.
    max_iter : int, default 1000
        Of conjugate gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> model = bo.KernelRidge("gaussian", method=bo.ExactKernel(), random_state=0)
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    has_features: ClassVar[bool] = False
    preconditioner: Method | str | None = None
    tol: float = 1e-6
    max_iter: int = 1000

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.preconditioner is not None:
            object.__setattr__(self, "preconditioner", features.as_method(self.preconditioner))
        object.__setattr__(self, "tol", positive(self.tol, "ExactKernel", "tol"))
        least = integer(self.max_iter, "ExactKernel", "max_iter", least=1)
        object.__setattr__(self, "max_iter", least)


def exact_choice(tuning: Tuning, X: Array, method: ExactKernel | None = None) -> Choice:
    """Return the choice of the kernel itself: Nyström features with each of these rows."""
    reason = f"The exact kernel of {X.shape[0]:,} rows, by a Cholesky factor of their matrix."
    phi = NystromMap(tuning.kernel, to_numpy(dense(X)))
    return Choice(phi, method or ExactKernel(), (), reason + tuning.reason)


@dataclass(frozen=True)
class LocalKernel(Method):
    """The kernel itself within leaves of a tree of rows, and landmarks across; "local".

    Parameters
    ----------
    leaf_rows : int, optional
        Rows of a leaf, at most. Errors fall with it, time grows like n leaf_rows². Default: 3072 of
        up to 16,384 rows, and then fewer, like 1/√n, but at least 2048.
    landmarks : int, optional
        Landmarks that couple rows of different leaves; time grows like
        n leaf_rows landmarks, memory like n landmarks. Default: an eighth of ``leaf_rows``, and
        2²⁷/n at most.

    Notes
    -----
    The kernel of the fit is k(x, x') for rows of one leaf and φ(x)·φ(x') for others, φ the Nyström
    features of the landmarks: positive semi-definite, and nearer to k than φ alone (Snelson and
    Ghahramani (2007), "partially independent conditional"). Leaves are split along the first
    principal component of the kernel, at medians. At borders of leaves predictions jump by a
    little: by what the landmarks do not explain.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (400, 1))
    >>> method = bo.LocalKernel(leaf_rows=100, landmarks=20)
    >>> model = bo.KernelRidge("gaussian", method=method, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.01)
    True
    """

    has_features: ClassVar[bool] = False
    leaf_rows: int | None = None
    landmarks: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, least in (("leaf_rows", 2), ("landmarks", 1)):
            if getattr(self, name) is not None:
                value = integer(getattr(self, name), "LocalKernel", name, least=least)
                object.__setattr__(self, name, value)

    def most_in_leaf(self, n: int) -> int:
        """Return how many of n rows a leaf has, at most."""
        if self.leaf_rows is not None:
            return self.leaf_rows
        fewer = int(LEAF_ROWS * (MANY_ROWS / max(n, MANY_ROWS)) ** 0.5)
        return max(FEWEST_LEAF_ROWS, fewer)

    def landmarks_of(self, n: int) -> int:
        """Return how many landmarks there are for n rows."""
        if self.landmarks is not None:
            return self.landmarks
        return max(1, min(self.most_in_leaf(n) // ROWS_A_LANDMARK, MOST_ACROSS // n))


def named(method: Any) -> Any:
    """Return the method of the names "exact" and "local"; others as they are."""
    if isinstance(method, str) and method in ("exact", "local"):
        return ExactKernel() if method == "exact" else LocalKernel()
    return method


def as_features(method: Any) -> Method | str:
    """Return the method by which features are drawn, with the kernel itself or leaves too."""
    method = named(method)
    if isinstance(method, LocalKernel | ExactKernel):
        return getattr(method, "preconditioner", None) or Nystrom()
    return "auto" if method is None else method


def takes_pieces(model: KernelEstimator) -> bool:
    """Whether rows can come in pieces; raise AttributeError, which says why, where they cannot."""
    names: dict[type, str] = {ExactKernel: "exact", LocalKernel: "local"}
    name = names.get(type(named(model.method)))
    if name is not None:
        raise AttributeError(
            f'{type(model).__name__}.partial_fit: method="{name}" needs all rows at once; call '
            "fit, or take features, whose moments add up."
        )
    return True
