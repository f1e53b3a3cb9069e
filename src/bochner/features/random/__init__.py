"""Features of random directions."""
