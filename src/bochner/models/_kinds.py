"""Kinds of estimators: without targets, with numbers or classes as targets, with a penalty α."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, check_consistent_length

from bochner._core.arrays import joined, refuse_masked, to_numpy
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks, count_rows
from bochner.data.coordinates import values_of
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.models._base import KernelEstimator, is_foreign, learned
from bochner.models._calibration import decided
from bochner.models._held import by_partition, held_blocks, is_held
from bochner.models._labels import (
    FEW_CLASSES,
    codes_of,
    factors_of,
    known_classes,
    labels_of,
    of_one_type,
    refuse_quantity,
    require_sortable,
    warn_of_rare,
)
from bochner.models._parameters import by_jobs
from bochner.models._refusals import in_one_sentence
from bochner.sums.executor import LOCAL, Executor


class WithoutTarget(KernelEstimator):
    """An estimator without targets."""

    @by_jobs
    def fit(
        self,
        X: Tabular,
        y: object = None,  # scikit-learn's signature
        sample_weight: Array | None = None,
    ) -> Self:
        """Fit to rows in memory; y takes no part.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : ignored
        sample_weight : (n,), optional
            Finite, not negative. A row of weight 2 counts as two rows.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data cannot be used; the message says what to do.
        """
        X, _, sample_weight = values_of(type(self).__name__, X, None, sample_weight)
        if is_held(X):
            return self.fit_blocks(held_blocks(type(self).__name__, X, None, sample_weight))
        self.fit_ = self._run(self._fit, *self._training_rows(X, None, sample_weight))
        return self


class TargetEstimator(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """A regressor: of one target, (n,), or of several, (n, t)."""

    target_shape_ = learned("target_shape", "Of one row of y: () or (t,).")

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return the predictions, (n,) or (n, t), in the array library of X and float64."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    @abstractmethod
    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""

    def _by_target(self, values: Any) -> Any:
        """Return values of all targets, (t, ...), or the values of a single target."""
        if self.target_shape_:
            return values
        return float(values[0]) if np.ndim(values) == 1 else values[0]


class LabelEstimator(ClassifierMixin, KernelEstimator):
    """A classifier: its fit sees codes of classes."""

    classes_ = learned("inputs.classes", "Labels, sorted, (K,).")

    def _training_rows(self, *rows: Any, **classes: Any) -> tuple[Blocks, Inputs]:
        return self._class_blocks_of(*rows, **classes)

    def _training_blocks(self, blocks: Blocks, where: Executor = LOCAL) -> tuple[Blocks, Inputs]:
        return self._class_blocks(blocks, where=where)

    @by_partition
    def decision_function(self, X: Tabular) -> Array:
        """Return the decision values: (n,), positive for ``classes_[1]``, or (n, K)."""
        f = self._decisions(X)
        return f[:, 0] if f.shape[1] == 1 else f

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return the classes decided for, (n,)."""
        return self.classes_[decided(self._decisions(X))]

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return the label, the decision values and, where there are any, the probabilities."""
        f = to_numpy(self._decisions(X))
        found = {"label": self.classes_[decided(f)], "decision": f[:, 0] if f.shape[1] == 1 else f}
        return found | (
            {"probability": self._probabilities(f)} if hasattr(self, "predict_proba") else {}
        )

    def _probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        """Return the probabilities of the classes from decision values."""
        raise NotImplementedError

    @abstractmethod
    def _decisions(self, X: Tabular) -> Float[Array, "n t"]:
        """Return decision values, a single column for two classes."""

    def _class_blocks_of(
        self, X: Any, y: Any, sample_weight: Any = None, first: bool = True, classes: Any = None
    ) -> tuple[Blocks, Inputs]:
        """Return checked training data of a classifier as blocks whose y are codes of classes.

        The classes are ``classes`` if given, else the labels of y, or the classes of the fit; other
        labels are refused. ``class_weight`` multiplies the weights.
        """
        who = type(self).__name__
        refuse_masked(y, who, "y")
        if y is None:
            raise InvalidInput(f"{who}: requires y to be passed, but the target y is None.")
        require_sortable(who, y)  # before scikit-learn, which cannot compare pandas' NA
        with in_one_sentence(who, X):
            labels = _check_y(to_numpy(y) if is_foreign(y) else of_one_type(y), estimator=self)
        check_consistent_length(X, labels)
        require_sortable(who, labels)
        refuse_quantity(who, labels, len(labels) if classes is None else None)
        check_classification_targets(labels)
        given = np.unique(labels) if classes is None else classes
        known = known_classes(who, given) if first else self._inputs.classes
        codes = codes_of(who, labels, known)
        if first and classes is None:
            warn_of_rare(who, codes, known)
        blocks, inputs = self._blocks_of(X, codes, sample_weight, first, len(known))
        inputs = replace(inputs, classes=known)
        return self._weighted(blocks, inputs), inputs

    def _class_blocks(
        self, blocks: Blocks, first: bool = True, where: Executor = LOCAL
    ) -> tuple[Blocks, Inputs]:
        """Return blocks whose y are codes of classes; one pass finds the classes of numbers.

        A target of text, read from files or a table, has its classes from the schema.
        """
        who = type(self).__name__
        blocks = blocks if first else self._as_fitted(blocks)
        text = () if blocks.schema is None else blocks.schema.classes
        found = np.array(text) if text else labels_of(who, blocks, where)
        if len(text) > FEW_CLASSES:
            refuse_quantity(who, found, count_rows(blocks))
        known = known_classes(who, found) if first else self._inputs.classes
        if text and np.array_equal(found, known):
            coded = blocks
        elif text:
            coded = blocks.recoded(lambda y: codes_of(who, found[y.astype(int)], known))
        else:
            coded = blocks.recoded(lambda y: codes_of(who, to_numpy(y), known))
        coded = self._learned(coded, first, len(known), where)
        inputs = replace(self._inputs_of(coded, first), classes=known)
        return self._weighted(coded, inputs, where), inputs

    def _weighted(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> Blocks:
        """Multiply the weights by ``class_weight``."""
        given = vars(self).get("class_weight")
        if given is None:
            return blocks
        factors = factors_of(type(self).__name__, given, inputs.classes, blocks, where)
        return blocks.reweighted(lambda y: factors[to_numpy(y).astype(np.int64)])


class PenalisedByAlpha:
    """A mixin: ``alpha_`` is the penalty of the ridge regression that the learner is judged as."""

    alpha_: Any

    def _ridge_penalty(self, X: Any, n: int) -> float:
        return float(np.max(self.alpha_))

    def _least_penalty(self, rows: Any, n: int) -> float:
        return float(np.min(self.alpha_))
