"""The document of `doctor`: what a machine can do."""
