"""What drives predictions: importance of columns, partial dependence, contributions to a row."""
