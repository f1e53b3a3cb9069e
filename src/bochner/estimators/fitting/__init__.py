"""What every learner's fit needs: inputs, kernels by name, features, classes, folds, merging."""
