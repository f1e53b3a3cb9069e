"""Row 4: what was found, as a page to look at."""

from typing import Any

from bochner._core.names import handed_out
from bochner.report.demo import run_demo
from bochner.report.demo_page import Curve, DemoResult, MethodResult
from bochner.report.model import ModelReport, report_model

__all__ = ["Curve", "DemoResult", "MethodResult", "ModelReport", "report_model", "run_demo"]

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "demo": "METHODS",
    "demo_near": "MapCells relief_around",
    "held_out": "HeldOut judge_held_out",
    "labelled": "KeptValues",
    "demo_page": "ERROR ERROR_DARK RELIEF colours earth_page",
    "render": "number picture rounded",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS, __all__)
