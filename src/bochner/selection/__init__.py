"""Choice of kernel, lengthscales, metric, width and method, from a sample of rows."""
