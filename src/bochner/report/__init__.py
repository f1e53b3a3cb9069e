"""Reports: HTML pages about models and data."""

from typing import Any

from bochner._core.names import unknown
from bochner.report.demo import DemoResult, run_demo
from bochner.report.model import ModelReport, report_model

__all__ = ["DemoResult", "ModelReport", "report_model", "run_demo"]


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
