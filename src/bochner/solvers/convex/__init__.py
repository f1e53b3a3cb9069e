"""Convex losses: their least, by Newton steps."""
