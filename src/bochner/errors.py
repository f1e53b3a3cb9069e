"""Errors and warnings of bochner, in one tree.

``except bochner.errors.BochnerError`` catches all errors, and each is also the built-in error that
fits it. A message names the function, the requirement, the value given and the remedy.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class BochnerError(Exception):
    """Base class of all errors that bochner raises on purpose."""


class InvalidInput(BochnerError, ValueError):
    """An argument or an array does not meet a requirement."""


class UnsupportedKernel(InvalidInput):
    """A method does not support this kernel; the message names methods that do."""


class IncompatibleModels(InvalidInput):
    """Two models, feature maps or moments cannot be added."""


class NotPositive(InvalidInput):
    """A matrix or kernel that must be positive semi-definite is not."""


class InvalidType(BochnerError, TypeError):
    """An argument has the wrong type."""


class DataFileError(BochnerError, OSError):
    """A file of data cannot be read or written, or changed while it was read."""


class EngineError(BochnerError, RuntimeError):
    """An engine of several processes has ended, does not answer or has lost its workers."""


class ModelFileError(BochnerError, ValueError):
    """A model file is incomplete, was changed or was not written by bochner."""


class MissingDependency(BochnerError, ImportError):
    """An optional package is needed; the message says how to install it."""


class BochnerWarning(UserWarning):
    """Base class of all warnings of bochner."""


class DataWarning(BochnerWarning):
    """Columns are left out, or hold values not seen in training; the text names the effect."""


class FeatureWarning(BochnerWarning):
    """Features leave out a large part of the kernel, and more features do not help."""


class PurePythonWarning(BochnerWarning):
    """The compiled loops are missing: results are the same, but slower."""


class SolutionWarning(BochnerWarning):
    """The result of a solver needs attention; the text names the remedy."""


__all__ = [k for k, v in globals().items() if isinstance(v, type) and v.__module__ == __name__]


def attempt(make: Callable[..., T], *args: Any, **kwargs: Any) -> T | InvalidInput:
    """Return ``make(*args, **kwargs)``, or the InvalidInput that it raises."""
    try:
        return make(*args, **kwargs)
    except InvalidInput as reason:
        return reason
