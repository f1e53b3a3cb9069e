"""What a map is asked to be, and the random streams of its parts."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.random import stream
from bochner._core.shapes import Array


@dataclass(frozen=True, eq=False)
class Request:
    """What a map is asked to be: inputs d, width D, the seed's path, and rows if there are any."""

    n_inputs: int
    n_features: int
    seed: int
    path: tuple[str, ...] = ()
    X: Array | None = None

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the generator of this part of the kernel."""
        return stream(self.seed, "draw", *self.path, purpose)

    def part(self, name: str, n_features: int) -> "Request":
        """Return the request for a part of the kernel: its own width and stream."""
        return replace(self, n_features=n_features, path=(*self.path, name))
