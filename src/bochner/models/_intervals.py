"""Regressors: predictions, and intervals by errors of left-out rows."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_consistent_length

from bochner._core.arrays import array_namespace, from_numpy, joined, to_numpy
from bochner._core.checks import integer, share
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.data.sources import Piece, join
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator, learned
from bochner.models._parameters import by_jobs
from bochner.models._tables import by_partition
from bochner.models.error_law import LeftOutRows, learn_errors
from bochner.models.representations.representation import piece_of


class WithIntervals(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """A regressor, whose predictions have intervals: of one target, (n,), or of several, (n, t)."""

    _interval_rows: Any = block_rows(1024)  # Rows whose bounds are computed together
    target_shape_ = learned("target_shape", "Shape of one row of y: () or (t,).")

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return the predictions, (n,) or (n, t), in the array library of X and float64."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""
        for X, f in self._fitted.predictions(self._as_fitted(blocks)):
            shaped = self._predicted(f).reshape(len(f), *self.target_shape_)
            yield from_numpy(np.ascontiguousarray(shaped), like=X)

    def _predicted(self, f: Float[Array, "b t"]) -> Float[Array, "b t"]:
        """Return predictions from the values of the fit."""
        return f

    def _outputs_of(self, f: Array) -> dict[str, Array]:
        shape = f.shape[0], *self.target_shape_
        return {"prediction": array_namespace(f).reshape(self._predicted(f), shape)}

    def _by_target(self, values: Any) -> Any:
        if self.target_shape_:
            return values
        return float(values[0]) if np.ndim(values) == 1 else values[0]

    @by_jobs
    def predict_interval(self, X: Tabular, coverage: float = 0.95) -> tuple[Array, Array, Array]:
        """Return predictions, and bounds that contain a new y with probability ``coverage``.

        Scores of left-out rows determine the bounds (conformal prediction: Lei et al. 2018;
        Chernozhukov et al. 2021). The scale and the distribution of errors near each row are
        estimated if this makes the intervals shorter. A new y is above the interval as often as
        below it; with few rows the interval is symmetric.

        Parameters
        ----------
        X : (n, d)
        coverage : float, default 0.95
            Share of new targets inside, above 0 and below 1.

        Returns
        -------
        prediction, lower, upper : (n,) or (n, t)
            For each target. For several quantiles, (n,): the quantile nearest to the median.

        Raises
        ------
        InvalidInput
            If ``coverage`` is not such a number or needs more scores than there are, or if the
            learner keeps no rows and :meth:`calibrate` was not called.

        Notes
        -----
        ``calibration_.guarantee`` states the guarantee: with held-out rows (:meth:`calibrate`) that
        of Lei et al. (2018, theorem 2.2), for any model. Leave-one-out scores have no such bound;
        coverage is about as requested if one row changes the fit little.

        The first call estimates the distribution, which is kept, also in model files: one or two
        seconds per target, and n³/3 operations for the leave-one-out errors of at most 4096 rows
        of an exact fit. Further calls cost as much as ``predict`` of an exact fit to 256 rows.
        """
        coverage, law = share(coverage, "predict_interval", "coverage"), self.calibration_
        law.require(type(self).__name__, coverage)
        blocks = self._rows_to_predict(X).with_rows(self._interval_rows)
        parts = []
        for block in blocks:
            centre, deviation = self._centred(Blocks.from_arrays(block.X))
            low, high = law.bounds(
                block.X, centre, coverage, 1.0 if deviation is None else deviation
            )
            shape = self.target_shape_ if centre.shape[1] == np.prod(self.target_shape_) else ()
            ends = centre, np.minimum(low, high), np.maximum(low, high)
            parts.append([from_numpy(a.reshape(len(a), *shape), like=block.X) for a in ends])
        prediction, lower, upper = (joined(list(part)) for part in zip(*parts, strict=True))
        return prediction, lower, upper

    @by_jobs
    def calibrate(
        self, X: Tabular, y: Array, sample_weight: Array | None = None, *, folds: int | None = None
    ) -> Self:
        """Calibrate intervals by errors on these rows; predictions do not change.

        Parameters
        ----------
        X : (m, d)
        y : (m,) or (m, t)
        sample_weight : (m,), optional
            Rows of weight zero take no part; others count in proportion.
        folds : int, optional
            None: the rows were not used for fitting; the intervals then have the requested
            coverage for any model. An integer of at least 2: the rows are those of the fit, and
            each fold is predicted by a clone fitted to the other folds.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput
            If the rows lack columns of the fit, or are fewer than ``folds``.
        """
        rows = X, y, sample_weight
        errors = self._held_out(*rows) if folds is None else self._folded(*rows, folds)
        fit = copy(self._fitted)  # With the factors that were computed
        object.__setattr__(fit, "errors", learn_errors(errors, int(self.seed_)))
        self.fit_ = fit
        return self

    @property
    def calibration_(self) -> Any:
        """Distribution of errors from which intervals are computed, and its guarantee.

        Computed at first use: from leave-one-out errors if the fit has them, else from the rows
        of :meth:`calibrate`.
        """
        if self._fitted.errors is None:
            object.__setattr__(self._fitted, "errors", self._error_law())
        return self._fitted.errors

    def _error_law(self) -> Any:
        """Return the law of errors by the rows of the fit."""
        rows_left_out = self._left_out()
        if rows_left_out is None:
            raise InvalidInput(
                f"{type(self).__name__}.predict_interval: this fit kept no rows to judge its "
                "errors by. Call calibrate(X, y) with rows kept back, or "
                "calibrate(X, y, folds=5) with those of the fit."
            )
        return learn_errors(rows_left_out, int(self.seed_))

    def _left_out(self) -> LeftOutRows | None:
        """Return rows as the fit predicts them without each; None where it kept none."""
        return None

    def _centred(self, X: Any) -> tuple[Float[Array, "b t"], Float[Array, "b t"] | None]:
        """Return what bounds are about, and standard deviations of y where the fit has them."""
        prediction = to_numpy(self.predict(X))
        return self._centre(prediction.reshape(len(prediction), -1)), None

    def _centre(self, predicted: Float[Array, "b t"]) -> Float[Array, "b t"]:
        """Return the predictions that bounds are about: one for each target."""
        return predicted

    def _held_out(self, X: Any, y: Any, w: Any, other: Any = None) -> LeftOutRows:
        """Return rows as the fit predicts them, or another fit of the same learner."""
        blocks, _ = self._read(X, y, w, first=False)
        rows = join([piece_of(block) for block in blocks.with_rows(self._interval_rows)])
        judged = self if other is None else other
        centre, deviation = judged._centred(Blocks.from_arrays(rows.X) if other is None else X)
        if rows.y.shape[1] != centre.shape[1]:
            raise InvalidInput(
                f"{type(self).__name__}.calibrate: y must have the {centre.shape[1]} targets of "
                f"the fit; got {rows.y.shape[1]}."
            )
        source = "held out" if other is None else "cross-validation"
        errors = LeftOutRows(rows.X, centre, rows.y - centre, rows.w, source, deviation)
        return errors.take(np.flatnonzero(rows.w > 0))

    def _folded(self, X: Any, y: Any, w: Any, folds: int) -> LeftOutRows:
        """Return rows as clones predict them that are fitted without their fold."""
        who = f"{type(self).__name__}.calibrate"
        folds = integer(folds, who, "folds", least=2)
        try:
            check_consistent_length(X, y)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{who}: X and y must have as many rows. {error}") from error
        n = len(y)
        if n < folds:
            raise InvalidInput(f"{who}: folds={folds} takes as many rows at least; got {n}.")
        number = stream(int(self.seed_), "calibration").permutation(n) % folds
        parts: list[LeftOutRows] = []
        for k in range(folds):
            rows, left = (
                [None if a is None else _safe_indexing(a, np.flatnonzero(part)) for a in (X, y, w)]
                for part in (number != k, number == k)
            )
            other: Any = clone(self).fit(rows[0], rows[1], sample_weight=rows[2])
            parts.append(self._held_out(left[0], left[1], left[2], other))
        names = ["predicted", "errors", "w", *["deviation"] * (parts[0].deviation is not None)]
        values: Any = {n: np.concatenate([getattr(part, n) for part in parts]) for n in names}
        return replace(parts[0], X=join([Piece(part.X) for part in parts]).X, **values)
