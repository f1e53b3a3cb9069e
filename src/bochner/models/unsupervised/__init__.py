"""Learners without targets."""
