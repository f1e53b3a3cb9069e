"""Bounds of the literature, to be compared with what is measured."""
