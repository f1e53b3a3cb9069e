"""Double descent: test error of least squares as a function of the number of random features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from bochner._core.arrays import to_numpy
from bochner._core.blas import svd
from bochner._core.checks import integer, nonnegative, one_of
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner._core.text import TableResult, axes_for
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID
from bochner.features.map import Method, Request
from bochner.features.networks import ReLU
from bochner.features.rules import as_method, draw_map
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import ArcCosine
from bochner.selection.lengthscales import choose_lengthscale
from bochner.selection.spec import as_kernel
from bochner.sums.passes import draw_rows

#: Default widths divided by the number of rows; dense near 1, where the peak is.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10)


@dataclass(frozen=True, eq=False)
class DoubleDescent(TableResult):
    """Errors and norms of ridge regression on D random features; prints as a table.

    Attributes
    ----------
    kernel : Kernel
    method : Method
        Method of the features.
    n_rows : int
        Number n of training rows: the peak is at D = n.
    widths : (p,) int
        Numbers of features D.
    alphas : (a,)
        Penalties; 0 is the least-squares solution of least norm.
    train_error, test_error : (a, p)
        Mean squared error, summed over targets; labels are one column of zeros and ones per class.
    norm : (a, p)
        Norm ‖β‖ of the coefficients.
    train_wrong, test_wrong : (a, p) or None
        Error rate of classification; None if the target is numeric.

    See Also
    --------
    double_descent : Compute these results.
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
        """Width D of largest test error, with the smallest penalty."""
        return int(self.widths[np.argmax(self.test_error[np.argmin(self.alphas)])])

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        columns = {"train error": self.train_error, "test error": self.test_error}
        columns["norm"] = self.norm
        if self.test_wrong is not None:
            columns["test error rate"] = self.test_wrong
        lines: list[tuple[str, ...]] = [("alpha", "D", "D/n", *columns)]
        for i, alpha in enumerate(self.alphas):
            for j, D in enumerate(self.widths):
                cells = D / self.n_rows, *(values[i, j] for values in columns.values())
                lines.append((f"{alpha:.4g}", f"{D:,}", *(f"{v:.4g}" for v in cells)))
        return f"{self.method} features of {self.kernel!r}, {self.n_rows:,} rows", lines, ""

    def plot(self, axes: Any = None) -> Any:
        """Plot errors and norms against the width, one colour per penalty; return the axes.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            Axes for errors and for norms. Default: a new figure.
        """
        axes = axes_for("DoubleDescent", axes, figsize=(8, 3.6), n=2)
        # Training errors of interpolating fits are rounding errors, which are not plotted
        floor = 1e-12 * self.train_error.max(axis=1, keepdims=True)
        train = np.where(self.train_error > floor, self.train_error, np.nan)
        for i, alpha in enumerate(self.alphas):
            name = "no penalty" if alpha == 0 else f"alpha = {alpha:.3g}"
            axes[0].plot(self.widths, self.test_error[i], f"C{i}o-", ms=3, label=f"test, {name}")
            axes[0].plot(self.widths, train[i], f"C{i}:")
            axes[1].plot(self.widths, self.norm[i], f"C{i}o-", ms=3, label=name)
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
    """Return the errors of ridge regression on D random features, for D far below to far above n.

    Without a penalty this is least squares if D < n, and the interpolating solution of least ‖β‖ if
    D > n. With increasing D the test error falls, rises to a peak at D = n, where ‖β‖ is largest,
    and falls again (Belkin, Hsu, Ma and Mandal 2019). A penalty removes the peak.

    Parameters
    ----------
    X, X_test : (n, d), (m, d)
        Training rows, and test rows.
    y, y_test : (n,), (m,)
        Numbers, from which the training mean is subtracted; or labels, which become a column of
        zeros and ones per class.
    kernel : Kernel or str, default "laplace"
        A name: this family; its lengthscale is the median distance between rows. Features of a
        smooth kernel in few columns hardly fit noise: the second descent needs a far larger D.
    features : Method or str, default "fourier"
        - "fourier": independent frequencies with random phases, for any D.
        - "relu": a layer of random rectified linear units with biases; the kernel is ArcCosine(1).
        - a method, or another name of :func:`bochner.draw`.
    widths : sequence of int, optional
        Numbers of features D. Default: 0.05 n to 10 n, dense near n.
    alpha : float or sequence of float, default (0.0,)
        Penalties, 0 or above.
    task : {"auto", "regression", "classification"}, default "auto"
        "auto": text, booleans, and integers of at most 50 distinct values are labels.
    random_state : int, Generator, RandomState or None, default None

    Returns
    -------
    DoubleDescent

    Raises
    ------
    InvalidInput
        If rows or targets do not match, an argument is invalid, or numbers are not finite.

    Notes
    -----
    Takes one singular value decomposition per width, O(n D min(n, D)). Singular values below
    max(n, D)·2⁻⁵² times the largest count as zero.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import double_descent
    >>> X = np.random.default_rng(0).standard_normal((300, 5))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(300)
    >>> result = double_descent(X[:100], y[:100], X[100:], y[100:], random_state=0)
    >>> 80 <= result.peak <= 120
    True
    """
    caller, seed = "double_descent", seed_of(random_state)
    alphas = np.array([nonnegative(a, caller, "alpha") for a in np.atleast_1d(alpha)])
    if not len(alphas) or (widths is not None and not len(widths)):
        name = "widths" if len(alphas) else "alpha"
        raise InvalidInput(f"{caller}: {name} must have at least one number; got none.")
    one_of(task, caller, "task", ("auto", "regression", "classification"))
    y, y_test, labels = _code(y, y_test, task)
    (X, Y), (X_test, Y_test) = _check(X, y), _check(X_test, y_test)
    n, t = Y.shape
    if len(X) < 2 or X_test.shape[1] != X.shape[1] or Y_test.shape[1] != t:
        raise InvalidInput(
            f"{caller}: two training rows or more, and test rows of the same columns and targets, "
            f"are required; got shapes {X.shape}, {Y.shape}, {X_test.shape}, {Y_test.shape}."
        )
    if not labels:
        Y, Y_test = Y - Y.mean(axis=0), Y_test - Y.mean(axis=0)
    sizes = [max(1, round(share * n)) for share in SHARES] if widths is None else widths
    D = np.unique([integer(width, caller, "widths", 1) for width in sizes])
    method: Method
    if isinstance(features, str) and features == "relu":  # the constant column adds biases
        bias = float(np.sqrt(np.mean(X**2))) or 1.0
        X, X_test = (np.column_stack([A, np.full(len(A), bias)]) for A in (X, X_test))
        kernel, method = ArcCosine(1), ReLU(1, IID(), split=False)
    else:
        fourier = isinstance(features, str) and features == "fourier"
        method = Fourier(IID(), "phase") if fourier else as_method(features)
        kernel = as_kernel(kernel)
    if isinstance(kernel, str):
        sample = draw_rows(Blocks.from_arrays(X), seed)
        kernel = choose_lengthscale(kernel, sample, seed).kernel
    curves = []
    for width in D:
        phi = draw_map(method, kernel, Request(X.shape[1], int(width), seed, X=X))
        Z, Z_test = phi(X), phi(X_test)
        U, s, Vt = svd(Z, full_matrices=False, check_finite=False)
        projected = U.T @ Y
        floor = max(Z.shape) * np.finfo(np.float64).eps * s[0]
        for a in alphas:
            inverse = np.divide(s, s**2 + a, out=np.zeros_like(s), where=(s > floor) | (a > 0))
            coef = inverse[:, None] * projected
            pairs = (U @ (s[:, None] * coef), Y), (Z_test @ (Vt.T @ coef), Y_test)
            squared = [np.mean(((f - T) ** 2).sum(axis=1)) for f, T in pairs]
            wrong = [np.mean(f.argmax(axis=1) != T.argmax(axis=1)) for f, T in pairs]
            curves.append([*squared, np.linalg.norm(coef), *wrong])
    train, test, norm, *wrong = np.array(curves).reshape(len(D), len(alphas), -1).T
    return DoubleDescent(
        kernel, method, n, D, alphas, train, test, norm, *(wrong if labels else ())
    )


