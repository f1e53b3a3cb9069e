"""Reports: HTML pages about models and data."""
