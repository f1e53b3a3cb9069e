"""Least squares with a penalty: eigenvalues, paths, leave-one-out errors, evidence."""
