"""
Where do Fourier frequencies fall?
==================================

The error of every placement falls like 1/√D. Where it starts is what the placement decides: two
columns here, Gaussian kernel, relative Frobenius error on 400 rows, mean of four seeds.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
X, kernel = rng.standard_normal((400, 2)), Gaussian(1.0)
K, widths = kernel(X), [32, 64, 128, 256, 512]


def error(method, width):
    """Return the mean of ‖Z Zᵀ − K‖/‖K‖ over four seeds."""
    maps = [bo.draw(kernel, method, n_features=width, X=X, random_state=s) for s in range(4)]
    return np.mean([np.linalg.norm(phi(X) @ phi(X).T - K) for phi in maps]) / np.linalg.norm(K)


methods = {
    "Fourier(IID(), form='phase')": bo.Fourier(bo.IID(), form="phase"),
    "Fourier(IID())": bo.Fourier(bo.IID()),
    "Fourier(Orthogonal())": bo.Fourier(),
    "Fourier(QMC())": bo.Fourier(bo.QMC()),
}
errors = {name: [error(method, D) for D in widths] for name, method in methods.items()}
for name, found in errors.items():
    print(f"{name:30s}", "  ".join(f"{e:.4f}" for e in found))

# %%
# Left, the errors. Right, the frequencies themselves: independent ones leave holes and heaps,
# Sobol points do not.
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for name, found in errors.items():
    left.loglog(widths, found, "o-", label=name, markersize=3)
left.set(xlabel="features D", ylabel="relative error")
left.set_xticks(widths, widths)
left.minorticks_off()
left.legend(fontsize=7)
for panel, name in ((middle, "Fourier(IID())"), (right, "Fourier(QMC())")):
    phi = bo.draw(kernel, methods[name], n_features=512, n_inputs=2, random_state=0)
    panel.plot(*phi.frequencies, ".", markersize=3)
    panel.set(title=name, xlim=(-4, 4), ylim=(-4, 4), aspect="equal")
plt.show()
