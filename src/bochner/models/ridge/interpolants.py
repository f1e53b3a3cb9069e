"""Double descent: the error of the smallest interpolant as random features pass the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.multiclass import type_of_target

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.blas import svd
from bochner._core.checks import integer, nonnegative, one_of
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner._core.text import axes_for
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features import IID, Fourier, Method, ReLU
from bochner.features.draw import as_method
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels import ArcCosine, Kernel
from bochner.models._engine import presample
from bochner.selection.lengthscale import as_kernel, choose_lengthscale

#: Widths of the experiment, in rows: dense about one, where the peak is.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10)


@dataclass(frozen=True, eq=False)
class DoubleDescent:
    """Errors and norms of ridge regression on D random features; prints as a table.

    Attributes
    ----------
    kernel : Kernel
    method : Method
        How features were made.
    n_rows : int
        n of the training rows: the peak is at D = n.
    widths : (p,) int
        D.
    alphas : (a,)
        Penalties; 0 is the least-norm solution of least squares.
    train_error, test_error : (a, p)
        Mean squared error, summed over targets; of labels, of the zeros and ones of the classes.
    norm : (a, p)
        ‖β‖.
    train_wrong, test_wrong : (a, p) or None
        Share of labels predicted wrongly; None where the target is numbers.
    """

    kernel: Kernel
    method: Method
    n_rows: int
    widths: Array
    alphas: Float[Array, " a"]
    train_error: Float[Array, "a p"]
    test_error: Float[Array, "a p"]
    norm: Float[Array, "a p"]
    train_wrong: Float[Array, "a p"] | None = None
    test_wrong: Float[Array, "a p"] | None = None

    @property
    def peak(self) -> int:
        """The width of the largest test error without penalty (of the smallest, if none is 0)."""
        return int(self.widths[np.argmax(self.test_error[np.argmin(self.alphas)])])

    def __str__(self) -> str:
        """Return one table a penalty."""
        head = f"{self.method} features of {self.kernel!r}, {self.n_rows:,} rows"
        return "\n\n".join([head, *(self._table(i) for i in range(len(self.alphas)))])

    def _table(self, i: int) -> str:
        columns = {
            "D/n": self.widths / self.n_rows,
            "train error": self.train_error[i],
            "test error": self.test_error[i],
            "norm": self.norm[i],
        }
        if self.test_wrong is not None:
            columns["test wrong"] = self.test_wrong[i]
        lines = ["".join([f"{'D':>8}", *(f"{name:>13}" for name in columns)])]
        for D, *numbers in zip(self.widths, *columns.values(), strict=True):
            lines.append("".join([f"{D:>8}", *(f"{number:13.4g}" for number in numbers)]))
        return "\n".join([f"alpha = {self.alphas[i]:.4g}", *lines])

    def plot(self, axes: Any = None) -> Any:
        """Draw errors and norms against the width, a colour for each penalty.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            For errors and for norms; a new figure if not given.

        Returns
        -------
        axes

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        axes = axes_for("DoubleDescent", axes, size=(8, 3.6), across=2)
        for i, alpha in enumerate(self.alphas):
            look = {"color": f"C{i}"}
            name = "no penalty" if alpha == 0 else f"alpha = {alpha:.3g}"
            axes[0].plot(self.widths, self.test_error[i], "o-", ms=3, label=f"test, {name}", **look)
            axes[0].plot(self.widths, _above_rounding(self.train_error[i]), ":", **look)
            axes[1].plot(self.widths, self.norm[i], "o-", ms=3, label=name, **look)
        for panel, title in zip(axes, ("mean squared error (dotted: train)", "‖β‖"), strict=True):
            panel.axvline(self.n_rows, color="grey", lw=0.8)
            panel.set(xscale="log", yscale="log", xlabel="features D", title=title)
            panel.legend(fontsize="small")
        return axes


