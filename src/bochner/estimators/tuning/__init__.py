"""Kernels found by gradients of leave-one-out errors, and metrics learned."""
