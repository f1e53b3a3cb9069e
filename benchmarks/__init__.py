"""Time, memory and error of bochner and other libraries: ``python -m benchmarks``; see README."""
