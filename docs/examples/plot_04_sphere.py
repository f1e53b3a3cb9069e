"""
Spherical harmonics: a map of the Earth
=======================================

Ridge regressions with the same kernel and 256 features of three methods are fitted to 4,000 cells
of the relief of the Earth, and predict the whole map. Spherical harmonics (``MercerHarmonic``)
have the lowest error, because the rows are on a sphere.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.datasets import load_earth
from bochner.kernels import Gaussian

earth = load_earth()
rng = np.random.default_rng(0)
area = np.cos(np.radians(earth.latitude))
train = rng.choice(len(earth.y), 4000, replace=False, p=area / area.sum())
every_third = np.arange(len(earth.y)).reshape(180, 360)[::3, ::3]

kernel = Gaussian(lengthscale=0.3)
methods = {"MercerHarmonic()": bo.MercerHarmonic(), "Gegenbauer()": bo.Gegenbauer()}
methods["Fourier(Orthogonal())"] = bo.Fourier()
figure, panels = plt.subplots(2, 2, figsize=(10, 5.4), layout="constrained")
look = {"cmap": "terrain", "vmin": -6000, "vmax": 6000, "origin": "lower"}
panels.flat[0].imshow(earth.y[every_third], **look)
panels.flat[0].set_title("measured")
for (name, method), panel in zip(methods.items(), panels.flat[1:], strict=True):
    model = bo.KernelRidge(kernel, method=method, n_features=256, random_state=0)
    model.fit(earth.X[train].astype(float), earth.y[train])
    predicted = model.predict(earth.X[every_third.ravel()].astype(float)).reshape(every_third.shape)
    error = np.sqrt(np.average((predicted - earth.y[every_third]) ** 2, weights=area[every_third]))
    Z, K = model.map_(earth.X[train[:800]]), kernel(earth.X[train[:800]])
    kernel_error = np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)
    print(f"{name:22s} error {error:6.0f} m   error of the kernel matrix {kernel_error:.1e}")
    panel.imshow(predicted, **look)
    panel.set_title(f"{name}: {error:.0f} m")
for panel in panels.flat:
    panel.set_axis_off()
plt.show()
