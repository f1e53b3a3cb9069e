"""Kernel ridge regression, and what shares its normal equations."""
