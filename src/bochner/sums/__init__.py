"""Row 1: what a pass over rows makes, and how it adds.

Names for those who build on bochner; each is loaded from its module when first used.
"""

from typing import Any

from bochner._core.names import handed_out

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "executor": "Executor InProcess LOCAL Together",
    "fourier": "GlobePlaces WavesOf as_complex",
    "products": "Firsts FirstsOf ProductsOf row_signs",
    "moments": "Accumulator Moments MomentsOf",
    "tree": "BRANCHES MergeTree RunningSum Summand",
    "rows": "SampleOf indicators sampled",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS)


def __dir__() -> list[str]:
    return " ".join(FOR_DEVELOPERS.values()).split()
