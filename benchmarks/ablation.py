"""Worth of each rule of the kernel search: fits with one rule removed, and with all.

A rule is removed by replacing functions or constants of the library during a fit, so that the
library needs no switches for it. Time budgets take no part in a default fit and are not here.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import gmean

import bochner as bo
from benchmarks.accuracy import means, measured
from benchmarks.bench import Options, Row, bench, each
from benchmarks.data import CLASSES, DEVELOPMENT, RAW, Split, raw_split, raw_table, table_split
from bochner.models.representations import leaves, matrix
from bochner.selection import curves, spec
from bochner.selection.candidates import Candidates
from bochner.selection.judges import Trials
from bochner.solvers.ridge import kernel_path

FULL = "full search"

#: Object, name of its attribute, and value of the attribute during a fit.
Replacement = tuple[Any, str, Any]


def _empty(*_: Any) -> list[Any]:
    return []


def _effort(**changed: Any) -> Replacement:
    medium = replace(spec.EFFORTS["medium"], **changed)
    return spec, "EFFORTS", spec.EFFORTS | {"medium": medium}


def _scaled_only(self: Candidates, family: Any, found: Any) -> Iterator[Any]:
    search = self._search(self._by)
    start = family.replace(lengthscale=found.kernel.get_params()["lengthscale"])
    end = search.scaled(start, found.alpha, 4)
    yield self._ended(f"{type(family).__name__}, rescaled", search, end, found.numbers)


def _solve_kernel(*given: Any, **named: Any) -> Any:
    return kernel_path.solve_kernel(*given, **(named | {"lost": None}))


NORMAL_SCORES = {"quantiles": curves._SHAPES["quantiles"]}
ROUGHER: tuple[Replacement, ...] = (Candidates, "rougher", _empty), (Trials, "_rough", _empty)

#: Rules, and what is replaced to remove each of them.
RULES: dict[str, tuple[Replacement, ...]] = {
    "descent by leave-one-out": ((Candidates, "_by_errors", _empty),),
    "rough kernels": (*ROUGHER, (Candidates, "_laplace", _empty)),
    "rough kernels with more rows": ROUGHER,
    "families": (_effort(families=()),),
    "a descent for each family": ((Candidates, "_family", _scaled_only),),
    "sum over columns": ((Candidates, "_additive", _empty),),
    "sums": ((Trials, "_sums", _empty),),
    "smaller penalties of classes": ((Trials, "_at_smaller", lambda *given: given[-1]),),
    "log loss chooses the penalty": ((matrix, "solve_kernel", _solve_kernel),),
    "penalty settled with more rows": ((kernel_path, "_settles", lambda *_: False),),
    "turned metric": ((Candidates, "turned", _empty),),
    "second turn": (_effort(rounds=1),),
    "more rows": ((Trials, "_with_more_rows", _empty),),
    "last judgement": (_effort(last=0),),
    "families among near rows": ((leaves, "tuned_among_near_rows", _empty),),
    "near rows": ((matrix, "among_near_rows", lambda _, __, start: (start[0], None, None)),),
    "curves": ((curves, "_SHAPES", {}),),
    "other curves than normal scores": ((curves, "_SHAPES", NORMAL_SCORES),),
}


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return geometric means over cases of error and CPU seconds without a rule over those with it.

    "1 % worse" counts the cases whose error is more than 1 % larger without the rule.
    """
    found, both = [], means(rows)
    for who in filter(both[0].columns.__contains__, RULES):
        ratios = (frame.clip(lower=1e-3) for frame in both)
        errors, seconds = ((frame[who] / frame[FULL]).dropna() for frame in ratios)
        row = {"who": f"without {who}", "cases": len(errors), "changed": int(np.sum(errors != 1))}
        row |= {"error, ratio": gmean(errors), "core seconds, ratio": gmean(seconds)}
        row |= {"1 % worse": int(np.sum(errors > 1.01)), "1 % better": int(np.sum(errors < 0.99))}
        found.append(row | {"worst": errors.max(), "best": errors.min()})
    return found


@dataclass(frozen=True)
class Without:
    """Default fits without a rule."""

    name: str
    replaced: tuple[Replacement, ...] = ()
    most: int = 10**9

    def fit(self, X: Any, y: Any, seed: int) -> Any:
        """Return the fitted learner."""
        make = bo.KernelRidgeClassifier if y.dtype.kind in "iu" else bo.KernelRidge
        with ExitStack() as stack:
            for target, name, value in self.replaced:
                stack.enter_context(patch.object(target, name, value))
            return make(random_state=seed).fit(X, y)


@bench(summary=summary)
def ablation(options: Options) -> Iterator[Row]:
    """Error and CPU seconds of default fits without one rule of the kernel search, and with all.

    Development tables, tables of classes and raw tables, 6,000 rows, three splits. ``--who`` names
    rules, and the full search is always fitted. Fits that the file of records has are not repeated.
    """
    raw = {f"{e.split(':')[0]}, {task}": (e, task) for task in RAW for e in RAW[task].split()}
    names = options.pick((*DEVELOPMENT, *CLASSES, *raw), ("uci_concrete",))
    rows = options.rows or options.pick(6000, 100)
    rules = [Without(FULL), *(Without(*rule) for rule in RULES.items() if options.names(rule[0]))]
    unnamed = replace(options, cases=(), who=())  # both are selected here
    few = np.random.default_rng(0).standard_normal((100, 3))
    for make in (bo.KernelRidge, bo.KernelRidgeClassifier):
        make().fit(few, few[:, 0] > 0)  # imports modules, whose time does not count

    def rows_of(name: str) -> Iterator[Row]:
        def split(_: Any, seed: int) -> Split:
            if name in raw:
                entry, task = raw[name]
                return raw_split(*raw_table(entry), task == "classes", rows, seed)
            return table_split(name, options.data, rows, seed)

        yield from measured(unnamed, f"{name}, {rows} rows", rules, split)

    yield from each(filter(options.selects, names), rows_of)
