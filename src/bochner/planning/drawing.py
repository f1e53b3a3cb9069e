"""``bo.draw``: a feature map of a given width, or of the width that a tolerance needs."""

from bochner._ground.random import Seed
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.draw import draw as draw_width
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.kernels import Kernel
from bochner.planning.width import Enough, as_enough, enough

__all__ = ["draw"]


def draw(
    kernel: Kernel,
    method: Method | str = "auto",
    *,
    n_features: int | str | Enough = 1024,
    X: Float[Array, "n d"] | None = None,
    n_inputs: int | None = None,
    random_state: Seed = None,
    tolerance: float = 0.1,
    alpha: float | None = None,
) -> FeatureMap:
    """Draw a feature map φ with φ(x)·φ(y) ≈ k(x, y).

    Parameters
    ----------
    kernel : Kernel
        Any kernel of :mod:`bochner.kernels`, or sums and products of them.
    method : Method or str, default "auto"
        How features are made: ``Fourier(placement, form)``, ``Nystrom(landmarks)``,
        ``MercerHarmonic()``, ``Auto()``, ..., or one of the names "auto", "fourier", "iid",
        "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom", "uniform".
    n_features : int or "auto" or Enough, default 1024
        D. "auto": as many as bring the (ε, alpha)-spectral distance on the rows X down to
        ``tolerance``; see :func:`bochner.enough`. Maps whose kernel needs fewer (Linear,
        Constant, a Nyström map that has explained all) have fewer.
    X : (n, d), optional
        Rows of data; Nyström takes landmarks from them, "auto" measures on them. The others use
        their number of columns only.
    n_inputs : int, optional
        d, where there is no X.
    random_state : int, Generator, RandomState or None
        The same seed gives the same map everywhere.
    tolerance : float, default 0.1
        With ``n_features="auto"``: the largest ε wanted.
    alpha : float, optional
        With ``n_features="auto"``: the ridge penalty of the fit, required then.

    Returns
    -------
    FeatureMap
        ``phi(X)`` gives Z, (n, D), with Z @ Z.T ≈ kernel(X, X).

    Raises
    ------
    UnsupportedKernel
        If the method cannot serve the kernel; the message names those that can.
    InvalidInput
        If an argument is not what was required.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import draw
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> phi = draw(Gaussian(lengthscale=2.0), "nystrom", n_features=64, X=X, random_state=0)
    >>> Z = phi(X)
    >>> float(abs(Z @ Z.T - phi.kernel(X, X)).max()) < 0.1
    True
    """
    wanted = as_enough(n_features, tolerance)
    if wanted is None:
        return draw_width(
            kernel,
            method,
            n_features=n_features,  # type: ignore[arg-type]
            X=X,
            n_inputs=n_inputs,
            random_state=random_state,
        )
    if X is None or alpha is None:
        raise InvalidInput(
            'draw: n_features="auto" measures ε on rows at a penalty, so it requires X and alpha; '
            f"got {'no X' if X is None else 'no alpha'}."
        )
    return enough(kernel, method, X, alpha=alpha, wanted=wanted, random_state=random_state).map
