"""`why`: requirers, linkers and openers of a library, in one graph of everything known."""
