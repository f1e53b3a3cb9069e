"""
What if rows never end?
=======================

Stochastic gradient descent needs one batch at a time. ``partial_fit`` goes on for ever; features
need no more memory as rows come in, and averaging over the steps takes out their noise. ``plan``
says what each of six ways to take the steps costs.
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
# What the six strategies would take on 3,000 rows.
print(bo.KernelSGDClassifier(Gaussian(0.4), n_features=256, random_state=0).plan(*batch(3000)))
