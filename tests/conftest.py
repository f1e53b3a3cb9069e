"""What holds for every test."""

import os

# SciPy reads it when it is imported; scikit-learn skips its array API checks without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
