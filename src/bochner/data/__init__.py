"""Row 0: tables of any length as blocks and their sources."""
