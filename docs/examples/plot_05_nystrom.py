"""
Nyström features: choosing the landmarks
========================================

Sixty landmarks for the rows of a ring and two clusters, chosen by randomly pivoted Cholesky or at
random. The shading shows the error of the diagonal of the kernel matrix, e(x) = k(x, x) −
φ(x)·φ(x), which can be computed exactly for any row. It is 0 where the features are exact and 1
far from all landmarks.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 800)
ring = 3 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.15 * rng.standard_normal((800, 2))
X = np.concatenate([ring, rng.normal(0, 0.4, (150, 2)), rng.normal(5, 0.2, (50, 2))])
kernel = Gaussian(0.8)
sides = np.linspace(-5, 7, 80)
grid = np.stack(np.meshgrid(sides, sides), axis=-1).reshape(-1, 2)

figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
methods = {"rpcholesky": bo.Nystrom(), "uniform": bo.Nystrom("uniform")}
for (name, method), panel in zip(methods.items(), panels, strict=True):
    phi = bo.draw(kernel, method, n_features=60, X=X, random_state=0)
    left_out = phi.residual(X)
    print(f"{name:10s} error of a row: mean {left_out.mean():.1e}, largest {left_out.max():.1e}")
    e = phi.residual(grid).reshape(80, 80)
    shades = panel.contourf(sides, sides, e, levels=np.linspace(0, 1, 11), cmap="Greys")
    panel.plot(*X.T, ".", markersize=2, color="tab:blue")
    panel.plot(*phi.landmarks.T, "x", color="tab:red")
    panel.set(title=name, aspect="equal")
figure.colorbar(shades, label="e(x)")
plt.show()
