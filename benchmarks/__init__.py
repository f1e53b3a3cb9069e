"""Time, memory and error of the library and its rivals; ``python -m benchmarks``, see README.md."""
