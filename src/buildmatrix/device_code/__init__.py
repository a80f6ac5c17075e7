"""What accelerators run: the formats of device code, and the search for it in one file."""
