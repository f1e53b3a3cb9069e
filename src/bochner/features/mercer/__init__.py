"""Deterministic features: leading terms of a kernel's own expansion."""
