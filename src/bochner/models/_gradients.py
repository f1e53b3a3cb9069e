"""Gradients of what a learner predicts, in its rows: how fast each column changes it."""

from collections.abc import Iterator

from sklearn.base import is_classifier

from bochner._core.arrays import from_numpy, joined
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.models._base import KernelEstimator


class Differentiable(KernelEstimator):
    """An estimator whose predictions, or decision values, have gradients in the rows."""

    def gradient(self, X: Tabular) -> Float[Array, "n d *t"]:
        """Return the gradients of the predictions in the rows.

        For a classifier and a one-class machine: the gradients of ``decision_function``.

        Parameters
        ----------
        X : (n, d)
            Rows, as ``predict`` takes them.

        Returns
        -------
        gradients : (n, d), or (n, d, t) of t targets, or (n, d, K) of K > 2 classes
            In units of the prediction per unit of the column, in the array library of X and
            float64. Columns of a table are those it is encoded as (``schema_``).

        Raises
        ------
        UnsupportedKernel
            If the features, or the kernel that they are values of, have no gradient in closed
            form; the message names those that have one.

        Notes
        -----
        In closed form and float64, without rounding of the features. For a Gaussian process: the
        gradients of its mean. Time: about twice ``predict`` for each target; memory: the result
        and a block of features.
        """
        found = self._gradients(self._rows_to_predict(X))
        return joined([from_numpy(self._shaped_as_values(G), like=X) for X, G in found])

    def _gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Yield the rows of each block and the gradients there."""
        return self._fitted.gradients(blocks)

    def _shaped_as_values(self, G: Float[Array, "b d t"]) -> Float[Array, "b d *t"]:
        """Return gradients with as many axes as predictions, or decision values, have, and one."""
        if is_classifier(self):
            return G[:, :, 0] if G.shape[2] == 1 else G
        return G.reshape(*G.shape[:2], *self._fitted.target_shape)
