"""Shared design of all HTML pages: frame, typography, colors, tables, pictures, script."""
