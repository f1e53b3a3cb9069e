"""How much memory there is to use."""

import os
from pathlib import Path

__all__ = ["free_bytes"]

#: What is assumed where the system does not tell.
UNKNOWN = 4 << 30


def free_bytes() -> int:
    """Return the bytes that this process can still take without swapping, as far as is known.

    The least of what the system has available and what the container's limit leaves.
    """
    return max(0, min(_available(), _left_in_container()))


def _available() -> int:
    """Linux counts memory that caches can give back; elsewhere half of all is assumed."""
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _left_in_container() -> int:
    """Return limit − use of control group version 2, or plenty where there is no limit."""
    group = Path("/sys/fs/cgroup")
    limit, used = _lines(group / "memory.max"), _lines(group / "memory.current")
    if limit and used and limit[0].isdigit() and used[0].isdigit():
        return int(limit[0]) - int(used[0])
    return 1 << 62


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
