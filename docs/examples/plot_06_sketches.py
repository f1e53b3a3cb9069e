"""
Sketches of polynomial kernels
==============================

The exact features of (1 + ⟨x, y⟩/d)³ for 100 columns are 176,851 monomials. A sketch approximates
them with a few hundred features. All sketches are unbiased, and their errors differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Polynomial

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 100))
kernel = Polynomial(3, scale=1 / 100, offset=1.0)
K, widths = kernel(X), [64, 128, 256, 512, 1024]
methods = {
    "PolySketch()": bo.PolySketch(),
    "TensorSketch()": bo.TensorSketch(),
    "Maclaurin()": bo.Maclaurin(),
}
figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for name, method in methods.items():
    errors = []
    for D in widths:
        phi = bo.draw(kernel, method, n_features=D, X=X, random_state=0)
        Z = phi(X)
        errors.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    print(f"{name:16s}", "  ".join(f"{e:.3f}" for e in errors))
    panel.loglog(widths, errors, "o-", label=name)
panel.set(xlabel="features D", ylabel="relative error of the kernel matrix")
panel.legend()
plt.show()
