"""
Compare all methods: error by number of features
================================================

Relative Frobenius error of the kernel matrix against the number of features, in 2 to 100 columns.
The rows are drawn from N(0, I), and the lengthscale of the Gaussian kernel is the median distance
between rows. Maps are drawn with 1,000 rows, and their errors are measured on 500 other rows.

Errors of random features fall like 1/√D, and faster with ``QMC()`` in few columns. Errors of
Mercer and Nyström features fall like the eigenvalues of the kernel: fast in 2 columns and slowly
in 100 columns. At d = 20 and 100 the error of a Hermite map falls in steps, because each degree
adds many features.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import pdist

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian

methods = {
    "Fourier(IID())": (bo.Fourier(bo.IID()), "C0:"),
    "Fourier(Orthogonal())": (bo.Fourier(bo.Orthogonal()), "C0-"),
    "Fourier(Structured())": (bo.Fourier(bo.Structured()), "C0--"),
    "Fourier(Fastfood())": (bo.Fourier(bo.Fastfood()), "C0-."),
    "Fourier(QMC())": (bo.Fourier(bo.QMC()), "C9-"),
    "Fourier(Grid())": (bo.Fourier(bo.Grid()), "C9--"),
    "MercerHarmonic()": (bo.MercerHarmonic(), "C3-"),
    "HermiteMercer()": (bo.HermiteMercer(), "C1-"),
    "PolySketch()": (bo.PolySketch(), "C7-"),
    "Nystrom('uniform')": (bo.Nystrom("uniform"), "C2:"),
    "Nystrom()": (bo.Nystrom(), "C2-"),
}
dimensions, widths = (2, 3, 9, 20, 100), (32, 64, 128, 256, 512)


def error(kernel, method, D, X, new):
    """Return ‖Z Zᵀ − K‖/‖K‖ of new rows; NaN if the method needs a larger width."""
    try:
        Z = bo.draw(kernel, method, n_features=D, X=X, random_state=0)(new)
    except InvalidInput:
        return np.nan
    K = kernel(new)
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


figure, panels = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
table = {name: [] for name in methods}
for d, panel in zip(dimensions, panels.flat, strict=False):
    X, new = np.split(np.random.default_rng(d).standard_normal((1500, d)), [1000])
    kernel = Gaussian(np.median(pdist(new)))
    for name, (method, look) in methods.items():
        if d > 3 and "Grid" in name:  # its number of nodes grows like a power of d
            continue
        errors = [error(kernel, method, D, X, new) for D in widths]
        table[name].append(errors[widths.index(256)])
        panel.loglog(widths, errors, look, label=name)
    panel.set(title=f"d = {d}", xlabel="features D")
    panel.set_xticks(widths, widths)
    panel.minorticks_off()
panels[0, 0].set_ylabel("‖ZZᵀ − K‖ / ‖K‖")
panels[-1, -1].axis("off")
panels[-1, -1].legend(*panels[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
plt.show()

# %%
# Errors at D = 256 by number of columns.
print(f"{'':22s}", "  ".join(f"d = {d:<6d}" for d in dimensions))
for name, errors in table.items():
    print(f"{name:22s}", "  ".join(f"{e:.2e}  " for e in errors))
