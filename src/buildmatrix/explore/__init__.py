"""`explore`: terminal view of a SOURCE by layer, distribution, library and vendor."""
