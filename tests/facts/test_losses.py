"""Each loss against its printed formula, and its derivatives against those of the formula."""

import mpmath
import numpy as np
import pytest

from bochner import Huber
from bochner.solvers.convex.class_losses import Hinge, Logistic, SquaredHinge
from bochner.solvers.convex.losses import (
    Absolute,
    BelowZero,
    EpsilonInsensitive,
    GammaDeviance,
    PoissonDeviance,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
)
from bochner.solvers.sgd import CLASS_LOSSES, NUMBER_LOSSES, as_loss


def ramp(width):
    """max(0, m), and its smooth form: of least sum with a square over 2δ."""

    def at(m):
        if m <= 0:
            return mpmath.mpf(0)
        return m - width / 2 if m >= width else m**2 / (2 * width)

    return at


def two_slopes(low, high, width=0):
    """max(low r, high r); smooth: q r − δq²/2, q = r/δ between low and high."""

    def at(r):
        if not width:
            return max(low * r, high * r)
        q = min(max(r / width, low), high)
        return q * r - width * q**2 / 2

    return at


def modified_huber(y, f):
    return max(1 - y * f, 0) ** 2 if y * f >= -1 else -4 * y * f


def huber(c):
    return lambda y, f: (y - f) ** 2 / 2 if abs(y - f) <= c else c * abs(y - f) - c**2 / 2


ONE, TWO = mpmath.mpf(1) / 5, mpmath.mpf(3) / 10

#: Of y = −1 or 1.
OF_CLASSES = [
    (Hinge(), lambda y, f: ramp(0)(1 - y * f)),
    (Hinge(0.2), lambda y, f: ramp(ONE)(1 - y * f)),
    (SquaredHinge(), lambda y, f: max(1 - y * f, 0) ** 2),
    (Logistic(), lambda y, f: mpmath.log(1 + mpmath.exp(-y * f))),
    (as_loss("modified_huber"), modified_huber),
    (as_loss("perceptron"), lambda y, f: max(0, -y * f)),
]

#: Of numbers, here above zero.
OF_NUMBERS = [
    (Squared(), lambda y, f: (y - f) ** 2 / 2),
    (Huber(0.3), huber(TWO)),
    (Absolute(), lambda y, f: abs(y - f)),
    (Absolute(0.2), lambda y, f: two_slopes(-1, 1, ONE)(y - f)),
    (Quantile(0.3), lambda y, f: two_slopes(TWO - 1, TWO)(y - f)),
    (Quantile(0.3, 0.2), lambda y, f: two_slopes(TWO - 1, TWO, ONE)(y - f)),
    (EpsilonInsensitive(0.3), lambda y, f: ramp(0)(abs(y - f) - TWO)),
    (EpsilonInsensitive(0.3, 0.2), lambda y, f: ramp(ONE)(abs(y - f) - TWO)),
    (SquaredEpsilonInsensitive(0.3), lambda y, f: max(abs(y - f) - TWO, 0) ** 2),
    (BelowZero(), lambda y, f: max(0, -f)),
    (BelowZero(0.2), lambda y, f: ramp(ONE)(-f)),
    (PoissonDeviance(), lambda y, f: mpmath.exp(f) - y * f + y * mpmath.log(y) - y),
    (GammaDeviance(), lambda y, f: f + y * mpmath.exp(-f) - mpmath.log(y) - 1),
]
LOSSES = [
    *((loss, formula, (-1.0, 1.0)) for loss, formula in OF_CLASSES),
    *((loss, formula, (0.4, 1.7)) for loss, formula in OF_NUMBERS),
]
#: Predictions on either side of each place where a slope or a curvature changes.
AT = (-2.3, -1.06, -0.93, -0.25, -0.12, 0.03, 0.11, 0.37, 0.55, 0.73, 0.87, 1.08, 1.43, 1.83, 2.6)


@pytest.mark.parametrize(
    ("loss", "formula", "targets"), LOSSES, ids=[repr(loss) for loss, _, _ in LOSSES]
)
def test_values_slopes_and_curvatures_are_those_of_the_printed_formula(loss, formula, targets):
    for y in targets:
        f = np.array([AT])
        known = np.full_like(f, y)
        for order, found in enumerate((loss.value, loss.slope, loss.curvature)):
            by_hand = [
                float(mpmath.diff(lambda x, y=y: formula(mpmath.mpf(y), x), at, order, h=1e-9))
                for at in AT
            ]
            np.testing.assert_allclose(found(known, f)[0], by_hand, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "loss", [loss for loss, _, _ in LOSSES if loss.degree and not loss.width], ids=repr
)
def test_a_loss_in_other_units_is_a_power_of_the_units_times_the_loss(loss):
    """s⁻ᵖ ℓ(y, f) is the loss in these units of y/s and f/s."""
    rng, units = np.random.default_rng(0), np.array([3.0, 0.25])
    y, f = rng.standard_normal((2, 50, 2))
    found = loss.in_units(units).value(y / units, f / units)
    np.testing.assert_allclose(found, loss.value(y, f) / units**loss.degree, rtol=1e-12)
    alike = loss.in_units(np.array([2.0, 2.0]))
    np.testing.assert_allclose(
        alike.slope(y / 2, f / 2), loss.slope(y, f) * 2.0 ** (1 - loss.degree)
    )


def test_where_a_slope_jumps_it_lies_between_both_sides():
    y, f = np.array([[1.0, -1.0]]), np.zeros((1, 2))
    assert np.all(np.abs(as_loss("perceptron").slope(y, f)) <= 1)
    assert np.array_equal(Absolute().slope(y, y), [[0.0, 0.0]])
    assert np.allclose(Quantile(0.3).slope(y, y), 0.2)  # −(0.3 − 0.7)/2
    assert np.array_equal(Hinge().slope(y, y), [[0.0, 0.0]])


def test_no_exponent_is_too_large_for_its_weight():
    y = np.ones((1, 2))
    f = np.array([[590.0, 650.0]])
    assert np.isfinite(PoissonDeviance().value(y, f)).tolist() == [[True, False]]
    assert PoissonDeviance().curvature(y, f)[0, 0] == pytest.approx(np.exp(590.0))
    assert np.isfinite(GammaDeviance().slope(y, -f)).tolist() == [[True, False]]


@pytest.mark.parametrize("name", [*CLASS_LOSSES, *NUMBER_LOSSES])
def test_a_loss_by_name_has_the_numbers_it_is_given(name):
    """ε and the level: by the value far above and far below the target."""
    loss, y = as_loss(name, epsilon=0.25, quantile=0.2), np.ones((1, 1))
    far = 7.0
    above, below = (float(loss.value(y, y + s * far)[0, 0]) for s in (1, -1))
    expected = {
        "squared_error": (24.5, 24.5),
        "huber": (0.25 * 7 - 0.25**2 / 2,) * 2,
        "epsilon_insensitive": (6.75, 6.75),
        "squared_epsilon_insensitive": (6.75**2,) * 2,
        "quantile": (0.8 * 7, 0.2 * 7),
        "hinge": (0.0, 7.0),
        "squared_hinge": (0.0, 49.0),
        "log_loss": (np.log1p(np.exp(-8.0)), np.log1p(np.exp(6.0))),
        "modified_huber": (0.0, 24.0),
        "perceptron": (0.0, 6.0),
    }[name]
    assert (above, below) == pytest.approx(expected)
