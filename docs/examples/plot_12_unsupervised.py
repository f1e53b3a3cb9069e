"""
Kernel PCA and kernel k-means
=============================

Two rings cannot be separated by a straight line. The third kernel principal component separates
them. Kernel k-means finds the rings if the kernel compares the distances of rows from the centre.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

import bochner as bo
from bochner.kernels import Gaussian, Warped

X, ring = make_circles(600, noise=0.05, factor=0.4, random_state=0)
pca = bo.KernelPCA(3, Gaussian(0.5), n_features=200, random_state=0)
scores = pca.fit_transform(X)
print("share of the kernel's variance:", pca.explained_variance_ratio_.round(3))

radius = Warped(lambda rows: np.linalg.norm(rows, axis=1, keepdims=True), Gaussian(0.5))
kmeans = bo.KernelKMeans(2, radius, n_features=100, random_state=0)
labels = kmeans.fit_predict(X)
agree = np.mean(labels == ring)
print(f"rows in the cluster of their ring: {max(agree, 1 - agree):.1%}")
print(kmeans.objective_)

figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
panels[0].scatter(*X.T, c=ring, s=4)
panels[0].set_title("rows")
panels[1].scatter(scores[:, 0], scores[:, 2], c=ring, s=4)
panels[1].set_title("kernel principal components 1 and 3")
panels[2].scatter(*X.T, c=labels, s=4)
panels[2].set_title("two clusters")
plt.show()
