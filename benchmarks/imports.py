"""Seconds to start: the import and the command line, each a fresh process.

Whole processes are timed, the interpreter's own start included, in turns; "python" is that alone.
"""

import sys
from pathlib import Path

from benchmarks.harness import Options, Row, command_seconds, interleaved, judged

__all__ = ["run"]

_SNIPPETS = {
    "python": "pass",
    "import sklearn.linear_model": "import sklearn.linear_model",
    "import bochner": "import bochner",
    "import bochner; bochner.KernelRidge": "import bochner; bochner.KernelRidge",
}

_HELP = "import sys; sys.argv = ['bochner', '--help']; from bochner.cli import main; main()"


def run(options: Options) -> list[Row]:
    """Time all processes in turns."""
    commands = {name: [sys.executable, "-c", code] for name, code in _SNIPPETS.items()}
    commands["bochner --help"] = _help_command()
    cases = {name: command_seconds(command) for name, command in commands.items()}
    times = interleaved(cases, options.pick(15, 3))
    allowed = times["import sklearn.linear_model"].median + 0.1
    asked = {
        "import bochner": allowed,
        "import bochner; bochner.KernelRidge": allowed,
        "bochner --help": 0.5,
    }
    rows = []
    for name, timing in times.items():
        spread = f"{min(timing.seconds):.3g} to {max(timing.seconds):.3g}"
        row = {"process": name, "seconds": timing.median, "range": spread}
        rows.append(row | (judged(timing.median, asked[name], False) if name in asked else {}))
    return rows


def _help_command() -> list[str]:
    """Return the installed command, or the same by its module where there is none."""
    script = Path(sys.executable).with_name("bochner")
    return [str(script), "--help"] if script.is_file() else [sys.executable, "-c", _HELP]
