"""One module per command: parses, calls, prints; no logic."""
