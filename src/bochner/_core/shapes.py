"""Shapes in signatures: ``Float[Array, "n d"]``, checked in tests and where a file is read.

Letters as in ``docs/notation.md``: n rows, d columns, D features, m frequencies, t targets.
Where the environment variable ``BOCHNER_CHECK_SHAPES`` is set, annotations are jaxtyping's, whose
import hook checks them at every call; otherwise they are plain types with a note.
"""

import os
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

Array = Any

#: Rows as users bring them: an array (n, d) of real numbers, a sparse matrix, a table or `Blocks`.
Tabular = Any

if TYPE_CHECKING or os.environ.get("BOCHNER_CHECK_SHAPES"):
    from jaxtyping import Bool, Int
    from jaxtyping import Inexact as Float  # features may be complex
else:  # ``Array`` with a note
    Float = Bool = Int = Annotated

#: Rows X, other rows Y, and a number for each pair of them.
Rows: TypeAlias = Float[Array, "n d"]
Others: TypeAlias = Float[Array, "m d"]
Pairs: TypeAlias = Float[Array, "n m"]

#: Block by block: the rows, and the gradients of predictions there; the rows and predictions.
Gradients: TypeAlias = Iterator[tuple[Array, Float[Array, "b d t"]]]
Predictions: TypeAlias = Iterator[tuple[Array, Float[Array, "b t"]]]

#: Values of two kinds for each row and target: means and variances, bounds below and above.
Both: TypeAlias = tuple[Float[Array, "b t"], Float[Array, "b t"]]


def shape_of(hint: Any) -> str | None:
    """Return the shape in an array's annotation, e.g. ``n d``; None for other annotations."""
    if typing.get_origin(hint) is Annotated:
        note = hint.__metadata__[0]
        return note if isinstance(note, str) else None
    return getattr(hint, "dim_str", None)
