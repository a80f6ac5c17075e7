"""The joined graph of a target or a tree: who asks for what, who holds it, who loads it."""
