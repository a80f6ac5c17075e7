"""Inventory × target → findings. One rule, one code, one function, one page of documentation."""
