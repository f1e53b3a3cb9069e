"""Features on rows of the data: landmarks, and maps on them."""
