"""Report of a run (`audit`, `build`, `scan`): data and formats."""
