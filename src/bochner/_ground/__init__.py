"""Row 0: arrays, blocks, checks, randomness, compiled loops. Imports nothing above it."""
