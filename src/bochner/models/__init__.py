"""Learners with scikit-learn's interface, and what their fits need, loaded by the first fit."""

from bochner._core.optional import loaded_when_used

__all__, __getattr__, __dir__ = loaded_when_used(__spec__)
