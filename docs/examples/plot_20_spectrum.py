"""
Eigenvalues of features and kernel
==================================

The figure shows the eigenvalues of ZZᵀ/n for D = 128 features, and those of K/n (the broad grey
line). Eigenvalues of deterministic and Nyström maps agree with those of the kernel, up to D
eigenvalues or fewer. Random maps are accurate for the large eigenvalues only, because their noise
is as large as the small eigenvalues. If the ridge penalty divided by n is below the value at which
a curve leaves the grey line, the fit depends on the map, not only on the kernel.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

n, D = 600, 128
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((n, 3)), rng.standard_normal((n, 9))
cases = {
    "sphere in R³, ℓ = ½": (X / np.linalg.norm(X, axis=1, keepdims=True), 0.5),
    "N(0, I) in R³, ℓ = 1": (X, 1.0),
    "N(0, I) in R⁹, ℓ = 3": (Y, 3.0),
}
methods = {
    "Fourier(Orthogonal())": (bo.Fourier(), "C0-"),
    "Fourier(QMC())": (bo.Fourier(bo.QMC()), "C9-"),
    "MercerHarmonic()": (bo.MercerHarmonic(), "C3-"),
    "HermiteMercer()": (bo.HermiteMercer(), "C1-"),
    "PolySketch()": (bo.PolySketch(), "C7-"),
    "Nystrom('uniform')": (bo.Nystrom("uniform"), "C2:"),
    "Nystrom()": (bo.Nystrom(), "C2-"),
}


def spectrum(A):
    """Return the first D + 32 eigenvalues of A/n, at least 1e-12."""
    return np.maximum(np.linalg.eigvalsh(A)[::-1][: D + 32] / n, 1e-12)


figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharey=True)
for (title, (rows, lengthscale)), panel in zip(cases.items(), panels, strict=True):
    kernel = Gaussian(lengthscale)
    panel.semilogy(spectrum(kernel(rows)), "k-", linewidth=3, alpha=0.35, label="K")
    for name, (method, look) in methods.items():
        Z = bo.draw(kernel, method, n_features=D, X=rows, random_state=0)(rows)
        panel.semilogy(spectrum(Z @ Z.T), look, linewidth=1.2, label=name)
    panel.set(title=title, xlabel="number of the eigenvalue", ylim=(1e-9, 2))
panels[0].set_ylabel(f"eigenvalue of ZZᵀ/n and K/n, D = {D}")
panels[0].legend(fontsize=7, loc="lower left")
plt.show()
