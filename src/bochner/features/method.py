"""Methods: values that say how features are made."""

from abc import ABC

__all__ = ["Method"]


class Method(ABC):  # noqa: B024  what a method does is a rule of the table
    """How a kernel's features are made; :func:`bochner.draw` turns it and a kernel into a map.

    A frozen value. Final kinds: ``Fourier``, ``Nystrom``, ``Auto``.
    """
