"""Losses of numbers that are asked for by name."""

from typing import Any

from bochner._core.names import meant
from bochner.errors import InvalidInput
from bochner.solvers.convex.class_losses import MultinomialShares
from bochner.solvers.convex.losses import (
    Absolute,
    GammaDeviance,
    Huber,
    Loss,
    PoissonDeviance,
    Quantile,
    Squared,
    as_levels,
)

#: Losses by name.
NAMES: dict[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": PoissonDeviance,
    "gamma": GammaDeviance,
    "multinomial": MultinomialShares,
}


def by_name(loss: object, quantiles: Any = (0.1, 0.5, 0.9)) -> Loss:
    """Return a loss given by name, or as a value; "quantile" has a column for each level."""
    if isinstance(loss, Loss):
        if loss.joint and not loss.of_numbers:
            raise InvalidInput(
                f"loss must be one of numbers; got {loss!r}, which is of classes. Take a "
                "classifier."
            )
        return loss
    if isinstance(loss, str) and loss in NAMES:
        return Quantile(as_levels(quantiles)) if loss == "quantile" else NAMES[loss]()
    raise InvalidInput(
        f"loss must be one of {', '.join(map(repr, NAMES))}, or a value such as Huber(0.5), "
        "CustomLoss(value, slope, curvature) or JointLoss(value, slope, hessian); "
        f"got {loss!r}{meant(loss, NAMES) or '.'}"
    )
