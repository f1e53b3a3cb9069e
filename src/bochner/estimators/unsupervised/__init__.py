"""Learners without targets, and canonical correlation: PCA, CCA, k-means, features."""
