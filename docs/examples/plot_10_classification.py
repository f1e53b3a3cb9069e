"""
Compare classifiers: SVM, logistic regression, ridge
====================================================

Three classifiers with the same kernel on two moons. The shades are probabilities, and the black
line is the decision boundary. The titles show the accuracy on 2,000 other rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import bochner as bo
from bochner.kernels import Gaussian

X, y = make_moons(600, noise=0.25, random_state=0)
X_new, y_new = make_moons(2000, noise=0.25, random_state=1)
x1, x2 = np.linspace(-2, 3, 80), np.linspace(-1.5, 2, 60)
grid = np.stack(np.meshgrid(x1, x2), axis=-1).reshape(-1, 2)
shared = {"kernel": Gaussian(0.5), "n_features": 128, "random_state": 0}
models = {
    "KernelRidgeClassifier": bo.KernelRidgeClassifier(**shared),
    "SVC": bo.SVC(C=1.0, **shared),
    "LogisticRegression": bo.LogisticRegression(C=1.0, **shared),
}
figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained", sharey=True)
for (name, model), panel in zip(models.items(), panels, strict=True):
    score = model.fit(X, y).score(X_new, y_new)
    values = model.predict_proba(grid)[:, 1].reshape(60, 80) - 0.5
    limit = np.abs(values).max()
    panel.contourf(x1, x2, values, 20, cmap="RdBu_r", vmin=-limit, vmax=limit)
    panel.contour(x1, x2, values, levels=[0], colors="k")
    panel.scatter(*X.T, c=y, s=4, cmap="RdBu_r", edgecolors="white", linewidths=0.2)
    panel.set_title(f"{name}: {score:.3f}")
    print(f"{name:22s} accuracy {score:.3f}")
plt.show()
