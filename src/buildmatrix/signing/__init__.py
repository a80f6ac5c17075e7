"""Signed statements about an image, attached to it: its verdict and its bill of materials."""