def _code(y: Any, y_test: Any, task: str) -> tuple[Any, Any, bool]:
    """Return y and y_test, labels as columns of zeros and ones, and whether they are labels."""
    y, y_test = (np.asarray(to_numpy(a) if hasattr(a, "shape") else a) for a in (y, y_test))
    kind = type_of_target(y) if y.dtype.kind in "biuOUSf" and y.ndim == 1 else ""
    is_class = kind in ("binary", "multiclass") and len(np.unique(y)) <= 50
    if task == "regression" or (task == "auto" and not is_class):
        return y, y_test, False
    classes = np.unique(y)
    new = np.setdiff1d(y_test, classes)
    if len(classes) < 2 or len(new):
        problem = f"{new[:3].tolist()} in y_test" if len(new) else "one class"
        raise InvalidInput(
            "double_descent: y must have at least two classes, and y_test no other classes; got "
            f"{problem}."
        )
    return *((a.ravel()[:, None] == classes).astype(float) for a in (y, y_test)), True


def _check(X: Any, y: Any) -> tuple[Float[Array, "n d"], Float[Array, "n t"]]:
    """Return rows and targets in float64; refuse NaN, infinity and different lengths."""
    block = next(iter(Blocks.from_arrays(X, y, block_rows=max(1, len(y)))))
    X, y = (to_numpy(a).astype(np.float64, copy=False) for a in (block.X, block.y))
    return X, y.reshape(len(y), -1)
