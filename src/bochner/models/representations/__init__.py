"""Representations of training rows: features, kernel matrix, Fourier modes, local fits."""
