"""Shapes in signatures: ``Float[Array, "n d"]``, checked where a file is read, else free.

Letters are those of ``docs/notation.md``: n rows, d columns, D features, m frequencies, t targets.
"""

from typing import TYPE_CHECKING, Annotated, Any

Array = Any

if TYPE_CHECKING:
    from jaxtyping import Float
else:

    class Float:
        """Stand-in for ``jaxtyping.Float``: ``Float[Array, "n d"]`` is ``Array`` with a note."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            """Return the array type, annotated with the shape."""
            return Annotated[item[0], item[1]]
