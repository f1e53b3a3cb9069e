"""Rules that choose the landmarks (inducing points) of Nyström features.

>>> import bochner as bo
>>> bo.Nystrom("kmeans") == bo.Nystrom(bo.landmarks.KMeans())
True
"""

from bochner.features.nystrom import Given, KMeans, Landmarks, RidgeLeverage, RPCholesky, Uniform

__all__ = ["Given", "KMeans", "Landmarks", "RPCholesky", "RidgeLeverage", "Uniform"]
