"""Random and placed frequencies of kernels of x − y."""
