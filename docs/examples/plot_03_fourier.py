"""
Random Fourier features: placement of the frequencies
=====================================================

The error of independent and of orthogonal frequencies falls like 1/√D. In two columns the error of
``QMC()`` falls nearly like 1/D. The figure shows the relative Frobenius error of the kernel matrix
for a Gaussian kernel on 400 rows of two columns, as the mean of 20 seeds.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
X, kernel = rng.standard_normal((400, 2)), Gaussian(1.0)
K, widths = kernel(X), [32, 64, 128, 256, 512]


def error(method, width):
    """Return the mean of ‖Z Zᵀ − K‖/‖K‖ over 20 seeds."""
    maps = [bo.draw(kernel, method, n_features=width, X=X, random_state=s) for s in range(20)]
    return np.mean([np.linalg.norm(phi(X) @ phi(X).T - K) for phi in maps]) / np.linalg.norm(K)


methods = {
    "Fourier(IID(), form='phase')": bo.Fourier(bo.IID(), form="phase"),
    "Fourier(IID())": bo.Fourier(bo.IID()),
    "Fourier(Orthogonal())": bo.Fourier(),
    "Fourier(QMC())": bo.Fourier(bo.QMC()),
}
errors = {name: [error(method, D) for D in widths] for name, method in methods.items()}
figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, of_widths in errors.items():
    print(f"{name:30s}", "  ".join(f"{e:.4f}" for e in of_widths))
    panel.loglog(widths, of_widths, "o-", label=name, markersize=3)
panel.set(xlabel="features D", ylabel="relative error")
panel.set_xticks(widths, widths)
panel.minorticks_off()
panel.legend(fontsize=7)
plt.show()

# %%
# Two coordinates of 200 frequencies. Independent frequencies leave gaps and form clusters.
# ``Orthogonal()`` pairs each frequency with an orthogonal one of independent length: directions
# are spread evenly, lengths are not. ``QMC()`` spreads both evenly. The nodes of ``Grid()`` have
# unequal weights, drawn as the size of the dots, and one node of each opposite pair is enough.
# ``Structured()`` and ``Fastfood()`` are products of fast transforms, here for 64 columns.
placements = {bo.IID(): 2, bo.Orthogonal(): 2, bo.QMC(): 2, bo.Grid(): 2}
placements |= {bo.Structured(): 64, bo.Fastfood(): 64}
figure, panels = plt.subplots(2, 3, figsize=(8, 5.6), layout="constrained")
for (placement, d), panel in zip(placements.items(), panels.flat, strict=True):
    phi = bo.draw(kernel, bo.Fourier(placement), n_features=400, n_inputs=d, random_state=0)
    sizes = 10 * np.sqrt(200 * phi.weights) if isinstance(placement, bo.Grid) else 4
    panel.scatter(*phi.matrix[:2], s=sizes)
    title = f"{placement!r}, d = 2" if d == 2 else f"{placement!r}, 2 of d = {d}"
    panel.set(title=title, xlim=(-4, 4), ylim=(-4, 4), aspect="equal")
plt.show()
