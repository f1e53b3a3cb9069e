"""Estimators as pickles: each says which version wrote it, and opens in that version only."""

from collections.abc import Mapping
from typing import Any

from bochner import __version__
from bochner.errors import ModelFileError

#: Where the state of a pickle says the version; no attribute can have this name.
_WRITTEN = "bochner version"


class OfOneVersion:
    """An object whose pickle is refused by other versions: they may mean other things by it."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {_WRITTEN: __version__}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        written = state.get(_WRITTEN, "one that says no version")
        if written != __version__:
            raise ModelFileError(
                f"{type(self).__name__}: a pickle opens in the version of bochner that wrote it; "
                f"this is {__version__}, and the pickle is by {written}. Fit again, and keep "
                "models with bochner.save, whose files later versions open."
            )
        vars(self).update({name: value for name, value in state.items() if name != _WRITTEN})
