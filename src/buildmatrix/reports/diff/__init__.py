"""Reports of `diff`: a comparison, and drift between targets; data and formats."""
