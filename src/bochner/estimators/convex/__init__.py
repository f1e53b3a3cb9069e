"""Learners by convex losses: support vectors, logistic, and regression by any loss."""
