"""
A-priori bounds compared with measured errors
=============================================

A-priori bounds hold before any feature is drawn. This example compares them with the largest error
of five draws of the features, on 200 rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.certificates import fourier_bound
from bochner.kernels import Gaussian

X = np.random.default_rng(0).standard_normal((200, 3))
kernel, alpha, widths = Gaussian(2.0), 2.0, [256, 1024, 4096, 16384]
bounds = {
    "largest entry, Hoeffding": fourier_bound(kernel, X, "hoeffding"),
    "largest entry, Bernstein": fourier_bound(kernel, X, "bernstein"),
    "operator norm": fourier_bound(kernel, X, "operator_norm"),
    "spectral distance": fourier_bound(kernel, X, "spectral", alpha=alpha),
}
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
for name, bound in bounds.items():
    panel.loglog(widths, [bound.error(D) for D in widths], "o-", label=name)
panel.set(xlabel="features D", ylabel="bound on the error, 95 %")
panel.legend()
plt.show()

# %%
# The table: the bound for 1,024 features, the measured error, and the number of features for which
# the bound equals the measured error.
print(bo.compare_bounds(kernel, X, alpha=alpha, n_features=1024, n_draws=5, random_state=0))
