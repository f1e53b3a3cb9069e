"""Learners with scikit-learn's interface; modules of their fits are loaded by the first fit."""

from bochner._core.optional import loaded_when_used

__all__, __getattr__, __dir__ = loaded_when_used(__spec__)
