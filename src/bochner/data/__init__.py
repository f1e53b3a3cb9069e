"""Row 0: tables of any length as blocks, and what they come from.

Names for those who build on bochner; each is loaded from its module when first used.
"""

from typing import Any

from bochner._core.names import handed_out

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "blocks": "Blocks default_rows",
    "encoders": "DroppedColumn NumberColumn OneHot Ordered OutOfFold TargetMeans TimeColumn "
    "codes_of_levels folds parts_for",
    "files": "find_files",
    "formats": "sniff",
    "sample": "RowSample chosen_rows row_priorities sample_stream",
    "schema": "Inputs Schema did_you_mean listed",
    "sources": "Block Piece cut",
    "times": "form_of seconds_of",
    "writers": "atomic write_table",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS)


def __dir__() -> list[str]:
    return " ".join(FOR_DEVELOPERS.values()).split()
