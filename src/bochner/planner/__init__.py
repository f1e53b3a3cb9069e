"""Predictions of the error, time and memory of fits, before the fits are run."""
