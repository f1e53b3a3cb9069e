"""Sizes at which fits change their algorithm; plans use these sizes too."""

#: Largest number of rows kept from a pass, for leave-one-out errors, landmarks and certificates.
CACHED_ROWS = 8192

#: Rows of a sample to which the hyperparameters of a Gaussian process are fitted, at most.
LOO_ROWS = 4096

#: With more features no Gram matrix is formed: an iterative solver makes one pass per step.
WIDE = 10_000

#: Largest number of cells of a table that a default fit keeps in memory: 1 GB in float64.
MAX_CELLS = 1 << 27

#: Sparse rows with at most this many cells are made dense to choose a kernel or landmarks.
FEW_CELLS = 1 << 24

#: Up to this number of products, n·D², singular values of the rows are affordable.
SVD_PRODUCTS = 2e8

#: Up to this number of products, n·D², the time that float32 would save is negligible.
SMALL = 4e9


def cached_rows(n_columns: int) -> int:
    """Return the number of rows that a pass keeps: 64 MB, but from 1024 to 8192 rows."""
    return min(CACHED_ROWS, max(1024, (64 << 20) // (8 * n_columns)))


def prefers_rows(n: int, n_features: int, products: float = SVD_PRODUCTS) -> bool:
    """Whether n·D² is at most ``products``, or n rows cost less than their D × D Gram matrix."""
    return n * n_features**2 <= products or 2 * n <= n_features


def block_rows(n_features: int) -> int:
    """Return the rows of a block: 32 MB of float64 features, but from 256 to 4096 rows."""
    return max(256, min(4096, (1 << 22) // max(1, n_features)))
