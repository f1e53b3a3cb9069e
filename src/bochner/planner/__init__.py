"""Predictions of the error, time and memory of fits, before the fits are run."""

from typing import Any

from bochner._core.names import unknown
from bochner.planner.plans import Plan, plan

__all__ = ["Plan", "plan"]


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
