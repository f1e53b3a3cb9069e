"""
Series of kernels on the sphere: Taylor, Chebyshev, Gegenbauer
==============================================================

A kernel on the unit sphere is a function of t = cos θ. Each line shows the largest error of the
partial sums of one series: the Taylor series at 0, the Chebyshev series (d = 2), or the Gegenbauer
series of the sphere in d dimensions. This repeats figure 1 of Han et al. (2022) for the Gaussian
kernel and for a neural tangent kernel, which has no derivative at t = 1 and so converges slowly.
Beyond degree 12 the lines for the Gaussian kernel show rounding errors of the example, which grow
with d.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import eval_chebyt, eval_gegenbauer, roots_chebyt, roots_gegenbauer

from bochner.kernels import Gaussian, NeuralTangent

degrees, t = np.arange(16), np.linspace(-1, 1, 2001)


def on_circle(kernel, t):
    """Return the kernel of unit vectors with the inner products t."""
    points = np.column_stack([t, np.sqrt(1 - t**2)])
    return kernel(points, np.array([[1.0, 0.0]])).ravel()


def gegenbauer_sums(kernel, d):
    """Return the partial sums of the Gegenbauer series on the sphere in d dimensions, by degree."""
    index = (d - 2) / 2
    nodes, weights = roots_chebyt(400) if d == 2 else roots_gegenbauer(400, index)
    n = degrees[:, None]
    of = lambda t: eval_chebyt(n, t) if d == 2 else eval_gegenbauer(n, index, t)
    P = of(nodes)
    coefficients = (P * on_circle(kernel, nodes)) @ weights / (P**2 @ weights)
    return np.cumsum(coefficients[:, None] * of(t), axis=0)


kernels = {"Gaussian(1)": Gaussian(1.0), "NeuralTangent(1)": NeuralTangent(1)}
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (name, kernel), panel in zip(kernels.items(), panels, strict=True):
    exact = on_circle(kernel, t)
    for d in (2, 4, 8, 32):
        errors = np.abs(gegenbauer_sums(kernel, d) - exact).max(axis=1) / exact.max()
        panel.semilogy(degrees, errors, label="Chebyshev" if d == 2 else f"Gegenbauer, d = {d}")
        print(f"{name:17s} d = {d:2d}  degree 15: {errors[-1]:.1e}")
    panel.set(title=name, xlabel="degree")
# The Taylor series of the Gaussian kernel exp(t − 1) is known.
factorials = np.cumprod(np.maximum(degrees, 1)).astype(float)
taylor = np.cumsum(np.exp(-1) * t ** degrees[:, None] / factorials[:, None], axis=0)
panels[0].semilogy(degrees, np.abs(taylor - np.exp(t - 1)).max(axis=1), "k--", label="Taylor")
panels[0].set_ylabel("largest error / largest value")
panels[0].legend(fontsize=8)
plt.show()
