"""Distributions that a lock or a requirements file installs, for each target."""
