"""What `inspect` shows: its data, and each format of it."""
