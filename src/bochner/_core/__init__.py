"""Arrays, checks, random numbers, and compiled loops with their NumPy twins."""
