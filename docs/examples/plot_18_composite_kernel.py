"""
A sum of kernels: forecast of carbon dioxide
============================================

The kernel is a sum of a trend, a season and short-term changes. Lengthscales given as ``"auto"``
and the weights of the terms are chosen; the period is given. The years from 1992 on are forecast
from the years before.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.datasets import load_co2
from bochner.kernels import Gaussian, Periodic, RationalQuadratic

data = load_co2()
X, y = data.X.astype(float), data.y.astype(float)
train = X[:, 0] < 1992

season = Periodic(1.0, "auto") * Gaussian("auto")
kernel = Gaussian("auto") + season + RationalQuadratic("auto", "auto")
model = bo.GaussianProcessRegressor(kernel, random_state=0).fit(X[train], y[train])
print(model.kernel_)
print(f"deviation of the noise: {model.noise_variance_**0.5:.2f} ppm")

mean, deviation = model.predict(X[~train], return_std=True)
spread = np.sqrt(deviation**2 + model.noise_variance_)
print(f"error of the forecast: {np.sqrt(np.mean((y[~train] - mean) ** 2)):.2f} ppm")
print(f"coverage of 95 % intervals: {np.mean(np.abs(y[~train] - mean) < 1.96 * spread):.0%}")

# %%
# The band is the interval of a new measurement. It widens with the number of years ahead.
#
# 77 % of the measurements are in their intervals, and not 95 %: the errors of one forecast are not
# independent. In 1992 and 1993 the concentration rose by 0.7 ppm a year, after 1.2 to 2.6 ppm a
# year in the ten years before. So 25 of the 28 measurements outside are from 1992 to 1994.

x = np.linspace(1985, 2006, 600)[:, None]
mean, deviation = model.predict(x, return_std=True)
spread = np.sqrt(deviation**2 + model.noise_variance_)
figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
panel.fill_between(x[:, 0], mean - 1.96 * spread, mean + 1.96 * spread, alpha=0.2, label="95 %")
panel.plot(x, mean, linewidth=0.8, label="mean")
recent = X[:, 0] > 1985
panel.plot(X[recent & train], y[recent & train], "k.", markersize=3, label="training")
panel.plot(X[~train], y[~train], ".", color="tab:red", markersize=3, label="test")
panel.axvline(1992, linewidth=0.5, color="gray")
panel.set(xlabel="year", ylabel="CO$_2$ (ppm)")
panel.legend()
plt.show()
