"""Effect of each rule of the kernel search: fits without one rule, and with all.

A rule is removed by replacing functions or constants of the library during a fit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import gmean

import bochner as bo
from benchmarks.accuracy import fit_all, means
from benchmarks.bench import Options, Row, bench, collect
from benchmarks.data import CLASSES, DEVELOPMENT, RAW, Split, raw_split, raw_table, table_split
from bochner.selection.race import CANDIDATES, Race

FULL = "full search"

#: Replacements that remove a rule: names below bochner, and the new value from the old one.
Replacements = dict[str, Callable[[Any], Any]]


def _effort(**fields: Any) -> Replacements:
    change = lambda efforts: efforts | {"medium": replace(efforts["medium"], **fields)}
    return {"selection.spec.EFFORTS": change}


def _without_loss(solve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: solve(*args, **options | {"loss": None})


RACE = "selection.race"


def _disabled(*rules: str) -> Replacements:
    """Return the replacement that removes candidates of these rules."""
    return {f"{RACE}.CANDIDATES": lambda table: [c for c in table if c.rule not in rules]}


ROWS = "models.representations.exact"
SHAPES, NONE = "selection.choose._SHAPES", lambda _: lambda *_: []
ROUGH = "rough kernels", "rough kernels with more rows"

#: Rules, and the replacements that remove each of them.
RULES: dict[str, Replacements] = {
    **{rule: _disabled(rule) for rule in dict.fromkeys(c.rule for c in CANDIDATES[2:])},
    "rough kernels": _disabled(*ROUGH),
    "families": _disabled("families", ROUGH[0]),
    "screened columns": {"selection.lengthscales.screened_lengthscales": lambda _: lambda *_: None},
    "smaller penalties of classes": {f"{RACE}.Race._lower_penalty": lambda _: Race._evaluate_at},
    "log loss chooses the penalty": {f"{ROWS}.solve_kernel": _without_loss},
    "penalty settled with more rows": {
        "solvers.ridge.kernel_path.settle": lambda _: lambda *args, **_: args[1]
    },
    "second turn": _effort(rounds=1),
    "more rows": _disabled("more rows", ROUGH[1]),
    "families in neighbourhoods": {"selection.neighbourhoods.tune": NONE},
    "neighbourhoods": {f"{ROWS}.choose_locally": lambda _: lambda *args: (args[-1][0], None)},
    "curves": {"selection.choose.choose_curves": lambda _: lambda *_: None},
    "other curves than normal scores": {SHAPES: lambda old: {"quantiles": old["quantiles"]}},
}


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return geometric means over cases of error and CPU seconds without a rule over those with it.

    "1 % worse" counts the cases whose error is more than 1 % larger without the rule.
    """
    result, frames = [], means(rows)
    for name in filter(frames[0].columns.__contains__, RULES):
        ratios = (frame.clip(lower=1e-3) for frame in frames)
        errors, seconds = ((frame[name] / frame[FULL]).dropna() for frame in ratios)
        row = {"who": f"without {name}", "cases": len(errors), "changed": int(np.sum(errors != 1))}
        row |= {"error, ratio": gmean(errors), "core seconds, ratio": gmean(seconds)}
        row |= {"1 % worse": int(np.sum(errors > 1.01)), "1 % better": int(np.sum(errors < 0.99))}
        result.append(row | {"worst": errors.max(), "best": errors.min()})
    return result


def _fit(replacements: Replacements, X: Any, y: Any, seed: int) -> Any:
    make = bo.KernelRidgeClassifier if y.dtype.kind in "iu" else bo.KernelRidge
    with ExitStack() as stack:
        for name, change in replacements.items():
            target = f"bochner.{name}"
            stack.enter_context(patch(target, change(resolve_name(target))))
        return make(random_state=seed).fit(X, y)


@bench(summary=summary)
def ablation(options: Options) -> Iterator[Row]:
    """Error and CPU seconds of default fits without one rule of the kernel search, and with all.

    Development tables, tables of classes and raw tables, 6,000 rows, three splits. ``--who``
    selects rules; the full search is always fitted. Recorded fits are not repeated.
    """
    raw = {f"{e.split(':')[0]}, {task}": (e, task) for task in RAW for e in RAW[task].split()}
    names = options.pick((*DEVELOPMENT, *CLASSES, *raw), ("uci_concrete",))
    rows = options.rows or options.pick(6000, 100)
    rules = {FULL: {}} | {learner: RULES[learner] for learner in filter(options.names, RULES)}
    fits = [SimpleNamespace(name=w, fit=partial(_fit, r), max_rows=10**9) for w, r in rules.items()]
    unlimited = replace(options, cases=(), who=())  # both are selected in this function
    subset = np.random.default_rng(0).standard_normal((100, 3))
    for labels in (subset[:, 0], (subset[:, 0] > 0).astype(int)):
        _fit({}, subset, labels, 0)  # imports modules outside the timing

    def rows_of(name: str) -> Iterator[Row]:
        def split(_: Any, seed: int) -> Split:
            if name in raw:
                entry, task = raw[name]
                return raw_split(*raw_table(entry), task == "classes", rows, seed)
            return table_split(name, options.data, rows, seed)

        yield from fit_all(unlimited, f"{name}, {rows} rows", fits, split)

    yield from collect(filter(options.selects, names), rows_of)
