"""Learners whose loss is convex."""