def double_descent(
    X: Float[Array, "n d"],
    y: Array,
    X_test: Float[Array, "m d"],
    y_test: Array,
    *,
    kernel: Kernel | str = "laplace",
    features: Method | str = "fourier",
    widths: Sequence[int] | None = None,
    alpha: float | Sequence[float] = (0.0,),
    task: str = "auto",
    random_state: Seed = None,
) -> DoubleDescent:
    """Fit ridge regression on D random features, for D far below the rows to far above them.

    Without a penalty, and with fewer features than rows, it is least squares; with more, the
    solution of least ‖β‖ among those that go through all targets. Its test error falls, rises to
    a peak at D = n, where the features can barely reach the targets and ‖β‖ explodes, and falls
    again (Belkin, Hsu, Ma and Mandal 2019). A penalty removes the peak.

    Parameters
    ----------
    X, X_test : (n, d), (m, d)
    y, y_test : (n,), (m,)
        Numbers, of which the training mean is subtracted; or labels, as zeros and ones, a column
        for each class.
    kernel : Kernel or str, default "laplace"
        A name: with the median distance of rows as its lengthscale. The default is rough, so that
        its features can go through noise in any number of columns; a smooth kernel's hardly can
        where columns are few, and the second descent waits for far larger D.
    features : "fourier", "relu", Method or its name, default "fourier"
        "fourier": independent frequencies with phases, for any D. "relu": a layer of random
        rectified units with biases; the kernel is then ``ArcCosine(1)``.
    widths : sequence of int, optional
        Default: n times 0.05 to 10, dense about 1.
    alpha : float or sequence of float, default (0,)
        Penalties.
    task : {"auto", "regression", "classification"}
        "auto": labels are text, booleans, and whole numbers of at most 50 kinds.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    DoubleDescent

    Notes
    -----
    One singular value decomposition of the rows for each width, for all penalties: nothing is
    squared, so that D ≈ n is as exact as float64 allows. Singular values below
    max(n, D)·2⁻⁵² of the largest count as zero. Time O(n min(n, D) D) for each D.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import double_descent
    >>> X = np.random.default_rng(0).standard_normal((300, 5))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(300)
    >>> shown = double_descent(X[:100], y[:100], X[100:], y[100:], random_state=0)
    >>> 80 <= shown.peak <= 120
    True
    """
    X, X_test = (_dense(A, name) for A, name in ((X, "X"), (X_test, "X_test")))
    seed, alphas = seed_of(random_state), _alphas(alpha)
    Y, Y_test, labels = _targets(y, y_test, task)
    _check_rows(X, Y, X_test, Y_test)
    kernel, method, X, X_test = _layer(kernel, features, X, X_test, seed)
    D = _widths(widths, len(X))
    data = Data(X, Y, X_test, Y_test)
    curves = np.array([_at_width(kernel, method, int(width), alphas, seed, data) for width in D])
    train, test, norm, *wrong = np.moveaxis(curves, 0, -1).swapaxes(0, 1)
    return DoubleDescent(
        kernel, method, len(X), D, alphas, train, test, norm, *(wrong if labels else ())
    )


class Data(NamedTuple):
    """Rows and columns of targets to train on, and to test on."""

    X: Float[Array, "n d"]
    Y: Float[Array, "n t"]
    X_test: Float[Array, "m d"]
    Y_test: Float[Array, "m t"]


def _at_width(
    kernel: Kernel, method: Method, D: int, alphas: Float[Array, " a"], seed: int, data: Data
) -> Float[Array, "a 5"]:
    """Return errors of training and test rows, ‖β‖ and shares of wrong labels, a row a penalty."""
    phi = draw_map(method, kernel, Request(data.X.shape[1], D, seed, X=data.X))
    Z, Z_test = phi(data.X), phi(data.X_test)
    U, s, Vt = svd(Z, full_matrices=False, check_finite=False)
    projected = U.T @ data.Y
    floor = max(Z.shape) * np.finfo(np.float64).eps * s[0]
    rows = []
    for alpha in alphas:
        inverse = np.divide(s, s**2 + alpha, out=np.zeros_like(s), where=(s > floor) | (alpha > 0))
        coef = inverse[:, None] * projected
        fits = (U @ (s[:, None] * coef), data.Y), (Z_test @ (Vt.T @ coef), data.Y_test)
        norm = float(np.linalg.norm(coef))
        rows.append([*(_squared(*fit) for fit in fits), norm, *(_wrong(*fit) for fit in fits)])
    return np.array(rows)


def _squared(f: Float[Array, "n t"], Y: Float[Array, "n t"]) -> float:
    return float(np.mean(((f - Y) ** 2).sum(axis=1)))


def _wrong(f: Float[Array, "n t"], Y: Float[Array, "n t"]) -> float:
    return float(np.mean(f.argmax(axis=1) != Y.argmax(axis=1)))


# --- Arguments -----------------------------------------------------------------------------------


def _dense(X: Array, name: str) -> Float[Array, "n d"]:
    X = as_matrix(X, "double_descent", name)
    return to_numpy(X).astype(np.float64, copy=False)


