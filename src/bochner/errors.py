"""Errors and warnings of bochner, in one tree.

``except bochner.errors.BochnerError`` catches all errors, and each is also the built-in error that
fits it. A message names the function, the requirement, the value given and the remedy.
"""


class BochnerError(Exception):
    """Root of everything bochner raises on purpose."""


class InvalidInput(BochnerError, ValueError):
    """An argument or an array does not meet a requirement."""


class UnsupportedKernel(InvalidInput):
    """A method cannot serve this kernel; the message names those that can."""


class IncompatibleModels(InvalidInput):
    """Two models, maps or moments do not add up."""


class NotPositive(InvalidInput):
    """A matrix or kernel that must be positive semi-definite is not."""


class InvalidType(BochnerError, TypeError):
    """An argument has the wrong type."""


class DataFileError(BochnerError, OSError):
    """A file of data cannot be read or written, or changed while it was read."""


class EngineError(BochnerError, RuntimeError):
    """An engine of several processes is gone, does not answer or lost its workers."""


class ModelFileError(BochnerError, ValueError):
    """A model file is cut short, altered or foreign."""


class MissingDependency(BochnerError, ImportError):
    """An optional package is needed; the message says how to install it."""


class BochnerWarning(UserWarning):
    """Root of everything bochner warns."""


class DataWarning(BochnerWarning):
    """Columns are left out, or hold values that the fit had not; the text names the effect."""


class FeatureWarning(BochnerWarning):
    """Features leave out a large part of the kernel, and more features do not help."""


class PurePythonWarning(BochnerWarning):
    """The compiled loops are not there: results are the same, slower."""


class SolutionWarning(BochnerWarning):
    """The solver's outcome asks for attention; its text is the remedy."""


__all__ = [name for name, value in globals().items() if isinstance(value, type)]
