"""Time, memory and error of what the library does, with rivals in the same run.

One module for each row of the table of goals: ``run(options)`` returns its rows. The command is
``python -m benchmarks``; see ``README.md``.
"""
