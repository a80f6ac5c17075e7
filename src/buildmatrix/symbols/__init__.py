"""Symbols and names that LIEF reads, in a process of its own."""