def _alphas(alpha: float | Sequence[float]) -> Float[Array, " a"]:
    given = alpha if isinstance(alpha, Sequence | np.ndarray) else (alpha,)
    if not len(given):
        raise InvalidInput("double_descent: alpha must name at least one penalty; got none.")
    return np.array([nonnegative(a, "double_descent", "alpha") for a in given])


def _widths(widths: Sequence[int] | None, n: int) -> Array:
    if widths is None:
        return np.unique([max(1, round(share * n)) for share in SHARES])
    if not len(widths):
        raise InvalidInput("double_descent: widths must name at least one D; got none.")
    return np.unique([integer(D, "double_descent", "widths", 1) for D in widths])


def _targets(y: Array, y_test: Array, task: str) -> tuple[Array, Array, bool]:
    """Return targets as columns of numbers, and whether they stand for labels."""
    one_of(task, "double_descent", "task", ("auto", "regression", "classification"))
    y, y_test = (np.asarray(to_numpy(a) if hasattr(a, "shape") else a) for a in (y, y_test))
    if task == "classification" or (task == "auto" and _are_labels(y)):
        classes = np.unique(y.ravel())
        unknown = np.setdiff1d(y_test.ravel(), classes)
        if len(classes) < 2 or len(unknown):
            what = f"y_test has {unknown[:3].tolist()}" if len(unknown) else "there is one"
            raise InvalidInput(
                "double_descent: labels need two classes or more in y, and none in y_test that y "
                f"has not; {what}."
            )
        return *((a.ravel()[:, None] == classes).astype(float) for a in (y, y_test)), True
    Y, Y_test = (_numbers(a) for a in (y, y_test))
    mean = Y.mean(axis=0)
    return Y - mean, Y_test - mean, False


def _are_labels(y: Array) -> bool:
    """Whether these are text, booleans, or few whole numbers."""
    kind = type_of_target(y) if y.dtype.kind in "biuOUSf" and y.ndim == 1 else ""
    return kind in ("binary", "multiclass") and len(np.unique(y)) <= 50


def _numbers(y: Array) -> Float[Array, "n t"]:
    try:
        Y = y.astype(np.float64).reshape(len(y), -1)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "double_descent: the target of a regression must be numbers; got "
            f"{y.dtype}. For labels take task='classification'."
        ) from error
    if not np.isfinite(Y).all():
        raise InvalidInput("double_descent: y must be finite; got NaN or infinity. Drop such rows.")
    return Y


def _check_rows(X: Array, Y: Array, X_test: Array, Y_test: Array) -> None:
    if X.shape[1] != X_test.shape[1] or Y.shape[1] != Y_test.shape[1]:
        raise InvalidInput(
            "double_descent: training and test rows must have the same columns and targets; got "
            f"{X.shape[1]} and {X_test.shape[1]} columns, {Y.shape[1]} and {Y_test.shape[1]} "
            "targets."
        )
    if len(X) != len(Y) or len(X_test) != len(Y_test) or min(len(X) - 1, len(X_test)) < 1:
        raise InvalidInput(
            "double_descent: two training rows, one test row and a target for each are required; "
            f"got {len(X)} and {len(Y)}, for testing {len(X_test)} and {len(Y_test)}."
        )


def _layer(
    kernel: Kernel | str, features: Method | str, X: Array, X_test: Array, seed: int
) -> tuple[Kernel, Method, Array, Array]:
    """Return kernel, method and rows; ReLU units see one column more, for their biases."""
    if isinstance(features, str) and features == "relu":
        bias = float(np.sqrt(np.mean(X**2))) or 1.0
        X, X_test = (np.column_stack([A, np.full(len(A), bias)]) for A in (X, X_test))
        return ArcCosine(1), ReLU(1, IID(), split=False), X, X_test
    method = (
        Fourier(IID(), "phase")
        if isinstance(features, str) and features == "fourier"
        else as_method(features)
    )
    kernel = as_kernel(kernel)
    if isinstance(kernel, str):
        sample = presample(Blocks.from_arrays(X), seed)
        kernel = choose_lengthscale(kernel, sample, min(512, len(X)), seed).kernel
    return kernel, method, X, X_test


# --- Pictures ------------------------------------------------------------------------------------


def _above_rounding(errors: Float[Array, " p"]) -> Float[Array, " p"]:
    """Return the errors, those of interpolants as none: their logarithm is rounding."""
    return np.where(errors > 1e-12 * errors.max(), errors, np.nan)
