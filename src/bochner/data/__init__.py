"""Tables of any length as blocks of rows, and the sources of blocks."""
