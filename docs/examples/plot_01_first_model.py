"""
Fit a first model: kernel ridge regression
==========================================

Predict the strength of concrete from seven ingredients and its age: 1,030 samples [#]_. The
lengthscale, the method and the penalty are chosen from the data. The certificate measures the
distance of the features from the exact kernel.

.. [#] Yeh (1998), included in the package; the docstring of the loader has source and licence.
"""

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

import bochner as bo
from bochner.datasets import load_concrete

data = load_concrete()
X, X_new, y, y_new = train_test_split(data.X, data.y, test_size=0.2, random_state=0)
model = bo.KernelRidge(kernel="gaussian", n_features=256, random_state=0).fit(X, y)
print(f"R² on new rows: {model.score(X_new, y_new):.3f}")

# %%
# The chosen kernel, and the reason for choosing this feature method:
print(model.kernel_)
print(model.choice_.reason)
print(model.solution_.outcome)

# %%
# The certificate of the features.
print(model.certificate_)

# %%
# Left: predictions of new rows. Right: the penalties that the fit tried; the chosen one has the
# smallest leave-one-out error.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(y_new, model.predict(X_new), ".")
left.axline((0, 0), slope=1, color="gray", linewidth=1)
left.set(xlabel="strength measured, MPa", ylabel="predicted")

path = model.solution_.path
right.loglog(path.alphas, path.loo**0.5)
right.axvline(model.alpha_, color="gray", linewidth=1)
right.set(xlabel="alpha", ylabel="leave-one-out error, MPa")
plt.show()
