"""Row 4: what was found, as a page to look at."""

from bochner.report.demo import run_demo
from bochner.report.demo_page import Curve, DemoResult, MethodResult
from bochner.report.model import ModelReport, report_model

__all__ = ["Curve", "DemoResult", "MethodResult", "ModelReport", "report_model", "run_demo"]
