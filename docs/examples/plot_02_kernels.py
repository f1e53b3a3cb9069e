"""
Kernels and functions drawn from them
=====================================

A kernel defines which functions are likely. Each panel shows the kernel as a function of the
distance (dashed) and three functions drawn from the Gaussian process with this kernel.
"""

import matplotlib.pyplot as plt
import numpy as np

from bochner.kernels import Exponential, Gaussian, Linear, Matern, Periodic, RationalQuadratic

x = np.linspace(-4, 4, 161)[:, None]
kernels = {
    "Gaussian()": Gaussian(),
    "Matern(1.5)": Matern(1.5),
    "Exponential()": Exponential(),
    "RationalQuadratic(0.5)": RationalQuadratic(0.5),
    "Periodic(period=2) * Gaussian(3)": Periodic(period=2.0) * Gaussian(3.0),
    "0.3 * Linear() + 0.2 * Gaussian(0.4)": 0.3 * Linear() + 0.2 * Gaussian(0.4),
}
rng = np.random.default_rng(0)
figure, panels = plt.subplots(2, 3, figsize=(10, 5), layout="constrained", sharex=True)
for (name, kernel), panel in zip(kernels.items(), panels.flat, strict=True):
    values, vectors = np.linalg.eigh(kernel(x))
    root = vectors * np.sqrt(np.maximum(values, 0))
    panel.plot(x, root @ rng.standard_normal((len(x), 3)), linewidth=1)
    panel.plot(x, kernel(x, np.zeros((1, 1))), "k--", linewidth=1)
    panel.set_title(name, fontsize=9)
plt.show()

# %%
# A kernel prints as the code that creates it. It never changes: ``replace`` returns a new kernel.
kernel = kernels["0.3 * Linear() + 0.2 * Gaussian(0.4)"]
print(kernel)
print(kernel.get_params())
print(kernel.replace(right__kernel__lengthscale=0.5))
