"""`why`: find the requirers, linkers and openers of a library in one graph."""
