"""A small inference service: which digit is on an 8×8 picture, answered on any of four backends."""
