"""Solvers: from sums over rows to solutions."""
