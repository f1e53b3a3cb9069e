"""Row 3c: the error, time and memory of fits, predicted before they are run."""

from typing import Any

from bochner._core.names import handed_out
from bochner.planner.plans import Plan, plan

__all__ = ["Plan", "plan"]

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "choice": "Budget PlannedFit as_budget best_of",
    "trials": "Task expected fewer_rows of_width powers tried_rows wider",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS, __all__)
