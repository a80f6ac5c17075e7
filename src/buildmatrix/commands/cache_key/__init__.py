"""`buildmatrix cache-key`: the name for a node class's cache of compiled code."""
