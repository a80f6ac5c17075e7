"""The design that all HTML pages share: frame, typography, colors, tables, pictures, script."""
