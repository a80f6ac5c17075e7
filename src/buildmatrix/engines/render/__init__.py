"""Jinja2 templates → Dockerfiles and the bake file, with the same bytes every time."""
