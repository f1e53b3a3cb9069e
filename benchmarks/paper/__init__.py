"""The experiments of *Random Gegenbauer Features for Scalable Kernel Methods*, done again.

``python -m benchmarks.paper figure1|table2|table3``; ``docs/paper.md`` says what came out.
"""
