"""The command line: ``bochner fit``, ``predict`` and the other commands.

Exit codes: 0 success, 1 the data or the model cannot be used (a sentence gives the reason), 2
invalid arguments, 130 stopped by Ctrl-C (143 by kill).
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, by default with the arguments of the process, and exit."""
    if find_spec("click") is None:
        sys.stderr.write(
            "bochner: the command line needs click, not installed here. "
            'Install with: pip install "bochner[cli]"\n'
        )
        sys.exit(2)
    from bochner.cli.running import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
