"""Report of `preflight`: rungs, their checks, and the rungs left to others; data and formats."""
