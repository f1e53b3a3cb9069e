"""What the demo found, as values: the page and the terminal show these and nothing else."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bochner._core.shapes import Array, Float


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One row of the table of methods.

    Attributes
    ----------
    name : str
        As it is shown.
    code : str
        The Python expression that gives the method.
    n_features : int
        D.
    rmse : float
        Root mean squared error on the held-out cells, metres.
    r_squared : float
        1 − (mean squared error) / (variance), on the held-out cells.
    seconds : float
        Fit and prediction of the held-out cells, wall clock.
    loo : float
        Leave-one-out error on the training cells, metres.
    alpha : float
        The penalty chosen.
    epsilon, epsilon_interval, frobenius : float, pair, float or None
        Of the certificate; None where there is none.
    certificate : str
        The certificate in words, or "".
    """

    name: str
    code: str
    n_features: int
    rmse: float
    r_squared: float
    seconds: float
    loo: float
    alpha: float
    epsilon: float | None = None
    epsilon_interval: tuple[float, float] | None = None
    frobenius: float | None = None
    certificate: str = ""


@dataclass(frozen=True)
class Curve:
    """Held-out error of one method against the number of features.

    Attributes
    ----------
    name : str
    n_features : tuple of int
    rmse : tuple of float
        Metres, one for each number of features.
    """

    name: str
    n_features: tuple[int, ...]
    rmse: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class DemoResult:
    """All that the demo found.

    Attributes
    ----------
    methods : tuple of MethodResult
        The table, all at the same width.
    curves : tuple of Curve
    best : MethodResult
        The fit that the maps show: of those along the curves, the one with the least
        leave-one-out error on the training cells (the held-out cells have no say).
    truth, prediction : (rows, columns)
        Metres, south first.
    held_out : (rows, columns) bool
        Cells that no fit has seen.
    kernel, alpha : str, float
        The kernel of all fits, as code, and the alpha of the certificates in the table.
    certificate : str
        That of ``best`` at this alpha, in words; ``best.certificate`` is at its own.
    n_train, n_test : int
    seed : int
    quick : bool
    seconds : float
        All of it, wall clock.
    path : Path
        The page.
    """

    methods: tuple[MethodResult, ...]
    curves: tuple[Curve, ...]
    best: MethodResult
    truth: Float[Array, "rows columns"]
    prediction: Float[Array, "rows columns"]
    held_out: Float[Array, "rows columns"]
    kernel: str
    alpha: float
    certificate: str
    n_train: int
    n_test: int
    seed: int
    quick: bool = False
    seconds: float = 0.0
    path: Path = Path("earth.html")

    @property
    def error(self) -> Float[Array, "rows columns"]:
        """Prediction less truth, metres."""
        return self.prediction - self.truth

    @property
    def latitudes(self) -> Float[Array, " rows"]:
        """Degrees north of the middle of each row of cells."""
        rows = self.truth.shape[0]
        return -90 + (np.arange(rows) + 0.5) * 180 / rows

    @property
    def area_rmse(self) -> float:
        """Error on held-out cells, each weighted by its area (the cosine of its latitude)."""
        area = np.cos(np.deg2rad(self.latitudes))[:, None] * self.held_out
        return float(np.sqrt((area * self.error**2).sum() / area.sum()))

    def rmse_where(self, cells: Float[Array, "rows columns"]) -> float:
        """Error on the held-out cells among these, metres; NaN where there are none."""
        chosen = self.error[cells & self.held_out]
        return float(np.sqrt(np.mean(chosen**2))) if chosen.size else float("nan")
