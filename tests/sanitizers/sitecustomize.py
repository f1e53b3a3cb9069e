"""Load the loops built with sanitizers in every Python process of ``make test-sanitizers``.

Python imports this module at its start, in child processes too, if its folder is on the path.
"""

import os
import sys
from importlib.util import spec_from_file_location


class Sanitized:
    """Finder of the compiled module that an environment variable names."""

    @staticmethod
    def find_spec(name, *_):
        if name == "bochner._native":
            return spec_from_file_location(name, os.environ["BOCHNER_SANITIZED"])
        return None


if "BOCHNER_SANITIZED" in os.environ:
    sys.meta_path.insert(0, Sanitized)
