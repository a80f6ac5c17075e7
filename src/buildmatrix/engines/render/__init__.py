"""Jinja2 templates → Dockerfiles, bake file, CI matrix. Deterministic to the byte."""
