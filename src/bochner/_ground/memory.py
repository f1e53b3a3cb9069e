"""How much memory there is to use, and refusals of what would take more."""

import os
from pathlib import Path

from bochner.errors import InvalidInput

__all__ = ["free_bytes", "require_room"]

#: What is assumed where the system does not tell.
UNKNOWN = 4 << 30

#: So little is never refused.
LITTLE = 256 << 20


def free_bytes() -> int:
    """Return the bytes that this process can still take without swapping, as far as is known.

    The least of what the system has available and what the container's limit leaves.
    """
    return max(0, min(_available(), _left_in_container()))


def require_room(need: int, what: str, remedy: str) -> None:
    """Refuse what takes ``need`` bytes at least, where there cannot be so many.

    What is swapped out counts as room, and all memory of the machine where it does not tell what
    is free: to refuse what would have worked is worse than to let the system say no.
    """
    if need <= LITTLE or need <= (room := max(0, min(_at_most(), _left_in_container()))):
        return
    raise InvalidInput(
        f"{what} {_size(need)} of memory at least; there are {_size(room)}. {remedy}"
    )


def _size(count: int) -> str:
    for unit, bytes_ in (("TB", 1e12), ("GB", 1e9)):
        if count >= bytes_:
            return (
                f"{count / bytes_:,.3g} {unit}" if count < 1e15 else f"{count / bytes_:.1e} {unit}"
            )
    return f"{count / 1e6:.3g} MB"


def _available() -> int:
    """Linux counts memory that caches can give back; elsewhere half of all is assumed."""
    told = _told()
    return told["MemAvailable"] if "MemAvailable" in told else _physical() // 2


def _at_most() -> int:
    told = _told()
    if "MemAvailable" in told:
        return told["MemAvailable"] + told.get("SwapFree", 0)
    return _physical()


def _told() -> dict[str, int]:
    """Return what Linux says, in bytes."""
    pairs = (line.split() for line in _lines(Path("/proc/meminfo")))
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in pairs if len(words) > 1}


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2 * UNKNOWN


def _left_in_container() -> int:
    """Return limit − use of control group version 2, or plenty where there is no limit.

    Pages of files that were read and are not in use are given back when memory is asked for.
    """
    group = Path("/sys/fs/cgroup")
    limit, used = _lines(group / "memory.max"), _lines(group / "memory.current")
    if limit and used and limit[0].isdigit() and used[0].isdigit():
        pairs = (line.split() for line in _lines(group / "memory.stat"))
        cached = sum(int(size) for name, size in pairs if name == "inactive_file")
        return int(limit[0]) - max(0, int(used[0]) - cached)
    return 1 << 62


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
