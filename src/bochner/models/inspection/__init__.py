"""Explanations of predictions: importance of columns, partial dependence, Shapley values."""
