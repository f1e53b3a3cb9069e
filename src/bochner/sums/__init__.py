"""Mergeable sums over rows, computed in one pass."""
