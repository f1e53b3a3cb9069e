"""Row 1: what a pass over rows makes, and how it adds."""
