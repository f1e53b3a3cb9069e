"""Shapes in signatures: ``Float[Array, "n d"]``, checked in tests, free at run time.

Letters are those of ``docs/notation.md``: n rows, d columns, D features, m frequencies, t targets.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Array", "Float"]

Array = Any

if TYPE_CHECKING:
    from jaxtyping import Float
else:

    class Float:
        """Stand-in for ``jaxtyping.Float``: ``Float[Array, "n d"]`` is ``Array``."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            """Return the array type and forget the shape."""
            return item[0]
