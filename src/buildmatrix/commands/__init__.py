"""One package or module per command: its work, without a command line."""
