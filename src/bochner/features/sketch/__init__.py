"""Features of powers of the inner product."""
