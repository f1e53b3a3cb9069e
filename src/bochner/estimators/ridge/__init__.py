"""Kernel ridge regression and classification, by features or by the kernel itself."""
