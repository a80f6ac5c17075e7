"""`node-classes`: what the machines of a cluster are, and whether that is what a file says."""
