"""``draw``: from a kernel and a method to a feature map."""

import numpy as np

from bochner._core.arrays import as_matrix, is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.features.rules import as_method, draw_map
from bochner.features.sketch.powers import MOST_EXACT, Expanded
from bochner.kernels.kernel import Kernel


def draw(
    kernel: Kernel,
    method: Method | str = "auto",
    *,
    n_features: int = 1024,
    X: Float[Array, "n d"] | None = None,
    n_inputs: int | None = None,
    random_state: Seed = None,
) -> FeatureMap:
    """Draw a feature map of a given width; :func:`bochner.draw` also finds the width."""
    return draw_map(
        as_method(method), kernel, _request(kernel, n_features, X, n_inputs, random_state)
    )


def _request(
    kernel: Kernel, n_features: int, X: Array | None, n_inputs: int | None, random_state: Seed
) -> Request:
    """Check what the user asked for and return it as a :class:`Request`."""
    if not isinstance(kernel, Kernel):
        raise InvalidInput(
            f"draw: kernel must be a Kernel, e.g. Gaussian(lengthscale=0.5); got {kernel!r}."
        )
    if not isinstance(n_features, int | np.integer) or n_features < 1:
        raise InvalidInput(f"draw: n_features must be a positive integer; got {n_features!r}.")
    if X is not None:
        X = as_matrix(X, "draw")
        X = X if is_sparse(X) else to_numpy(X)
        n_inputs = X.shape[1]
    if n_inputs is None:
        raise InvalidInput("draw: pass X (rows of data) or n_inputs (their number of columns).")
    n_inputs = integer(n_inputs, "draw", "n_inputs", 1)
    return Request(n_inputs, int(n_features), seed_of(random_state), X=X)


def exact_map(kernel: Kernel, n_inputs: int) -> FeatureMap:
    """Return all features of a kernel with finitely many.

    Raises
    ------
    UnsupportedKernel
        If it has infinitely many, or more than 2²⁰.
    """
    try:
        phi = draw_map(Expanded(), kernel, Request(n_inputs, MOST_EXACT, 0))
    except UnsupportedKernel as refused:
        raise UnsupportedKernel(
            f"{kernel!r} has no finite features of its own, as Linear, Constant, Polynomial, "
            "FourierSeries, Polynomials and sums, products and powers of such have."
        ) from refused
    except InvalidInput:
        phi = None
    if phi is None or phi.n_features > MOST_EXACT or not phi.below_kernel:
        raise UnsupportedKernel(
            f"{kernel!r} of {n_inputs} columns has more than {MOST_EXACT:,} features of its own."
        )
    return phi
