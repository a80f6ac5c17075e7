"""Packages on an index: pages, metadata, and wheels that are read in parts, within a budget."""
