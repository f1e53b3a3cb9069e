"""The words that options take, written out so that --help is quick."""

#: The names of ``bochner.selection.lengthscale.NAMED``.
KERNELS = (
    "auto",
    "gaussian",
    "laplace",
    "exponential",
    "matern12",
    "matern32",
    "matern52",
    "cauchy",
    "rational_quadratic",
    "linear",
)

#: The names of ``bochner.features.draw.NAMED``.
METHODS = (
    "auto",
    "fourier",
    "iid",
    "orthogonal",
    "qmc",
    "structured",
    "mercer",
    "hermite",
    "nystrom",
    "uniform",
)

#: The learners of ``bochner fit``, and their classes.
LEARNERS = {
    "ridge": "KernelRidge",
    "ridge-classifier": "KernelRidgeClassifier",
    "gp": "GaussianProcessRegressor",
    "svc": "SVC",
    "logistic": "LogisticRegression",
    "svr": "SVR",
    "regressor": "KernelRegressor",
    "one-class": "OneClassSVM",
    "sgd-classifier": "KernelSGDClassifier",
    "sgd-regressor": "KernelSGDRegressor",
    "kmeans": "KernelKMeans",
    "pca": "KernelPCA",
}
