"""Pictures of fitted learners, in scikit-learn's manner."""
