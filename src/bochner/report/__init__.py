"""Row 4: what was found, as a page to look at."""

from bochner.report.demo import run_demo
from bochner.report.model import ModelReport, report_model
from bochner.report.result import Curve, DemoResult, MethodResult

__all__ = ["Curve", "DemoResult", "MethodResult", "ModelReport", "report_model", "run_demo"]
