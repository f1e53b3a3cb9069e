"""Base class of regressors: predictions, and prediction intervals from leave-one-out errors."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_consistent_length

from bochner._core.arrays import array_namespace, concat, from_numpy, to_numpy
from bochner._core.checks import integer, share
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import block_rows
from bochner._core.threads import limit_jobs
from bochner.data.blocks import Blocks
from bochner.data.sources import Piece, join, piece_of
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator, getter
from bochner.models._tables import accept_partitions
from bochner.models.error_law import HeldOutRows, learn_errors


class IntervalRegressor(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """Regressor with prediction intervals; predictions are (n,) or, for several targets, (n, t)."""

    _interval_rows: Any = block_rows(1024)  # Rows per block of bounds
    target_shape_ = getter("target_shape", "Shape of one row of y: () or (t,).")

    @accept_partitions
    def predict(self, X: Tabular) -> Array:
        """Return the predictions, (n,) or (n, t), in the array library of X and float64."""
        return concat(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""
        for X, f in self._fitted.predictions(self._encode_as_fit(blocks)):
            shaped = self._predictions(f).reshape(len(f), *self.target_shape_)
            yield from_numpy(np.ascontiguousarray(shaped), like=X)

    def _predictions(self, f: Float[Array, "b t"]) -> Float[Array, "b t"]:
        """Return predictions from the values of the fit."""
        return f

    def _outputs_of(self, f: Array) -> dict[str, Array]:
        shape = f.shape[0], *self.target_shape_
        return {"prediction": array_namespace(f).reshape(self._predictions(f), shape)}

    def _squeeze(self, values: Any) -> Any:
        if self.target_shape_:
            return values
        return float(values[0]) if np.ndim(values) == 1 else values[0]

    @limit_jobs
    def predict_interval(self, X: Tabular, coverage: float = 0.95) -> tuple[Array, Array, Array]:
        """Return predictions, and bounds of a new y with the requested probability ``coverage``.

        The coverage is guaranteed only after :meth:`calibrate` with held-out rows; see Notes.
        Errors of left-out rows determine the bounds (conformal prediction: Lei et al. 2018;
        Chernozhukov et al. 2021). The scale and the distribution of these errors depend on x if
        this makes the intervals shorter. A new y is above the interval as often as below it; with
        few rows the interval is symmetric about the prediction.

        Parameters
        ----------
        X : (n, d)
        coverage : float, default 0.95
            Probability that a new y is inside, above 0 and below 1.

        Returns
        -------
        prediction, lower, upper : (n,) or (n, t)
            One column per target; for several quantiles (n,), the quantile nearest to the median.

        Raises
        ------
        InvalidInput
            If ``coverage`` is not between 0 and 1 or needs more rows than there are, or if the fit
            has no leave-one-out errors and :meth:`calibrate` was not called.

        Notes
        -----
        ``calibration_.guarantee`` states the guarantee. With held-out rows (:meth:`calibrate`) it
        is theorem 2.2 of Lei et al. (2018), for any model. Leave-one-out errors give no guarantee;
        coverage is about as requested if one row changes the fit little.

        The first call estimates the distribution of errors and stores it, also in model files. This
        takes one or two seconds per target, and for an exact fit to n ≤ 4096 rows n³/3 operations.
        Later calls cost ``predict`` twice: of this fit, and of an exact fit to 256 rows.
        """
        coverage, law = share(coverage, "predict_interval", "coverage"), self.calibration_
        law.require(type(self).__name__, coverage)
        blocks = self._rows_to_predict(X).with_rows(self._interval_rows)
        parts = []
        for block in blocks:
            centre, deviation = self._centres(Blocks.from_arrays(block.X))
            low, high = law.bounds(
                block.X, centre, coverage, 1.0 if deviation is None else deviation
            )
            shape = self.target_shape_ if centre.shape[1] == np.prod(self.target_shape_) else ()
            ends = centre, np.minimum(low, high), np.maximum(low, high)
            parts.append([from_numpy(a.reshape(len(a), *shape), like=block.X) for a in ends])
        prediction, lower, upper = (concat(list(part)) for part in zip(*parts, strict=True))
        return prediction, lower, upper

    @limit_jobs
    def calibrate(
        self, X: Tabular, y: Array, sample_weight: Array | None = None, *, folds: int | None = None
    ) -> Self:
        """Calibrate prediction intervals on these rows; predictions do not change.

        Parameters
        ----------
        X : (m, d)
        y : (m,) or (m, t)
        sample_weight : (m,), optional
            Rows of weight zero are ignored; other rows count in proportion to their weights.
        folds : int, optional
            None: for rows that were not used to fit; intervals then have the requested coverage for
            any model. An integer of at least 2: for the training rows; each fold is predicted by a
            clone fitted to the other folds.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput
            If X lacks columns of the fit, or there are fewer rows than ``folds``.
        """
        rows = X, y, sample_weight
        errors = self._held_out(*rows) if folds is None else self._cross_validate(*rows, folds)
        fit = copy(self._fitted)  # Keeps cached factors
        object.__setattr__(fit, "errors", learn_errors(errors, int(self.seed_)))
        self.fit_ = fit
        return self

    @property
    def calibration_(self) -> Any:
        """Distribution of errors from which intervals are computed, and its guarantee.

        Computed at first use from leave-one-out errors, unless :meth:`calibrate` was called.
        """
        if self._fitted.errors is None:
            object.__setattr__(self._fitted, "errors", self._error_law())
        return self._fitted.errors

    def _error_law(self) -> Any:
        """Return the distribution of leave-one-out errors of the training rows."""
        errors = self._left_out()
        if errors is None:
            raise InvalidInput(
                f"{type(self).__name__}.predict_interval: this fit has no leave-one-out errors. "
                "Call calibrate(X, y) with held-out rows, or calibrate(X, y, folds=5) with the "
                "training rows."
            )
        return learn_errors(errors, int(self.seed_))

    def _left_out(self) -> HeldOutRows | None:
        """Return leave-one-out errors of training rows; None if the fit kept no rows."""
        return None

    def _centres(self, X: Any) -> tuple[Float[Array, "b t"], Float[Array, "b t"] | None]:
        """Return centres of intervals, and standard deviations of y if the fit has them."""
        prediction = to_numpy(self.predict(X))
        return self._centre(prediction.reshape(len(prediction), -1)), None

    def _centre(self, predicted: Float[Array, "b t"]) -> Float[Array, "b t"]:
        """Return the predictions at the centres of intervals, one per target."""
        return predicted

    def _held_out(self, X: Any, y: Any, w: Any, other: Any = None) -> HeldOutRows:
        """Return errors of held-out rows, by this fit or by another fit of the learner."""
        blocks, _ = self._read(X, y, w, first=False)
        rows = join([piece_of(block) for block in blocks.with_rows(self._interval_rows)])
        rows = rows._replace(X=rows.X.astype(np.float64, copy=False))
        table = Blocks.from_arrays(rows.X) if other is None else X
        centre, deviation = (self if other is None else other)._centres(table)
        if rows.y.shape[1] != centre.shape[1]:
            raise InvalidInput(
                f"{type(self).__name__}.calibrate: y must have the {centre.shape[1]} targets of "
                f"the fit; got {rows.y.shape[1]}."
            )
        source = "held out" if other is None else "cross-validation"
        errors = HeldOutRows(rows.X, centre, rows.y - centre, rows.w, source, deviation)
        return errors.take(np.flatnonzero(rows.w > 0))

    def _cross_validate(self, X: Any, y: Any, w: Any, folds: int) -> HeldOutRows:
        """Return errors of training rows, by clones fitted without the fold of each row."""
        caller = f"{type(self).__name__}.calibrate"
        folds = integer(folds, caller, "folds", minimum=2)
        try:
            check_consistent_length(X, y)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{caller}: X and y must have equally many rows. {error}") from error
        n = len(y)
        if n < folds:
            raise InvalidInput(f"{caller}: folds={folds} requires at least {folds} rows; got {n}.")
        fold = stream(int(self.seed_), "calibration").permutation(n) % folds
        parts: list[HeldOutRows] = []
        for k in range(folds):
            train, test = (
                [None if a is None else _safe_indexing(a, np.flatnonzero(part)) for a in (X, y, w)]
                for part in (fold != k, fold == k)
            )
            refit: Any = clone(self).fit(train[0], train[1], sample_weight=train[2])
            parts.append(self._held_out(test[0], test[1], test[2], refit))
        names = ["predicted", "errors", "w", *["deviation"] * (parts[0].deviation is not None)]
        values: Any = {n: np.concatenate([getattr(part, n) for part in parts]) for n in names}
        return replace(parts[0], X=join([Piece(part.X) for part in parts]).X, **values)
