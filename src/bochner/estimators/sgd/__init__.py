"""Stochastic gradient descent, in its six strategies."""
