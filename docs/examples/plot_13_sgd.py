"""
Learn from a stream: stochastic gradient descent
================================================

``partial_fit`` updates a model with one batch of rows at a time. With random features the memory
does not grow with the number of rows, and averaging the coefficients over the steps reduces their
noise. ``plan`` lists the cost of each of the six strategies.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)


def batch(n=200):
    """Return rows of a checkerboard."""
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.floor(X).sum(axis=1) % 2


X_new, y_new = batch(2000)
model = bo.KernelSGDClassifier(
    Gaussian(0.4),
    strategy="approximate_on_the_fly",
    n_features=256,
    average=True,
    random_state=0,
)
scores = []
for _ in range(40):
    model.partial_fit(*batch(), classes=[0, 1])
    scores.append(model.score(X_new, y_new))
figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
panel.plot(200 * np.arange(1, 41), scores)
panel.set(xlabel="rows seen", ylabel="accuracy on new rows")
plt.show()

# %%
# Predicted cost of the six strategies for 3,000 rows. The star marks the strategy that
# ``strategy="auto"`` chooses.
print(bo.KernelSGDClassifier(Gaussian(0.4), n_features=256, random_state=0).plan(*batch(3000)))
