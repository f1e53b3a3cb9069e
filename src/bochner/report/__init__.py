"""Reports: HTML pages about models and data."""

from typing import Any

from bochner._core.names import unknown
from bochner.report.demo import run_demo
from bochner.report.demo_page import Curve, DemoResult, MethodResult
from bochner.report.model import ModelReport, report_model

__all__ = ["Curve", "DemoResult", "MethodResult", "ModelReport", "report_model", "run_demo"]


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
