"""Packages on an index: pages, metadata, and wheels that are read where they lie."""
