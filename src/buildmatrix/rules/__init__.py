"""Inventory × target → findings. One rule, one code, one module, one page of documentation."""
