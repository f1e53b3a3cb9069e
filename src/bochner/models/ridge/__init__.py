"""Kernel ridge regression, and learners with the same normal equations."""
