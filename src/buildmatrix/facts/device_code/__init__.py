"""Formats of device code, and the search for device code in a file."""
