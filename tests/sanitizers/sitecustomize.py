"""Let every Python process of ``make test-sanitizers`` load the loops built with sanitizers.

Python imports this module by itself, in child processes too, where its folder is on the path.
"""

import os
import sys
from importlib.util import spec_from_file_location


class Sanitized:
    """Finds the compiled module that a variable names, before that of the installed package."""

    @staticmethod
    def find_spec(name, *_):
        if name == "bochner._native":
            return spec_from_file_location(name, os.environ["BOCHNER_SANITIZED"])
        return None


if "BOCHNER_SANITIZED" in os.environ:
    sys.meta_path.insert(0, Sanitized)
