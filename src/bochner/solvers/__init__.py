"""Row 1: linear algebra that knows arrays and callables, and nothing of kernels or estimators."""
