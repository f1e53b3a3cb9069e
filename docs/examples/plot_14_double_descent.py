"""
Double descent: test error by number of features
================================================

The test error falls with the number of random features, has a peak where the features just
interpolate the targets (D = n), and falls again. A penalty removes the peak.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo

rng = np.random.default_rng(0)
X = rng.standard_normal((1100, 5))
y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(1100)
curve = bo.double_descent(X[:100], y[:100], X[100:], y[100:], alpha=(0.0, 0.1), random_state=0)
print(f"the peak is at D = {curve.peak}, for {curve.n_rows} rows")

figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for alpha, errors in zip(curve.alphas, curve.test_error, strict=True):
    panel.loglog(curve.widths, errors, "o-", label=f"alpha = {alpha:g}")
panel.axvline(curve.n_rows, color="gray", linewidth=1)
panel.set(xlabel="features D", ylabel="test error")
panel.legend()
plt.show()
