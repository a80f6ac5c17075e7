"""`diff`: comparison of two sides, and of the targets of one specification."""
