"""Named random streams: one seed, independent numbers for each purpose.

A seed gives the same numbers for any block size, number of workers and array library: NumPy draws
all numbers, from one stream per purpose. Then they are converted to the array library.
"""

import zlib

import numpy as np

from bochner.errors import InvalidInput

Seed = int | np.random.Generator | np.random.RandomState | None


def seed_of(random_state: Seed) -> int:
    """Return ``random_state``, as users pass it, as one non-negative integer.

    None uses fresh entropy; a generator gives its next number, which changes its state.
    """
    if random_state is None:
        return fresh_seed()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    raise InvalidInput(
        "random_state must be None, a non-negative integer, a numpy.random.Generator or a "
        f"numpy.random.RandomState; got {random_state!r}."
    )


def fresh_seed() -> int:
    """Return a new seed from the entropy of the machine."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator of ``seed`` for this purpose, e.g. ``stream(0, "draw", 3)``.

    Different names give independent streams: they are spawn keys of NumPy's SeedSequence.
    """
    keys = [n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=keys)))


def mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Mix the bits of uint64 numbers in place: SplitMix64 of Steele, Lea and Flood (2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)
    return numbers
