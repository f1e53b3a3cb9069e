"""``python -m benchmarks [names...]``; ``--help`` lists experiments and options."""

import sys

from benchmarks import ablation, accuracy, kriging, maps, paper, scale, truth  # noqa: F401
from benchmarks.bench import main

if __name__ == "__main__":
    sys.exit(main())
