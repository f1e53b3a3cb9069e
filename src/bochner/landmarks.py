"""Rules that choose the landmarks (inducing points) of Nyström features.

>>> import bochner as bo
>>> bo.Nystrom("kmeans") == bo.Nystrom(bo.landmarks.KMeans())
True
"""

from bochner.features.nystrom import KMeans, Landmarks, Points, RidgeLeverage, RPCholesky, Uniform

__all__ = ["KMeans", "Landmarks", "Points", "RPCholesky", "RidgeLeverage", "Uniform"]
