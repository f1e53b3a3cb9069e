"""Gaussian process regression: the law, its intervals, functions drawn from it."""
