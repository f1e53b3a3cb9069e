"""Row 3c: what a fit will take, before it is made."""

from bochner.planner.plans import Plan, plan

__all__ = ["Plan", "plan"]
