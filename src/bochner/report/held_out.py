"""Held-out error of a learner: a copy is fitted without some rows and predicts these rows.

Every choice that the learner makes is made again, from the rows of that fit alone. Table columns
encoded by mean targets use the targets of other rows, as in every fit.
"""

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

import bochner as bo
from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner.data.blocks import count_rows
from bochner.data.sample import Sample
from bochner.errors import DataWarning, InvalidInput, SolutionWarning
from bochner.models._base import KernelEstimator
from bochner.report.quality import Examined, errors_in_words, errors_of, target_names, unweighted

#: Rows that are looked at, at most, and how many of them to one that is held out.
ROWS, TO_ONE = 8192, 5


def judge_held_out(
    model: KernelEstimator, blocks: bo.Blocks, n_sample: int = ROWS
) -> tuple[dict[str, Any] | None, str]:
    """Return the errors of a learner like this on rows held out of its fit, and their words.

    Errors are by target, then by measure, beside the numbers of rows. Without any, None and why.
    Every fifth of the random rows is held out, of labels every fifth of each. The other fit has the
    same parameters, with penalties in proportion to its rows.
    """
    if not (is_classifier(model) or is_regressor(model) or isinstance(model, bo.OneClassSVM)):
        return None, f"none: {type(model).__name__} predicts nothing that could be wrong."
    if is_classifier(model):
        rows = unweighted(model)._class_blocks(blocks)[0]
    else:
        rows = model._training_blocks(blocks)[0]
    sample = rows.sample(n_sample, model.seed_)
    sample = sample if is_sparse(sample.X) else sample._replace(X=to_numpy(sample.X))
    y = None if sample.y is None else to_numpy(sample.y)
    train, test = _split(len(sample.index), y if is_classifier(model) else None, model.seed_)
    if not len(test):
        return None, f"none: {len(train)} rows are too few to hold some out."
    n = count_rows(blocks)
    try:
        other = _fitted_to(model, sample, train, n)
    except (InvalidInput, ValueError) as error:
        return None, f"none: a fit to {len(train)} rows is refused: {error}"
    w = None if sample.w is None else to_numpy(sample.w)[test]
    errors = _errors(other, sample.X[test], None if y is None else y[test], w, model)
    facts = {"errors": errors, "n_train": len(train), "n_test": len(test), "n_rows": n}
    whose = f"held out: {len(test):,} rows, of a fit to {len(train):,} others"
    return facts, f"{errors_in_words(errors)} ({whose})"


def _split(n: int, codes: Array | None, seed: int) -> tuple[Array, Array]:
    """Return rows to fit and rows to hold out: of each label at least one is kept."""
    order = stream(seed, "held out").permutation(n)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    out = np.arange(n) % TO_ONE == TO_ONE - 1
    if codes is not None:
        sorted_codes = codes[order]
        out[1:] &= sorted_codes[1:] == sorted_codes[:-1]
    return np.sort(order[~out]), np.sort(order[out])


def _fitted_to(model: KernelEstimator, sample: Sample, train: Array, n: int) -> Any:
    one, share, scaled = clone(model), len(train) / n, {}
    asked = model.get_params(deep=False)
    # penalties that are numbers weigh fewer rows as they weigh all
    for name, factor in (("alpha", share), ("C", 1 / share)):
        value = asked.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not isinstance(model, bo.KernelSGDClassifier | bo.KernelSGDRegressor):
            scaled[name] = float(value) * factor
    one.set_params(**scaled, random_state=model.seed_)
    w = None if sample.w is None else to_numpy(sample.w)[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)
        warnings.simplefilter("ignore", DataWarning)
        if sample.y is None:
            return one.fit(sample.X[train], sample_weight=w)
        y = to_numpy(sample.y)[train]
        labels = model.classes_[y.astype(np.intp)] if is_classifier(model) else y
        return one.fit(sample.X[train], labels, sample_weight=w)


def _errors(
    one: Any, X: Array, y: Array | None, w: Array | None, model: KernelEstimator
) -> dict[str, dict[str, float]]:
    w = np.ones(X.shape[0]) if w is None or not w.sum() > 0 else w.astype(np.float64)
    if y is None:
        outside = float(np.average(to_numpy(one.predict(X)) < 0, weights=w))
        return {"rows": {"outside": outside, "nu": float(model.get_params()["nu"])}}
    if isinstance(model, bo.KernelRegressor) and model.loss not in ("squared", "huber", "absolute"):
        return {target_names(model, 1)[0]: {"explained": one.score(X, y, w)}}
    return errors_of(model, Examined(len(w), X, y, w, np.arange(len(w)), one.outputs(X)))
