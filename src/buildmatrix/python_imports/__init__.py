"""Reach of Python imports, from source text alone: nothing is run."""
