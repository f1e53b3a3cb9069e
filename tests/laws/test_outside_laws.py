"""Outside the data a default fit stays near the data's mean, and its bands hold the function."""

import numpy as np
import pytest

import bochner as bo

FUNCTIONS = {
    "sine": lambda x: np.sin(2 * x),
    "steps": lambda x: np.floor(x) % 3,
    "noise": np.zeros_like,
    "periodic": lambda x: np.sin(3 * x) + 0.5 * np.cos(6 * x),
}

#: The three units beyond either end.
OUTSIDE = np.concatenate([np.linspace(-7, -4, 100), np.linspace(4, 7, 100)])

PROCESS, RIDGE = bo.GaussianProcessRegressor, bo.KernelRidge


def with_a_gap(name, seed):
    """Return 120 rows of one column, none between -1 and 1.5, and targets with noise."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-4, -1, 60), rng.uniform(1.5, 4, 60)])
    noise = (1.0 if name == "noise" else 0.1) * rng.standard_normal(120)
    return x[:, None], FUNCTIONS[name](x) + noise


@pytest.mark.parametrize("learner", [PROCESS, RIDGE])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_means_stay_within_four_deviations(learner, name):
    """Long lengthscales with huge amplitudes were 20 to 2000 deviations away in some seeds."""
    for seed in (0, 1, 8):
        X, y = with_a_gap(name, seed)
        mean = learner(random_state=seed).fit(X, y).predict(OUTSIDE[:, None])
        assert np.abs(mean - y.mean()).max() <= 4 * y.std()


def test_bands_hold_a_sine_beyond_its_ends():
    """Of ten seeds; errors along a band hang together, so each seed counts as one number."""
    f, errors, covered = FUNCTIONS["sine"](OUTSIDE), [], []
    for seed in range(10):
        X, y = with_a_gap("sine", seed)
        model = PROCESS(random_state=seed).fit(X, y)
        mean, deviation = model.predict(OUTSIDE[:, None], return_std=True)
        errors.append(np.mean((mean - f) ** 2))
        covered.append(np.mean(np.abs(mean - f) < 1.96 * deviation))
    assert np.mean(errors) ** 0.5 <= 0.8
    assert np.mean(covered) >= 0.9


def test_a_trend_goes_on():
    """A line is continued with the largest evidence; short lengthscales err as the mean does."""
    x = np.random.default_rng(0).uniform(-3, 3, 100)
    y = x + 0.1 * np.random.default_rng(1).standard_normal(100)
    for learner in (PROCESS, RIDGE):
        found = learner(random_state=0).fit(x[:, None], y).predict([[-6.0], [6.0]])
        assert np.abs(found - [-6.0, 6.0]).max() < 1.5
