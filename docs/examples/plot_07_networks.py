"""
Kernels of wide neural networks
===============================

Many random rectified units (ReLU) approximate the kernel ``ArcCosine(1)``. Training a wide network
by gradient descent corresponds to ridge regression with the kernel ``NeuralTangent``. Left: errors
of features of both kernels. Right: a step function, fitted with the kernels of three depths.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import ArcCosine, NeuralTangent

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 5))
cases = {
    "ArcCosine(1), ReLU(1)": (ArcCosine(1), bo.ReLU(1)),
    "ArcCosine(0), ReLU(0)": (ArcCosine(0), bo.ReLU(0)),
    "NeuralTangent(1), NeuralTangentFeatures()": (NeuralTangent(1), bo.NeuralTangentFeatures()),
    "NeuralTangent(1), MercerHarmonic()": (NeuralTangent(1), bo.MercerHarmonic()),
}
widths = [64, 128, 256, 512]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, (kernel, method) in cases.items():
    K, errors = kernel(X), []
    for D in widths:
        Z = bo.draw(kernel, method, n_features=D, X=X, random_state=0)(X)
        errors.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    print(f"{name:44s}", "  ".join(f"{e:.4f}" for e in errors))
    left.loglog(widths, errors, "o-", label=name)
left.set(xlabel="features D", ylabel="relative error of the kernel matrix")
left.set_xticks(widths, widths, minor=False)
left.minorticks_off()
left.legend(fontsize=7)

# Right: a step function, fitted by three depths. A column of ones gives the biases.
x = np.linspace(-1, 1, 200)[:, None]
rows, y = np.hstack([x, np.ones_like(x)]), np.sign(x[:, 0]) + 0.2 * rng.standard_normal(200)
right.plot(x, y, ".", color="silver")
for depth in (1, 2, 4):
    model = bo.KernelRidge(NeuralTangent(depth), method="nystrom", n_features=100, random_state=0)
    right.plot(x, model.fit(rows, y).predict(rows), label=f"NeuralTangent({depth})")
right.legend()
plt.show()
