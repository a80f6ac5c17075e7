"""Report of `inspect`: data, and each format of it."""
