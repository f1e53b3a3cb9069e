"""
Certificates: how many features are enough
==========================================

ε is the spectral distance between features and kernel at the penalty of the fit. If it is below 1,
it bounds the risk. ``n_features="auto"`` searches for a number of features with which ε is at most
a tolerance.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (800, 2))
kernel, alpha = Gaussian(0.7), 8.0
widths = {"fourier": (64, 128, 256, 512, 1024, 2048), "nystrom": (16, 32, 48, 64, 96, 128)}

figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for method, sizes in widths.items():
    epsilons = []
    for D in sizes:
        phi = bo.draw(kernel, method, n_features=D, X=X, random_state=0)
        epsilons.append(bo.certify(phi, X, alpha=alpha).epsilon)
    panel.loglog(sizes, epsilons, "o-", label=method)
panel.axhline(0.1, color="gray", linewidth=1)
panel.set(xlabel="features D", ylabel="ε")
panel.legend()
plt.show()

# %%
# A search by doubling and bisection for a number of Nyström features with ε of at most 0.1, the
# grey line. It ends after two bisections, so the number may be a fifth too large.
width = bo.required_features(kernel, "nystrom", X, alpha=alpha, random_state=0)
print(width)

# %%
# The certificate as text.
print(bo.certify(width.map, X, alpha=alpha))
