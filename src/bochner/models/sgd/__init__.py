"""Learners by stochastic gradient descent."""
