"""
Kernels for histograms and counts
=================================

Rows of counts or shares are compared column by column. The features of ``AdditiveChi2``,
``Intersection`` and ``JensenShannon`` sample the spectrum of the kernel. Three to nine features
per column are accurate for the two smooth kernels. ``Intersection`` has a kink and needs more
features, but a classifier with its features is about as accurate.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bochner as bo
from bochner.kernels import AdditiveChi2, Intersection, JensenShannon

counts, digit = load_digits(return_X_y=True)
X = counts / counts.sum(axis=1, keepdims=True)
train, test = np.arange(0, 1200), np.arange(1200, len(X))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
x = np.linspace(0.01, 1, 100)[:, None]
for kernel in (AdditiveChi2(), Intersection(), JensenShannon()):
    name, K, errors = type(kernel).__name__, kernel(X[:300]), []
    for count in (1, 3, 5, 9):
        phi = bo.draw(kernel, bo.HistogramSampling(), n_features=64 * count, X=X)
        Z = phi(X[:300])
        errors.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    model = bo.KernelRidgeClassifier(kernel, method=bo.HistogramSampling(), n_features=192)
    score = model.fit(X[train], digit[train]).score(X[test], digit[test])
    print(f"{name:14s} errors {', '.join(f'{e:.4f}' for e in errors)}   accuracy {score:.3f}")
    left.plot(x, kernel(x, np.array([[0.4]])), label=name)
    right.semilogy((1, 3, 5, 9), errors, "o-", label=name)
left.set(xlabel="x", ylabel="k(x, 0.4)")
right.set(xlabel="features per column", ylabel="relative error")
left.legend()
plt.show()
