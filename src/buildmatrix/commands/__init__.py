"""One package per command: its work, without a command line."""
