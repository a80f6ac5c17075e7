"""`buildmatrix cache-key`: the name under which a node class keeps what was compiled on it."""
