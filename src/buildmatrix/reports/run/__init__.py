"""The report of a run (`audit`, `build`, `scan`): its data, and each format of it."""
