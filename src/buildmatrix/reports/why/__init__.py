"""Answer of `why`: data and formats."""
