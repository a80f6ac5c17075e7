"""Findings → text. Each format is a pure function of a `Report`, one module each."""
