"""Sizes at which fits change their algorithm; plans use these sizes too."""

#: Rows kept of a pass, for leave-one-out errors, landmarks and the certificate: at most this many.
KEPT_ROWS = 8192

#: Rows of a sample that a Gaussian process is adapted to, where the sample is not all rows.
LOO_ROWS = 4096

#: More features than this have no Gram matrix: their fit is solved by products, a pass each.
WIDE = 10_000

#: Cells of tables that a default fit keeps in memory, at most: a gigabyte.
MOST_CELLS = 1 << 27

#: Sparse rows of no more cells are made dense, where a kernel or landmarks are chosen from them.
FEW_CELLS = 1 << 24

#: Up to this many products n·D², singular values of the rows are affordable.
FEW = 2e8

#: Up to this many a fit in float64 takes no time that anyone would notice.
SMALL = 4e9


def kept_rows(n_columns: int) -> int:
    """Return the number of rows that a pass keeps: 64 MB, and at least 1024 rows."""
    return min(KEPT_ROWS, max(1024, (64 << 20) // (8 * n_columns)))


def by_rows(n: int, n_features: int, products: float = FEW) -> bool:
    """Whether a fit to n rows takes few products, or rows cost less than their Gram matrix."""
    return n * n_features**2 <= products or 2 * n <= n_features


def block_rows(n_features: int) -> int:
    """Return the rows of a block: 32 MB of float64 at most, and BLAS works at full speed."""
    return max(256, min(4096, (1 << 22) // max(1, n_features)))
