"""Row 3a: what to choose: kernel, lengthscales, metric, width."""
