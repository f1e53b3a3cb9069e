"""Row 0: arrays, checks, random numbers, compiled loops and their twins."""
