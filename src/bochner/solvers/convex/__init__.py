"""Minimisation of convex losses with a squared penalty: Newton's method and LIBSVM."""
