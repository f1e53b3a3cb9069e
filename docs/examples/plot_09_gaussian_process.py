"""
Gaussian process regression: intervals and draws
================================================

Mean, 95 % interval of a new observation, and functions drawn from the posterior. Far from the data
the standard deviation returns to that of the prior, because the part of the kernel that the
features do not represent is added to the variance.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo

rng = np.random.default_rng(0)
X = np.concatenate([rng.uniform(-4, -1, (60, 1)), rng.uniform(1.5, 4, (60, 1))])
y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(120)
model = bo.GaussianProcessRegressor(n_features=100, random_state=0).fit(X, y)
print(model.kernel_)
print(f"deviation of the noise: {model.noise_variance_**0.5:.3f} (truth: 0.1)")

x = np.linspace(-7, 7, 300)[:, None]
mean, std = model.predict(x, return_std=True, include_noise=True)
low, high = mean - 1.96 * std, mean + 1.96 * std
figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
panel.fill_between(x[:, 0], low, high, alpha=0.2, label="95 %")
panel.plot(x, model.sample_functions(4, random_state=1)(x), linewidth=0.7, color="gray")
panel.plot(x, mean, label="mean")
panel.plot(X, y, "k.", markersize=3)
panel.legend()
plt.show()

# %%
# Coverage of the intervals on new rows: requested and measured.
X_new = np.concatenate([rng.uniform(-4, -1, (500, 1)), rng.uniform(1.5, 4, (500, 1))])
y_new = np.sin(2 * X_new[:, 0]) + 0.1 * rng.standard_normal(1000)
for coverage in (0.5, 0.8, 0.95):
    _, low, high = model.predict_interval(X_new, coverage)
    print(f"{coverage:.0%} requested, {np.mean((low <= y_new) & (y_new <= high)):.1%} measured")
