"""
Quantile and Huber regression
=============================

``KernelRegressor`` minimises any of several convex losses. Left: three quantiles of a target
whose spread varies. Right: a tenth of the targets are outliers, which change the squared-error fit
but hardly the Huber fit.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, (500, 1)), axis=0)
truth = np.sin(X[:, 0])
y = truth + (0.1 + 0.08 * X[:, 0]) * rng.standard_normal(500)
wrong = np.where(rng.uniform(size=500) < 0.1, truth + rng.exponential(8, 500), y)
shared = {"n_features": 50, "random_state": 0}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
levels = (0.1, 0.5, 0.9)
model = bo.KernelRegressor(loss="quantile", quantiles=levels, **shared).fit(X, y)
left.plot(X, y, ".", color="silver", markersize=3)
left.plot(X, model.predict(X), label=[f"quantile {q}" for q in levels])
left.legend()
print("share of targets below each:", np.mean(y[:, None] < model.predict(X), axis=0))

right.plot(X, np.minimum(wrong, 8), ".", color="silver", markersize=3)
for loss in ("squared", "huber"):
    predicted = bo.KernelRegressor(loss=loss, **shared).fit(X, wrong).predict(X)
    right.plot(X, predicted, label=f"{loss}: RMSE {np.sqrt(np.mean((predicted - truth) ** 2)):.2f}")
right.plot(X, truth, "k--", linewidth=1, label="truth")
right.legend()
plt.show()
