"""Row 1: from sums to solutions."""
