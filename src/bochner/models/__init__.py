"""Learners with scikit-learn's interface; modules of their fits are loaded by the first fit."""

from bochner._core.optional import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__spec__)
